//! `lnk sandbox stop`: every wire, whatever the programs do.

mod network;

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant, SystemTime};

use lnk_sandbox::wire::log::{Verb, What, records};
use network::{logged, run, told};
use rustix::process::Signal;
use testkit::{Mounts, Net, Running, TestEnv, each};

/// Echoes what comes on each connection. At the control address it tells how many were
/// open at a time at most, and when the last of them ended, once none is: in
/// milliseconds since 1970.
const ORIGIN: &str = r#"
import selectors, socket, sys, time
selector = selectors.DefaultSelector()
connections, asking, last, most = set(), [], 0, 0

def listen(address, accept):
    host, port = address.split(':')
    listener = socket.create_server((host, int(port)), backlog=4096)
    listener.setblocking(False)
    selector.register(listener, selectors.EVENT_READ, lambda: accept(listener.accept()[0]))

def accept(client):
    global most
    client.setblocking(False)
    connections.add(client)
    most = max(most, len(connections))
    selector.register(client, selectors.EVENT_READ, lambda: echo(client))

def echo(client):
    global last
    try:
        data = client.recv(65536)
        if data:
            client.send(data)
            return
    except BlockingIOError:
        return
    except OSError:
        pass
    selector.unregister(client)
    client.close()
    connections.discard(client)
    last = time.time()

listen(sys.argv[1], asking.append)
listen(sys.argv[2], accept)
print('serves', flush=True)
while True:
    for key, _ in selector.select():
        key.data()
    while asking and not connections:
        with asking.pop() as client:
            client.sendall(f'{most} {int(last * 1000)}\n'.encode())
        most = 0
"#;

const CONTROL: &str = "10.77.0.2:9";

/// Keeps so many tunnels busy, and says so once all are; says what becomes of them, and
/// of a call after that; ignores what can be ignored.
const BUSY: &str = r"
import selectors, signal, socket, sys, threading
for ignored in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(ignored, signal.SIG_IGN)

def asked():
    proxy = socket.create_connection(('127.0.0.1', 40781))
    proxy.sendall(b'CONNECT 10.77.0.2:7000 HTTP/1.1\r\n\r\n')
    head = b''
    while not head.endswith(b'\r\n\r\n'):
        some = proxy.recv(1)
        if not some: break
        head += some
    return proxy, head.decode()

def busy(tunnel):
    try:
        while True:
            tunnel.sendall(b'x' * 1000)
            if not tunnel.recv(65536): break
            begun.release()
            wait.wait(0.05)
    except OSError:
        pass
    ended.release()

begun, ended, wait = threading.Semaphore(0), threading.Semaphore(0), threading.Event()
count = int(sys.argv[1])
for _ in range(count):
    tunnel, head = asked()
    assert head.startswith('HTTP/1.1 200'), head
    threading.Thread(target=busy, args=[tunnel], daemon=True).start()
    begun.acquire()
print('busy', flush=True)
for _ in range(count): ended.acquire()
print('ended', asked()[1].splitlines()[0], flush=True)
sys.stdin.readline()
while (head := asked()[1]).startswith('HTTP/1.1 403'): wait.wait(0.05)
print('again', head.splitlines()[0], flush=True)
";

fn net() -> Option<Net> {
    let mut net = Net::new()?;
    net.serve(["/usr/bin/python3", "-c", ORIGIN, CONTROL, "10.77.0.2:7000"]);
    Some(net)
}

fn busy(env: &TestEnv, net: &Net, tunnels: usize) -> Running {
    // Standard input is a pipe that stays open until the test lets go of it.
    let program = format!("python3 -c \"$0\" {tunnels} < <(sleep 1; echo)");
    let call = run(env, net, "--lan-host 10.77.0.2", ["bash", "-c", &program, BUSY]);
    call.deadline(Duration::from_secs(120)).spawn()
}

/// When everything was stopped, in milliseconds since 1970.
fn stopped_at(env: &TestEnv) -> u64 {
    let file = env.home().join(".config/lnk/sandbox/stopped");
    let made = fs::metadata(file).and_then(|file| file.modified()).expect("it is stopped");
    made.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_millis() as u64
}

/// Whose wires they are, which is said of root's.
fn of(env: &TestEnv) -> &'static str {
    if env.user.name == "root" { " of root" } else { "" }
}

fn number(text: &str) -> u64 {
    text.trim().parse().unwrap_or_else(|_| panic!("no number: {text}"))
}

#[test]
fn all_busy_tunnels_of_all_sandboxes_end_within_a_second_and_open_again() {
    let Some(net) = net() else { return };
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        let mut sandboxes: Vec<_> = (0..20).map(|_| busy(env, &net, 10)).collect();
        for sandbox in &mut sandboxes {
            sandbox.wait_for_stdout("busy\n");
        }
        let of = of(env);
        env.lnk(["sandbox", "stop"]).run().ok().quiet().prints(&format!(
            "Stopped: 20 wires{of} closed, 200 calls ended. 'lnk sandbox stop --off' opens them.\n",
        ));
        let told = told(env, &net, CONTROL);
        let (open, last) = told.trim().split_once(' ').expect("two numbers");
        let taken = number(last) - stopped_at(env);
        assert_eq!(open, "200");
        assert!(taken < 1000, "the last ended after {taken} ms");
        for sandbox in &mut sandboxes {
            sandbox.wait_for_stdout("ended HTTP/1.1 403 ").wait_for_stderr(
                "every wire is stopped, this sandbox's too: 'lnk sandbox stop --off'",
            );
        }
        env.lnk(["sandbox", "stop"])
            .run()
            .ok()
            .stdout_has(&format!("Stopped already: 0 wires{of} closed"));
        env.lnk(["sandbox", "paused"]).run().ok().quiet().stdout_has("lnk sandbox stop");
        env.lnk(["sandbox", "stop", "--off"])
            .run()
            .ok()
            .quiet()
            .prints(&format!("20 wires{of} opened.\n"));
        for mut sandbox in sandboxes {
            sandbox.wait_for_stdout("again HTTP/1.1 200 ");
            sandbox.wait().ok();
        }
        whole_log(env);
    });
}

/// Each call that was let through has one beginning and one end; each wire says that it
/// was closed.
fn whole_log(env: &TestEnv) {
    let bytes = fs::read(env.home().join(".config/lnk/sandbox/wire.log")).expect("a log");
    let lines: Vec<_> = records(&bytes).map(|record| record.line).collect();
    let written = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    assert_eq!(lines.len(), written.count());
    let mut calls = HashMap::new();
    let mut pauses = 0;
    for line in lines {
        let call: &mut (u32, u32) = calls.entry((line.sandbox.name, line.call)).or_default();
        match line.what {
            What::Allowed => call.0 += 1,
            What::Ended { .. } => call.1 += 1,
            What::Refused { reason } if line.verb == Verb::Pause => {
                assert_eq!(reason, "every sandbox's wire is stopped: lnk sandbox stop --off");
                pauses += 1;
            }
            What::Refused { reason } => assert!(reason.contains("stop --off"), "{reason}"),
            What::Failed { reason, .. } => panic!("{reason}"),
        }
    }
    let through: Vec<_> = calls.values().filter(|counts| **counts != (0, 0)).collect();
    assert_eq!((through.len(), pauses), (220, 20));
    assert!(through.iter().all(|counts| **counts == (1, 1)), "{through:?}");
}

#[test]
fn a_run_that_starts_while_stopped_is_closed_and_says_so() {
    let Some(net) = net() else { return };
    each!(|env| {
        let ask = "import socket
p = socket.create_connection(('127.0.0.1', 40781))
p.sendall(b'CONNECT 10.77.0.2:7000 HTTP/1.1\\r\\n\\r\\n')
print(p.makefile().read(), end='')";
        let ask = || run(env, &net, "--lan-host 10.77.0.2", ["timeout", "3", "python3", "-c", ask]);
        env.lnk(["sandbox", "stop"])
            .run()
            .ok()
            .quiet()
            .stdout_has(&format!("Stopped: 0 wires{} closed", of(env)));
        let stopped = "every wire is stopped, this sandbox's too";
        ask()
            .run()
            .ok()
            .stdout_has("HTTP/1.1 403 ")
            .stdout_has("X-Link-Reason: every sandbox's wire is stopped: lnk sandbox stop --off\n")
            .stderr_has(stopped);
        // One without a wire has nothing to say.
        env.lnk(["sandbox", "run", "--read", ".", "--", "true"]).run().ok().quiet();
        env.lnk(["sandbox", "stop", "--off"])
            .run()
            .ok()
            .prints(&format!("0 wires{} opened.\n", of(env)));
        env.lnk(["sandbox", "stop", "--off"])
            .run()
            .ok()
            .prints(&format!("Nothing{} was stopped.\n", of(env)));
        ask().run().fails_with(124).has_not(stopped);
    });
}

#[test]
fn an_endpoints_name_is_closed_too() {
    let Some(net) = net() else { return };
    each!(|env| {
        let flags =
            "--lan-host 10.77.0.2 --internet-host db.test.example --tcp db.test.example:7000";
        let look_up = || run(env, &net, flags, ["getent", "ahostsv4", "db.test.example"]);
        look_up().run().ok().stdout_has("127.77.0.1");
        env.lnk(["sandbox", "stop"]).run().ok();
        look_up().run().fails_with(2);
        let log = logged(env);
        let refused = "dns db.test.example:0 refused: every sandbox's wire is stopped: \
                       lnk sandbox stop --off";
        assert!(log.iter().any(|line| line == refused), "{log:#?}");
        env.lnk(["sandbox", "stop", "--off"]).run().ok();
        look_up().run().ok().stdout_has("127.77.0.1");
    });
}

#[test]
fn a_port_of_this_machine_is_closed_too() {
    let Some(mut net) = net() else { return };
    net.serve_here(["/usr/bin/python3", "-c", ORIGIN, "127.0.0.1:8", "127.0.0.1:7001"]);
    each!(|env| {
        let program = "import socket, sys
tunnel = socket.create_connection(('127.0.0.1', 7001))
tunnel.sendall(b'x'); tunnel.recv(1)
print('open', flush=True)
def end(tunnel):
    try: return tunnel.recv(1)
    except ConnectionResetError: return b''
print('ended', end(tunnel), flush=True)
print('refused', end(socket.create_connection(('127.0.0.1', 7001))), flush=True)";
        let mut sandbox = run(env, &net, "--port 7001", ["python3", "-c", program]).spawn();
        sandbox.wait_for_stdout("open\n");
        env.lnk(["sandbox", "stop"])
            .run()
            .ok()
            .stdout_has(&format!("Stopped: 1 wire{} closed, 1 call ended.", of(env)));
        sandbox.wait_for_stdout("ended b''\nrefused b''\n");
        sandbox.wait().ok();
        env.lnk(["sandbox", "stop", "--off"]).run().ok();
    });
}

#[test]
fn a_wire_whose_lnk_hangs_is_told_of_and_closes_once_it_goes_on() {
    let Some(net) = net() else { return };
    each!(|env| {
        let mut sandbox = busy(env, &net, 1);
        sandbox.wait_for_stdout("busy\n");
        sandbox.signal(Signal::STOP);
        let begun = Instant::now();
        env.lnk(["sandbox", "stop"])
            .run()
            .fails_with(1)
            .stdout_has(&format!("Stopped: 0 wires{} closed", of(env)))
            .stderr_has("doesn't answer: its lnk is stopped or busy, and looks once it goes on\n");
        assert!(begun.elapsed() < Duration::from_secs(10));
        sandbox.signal(Signal::CONT);
        sandbox.wait_for_stdout("ended HTTP/1.1 403 ");
        env.lnk(["sandbox", "stop", "--off"]).run().ok();
        sandbox.wait().ok();
    });
}
