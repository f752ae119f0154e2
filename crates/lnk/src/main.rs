//! The `lnk` command.

mod commands;
mod error;
mod ui;
mod usage;

use std::process::ExitCode;

use lnk_sandbox::check::probe::{PROBE, main_probe};
use lnk_sandbox::linux::{INNER, inner::main_inner};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == INNER => main_inner(arguments),
        Some(first) if first == PROBE => main_probe(arguments),
        _ => commands::main(std::env::args_os().collect()),
    }
}
