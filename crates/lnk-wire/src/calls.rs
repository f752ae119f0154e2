//! A wire's calls: judged, dialled, logged and counted, however they ask.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;

use tokio::net::TcpStream;

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
    /// Connects a judged one.
    pub dial: Box<dyn Fn(Target, Reach) -> Dialing>,
    /// Where each is written down.
    pub log: Log,
    /// Where each is counted.
    pub traffic: Arc<Traffic>,
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
pub(crate) struct Reached {
    pub call: Call,
    /// As [`Reach::tls_only`].
    pub tls_only: bool,
    pub origin: TcpStream,
}

impl Calls {
    /// Judges and dials, and writes down what came of it, but for a connection:
    /// that is [`Calls::open`]'s.
    pub async fn reach(&self, target: &Target, asked: Asked) -> Result<Reached, Answer> {
        let verb = match asked {
            Asked::Connect if target.port == HTTPS => Verb::Connect,
            Asked::Connect => Verb::Tcp,
            Asked::Http => Verb::Http,
        };
        let call = self.log.call(verb, &target.host, target.port);
        let reach = (self.judge)(target, asked)
            .inspect_err(|answer| self.log.refused(&call, &answer.reason))?;
        let tls_only = reach.tls_only;
        let dialed = (self.dial)(target.clone(), reach).await;
        let origin = dialed.inspect_err(|answer| match answer.status {
            FORBIDDEN => self.log.refused(&call, &answer.reason),
            _ => self.log.failed(&call, &answer.reason),
        })?;
        Ok(Reached { call, tls_only, origin })
    }

    /// Lets a call through, once that is written down.
    pub fn open(&self, call: Call) -> Result<Open<'_>, Answer> {
        self.log.allowed(&call).map_err(|error| Answer {
            status: 503,
            reason: format!("the log of calls can't be written: {error}"),
            retry_after: None,
        })?;
        let (up, down) = (Cell::new(0), Cell::new(0));
        Ok(Open { calls: self, call, up, down, failed: Cell::new(false) })
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
        self.calls.log.broke(&self.call, reason);
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.failed.get() {
            self.calls.log.ended(&self.call, self.up.get(), self.down.get());
        }
    }
}
