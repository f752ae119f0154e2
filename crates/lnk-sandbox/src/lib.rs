//! Builds a sandbox, runs one program in it and takes everything down again.
//!
//! The library never prints, never exits and never reads the environment: what
//! it needs of the caller comes in a [`Caller`], what it has to say goes out as
//! [`Error`] or [`Notice`].

pub mod account;
mod agents;
pub mod caller;
pub mod check;
pub mod consent;
pub mod dotfiles;
pub mod env;
pub mod error;
pub mod faults;
pub mod gitconfig;
pub mod known;
pub mod linux;
pub mod lock;
pub mod mountinfo;
pub mod names;
pub mod network;
pub mod never;
pub mod not_run;
mod notification;
pub mod paths;
pub mod plan;
pub mod policy;
pub mod programs;
pub mod protected;
pub mod ready;
pub mod remembered;
pub mod request;
pub mod run;
pub mod spec_file;
pub mod ssh;
pub mod state;
pub mod stdio;
pub mod system;
pub mod trusted;
mod unasked;

pub use agents::is_agents_sandbox;
pub use caller::Caller;
pub use error::Error;
pub use lnk_spec::{self as spec, nearest, shown};
pub use lnk_wire as wire;
pub use request::{Inner, Renderer, Request};
pub use run::{Notice, Outcome, run};
