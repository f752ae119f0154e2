//! The `lnk` command.

mod commands;
mod error;
mod nearest;
mod ui;
mod usage;

use std::process::ExitCode;

fn main() -> ExitCode {
    // ── HOOK: the stage inside a sandbox is told apart here, before anything is parsed. ──
    commands::main(std::env::args_os().collect())
}
