//! The most processes of a sandbox: a fork bomb in one leaves room for all others.

use std::ffi::CStr;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd};

use lnk_sys::process::{Forked, exit_now, fork_single_threaded_seen_in};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use rustix::process::{Pid, WaitOptions, waitpid};

/// Numbers that a namespace gives out only once, to its first processes
/// (`RESERVED_PIDS` of the kernel's `pid.h`): all others have to find one above.
const RESERVED: u32 = 300;
/// The most that `kernel.pid_max` takes (`PID_MAX_LIMIT`, proc_sys_kernel(5)).
const MAX: u32 = 1 << 22;
/// Since when each process namespace has a `kernel.pid_max` of its own.
const OF_A_NAMESPACE: (u32, u32) = (6, 14);
/// Since when `RLIMIT_NPROC` counts in each user namespace by itself.
const OF_A_USER: (u32, u32) = (5, 14);

/// The line where no limit holds.
pub const NO_LIMIT: &str = "nothing limits how many processes it starts: for root that needs Linux 6.14, \
                            for others 5.14";

/// A limit that holds on this machine. Threads count as processes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// By `kernel.pid_max` of its process namespace: up to 300 more, which are its first.
    Namespace(NonZeroU32),
    /// By `RLIMIT_NPROC`, getrlimit(2), which doesn't hold root.
    User(NonZeroU32),
}

impl Limit {
    /// The one that holds for this user on this kernel; `None` where none does.
    #[must_use]
    pub fn here(most: NonZeroU32, uid: u32) -> Option<Limit> {
        Limit::on(kernel(rustix::system::uname().release()), most, uid)
    }

    /// An older kernel has one `kernel.pid_max` for the whole machine, which root would
    /// write: so it's the kernel's word that counts, not a try.
    fn on(kernel: (u32, u32), most: NonZeroU32, uid: u32) -> Option<Limit> {
        if kernel >= OF_A_NAMESPACE {
            Some(Limit::Namespace(most))
        } else if kernel >= OF_A_USER && uid != 0 {
            Some(Limit::User(most))
        } else {
            None
        }
    }
}

/// The first two numbers of a kernel's release.
fn kernel(release: &CStr) -> (u32, u32) {
    let mut numbers = release.to_bytes().split(|byte| !byte.is_ascii_digit()).map(|digits| {
        std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0)
    });
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Sets the limit of a process namespace that this process, single-threaded, has entered
/// for its children. `proc` shows this process.
///
/// # Errors
/// Those of fork(2), fsopen(2), fsmount(2) and of writing.
pub fn limit_namespace(most: NonZeroU32, proc: BorrowedFd<'_>) -> io::Result<()> {
    let most = most.get().saturating_add(RESERVED).min(MAX);
    let child = match fork_single_threaded_seen_in(proc)? {
        Forked::Parent(child) => Pid::from_raw(child).ok_or(Errno::CHILD)?,
        Forked::Child => exit_now(write_pid_max(most).map_or_else(Errno::raw_os_error, |()| 0)),
    };
    loop {
        match waitpid(Some(child), WaitOptions::empty()) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(ended) => {
                return match ended.and_then(|(_, status)| status.exit_status()) {
                    Some(0) => Ok(()),
                    Some(errno) => Err(io::Error::from_raw_os_error(errno)),
                    None => Err(Errno::CHILD.into()),
                };
            }
        }
    }
}

/// Writes `kernel.pid_max` of this process's own namespace, through a /proc that nobody
/// else sees: the sandbox's is read-only.
fn write_pid_max(most: u32) -> Result<(), Errno> {
    use rustix::mount::{fsconfig_create, fsmount, fsopen};
    let context = fsopen(c"proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let proc = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&proc, "sys/kernel/pid_max", flags, Mode::empty())?;
    rustix::io::write(&file, most.to_string().as_bytes()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_read_from_its_release() {
        for (release, numbers) in [
            (c"6.18.44-fc-v657", (6, 18)),
            (c"6.14.0-37-generic", (6, 14)),
            (c"5.4-rc1", (5, 4)),
            (c"7", (7, 0)),
            (c"", (0, 0)),
            (c"99999999999.1", (0, 1)),
        ] {
            assert_eq!(kernel(release), numbers, "{release:?}");
        }
    }

    #[test]
    fn where_none_holds_there_is_none() {
        let most = NonZeroU32::MIN;
        let (namespace, user) = (Some(Limit::Namespace(most)), Some(Limit::User(most)));
        for (kernel, uid, limit) in [
            ((6, 14), 0, namespace),
            ((7, 0), 1000, namespace),
            ((6, 13), 0, None),
            ((6, 13), 1000, user),
            ((5, 14), 1000, user),
            ((5, 13), 1000, None),
            ((0, 0), 1000, None),
        ] {
            assert_eq!(Limit::on(kernel, most, uid), limit, "{kernel:?} {uid}");
        }
    }
}
