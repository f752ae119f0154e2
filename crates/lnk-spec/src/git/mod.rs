//! Readers of the files by which git decides what it runs.
//!
//! Git itself is never run in a folder that a sandboxed program could write:
//! its configuration may name programs. These readers take bytes, follow
//! nothing, allocate no more than a small multiple of their input, and refuse
//! what they don't understand.

pub mod config;
pub mod gitfile;
pub mod index;
