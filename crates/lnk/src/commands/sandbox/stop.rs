//! `lnk sandbox stop`.

use lnk_sandbox::error::reason;
use lnk_sandbox::shown::word;
use lnk_sandbox::state;
use lnk_sandbox::wire::paused::STOPPED;

use super::{caller, named};
use crate::error::{CommandError, Result};
use crate::ui;

/// The status where a wire didn't answer.
const SILENT: u8 = 1;

/// Close every sandbox's wire
///
/// Within a second every open call ends and new ones are refused, whatever the
/// programs do; they keep running. Runs that start meanwhile have their wires
/// closed too. The log stays.
///
/// A sandbox without a wire, such as one with --allow network, stops only when
/// its program does. stop exits with 1 where a wire didn't answer: its lnk hangs.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Open the wires again, but those that are paused
    #[arg(long)]
    off: bool,
}

pub fn stop(args: &Args) -> Result<u8> {
    let folder = state::make_sandbox(&caller()?)?;
    let failed = |error: std::io::Error| {
        let file = word(folder.join(STOPPED));
        let what = if args.off { "removed" } else { "made" };
        CommandError::Because(format!("{file} can't be {what}: {}", reason(&error)))
    };
    let state = lnk_sandbox::wire::paused::State::open(&folder).map_err(failed)?;
    let is_new = if args.off { state.start() } else { state.stop() }.map_err(failed)?;
    // Also where it was so before: one may not have heard of it.
    let told = named::tell(&folder)?;
    let line = if args.off {
        let wires = named::counted(named::opened(&told), "wire");
        if is_new { format!("{wires} opened.") } else { "Nothing was stopped.".to_owned() }
    } else {
        let (wires, calls) = named::closed(&told);
        let (wires, calls) = (named::counted(wires, "wire"), named::counted(calls, "call"));
        let already = if is_new { "Stopped" } else { "Stopped already" };
        format!("{already}: {wires} closed, {calls} ended. 'lnk sandbox stop --off' opens them.")
    };
    ui::page(&line)?;
    if args.off {
        let kept = state.kept().map_err(named::failed(&folder))?;
        let running = named::running(&folder)?;
        let paused = named::known(kept, &running).into_iter().filter(|it| it.pause.is_some());
        for known in paused {
            ui::explain(&format!("{} is still paused.", known.whole_name()));
        }
    }
    Ok(if told.silent.is_empty() { 0 } else { SILENT })
}
