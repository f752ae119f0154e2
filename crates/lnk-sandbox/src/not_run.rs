//! Why a program wasn't executed, in a sentence that says what to do.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lnk_spec::shown;

use crate::caller::Caller;
use crate::paths::walk;
use crate::plan::Plan;

/// How much of a script is read to find what it starts with.
const FIRST_LINE: usize = 256;

/// The sentence for a program that execve(2) refused with `errno` at `path`.
#[must_use]
pub fn explain(errno: i32, path: &Path, program: &OsStr, caller: &Caller, plan: &Plan) -> String {
    let name = shown::word(program);
    match errno {
        libc::ENOENT => match outside(program, caller) {
            Some(found) => closed_inside(&name, &found, caller, plan),
            None => format!("{name}: not found"),
        },
        libc::EACCES if path.is_dir() => format!("{name}: is a folder, not a program"),
        libc::EACCES => match outside(program, caller) {
            Some(found) if !plan.shows(&real(&found)) => closed_inside(&name, &found, caller, plan),
            _ => format!("{name}: not executable; chmod +x makes it so"),
        },
        libc::ENOEXEC => format!("{name}: not a program for this machine"),
        libc::E2BIG => format!("{name}: its arguments and environment are too long for the system"),
        _ => format!("{name}: {}", crate::error::reason(&std::io::Error::from_raw_os_error(errno))),
    }
}

/// Where the caller's own shell would find the program.
fn outside(program: &OsStr, caller: &Caller) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        let path = caller.cwd.join(program);
        return path.is_file().then_some(path);
    }
    let path = caller.var("PATH").unwrap_or_default();
    std::env::split_paths(path)
        .map(|folder| caller.cwd.join(folder).join(program))
        .find(|path| is_program(path))
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
fn closed_inside(name: &str, found: &Path, caller: &Caller, plan: &Plan) -> String {
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
    if !folders.is_empty() {
        let flags: Vec<String> =
            folders.iter().map(|folder| format!("--read {}", tilde(folder, caller))).collect();
        let place = tilde(&folder_to_open(&real_path, caller), caller);
        return format!("{name} is in {place}: add {}", flags.join(" "));
    }
    match interpreter(&real_path) {
        Some(interpreter) if !plan.shows(&real(&interpreter)) => {
            let folder = tilde(&folder_to_open(&real(&interpreter), caller), caller);
            if interpreter.exists() {
                format!(
                    "{name} starts with {}, which is in {folder}: add --read {folder}",
                    shown::word(&interpreter)
                )
            } else {
                format!("{name} starts with {}, which doesn't exist", shown::word(&interpreter))
            }
        }
        _ => format!("{name}: not found inside; what it needs to start isn't readable there"),
    }
}

/// What a script's `#!` names.
fn interpreter(script: &Path) -> Option<PathBuf> {
    use std::io::Read;
    let mut line = Vec::new();
    std::fs::File::open(script).ok()?.take(FIRST_LINE as u64).read_to_end(&mut line).ok()?;
    let rest = line.strip_prefix(b"#!")?.trim_ascii_start();
    let end = rest.iter().position(|byte| byte.is_ascii_whitespace()).unwrap_or(rest.len());
    (end > 0).then(|| PathBuf::from(OsStr::from_bytes(&rest[..end])))
}

/// The folder that a program came with: the one in the home that holds its
/// installation, else the parent of its `bin`, else its own.
fn folder_to_open(program: &Path, caller: &Caller) -> PathBuf {
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
        return own.to_path_buf();
    }
    match own.file_name() {
        Some(name) if name == "bin" => {
            own.parent().filter(|parent| parent.parent().is_some()).unwrap_or(own).to_path_buf()
        }
        _ => own.to_path_buf(),
    }
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
