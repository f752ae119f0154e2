//! Times `lnk sandbox run` against bare bubblewrap, peers where they are
//! installed beside it, and prints one Markdown table for each user.
//!
//! ```sh
//! cargo build --release -p lnk
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
mod options;
mod table;

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use inside::Timed;
use options::{Options, User};

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
    let mut arguments = std::env::args().skip(1).peekable();
    if let Some(timed) = arguments.peek().and_then(|first| Timed::of_argument(first)) {
        return timed.inside();
    }
    let options = Options::parse(arguments)?;
    if options.real_time {
        return Err(again_in_real_time(&options).into());
    }
    if let Some(home) = &options.measure_in {
        return measure::measure(&options, home);
    }
    table::heading(&options)?;
    let users = options.users()?;
    users.iter().try_for_each(|user| measure_as(&options, user))
}

/// Becomes the same under `chrt -r 1`; only returns if that fails.
fn again_in_real_time(options: &Options) -> std::io::Error {
    let Ok(own) = std::env::current_exe() else {
        return std::io::Error::other("where is this program?");
    };
    Command::new("chrt").args(["-r", "1"]).arg(own).args(options.again(None)).exec()
}

/// Measures in a process of the user's own, with a home of its own: what is
/// timed there needs no change of user, which would cost a slower spawn.
fn measure_as(options: &Options, user: &User) -> Result<()> {
    // Not in /tmp, which bubblewrap covers while it prepares: few homes are.
    let home = tempfile::Builder::new().prefix("benches-").tempdir_in("/var/tmp")?;
    std::os::unix::fs::chown(home.path(), Some(user.uid), Some(user.gid))?;
    // Both are copied, so that the user can execute them wherever they were
    // built.
    let copy = |from: &std::path::Path, name: &str| -> Result<PathBuf> {
        let to = home.path().join(name);
        std::fs::copy(from, &to).map_err(|error| format!("{}: {error}", from.display()))?;
        Ok(to)
    };
    let lnk = copy(&options.lnk, "lnk")?;
    let own = copy(&std::env::current_exe()?, "benches")?;
    println!("\n## {} (uid {})\n", user.name, user.uid);
    let mut command = Command::new(own);
    command.args(options.again(Some((home.path(), &lnk)))).current_dir(home.path());
    command.env_clear().env("HOME", home.path()).env("LANG", "C.UTF-8");
    command.env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()));
    if user.uid != rustix::process::getuid().as_raw() {
        command.uid(user.uid).gid(user.gid);
    }
    match command.status()?.success() {
        true => Ok(()),
        false => Err(format!("measuring as {} failed", user.name).into()),
    }
}
