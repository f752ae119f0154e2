//! `lnk sandbox log`.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use lnk_sandbox::error::reason;
use lnk_sandbox::nearest::nearest;
use lnk_sandbox::shown::{escaped_name, word};
use lnk_sandbox::spec_file::real_path;
use lnk_sandbox::wire::log::{FILE, Filter, Follow, Line, Moved, Record, Sandbox, What, sandboxes};
use lnk_sandbox::{Caller, state};

use super::table::{Table, size};
use super::{caller, named};
use crate::error::{CommandError, Result};
use crate::ui::{self, Colour};

/// How often --follow looks for more.
const LOOK: Duration = Duration::from_millis(200);
/// Names that are shown in place of a wrong one, at most.
const MOST_NAMES: usize = 10;

/// Show every call on the sandboxes' proxies
///
/// Each line is a call on a sandbox's proxy: when (UTC), which sandbox, the
/// verb, where to, and what happened. A sandbox is named run-PID, or check-PID
/// where check tried it; the name of its spec stands beside it. The log never
/// holds a request's path, headers or body.
///
/// Verbs: connect (HTTPS), tcp (another port), http, port (this machine's), dns
/// (a name looked up), pause, unknown (a target that can't be read).
///
/// What happened: allowed, then ended with the bytes each way; or refused; or
/// failed, when it was allowed but nothing answered.
///
/// log exits with 0, also where there is no call, and with 125 where no sandbox has
/// the name or the log can't be read.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// How many lines, the latest
    #[arg(short = 'n', value_name = "LINES", default_value_t = 40, value_parser = lines)]
    lines: usize,

    /// Only the sandbox with this name, or all of the spec with it or this path
    #[arg(long, value_name = "NAME")]
    sandbox: Option<PathBuf>,

    /// Only what was refused
    #[arg(long)]
    refused: bool,

    /// One JSON object per line, as the log has it
    #[arg(long)]
    json: bool,

    /// Go on with what is logged from now on
    #[arg(long)]
    follow: bool,
}

/// Lines at most: more than the log's files hold.
const MOST_LINES: usize = 1_000_000;

fn lines(typed: &str) -> Result<usize, String> {
    let plain = typed.bytes().all(|byte| byte.is_ascii_digit());
    let number = typed.parse().ok().filter(|number| plain && (1..=MOST_LINES).contains(number));
    let shown = escaped_name(typed.as_bytes());
    number.ok_or_else(|| format!("'{shown}' isn't a number of lines: it can be 1 to {MOST_LINES}"))
}

pub fn log(args: Args) -> Result<u8> {
    let caller = caller()?;
    let folder = state::sandbox(&caller)?;
    let unreadable = |error: io::Error| {
        let file = word(folder.join(FILE));
        CommandError::Because(format!("{file} can't be read: {}", reason(&error)))
    };
    let whose = args.sandbox.as_ref().map(|typed| Whose::read(typed, &caller));
    let filter = Filter {
        sandbox: whose.as_ref().and_then(Whose::name),
        spec_path: whose.as_ref().and_then(Whose::path),
        refused: args.refused,
    };
    if let Some(Whose::Named(name)) = &whose {
        tell_of_several(name, &caller, &folder);
    }
    let (latest, mut follow) = Follow::open(&folder, args.lines, filter).map_err(unreadable)?;
    if latest.is_empty() && !args.follow {
        return nothing(whose.as_ref(), &args, &caller, &folder).map(|()| 0);
    }
    let mut shown = Shown::new(args.json);
    let mut is_read = shown.show(&latest)?;
    while is_read && args.follow {
        thread::sleep(LOOK);
        is_read = shown.show(&follow.read().map_err(unreadable)?)?;
    }
    Ok(0)
}

/// Whose lines are asked for.
enum Whose {
    /// Those of a sandbox, or of all specs, of this name.
    Named(String),
    /// Those of the spec at a real path; as it was typed.
    At(PathBuf, OsString),
}

impl Whose {
    fn read(typed: &Path, caller: &Caller) -> Whose {
        match typed.to_str() {
            Some(name) if !name.contains(['/', '.']) && name != "~" => Whose::Named(name.into()),
            _ => Whose::At(real_path(typed, caller), typed.into()),
        }
    }

    fn name(&self) -> Option<String> {
        match self {
            Whose::Named(name) => Some(name.clone()),
            Whose::At(..) => None,
        }
    }

    fn path(&self) -> Option<PathBuf> {
        match self {
            Whose::Named(_) => None,
            Whose::At(path, _) => Some(path.clone()),
        }
    }
}

/// Says so where a name is that of several specs.
fn tell_of_several(name: &str, caller: &Caller, folder: &Path) {
    // Without them there is only less to say.
    let all = named::known(caller, folder).unwrap_or_default();
    let called: Vec<_> = all.iter().filter(|known| known.is_called(name)).collect();
    if called.len() > 1 {
        let paths = named::paths(&called).join(" or ");
        ui::explain(&format!(
            "Several specs are called {name}, and these are the calls of all; --sandbox {paths} \
             shows one's."
        ));
    }
}

/// Says that there are no lines, or that a name is wrong.
fn nothing(whose: Option<&Whose>, args: &Args, caller: &Caller, folder: &Path) -> Result<()> {
    match whose {
        None => {}
        Some(Whose::Named(name)) => {
            let names = names(caller, folder);
            if !names.is_empty() && !names.contains(name) {
                return Err(CommandError::Because(wrong_name(name, &names)));
            }
        }
        Some(Whose::At(_, typed)) => {
            named::find(typed, &named::known(caller, folder)?, caller)?;
        }
    }
    if !args.json {
        ui::explain(if args.refused { "No call was refused." } else { "No call was made." });
    }
    Ok(())
}

/// The names of running sandboxes, those that the log has, the newest first, and those of
/// idle specs.
fn names(caller: &Caller, folder: &Path) -> Vec<String> {
    // Without them there is only less to suggest.
    let all = named::known(caller, folder).unwrap_or_default();
    let runs = all.iter().filter(|known| !known.runs.is_empty());
    let running = runs.flat_map(|known| known.runs.iter().chain(&known.names)).cloned();
    let idle = all.iter().flat_map(|known| &known.names).cloned();
    let mut names: Vec<String> = Vec::new();
    for name in running.chain(sandboxes(folder).unwrap_or_default()).chain(idle) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn wrong_name(name: &str, names: &[String]) -> String {
    let shown = escaped_name(name.as_bytes());
    let right = match nearest(name, names.iter().map(String::as_str)) {
        Some(right) => format!("did you mean {}?", escaped_name(right.as_bytes())),
        None => format!("the newest are {}", some_of(names)),
    };
    format!("--sandbox {shown}: no sandbox with this name made a call; {right}")
}

fn some_of(names: &[String]) -> String {
    let some: Vec<_> =
        names.iter().take(MOST_NAMES).map(|name| escaped_name(name.as_bytes())).collect();
    let more = names.len() - some.len();
    some.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

/// The lines on stdout, as they come.
enum Shown {
    AsJson,
    AsTable { table: Table<5>, is_new: bool },
}

impl Shown {
    fn new(as_json: bool) -> Shown {
        if as_json { Shown::AsJson } else { Shown::AsTable { table: Table::new(), is_new: true } }
    }

    /// Whether somebody still reads.
    fn show(&mut self, records: &[Record]) -> Result<bool> {
        let texts: Vec<(Option<Colour>, String)> = match self {
            Shown::AsJson => records.iter().map(|record| (None, record.text.clone())).collect(),
            Shown::AsTable { table, is_new } => {
                let head = ["TIME (UTC)", "SANDBOX", "VERB", "WHERE", "WHAT"].map(str::to_owned);
                let head = std::mem::take(is_new).then_some((None, head));
                let rows = records.iter().map(|record| (colour(&record.line), cells(&record.line)));
                let (colours, rows): (Vec<_>, Vec<_>) = head.into_iter().chain(rows).unzip();
                colours.into_iter().zip(table.each(&rows)).collect()
            }
        };
        if texts.is_empty() { Ok(true) } else { ui::coloured(&texts) }
    }
}

/// What wasn't let through, or came to nothing, stands out.
fn colour(line: &Line) -> Option<Colour> {
    match line.what {
        What::Refused { .. } => Some(Colour::Red),
        What::Failed { .. } => Some(Colour::Yellow),
        What::Allowed | What::Ended(_) => None,
    }
}

fn cells(line: &Line) -> [String; 5] {
    let time = line.time.strftime("%Y-%m-%d %H:%M:%S").to_string();
    [time, called(&line.sandbox), line.verb.as_str().to_owned(), place(line), what(&line.what)]
}

/// A sandbox, and its spec.
fn called(sandbox: &Sandbox) -> String {
    let name = escaped_name(sandbox.name.as_bytes());
    match &sandbox.spec {
        Some(spec) => format!("{name} ({})", escaped_name(spec.as_bytes())),
        None => name,
    }
}

fn place(line: &Line) -> String {
    let host = escaped_name(line.host.as_deref().unwrap_or("-").as_bytes());
    match line.port {
        Some(port) if host.contains(':') => format!("[{host}]:{port}"),
        Some(port) => format!("{host}:{port}"),
        None => host,
    }
}

fn what(what: &What) -> String {
    match what {
        What::Allowed => "allowed".to_owned(),
        What::Ended(moved) => format!("ended: {}", carried(moved)),
        What::Refused { reason } => format!("refused: {}", escaped_name(reason.as_bytes())),
        What::Failed { reason, carried: None } => {
            format!("failed: {}", escaped_name(reason.as_bytes()))
        }
        What::Failed { reason, carried: Some(moved) } => {
            format!("failed: {}; {}", escaped_name(reason.as_bytes()), carried(moved))
        }
    }
}

fn carried(moved: &Moved) -> String {
    let Moved { up, down, ms } = *moved;
    format!("{} up, {} down, {}", size(up), size(down), time_taken(ms))
}

fn time_taken(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1000),
        _ => format!("{} h {} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}
