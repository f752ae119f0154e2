//! Descriptors inherited or handed over by number.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Takes over an inherited descriptor by its number, and closes it on execve(2)
/// from now on. The first three, standard input, output and error, belong to
/// the standard library and can't be taken.
///
/// The caller says that nothing else in this process owns the number: true for
/// a program that was just started and told so by whoever started it.
///
/// # Errors
/// `EBADF` when it isn't open or is one of the first three.
pub fn take(number: RawFd) -> io::Result<OwnedFd> {
    if number < 3 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: F_SETFD takes a number and touches no memory.
    crate::checked(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) }.into())?;
    // SAFETY: the descriptor is open, as the call above has shown, and by this
    // function's contract nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Closes every descriptor from number 3 on when this process executes a
/// program, close_range(2) (Linux 5.11 for this flag).
///
/// # Errors
/// `ENOSYS`, `EINVAL` on older kernels.
pub fn close_inherited_on_exec() -> io::Result<()> {
    // SAFETY: the call takes numbers and closes nothing now.
    let done =
        unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    crate::checked(done).map(drop)
}

/// In a process that ends by [`crate::process::exit_now`]: closes every
/// descriptor from number 3 on but those given.
///
/// The caller says that the values owning the others are never used again:
/// true where the process goes on with the given ones only.
///
/// # Errors
/// Those of close_range(2).
pub fn close_all_but(kept: &[BorrowedFd<'_>]) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let mut kept: Vec<u32> = kept.iter().map(|fd| fd.as_raw_fd() as u32).collect();
    kept.sort_unstable();
    let mut first = 3u32;
    for number in kept.into_iter().chain([u32::MAX]) {
        if number > first {
            let last = if number == u32::MAX { u32::MAX } else { number - 1 };
            // SAFETY: the descriptors in this range belong to values that the
            // caller never uses again, and the process never runs destructors.
            crate::checked(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) })?;
        }
        first = number.saturating_add(1).max(first);
    }
    Ok(())
}
