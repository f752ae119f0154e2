//! Calls that a sandbox must refuse, made to see that it does.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Asks for an io_uring(7) of one entry.
///
/// # Errors
/// Those of io_uring_setup(2): `ENOSYS` where it is filtered, `EPERM` where
/// `kernel.io_uring_disabled` forbids it.
pub fn io_uring() -> io::Result<OwnedFd> {
    // `struct io_uring_params`, linux/io_uring.h: 120 bytes.
    let mut parameters = [0u64; 15];
    // SAFETY: the kernel reads and writes at most the structure, which is as
    // large as it expects and outlives the call.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1u32, parameters.as_mut_ptr()) };
    let ring = crate::checked(ring)?;
    // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(ring as i32) })
}

/// Moves this process into new namespaces, unshare(2), by their `CLONE_NEW*`
/// flags. Only for a process of one thread, which shares its descriptors with
/// nobody.
///
/// # Errors
/// Those of unshare(2), and `EINVAL` for a flag that isn't a namespace's.
pub fn new_namespaces(flags: libc::c_int) -> io::Result<()> {
    const NAMESPACES: libc::c_int = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    if flags & !NAMESPACES != 0 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: none of these flags touches memory or descriptors.
    crate::checked(unsafe { libc::unshare(flags) }.into()).map(drop)
}

/// Whether a filter answers unshare(2) before the kernel looks at its flags,
/// which are none that exist.
#[must_use]
pub fn unshare_is_filtered() -> bool {
    // SAFETY: a flag that the kernel doesn't know makes the call fail.
    let refused = crate::checked(unsafe { libc::unshare(1) }.into());
    refused.is_err_and(|error| error.raw_os_error() == Some(libc::EPERM))
}

/// Begins to trace a process, ptrace(2) `PTRACE_SEIZE`; ends with this one.
///
/// # Errors
/// `ESRCH` where there is no such process, `EPERM` where it can't be traced.
pub fn trace(pid: i32) -> io::Result<()> {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: this request takes numbers only.
    crate::checked(unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, none, none) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_namespace_is_refused() {
        let refused = new_namespaces(libc::CLONE_FILES).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn here_nothing_is_filtered() {
        assert!(!unshare_is_filtered());
    }

    #[test]
    fn a_process_that_isnt_there_cant_be_traced() {
        assert_eq!(trace(i32::MAX).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
