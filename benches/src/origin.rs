//! The origin that tunnels lead to: plain blocking threads, one for each connection.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;

use crate::Result;

/// Sends back what comes (RFC 862).
pub const ECHO: u16 = 7;
/// Sends as many bytes as it is asked for, by eight in the network's order, and
/// closes.
pub const SOURCE: u16 = 19;
/// Bytes that are written at once.
pub const PIECE: usize = 256 * 1024;

/// Serves both ports of an address until this process is killed, and says so by a
/// line.
pub fn serve(address: IpAddr) -> Result<()> {
    let echo = TcpListener::bind(SocketAddr::new(address, ECHO))?;
    let source = TcpListener::bind(SocketAddr::new(address, SOURCE))?;
    println!("serving");
    thread::spawn(move || accept(&source, send));
    accept(&echo, send_back);
    Ok(())
}

fn accept(listener: &TcpListener, answer: fn(TcpStream) -> io::Result<()>) {
    for stream in listener.incoming().flatten() {
        // A client that has left is nothing to the others.
        thread::spawn(move || answer(stream));
    }
}

fn send_back(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; 1024];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            read => stream.write_all(&buffer[..read])?,
        }
    }
}

fn send(mut stream: TcpStream) -> io::Result<()> {
    let mut asked = [0; 8];
    stream.read_exact(&mut asked)?;
    let piece = vec![0; PIECE];
    let mut left = u64::from_be_bytes(asked) as usize;
    while left > 0 {
        let some = left.min(PIECE);
        stream.write_all(&piece[..some])?;
        left -= some;
    }
    Ok(())
}
