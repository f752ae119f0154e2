//! Changes of names in folders, by `F_NOTIFY` of fcntl(2).
//!
//! inotify(7) would tell which name it was, but who closes it waits for the
//! kernel to have forgotten its watches, 5 ms and more: longer than a sandbox
//! takes to start and end. These watches go at once, and take no place among
//! the user's inotify instances.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// linux/fcntl.h.
const DN_CREATE: libc::c_int = 0x4;
const DN_DELETE: libc::c_int = 0x8;
const DN_RENAME: libc::c_int = 0x10;
const DN_MULTISHOT: libc::c_int = libc::c_int::MIN;

/// A descriptor that becomes readable, for signalfd(2)'s records, when something
/// changed in any of the folders that this process [`watch`]es; not blocking.
/// Changes that come together are one record.
///
/// # Errors
/// `EMFILE`, `ENFILE`, `ENOMEM` of signalfd(2).
pub fn report() -> io::Result<OwnedFd> {
    let set = crate::signal::set_of(&[libc::SIGIO]);
    // SAFETY: the set is initialised and only read.
    let blocked =
        unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    crate::checked(blocked.into())?;
    // SAFETY: the set is initialised and only read.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    let fd = crate::checked(fd.into())?;
    // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Reports names that are made, moved or removed in `folder`, for as long as it
/// is open. It must be open to read, not `O_PATH`.
///
/// # Errors
/// `EINVAL` on a kernel without it, or where `/proc/sys/fs/dir-notify-enable`
/// is 0.
pub fn watch(folder: BorrowedFd<'_>) -> io::Result<()> {
    let what = DN_CREATE | DN_DELETE | DN_RENAME | DN_MULTISHOT;
    // SAFETY: the call takes numbers.
    crate::checked(unsafe { libc::fcntl(folder.as_raw_fd(), libc::F_NOTIFY, what) }.into())
        .map(drop)
}
