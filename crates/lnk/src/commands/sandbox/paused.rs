//! `lnk sandbox paused`.

use lnk_sandbox::known::Known;
use lnk_sandbox::shown::{escaped_name, word};
use lnk_sandbox::state;
use lnk_sandbox::wire::control::Status;
use lnk_sandbox::wire::paused::Lasting;
use serde_json::{Value, json};

use super::table::Table;
use super::{caller, named};
use crate::error::Result;
use crate::ui;

/// Show which wires are closed, since when, and why
///
/// '(every sandbox)' stands for all of them, where they are stopped. A spec is
/// shown with its path, which names it too, a run without one while it runs.
///
/// paused exits with 0, whether any is closed or not, and with 125 where that
/// can't be told.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// As JSON: an object that says whether all are stopped, and which are paused
    #[arg(long)]
    json: bool,
}

pub fn paused(args: &Args) -> Result<u8> {
    let caller = caller()?;
    let folder = state::sandbox(&caller)?;
    let running = named::running(&folder)?;
    let stopped = named::state(&folder)?.map_or(Ok(None), |state| state.stopped());
    let stopped = stopped.map_err(named::failed(&folder))?.map(|since| since.to_string());
    let all = named::known(&caller, &folder)?;
    let paused: Vec<&Known> = all.iter().filter(|known| known.pause.is_some()).collect();
    // Closed all the same: one that can't read the state.
    let others: Vec<&Status> = running
        .wires
        .iter()
        .filter(|wire| wire.closed.is_some() && stopped.is_none())
        .filter(|wire| !paused.iter().any(|known| known.runs.contains(&wire.name)))
        .collect();
    if args.json {
        let paused: Vec<Value> = paused.iter().map(|known| as_json(known)).collect();
        ui::page(&json!({ "stopped": stopped, "paused": paused }).to_string())?;
    } else if stopped.is_none() && paused.is_empty() && others.is_empty() {
        ui::explain("No wire is closed.");
    } else {
        ui::page(&table(stopped.as_deref(), &paused, &others))?;
    }
    Ok(0)
}

fn table(stopped: Option<&str>, paused: &[&Known], others: &[&Status]) -> String {
    let row = |name: &str, since: &str, why: &str, spec: Option<String>| {
        let since = since.get(..19).unwrap_or(since).replace('T', " ");
        let [name, why] = [name, why].map(|text| escaped_name(text.as_bytes()));
        [name, since, why, spec.unwrap_or_default()]
    };
    let head = ["SANDBOX", "SINCE (UTC)", "WHY", "SPEC"].map(str::to_owned);
    // No name has these characters.
    let every = "(every sandbox)";
    let stopped = stopped.map(|since| row(every, since, "lnk sandbox stop", None));
    let paused = paused.iter().filter_map(|known| {
        let pause = known.pause.as_ref()?;
        let since = pause.since.to_string();
        Some(row(name(known).unwrap_or("-"), &since, &pause.reason, known.path().map(word)))
    });
    let others =
        others.iter().map(|wire| row(&wire.name, "-", wire.closed.as_deref().unwrap_or("-"), None));
    let rows: Vec<_> = [head].into_iter().chain(stopped).chain(paused).chain(others).collect();
    Table::whole().rows(&rows)
}

/// A spec's name, where it has one, or a run's.
fn name(known: &Known) -> Option<&str> {
    match &known.lasting {
        Lasting::Spec(_) => known.names.first().map(String::as_str),
        Lasting::Name(name) | Lasting::Run(name) => Some(name),
    }
}

fn as_json(known: &Known) -> Value {
    let pause = known.pause.as_ref();
    json!({
        "name": name(known),
        "spec": known.path().map(|path| path.to_string_lossy()),
        "since": pause.map(|pause| pause.since.to_string()),
        "reason": pause.map(|pause| &pause.reason),
        "running": known.runs,
    })
}
