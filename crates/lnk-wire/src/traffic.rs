//! What a wire has carried.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::refused::Told;

/// The counters of one wire, for all that it has carried since it started: those
/// who share them each add their part.
#[derive(Debug)]
pub struct Traffic {
    since: Timestamp,
    up: AtomicU64,
    down: AtomicU64,
    allowed: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    unlogged: AtomicU64,
    pub(crate) refusals: Told,
    /// Of endpoints.
    pub(crate) failures: Told,
}

impl Traffic {
    /// Nothing yet, from now on.
    #[must_use]
    pub fn start() -> Traffic {
        Traffic {
            since: Timestamp::now(),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            allowed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            unlogged: AtomicU64::new(0),
            refusals: Told::default(),
            failures: Told::default(),
        }
    }

    /// Bytes that came from the sandbox and were passed on.
    pub fn sent(&self, bytes: u64) {
        self.up.fetch_add(bytes, Relaxed);
    }

    /// Bytes that were passed on to the sandbox.
    pub fn received(&self, bytes: u64) {
        self.down.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn count_allowed(&self) {
        self.allowed.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_failed(&self) {
        self.failed.fetch_add(1, Relaxed);
    }

    /// Lines of the log couldn't be written.
    pub(crate) fn unlogged(&self, lines: u64) {
        self.unlogged.fetch_add(lines, Relaxed);
    }

    /// The counters as they stand.
    #[must_use]
    pub fn carried(&self) -> Carried {
        Carried {
            since: self.since,
            up: self.up.load(Relaxed),
            down: self.down.load(Relaxed),
            allowed: self.allowed.load(Relaxed),
            refused: self.refused.load(Relaxed),
            failed: self.failed.load(Relaxed),
            unlogged: self.unlogged.load(Relaxed),
        }
    }
}

/// What a wire had carried at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// When the wire started.
    #[serde(with = "crate::log::time")]
    pub since: Timestamp,
    /// Bytes from the sandbox.
    pub up: u64,
    /// Bytes to the sandbox.
    pub down: u64,
    /// Calls that were let through and answered.
    pub allowed: u64,
    /// Calls that were refused.
    pub refused: u64,
    /// Calls that would have been let through, had somebody answered.
    pub failed: u64,
    /// Lines of the log that couldn't be written.
    #[serde(default)]
    pub unlogged: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_adds_up() {
        let traffic = Traffic::start();
        traffic.sent(3);
        traffic.sent(4);
        traffic.received(u64::from(u32::MAX) + 1);
        traffic.count_refused();
        let carried = traffic.carried();
        assert_eq!((carried.up, carried.down), (7, 1 << 32));
        assert_eq!((carried.allowed, carried.refused, carried.failed), (0, 1, 0));
    }
}
