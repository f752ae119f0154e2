//! What is timed inside: a TCP connect, and a program's start and end.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::Result;
use crate::cases::Case;

/// What this program times when it runs in a sandbox.
#[derive(Clone, Copy, Debug)]
pub enum Timed {
    /// Connects to a listener of its own on the loopback.
    Connect,
    /// Start and end of `/bin/true`.
    Program,
}

/// Repeated so often in one sandbox.
const TIMES: usize = 500;

impl Timed {
    /// The argument that asks for it.
    fn argument(self) -> &'static str {
        match self {
            Timed::Connect => "--connects",
            Timed::Program => "--programs",
        }
    }

    /// What an argument asks for.
    pub fn of_argument(argument: &str) -> Option<Timed> {
        [Timed::Connect, Timed::Program].into_iter().find(|it| it.argument() == argument)
    }

    /// Prints the median in nanoseconds.
    pub fn inside(self) -> Result<()> {
        let mut times = match self {
            Timed::Connect => connects()?,
            Timed::Program => programs()?,
        };
        times.sort_unstable();
        println!("{}", times[TIMES / 2]);
        Ok(())
    }

    /// The median in a sandbox, in microseconds. `own` is this program, readable
    /// inside.
    pub fn microseconds(self, case: &Case, own: &Path) -> Result<f64> {
        let own = own.to_string_lossy();
        let output = case.with_program(&[&own, self.argument()]).output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{}: {self:?}: {}", case.name, said.trim()).into());
        }
        Ok(String::from_utf8(output.stdout)?.trim().parse::<f64>()? / 1000.0)
    }
}

fn connects() -> Result<Vec<u128>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let mut times = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        let start = Instant::now();
        let stream = TcpStream::connect(address)?;
        times.push(start.elapsed().as_nanos());
        drop((stream, listener.accept()?));
    }
    Ok(times)
}

fn programs() -> Result<Vec<u128>> {
    let mut times = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        let start = Instant::now();
        let status = Command::new("/bin/true").status()?;
        times.push(start.elapsed().as_nanos());
        if !status.success() {
            return Err(format!("/bin/true: {status}").into());
        }
    }
    Ok(times)
}
