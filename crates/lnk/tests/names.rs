//! Endpoints reached by their own names, and the DNS inside that tells them.

mod network;

use std::process::Command;
use std::time::Duration;

use network::{SERVE, logged, run, run_with_names, run_words, told};
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
             --tcp two.test.example:22, or tcp in [internet]",
            "dns three.test.example:0 refused: no endpoint has this name: --tcp HOST:PORT",
            "port localhost:5432 refused: --port 5432, or ports in [localhost], opens it",
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
                       of your network: --lan-host nas.test.example, or hosts in [lan]";
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
