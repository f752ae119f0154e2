//! `lnk sandbox pause`.

use std::ffi::OsString;

use lnk_sandbox::known::Known;
use lnk_sandbox::state;
use lnk_sandbox::wire::control::{Change, Told};
use lnk_sandbox::wire::paused::State;

use super::{caller, named};
use crate::error::Result;
use crate::ui;

/// Why, where a user did it.
const BY_HAND: &str = "by hand";

/// Close one sandbox's wire
///
/// Within a second its open calls end and new ones are refused; its program keeps
/// running. A spec's pause is for all its runs, those to come too, until resume.
/// That of a run without a spec ends with the run. An agent's is for all its commands.
///
/// A sandbox also pauses itself, and says so: when 30 of its calls are refused
/// within a minute, calls to 20 different targets within 10 minutes, or any call
/// to a cloud's metadata service.
///
/// pause exits with 0; with 1 where it is done, but a wire didn't answer, which
/// closes when its lnk goes on, or it couldn't be printed; with 125 where it isn't.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// run-PID, a spec's name, a spec's path, or an agent's, such as main-run
    #[arg(value_name = "NAME")]
    name: OsString,
}

pub fn pause(args: &Args) -> Result<u8> {
    let caller = caller()?;
    let folder = state::make_sandbox(&caller)?;
    let failed = named::failed(&folder);
    let state = State::open(&folder).map_err(&failed)?;
    let known = named::find(&args.name, &named::known(&caller, &folder)?, &caller)?;
    let (of, why) = (known.lasting.clone(), BY_HAND.to_owned());
    // First its runs: there may be no place to keep it.
    let told = named::tell(&folder, &Change::Pause { of, why })?;
    let name = known.names.first().map(String::as_str);
    match state.pause(&known.lasting, name, BY_HAND) {
        Ok(is_new) => Ok(named::done(say(&known, is_new, &told))),
        Err(error) => {
            ui::failure(&format!(
                "{}: {}, but a run that starts from now on isn't closed",
                known.whole_name(),
                closed(&known, &told)
            ));
            Err(failed(error))
        }
    }
}

fn say(known: &Known, is_new: bool, told: &Told) -> Result<u8> {
    let (_, silent) = named::own(known, told);
    let name = known.whole_name();
    let line = match (is_new, known.runs.len()) {
        (false, _) => format!("{name} was paused already"),
        (true, 0) => format!("{name} is paused: when it runs its wire is closed"),
        (true, _) => format!("{name} is paused: {}", closed(known, told)),
    };
    ui::page(&format!("{line}{}.", named::later(&silent, "closes")))?;
    Ok(if silent.is_empty() { 0 } else { named::NOT_WHOLE })
}

fn closed(known: &Known, told: &Told) -> String {
    let (looked, _) = named::own(known, told);
    let (wires, calls) = named::closed(looked.into_iter());
    format!("{} closed, {} ended", named::counted(wires, "wire"), named::counted(calls, "call"))
}
