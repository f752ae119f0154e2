//! The other machines that tests of the way out speak to.
#![allow(dead_code, reason = "no test needs all of it")]

use std::fs;

use lnk_sandbox::wire::log::{Moved, What, records};
use testkit::{Call, Net, TestEnv};

/// `serve.py` and which of its servers.
pub const SERVE: [&str; 3] = ["/usr/bin/python3", "-c", include_str!("serve.py")];

/// Names that the machine knows; a sandbox knows none.
pub const NAMES: [(&str, &str); 5] = [
    ("origin.test.example", "11.0.0.2"),
    ("other.test.example", "11.0.0.3"),
    ("counter.test.example", "11.0.0.4"),
    ("nas.local", "10.77.0.2"),
    ("rebound.test.example", "10.77.0.2"),
];

/// Asks the proxy for each host, by each of the first argument's methods, CONNECT and
/// plain HTTP, spelled as it is; a port may follow it.
pub const ASK: &str = r"
import socket, sys
for host in sys.argv[2:]:
    host, _, port = host.replace('NUL', '\0').partition(' ')
    tls, plain = (port, ':' + port) if port else ('443', '')
    for asked in [f'CONNECT {host}:{tls} HTTP/1.1\r\nHost: {host}:{tls}\r\n\r\n',
                  f'GET http://{host}{plain}/ HTTP/1.1\r\nHost: {host}{plain}\r\nConnection: close\r\n\r\n']:
        if asked.split()[0] not in sys.argv[1].split(): continue
        proxy = socket.create_connection(('127.0.0.1', 40781))
        proxy.sendall(asked.encode())
        print(ascii(host), asked.split()[0], proxy.makefile('rb').readline().decode().split(' ')[1])
";

/// Both of [`ASK`]'s methods, the second as it has them.
const METHODS: [&str; 2] = ["CONNECT", "GET"];
/// Hosts that a sandbox asks for by both methods, at most: one that was refused twenty
/// targets is paused.
const HOSTS: usize = 9;

/// Hosts in parts, each for a run of its own, with the methods of [`ASK`] by which to
/// ask: none of the runs is paused before its last call. `is_metadata` tells what pauses
/// at once.
pub fn parts(hosts: &[String], is_metadata: impl Fn(&str) -> bool) -> Vec<(String, Vec<String>)> {
    let both = METHODS.join(" ");
    let mut parts: Vec<(String, Vec<String>)> = Vec::new();
    for host in hosts {
        if is_metadata(host) {
            parts.extend(METHODS.map(|method| (method.to_owned(), vec![host.clone()])));
            continue;
        }
        match parts.last_mut() {
            Some((methods, part)) if *methods == both && part.len() < HOSTS => {
                part.push(host.clone());
            }
            _ => parts.push((both.clone(), vec![host.clone()])),
        }
    }
    parts
}

/// Words of bash.
pub fn words(hosts: &[String]) -> String {
    hosts.iter().map(|host| format!("'{host}' ")).collect()
}

/// `lnk sandbox run` with these flags on the machine of the network.
pub fn run<const N: usize>(env: &TestEnv, net: &Net, flags: &str, program: [&str; N]) -> Call {
    run_with_names(env, net, &NAMES, flags, program)
}

/// [`run`] where the machine knows other names.
pub fn run_with_names<const N: usize>(
    env: &TestEnv,
    net: &Net,
    names: &[(&str, &str)],
    flags: &str,
    program: [&str; N],
) -> Call {
    run_words(env, net, names, flags, &program)
}

/// [`run_with_names`] of any number of words.
pub fn run_words(
    env: &TestEnv,
    net: &Net,
    names: &[(&str, &str)],
    flags: &str,
    program: &[&str],
) -> Call {
    let hosts = env.home().join("hosts");
    net.names(&hosts, names);
    let words = ["sandbox", "run", "--read", "."].into_iter().chain(flags.split_whitespace());
    let words = words.chain(["--"]).chain(program.iter().copied());
    env.lnk(words).within(net).replaced("/etc/hosts", hosts)
}

/// Connections, bytes up and bytes down that a counter has counted since the last time.
pub fn counted(env: &TestEnv, net: &Net, control: &str) -> [u64; 3] {
    let told = told(env, net, control);
    let numbers: Vec<u64> =
        told.split_whitespace().map(|it| it.parse().expect("a number")).collect();
    numbers.try_into().expect("three numbers")
}

/// What the log says since the last time, a call's line each:
/// `http 10.77.0.2:80 ended 12 34`.
pub fn logged(env: &TestEnv) -> Vec<String> {
    let file = env.home().join(".config/lnk/sandbox/wire.log");
    let bytes = fs::read(&file).expect("a call was made");
    fs::remove_file(file).expect("own file");
    let lines = records(&bytes).map(|record| {
        let line = record.line;
        let host = line.host.unwrap_or_default();
        let to = format!("{} {host}:{}", line.verb.as_str(), line.port.unwrap_or_default());
        match line.what {
            What::Allowed => format!("{to} allowed"),
            What::Refused { reason } => format!("{to} refused: {reason}"),
            What::Failed { reason, .. } => format!("{to} failed: {reason}"),
            What::Ended(Moved { up, down, .. }) => format!("{to} ended {up} {down}"),
        }
    });
    lines.collect()
}

/// One line of what a server of the tests tells at this address on the machine's network.
pub fn told(env: &TestEnv, net: &Net, control: &str) -> String {
    let ask = "import socket, sys
host, port = sys.argv[1].split(':')
print(socket.create_connection((host, port)).makefile().readline(), end='')";
    env.program("python3", ["-c", ask, control]).within(net).run().ok().stdout
}
