//! The wire as a whole: its end, and many connections.

use std::time::Instant;

use rustix::process::{Resource, getrlimit};

use super::*;
use crate::control::{self, Change};

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
    let tunnels = usize::try_from(descriptors / 6).unwrap_or(usize::MAX).min(10_000);
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

/// A gate that is closed by what a test keeps in its settings, and watched.
struct Kept {
    settings: TempDir,
    state: State,
    gate: Arc<Gate>,
    _watching: Serving,
}

impl Kept {
    fn new() -> Kept {
        let settings = tempfile::tempdir().unwrap();
        let open = || State::open(settings.path()).unwrap();
        let (state, gate) = (open(), gate(Some(open())));
        let control = control::Listener::bind(settings.path(), "run-1").unwrap();
        let traffic = Arc::new(Traffic::start());
        let _watching = Serving::watch(control, Arc::clone(&gate), traffic).unwrap();
        Kept { settings, state, gate, _watching }
    }

    fn proxy(&self, serves: Serves, targets: &[(&str, SocketAddr)]) -> Proxy {
        let gate = Arc::clone(&self.gate);
        let targets = targets.iter().map(|(target, to)| ((*target).to_owned(), *to)).collect();
        let calls = move |log, traffic| listed_calls(targets, false, log, traffic, gate);
        Proxy::with_calls(serves, calls)
    }
}

#[test]
fn a_closing_cuts_calls_off_without_what_was_on_its_way_and_refuses_until_it_opens() {
    let (one, listener) = holding();
    let kept = Kept::new();
    let proxy = kept.proxy(Serves::Proxy, &[("one.test:1", one), ("one.test:80", one)]);
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
    kept.state.stop().unwrap();
    let (read, is_reset) = tunnel.rest_bytes();
    assert!(read.is_empty() && is_reset);
    let (read, is_reset) = origin.rest_bytes();
    assert!(is_reset && read.len() < sent, "{} of {sent}", read.len());

    let refused = proxy.answer("CONNECT one.test:1 HTTP/1.1\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
    assert!(refused.contains("X-Link-Reason: every sandbox's wire is stopped: "), "{refused}");
    assert!(proxy.answer("rubbish\r\n\r\n").starts_with("HTTP/1.1 403 "));
    kept.state.start().unwrap();
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
    let kept = Kept::new();
    let gate = Arc::clone(&kept.gate);
    let proxy = Proxy::with_calls(Serves::Proxy, move |log, traffic| {
        let listed = HashMap::from([("one.test:1".to_owned(), UNSPECIFIED)]);
        let dial = |_, _| -> crate::calls::Dialing { Box::pin(std::future::pending()) };
        Calls { dial: Box::new(dial), ..listed_calls(listed, false, log, traffic, gate) }
    });
    let mut client = proxy.client();
    client.send("CONNECT one.test:1 HTTP/1.1\r\n\r\n");
    // It's being dialled once another one, asked for later, is refused.
    assert!(proxy.answer("CONNECT two.test:1 HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 403 "));
    kept.state.stop().unwrap();
    assert!(client.rest().starts_with("HTTP/1.1 403 "));
    let (log, _) = proxy.end();
    assert!(log.contains(&"tcp one.test:1 refused".to_owned()), "{log:?}");
}

#[test]
fn a_wire_whose_thread_is_busy_is_closed_all_the_same() {
    let (one, listener) = holding();
    let kept = Kept::new();
    let gate = Arc::clone(&kept.gate);
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let (is_busy, busy) = std::sync::mpsc::channel();
    let proxy = Proxy::with_calls(Serves::Proxy, move |log, traffic| {
        let listed = HashMap::from([("one.test:1".to_owned(), one)]);
        let calls = listed_calls(listed, false, log, traffic, gate);
        let judge = calls.judge;
        let judge = move |target: &Target, asked: Asked| {
            if target.port == 2 {
                is_busy.send(()).unwrap();
                let _ = held.recv();
            }
            judge(target, asked)
        };
        Calls { judge: Box::new(judge), ..calls }
    });
    // It goes on before the wire is waited for.
    let hold = hold;
    let mut tunnel = proxy.client();
    tunnel.send("CONNECT one.test:1 HTTP/1.1\r\n\r\n");
    tunnel.head();
    let mut origin = Client(listener.accept().unwrap().0);
    let mut keeping = proxy.client();
    keeping.send("CONNECT one.test:2 HTTP/1.1\r\n\r\n");
    busy.recv().unwrap();

    let begun = Instant::now();
    let told = control::tell(kept.settings.path(), &Change::Stop).unwrap();
    let looked = control::Looked { closed: true, changed: true, ended: 1 };
    assert_eq!((told.wires, told.silent.len()), (vec![("run-1".to_owned(), looked)], 0));
    assert_eq!(origin.rest_bytes(), (Vec::new(), true));
    assert!(begun.elapsed() < Duration::from_secs(1));
    drop(hold);
    assert!(keeping.rest().starts_with("HTTP/1.1 403 "));
    let (log, _) = proxy.end();
    assert!(log.contains(&"tcp one.test:1 ended 0 0".to_owned()), "{log:?}");
}

/// A question by TCP behind its length.
fn by_tcp(message: &[u8]) -> Vec<u8> {
    [&u16::try_from(message.len()).unwrap().to_be_bytes(), message].concat()
}

#[test]
fn what_is_no_question_is_a_refused_call() {
    use crate::dns::message::Question;
    let kept = Kept::new();
    let proxy = kept.proxy(Serves::NamesByTcp, &[]);
    let good = by_tcp(&Question::new(7, b"\x01a\x07example\0", 28).written());
    let mut client = proxy.client();
    // Several at once, and one in parts.
    client.send([&good[..], &good, &good[..9]].concat());
    client.bytes(2 * good.len());
    client.send(&good[9..]);
    assert_eq!(client.bytes(good.len())[2..4], [0, 7]);
    assert_eq!(kept.gate.refusal(), None);
    // Longer than any, too short for one, and of two questions.
    let mut two = good.clone();
    two[7] = 2;
    for n in 0..30 {
        assert_eq!(kept.gate.refusal(), None, "{n}");
        let mut client = proxy.client();
        client.send([&[0xff, 0xff, 0], &by_tcp(b"rubbish")[..], &two][n % 3]);
        assert_eq!(client.rest_bytes().0.len(), [0, 0, 14][n % 3]);
    }
    assert!(kept.gate.refusal().unwrap().contains("30 calls were refused within a minute"));
    let (log, _) = proxy.end();
    assert_eq!(log.iter().filter(|line| *line == "dns - refused").count(), 30, "{log:?}");
}

#[test]
fn questions_that_dont_come_whole_take_little() {
    let proxy = Proxy::start(&[], false, Serves::NamesByTcp);
    // Of the longest that is read, and more of them than there is room for.
    let part = [&4096_u16.to_be_bytes()[..], &[0; 4000]].concat();
    let mut clients = Vec::new();
    for _ in 0..(16 << 20) / 4096 * 3 / 2 {
        let mut client = proxy.client();
        client.send(&part);
        client.0.set_nonblocking(true).unwrap();
        clients.push(client);
    }
    let is_open = |client: &mut Client| {
        client.0.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    let deadline = Instant::now() + PATIENCE;
    while clients.iter_mut().filter_map(|client| is_open(client).then_some(())).count() > 4096 {
        assert!(Instant::now() < deadline);
    }
}
