//! The other machines that tests of the way out speak to.

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
    let hosts = env.home().join("hosts");
    net.names(&hosts, names);
    let words = ["sandbox", "run", "--read", "."].into_iter().chain(flags.split_whitespace());
    env.lnk(words.chain(["--"]).chain(program)).within(net).replaced("/etc/hosts", hosts)
}

/// Connections, bytes up and bytes down that a counter has counted since the last time.
pub fn counted(env: &TestEnv, net: &Net, control: &str) -> [u64; 3] {
    let ask = "import socket, sys
host, port = sys.argv[1].split(':')
print(socket.create_connection((host, port)).makefile().readline(), end='')";
    let run = env.program("python3", ["-c", ask, control]).within(net).run().ok();
    let numbers: Vec<u64> =
        run.stdout.split_whitespace().map(|it| it.parse().expect("a number")).collect();
    numbers.try_into().expect("three numbers")
}
