//! The Linux fences: bubblewrap's namespaces, mounts, Landlock, seccomp, the
//! broker of Unix sockets.

pub mod broker;
pub mod bwrap_path;
pub mod seccomp;
