//! Which Landlock this kernel has, landlock_create_ruleset(2).

use std::io;

/// `LANDLOCK_CREATE_RULESET_VERSION`, linux/landlock.h.
const VERSION: libc::c_uint = 1;

/// The kernel's Landlock ABI: 1 on Linux 5.13, 6 (scopes) on 6.12; `None` where
/// Landlock isn't built (`ENOSYS`) or is off since boot (`EOPNOTSUPP`).
///
/// # Errors
/// Anything else: Landlock is there and can't be asked.
pub fn version() -> io::Result<Option<u32>> {
    match ask() {
        Ok(version) => Ok(u32::try_from(version).ok()),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOSYS | libc::EOPNOTSUPP) => Ok(None),
            _ => Err(error),
        },
    }
}

/// Whether the kernel is built with Landlock, and it is off since boot for want
/// of a word in `lsm=`.
#[must_use]
pub fn is_off_since_boot() -> bool {
    ask().is_err_and(|error| error.raw_os_error() == Some(libc::EOPNOTSUPP))
}

fn ask() -> io::Result<libc::c_long> {
    // SAFETY: with this flag the call takes a null attribute of size 0 and only
    // returns a number.
    crate::checked(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, VERSION)
    })
}
