//! The threads on which connects are made.
//!
//! As many as there were connects at one time, at most 64; they are kept, since
//! waking one is far cheaper than starting one.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lnk_sys::notify::{self, Notification};
use lnk_sys::thread_signal;
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::connection::Judge;
use super::target;

/// Most connects under way at one time.
const MOST: usize = 64;
/// A worker's stack, in bytes: it has a few small buffers.
const STACK: usize = 256 << 10;
/// How long the end waits for workers. One that hangs in a file system that
/// takes no signal is left to the end of the process.
const END: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Workers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    judge: Arc<Judge>,
    state: Mutex<State>,
    /// A connect waits for a worker, or all are to end.
    work: Condvar,
    /// A worker has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Notification>,
    running: Vec<Running>,
    workers: usize,
    closing: bool,
}

/// A connect under way.
#[derive(Debug)]
struct Running {
    id: u64,
    caller: u32,
    worker: Pid,
    /// It was under way at the last look already.
    seen: bool,
    broken_off: bool,
}

impl Workers {
    pub(super) fn new(judge: Arc<Judge>) -> Self {
        let shared = Shared {
            judge,
            state: Mutex::default(),
            work: Condvar::new(),
            ended: Condvar::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    pub(super) fn judge(&self) -> &Judge {
        &self.shared.judge
    }

    /// Gives a connect to a worker.
    ///
    /// # Errors
    /// `EAGAIN` when all are busy.
    pub(super) fn take(&self, notification: Notification) -> Result<(), Errno> {
        let mut state = self.shared.lock();
        let idle = state.workers - state.running.len();
        if state.waiting.len() == idle {
            if state.workers == MOST {
                return Err(Errno::AGAIN);
            }
            self.start().map_err(|_| Errno::AGAIN)?;
            state.workers += 1;
        }
        state.waiting.push_back(notification);
        drop(state);
        self.shared.work.notify_one();
        Ok(())
    }

    pub(super) fn is_busy(&self) -> bool {
        let state = self.shared.lock();
        !state.waiting.is_empty() || !state.running.is_empty()
    }

    /// Interrupts the workers whose caller is gone or has a signal to handle.
    pub(super) fn break_off(&self) {
        let listener = self.judge().listener.as_fd();
        for running in &mut self.shared.lock().running {
            // What ends by itself is left alone; a signal may be too early.
            if !std::mem::replace(&mut running.seen, true) {
                continue;
            }
            running.broken_off = running.broken_off
                || !notify::is_valid(listener, running.id)
                || target::has_signal_to_handle(running.caller);
            if running.broken_off {
                // Its number is its own as long as it's in the list.
                let _ended = thread_signal::interrupt(running.worker);
            }
        }
    }

    fn start(&self) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let builder = thread::Builder::new().name("connect".into()).stack_size(STACK);
        thread_signal::spawn_interruptible(builder, move || shared.work())?;
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closing = true;
        self.shared.work.notify_all();
        let deadline = Instant::now() + END;
        while state.workers > 0 && Instant::now() < deadline {
            for running in &mut state.running {
                running.broken_off = true;
                let _ended = thread_signal::interrupt(running.worker);
            }
            // Short, as a worker may have been just before its system call.
            let wait = self.shared.ended.wait_timeout(state, Duration::from_millis(10));
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change of the state is whole, a panic elsewhere leaves it right.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker's life.
    fn work(&self) {
        let unprivileged = give_up_capabilities();
        while let Some(notification) = self.next() {
            let result = unprivileged.and_then(|()| self.connect(&notification));
            // Free before the caller goes on, so that its next connect finds it.
            self.lock().running.retain(|running| running.id != notification.id);
            let answer = result.map(|()| 0);
            // A caller that is gone needs no answer.
            let _gone = notify::respond(self.judge.listener.as_fd(), notification.id, answer);
        }
        self.lock().workers -= 1;
        self.ended.notify_all();
    }

    fn next(&self) -> Option<Notification> {
        let mut state = self.lock();
        loop {
            if state.closing {
                return None;
            }
            if let Some(notification) = state.waiting.pop_front() {
                state.running.push(Running {
                    id: notification.id,
                    caller: notification.pid,
                    worker: rustix::thread::gettid(),
                    seen: false,
                    broken_off: false,
                });
                return Some(notification);
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// All of the duplicates are closed when it returns: the caller may count
    /// on its own closing of the socket to end the connection.
    fn connect(&self, notification: &Notification) -> Result<(), Errno> {
        let connection = self.judge.allow(notification)?;
        loop {
            match connection.make() {
                Err(Errno::INTR) if !self.is_broken_off(notification.id) => {}
                result => return result,
            }
        }
    }

    fn is_broken_off(&self, id: u64) -> bool {
        self.lock().running.iter().any(|running| running.id == id && running.broken_off)
    }
}

/// Root's sandboxed program has no capabilities, so what connects for it must
/// not have those that override the permissions of files. To look at the
/// program is all that is kept. It holds for the calling thread only.
fn give_up_capabilities() -> Result<(), Errno> {
    let now = rustix::thread::capabilities(None)?;
    let kept = now.permitted & CapabilitySet::SYS_PTRACE;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets)
}
