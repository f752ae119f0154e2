//! A wire's calls: judged, dialled, logged and counted, however they ask.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use lnk_spec::shown::reason;

use crate::connections::Connection;
use crate::endpoints::Endpoints;
use crate::gate::{Gate, unless};
use crate::log::{Call, Log, Verb};
use crate::policy::{Asked, Reach, Target};
use crate::traffic::Traffic;

/// The port of HTTPS.
const HTTPS: u16 = 443;
/// Where all of a name's addresses are closed, that shows only when it's dialled.
const FORBIDDEN: u16 = 403;

/// A connection that is being made.
pub(crate) type Dialing = Pin<Box<dyn Future<Output = Result<Connection, Answer>>>>;

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
    pub gate: Arc<Gate>,
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

/// A call that has its connection.
pub(crate) struct Reached<'c> {
    pub call: Begun<'c>,
    /// As [`Reach::tls_only`].
    pub tls_only: bool,
    pub origin: Connection,
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
        let dialed = unless(self.gate.closings().next(), (self.dial)(target.clone(), reach)).await;
        if let Some(reason) = self.gate.refusal() {
            call.refused(&reason);
            return Err(Answer::new(FORBIDDEN, reason));
        }
        // Closed and opened again meanwhile.
        let dialed = dialed.unwrap_or_else(|| {
            Err(Answer::new(503, "the wire was closed meanwhile and is open again: ask again"))
        });
        match dialed {
            Ok(origin) => Ok(Reached { call, tls_only, origin }),
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
        self.gate.refused(call.target(), metadata);
        self.log_closings();
    }

    /// Refuses a call where the wire is closed.
    pub fn refuse_closed(&self, call: &Call) -> Result<(), Answer> {
        match self.gate.refusal() {
            None => Ok(()),
            Some(reason) => {
                self.log_closings();
                self.log.turned_away(call, &reason);
                Err(Answer::new(FORBIDDEN, reason))
            }
        }
    }

    /// Writes down that the wire was closed, as often as it was since the last time.
    pub fn log_closings(&self) {
        self.gate.unlogged().iter().for_each(|reason| self.log.closed(reason));
    }

    /// Writes each closing down. Never returns.
    pub async fn log_closings_on(&self) {
        loop {
            let next = self.gate.closings().next();
            self.log_closings();
            next.await;
        }
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
        calls.gate.opened.fetch_add(1, Relaxed);
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

    /// It comes to nothing. Where the wire was closed, that is why.
    pub fn failed(mut self, reason: &str) {
        let call = self.take();
        match self.calls.gate.refusal() {
            Some(closed) => self.calls.log.refused(&call, &closed),
            None => self.calls.log.failed(&call, reason),
        }
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
        self.calls.gate.opened.fetch_sub(1, Relaxed);
        if !self.failed.get() {
            self.calls.log.ended(&self.call, self.up.get(), self.down.get());
        }
    }
}
