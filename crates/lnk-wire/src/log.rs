//! The log of every call: `wire.log`, one JSON object a line.
//!
//! All wires of a home write to the one file, each line in one append, so none
//! needs a lock or waits for another. The file is renamed once it is full; a line
//! that arrives during that is in the renamed one. A line never holds a request's
//! path, headers or body.

mod read;
#[cfg(test)]
mod tests;
mod write;

use jiff::Timestamp;
use lnk_spec::shown::escaped;
use serde::{Deserialize, Serialize};

pub use read::{Filter, Follow, Record, read_last, records, sandboxes};
pub use write::{Call, Log};

/// The file's name.
pub const FILE: &str = "wire.log";
/// Bytes after which a file is full.
pub const FULL: u64 = 8 * 1024 * 1024;
/// Full files that are kept: `wire.log.1`, the newest, to `wire.log.9`.
pub const KEPT: u32 = 9;
/// Bytes of a line at most, its newline too.
pub const MAX_LINE: usize = 4096;

/// Bytes of a host at most.
const MAX_HOST: usize = 256;
/// Bytes of a sandbox's name, and of its spec's, at most.
const MAX_NAME: usize = 64;
/// Bytes of a spec's path at most.
const MAX_PATH: usize = 512;
/// Bytes of a reason at most.
const MAX_REASON: usize = 1024;

/// One line: what happened to a call at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// When.
    #[serde(with = "time")]
    pub time: Timestamp,
    /// The sandbox whose wire it is.
    #[serde(flatten)]
    pub sandbox: Sandbox,
    /// The same number in each line of one call, and in no other call's of the
    /// sandbox.
    pub call: u64,
    /// What kind of call.
    pub verb: Verb,
    /// Where to: canonical, or what can be shown of an unreadable one. None where
    /// there is nothing to show, and for what has no target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Where to: the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// The sandbox that a wire belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// `run-<pid>`, `guest-<name>`, `<agent>-<harness>`.
    #[serde(rename = "sandbox")]
    pub name: String,
    /// Its spec's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<String>,
    /// Its spec's real path, escaped: what its name doesn't tell apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_path: Option<String>,
}

/// The kinds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// HTTPS: CONNECT to a host's port 443.
    Connect,
    /// Another endpoint.
    Tcp,
    /// A plain HTTP request.
    Http,
    /// A tool's call.
    Mcp,
    /// A hosted model.
    Model,
    /// A local model runtime.
    LocalModel,
    /// A service's call, its secret added.
    Secret,
    /// A port of this machine's loopback.
    Port,
    /// A name looked up.
    Dns,
    /// A page in the browser.
    Open,
    /// A login's answer let in.
    Callback,
    /// A web page's request.
    Browser,
    /// The wire was closed.
    Pause,
    /// What couldn't be read.
    Unknown,
}

impl Verb {
    /// As the log has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Connect => "connect",
            Verb::Tcp => "tcp",
            Verb::Http => "http",
            Verb::Mcp => "mcp",
            Verb::Model => "model",
            Verb::LocalModel => "local-model",
            Verb::Secret => "secret",
            Verb::Port => "port",
            Verb::Dns => "dns",
            Verb::Open => "open",
            Verb::Callback => "callback",
            Verb::Browser => "browser",
            Verb::Pause => "pause",
            Verb::Unknown => "unknown",
        }
    }
}

/// What happened to a call. A call is allowed and later ended, refused, or failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum What {
    /// It was let through.
    Allowed,
    /// It was let through and is over.
    Ended(Moved),
    /// It wasn't let through.
    Refused {
        /// Why, in one line.
        reason: String,
    },
    /// It would have been let through, but nothing answered; or it was, and ended by a
    /// fault of the other side's.
    Failed {
        /// Why, in one line.
        reason: String,
        /// What it carried until then, where it was let through.
        #[serde(flatten)]
        carried: Option<Moved>,
    },
}

/// What a call carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Bytes from the sandbox.
    pub up: u64,
    /// Bytes to the sandbox.
    pub down: u64,
    /// Milliseconds that it took.
    pub ms: u64,
}

impl Line {
    /// Reads a line without its newline; `None` where it isn't a whole one.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Line> {
        if line.len() >= MAX_LINE { None } else { serde_json::from_slice(line).ok() }
    }

    /// As it is appended, with its newline. Whatever its texts hold, they are cut
    /// so that it fits [`MAX_LINE`].
    #[must_use]
    pub fn written(mut self) -> Vec<u8> {
        self.sandbox.name = bounded(self.sandbox.name.as_bytes(), MAX_NAME);
        self.sandbox.spec = self.sandbox.spec.map(|spec| bounded(spec.as_bytes(), MAX_NAME));
        self.sandbox.spec_path = self.sandbox.spec_path.map(|path| bounded_path(&path));
        self.host = self.host.map(|host| bounded(host.as_bytes(), MAX_HOST));
        if let What::Refused { reason } | What::Failed { reason, .. } = &mut self.what {
            *reason = bounded(reason.as_bytes(), MAX_REASON);
        }
        let mut line = serde_json::to_vec(&self).expect("text and numbers are JSON");
        line.push(b'\n');
        line
    }
}

/// A spec's path as a line has it.
fn bounded_path(path: &str) -> String {
    bounded(path.as_bytes(), MAX_PATH)
}

/// Text without anything that drives a terminal, cut to so many bytes. JSON makes
/// it no more than twice as long.
fn bounded(text: &[u8], most: usize) -> String {
    const CUT: &str = "…";
    let mut shown = escaped(&text[..text.len().min(most)]);
    if shown.len() > most || text.len() > most {
        shown.truncate(shown.floor_char_boundary(most - CUT.len()));
        shown.push_str(CUT);
    }
    shown
}

/// Moments as RFC 3339 has them: UTC, with milliseconds.
pub(crate) mod time {
    use jiff::Timestamp;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(time: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{time:.3}"))
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Timestamp, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}
