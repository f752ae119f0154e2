//! What the end-to-end tests share: users, homes, running programs, terminals,
//! and ways to take a fence away.
//!
//! A test is a body that runs once for each user and each way of making mounts:
//!
//! ```no_run
//! # let lnk = "/usr/bin/lnk";
//! testkit::each(lnk, |env| {
//!     env.write("note", "hi\n");
//!     env.lnk(["sandbox", "run", "--read", ".", "--", "cat", "note"]).run().ok().prints("hi\n");
//! });
//! ```
//!
//! In the `lnk` crate's own tests [`each!`] fills in the binary. Everything here
//! panics when an expectation fails, with the whole output of what was run.

mod call;
mod env;
mod fence;
pub mod net;
mod terminal;
mod user;

use std::fs::File;
use std::io::Write;
use std::path::Path;

pub use call::{Call, Run, Running};
pub use env::{Mounts, TestEnv};
pub use net::Net;
pub use terminal::Terminal;
pub use user::User;

/// [`each()`] with the `lnk` binary that cargo built for this test. Works only in
/// integration tests of the crate that has that binary.
#[macro_export]
macro_rules! each {
    ($body:expr) => {
        $crate::each(env!("CARGO_BIN_EXE_lnk"), $body)
    };
}

/// Runs `body` in a fresh [`TestEnv`] for every user that this process can be
/// and both ways of making mounts.
///
/// # Panics
/// When `body` does, and when a user is missing where none may be (see
/// [`missing`]).
pub fn each(lnk: impl AsRef<Path>, body: impl Fn(&TestEnv)) {
    for user in User::all() {
        for mounts in [Mounts::Joiner, Mounts::Bwrap] {
            say(&format!("as {}, mounts by {}", user.name, mounts.name()));
            body(&TestEnv::new(lnk.as_ref(), &user, mounts));
        }
    }
}

/// Says that a test, or a part of it, doesn't run here, and why. The line is
/// counted in the file that `LNK_SKIPS` names, so that no skip goes unseen.
pub fn skip(reason: &str) {
    say(&format!("SKIPPED: {reason}"));
    let Some(path) = std::env::var_os("LNK_SKIPS") else {
        return;
    };
    let mut skips =
        File::options().append(true).create(true).open(&path).expect("LNK_SKIPS can be written");
    // One write, so that tests running at once don't mix their lines.
    skips.write_all(format!("{reason}\n").as_bytes()).expect("LNK_SKIPS can be written");
}

/// [`skip`] for what a machine that speaks for the project must have: a fence,
/// a user, a program. With `LNK_CI=1` it fails instead.
///
/// # Panics
/// With `LNK_CI=1`.
pub fn missing(what: &str) {
    assert!(std::env::var_os("LNK_CI").is_none_or(|ci| ci != "1"), "missing on CI: {what}");
    skip(what);
}

/// A line for whoever reads the test's output.
#[allow(clippy::print_stderr, reason = "test output is what this is for")]
fn say(line: &str) {
    eprintln!("{line}");
}
