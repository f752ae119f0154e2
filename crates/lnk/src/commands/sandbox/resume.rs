//! `lnk sandbox resume`.

use lnk_sandbox::state;

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
    let name = known.whole_name();
    if !resumed.map_err(&failed)? {
        ui::page(&format!("{name} isn't paused."))?;
    } else {
        let wires = named::counted(named::opened(&named::tell(&folder)?), "wire");
        ui::page(&format!("{name} is resumed: {wires} opened."))?;
    }
    if is_stopped {
        ui::explain("Every wire is stopped: 'lnk sandbox stop --off' opens them.");
    }
    Ok(0)
}
