//! A client of the server, and the homes it runs in.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::TestEnv;

/// How long anything may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// The binary under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_lnk-link-run");

/// A server and its client's end. It is killed when dropped.
pub struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    asked: u64,
    notes: Vec<Value>,
}

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
    let words: Vec<_> = prefix
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
        env.write(agent(env).join("Config/agent.toml"), format!("[tool.run]\n{limits}\n"));
        Client::start(env, &[&["--agent", "main"], args].concat())
    }

    /// The server that this command is.
    pub fn of(mut command: Command) -> Client {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server can be started");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).expect("every line is JSON"));
            }
        });
        let mut client = Client { child, stdin, lines, asked: 0, notes: Vec::new() };
        client.ask(
            "initialize",
            json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"}
            }),
        );
        client.put(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn put(&mut self, message: Value) {
        let stdin = self.stdin.as_mut().expect("open until the end");
        writeln!(stdin, "{message}").expect("the server reads");
    }

    fn next(&mut self) -> Value {
        self.lines.recv_timeout(DEADLINE).expect("the server says something in time")
    }

    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let id = self.asked;
        self.put(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let line = self.next();
            match line["id"].as_u64() {
                Some(its) if its == id => return line,
                _ => self.notes.push(line),
            }
        }
    }

    /// Calls a tool.
    pub fn call(&mut self, tool: &str, arguments: Value) -> Answer {
        let line = self.ask("tools/call", json!({"name": tool, "arguments": arguments}));
        let result = &line["result"];
        let text = result["content"][0]["text"].as_str();
        let text = text.unwrap_or_else(|| panic!("no answer: {line}")).to_owned();
        Answer { text, is_error: result["isError"].as_bool().unwrap_or_default() }
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
        loop {
            let note = if self.notes.is_empty() { self.next() } else { self.notes.remove(0) };
            if note["method"] == "notifications/message" {
                return note["params"]["data"].clone();
            }
        }
    }

    /// Waits until an output has some text.
    pub fn wait_for_output(&mut self, id: &str, text: &str) {
        eventually(|| self.call("read", json!({"id": id})).ok().contains(text));
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Closes its standard input and waits for its end.
    pub fn close(mut self) {
        drop(self.stdin.take());
        assert!(self.child.wait().expect("it was started").success());
    }

    /// Kills it.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was started");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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

/// The folder of the agent `main`.
pub fn agent(env: &TestEnv) -> PathBuf {
    env.folder(env.home().join("Link/Agents/main/Config"));
    env.home().join("Link/Agents/main")
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
