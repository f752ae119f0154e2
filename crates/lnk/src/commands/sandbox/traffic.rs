//! `lnk sandbox traffic`.

use lnk_sandbox::error::reason;
use lnk_sandbox::shown::{escaped_name, word};
use lnk_sandbox::state;
use lnk_sandbox::wire::control::{Status, list};

use super::caller;
use super::table::{Table, size};
use crate::error::{CommandError, Result};
use crate::ui;

/// Show what each running sandbox sent and received
///
/// What each running sandbox's proxy has carried since it started, every call it
/// let through: up, from the sandbox, and down, to it.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// As JSON: an array with an object for each sandbox
    #[arg(long)]
    json: bool,
}

pub fn traffic(args: &Args) -> Result<u8> {
    let folder = state::sandbox(&caller()?)?;
    let running = list(&folder).map_err(|error| {
        let folder = word(folder.join("run"));
        CommandError::Because(format!("{folder} can't be read: {}", reason(&error)))
    })?;
    for name in &running.silent {
        ui::failure(&format!(
            "{} doesn't answer: its lnk is stopped or busy",
            escaped_name(name.as_bytes())
        ));
    }
    if args.json {
        let json = serde_json::to_string(&running.wires).expect("plain data is always serialised");
        ui::page(&json)?;
    } else if !running.wires.is_empty() {
        ui::page(&table(&running.wires))?;
    } else if running.silent.is_empty() {
        ui::explain("No sandbox with a wire is running.");
    }
    Ok(0)
}

fn table(wires: &[Status]) -> String {
    let head = ["SANDBOX", "UP", "DOWN", "SINCE (UTC)"].map(str::to_owned);
    let rows = wires.iter().map(|wire| {
        let name = escaped_name(wire.name.as_bytes());
        let spec = wire.spec.as_ref().map(|spec| format!(" ({})", escaped_name(spec.as_bytes())));
        let since = wire.traffic.since.strftime("%Y-%m-%d %H:%M:%S").to_string();
        let (up, down) = (size(wire.traffic.up), size(wire.traffic.down));
        [name + &spec.unwrap_or_default(), up, down, since]
    });
    Table::new().rows(&[head].into_iter().chain(rows).collect::<Vec<_>>())
}
