//! Whether a wire lets anything through at all: open, or closed by a stop or a pause.
//!
//! It's closed from any thread, and there and then: its connections end with it, and what
//! keeps the wire's own thread busy delays nothing.

use std::fmt;
use std::future::{pending, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use jiff::Timestamp;
use lnk_spec::shown::reason;
use tokio::sync::watch;

use crate::connections::Connections;
use crate::control::{Change, Looked};
use crate::log::Sandbox;
use crate::pause::{Refused, Why};
use crate::paused::{Closed, Lasting, Stamp, State};

/// How long a refused call waits for others to have theirs counted.
const PATIENCE: Duration = Duration::from_millis(10);

/// Whose a wire is, as far as pauses go.
#[derive(Clone, Debug)]
pub struct Whose {
    /// The sandbox of this run.
    pub sandbox: Sandbox,
    /// What its pauses and counters belong to.
    pub lasting: Lasting,
    /// Whether it pauses itself by what it refuses. Link's own tries of a sandbox
    /// don't: to be refused is what they are for.
    pub pauses_itself: bool,
}

impl Whose {
    /// As it's called on the command line: in ASCII, and of what is outside no more
    /// than the sandbox may know.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.lasting {
            Lasting::Name(name) => name,
            _ => self.sandbox.spec.as_deref().unwrap_or(&self.sandbox.name),
        }
    }

    /// Why it lets nothing through: one line in ASCII, which says what opens it.
    #[must_use]
    pub fn reason(&self, closed: &Closed) -> String {
        match closed {
            Closed::Stopped => "every sandbox's wire is stopped: lnk sandbox stop --off".to_owned(),
            Closed::Paused(why) => {
                format!("this sandbox's wire is paused ({why}): lnk sandbox resume {}", self.name())
            }
            Closed::Unknown(_) => {
                "whether this sandbox's wire is paused can't be told, so it's closed: lnk sandbox paused"
                    .to_owned()
            }
        }
    }
}

/// A wire was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closing {
    /// Why.
    pub why: Closed,
    /// By this wire's own refused calls.
    pub by_itself: bool,
}

/// The gate of one wire.
pub(crate) struct Gate {
    whose: Whose,
    /// None where nothing is kept: then it's always open.
    state: Option<State>,
    now: Mutex<Now>,
    /// Held while the disk is read for it.
    reading: Mutex<()>,
    /// Held while refused calls are counted on the disk.
    counting: Mutex<()>,
    /// How often it was closed.
    closings: watch::Sender<u64>,
    /// What its calls are connected to.
    pub connections: Arc<Connections>,
    /// Its calls that are open.
    pub opened: AtomicU64,
    /// Those that its closings ended.
    ended: AtomicU64,
    on_closed: Box<dyn Fn(Closing) + Send + Sync>,
}

/// Why it's closed: each by itself, whatever becomes of the others.
#[derive(Debug, Default)]
struct Now {
    /// By what is on disk.
    kept: Option<Closed>,
    /// What was there when it was read.
    seen: Option<Stamp>,
    /// As it was told, until the disk says it too: it may not have place for it.
    stopped: bool,
    /// The same, and what it did by itself: why.
    paused: Option<String>,
    /// Refused calls that couldn't be counted yet,
    uncounted: Vec<Refused>,
    /// and why.
    uncountable: Option<Closed>,
    /// The reasons of closings that aren't in the log yet.
    unlogged: Vec<String>,
}

impl Now {
    fn closed(&self) -> Option<Closed> {
        let stopped = self.stopped.then_some(Closed::Stopped);
        let paused = || self.paused.clone().map(Closed::Paused);
        stopped.or(self.kept.clone()).or_else(paused).or(self.uncountable.clone())
    }
}

impl Gate {
    /// One that is open until it's looked at. `on_closed` hears of each closing, on the
    /// thread that closes it, and must not wait.
    pub fn new(
        whose: Whose,
        state: Option<State>,
        on_closed: Box<dyn Fn(Closing) + Send + Sync>,
    ) -> Gate {
        Gate {
            whose,
            state,
            now: Mutex::default(),
            reading: Mutex::default(),
            counting: Mutex::default(),
            closings: watch::Sender::new(0),
            connections: Arc::default(),
            opened: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            on_closed,
        }
    }

    /// Whose it is.
    pub fn whose(&self) -> &Whose {
        &self.whose
    }

    /// Why nothing is let through, where that is so.
    pub fn refusal(&self) -> Option<String> {
        self.now().closed().map(|closed| self.whose.reason(&closed))
    }

    /// Its closings from now on.
    pub fn closings(&self) -> Closings {
        Closings(self.closings.subscribe())
    }

    /// The reasons of closings that weren't asked for yet: what the log says of them.
    pub fn unlogged(&self) -> Vec<String> {
        std::mem::take(&mut self.now().unlogged)
    }

    /// Does as it's told, then reads again whether it's closed, where that may have
    /// changed.
    pub fn look(&self, told: Option<Change>) -> Looked {
        let (was_closed, ended) = (self.is_closed(), self.ended.load(Relaxed));
        // Whatever the disk does.
        if let Some(told) = told {
            self.hear(told);
        }
        self.read();
        let closed = self.is_closed();
        let ended = self.ended.load(Relaxed) - ended;
        Looked { closed, changed: closed != was_closed, ended }
    }

    fn hear(&self, told: Change) {
        let is_own = |of: &Lasting| *of == self.whose.lasting;
        self.change(|now| {
            match told {
                Change::Stop => now.stopped = true,
                Change::Start => now.stopped = false,
                Change::Pause { of, why } if is_own(&of) => now.paused = Some(why),
                // Then it's counted anew, too.
                Change::Resume { of } if is_own(&of) => {
                    (now.paused, now.uncountable) = (None, None);
                    now.uncounted.clear();
                }
                Change::Pause { .. } | Change::Resume { .. } => {}
            }
            // It's read again, in any case.
            now.seen = None;
            false
        });
    }

    fn read(&self) {
        let Some(state) = &self.state else { return };
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = state.stamp().ok();
        if stamp.is_some() && stamp == self.now().seen {
            return;
        }
        let kept = state.closed(&self.whose.lasting);
        self.change(|now| {
            // Read again next time, where it can't be read now.
            let is_unknown = matches!(kept, Some(Closed::Unknown(_)));
            now.seen = stamp.filter(|_| !is_unknown);
            // From now on it's the disk that says so.
            now.stopped &= kept != Some(Closed::Stopped);
            now.paused.take_if(|_| matches!(kept, Some(Closed::Paused(_))));
            now.kept = kept;
            false
        });
    }

    /// Counts a refused call, which may close it.
    pub fn refused(&self, target: String, metadata: bool) {
        let at = Timestamp::now().as_millisecond();
        if self.whose.pauses_itself && !self.is_closed() {
            self.now().uncounted.push(Refused { at, target, metadata });
        }
        self.count();
    }

    /// Counts the refused calls that aren't counted yet. While that can't be done it's
    /// closed. Only while another lnk is about to change what is kept, it isn't: then they
    /// count beside that, for this wire alone.
    pub fn count(&self) {
        let Some(state) = &self.state else { return };
        let _counting = self.counting.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = self.now().uncounted.clone();
        if calls.is_empty() {
            return;
        }
        let (whose, spec) = (&self.whose.lasting, self.whose.sandbox.spec.as_deref());
        // To close it doesn't wait for the disk to have written it.
        let here = state.too_many(whose, &calls);
        if let Ok(Some(why)) = here {
            self.pause_itself(why);
        }
        let counted = state.refused(whose, spec, &calls, PATIENCE);
        if counted.is_ok() {
            // Another run of the name may have paused it.
            self.read();
        }
        let is_busy = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        let why = match counted {
            Err(error) if is_busy(&error) => here.err(),
            Err(error) => Some(error),
            Ok(why) => {
                // Fewer, where they were forgotten meanwhile.
                let mut now = self.now();
                let counted = calls.len().min(now.uncounted.len());
                now.uncounted.drain(..counted);
                drop(now);
                why.into_iter().for_each(|why| self.pause_itself(why));
                None
            }
        };
        self.change(|now| {
            now.uncountable = why.map(|why| Closed::Unknown(reason(&why)));
            false
        });
    }

    fn pause_itself(&self, why: Why) {
        self.change(|now| {
            now.paused = Some(why.to_string());
            true
        });
    }

    /// Refused calls that aren't counted yet, after one more try: what the name's next
    /// run won't know of, if there is one.
    pub fn uncounted(&self) -> usize {
        self.count();
        match self.whose.lasting {
            Lasting::Name(_) | Lasting::Spec(_) => self.now().uncounted.len(),
            Lasting::Run(_) => 0,
        }
    }

    fn is_closed(&self) -> bool {
        self.now().closed().is_some()
    }

    /// Changes why it's closed. `change` says whether it's the wire itself that does.
    fn change(&self, change: impl FnOnce(&mut Now) -> bool) {
        let mut now = self.now();
        let was_closed = now.closed().is_some();
        let by_itself = change(&mut now);
        match now.closed() {
            Some(why) if !was_closed => {
                self.ended.fetch_add(self.opened.load(Relaxed), Relaxed);
                self.connections.close();
                self.closings.send_modify(|closings| *closings += 1);
                now.unlogged.push(self.whose.reason(&why));
                (self.on_closed)(Closing { why, by_itself });
            }
            None if was_closed => self.connections.open(),
            _ => {}
        }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Gate").field("whose", &self.whose).field("now", &self.now).finish()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let (Some(state), run @ Lasting::Run(_)) = (&self.state, &self.whose.lasting) {
            // Where that fails, what is left is of a run that is over.
            let _ = state.resume(run);
        }
    }
}

/// The closings of a gate since this was made, even if it's open again.
#[derive(Debug)]
pub(crate) struct Closings(watch::Receiver<u64>);

impl Closings {
    /// Waits for the next.
    pub async fn next(mut self) {
        // Without its gate it isn't closed any more.
        if self.0.changed().await.is_err() {
            pending::<()>().await;
        }
    }
}

/// Does something until it's done, or until an end comes: `None` then. It doesn't go on
/// once the end is there.
pub(crate) async fn unless<T>(
    end: impl Future<Output = ()>,
    done: impl Future<Output = T>,
) -> Option<T> {
    let (mut end, mut done) = (pin!(end), pin!(done));
    poll_fn(|cx| match end.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => done.as_mut().poll(cx).map(Some),
    })
    .await
}

/// The same, but it goes on as far as it can before it hears of the end.
pub(crate) async fn until<T>(
    end: impl Future<Output = ()>,
    done: impl Future<Output = T>,
) -> Option<T> {
    let (mut end, mut done) = (pin!(end), pin!(done));
    poll_fn(|cx| match done.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => end.as_mut().poll(cx).map(|()| None),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn whose(spec: &str) -> Whose {
        Whose {
            sandbox: Sandbox { name: "run-1".into(), spec: Some("app".into()), spec_path: None },
            lasting: Lasting::Spec(spec.into()),
            pauses_itself: true,
        }
    }

    /// A gate, and the closings that it told of.
    fn gate(folder: &std::path::Path, whose: Whose) -> (Gate, mpsc::Receiver<Closing>) {
        let (tell, told) = mpsc::channel();
        let state = State::open(folder).unwrap();
        (Gate::new(whose, Some(state), Box::new(move |it| tell.send(it).unwrap())), told)
    }

    fn by_hand() -> Change {
        Change::Pause { of: Lasting::Spec("/a.toml".into()), why: "by hand".into() }
    }

    const SAME: Looked = Looked { closed: false, changed: false, ended: 0 };
    const CLOSED: Looked = Looked { closed: true, changed: true, ended: 0 };
    const OPENED: Looked = Looked { closed: false, changed: true, ended: 0 };

    #[test]
    fn it_closes_and_opens_as_the_disk_says() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path()).unwrap();
        let (gate, told) = gate(folder.path(), whose("/a.toml"));
        assert_eq!((gate.look(None), gate.refusal()), (SAME, None));
        state.pause(&Lasting::Spec("/a.toml".into()), None, "by hand").unwrap();
        assert_eq!(gate.look(None), CLOSED);
        let why = Closed::Paused("by hand".into());
        assert_eq!(told.try_recv(), Ok(Closing { why, by_itself: false }));
        let reason = "this sandbox's wire is paused (by hand): lnk sandbox resume app";
        assert_eq!(gate.refusal().unwrap(), reason);
        assert_eq!(gate.unlogged(), [reason]);
        state.stop().unwrap();
        assert!(!gate.look(None).changed, "it was closed already");
        assert!(told.try_recv().is_err() && gate.unlogged().is_empty());
        assert_eq!(
            gate.refusal().unwrap(),
            "every sandbox's wire is stopped: lnk sandbox stop --off"
        );
        state.start().unwrap();
        state.resume(&Lasting::Spec("/a.toml".into())).unwrap();
        assert_eq!((gate.look(None), gate.refusal()), (OPENED, None));
    }

    #[test]
    fn what_it_is_told_holds_until_it_is_told_otherwise_or_the_disk_said_it_too() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path()).unwrap();
        let (gate, _told) = gate(folder.path(), whose("/a.toml"));
        let spec = Lasting::Spec("/a.toml".into());
        let resumed = || Change::Resume { of: spec.clone() };
        for (closing, opening) in [(Change::Stop, Change::Start), (by_hand(), resumed())] {
            gate.opened.store(3, Relaxed);
            assert_eq!(gate.look(Some(closing)), Looked { ended: 3, ..CLOSED });
            assert!(gate.connections.unless_closed(|| Ok(())).is_err());
            gate.opened.store(0, Relaxed);
            // None of it is on disk.
            assert!(gate.look(None).closed);
            let other = Lasting::Spec("/b.toml".into());
            assert!(gate.look(Some(Change::Resume { of: other.clone() })).closed);
            assert_eq!(gate.look(Some(opening)), OPENED);
            assert!(gate.connections.unless_closed(|| Ok(())).is_ok());
            let other = Change::Pause { of: other, why: "x".into() };
            assert_eq!(gate.look(Some(other)), SAME);
        }
        gate.look(Some(Change::Stop));
        gate.look(Some(by_hand()));
        state.stop().unwrap();
        state.pause(&spec, None, "by hand").unwrap();
        gate.look(None);
        state.start().unwrap();
        gate.look(None);
        state.resume(&spec).unwrap();
        assert_eq!(gate.look(None), OPENED);
    }

    #[test]
    fn refused_calls_pause_all_gates_of_the_name() {
        let folder = tempfile::tempdir().unwrap();
        let gates = [gate(folder.path(), whose("/a.toml")), gate(folder.path(), whose("/a.toml"))];
        let whose = Whose { pauses_itself: false, ..whose("/b.toml") };
        let (check, _) = gate(folder.path(), whose);
        for n in 0..29 {
            gates[n % 2].0.refused("a:1".into(), false);
            check.refused("a:1".into(), true);
            assert_eq!(gates[n % 2].0.refusal(), None);
        }
        gates[1].0.refused("a:1".into(), false);
        let why = Closed::Paused(Why::Calls.to_string());
        assert_eq!(gates[1].1.try_recv(), Ok(Closing { why: why.clone(), by_itself: true }));
        assert_eq!(gates[0].0.look(None), CLOSED);
        assert_eq!(gates[0].1.try_recv(), Ok(Closing { why, by_itself: false }));
        assert_eq!((check.look(None), check.refusal()), (SAME, None));
    }

    #[test]
    fn what_cant_be_counted_keeps_it_closed_until_it_can() {
        let folder = tempfile::tempdir().unwrap();
        let (gate, told) = gate(folder.path(), whose("/a.toml"));
        for _ in 0..28 {
            gate.refused("a:1".into(), false);
        }
        assert_eq!(gate.refusal(), None);
        // No new one can be made.
        let new = folder.path().join("pauses.json.new");
        std::fs::remove_file(&new).unwrap();
        std::fs::create_dir(&new).unwrap();
        gate.refused("a:1".into(), false);
        let closing = told.try_recv().unwrap();
        assert!(matches!(closing.why, Closed::Unknown(_)) && !closing.by_itself);
        assert!(gate.refusal().unwrap().ends_with("so it's closed: lnk sandbox paused"));
        for _ in 0..3 {
            assert!(!gate.look(None).changed);
            gate.count();
            assert!(gate.refusal().is_some());
        }
        assert_eq!((gate.uncounted(), gate.unlogged().len()), (1, 1));
        assert!(told.try_recv().is_err(), "it's told of once");
        // Once it can be, it was the twenty-ninth, and the next is one too many.
        std::fs::remove_dir(&new).unwrap();
        gate.count();
        assert_eq!((gate.refusal(), gate.uncounted()), (None, 0));
        gate.refused("a:1".into(), false);
        assert!(gate.refusal().unwrap().contains("30 calls were refused within a minute"));
    }

    #[test]
    fn while_another_one_holds_the_lock_calls_count_here() {
        let folder = tempfile::tempdir().unwrap();
        let (gate, told) = gate(folder.path(), whose("/a.toml"));
        for _ in 0..20 {
            gate.refused("a:1".into(), false);
        }
        let lock = std::fs::File::open(folder.path().join("pauses.lock")).unwrap();
        lock.lock().unwrap();
        for _ in 0..9 {
            gate.refused("a:1".into(), false);
            assert_eq!(gate.refusal(), None);
        }
        gate.refused("a:1".into(), false);
        assert!(told.try_recv().is_ok_and(|closing| closing.by_itself));
        let spec = Lasting::Spec("/a.toml".into());
        let state = State::open(folder.path()).unwrap();
        assert_eq!((state.closed(&spec), gate.look(None).closed), (None, true));
        drop(lock);
        gate.count();
        assert_eq!(state.closed(&spec), Some(Closed::Paused(Why::Calls.to_string())));
        assert!(gate.look(None).closed && told.try_recv().is_err());
    }

    #[test]
    fn a_bare_runs_pause_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let run = Lasting::Run("run-1".into());
        let (gate, told) = gate(folder.path(), Whose { lasting: run.clone(), ..whose("/a.toml") });
        gate.refused("metadata:80".into(), true);
        assert!(told.try_recv().is_ok_and(|closing| closing.by_itself));
        let state = State::open(folder.path()).unwrap();
        assert!(state.closed(&run).is_some());
        drop(gate);
        assert_eq!(state.closed(&run), None);
    }
}
