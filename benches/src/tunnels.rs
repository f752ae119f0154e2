//! The client of a proxy: plain blocking threads. It runs in a process of its own,
//! outside the sandbox, so that no call of it goes through the broker; for the wire
//! its sockets are of the sandbox's network.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};

use crate::Result;
use crate::origin::{ECHO, PIECE, SOURCE};
use crate::peers::Way;
use crate::table::quantile;

/// What a client does.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// Makes tunnels, a number of them, so many at a time: connected to, CONNECT,
    /// 200, one byte echoed, closed. It prints how many a second and the median
    /// microseconds of one.
    Make { at_once: usize, count: usize },
    /// Sends a byte there and back so often in one tunnel. It prints the median
    /// microseconds.
    RoundTrips(usize),
    /// Fetches so many bytes in one tunnel. It prints how many a second.
    Fetch(usize),
    /// Opens so many tunnels, a byte echoed in each, prints a zero and holds them
    /// until its standard input ends.
    Hold(usize),
}

impl Load {
    fn arguments(self) -> [String; 3] {
        let (name, first, second) = match self {
            Load::Make { at_once, count } => ("make", at_once, count),
            Load::RoundTrips(times) => ("round-trips", times, 0),
            Load::Fetch(bytes) => ("fetch", bytes, 0),
            Load::Hold(tunnels) => ("hold", tunnels, 0),
        };
        [name.into(), first.to_string(), second.to_string()]
    }

    fn parse(name: &str, first: usize, second: usize) -> Option<Load> {
        match name {
            "make" => Some(Load::Make { at_once: first, count: second }),
            "round-trips" => Some(Load::RoundTrips(first)),
            "fetch" => Some(Load::Fetch(first)),
            "hold" => Some(Load::Hold(first)),
            _ => None,
        }
    }
}

/// The numbers that a client prints.
pub fn measure<const N: usize>(load: Load, origin: IpAddr, way: &Way) -> Result<[f64; N]> {
    let output = command(load, origin, way)?.output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {load:?}: {}", way.name, said.trim()).into());
    }
    let numbers = String::from_utf8(output.stdout)?;
    let numbers: Vec<f64> = numbers.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    numbers.try_into().map_err(|_| format!("{}: {load:?}: other numbers", way.name).into())
}

/// A client that holds tunnels until it is dropped.
pub struct Held(Child);

impl Held {
    /// Returns once all of them are open.
    pub fn open(tunnels: usize, origin: IpAddr, way: &Way) -> Result<Held> {
        let mut command = command(Load::Hold(tunnels), origin, way)?;
        let mut client = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut opened = [0];
        let out = client.stdout.as_mut().expect("piped");
        let opens = out.read_exact(&mut opened);
        let held = Held(client);
        match opens {
            Ok(()) => Ok(held),
            Err(_) => Err(format!("{}: {tunnels} tunnels can't be held", way.name).into()),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn command(load: Load, origin: IpAddr, way: &Way) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--client").args(load.arguments()).arg(origin.to_string());
    command.arg(way.proxy.map_or("-".into(), |proxy| proxy.to_string()));
    command.arg(way.inside.map_or("-".into(), |pid| pid.to_string()));
    Ok(command)
}

/// Is the client, with the arguments of [`command`].
pub fn client(arguments: &[String]) -> Result<()> {
    let [load, first, second, origin, proxy, inside] = arguments else {
        return Err("a client is started by the measuring process only".into());
    };
    let load = Load::parse(load, first.parse()?, second.parse()?).ok_or("no such load")?;
    if inside != "-" {
        enter(inside.parse()?)?;
    }
    let client = Client {
        origin: origin.parse()?,
        proxy: if proxy == "-" { None } else { Some(proxy.parse()?) },
    };
    match load {
        Load::Make { at_once, count } => client.make(at_once, count),
        Load::RoundTrips(times) => client.round_trips(times),
        Load::Fetch(bytes) => client.fetch(bytes),
        Load::Hold(tunnels) => client.hold(tunnels),
    }
}

/// Enters the user and network namespaces of a process. Both at once: who made a
/// user namespace may enter it with the network that it owns, root or not.
fn enter(pid: i32) -> Result<()> {
    let pid = Pid::from_raw(pid).ok_or("no process")?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let kinds = ThreadNameSpaceType::USER | ThreadNameSpaceType::NETWORK;
    Ok(move_into_thread_name_spaces(std::os::fd::AsFd::as_fd(&process), kinds)?)
}

struct Client {
    origin: IpAddr,
    proxy: Option<SocketAddr>,
}

impl Client {
    fn make(&self, at_once: usize, count: usize) -> Result<()> {
        let each = count / at_once;
        let begin = Barrier::new(at_once + 1);
        let (took, mut times) = thread::scope(|scope| {
            let threads: Vec<_> = (0..at_once)
                .map(|_| {
                    scope.spawn(|| {
                        begin.wait();
                        (0..each).map(|_| self.make_one()).collect::<io::Result<Vec<f64>>>()
                    })
                })
                .collect();
            begin.wait();
            let start = Instant::now();
            let mut times = Vec::with_capacity(count);
            for thread in threads {
                times.extend(thread.join().expect("it doesn't panic")?);
            }
            io::Result::Ok((start.elapsed(), times))
        })?;
        times.sort_by(f64::total_cmp);
        println!("{} {}", (each * at_once) as f64 / took.as_secs_f64(), quantile(times, 0.5));
        Ok(())
    }

    /// The microseconds that one took.
    fn make_one(&self) -> io::Result<f64> {
        let start = Instant::now();
        let mut tunnel = self.open(ECHO)?;
        there_and_back(&mut tunnel)?;
        drop(tunnel);
        Ok(start.elapsed().as_secs_f64() * 1e6)
    }

    fn round_trips(&self, times: usize) -> Result<()> {
        let mut tunnel = self.open(ECHO)?;
        let mut took = Vec::with_capacity(times);
        for _ in 0..times {
            let start = Instant::now();
            there_and_back(&mut tunnel)?;
            took.push(start.elapsed().as_secs_f64() * 1e6);
        }
        println!("{}", quantile(took, 0.5));
        Ok(())
    }

    fn fetch(&self, bytes: usize) -> Result<()> {
        let mut tunnel = self.open(SOURCE)?;
        let mut buffer = vec![0; PIECE];
        let mut left = bytes;
        let start = Instant::now();
        tunnel.write_all(&(bytes as u64).to_be_bytes())?;
        while left > 0 {
            match tunnel.read(&mut buffer)? {
                0 => return Err(format!("it ended {left} bytes early").into()),
                read => left -= read,
            }
        }
        println!("{}", bytes as f64 / start.elapsed().as_secs_f64());
        Ok(())
    }

    fn hold(&self, tunnels: usize) -> Result<()> {
        let open = || -> io::Result<TcpStream> {
            let mut tunnel = self.open(ECHO)?;
            there_and_back(&mut tunnel)?;
            Ok(tunnel)
        };
        let held: Vec<TcpStream> = (0..tunnels).map(|_| open()).collect::<io::Result<_>>()?;
        println!("0");
        io::copy(&mut io::stdin(), &mut io::sink())?;
        drop(held);
        Ok(())
    }

    /// A tunnel to a port of the origin, or the connection itself without a proxy.
    fn open(&self, port: u16) -> io::Result<TcpStream> {
        let target = SocketAddr::new(self.origin, port);
        let Some(proxy) = self.proxy else { return TcpStream::connect(target) };
        let mut stream = TcpStream::connect(proxy)?;
        stream
            .write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes())?;
        let mut head = [0; 1024];
        let mut length = 0;
        // The origin never speaks first, so that nothing follows the head.
        while !head[..length].ends_with(b"\r\n\r\n") {
            match stream.read(&mut head[length..])? {
                0 => break,
                read => length += read,
            }
        }
        match &head[..length] {
            [b'H', b'T', b'T', b'P', b'/', b'1', b'.', _, b' ', b'2', b'0', b'0', ..] => Ok(stream),
            head => Err(io::Error::other(String::from_utf8_lossy(head))),
        }
    }
}

fn there_and_back(tunnel: &mut TcpStream) -> io::Result<()> {
    tunnel.write_all(b"x")?;
    tunnel.read_exact(&mut [0])
}
