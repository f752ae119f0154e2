//! A sandbox's wire: one thread that serves its listeners, and one that watches over it.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lnk_spec::number::Rate as PerMinute;
use lnk_spec::shown::{reason, word};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_local};

use crate::calls::{Answer, Calls, Dialing};
use crate::control::{self, Change, Looked, Status};
use crate::dial::{DialError, Dialer};
use crate::endpoints::{self, Endpoints};
use crate::gate::{Closing, Gate, Whose, until};
use crate::log::{FILE, Log};
use crate::paused::{Lasting, State};
use crate::policy::{Asked, Policy, Reach, Refusal, Target};
use crate::rate::{Rate, Shared};
use crate::refused::ToldCalls;
use crate::room::{Held, Room};
use crate::traffic::{Carried, Traffic};
use crate::{dns, head, http, port};

/// Connections that wait to be accepted, at most; the system's own limit may be
/// lower (`net.core.somaxconn`).
const BACKLOG: i32 = 4096;
/// How long accepting rests when the system has nothing left for a connection.
const REST: Duration = Duration::from_millis(100);

/// Connections that nobody heard, which wait to be written down, at most.
const UNHEARD: usize = 64;
/// How long one waits for it.
const WRITTEN: Duration = Duration::from_secs(1);

/// How often it's looked whether the wire is closed, where nobody says so: another run
/// may have paused the name that they share.
const LOOK: Duration = Duration::from_millis(500);
/// How long what was found by itself answers whoever asks.
const JUST_NOW: Duration = Duration::from_secs(1);

/// A socket, made in the sandbox's network namespace.
#[derive(Debug)]
pub struct Listener {
    /// Bound there; of UDP for [`Serves::NamesByUdp`], else of TCP and listening.
    pub socket: OwnedFd,
    /// What answers on it.
    pub serves: Serves,
}

/// What answers on a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Serves {
    /// The proxy.
    Proxy,
    /// This port of this machine's loopback.
    Port(u16),
    /// The endpoints of this port, told apart by the address dialled.
    Endpoints {
        /// The port.
        port: u16,
        /// Whether 127.0.0.1 is the same port of this machine's loopback.
        own: bool,
    },
    /// The names of the endpoints, by UDP.
    NamesByUdp,
    /// The names of the endpoints, by TCP.
    NamesByTcp,
}

/// A running wire. It stops when this is dropped.
#[derive(Debug)]
pub struct Wire {
    serving: Serving,
    /// Until the last of its calls is over.
    _watching: Serving,
    gate: Arc<Gate>,
    traffic: Arc<Traffic>,
    closings: mpsc::Receiver<Closing>,
    has_closed: Arc<OwnedFd>,
    unheard: Unheard,
}

/// Tells a wire of connections inside where nobody listens. It says of those that would
/// be a call to a host what would open it, in the log and at the end of the run.
#[derive(Clone, Debug)]
pub struct Unheard(tokio::sync::mpsc::Sender<(SocketAddr, mpsc::SyncSender<()>)>);

impl Unheard {
    /// That an address and port were connected to in vain. It waits until that is
    /// written down, a second at most; with many at a time, some aren't.
    pub fn tell(&self, to: SocketAddr) {
        let (written, is_written) = mpsc::sync_channel(1);
        if self.0.try_send((to, written)).is_ok() {
            // Who told it goes on, whatever became of it.
            let _ = is_written.recv_timeout(WRITTEN);
        }
    }
}

/// A thread of a wire. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Serving {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Wire {
    /// Serves a sandbox's listeners on a thread of its own, with its log, its control
    /// socket and what closes it in `settings`, the folder `~/.config/lnk/sandbox`. What
    /// closes it is looked at on another thread, which the calls can't keep busy.
    ///
    /// The process's soft limit of descriptors is raised to the hard one. Programs
    /// started later inherit that, and some don't take it well (`select`): start the
    /// sandbox's first process before.
    ///
    /// # Errors
    /// A listener, the log, the control socket or a thread can't be made;
    /// `AddrInUse` where one of this name and this process's number runs already.
    pub fn start(
        listeners: Vec<Listener>,
        policy: Policy,
        whose: Whose,
        settings: &Path,
    ) -> io::Result<Wire> {
        raise_descriptors();
        let traffic = Arc::new(Traffic::start());
        let log = Log::open(settings, whose.sandbox.clone(), Arc::clone(&traffic));
        let log = log.map_err(on(settings.join(FILE)))?;
        let control = control::Listener::bind(settings, &whose.sandbox.name);
        let control = control.and_then(|control| {
            control.belongs_to(&whose.lasting, whose.sandbox.spec.as_deref())?;
            Ok(control)
        });
        let control = control.map_err(on(settings.join(control::FOLDER)))?;
        // After the socket is there: what changes from now on is said at it.
        let state = State::open(settings).map_err(on(settings.to_owned()))?;
        state.reserve();
        if let Lasting::Run(_) = whose.lasting {
            // Of an earlier one with the number, which was killed. Where that fails, the
            // wire can't tell whether it's closed.
            let _ = state.resume(&whose.lasting);
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let has_closed = Arc::new(eventfd(0, flags)?);
        let (closings, heard) = mpsc::channel();
        let wake = Arc::clone(&has_closed);
        let on_closed = move |closing| {
            // Whoever doesn't hear it any more is at its end.
            let _ = closings.send(closing);
            let _ = rustix::io::write(&wake, &1u64.to_ne_bytes());
        };
        let rate =
            policy.internet.per_minute.map(|most| Minute::new(settings, &whose.lasting, most));
        let rate = rate.transpose().map_err(on(settings.to_owned()))?;
        let gate = Arc::new(Gate::new(whose, Some(state), Box::new(on_closed)));
        gate.look(None);
        let watching = Serving::watch(control, Arc::clone(&gate), Arc::clone(&traffic))?;
        let (counted, its) = (Arc::clone(&traffic), Arc::clone(&gate));
        let (tell, told) = tokio::sync::mpsc::channel(UNHEARD);
        let calls = move || {
            let calls = Rc::new(judged_calls(policy, log, counted, its, rate));
            spawn_local(refuse_unheard(told, Rc::clone(&calls)));
            calls
        };
        let serving = Serving::start(listeners, calls)?;
        let unheard = Unheard(tell);
        Ok(Wire {
            serving,
            _watching: watching,
            gate,
            traffic,
            closings: heard,
            has_closed,
            unheard,
        })
    }

    /// What it has carried so far.
    #[must_use]
    pub fn carried(&self) -> Carried {
        self.traffic.carried()
    }

    /// What it has refused so far.
    #[must_use]
    pub fn refused(&self) -> ToldCalls {
        self.traffic.refusals.calls()
    }

    /// Refused calls that count towards a pause of its spec and couldn't be kept for its
    /// next run, although it was tried once more.
    #[must_use]
    pub fn uncounted(&self) -> usize {
        self.gate.uncounted()
    }

    /// Calls of endpoints, and look-ups for them, that came to nothing so far.
    #[must_use]
    pub fn failed(&self) -> ToldCalls {
        self.traffic.failures.calls()
    }

    /// What tells it of connections that nobody inside heard.
    #[must_use]
    pub fn unheard(&self) -> Unheard {
        self.unheard.clone()
    }

    /// Is readable when it was closed: see [`Wire::next_closing`].
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.has_closed.as_fd()
    }

    /// A closing that wasn't heard of yet, the first first: one from its start is there
    /// at once.
    #[must_use]
    pub fn next_closing(&self) -> Option<Closing> {
        let closing = self.closings.try_recv().ok();
        if closing.is_none() {
            // Only so is it silent again.
            let _ = rustix::io::read(&self.has_closed, &mut [0; 8]);
            // One that came in between.
            return self.closings.try_recv().ok();
        }
        closing
    }

    /// Stops it: every open call ends, its end is in the log, and the listeners are
    /// closed when this returns.
    pub fn stop(self) {
        self.serving.stop();
    }
}

impl Serving {
    /// Serves listeners with calls that are made on the wire's own thread.
    pub fn start(
        listeners: Vec<Listener>,
        calls: impl FnOnce() -> Rc<Calls> + Send + 'static,
    ) -> io::Result<Serving> {
        let runtime = runtime()?;
        let listeners = {
            let _entered = runtime.enter();
            listeners.into_iter().map(ready).collect::<io::Result<Vec<_>>>()?
        };
        Serving::on("lnk-wire", runtime, async |stopped| {
            let calls = calls();
            serve(listeners, &calls);
            let _ = stopped.await;
            calls.log_closings();
        })
    }

    /// Answers at a control socket, and looks whether the wire is closed.
    pub fn watch(
        control: control::Listener,
        gate: Arc<Gate>,
        traffic: Arc<Traffic>,
    ) -> io::Result<Serving> {
        Serving::on("lnk-gate", runtime()?, async |stopped| {
            let watch = Rc::new(Watch { gate, traffic, found: Cell::new(None) });
            let asked = Rc::clone(&watch);
            // Where it can't be served, nobody can ask; the wire does its work.
            spawn_local(control::serve(control, move |question| asked.answer(question)));
            spawn_local(async move { watch.look_on().await });
            let _ = stopped.await;
        })
    }

    /// Serves on a thread of its own until it's `stopped`, which is said by an end: then
    /// every local task ends where it stands.
    fn on(
        name: &str,
        runtime: Runtime,
        serve: impl AsyncFnOnce(oneshot::Receiver<()>) + Send + 'static,
    ) -> io::Result<Serving> {
        let (stop, stopped) = oneshot::channel();
        let serve = move || LocalSet::new().block_on(&runtime, serve(stopped));
        let thread = thread::Builder::new().name(name.to_owned()).spawn(serve)?;
        Ok(Serving { stop: Some(stop), thread: Some(thread) })
    }

    /// Stops it: every open call ends, its end is in the log, and the listeners are
    /// closed when this returns.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic there ended the wire already, which is what is wanted here.
            let _ = thread.join();
        }
    }
}

/// Says what of Link's settings couldn't be used.
fn on(path: PathBuf) -> impl FnOnce(io::Error) -> io::Error {
    move |error| {
        let advice = match error.kind() {
            io::ErrorKind::PermissionDenied => "; it must be yours to write",
            _ => "",
        };
        let line = format!("{}: {}{advice}", word(&path), reason(&error));
        io::Error::new(error.kind(), line)
    }
}

pub(crate) fn raise_descriptors() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // The lower limit serves as well, with fewer connections at a time.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// A socket that is served.
enum Ready {
    Tcp(TcpListener, Serves),
    Udp(UdpSocket),
}

fn ready(Listener { socket, serves }: Listener) -> io::Result<Ready> {
    rustix::io::ioctl_fionbio(&socket, true)?;
    if serves == Serves::NamesByUdp {
        return Ok(Ready::Udp(UdpSocket::from_std(socket.into())?));
    }
    rustix::net::listen(&socket, BACKLOG)?;
    // What is accepted has it too (tcp(7)).
    rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
    Ok(Ready::Tcp(TcpListener::from_std(socket.into())?, serves))
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_io().enable_time().build()
}

/// Serves on the runtime's thread, by local tasks.
fn serve(listeners: Vec<Ready>, calls: &Rc<Calls>) {
    let room = Rc::new(Room::default());
    let (written, said, counted) = (Rc::clone(calls), Rc::clone(calls), Rc::clone(calls));
    spawn_local(async move { written.log.write_on().await });
    spawn_local(async move { said.log_closings_on().await });
    spawn_local(count_on(counted));
    for listener in listeners {
        let calls = Rc::clone(calls);
        match listener {
            Ready::Tcp(listener, serves) => {
                spawn_local(accept(listener, serves, calls, Rc::clone(&room)))
            }
            Ready::Udp(socket) => spawn_local(dns::serve_by_udp(socket, calls)),
        };
    }
}

/// Counts refused calls that couldn't be counted before, until the wire ends.
async fn count_on(calls: Rc<Calls>) {
    loop {
        tokio::time::sleep(LOOK).await;
        calls.gate.count();
        calls.log_closings();
    }
}

/// The calls of the product: by the policy and rate, to what the dialler reaches.
/// Where the calls of a minute are counted.
enum Minute {
    /// For a run that is one by itself.
    Own(PerMinute, RefCell<Rate>),
    /// For all runs of a name.
    Shared(PerMinute, Shared),
}

impl Minute {
    fn new(settings: &Path, whose: &Lasting, most: PerMinute) -> io::Result<Minute> {
        match whose {
            Lasting::Run(_) => Ok(Minute::Own(most, RefCell::new(Rate::new(most)))),
            Lasting::Name(_) | Lasting::Spec(_) => {
                Ok(Minute::Shared(most, Shared::open(settings, whose, most)?))
            }
        }
    }

    fn admit(&self) -> Result<(), Answer> {
        let (most, taken) = match self {
            Minute::Own(most, rate) => (most, Ok(rate.borrow_mut().take(Instant::now()))),
            Minute::Shared(most, shared) => (most, shared.take()),
        };
        let taken = taken.map_err(|error| {
            let why = reason(&error);
            Answer::new(503, format!("the calls of this minute can't be counted: {why}"))
        })?;
        taken.map_err(|after| {
            let reason = format!(
                "{} calls a minute are let through and were made: ask again in {} s",
                most.get(),
                after.0
            );
            Answer { retry_after: Some(after.0), ..Answer::new(429, reason) }
        })
    }
}

fn judged_calls(
    policy: Policy,
    log: Log,
    traffic: Arc<Traffic>,
    gate: Arc<Gate>,
    rate: Option<Minute>,
) -> Calls {
    let dialer = Rc::new(Dialer::new(policy.internet.way_out(), Arc::clone(&gate.connections)));
    let endpoints = Endpoints::new(policy.clone());
    let routes = Rc::clone(&dialer);
    let judge = move |target: &Target, asked: Asked| {
        let refused = |refusal| forbidden(routes.retold(target, refusal));
        policy.judge(target, asked).map_err(refused)
    };
    let admit = move || rate.as_ref().map_or(Ok(()), Minute::admit);
    let dial = move |target: Target, reach: Reach| -> Dialing {
        let dialer = Rc::clone(&dialer);
        Box::pin(async move {
            let connected = dialer.connect(&target, &reach).await;
            connected.map(|connected| connected.stream).map_err(undialled)
        })
    };
    let (judge, admit, dial) = (Box::new(judge), Box::new(admit), Box::new(dial));
    Calls { judge, admit, dial, log, traffic, endpoints, gate }
}

/// Watches over a wire's gate, on a thread that nothing of its calls keeps busy.
struct Watch {
    gate: Arc<Gate>,
    traffic: Arc<Traffic>,
    /// What was found by itself, and when, in case somebody just then asks for it.
    found: Cell<Option<(Instant, Looked)>>,
}

impl Watch {
    /// Answers what is asked at the control socket.
    fn answer(&self, question: control::Request) -> control::Answer {
        match question {
            control::Request::Status => control::Answer::Status(self.status()),
            control::Request::Look { told } => control::Answer::Looked(self.look_for(told)),
        }
    }

    fn status(&self) -> Status {
        let whose = self.gate.whose();
        Status {
            name: whose.sandbox.name.clone(),
            pid: std::process::id(),
            spec: whose.sandbox.spec.clone(),
            lasting: Some(whose.lasting.clone()),
            closed: self.gate.refusal(),
            traffic: self.traffic.carried(),
        }
    }

    /// Looks for somebody who changed it a moment ago.
    fn look_for(&self, told: Option<Change>) -> Looked {
        let looked = self.gate.look(told);
        let found = self.found.take().filter(|(at, _)| at.elapsed() < JUST_NOW);
        found.filter(|_| !looked.changed).map_or(looked, |(_, found)| found)
    }

    /// Looks by itself, until the wire ends.
    async fn look_on(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            let looked = self.gate.look(None);
            if looked.changed {
                self.found.set(Some((Instant::now(), looked)));
            }
        }
    }
}

/// Refuses what nobody inside heard, until the wire ends.
async fn refuse_unheard(
    mut told: tokio::sync::mpsc::Receiver<(SocketAddr, mpsc::SyncSender<()>)>,
    calls: Rc<Calls>,
) {
    while let Some((to, written)) = told.recv().await {
        endpoints::refuse_unheard(to, &calls);
        let _ = written.send(());
    }
}

fn forbidden(refusal: Refusal) -> Answer {
    Answer { metadata: refusal.metadata, ..Answer::new(403, refusal.reason) }
}

fn undialled(error: DialError) -> Answer {
    let status = match error {
        DialError::Refused(refusal) => return forbidden(refusal),
        DialError::TooManyFiles | DialError::Busy => 503,
        DialError::TimedOut | DialError::NoAnswer => 504,
        _ => 502,
    };
    Answer::new(status, error.to_string())
}

/// Accepts connections until the wire stops.
async fn accept(listener: TcpListener, serves: Serves, calls: Rc<Calls>, room: Rc<Room>) {
    let mut spare = Spare::new();
    loop {
        match listener.accept().await {
            Ok((client, _)) => match room.enter() {
                Some(place) => {
                    let (calls, room) = (Rc::clone(&calls), Rc::clone(&room));
                    spawn_local(serve_one(client, serves, calls, room, place));
                }
                None => {
                    room.say(&calls.log, "too many connections are open at a time");
                    turn_away(client, serves).await;
                }
            },
            Err(error) if is_short(&error) => {
                let reason = "no descriptor is left: raise the limit of open files (ulimit -n)";
                room.say(&calls.log, reason);
                spare.turn_away(&listener, serves).await;
            }
            // The client has left already (accept(2)).
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(_) => tokio::time::sleep(REST).await,
        }
    }
}

async fn serve_one(
    client: TcpStream,
    serves: Serves,
    calls: Rc<Calls>,
    room: Rc<Room>,
    _place: Held,
) {
    // What comes after a closing is refused call by call.
    let closing = calls.gate.closings().next();
    match serves {
        Serves::Proxy => until(closing, http::serve(client, &calls, &room)).await,
        Serves::Port(port) => until(closing, port::serve(client, port, &calls, &room)).await,
        Serves::Endpoints { port, own } => {
            until(closing, endpoints::serve(client, port, own, &calls, &room)).await
        }
        Serves::NamesByUdp | Serves::NamesByTcp => {
            until(closing, dns::serve_by_tcp(client, &calls, &room)).await
        }
    };
}

/// Whether this process, or the system, has no descriptor left.
fn is_short(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// A descriptor that is given up to tell a client that there is none.
struct Spare {
    file: Option<File>,
}

impl Spare {
    fn new() -> Spare {
        Spare { file: File::open("/dev/null").ok() }
    }

    /// Takes one waiting connection and ends it, so that it neither hangs nor makes
    /// the accepting spin.
    async fn turn_away(&mut self, listener: &TcpListener, serves: Serves) {
        self.file = None;
        let taken = tokio::time::timeout(REST, listener.accept()).await;
        if let Ok(Ok((client, _))) = taken {
            turn_away(client, serves).await;
        } else {
            tokio::time::sleep(REST).await;
        }
        self.file = File::open("/dev/null").ok();
    }
}

async fn turn_away(client: TcpStream, serves: Serves) {
    if serves == Serves::Proxy {
        let answer = head::answer(503, "too many connections are open", None);
        // What was sent is read before, or the kernel takes the answer back.
        let _ = tokio::time::timeout(REST, client.readable()).await;
        let _ = client.try_read(&mut [0; 4096]);
        let _ = client.try_write(&answer);
    } else {
        let _ = client.set_zero_linger();
    }
}
