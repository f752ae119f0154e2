//! What a TCP connect from inside costs, timed inside.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Instant;

use crate::Result;
use crate::cases::Case;

/// The argument that makes this program time connects.
pub const INSIDE: &str = "--connects";
/// Connects timed in one sandbox.
const CONNECTS: usize = 500;

/// Connects to a listener of its own on the loopback; prints the median in
/// nanoseconds.
pub fn inside() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let mut times = Vec::with_capacity(CONNECTS);
    for _ in 0..CONNECTS {
        let start = Instant::now();
        let stream = TcpStream::connect(address)?;
        times.push(start.elapsed().as_nanos());
        drop((stream, listener.accept()?));
    }
    times.sort_unstable();
    println!("{}", times[CONNECTS / 2]);
    Ok(())
}

/// The median connect in a sandbox, in microseconds. `own` is this program,
/// readable inside.
pub fn microseconds(case: &Case, own: &Path) -> Result<f64> {
    let own = own.to_string_lossy();
    let output = case.with_program(&[&own, INSIDE]).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: a connect: {}", case.name, said.trim()).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().parse::<f64>()? / 1000.0)
}
