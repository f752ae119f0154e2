//! The threads that receive the notifications and answer them.
//!
//! Whichever thread waits takes the next one and makes its connect itself:
//! handing it to another would cost several times the connect. Before it does,
//! it makes sure that a further thread waits, so that whatever holds it up holds
//! up nothing else. There are as many threads as there were connects at one
//! time and one more; they are kept.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lnk_sys::notify::{self, Notification};
use lnk_sys::thread_signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::connection::Judge;
use super::target;
use super::{Answer, Others};

/// A thread's stack, in bytes: it has a few small buffers.
const STACK: usize = 256 << 10;
/// How often the connects under way are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How long the end waits for the threads. One that hangs in a file system that
/// takes no signal is left to the end of the process.
const END: Duration = Duration::from_secs(1);

pub(super) struct Workers {
    shared: Arc<Shared>,
}

struct Shared {
    judge: Judge,
    others: Option<Others>,
    state: Mutex<State>,
    /// The keeper is needed, or all are to end.
    wake_keeper: Condvar,
    /// A worker has ended.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    started: bool,
    closing: bool,
    /// Workers that are alive and have told their number.
    threads: Vec<Pid>,
    /// Workers that are alive or about to be.
    workers: usize,
    /// Those of them that wait for a notification or are about to.
    waiting: usize,
    running: Vec<Running>,
    /// How many connects there have been.
    connects: u64,
    keeper_sleeps: bool,
}

/// A connect under way.
struct Running {
    id: u64,
    caller: u32,
    worker: Pid,
    /// It was under way at the last look already.
    seen: bool,
    broken_off: bool,
}

impl Workers {
    pub(super) fn new(judge: Judge, others: Option<Others>) -> Self {
        let shared = Shared {
            judge,
            others,
            state: Mutex::default(),
            wake_keeper: Condvar::new(),
            ended: Condvar::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    pub(super) fn judge(&self) -> &Judge {
        &self.shared.judge
    }

    pub(super) fn have_started(&self) -> bool {
        self.shared.lock().started
    }

    pub(super) fn is_busy(&self) -> bool {
        !self.shared.lock().running.is_empty()
    }

    /// Starts receiving.
    ///
    /// # Errors
    /// `EAGAIN` at the limit of threads.
    pub(super) fn start(&self) -> io::Result<()> {
        let mut state = self.shared.lock();
        if !state.started {
            let keeper = Arc::clone(&self.shared);
            spawn("keeper", move || keeper.keep())?;
            self.shared.add_worker(&mut state)?;
            state.started = true;
        }
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closing = true;
        self.shared.wake_keeper.notify_all();
        let deadline = Instant::now() + END;
        while state.workers > 0 && Instant::now() < deadline {
            for running in &mut state.running {
                running.broken_off = true;
            }
            for &worker in &state.threads {
                let _ended = thread_signal::interrupt(worker);
            }
            // Short, as a worker may have been just before its system call.
            let wait = self.shared.ended.wait_timeout(state, Duration::from_millis(5));
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change of the state is whole, a panic elsewhere leaves it right.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_worker(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let worker = Arc::clone(self);
        spawn("connect", move || worker.work())?;
        state.workers += 1;
        state.waiting += 1;
        Ok(())
    }

    /// A worker's life.
    fn work(self: &Arc<Self>) {
        let me = rustix::thread::gettid();
        self.lock().threads.push(me);
        let unprivileged = give_up_capabilities();
        while let Some(notification) = self.next() {
            if i64::from(notification.nr) == libc::SYS_connect {
                self.answer_connect(&notification, me, unprivileged);
            } else {
                self.answer_other(&notification);
            }
        }
        let mut state = self.lock();
        state.threads.retain(|&thread| thread != me);
        state.workers -= 1;
        state.waiting -= 1;
        self.ended.notify_all();
    }

    /// Waits for a notification; `None` at the end.
    fn next(&self) -> Option<Notification> {
        loop {
            if self.lock().closing {
                return None;
            }
            match notify::receive(self.judge.listener.as_fd()) {
                Ok(notification) => return Some(notification),
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::INTR) => {}
                    // A caller that is gone again, or all are.
                    Some(Errno::NOENT) if !self.is_hung_up() => {}
                    _ => return None,
                },
            }
        }
    }

    fn is_hung_up(&self) -> bool {
        let mut listener = [PollFd::new(&self.judge.listener, PollFlags::empty())];
        let polled = poll(&mut listener, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        polled.is_ok() && listener[0].revents().contains(PollFlags::HUP)
    }

    fn answer_connect(
        self: &Arc<Self>,
        notification: &Notification,
        me: Pid,
        unprivileged: Result<(), Errno>,
    ) {
        let result = match self.begin(notification, me) {
            true => unprivileged.and_then(|()| self.connect(notification)),
            false => Err(Errno::AGAIN),
        };
        // Waiting before the caller goes on, so that its next connect finds it.
        self.end(notification.id);
        self.respond(notification.id, Answer::Result(result.map(|()| 0)));
    }

    fn answer_other(self: &Arc<Self>, notification: &Notification) {
        {
            let mut state = self.lock();
            self.leave_one_waiting(&mut state);
        }
        let answer = match &self.others {
            Some(others) => others(self.judge.listener.as_fd(), notification),
            None => Answer::Result(Err(Errno::NOSYS)),
        };
        // As for a connect.
        self.lock().waiting += 1;
        self.respond(notification.id, answer);
    }

    fn respond(&self, id: u64, answer: Answer) {
        let listener = self.judge.listener.as_fd();
        // A caller that is gone needs no answer.
        let _gone = match answer {
            Answer::Result(result) => notify::respond(listener, id, result),
            Answer::GoOn => notify::go_on(listener, id),
            Answer::Descriptor { descriptor, close_on_exec } => {
                let given = notify::respond_with_descriptor(
                    listener,
                    id,
                    descriptor.as_fd(),
                    close_on_exec,
                );
                given.or_else(|error| {
                    let error = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                    notify::respond(listener, id, Err(error))
                })
            }
        };
    }

    /// Takes note of a connect; `false` when it can't be made, as nobody would
    /// wait meanwhile.
    fn begin(self: &Arc<Self>, notification: &Notification, me: Pid) -> bool {
        let mut state = self.lock();
        if !self.leave_one_waiting(&mut state) {
            return false;
        }
        state.connects = state.connects.wrapping_add(1);
        state.running.push(Running {
            id: notification.id,
            caller: notification.pid,
            worker: me,
            seen: false,
            broken_off: false,
        });
        if std::mem::take(&mut state.keeper_sleeps) {
            self.wake_keeper.notify_all();
        }
        true
    }

    fn end(&self, id: u64) {
        let mut state = self.lock();
        state.running.retain(|running| running.id != id);
        state.waiting += 1;
    }

    /// The calling worker stops waiting; whether another waits.
    fn leave_one_waiting(self: &Arc<Self>, state: &mut State) -> bool {
        state.waiting -= 1;
        state.waiting > 0 || (state.workers <= self.judge.most() && self.add_worker(state).is_ok())
    }

    /// All of the duplicates are closed when it returns: the caller may count
    /// on its own closing of the socket to end the connection.
    fn connect(&self, notification: &Notification) -> Result<(), Errno> {
        let connection = self.judge.allow(notification)?;
        loop {
            match connection.make() {
                Err(Errno::INTR) if !self.is_broken_off(notification.id) => {}
                result => {
                    self.judge.tell_unheard(&connection, result);
                    return result;
                }
            }
        }
    }

    fn is_broken_off(&self, id: u64) -> bool {
        self.lock().running.iter().any(|running| running.id == id && running.broken_off)
    }

    /// The keeper's life: looks at the connects now and then, as long as there
    /// are some.
    fn keep(&self) {
        let mut state = self.lock();
        let mut connects = state.connects;
        while !state.closing {
            let wait = self.wake_keeper.wait_timeout(state, LOOK);
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
            self.break_off(&mut state);
            // Not after each connect: waking it costs the next one.
            let quiet = state.running.is_empty() && connects == state.connects;
            connects = state.connects;
            state.keeper_sleeps = quiet;
            while state.keeper_sleeps && !state.closing {
                state = self.wake_keeper.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Interrupts the workers whose caller is gone or has a signal to handle.
    fn break_off(&self, state: &mut State) {
        let listener = self.judge.listener.as_fd();
        for running in &mut state.running {
            // What ends by itself is left alone.
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
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let builder = thread::Builder::new().name(name.into()).stack_size(STACK);
    thread_signal::spawn_interruptible(builder, body)?;
    Ok(())
}

/// Root's sandboxed program has no capabilities, so what connects for it must
/// not have those that override the permissions of files. To look at the
/// program is all that is kept. It holds for the calling thread only.
fn give_up_capabilities() -> Result<(), Errno> {
    let now = rustix::thread::capabilities(None)?;
    let kept = now.permitted & CapabilitySet::SYS_PTRACE;
    let sets =
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets)
}
