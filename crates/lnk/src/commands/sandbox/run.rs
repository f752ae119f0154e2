//! `lnk sandbox run`.

use std::cell::RefCell;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::path::{Path, PathBuf};

use clap::ArgAction;
use lnk_sandbox::Renderer;
use lnk_sandbox::consent::Question;
use lnk_sandbox::network::Network;
use lnk_sandbox::spec::Spec;
use lnk_sandbox::spec::diff::Grants;
use lnk_sandbox::spec_file::{self, SpecFile};
use lnk_sandbox::{Caller, Error, Notice, Outcome, Request};

use super::flags::{A_SPEC, Flags};
use super::{caller, ready};
use crate::error::{CommandError, Result};
use crate::ui::{self, Terminal};

/// What `run` refuses and a spec may say already.
pub const NOT_BUILT: &str = "\
Not built yet, so a run with one of them is refused: --model, --tool,
--browser-host.";

const EXAMPLES: &str = "\
Examples:
  A shell that can change only this folder:
    lnk sandbox run --write . -- bash
  A build, in another folder:
    lnk sandbox run --write ~/Projects/site -- npm run build
  One folder to read, one to write:
    lnk sandbox run --read ~/Documents/reports --write . -- python3 summarize.py
  Your whole home folder to read, and a local database:
    lnk sandbox run --read '~' --port 5432 -- ./tool
  The internet, and nothing of this machine or its network:
    lnk sandbox run --internet-host '*' -- curl -sI https://example.com
  Two machines, one of them in your network:
    lnk sandbox run --internet-host api.example.com --lan-host nas.local -- ./sync
  A database by its name:
    lnk sandbox run --internet-host db.example.com --tcp db.example.com:5432 -- ./report
  Look at a repository, then commit to it:
    lnk sandbox run --write . -- git status
    lnk sandbox run --write . --write-dot-files . -- git commit -qam fix
  Only programs that you name:
    lnk sandbox run --write . --command sh --command git -- sh -c 'git status'
  A sandbox written down:
    lnk sandbox run --spec app.toml -- node app.js";

/// Run a program in the sandbox
///
/// The program reads the system's programs and libraries, and nothing else
/// unless you open it. It has no network but Link's proxy, to the hosts that you
/// name. Its environment is cleared but for PATH, HOME, TERM, COLORTERM, TZ, the
/// locale, the proxy and who you are. It gets an empty home folder, an empty
/// /run and a private /tmp, and sees only its own processes.
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
    asked: Asked,

    /// Show this help: in short with -h, whole with --help
    #[arg(short, long, action = ArgAction::Help, help_heading = "Help")]
    help: Option<bool>,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    program: Vec<OsString>,
}

// No doc comment: it would take the place of the command's.
#[derive(clap::Args)]
pub struct Asked {
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

    /// The process of the check that runs this
    #[arg(long, value_name = "PID", hide = true)]
    of_check: Option<u32>,

    #[cfg(feature = "faults")]
    #[arg(long, value_name = "FENCE", hide = true)]
    fault: Vec<String>,
}

pub fn run(args: Args) -> Result<u8> {
    let caller = caller()?;
    let request = args.asked.wanted()?.request(args.program, &caller)?;
    let outcome = start(&request, &caller)?;
    report(&outcome);
    Ok(outcome.status)
}

/// Runs it, and mends first what the machine lacks for it.
pub fn start(request: &Request, caller: &Caller) -> Result<Outcome> {
    match once(request, caller) {
        Err(Error::NotReady(reason)) => {
            ready::mend(&reason)?;
            Ok(once(request, caller)?)
        }
        other => Ok(other?),
    }
}

fn once(request: &Request, caller: &Caller) -> Result<Outcome, Error> {
    let held = RefCell::new(Vec::new());
    let outcome = lnk_sandbox::run(request, caller, &|notice| match notice {
        Notice::Hint(line) => hint(&line),
        // A line in the middle of a screen that a program draws helps nobody.
        Notice::Warning(line) if ui::is_drawn_on() => held.borrow_mut().push(line),
        Notice::Warning(line) => ui::failure(&line),
    });
    held.take().iter().for_each(|line| ui::failure(line));
    outcome
}

/// A line for whoever watches.
fn hint(line: &str) {
    if ui::is_watched() {
        ui::failure(line);
    }
}

pub fn report(outcome: &Outcome) {
    outcome.message.iter().for_each(|line| ui::failure(line));
    outcome.warnings.iter().for_each(|line| ui::failure(line));
    outcome.refused.iter().for_each(|line| hint(line));
}

/// What a request is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// To run what is listed.
    Run,
    /// To run anything, to list it. A spec that lists nothing is no use but to
    /// this.
    Learn,
}

/// What was asked for, read.
pub struct Wanted {
    flags: Spec,
    /// Whether this machine's own network takes the place of any other.
    shares_network: bool,
    spec: Option<PathBuf>,
    yes: bool,
    check: Option<u32>,
    #[cfg(feature = "faults")]
    fault: Vec<String>,
}

impl Asked {
    /// The flags read as a spec.
    pub fn wanted(self) -> Result<Wanted> {
        Ok(Wanted {
            shares_network: self.flags.share_network()?,
            flags: self.flags.spec()?,
            spec: self.spec,
            yes: self.yes,
            check: self.of_check,
            #[cfg(feature = "faults")]
            fault: self.fault,
        })
    }
}

impl Wanted {
    /// What is to run, agreed to where a spec asks for it.
    pub fn request(&self, program: Vec<OsString>, caller: &Caller) -> Result<Request> {
        self.asked(Purpose::Run, program, caller)
    }

    /// The same with every program open, to learn which there are.
    pub fn request_to_learn(&self, program: Vec<OsString>, caller: &Caller) -> Result<Request> {
        let request = self.asked(Purpose::Learn, program, caller)?;
        Ok(Request { learn: true, ..request })
    }

    fn asked(&self, to: Purpose, program: Vec<OsString>, caller: &Caller) -> Result<Request> {
        let renderer = renderer(env::var_os("LNK_SANDBOX_MOUNTS").as_deref())?;
        let flags = &self.flags;
        let request = match &self.spec {
            None => spec_file::request_of_flags(flags, program, renderer)?,
            Some(spec) => {
                let file = SpecFile::read(spec, caller)?;
                if to == Purpose::Run {
                    file.refuse_useless(flags)?;
                }
                let grants = file.grants(flags, caller)?;
                agree(&file, &grants, self.yes)?;
                file.request(flags, &grants, program, renderer)?
            }
        };
        let network = if self.shares_network { Network::shared() } else { request.network };
        let request = Request { check: self.check, network, ..request };
        #[cfg(feature = "faults")]
        let request = Request { faults: left_out(&self.fault)?, ..request };
        Ok(request)
    }

    /// The words that ask `run` for the same from any working folder.
    pub fn words(&self, caller: &Caller) -> Vec<OsString> {
        let word = |flag: &str, value: &OsStr| {
            let mut word = OsString::from(flag);
            word.push(value);
            word
        };
        let path = |flag: &str, path: &Path| {
            let stays = path.starts_with("~");
            let path = if stays { path.to_owned() } else { caller.cwd.join(path) };
            word(flag, path.as_os_str())
        };
        let files = &self.flags.files;
        let paths = [
            ("--read=", &files.read),
            ("--write=", &files.write),
            ("--write-dot-files=", &files.write_dot_files),
            ("--hide=", &files.hide),
        ];
        let mut words: Vec<OsString> = Vec::new();
        for (flag, paths) in paths {
            words.extend(paths.iter().map(|its| path(flag, its.as_path())));
        }
        let programs = self.flags.commands.allow.iter();
        words.extend(programs.map(|program| word("--command=", program.written().as_os_str())));
        let Spec { internet, lan, localhost, .. } = &self.flags;
        let said = |flag: &str, value: &dyn Display| OsString::from(format!("{flag}{value}"));
        words.extend(internet.hosts.iter().map(|host| said("--internet-host=", host)));
        words.extend(internet.tcp.iter().map(|endpoint| said("--tcp=", endpoint)));
        words.extend(internet.upstream.iter().map(|upstream| said("--upstream=", upstream)));
        words.extend(internet.per_minute.iter().map(|rate| said("--per-minute=", rate)));
        words.extend(lan.hosts.iter().map(|host| said("--lan-host=", host)));
        words.extend(localhost.ports.iter().map(|port| said("--port=", port)));
        words.extend(self.shares_network.then(|| "--allow=network".into()));
        words.extend(self.spec.iter().map(|spec| path("--spec=", spec)));
        words.extend(self.yes.then(|| "--yes".into()));
        words.push(format!("--of-check={}", std::process::id()).into());
        #[cfg(feature = "faults")]
        words.extend(self.fault.iter().map(|fault| word("--fault=", fault.as_ref())));
        words
    }
}

/// The fences that a test leaves out.
#[cfg(feature = "faults")]
fn left_out(names: &[String]) -> Result<lnk_sandbox::faults::Faults> {
    lnk_sandbox::faults::Faults::by_name(names.iter().map(String::as_str))
        .ok_or_else(|| CommandError::Because(format!("--fault: no such fence in {names:?}")))
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
        let flags = parse(&["ls", "--write", "x"]).asked.flags.spec().unwrap();
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
