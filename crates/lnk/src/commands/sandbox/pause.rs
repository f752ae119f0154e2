//! `lnk sandbox pause`.

use lnk_sandbox::state;
use lnk_sandbox::wire::control::Change;
use lnk_sandbox::wire::paused::State;

use super::{caller, named};
use crate::error::Result;
use crate::ui;

/// Why, where a user did it.
const BY_HAND: &str = "by hand";
/// The status where a wire didn't answer.
const SILENT: u8 = 1;

/// Close one sandbox's wire
///
/// Within a second its open calls end and new ones are refused; its program keeps
/// running. A spec's pause is for all its runs, those to come too, until resume.
/// That of a run without a spec ends with the run.
///
/// A sandbox also pauses itself, and says so: when 30 of its calls are refused
/// within a minute, calls to 20 different targets within 10 minutes, or any call
/// to a cloud's metadata service.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// run-PID, a spec's name, or a spec's path
    #[arg(value_name = "NAME")]
    name: String,
}

pub fn pause(args: &Args) -> Result<u8> {
    let caller = caller()?;
    let folder = state::make_sandbox(&caller)?;
    let failed = named::failed(&folder);
    let state = State::open(&folder).map_err(&failed)?;
    let running = named::running(&folder)?;
    let all = named::known(state.kept().map_err(&failed)?, &running);
    let known = named::find(&args.name, all, &caller)?;
    let (of, why) = (known.lasting.clone(), BY_HAND.to_owned());
    // First its runs.
    let told = named::tell(&folder, &Change::Pause { of, why })?;
    let (wires, calls) = named::closed(&told);
    let (wires, calls) = (named::counted(wires, "wire"), named::counted(calls, "call"));
    let name = known.whole_name();
    let kept = state.pause(&known.lasting, known.spec.as_deref(), BY_HAND);
    if kept.is_err() {
        ui::failure(&format!(
            "{name}: {wires} closed, {calls} ended, but a run that starts from now on isn't closed"
        ));
    }
    let is_new = kept.map_err(&failed)?;
    ui::page(&match (is_new, known.runs.len()) {
        (false, _) => format!("{name} was paused already."),
        (true, 0) => format!("{name} is paused: when it runs its wire is closed."),
        (true, _) => format!("{name} is paused: {wires} closed, {calls} ended."),
    })?;
    let is_silent = told.silent.iter().any(|name| known.runs.contains(name));
    Ok(if is_silent { SILENT } else { 0 })
}
