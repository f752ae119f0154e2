//! What a run is asked for.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::faults::Faults;
use crate::spec_file::Agreed;

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
    /// The spec that some of these paths come from.
    pub spec: Option<Agreed>,
    /// The program and its arguments; never empty.
    pub program: Vec<OsString>,
    /// How the mounts are made; [`Renderer::Auto`] unless forced.
    pub renderer: Renderer,
    /// Fences left out on purpose; none but in a test's build.
    pub faults: Faults,
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
