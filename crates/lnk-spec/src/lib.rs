//! What a sandbox may do, as pure data and pure functions: no input, no output,
//! no operating system.

pub mod git;
pub mod protected;
