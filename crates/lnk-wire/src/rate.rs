//! The most calls within a minute.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use lnk_spec::number::Rate as PerMinute;

const MINUTE: Duration = Duration::from_secs(60);

/// Lets so many calls through within any 60 seconds.
#[derive(Debug)]
pub struct Rate {
    most: usize,
    /// When the calls of the last minute were let through, the oldest first.
    taken: VecDeque<Instant>,
}

/// The whole seconds, 1 to 60, after which there is room again: what `Retry-After`
/// says (RFC 9110, 10.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryAfter(pub u64);

impl Rate {
    /// With room for all of them.
    #[must_use]
    pub fn new(per_minute: PerMinute) -> Rate {
        let most = usize::try_from(per_minute.get()).unwrap_or(usize::MAX);
        Rate { most, taken: VecDeque::new() }
    }

    /// Lets a call through, or says when to come back. Moments never go backwards,
    /// as those of [`Instant`] don't.
    ///
    /// # Errors
    /// The minute has no room; the call isn't counted.
    pub fn take(&mut self, now: Instant) -> Result<(), RetryAfter> {
        while self.taken.front().is_some_and(|oldest| now.duration_since(*oldest) >= MINUTE) {
            self.taken.pop_front();
        }
        match self.taken.front() {
            Some(oldest) if self.taken.len() >= self.most => {
                let left = MINUTE.saturating_sub(now.duration_since(*oldest));
                Err(RetryAfter(left.as_secs() + u64::from(left.subsec_nanos() > 0)))
            }
            _ => {
                self.taken.push_back(now);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rate(most: u64) -> Rate {
        Rate::new(most.to_string().parse().expect("a rate"))
    }

    #[test]
    fn a_minute_has_room_for_so_many() {
        let start = Instant::now();
        let mut rate = rate(2);
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(rate.take(at(0)), Ok(()));
        assert_eq!(rate.take(at(10_500)), Ok(()));
        assert_eq!(rate.take(at(10_500)), Err(RetryAfter(50)));
        assert_eq!(rate.take(at(59_999)), Err(RetryAfter(1)));
        assert_eq!(rate.take(at(60_000)), Ok(()));
        assert_eq!(rate.take(at(60_000)), Err(RetryAfter(11)));
    }

    proptest! {
        #[test]
        fn no_minute_has_more_and_the_answer_is_the_first_second_with_room(
            most in 1..20u64,
            gaps in prop::collection::vec(0..20_000u64, 1..200),
        ) {
            let mut now = Instant::now();
            let mut rate = rate(most);
            let mut let_through: Vec<Instant> = Vec::new();
            for gap in gaps {
                now += Duration::from_millis(gap);
                let within = |moment: Instant| {
                    let minute = |then: &&Instant| moment.duration_since(**then) < MINUTE;
                    let_through.iter().filter(minute).count() as u64
                };
                match rate.take(now) {
                    Ok(()) => {
                        prop_assert!(within(now) < most);
                        let_through.push(now);
                    }
                    Err(RetryAfter(seconds)) => {
                        prop_assert!((1..=60).contains(&seconds));
                        prop_assert!(within(now + Duration::from_secs(seconds)) < most);
                        prop_assert!(within(now + Duration::from_secs(seconds - 1)) >= most);
                    }
                }
            }
        }
    }
}
