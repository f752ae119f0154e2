//! `lnk sandbox run`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::ArgAction;
use lnk_sandbox::Renderer;
use lnk_sandbox::consent::Question;
use lnk_sandbox::spec::diff::Grants;
use lnk_sandbox::spec_file::{self, SpecFile};
use lnk_sandbox::{Caller, Error, Notice, Outcome, Request};

use super::flags::{A_SPEC, Flags};
use super::{caller, ready};
use crate::error::{CommandError, Result};
use crate::ui::{self, Terminal};

/// What `run` refuses and a spec may say already.
const NOT_BUILT: &str = "\
Not built yet, so a run with one of them is refused: --command, --internet-host,
--tcp, --upstream, --per-minute, --lan-host, --port, --model, --tool, --browser-host.";

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
    lnk sandbox run --write . --write-dot-files . -- git commit -qam fix
  A sandbox written down:
    lnk sandbox run --spec app.toml -- node app.js";

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
    after_help = NOT_BUILT,
    after_long_help = format!("{EXAMPLES}\n\n{NOT_BUILT}"),
    disable_help_flag = true,
    override_usage = "lnk sandbox run [FLAGS] -- PROGRAM [ARGUMENTS]..."
)]
pub struct Args {
    #[command(flatten)]
    flags: Flags,

    /// A spec, the file that says what the sandbox may do
    ///
    /// A flag beside it replaces that key of the file, but --hide, which adds to
    /// it. A spec that hasn't run here, or opens something else now, is shown and
    /// asked about first.
    #[arg(long, value_name = "FILE", help_heading = A_SPEC, verbatim_doc_comment)]
    spec: Option<PathBuf>,

    /// Agree to what the spec opens without being asked
    #[arg(long, requires = "spec", help_heading = A_SPEC)]
    yes: bool,

    /// Show this help: in short with -h, whole with --help
    #[arg(short, long, action = ArgAction::Help, help_heading = "Help")]
    help: Option<bool>,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    program: Vec<OsString>,
}

pub fn run(args: Args) -> Result<u8> {
    let caller = caller()?;
    let request = request(args, &caller)?;
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

/// What is to run, agreed to where a spec asks for it.
fn request(args: Args, caller: &Caller) -> Result<Request> {
    let Args { flags, spec, yes, program, .. } = args;
    let flags = flags.spec()?;
    let renderer = renderer(env::var_os("LNK_SANDBOX_MOUNTS").as_deref())?;
    let Some(spec) = spec else {
        return Ok(spec_file::request_of_flags(&flags, program, renderer)?);
    };
    let file = SpecFile::read(&spec, caller)?;
    file.refuse_useless(&flags)?;
    let grants = file.grants(&flags, caller)?;
    agree(&file, &grants, yes)?;
    Ok(file.request(&flags, &grants, program, renderer)?)
}

/// Has the user agree to what a spec opens, unless that was agreed to before.
fn agree(file: &SpecFile, grants: &Grants, yes: bool) -> Result<()> {
    let mut warnings = Vec::new();
    let question = Question::of(file, grants.clone(), &mut warnings);
    warnings.iter().for_each(|line| ui::failure(line));
    let Some(question) = question else { return Ok(()) };
    if !yes {
        let Some(mut terminal) = Terminal::open() else {
            return Err(CommandError::Because(question.without_terminal()));
        };
        if !terminal.ask(&question.lines, "Run it?") {
            return Err(CommandError::Because(question.refused()));
        }
    }
    if let Err(error) = question.agreed() {
        ui::failure(&format!("{error}; it will be asked again"));
    }
    Ok(())
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
        let flags = parse(&["ls", "--write", "x"]).flags.spec().unwrap();
        assert_eq!(flags, Default::default());
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
