//! `lnk sandbox`: its commands, each in the file of its name.

mod check;
mod connect;
mod flags;
mod key;
mod learn;
mod log;
mod named;
mod names;
mod pause;
mod paused;
mod permissions;
mod ready;
mod resume;
mod run;
mod spec;
mod stop;
mod table;
mod traffic;

use std::path::{Path, PathBuf};
use std::{env, fs};

use clap::Subcommand;
use lnk_sandbox::error::reason;
use rustix::process::{getgid, getuid};

use crate::error::{CommandError, Result};

/// Run a program in the sandbox, and what belongs to it
///
/// A program in the sandbox changes only the folders you give it, reads only
/// what you open, and has no network.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    disable_help_subcommand = true,
    after_help = "Try: lnk sandbox ready\n     lnk sandbox run --write . -- bash"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(Box<run::Args>),
    Learn(Box<learn::Args>),
    Spec(Box<spec::Args>),
    Permissions(permissions::Args),
    Ready(ready::Args),
    Check(Box<check::Args>),
    Key(key::Args),
    Log(log::Args),
    Traffic(traffic::Args),
    Stop(stop::Args),
    Pause(pause::Args),
    Resume(resume::Args),
    Paused(paused::Args),
    #[command(hide = true)]
    Connect(connect::Args),
    #[command(hide = true)]
    Names(names::Args),
}

pub fn sandbox(args: Args) -> Result<u8> {
    if let Command::Connect(args) = args.command {
        return connect::connect(&args);
    }
    // Nothing else of it is for the program inside.
    lnk_sandbox::run::refuse_inside()?;
    match args.command {
        Command::Run(args) => run::run(*args),
        Command::Learn(args) => learn::learn(*args),
        Command::Spec(args) => spec::spec(*args),
        Command::Permissions(args) => permissions::permissions(&args),
        Command::Ready(ready::Args {}) => ready::ready(),
        Command::Check(args) => check::check(*args),
        Command::Key(args) => key::key(args),
        Command::Log(args) => log::log(args),
        Command::Traffic(args) => traffic::traffic(&args),
        Command::Stop(args) => stop::stop(&args),
        Command::Pause(args) => pause::pause(&args),
        Command::Resume(args) => resume::resume(&args),
        Command::Paused(args) => paused::paused(&args),
        Command::Connect(args) => connect::connect(&args),
        Command::Names(args) => names::names(&args),
    }
}

/// What the library wants to know of this process.
fn caller() -> Result<lnk_sandbox::Caller> {
    Ok(lnk_sandbox::Caller {
        env: env::vars_os().collect(),
        cwd: working_folder()?,
        own_binary: own_binary()?,
        uid: getuid().as_raw(),
        gid: getgid().as_raw(),
    })
}

/// The shell's name for the working folder, with the symlinks it went through,
/// where it is still the same folder; the kernel's otherwise.
fn working_folder() -> Result<PathBuf> {
    let real = env::current_dir().map_err(|error| {
        CommandError::Because(format!(
            "the working folder can't be found ({}): cd to one",
            reason(&error)
        ))
    })?;
    let named = env::var_os("PWD").map(PathBuf::from).filter(|named| is_name_of(named, &real));
    Ok(named.unwrap_or(real))
}

/// Whether an absolute path without `.` and `..` leads to the folder. (`.` is
/// gone from `components` already, but at the start.)
fn is_name_of(named: &Path, real: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Component::{Normal, RootDir};
    let plain = named.components().all(|part| matches!(part, RootDir | Normal(_)));
    let id = |path: &Path| fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    named.is_absolute() && plain && id(named).is_some_and(|named| Some(named) == id(real))
}

/// The file that this process runs, which is started again inside. A new one
/// may have taken its place: then they would be two versions of `lnk`.
fn own_binary() -> Result<PathBuf> {
    let link = Path::new("/proc/self/exe");
    let path = fs::read_link(link).map_err(|error| {
        CommandError::Because(format!("/proc/self/exe can't be read: {}", reason(&error)))
    })?;
    if is_name_of(&path, link) {
        return Ok(path);
    }
    Err(CommandError::Because("lnk was replaced while it started: run it again".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_folders_name_counts_while_it_leads_there() {
        let real = env::current_dir().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        symlink(&real, &link).unwrap();
        assert!(is_name_of(&link, &real));
        assert!(!is_name_of(dir.path(), &real));
        assert!(!is_name_of(Path::new("."), &real));
        assert!(!is_name_of(&link.join(".."), real.parent().unwrap()));
        assert!(!is_name_of(Path::new("/no/such/folder"), &real));
    }

    #[test]
    fn this_process_has_a_file() {
        assert_eq!(own_binary().unwrap(), env::current_exe().unwrap());
    }
}
