//! Endpoints reached by their own names, and the DNS inside that tells them.

mod network;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use network::{SERVE, logged, run, run_words, told};
use serde_json::{Value, json};
use testkit::{Call, Mounts, Net, TestEnv, each};

const DNS: &str = include_str!("network/dns.py");
const LOOK_UP: &str = include_str!("network/look_up.py");

/// Connects to each NAME:PORT as any program does: what it heard, or the error.
const CLIENT: &str = r"
import socket, sys
for endpoint in sys.argv[1:]:
    host, port = endpoint.rsplit(':', 1)
    try:
        with socket.create_connection((host, int(port)), timeout=20) as it, it.makefile('rwb') as lines:
            first = lines.readline()
            if not first:
                raise ConnectionResetError
            lines.write(b'back\n')
            lines.flush()
            print(endpoint, first.decode().strip(), lines.read().decode().strip())
    except OSError as error:
        print(endpoint, type(error).__name__)
";

/// Names of the other machine.
const NAMES: [(&str, &str); 5] = [
    ("one.test.example", "11.0.0.2"),
    ("two.test.example", "11.0.0.3"),
    ("three.test.example", "11.0.0.4"),
    ("test.example", "11.0.0.4"),
    ("nas.test.example", "10.77.0.2"),
];

/// Servers that speak first, on the other machine.
fn net() -> Option<Net> {
    let mut net = Net::new()?;
    let endpoints = [
        "11.0.0.2:5432",
        "11.0.0.3:5432",
        "11.0.0.4:5432",
        "11.0.0.2:22",
        "11.0.0.2:443",
        "11.0.0.4:443",
        "10.77.0.2:5432",
    ];
    net.serve([&SERVE[..], &["first"], &endpoints].concat());
    Some(net)
}

fn client(env: &TestEnv, net: &Net, flags: &str, endpoints: &[&str]) -> Call {
    let program = [&["/usr/bin/python3", "-c", CLIENT], endpoints].concat();
    run_words(env, net, &NAMES, flags, &program)
}

#[test]
fn two_names_on_one_port_reach_their_own_servers() {
    let Some(net) = net() else { return };
    let flags = "--internet-host one.test.example --internet-host two.test.example \
                 --tcp one.test.example:5432 --tcp two.test.example:5432 \
                 --tcp one.test.example:22 --tcp One.Test.Example.:443";
    let endpoints = [
        "two.test.example:5432",
        "one.test.example:5432",
        "ONE.test.example.:22",
        "one.test.example:443",
        // Not its port, not its name, and not named at all.
        "two.test.example:22",
        "one.test.example:80",
        "three.test.example:5432",
        // By no name.
        "127.0.0.1:5432",
        "127.77.3.1:5432",
        "11.0.0.2:5432",
        "[::1]:5432",
    ];
    each!(|env| {
        let run = client(env, &net, flags, &endpoints).run().ok();
        run.prints(
            "two.test.example:5432 11.0.0.3:5432 back\n\
             one.test.example:5432 11.0.0.2:5432 back\n\
             ONE.test.example.:22 11.0.0.2:22 back\n\
             one.test.example:443 11.0.0.2:443 back\n\
             two.test.example:22 ConnectionResetError\n\
             one.test.example:80 ConnectionRefusedError\n\
             three.test.example:5432 gaierror\n\
             127.0.0.1:5432 ConnectionResetError\n\
             127.77.3.1:5432 ConnectionResetError\n\
             11.0.0.2:5432 OSError\n\
             [::1]:5432 gaierror\n",
        );
        let log = logged(env);
        let has = |line: &str| log.iter().any(|its| its.starts_with(line));
        for line in [
            "dns two.test.example:0 allowed",
            "tcp two.test.example:5432 allowed",
            "tcp two.test.example:5432 ended 5 ",
            "tcp one.test.example:22 ended 5 ",
            "tcp one.test.example:443 ended 5 ",
            "tcp two.test.example:22 refused: two.test.example:22 isn't open: \
             add --tcp two.test.example:22, or it to tcp in [internet]",
            "tcp one.test.example:80 refused: one.test.example:80 isn't open: \
             add --tcp one.test.example:80, or it to tcp in [internet]",
            "dns three.test.example:0 refused: no endpoint has this name: add --internet-host \
             three.test.example --tcp three.test.example:PORT, or them to hosts and tcp in",
            "port localhost:5432 refused: this port isn't open: add --port 5432, \
             or it to ports in [localhost]",
            "unknown 127.77.3.1:5432 refused: this address stands for no name of an endpoint",
        ] {
            assert!(has(line), "{line}: {log:#?}");
        }
        assert_eq!(log.iter().filter(|line| **line == "dns one.test.example:0 allowed").count(), 1);
    });
}

#[test]
fn an_endpoint_is_open_to_connect_and_says_what_it_likes() {
    let Some(net) = net() else { return };
    let connect = r"
import socket, sys
for target in sys.argv[1:]:
    with socket.create_connection(('127.0.0.1', 40781)) as it, it.makefile('rwb') as lines:
        lines.write(f'CONNECT {target} HTTP/1.1\r\n\r\n'.encode())
        lines.flush()
        status = lines.readline().split()[1].decode()
        while lines.readline().strip():
            pass
        if status == '200':
            lines.write(b'no TLS\n')
            lines.flush()
            status = lines.readline().decode().strip()
        print(target, status)
";
    let flags =
        "--internet-host *.test.example --tcp one.test.example:22 --tcp one.test.example:443";
    let targets = [
        "one.test.example:22",
        "one.test.example:443",
        "three.test.example:443",
        "two.test.example:22",
        "one.test.example:5432",
    ];
    let program = [&["/usr/bin/python3", "-c", connect], &targets[..]].concat();
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        // The third speaks no TLS, and hears nothing.
        run_words(env, &net, &NAMES, flags, &program).run().ok().prints(
            "one.test.example:22 11.0.0.2:22\n\
             one.test.example:443 11.0.0.2:443\n\
             three.test.example:443 \n\
             two.test.example:22 403\n\
             one.test.example:5432 403\n",
        );
        let verbs: Vec<_> = logged(env)
            .iter()
            .filter(|line| line.contains(":443"))
            .filter_map(|line| line.split(' ').next().map(str::to_owned))
            .collect();
        assert_eq!(verbs, ["tcp", "tcp", "connect"]);
    });
}

#[test]
fn every_name_under_a_domain_is_its_own() {
    let Some(net) = net() else { return };
    let flags = "--internet-host *.test.example --tcp *.test.example:5432";
    let endpoints = [
        "one.test.example:5432",
        "three.test.example:5432",
        "two.test.example:5432",
        "one.test.example:5432",
        "none.test.example:5432",
        "test.example:5432",
        "one.test.example.evil.example:5432",
        // Its address is of the own network.
        "nas.test.example:5432",
    ];
    let told = "one.test.example:5432 11.0.0.2:5432 back\n\
         three.test.example:5432 11.0.0.4:5432 back\n\
         two.test.example:5432 11.0.0.3:5432 back\n\
         one.test.example:5432 11.0.0.2:5432 back\n\
         none.test.example:5432 ConnectionResetError\n\
         test.example:5432 gaierror\n\
         one.test.example.evil.example:5432 gaierror\n";
    each!(|env| {
        let run = client(env, &net, flags, &endpoints).run().ok();
        run.prints(&format!("{told}nas.test.example:5432 ConnectionResetError\n"));
        let log = logged(env);
        let refused = "tcp nas.test.example:5432 refused: nas.test.example resolves to an address \
                       of your network: add --lan-host nas.test.example, or it to hosts in [lan]";
        assert!(log.iter().any(|line| line == refused), "{log:#?}");

        let flags = format!("{flags} --lan-host nas.test.example");
        let run = client(env, &net, &flags, &endpoints).run().ok();
        run.prints(&format!("{told}nas.test.example:5432 10.77.0.2:5432 back\n"));
    });
}

#[test]
fn a_port_of_this_machine_and_an_endpoint_share_a_number() {
    let Some(mut net) = net() else { return };
    net.serve_here([&SERVE[..], &["first"], &["127.0.0.1:5432", "127.0.0.1:5433"]].concat());
    let flags =
        "--internet-host one.test.example --tcp one.test.example:5432 --port 5432 --port 5433";
    let endpoints = [
        "one.test.example:5432",
        "localhost:5432",
        "127.0.0.1:5433",
        "0.0.0.0:5432",
        "127.0.0.2:5432",
    ];
    each!(|env| {
        client(env, &net, flags, &endpoints).run().ok().prints(
            "one.test.example:5432 11.0.0.2:5432 back\n\
             localhost:5432 127.0.0.1:5432 back\n\
             127.0.0.1:5433 127.0.0.1:5433 back\n\
             0.0.0.0:5432 127.0.0.1:5432 back\n\
             127.0.0.2:5432 ConnectionResetError\n",
        );
    });
}

#[test]
fn an_endpoint_that_is_an_address_is_reached_at_it() {
    let Some(net) = net() else { return };
    let flags = "--internet-host * --tcp 11.0.0.2:5432 --tcp [2606:4700::1]:5432 \
                 --lan-host 10.77.0.0/24 --tcp 10.77.0.2:5432 --tcp one.test.example:22";
    let endpoints = [
        "11.0.0.2:5432",
        "10.77.0.2:5432",
        "one.test.example:22",
        // Another port of it, another address, and this machine's.
        "11.0.0.2:22",
        "11.0.0.2:80",
        "11.0.0.3:5432",
        "11.1.2.3:5432",
        "127.0.0.1:5432",
    ];
    each!(|env| {
        client(env, &net, flags, &endpoints).run().ok().prints(
            "11.0.0.2:5432 11.0.0.2:5432 back\n\
             10.77.0.2:5432 10.77.0.2:5432 back\n\
             one.test.example:22 11.0.0.2:22 back\n\
             11.0.0.2:22 ConnectionResetError\n\
             11.0.0.2:80 ConnectionRefusedError\n\
             11.0.0.3:5432 OSError\n\
             11.1.2.3:5432 OSError\n\
             127.0.0.1:5432 ConnectionResetError\n",
        );
        let log = logged(env);
        for line in [
            "tcp 10.77.0.2:5432 ended 5 ",
            "tcp 11.0.0.2:22 refused: 11.0.0.2:22 isn't open: add --tcp 11.0.0.2:22",
            "tcp 11.0.0.2:80 refused: 11.0.0.2:80 isn't open: add --tcp 11.0.0.2:80",
        ] {
            assert!(log.iter().any(|its| its.starts_with(line)), "{line}: {log:#?}");
        }
        // Of IPv6 nobody is there: it is the wire that finds that.
        let to = [
            "bash",
            "-c",
            "python3 -c 'import socket
try: print(socket.create_connection((\"2606:4700::1\", 5432)).recv(9))
except OSError as error: print(type(error).__name__)'",
        ];
        if Path::new("/proc/net/if_inet6").exists() {
            run(env, &net, flags, to).run().ok().prints("ConnectionResetError\n");
            let failed = "tcp 2606:4700::1:5432 failed: no connection: ";
            let log = logged(env);
            assert!(log.iter().any(|its| its.starts_with(failed)), "{log:#?}");
        }
    });
}

#[test]
fn plain_http_reaches_an_endpoint_by_the_proxy() {
    let Some(mut net) = Net::new() else { return };
    net.serve([&SERVE[..], &["http", "11.0.0.2", "8080"]].concat());
    let curl = |url| ["curl", "-sS", url];
    let url = "http://one.test.example:8080/x";
    each!(|env| {
        let get = |flags, url| run_words(env, &net, &NAMES, flags, &curl(url)).run();
        let flags = "--internet-host *.test.example --tcp one.test.example:8080";
        get(flags, url).ok().prints("11.0.0.2 /x one.test.example:8080\n");
        get("--internet-host 11.0.0.2 --tcp 11.0.0.2:8080", "http://11.0.0.2:8080/x")
            .ok()
            .prints("11.0.0.2 /x 11.0.0.2:8080\n");
        get("--internet-host one.test.example", url).prints(
            "one.test.example:8080 isn't open: add --tcp one.test.example:8080, or it to tcp in \
             [internet]\n",
        );
        get(flags, "http://one.test.example:443/").stdout_has("write https://");
    });
}

const RESOLV_CONF: &str = "nameserver 127.0.0.1\nsearch evil.example\n";
/// Where the name server tells what it was asked.
const TOLD: &str = "127.0.0.1:10";

/// [`net`] with a name server on the machine.
fn net_with_names(zone: &Value) -> Option<Net> {
    let mut net = net()?;
    net.serve_here(["/usr/bin/python3", "-c", DNS, "127.0.0.1", TOLD, &zone.to_string()]);
    Some(net)
}

/// `lnk sandbox run` where that is the machine's.
fn by_server(env: &TestEnv, net: &Net, flags: &str, program: &[&str]) -> Call {
    let server = env.write(env.home().join("resolv.conf"), RESOLV_CONF);
    let order = env.write(env.home().join("nsswitch.conf"), "hosts: files dns\n");
    run_words(env, net, &[], flags, program)
        .replaced("/etc/resolv.conf", server)
        .replaced("/etc/nsswitch.conf", order)
        .deadline(Duration::from_secs(120))
}

/// Names and types as `look_up.py` asks for them.
fn look_up(env: &TestEnv, net: &Net, flags: &str, words: &str) -> String {
    env.write("look_up.py", LOOK_UP);
    let program: Vec<&str> =
        ["/usr/bin/python3", "look_up.py"].into_iter().chain(words.split_whitespace()).collect();
    by_server(env, net, flags, &program).run().ok().stdout
}

/// What the name server was asked since the last time: names and types.
fn looked_up(env: &TestEnv, net: &Net) -> Vec<(String, String)> {
    serde_json::from_str(&told(env, net, TOLD)).expect("JSON")
}

#[test]
fn of_an_unlisted_name_no_packet_goes_out() {
    let zone = json!({"_x._tcp.db.x.example": [["SRV 5432 db.x.example"]]});
    let Some(net) = net_with_names(&zone) else { return };
    let unlisted = [
        "c2VjcmV0.evil.example",
        "evil.example",
        "x.example",
        "db.x.example.evil.example",
        "sub.db.x.example",
        "_x._tcp.evil.example",
        "_x._udp.db.x.example",
        "_a._x._tcp.db.x.example",
        "x._tcp.db.x.example",
        "db.x.examplE\u{e9}",
        "db x.example",
        "127.77.0.1",
        "1.0.77.127.in-addr.arpa",
        "localhost",
        "metadata.google.internal",
        ".",
        "nas",
    ];
    let flags = "--internet-host *.x.example --internet-host * --tcp db.x.example:5432";
    // Each name by some types, one by every type.
    let all = r"
import sys
sys.path.insert(0, '.')
import look_up
rcodes = set()
for name in sys.argv[1:]:
    name = '' if name == '.' else name
    for kind in range(65536) if name == 'evil.example' else [*range(1, 70), 255, 65535]:
        for transport in ['udp'] if kind > 100 else ['udp', 'tcp']:
            rcodes.add((*look_up.ask(transport, look_up.question(name, kind)),))
print(rcodes)
";
    let program = [&["/usr/bin/python3", "-c", all], &unlisted[..]].concat();
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        env.write("look_up.py", LOOK_UP);
        looked_up(env, &net);
        by_server(env, &net, flags, &program).run().ok().prints("{(3,)}\n");
        assert_eq!(looked_up(env, &net), []);
        // A thousand refusals are named, the rest are counted.
        let log = logged(env);
        assert!(log.len() < 3000, "{}", log.len());
        assert!(log.iter().all(|line| line.contains(" refused: ")));

        // But of a listed one.
        let told = look_up(env, &net, flags, "udp SRV _x._tcp.db.x.example TXT db.x.example");
        assert_eq!(told, "_x._tcp.db.x.example 0 db.x.example:5432\ndb.x.example 3\n");
        let asked = looked_up(env, &net);
        let asked: Vec<_> =
            asked.iter().map(|(name, kind)| (name.as_str(), kind.as_str())).collect();
        assert_eq!(asked, [("_x._tcp.db.x.example", "SRV"), ("db.x.example", "TXT")]);
    });
}

#[test]
fn a_name_server_hears_no_bytes_of_a_programs_choice() {
    let zone = json!({"_x._tcp.db.x.example": [["SRV 5432 db.x.example"]]});
    let Some(net) = net_with_names(&zone) else { return };
    let ask = r"
import struct, sys
sys.path.insert(0, '.')
import look_up
def ask(*labels, kind=33):
    name = b''.join(bytes([len(label)]) + label for label in labels) + b'\0'
    head = struct.pack('!HHHHHH', 7, 0x0100, 1, 0, 0, 0)
    print(*look_up.ask('udp', head + name + struct.pack('!HH', kind, 1)))
host = b'db', b'x', b'example'
for service in b'_a.b', b'_a b', b'_a:1', b'_\xff\0\n', b'_', b'_' + b'x' * 16, b'_a\\b':
    ask(service, b'_tcp', *host)
ask(b'a.b:443 allowed.com')
ask(b'_x', b'_tCp', b'dB', b'X', b'exAmple')
";
    let flags = "--internet-host *.x.example --tcp db.x.example:5432";
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        env.write("look_up.py", LOOK_UP);
        looked_up(env, &net);
        let told = by_server(env, &net, flags, &["/usr/bin/python3", "-c", ask]).run().ok();
        told.prints(&("3\n".repeat(8) + "0 db.x.example:5432\n"));
        // Nor which letters were capital ones.
        assert_eq!(looked_up(env, &net), [("_x._tcp.db.x.example".into(), "SRV".into())]);
        let log = logged(env);
        for name in [
            r"_a\.b._tcp.db.x.example",
            r"_a\032b._tcp.db.x.example",
            r"_a\0581._tcp.db.x.example",
            r"_\255\000\010._tcp.db.x.example",
            r"_a\\b._tcp.db.x.example",
            r"a\.b\058443\032allowed\.com",
        ] {
            let line = format!("dns {name}:0 refused: no endpoint has ");
            assert!(log.iter().any(|its| its.starts_with(&line)), "{line}: {log:#?}");
        }
    });
}

#[test]
fn services_lead_to_endpoints_only() {
    let many: Vec<_> = (0..40).map(|n| format!("SRV 27017 shard-{n}.abc.mongodb.net")).collect();
    let zone = json!({
        "_mongodb._tcp.c.abc.mongodb.net": [[
            "SRV 27017 one.abc.mongodb.net",
            "SRV 27018 one.abc.mongodb.net",
            "SRV 27017 one.evil.example",
            "SRV 27017 two.abc.mongodb.net",
            "SRV 27017 localhost",
        ]],
        "_alias._tcp.d.abc.mongodb.net": [["_mongodb._tcp.c.abc.mongodb.net"]],
        "_many._tcp.c.abc.mongodb.net": [many],
        "_closed._tcp.c.abc.mongodb.net": [["SRV 27017 one.evil.example"]],
        "c.abc.mongodb.net": [["TXT authSource=admin"]],
    });
    let Some(net) = net_with_names(&zone) else { return };
    let flags = "--internet-host *.mongodb.net --tcp *.abc.mongodb.net:27017";
    let one_and_two = "0 one.abc.mongodb.net:27017 two.abc.mongodb.net:27017\n";
    let all: String = (0..40).map(|n| format!(" shard-{n}.abc.mongodb.net:27017")).collect();
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        for by in ["udp", "tcp", "udp @1232"] {
            let told = look_up(
                env,
                &net,
                flags,
                &format!(
                    "{by} SRV _mongodb._tcp.C.abc.MongoDB.net SRV _alias._tcp.d.abc.mongodb.net \
                     SRV _closed._tcp.c.abc.mongodb.net TXT c.abc.mongodb.net \
                     SRV _none._tcp.c.abc.mongodb.net A c.abc.mongodb.net \
                     AAAA c.abc.mongodb.net ANY c.abc.mongodb.net 65 c.abc.mongodb.net"
                ),
            );
            assert_eq!(
                told,
                format!(
                    "_mongodb._tcp.C.abc.MongoDB.net {one_and_two}\
                     _alias._tcp.d.abc.mongodb.net {one_and_two}\
                     _closed._tcp.c.abc.mongodb.net 0\n\
                     c.abc.mongodb.net 0 authSource=admin\n\
                     _none._tcp.c.abc.mongodb.net 3\n\
                     c.abc.mongodb.net 0 127.77.0.1\n\
                     c.abc.mongodb.net 0\n\
                     c.abc.mongodb.net 0\n\
                     c.abc.mongodb.net 0\n"
                ),
                "{by}"
            );
            let many = "_many._tcp.c.abc.mongodb.net";
            let told = look_up(env, &net, flags, &format!("{by} SRV {many}"));
            let cut = if by.starts_with("udp") { " TC" } else { &all };
            assert_eq!(told, format!("{many} 0{cut}\n"));
        }
        let log = logged(env);
        for line in [
            "dns _closed._tcp.c.abc.mongodb.net:0 failed: it leads to one.evil.example:27017, \
             which isn't open: add --internet-host one.evil.example --tcp one.evil.example:27017, \
             or them to hosts and tcp in [internet]",
            "dns _mongodb._tcp.c.abc.mongodb.net:0 failed: it leads to one.abc.mongodb.net:27018, \
             one.evil.example:27017, localhost:27017, which aren't open: add --internet-host \
             one.evil.example --tcp one.abc.mongodb.net:27018 --tcp one.evil.example:27017, or \
             them to hosts and tcp in [internet]",
        ] {
            assert!(log.iter().any(|its| its == line), "{line}: {log:#?}");
        }
        assert!(looked_up(env, &net).iter().all(|(name, _)| !name.contains("evil")));
    });
}

#[test]
fn an_upstream_that_gets_names_is_the_only_one_that_does() {
    let zone = json!({"_x._tcp.db.x.example": [["SRV 5432 db.x.example"]]});
    let Some(net) = net_with_names(&zone) else { return };
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        let flags = "--internet-host db.x.example --tcp db.x.example:5432 \
                     --upstream socks5h://127.0.0.1:1080";
        looked_up(env, &net);
        let told = look_up(env, &net, flags, "udp SRV _x._tcp.db.x.example A db.x.example");
        assert_eq!(told, "_x._tcp.db.x.example 5\ndb.x.example 0 127.77.0.1\n");
        assert_eq!(looked_up(env, &net), []);
    });
}

#[test]
fn so_many_names_have_an_address_and_no_more() {
    let Some(net) = net() else { return };
    let ask = r"
import sys
sys.path.insert(0, '.')
import look_up
answers = [(*look_up.ask('udp', look_up.question(f'n{n}.test.example', 1)),) for n in range(10000)]
known = [answer for answer in answers if answer[0] == 0]
print(len(known), len(set(known)), set(answers[len(known):]))
print(*look_up.ask('tcp', look_up.question('n0.test.example', 1)), *known[0])
print(*look_up.ask('tcp', look_up.question('one.test.example', 1)))
";
    let flags =
        "--internet-host *.test.example --tcp *.test.example:5432 --tcp one.test.example:22";
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        env.write("look_up.py", LOOK_UP);
        run(env, &net, flags, ["/usr/bin/python3", "-c", ask])
            .run()
            .ok()
            .prints("1023 1023 {(2,)}\n0 127.77.0.2 0 127.77.0.2\n0 127.77.0.1\n");
    });
}

#[test]
fn what_is_no_question_is_survived() {
    let Some(net) = net() else { return };
    let send = r"
import random, socket, struct, sys
sys.path.insert(0, '.')
import look_up
good = look_up.question('one.test.example', 1, 4096)
choice = random.Random(7)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.settimeout(20)
udp.connect(look_up.SERVER)
def rcode(message):
    udp.send(message)
    return udp.recv(65535)[3] & 15
print(*[rcode(message) for message in [
    good[:-1],                                          # cut short
    good[:12], good[:20],
    good[:4] + b'\0\2' + good[6:],                      # two questions
    good[:12] + b'\xc0\x0c\0\1\0\1',                    # a name that is itself
    good[:12] + b'\x40a\0\0\1\0\1',                     # a label of no kind
    good[:12] + b'\x3f' + b'a' * 60,                    # longer than all
    good[:12] + (b'\x3f' + b'a' * 63) * 4 + b'\0\0\1\0\1',
    good[:2] + b'\x28\0' + good[4:],                    # an update
    good[:-6] + b'\0\1' + good[-4:],                    # another version of EDNS
]])
for n in range(3000):
    message = bytearray(good)
    for _ in range(choice.randrange(1, 5)):
        message[choice.randrange(len(message))] = choice.randrange(256)
    try:
        udp.send(message[:choice.randrange(len(message) + 1)])
    except ConnectionRefusedError:
        raise SystemExit('nobody is there')
    with socket.create_connection(look_up.SERVER) as tcp:
        if n < 300:
            tcp.sendall(struct.pack('!H', choice.randrange(65536)) + message)
held = [socket.create_connection(look_up.SERVER) for _ in range(200)]
for n, one in enumerate(held):
    one.sendall(b'\xff' * (n % 3))
udp.send(b'x' * 60000)
# It is closed by now, and answers that: what comes behind so many may be lost.
again = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
again.settimeout(0.2)
again.connect(look_up.SERVER)
def answered():
    again.send(good)
    try:
        return again.recv(512)[3] & 15
    except TimeoutError:
        return None
while (answer := answered()) is None: pass
print(answer, *look_up.ask('tcp', good))
";
    let flags = "--internet-host *.test.example --tcp one.test.example:5432";
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        env.write("look_up.py", LOOK_UP);
        run(env, &net, flags, ["/usr/bin/python3", "-c", send])
            .run()
            .ok()
            .prints("1 1 1 1 1 1 1 1 4 0\n5 5\n")
            .stderr_has("is paused: 30 calls were refused within a minute");
    });
}

#[test]
fn a_name_whose_address_turns_private_is_refused() {
    let zone =
        json!({"turns.x.example": [["11.0.0.2"], ["10.77.0.2"], ["127.0.0.1"], ["11.0.0.2"]]});
    let Some(net) = net_with_names(&zone) else { return };
    let endpoint = "turns.x.example:5432";
    let program = [&["/usr/bin/python3", "-c", CLIENT], &[endpoint; 4][..]].concat();
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        let flags = "--internet-host turns.x.example --tcp turns.x.example:5432";
        looked_up(env, &net);
        let public = "turns.x.example:5432 11.0.0.2:5432 back\n";
        let refused = "turns.x.example:5432 ConnectionResetError\n";
        let run = by_server(env, &net, flags, &program).run().ok();
        run.prints(&[public, refused, refused, public].concat());

        looked_up(env, &net);
        let flags = format!("{flags} --lan-host turns.x.example");
        let private = "turns.x.example:5432 10.77.0.2:5432 back\n";
        let run = by_server(env, &net, &flags, &program).run().ok();
        run.prints(&[public, private, refused, public].concat());
    });
}

#[test]
fn resolv_conf_may_be_a_link_that_leads_nowhere_or_be_gone() {
    let Some(net) = net() else { return };
    let system = [
        "ln -s ../run/systemd/resolve/stub-resolv.conf resolv.conf",
        "ln -s /mnt/wsl/resolv.conf resolv.conf",
        "mkdir resolv.conf",
        "true",
    ];
    let print = "cat /etc/resolv.conf; grep ^hosts /etc/nsswitch.conf; \
                 getent hosts one.test.example; getent hosts nope.test; echo $?";
    let endpoint = "--internet-host *.test.example --tcp one.test.example:5432";
    each!(|env| {
        // An /etc like the machine's.
        let etc = env.home().join("etc");
        let sh = |script: &str| {
            let status = Command::new("sh").args(["-c", script]).arg(&etc).status();
            assert!(status.expect("sh").success(), "{script}");
        };
        sh("cp -a /etc \"$0\"");
        for make in system {
            sh(&format!("cd \"$0\" && rm -rf resolv.conf && {make}"));
            let inside = |flags| {
                let call = network::run(env, &net, flags, ["sh", "-c", print]);
                call.replaced("/etc", &etc).run().ok().stdout
            };
            assert_eq!(inside(""), "hosts: files\n2\n", "{make}");
            assert_eq!(
                inside(endpoint),
                "nameserver 127.0.0.1\noptions timeout:5 attempts:1\nhosts: files dns\n\
                 127.77.0.1      one.test.example\n2\n",
                "{make}"
            );
        }
    });
}

#[test]
fn without_endpoints_nobody_is_asked_and_nothing_listens() {
    let Some(net) = net() else { return };
    let listening = "import socket
for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
    it = socket.socket(socket.AF_INET, kind)
    try:
        it.connect(('127.0.0.1', 53))
        it.send(b'x')
        it.recv(1)
    except OSError as error:
        print(type(error).__name__)";
    each!(|env| {
        for flags in
            ["", "--internet-host *", "--internet-host * --tcp 11.0.0.2:5432", "--port 5432"]
        {
            let call = network::run(env, &net, flags, ["/usr/bin/python3", "-c", listening]);
            call.run().ok().prints("ConnectionRefusedError\nConnectionRefusedError\n");
        }
    });
}

#[test]
fn an_endpoints_host_must_be_one_that_it_may_reach() {
    each!(|env| {
        for (flags, said) in [
            (
                "--tcp db.example.com:5432",
                "--tcp db.example.com:5432: its host isn't one that it may reach; \
                 add --internet-host db.example.com, or it to hosts in [internet]\n",
            ),
            (
                "--internet-host db.abc.mongodb.net --tcp *.abc.mongodb.net:27017",
                "add --internet-host '*.abc.mongodb.net', or it to hosts in [internet]\n",
            ),
            (
                "--internet-host * --tcp nas.local:22",
                "add --lan-host nas.local, or it to hosts in [lan]\n",
            ),
            (
                "--internet-host * --tcp 10.77.0.2:22",
                "add --lan-host 10.77.0.2, or it to hosts in [lan]\n",
            ),
            ("--internet-host * --tcp 2606:4700::1:5432", "write [2606:4700::1]:5432, if that"),
            ("--internet-host * --tcp *.mongodb.net:27017", "belong to different"),
            ("--internet-host * --tcp a.example:53", "port 53"),
            ("--internet-host * --tcp a.example:40781", "port 40781"),
        ] {
            let words =
                ["sandbox", "run"].into_iter().chain(flags.split(' ')).chain(["--", "true"]);
            env.lnk(words).run().fails_with(125).stderr_has(said);
        }
    });
}

#[test]
fn check_tries_names_that_no_endpoint_has() {
    let Some(net) = net() else { return };
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        let flags = "--internet-host *.test.example --tcp one.test.example:5432 --tcp 11.0.0.2:22 \
                     --internet-host 11.0.0.2";
        let words = ["sandbox", "check"].into_iter().chain(flags.split_whitespace());
        let run = env.lnk(words).within(&net).deadline(Duration::from_secs(120)).run().ok();
        for kind in ["A", "AAAA", "CNAME", "MX", "PTR", "SRV", "TXT", "HTTPS", "ANY"] {
            let line =
                format!("blocked    look up {kind} of a name that no endpoint has, by UDP\n");
            assert!(run.stdout.contains(&line), "{run}");
        }
        let run = run.stdout_has("blocked    look up A of a name that no endpoint has, by TCP\n");
        let run =
            run.stdout_has("blocked    reach 127.77.255.254:5432, which stands for no endpoint\n");
        let opened = "allowed    reach one.test.example:5432 by its name, and by the proxy \
                      (--tcp one.test.example:5432)\n";
        run.stdout_has(opened).stdout_has(
            "allowed    reach 11.0.0.2:22 at its address, and by the proxy (--tcp 11.0.0.2:22)\n",
        );
        let without = env.lnk(["sandbox", "check", "--internet-host", "*.test.example"]);
        let run = without.within(&net).deadline(Duration::from_secs(120)).run().ok();
        assert!(!run.stdout.contains("endpoint"), "{run}");
    });
}

/// Whether something is there; `scripts/test` installs it.
fn has(path: &str) -> bool {
    let there = Path::new(path).exists();
    if !there {
        testkit::missing(path);
    }
    there
}

/// The folder of PostgreSQL's own programs, of whatever version.
fn postgresql() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok().into_iter().flatten().flatten();
    let found = versions.map(|it| it.path().join("bin")).find(|it| it.join("initdb").exists());
    if found.is_none() {
        testkit::missing("a PostgreSQL server");
    }
    found
}

/// One that is asked from anywhere, as the user of its folder.
const POSTGRES: &str = r#"
cd "$0" && chown postgres . && as='setpriv --reuid=postgres --regid=postgres --clear-groups' &&
$as "$1"/initdb -D data -A trust -N > log 2>&1 &&
echo 'host all all 0.0.0.0/0 trust' >> data/pg_hba.conf && {
    (until $as "$1"/pg_isready -q -h "$2"; do sleep 0.05; done; echo serves) &
    exec $as "$1"/postgres -D data -c listen_addresses="$2" -c unix_socket_directories= -c fsync=off >> log 2>&1
}"#;

#[test]
fn psql_reaches_its_server_by_name() {
    // Dropped last, when the servers are gone.
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let (Some(mut net), Some(programs)) = (Net::new(), postgresql()) else { return };
    let programs = programs.to_str().expect("UTF-8");
    for (folder, address) in folders.iter().zip(["11.0.0.2", "11.0.0.3"]) {
        let folder = folder.path().to_str().expect("UTF-8");
        net.serve(["sh", "-c", POSTGRES, folder, programs, address]);
    }
    let flags =
        "--internet-host *.test.example --tcp one.test.example:5432 --tcp two.test.example:5432";
    let ask = format!(
        "for host in one two; do {programs}/psql \"host=$host.test.example user=postgres\" -At \
         -c 'select inet_server_addr()'; done"
    );
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        let psql = |flags| run_words(env, &net, &NAMES, flags, &["sh", "-c", &ask]).run();
        psql(flags).ok().prints("11.0.0.2\n11.0.0.3\n");
        psql("--internet-host *.test.example").fails().stderr_has("could not translate host name");
    });
}

#[test]
fn redis_cli_reaches_its_server_by_name() {
    if !has("/usr/bin/redis-server") || !has("/usr/bin/redis-cli") {
        return;
    }
    let Some(mut net) = Net::new() else { return };
    let start = "(until redis-cli -h 11.0.0.2 set who one 2>&1 | grep -q OK; do sleep 0.05; done; \
                 echo serves) & exec redis-server --bind 11.0.0.2 --port 6379 --save '' --dir / \
                 --protected-mode no > /dev/null";
    net.serve(["sh", "-c", start]);
    let flags = "--internet-host one.test.example --tcp one.test.example:6379";
    let get = ["redis-cli", "-h", "one.test.example", "get", "who"];
    let get = |env: &TestEnv, flags| run_words(env, &net, &NAMES, flags, &get).run();
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        get(env, flags).ok().prints("one\n");
        get(env, "--internet-host one.test.example").fails();
    });
}

#[test]
fn pymongo_finds_its_replica_set_by_srv() {
    if !has("/usr/lib/python3/dist-packages/pymongo") || !has("/usr/lib/python3/dist-packages/dns")
    {
        return;
    }
    let zone = json!({
        "_mongodb._tcp.c.abc.mongodb.net":
            [["SRV 27017 a.abc.mongodb.net", "SRV 27017 b.abc.mongodb.net"]],
        "c.abc.mongodb.net": [["TXT authSource=admin&replicaSet=rs"]],
        "a.abc.mongodb.net": [["11.0.0.2"]],
        "b.abc.mongodb.net": [["11.0.0.3"]],
    });
    let Some(mut net) = net_with_names(&zone) else { return };
    let members =
        ["a.abc.mongodb.net:27017=11.0.0.2:27017", "b.abc.mongodb.net:27017=11.0.0.3:27017"];
    net.serve(
        [&["/usr/bin/python3", "-c", include_str!("network/mongo.py")], &members[..]].concat(),
    );
    let ask = "
import pymongo
client = pymongo.MongoClient('mongodb+srv://c.abc.mongodb.net/?ssl=false', serverSelectionTimeoutMS=20000)
for prefer in pymongo.ReadPreference.PRIMARY, pymongo.ReadPreference.SECONDARY:
    print(client.admin.command('ping', read_preference=prefer)['me'])
";
    let flags = "--internet-host *.abc.mongodb.net --tcp *.abc.mongodb.net:27017";
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        let run = by_server(env, &net, flags, &["/usr/bin/python3", "-c", ask]).run().ok();
        run.prints("a.abc.mongodb.net:27017\nb.abc.mongodb.net:27017\n");
        let closed = "--internet-host *.abc.mongodb.net";
        by_server(env, &net, closed, &["/usr/bin/python3", "-c", ask]).run().fails();
    });
}
