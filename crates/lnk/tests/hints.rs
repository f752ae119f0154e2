//! What a run on a terminal says at its end of the likeliest mistakes with endpoints.

mod network;

use network::{run_with_names, run_words};
use testkit::{Net, TestEnv, each};

const NAMES: [(&str, &str); 2] =
    [("one.test.example", "11.0.0.2"), ("two.test.example", "11.0.0.3")];

/// What a run shows, whose status is this.
fn screen(env: &TestEnv, net: &Net, status: i32, flags: &str, program: &[&str]) -> String {
    let mut terminal = run_words(env, net, &NAMES, flags, program).terminal(24, 250);
    assert_eq!(terminal.wait_exit(), status, "{}", terminal.screen());
    terminal.screen()
}

#[test]
fn a_program_that_ignores_the_proxy_is_told_of_endpoints() {
    let Some(net) = Net::new() else { return };
    let unasked = "nothing was asked of the proxy: what ignores HTTPS_PROXY has no network; ";
    each!(|env| {
        let host = "--internet-host one.test.example";
        let clone = ["git", "clone", "git@one.test.example:me/repo.git"];
        let lines = |status, flags: &str, program: &[&str]| {
            screen(env, &net, status, flags, program).replace('\n', " ")
        };
        let by_name = format!("{unasked}--tcp one.test.example:22 opens it by its own name");
        assert!(lines(128, host, &clone).contains(&by_name));
        let other = [
            "sh",
            "-c",
            "python3 -c 'import socket; socket.create_connection((\"x\", 1))' host=a.example",
        ];
        let other = lines(1, host, &other);
        let both = "--internet-host a.example --tcp a.example:5432 opens it by its own name";
        assert!(other.contains(both), "{other}");
        let unknown = lines(3, host, &["sh", "-c", "exit 3"]);
        assert!(unknown.contains(&format!("{unasked}--tcp HOST:PORT opens a host")), "{unknown}");
        // None where it did no harm, nothing is open, something was asked, or names are told.
        for (status, flags, script) in [
            (0, host, "true"),
            (3, "", "exit 3"),
            (3, host, "curl -s http://one.test.example/; exit 3"),
            (3, "--internet-host one.test.example --tcp one.test.example:5432", "exit 3"),
            (143, host, "kill $$"),
        ] {
            let shown = lines(status, flags, &["sh", "-c", script]);
            assert!(!shown.contains("nothing was asked"), "{script}: {shown}");
        }
        run_words(env, &net, &NAMES, host, &clone).run().fails().has_not("nothing was asked");
    });
}

#[test]
fn the_wrong_port_of_an_endpoints_host_is_named() {
    let Some(net) = Net::new() else { return };
    let flags = "--internet-host one.test.example --tcp one.test.example:5432";
    // One that waits, and one that doesn't.
    let connect = "import socket, sys
socket.create_connection(('one.test.example', 5433), eval(sys.argv[1]))";
    each!(|env| {
        for timeout in ["None", "20"] {
            let shown = screen(env, &net, 1, flags, &["python3", "-c", connect, timeout]);
            let line =
                "refused one.test.example:5433: it isn't open: add --tcp one.test.example:5433";
            assert!(shown.contains(line), "{shown}");
        }
        // A port of its own that nobody listens on is its own.
        let own = connect.replace("one.test.example", "localhost");
        let shown = screen(env, &net, 1, flags, &["python3", "-c", &own, "None"]);
        assert!(!shown.contains("lnk sandbox: refused"), "{shown}");
    });
}

#[test]
fn a_name_that_was_looked_up_is_counted_once() {
    let Some(net) = Net::new() else { return };
    let flags = "--internet-host one.test.example --tcp one.test.example:5432";
    each!(|env| {
        // For addresses of both kinds.
        let look_up = "import socket
for name in 'two.test.example', 'metadata.google.internal':
    try: socket.getaddrinfo(name, 1)
    except OSError as error: print(error)";
        let shown = screen(env, &net, 0, flags, &["python3", "-c", look_up]);
        let line = "refused two.test.example: no endpoint has this name: add --internet-host \
                    two.test.example --tcp two.test.example:PORT, or them to hosts and tcp in \
                    [internet]";
        assert!(shown.contains(line), "{shown}");
        let line =
            "refused metadata.google.internal: it is a cloud's metadata service: no grant opens it";
        assert!(shown.contains(line), "{shown}");
    });
}

#[test]
fn an_endpoint_that_nobody_serves_is_named() {
    let Some(net) = Net::new() else { return };
    let flags = "--internet-host *.test.example --tcp *.test.example:5432";
    let connect = "import socket
for host in 'one', 'none':
    it = socket.create_connection((host + '.test.example', 5432))
    try: it.recv(1)
    except OSError as error: print(error)
raise SystemExit(STATUS)";
    each!(|env| {
        let with = |status: i32| {
            let connect = connect.replace("STATUS", &status.to_string());
            screen(env, &net, status, flags, &["python3", "-c", &connect])
        };
        let shown = with(1);
        for line in [
            "failed one.test.example:5432: no connection: connection refused",
            "failed none.test.example:5432: the name isn't found",
        ] {
            assert!(shown.contains(line), "{line}\n{shown}");
        }
        assert!(!with(0).contains("failed one"));
        run_with_names(env, &net, &NAMES, flags, ["sh", "-c", "exit 1"]).run().has_not("failed");
    });
}

#[test]
fn a_variable_that_only_the_sandbox_has_belongs_between_single_quotes() {
    each!(|env| {
        for words in [&["root@host.example", "ls"][..], &["", "root@host.example"]] {
            let words = ["sandbox", "run", "--read", ".", "--"].iter().chain(words);
            let run = env.lnk(words).run().fails_with(127);
            run.stderr_has("not found; a variable that the sandbox has is empty outside")
                .stderr_has("sh -c '$GIT_SSH_COMMAND user@host'");
        }
        let run = env.lnk(["sandbox", "run", "--read", ".", "--", "no-such"]).run().fails_with(127);
        run.has_not("single quotes");
    });
}
