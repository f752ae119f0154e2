//! The supervisor of one call: the hidden `call` subcommand, a process of its own.
//!
//! Its standard streams are the program's; what it has to say goes to the descriptor
//! that it was given for that.

use std::cell::{Cell, RefCell};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write as _;
use std::num::NonZeroU32;

use lnk_sandbox::consent::Question;
use lnk_sandbox::policy::Policy;
use lnk_sandbox::spec::Spec;
use lnk_sandbox::spec::program::Program;
use lnk_sandbox::spec_file::{self, SpecFile};
use lnk_sandbox::{Caller, Error, Notice, Renderer, Request};
use rustix::process::{Signal, getppid, set_parent_process_death_signal, setsid};

use crate::call::{GRACE, Said};
use crate::mend::mend;
use crate::place::{Place, Whose, real_folder};
use crate::programs::not_found;

/// The most processes and threads of a call at once: room for a build on many
/// processors, none for a fork bomb.
const PROCESSES: NonZeroU32 = NonZeroU32::new(1_024).expect("more than none");

/// What lines say that advise to change the sandbox's file.
const ADVICE: [&str; 2] = ["[commands] allow", "[files]"];

/// What is said beside them where there is no such file.
const NO_SPEC: &str = "there is no sandbox file: start the server with --spec FILE that allows \
                       it, an agent's is its Config/sandbox.toml; 'lnk-link-run --print-spec' \
                       prints what runs without one";

/// What a supervisor is told.
pub struct Order {
    /// The descriptor that it reports to.
    pub report: u32,
    /// The process id of the server that started it.
    pub server: u32,
    /// Where the program runs.
    pub whose: Whose,
    /// The programs that may run where no spec says.
    pub usual: Vec<String>,
    /// The program and its arguments.
    pub program: Vec<OsString>,
}

/// Runs a call to its end. The status is the program's, or 125.
#[must_use]
pub fn supervise(order: Order, caller: &Caller) -> u8 {
    // What this process inherited is closed in what it starts; this one too.
    let report = format!("/proc/self/fd/{}", order.report);
    let Ok(report) = File::options().write(true).open(report) else { return 125 };
    let report = RefCell::new(report);
    let say = |said: &Said| {
        let line = serde_json::to_string(said).expect("text and numbers") + "\n";
        // The server may be gone, and this process is about to follow.
        let _ = report.borrow_mut().write_all(line.as_bytes());
    };
    let has_no_spec = !order.usual.is_empty();
    let advises = Cell::new(false);
    let heed = |line: &str| advises.set(advises.get() || ADVICE.iter().any(|it| line.contains(it)));
    let told = |notice| match notice {
        Notice::Warning(line) => {
            heed(&line);
            say(&Said::Notice(line));
        }
        // For whoever watches a terminal.
        Notice::Hint(_) => {}
    };
    let outcome = end_with(order.server)
        .and_then(|()| Place::find(order.whose, caller))
        .and_then(|place| {
            mend(&place.work()).into_iter().for_each(|line| say(&Said::Notice(line)));
            request(&place, order.usual, order.program, caller)
        })
        .and_then(|request| {
            match not_found(&request.program, request.programs.as_deref(), caller) {
                Some(why) => Err(why),
                None => lnk_sandbox::run(&request, caller, &told).map_err(line),
            }
        });
    match outcome {
        Ok(outcome) => {
            let mut notices = [outcome.warnings, outcome.refused].concat();
            notices.iter().chain(&outcome.message).for_each(|line| heed(line));
            notices.extend((has_no_spec && advises.get()).then(|| NO_SPEC.to_owned()));
            let (status, message) = (outcome.status, outcome.message);
            say(&Said::Ended { status, message, notices });
            status
        }
        Err(why) => {
            say(&Said::Failed(why));
            125
        }
    }
}

/// Dies when the server does, with everything it started, and leaves its terminal.
fn end_with(server: u32) -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("the end of the server can't be followed: {error}"))?;
    // It may have died before.
    let parent = getppid().map(|parent| parent.as_raw_nonzero().get().cast_unsigned());
    if parent != Some(server) {
        return Err("the server is gone".into());
    }
    // Nothing inside can ask on the terminal that a client runs in.
    setsid().map(drop).map_err(|error| format!("a session of its own can't be had: {error}"))
}

/// Refuses a folder that no flag opens for writing, before anything is made in it: what
/// is in `work` there would be as near to what is never opened.
///
/// # Errors
/// The line that says so.
pub fn refuse_never_opened(whose: &Whose, caller: &Caller) -> Result<(), String> {
    let Whose::Folder { folder, .. } = whose else { return Ok(()) };
    let real = real_folder("--folder", &caller.cwd.join(folder))?;
    let request =
        Request { write: vec![real.clone()], program: vec!["true".into()], ..Request::default() };
    let caller = Caller { cwd: real, ..caller.clone() };
    let judged = Policy::new(&request, &caller).map(drop).map_err(line);
    judged.map_err(|why| why.replacen("--write", "--folder", 1))
}

/// Whether calls can be made, as far as that can be told before one is.
///
/// # Errors
/// A line for what can't be granted, such as a folder that is never opened.
pub fn check(place: &Place, caller: &Caller) -> Result<(), String> {
    let nothing = vec!["true".into()];
    let request = request(place, place.usual.clone(), nothing, caller)?;
    let caller = Caller { cwd: place.files.clone(), ..caller.clone() };
    Policy::new(&request, &caller).map(drop).map_err(line)
}

fn request(
    place: &Place,
    usual: Vec<String>,
    program: Vec<OsString>,
    caller: &Caller,
) -> Result<Request, String> {
    let renderer = renderer(caller.var("LNK_SANDBOX_MOUNTS"))?;
    let request = match &place.spec {
        // The spec that the server knew is gone; an empty list would let anything run.
        None if usual.is_empty() => {
            return Err("its sandbox file is gone: put it back, or start the server anew".into());
        }
        None => {
            let mut flags = Spec::default();
            let entries = usual.iter().map(|entry| entry.parse::<Program>());
            let entries = entries.collect::<Result<_, _>>();
            flags.commands.allow = entries.map_err(|error| error.to_string())?;
            spec_file::request_of_flags(&flags, program, renderer).map_err(line)?
        }
        Some(spec) => of_spec(spec.as_ref(), place, program, renderer, caller)?,
    };
    let request = Request { grace: GRACE, processes: Some(PROCESSES), ..request };
    Ok(place.opened_in(request))
}

fn of_spec(
    spec: &OsStr,
    place: &Place,
    program: Vec<OsString>,
    renderer: Renderer,
    caller: &Caller,
) -> Result<Request, String> {
    let none = Spec::default();
    let file = SpecFile::read(spec.as_ref(), caller).map_err(line)?;
    file.refuse_useless(&none).map_err(line)?;
    let grants = file.grants(&none, caller).map_err(line)?;
    if !place.is_agents()
        && let Some(question) = Question::of(&file, grants.clone(), &mut Vec::new())
    {
        return Err(format!("{}: start the server anew with --yes to agree to it", question.why));
    }
    file.request(&none, &grants, program, renderer).map_err(line)
}

/// The line for an error of the sandbox's.
#[must_use]
pub fn line(error: Error) -> String {
    let hint = match &error {
        Error::NotReady(_) => ": 'lnk sandbox ready' tells what is missing",
        _ => "",
    };
    format!("{error}{hint}")
}

/// Who makes the mounts, where somebody looks for a fault in one of the two ways.
fn renderer(forced: Option<&OsStr>) -> Result<Renderer, String> {
    match forced.map(OsStr::as_encoded_bytes) {
        None => Ok(Renderer::Auto),
        Some(b"bwrap") => Ok(Renderer::Bwrap),
        Some(b"joiner") => Ok(Renderer::Joiner),
        Some(_) => Err("LNK_SANDBOX_MOUNTS can only be bwrap or joiner".into()),
    }
}
