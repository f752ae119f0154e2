//! `lnk sandbox run`: from what was asked to the program's exit status.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::Caller;

/// What `run` was asked for, as typed: paths aren't resolved yet.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// `--read` folders or files.
    pub read: Vec<PathBuf>,
    /// `--write` folders or files.
    pub write: Vec<PathBuf>,
    /// `--write-dot-files` folders.
    pub write_dot_files: Vec<PathBuf>,
    /// `--hide` folders or files.
    pub hide: Vec<PathBuf>,
    /// The program and its arguments; never empty.
    pub program: Vec<OsString>,
    /// How the mounts are made; [`Renderer::Auto`] unless forced.
    pub renderer: Renderer,
}

/// Who makes the mounts. Both give the same sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Renderer {
    /// The joiner, and bubblewrap where the joiner can't.
    #[default]
    Auto,
    /// bubblewrap's own arguments.
    Bwrap,
    /// The joiner or nothing.
    Joiner,
}

/// Something worth a line while or after a program runs.
#[derive(Clone, Debug)]
pub struct Notice(pub String);

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The status to exit with: the program's own, 128 + signal, 126 or 127.
    pub status: u8,
    /// A message to print even without a terminal (program not found, say).
    pub message: Option<String>,
    /// What was refused, for the footer that only a terminal sees.
    pub refused: Vec<Notice>,
}

/// Runs a program in a sandbox and waits for its end.
///
/// # Errors
/// [`Error::Refused`] for a grant that can't be given, [`Error::NotReady`] where
/// this machine can't build the sandbox. The program has not run then.
pub fn run(_request: &Request, _caller: &Caller, _on_notice: &mut dyn FnMut(Notice)) -> Result<Outcome, Error> {
    Err(Error::NotReady("not built".into()))
}
