//! A wire on loopback, below the classification of addresses: its calls are judged
//! by a list of targets, and dialled where a test's own origins listen.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tempfile::TempDir;

use crate::calls::{Answer, Calls};
use crate::endpoints::Endpoints;
use crate::gate::{Gate, Whose};
use crate::log::{FILE, Line, Log, Moved, Sandbox, What};
use crate::paused::{Lasting, State};
use crate::policy::{Asked, Policy, Reach, Target};
use crate::traffic::{Carried, Traffic};
use crate::wire::{Listener, Serves, Serving, raise_descriptors};

mod connect;
mod http;
mod port;
mod room;
mod wire;

/// Where nothing is connected to.
const UNSPECIFIED: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

struct Proxy {
    wire: Serving,
    traffic: Arc<Traffic>,
    address: SocketAddr,
    folder: TempDir,
}

impl Proxy {
    /// Whose calls reach these targets, and are refused for any other.
    fn to(targets: &[(&str, SocketAddr)]) -> Proxy {
        Proxy::start(targets, false, Serves::Proxy)
    }

    /// The same, where CONNECT must begin with a TLS hello.
    fn tls_only(targets: &[(&str, SocketAddr)]) -> Proxy {
        Proxy::start(targets, true, Serves::Proxy)
    }

    /// Whose targets never answer.
    fn to_silent(targets: &[&str]) -> Proxy {
        let targets: Vec<String> = targets.iter().map(|target| (*target).to_owned()).collect();
        Proxy::with_calls(Serves::Proxy, move |log, traffic| {
            let listed = targets.into_iter().map(|target| (target, UNSPECIFIED)).collect();
            let dial = |_, _| -> crate::calls::Dialing { Box::pin(std::future::pending()) };
            Calls { dial: Box::new(dial), ..listed_calls(listed, false, log, traffic, gate(None)) }
        })
    }

    fn start(targets: &[(&str, SocketAddr)], tls_only: bool, serves: Serves) -> Proxy {
        let targets: HashMap<String, SocketAddr> =
            targets.iter().map(|(target, address)| ((*target).to_owned(), *address)).collect();
        Proxy::with_calls(serves, move |log, traffic| {
            listed_calls(targets, tls_only, log, traffic, gate(None))
        })
    }

    fn with_calls(
        serves: Serves,
        calls: impl FnOnce(Log, Arc<Traffic>) -> Calls + Send + 'static,
    ) -> Proxy {
        raise_descriptors();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let traffic = Arc::new(Traffic::start());
        let sandbox = Sandbox { name: "run-1".into(), spec: None, spec_path: None };
        let log = Log::open(folder.path(), sandbox, Arc::clone(&traffic)).unwrap();
        let counted = Arc::clone(&traffic);
        let calls = move || Rc::new(calls(log, counted));
        let listeners = vec![Listener { socket: socket.into(), serves }];
        let wire = Serving::start(listeners, calls).unwrap();
        Proxy { wire, traffic, address, folder }
    }

    fn client(&self) -> Client {
        Client::to(self.address)
    }

    /// All that comes back to what is sent, until the proxy ends the connection.
    fn answer(&self, sent: impl AsRef<[u8]>) -> String {
        let mut client = self.client();
        client.send(sent);
        client.rest()
    }

    /// Stops the wire: what happened, with the target of each, and what was carried.
    fn end(self) -> (Vec<String>, Carried) {
        self.wire.stop();
        let carried = self.traffic.carried();
        let log = std::fs::read(self.folder.path().join(FILE)).unwrap_or_default();
        let lines = log.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        (lines.map(|line| shown(&Line::parse(line).expect("a whole line"))).collect(), carried)
    }
}

fn shown(line: &Line) -> String {
    let what = match &line.what {
        What::Allowed => "allowed".to_owned(),
        What::Ended(Moved { up, down, .. }) => format!("ended {up} {down}"),
        What::Refused { .. } => "refused".to_owned(),
        What::Failed { carried: None, .. } => "failed".to_owned(),
        What::Failed { carried: Some(Moved { up, down, .. }), .. } => format!("failed {up} {down}"),
    };
    let host = line.host.as_deref().unwrap_or("-");
    let port = line.port.map(|port| format!(":{port}")).unwrap_or_default();
    format!("{} {host}{port} {what}", line.verb.as_str())
}

/// A wire's gate, by what is kept.
fn gate(state: Option<State>) -> Arc<Gate> {
    let sandbox = Sandbox { name: "run-1".into(), spec: None, spec_path: None };
    let whose = Whose { sandbox, lasting: Lasting::Run("run-1".into()), pauses_itself: true };
    Arc::new(Gate::new(whose, state, Box::new(|_| {})))
}

fn listed_calls(
    targets: HashMap<String, SocketAddr>,
    tls_only: bool,
    log: Log,
    traffic: Arc<Traffic>,
    gate: Arc<Gate>,
) -> Calls {
    let listed = targets.clone();
    let judge = move |target: &Target, _: Asked| match listed.contains_key(&target.to_string()) {
        true => Ok(Reach { internet: true, lan: Vec::new(), tls_only }),
        false => Err(Answer::new(403, "not listed")),
    };
    let connections = Arc::clone(&gate.connections);
    let dial = move |target: Target, _| -> crate::calls::Dialing {
        let (address, connections) = (targets[&target.to_string()], Arc::clone(&connections));
        Box::pin(async move {
            let connected = connections.connect(address).await;
            connected.map_err(|error| Answer::new(502, error.to_string()))
        })
    };
    let endpoints = Endpoints::new(Policy::default());
    Calls {
        judge: Box::new(judge),
        admit: Box::new(|| Ok(())),
        dial: Box::new(dial),
        log,
        traffic,
        endpoints,
        gate,
    }
}

/// A connection whose reads don't wait for ever.
struct Client(TcpStream);

impl Client {
    fn to(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(stream)
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).unwrap();
    }

    fn half_close(&self) {
        self.0.shutdown(std::net::Shutdown::Write).unwrap();
    }

    /// Reads up to and with a text.
    fn until(&mut self, end: &str) -> String {
        let mut read = Vec::new();
        while !read.ends_with(end.as_bytes()) {
            let mut byte = [0];
            match self.0.read(&mut byte).unwrap() {
                0 => panic!("ended after {:?}", String::from_utf8_lossy(&read)),
                _ => read.push(byte[0]),
            }
        }
        String::from_utf8_lossy(&read).into_owned()
    }

    fn head(&mut self) -> String {
        self.until("\r\n\r\n")
    }

    /// Reads so many bytes.
    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut read = vec![0; length];
        self.0.read_exact(&mut read).unwrap();
        read
    }

    /// Reads until the end.
    fn rest(&mut self) -> String {
        String::from_utf8_lossy(&self.rest_bytes().0).into_owned()
    }

    /// Reads until the end, and whether that was a reset.
    fn rest_bytes(&mut self) -> (Vec<u8>, bool) {
        let mut read = Vec::new();
        match self.0.read_to_end(&mut read) {
            Ok(_) => (read, false),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => (read, true),
            Err(error) => panic!("{error} after {} bytes", read.len()),
        }
    }
}

/// Serves one connection, and is gone. What it made of it is the thread's.
fn origin<T: Send + 'static>(
    serve: impl FnOnce(Client) -> T + Send + 'static,
) -> (SocketAddr, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        drop(listener);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        serve(Client(stream))
    });
    (address, thread)
}

/// An address that nobody may connect to.
fn untouched() -> (SocketAddr, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    (listener.local_addr().unwrap(), listener)
}

fn assert_untouched(listener: &TcpListener) {
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}
