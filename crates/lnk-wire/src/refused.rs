//! Which targets a wire refused, or didn't reach, for a few lines at the end of a run.

use std::sync::{Mutex, PoisonError};

/// Targets that are kept at most, the first ones: each is a line.
const MOST: usize = 5;

/// What came of one target's calls.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OfOne {
    /// `host:port`, or a host.
    target: String,
    /// Why the last time, in one line.
    reason: String,
    times: u64,
}

/// The calls that a wire refused, or those that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToldCalls {
    targets: Vec<OfOne>,
    /// Calls to further targets.
    others: u64,
}

/// The same, while there are more.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<ToldCalls>);

impl Told {
    /// One more, which counts so often: not at all where it is a part of another.
    pub fn add(&self, target: &str, reason: &str, times: u64) {
        // Whoever panicked with it left whole targets.
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = calls.targets.iter_mut().find(|known| known.target == target) {
            known.times += times;
            if known.reason != reason {
                reason.clone_into(&mut known.reason);
            }
        } else if calls.targets.len() < MOST {
            let (target, reason) = (target.to_owned(), reason.to_owned());
            calls.targets.push(OfOne { target, reason, times });
        } else {
            calls.others += times;
        }
    }

    pub fn calls(&self) -> ToldCalls {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ToldCalls {
    /// A line for each target that was refused, and one for further ones.
    pub fn refused_lines(&self) -> impl Iterator<Item = String> {
        self.lines("refused", "see 'lnk sandbox log --refused'")
    }

    /// A line for each target to which calls failed, and one for further ones.
    pub fn failed_lines(&self) -> impl Iterator<Item = String> {
        self.lines("failed", "see 'lnk sandbox log'")
    }

    fn lines(&self, what: &str, see: &str) -> impl Iterator<Item = String> {
        let others = (self.others > 0).then(|| {
            let calls = if self.others == 1 { "call" } else { "calls" };
            format!("{what} {} more {calls}: {see}", self.others)
        });
        self.targets.iter().map(move |of_one| of_one.line(what)).chain(others)
    }
}

impl OfOne {
    fn line(&self, what: &str) -> String {
        let OfOne { target, reason, times } = self;
        let times = if *times > 1 { format!(" ({times} times)") } else { String::new() };
        // A reason may begin with what it is about.
        let host = target.rsplit_once(':').map_or(&**target, |(host, _)| host);
        let host = host.trim_matches(['[', ']']);
        let rest = reason.strip_prefix(&**target).or_else(|| reason.strip_prefix(host));
        match rest.filter(|rest| rest.starts_with(' ')) {
            Some(rest) => format!("{what} {target}{times}: it{rest}"),
            None => format!("{what} {target}{times}: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_is_a_line_and_further_ones_are_counted() {
        let refusals = Told::default();
        assert_eq!(refusals.calls().refused_lines().count(), 0);
        let add = |target: &str, reason: &str| refusals.add(target, reason, 1);
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
            refusals.calls().refused_lines().collect::<Vec<_>>(),
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
    #[test]
    fn a_part_of_another_call_is_named_and_not_counted() {
        let told = Told::default();
        for (target, times) in [("a", 0), ("a", 1), ("b", 1), ("b", 0), ("b", 1), ("c", 0)] {
            told.add(target, "why", times);
        }
        let lines: Vec<_> = told.calls().failed_lines().collect();
        assert_eq!(lines, ["failed a: why", "failed b (2 times): why", "failed c: why"]);
    }
}
