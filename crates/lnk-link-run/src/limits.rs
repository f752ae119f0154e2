//! `[tool.run]` of an agent's spec, `Config/agent.toml`: how long and how much.

use std::time::Duration;

/// The limits of a place's commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long a `command` may take.
    pub timeout: Duration,
    /// How much is kept of each of its output and its errors, in bytes.
    pub output: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { timeout: Duration::from_secs(120), output: 16 << 10 }
    }
}
