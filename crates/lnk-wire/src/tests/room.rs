//! What one wire holds for all of its connections together.

use std::time::Instant;

use super::*;
use crate::hello::tests::hello;

/// Bytes that are unfinished at a time, at most, and of one connection.
const ALL: usize = 16 << 20;
const ONE: usize = 48 * 1024;
/// Enough for more than all; each takes no more than twice what was sent.
const MANY: usize = ALL / ONE * 3 / 2;

/// Has many connections begin something: those that are left waiting once there are
/// no more than there may be.
fn left_waiting(proxy: &Proxy, begin: impl Fn(&mut Client)) -> Vec<Client> {
    let mut waiting = Vec::new();
    for _ in 0..MANY {
        let mut client = proxy.client();
        begin(&mut client);
        client.0.set_nonblocking(true).unwrap();
        waiting.push(client);
    }
    let deadline = Instant::now() + PATIENCE;
    while waiting.len() > ALL / ONE {
        assert!(Instant::now() < deadline, "{} wait", waiting.len());
        waiting.retain_mut(|client| !is_ended(client));
    }
    whole_requests_are_served(proxy);
    waiting.retain_mut(|client| !is_ended(client));
    for client in &waiting {
        client.0.set_nonblocking(false).unwrap();
    }
    waiting
}

/// Whether the proxy ends the connection: an HTTP request's with 503.
fn is_ended(client: &mut Client) -> bool {
    let mut read = [0; 1024];
    match client.0.read(&mut read) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Err(_) | Ok(0) => true,
        Ok(length) => {
            let answer = String::from_utf8_lossy(&read[..length]);
            assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
            true
        }
    }
}

fn whole_requests_are_served(proxy: &Proxy) {
    for _ in 0..3 {
        let answer = proxy.answer("GET http://no.test/ HTTP/1.1\r\nHost: no.test\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    }
}

#[test]
fn unfinished_heads_take_so_much_and_whole_ones_are_served() {
    let proxy = Proxy::to(&[]);
    let unfinished = format!("GET http://no.test/ HTTP/1.1\r\nX: {}", "x".repeat(ONE));
    let waiting = left_waiting(&proxy, |client| client.send(&unfinished));
    assert!(waiting.len() > ALL / ONE / 3, "{} wait", waiting.len());
    for mut client in waiting {
        client.send("\r\nHost: no.test\r\n\r\n");
        assert!(client.head().starts_with("HTTP/1.1 403 "));
    }
    let (log, _) = proxy.end();
    let said = log.iter().filter(|line| *line == "unknown - failed").count();
    assert!((1..MANY / 10).contains(&said), "said {said} times");
}

#[test]
fn unfinished_hellos_take_so_much_and_are_let_go() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let proxy = Proxy::tls_only(&[("one.test:443", address)]);
    let mut long = hello(Some("one.test"), 1)[5..].to_vec();
    long[1..4].copy_from_slice(&[0, 0xff, 0]);
    long.resize(ONE, 0);
    let records = long.chunks(1 << 14).flat_map(|part| {
        let length = (part.len() as u16).to_be_bytes();
        [&[22, 3, 1], &length[..], part].concat()
    });
    let unfinished: Vec<u8> = records.collect();
    let accepting = thread::spawn(move || listener.incoming().take(MANY).collect::<Vec<_>>());
    let waiting = left_waiting(&proxy, |client| {
        client.send("CONNECT one.test:443 HTTP/1.1\r\n\r\n");
        client.head();
        client.send(&unfinished);
    });
    drop(accepting.join().unwrap());
    drop(waiting);
    let log = std::fs::read_to_string(proxy.folder.path().join(FILE)).unwrap();
    let refused = log.lines().filter(|line| line.contains("there is no room for its TLS hello"));
    assert!(refused.count() > MANY / 10);
}

#[test]
fn requests_that_wait_for_their_origin_take_so_much() {
    let proxy = Proxy::to_silent(&["slow.test:80"]);
    let whole = format!(
        "GET http://slow.test/ HTTP/1.1\r\nHost: slow.test\r\nX: {}\r\n\r\n",
        "x".repeat(ONE)
    );
    let waiting = left_waiting(&proxy, |client| client.send(&whole));
    assert!(waiting.len() > ALL / ONE / 3, "{} wait", waiting.len());
}

#[test]
fn a_tunnel_keeps_nothing_of_what_began_it() {
    // More of them than there is room for what each was begun with.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::to(&[("one.test:1", listener.local_addr().unwrap())]);
    let mut held = Vec::new();
    for _ in 0..MANY {
        let mut client = proxy.client();
        client.send(format!("CONNECT one.test:1 HTTP/1.1\r\nX: {}\r\n\r\nearly", "x".repeat(ONE)));
        client.head();
        let mut origin = Client(listener.accept().unwrap().0);
        assert_eq!(origin.bytes(5), b"early");
        held.push((client, origin));
    }
}
