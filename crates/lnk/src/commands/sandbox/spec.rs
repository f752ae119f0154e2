//! `lnk sandbox spec`.

use std::path::PathBuf;

use lnk_sandbox::spec_file::{SpecFile, printed_flags};

use super::caller;
use super::flags::{A_SPEC, Flags};
use crate::error::{CommandError, Result};
use crate::ui;

const EXAMPLES: &str = "\
Examples:
  A spec to start from:
    lnk sandbox spec --write ~/code/app --internet-host '*' --command node > app.toml
  What a spec says, with its paths absolute:
    lnk sandbox spec --spec app.toml";

/// Print a spec: a sandbox written down
///
/// With flags, a spec to start from: what they open, and every other key as a
/// comment. With --spec, that spec, its paths absolute and the flags in place of
/// its keys.
#[derive(clap::Args)]
#[command(verbatim_doc_comment, after_long_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    flags: Flags,

    /// A spec to print, with its paths absolute
    #[arg(long, value_name = "FILE", help_heading = A_SPEC)]
    spec: Option<PathBuf>,
}

pub fn spec(args: Args) -> Result<u8> {
    if args.flags.share_network()? {
        return Err(CommandError::Because(
            "--allow network: no spec says it; leave it out here, and give it to 'lnk sandbox run'"
                .into(),
        ));
    }
    let (caller, flags) = (caller()?, args.flags.spec()?);
    let text = match args.spec {
        Some(file) => SpecFile::read(&file, &caller)?.printed(flags, &caller)?,
        None => printed_flags(flags, &caller)?,
    };
    ui::page(&text)?;
    Ok(0)
}
