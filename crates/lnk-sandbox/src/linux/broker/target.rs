//! The thread that called `connect(2)`, as it can be looked at from outside.
//!
//! Everything is found by its number, which may have become another thread's:
//! it counts only when the notification is still valid afterwards.

use std::fs;
use std::os::fd::OwnedFd;

use lnk_sys::remote_memory;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// `PIDFD_THREAD` of `<linux/pidfd.h>`: a descriptor of one thread, whose table
/// of descriptors may be its own. Linux 6.9.
const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL as u32);

#[derive(Debug)]
pub(in crate::linux) struct Target {
    thread: Pid,
    pidfd: OwnedFd,
}

impl Target {
    /// # Errors
    /// `ESRCH` when it is gone.
    pub(in crate::linux) fn open(thread: u32) -> Result<Self, Errno> {
        let thread = i32::try_from(thread).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
        let pidfd = match pidfd_open(thread, PIDFD_THREAD) {
            // Before 6.9 only the process's descriptors are to be had; a thread
            // that has its own (without CLONE_FILES) gets another's socket.
            Err(Errno::INVAL) => pidfd_open(process_of(thread)?, PidfdFlags::empty())?,
            result => result?,
        };
        Ok(Self { thread, pidfd })
    }

    /// A duplicate of one of its descriptors.
    ///
    /// # Errors
    /// `EBADF` when it has no such descriptor, `EPERM` without the right to trace
    /// it.
    pub(in crate::linux) fn descriptor(&self, number: i32) -> Result<OwnedFd, Errno> {
        if number < 0 {
            return Err(Errno::BADF);
        }
        pidfd_getfd(&self.pidfd, number, PidfdGetfdFlags::empty())
    }

    /// A copy of its memory.
    ///
    /// # Errors
    /// `EFAULT` when it isn't all there.
    pub(in crate::linux) fn memory(&self, address: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let mut copy = vec![0; length];
        remote_memory::read(self.thread, address, &mut copy)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::FAULT))?;
        Ok(copy)
    }

    /// Its working folder, as an `O_PATH` descriptor.
    ///
    /// # Errors
    /// `EACCES` without the right to trace it.
    pub(in crate::linux) fn working_folder(&self) -> Result<OwnedFd, Errno> {
        let path = format!("/proc/{}/cwd", self.thread.as_raw_pid());
        rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    }
}

/// Whether a thread has a signal that it would handle if it weren't held. A
/// thread that is held by a notification sees no signal but a killing one.
pub(super) fn has_signal_to_handle(thread: u32) -> bool {
    fs::read_to_string(format!("/proc/{thread}/status"))
        .is_ok_and(|status| signal_to_handle(&status))
}

fn signal_to_handle(status: &str) -> bool {
    let set = |name| {
        field(status, name).and_then(|value| u64::from_str_radix(value, 16).ok()).unwrap_or(0)
    };
    (set("SigPnd:") | set("ShdPnd:")) & !set("SigBlk:") & set("SigCgt:") != 0
}

fn process_of(thread: Pid) -> Result<Pid, Errno> {
    let status = fs::read_to_string(format!("/proc/{}/status", thread.as_raw_pid()))
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::SRCH))?;
    field(&status, "Tgid:")
        .and_then(|value| value.parse().ok())
        .and_then(Pid::from_raw)
        .ok_or(Errno::SRCH)
}

/// A line of `/proc/PID/status`. The name of the program, which is its own to
/// choose, has no line breaks there: the kernel escapes them.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_counts_when_it_is_pending_caught_and_not_blocked() {
        let status = |pending, blocked, caught| {
            format!(
                "Name:\ta\nSigPnd:\t0000000000000000\nShdPnd:\t{pending:016x}\n\
                 SigBlk:\t{blocked:016x}\nSigIgn:\t0000000000000000\nSigCgt:\t{caught:016x}\n"
            )
        };
        assert!(signal_to_handle(&status(2, 0, 2)));
        assert!(!signal_to_handle(&status(2, 2, 2)));
        assert!(!signal_to_handle(&status(2, 0, 4)));
        assert!(!signal_to_handle(""));
    }

    #[test]
    fn what_a_thread_does_not_have_is_an_error() {
        let target = Target::open(rustix::thread::gettid().as_raw_pid().cast_unsigned()).unwrap();
        assert!(target.descriptor(0).is_ok());
        assert_eq!(target.descriptor(-1).unwrap_err(), Errno::BADF);
        assert_eq!(target.descriptor(987_654).unwrap_err(), Errno::BADF);
        assert_eq!(target.memory(8, 16), Err(Errno::FAULT));
        assert_eq!(target.memory(8, 0), Ok(vec![]));
        assert_eq!(Target::open(0).unwrap_err(), Errno::SRCH);
        assert_eq!(Target::open(u32::MAX).unwrap_err(), Errno::SRCH);
    }

    #[test]
    fn a_thread_has_its_process() {
        assert_eq!(process_of(rustix::thread::gettid()), Ok(rustix::process::getpid()));
    }
}
