//! The `lnk-link-run` command.

use std::process::ExitCode;

use lnk_sandbox::linux::{INNER, inner::main_inner};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == INNER => main_inner(arguments),
        _ => ExitCode::SUCCESS,
    }
}
