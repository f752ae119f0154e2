//! Why a program wasn't executed, in a sentence that says what to do.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lnk_spec::host::Host;
use lnk_spec::shown;

use crate::caller::Caller;
use crate::paths::walk;
use crate::plan::Plan;
use crate::programs::refusal::Adding;
use crate::programs::start::{self, Start};

/// The sentence for a program that execve(2) refused with `errno` at `path`.
#[must_use]
pub fn explain(
    errno: i32,
    path: &Path,
    program: &OsStr,
    (caller, plan): (&Caller, &Plan),
    adding: Adding,
) -> String {
    let name = shown::word(program);
    match errno {
        libc::ENOENT => match outside(program, caller) {
            Some(found) => closed_inside(&name, &found, caller, plan, adding),
            None if follows_a_variable(program) => format!(
                "{name}: not found; a variable that the sandbox has is empty outside: have a shell \
                 inside read it, between single quotes, as in sh -c '$GIT_SSH_COMMAND user@host'"
            ),
            None => format!("{name}: not found{}", as_one_word(program, caller)),
        },
        libc::EACCES if path.is_dir() => format!("{name}: is a folder, not a program"),
        libc::EACCES => match outside(program, caller) {
            Some(found) if !plan.shows(&real(&found)) => {
                closed_inside(&name, &found, caller, plan, adding)
            }
            _ => format!("{name}: not executable; chmod +x makes it so"),
        },
        libc::ENOEXEC => format!("{name}: not a program for this machine"),
        libc::E2BIG => format!("{name}: its arguments and environment are too long for the system"),
        _ => format!("{name}: {}", crate::error::reason(&std::io::Error::from_raw_os_error(errno))),
    }
}

/// Whether it's what an empty variable leaves of `$GIT_SSH_COMMAND user@host`, or such a
/// variable in quotes.
fn follows_a_variable(program: &OsStr) -> bool {
    let word = program.to_str().unwrap_or(" ");
    let is_at_host = |(user, host): (&str, &str)| !user.is_empty() && host.parse::<Host>().is_ok();
    word.is_empty() || word.split_once('@').is_some_and(is_at_host)
}

/// A whole command line in quotes is a program's name with spaces in it.
fn as_one_word(program: &OsStr, caller: &Caller) -> String {
    let line = program.to_str().unwrap_or_default();
    let first = line.split_whitespace().next().filter(|first| *first != line);
    match first.filter(|first| outside(OsStr::new(first), caller).is_some()) {
        Some(_) => format!("; write it without quotes: {}", shown::escaped(line.as_bytes())),
        None => String::new(),
    }
}

/// Where the caller's own shell would find the program.
fn outside(program: &OsStr, caller: &Caller) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        let path = caller.cwd.join(program);
        return path.is_file().then_some(path);
    }
    on_path(program, caller).next()
}

/// A line for a program of which another is found inside than the caller's own
/// shell would find: a version manager's, say.
#[must_use]
pub fn another_found(program: &OsStr, caller: &Caller, plan: &Plan) -> Option<String> {
    if program.as_bytes().contains(&b'/') {
        return None;
    }
    let mut found = on_path(program, caller);
    let first = found.next().filter(|first| !plan.shows(&real(first)))?;
    let inside = found.find(|path| plan.shows(&real(path)))?;
    let folder = tilde(&folder_to_open(&first, caller), caller);
    Some(format!(
        "{} is {} inside; yours is in {folder}: add --read {folder}",
        shown::word(program),
        shown::word(inside)
    ))
}

/// Every file of this name that PATH leads to, in its order.
fn on_path<'a>(program: &'a OsStr, caller: &'a Caller) -> impl Iterator<Item = PathBuf> + 'a {
    let path = caller.var("PATH").unwrap_or_default();
    let folders = std::env::split_paths(path).filter(|_| !path.is_empty());
    folders.map(move |folder| caller.cwd.join(folder).join(program)).filter(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path)
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

fn real(path: &Path) -> PathBuf {
    crate::paths::real_or_written(path)
}

/// It exists outside; inside something is missing: the file, a link's target,
/// or what the file starts with.
fn closed_inside(name: &str, found: &Path, caller: &Caller, plan: &Plan, adding: Adding) -> String {
    let real_path = real(found);
    let mut folders: Vec<PathBuf> = Vec::new();
    let links = walk(found).map(|walked| walked.links).unwrap_or_default();
    let places = links.iter().map(|link| link.at.clone()).chain([real_path.clone()]);
    for place in places {
        if !plan.shows(&place) {
            let folder = folder_to_open(&place, caller);
            if !folders.iter().any(|opened| place.starts_with(opened)) && !folders.contains(&folder)
            {
                folders.push(folder);
            }
        }
    }
    if let Some(hidden) = folders.iter().find(|folder| plan.mounts.hides(folder)) {
        let hide = match adding {
            Adding::ToSpec => "hide in [files]",
            Adding::ByFlag => "--hide",
        };
        return format!("{name} is in {}, which {hide} closes", tilde(hidden, caller));
    }
    if !folders.is_empty() {
        let place = tilde(&folder_to_open(&real_path, caller), caller);
        folders.extend(toolchains_beside(&folders, caller));
        let folders: Vec<String> = folders.iter().map(|folder| tilde(folder, caller)).collect();
        return format!("{name} is in {place}: {}", adding.reading(&folders));
    }
    let start = File::open(&real_path).and_then(|file| start::of_file(&file));
    let Some(interpreter) = start.as_ref().ok().and_then(Start::needs) else {
        return format!("{name}: not found inside; what it needs to start isn't readable there");
    };
    let shown_interpreter = shown::word(interpreter);
    if interpreter.as_os_str().as_bytes().ends_with(b"\r") {
        return format!(
            "{name}: its lines end as on Windows, so it starts with {shown_interpreter}"
        );
    }
    if !interpreter.exists() {
        return format!("{name} starts with {shown_interpreter}, which doesn't exist");
    }
    let folder = tilde(&folder_to_open(&real(interpreter), caller), caller);
    let add = adding.reading(std::slice::from_ref(&folder));
    format!("{name} starts with {shown_interpreter}, which is in {folder}: {add}")
}

/// cargo's programs start the toolchains that rustup keeps in a folder beside.
fn toolchains_beside(folders: &[PathBuf], caller: &Caller) -> Option<PathBuf> {
    let home = real(Path::new(caller.var("HOME")?));
    let rustup = home.join(".rustup");
    (folders.contains(&home.join(".cargo")) && rustup.is_dir()).then_some(rustup)
}

/// The folder that a program came with: the one in the home that holds its
/// installation, else the parent of its `bin`, else its own; the program alone
/// where its folder is everybody's, or the whole home.
pub(crate) fn folder_to_open(program: &Path, caller: &Caller) -> PathBuf {
    let own = program.parent().unwrap_or(Path::new("/"));
    let home = caller.var("HOME").map(|home| real(Path::new(home)));
    if let Some(home) = &home
        && let Ok(below) = program.strip_prefix(home)
    {
        let mut parts = below.components();
        let first = parts.next().map(|part| home.join(part));
        let shared = [".local", ".config", ".cache"];
        if let Some(first) = first.filter(|first| {
            let name = first.file_name().unwrap_or_default();
            first != program
                && name.as_bytes().starts_with(b".")
                && !shared.iter().any(|shared| name == *shared)
        }) {
            return first;
        }
        return if own == home { program.to_path_buf() } else { own.to_path_buf() };
    }
    if is_everybodys(own) {
        return program.to_path_buf();
    }
    match own.file_name() {
        Some(name) if name == "bin" => {
            own.parent().filter(|parent| parent.parent().is_some()).unwrap_or(own).to_path_buf()
        }
        _ => own.to_path_buf(),
    }
}

fn is_everybodys(folder: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(folder).is_ok_and(|folder| folder.permissions().mode() & 0o002 != 0)
}

/// A path as a person types it.
fn tilde(path: &Path, caller: &Caller) -> String {
    let home = caller.var("HOME").map(|home| real(Path::new(home)));
    match home.as_ref().and_then(|home| path.strip_prefix(home).ok()) {
        Some(below) if below.as_os_str().is_empty() => "'~'".into(),
        Some(below) => {
            let word = shown::word(below);
            if word.starts_with(['\'', '$']) { shown::word(path) } else { format!("~/{word}") }
        }
        None => shown::word(path),
    }
}
