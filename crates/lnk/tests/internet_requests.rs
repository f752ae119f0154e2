//! Requests and tunnels through the wire as programs really make them: several on one
//! connection, waited for, answered early, ended on one side first.

mod network;

use std::time::Duration;

use network::{logged, run, told};
use rustix::process::Signal;
use testkit::{Call, Mounts, Net, Run, TestEnv, each};

const ORIGINS: &str = include_str!("network/origins.py");
const RAW: &str = include_str!("network/raw.py");

/// Where the origins tell what came to them.
const CONTROL: &str = "11.0.0.4:9";
/// And those of the machine itself.
const CONTROL_HERE: &str = "127.0.0.1:9";
const PROXY: &str = "127.0.0.1:40781";
const MEBIBYTE: usize = 1 << 20;

/// The words that start these origins: behaviour, address and port each.
fn origins<'a>(control: &'a str, origins: &[&'a str]) -> Vec<&'a str> {
    [&["/usr/bin/python3", "-c", ORIGINS, control], origins].concat()
}

fn net(of: &[&str]) -> Option<Net> {
    let mut net = Net::new()?;
    net.serve(origins(CONTROL, of));
    Some(net)
}

/// What an origin tells of a connection: where it came in, what came first, how many
/// bytes came and went.
type Heard = (String, String, usize, usize);

fn heard(env: &TestEnv, net: &Net) -> Vec<Heard> {
    serde_json::from_str(&told(env, net, CONTROL)).expect("JSON")
}

/// A raw client in a sandbox, as `raw.py` says.
fn raw<'a>(env: &TestEnv, net: &Net, flags: &str, to: &'a str, words: &[&'a str]) -> Call {
    env.write("raw.py", RAW);
    let program = [&["/usr/bin/python3", "raw.py", to], words].concat();
    network::run_words(env, net, &network::NAMES, flags, &program)
}

/// [`raw`] to the proxy, whose connections are gone when it ends.
fn proxied(env: &TestEnv, net: &Net, flags: &str, words: &[&str]) -> Run {
    raw(env, net, flags, PROXY, words).run().ok().stdout_has("nothing lingers\n")
}

const ONE: &str = "--lan-host 10.77.0.2";
const TWO: &str = "--lan-host 10.77.0.2 --lan-host 10.77.0.3";

/// Requests of every framing to the first origin, as they are sent and as they arrive.
const FIRST: [(&str, &str); 3] = [
    (
        "GET http://10.77.0.2/a HTTP/1.1\r\nHost: 10.77.0.2\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: 10.77.0.2\r\nConnection: close\r\n\r\n",
    ),
    (
        "POST http://10.77.0.2/a HTTP/1.1\r\nHost: 10.77.0.2\r\nContent-Length: 5\r\n\r\nGET /",
        "POST /a HTTP/1.1\r\nHost: 10.77.0.2\r\nConnection: close\r\nContent-Length: 5\r\n\r\nGET /",
    ),
    (
        "POST http://10.77.0.2/a HTTP/1.1\r\nHost: 10.77.0.2\r\nTransfer-Encoding: chunked\r\n\r\n\
         5\r\nGET /\r\n0\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: 10.77.0.2\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
         5\r\nGET /\r\n0\r\n\r\n",
    ),
];
const SECOND: &str = "GET http://10.77.0.3/b HTTP/1.1\r\nHost: 10.77.0.3\r\n\r\n";

fn kept_origins() -> Option<Net> {
    net(&["answers", "10.77.0.2:80", "answers", "10.77.0.3:80"])
}

#[test]
fn a_second_request_behind_another_is_judged_by_itself() {
    let Some(net) = kept_origins() else { return };
    each!(|env| {
        for (first, arrives) in FIRST {
            // In one packet, and once the first is answered.
            let both = format!("{first}{SECOND}");
            for words in [vec![&*both], vec![first, "ANSWER", SECOND]] {
                let run = proxied(env, &net, ONE, &words);
                assert!(run.stdout.starts_with("HTTP/1.1 200 OK\n"), "{run}");
                let (_, refused) = run.stdout.split_once("10.77.0.2 ").expect("an answer");
                assert!(refused.contains("HTTP/1.1 403 10.77.0.3 is an "), "{run}");
                let [(at, got, _, went)] = &heard(env, &net)[..] else { panic!("{run}") };
                assert_eq!((&**at, &**got), ("10.77.0.2:80", arrives));
                let ended = format!("http 10.77.0.2:80 ended {} {went}", got.len());
                let reason = "10.77.0.3 is an address of your network: add --lan-host 10.77.0.3, \
                              or it to hosts in [lan]";
                let refused = format!("http 10.77.0.3:80 refused: {reason}");
                let allowed = "http 10.77.0.2:80 allowed".to_owned();
                assert_eq!(logged(env), [allowed, ended, refused]);
            }
        }
    });
}

#[test]
fn requests_that_alternate_on_one_connection_each_reach_their_own_origin() {
    let Some(net) = kept_origins() else { return };
    each!(|env| {
        for (first, _) in FIRST {
            let words = [first, "ANSWER", SECOND, "ANSWER", first, "ANSWER", SECOND, "HALF"];
            let run = proxied(env, &net, TWO, &words);
            let path = |line: &&str| line.starts_with("10.77.0.");
            let answers: Vec<_> = run.stdout.lines().filter(path).map(|it| &it[..9]).collect();
            assert_eq!(answers, ["10.77.0.2", "10.77.0.3", "10.77.0.2", "10.77.0.3"], "{run}");
            for (at, got, ..) in heard(env, &net) {
                let (path, requests) = match &*at {
                    "10.77.0.2:80" => (" /a HTTP", got.matches("10.77.0.2").count()),
                    _ => (" /b HTTP", got.matches("10.77.0.3").count()),
                };
                assert!(got.contains(path) && requests == 1, "{at}: {got}");
            }
            let log = logged(env);
            assert_eq!(log.len(), 8, "{log:?}");
            assert_eq!(log.iter().filter(|line| line.ends_with("allowed")).count(), 4, "{log:?}");
        }
    });
}

/// Sends a file of 3 MB and prints the answer, the status, and what the origin would
/// say of the whole file. What is waited for here would take longer than the test may.
const UPLOAD: &str = "
    truncate -s 3M big && printf middle | dd of=big bs=1M seek=1 conv=notrunc status=none
    echo $(stat -c %s big) $(sha256sum big | cut -d ' ' -f 1) > whole
    curl -sS -T big --expect100-timeout $1 -H \"$2\" -w '%{http_code}\\n' http://10.77.0.2:$3/up
    cat whole";

fn upload(env: &TestEnv, net: &Net, timeout: &str, expect: &str, port: &str) -> Run {
    let program = ["bash", "-ec", UPLOAD, "bash", timeout, expect, port];
    let flags = format!("--write . {ONE}");
    run(env, net, &flags, program).deadline(Duration::from_secs(20)).run().ok()
}

#[test]
fn an_upload_waits_for_the_origins_word_or_not_and_a_denial_comes_through() {
    let Some(net) = net(&[
        "continues",
        "10.77.0.2:8001",
        "silent",
        "10.77.0.2:8002",
        "denies",
        "10.77.0.2:8003",
        "denies_and_leaves",
        "10.77.0.2:8004",
    ]) else {
        return;
    };
    let (waits, doesnt) = ("Expect: 100-continue", "Expect:");
    each!(|env| {
        for (timeout, expect, port) in [
            ("60", waits, "8001"),
            ("60", doesnt, "8001"),
            // The client's patience ends, and the body comes.
            ("0.3", waits, "8002"),
            ("60", doesnt, "8002"),
        ] {
            let run = upload(env, &net, timeout, expect, port);
            let [said, status, whole] = run.stdout.lines().collect::<Vec<_>>()[..] else {
                panic!("{run}");
            };
            assert_eq!((said, status), (whole, "200"), "{port} {expect}");
            let [(_, got, up, down)] = &heard(env, &net)[..] else { panic!("{run}") };
            assert_eq!(got.contains(waits), expect == waits, "{got}");
            assert!(*up > 3 << 20, "{up}");
            let ended = format!("http 10.77.0.2:{port} ended {up} {down}");
            assert_eq!(logged(env), [format!("http 10.77.0.2:{port} allowed"), ended]);
        }
        for port in ["8003", "8004"] {
            for expect in [waits, doesnt] {
                let run = upload(env, &net, "60", expect, port);
                assert!(run.stdout.starts_with("who are you?\n401\n"), "{run}");
                let [(_, _, got, _)] = heard(env, &net)[..] else { panic!("{run}") };
                assert_eq!(got, 0);
                let log = logged(env);
                let [allowed, ended] = &log[..] else { panic!("{log:?}") };
                assert!(allowed.ends_with(" allowed") && ended.contains(" ended "), "{log:?}");
            }
        }
    });
}

#[test]
fn chunks_and_trailers_pass_both_ways() {
    let Some(net) = net(&["trailers", "10.77.0.2:80"]) else { return };
    each!(|env| {
        let asked = "PUT http://10.77.0.2/up HTTP/1.1\r\nHost: 10.77.0.2\r\nTE: trailers\r\n\
                     Connection: TE\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
                     3;x=y\r\nabc\r\n1\r\nd\r\n0\r\nX-Sum: 9\r\n\r\n";
        let run = proxied(env, &net, ONE, &[asked, "HALF"]);
        let (head, body) = run.stdout.split_once("\n\n").expect("a head");
        assert!(head.contains("Transfer-Encoding: chunked"), "{run}");
        assert_eq!(body, "4\nabcd\n3\n, b\n0\nX-Sum: 7\n\nnothing lingers\n");
        let [(_, got, ..)] = &heard(env, &net)[..] else { panic!("{run}") };
        assert!(
            got.contains("\r\nTE: trailers\r\n") && got.contains("Trailer: X-Sum\r\n"),
            "{got}"
        );
        let (_, body) = got.split_once("\r\n\r\n").expect("a head");
        assert!(body.ends_with("\r\n0\r\nX-Sum: 9\r\n\r\n"), "{body:?}");
    });
}

#[test]
fn answers_without_a_body_leave_the_connection_as_it_was() {
    let Some(net) = net(&["bodiless", "10.77.0.2:80"]) else { return };
    each!(|env| {
        let ask = |method: &str, path: &str| {
            format!("{method} http://10.77.0.2{path} HTTP/1.1\r\nHost: 10.77.0.2\r\n\r\n")
        };
        let asked: String =
            [("GET", "/204"), ("GET", "/304"), ("HEAD", "/"), ("GET", "/204"), ("GET", "/")]
                .map(|(method, path)| ask(method, path))
                .concat();
        let run = proxied(env, &net, ONE, &[&asked, "HALF"]);
        assert_eq!(
            run.stdout,
            "HTTP/1.1 204 No Content\n\n\
             HTTP/1.1 304 Not Modified\nContent-Length: 5\n\n\
             HTTP/1.1 200 OK\nContent-Length: 5\n\n\
             HTTP/1.1 204 No Content\n\n\
             HTTP/1.1 200 OK\nContent-Length: 5\n\nhellonothing lingers\n"
        );
        assert_eq!(heard(env, &net).len(), 5);
    });
}

#[test]
fn http_1_0_is_spoken_by_either_side() {
    let Some(net) = net(&["old", "10.77.0.2:80", "trailers", "10.77.0.2:81"]) else { return };
    each!(|env| {
        for version in ["--http1.0", "--http1.1"] {
            let curl = "curl -sS $1 http://10.77.0.2/ | sha256sum
                head -c 1048576 /dev/zero | tr '\\0' U | sha256sum";
            let run = run(env, &net, ONE, ["bash", "-c", curl, "bash", version]).run().ok();
            let [got, expected] = run.stdout.lines().collect::<Vec<_>>()[..] else {
                panic!("{run}")
            };
            assert_eq!(got, expected, "{version}");
            assert!(heard(env, &net)[0].1.starts_with("GET / HTTP/1."));
        }
        // It knows no chunks.
        let asked = "PUT http://10.77.0.2:81/ HTTP/1.0\r\nContent-Length: 4\r\n\r\nabcd";
        let run = proxied(env, &net, ONE, &[asked]);
        assert!(run.stdout.ends_with("\n\nabcd, bnothing lingers\n"), "{run}");
        assert!(run.stdout.starts_with("HTTP/1.1 200 OK\n"), "{run}");
        run.has_not("chunked");
        assert_eq!(heard(env, &net).len(), 1);
    });
}

/// CONNECT to the origin at this port, and what is sent along.
fn connect(port: u16, along: &str) -> String {
    format!("CONNECT 10.77.0.2:{port} HTTP/1.1\r\nHost: 10.77.0.2:{port}\r\n\r\n{along}")
}

const ESTABLISHED: &str = "HTTP/1.1 200 Connection established\n\n";

#[test]
fn a_tunnel_ends_when_both_sides_have() {
    let Some(net) = net(&["downloads", "10.77.0.2:7000", "leaves_first", "10.77.0.2:7001"]) else {
        return;
    };
    each!(|env| {
        let downloads = |words: &[&str], up: usize| {
            let run = proxied(env, &net, ONE, words);
            assert_eq!(run.stdout, format!("{ESTABLISHED}<1048576 bytes>\nnothing lingers\n"));
            let [(_, _, got, went)] = heard(env, &net)[..] else { panic!("{run}") };
            assert_eq!((got, went), (up, MEBIBYTE));
            let ended = format!("tcp 10.77.0.2:7000 ended {up} {MEBIBYTE}");
            assert_eq!(logged(env), ["tcp 10.77.0.2:7000 allowed", &ended]);
        };
        downloads(&[&connect(7000, ""), "ANSWER", "hi", "HALF"], 2);
        // What comes with CONNECT isn't lost, and its end neither.
        downloads(&[&connect(7000, "hi"), "HALF", "ANSWER"], 2);
        downloads(&[&connect(7000, "hi"), "MEBIBYTE", "HALF", "ANSWER"], MEBIBYTE + 2);
        downloads(&[&connect(7000, ""), "HALF", "ANSWER"], 0);

        let leaves = |words: &[&str], up: usize| {
            let run = proxied(env, &net, ONE, words);
            assert_eq!(run.stdout, format!("{ESTABLISHED}byenothing lingers\n"));
            assert_eq!(heard(env, &net)[0].2, up);
            let ended = format!("tcp 10.77.0.2:7001 ended {up} 3");
            assert_eq!(logged(env), ["tcp 10.77.0.2:7001 allowed", &ended]);
        };
        leaves(&[&connect(7001, ""), "ANSWER", "END", "MEBIBYTE"], MEBIBYTE);
        leaves(&[&connect(7001, "hi"), "END", "MEBIBYTE", "MEBIBYTE", "HALF"], 2 * MEBIBYTE + 2);
        leaves(&[&connect(7001, "hi"), "HALF"], 2);
    });
}

#[test]
fn a_port_of_this_machine_ends_when_both_sides_have() {
    let Some(mut net) = Net::new() else { return };
    net.serve_here(origins(
        CONTROL_HERE,
        &["downloads", "127.0.0.1:7000", "leaves_first", "[::1]:7001"],
    ));
    each!(|env| {
        let flags = "--port 7000 --port 7001";
        let run = |port: u16, words: &[&str]| {
            let run = raw(env, &net, flags, &format!("127.0.0.1:{port}"), words).run().ok();
            let heard: Vec<Heard> =
                serde_json::from_str(&told(env, &net, CONTROL_HERE)).expect("JSON");
            let [(_, _, got, went)] = heard[..] else { panic!("{run}") };
            let ended = format!("port localhost:{port} ended {got} {went}");
            assert_eq!(logged(env), [format!("port localhost:{port} allowed"), ended]);
            (run.stdout, got)
        };
        let all = "<1048576 bytes>\nnothing lingers\n".to_owned();
        assert_eq!(run(7000, &["hi", "HALF"]), (all.clone(), 2));
        assert_eq!(run(7000, &["MEBIBYTE", "HALF"]), (all, MEBIBYTE));
        let bye = "byenothing lingers\n".to_owned();
        assert_eq!(run(7001, &["END", "MEBIBYTE", "MEBIBYTE"]), (bye.clone(), 2 * MEBIBYTE));
        assert_eq!(run(7001, &["HALF"]), (bye, 0));
    });
}

#[test]
fn what_ended_leaves_no_connection_outside_while_the_sandbox_goes_on() {
    let Some(net) = net(&[
        "downloads",
        "10.77.0.2:7000",
        "leaves_first",
        "10.77.0.2:7001",
        "answers",
        "10.77.0.2:80",
    ]) else {
        return;
    };
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        env.write("raw.py", RAW);
        let [down, leaves] = [connect(7000, "hi"), connect(7001, "hi")];
        let asks = [
            [PROXY, &down, "HALF", "ANSWER"],
            [PROXY, &leaves, "ANSWER", "END"],
            [PROXY, FIRST[0].0, "ANSWER", "HALF"],
            [PROXY, FIRST[1].0, "HALF", "ANSWER"],
        ]
        .map(|words| format!("python3 raw.py {} && ", words.map(quoted).join(" ")));
        let script = format!("{}echo all over && exec sleep infinity", asks.concat());
        let mut running = run(env, &net, ONE, ["bash", "-c", &script]).spawn();
        running.wait_for_stdout("all over\n");
        // The origins saw the ends, and the machine keeps nothing but what TCP keeps
        // of what is over (TIME_WAIT, 06) and that it listens (0A).
        assert_eq!(heard(env, &net).len(), 4);
        let open = "import time
def open_connections():
    lines = [line.split() for table in ['tcp', 'tcp6'] for line in list(open('/proc/net/' + table))[1:]]
    return [line for line in lines if line[3] not in ['06', '0A']]
while open_connections():
    time.sleep(0.01)";
        let left = env.program("/usr/bin/python3", ["-c", open]).within(&net);
        left.deadline(Duration::from_secs(20)).run().ok();
        running.signal(Signal::TERM);
        running.wait().fails_with(143);
    });
}

/// A word of bash, in which raw.py reads the escapes.
fn quoted(word: &str) -> String {
    format!("'{}'", word.escape_default())
}
