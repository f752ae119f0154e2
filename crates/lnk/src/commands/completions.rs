//! `lnk completions`, hidden: for packagers and for whoever installs by hand.

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::Cli;
use crate::error::Result;
use crate::ui;

/// Print a shell's completions for lnk
#[derive(clap::Args)]
pub struct Args {
    /// The shell
    shell: Shell,
}

pub fn completions(args: &Args) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "lnk", &mut script);
    ui::generated(&script)?;
    Ok(0)
}
