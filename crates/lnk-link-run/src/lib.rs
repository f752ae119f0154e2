//! Link Run: an MCP server over stdio whose every command runs in a sandbox of its
//! own.

pub mod background;
pub mod call;
pub mod command;
pub mod events;
pub mod limits;
pub mod mcp;
pub mod mend;
pub mod opens;
pub mod output;
pub mod place;
pub mod programs;
pub mod quoted;
pub mod supervise;
pub mod wake;
