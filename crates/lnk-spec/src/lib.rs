//! What a sandbox may do, as pure data and pure functions: no input or output,
//! no operating system.

pub mod git;
pub mod protected;
pub mod shown;
