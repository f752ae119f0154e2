//! `lnk sandbox log`.

use std::fs::OpenOptions;
use std::io::Write as _;

use lnk_sandbox::wire::log::{Line, Moved, Sandbox, Verb, What};
use testkit::{TestEnv, each};

const LOG: &str = ".config/lnk/sandbox/wire.log";

/// A line of the call `call`, at that second of a minute.
fn line(sandbox: &str, call: u64, verb: Verb, host: &str, what: What) -> Vec<u8> {
    let (name, spec) = sandbox.split_once(' ').map_or((sandbox, None), |(a, b)| (a, Some(b)));
    let line = Line {
        time: format!("2026-05-04T03:02:{call:02}.789Z").parse().expect("a moment"),
        sandbox: Sandbox { name: name.into(), spec: spec.map(str::to_owned), spec_path: None },
        call,
        verb,
        host: (!host.is_empty()).then(|| host.to_owned()),
        port: (verb != Verb::Pause).then_some(443),
        what,
    };
    line.written()
}

fn refused() -> What {
    let reason = "example.org isn't a host that it may reach; add --internet-host example.org";
    What::Refused { reason: reason.into() }
}

/// Some calls of two sandboxes.
fn calls() -> Vec<u8> {
    [
        line("run-7 app", 1, Verb::Connect, "example.com", What::Allowed),
        line("run-12", 2, Verb::Http, "example.org", refused()),
        line(
            "run-7 app",
            1,
            Verb::Connect,
            "example.com",
            What::Ended(Moved { up: 517, down: 41_000, ms: 1250 }),
        ),
        line(
            "run-7 app",
            3,
            Verb::Tcp,
            "2001:db8::1",
            What::Failed { reason: "timed out".into(), carried: None },
        ),
        line("run-7 app", 4, Verb::Pause, "", What::Refused { reason: "30 calls refused".into() }),
    ]
    .concat()
}

fn write(env: &TestEnv, lines: &[u8]) {
    env.write(env.home().join(LOG), lines);
}

#[test]
fn every_call_is_shown_in_a_table() {
    each!(|env| {
        write(env, &calls());
        env.lnk(["sandbox", "log"]).run().ok().quiet().prints(
            "TIME (UTC)           SANDBOX      VERB     WHERE              WHAT\n\
             2026-05-04 03:02:01  run-7 (app)  connect  example.com:443    allowed\n\
             2026-05-04 03:02:02  run-12       http     example.org:443    refused: example.org isn't a host that it may reach; add --internet-host example.org\n\
             2026-05-04 03:02:01  run-7 (app)  connect  example.com:443    ended: 517 B up, 41 kB down, 1.2 s\n\
             2026-05-04 03:02:03  run-7 (app)  tcp      [2001:db8::1]:443  failed: timed out\n\
             2026-05-04 03:02:04  run-7 (app)  pause    -                  refused: 30 calls refused\n",
        );
    });
}

#[test]
fn the_latest_are_shown_and_those_that_are_asked_for() {
    each!(|env| {
        // Forty, the last of them one in a file before.
        let many: Vec<u8> = (0..60)
            .flat_map(|n| line("run-1", n, Verb::Http, &format!("h{n}.x"), What::Allowed))
            .collect();
        env.write(env.home().join(format!("{LOG}.1")), many);
        write(env, &calls());
        let lines = |args: &str| {
            let words = ["sandbox", "log", "--json"].into_iter().chain(args.split_whitespace());
            env.lnk(words).run().ok().quiet().stdout.lines().count()
        };
        assert_eq!(lines(""), 40);
        assert_eq!(lines("-n 5"), 5);
        assert_eq!(lines("-n 100"), 65);
        assert_eq!(lines("--refused"), 2);
        assert_eq!(lines("--sandbox run-7"), 4);
        assert_eq!(lines("--sandbox app --refused"), 1);
        assert_eq!(lines("--sandbox run-1 -n 50"), 50);
        assert_eq!(lines("--sandbox run-1 --refused"), 0);
    });
}

#[test]
fn as_json_the_lines_are_as_they_were_written() {
    each!(|env| {
        let mut log = calls();
        write(env, &log);
        let whole = String::from_utf8(log.clone()).unwrap();
        env.lnk(["sandbox", "log", "--json"]).run().ok().quiet().prints(&whole);
        // One that a killed run left unfinished, and one after it.
        log.extend(b"{\"time\":\"2026-05-04T03:0\n\x1b[2J\n{\"time\":\"2026");
        write(env, &log);
        env.lnk(["sandbox", "log", "--json"]).run().ok().quiet().prints(&whole);
    });
}

#[test]
fn a_wrong_name_leads_to_the_right_one() {
    each!(|env| {
        let asked =
            |name: &str| env.lnk(["sandbox", "log", "--sandbox", name]).run().fails_with(125);
        let none = env.lnk(["sandbox", "log", "--sandbox", "run-7"]).run();
        none.ok().prints("").stderr_has("No call was made.\n");
        write(env, &calls());
        asked("run-17").stderr_has("did you mean run-");
        asked("ap").has_not("did you mean").stderr_has("the newest are run-7, app, run-12\n");
        asked("\x1b[2J").has_not("\x1b").stderr_has("\\x1b[2J");
    });
}

#[test]
fn without_a_call_it_says_so() {
    each!(|env| {
        env.lnk(["sandbox", "log"]).run().ok().prints("").stderr_has("No call was made.\n");
        env.lnk(["sandbox", "log", "--json"]).run().ok().quiet().prints("");
        write(env, &line("run-7", 1, Verb::Http, "a.b", What::Allowed));
        let refused = env.lnk(["sandbox", "log", "--refused", "--sandbox", "run-7"]).run();
        refused.ok().prints("").stderr_has("No call was refused.\n");
    });
}

#[test]
fn on_a_terminal_no_line_is_wider_than_it() {
    each!(|env| {
        write(env, &calls());
        let mut terminal = env.lnk(["sandbox", "log"]).terminal(40, 60);
        assert_eq!(terminal.wait_exit(), 0);
        let screen = terminal.screen();
        let lines: Vec<_> = screen.lines().map(str::trim_end).collect();
        let row = lines.iter().position(|line| line.contains("run-12")).expect("it is shown");
        assert_eq!(
            lines[row..row + 3],
            [
                "2026-05-04 03:02:02  run-12       http     example.org:443",
                "    refused: example.org isn't a host that it may reach; add",
                "    --internet-host example.org",
            ],
            "{screen}"
        );
    });
}

#[test]
fn what_was_refused_stands_out_on_a_terminal() {
    each!(|env| {
        write(env, &calls());
        let red = "\x1b[31m2026-05-04 03:02:02  run-12";
        let shown = |script: &str| {
            let script = format!("script -qec {script} /dev/null </dev/null");
            env.sh(&script).run().ok().stdout
        };
        let (coloured, plain) = (shown("'lnk sandbox log'"), shown("'NO_COLOR=1 lnk sandbox log'"));
        assert!(coloured.contains(red) && coloured.contains("\x1b[33m"), "{coloured:?}");
        assert!(plain.contains("run-12") && !plain.contains('\x1b'), "{plain:?}");
        env.lnk(["sandbox", "log"]).run().ok().has_not("\x1b");
    });
}

#[test]
fn what_a_line_holds_cant_drive_a_terminal() {
    each!(|env| {
        let evil = "{\"time\":\"2026-05-04T03:02:01Z\",\"sandbox\":\"a\\u001b[2J\",\"call\":1,\
             \"verb\":\"unknown\",\"host\":\"\\u202e\\n\",\"what\":\"refused\",\"reason\":\"\\u0007x\"}\n";
        write(env, evil.as_bytes());
        env.lnk(["sandbox", "log"])
            .run()
            .ok()
            .stdout_has("a\\x1b[2J")
            .stdout_has("\\u{202e}\\n")
            .stdout_has("refused: \\x07x\n");
    });
}

#[test]
fn following_goes_on_through_a_full_file_until_nobody_reads() {
    each!(|env| {
        write(env, &line("run-7", 1, Verb::Http, "first.x", What::Allowed));
        let mut log = env.sh("lnk sandbox log --follow --sandbox run-7 | sed -u /last/q").spawn();
        log.wait_for_stdout("first.x:443");
        let file = env.home().join(LOG);
        let append = |lines: &[u8]| {
            OpenOptions::new().append(true).open(&file).unwrap().write_all(lines).unwrap();
        };
        append(&line("run-8", 2, Verb::Http, "other.x", What::Allowed));
        append(&line("run-7", 3, Verb::Http, "second.x", What::Allowed));
        log.wait_for_stdout("second.x:443");
        append(&line("run-7", 4, Verb::Http, "third.x", What::Allowed));
        std::fs::rename(&file, file.with_extension("log.1")).unwrap();
        write(env, &line("run-7", 5, Verb::Http, "last.x", What::Allowed));
        log.wait_for_stdout("last.x:443");
        // What can't be shown any more ends it.
        append(&line("run-7", 6, Verb::Http, "unread.x", What::Allowed));
        let run = log.wait().ok().quiet();
        let shown = run.stdout.lines().filter(|line| line.contains("run-7")).count();
        assert_eq!((shown, run.stdout.lines().count()), (4, 5), "{run}");
    });
}

/// Fills the disk that the log is on, and the file of the log but for a line's half.
const FULL_DISK: &str = r#"
settings="$HOME/.config/lnk"
mkdir -p "$settings" && mount -t tmpfs -o size=24m,mode=700 tmpfs "$settings" || exit
ip link set lo up
python3 -m http.server 5001 --bind 127.0.0.1 > log 2>&1 &
until curl -s -o page http://127.0.0.1:5001/; do :; done
call() {
    lnk sandbox run --read . --port 5001 -- curl -s -o /dev/null -w '%{http_code}\n' http://127.0.0.1:5001/
}
call
cat /dev/zero > "$settings/fill" 2> log
call
python3 -c "
import os, sys
path = sys.argv[1]
line = open(path).readline()
with open(path, 'a', buffering=1) as log:
    while os.path.getsize(path) < 8 * 1024 * 1024 - len(line): log.write(line)
" "$settings/sandbox/wire.log"
call
call
kill %1
test -e "$settings/sandbox/wire.log.1"
"#;

#[test]
fn filling_the_disk_ends_no_call_of_others() {
    each!(|env| {
        // Who else mounts is root of a namespace, in which no sandbox has another user.
        if env.user.is_root() {
            env.write("full.sh", FULL_DISK);
            let words = ["--net", "--mount", "bash", "full.sh"];
            env.program("unshare", words).run().ok().prints("200\n200\n200\n200\n");
        }
    });
}
