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

/// Milliseconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_millis() as u64
}

/// How many connections the origin had at a time, and how long after `begun` the last
/// of them ended, in milliseconds.
fn origin_told(env: &TestEnv, net: &Net, begun: u64) -> (u64, u64) {
    let told = told(env, net, CONTROL);
    let (open, last) = told.trim().split_once(' ').expect("two numbers");
    (number(open), number(last).saturating_sub(begun))
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
        let begun = now();
        env.lnk(["sandbox", "stop"]).run().ok().quiet().prints(&format!(
            "Stopped: 20 wires{of} closed, 200 calls ended. 'lnk sandbox stop --off' opens them.\n",
        ));
        let (open, taken) = origin_told(env, &net, begun);
        assert_eq!(open, 200);
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
            .stderr_has(
                "doesn't answer: its lnk is stopped or busy, and does so once it goes on\n",
            );
        assert!(begun.elapsed() < Duration::from_secs(10));
        sandbox.signal(Signal::CONT);
        sandbox.wait_for_stdout("ended HTTP/1.1 403 ");
        env.lnk(["sandbox", "stop", "--off"]).run().ok();
        sandbox.wait().ok();
    });
}

/// Keeps as many tunnels as the first argument says as busy as it can, by one process,
/// and asks the sandbox's DNS for what the second one says, on as many connections as the
/// third: what the wire takes long to read, in its time, or what it answers at once.
const BRAKE: &str = r"
import os, selectors, socket, struct, sys
tunnels, kind, questions = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
selector = selectors.DefaultSelector()

def question():
    if kind == 'AAAA':
        asked = struct.pack('!HHHHHH', 7, 0, 1, 0, 0, 0) + b'\1x\7example\0' + struct.pack('!HH', 28, 1)
        return (struct.pack('!H', len(asked)) + asked) * 100
    name = b'\1a' * 126 + b'\0'
    asked = name + struct.pack('!HH', 1, 1)
    last = 12
    for _ in range(62):
        at = 12 + len(asked)
        asked += struct.pack('!HHHIH', 0xc000 | last, 16, 1, 0, 0)
        last = at
    records = 62
    while len(asked) < 65000:
        asked += struct.pack('!HHHIH', 0xc000 | last, 16, 1, 0, 0)
        records += 1
    asked = struct.pack('!HHHHHH', 7, 0, 1, records + 1, 0, 0) + asked
    return struct.pack('!H', len(asked)) + asked

def close(peer):
    selector.unregister(peer)
    peer.close()

def ask(dns, left):
    try:
        try: dns.recv(65536)
        except BlockingIOError: pass
        if not left: left.append(question())
        sent = dns.send(left[0])
        left[0] = left[0][sent:]
        if not left[0]: left.clear()
    except BlockingIOError: pass
    except OSError: close(dns)

def echo(tunnel):
    try:
        some = tunnel.recv(65536)
        if some: return tunnel.send(some)
    except BlockingIOError: return
    except OSError: pass
    close(tunnel)

for _ in range(tunnels):
    tunnel = socket.create_connection(('127.0.0.1', 40781))
    tunnel.sendall(b'CONNECT 10.77.0.2:7000 HTTP/1.1\r\n\r\n')
    head = b''
    while not head.endswith(b'\r\n\r\n'): head += tunnel.recv(1)
    assert head.startswith(b'HTTP/1.1 200'), head
    tunnel.sendall(b'x')
    tunnel.recv(1)
    tunnel.setblocking(False)
    tunnel.send(b'x' * 30000)
    selector.register(tunnel, selectors.EVENT_READ, lambda tunnel=tunnel: echo(tunnel))
for _ in range(questions):
    dns = socket.create_connection(('127.0.0.1', 53))
    dns.setblocking(False)
    selector.register(dns, selectors.EVENT_READ | selectors.EVENT_WRITE, lambda dns=dns, left=[]: ask(dns, left))
for _ in range(5):
    for key, _ in selector.select(1): key.data()
print('busy', flush=True)
while True:
    for key, _ in selector.select(): key.data()
";

fn brake(env: &TestEnv, net: &Net, arguments: [&str; 3]) -> Running {
    let flags = "--lan-host 10.77.0.2 --internet-host db.test.example --tcp db.test.example:7000";
    let [tunnels, kind, questions] = arguments;
    let program = ["python3", "-c", BRAKE, tunnels, kind, questions];
    let mut sandbox = run(env, net, flags, program).deadline(Duration::from_secs(120)).spawn();
    sandbox.wait_for_stdout("busy\n");
    sandbox
}

#[test]
fn many_busy_tunnels_of_one_sandbox_end_within_a_second() {
    let Some(net) = net() else { return };
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        let sandbox = brake(env, &net, ["1500", "-", "0"]);
        let begun = now();
        env.lnk(["sandbox", "stop"])
            .run()
            .ok()
            .quiet()
            .stdout_has(&format!("Stopped: 1 wire{} closed, 1500 calls ended.", of(env)));
        let (open, taken) = origin_told(env, &net, begun);
        assert_eq!(open, 1500);
        assert!(taken < 1000, "the last ended after {taken} ms");
        end(sandbox);
        env.lnk(["sandbox", "stop", "--off"]).run().ok();
    });
}

fn end(sandbox: Running) {
    sandbox.signal(Signal::TERM);
    sandbox.wait().fails_with(143);
}

#[test]
fn a_wire_that_is_asked_for_names_without_end_is_closed_as_soon() {
    let Some(net) = net() else { return };
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        let sandbox = brake(env, &net, ["20", "AAAA", "400"]);
        let begun = now();
        let stopped = format!("Stopped: 1 wire{} closed, 20 calls ended.", of(env));
        env.lnk(["sandbox", "stop"]).run().ok().quiet().stdout_has(&stopped);
        let (open, taken) = origin_told(env, &net, begun);
        assert_eq!(open, 20);
        assert!(taken < 1000, "the last ended after {taken} ms");
        end(sandbox);
        env.lnk(["sandbox", "stop", "--off"]).run().ok();

        // What can't be read may close it before.
        let sandbox = brake(env, &net, ["20", "names without end", "400"]);
        let begun = now();
        env.lnk(["sandbox", "stop"]).run().ok().quiet().stdout_has("Stopped: ");
        let (_, taken) = origin_told(env, &net, begun);
        assert!(taken < 1000, "the last ended after {taken} ms");
        end(sandbox);
        env.lnk(["sandbox", "stop", "--off"]).run().ok();
    });
}

/// Name servers that never answer. At the control address they tell how often they were
/// asked.
const SILENT_SERVERS: &str = r"
import selectors, socket, sys
selector = selectors.DefaultSelector()
asked = 0
def ask(server):
    global asked
    server.recv(4096)
    asked += 1
for address in ('11.0.0.2', '11.0.0.3', '11.0.0.4'):
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((address, 53))
    selector.register(server, selectors.EVENT_READ, lambda server=server: ask(server))
def tell():
    with control.accept()[0] as client: client.sendall(f'{asked}\n'.encode())
control = socket.create_server(('11.0.0.2', 9))
selector.register(control, selectors.EVENT_READ, tell)
print('serves', flush=True)
while True:
    for key, _ in selector.select(): key.data()
";

#[test]
fn a_look_up_ends_too_and_asks_no_other_server() {
    let Some(mut net) = net() else { return };
    net.serve(["/usr/bin/python3", "-c", SILENT_SERVERS]);
    each!(|env| {
        let servers = "nameserver 11.0.0.2\nnameserver 11.0.0.3\nnameserver 11.0.0.4\n";
        let servers = env.write(env.home().join("resolv.conf"), servers);
        let ask = r"import socket, struct
asked = struct.pack('!HHHHHH', 7, 0x100, 1, 0, 0, 0)
asked += b'\2_x\4_tcp\2db\4test\7example\0' + struct.pack('!HH', 33, 1)
dns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
dns.sendto(asked, ('127.0.0.1', 53))
print('answered', dns.recv(512)[3] & 15, flush=True)";
        let flags = "--internet-host db.test.example --tcp db.test.example:7000";
        let call = run(env, &net, flags, ["python3", "-c", ask]);
        let asked = || number(&told(env, &net, "11.0.0.2:9"));
        let before = asked();
        let mut sandbox = call.replaced("/etc/resolv.conf", servers).spawn();
        while asked() == before {}
        env.lnk(["sandbox", "stop"]).run().ok();
        // REFUSED, and not that no server answers.
        sandbox.wait_for_stdout("answered 5\n");
        sandbox.wait().ok();
        assert_eq!(asked(), before + 1);
        env.lnk(["sandbox", "stop", "--off"]).run().ok();
    });
}

/// Settings on a disk that a program fills: what a run of a spec can call meanwhile, and
/// what is said, with its status.
const FULL_DISK: &str = r#"
settings="$HOME/.config/lnk"
mkdir -p "$settings" && mount -t tmpfs -o size=24m,nr_inodes=60,mode=700 tmpfs "$settings" || exit
ip link set lo up
python3 -m http.server 5001 --bind 127.0.0.1 > log 2>&1 &
until curl -s -o page http://127.0.0.1:5001/; do :; done
call='while read -r to; do curl -s -o page -w "%{http_code}\n" "$to"; done'
coproc { exec lnk sandbox run --spec app.toml --yes -- bash -c "$call" 2> said; }
call() { echo "http://$1/" >&${COPROC[1]}; read -r code <&${COPROC[0]}; echo "$1 $code"; }
say() { "$@" 2>&1; echo "status $?"; }
fill() {
    mkdir -p "$settings/full"
    cat /dev/zero > "$settings/full/file"
    for n in $(seq 60); do : > "$settings/full/$n"; done
} 2> log

call 127.0.0.1:5001
fill
say lnk sandbox stop
call 127.0.0.1:5001
say lnk sandbox stop --off
call 127.0.0.1:5001
rm -f "$settings"/sandbox/{stopped.spare,pauses.json.new}
fill
say lnk sandbox stop
call 127.0.0.1:5001
say lnk sandbox stop --off
call 127.0.0.1:5001
say lnk sandbox pause app
call 127.0.0.1:5001
say lnk sandbox resume app
call 127.0.0.1:5001
call closed.example
call 127.0.0.1:5001
pid=$COPROC_PID
exec {COPROC[1]}>&-
wait "$pid"
cat said
kill %1
"#;

#[test]
fn filling_the_disk_opens_no_wire() {
    each!(|env| {
        // Who else mounts is root of a namespace, in which no sandbox has another user.
        if !env.user.is_root() {
            return;
        }
        env.write(
            "app.toml",
            "name = 'app'\n[internet]\nhosts = ['origin.test.example']\n[localhost]\nports = [5001]\n\
             [files]\nread = ['.']\nwrite = ['page']\n[commands]\nallow = ['*']\n",
        );
        env.write("page", "");
        env.write("full.sh", FULL_DISK);
        let full = env.program("unshare", ["--net", "--mount", "bash", "full.sh"]).run().ok();
        let home = format!("{}/", env.home().display());
        assert_eq!(full.stdout.replace(&home, ""), FULL_DISK_SAID);
    });
}

const FULL_DISK_SAID: &str = "\
127.0.0.1:5001 200
Stopped: 1 wire of root closed, 0 calls ended. 'lnk sandbox stop --off' opens them.
status 0
127.0.0.1:5001 000
1 wire of root opened.
status 0
127.0.0.1:5001 200
lnk sandbox: 1 wire of root closed, 0 calls ended, but .config/lnk/sandbox/stopped can't be made (no \
space left on device), so a run that starts from now on isn't closed: make room there, and stop again
status 125
127.0.0.1:5001 000
1 wire of root opened.
status 0
127.0.0.1:5001 200
lnk sandbox: app (project/app.toml): 1 wire closed, 0 calls ended, but a run that starts from now on \
isn't closed
lnk sandbox: .config/lnk/sandbox/pauses.json can't be written: no space left on device; make room \
there, and try again
status 125
127.0.0.1:5001 000
app (project/app.toml) is resumed: 1 wire opened.
status 0
127.0.0.1:5001 200
closed.example 403
127.0.0.1:5001 000
lnk sandbox: every wire is stopped, this sandbox's too: 'lnk sandbox stop --off' opens them
lnk sandbox: every wire is stopped, this sandbox's too: 'lnk sandbox stop --off' opens them
lnk sandbox: the wire of app is paused: by hand; 'lnk sandbox log --sandbox app' shows its calls, \
'lnk sandbox resume app' opens it
lnk sandbox: the wire of app is closed, as ~/.config/lnk/sandbox/pauses.json, which says whether it is \
paused, can't be read or written: no space left on device
lnk sandbox: 1 refused call of app couldn't be counted in ~/.config/lnk/sandbox, so its next run \
isn't closed for that: make room there, or let a stopped lnk go on; 'lnk sandbox pause app' closes it
";
