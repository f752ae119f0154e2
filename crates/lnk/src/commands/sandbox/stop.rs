//! `lnk sandbox stop`.

use std::io;
use std::path::Path;

use lnk_sandbox::error::reason;
use lnk_sandbox::shown::word;
use lnk_sandbox::state;
use lnk_sandbox::wire::control::{Change, Told};
use lnk_sandbox::wire::paused::{STOPPED, State};

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
    if args.off { open(&folder) } else { close(&folder) }
}

fn close(folder: &Path) -> Result<u8> {
    // First those that run, also where it was so before: one may not have heard of it.
    let told = named::tell(folder, &Change::Stop)?;
    let (wires, calls) = named::closed(&told);
    let (wires, calls) = (named::counted(wires, "wire"), named::counted(calls, "call"));
    let done = format!("{wires} closed, {calls} ended");
    match State::open(folder).and_then(|state| state.stop()) {
        Ok(is_new) => {
            let already = if is_new { "Stopped" } else { "Stopped already" };
            ui::page(&format!("{already}: {done}. 'lnk sandbox stop --off' opens them."))?;
            Ok(status(&told))
        }
        Err(error) => Err(CommandError::Because(format!(
            "{done}, but {} can't be made ({}), so a run that starts from now on isn't closed: make \
             room there, and stop again",
            word(folder.join(STOPPED)),
            reason(&error),
        ))),
    }
}

fn open(folder: &Path) -> Result<u8> {
    let failed = |error: io::Error| {
        let file = word(folder.join(STOPPED));
        CommandError::Because(format!("{file} can't be removed: {}", reason(&error)))
    };
    let state = State::open(folder).map_err(failed)?;
    let was_stopped = state.start().map_err(failed)?;
    let told = named::tell(folder, &Change::Start)?;
    let opened = named::opened(&told);
    ui::page(&match (was_stopped, opened) {
        (false, 0) => "Nothing was stopped.".to_owned(),
        _ => format!("{} opened.", named::counted(opened, "wire")),
    })?;
    let kept = state.kept().map_err(named::failed(folder))?;
    let running = named::running(folder)?;
    let paused = named::known(kept, &running).into_iter().filter(|it| it.pause.is_some());
    for known in paused {
        ui::explain(&format!("{} is still paused.", known.whole_name()));
    }
    Ok(status(&told))
}

fn status(told: &Told) -> u8 {
    if told.silent.is_empty() { 0 } else { SILENT }
}
