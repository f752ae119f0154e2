//! The Linux fences: bubblewrap's namespaces, mounts, Landlock, seccomp, the
//! broker of Unix sockets.

pub mod begun;
pub mod broker;
pub mod bwrap;
pub mod bwrap_path;
pub mod execs;
pub mod failure;
pub mod finish;
pub mod guard;
pub mod inner;
pub mod joiner;
pub mod judged;
pub mod landlock;
pub mod launch;
pub mod listeners;
pub mod message;
pub mod processes;
pub mod seccomp;
pub mod tree;

/// The first argument that makes `lnk` the stage inside a sandbox.
pub const INNER: &str = "__inner";
