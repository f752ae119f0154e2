//! A client of the server, over pipes.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::TestEnv;

/// How long any answer may take.
const DEADLINE: Duration = Duration::from_secs(60);

/// Runs a test for every user and each way of making mounts.
pub fn each(body: impl Fn(&TestEnv)) {
    testkit::each(env!("CARGO_BIN_EXE_lnk-link-run"), body);
}

pub struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    /// Messages that came and nobody waited for yet.
    held: VecDeque<Value>,
    last_id: u64,
}

impl Client {
    /// A server with these arguments, to which nothing was said yet.
    pub fn start<S: AsRef<std::ffi::OsStr>>(
        env: &TestEnv,
        args: impl IntoIterator<Item = S>,
    ) -> Client {
        let mut command = Command::new(env.lnk_path());
        command
            .args(args)
            .env_clear()
            .env("HOME", env.home())
            // Nothing is found by it.
            .env("PATH", "/nowhere")
            .env("LANG", "C.UTF-8")
            .env("LNK_SANDBOX_MOUNTS", env.mounts.name())
            .current_dir(env.project())
            .uid(env.user.uid)
            .gid(env.user.gid);
        Client::of(command)
    }

    /// The server that this command is, to which nothing was said yet.
    pub fn of(mut command: Command) -> Client {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in stdout.lines() {
                // Nothing but whole messages stands on standard output.
                let line = line.expect("UTF-8");
                let message = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        Client { child, stdin, lines, held: VecDeque::new(), last_id: 0 }
    }

    /// A server of the project folder, in a session.
    pub fn of_project(env: &TestEnv) -> Client {
        Client::with(env, ["--folder", "."])
    }

    /// A server with these arguments, in a session.
    pub fn with<S: AsRef<std::ffi::OsStr>>(
        env: &TestEnv,
        args: impl IntoIterator<Item = S>,
    ) -> Client {
        let mut client = Client::start(env, args);
        client.initialize("2025-11-25");
        client
    }

    /// A server of an agent with these two files, in a session.
    pub fn of_agent(env: &TestEnv, sandbox_toml: Option<&str>, agent_toml: &str) -> Client {
        let agent = agent(env);
        if let Some(text) = sandbox_toml {
            env.write(agent.join("Config/sandbox.toml"), text);
        }
        env.write(agent.join("Config/agent.toml"), agent_toml);
        Client::with(env, ["--agent", "main"])
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn initialize(&mut self, version: &str) -> Value {
        let params = json!({
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        });
        let answer = self.request("initialize", params);
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        answer
    }

    /// Writes bytes as they are.
    pub fn write(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().expect("open until the end");
        stdin.write_all(bytes).expect("the server reads");
    }

    pub fn send(&mut self, message: &Value) {
        self.write((message.to_string() + "\n").as_bytes());
    }

    /// Sends a request, whose id it answers.
    pub fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    pub fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        self.answer(id)
    }

    /// Starts a command.
    pub fn start_command(&mut self, arguments: Value) -> u64 {
        self.ask("tools/call", json!({ "name": "command", "arguments": arguments }))
    }

    /// Runs a command to its end.
    pub fn command(&mut self, arguments: Value) -> Answer {
        let id = self.start_command(arguments);
        self.ended(id)
    }

    /// Runs a script of sh.
    pub fn sh(&mut self, script: &str) -> Answer {
        self.command(json!({ "program": "sh", "args": ["-c", script] }))
    }

    /// The answer of a command that was started.
    pub fn ended(&mut self, id: u64) -> Answer {
        let result = self.answer(id)["result"].clone();
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"));
        Answer { is_error: result["isError"].as_bool().unwrap_or(false), text: text.to_owned() }
    }

    /// The answer to a request.
    pub fn answer(&mut self, id: u64) -> Value {
        self.message(|message| message["id"] == id)
    }

    /// The next message like this.
    pub fn message(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.held.iter().position(&is_it) {
            return self.held.remove(at).expect("it is there");
        }
        let deadline = Instant::now() + DEADLINE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let message = self.lines.recv_timeout(left).expect("the server answers");
            if is_it(&message) {
                return message;
            }
            self.held.push_back(message);
        }
    }

    /// Whether a message like this came already.
    pub fn has(&mut self, is_it: impl Fn(&Value) -> bool) -> bool {
        self.held.extend(self.lines.try_iter());
        self.held.iter().any(is_it)
    }

    pub fn cancel(&mut self, id: u64) {
        let params = json!({ "requestId": id, "reason": "test" });
        self.send(&json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params
        }));
    }

    pub fn tools(&mut self) -> Value {
        self.request("tools/list", json!({}))["result"]["tools"].clone()
    }

    /// Closes standard input and waits for the server's end.
    pub fn close(&mut self) -> ExitStatus {
        self.stdin = None;
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.child.try_wait().expect("own child") {
                return status;
            }
            assert!(Instant::now() < deadline, "the server doesn't end");
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("own child");
        self.child.wait().expect("own child");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a tool answered.
#[derive(Debug)]
pub struct Answer {
    pub is_error: bool,
    pub text: String,
}

impl Answer {
    #[track_caller]
    pub fn ok(self) -> Answer {
        assert!(!self.is_error && self.text.starts_with("exit status 0"), "{self:?}");
        self
    }

    #[track_caller]
    pub fn refused(self) -> Answer {
        assert!(self.is_error, "{self:?}");
        self
    }

    #[track_caller]
    pub fn has(self, text: &str) -> Answer {
        assert!(self.text.contains(text), "no {text:?} in {self:?}");
        self
    }

    #[track_caller]
    pub fn has_not(self, text: &str) -> Answer {
        assert!(!self.text.contains(text), "{text:?} in {self:?}");
        self
    }

    /// What the program printed, alone.
    pub fn stdout(&self) -> &str {
        let start = self.text.split_once("--- stdout ---\n").map_or("", |(_, rest)| rest);
        start.split("--- stderr ---\n").next().unwrap_or_default()
    }
}

/// The folders of an agent called main.
pub fn agent(env: &TestEnv) -> PathBuf {
    let agent = env.home().join("Link/Agents/main");
    for part in ["Config", "Agent/chats", "Files", "Home"] {
        env.folder(agent.join(part));
    }
    agent
}

/// Whether a process anywhere has this word in its command line.
pub fn is_running(mark: &str) -> bool {
    let processes = std::fs::read_dir("/proc").expect("/proc is there").flatten();
    let words = |path: &Path| std::fs::read(path.join("cmdline")).unwrap_or_default();
    processes.into_iter().any(|process| {
        words(&process.path()).split(|byte| *byte == 0).any(|word| word == mark.as_bytes())
    })
}

/// Waits until nothing with this word runs, for as long at most.
#[track_caller]
pub fn is_gone_within(mark: &str, time: Duration) {
    let deadline = Instant::now() + time;
    while is_running(mark) {
        assert!(Instant::now() < deadline, "{mark} still runs");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until something with this word runs.
#[track_caller]
pub fn comes_up(mark: &str) {
    let deadline = Instant::now() + DEADLINE;
    while !is_running(mark) {
        assert!(Instant::now() < deadline, "{mark} doesn't run");
        thread::sleep(Duration::from_millis(10));
    }
}
