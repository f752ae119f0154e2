//! The way out: `--internet-host`, `--lan-host`, `--port`, through the wire.

use testkit::{Call, Net, TestEnv, each};

const SERVE: &str = "
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        body = f'{self.server.server_address[0]} {self.path} {self.headers[\"Host\"]}\\n'.encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *arguments):
        pass
server = http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler)
print('serves', flush=True)
server.serve_forever()
";

const NAMES: [(&str, &str); 4] = [
    ("origin.test.example", "11.0.0.2"),
    ("other.test.example", "11.0.0.3"),
    ("nas.local", "10.77.0.2"),
    ("rebound.test.example", "10.77.0.2"),
];

fn net() -> Option<Net> {
    let mut net = Net::new()?;
    for address in ["11.0.0.2", "11.0.0.3", "10.77.0.2"] {
        net.serve(["python3", "-c", SERVE, address, "80"]);
    }
    net.serve(["python3", "-c", SERVE, "10.77.0.2", "5000"]);
    Some(net)
}

/// `lnk sandbox run` with these flags on the machine of the network.
fn run<const N: usize>(env: &TestEnv, net: &Net, flags: &str, program: [&str; N]) -> Call {
    let hosts = env.home().join("hosts");
    net.names(&hosts, &NAMES);
    let words = ["sandbox", "run", "--read", "."].into_iter().chain(flags.split_whitespace());
    env.lnk(words.chain(["--"]).chain(program)).within(net).replaced("/etc/hosts", hosts)
}

fn curl(env: &TestEnv, net: &Net, flags: &str, url: &str) -> testkit::Run {
    run(env, net, flags, ["curl", "-sS", "-w", "%{http_code}\n", url]).run()
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
fn a_check_finds_nothing_that_the_proxy_leaks() {
    let Some(net) = net() else { return };
    each!(|env| {
        let hosts = env.home().join("hosts");
        net.names(&hosts, &NAMES);
        let words = ["sandbox", "check", "--read", ".", "--internet-host", "*", "--port", "5432"];
        env.lnk(words)
            .within(&net)
            .replaced("/etc/hosts", hosts)
            .run()
            .ok()
            .stdout_has("allowed    reach * on the internet by the proxy (--internet-host *)")
            .stdout_has("allowed    connect to port 5432 of this machine's loopback (--port 5432)")
            .stdout_has("blocked    connect to a server on this machine's loopback by the proxy")
            .has_not("LEAK");
    });
}
