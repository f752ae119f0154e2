//! Link Run: an MCP server over stdio whose every command runs in a sandbox of its
//! own.

pub mod call;
pub mod limits;
pub mod place;
