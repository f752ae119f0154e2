//! Builds a sandbox, runs one program in it and takes everything down again.
//!
//! The library never prints, never exits and never reads the environment: what
//! it needs of the caller comes in a [`Caller`], what it has to say goes out as
//! [`Error`] or [`Notice`].

pub mod caller;
pub mod dotfiles;
pub mod error;
pub mod linux;
pub mod ready;
pub mod run;

pub use caller::Caller;
pub use error::Error;
pub use lnk_spec::shown;
pub use run::{Notice, Outcome, Request, run};
