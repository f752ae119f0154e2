//! Which targets a wire refused, for a few lines at the end of a run.

use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Targets that are kept at most, the first ones: each is a line.
const MOST: usize = 5;

/// What was refused of one target.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Refused {
    /// `host:port`, or a host.
    target: String,
    /// Why the last time, in one line.
    reason: String,
    times: u64,
}

/// The calls that a wire refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedCalls {
    targets: Vec<Refused>,
    /// Calls to further targets.
    others: u64,
}

/// The same, while there are more.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<RefusedCalls>);

impl Refusals {
    pub fn add(&self, target: &str, reason: &str) {
        // Whoever panicked with it left whole targets.
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = calls.targets.iter_mut().find(|known| known.target == target) {
            known.times += 1;
            if known.reason != reason {
                reason.clone_into(&mut known.reason);
            }
        } else if calls.targets.len() < MOST {
            let (target, reason) = (target.to_owned(), reason.to_owned());
            calls.targets.push(Refused { target, reason, times: 1 });
        } else {
            calls.others += 1;
        }
    }

    pub fn calls(&self) -> RefusedCalls {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl RefusedCalls {
    /// A line for each target, and one for further ones.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let others = (self.others > 0).then(|| {
            let calls = if self.others == 1 { "call" } else { "calls" };
            format!("refused {} more {calls}: see 'lnk sandbox log --refused'", self.others)
        });
        self.targets.iter().map(Refused::to_string).chain(others)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refused { target, reason, times } = self;
        write!(to, "refused {target}")?;
        if *times > 1 {
            write!(to, " ({times} times)")?;
        }
        // A reason may begin with what it is about.
        let host = target.rsplit_once(':').map_or(&**target, |(host, _)| host);
        let host = host.trim_matches(['[', ']']);
        let rest = reason.strip_prefix(&**target).or_else(|| reason.strip_prefix(host));
        match rest.filter(|rest| rest.starts_with(' ')) {
            Some(rest) => write!(to, ": it{rest}"),
            None => write!(to, ": {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_is_a_line_and_further_ones_are_counted() {
        let refusals = Refusals::default();
        assert_eq!(refusals.calls().lines().count(), 0);
        let add = |target: &str, reason: &str| refusals.add(target, reason);
        for _ in 0..5 {
            add("a.b:443", "a.b:443 isn't open: add --internet-host a.b");
        }
        add("10.0.0.1:80", "10.0.0.1 is an address of your network: add --lan-host 10.0.0.1");
        add("[fd00::1]:80", "fd00::1 is an address of your network");
        add("a.bc:443", "the TLS hello names no server");
        add("a.bc:443", "the TLS hello names another server than CONNECT");
        add("a:1", "a.b isn't it");
        for port in 0..3 {
            add(&format!("x:{port}"), "closed");
        }
        assert_eq!(
            refusals.calls().lines().collect::<Vec<_>>(),
            [
                "refused a.b:443 (5 times): it isn't open: add --internet-host a.b",
                "refused 10.0.0.1:80: it is an address of your network: add --lan-host 10.0.0.1",
                "refused [fd00::1]:80: it is an address of your network",
                "refused a.bc:443 (2 times): the TLS hello names another server than CONNECT",
                "refused a:1: a.b isn't it",
                "refused 3 more calls: see 'lnk sandbox log --refused'",
            ]
        );
    }
}
