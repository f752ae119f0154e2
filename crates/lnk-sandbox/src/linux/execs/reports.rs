//! What was found, on its way from the broker's threads to the supervisor.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use super::Executed;
use crate::paths::Identity;

/// Most files told of: what runs inside must not fill this process's memory.
const MOST: usize = 4096;

#[derive(Debug)]
pub(super) struct Reports {
    /// Readable while there is something in the queue.
    ready: OwnedFd,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    told: HashSet<Identity>,
    queue: VecDeque<Executed>,
    left_out: u64,
}

impl Reports {
    pub(super) fn new() -> io::Result<Self> {
        let ready = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { ready, state: Mutex::default() })
    }

    pub(super) fn add(&self, executed: Executed) {
        let mut state = self.lock();
        if state.told.contains(&executed.identity) {
            return;
        }
        if state.told.len() == MOST {
            state.left_out = state.left_out.saturating_add(1);
            return;
        }
        state.told.insert(executed.identity);
        state.queue.push_back(executed);
        // It counts to 2^64 at least: it takes this.
        let _counted = rustix::io::write(&self.ready, &1_u64.to_ne_bytes());
    }

    pub(super) fn next(&self) -> Option<Executed> {
        let mut state = self.lock();
        let next = state.queue.pop_front();
        if state.queue.is_empty() {
            // Nothing to read when it was empty before.
            let _reset = rustix::io::read(&self.ready, &mut [0; 8]);
        }
        next
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    pub(super) fn left_out(&self) -> u64 {
        self.lock().left_out
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change of the state is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::super::How;
    use super::*;

    fn executed(inode: u64) -> Executed {
        let identity = Identity { device: 1, inode };
        Executed { asked: b"/a".to_vec(), real: "/a".into(), identity, how: How::Run }
    }

    fn is_ready(reports: &Reports) -> bool {
        let mut fd = [PollFd::from_borrowed_fd(reports.fd(), PollFlags::IN)];
        poll(&mut fd, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn each_file_is_told_of_once_and_polled_for() {
        let reports = Reports::new().unwrap();
        assert!(!is_ready(&reports));
        for inode in [1, 2, 1] {
            reports.add(executed(inode));
        }
        for inode in [1, 2] {
            assert!(is_ready(&reports));
            assert_eq!(reports.next(), Some(executed(inode)));
        }
        assert!(!is_ready(&reports));
        assert_eq!(reports.next(), None);
        reports.add(executed(2));
        assert!(!is_ready(&reports));
        reports.add(executed(3));
        assert!(is_ready(&reports));
    }

    #[test]
    fn no_more_than_the_most_are_kept() {
        let reports = Reports::new().unwrap();
        for inode in 0..MOST as u64 + 10 {
            reports.add(executed(inode));
        }
        assert_eq!(reports.left_out(), 10);
        assert_eq!(std::iter::from_fn(|| reports.next()).count(), MOST);
    }
}
