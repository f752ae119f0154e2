//! A terminal's exclusive mode, ioctl_tty(2), which rustix can set but not ask.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Whether nobody may open the terminal again (`TIOCGEXCL`, Linux 3.8).
///
/// # Errors
/// `ENOTTY` for what is no terminal.
pub fn is_exclusive(terminal: BorrowedFd<'_>) -> io::Result<bool> {
    let mut exclusive: libc::c_int = 0;
    // SAFETY: the request writes one int, which outlives the call.
    let asked = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGEXCL, &raw mut exclusive) };
    crate::checked(asked.into())?;
    Ok(exclusive != 0)
}

/// Lets the terminal be opened again (`TIOCNXCL`).
///
/// # Errors
/// `ENOTTY` for what is no terminal.
pub fn end_exclusive(terminal: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the request takes no argument.
    let done = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCNXCL) };
    crate::checked(done.into()).map(drop)
}

/// Puts a byte into the terminal's input, as if it had been typed (`TIOCSTI`).
///
/// # Errors
/// `EPERM` where it is filtered, `EIO` where `dev.tty.legacy_tiocsti` is off.
pub fn type_into(terminal: BorrowedFd<'_>, byte: u8) -> io::Result<()> {
    // SAFETY: the request reads one byte, which outlives the call.
    let done = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSTI, &raw const byte) };
    crate::checked(done.into()).map(drop)
}
