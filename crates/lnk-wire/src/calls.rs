//! A wire's calls: judged, dialled, logged and counted, however they ask.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;

use lnk_spec::shown::reason;
use tokio::net::TcpStream;

use crate::endpoints::Endpoints;
use crate::log::{Call, Log, Verb};
use crate::policy::{Asked, Reach, Target};
use crate::traffic::Traffic;

/// The port of HTTPS.
const HTTPS: u16 = 443;
/// Where all of a name's addresses are closed, that shows only when it's dialled.
const FORBIDDEN: u16 = 403;

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
}

/// A call that has its connection.
pub(crate) struct Reached<'c> {
    pub call: Begun<'c>,
    /// As [`Reach::tls_only`].
    pub tls_only: bool,
    pub origin: TcpStream,
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
        let reach = (self.judge)(target, asked)
            .inspect_err(|answer| self.log.turned_away(&call, &answer.reason))?;
        let tls_only = reach.tls_only;
        let call = self.begin(call)?;
        match (self.dial)(target.clone(), reach).await {
            Ok(origin) => Ok(Reached { call, tls_only, origin }),
            Err(answer) => {
                match answer.status {
                    FORBIDDEN => call.refused(&answer.reason),
                    _ => call.failed(&answer.reason),
                }
                Err(answer)
            }
        }
    }

    /// Begins a call that is judged, where the minute has room for it.
    pub fn begin(&self, call: Call) -> Result<Begun<'_>, Answer> {
        (self.admit)().inspect_err(|answer| self.log.turned_away(&call, &answer.reason))?;
        Ok(Begun { calls: self, call: Some(call) })
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
        calls.log.allowed(&call).map_err(|error| Answer {
            status: 503,
            reason: format!("the log of calls can't be written: {}", reason(&error)),
            retry_after: None,
        })?;
        let (up, down) = (Cell::new(0), Cell::new(0));
        Ok(Open { calls, call, up, down, failed: Cell::new(false) })
    }

    /// It isn't let through.
    pub fn refused(mut self, reason: &str) {
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
            self.calls.log.failed(&call, "the sandbox ended before anybody answered");
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
        if !self.failed.get() {
            self.calls.log.ended(&self.call, self.up.get(), self.down.get());
        }
    }
}
