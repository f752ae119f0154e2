//! What a sandbox may do, as pure data and pure functions: no input or output,
//! no operating system.
//!
//! [`section`] is the table of everything a spec can say. [`spec`] reads a spec
//! into typed values, each of which is parsed once and never checked again;
//! [`print`](mod@print) writes one; [`diff`] tells what a newer one opens.

pub mod address;
pub mod diff;
pub mod endpoint;
pub mod git;
pub mod host;
pub mod internet;
pub mod invalid;
pub mod kinds;
pub mod lan;
pub mod name;
pub mod nearest;
pub mod number;
pub mod path;
pub mod print;
pub mod problem;
pub mod program;
pub mod protected;
pub mod section;
pub mod shown;
pub mod spec;
mod text;
pub mod upstream;
mod value;

pub use spec::{Os, Spec};
