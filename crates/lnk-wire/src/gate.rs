//! Whether a wire lets anything through at all: open, or closed by a stop or a pause.

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::task::Poll;

use jiff::Timestamp;
use tokio::sync::watch;

use crate::log::Sandbox;
use crate::pause::Refused;
use crate::paused::{Closed, Lasting, Stamp, State};

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
        self.sandbox.spec.as_deref().unwrap_or(&self.sandbox.name)
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
#[derive(Debug)]
pub(crate) struct Gate {
    whose: Whose,
    /// None where nothing is kept: then it's always open.
    state: Option<State>,
    closed: RefCell<Option<Closed>>,
    /// How often it was closed.
    closings: watch::Sender<u64>,
    /// What the state was when it was read.
    seen: Cell<Option<Stamp>>,
    /// Refused calls that couldn't be counted yet.
    uncounted: RefCell<Vec<Refused>>,
}

impl Gate {
    /// One that is as `closed` says, until it's looked at again.
    pub fn new(whose: Whose, state: Option<State>, closed: Option<Closed>) -> Gate {
        let closings = watch::Sender::new(u64::from(closed.is_some()));
        let (seen, uncounted) = (Cell::new(None), RefCell::default());
        Gate { whose, state, closed: RefCell::new(closed), closings, seen, uncounted }
    }

    /// Why nothing is let through, where that is so.
    pub fn refusal(&self) -> Option<String> {
        self.closed.borrow().as_ref().map(|closed| self.whose.reason(closed))
    }

    /// Its closings from now on.
    pub fn closings(&self) -> Closings {
        Closings(self.closings.subscribe())
    }

    /// Reads again whether it's closed, where that may have changed: the closing, if
    /// it was open.
    pub fn look(&self) -> Option<Closing> {
        let state = self.state.as_ref()?;
        // What is counted now may also pause it.
        if let Some(closing) = self.count(None) {
            return Some(closing);
        }
        let stamp = state.stamp().ok();
        if stamp.is_some() && stamp == self.seen.get() {
            return None;
        }
        let closed = state.closed(&self.whose.lasting);
        // Read again next time, where it can't be read now.
        let is_unknown = matches!(closed, Some(Closed::Unknown(_)));
        self.seen.set(stamp.filter(|_| !is_unknown));
        self.set(closed, false)
    }

    /// Counts a refused call: the closing, where it is one too many.
    pub fn refused(&self, target: String, metadata: bool) -> Option<Closing> {
        let counts = self.whose.pauses_itself && self.closed.borrow().is_none();
        let at = Timestamp::now().as_millisecond();
        self.count(counts.then_some(Refused { at, target, metadata }))
    }

    fn count(&self, refused: Option<Refused>) -> Option<Closing> {
        let state = self.state.as_ref()?;
        let mut uncounted = self.uncounted.borrow_mut();
        uncounted.extend(refused);
        if uncounted.is_empty() {
            return None;
        }
        let spec = self.whose.sandbox.spec.as_deref();
        let counted = state.refused(&self.whose.lasting, spec, &uncounted);
        if counted.is_ok() {
            uncounted.clear();
        }
        let why = match counted {
            Ok(why) => Closed::Paused(why?.to_string()),
            Err(error) => Closed::Unknown(error.to_string()),
        };
        self.seen.set(None);
        let by_itself = matches!(why, Closed::Paused(_));
        self.set(Some(why), by_itself)
    }

    fn set(&self, closed: Option<Closed>, by_itself: bool) -> Option<Closing> {
        let was_open = self.closed.replace(closed.clone()).is_none();
        let why = closed.filter(|_| was_open)?;
        self.closings.send_modify(|closings| *closings += 1);
        Some(Closing { why, by_itself })
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
    /// Whether there was any.
    pub fn any(&self) -> bool {
        self.0.has_changed().unwrap_or(false)
    }

    /// Waits for the next.
    pub async fn next(mut self) {
        // Without its gate it isn't closed any more.
        if self.0.changed().await.is_err() {
            pending::<()>().await;
        }
    }
}

/// Does something until it's done, or until an end comes: `None` then. It goes on as
/// far as it can before it hears of the end.
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
    use crate::pause::Why;

    fn whose(spec: &str) -> Whose {
        Whose {
            sandbox: Sandbox { name: "run-1".into(), spec: Some("app".into()), spec_path: None },
            lasting: Lasting::Spec(spec.into()),
            pauses_itself: true,
        }
    }

    fn gate(folder: &std::path::Path, whose: Whose) -> Gate {
        Gate::new(whose, Some(State::open(folder).unwrap()), None)
    }

    #[test]
    fn it_closes_and_opens_as_the_disk_says() {
        let folder = tempfile::tempdir().unwrap();
        let (state, gate) =
            (State::open(folder.path()).unwrap(), gate(folder.path(), whose("/a.toml")));
        assert_eq!((gate.look(), gate.refusal()), (None, None));
        state.pause(&Lasting::Spec("/a.toml".into()), None, "by hand").unwrap();
        let why = Closed::Paused("by hand".into());
        assert_eq!(gate.look(), Some(Closing { why, by_itself: false }));
        assert_eq!(
            gate.refusal().unwrap(),
            "this sandbox's wire is paused (by hand): lnk sandbox resume app"
        );
        assert_eq!(gate.look(), None);
        state.stop().unwrap();
        assert_eq!(gate.look(), None, "it was closed already");
        assert_eq!(
            gate.refusal().unwrap(),
            "every sandbox's wire is stopped: lnk sandbox stop --off"
        );
        state.start().unwrap();
        state.resume(&Lasting::Spec("/a.toml".into())).unwrap();
        assert_eq!((gate.look(), gate.refusal()), (None, None));
    }

    #[test]
    fn refused_calls_pause_all_gates_of_the_name() {
        let folder = tempfile::tempdir().unwrap();
        let gates = [gate(folder.path(), whose("/a.toml")), gate(folder.path(), whose("/a.toml"))];
        let check = gate(folder.path(), Whose { pauses_itself: false, ..whose("/b.toml") });
        for n in 0..29 {
            assert_eq!(gates[n % 2].refused("a:1".into(), false), None);
            assert_eq!(check.refused("a:1".into(), true), None);
        }
        let why = Closed::Paused(Why::Calls.to_string());
        assert_eq!(
            gates[1].refused("a:1".into(), false),
            Some(Closing { why: why.clone(), by_itself: true })
        );
        assert_eq!(gates[0].look(), Some(Closing { why, by_itself: false }));
        assert_eq!((check.look(), check.refusal()), (None, None));
    }

    #[test]
    fn what_cant_be_counted_closes_it_until_it_can() {
        let folder = tempfile::tempdir().unwrap();
        let gate = gate(folder.path(), whose("/a.toml"));
        let file = folder.path().join(crate::paused::PAUSES);
        for _ in 0..29 {
            assert_eq!(gate.refused("a:1".into(), false), None);
        }
        let before = std::fs::read(&file).unwrap();
        std::fs::write(&file, "damaged").unwrap();
        let closing = gate.refused("a:1".into(), false).unwrap();
        assert!(matches!(closing.why, Closed::Unknown(_)) && !closing.by_itself);
        assert!(gate.refusal().unwrap().ends_with("so it's closed: lnk sandbox paused"));
        assert_eq!(gate.look(), None);
        // Once it can be, that call is the thirtieth.
        std::fs::write(&file, before).unwrap();
        gate.look();
        assert!(gate.refusal().unwrap().contains("30 calls were refused within a minute"));
    }

    #[test]
    fn a_bare_runs_pause_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let run = Lasting::Run("run-1".into());
        let gate = gate(folder.path(), Whose { lasting: run.clone(), ..whose("/a.toml") });
        assert!(gate.refused("metadata:80".into(), true).is_some_and(|it| it.by_itself));
        let state = State::open(folder.path()).unwrap();
        assert!(state.closed(&run).is_some());
        drop(gate);
        assert_eq!(state.closed(&run), None);
    }
}
