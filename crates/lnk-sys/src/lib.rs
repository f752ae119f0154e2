//! The kernel interfaces that need `unsafe` code, behind safe functions.
//!
//! It knows nothing of sandboxes: each module is one interface of the kernel.

pub mod notify;
pub mod remote_memory;
pub mod seccomp;
pub mod socket;
pub mod thread_signal;
