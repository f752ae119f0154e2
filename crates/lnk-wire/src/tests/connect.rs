//! Tunnels through the proxy, on raw sockets.

use super::*;
use crate::hello::tests::hello;

fn connect(authority: &str) -> String {
    format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n")
}

const MIB: usize = 1 << 20;

#[test]
fn a_client_that_half_closes_gets_the_rest() {
    let (one, heard) = origin(|mut client| {
        let sent = client.rest();
        client.send(vec![7; MIB]);
        sent
    });
    let proxy = Proxy::to(&[("one.test:7000", one)]);
    let mut client = proxy.client();
    client.send(connect("one.test:7000"));
    assert!(client.head().starts_with("HTTP/1.1 200 "));
    client.send("hi");
    client.half_close();
    assert!(client.rest_bytes() == (vec![7; MIB], false));
    assert_eq!(heard.join().unwrap(), "hi");
    let (log, carried) = proxy.end();
    assert_eq!(log, ["tcp one.test:7000 allowed", "tcp one.test:7000 ended 2 1048576"]);
    assert_eq!((carried.up, carried.down), (2, MIB as u64));
}

#[test]
fn a_client_goes_on_sending_to_an_origin_that_half_closed() {
    let (one, heard) = origin(|mut client| {
        client.send("bye");
        client.half_close();
        client.rest_bytes().0.len()
    });
    let proxy = Proxy::to(&[("one.test:443", one)]);
    let mut client = proxy.client();
    client.send(connect("one.test:443"));
    client.head();
    assert_eq!(client.rest(), "bye");
    client.send(vec![7; MIB]);
    client.half_close();
    assert_eq!(heard.join().unwrap(), MIB);
    assert_eq!(proxy.end().0[1], "connect one.test:443 ended 1048576 3");
}

#[test]
fn bytes_in_the_same_packet_as_connect_arrive() {
    let (one, heard) = origin(|mut client| {
        let read = client.bytes(5);
        client.send("ok");
        read
    });
    let proxy = Proxy::to(&[("one.test:22", one)]);
    let mut client = proxy.client();
    client.send(connect("One.Test.:22").replace("Host: One.Test.:22", "Host: one.test") + "early");
    client.head();
    assert_eq!(client.rest(), "ok");
    assert_eq!(heard.join().unwrap(), b"early");
}

#[test]
fn both_directions_at_once_and_much() {
    const MUCH: usize = 64 * MIB;
    let (one, heard) = origin(|mut client| {
        let mut sending = Client(client.0.try_clone().unwrap());
        let sender = thread::spawn(move || {
            sending.send(vec![1; MUCH]);
            sending.half_close();
        });
        let read = client.rest_bytes().0;
        sender.join().unwrap();
        read
    });
    let proxy = Proxy::to(&[("one.test:1", one)]);
    let mut client = proxy.client();
    client.send(connect("one.test:1"));
    client.head();
    let mut sending = Client(client.0.try_clone().unwrap());
    let sender = thread::spawn(move || {
        sending.send((0..MUCH).map(|at| (at % 251) as u8).collect::<Vec<_>>());
        sending.half_close();
    });
    assert!(client.rest_bytes() == (vec![1; MUCH], false));
    sender.join().unwrap();
    let read = heard.join().unwrap();
    assert_eq!(read.len(), MUCH);
    assert!(read.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8));
    assert_eq!(proxy.end().0[1], format!("tcp one.test:1 ended {MUCH} {MUCH}"));
}

#[test]
fn an_origins_reset_is_the_clients() {
    let (one, _) = origin(|mut client| {
        client.bytes(1);
        client.send("x");
        // Closed with a byte that wasn't read.
    });
    let proxy = Proxy::to(&[("one.test:1", one)]);
    let mut client = proxy.client();
    client.send(connect("one.test:1") + "ab");
    client.head();
    assert!(client.rest_bytes().1);
    assert_eq!(proxy.end().0[1], "tcp one.test:1 ended 2 1");
}

#[test]
fn what_isnt_a_host_and_port_is_400_and_what_isnt_listed_403() {
    let (one, listener) = untouched();
    let proxy = Proxy::to(&[("api.test:443", one)]);
    for (authority, status) in [
        ("api.test..:443", 400),
        ("[api.test]:443", 400),
        ("[[api.test]]:443", 400),
        ("api.test%00.x.test:443", 400),
        ("api.test\0.x.test:443", 400),
        ("user@api.test:443", 400),
        (":443", 400),
        ("api.test", 400),
        ("api.test:", 400),
        ("api.test:0", 400),
        ("api.test:65536", 400),
        ("api.test:+443", 400),
        ("api.test:0443", 400),
        ("api.test:443:443", 400),
        ("http://api.test:443", 400),
        ("/", 400),
        ("127.1:443", 400),
        ("notapi.test:443", 403),
        ("api.test.x.test:443", 403),
        ("api.test:22", 403),
    ] {
        let answer = proxy.answer(connect(authority));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{authority}: {answer}");
    }
    for headers in
        ["Host: two.test", "Host: api.test:80", "Content-Length: 1", "Transfer-Encoding: chunked"]
    {
        let answer = proxy.answer(format!("CONNECT api.test:443 HTTP/1.1\r\n{headers}\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{headers}: {answer}");
    }
    assert_untouched(&listener);
}

#[test]
fn a_hello_for_the_host_passes_whole_however_it_is_cut() {
    let hello = hello(Some("one.test"), 1);
    for cut in [1, 5, 6, 40, hello.len() - 1] {
        let length = hello.len();
        let (one, heard) = origin(move |mut client| client.bytes(length));
        let proxy = Proxy::tls_only(&[("one.test:443", one)]);
        let mut client = proxy.client();
        client.send([connect("one.test:443").as_bytes(), &hello[..cut]].concat());
        client.head();
        client.send(&hello[cut..]);
        assert_eq!(heard.join().unwrap(), hello);
    }
}

#[test]
fn without_a_hello_for_the_host_nothing_is_sent() {
    for first in [
        hello(Some("two.test"), 1),
        hello(None, 1),
        hello(Some("192.0.2.1"), 1),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(),
        vec![0x16, 3, 1, 0, 0],
    ] {
        let (one, heard) = origin(|mut client| client.rest_bytes().0);
        let proxy = Proxy::tls_only(&[("one.test:443", one)]);
        let mut client = proxy.client();
        client.send(connect("one.test:443"));
        assert!(client.head().starts_with("HTTP/1.1 200 "));
        client.send(&first);
        assert_eq!(client.rest_bytes().0, b"");
        assert_eq!(heard.join().unwrap(), b"");
        assert_eq!(proxy.end().0, ["connect one.test:443 refused"]);
    }
}

#[test]
fn an_address_may_go_unnamed() {
    for (name, passes) in [(None, true), (Some("192.0.2.1"), true), (Some("one.test"), false)] {
        let (one, heard) = origin(|mut client| client.rest_bytes().0.len());
        let proxy = Proxy::tls_only(&[("192.0.2.1:443", one)]);
        let mut client = proxy.client();
        client.send(connect("192.0.2.1:443"));
        client.head();
        client.send(hello(name, 1));
        client.half_close();
        client.rest_bytes();
        assert_eq!(heard.join().unwrap() > 0, passes, "{name:?}");
    }
}

#[test]
fn a_tunnel_that_was_opened_in_advance_and_not_used_is_no_refusal() {
    let (one, heard) = origin(|mut client| client.rest());
    let proxy = Proxy::tls_only(&[("one.test:443", one)]);
    let mut client = proxy.client();
    client.send(connect("one.test:443"));
    client.head();
    client.half_close();
    assert_eq!(client.rest(), "");
    assert_eq!(heard.join().unwrap(), "");
    assert_eq!(proxy.end().0[1], "connect one.test:443 ended 0 0");
}
