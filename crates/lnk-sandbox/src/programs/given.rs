//! The program that a run is given: it has to be on the list itself.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lnk_spec::shown;

use super::find::Finder;
use super::judge::{identity_of, is_program, start_of};
use super::refusal::{Adding, never_listed};
use super::start::{Start, starts_as_text};
use crate::paths::real_or_written;
use crate::plan::Plan;

/// How many scripts may start one another, as execve(2) has it.
const MOST_SCRIPTS: usize = 5;

/// The sentence for a program that the list doesn't let run, or that starts with
/// one; `None` where it runs, and where there is no such program.
#[must_use]
pub fn refusal(plan: &Plan, finder: &Finder<'_>, adding: Adding) -> Option<String> {
    let name = plan.program.first()?;
    // The first that is executed for the name: another of it would be another
    // program.
    let mut candidates = candidates(name, plan);
    let path = candidates.next()?;
    let missing = unlisted(&path, plan)?;
    let shown = shown::word(name);
    let real = real_or_written(&missing);
    if let Some(why) = never_listed(finder, plan, &real) {
        let only = adding.advice_for_unlisted();
        return Some(if missing == path {
            format!("{shown} may not run and can't be listed: {why}; {only}")
        } else {
            format!(
                "{shown} may not run: it starts with {}, which can't be listed: {why}; {only}",
                shown::word(&missing)
            )
        });
    }
    let add = adding.advice(&finder.entry(&missing, &real));
    Some(if missing == path {
        let another = candidates.any(|path| unlisted(&path, plan).is_none());
        let which = if another { format!(" ({})", shown::word(&path)) } else { String::new() };
        format!("{shown}{which} isn't one of the programs that may run: {add}")
    } else {
        format!("{shown} starts with {}, which may not run: {add}", shown::word(&missing))
    })
}

/// The files that are executed for a name, in the order they are tried.
fn candidates(name: &OsStr, plan: &Plan) -> impl Iterator<Item = PathBuf> {
    let paths = if name.as_bytes().contains(&b'/') {
        vec![plan.cwd.join(name)]
    } else {
        let path = plan.env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path);
        let folders = std::env::split_paths(path.map_or(OsStr::new(""), |path| path));
        folders.map(|folder| plan.cwd.join(folder).join(name)).collect()
    };
    let runs = move |path: &PathBuf| {
        let real = real_or_written(path);
        plan.shows(&real) && is_program(&real)
    };
    paths.into_iter().filter(runs)
}

/// What of a program, and of what its `#!` starts, isn't listed.
fn unlisted(path: &Path, plan: &Plan) -> Option<PathBuf> {
    let list = plan.programs.list()?;
    let mut path = path.to_path_buf();
    for _ in 0..MOST_SCRIPTS {
        let real = real_or_written(&path);
        if !identity_of(&real).is_some_and(|identity| list.allows(&real, identity)) {
            return Some(path);
        }
        match start_of(&real) {
            Start::Script { interpreter } => path = plan.cwd.join(interpreter),
            // A script without `#!` is the shell's.
            Start::Other if starts_as_text(&real) => path = "/bin/sh".into(),
            Start::Elf { .. } | Start::Other => return None,
        }
        if !path.exists() {
            return None;
        }
    }
    None
}
