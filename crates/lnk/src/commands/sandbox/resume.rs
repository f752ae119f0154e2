//! `lnk sandbox resume`.

use lnk_sandbox::state;
use lnk_sandbox::wire::control::Change;

use super::{caller, named};
use crate::error::Result;
use crate::ui;

/// Open a sandbox's wire again
///
/// Of a sandbox that was paused, by hand or by itself. What it was refused before
/// no longer counts.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Its name, as 'lnk sandbox paused' shows it, or its spec's path
    #[arg(value_name = "NAME")]
    name: String,
}

pub fn resume(args: &Args) -> Result<u8> {
    let caller = caller()?;
    let folder = state::sandbox(&caller)?;
    let failed = named::failed(&folder);
    let state = named::state(&folder)?;
    let running = named::running(&folder)?;
    let kept = state.as_ref().map_or_else(|| Ok(Default::default()), |state| state.kept());
    let kept = kept.map_err(&failed)?;
    let is_stopped = kept.stopped.is_some();
    let known = named::find(&args.name, named::known(kept, &running), &caller)?;
    let resumed = state.map_or(Ok(false), |state| state.resume(&known.lasting));
    let was_paused = resumed.map_err(&failed)?;
    // Also where that wasn't kept: its wires may have been told of it.
    let told = named::tell(&folder, &Change::Resume { of: known.lasting.clone() })?;
    let (name, opened) = (known.whole_name(), named::opened(&told));
    ui::page(&match (was_paused, opened) {
        (false, 0) => format!("{name} isn't paused."),
        _ => format!("{name} is resumed: {} opened.", named::counted(opened, "wire")),
    })?;
    if is_stopped {
        ui::explain("Every wire is stopped: 'lnk sandbox stop --off' opens them.");
    }
    Ok(0)
}
