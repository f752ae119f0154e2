//! `lnk sandbox check`.

use clap::ArgAction;
use lnk_sandbox::check::{Checked, Report, Verdict, check as try_all};

use super::run::{Asked, NOT_BUILT};
use super::{caller, ready};
use crate::error::Result;
use crate::ui;

/// The status where something got through, or couldn't be tried.
const NOT_HELD: u8 = 1;

/// Try from inside what the sandbox shouldn't allow
///
/// It plants bait (secrets in your home folder, in Link's settings and in each
/// --hide folder, a server on another port, and more), tries to reach each from
/// inside, then removes it. Give it the flags that you give run. Nothing is sent
/// to another machine. Each try is:
///
///   blocked    the sandbox stopped it
///   allowed    a flag that you gave lets it through
///   open       a known gap, which docs/security.md explains
///   LEAK       something nothing allows got through; please report it
///   not tried  it can't be said, because the same try fails outside too
///
/// It exits with 1 where something leaked or wasn't tried, and with 125 where
/// the sandbox couldn't be run.
#[derive(clap::Args)]
#[command(verbatim_doc_comment, after_help = NOT_BUILT, disable_help_flag = true)]
pub struct Args {
    #[command(flatten)]
    asked: Asked,

    /// Print the table as one JSON object
    #[arg(long)]
    json: bool,

    /// Show this help: in short with -h, whole with --help
    #[arg(short, long, action = ArgAction::Help, help_heading = "Help")]
    help: Option<bool>,
}

pub fn check(args: Args) -> Result<u8> {
    ready::must_be()?;
    let caller = caller()?;
    let wanted = args.asked.wanted()?;
    let words = wanted.words(&caller);
    let request = wanted.request(Vec::new(), &caller)?;
    match try_all(&request, &caller, &words)? {
        Checked::Interrupted(signal) => Ok((128 + signal) as u8),
        Checked::Whole(report) => {
            if args.json {
                let json = serde_json::to_string(&report).expect("plain data is always serialised");
                ui::generated((json + "\n").as_bytes())?;
            } else {
                ui::page(&table(&report))?;
            }
            Ok(if report.holds() { 0 } else { NOT_HELD })
        }
    }
}

fn table(report: &Report) -> String {
    let lines = report.lines.iter().map(|line| {
        let by = match (line.result, &line.by) {
            (Verdict::Allowed | Verdict::Leak | Verdict::NotTried, Some(by)) => format!(" ({by})"),
            _ => String::new(),
        };
        format!("{:<9}  {}{by}\n", line.result.word(), line.tried)
    });
    lines.collect::<String>() + "\n" + &sentence(report) + "\n"
}

fn sentence(report: &Report) -> String {
    let count = |verdict| report.count(verdict);
    let gaps = format!("{} known gaps are open (docs/security.md)", count(Verdict::Open));
    match (count(Verdict::Leak), count(Verdict::NotTried)) {
        (0, 0) => format!(
            "The sandbox holds: {} tries blocked, {} allowed by what you gave, nothing leaked; {gaps}.",
            count(Verdict::Blocked),
            count(Verdict::Allowed),
        ),
        (0, missing) => format!(
            "Nothing leaked, but {missing} of {} tries couldn't be made, so this proves less than it should.",
            report.lines.len()
        ),
        (leaks, _) => format!(
            "The sandbox doesn't hold: {leaks} of {} tries got through that nothing allows. Please report it (SECURITY.md).",
            report.lines.len()
        ),
    }
}
