//! `lnk sandbox pause`, `resume` and `paused`, and wires that pause themselves.

mod network;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use lnk_sandbox::wire::log::{Verb, What, records};
use network::{SERVE, run};
use rustix::process::Signal;
use serde_json::Value;
use testkit::{Net, Run, TestEnv, each};

/// Asks the proxy for each target, as often as the number before it says, and prints what
/// it answered how often.
const ASK: &str = r"
import collections, socket, sys
answers = collections.Counter()
for times, target in (word.split('*') for word in sys.argv[1:]):
    for _ in range(int(times)):
        proxy = socket.create_connection(('127.0.0.1', 40781))
        if target == 'rubbish':
            proxy.sendall(b'rubbish\r\n\r\n')
        elif target.endswith(':80'):
            proxy.sendall(f'GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n\r\n'.encode())
        else:
            proxy.sendall(f'CONNECT {target} HTTP/1.1\r\n\r\n'.encode())
        head = proxy.makefile('rb').read().decode()
        reason = [line[15:] for line in head.splitlines() if line.startswith('X-Link-Reason: ')]
        paused = ' paused' if reason and 'resume' in reason[0] else ''
        answers[head.split(' ')[1] + paused] += 1
        proxy.close()
print(*(f'{answers[answer]}*{answer}' for answer in sorted(answers)), sep=', ')
";

/// What a spec opens.
const SPEC: &str = "name = 'app'\n[internet]\nhosts = ['origin.test.example']\n\
                    [files]\nread = ['.']\n[commands]\nallow = ['*']\n";

fn net() -> Option<Net> {
    let mut net = Net::new()?;
    let [python, flag, script] = SERVE;
    net.serve([python, flag, script, "http", "11.0.0.2", "80"]);
    Some(net)
}

fn app(env: &TestEnv) {
    env.write("app.toml", SPEC);
}

/// What a run of the spec was answered; `targets` as `3*host:port`.
fn asked(env: &TestEnv, net: &Net, targets: &str) -> Run {
    asked_with(env, net, "--spec app.toml --yes", targets)
}

fn asked_with(env: &TestEnv, net: &Net, flags: &str, targets: &str) -> Run {
    let mut program = vec!["python3", "-c", ASK];
    program.extend(targets.split_whitespace());
    network::run_words(env, net, &network::NAMES, flags, &program).run().ok()
}

fn lnk(env: &TestEnv, words: &str) -> Run {
    env.lnk(["sandbox"].into_iter().chain(words.split_whitespace())).run()
}

/// What is paused, as `name: reason`.
fn paused(env: &TestEnv) -> Vec<String> {
    let said = lnk(env, "paused --json").ok().stdout;
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let all = said["paused"].as_array().expect("a list").iter();
    all.map(|it| format!("{}: {}", text(&it["name"]), text(&it["reason"]))).collect()
}

const OPEN: &str = "1*origin.test.example:80";

#[test]
fn a_specs_pause_is_for_all_its_runs_until_it_is_resumed() {
    let Some(net) = net() else { return };
    each!(|env| {
        app(env);
        let program = "exec 3<>/dev/tcp/127.0.0.1/40781
printf 'GET http://origin.test.example/ HTTP/1.1\\r\\nHost: origin.test.example\\r\\n\\r\\n' >&3
read -r line <&3; echo \"open $line\"; cat <&3; echo ended; cat";
        let spec = "--spec app.toml --yes";
        let start = |flags| {
            let mut sandbox = run(env, &net, flags, ["bash", "-c", program]).spawn();
            sandbox.wait_for_stdout("open HTTP/1.1 200 ");
            sandbox
        };
        let mut one = start(spec);
        lnk(env, "pause app").ok().stdout_has("app (").stdout_has("is paused: 1 wire closed, ");
        one.wait_for_stdout("ended\n").wait_for_stderr(
            "lnk sandbox: the wire of app is paused: by hand; 'lnk sandbox log --sandbox app' shows \
             its calls, 'lnk sandbox resume app' opens it\n",
        );
        one.wait();
        asked(env, &net, OPEN)
            .prints("1*403 paused\n")
            .stderr_has("the wire of app is paused: by hand");
        lnk(env, "pause ./app.toml").ok().stdout_has("was paused already.");
        assert_eq!(paused(env), ["app: by hand"]);
        lnk(env, "paused").ok().quiet().stdout_has("\napp      20").stdout_has("  by hand  /");
        lnk(env, "resume app").ok().stdout_has("is resumed: 0 wires opened.");
        lnk(env, "resume app.toml").ok().stdout_has("app.toml) isn't paused.\n");
        asked(env, &net, OPEN).prints("1*200\n").quiet();
        lnk(env, "paused").ok().prints("").stderr_has("No wire is closed.\n");

        // Of one that has no spec it ends with the run.
        let bare = "--internet-host origin.test.example";
        let mut other =
            run(env, &net, bare, ["sh", "-c", "echo runs; exec sleep infinity"]).spawn();
        other.wait_for_stdout("runs\n");
        let name = name_of(env).expect("it runs");
        lnk(env, &format!("pause {name}"))
            .ok()
            .prints(&format!("{name} is paused: 1 wire closed, 0 calls ended.\n"));
        assert_eq!(paused(env), [format!("{name}: by hand")]);
        lnk(env, &format!("resume {name}"))
            .ok()
            .prints(&format!("{name} is resumed: 1 wire opened.\n"));
        lnk(env, &format!("pause {name}")).ok();
        other.signal(Signal::TERM);
        other.wait().fails_with(143).stderr_has(&format!("the wire of {name} is paused: by hand"));
        let state = fs::read_to_string(env.home().join(".config/lnk/sandbox/pauses.json"));
        assert_eq!(state.expect("own file"), "{\"sandboxes\":[]}");
    });
}

/// The name of the one sandbox that runs.
fn name_of(env: &TestEnv) -> Option<String> {
    let said = lnk(env, "traffic --json").ok().stdout;
    let said: Value = serde_json::from_str(&said).expect("JSON");
    Some(said[0]["name"].as_str()?.to_owned())
}

#[test]
fn thirty_refused_calls_within_a_minute_pause_a_spec_whichever_runs_made_them() {
    let Some(net) = net() else { return };
    each!(|env| {
        app(env);
        asked(env, &net, "10*closed.example:443").prints("10*403\n").quiet();
        asked(env, &net, "9*closed.example:80 9*rubbish").prints("9*400, 9*403\n").quiet();
        // The 29th, and what is open is open still.
        asked(env, &net, &format!("1*closed.example:443 {OPEN}")).prints("1*200, 1*403\n").quiet();
        assert!(paused(env).is_empty());
        asked(env, &net, &format!("1*closed.example:443 {OPEN}"))
            .prints("1*403, 1*403 paused\n")
            .stderr_has("the wire of app is paused: 30 calls were refused within a minute; ");
        assert_eq!(paused(env), ["app: 30 calls were refused within a minute"]);
        let log = pauses(env);
        assert_eq!(
            log,
            ["this sandbox's wire is paused (30 calls were refused within a minute): \
              lnk sandbox resume app"]
        );
        asked(env, &net, OPEN).prints("1*403 paused\n");
        // Anew from here.
        lnk(env, "resume app").ok();
        asked(env, &net, &format!("29*closed.example:443 {OPEN}"))
            .prints("1*200, 29*403\n")
            .quiet();
        assert!(paused(env).is_empty());
    });
}

/// The reasons in the log's lines of pauses.
fn pauses(env: &TestEnv) -> Vec<String> {
    let bytes = fs::read(env.home().join(".config/lnk/sandbox/wire.log")).expect("a log");
    let lines = records(&bytes).map(|record| record.line);
    let pauses = lines.filter(|line| line.verb == Verb::Pause);
    let reasons = pauses.filter_map(|line| match line.what {
        What::Refused { reason } => Some(reason),
        _ => None,
    });
    reasons.collect()
}

#[test]
fn twenty_refused_targets_within_ten_minutes_pause_it() {
    let Some(net) = net() else { return };
    each!(|env| {
        app(env);
        let targets = |from: u32, to: u32| -> String {
            (from..to).map(|n| format!("1*t{n}.example:443 ")).collect()
        };
        asked(env, &net, &targets(0, 10)).prints("10*403\n").quiet();
        // One again is no other; the nineteenth.
        asked(env, &net, &(targets(8, 19) + OPEN)).prints("1*200, 11*403\n").quiet();
        assert!(paused(env).is_empty());
        asked(env, &net, &(targets(19, 20) + OPEN)).prints("1*403, 1*403 paused\n");
        let why = "app: 20 different targets were refused within 10 minutes";
        assert_eq!(paused(env), [why]);
        // One spec's pause and counters are no other's, and a bare run's are its own.
        env.write("other.toml", SPEC);
        let targets_and_open = targets(0, 1) + OPEN;
        asked_with(env, &net, "--spec other.toml --yes", &targets_and_open)
            .prints("1*200, 1*403\n")
            .quiet();
        let bare = "--internet-host origin.test.example";
        for _ in 0..2 {
            asked_with(env, &net, bare, &(targets(0, 19) + OPEN)).prints("1*200, 19*403\n").quiet();
        }
        // By the path, where two have the name.
        lnk(env, "pause other.toml").ok();
        lnk(env, "resume app").fails_with(125).stderr_has("several sandboxes are called this");
        lnk(env, "resume app.toml").ok();
        assert_eq!(paused(env), ["app: by hand"]);
    });
}

#[test]
fn any_call_to_a_metadata_service_pauses_it_and_is_shown_on_the_desktop() {
    let Some(net) = net() else { return };
    each!(|env| {
        app(env);
        let said = env.write("said", "");
        let folder = env.outside().join("programs");
        fs::create_dir(&folder).expect("a fresh folder");
        let program = folder.join("notify-send");
        let script = format!("#!/bin/sh\n(env; printf '%s|' \"$@\") > {}\n", said.display());
        fs::write(&program, script).expect("own file");
        fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("own file");
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("own folder");
        for target in ["169.254.169.254:80", "metadata.google.internal:443"] {
            let targets = format!("1*{target}");
            let words = ["python3", "-c", ASK, &targets, OPEN];
            let shown = |call: testkit::Call| {
                call.replaced("/usr/local/bin", &folder)
                    .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/bus")
                    .env("SECRET", "x")
                    .run()
                    .ok()
            };
            shown(run(env, &net, "--spec app.toml --yes", words)).prints("1*403, 1*403 paused\n");
            assert_eq!(paused(env), ["app: a cloud's metadata service was asked for"]);
            lnk(env, "resume app").ok();
        }
        // What is shown is shown by a process of its own.
        let text = loop {
            let text = fs::read_to_string(&said).expect("own file");
            if text.ends_with('|') {
                break text;
            }
            std::thread::yield_now();
        };
        let words = "--|app is paused|a cloud's metadata service was asked for|";
        assert!(text.ends_with(words), "{text}");
        assert!(text.contains("DBUS_SESSION_BUS_ADDRESS=unix:path=/bus\n"), "{text}");
        assert!(!text.contains("SECRET") && !text.contains("HOME="), "{text}");
    });
}

#[test]
fn a_name_that_is_looked_up_counts_once() {
    let Some(net) = net() else { return };
    each!(|env| {
        env.write("names.toml", SPEC.replace("hosts", "tcp = ['origin.test.example:7000']\nhosts"));
        // Each asks for an A and an AAAA.
        let script = "for n in $(seq $0); do getent ahosts closed.example; done; getent ahostsv4 origin.test.example";
        let look_up =
            |times| run(env, &net, "--spec names.toml --yes", ["bash", "-c", script, times]).run();
        look_up("29").ok().quiet().stdout_has("127.77.0.1");
        assert!(paused(env).is_empty());
        look_up("1").fails_with(2).stderr_has("30 calls were refused within a minute");
        lnk(env, "resume names.toml").ok();
    });
}

#[test]
fn calls_above_the_rate_arent_refused_ones() {
    let Some(net) = net() else { return };
    each!(|env| {
        app(env);
        let flags = "--spec app.toml --yes --per-minute 1";
        asked_with(env, &net, flags, "41*origin.test.example:80").prints("1*200, 40*429\n").quiet();
        assert!(paused(env).is_empty());
    });
}

#[test]
fn a_minute_has_room_for_all_runs_of_a_spec_together() {
    let Some(net) = net() else { return };
    each!(|env| {
        app(env);
        let twice = |flags: &str| asked_with(env, &net, flags, "2*origin.test.example:80");
        let flags = "--spec app.toml --yes --per-minute 3";
        twice(flags).prints("2*200\n");
        twice(flags).prints("1*200, 1*429\n");
        // Another spec's, and a run's own.
        env.write("other.toml", SPEC);
        twice("--spec other.toml --yes --per-minute 3").prints("2*200\n");
        for _ in 0..2 {
            twice("--internet-host origin.test.example --per-minute 3").prints("2*200\n");
        }
    });
}

#[test]
fn what_cant_be_read_closes_a_wire_until_it_can() {
    let Some(net) = net() else { return };
    each!(|env| {
        app(env);
        asked(env, &net, OPEN).prints("1*200\n");
        let file = env.home().join(".config/lnk/sandbox/pauses.json");
        env.write(&file, "{");
        let closed = "whether this sandbox's wire is paused can't be told, so it's closed";
        let words = ["curl", "-sS", "http://origin.test.example/"];
        run(env, &net, "--spec app.toml --yes", words)
            .run()
            .ok()
            .stdout_has(closed)
            .stderr_has("the wire of app is closed, as ~/.config/lnk/sandbox/pauses.json, which");
        for command in ["paused", "pause app.toml", "resume app.toml"] {
            lnk(env, command).fails_with(125).stderr_has("is damaged, so every wire is closed: ");
        }
        fs::remove_file(file).expect("it's there");
        asked(env, &net, OPEN).prints("1*200\n").quiet();
    });
}

#[test]
fn another_one_that_was_stopped_with_the_lock_keeps_no_wire_open_and_closes_none() {
    let Some(net) = net() else { return };
    each!(|env| {
        app(env);
        asked(env, &net, "1*closed.example:443").prints("1*403\n").quiet();
        let settings = env.home().join(".config/lnk/sandbox");
        let lock = fs::File::options().write(true).open(settings.join("pauses.lock"));
        let lock = lock.expect("something was counted");
        lock.lock().expect("nobody has it");
        // What is refused is counted all the same, and said where it's forgotten.
        asked(env, &net, &format!("28*closed.example:443 {OPEN}"))
            .prints("1*200, 28*403\n")
            .stderr_has(
                "28 refused calls of app couldn't be counted in ~/.config/lnk/sandbox, so its next",
            );
        asked(env, &net, &format!("29*closed.example:443 {OPEN}"))
            .prints("29*403, 1*403 paused\n")
            .stderr_has("the wire of app is paused: 30 calls were refused within a minute; ");
        let program = ["sh", "-c", "echo runs; exec sleep infinity"];
        let mut sandbox = run(env, &net, "--spec app.toml --yes", program).spawn();
        sandbox.wait_for_stdout("runs\n");
        lnk(env, "pause app")
            .fails_with(125)
            .stderr_has(
                ": 1 wire closed, 0 calls ended, but a run that starts from now on isn't closed",
            )
            .stderr_has("can't be written, as another lnk that is about to is stopped: ");
        sandbox.wait_for_stderr("the wire of app is paused: by hand");
        drop(lock);
        lnk(env, "resume app").ok().stdout_has("is resumed: 1 wire opened.");
        sandbox.signal(Signal::TERM);
        sandbox.wait().fails_with(143);
    });
}

#[test]
fn a_wrong_name_leads_to_the_right_ones() {
    let Some(net) = net() else { return };
    each!(|env| {
        app(env);
        lnk(env, "pause nobody")
            .fails_with(125)
            .stderr_has("nobody: no sandbox is called this, and none is known; ");
        let program = ["bash", "-c", "echo runs; sleep infinity"];
        let mut sandbox = run(env, &net, "--spec app.toml --yes", program).spawn();
        sandbox.wait_for_stdout("runs\n");
        lnk(env, "pause apq").fails_with(125).stderr_has("there are app, run-");
        lnk(env, "pause \x1b[2J").fails_with(125).has_not("\x1b");
        lnk(env, "pause no.toml").fails_with(125).stderr_has("there are app, run-");
        let name = name_of(env).expect("it runs");
        lnk(env, &format!("pause {name}")).ok().stdout_has("app (");
        assert_eq!(paused(env), ["app: by hand"]);
    });
}

#[test]
fn a_check_is_refused_by_design_and_pauses_nothing() {
    let Some(net) = net() else { return };
    each!(|env| {
        let hosts = env.home().join("hosts");
        net.names(&hosts, &network::NAMES);
        let check = |spec: &str| {
            let words =
                ["sandbox", "check", "--read", ".", "--internet-host", "origin.test.example"];
            let words = words.into_iter().chain(spec.split_whitespace());
            env.lnk(words).within(&net).replaced("/etc/hosts", &hosts).run()
        };
        check("").ok().stdout_has("blocked").has_not("paused");
        assert!(pauses(env).is_empty() && paused(env).is_empty());
        lnk(env, "stop").ok();
        check("").fails_with(125).stderr_has("every wire is stopped");
        lnk(env, "stop --off").ok();
        app(env);
        check("--spec app.toml --yes").ok();
        lnk(env, "pause app").ok();
        check("--spec app.toml").fails_with(125).stderr_has(
            "the wire of app is paused (by hand), so it can't be tried: 'lnk sandbox resume app' \
             opens it\n",
        );
        check("").ok();
    });
}
