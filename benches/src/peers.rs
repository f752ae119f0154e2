//! The ways to the origin that are compared: none between, other proxies, the wire.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::Result;
use crate::cases::is_on_path;

/// Where the wire's proxy listens inside.
const WIRE: u16 = 40781;
/// How long a proxy may take until it listens.
const LISTENS: Duration = Duration::from_secs(10);

/// One way.
#[derive(Debug)]
pub struct Way {
    /// As the table says it.
    pub name: &'static str,
    /// Asked for each tunnel; none is connected to the origin directly.
    pub proxy: Option<SocketAddr>,
    /// A process of the sandbox whose network the client's sockets are of.
    pub inside: Option<u32>,
    process: Option<Child>,
}

impl Way {
    /// The process that relays.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    fn here(name: &'static str, port: u16, command: &mut Command) -> Result<Way> {
        let proxy = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let way = Way { name, proxy: Some(proxy), inside: None, process: Some(process) };
        let start = Instant::now();
        while TcpStream::connect(proxy).is_err() {
            if start.elapsed() > LISTENS {
                return Err(format!("{name} doesn't listen").into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(way)
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        let Some(process) = &mut self.process else { return };
        // A sandbox ends with its program, which reads to the end.
        if process.stdin.take().is_none() {
            // squid leaves shared memory behind when it's killed.
            let _ = kill_process(Pid::from_child(process), Signal::TERM);
        }
        let _ = process.wait();
    }
}

/// All of them, the wire last; peers that aren't installed are named and left out.
pub fn start(lnk: &Path, home: &Path, origin: &str) -> Result<Vec<Way>> {
    let mut ways = vec![direct(), relay()?];
    for (program, start) in [("tinyproxy", tinyproxy as fn(&Path) -> _), ("squid", squid)] {
        match is_on_path(program) {
            true => ways.push(start(home)?),
            false => eprintln!("benches: left out, as it isn't installed: {program}"),
        }
    }
    ways.push(wire(lnk, origin)?);
    Ok(ways)
}

fn direct() -> Way {
    Way { name: "direct", proxy: None, inside: None, process: None }
}

fn relay() -> Result<Way> {
    let mut command = Command::new(std::env::current_exe()?);
    Way::here("bare tokio relay", 3127, command.args(["--relay", "127.0.0.1:3127"]))
}

fn tinyproxy(home: &Path) -> Result<Way> {
    let config = home.join("tinyproxy.conf");
    fs::write(&config, "Port 8888\nListen 127.0.0.1\nMaxClients 256\nLogLevel Critical\n")?;
    Way::here("tinyproxy", 8888, Command::new("tinyproxy").arg("-d").arg("-c").arg(config))
}

fn squid(home: &Path) -> Result<Way> {
    let config = home.join("squid.conf");
    fs::write(
        &config,
        "http_port 127.0.0.1:3128\nhttp_access allow all\ncache deny all\naccess_log none\n\
         cache_log /dev/null\npid_filename none\npinger_enable off\nvisible_hostname here\n\
         shutdown_lifetime 0 seconds\n",
    )?;
    // Under a name of its own, beside one that runs already.
    let arguments = ["-N", "-n", "benches", "-f"];
    Way::here("squid", 3128, Command::new("squid").args(arguments).arg(config))
}

/// A sandbox whose program waits, and its wire.
fn wire(lnk: &Path, origin: &str) -> Result<Way> {
    let mut command = Command::new(lnk);
    command.args(["sandbox", "run", "--read", ".", "--lan-host", origin, "--", "/bin/sh", "-c"]);
    command.arg("echo; exec cat").stdin(Stdio::piped()).stdout(Stdio::piped());
    let process = command.spawn()?;
    let proxy = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, WIRE)));
    let mut way = Way { name: "the wire", proxy, inside: None, process: Some(process) };
    let supervisor = way.process.as_mut().expect("just started");
    let mut line = String::new();
    BufReader::new(supervisor.stdout.as_mut().expect("piped")).read_line(&mut line)?;
    if line.is_empty() {
        return Err("the sandbox with a wire doesn't start".into());
    }
    way.inside = Some(last_descendant(supervisor.id())?);
    Ok(way)
}

/// The child of its child and so on: the sandbox's program.
fn last_descendant(pid: u32) -> Result<u32> {
    let file = format!("/proc/{pid}/task/{pid}/children");
    let children = fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
    match children.split_whitespace().next_back() {
        Some(child) => last_descendant(child.parse()?),
        None => Ok(pid),
    }
}
