//! The most calls within a minute: of one wire, or of all that share a lasting name.

use std::collections::VecDeque;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use lnk_spec::number::Rate as PerMinute;
use rustix::fs::OFlags;
use rustix::time::{ClockId, clock_gettime};
use sha2::{Digest as _, Sha256};

use crate::paused::{Lasting, between_changes};

const MINUTE: Duration = Duration::from_secs(60);
/// The folder of what is shared, in the sandbox's settings.
const FOLDER: &str = "rates";
/// How long another wire may hold the file, which takes it microseconds.
const PATIENCE: Duration = Duration::from_millis(50);
/// How often it's tried meanwhile.
const TRY: Duration = Duration::from_millis(1);
/// Bytes of a number in the file.
const NUMBER: u64 = 8;

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

/// The same for all wires of a lasting name, whichever let a call through: on disk.
///
/// The file has, in numbers of eight bytes, how many calls were let through, and behind
/// that a ring of the moments of the last of them, as many as a minute has room for: the
/// one that would be overwritten next has to be a minute old.
#[derive(Debug)]
pub struct Shared {
    most: u64,
    file: File,
}

impl Shared {
    /// That of a name, in `settings`, the folder `~/.config/lnk/sandbox`.
    ///
    /// # Errors
    /// The folder or the file can't be made.
    pub fn open(settings: &Path, whose: &Lasting, per_minute: PerMinute) -> io::Result<Shared> {
        let folder = settings.join(FOLDER);
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let whose = serde_json::to_vec(whose).expect("text is JSON");
        let hash = Sha256::new().chain_update(whose).finalize();
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let most = per_minute.get();
        let flags = OFlags::NOFOLLOW.bits().cast_signed();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(flags)
            .open(folder.join(format!("{hash}-{most}")))?;
        Ok(Shared { most: most.into(), file })
    }

    /// As [`Rate::take`], now.
    ///
    /// # Errors
    /// It can't be counted: the file can't be read or written, or another process keeps
    /// it (`WouldBlock`). The call must not be let through then.
    pub fn take(&self) -> io::Result<Result<(), RetryAfter>> {
        self.take_at(since_boot())
    }

    fn take_at(&self, now: Duration) -> io::Result<Result<(), RetryAfter>> {
        // Whoever is stopped with it would keep all others from it.
        between_changes(|| {
            self.lock()?;
            let taken = self.take_locked(now);
            self.file.unlock()?;
            taken
        })
    }

    fn take_locked(&self, now: Duration) -> io::Result<Result<(), RetryAfter>> {
        let count = self.number(0)?;
        let place = NUMBER + count % self.most * NUMBER;
        // 0 where there was none yet.
        let oldest = Duration::from_millis(self.number(place)?);
        // One that is to come was before the machine was started.
        if !oldest.is_zero() && oldest <= now && now - oldest < MINUTE {
            let left = MINUTE - (now - oldest);
            return Ok(Err(RetryAfter(left.as_secs() + u64::from(left.subsec_nanos() > 0))));
        }
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX).max(1);
        // The moment first: one that is written in vain lets no call more through.
        self.file.write_all_at(&now.to_le_bytes(), place)?;
        self.file.write_all_at(&(count.wrapping_add(1)).to_le_bytes(), 0)?;
        Ok(Ok(()))
    }

    fn number(&self, at: u64) -> io::Result<u64> {
        let mut bytes = [0; NUMBER as usize];
        match self.file.read_exact_at(&mut bytes, at) {
            // It ends before.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            read => read.map(|()| u64::from_le_bytes(bytes)),
        }
    }

    fn lock(&self) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.file.try_lock() {
                Ok(()) => return Ok(()),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(TRY),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The same for every process, and the machine's sleep counts (clock_gettime(2)).
fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shared(settings: &Path, name: &str, most: u64) -> Shared {
        let most = most.to_string().parse().expect("a rate");
        Shared::open(settings, &Lasting::Name(name.into()), most).unwrap()
    }

    #[test]
    fn all_of_a_name_share_a_minute_also_those_that_come_later() {
        let settings = tempfile::tempdir().unwrap();
        let (one, other) = (shared(settings.path(), "a", 2), shared(settings.path(), "a", 2));
        let at = |millis: u64| Duration::from_millis(100_000 + millis);
        assert_eq!(one.take_at(at(0)).unwrap(), Ok(()));
        assert_eq!(other.take_at(at(10_500)).unwrap(), Ok(()));
        drop(other);
        let later = shared(settings.path(), "a", 2);
        assert_eq!(later.take_at(at(10_500)).unwrap(), Err(RetryAfter(50)));
        assert_eq!(one.take_at(at(59_999)).unwrap(), Err(RetryAfter(1)));
        assert_eq!(shared(settings.path(), "b", 2).take_at(at(59_999)).unwrap(), Ok(()));
        assert_eq!(later.take_at(at(60_000)).unwrap(), Ok(()));
        assert_eq!(one.take_at(at(60_000)).unwrap(), Err(RetryAfter(11)));
        // After a start of the machine.
        assert_eq!(one.take_at(Duration::from_millis(5)).unwrap(), Ok(()));
        assert_eq!(one.take().unwrap(), Ok(()));
    }

    #[test]
    fn what_cant_be_counted_isnt_let_through() {
        let settings = tempfile::tempdir().unwrap();
        let (one, other) = (shared(settings.path(), "a", 2), shared(settings.path(), "a", 2));
        other.file.lock().unwrap();
        assert_eq!(one.take().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        other.file.unlock().unwrap();
        assert_eq!(one.take().unwrap(), Ok(()));
    }

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
            let settings = tempfile::tempdir().unwrap();
            let (one, other) =
                (shared(settings.path(), "a", most), shared(settings.path(), "a", most));
            let mut kept = Duration::from_secs(3_600);
            let mut let_through: Vec<Instant> = Vec::new();
            for gap in gaps {
                now += Duration::from_millis(gap);
                kept += Duration::from_millis(gap);
                let within = |moment: Instant| {
                    let minute = |then: &&Instant| moment.duration_since(**then) < MINUTE;
                    let_through.iter().filter(minute).count() as u64
                };
                let taken = rate.take(now);
                let shared = if gap % 2 == 0 { &one } else { &other };
                prop_assert_eq!(shared.take_at(kept).unwrap(), taken);
                match taken {
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
