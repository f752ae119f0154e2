//! Says which programs the sandbox starts, or was refused.
//!
//! Landlock decides which programs run, but tells nobody. So the seccomp filter
//! holds each `execve(2)` and `execveat(2)`, the file that it names is looked up
//! from outside, and the kernel goes on with the call whatever was found: by the
//! time it does, the caller may have changed the path. A race here makes a wrong
//! message, never a grant.
//!
//! `memfd_create(2)` is held too, as Landlock lets files in memory be executed:
//! they are made out here, so that they never can be (`memfd`).
//!
//! Not named: a path that can't be read or looked up (memory that isn't there,
//! magic links of `/proc` but for descriptors and the own `exe`), which the
//! kernel mostly refuses by itself.

mod asked;
mod judge;
mod memfd;
mod reports;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use lnk_sys::notify::Notification;

use crate::paths::Identity;
use crate::programs::ProgramList;

use super::broker::{Answer, Others};
use judge::Judge;
use reports::Reports;

/// What is to be told.
#[derive(Debug)]
pub enum Mode {
    /// Programs that this list doesn't let run.
    List(ProgramList),
    /// All programs.
    Learn,
}

/// A program that was started or refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executed {
    /// Its absolute path as it was asked for, a relative one behind the working
    /// folder; what was asked by descriptor alone, by its real path. Untrusted
    /// bytes: escape them before a terminal.
    pub asked: Vec<u8>,
    /// Its real path inside; for one that is [`How::Nameless`] what the kernel
    /// shows in its place. Untrusted too.
    pub real: PathBuf,
    /// What it is.
    pub identity: Identity,
    /// What came of it.
    pub how: How,
}

/// Why a program is told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// It isn't on the list.
    Refused,
    /// It runs, whatever a list says: told in [`Mode::Learn`] alone.
    Run,
    /// It is the `#!` interpreter of a script that may run itself: refused, as it
    /// isn't on the list, or running ([`Mode::Learn`]).
    InterpreterOf(PathBuf),
    /// It is the loader of a program that may run, and not among the list's.
    LoaderOf(PathBuf),
    /// It is one of the list's loaders, executed as a program.
    Loader,
    /// No path leads to it (a file in memory, a removed one): refused, or running
    /// ([`Mode::Learn`]). No list can name it.
    Nameless,
}

/// Hears of the programs of one sandbox.
#[derive(Debug)]
pub struct Execs {
    judge: Arc<Judge>,
}

impl Execs {
    /// `root` is an `O_PATH` descriptor of the sandbox's root folder, `writable`
    /// are the places that the sandbox can write, by real path inside.
    ///
    /// # Errors
    /// `EMFILE` and the like: there is no descriptor for [`Execs::fd`].
    pub fn new(root: OwnedFd, mode: Mode, writable: Vec<PathBuf>) -> io::Result<Self> {
        let judge = Judge::new(root, mode, writable, Reports::new()?);
        Ok(Self { judge: Arc::new(judge) })
    }

    /// What answers the calls of [`Watch::Execs`](super::seccomp::Watch) and
    /// [`Watch::ExecsAndMemfds`](super::seccomp::Watch), for the
    /// [`Broker`](super::broker::Broker). What a call is told of, it is told of
    /// before it is answered.
    #[must_use]
    pub fn answers(&self) -> Others {
        let judge = Arc::clone(&self.judge);
        Box::new(move |listener, call| answer(&judge, listener, call))
    }

    /// To poll: `POLLIN` as long as [`Execs::next`] has something.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.judge.reports.fd()
    }

    /// The next program, in their order; each file once, whatever its names.
    #[must_use]
    pub fn next(&self) -> Option<Executed> {
        self.judge.reports.next()
    }

    /// How often a program wasn't told of, as there were 4,096 others before.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.judge.reports.left_out()
    }
}

fn answer(judge: &Judge, listener: BorrowedFd<'_>, call: &Notification) -> Answer {
    if i64::from(call.nr) == libc::SYS_memfd_create {
        return memfd::answer(listener, call);
    }
    judge.look_at(listener, call);
    Answer::GoOn
}
