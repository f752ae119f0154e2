//! `lnk sandbox permissions`.

use lnk_sandbox::spec::section;

use crate::error::Result;
use crate::ui;

/// List what a sandbox can be given: each section, its keys and their flags
#[derive(clap::Args)]
pub struct Args {
    /// As JSON: an array with an object for each key
    #[arg(long)]
    json: bool,
}

pub fn permissions(args: &Args) -> Result<u8> {
    let text = if args.json { section::permissions_json() } else { section::permissions_text() };
    ui::page(&text)?;
    Ok(0)
}
