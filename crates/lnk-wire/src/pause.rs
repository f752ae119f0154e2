//! When a wire pauses itself: its refused calls look like no normal work.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Refused calls within [`MINUTE`] that pause a wire.
pub const CALLS: usize = 30;
/// How long a refused call counts, in milliseconds.
pub const MINUTE: i64 = 60_000;
/// Different refused targets within [`TEN_MINUTES`] that pause a wire.
pub const TARGETS: usize = 20;
/// How long a refused target counts, in milliseconds.
pub const TEN_MINUTES: i64 = 600_000;

/// Why a wire pauses itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// [`CALLS`] were refused within [`MINUTE`].
    Calls,
    /// [`TARGETS`] were refused within [`TEN_MINUTES`].
    Targets,
    /// A cloud's metadata service was asked for.
    Metadata,
}

impl fmt::Display for Why {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Calls => write!(to, "{CALLS} calls were refused within a minute"),
            Why::Targets => {
                write!(to, "{TARGETS} different targets were refused within 10 minutes")
            }
            Why::Metadata => to.write_str("a cloud's metadata service was asked for"),
        }
    }
}

/// A call that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// When, in milliseconds since 1970.
    pub at: i64,
    /// Where to: host and port.
    pub target: String,
    /// It was to a cloud's metadata service.
    pub metadata: bool,
}

/// The refused calls that still count: of all runs under one lasting name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    calls: Vec<i64>,
    /// Each once, with the last time.
    targets: Vec<(String, i64)>,
}

impl Refusals {
    /// Counts one more, and says whether it is one too many.
    pub fn count(&mut self, refused: &Refused) -> Option<Why> {
        self.leave_old(refused.at);
        self.calls.push(refused.at);
        self.targets.retain(|(target, _)| *target != refused.target);
        self.targets.push((refused.target.clone(), refused.at));
        if refused.metadata {
            Some(Why::Metadata)
        } else if self.calls.len() >= CALLS {
            Some(Why::Calls)
        } else if self.targets.len() >= TARGETS {
            Some(Why::Targets)
        } else {
            None
        }
    }

    /// Drops what no longer counts.
    pub fn leave_old(&mut self, now: i64) {
        // Where the clock was set back, what it says is to come counts as just now.
        for at in self.calls.iter_mut().chain(self.targets.iter_mut().map(|(_, at)| at)) {
            *at = (*at).min(now);
        }
        self.calls.retain(|at| now - *at <= MINUTE);
        self.targets.retain(|(_, at)| now - *at <= TEN_MINUTES);
    }

    /// Whether none counts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.targets.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refused(ms: i64, target: impl Into<String>) -> Refused {
        Refused { at: 1_800_000_000_000 + ms, target: target.into(), metadata: false }
    }

    /// What the rules say of all calls so far, the last of them now: by their words.
    fn by_words(calls: &[(i64, String)]) -> Option<Why> {
        let now = calls.last()?.0;
        let within = |span: i64| calls.iter().filter(move |(at, _)| now - at <= span);
        let targets: std::collections::BTreeSet<_> =
            within(600_000).map(|(_, target)| target).collect();
        if within(60_000).count() >= 30 {
            Some(Why::Calls)
        } else if targets.len() >= 20 {
            Some(Why::Targets)
        } else {
            None
        }
    }

    #[test]
    fn the_thirtieth_call_within_a_minute_is_too_many() {
        let mut refusals = Refusals::default();
        for n in 0..29 {
            assert_eq!(refusals.count(&refused(n, "a:443")), None, "{n}");
        }
        let mut late = refusals.clone();
        assert_eq!(refusals.count(&refused(60_000, "a:443")), Some(Why::Calls));
        // The first is older than a minute.
        assert_eq!(late.count(&refused(60_001, "a:443")), None);
        assert_eq!(late.count(&refused(60_001, "a:443")), Some(Why::Calls));
    }

    #[test]
    fn the_twentieth_target_within_ten_minutes_is_too_many() {
        let mut refusals = Refusals::default();
        for n in 0..19 {
            assert_eq!(refusals.count(&refused(n * 30_000, format!("{n}:443"))), None, "{n}");
        }
        // One of them again is no other.
        assert_eq!(refusals.count(&refused(570_000, "18:443")), None);
        let mut late = refusals.clone();
        assert_eq!(refusals.count(&refused(600_000, "19:443")), Some(Why::Targets));
        assert_eq!(late.count(&refused(600_001, "19:443")), None);
        assert_eq!(late.count(&refused(600_001, "19:80")), Some(Why::Targets));
    }

    #[test]
    fn any_call_to_a_metadata_service_is_one_too_many() {
        let mut refusals = Refusals::default();
        assert_eq!(refusals.count(&refused(0, "a:80")), None);
        let metadata = Refused { metadata: true, ..refused(1, "169.254.169.254:80") };
        assert_eq!(refusals.count(&metadata), Some(Why::Metadata));
    }

    #[test]
    fn a_clock_that_is_set_back_forgets_nothing() {
        let mut refusals = Refusals::default();
        for _ in 0..29 {
            refusals.count(&refused(3_600_000, "a:443"));
        }
        assert_eq!(refusals.count(&refused(0, "a:443")), Some(Why::Calls));
    }

    proptest! {
        #[test]
        fn it_says_what_the_words_say(
            steps in prop::collection::vec((0i64..40_000, 0u8..40), 1..200),
            fast: bool,
        ) {
            let (mut refusals, mut calls, mut now) = (Refusals::default(), Vec::new(), 0);
            for (step, target) in steps {
                now += if fast { step / 16 } else { step };
                calls.push((now, format!("{target}:443")));
                let said = refusals.count(&refused(now, format!("{target}:443")));
                prop_assert_eq!(said, by_words(&calls));
                if said.is_some() {
                    break;
                }
                prop_assert!(refusals.calls.len() < CALLS && refusals.targets.len() < TARGETS);
            }
        }

        #[test]
        fn below_each_number_nothing_pauses(
            at in prop::collection::vec(0i64..60_000, 29),
            targets in prop::collection::vec(0u8..19, 29),
        ) {
            let (mut refusals, mut at) = (Refusals::default(), at);
            at.sort_unstable();
            for (ms, target) in at.into_iter().zip(targets) {
                prop_assert_eq!(refusals.count(&refused(ms, format!("{target}:80"))), None);
            }
        }

        #[test]
        fn it_is_read_as_it_was_written(
            steps in prop::collection::vec((0i64..9_000, 0u8..19), 0..29)
        ) {
            let (mut refusals, mut now) = (Refusals::default(), 0);
            for (step, target) in steps {
                now += step;
                refusals.count(&refused(now, format!("{target}:80")));
            }
            let written = serde_json::to_string(&refusals).unwrap();
            prop_assert_eq!(serde_json::from_str::<Refusals>(&written).unwrap(), refusals);
        }
    }
}
