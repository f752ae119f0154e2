//! `lnk man`, hidden: for packagers and for whoever installs by hand.

use std::path::PathBuf;

use clap::CommandFactory as _;
use lnk_sandbox::error::reason;

use super::Cli;
use crate::error::{CommandError, Result};

/// Write lnk's man pages into a folder
#[derive(clap::Args)]
pub struct Args {
    /// The folder, which has to be there
    folder: PathBuf,
}

pub fn man(args: &Args) -> Result<u8> {
    clap_mangen::generate_to(Cli::command(), &args.folder).map_err(|error| {
        let folder = args.folder.display();
        CommandError::Because(format!("can't write man pages into {folder}: {}", reason(&error)))
    })?;
    Ok(0)
}
