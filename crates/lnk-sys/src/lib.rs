//! The kernel interfaces that need `unsafe` code, behind safe functions.
//!
//! It knows nothing of sandboxes: each module is one interface of the kernel.

pub mod notify;
pub mod seccomp;
