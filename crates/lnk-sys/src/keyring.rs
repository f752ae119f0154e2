//! Kernel keyrings, keyctl(2).

use std::io;

/// `KEYCTL_JOIN_SESSION_KEYRING`, linux/keyctl.h.
const JOIN_SESSION_KEYRING: libc::c_long = 1;

/// Leaves the inherited session keyring for a new, anonymous one, so that keys
/// of the caller's session can't be read. A kernel without keyrings
/// (`ENOSYS`) has nothing to leave.
///
/// # Errors
/// `EDQUOT` or `ENOMEM` when no keyring can be made.
pub fn join_anonymous_session() -> io::Result<()> {
    // SAFETY: keyctl(KEYCTL_JOIN_SESSION_KEYRING, NULL) takes no memory of ours.
    let joined = crate::checked(unsafe {
        libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>())
    });
    match joined {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        joined => joined.map(drop),
    }
}
