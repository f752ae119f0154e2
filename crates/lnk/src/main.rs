//! The `lnk` command.

mod commands;
mod error;
mod ui;
mod usage;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    if arguments.by_ref().nth(1).is_some_and(|first| first == lnk_sandbox::linux::INNER) {
        lnk_sandbox::linux::inner::main_inner(arguments);
    }
    commands::main(std::env::args_os().collect())
}
