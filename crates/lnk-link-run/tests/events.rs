//! Ends of background commands, told to a harness.

#![allow(clippy::unwrap_used, reason = "a panic is a test's failure")]

mod client;
mod session;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::process::Stdio;

use client::{Client, command, eventually};
use serde_json::{Value, json};
use session::each;
use testkit::TestEnv;

fn taken(listener: &UnixListener) -> Value {
    let mut line = String::new();
    listener.accept().unwrap().0.read_to_string(&mut line).unwrap();
    serde_json::from_str(&line).expect("one line of JSON")
}

/// A socket that the test's user may connect to.
fn listen(env: &TestEnv) -> (UnixListener, String) {
    let path = env.home().join("events");
    let listener = UnixListener::bind(&path).unwrap();
    std::os::unix::fs::lchown(&path, Some(env.user.uid), Some(env.user.gid)).unwrap();
    (listener, path.to_str().unwrap().into())
}

#[test]
fn a_harness_is_told_once() {
    each(|env| {
        let (listener, path) = listen(env);
        let mut client = Client::folder(env, &["--events", &path, "--conversation", "c"]);
        let id = client.started("echo done; exit 1");
        let event = taken(&listener);
        assert_eq!((&event["event"], &event["id"]), (&json!("background_ended"), &json!(id)));
        assert_eq!((&event["conversation"], &event["status"]), (&json!("c"), &json!(1)));
        assert!(event["message"].as_str().unwrap().contains("| done"));
        // Taken, it isn't told again.
        let record = env.home().join(".config/lnk/run");
        eventually(|| {
            let folder = std::fs::read_dir(&record).unwrap().next().unwrap().unwrap().path();
            let text = std::fs::read_to_string(folder.join(format!("{id}.json"))).unwrap();
            !text.contains("\"told\":null")
        });
        assert!(!client.sh("true").ok().contains(&id));
        client.close();
        let mut client = Client::folder(env, &["--events", &path, "--conversation", "c"]);
        let other = client.started("true");
        assert_eq!(taken(&listener)["id"], json!(other));
    });
}

#[test]
fn what_no_harness_takes_is_kept_for_the_next_start() {
    each(|env| {
        let path = env.home().join("events");
        let arguments = ["--events", path.to_str().unwrap(), "--conversation", "c"];
        let mut client = Client::folder(env, &arguments);
        let id = client.started("true");
        client.note();
        client.close();
        let (listener, _) = listen(env);
        let mut client = Client::folder(env, &arguments);
        assert_eq!(taken(&listener)["id"], json!(id));
        let mut told = String::new();
        eventually(|| {
            told = client.sh("true").ok();
            !told.contains(&id)
        });
        drop(client);
        Client::folder(env, &arguments).close();
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "it is told once");
    });
}

#[test]
fn a_descriptor_gets_a_line_for_each() {
    each(|env| {
        let file = env.project().join("events.txt");
        let shell = ["sh", "-c", "exec 3>events.txt; exec \"$@\"", "sh"].map(str::to_owned);
        let mut client = Client::of(command(env, &shell, &["--folder", ".", "--events", "fd:3"]));
        let ids = [client.started("true"), client.started("false")];
        let lines = || std::fs::read_to_string(&file).unwrap();
        eventually(|| lines().lines().count() == 2);
        assert!(ids.iter().all(|id| lines().contains(id)));
        let refused = env.lnk(["--folder", ".", "--events", "fd:77"]).run().fails_with(125);
        refused.stderr_has("--events fd:77");
    });
}

#[test]
fn wake_gives_a_harness_the_end_as_a_message_among_its_own() {
    each(|env| {
        let path = env.home().join("events");
        let path = path.to_str().unwrap();
        // One that was left behind is in nobody's way.
        drop(listen(env));
        let mut wake = command(env, &[], &["wake", "--events", path, "--", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = wake.stdin.take().unwrap();
        let mut lines = BufReader::new(wake.stdout.take().unwrap()).lines();
        // Half a line, which no message gets into.
        input.write_all(b"{\"type\":").unwrap();
        eventually(|| std::os::unix::net::UnixStream::connect(path).is_ok());
        let mut client = Client::folder(env, &["--events", path]);
        let id = client.started("echo '{\"type\":\"user\"}'; exit 4");
        let message: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(
            (&message["type"], &message["message"]["role"]),
            (&json!("user"), &json!("user"))
        );
        let text = message["message"]["content"].as_str().unwrap();
        assert!(
            text.starts_with("[This message is from the tool run, not from the user."),
            "{text}"
        );
        assert!(text.contains(&id) && text.contains("| {\"type\":\"user\"}"), "{text}");
        input.write_all(b"\"x\"}\n").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "{\"type\":\"x\"}");
        drop(input);
        assert!(lines.next().is_none());
        assert!(wake.wait().unwrap().success());
        assert!(!std::path::Path::new(path).exists());
    });
}

#[test]
fn wake_ends_as_its_harness_does() {
    each(|env| {
        let run = |harness: &[&str]| {
            env.lnk([&["wake", "--events", "events", "--"], harness].concat()).run()
        };
        run(&["sh", "-c", "echo out; exit 9"]).fails_with(9).prints("out\n");
        run(&["sh", "-c", "kill -9 $$"]).fails_with(137);
        run(&["no-such-harness"]).fails_with(125).stderr_has("no-such-harness");
        env.write("events", "");
        run(&["true"]).fails_with(125).stderr_has("--events events");
    });
}
