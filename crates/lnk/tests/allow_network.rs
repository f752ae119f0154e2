//! `--allow network`: this machine's own network, and what stays closed in it.

mod network;

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use network::{SERVE, run};
use testkit::{Call, Net, TestEnv, each};

const FLAG: &str = "--allow network";

fn http<'a>(address: &'a str, port: &'a str) -> [&'a str; 6] {
    let [python, flag, script] = SERVE;
    [python, flag, script, "http", address, port]
}

/// What each script begins with: `outcome` tells how an action ended.
const PYTHON: &str = "\
import errno, os, socket, sys, threading
def outcome(action):
    try: return action() or 'ok'
    except OSError as error: return errno.errorcode[error.errno]
";

/// A script of Python's in a sandbox, without a network of the test's.
fn inside<const N: usize>(env: &TestEnv, flags: [&str; N], script: &str) -> Call {
    let script = format!("{PYTHON}{script}");
    let words = ["sandbox", "run", "--allow", "network"].into_iter().chain(flags);
    env.lnk(words.chain(["--", "/usr/bin/python3", "-c", &script]))
}

#[test]
fn the_machines_network_is_reached_without_a_proxy() {
    let Some(mut net) = Net::new() else { return };
    net.serve(http("11.0.0.2", "80")).serve(http("10.77.0.2", "5000"));
    net.serve_here(http("127.0.0.1", "5001")).serve_here(http("::1", "5002"));
    each!(|env| {
        for (url, answer) in [
            ("http://origin.test.example/a", "11.0.0.2 /a origin.test.example\n"),
            ("http://nas.local:5000/", "10.77.0.2 / nas.local:5000\n"),
            ("http://10.77.0.2:5000/", "10.77.0.2 / 10.77.0.2:5000\n"),
            ("http://localhost:5001/", "127.0.0.1 / localhost:5001\n"),
            ("http://[::1]:5002/", "::1 / [::1]:5002\n"),
        ] {
            run(env, &net, FLAG, ["curl", "-sS", url]).run().ok().prints(answer);
            run(env, &net, "", ["curl", "-sS", url]).run().fails();
        }
        let script = "env | grep -ic proxy; getent hosts lnk; cat /proc/sys/net/ipv4/ip_forward";
        run(env, &net, FLAG, ["sh", "-c", script]).run().prints("0\n127.0.0.1       lnk\n0\n");
        // What listens inside is this machine's.
        let script = "import http.client, socket, threading
served = socket.create_server(('10.77.0.1', 0))
threading.Thread(target=lambda: served.accept()[0].sendall(b'own'), daemon=True).start()
print(socket.create_connection(served.getsockname()).recv(3).decode())";
        run(env, &net, FLAG, ["/usr/bin/python3", "-c", script]).run().ok().prints("own\n");
        assert!(!env.home().join(".config/lnk/sandbox/wire.log").exists());
    });
}

#[test]
fn names_are_asked_of_the_machines_name_servers() {
    let Some(mut net) = Net::new() else { return };
    let [python, flag, script] = SERVE;
    net.serve([python, flag, script, "dns", "11.0.0.2", "asked.test.example", "11.0.0.7"]);
    net.serve_here([python, flag, script, "dns", "127.0.0.53", "asked.test.example", "11.0.0.8"]);
    each!(|env| {
        let lookup = |flags: &str, server: &str| {
            let file = env.write("servers", format!("# ours\nnameserver {server}\n"));
            let program = ["getent", "ahostsv4", "asked.test.example"];
            run(env, &net, flags, program).replaced("/etc/resolv.conf", file).run()
        };
        lookup(FLAG, "11.0.0.2").ok().stdout_has("11.0.0.7 ");
        lookup(FLAG, "127.0.0.53").ok().stdout_has("11.0.0.8 ");
        lookup("", "11.0.0.2").fails();
        // What is hidden stays so.
        let hides = "--allow network --hide /etc/resolv.conf --hide /etc/hosts";
        lookup(hides, "11.0.0.2").fails();
        run(env, &net, hides, ["getent", "hosts", "nas.local"]).run().fails();
    });
}

#[test]
fn name_servers_behind_a_link_into_run() {
    let Some(mut net) = Net::new() else { return };
    let [python, flag, script] = SERVE;
    net.serve_here([python, flag, script, "dns", "127.0.0.53", "asked.test.example", "11.0.0.8"]);
    each!(|env| {
        let (etc, run) = (env.outside().join("etc"), env.outside().join("run"));
        for file in ["passwd", "group", "nsswitch.conf", "hosts"] {
            env.write(etc.join(file), fs::read(format!("/etc/{file}")).expect("the system's"));
        }
        env.link("../run/resolvconf/resolv.conf", etc.join("resolv.conf"));
        env.folder(run.join("resolvconf"));
        env.link("../systemd/resolve/stub-resolv.conf", run.join("resolvconf/resolv.conf"));
        env.write(run.join("systemd/resolve/stub-resolv.conf"), "nameserver 127.0.0.53\n");
        // Where /etc is made for the sandbox, and where it is the machine's.
        for read in ["--read=.", "--read=/etc"] {
            let words = ["sandbox", "run", "--allow", "network", "--read", ".", read, "--"];
            env.lnk(words.into_iter().chain(["getent", "ahostsv4", "asked.test.example"]))
                .within(&net)
                .replaced("/etc", &etc)
                .replaced("/run", &run)
                .run()
                .ok()
                .stdout_has("11.0.0.8 ");
        }
    });
}

#[test]
fn abstract_sockets_stay_closed() {
    each!(|env| {
        let name = format!("lnk-test-{}-{}", env.user.name, env.mounts.name());
        let address = SocketAddr::from_abstract_name(&name).expect("short enough");
        let bait = UnixListener::bind_addr(&address).expect("nobody has it");
        bait.set_nonblocking(true).expect("own socket");
        let control = format!("import socket; socket.socket(socket.AF_UNIX).connect('\\0{name}')");
        env.program("/usr/bin/python3", ["-c", &control]).run().ok();
        bait.accept().expect("the control came through");
        let script = format!(
            "
for kind in socket.SOCK_STREAM, socket.SOCK_SEQPACKET:
    print(outcome(lambda: socket.socket(socket.AF_UNIX, kind).connect('\\0{name}')))
print(outcome(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', '\\0{name}')))
# Nobody can tell its own from the machine's.
own = socket.socket(socket.AF_UNIX)
own.bind('\\0{name}-own')
own.listen()
print(outcome(lambda: socket.socket(socket.AF_UNIX).connect('\\0{name}-own')))
"
        );
        let refused = "EACCES\nEACCES\nEACCES\nEACCES\n";
        inside(env, ["--read", "."], &script).run().ok().prints(refused);
        assert!(bait.accept().is_err(), "the sandbox got through");
        let mut terminal = inside(env, ["--read", "."], &script).terminal(24, 160);
        terminal.shows(&format!("refused the socket @{name}: with --allow network only those"));
    });
}

#[test]
fn only_sockets_on_its_own_file_systems_are_connected() {
    each!(|env| {
        let path = env.project().join("host");
        let bait = UnixListener::bind(&path).expect("the path is free");
        let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(&path, everyone).expect("own socket");
        bait.set_nonblocking(true).expect("own socket");
        let script = "
def own(path, connects_to=None):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    print(outcome(lambda: socket.socket(socket.AF_UNIX).connect(connects_to or path)))
print(outcome(lambda: socket.socket(socket.AF_UNIX).connect('host')))
print(outcome(lambda: socket.socket(socket.AF_UNIX).connect(os.getcwd() + '/../project/host')))
# Whose it is can't be told in a folder that the machine has too.
own('own')
own('/tmp/own')
own('/run/own')
own('/dev/shm/own')
own(os.path.expanduser('~/own'))
one, other = socket.socketpair()
";
        inside(env, ["--write", "."], script)
            .run()
            .ok()
            .prints("EACCES\nEACCES\nEACCES\nok\nok\nok\nok\n");
        assert!(bait.accept().is_err(), "the sandbox got through");
        let mut terminal = inside(
            env,
            ["--write", "."],
            "
socket.socket(socket.AF_UNIX).connect('host')",
        )
        .terminal(24, 200);
        terminal.shows("with --allow network only those in its own /tmp can be told from");
    });
}

#[test]
fn nobody_inside_has_a_right_over_the_machines_network() {
    let Some(net) = Net::new() else { return };
    each!(|env| {
        let script = format!(
            "{PYTHON}
import fcntl, struct
def netlink(kind):
    # RTM_NEWLINK, RTM_NEWADDR and RTM_NEWROUTE of linux/rtnetlink.h, acknowledged.
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        body = bytes(32)
        link.send(struct.pack('=IHHII', 16 + len(body), kind, 5, 1, 0) + body)
        print(errno.errorcode[-struct.unpack('=i', link.recv(4096)[16:20])[0]])
netlink(16)
netlink(20)
netlink(24)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
# SIOCSIFFLAGS of linux/sockios.h
down = struct.pack('16sH22x', b'cable', 0)
print(outcome(lambda: fcntl.ioctl(udp, 0x8914, down) and None))
print(outcome(lambda: socket.socket(socket.AF_INET).bind(('127.0.0.1', 80))))
print(outcome(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) and None))
print(outcome(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW) and None))
print(outcome(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) and None))
print(outcome(lambda: socket.socket(socket.AF_VSOCK) and None))
print(outcome(lambda: open('/proc/sys/net/ipv4/ip_forward', 'w') and None))
print(outcome(lambda: open('/proc/net/route', 'w') and None))
"
        );
        let run = run(env, &net, FLAG, ["/usr/bin/python3", "-c", &script]).run().ok();
        let outcomes: Vec<&str> = run.stdout.lines().collect();
        let refused =
            ["EPERM"; 4].into_iter().chain(["EACCES", "EPERM"]).chain(["EAFNOSUPPORT"; 3]);
        let refused: Vec<&str> = refused.chain(["EROFS", "EROFS"]).collect();
        assert_eq!(outcomes, refused, "{run}");
    });
}

#[test]
fn many_connects_may_wait_for_other_machines() {
    let Some(mut net) = Net::new() else { return };
    net.serve(http("11.0.0.2", "80"));
    each!(|env| {
        // A router drops what it doesn't know, so these wait for minutes.
        let script = format!(
            "{PYTHON}
begun, ended = threading.Semaphore(0), []
def wait():
    lost = socket.socket()
    begun.release()
    ended.append(outcome(lambda: lost.connect(('11.0.0.77', 80))))
for _ in range(200): threading.Thread(target=wait, daemon=True).start()
for _ in range(200): begun.acquire()
print(outcome(lambda: socket.socket().connect(('11.0.0.2', 80))), ended, flush=True)
os._exit(0)
"
        );
        run(env, &net, FLAG, ["/usr/bin/python3", "-c", &script]).run().ok().prints("ok []\n");
    });
}

#[test]
fn without_landlocks_scopes_nothing_runs() {
    each!(|env| {
        for errno in [libc::ENOSYS, libc::EOPNOTSUPP] {
            let call = inside(env, ["--read", "."], "print('ran')");
            let run = call.denied(libc::SYS_landlock_create_ruleset, errno).run();
            let run = run.fails_with(125).prints("");
            assert_eq!(run.stderr.lines().count(), 1, "{run}");
            assert!(run.stderr.contains("--allow network: abstract Unix sockets"), "{run}");
        }
        // Only the scopes count: the mounts and the rest stand.
        env.lnk(["sandbox", "run", "--read", ".", "--", "true"])
            .denied(libc::SYS_landlock_create_ruleset, libc::ENOSYS)
            .run()
            .ok();
    });
}

#[test]
fn a_line_says_how_wide_it_is() {
    each!(|env| {
        let mut terminal = inside(env, ["--read", "."], "").terminal(24, 200);
        terminal.shows("--allow network: the program is in this machine's own network");
        inside(env, ["--read", "."], "").run().ok().quiet();
    });
}

#[test]
fn it_takes_the_place_of_a_specs_network() {
    let Some(mut net) = Net::new() else { return };
    net.serve(http("11.0.0.2", "80")).serve(http("11.0.0.3", "80"));
    each!(|env| {
        env.write(
            "app.toml",
            "[files]\nread = ['.']\n[internet]\nhosts = ['origin.test.example']\n\
             [localhost]\nports = [5432]\n[commands]\nallow = ['curl']\n",
        );
        let get = |flags: &str| {
            let url = "http://other.test.example/";
            run(env, &net, flags, ["curl", "-sS", url]).run()
        };
        get("--spec app.toml --yes").ok().stdout_has("other.test.example:80 isn't open");
        get("--spec app.toml --allow network").ok().prints("11.0.0.3 / other.test.example\n");
    });
}

#[test]
fn learn_and_check_take_it_too() {
    let Some(mut net) = Net::new() else { return };
    net.serve(http("11.0.0.2", "80"));
    each!(|env| {
        let words = ["sandbox", "learn", "--allow", "network", "--read", ".", "--", "curl", "-sS"];
        env.lnk(words.into_iter().chain(["http://11.0.0.2/"]))
            .within(&net)
            .run()
            .ok()
            .prints("[commands]\nallow = [\n    \"curl\",\n]\n")
            .stderr_has("11.0.0.2 / 11.0.0.2");
        let mut run = env
            .lnk(["sandbox", "check", "--allow", "network", "--write", "."])
            .within(&net)
            .run()
            .ok()
            .has_not("LEAK")
            .has_not("not tried");
        for line in [
            "blocked    connect to an abstract Unix socket of this machine",
            "blocked    connect to a Unix socket of this machine in .",
            "allowed    connect to a server on another port of this machine's loopback (--allow network)",
            "allowed    send by UDP to another port of this machine's loopback (--allow network)",
            "allowed    look a name of the internet up (--allow network)",
            "open       take a port or an abstract name that programs outside look for",
        ] {
            run = run.stdout_has(line);
        }
    });
}

#[test]
fn what_names_a_part_of_the_network_contradicts_it() {
    each!(|env| {
        let refused = |words: &[&str]| {
            let run = env.lnk(words.iter().chain(&["--allow", "network", "--", "true"])).run();
            let run = run.fails_with(125).prints("");
            assert_eq!(run.stderr.lines().count(), 1, "{run}");
            run.stderr
        };
        for flags in [
            &["--internet-host", "*"][..],
            &["--proxy"],
            &["--tcp", "a.example:22"],
            &["--upstream", "direct"],
            &["--per-minute", "5"],
            &["--lan-host", "*"],
            &["--port", "5432"],
            &["--model", "11434"],
        ] {
            for command in ["run", "learn"] {
                let words = [&["sandbox", command], flags].concat();
                let said = format!("{} and --allow network contradict each other", flags[0]);
                let line = refused(&words);
                assert!(line.starts_with(&format!("lnk sandbox: {said}")), "{line}");
            }
        }
        env.lnk(["sandbox", "spec", "--allow", "network"])
            .run()
            .fails_with(125)
            .prints("")
            .stderr_has("--allow network: no spec says it");
    });
}
