//! The `lnk-link-run` command.

mod args;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use args::{Args, CallArgs, WakeArgs};
use clap::error::ErrorKind::{DisplayHelp, DisplayVersion, UnknownArgument};
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser};
use lnk_link_run::background::Background;
use lnk_link_run::call::CALL;
use lnk_link_run::events::Sink;
use lnk_link_run::limits::Limits;
use lnk_link_run::mcp::{self, Run};
use lnk_link_run::opens::Opens;
use lnk_link_run::place::{Place, Whose, home};
use lnk_link_run::programs::{self, Programs, SYSTEM_PATH};
use lnk_link_run::supervise::{self, Order, line};
use lnk_link_run::wake::{self, WAKE};
use lnk_sandbox::Caller;
use lnk_sandbox::consent::Question;
use lnk_sandbox::error::reason;
use lnk_sandbox::linux::{INNER, inner::main_inner};
use lnk_sandbox::nearest::nearest;
use lnk_sandbox::shown::{escaped, word};
use lnk_sandbox::spec::Spec;
use lnk_sandbox::spec_file::SpecFile;
use lnk_sandbox::state;
use rustix::process::{getgid, getuid};

/// The status of every failure of its own.
const FAILED: u8 = 125;

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let done = match arguments.next() {
        Some(first) if first == INNER => main_inner(arguments),
        Some(first) if first == WAKE => wake(env::args_os().skip(1).collect()),
        Some(first) if first == CALL => call(env::args_os().skip(1).collect()),
        _ => serve(env::args_os().collect()).map(|()| 0),
    };
    ExitCode::from(done.unwrap_or_else(|why| {
        tell(&why);
        FAILED
    }))
}

fn serve(words: Vec<OsString>) -> Result<(), String> {
    let Some(args) = parse::<Args>(words)? else { return Ok(()) };
    lnk_sandbox::run::refuse_inside().map_err(line)?;
    let caller = caller()?;
    if args.print_spec {
        let spec = programs::usual_spec(&caller).map_err(line)?;
        return print(&spec.printed().map_err(|error| error.to_string())?);
    }
    let whose = whose(args.agent, args.folder, args.spec, std::process::id(), &caller)?;
    supervise::refuse_never_opened(&whose, &caller)?;
    Place::make(&whose, &caller)?;
    let mut place = Place::find(whose, &caller)?;
    agree(&place, args.yes, &caller)?;
    let limits = match place.agent_toml() {
        Some(file) => Limits::of(&file).map_err(|error| error.to_string())?,
        None => Limits::default(),
    };
    let programs = Programs::of(&place, &caller).map_err(line)?;
    if let Some(line) = programs.missing_line() {
        tell(&line);
    }
    if let (None, Programs::These { there, .. }) = (&place.spec, &programs) {
        place.usual = [there.clone(), programs::helpers(there, &place, &caller)].concat();
    }
    if programs.any() {
        supervise::check(&place, &caller)?;
    }
    let events = args.events.as_deref().map(Sink::parse).transpose()?;
    let background = match limits.background {
        0 => None,
        _ => {
            let records = state::make_run(&caller, &place.id()).map_err(line)?;
            let has_harness = events.is_some();
            let conversation = args.conversation;
            let (place, limits) = (place.clone(), limits.clone());
            Some(Background::open(place, limits, &records, conversation, has_harness)?)
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("can't start: {}", reason(&error)))?;
    let opens = Opens::of(&place, &caller).map_err(line)?;
    let serving = mcp::serve(Run { place, limits, programs, opens, background, events });
    tokio::task::LocalSet::new().block_on(&runtime, serving);
    // A read of standard input may still wait.
    runtime.shutdown_background();
    Ok(())
}

/// Refuses a spec that nobody agreed to. There is no terminal to ask on: standard
/// input is the client's.
fn agree(place: &Place, yes: bool, caller: &Caller) -> Result<(), String> {
    let Some(spec) = place.spec.as_ref().filter(|_| !place.is_agents()) else { return Ok(()) };
    let file = SpecFile::read(spec, caller).map_err(line)?;
    let grants = file.grants(&Spec::default(), caller).map_err(line)?;
    let mut warnings = Vec::new();
    let question = Question::of(&file, grants, &mut warnings);
    warnings.iter().for_each(|warning| tell(warning));
    match question {
        None => Ok(()),
        Some(question) if yes => question.agreed().map_err(line),
        Some(question) => Err(question.without_terminal()),
    }
}

fn wake(words: Vec<OsString>) -> Result<u8, String> {
    let Some(args) = parse::<WakeArgs>(words)? else { return Ok(0) };
    wake::main(&args.events, &args.harness, io::BufReader::new(io::stdin()))
}

fn call(words: Vec<OsString>) -> Result<u8, String> {
    let Some(args) = parse::<CallArgs>(words)? else { return Ok(0) };
    let caller = caller()?;
    let order = Order {
        report: args.report,
        server: args.server,
        whose: whose(args.agent, args.folder, args.spec, args.server, &caller)?,
        usual: args.usual,
        program: args.program,
    };
    Ok(supervise::supervise(order, &caller))
}

fn whose(
    agent: Option<String>,
    folder: Option<PathBuf>,
    spec: Option<PathBuf>,
    server: u32,
    caller: &Caller,
) -> Result<Whose, String> {
    // A client's configuration is read by no shell.
    let expand = |flag: &str, path: PathBuf| match path.strip_prefix("~") {
        Ok(below) => {
            let home = home(caller).map_err(|why| format!("{flag} {}: {why}", word(&path)))?;
            Ok::<_, String>(home.join(below))
        }
        Err(_) => Ok(path),
    };
    match (agent, folder) {
        (Some(agent), _) => Ok(Whose::Agent(agent)),
        (None, Some(folder)) => Ok(Whose::Folder {
            folder: expand("--folder", folder)?,
            spec: spec.map(|spec| expand("--spec", spec)).transpose()?,
            server,
        }),
        (None, None) => Err("give --folder DIR, whose files its programs read, or --agent NAME: \
             'lnk-link-run --help' shows how"
            .into()),
    }
}

/// What was asked; `None` where that was help or the version, shown already.
fn parse<T: Parser + CommandFactory>(words: Vec<OsString>) -> Result<Option<T>, String> {
    match T::try_parse_from(words) {
        Ok(args) => Ok(Some(args)),
        Err(error) if matches!(error.kind(), DisplayHelp | DisplayVersion) => {
            print(&error.render().to_string())?;
            Ok(None)
        }
        Err(error) => {
            let text = error.render().to_string();
            let first = text.split("\n\n").next().unwrap_or_default();
            let words: Vec<&str> = first.split_whitespace().skip(1).collect();
            let line = words.join(" ");
            Err(match did_you_mean::<T>(&error) {
                Some(meant) => format!("{line}: did you mean {meant}?"),
                None => format!("{line}: 'lnk-link-run --help' shows how"),
            })
        }
    }
}

/// The flag that was meant by one that there isn't.
fn did_you_mean<T: CommandFactory>(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg) else { return None };
    let command = T::command();
    let flags = command.get_arguments().filter_map(|flag| Some(format!("--{}", flag.get_long()?)));
    let flags: Vec<String> = flags.collect();
    // A flag that there is stands in the wrong place.
    let meant = nearest(typed, flags.iter().map(String::as_str));
    meant.filter(|_| error.kind() == UnknownArgument && !flags.contains(typed)).map(str::to_owned)
}

fn print(text: &str) -> Result<(), String> {
    let mut stdout = io::stdout();
    let printed = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    printed.map_err(|error| format!("can't write to stdout: {}", reason(&error)))
}

/// What the library wants to know of this process. Programs are found on the system's
/// PATH; the client's is kept behind it, as no sandbox writes what is on that.
fn caller() -> Result<Caller, String> {
    let cwd = env::current_dir()
        .map_err(|error| format!("the working folder can't be found: {}", reason(&error)))?;
    let path = (OsString::from("PATH"), OsString::from(SYSTEM_PATH));
    Ok(Caller {
        env: std::iter::once(path).chain(env::vars_os()).collect(),
        cwd,
        own_binary: own_binary()?,
        uid: getuid().as_raw(),
        gid: getgid().as_raw(),
    })
}

/// The file that this process runs, which is started again inside.
fn own_binary() -> Result<PathBuf, String> {
    let link = Path::new("/proc/self/exe");
    let id = |path: &Path| fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    let path = fs::read_link(link)
        .map_err(|error| format!("/proc/self/exe can't be read: {}", reason(&error)))?;
    match id(&path) {
        own @ Some(_) if own == id(link) => Ok(path),
        _ => Err("lnk-link-run was replaced by another version: start the server anew".into()),
    }
}

/// A line, or more of them, on stderr.
fn tell(text: &str) {
    let lines: Vec<String> = text.lines().map(|line| escaped(line.as_bytes())).collect();
    // Where stderr is gone there is nowhere left to say so.
    let _ = io::stderr().write_all(format!("lnk-link-run: {}\n", lines.join("\n")).as_bytes());
}
