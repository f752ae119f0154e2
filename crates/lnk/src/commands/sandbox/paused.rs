//! `lnk sandbox paused`.

use lnk_sandbox::shown::escaped_name;
use lnk_sandbox::state;
use lnk_sandbox::wire::control::Status;
use lnk_sandbox::wire::paused::Lasting;
use serde_json::{Value, json};

use super::named::Known;
use super::table::Table;
use super::{caller, named};
use crate::error::Result;
use crate::ui;

/// Show which wires are closed, since when, and why
///
/// 'every' stands for all of them, where they are stopped. A spec is shown with
/// its path, a run without one while it runs.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// As JSON: an object that says whether all are stopped, and which are paused
    #[arg(long)]
    json: bool,
}

pub fn paused(args: &Args) -> Result<u8> {
    let folder = state::sandbox(&caller()?)?;
    let running = named::running(&folder)?;
    let kept = named::state(&folder)?.map_or_else(|| Ok(Default::default()), |it| it.kept());
    let kept = kept.map_err(named::failed(&folder))?;
    let stopped = kept.stopped.map(|since| since.to_string());
    let all = named::known(kept, &running);
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
    let row = |name: String, since: &str, why: &str| {
        let since = since.get(..19).unwrap_or(since).replace('T', " ");
        [name, since, escaped_name(why.as_bytes())]
    };
    let head = ["SANDBOX", "SINCE (UTC)", "WHY"].map(str::to_owned);
    let stopped = stopped.map(|since| row("every".to_owned(), since, "lnk sandbox stop"));
    let paused = paused.iter().filter_map(|known| {
        let pause = known.pause.as_ref()?;
        Some(row(known.whole_name(), &pause.since.to_string(), &pause.reason))
    });
    let others = others.iter().map(|wire| {
        row(escaped_name(wire.name.as_bytes()), "-", wire.closed.as_deref().unwrap_or("-"))
    });
    let rows: Vec<_> = [head].into_iter().chain(stopped).chain(paused).chain(others).collect();
    Table::new().rows(&rows)
}

fn as_json(known: &Known) -> Value {
    let spec = match &known.lasting {
        Lasting::Spec(path) => Some(path.to_string_lossy()),
        Lasting::Name(_) | Lasting::Run(_) => None,
    };
    let pause = known.pause.as_ref();
    json!({
        "name": known.name(),
        "spec": spec,
        "since": pause.map(|pause| pause.since.to_string()),
        "reason": pause.map(|pause| &pause.reason),
        "running": known.runs,
    })
}
