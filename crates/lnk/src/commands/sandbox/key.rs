//! `lnk sandbox key`.

use std::path::PathBuf;

use lnk_sandbox::spec::host::HostPattern;
use lnk_sandbox::ssh::{Typed, forget, public_key};

use super::caller;
use super::flags::A_SPEC;
use crate::error::Result;
use crate::ui;

/// The heading of what is about servers.
const SSH: &str = "Forget a server";

/// Print a sandbox's own SSH key, the public half
///
/// A sandbox with an endpoint on port 22 has an SSH key of its own in its ~/.ssh:
/// never one of yours. It is known by its spec, or by its first --write folder where
/// there is none; an agent's by its name. The key is made here if there is none yet; a
/// sandbox whose SSH server is at another port has it from then on. A spec has one
/// once you agreed to what it opens.
///
/// With --forget it forgets the host key of a server instead, which was changed.
///
/// key exits with 0, and with 125 where there is no key.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "Examples:\n  lnk sandbox key --write ~/code/app\n  lnk sandbox key --forget forge.example.com --write ~/code/app",
    group(clap::ArgGroup::new("whose").required(true).args(["spec", "write", "name"]))
)]
pub struct Args {
    /// The spec that the sandbox is run with
    #[arg(long, value_name = "FILE", help_heading = A_SPEC)]
    spec: Option<PathBuf>,

    /// The folder that it is run with, without a spec
    #[arg(long, value_name = "PATH")]
    write: Option<PathBuf>,

    /// The agent's sandbox, such as main-run
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// A server whose host key it is to forget; '*.x' for every name under x
    #[arg(long, value_name = "HOST", help_heading = SSH)]
    forget: Option<HostPattern>,
}

pub fn key(args: Args) -> Result<u8> {
    let typed = match (args.spec, args.write, args.name) {
        (Some(spec), ..) => Typed::Spec(spec),
        (None, Some(folder), _) => Typed::Folder(folder),
        (None, None, name) => Typed::Name(name.unwrap_or_default()),
    };
    let caller = caller()?;
    let mut warnings = Vec::new();
    let text = match args.forget {
        Some(hosts) => forget(&typed, &hosts, &caller)?.join("\n"),
        None => {
            let key = public_key(&typed, &caller, &mut warnings);
            warnings.iter().for_each(|line| ui::failure(line));
            key?
        }
    };
    ui::page(&text)?;
    Ok(0)
}
