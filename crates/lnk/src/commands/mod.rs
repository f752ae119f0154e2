//! The commands, each in the file of its name.

mod completions;
mod man;
mod sandbox;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::error::{CommandError, FAILED, Result};
use crate::{ui, usage};

/// Run any program so that it changes only the folders you give it
#[derive(Parser)]
#[command(name = "lnk", version, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Sandbox(sandbox::Args),
    #[command(hide = true)]
    Completions(completions::Args),
    #[command(hide = true)]
    Man(man::Args),
}

/// Does what the command line asks; the status is the one to exit with.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let status = parse(&args).and_then(|cli| match cli {
        Some(cli) => dispatch(cli.command),
        None => Ok(0),
    });
    ExitCode::from(status.unwrap_or_else(|error| {
        ui::tell(&error);
        FAILED
    }))
}

fn dispatch(command: Command) -> Result<u8> {
    match command {
        Command::Sandbox(args) => sandbox::sandbox(args),
        Command::Completions(args) => completions::completions(&args),
        Command::Man(args) => man::man(&args),
    }
}

/// What was asked; `None` where that was help or the version, shown already.
fn parse(args: &[OsString]) -> Result<Option<Cli>> {
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
    match Cli::try_parse_from(args) {
        Ok(cli) => Ok(Some(cli)),
        Err(error) if matches!(error.kind(), DisplayHelp | DisplayVersion) => {
            ui::page(&error.render().to_string()).map(|()| None)
        }
        Err(error) => Err(CommandError::Because(usage::line(&error, &Cli::command(), args))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
