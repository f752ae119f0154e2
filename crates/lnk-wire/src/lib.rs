//! The wire: the filtering proxy that is a sandbox's only way out.
//!
//! Its listening sockets are made in the sandbox's network namespace and served
//! from outside it, on one thread; another one closes it. Nothing here starts a
//! process but the system's resolver, prints, or reads the environment.

pub mod body;
mod calls;
mod connect;
pub mod connections;
pub mod control;
pub mod dial;
pub mod dns;
mod endpoints;
pub mod gate;
pub mod head;
pub mod hello;
mod http;
pub mod log;
pub mod pause;
pub mod paused;
pub mod policy;
mod port;
pub mod rate;
pub mod refused;
mod relay;
pub mod resolve;
mod room;
mod route;
#[cfg(test)]
mod tests;
pub mod traffic;
pub mod upstream;
pub mod wire;

pub use lnk_spec::address;
