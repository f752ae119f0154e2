//! The way out: `--internet-host`, `--lan-host`, `--port`, `--upstream`,
//! `--per-minute`, through the wire.

mod network;

use std::fs;
use std::time::Duration;

use lnk_sandbox::wire::log::{Moved, What, records};
use network::{ASK, SERVE, counted, logged, parts, run, run_with_names, told, words};
use rustix::process::Signal;
use serde_json::Value;
use testkit::net::{NEIGHBOURS, SILENT};
use testkit::{Mounts, Net, Run, TestEnv, each};

/// Two machines of the internet, one of the own network.
fn net() -> Option<Net> {
    let mut net = Net::new()?;
    for address in ["11.0.0.2", "11.0.0.3", "10.77.0.2"] {
        net.serve(http(address, "80"));
    }
    net.serve(http("10.77.0.2", "5000"));
    Some(net)
}

/// curl within a sandbox: what it got, and a line with the status.
fn curl(env: &TestEnv, net: &Net, flags: &str, url: &str) -> Run {
    run(env, net, flags, ["curl", "-sS", "-w", "%{http_code}\n", url]).run()
}

fn http<'a>(address: &'a str, port: &'a str) -> [&'a str; 6] {
    let [python, flag, script] = SERVE;
    [python, flag, script, "http", address, port]
}

fn counter<'a>(control: &'a str, endpoints: [&'a str; 4]) -> [&'a str; 9] {
    let [python, flag, script] = SERVE;
    let [a, b, c, d] = endpoints;
    [python, flag, script, "counter", control, a, b, c, d]
}

#[test]
fn a_host_that_is_named_is_reached_and_no_other() {
    let Some(net) = net() else { return };
    each!(|env| {
        let flags = "--internet-host origin.test.example";
        curl(env, &net, flags, "http://origin.test.example/a")
            .ok()
            .prints("11.0.0.2 /a origin.test.example\n200\n");
        curl(env, &net, flags, "http://other.test.example/").ok().stdout_has("403\n");
        curl(env, &net, flags, "http://11.0.0.2/").ok().stdout_has("403\n");
        curl(env, &net, "--internet-host *", "http://rebound.test.example/").ok().stdout_has("403");
        curl(env, &net, "--internet-host *", "http://10.77.0.2/").ok().stdout_has("403\n");
        curl(env, &net, "--internet-host *", "http://other.test.example/").ok().stdout_has("200\n");
        curl(env, &net, "--lan-host nas.local", "http://nas.local:5000/x")
            .ok()
            .prints("10.77.0.2 /x nas.local:5000\n200\n");
        // Without a grant, at once.
        curl(env, &net, "", "http://origin.test.example/").fails_with(6);
        // Without the proxy there is no way.
        let direct = ["curl", "-sS", "--noproxy", "*", "http://11.0.0.2/"];
        run(env, &net, "--internet-host *", direct).run().fails_with(7);
    });
}

#[test]
fn a_terminal_is_told_at_the_end_what_was_refused() {
    let Some(net) = net() else { return };
    each!(|env| {
        let script = "for port in 80 443 443; do curl -s -m 9 http://other.test.example:$port; done; \
                      curl -s https://other.test.example; curl -s http://10.77.0.1; :";
        let asked = |flags| run(env, &net, flags, ["bash", "-c", script]);
        let flags = "--internet-host origin.test.example";
        let mut terminal = asked(flags).terminal(24, 200);
        assert_eq!(terminal.wait_exit(), 0);
        let screen = terminal.screen();
        for line in [
            "lnk sandbox: refused other.test.example:80: it isn't open: add --internet-host \
             other.test.example, or it to hosts in [internet]",
            "lnk sandbox: refused other.test.example:443 (3 times): it isn't open: add",
            "lnk sandbox: refused 10.77.0.1:80: it is an address of this machine: add --port 80",
        ] {
            assert!(screen.contains(line), "{line}\n{screen}");
        }
        // Nobody else is, and nobody where all went through.
        asked(flags).run().ok().has_not("lnk sandbox: refused");
        let curl = ["curl", "-s", "http://origin.test.example/"];
        let mut terminal = run(env, &net, flags, curl).terminal(24, 200);
        assert_eq!(terminal.wait_exit(), 0);
        assert!(!terminal.screen().contains("refused"));
    });
}

#[test]
fn a_log_that_cant_be_written_is_named() {
    each!(|env| {
        env.folder(env.home().join(".config/lnk/sandbox/wire.log"));
        let words = ["sandbox", "run", "--read", ".", "--internet-host", "a.b", "--", "true"];
        let run = env.lnk(words).run().fails_with(125);
        run.stderr_has("its proxy can't be started: ")
            .stderr_has("/.config/lnk/sandbox/wire.log: ");
    });
}

#[test]
fn nothing_but_the_proxy_leads_out_and_nobody_else_reaches_it() {
    let Some(net) = net() else { return };
    each!(|env| {
        let flags = "--internet-host * --lan-host * --port 5432";
        let script = format!("python3 -c \"{DIRECTLY}\" && exec sleep infinity");
        let mut running = run(env, &net, flags, ["bash", "-c", &script]).spawn();
        running.wait_for_stdout("that's all\n");
        // The proxy is at the sandbox's loopback, not at the machine's or another's.
        let knock = "import socket
for address in '127.0.0.1', '::1', '10.77.0.1', '11.0.0.1':
    try:
        print(socket.create_connection((address, 40781), timeout=10))
    except ConnectionRefusedError:
        pass";
        env.program("python3", ["-c", knock]).within(&net).run().ok().prints("");
        run(env, &net, "", ["curl", "-sS", "http://127.0.0.1:40781/"]).run().fails_with(7);
        running.signal(Signal::TERM);
        running.wait().fails_with(143).prints(
            "TCP 11.0.0.2 ENETUNREACH\nTCP 10.77.0.2 ENETUNREACH\nUDP 11.0.0.2 ENETUNREACH\n\
             UDP 10.77.0.2 ENETUNREACH\nTCP 2606:4700::1 ENETUNREACH\n\
             UDP 2606:4700::1 ENETUNREACH\nthat's all\n",
        );
    });
}

/// Speaks to the world without the proxy: by TCP, by UDP as DNS and QUIC do, by pings and
/// below, in all of which nothing may be sent.
const DIRECTLY: &str = "
import errno
from socket import *
def speak(name, family, kind, protocol, address):
    try:
        flags = MSG_FASTOPEN if kind == SOCK_STREAM else 0
        socket(family, kind, protocol).sendto(b'x', flags, address)
        print(name, address[0], 'spoken to')
    except OSError as error:
        if protocol == 0:
            print(name, address[0], errno.errorcode[error.errno])
four, six = ['11.0.0.2', '10.77.0.2'], ['2606:4700::1']
for family, hosts in (AF_INET, four), (AF_INET6, six):
    for name, kind, port in ('TCP', SOCK_STREAM, 80), ('UDP', SOCK_DGRAM, 443):
        for host in hosts:
            speak(name, family, kind, 0, (host, port))
for kind in SOCK_DGRAM, SOCK_RAW:
    speak('ICMP', AF_INET, kind, IPPROTO_ICMP, ('11.0.0.2', 0))
    speak('ICMP', AF_INET6, kind, IPPROTO_ICMPV6, ('2606:4700::1', 0))
    speak('packet', AF_PACKET, kind, 0x0800, ('lo', 0x0800))
    speak('packet', AF_PACKET, kind, 0x0800, ('cable', 0x0800))
print('that\\'s all', flush=True)
";

#[test]
fn a_neighbour_with_a_public_address_is_of_your_network() {
    let Some(mut net) = net() else { return };
    for neighbour in NEIGHBOURS {
        net.serve(http(neighbour, "80"));
    }
    each!(|env| {
        for neighbour in NEIGHBOURS {
            curl(env, &net, "--internet-host *", &format!("http://{neighbour}/"))
                .ok()
                .stdout_has("is a public address in a network of yours: no grant opens it")
                .stdout_has("403\n");
        }
    });
}

#[test]
fn a_check_finds_nothing_that_the_proxy_leaks() {
    let Some(net) = net() else { return };
    each!(|env| {
        let hosts = env.home().join("hosts");
        net.names(&hosts, &network::NAMES);
        let words = ["sandbox", "check", "--read", ".", "--internet-host", "*", "--port", "5432"];
        env.lnk(words)
            .within(&net)
            .replaced("/etc/hosts", hosts)
            .run()
            .ok()
            .stdout_has("allowed    reach * on the internet by the proxy (--internet-host *)")
            .stdout_has("allowed    connect to port 5432 of this machine's loopback (--port 5432)")
            .stdout_has("blocked    reach this machine's loopback by the proxy")
            .has_not("LEAK");
        // By its own name.
        env.lnk(["sandbox", "log", "--refused"]).run().ok().stdout_has("  check-");
    });
}

#[test]
fn a_port_of_this_machine_is_reached_whichever_family_it_listens_on() {
    let Some(mut net) = Net::new() else { return };
    net.serve_here(http("127.0.0.1", "5001")).serve_here(http("::1", "5002"));
    net.serve_here(http("127.0.0.1", "5003"));
    each!(|env| {
        let get = |flags: &str, url: &str| run(env, &net, flags, ["curl", "-sS", url]).run();
        for host in ["127.0.0.1", "[::1]"] {
            get("--port 5001 --port 5002", &format!("http://{host}:5001/a"))
                .ok()
                .prints(&format!("127.0.0.1 /a {host}:5001\n"));
            get("--port 5001 --port 5002", &format!("http://{host}:5002/a"))
                .ok()
                .prints(&format!("::1 /a {host}:5002\n"));
        }
        // One beside it isn't, nor is it by the proxy, which would take `*` for it.
        get("--port 5001", "http://127.0.0.1:5003/").fails_with(7);
        let proxied = ["curl", "-sS", "--noproxy", "", "-w", "%{http_code}\n"];
        for url in ["http://127.0.0.1:5003/", "http://127.0.0.1:5001/", "http://localhost/"] {
            let [a, b, c, d, e, f] = proxied;
            let flags = "--port 5001 --internet-host * --lan-host *";
            run(env, &net, flags, [a, b, c, d, e, f, url]).run().ok().stdout_has("403\n");
        }
        // Nothing listens there: the connection ends.
        get("--port 5009", "http://127.0.0.1:5009/").fails();
        get("--port 40781", "http://127.0.0.1:40781/").fails_with(125).stderr_has("--port 40781");
    });
}

/// Starts a SOCKS5 server on the machine, whose connections come from 11.0.0.9, and
/// waits until it listens.
const SOCKS: &str = "
import os, socket, time
if os.fork():
    os.dup2(os.open('/dev/null', os.O_WRONLY), 2)
    os.execvp('microsocks', ['microsocks', '-i', '127.0.0.1', '-p', '1080', '-b', '11.0.0.9'])
while socket.socket().connect_ex(('127.0.0.1', 1080)):
    time.sleep(0.01)
print('serves', flush=True)
";

#[test]
fn an_upstream_carries_the_internet_and_never_the_lan() {
    let Some(mut net) = net() else { return };
    if !std::path::Path::new("/usr/bin/microsocks").exists() {
        return testkit::missing("the program microsocks");
    }
    net.serve(counter("11.0.0.4:9", ["11.0.0.4:80", "11.0.0.4:443", "11.0.0.4:81", "11.0.0.4:82"]));
    net.serve_here(["python3", "-c", SOCKS]);
    each!(|env| {
        let internet = "http://origin.test.example/from";
        let all = "--internet-host * --lan-host nas.local";
        let (up, down) = ("--upstream socks5://127.0.0.1:1080", "--upstream socks5://127.0.0.1:1");
        curl(env, &net, all, internet).ok().prints("11.0.0.1\n200\n");
        curl(env, &net, &format!("{all} {up}"), internet).ok().prints("11.0.0.9\n200\n");
        // Reached from here, whatever carries the internet.
        for flags in [up, down] {
            let flags = format!("{all} {flags}");
            curl(env, &net, &flags, "http://nas.local:5000/from").ok().prints("10.77.0.1\n200\n");
            curl(env, &net, &flags, "http://rebound.test.example/").ok().stdout_has("403\n");
        }
        // The server itself is this machine's, as all of its loopback.
        let ask =
            ["curl", "-sS", "--noproxy", "", "-w", "%{http_code}\n", "http://127.0.0.1:1080/"];
        run(env, &net, &format!("{all} {up}"), ask).run().ok().stdout_has("403\n");
        // A server that is down is a failure, and no reason to go without it.
        let flags = format!("{all} {down}");
        curl(env, &net, &flags, "http://counter.test.example/").ok().stdout_has("502\n");
        assert_eq!(counted(env, &net, "11.0.0.4:9"), [0, 0, 0]);
        curl(env, &net, all, "http://counter.test.example/").ok().stdout_has("200\n");
        assert_eq!(counted(env, &net, "11.0.0.4:9")[0], 1);
    });
}

#[test]
fn an_upstream_is_asked_for_what_was_judged_and_nothing_else() {
    let Some(mut net) = net() else { return };
    let control = "127.0.0.1:11";
    net.serve_here(["/usr/bin/python3", "-c", SOCKS_RECORD, "127.0.0.1:1080", control]);
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        let grants = "--internet-host * --lan-host nas.local";
        let ask = |scheme: &str, url: &str| {
            let flags = format!("{grants} --upstream {scheme}://127.0.0.1:1080");
            let ask = ["curl", "-sS", "--noproxy", "", "-w", "%{http_code}\n", url];
            run(env, &net, &flags, ask).run()
        };
        let asked = || told(env, &net, control);
        for (scheme, host) in
            [("socks5", "010b000002"), ("socks5h", "03136f726967696e2e746573742e6578616d706c65")]
        {
            ask(scheme, "https://origin.test.example/").fails();
            assert_eq!(asked(), format!("{host}01bb\n"));
            ask(scheme, "http://origin.test.example/");
            assert_eq!(asked(), format!("{host}0050\n"));
            ask(scheme, "http://nas.local:5000/x").ok().stdout_has("200\n");
            let closed = "http://{127.0.0.1:1080,127.0.0.1,\\[::1\\],localhost,11.0.0.1,10.77.0.2,\
                          router,router.local,router.internal,router.home.arpa}/";
            let refused = ask(scheme, closed).ok();
            assert_eq!(refused.stdout.lines().filter(|it| *it == "403").count(), 10, "{refused}");
            // Each of these pauses its run.
            for host in ["169.254.169.254", "\\[fd00:ec2::254\\]", "metadata.google.internal"] {
                let refused = ask(scheme, &format!("http://{host}/")).ok();
                refused.stdout_has("403\n").stdout_has("a cloud's metadata service: no grant");
            }
            // Nor is it there for the program.
            let flags = format!("{grants} --upstream {scheme}://127.0.0.1:1080");
            let direct = ["curl", "-sS", "--noproxy", "*", "http://127.0.0.1:1080/"];
            run(env, &net, &flags, direct).run().fails_with(7);
            assert_eq!(asked(), "\n");
        }
        logged(env);
        let down = format!("{grants} --upstream socks5://127.0.0.1:1");
        curl(env, &net, &down, "http://origin.test.example/").ok().stdout_has("502\n");
        let log = logged(env);
        assert_eq!(log.len(), 1);
        assert!(log[0].starts_with("http origin.test.example:80 failed: "), "{log:?}");
        for upstream in ["socks5://10.77.0.2:1080", "socks5://nas.local:1080", "http://127.0.0.1:1"]
        {
            let flags = format!("{grants} --upstream {upstream}");
            run(env, &net, &flags, ["true"]).run().fails_with(125).stderr_has("--upstream");
        }
    });
}

/// A SOCKS5 server that says yes and ends the connection. At the second address it tells
/// what it was asked since the last time, from the kind of address on, in hexadecimal.
const SOCKS_RECORD: &str = "
import socket, sys, threading
def listen(address):
    host, port = address.split(':')
    return socket.create_server((host, int(port)))
proxy, control = map(listen, sys.argv[1:])
asked = []
def serve():
    while True:
        client, _ = proxy.accept()
        with client:
            if client.recv(3) != bytes([5, 1, 0]):
                asked.append('something else')
                continue
            client.sendall(bytes([5, 0]))
            asked.append(client.recv(300)[3:].hex())
            client.sendall(bytes([5, 0, 0, 1, 0, 0, 0, 0, 0, 0]))
threading.Thread(target=serve, daemon=True).start()
print('serves', flush=True)
while True:
    asking, _ = control.accept()
    with asking:
        asking.sendall((' '.join(asked) + '\\n').encode())
    asked.clear()
";

#[test]
fn calls_above_the_rate_are_told_when_there_is_room() {
    let Some(net) = net() else { return };
    each!(|env| {
        let flags = "--internet-host origin.test.example --per-minute 3";
        let url = "http://origin.test.example/[1-4]";
        let show = "%{http_code} %header{retry-after}\n";
        let curl = ["curl", "-sS", "-o", "/dev/null", "-w", show, url];
        let run = run(env, &net, flags, curl).run().ok();
        let after =
            run.stdout.strip_prefix("200 \n200 \n200 \n429 ").unwrap_or_else(|| panic!("{run}"));
        let after: u64 = after.trim().parse().unwrap();
        assert!((1..=60).contains(&after), "{after}");
    });
}

#[test]
fn calls_to_a_port_count_within_the_rate() {
    let Some(mut net) = Net::new() else { return };
    net.serve_here(http("127.0.0.1", "5001"));
    each!(|env| {
        let url = "http://127.0.0.1:5001/[1-3]";
        let close = "Connection: close";
        let curl = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}\n", "-H", close, url];
        run(env, &net, "--port 5001 --per-minute 2", curl).run().stdout_has("200\n200\n000\n");
        let lines = logged(env);
        let refused = lines.iter().filter(|line| line.contains("localhost:5001 refused: 2 calls"));
        assert_eq!(refused.count(), 1, "{lines:?}");
    });
}

#[test]
fn a_call_that_nobody_answered_when_the_sandbox_ended_is_in_the_log() {
    let Some(net) = net() else { return };
    each!(|env| {
        let ask = "import os, socket
proxy = socket.create_connection(('127.0.0.1', 40781))
proxy.sendall(b'CONNECT SILENT:9 HTTP/1.1\\r\\nHost: SILENT:9\\r\\n\\r\\n')
proxy.settimeout(0.5)
try:
    proxy.recv(1)
except TimeoutError:
    os._exit(0)
"
        .replace("SILENT", SILENT);
        run(env, &net, "--lan-host 10.77.0.0/24", ["python3", "-c", &ask]).run().ok();
        let unanswered = "failed: the sandbox ended before anybody answered";
        assert_eq!(logged(env), [format!("tcp {SILENT}:9 {unanswered}")]);
    });
}

/// Addresses that no grant opens.
const NEVER: [&str; 22] = [
    "127.0.0.1",
    "127.8.9.10",
    "0.0.0.0",
    "::1",
    "::",
    "::ffff:127.0.0.1",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "2001::80ff:fffe",
    "64:ff9b::a4d:3",
    "2002:b00:4::",
    // This machine's, of the public and the private kind.
    "11.0.0.1",
    "10.77.0.1",
    "fe80::1",
    "100.64.0.1",
    "224.0.0.1",
    "255.255.255.255",
    "169.254.169.254",
    "100.100.100.200",
    "168.63.129.16",
    "fd00:ec2::254",
];

/// Other spellings of such addresses, which name no host.
const SPELLINGS: [&str; 22] = [
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f.1",
    "0x7f000001",
    "0177.0.0.1",
    "127.000.000.001",
    "127.0.0.1.",
    "0",
    "localhost",
    "LocalHost.",
    "a.localhost",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:0:0:1]",
    "[::1%lo]",
    "[fe80::1%25cable]",
    "[::ffff:127.0.0.1%x.origin.test.example]",
    "127.0.0.1%00.origin.test.example",
    "origin.test.example@127.0.0.1",
    "0xa9fea9fe",
    "metadata.google.internal",
    "１２７.0.0.1",
];

/// Whether a call to it pauses the wire.
fn is_metadata(host: &str) -> bool {
    let addresses =
        ["169.254.169.254", "100.100.100.200", "168.63.129.16", "fd00:ec2::254", "0xa9fea9fe"];
    host.contains("metadata") || addresses.contains(&host.trim_matches(['[', ']']))
}

#[test]
fn this_machine_and_what_no_grant_opens_are_never_reached() {
    let Some(mut net) = net() else { return };
    net.serve(counter(
        "10.77.0.3:9",
        ["10.77.0.3:80", "10.77.0.3:443", "11.0.0.4:80", "11.0.0.4:443"],
    ));
    net.serve_here(counter("127.0.0.1:9", ["0.0.0.0:80", "0.0.0.0:443", "[::]:80", "[::]:443"]));
    let bracketed = |address: &&str| match address.contains(':') {
        true => format!("[{address}]"),
        false => (*address).to_owned(),
    };
    let label = |address| if is_metadata(address) { "-metadata" } else { "" };
    let named = NEVER.iter().enumerate();
    let named = named.map(|(n, address)| format!("n{n}{}.test.example", label(address)));
    let named: Vec<String> = named.collect();
    let mut names: Vec<(&str, &str)> = named.iter().map(String::as_str).zip(NEVER).collect();
    names.extend([("private.test.example", "10.77.0.3"), ("nas.local", "10.77.0.3")]);
    names.extend([("origin.test.example", "11.0.0.2"), ("public.test.example", "11.0.0.4")]);
    // Of both, the one that is open is dialled.
    names.extend(["127.0.0.1", "11.0.0.1", "11.0.0.4"].map(|it| ("mixed.test.example", it)));
    let mut hosts: Vec<String> = NEVER.iter().map(bracketed).collect();
    hosts.extend(SPELLINGS.map(String::from));
    hosts.extend(named.iter().cloned());
    let private =
        ["10.77.0.3", "[::ffff:10.77.0.3]", "0xa4d0003", "192.168.1.1", "172.16.0.1", "[fd00::1]"];
    let private =
        private.into_iter().chain(["private.test.example", "nas.local"]).map(String::from);

    each!(|env| {
        env.write("ask.py", ASK);
        let ask = |flags: &str, hosts: &[String]| {
            let ask = |(methods, part): (String, Vec<String>)| {
                let program = format!("exec python3 ask.py '{methods}' {}", words(&part));
                let run = run_with_names(env, &net, &names, flags, ["sh", "-c", &program]);
                run.run().ok().stdout
            };
            parts(hosts, is_metadata).into_iter().map(ask).collect::<String>()
        };
        let refused = |flags: &str, hosts: &[String]| {
            let answers = ask(flags, hosts);
            assert_eq!(answers.lines().count(), 2 * hosts.len(), "{answers}");
            for answer in answers.lines() {
                assert!(answer.ends_with(" 403") || answer.ends_with(" 400"), "{answer}");
            }
        };
        refused("--internet-host * --lan-host *", &hosts);
        refused(
            "--internet-host *",
            &hosts.iter().cloned().chain(private.clone()).collect::<Vec<_>>(),
        );
        // Where an open host leads, curl asks for through the proxy, as far as it
        // makes a URL of it.
        let url = |host: &&String| host.is_ascii() && !host.contains('%');
        let away = hosts.iter().filter(url).cloned().collect::<Vec<_>>();
        let flags = "--internet-host * --lan-host *";
        let follow = |hosts: &[String]| {
            let follow = format!(
                "for host in {}; do curl -sL --noproxy '' -o /dev/null -w \"$host %{{http_code}} \
                 %{{num_redirects}}\\n\" \"http://origin.test.example/to?http://$host/\"; done",
                words(hosts)
            );
            run_with_names(env, &net, &names, flags, ["bash", "-c", &follow]).run().stdout
        };
        // A run that asked for a metadata service, or for many others, is paused.
        let runs = away.chunk_by(|a, b| !is_metadata(a) && !is_metadata(b));
        let answers: String = runs.flat_map(|run| run.chunks(15)).map(follow).collect();
        assert_eq!(answers.lines().count(), away.len(), "{answers}");
        for answer in answers.lines() {
            assert!(
                answer.ends_with(" 403 1") || answer.ends_with(" 400 1"),
                "{answer}\n{answers}"
            );
        }
        assert_eq!(counted(env, &net, "127.0.0.1:9"), [0, 0, 0]);
        assert_eq!(counted(env, &net, "10.77.0.3:9"), [0, 0, 0]);
        // They would have counted.
        let open = ["nas.local", "public.test.example", "mixed.test.example"].map(String::from);
        let answers = ask(flags, &open);
        assert!(answers.lines().all(|answer| answer.ends_with(" 200")), "{answers}");
        assert_eq!(counted(env, &net, "10.77.0.3:9")[0], 6);
        for url in ["http://127.0.0.1/", "http://[::1]/", "http://11.0.0.1:443/"] {
            env.program("curl", ["-s", url]).within(&net).run().ok();
        }
        assert_eq!(counted(env, &net, "127.0.0.1:9")[0], 3);
    });
}

#[test]
fn every_spelling_of_a_host_is_one_host_or_none() {
    let Some(mut net) = Net::new() else { return };
    let all = ["11.0.0.4:80", "11.0.0.4:443", "10.77.0.3:80", "10.77.0.3:443"];
    net.serve(counter("11.0.0.4:9", all));
    let names = [
        "api.test.example",
        "xn--bcher-kva.example",
        "evilapi.test.example",
        "x.wild.example",
        "wild.example",
        "xwild.example",
    ];
    let open = ["api.test.example", "API.Test.Example", "api.test.example."];
    let open = [&open[..], &["xn--bcher-kva.example", "XN--BCHER-KVA.example."]].concat();
    let under = ["x.wild.example", "X.WILD.example.", "a.x.Wild.Example"];
    let closed = [
        "api.test.example..",
        ".api.test.example",
        "[api.test.example]",
        "[[api.test.example]]",
        "api.test.example%00.x.wild.example",
        "api.test.exampleNUL.x.wild.example",
        "evilapi.test.example",
        "api.test.example.evil.example",
        "user@api.test.example",
        "api.test.example:80@evilapi.test.example",
        "api.test.example#evil",
        "api.test.example\\evil",
        "api.test.example +80",
        "api.test.example 080",
        "api.test.example 0",
        "api.test.example 65536",
        "api.test.example -1",
        "api.test.example:80 80",
        "",
        " 80",
        "wild.example",
        "xwild.example",
        "*.wild.example",
    ];
    let internet = "--internet-host api.test.example --internet-host *.wild.example \
                    --internet-host bücher.example";
    let lan = "--lan-host api.test.example --lan-host bücher.example";
    each!(|env| {
        env.write("ask.py", ASK);
        for (flags, address, open) in
            [(internet, "11.0.0.4", [&open[..], &under].concat()), (lan, "10.77.0.3", open.clone())]
        {
            let names = names.map(|name| (name, address));
            let names = [&names[..], &[("a.x.wild.example", address)]].concat();
            let ask = |hosts: &[&str]| {
                let owned: Vec<String> = hosts.iter().map(|it| (*it).to_owned()).collect();
                let ask = |(methods, part): (String, Vec<String>)| {
                    let program = format!("exec python3 ask.py '{methods}' {}", words(&part));
                    let run = run_with_names(env, &net, &names, flags, ["sh", "-c", &program]);
                    run.run().ok().stdout
                };
                let answers: String = parts(&owned, is_metadata).into_iter().map(ask).collect();
                assert_eq!(answers.lines().count(), 2 * hosts.len(), "{answers}");
                answers
            };
            for answer in ask(&open).lines() {
                assert!(answer.ends_with(" 200"), "{flags}: {answer}");
            }
            assert_eq!(counted(env, &net, "11.0.0.4:9")[0], 2 * open.len() as u64);
            for answer in ask(&closed).lines() {
                assert!(answer.ends_with(" 403") || answer.ends_with(" 400"), "{answer}");
            }
            assert_eq!(counted(env, &net, "11.0.0.4:9")[0], 0);
        }
        let log = fs::read_to_string(env.home().join(".config/lnk/sandbox/wire.log")).unwrap();
        assert!(log.chars().all(|c| c == '\n' || !c.is_control()), "{log:?}");
    });
}

#[test]
fn a_programs_own_loopback_is_no_matter_of_the_proxys() {
    let Some(net) = net() else { return };
    let script = "
import http.server, socket, subprocess, threading, urllib.request
def serve(address, family):
    class Server(http.server.ThreadingHTTPServer):
        address_family = family
    server = Server((address, 3355), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
serve('127.0.0.1', socket.AF_INET)
serve('::1', socket.AF_INET6)
for host in ['127.0.0.1', 'localhost', '[::1]']:
    url = f'http://{host}:3355/note'
    subprocess.run(['curl', '-sS', url], check=True)
    if host != '[::1]':  # urllib knows no way to except it
        print(urllib.request.urlopen(url).read().decode(), end='')
";
    each!(|env| {
        env.write("note", "hi\n");
        let program = ["/usr/bin/python3", "-uc", script];
        run(env, &net, "--internet-host *", program).run().ok().prints(&"hi\n".repeat(5));
        // What the caller has for a proxy is the caller's.
        let mut call = run(env, &net, "--internet-host *", ["env"]);
        let theirs = "http://theirs.test.example:3128";
        for name in ["http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
            call = call.env(name, theirs);
        }
        let environment = call.env("NO_PROXY", "*").run().ok().has_not(theirs).has_not("ALL_PROXY");
        for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"] {
            let own = format!("\n{name}=http://127.0.0.1:40781\n");
            assert!(format!("\n{}", environment.stdout).contains(&own), "{environment}");
        }
        let call = run(env, &net, "", ["env"]).env("HTTPS_PROXY", theirs);
        call.run().ok().has_not("PROXY").has_not("_proxy");
    });
}

#[test]
fn many_sandboxes_at_once_log_each_call_and_count_each_byte() {
    let Some(mut net) = net() else { return };
    net.serve(counter(
        "11.0.0.4:9",
        ["11.0.0.4:80", "11.0.0.4:81", "10.77.0.3:80", "10.77.0.3:81"],
    ));
    let calls = if std::env::var_os("LNK_LONG").is_some() { 200 } else { 20 };
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        // The last of the calls is a tunnel with as many requests in it.
        let program = format!(
            "curl -sSf --fail-early -o /dev/null 'http://counter.test.example/[1-{}]' \
             --next -sSf -p -o /dev/null 'http://10.77.0.3:81/[1-{calls}]' && \
             echo done && exec sleep infinity",
            calls - 1
        );
        let flags = "--internet-host counter.test.example --lan-host 10.77.0.3";
        let start = |_| {
            let call = run(env, &net, flags, ["bash", "-c", &program]);
            call.deadline(Duration::from_secs(300)).spawn()
        };
        let mut sandboxes: Vec<_> = (0..50).map(start).collect();
        for sandbox in &mut sandboxes {
            sandbox.wait_for_stdout("done\n");
        }
        let counted = counted(env, &net, "11.0.0.4:9");
        assert_eq!(carried(env), [50, counted[1], counted[2]]);
        for sandbox in sandboxes {
            sandbox.signal(Signal::TERM);
            sandbox.wait().fails_with(143);
        }
        assert_eq!(calls_in_log(env), (50 * calls, counted));
    });
}

/// How many sandboxes run, and what `lnk sandbox traffic` says of them all.
fn carried(env: &TestEnv) -> [u64; 3] {
    let traffic = env.lnk(["sandbox", "traffic", "--json"]).run().ok();
    let wires: Vec<Value> = serde_json::from_str(&traffic.stdout).expect("JSON");
    let sum = |key: &str| wires.iter().map(|wire| wire[key].as_u64().expect("bytes")).sum();
    [wires.len() as u64, sum("up"), sum("down")]
}

/// Calls in the log, each with its two lines and nothing else, and what they add up to
/// as a counter would count it.
fn calls_in_log(env: &TestEnv) -> (u64, [u64; 3]) {
    let folder = env.home().join(".config/lnk/sandbox");
    let mut files = vec![folder.join("wire.log")];
    files.extend((1..10).map(|n| folder.join(format!("wire.log.{n}"))));
    let bytes: Vec<u8> =
        files.iter().rev().flat_map(|file| fs::read(file).unwrap_or_default()).collect();
    let lines: Vec<_> = records(&bytes).map(|record| record.line).collect();
    // A line that is begun while another is being written may have an empty one before it.
    let written = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    assert_eq!(lines.len(), written.count());
    let mut allowed = std::collections::HashSet::new();
    let mut sum = [0; 3];
    for line in &lines {
        let call = (line.sandbox.name.clone(), line.call);
        match &line.what {
            What::Allowed => assert!(allowed.insert(call.clone()), "twice: {call:?}"),
            What::Ended(Moved { up, down, .. }) => {
                assert!(allowed.contains(&call), "not begun: {call:?}");
                sum = [sum[0] + 1, sum[1] + up, sum[2] + down];
            }
            other => panic!("{call:?}: {other:?}"),
        }
    }
    assert_eq!((allowed.len() as u64, lines.len()), (sum[0], 2 * allowed.len()));
    (sum[0], sum)
}
