//! The kernel interfaces that need unsafe code, behind safe functions.
//!
//! Everything else in the workspace forbids `unsafe`; what rustix offers safely
//! is used from there and not repeated here.

pub mod attempt;
pub mod fd;
pub mod folder_changes;
pub mod keyring;
pub mod landlock_abi;
pub mod mount;
pub mod notify;
pub mod process;
pub mod remote_memory;
pub mod seccomp;
pub mod signal;
pub mod socket;
pub mod terminal;
pub mod thread_signal;

use std::io;

/// Turns the `-1 and errno` of a system call into a `Result`.
fn checked(returned: libc::c_long) -> io::Result<libc::c_long> {
    if returned == -1 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}
