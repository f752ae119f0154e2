//! `lnk sandbox names`, hidden: the names that a shell completes.

use std::ffi::OsString;
use std::path::Path;

use lnk_sandbox::known::Known;
use lnk_sandbox::wire::log::{Filter, read_last};
use lnk_sandbox::{Caller, state};

use super::{caller, named};
use crate::error::Result;
use crate::ui;

/// Calls of the log whose sandboxes are offered.
const LATEST: usize = 1000;

/// Print the names that a command line can go on with
///
/// One a line, each a word that no shell reads as anything else.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The command line so far
    #[arg(value_name = "WORD", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

pub fn names(args: &Args) -> Result<u8> {
    let caller = caller()?;
    let folder = state::sandbox(&caller)?;
    let command = args.words.iter().find(|word| COMMANDS.iter().any(|command| *word == command));
    let names = names_for(command.and_then(|word| word.to_str()), &caller, &folder)?;
    let mut names: Vec<String> = names.into_iter().filter(|name| is_plain(name)).collect();
    names.sort();
    names.dedup();
    ui::page(&names.join("\n"))?;
    Ok(0)
}

/// The commands that take names.
const COMMANDS: [&str; 3] = ["pause", "resume", "log"];

fn names_for(command: Option<&str>, caller: &Caller, folder: &Path) -> Result<Vec<String>> {
    let all = named::known(caller, folder)?;
    let of = |known: &Known| [known.word(&all)].into_iter().chain(known.runs.clone());
    let is_paused = |known: &&Known| known.pause.is_some();
    Ok(match command {
        Some("resume") => all.iter().filter(is_paused).map(|known| known.word(&all)).collect(),
        Some("log") => all.iter().flat_map(of).chain(logged(folder)).collect(),
        _ => all.iter().flat_map(of).collect(),
    })
}

/// The sandboxes of the latest calls. Without them there is only less to offer.
fn logged(folder: &Path) -> impl Iterator<Item = String> {
    let calls = read_last(folder, LATEST, &Filter::default()).unwrap_or_default();
    calls.into_iter().map(|call| call.line.sandbox.name)
}

/// Whether it is one word for every shell, as it stands.
fn is_plain(word: &str) -> bool {
    !word.starts_with('-')
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte))
}
