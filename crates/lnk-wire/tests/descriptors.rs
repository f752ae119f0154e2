//! What a wire does when descriptors run out. The limit is the whole process's, so
//! this stands alone.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use lnk_wire::gate::Whose;
use lnk_wire::log::{FILE, Line, Sandbox, What};
use lnk_wire::paused::Lasting;
use lnk_wire::policy::Policy;
use lnk_wire::wire::{Listener, Serves, Wire};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What the wire gets for itself and for connections.
const ROOM: u64 = 30;
const CLIENTS: usize = 60;

#[test]
fn without_descriptors_clients_get_503_and_with_some_again_they_are_served() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut clients: Vec<TcpStream> =
        (0..CLIENTS).map(|_| TcpStream::connect(address).unwrap()).collect();
    let settings = tempfile::tempdir().unwrap();
    let open = fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let least = Rlimit { current: Some(open), maximum: Some(open + ROOM) };
    setrlimit(Resource::Nofile, least).unwrap();
    let wire = Wire::start(
        vec![Listener { socket: listener.into(), serves: Serves::Proxy }],
        Policy::default(),
        Whose {
            sandbox: Sandbox { name: "run-1".into(), spec: None, spec_path: None },
            lasting: Lasting::Run("run-1".into()),
            pauses_itself: true,
        },
        settings.path(),
    )
    .unwrap();
    assert_eq!(getrlimit(Resource::Nofile).current, Some(open + ROOM));

    let mut last = clients.pop().unwrap();
    assert!(ask(&mut last).starts_with("HTTP/1.1 503 "));
    let mut served = clients.drain(..1).next().unwrap();
    assert!(ask(&mut served).starts_with("HTTP/1.1 403 "));

    drop(clients);
    let served_again =
        |_| ask(&mut TcpStream::connect(address).unwrap()).starts_with("HTTP/1.1 403 ");
    assert!((0..50).any(served_again));
    wire.stop();
    let log = fs::read(settings.path().join(FILE)).unwrap();
    let short = log.split(|byte| *byte == b'\n').filter_map(Line::parse).filter(
        |line| matches!(&line.what, What::Failed { reason, .. } if reason.contains("descriptor")),
    );
    assert!((1..10).contains(&short.count()), "said, and not for each");
}

fn ask(client: &mut TcpStream) -> String {
    client.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out above 0");
    // One that was turned away already takes no more.
    let _ = client.write_all(b"GET http://one.test/ HTTP/1.1\r\nHost: one.test\r\n\r\n");
    let mut answer = String::new();
    let _ = client.read_to_string(&mut answer);
    answer
}
