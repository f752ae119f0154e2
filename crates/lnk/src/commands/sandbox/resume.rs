//! `lnk sandbox resume`.

use std::ffi::{OsStr, OsString};

use lnk_sandbox::known::Known;
use lnk_sandbox::shown::word;
use lnk_sandbox::state;
use lnk_sandbox::wire::control::{Change, Told};

use super::{caller, named};
use crate::error::{CommandError, Result};
use crate::ui;

/// Open a sandbox's wire again
///
/// Of a sandbox that was paused, by hand or by itself. What it was refused before
/// no longer counts.
///
/// resume exits with 0, also where it wasn't paused; with 1 where it is done, but a
/// wire didn't answer, which opens when its lnk goes on, or it couldn't be printed;
/// with 125 where it isn't.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Its name, as 'lnk sandbox paused' shows it, or its spec's path
    #[arg(value_name = "NAME")]
    name: OsString,
}

pub fn resume(args: &Args) -> Result<u8> {
    let caller = caller()?;
    let folder = state::sandbox(&caller)?;
    let failed = named::failed(&folder);
    let all = named::known(&caller, &folder)?;
    if let Some(name) = run_that_is_over(&args.name, &all) {
        return Err(CommandError::Because(format!(
            "{name} doesn't run: a pause of its own ended with it; that of a spec stays, and \
             'lnk sandbox paused' shows it"
        )));
    }
    let known = named::find(&args.name, &all, &caller)?;
    let state = named::state(&folder)?;
    let is_stopped = match &state {
        Some(state) => state.stopped().map_err(&failed)?.is_some(),
        None => false,
    };
    let was_paused = state.map_or(Ok(false), |state| state.resume(&known.lasting));
    let was_paused = was_paused.map_err(&failed)?;
    // Also where that wasn't kept: its wires may have been told of it.
    let told = named::tell(&folder, &Change::Resume { of: known.lasting.clone() })?;
    Ok(named::done(say(&known, was_paused, is_stopped, &told)))
}

/// The name, where it is that of a run and none has it.
fn run_that_is_over(typed: &OsStr, all: &[Known]) -> Option<String> {
    let number = typed.to_str()?.strip_prefix("run-")?;
    let is_run = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let is_over = !all.iter().any(|known| typed.to_str().is_some_and(|it| known.is_called(it)));
    (is_run && is_over).then(|| word(typed))
}

fn say(known: &Known, was_paused: bool, is_stopped: bool, told: &Told) -> Result<u8> {
    let name = known.whole_name();
    let (looked, silent) = named::own(known, told);
    let mut status = 0;
    match (was_paused, named::opened(looked.into_iter())) {
        (false, 0) => ui::page(&format!("{name} isn't paused."))?,
        (_, opened) => {
            let (wires, later) = (named::counted(opened, "wire"), named::later(&silent, "opens"));
            ui::page(&format!("{name} is resumed: {wires} opened{later}."))?;
            status = if silent.is_empty() { 0 } else { named::NOT_WHOLE };
        }
    }
    if is_stopped {
        ui::explain("Every wire is stopped: 'lnk sandbox stop --off' opens them.");
    }
    Ok(status)
}
