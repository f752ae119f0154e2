//! bubblewrap, executed and waiting for its arguments.
//!
//! It reads them from a pipe (`--args`), and makes nothing before it has them
//! all. So it can be started as soon as a run is asked for: what a program's
//! start costs passes while the grants are judged.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use lnk_sys::signal::Taken;
use rustix::fs::{MemfdFlags, OFlags, SealFlags};
use rustix::io::{Errno, FdFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, waitpid,
};

use crate::error::failed;
use crate::faults::{Fault, Faults};
use crate::linux::failure::LaunchError;
use crate::linux::message;
use crate::plan::OWN_BINARY;

/// One page, the least a pipe holds (pipe(7)): when one byte more than that was
/// written, somebody reads.
pub const PIPE_SIZE: usize = 4096;
/// Signals that the supervisor answers to.
pub(super) const SIGNALS: [i32; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];
/// The arguments on bubblewrap's command line, behind those that it reads.
pub const ON_COMMAND_LINE: usize = 5;

/// A sandbox's first steps. Dropped, bubblewrap is ended and reaped.
pub struct Begun {
    /// Ended first when this is dropped.
    pub(super) bwrap: Bwrap,
    pub(super) signals: Taken,
    pub(super) control: OwnedFd,
    pub(super) complaints: OwnedFd,
    /// To and from the joiner, where it makes the mounts.
    pub(super) pipes: Option<Pipes>,
    /// Read by the inner stage, long after they are written.
    orders: OwnedFd,
    arguments: OwnedFd,
}

impl Begun {
    /// Starts bubblewrap at `path`, for the joiner to make the mounts.
    ///
    /// # Errors
    /// [`LaunchError`]; nothing is left then.
    pub fn for_joiner(path: &Path, faults: &Faults) -> Result<Begun, LaunchError> {
        Begun::new(path, Some(Pipes::new().map_err(failed("pipe"))?), &[], faults)
    }

    /// Starts bubblewrap at `path`, to make the mounts itself from arguments that
    /// name `files` by number.
    ///
    /// # Errors
    /// [`LaunchError`]; nothing is left then.
    pub fn without_joiner(
        path: &Path,
        files: &[OwnedFd],
        faults: &Faults,
    ) -> Result<Begun, LaunchError> {
        Begun::new(path, None, files, faults)
    }

    fn new(
        path: &Path,
        pipes: Option<Pipes>,
        files: &[OwnedFd],
        faults: &Faults,
    ) -> Result<Begun, LaunchError> {
        if !faults.has(Fault::Descriptors) {
            lnk_sys::fd::close_inherited_on_exec().map_err(failed("close_range"))?;
        }
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(failed("subreaper"))?;
        // What can't be sent a signal can't be ended. This one is ignored.
        let own = pidfd_open(rustix::process::getpid(), PidfdFlags::empty())
            .map_err(failed("pidfd_open"))?;
        pidfd_send_signal(&own, Signal::URG).map_err(failed("pidfd_send_signal"))?;
        // Who ignores it never learns how a child ended; bubblewrap and what it
        // starts would inherit that of whoever started us.
        lnk_sys::signal::restore_default(libc::SIGCHLD);
        // bubblewrap and what it starts must not end by the terminal's keys
        // before the program's own handler did: they ignore these.
        let signals = Taken::new(&SIGNALS).map_err(failed("signals"))?;
        let (control, control_inside) = message::pair().map_err(failed("socketpair"))?;
        message::ask_for_credentials(&control).map_err(failed("SO_PASSCRED"))?;
        let (complaints, complaints_write) =
            pipe_with(PipeFlags::CLOEXEC).map_err(failed("pipe"))?;
        rustix::fs::fcntl_setfl(&complaints, OFlags::NONBLOCK).map_err(failed("pipe"))?;
        let stderr = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3)
            .map_err(failed("standard error"))?;
        let sealable = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let orders = rustix::fs::memfd_create("lnk", sealable).map_err(failed("memfd_create"))?;
        let (arguments_read, arguments) = pipe_with(PipeFlags::CLOEXEC).map_err(failed("pipe"))?;

        let mut inherited =
            vec![control_inside.as_fd(), orders.as_fd(), stderr.as_fd(), arguments_read.as_fd()];
        inherited.extend(files.iter().map(AsFd::as_fd));
        if let Some(pipes) = &pipes {
            inherited.extend(pipes.inherited());
        }
        let mut command = Command::new(path);
        // With a folder of its own it would be forked, not spawned.
        command.arg0("bwrap").env_clear();
        command.args(["--args", &number(&arguments_read), OWN_BINARY, super::INNER]);
        command.args([number(&control_inside), number(&orders), number(&stderr)]);
        command.stderr(Stdio::from(complaints_write));
        set_inherited(&inherited, true).map_err(failed("fcntl"))?;
        let spawned = command.spawn();
        set_inherited(&inherited, false).map_err(failed("fcntl"))?;
        drop(command);
        let child =
            spawned.map_err(|error| LaunchError::Bwrap(format!("{}: {error}", path.display())))?;
        let bwrap = Bwrap::new(Pid::from_child(&child))?;
        Ok(Begun { bwrap, signals, control, complaints, pipes, orders, arguments })
    }

    /// Writes the orders of the inner stage.
    pub(super) fn order(&self, orders: &[u8]) -> io::Result<()> {
        use rustix::fs::{SeekFrom, fcntl_add_seals, seek};
        write_all(&self.orders, orders)?;
        seek(&self.orders, SeekFrom::Start(0))?;
        let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        Ok(fcntl_add_seals(&self.orders, seals)?)
    }

    /// Gives bubblewrap its arguments, each ended by a NUL, and so the start. It
    /// never starts with a part of them; why it ended instead it says itself.
    pub(super) fn go(self, arguments: &[u8]) -> Going {
        if write_all(&self.arguments, arguments).is_err() {
            self.bwrap.kill();
        }
        let Begun { bwrap, signals, control, complaints, .. } = self;
        Going { bwrap, signals, control, complaints }
    }
}

/// What is left of [`Begun`] once bubblewrap works.
pub(super) struct Going {
    pub(super) bwrap: Bwrap,
    pub(super) signals: Taken,
    pub(super) control: OwnedFd,
    pub(super) complaints: OwnedFd,
}

/// bubblewrap's process.
pub(super) struct Bwrap {
    pub(super) process: OwnedFd,
    pid: Pid,
    /// Its exit status, once it was reaped.
    pub(super) status: Option<u8>,
}

impl Bwrap {
    fn new(pid: Pid) -> Result<Bwrap, LaunchError> {
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => Ok(Bwrap { process, pid, status: None }),
            Err(error) => {
                // Ours and not reaped: the number is still its own.
                let _ = rustix::process::kill_process(pid, Signal::KILL);
                let _ = waitpid(Some(pid), WaitOptions::empty());
                Err(failed("pidfd_open")(error).into())
            }
        }
    }

    /// Waits for its end.
    pub(super) fn reap(&mut self) -> Result<(), Errno> {
        if self.status.is_some() {
            return Ok(());
        }
        match waitpid(Some(self.pid), WaitOptions::empty()) {
            Ok(Some((_, status))) => {
                let status =
                    status.exit_status().or(status.terminating_signal().map(|signal| 128 + signal));
                self.status = Some((status.unwrap_or(125) & 0xff) as u8);
                Ok(())
            }
            Ok(None) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(super) fn kill(&self) {
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }
}

impl Drop for Bwrap {
    fn drop(&mut self) {
        if self.status.is_none() {
            self.kill();
            let _ = self.reap();
        }
    }
}

/// The two pipes between bubblewrap and the joiner.
pub(super) struct Pipes {
    pub(super) info_read: OwnedFd,
    pub(super) info_write: OwnedFd,
    pub(super) sync_read: OwnedFd,
    pub(super) sync_write: OwnedFd,
}

impl Pipes {
    fn new() -> io::Result<Self> {
        let (info_read, info_write) = pipe_with(PipeFlags::CLOEXEC)?;
        let (sync_read, sync_write) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::pipe::fcntl_setpipe_size(&sync_write, PIPE_SIZE)?;
        rustix::fs::fcntl_setfl(&sync_write, OFlags::NONBLOCK)?;
        Ok(Pipes { info_read, info_write, sync_read, sync_write })
    }

    /// bubblewrap holds the read end of its own `--info-fd` as well, so that it
    /// doesn't end by SIGPIPE half-way when we are killed.
    fn inherited(&self) -> [BorrowedFd<'_>; 3] {
        [self.sync_read.as_fd(), self.info_write.as_fd(), self.info_read.as_fd()]
    }
}

/// A descriptor's number, as an argument.
pub(super) fn number(fd: &impl AsRawFd) -> String {
    fd.as_raw_fd().to_string()
}

fn set_inherited(fds: &[BorrowedFd<'_>], inherited: bool) -> io::Result<()> {
    let flags = if inherited { FdFlags::empty() } else { FdFlags::CLOEXEC };
    fds.iter().try_for_each(|fd| Ok(rustix::io::fcntl_setfd(fd, flags)?))
}

fn write_all(fd: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
