//! `lnk sandbox run`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::ArgAction;
use lnk_sandbox::Renderer;
use lnk_sandbox::nearest::nearest;
use lnk_sandbox::{Caller, Error, Notice, Outcome, Request};

use super::{caller, ready};
use crate::error::{CommandError, Result};
use crate::ui;

const RUN_A_PROGRAM: &str = "Run a program in the sandbox";
const LET_IT_COMMIT: &str = "Let it commit";

/// What `--allow` takes, and whether this version has it.
const PERMISSIONS: [(&str, bool); 5] = [
    ("read-home", true),
    ("network", false),
    ("open", false),
    ("localhost", false),
    ("developer-tools", false),
];

const EXAMPLES: &str = "\
Examples:
  A shell that can change only this folder:
    lnk sandbox run --write . -- bash
  A build, in another folder:
    lnk sandbox run --write ~/Projects/site -- npm run build
  One folder to read, one to write:
    lnk sandbox run --read ~/Documents/reports --write . -- python3 summarize.py
  Your whole home folder to read, but Link's settings:
    lnk sandbox run --read '~' -- ./tool
  Look at a repository, then commit to it:
    lnk sandbox run --write . -- git status
    lnk sandbox run --write . --write-dot-files . -- git commit -qam fix";

/// Run a program in the sandbox
///
/// The program reads the system's programs and libraries, and nothing else
/// unless you open it. It has no network. Its environment is cleared but for
/// PATH, HOME, TERM, COLORTERM, TZ, the locale and who you are. It gets an
/// empty home folder, an empty /run and a private /tmp, and sees only its own
/// processes.
///
/// Everything after the program's name is the program's, flags too.
///
/// run exits with the program's status: 128 and the signal's number where one
/// ended it, 126 where it can't be run, 127 where it isn't found. 125 says that
/// the sandbox failed and nothing ran.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = EXAMPLES,
    disable_help_flag = true,
    override_usage = "lnk sandbox run [FLAGS] -- PROGRAM [ARGUMENTS]..."
)]
pub struct Args {
    /// A folder or file it may only read; '~' is your whole home folder
    ///
    /// '~' is your home folder but for Link's settings and agents' folders.
    /// Repeat it for more.
    #[arg(long, value_name = "PATH", help_heading = RUN_A_PROGRAM, verbatim_doc_comment)]
    read: Vec<PathBuf>,

    /// A folder or file it may read and write
    ///
    /// Dot files at the top of the folder that would run outside the sandbox,
    /// such as .git and .envrc, stay read-only. Repeat it for more.
    #[arg(long, value_name = "PATH", help_heading = RUN_A_PROGRAM, verbatim_doc_comment)]
    write: Vec<PathBuf>,

    /// A folder or file it may never touch, even inside an open one
    ///
    /// But for the --read and --write folders inside it. Repeat it for more.
    #[arg(long, value_name = "PATH", help_heading = RUN_A_PROGRAM, verbatim_doc_comment)]
    hide: Vec<PathBuf>,

    /// A --write folder whose .git, .envrc and the like it may change too
    ///
    /// What is written there runs as you, outside the sandbox, the next time you
    /// run git, cd into the folder or open it in your editor. Repeat it for more.
    #[arg(long, value_name = "PATH", help_heading = LET_IT_COMMIT, verbatim_doc_comment)]
    write_dot_files: Vec<PathBuf>,

    /// A permission by name
    #[arg(long, value_name = "NAME", hide = true)]
    allow: Vec<OsString>,

    /// Show this help: in short with -h, whole with --help
    #[arg(short, long, action = ArgAction::Help, help_heading = "Help")]
    help: Option<bool>,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    program: Vec<OsString>,
}

pub fn run(args: Args) -> Result<u8> {
    let (request, caller) = (request(args)?, caller()?);
    let outcome = match start(&request, &caller) {
        Err(Error::NotReady(reason)) => {
            ready::mend(&reason)?;
            start(&request, &caller)?
        }
        other => other?,
    };
    report(&outcome);
    Ok(outcome.status)
}

fn start(request: &Request, caller: &Caller) -> Result<Outcome, Error> {
    lnk_sandbox::run(request, caller, &mut notice)
}

fn notice(Notice(line): Notice) {
    if ui::is_watched() {
        ui::failure(&line);
    }
}

fn report(outcome: &Outcome) {
    outcome.message.iter().for_each(|line| ui::failure(line));
    outcome.warnings.iter().for_each(|warning| ui::failure(&warning.0));
    outcome.refused.iter().cloned().for_each(notice);
}

fn request(args: Args) -> Result<Request> {
    let mut read = args.read;
    for name in &args.allow {
        read.extend(opened_by(name)?);
    }
    Ok(Request {
        read,
        write: args.write,
        write_dot_files: args.write_dot_files,
        hide: args.hide,
        program: args.program,
        renderer: renderer(env::var_os("LNK_SANDBOX_MOUNTS").as_deref())?,
    })
}

/// What a permission opens for reading.
fn opened_by(name: &OsStr) -> Result<Option<PathBuf>> {
    let because = |line| Err(CommandError::Because(line));
    let typed = name.to_string_lossy();
    match PERMISSIONS.iter().find(|(known, _)| *known == typed) {
        Some((_, true)) => Ok(Some("~".into())),
        Some((_, false)) => because(format!(
            "--allow {typed} isn't available in this version: the program has no network, and \
             only the folders that --read and --write name"
        )),
        None => match nearest(&typed, PERMISSIONS.map(|(known, _)| known)) {
            Some(meant) => {
                because(format!("--allow knows no permission '{typed}': did you mean {meant}?"))
            }
            None => because(format!(
                "--allow knows no permission '{typed}': use --read and --write to open folders"
            )),
        },
    }
}

/// Who makes the mounts, where somebody looks for a fault in one of the two ways.
fn renderer(forced: Option<&OsStr>) -> Result<Renderer> {
    match forced.map(OsStr::as_encoded_bytes) {
        None => Ok(Renderer::Auto),
        Some(b"bwrap") => Ok(Renderer::Bwrap),
        Some(b"joiner") => Ok(Renderer::Joiner),
        Some(_) => Err(CommandError::Because(
            "LNK_SANDBOX_MOUNTS can only be bwrap or joiner: unset it, or set one of them".into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::os::unix::ffi::OsStringExt as _;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        run: Args,
    }

    fn parse(words: &[&str]) -> Args {
        Line::try_parse_from(std::iter::once(&"run").chain(words)).unwrap().run
    }

    #[test]
    fn what_follows_the_program_is_the_programs() {
        let program = |words: &[&str]| parse(words).program;
        assert_eq!(program(&["--", "ls", "-l", "--write", "x"]), ["ls", "-l", "--write", "x"]);
        assert_eq!(
            program(&["ls", "-l", "--write", "x", "-h"]),
            ["ls", "-l", "--write", "x", "-h"]
        );
        assert_eq!(program(&["git", "log", "--", "file"]), ["git", "log", "--", "file"]);
        assert_eq!(program(&["--", "git", "log", "--", "file"]), ["git", "log", "--", "file"]);
        assert_eq!(program(&["--", "--", "x"]), ["--", "x"]);
        assert_eq!(program(&["--", "-x"]), ["-x"]);
        assert_eq!(program(&["--", "", ""]), ["", ""]);
        assert!(parse(&["ls", "--write", "x"]).write.is_empty());
    }

    #[test]
    fn flags_before_it_are_ours_and_repeat() {
        let args = parse(&["--read", "a", "--write=b", "--read=c", "--hide", "d", "ls", "--hide"]);
        assert_eq!(args.read, [PathBuf::from("a"), "c".into()]);
        assert_eq!((args.write, args.hide), (vec!["b".into()], vec!["d".into()]));
    }

    #[test]
    fn paths_and_arguments_are_bytes() {
        let strange = OsString::from_vec(b"\xff\n x".to_vec());
        let words = ["run".into(), "--write".into(), strange.clone(), "--".into(), strange.clone()];
        let args = Line::try_parse_from(words).unwrap().run;
        assert_eq!(args.write, [PathBuf::from(&strange)]);
        assert_eq!(args.program, [strange]);
    }

    #[test]
    fn read_home_is_reading_the_home() {
        let request = request(parse(&["--allow", "read-home", "true"])).unwrap();
        assert_eq!(request.read, [PathBuf::from("~")]);
    }

    #[test]
    fn the_mounts_are_only_forced_by_a_right_name() {
        let by = |name: &str| renderer(Some(OsStr::new(name))).ok();
        assert_eq!(renderer(None).ok(), Some(Renderer::Auto));
        assert_eq!(by("bwrap"), Some(Renderer::Bwrap));
        assert_eq!(by("joiner"), Some(Renderer::Joiner));
        assert_eq!((by(""), by("Bwrap"), by("auto")), (None, None, None));
    }
}
