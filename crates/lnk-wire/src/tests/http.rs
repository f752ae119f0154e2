//! Plain HTTP through the proxy, on raw sockets.

use super::*;

/// Answers one request that has no body, and hands over its head.
fn answers(body: &'static str) -> (SocketAddr, JoinHandle<String>) {
    origin(move |mut client| {
        let head = client.head();
        client.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        head
    })
}

fn get(host: &str, path: &str) -> String {
    format!("GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

#[test]
fn a_request_reaches_its_origin_in_origin_form_without_the_hops_headers() {
    let (one, heard) = answers("hello");
    let proxy = Proxy::to(&[("one.test:80", one)]);
    let mut client = proxy.client();
    client.send(
        "GET http://One.Test./a%20b?c=d HTTP/1.1\r\nHost: one.test\r\nX-Kept: yes\r\n\
         Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nProxy-Connection: keep-alive\r\n\
         Proxy-Authorization: Basic x\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n",
    );
    assert_eq!(client.head(), "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(client.bytes(5), b"hello");
    let heard = heard.join().unwrap();
    assert_eq!(
        heard,
        "GET /a%20b?c=d HTTP/1.1\r\nHost: one.test\r\nX-Kept: yes\r\nConnection: close\r\n\r\n"
    );
    drop(client);
    let (log, _) = proxy.end();
    assert_eq!(log[0], "http one.test:80 allowed");
    assert_eq!(log[1], format!("http one.test:80 ended {} 43", heard.len()));
}

#[test]
fn a_second_request_is_judged_anew() {
    for first in [
        get("one.test", "/a"),
        "POST http://one.test/a HTTP/1.1\r\nHost: one.test\r\nContent-Length: 3\r\n\r\nabc".into(),
        "POST http://one.test/a HTTP/1.1\r\nHost: one.test\r\nTransfer-Encoding: chunked\r\n\r\n\
         3\r\nabc\r\n0\r\n\r\n"
            .into(),
    ] {
        let (one, heard) = origin(|mut client| {
            client.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nA");
            client.half_close();
            client.rest()
        });
        let (two, listener) = untouched();
        let proxy = Proxy::to(&[("one.test:80", one)]);
        let answer = proxy.answer(first.clone() + &get("two.test", "/b"));
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("HTTP/1.1 403 not listed\r\nX-Link-Reason: not listed\r\n"));
        assert!(answer.ends_with("\r\n\r\nnot listed\n"), "{answer}");
        assert!(!heard.join().unwrap().contains("/b"), "{first}");
        let _ = two;
        assert_untouched(&listener);
        let (log, carried) = proxy.end();
        assert_eq!(log.len(), 3);
        assert_eq!(log[2], "http two.test:80 refused");
        assert_eq!((carried.allowed, carried.refused), (1, 1));
    }
}

#[test]
fn alternating_requests_on_one_connection_each_reach_their_origin() {
    let serve = |name: &'static str| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = thread::spawn(move || {
            for _ in 0..2 {
                let mut client = Client(listener.accept().unwrap().0);
                let head = client.head();
                client.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{name}"));
                assert!(head.starts_with(&format!("GET /{name} ")), "{head}");
            }
        });
        (address, thread)
    };
    let ((one, first), (two, second)) = (serve("one"), serve("two"));
    let proxy = Proxy::to(&[("a.test:80", one), ("b.test:8080", two)]);
    let mut client = proxy.client();
    for _ in 0..2 {
        client.send(get("a.test", "/one"));
        client.head();
        assert_eq!(client.bytes(3), b"one");
        client.send(get("b.test:8080", "/two"));
        client.head();
        assert_eq!(client.bytes(3), b"two");
    }
    first.join().unwrap();
    second.join().unwrap();
}

#[test]
fn what_isnt_one_request_is_400_and_the_connection_ends() {
    let (one, listener) = untouched();
    let proxy = Proxy::to(&[("one.test:80", one), ("[2001:db8::1]:80", one)]);
    let long = "x".repeat(70_000);
    let uri = |uri: &str| (format!("GET {uri} HTTP/1.1\r\nHost: one.test\r\n\r\n"), 400);
    let headers = |lines: &str| {
        (format!("POST http://one.test/ HTTP/1.1\r\nHost: one.test\r\n{lines}\r\n"), 400)
    };
    for (request, status) in [
        uri("/path"),
        uri("*"),
        uri("one.test:80"),
        uri("http://two.test/"),
        uri("https://one.test/"),
        uri("ftp://one.test/"),
        uri("http://user@one.test/"),
        uri("http://user:pw@one.test/"),
        uri("http:///path"),
        uri("http://one.test:0/"),
        uri("http://one.test:65536/"),
        uri("http://one.test:+80/"),
        uri("http://one.test:080/"),
        uri("http://one.test:/"),
        uri("http://one.test../"),
        uri("http://[one.test]/"),
        uri("http://[[one.test]]/"),
        uri("http://one%2etest/"),
        uri("http://one.test%00.x.test/"),
        uri("http://one.test\0.x.test/"),
        uri("http://one.test\\@two.test/"),
        uri("http://2001:db8::1/"),
        uri("http://[::1%25lo]/"),
        uri("http://127.1/"),
        uri("http://0x7f000001/"),
        uri("http://2130706433/"),
        uri("http://one.test/#fragment"),
        uri("http://one.test/ü"),
        ("OPTIONS * HTTP/1.1\r\nHost: one.test\r\n\r\n".into(), 400),
        ("GET http://one.test/ HTTP/1.1\r\n\r\n".into(), 400),
        headers("Host: one.test\r\n"),
        headers("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"),
        headers("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n"),
        headers("Content-Length: 1\r\nContent-Length: 1\r\n"),
        headers("Content-Length: 1\r\nContent-Length: 2\r\n"),
        headers("Content-Length: +1\r\n"),
        headers("Content-Length: 1, 1\r\n"),
        headers("Content-Length: -1\r\n"),
        headers("Content-Length: 99999999999999999999\r\n"),
        headers("Transfer-Encoding: gzip, chunked\r\n"),
        headers("Transfer-Encoding: identity\r\n"),
        headers("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        headers("Transfer-Encoding: \x0bchunked\r\n"),
        headers("A: b\r\n folded\r\n"),
        headers("A : b\r\n"),
        headers("A\r\n"),
        headers("A: b\0\r\n"),
        (format!("GET http://one.test/ HTTP/1.1\r\nHost: one.test\r\nA: {long}\r\n\r\n"), 431),
        ("GET http://one.test/ HTTP/1.1\r\n".to_owned() + &"A: b\r\n".repeat(200) + "\r\n", 431),
        (
            "POST http://one.test/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(),
            400,
        ),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), 505),
        ("GET http://one.test/ HTTP/2.0\r\n\r\n".into(), 505),
        ("GET http://one.test/ HTTP/1.2\r\nHost: one.test\r\n\r\n".into(), 505),
        ("GET http://one.test/ b HTTP/1.1\r\nHost: one.test\r\n\r\n".into(), 505),
        ("GET http://one.test/\r\n\r\n".into(), 400),
        ("\x16\x03\x01\x02\x00\x01\x00\x01".into(), 400),
        ("\x04\x01\x00\x50".into(), 400),
    ] {
        let answer = proxy.answer(&request);
        let expected = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&expected), "{request:.200}\n{answer}");
        assert!(
            answer.contains("\r\nX-Link-Reason: ") && answer.contains("\r\nConnection: close\r\n")
        );
    }
    assert_untouched(&listener);
    let (log, carried) = proxy.end();
    assert_eq!(carried.allowed, 0);
    for line in log {
        assert!(line.starts_with("unknown ") && line.ends_with(" refused"), "{line}");
        assert!(line.bytes().all(|byte| byte >= b' ') && !line.contains("path"), "{line}");
        assert!(!line.contains("user") && !line.contains("pw"), "{line}");
    }
}

#[test]
fn each_spelling_of_an_allowed_host_is_that_host() {
    for (uri, host) in [
        ("http://one.test", "one.test"),
        ("HTTP://ONE.TEST:80/", "one.test"),
        ("http://one.test./", "One.Test.:80"),
        ("http://one.test?q", "one.test"),
    ] {
        let (one, heard) = answers("");
        let proxy = Proxy::to(&[("one.test:80", one)]);
        let mut client = proxy.client();
        client.send(format!("GET {uri} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert!(client.head().starts_with("HTTP/1.1 200"));
        assert!(heard.join().unwrap().contains("\r\nHost: one.test\r\n"), "{uri}");
    }
    for (target, host) in [("xn--bcher-kva.example:80", "bücher.example"), ("[::2]:80", "[0::2]")]
    {
        let (one, heard) = answers("");
        let proxy = Proxy::to(&[(target, one)]);
        let mut client = proxy.client();
        if target.starts_with('[') {
            client.send(get(host, "/"));
            assert!(client.head().starts_with("HTTP/1.1 200"));
            assert!(heard.join().unwrap().contains("\r\nHost: [::2]\r\n"));
        } else {
            client.send(get(host, "/"));
            assert!(client.head().starts_with("HTTP/1.1 400"), "a URI is in ASCII");
            drop(TcpStream::connect(one));
        }
    }
}

#[test]
fn a_bad_chunk_is_400_and_ends_the_connection() {
    for chunks in [
        "x\r\n",
        "3\r\nabcd\r\n",
        "+3\r\nabc\r\n",
        "3\nabc\n",
        "fffffffffffffffff\r\n",
        "3 \r\n",
        "\r\n",
    ] {
        let (one, heard) = origin(|mut client| client.rest());
        let proxy = Proxy::to(&[("one.test:80", one)]);
        let answer = proxy.answer(format!(
            "POST http://one.test/ HTTP/1.1\r\nHost: one.test\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}{}",
            get("two.test", "/")
        ));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{chunks:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1);
        assert!(!heard.join().unwrap().contains("0\r\n\r\n"), "the body isn't ended");
    }
}

#[test]
fn an_upload_waits_for_the_origins_word_and_comes_whole() {
    const BODY: usize = 3 << 20;
    let (one, heard) = origin(|mut client| {
        let head = client.head();
        client.send("HTTP/1.1 100 Continue\r\n\r\n");
        let body = client.bytes(BODY);
        client.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        (head, body)
    });
    let proxy = Proxy::to(&[("one.test:8080", one)]);
    let mut client = proxy.client();
    client.send(format!(
        "PUT http://one.test:8080/up HTTP/1.1\r\nHost: one.test:8080\r\nExpect: 100-continue\r\n\
         Content-Length: {BODY}\r\n\r\n"
    ));
    assert_eq!(client.head(), "HTTP/1.1 100 Continue\r\n\r\n");
    client.send(vec![7; BODY]);
    assert_eq!(client.head(), "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let (head, body) = heard.join().unwrap();
    assert!(head.contains("\r\nExpect: 100-continue\r\n"));
    assert!(body == vec![7; BODY]);
    // The connection goes on.
    client.send(get("two.test", "/"));
    assert!(client.head().starts_with("HTTP/1.1 403"));
}

#[test]
fn an_early_answer_reaches_the_client() {
    // More than the kernel keeps for an origin that reads nothing of it.
    const BODY: usize = 30_000_000;
    for sends_anyway in [false, true] {
        let (one, _) = origin(|mut client| {
            client.head();
            client.send("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno");
        });
        let proxy = Proxy::to(&[("one.test:80", one)]);
        let mut client = proxy.client();
        client.send(format!(
            "PUT http://one.test/ HTTP/1.1\r\nHost: one.test\r\nExpect: 100-continue\r\n\
             Content-Length: {BODY}\r\n\r\n",
        ));
        if sends_anyway {
            let mut sending = client.0.try_clone().unwrap();
            let sender = thread::spawn(move || sending.write_all(&vec![7; BODY]));
            let (answer, reset) = client.rest_bytes();
            assert!(answer.starts_with(b"HTTP/1.1 401 Unauthorized\r\n"));
            assert!(answer.ends_with(b"\r\n\r\nno") && !reset);
            sender.join().unwrap().expect("the proxy listens on for a while");
        } else {
            let answer = client.rest();
            assert!(answer.starts_with("HTTP/1.1 401 Unauthorized\r\n"), "{answer}");
            assert!(answer.ends_with("\r\n\r\nno"), "{answer}");
        }
    }
}

#[test]
fn an_origin_that_never_says_continue_gets_the_body_when_it_is_sent() {
    let (one, heard) = origin(|mut client| {
        client.head();
        let body = client.bytes(5);
        client.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        body
    });
    let proxy = Proxy::to(&[("one.test:80", one)]);
    let mut client = proxy.client();
    client.send(
        "PUT http://one.test/ HTTP/1.1\r\nHost: one.test\r\nExpect: 100-continue\r\n\
         Content-Length: 5\r\n\r\n",
    );
    client.send("hello");
    assert!(client.head().starts_with("HTTP/1.1 200"));
    assert_eq!(heard.join().unwrap(), b"hello");
}

#[test]
fn chunks_and_trailers_pass_both_ways() {
    let (one, heard) = origin(|mut client| {
        let head = client.head();
        let body = client.until("\r\n\r\n");
        client.send(
            "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
             5;ext=1\r\nworld\r\n0\r\nX-Sum: 2\r\nContent-Length: 9\r\n\r\n",
        );
        (head, body)
    });
    let proxy = Proxy::to(&[("one.test:80", one)]);
    let mut client = proxy.client();
    client.send(
        "POST http://one.test/ HTTP/1.1\r\nHost: one.test\r\nTE: trailers, deflate\r\n\
         Trailer: X-Sum\r\nTransfer-Encoding: Chunked\r\n\r\n005\r\nhello\r\n0\r\nX-Sum: 1\r\nHost: x\r\n\r\n",
    );
    assert_eq!(
        client.head(),
        "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    assert_eq!(client.head(), "5\r\nworld\r\n0\r\nX-Sum: 2\r\n\r\n");
    let (head, body) = heard.join().unwrap();
    assert!(
        head.contains("Connection: close, TE\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n")
    );
    assert_eq!(body, "5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n");
}

#[test]
fn responses_without_a_body_leave_the_connection_open() {
    for (method, response, expected) in [
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n"),
        (
            "GET",
            "HTTP/1.1 304 Not Modified\r\nETag: x\r\nContent-Length: 9\r\n\r\n",
            "HTTP/1.1 304 Not Modified\r\nETag: x\r\nContent-Length: 9\r\n\r\n",
        ),
        (
            "HEAD",
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
        ),
        (
            "HEAD",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
        ),
        (
            "GET",
            "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 \r\n\r\n",
            "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n",
        ),
    ] {
        let (one, _) = origin(move |mut client| {
            client.head();
            client.send(response);
        });
        let proxy = Proxy::to(&[("one.test:80", one)]);
        let mut client = proxy.client();
        client.send(format!("{method} http://one.test/ HTTP/1.1\r\nHost: one.test\r\n\r\n"));
        assert_eq!(client.head(), expected);
        if expected.contains("103") {
            assert_eq!(client.head(), "HTTP/1.1 204 \r\n\r\n");
        }
        client.send(get("two.test", "/"));
        assert!(client.head().starts_with("HTTP/1.1 403"), "{response}");
    }
}

#[test]
fn a_response_that_ends_with_the_connection_is_whole_for_either_version() {
    for (version, expected) in [
        ("1.1", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        ("1.0", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello"),
    ] {
        let (one, _) = origin(|mut client| {
            client.head();
            client.send("HTTP/1.0 200 OK\r\n\r\nhello");
        });
        let proxy = Proxy::to(&[("one.test:80", one)]);
        let mut client = proxy.client();
        client.send(format!("GET http://one.test/ HTTP/{version}\r\nHost: one.test\r\n\r\n"));
        assert_eq!(String::from_utf8(client.bytes(expected.len())).unwrap(), expected);
        client.half_close();
        assert_eq!(client.rest(), "", "{version}");
    }
}

#[test]
fn an_http_1_0_client_gets_a_chunked_response_plainly_and_no_interim_one() {
    let (one, heard) = origin(|mut client| {
        let head = client.head();
        client.send(
            "HTTP/1.1 103 Early Hints\r\n\r\n\
             HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        );
        head
    });
    let proxy = Proxy::to(&[("one.test:80", one)]);
    let answer = proxy.answer("GET http://one.test/ HTTP/1.0\r\n\r\n");
    assert_eq!(answer, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello");
    assert!(heard.join().unwrap().starts_with("GET / HTTP/1.1\r\nHost: one.test\r\n"));
}

#[test]
fn a_truncated_response_doesnt_look_whole() {
    for response in [
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello",
    ] {
        let (one, _) = origin(move |mut client| {
            client.head();
            client.send(response);
        });
        let proxy = Proxy::to(&[("one.test:80", one)]);
        let mut client = proxy.client();
        client.send(get("one.test", "/"));
        let (answer, reset) = client.rest_bytes();
        assert!(reset, "{}", String::from_utf8_lossy(&answer));
    }
}

#[test]
fn an_origin_that_answers_nothing_useful_is_502() {
    for response in [
        "",
        "hello\r\n\r\n",
        "HTTP/1.1 000 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n12",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    ] {
        let (one, _) = origin(move |mut client| {
            client.head();
            client.send(response);
        });
        let proxy = Proxy::to(&[("one.test:80", one)]);
        let answer = proxy.answer(get("one.test", "/"));
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
        let down = response.len();
        assert_eq!(proxy.end().0[1], format!("http one.test:80 failed 53 {down}"));
    }
    let proxy = Proxy::to(&[("one.test:80", untouched().0)]);
    assert!(proxy.answer(get("one.test", "/")).starts_with("HTTP/1.1 502 "));
    assert_eq!(proxy.end().0, ["http one.test:80 failed"]);
}

#[test]
fn a_websocket_opens_and_its_bytes_pass() {
    let (one, heard) = origin(|mut client| {
        let head = client.head();
        client.send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: x\r\n\r\nfirst",
        );
        (head, client.rest())
    });
    let proxy = Proxy::to(&[("one.test:80", one)]);
    let mut client = proxy.client();
    client.send(
        "GET http://one.test/chat HTTP/1.1\r\nHost: one.test\r\nConnection: keep-alive, Upgrade\r\n\
         Upgrade: WebSocket\r\nSec-WebSocket-Key: y\r\n\r\n",
    );
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    assert!(head.contains("\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"), "{head}");
    assert_eq!(client.bytes(5), b"first");
    client.send("second");
    client.half_close();
    assert_eq!(client.rest(), "");
    let (head, sent) = heard.join().unwrap();
    assert!(head.contains("\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"), "{head}");
    assert_eq!(sent, "second");
}

#[test]
fn a_client_that_half_closes_after_its_request_gets_the_answer() {
    let (one, _) = answers("hello");
    let proxy = Proxy::to(&[("one.test:80", one)]);
    let mut client = proxy.client();
    client.send(get("one.test", "/"));
    client.half_close();
    assert!(client.rest().ends_with("\r\n\r\nhello"));
}

#[test]
fn a_response_streams() {
    let (one, _) = origin(|mut client| {
        client.head();
        client.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n");
        // Only once the first chunk has come through does the client say so.
        client
    });
    let proxy = Proxy::to(&[("one.test:80", one)]);
    let mut client = proxy.client();
    client.send(get("one.test", "/"));
    assert_eq!(client.until("one\r\n").matches("3\r\none\r\n").count(), 1);
}

#[test]
fn options_without_a_path_asks_for_the_whole_server() {
    let (one, heard) = answers("");
    let proxy = Proxy::to(&[("one.test:80", one)]);
    let mut client = proxy.client();
    client.send("OPTIONS http://one.test HTTP/1.1\r\nHost: one.test\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 200"));
    assert!(heard.join().unwrap().starts_with("OPTIONS * HTTP/1.1\r\n"));
}
