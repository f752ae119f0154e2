//! `lnk sandbox learn`.

use std::ffi::OsString;

use clap::ArgAction;
use lnk_sandbox::programs::learnt::{Entry, Learnt};
use lnk_sandbox::spec::print::quoted;

use super::caller;
use super::run::{Asked, NOT_BUILT, report, start};
use crate::error::{CommandError, Result};
use crate::ui;

const EXAMPLES: &str = "\
Examples:
  Every program that the tests start, to add to app.toml:
    lnk sandbox learn --spec app.toml -- npm test
  With grants from flags:
    lnk sandbox learn --write . -- make";

/// Find the programs that a command starts, to list them
///
/// It runs the command once, with the grants that you give and every program
/// open, and prints the entries to add to [commands] allow: a name where PATH
/// finds it, a path otherwise. Nothing is written: paste them into a spec. What
/// the command prints goes to stderr.
///
/// Of a list that there is already, in the spec or by --command, only what it
/// lacks is printed. A program in a folder that the sandbox may write, or in
/// /tmp, is never offered: what is left out is told on stderr. A program that
/// this run didn't start isn't found. An interpreter is marked: it runs any code
/// it is given.
///
/// It exits with the command's status, and with 125 where the sandbox itself
/// failed.
#[allow(rustdoc::broken_intra_doc_links)] // It is help: a section of a spec is no link.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_help = NOT_BUILT,
    after_long_help = format!("{EXAMPLES}\n\n{NOT_BUILT}"),
    disable_help_flag = true,
    override_usage = "lnk sandbox learn [FLAGS] -- PROGRAM [ARGUMENTS]..."
)]
pub struct Args {
    #[command(flatten)]
    asked: Asked,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// Show this help: in short with -h, whole with --help
    #[arg(short, long, action = ArgAction::Help, help_heading = "Help")]
    help: Option<bool>,

    /// The command: a program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    program: Vec<OsString>,
}

pub fn learn(args: Args) -> Result<u8> {
    let caller = caller()?;
    let request = args.asked.wanted()?.request_to_learn(args.program, &caller)?;
    let stdout = ui::give_stderr_for_stdout()?;
    let outcome = start(&request, &caller);
    stdout.restore()?;
    let outcome = outcome?;
    report(&outcome);
    let learnt =
        outcome.learnt.ok_or_else(|| CommandError::Because("nothing was learnt".into()))?;
    if args.json {
        let json = serde_json::to_string(&learnt).expect("plain data is always serialised");
        ui::generated((json + "\n").as_bytes())?;
    } else {
        tell(&learnt)?;
    }
    Ok(outcome.status)
}

fn tell(learnt: &Learnt) -> Result<()> {
    for left_out in &learnt.left_out {
        ui::failure(&format!("left out {}: {}", left_out.path, left_out.why));
    }
    if learnt.unheard > 0 {
        ui::failure(&format!("{} more programs were started and aren't named", learnt.unheard));
    }
    if !learnt.left_out.is_empty() {
        ui::failure(
            "with a list those don't run: start them by a listed interpreter, keep them where they \
             are only read, or let any program run, allow = [\"*\"]",
        );
    }
    if learnt.status != 0 {
        ui::failure(&format!(
            "the command ended with status {}: only what it started until then is here",
            learnt.status
        ));
    }
    let entries = learnt.allow.iter().map(line).collect::<String>();
    match (learnt.allow.is_empty(), learnt.has_list) {
        (true, true) if learnt.listed > 0 => ui::failure("nothing to add: the list has them all"),
        (true, _) => ui::failure("no program to list"),
        // For the list that is there.
        (false, true) => {
            ui::failure("to add to the list that you have:");
            ui::page(&entries)?;
        }
        (false, false) => ui::page(&format!("[commands]\nallow = [\n{entries}]"))?,
    }
    Ok(())
}

fn line(entry: &Entry) -> String {
    let marks = [
        entry.interpreter.then(|| "an interpreter: runs any code it is given".into()),
        entry.many_names.then(|| format!("every program in {}", entry.path)),
    ];
    let marks: Vec<String> = marks.into_iter().flatten().collect();
    let comment =
        if marks.is_empty() { String::new() } else { format!("  # {}", marks.join("; ")) };
    format!("    {},{comment}\n", quoted(&entry.entry))
}
