//! Link Run's `command` beside `lnk sandbox run` of the same grants.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Result;
use crate::cases::Case;
use crate::measure::{self, FEW_ROUNDS, PAUSE, WARM_UP, milliseconds};
use crate::options::Options;
use crate::table;

/// Calls made side by side.
const AT_ONCE: usize = 100;

/// A server, and the sandbox that each of its calls is like.
struct Pair {
    /// As the table says it.
    name: &'static str,
    arguments: Vec<String>,
    alone: Case,
}

/// What was measured of one pair, in milliseconds by round.
pub struct Figures {
    pub name: &'static str,
    pub call: Vec<f64>,
    pub alone: Vec<f64>,
}

/// Measures as the present user.
pub fn measure(options: &Options, home: &Path) -> Result<()> {
    let pairs = pairs(options, home)?;
    let mut figures = Vec::new();
    for pair in &pairs {
        figures.push(calls(pair, options)?);
    }
    println!("\nLink Run, {} rounds:\n", options.rounds);
    table::calls(&figures);
    measure::leave_real_time();
    for pair in &pairs {
        table::calls_at_once(AT_ONCE, &at_once(pair, options)?);
    }
    Ok(())
}

/// With the list of programs that a server has without a spec, and without a list,
/// where nobody holds the program's calls.
fn pairs(options: &Options, home: &Path) -> Result<Vec<Pair>> {
    let files = home.join("files");
    fs::create_dir_all(&files)?;
    let spec = home.join("run.toml");
    fs::write(&spec, "[commands]\nallow = [\"*\"]\n")?;
    let word = |path: &Path| path.to_string_lossy().into_owned();
    let usual = vec!["--folder".into(), word(&files)];
    let any = [&usual[..], &["--spec".into(), word(&spec), "--yes".into()]].concat();
    let programs = Server::start(&options.link_run, &usual)?.programs()?;
    let folders = ["--read", ".", "--write", "work"].map(str::to_owned);
    let listed = programs.into_iter().flat_map(|name| ["--command".into(), name]);
    let alone = |name, flags: Vec<String>| Case::of_lnk(name, &options.lnk, &flags, &files);
    Ok(vec![
        Pair {
            name: "the usual programs",
            arguments: usual,
            alone: alone("the usual programs", folders.iter().cloned().chain(listed).collect()),
        },
        Pair { name: "any program", arguments: any, alone: alone("any program", folders.to_vec()) },
    ])
}

/// One after another, each beside a sandbox of its own.
fn calls(pair: &Pair, options: &Options) -> Result<Figures> {
    let mut server = Server::start(&options.link_run, &pair.arguments)?;
    let mut figures = Figures { name: pair.name, call: Vec::new(), alone: Vec::new() };
    for round in 0..WARM_UP + options.rounds {
        let call = server.calls(1)?;
        let mut alone = pair.alone.command();
        std::thread::sleep(PAUSE);
        let start = Instant::now();
        let status = alone.status()?;
        let took = start.elapsed();
        if !status.success() {
            return Err(format!("{}: {status}", pair.name).into());
        }
        if round >= WARM_UP {
            figures.call.push(milliseconds(call));
            figures.alone.push(milliseconds(took));
        }
    }
    Ok(figures)
}

/// Many side by side, to the end of the last.
fn at_once(pair: &Pair, options: &Options) -> Result<Figures> {
    let mut server = Server::start(&options.link_run, &pair.arguments)?;
    let mut figures = Figures { name: pair.name, call: Vec::new(), alone: Vec::new() };
    for _ in 0..FEW_ROUNDS {
        figures.call.push(milliseconds(server.calls(AT_ONCE)?));
        figures.alone.push(milliseconds(measure::all_of(&pair.alone, AT_ONCE)?));
    }
    Ok(figures)
}

/// A server with a client's end of its streams.
struct Server {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Server {
    fn start(program: &Path, arguments: &[String]) -> Result<Server> {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut server = Server { child, stdin, stdout };
        let client = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": "benches", "version": "1" },
        });
        server.ask(&request("initialize", &client))?;
        server.send("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n")?;
        Ok(server)
    }

    /// The programs that it offers.
    fn programs(&mut self) -> Result<Vec<String>> {
        let tools = self.ask(&request("tools/list", &json!({})))?;
        let described = tools["result"]["tools"][0]["description"].as_str();
        let listed = described.and_then(|text| text.split_once("It may run: "));
        let (_, listed) = listed.ok_or("the tool's description lists no programs")?;
        Ok(listed.trim_end_matches('.').split(", ").map(str::to_owned).collect())
    }

    /// So many calls of `/bin/true`, all asked for in one write, to the last answer.
    fn calls(&mut self, count: usize) -> Result<Duration> {
        let call = json!({ "name": "command", "arguments": { "program": "/bin/true" } });
        let asked: String = (0..count).map(|id| request_as(id, "tools/call", &call)).collect();
        std::thread::sleep(PAUSE);
        let start = Instant::now();
        self.send(&asked)?;
        let mut answers = Vec::with_capacity(count);
        for _ in 0..count {
            answers.push(self.line()?);
        }
        let took = start.elapsed();
        for answer in answers {
            if serde_json::from_str::<Value>(&answer)?["result"]["content"][0]["text"]
                != "exit status 0"
            {
                return Err(format!("a call failed: {answer}").into());
            }
        }
        Ok(took)
    }

    fn ask(&mut self, line: &str) -> Result<Value> {
        self.send(line)?;
        Ok(serde_json::from_str(&self.line()?)?)
    }

    fn send(&mut self, lines: &str) -> Result<()> {
        Ok(self.stdin.write_all(lines.as_bytes())?)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.stdout.read_line(&mut line)? {
            0 => Err("the server ended".into()),
            _ => Ok(line),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has nothing to lose.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A line, of a request that is alone.
fn request(method: &str, params: &Value) -> String {
    request_as(0, method, params)
}

fn request_as(id: usize, method: &str, params: &Value) -> String {
    let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    format!("{request}\n")
}
