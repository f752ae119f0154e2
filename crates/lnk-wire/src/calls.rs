//! A wire's calls: judged, dialled, logged and counted, however they ask.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lnk_spec::shown::reason;
use tokio::net::TcpStream;

use crate::control::Looked;
use crate::endpoints::Endpoints;
use crate::gate::{Closing, Closings, Gate, until};
use crate::log::{Call, Log, Verb};
use crate::policy::{Asked, Reach, Target};
use crate::traffic::Traffic;

/// The port of HTTPS.
const HTTPS: u16 = 443;
/// Where all of a name's addresses are closed, that shows only when it's dialled.
const FORBIDDEN: u16 = 403;

/// How long what was found by itself answers whoever asks.
const JUST_NOW: Duration = Duration::from_secs(1);

/// A connection that is being made.
pub(crate) type Dialing = Pin<Box<dyn Future<Output = Result<TcpStream, Answer>>>>;

/// What judges a call.
pub(crate) type Judge = dyn Fn(&Target, Asked) -> Result<Reach, Answer>;

/// What decides on a wire's calls, makes their connections and keeps their record.
pub(crate) struct Calls {
    /// Judges a call before anything is looked up.
    pub judge: Box<Judge>,
    /// Whether the minute has room for a call.
    pub admit: Box<dyn Fn() -> Result<(), Answer>>,
    /// Connects a judged one.
    pub dial: Box<dyn Fn(Target, Reach) -> Dialing>,
    /// Where each is written down.
    pub log: Log,
    /// Where each is counted.
    pub traffic: Arc<Traffic>,
    /// What has a name inside.
    pub endpoints: Endpoints,
    /// Whether any is let through.
    pub gate: Gate,
    /// Those that are open.
    pub opened: Cell<u64>,
    /// What was found by itself, and when, in case somebody just then asks for it.
    pub found: Cell<Option<(Instant, Looked)>>,
    /// Hears of the wire's closing.
    pub on_closed: Box<dyn Fn(Closing)>,
}

/// What a client gets in place of what it asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// One line in ASCII.
    pub reason: String,
    /// Whole seconds after which to ask again.
    pub retry_after: Option<u64>,
    /// As [`Refusal::metadata`](crate::policy::Refusal::metadata).
    pub metadata: bool,
}

impl Answer {
    /// One that isn't to be asked for again.
    pub fn new(status: u16, reason: impl Into<String>) -> Answer {
        Answer { status, reason: reason.into(), retry_after: None, metadata: false }
    }
}

/// A connection of a call. Where the wire is closed while it's open, nothing of it goes
/// on: not even what the kernel holds of it.
pub(crate) struct Origin {
    stream: TcpStream,
    closings: Closings,
}

impl Deref for Origin {
    type Target = TcpStream;

    fn deref(&self) -> &TcpStream {
        &self.stream
    }
}

impl DerefMut for Origin {
    fn deref_mut(&mut self) -> &mut TcpStream {
        &mut self.stream
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        if self.closings.any() {
            let _ = self.stream.set_zero_linger();
        }
    }
}

/// A call that has its connection.
pub(crate) struct Reached<'c> {
    pub call: Begun<'c>,
    /// As [`Reach::tls_only`].
    pub tls_only: bool,
    pub origin: Origin,
}

impl Calls {
    /// Judges and dials.
    pub async fn reach(&self, target: &Target, asked: Asked) -> Result<Reached<'_>, Answer> {
        let verb = match asked {
            Asked::Connect if target.port == HTTPS && !self.endpoints.name(target) => Verb::Connect,
            Asked::Connect | Asked::Endpoint => Verb::Tcp,
            Asked::Http => Verb::Http,
        };
        let call = self.log.call(verb, &target.host, target.port);
        self.refuse_closed(&call)?;
        let reach = (self.judge)(target, asked)
            .inspect_err(|answer| self.turned_away(&call, &answer.reason, answer.metadata))?;
        let tls_only = reach.tls_only;
        let call = self.begin(call)?;
        let dialed = until(self.gate.closings().next(), (self.dial)(target.clone(), reach)).await;
        if let Some(reason) = self.gate.refusal() {
            call.refused(&reason);
            return Err(Answer::new(FORBIDDEN, reason));
        }
        // Closed and opened again meanwhile.
        let dialed = dialed.unwrap_or_else(|| {
            Err(Answer::new(503, "the wire was closed meanwhile and is open again: ask again"))
        });
        match dialed {
            Ok(origin) => Ok(Reached { call, tls_only, origin: self.origin(origin) }),
            Err(answer) => {
                match answer.status {
                    FORBIDDEN => call.refused_for(&answer.reason, answer.metadata),
                    _ => call.failed(&answer.reason),
                }
                Err(answer)
            }
        }
    }

    /// Begins a call that is judged, where the wire is open and the minute has room for
    /// it.
    pub fn begin(&self, call: Call) -> Result<Begun<'_>, Answer> {
        self.refuse_closed(&call)?;
        (self.admit)().inspect_err(|answer| self.log.turned_away(&call, &answer.reason))?;
        Ok(Begun { calls: self, call: Some(call) })
    }

    /// Writes down a call that is refused before anybody is asked for it, and counts it,
    /// which may close the wire.
    pub fn turned_away(&self, call: &Call, reason: &str, metadata: bool) {
        self.log.turned_away(call, reason);
        self.count_refused(call, metadata);
    }

    fn count_refused(&self, call: &Call, metadata: bool) {
        if let Some(closing) = self.gate.refused(call.target(), metadata) {
            self.closed(closing);
        }
    }

    /// Refuses a call where the wire is closed.
    pub fn refuse_closed(&self, call: &Call) -> Result<(), Answer> {
        match self.gate.refusal() {
            None => Ok(()),
            Some(reason) => {
                self.log.turned_away(call, &reason);
                Err(Answer::new(FORBIDDEN, reason))
            }
        }
    }

    /// Looks by itself.
    pub fn look_now(&self) {
        let looked = self.look();
        if looked.changed {
            self.found.set(Some((Instant::now(), looked)));
        }
    }

    /// Looks for somebody who changed it a moment ago.
    pub fn look_for(&self) -> Looked {
        let looked = self.look();
        let found = self.found.take().filter(|(at, _)| at.elapsed() < JUST_NOW);
        found.filter(|_| !looked.changed).map_or(looked, |(_, found)| found)
    }

    /// Reads again whether the wire is closed. Open calls end by it.
    fn look(&self) -> Looked {
        let (was_open, open) = (self.gate.refusal().is_none(), self.opened.get());
        let closing = self.gate.look();
        let ended = if closing.is_some() { open } else { 0 };
        if let Some(closing) = closing {
            self.closed(closing);
        }
        let closed = self.gate.refusal().is_some();
        Looked { closed, changed: closed == was_open, ended }
    }

    /// Writes down that the wire was closed, and says so.
    pub fn closed(&self, closing: Closing) {
        if let Some(reason) = self.gate.refusal() {
            self.log.closed(&reason);
        }
        (self.on_closed)(closing);
    }

    /// A connection of one of the calls.
    pub fn origin(&self, stream: TcpStream) -> Origin {
        Origin { stream, closings: self.gate.closings() }
    }
}

/// A call for which somebody is asked: a name server, or who is dialled. What comes of
/// it is written down, if nothing else when this is dropped.
pub(crate) struct Begun<'c> {
    calls: &'c Calls,
    /// Until it's written down.
    call: Option<Call>,
}

impl<'c> Begun<'c> {
    /// Lets it through, once that is written down.
    pub fn open(mut self) -> Result<Open<'c>, Answer> {
        let (calls, call) = (self.calls, self.take());
        if let Some(reason) = calls.gate.refusal() {
            calls.log.refused(&call, &reason);
            return Err(Answer::new(FORBIDDEN, reason));
        }
        calls.log.allowed(&call).map_err(|error| {
            Answer::new(503, format!("the log of calls can't be written: {}", reason(&error)))
        })?;
        calls.opened.set(calls.opened.get() + 1);
        let (up, down) = (Cell::new(0), Cell::new(0));
        Ok(Open { calls, call, up, down, failed: Cell::new(false) })
    }

    /// It isn't let through, for what it is.
    pub fn refused_for(mut self, reason: &str, metadata: bool) {
        let call = self.take();
        self.calls.log.refused(&call, reason);
        self.calls.count_refused(&call, metadata);
    }

    /// It isn't let through, whatever it is.
    fn refused(mut self, reason: &str) {
        let call = self.take();
        self.calls.log.refused(&call, reason);
    }

    /// It comes to nothing.
    pub fn failed(mut self, reason: &str) {
        let call = self.take();
        self.calls.log.failed(&call, reason);
    }

    fn take(&mut self) -> Call {
        self.call.take().expect("it's taken once, by what consumes this")
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            match self.calls.gate.refusal() {
                Some(reason) => self.calls.log.refused(&call, &reason),
                None => self.calls.log.failed(&call, "the sandbox ended before anybody answered"),
            }
        }
    }
}

/// A call that was let through. Its end is written down when this is dropped,
/// whatever ends it.
pub(crate) struct Open<'c> {
    calls: &'c Calls,
    call: Call,
    up: Cell<u64>,
    down: Cell<u64>,
    failed: Cell<bool>,
}

impl Open<'_> {
    /// Bytes were passed on from the sandbox.
    pub fn sent(&self, bytes: u64) {
        self.up.set(self.up.get() + bytes);
        self.calls.traffic.sent(bytes);
    }

    /// Bytes came for the sandbox.
    pub fn received(&self, bytes: u64) {
        self.down.set(self.down.get() + bytes);
        self.calls.traffic.received(bytes);
    }

    /// It ends by a fault of the other side's.
    pub fn failed(&self, reason: &str) {
        self.failed.set(true);
        self.calls.log.broke(&self.call, reason, self.up.get(), self.down.get());
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.calls.opened.set(self.calls.opened.get() - 1);
        if !self.failed.get() {
            self.calls.log.ended(&self.call, self.up.get(), self.down.get());
        }
    }
}
