//! Dialling, between machines of its own: a namespace that is this machine, joined
//! by a cable to one that is another of its network. Neither has a way out.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use lnk_spec::upstream::Upstream;
use lnk_wire::dial::{Connected, DialError, Dialer};
use lnk_wire::policy::{Asked, Policy, Target};
use testkit::User;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

/// Set where a test runs inside.
const INSIDE: &str = "LNK_TEST_INSIDE";

/// The hosts file of this machine. 10.77.0.66 and fd77::66 are nobody's.
const HOSTS: &str = "
127.0.0.1      localhost rebound.example own.local
10.77.0.1      own1.local
10.77.0.9      own9.local
10.77.0.2      nas.local nas nas.example
fd77::2        six.local
fd77::66       dead-six.local
10.77.0.2      dead-six.local
10.77.0.66     dead-four.local
fd77::2        dead-four.local
169.254.169.254 meta.example meta.local
169.254.169.254 mixed.local
127.0.0.1      mixed.local
10.77.0.1      mixed.local
10.77.0.2      mixed.local
8.8.8.8        away.local
93.184.216.34  origin.example
93.184.216.34  both.example
10.77.0.2      both.example
64:ff9b::a4d:2 hidden.local
";

/// This machine: two addresses of one network, IPv6, and a public one; the internet is
/// behind a router.
const THIS: &str = "
ip link set lo up
ip addr add 10.77.0.1/24 dev lan0
ip addr add 10.77.0.9/24 dev lan0
ip addr add fd77::1/64 dev lan0 nodad
ip addr add 93.184.216.1/32 dev lan0
ip link set lan0 up
ip route add 93.184.216.0/24 via 10.77.0.2
";

/// The other machine.
const OTHER: &str = "
import socket, subprocess, sys, threading
print('in', flush=True)
sys.stdin.readline()
for args in ['addr add 10.77.0.2/24 dev lan1', 'addr add fd77::2/64 dev lan1 nodad',
             'addr add 93.184.216.34/24 dev lan1', 'link set lan1 up']:
    subprocess.run(['ip', *args.split()], check=True)
def serve(port):
    listener = socket.create_server(('::', port), family=socket.AF_INET6, dualstack_ipv6=True)
    def accept():
        while True:
            with listener.accept()[0] as peer:
                peer.sendall(b'other')
    threading.Thread(target=accept, daemon=True).start()
for port in (80, 443, 5000):
    serve(port)
print('ready', flush=True)
sys.stdin.read()
";

/// Runs `body` inside, as each user.
fn inside(test: &str, body: fn()) {
    if env::var_os(INSIDE).is_some() {
        let _other = join_the_other();
        return body();
    }
    for user in User::all() {
        run_inside(test, &user);
    }
}

fn run_inside(test: &str, user: &User) {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // Where the ordinary user can read and execute it.
    let (program, copy) = (env::current_exe().unwrap(), folder.path().join("test"));
    fs::hard_link(&program, &copy).or_else(|_| fs::copy(&program, &copy).map(drop)).unwrap();
    fs::write(folder.path().join("hosts"), HOSTS).unwrap();
    fs::write(folder.path().join("nsswitch.conf"), "hosts: files\n").unwrap();

    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-rnm", "--", "sh", "-ec", script]);
        if User::current() != *user {
            command.uid(user.uid).gid(user.gid);
        }
        command
    };
    let able = unshare("ip link add lan0 type veth peer name lan1").current_dir("/").output();
    if !able.as_ref().is_ok_and(|output| output.status.success()) {
        return testkit::missing(&format!("a network of its own for {}: {able:?}", user.name));
    }
    let output = unshare(
        "mount --bind hosts /etc/hosts
         mount --bind nsswitch.conf /etc/nsswitch.conf
         exec ./test --exact \"$0\" --nocapture",
    )
    .arg(test)
    .current_dir(folder.path())
    .env(INSIDE, "1")
    .output()
    .unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "as {}: {said}", user.name);
}

/// Makes the cable and the other machine, which goes when what is returned does.
fn join_the_other() -> Other {
    run("ip link add lan0 type veth peer name lan1");
    let mut child = Command::new("unshare")
        .args(["-n", "--", "python3", "-c", OTHER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "in");
    run(&format!("ip link set lan1 netns {}", child.id()));
    run(THIS);
    child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    for address in ["10.77.0.1", "fd77::1", "93.184.216.1", "10.77.0.2", "fd77::2"] {
        await_up(address);
    }
    Other(child)
}

/// The kernel takes an address of IPv6 and a cable into use some time after it was
/// told to. From then on a port without a listener refuses.
fn await_up(host: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let closed = SocketAddr::new(address(host), 9);
    let refuses = || {
        let error = TcpStream::connect_timeout(&closed, Duration::from_millis(100)).unwrap_err();
        error.kind() == std::io::ErrorKind::ConnectionRefused
    };
    while !refuses() {
        assert!(Instant::now() < deadline, "{host} isn't up");
        thread::yield_now();
    }
}

struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(script: &str) {
    let status = Command::new("sh").args(["-ec", script]).status().unwrap();
    assert!(status.success(), "{script}");
}

/// `--internet-host` and `--lan-host`, each a list with spaces.
fn policy(internet: &str, lan: &str) -> Policy {
    let mut policy = Policy::default();
    policy.internet.hosts = internet.split_whitespace().map(|host| host.parse().unwrap()).collect();
    policy.lan.hosts = lan.split_whitespace().map(|host| host.parse().unwrap()).collect();
    policy
}

/// What becomes of a CONNECT. A connection is with whom it says.
fn connect(policy: &Policy, host: &str, port: u16) -> Result<Connected, DialError> {
    let target = Target { host: host.parse().unwrap(), port };
    let reach = policy.judge(&target, Asked::Connect)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connected =
            Dialer::new(policy.internet.way_out(), Arc::default()).connect(&target, &reach).await?;
        let mut said = String::new();
        let read = connected.stream.read_to_string(&mut said);
        timeout(Duration::from_secs(20), read).await.expect("a greeting").unwrap();
        assert_eq!(said, if connected.upstream { "upstream" } else { "other" }, "{host}");
        Ok(connected)
    })
}

fn reached(policy: &Policy, host: &str, port: u16) -> IpAddr {
    connect(policy, host, port).unwrap_or_else(|error| panic!("{host}: {error}")).address.unwrap()
}

fn refused(policy: &Policy, host: &str, port: u16) -> String {
    match connect(policy, host, port) {
        Err(DialError::Refused(refusal)) => refusal.reason,
        other => panic!("{host}: {other:?}"),
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn the_lan_is_reached_by_name_and_address() {
    inside("the_lan_is_reached_by_name_and_address", || {
        let all = policy("", "*");
        for host in ["10.77.0.2", "nas.local", "nas"] {
            assert_eq!(reached(&all, host, 5000), address("10.77.0.2"));
        }
        assert_eq!(reached(&all, "fd77::2", 80), address("fd77::2"));
        assert_eq!(reached(&policy("", "six.local"), "six.local", 443), address("fd77::2"));
        let named = policy("", "nas.example 10.77.0.0/30");
        assert_eq!(reached(&named, "nas.example", 80), address("10.77.0.2"));
        assert_eq!(reached(&named, "10.77.0.2", 80), address("10.77.0.2"));
        assert!(refused(&named, "nas.local", 80).contains("--lan-host nas.local"));

        assert!(matches!(connect(&all, "no-such.local", 80), Err(DialError::NotFound)));
        let closed = connect(&all, "10.77.0.2", 81);
        assert!(
            matches!(&closed, Err(DialError::Unreachable(error))
                if error.kind() == std::io::ErrorKind::ConnectionRefused),
            "{closed:?}"
        );
    });
}

#[test]
fn this_machine_is_never_dialled() {
    inside("this_machine_is_never_dialled", || {
        let listener = TcpListener::bind("[::]:6000").unwrap();
        let all = policy("*", "* own.local own9.local");
        for own in ["10.77.0.1", "10.77.0.9", "fd77::1", "93.184.216.1", "127.0.0.1"] {
            // The control: it could be.
            let control = TcpStream::connect(SocketAddr::new(address(own), 6000));
            control.unwrap_or_else(|error| panic!("{own}: {error}"));
            listener.accept().unwrap();
        }
        listener.set_nonblocking(true).unwrap();
        for host in ["10.77.0.1", "10.77.0.9", "fd77::1", "own1.local", "own9.local", "own.local"] {
            let reason = refused(&all, host, 6000);
            assert!(reason.contains("an address of this machine: add --port 6000"), "{reason}");
        }
        assert!(refused(&all, "93.184.216.1", 443).contains("an address of this machine"));

        assert_eq!(reached(&all, "10.77.0.2", 5000), address("10.77.0.2"));
        run("ip addr add 10.77.0.2/32 dev lo");
        let reason = refused(&all, "10.77.0.2", 6000);
        assert!(reason.contains("an address of this machine"), "read at dial: {reason}");
        assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    });
}

#[test]
fn a_name_is_what_it_resolves_to() {
    inside("a_name_is_what_it_resolves_to", || {
        let any = policy("*", "");
        assert_eq!(reached(&any, "origin.example", 443), address("93.184.216.34"));
        assert_eq!(reached(&any, "both.example", 443), address("93.184.216.34"));
        assert!(refused(&any, "nas.example", 443).contains("an address of your network"));
        assert!(refused(&any, "rebound.example", 443).contains("an address of this machine"));
        match connect(&any, "meta.example", 443) {
            Err(DialError::Refused(refusal)) => assert!(refusal.metadata, "{refusal}"),
            other => panic!("{other:?}"),
        }

        let lan = policy("*", "10.77.0.0/24 *");
        assert_eq!(reached(&lan, "nas.example", 443), address("10.77.0.2"));
        assert_eq!(reached(&lan, "mixed.local", 443), address("10.77.0.2"));
        assert!(refused(&lan, "meta.local", 443).contains("metadata"));
        assert!(refused(&lan, "away.local", 443).contains("an address of the internet"));
        assert!(refused(&lan, "hidden.local", 443).contains("hidden in an IPv6 one"));
        let elsewhere = policy("*", "192.168.0.0/16");
        assert!(refused(&elsewhere, "nas.example", 443).contains("an address of your network"));
    });
}

#[test]
fn a_dead_family_costs_a_quarter_of_a_second() {
    inside("a_dead_family_costs_a_quarter_of_a_second", || {
        // Whichever family the system prefers, one of the names begins with the dead,
        // whose own failure takes three seconds. A busy machine may need a second try.
        let lan = policy("", "*");
        let took = || {
            let begin = Instant::now();
            assert_eq!(reached(&lan, "dead-six.local", 80), address("10.77.0.2"));
            assert_eq!(reached(&lan, "dead-four.local", 80), address("fd77::2"));
            begin.elapsed()
        };
        let quickest = (0..3).map(|_| took()).min().unwrap();
        assert!(quickest >= Duration::from_millis(250), "none was dead: {quickest:?}");
        assert!(quickest < Duration::from_millis(2500), "{quickest:?}");
    });
}

#[test]
fn an_upstream_is_the_internets_way_and_never_the_lans() {
    inside("an_upstream_is_the_internets_way_and_never_the_lans", || {
        let (proxy, requests) = proxy();
        let mut policy = policy("*", "* nas.example both.example");
        policy.internet.upstream = Some(Upstream::Socks5(proxy));
        assert_eq!(reached(&policy, "origin.example", 443), address("93.184.216.34"));
        assert_eq!(requests.recv().unwrap(), [&[1, 93, 184, 216, 34][..], &[1, 187]].concat());
        for host in ["nas.local", "nas.example", "both.example", "10.77.0.2", "fd77::2"] {
            let connected = connect(&policy, host, 443).unwrap();
            assert!(!connected.upstream, "{host}");
        }
        assert!(refused(&policy, "rebound.example", 443).contains("this machine"));
        assert!(refused(&policy, "93.184.216.1", 443).contains("this machine"));
        assert!(matches!(connect(&policy, "no-such.example", 443), Err(DialError::NotFound)));

        policy.internet.upstream = Some(Upstream::Socks5Name(proxy));
        assert!(connect(&policy, "origin.example", 443).unwrap().upstream);
        assert_eq!(requests.recv().unwrap(), b"\x03\x0eorigin.example\x01\xbb");
        for host in ["nas.local", "nas.example", "both.example", "10.77.0.2"] {
            assert!(!connect(&policy, host, 443).unwrap().upstream, "{host}");
        }
        assert!(refused(&policy, "own1.local", 443).contains("this machine"));
        assert!(requests.try_recv().is_err(), "nothing else went through it");

        policy.internet.upstream = Some("socks5://127.0.0.1:1".parse().unwrap());
        let down = connect(&policy, "origin.example", 443);
        assert!(matches!(down, Err(DialError::Upstream(_))), "{down:?}");
        assert!(!connect(&policy, "nas.local", 443).unwrap().upstream);
    });
}

/// A SOCKS5 proxy that says yes to all and tells what it was asked, from the kind
/// of address on.
fn proxy() -> (SocketAddr, mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, requests) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.read_exact(&mut [0; 3]).unwrap();
            stream.write_all(b"\x05\x00").unwrap();
            let mut request = [0; 300];
            let length = stream.read(&mut request).unwrap();
            tell.send(request[3..length].to_vec()).unwrap();
            stream.write_all(b"\x05\x00\x00\x01\0\0\0\0\0\0upstream").unwrap();
        }
    });
    (address, requests)
}
