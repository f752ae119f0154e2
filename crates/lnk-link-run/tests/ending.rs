//! How calls end: by themselves, by time, by their client, with the server.

mod session;

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::time::{Duration, Instant};

use serde_json::json;
use session::{Client, comes_up, each, is_gone_within, is_running};

/// A number of seconds that no other sleep on this machine has.
fn mark() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("3{:05}{:02}", std::process::id() % 100_000, NEXT.fetch_add(1, Ordering::Relaxed))
}

#[test]
fn what_a_program_leaves_running_ends_with_it() {
    each(|env| {
        let mut client = Client::of_project(env);
        let mark = mark();
        let started = Instant::now();
        let answer = client.sh(&format!("sleep {mark} & echo started"));
        assert_eq!(answer.ok().stdout(), "started\n");
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        is_gone_within(&mark, Duration::from_secs(1));
        let answer = client.sh(&format!("setsid -f sleep {mark} >/dev/null 2>&1; echo away"));
        assert_eq!(answer.text.lines().last(), Some("away"));
        is_gone_within(&mark, Duration::from_secs(1));
    });
}

#[test]
fn a_time_out_ends_everything_and_keeps_what_was_printed() {
    each(|env| {
        let spec = "[commands]\nallow = ['*']\n";
        let mut client = Client::of_agent(env, Some(spec), "[tool.run]\ntimeout = '2s'\n");
        let mark = mark();
        for script in [
            format!("echo a; sleep {mark}; true"),
            format!("echo a; sleep {mark} | cat"),
            format!("echo a; trap : TERM; while :; do sleep 1; done; : {mark}"),
            format!("echo a; trap '' TERM INT HUP; setsid sleep {mark}"),
        ] {
            let started = Instant::now();
            let answer = client.sh(&script).refused().has("timed out after 2 seconds");
            assert_eq!(answer.stdout(), "a\n");
            let took = started.elapsed();
            assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(5), "{took:?}");
            is_gone_within(&mark, Duration::from_secs(1));
        }
        client.sh("sleep 1; echo in time").ok().has("in time");
    });
}

#[test]
fn the_server_hears_while_a_command_runs() {
    each(|env| {
        let mut client = Client::of_project(env);
        let mark = mark();
        let long = client.start_command(json!({ "program": "sleep", "args": [mark] }));
        comes_up(&mark);
        let started = Instant::now();
        client.request("ping", json!({}));
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
        client.tools();
        assert_eq!(client.sh("echo second").ok().stdout(), "second\n");

        let cancelled = Instant::now();
        client.cancel(long);
        is_gone_within(&mark, Duration::from_secs(2));
        assert!(cancelled.elapsed() < Duration::from_secs(2), "{:?}", cancelled.elapsed());
        // Unknown ones and those that have ended change nothing.
        for id in [long, 4_711, 1] {
            client.cancel(id);
        }
        client.sh("true").ok();
        assert!(!client.has(|message| message["id"] == long), "a cancelled call has no answer");
    });
}

#[test]
fn a_cancelled_command_that_ignores_signals_ends_as_soon() {
    each(|env| {
        let mut client = Client::of_project(env);
        let mark = mark();
        let script = format!("trap '' TERM INT HUP; while :; do sleep {mark}; done");
        let id = client.start_command(json!({ "program": "sh", "args": ["-c", script] }));
        comes_up(&mark);
        client.cancel(id);
        is_gone_within(&mark, Duration::from_secs(2));
        client.sh("true").ok();
    });
}

#[test]
fn a_command_that_is_cancelled_at_once_never_stays() {
    each(|env| {
        let mut client = Client::of_project(env);
        let mark = mark();
        for _ in 0..10 {
            let id = client.start_command(json!({ "program": "sleep", "args": [mark] }));
            client.cancel(id);
        }
        client.sh("true").ok();
        is_gone_within(&mark, Duration::from_secs(2));
    });
}

#[test]
fn progress_is_told_where_it_was_asked_for() {
    each(|env| {
        let mut client = Client::of_project(env);
        let arguments = json!({ "program": "sleep", "args": ["11"] });
        let quiet = client.start_command(arguments.clone());
        let id = client.ask(
            "tools/call",
            json!({ "name": "command", "arguments": arguments, "_meta": { "progressToken": "it" } }),
        );
        let told = client.message(|message| message["method"] == "notifications/progress");
        assert_eq!(told["params"]["progressToken"], "it", "{told}");
        assert!(told["params"]["progress"].as_f64().unwrap() >= 10.0, "{told}");
        client.ended(id).ok();
        client.ended(quiet).ok();
        assert!(!client.has(|message| message["method"] == "notifications/progress"));
    });
}

#[test]
fn the_end_of_input_ends_every_call() {
    each(|env| {
        let mut client = Client::of_project(env);
        let mark = mark();
        for _ in 0..3 {
            let script = format!("trap '' TERM; sleep {mark}");
            client.start_command(json!({ "program": "sh", "args": ["-c", script] }));
        }
        comes_up(&mark);
        let closed = Instant::now();
        assert!(client.close().success());
        assert!(closed.elapsed() < Duration::from_secs(4), "{:?}", closed.elapsed());
        assert!(!is_running(&mark));
    });
}

#[test]
fn a_server_that_is_killed_leaves_nothing() {
    each(|env| {
        let mut client = Client::of_project(env);
        let mark = mark();
        for _ in 0..3 {
            let script = format!("trap '' TERM; sleep {mark}");
            client.start_command(json!({ "program": "sh", "args": ["-c", script] }));
        }
        comes_up(&mark);
        client.kill();
        is_gone_within(&mark, Duration::from_secs(1));
    });
}

#[test]
fn a_fork_bomb_ends_with_its_call_and_hurts_no_other() {
    each(|env| {
        let mut client = Client::of_agent(env, None, "[tool.run]\ntimeout = '8s'\n");
        let mark = mark();
        let script = format!("bomb() {{ sleep {mark} & bomb | bomb & }}; bomb; wait; sleep {mark}");
        let bomb = client.start_command(json!({ "program": "bash", "args": ["-c", script] }));
        comes_up(&mark);
        client.sh("echo fine").ok().has("fine");
        client.ended(bomb);
        is_gone_within(&mark, Duration::from_secs(2));
        client.sh("echo fine").ok();
    });
}

#[test]
fn a_call_has_neither_the_clients_terminal_nor_its_descriptors() {
    each(|env| {
        let mut client = Client::of_project(env);
        // The fourth is the folder that is listed.
        assert_eq!(client.sh("ls /proc/self/fd").ok().stdout(), "0\n1\n2\n3\n");
        let mark = mark();
        client.start_command(json!({ "program": "sleep", "args": [mark] }));
        comes_up(&mark);
        let server = client.pid();
        let children = std::fs::read_to_string(format!("/proc/{server}/task/{server}/children"));
        let children = children.unwrap();
        let supervisor = children.split_whitespace().next().unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{supervisor}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        let (session, terminal) = (fields[3], fields[4]);
        assert_eq!((session, terminal), (supervisor, "0"), "{stat}");
    });
}

#[test]
fn a_client_that_cant_be_written_to_is_gone() {
    each(|env| {
        let mut child = std::process::Command::new(env.lnk_path())
            .args(["--folder", "."])
            .env_clear()
            .env("HOME", env.home())
            .env("LNK_SANDBOX_MOUNTS", env.mounts.name())
            .current_dir(env.project())
            .uid(env.user.uid)
            .gid(env.user.gid)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("the server starts");
        drop(child.stdout.take());
        let mut stdin = child.stdin.take().expect("piped");
        // Not a message, which is answered at once.
        stdin.write_all(b"x\n").expect("the server reads");
        assert!(child.wait().expect("own child").success());
        drop(stdin);
    });
}
