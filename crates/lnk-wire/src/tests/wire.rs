//! The wire as a whole: its end, and many connections.

use std::time::Instant;

use rustix::process::{Resource, getrlimit};

use super::*;
use crate::paused::State;

/// Accepts and holds connections until dropped.
fn holding() -> (SocketAddr, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    (listener.local_addr().unwrap(), listener)
}

#[test]
fn a_stop_ends_open_calls_within_a_second_and_frees_the_listener() {
    let (one, listener) = holding();
    let proxy = Proxy::to(&[("one.test:1", one), ("one.test:80", one)]);
    let mut tunnel = proxy.client();
    tunnel.send("CONNECT one.test:1 HTTP/1.1\r\n\r\nabc");
    tunnel.head();
    let mut in_tunnel = Client(listener.accept().unwrap().0);
    assert_eq!(in_tunnel.bytes(3), b"abc");
    let mut request = proxy.client();
    request.send("GET http://one.test/ HTTP/1.1\r\nHost: one.test\r\n\r\n");
    let mut asked = Client(listener.accept().unwrap().0);
    asked.head();
    let mut silent = proxy.client();
    silent.send("GET");
    let address = proxy.address;
    let before = Instant::now();
    let (log, _) = proxy.end();
    assert!(before.elapsed() < Duration::from_secs(1));
    for client in [&mut tunnel, &mut request, &mut silent, &mut in_tunnel, &mut asked] {
        assert_eq!(client.rest_bytes().0, b"");
    }
    assert!(log.contains(&"tcp one.test:1 ended 3 0".to_owned()), "{log:?}");
    assert_eq!(log.iter().filter(|line| line.contains("http one.test:80 ended")).count(), 1);
    TcpListener::bind(address).unwrap();
}

#[test]
fn idle_tunnels_leave_others_alone() {
    let (one, listener) = holding();
    let proxy = Proxy::to(&[("one.test:1", one)]);
    // Both ends of both connections are this process's.
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let tunnels = usize::try_from(descriptors / 5).unwrap_or(usize::MAX).min(10_000);
    assert!(tunnels > 100, "{tunnels}");
    let mut held = Vec::new();
    for _ in 0..tunnels {
        let mut client = proxy.client();
        client.send("CONNECT one.test:1 HTTP/1.1\r\n\r\n");
        client.head();
        held.push((client, listener.accept().unwrap().0));
    }
    for (client, origin) in held.iter_mut().rev().take(3) {
        client.send("ping");
        let mut origin = Client(origin.try_clone().unwrap());
        assert_eq!(origin.bytes(4), b"ping");
    }
    drop(held);
    let (log, carried) = proxy.end();
    assert_eq!(carried.allowed, tunnels as u64);
    assert_eq!(log.iter().filter(|line| line.contains("ended")).count(), tunnels);
}

#[test]
fn what_cant_be_written_down_isnt_let_through() {
    let (http, http_heard) = origin(|mut client| client.rest());
    let (tcp, tcp_heard) = origin(|mut client| client.rest());
    let proxy = Proxy::to(&[("one.test:80", http), ("one.test:7000", tcp)]);
    let log = proxy.folder.path().join(FILE);
    std::fs::remove_file(&log).unwrap();
    std::fs::create_dir(&log).unwrap();
    let answer = proxy.answer("GET http://one.test/ HTTP/1.1\r\nHost: one.test\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("X-Link-Reason: the log of calls can't be written: "), "{answer}");
    let mut client = proxy.client();
    client.send("CONNECT one.test:7000 HTTP/1.1\r\nHost: one.test:7000\r\n\r\n");
    client.head();
    assert_eq!(client.rest_bytes(), (Vec::new(), true));
    assert_eq!(
        (http_heard.join().unwrap(), tcp_heard.join().unwrap()),
        (String::new(), String::new())
    );
    let carried = proxy.traffic.carried();
    assert_eq!((carried.allowed, carried.up), (0, 0));
    assert_eq!(carried.unlogged, 2);
}

/// A wire on whose disk a test says what is closed.
fn kept(targets: &[(&str, SocketAddr)]) -> (Proxy, State) {
    let settings = tempfile::tempdir().unwrap();
    let state = State::open(settings.path()).unwrap();
    let targets = targets.iter().map(|(target, to)| ((*target).to_owned(), *to)).collect();
    let proxy = Proxy::with_calls(Serves::Proxy, move |log, traffic| {
        let whose = Whose {
            sandbox: Sandbox { name: "run-1".into(), spec: None, spec_path: None },
            lasting: Lasting::Run("run-1".into()),
            pauses_itself: true,
        };
        let gate = Gate::new(whose, Some(State::open(settings.path()).unwrap()), None);
        let calls = Calls { gate, ..listed_calls(targets, false, log, traffic) };
        // As long as the wire runs.
        Calls { on_closed: Box::new(move |_| _ = settings.path()), ..calls }
    });
    (proxy, state)
}

#[test]
fn a_closing_cuts_calls_off_without_what_was_on_its_way_and_refuses_until_it_opens() {
    let (one, listener) = holding();
    let (proxy, state) = kept(&[("one.test:1", one), ("one.test:80", one)]);
    let mut tunnel = proxy.client();
    tunnel.send("CONNECT one.test:1 HTTP/1.1\r\n\r\n");
    tunnel.head();
    let mut origin = Client(listener.accept().unwrap().0);
    // More than the kernels take for one that doesn't read.
    tunnel.0.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut sent = 0;
    while let Ok(bytes) = tunnel.0.write(&[0; 65536]) {
        sent += bytes;
    }
    state.stop().unwrap();
    let (read, is_reset) = tunnel.rest_bytes();
    assert!(read.is_empty() && is_reset);
    let (read, is_reset) = origin.rest_bytes();
    assert!(is_reset && read.len() < sent, "{} of {sent}", read.len());

    let refused = proxy.answer("CONNECT one.test:1 HTTP/1.1\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
    assert!(refused.contains("X-Link-Reason: every sandbox's wire is stopped: "), "{refused}");
    assert!(proxy.answer("rubbish\r\n\r\n").starts_with("HTTP/1.1 403 "));
    state.start().unwrap();
    let mut open = proxy.client();
    while {
        open.send("CONNECT one.test:1 HTTP/1.1\r\n\r\n");
        !open.head().starts_with("HTTP/1.1 200 ")
    } {
        open = proxy.client();
    }
    let (log, _) = proxy.end();
    let of = |text: &str| log.iter().filter(|line| line.contains(text)).count();
    assert_eq!((of("tcp one.test:1 allowed"), of("tcp one.test:1 ended")), (2, 2), "{log:?}");
    assert_eq!(of("pause - refused"), 1, "{log:?}");
}

#[test]
fn a_call_that_is_being_dialled_is_refused_where_the_wire_closes() {
    let settings = tempfile::tempdir().unwrap();
    let state = State::open(settings.path()).unwrap();
    let folder = settings.path().to_owned();
    let proxy = Proxy::with_calls(Serves::Proxy, move |log, traffic| {
        let whose = Whose {
            sandbox: Sandbox { name: "run-1".into(), spec: None, spec_path: None },
            lasting: Lasting::Run("run-1".into()),
            pauses_itself: true,
        };
        let gate = Gate::new(whose, Some(State::open(&folder).unwrap()), None);
        let listed = HashMap::from([("one.test:1".to_owned(), UNSPECIFIED)]);
        let dial = |_, _| -> crate::calls::Dialing { Box::pin(std::future::pending()) };
        Calls { dial: Box::new(dial), gate, ..listed_calls(listed, false, log, traffic) }
    });
    let mut client = proxy.client();
    client.send("CONNECT one.test:1 HTTP/1.1\r\n\r\n");
    // It's being dialled once another one, asked for later, is refused.
    assert!(proxy.answer("CONNECT two.test:1 HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 403 "));
    state.stop().unwrap();
    assert!(client.rest().starts_with("HTTP/1.1 403 "));
    let (log, _) = proxy.end();
    assert!(log.contains(&"tcp one.test:1 refused".to_owned()), "{log:?}");
}
