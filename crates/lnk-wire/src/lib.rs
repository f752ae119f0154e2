//! The wire: the filtering proxy that is a sandbox's only way out.
//!
//! Its listening sockets are made in the sandbox's network namespace and served
//! from outside it, on one thread. Nothing here starts a process but the system's
//! resolver, prints, or reads the environment.

pub mod address;
pub mod control;
pub mod dial;
pub mod log;
pub mod policy;
pub mod resolve;
mod route;
pub mod upstream;
pub mod rate;
pub mod traffic;
