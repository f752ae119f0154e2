//! A client that starts commands in the background.

#![allow(dead_code, reason = "each file of tests has its own part of it")]

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::TestEnv;

use crate::session;

/// How long anything may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// A server and its client's end.
pub struct Client(session::Client);

/// What a tool answered.
#[derive(Debug)]
pub struct Answer {
    pub text: String,
    pub is_error: bool,
}

impl Answer {
    /// What it says, being no error.
    #[track_caller]
    pub fn ok(self) -> String {
        assert!(!self.is_error, "{}", self.text);
        self.text
    }

    /// What it says, being an error.
    #[track_caller]
    pub fn error(self) -> String {
        assert!(self.is_error, "{}", self.text);
        self.text
    }
}

/// The command of the server, as the test's user, in an environment of its own.
pub fn command(env: &TestEnv, prefix: &[String], args: &[&str]) -> Command {
    let words: Vec<std::ffi::OsString> = prefix
        .iter()
        .map(Into::into)
        .chain([env.lnk_path().into_os_string()])
        .chain(args.iter().map(Into::into))
        .collect();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env_clear().current_dir(env.project());
    command.env("HOME", env.home()).env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command.env("LNK_SANDBOX_MOUNTS", env.mounts.name());
    let switches = prefix.iter().any(|word| word == "setpriv");
    if !switches && env.user != testkit::User::current() {
        command.uid(env.user.uid).gid(env.user.gid);
    }
    command
}

impl Client {
    /// A server with these arguments.
    pub fn start(env: &TestEnv, args: &[&str]) -> Client {
        Client::of(command(env, &[], args))
    }

    /// A server of the project as its files folder.
    pub fn folder(env: &TestEnv, args: &[&str]) -> Client {
        let project = env.project().to_str().expect("a plain path");
        Client::start(env, &[&["--folder", project], args].concat())
    }

    /// A server of the agent `main`, whose `[tool.run]` is this.
    pub fn agent(env: &TestEnv, limits: &str, args: &[&str]) -> Client {
        env.write(session::agent(env).join("Config/agent.toml"), format!("[tool.run]\n{limits}\n"));
        Client::start(env, &[&["--agent", "main"], args].concat())
    }

    /// The server that this command is.
    pub fn of(command: Command) -> Client {
        let mut client = session::Client::of(command);
        client.initialize("2025-11-25");
        Client(client)
    }

    pub fn tools(&mut self) -> Value {
        self.0.tools()
    }

    /// Calls a tool.
    pub fn call(&mut self, tool: &str, arguments: Value) -> Answer {
        let id = self.0.ask("tools/call", json!({"name": tool, "arguments": arguments}));
        let session::Answer { text, is_error } = self.0.ended(id);
        Answer { text, is_error }
    }

    /// Runs a shell's script to its end.
    pub fn sh(&mut self, script: &str) -> Answer {
        self.call("command", json!({"program": "sh", "args": ["-c", script]}))
    }

    /// Starts a shell's script in the background.
    pub fn start_sh(&mut self, script: &str) -> Answer {
        self.call("start", json!({"program": "sh", "args": ["-c", script]}))
    }

    /// [`Client::start_sh`]'s id.
    #[track_caller]
    pub fn started(&mut self, script: &str) -> String {
        let text = self.start_sh(script).ok();
        let id = text.strip_prefix("started ").and_then(|rest| rest.split(':').next());
        id.unwrap_or_else(|| panic!("no id: {text}")).to_owned()
    }

    /// The next log message that the server sends.
    pub fn note(&mut self) -> Value {
        let message = self.0.message(|message| message["method"] == "notifications/message");
        message["params"]["data"].clone()
    }

    /// Waits until an output has some text.
    pub fn wait_for_output(&mut self, id: &str, text: &str) {
        eventually(|| self.call("read", json!({"id": id})).ok().contains(text));
    }

    /// Closes its standard input and waits for its end.
    pub fn close(mut self) {
        assert!(self.0.close().success());
    }

    /// Kills it.
    pub fn kill(mut self) {
        self.0.kill();
    }
}

/// Waits until something is so.
#[track_caller]
pub fn eventually(mut is_so: impl FnMut() -> bool) {
    within(DEADLINE, &mut is_so);
}

/// Waits until something is so, which is to be soon.
#[track_caller]
pub fn within(time: Duration, mut is_so: impl FnMut() -> bool) {
    let give_up = Instant::now() + time;
    while !is_so() {
        assert!(Instant::now() < give_up, "it isn't so after {time:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The processes of this machine whose command line has a text.
pub fn processes_with(text: &str) -> Vec<PathBuf> {
    let has = |path: &Path| {
        let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text)
    };
    let all = std::fs::read_dir("/proc").expect("there is /proc").flatten();
    all.map(|entry| entry.path()).filter(|path| has(path)).collect()
}
