//! Kernel keyrings, keyctl(2).

use std::ffi::CStr;
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

/// `KEYCTL_SEARCH` and `KEY_SPEC_SESSION_KEYRING`, linux/keyctl.h.
const SEARCH: libc::c_long = 10;
/// `KEYCTL_SETPERM` and `KEY_POS_ALL`, linux/keyctl.h and linux/key.h.
const SETPERM: libc::c_long = 5;
const POSSESSOR: libc::c_long = 0x3f00_0000;
const SESSION_KEYRING: libc::c_long = -3;

/// Puts a key of type `user` into the session keyring, add_key(2), which only
/// those see in `/proc/keys` whose session it is.
///
/// # Errors
/// `ENOSYS`, `EPERM` or `EDQUOT` where none can be made.
pub fn add_to_session(name: &CStr, secret: &[u8]) -> io::Result<()> {
    // SAFETY: the strings end with NUL, the kernel reads `secret.len()` bytes of
    // the secret; all outlive the call.
    let key = crate::checked(unsafe {
        libc::syscall(
            libc::SYS_add_key,
            c"user".as_ptr(),
            name.as_ptr(),
            secret.as_ptr(),
            secret.len(),
            SESSION_KEYRING,
        )
    })?;
    // SAFETY: keyctl(KEYCTL_SETPERM) takes numbers only.
    crate::checked(unsafe { libc::syscall(libc::SYS_keyctl, SETPERM, key, POSSESSOR) }).map(drop)
}

/// Looks for a key of type `user` in the session keyring.
///
/// # Errors
/// `ENOKEY` where there is none, `EPERM` where the call is filtered.
pub fn find_in_session(name: &CStr) -> io::Result<()> {
    // SAFETY: the strings end with NUL and outlive the call.
    crate::checked(unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            SEARCH,
            SESSION_KEYRING,
            c"user".as_ptr(),
            name.as_ptr(),
            0 as libc::c_long,
        )
    })
    .map(drop)
}
