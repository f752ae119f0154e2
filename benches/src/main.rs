//! Times `lnk sandbox run` against bare bubblewrap, its wire against direct
//! connections, peers where they are installed beside both, and Link Run's calls
//! against `lnk sandbox run`, and prints Markdown tables for each user.
//!
//! ```sh
//! cargo build --release -p lnk -p lnk-link-run
//! cargo run --release -p benches -- --rr
//! ```
//!
//! Only ratios of one run mean anything: every round times each case once, one
//! after another, so that what else the machine does hits them all. No test
//! asserts a speed.

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod cases;
mod inside;
mod measure;
mod network;
mod options;
mod origin;
mod peers;
mod relay;
mod run;
mod table;
mod tunnels;
mod wire;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use inside::Timed;
use network::Network;
use options::{Options, Part, User};

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("benches: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((first, others)) = arguments.split_first() {
        if let Some(timed) = Timed::of_argument(first) {
            return timed.inside();
        }
        match (first.as_str(), others) {
            ("--client", others) => return tunnels::client(others),
            ("--origin", [address]) => return origin::serve(address.parse()?),
            ("--relay", [address]) => return relay::serve(address.parse()?),
            _ => {}
        }
    }
    let options = Options::parse(arguments.into_iter())?;
    if options.real_time {
        return Err(again_in_real_time(&options).into());
    }
    match (&options.measure_in, options.only) {
        (None, _) => measure_all(&options),
        (Some(home), Some(Part::Wire)) => wire::measure_all(&options, home, Network::origin()),
        (Some(home), Some(Part::Run)) => run::measure(&options, home),
        (Some(home), _) => measure::measure(&options, home),
    }
}

/// Each part as each user.
fn measure_all(options: &Options) -> Result<()> {
    table::heading(options)?;
    let measures = |part| options.only.is_none_or(|only| only == part);
    let network = match measures(Part::Wire) {
        false => None,
        true => Network::make()?,
    };
    if network.is_none() && measures(Part::Wire) {
        eprintln!("benches: left out, as only root makes networks: the wire");
    }
    for user in options.users()? {
        println!("\n## {} (uid {})\n", user.name, user.uid);
        for part in [Part::Starts, Part::Run].into_iter().filter(|part| measures(*part)) {
            measure_as(options, &user, part, &[])?;
        }
        if let Some(network) = &network {
            measure_as(options, &user, Part::Wire, &network.words(&user))?;
        }
    }
    Ok(())
}

/// Becomes the same under `chrt -r 1`; only returns if that fails.
fn again_in_real_time(options: &Options) -> std::io::Error {
    let Ok(own) = std::env::current_exe() else {
        return std::io::Error::other("where is this program?");
    };
    Command::new("chrt").args(["-r", "1"]).arg(own).args(options.again(None)).exec()
}

/// Measures in a process of the user's own, with a home of its own: what is
/// timed there needs no change of user, which would cost a slower spawn. `words`
/// start it; without any it starts from here.
fn measure_as(options: &Options, user: &User, part: Part, words: &[OsString]) -> Result<()> {
    // Not in /tmp, which bubblewrap covers while it prepares: few homes are.
    let home = tempfile::Builder::new().prefix("benches-").tempdir_in("/var/tmp")?;
    std::os::unix::fs::chown(home.path(), Some(user.uid), Some(user.gid))?;
    // All are copied, so that the user can execute them wherever they were built.
    let copy = |from: &std::path::Path, name: &str| -> Result<PathBuf> {
        let to = home.path().join(name);
        std::fs::copy(from, &to).map_err(|error| format!("{}: {error}", from.display()))?;
        Ok(to)
    };
    copy(&options.lnk, "lnk")?;
    if part == Part::Run {
        copy(&options.link_run, "lnk-link-run")?;
    }
    let own = copy(&std::env::current_exe()?, "benches")?;
    let argv = words.iter().cloned().chain([own.into()]).collect::<Vec<_>>();
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]).args(options.again(Some((part, home.path()))));
    command.current_dir(home.path());
    command.env_clear().env("HOME", home.path()).env("LANG", "C.UTF-8");
    command.env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()));
    if words.is_empty() && user.uid != rustix::process::getuid().as_raw() {
        command.uid(user.uid).gid(user.gid);
    }
    match command.status()?.success() {
        true => Ok(()),
        false => Err(format!("measuring as {} failed", user.name).into()),
    }
}
