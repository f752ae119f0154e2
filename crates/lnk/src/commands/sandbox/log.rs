//! `lnk sandbox log`.

use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use lnk_sandbox::error::reason;
use lnk_sandbox::nearest::nearest;
use lnk_sandbox::shown::{escaped_name, word};
use lnk_sandbox::state;
use lnk_sandbox::wire::control;
use lnk_sandbox::wire::log::{FILE, Filter, Follow, Line, Moved, Record, Sandbox, What, sandboxes};

use super::caller;
use super::table::{Table, size};
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
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// How many lines, the latest
    #[arg(short = 'n', value_name = "LINES", default_value_t = 40, value_parser = lines)]
    lines: usize,

    /// Only the sandbox with this name, or all of the spec with this name
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    sandbox: Option<String>,

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
    let folder = state::sandbox(&caller()?)?;
    let unreadable = |error: io::Error| {
        let file = word(folder.join(FILE));
        CommandError::Because(format!("{file} can't be read: {}", reason(&error)))
    };
    let filter = Filter { sandbox: args.sandbox.clone(), refused: args.refused };
    let (latest, mut follow) = Follow::open(&folder, args.lines, filter).map_err(unreadable)?;
    if latest.is_empty() && !args.follow {
        return nothing(&folder, &args).map(|()| 0);
    }
    let mut shown = Shown::new(args.json);
    let mut is_read = shown.show(&latest)?;
    while is_read && args.follow {
        thread::sleep(LOOK);
        is_read = shown.show(&follow.read().map_err(unreadable)?)?;
    }
    Ok(0)
}

/// Says that there are no lines, or that a name is wrong.
fn nothing(folder: &Path, args: &Args) -> Result<()> {
    if let Some(name) = &args.sandbox {
        let names = known(folder);
        if !names.is_empty() && !names.contains(name) {
            return Err(CommandError::Because(wrong_name(name, &names)));
        }
    }
    if !args.json {
        ui::explain(if args.refused { "No call was refused." } else { "No call was made." });
    }
    Ok(())
}

/// The names of running sandboxes, and those that the log has, the newest first.
fn known(folder: &Path) -> Vec<String> {
    let running = control::list(folder).unwrap_or_default();
    let wires = running.wires.into_iter().flat_map(|wire| [Some(wire.name), wire.spec]).flatten();
    // Without them there is only less to suggest.
    let logged = sandboxes(folder).unwrap_or_default();
    let mut names: Vec<String> = Vec::new();
    for name in wires.chain(running.silent).chain(logged) {
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
    [time, named(&line.sandbox), line.verb.as_str().to_owned(), place(line), what(&line.what)]
}

/// A sandbox, and its spec.
fn named(sandbox: &Sandbox) -> String {
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
