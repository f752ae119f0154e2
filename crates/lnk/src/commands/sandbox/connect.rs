//! `lnk sandbox connect`: inside a sandbox, connects standard input and output to an
//! endpoint through the proxy.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::thread;

use lnk_sandbox::error::reason;
use lnk_sandbox::network::PROXY_PORT;
use lnk_sandbox::run::is_inside;
use lnk_sandbox::spec::host::Host;
use lnk_sandbox::spec::number::Port;

use crate::error::{CommandError, Result};

/// Bytes of the proxy's answer at most.
const MAX_HEAD: usize = 16 * 1024;

/// Connect to an endpoint of the sandbox, as a ProxyCommand
///
/// Inside a sandbox only: it speaks to the proxy and to nothing else, which lets
/// through what the sandbox may reach.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The endpoint's host
    host: Host,

    /// Its port
    port: Port,
}

pub fn connect(args: &Args) -> Result<u8> {
    if !is_inside() {
        return because(
            "connect is for programs inside a sandbox: outside they connect by themselves",
        );
    }
    let to = match &args.host {
        Host::Address(address) if address.is_ipv6() => format!("[{address}]:{}", args.port),
        host => format!("{host}:{}", args.port),
    };
    let failed = |error: io::Error| CommandError::Because(format!("{to}: {}", reason(&error)));
    let mut proxy = TcpStream::connect((Ipv4Addr::LOCALHOST, PROXY_PORT)).map_err(|error| {
        CommandError::Because(format!("{to}: the sandbox's proxy: {}", reason(&error)))
    })?;
    proxy
        .write_all(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").as_bytes())
        .map_err(failed)?;
    let (head, begun) = head(&mut proxy).map_err(failed)?;
    if let Some(why) = refusal(&head) {
        return because(&why);
    }
    relay(proxy, &begun).map_err(failed)?;
    Ok(0)
}

fn because(line: &str) -> Result<u8> {
    Err(CommandError::Because(line.into()))
}

/// The head of the proxy's answer, and what of the endpoint's bytes came with it.
fn head(proxy: &mut TcpStream) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let begun = bytes.split_off(end + 4);
            return Ok((bytes, begun));
        }
        let length = proxy.read(&mut piece)?;
        if length == 0 || bytes.len() > MAX_HEAD {
            return Err(io::Error::new(ErrorKind::InvalidData, "the proxy's answer has no end"));
        }
        bytes.extend_from_slice(&piece[..length]);
    }
}

/// Why the proxy doesn't connect; `None` where it does.
fn refusal(head: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.lines();
    let status = lines.next().unwrap_or_default();
    if status.split(' ').nth(1) == Some("200") {
        return None;
    }
    let why = lines.find_map(|line| line.strip_prefix("X-Link-Reason: "));
    Some(why.unwrap_or(status).to_owned())
}

/// Hands bytes on in both directions: the end of one is told to the other side, and
/// ends the whole once the endpoint says nothing more.
fn relay(proxy: TcpStream, begun: &[u8]) -> io::Result<()> {
    let up = proxy.try_clone()?;
    thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut &up);
        let _ = up.shutdown(Shutdown::Write);
    });
    let mut out = io::stdout().lock();
    let written =
        out.write_all(begun).and_then(|()| out.flush()).and_then(|()| copy_down(&proxy, &mut out));
    match written {
        // Whoever read this has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Nothing waits here for more, as a line-buffered standard output would.
fn copy_down(mut proxy: &TcpStream, out: &mut impl Write) -> io::Result<()> {
    let mut piece = [0; 64 * 1024];
    loop {
        match proxy.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                out.write_all(&piece[..length])?;
                out.flush()?;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxys_answer_is_told() {
        assert_eq!(refusal(b"HTTP/1.1 200 Connection established\r\n\r\n"), None);
        for (head, why) in [
            ("HTTP/1.1 403 Forbidden\r\nX-Link-Reason: a:1 isn't open\r\n\r\n", "a:1 isn't open"),
            ("HTTP/1.1 502 Bad Gateway\r\n\r\n", "HTTP/1.1 502 Bad Gateway"),
            ("200\r\n\r\n", "200"),
            ("\r\n\r\n", ""),
        ] {
            assert_eq!(refusal(head.as_bytes()).as_deref(), Some(why));
        }
    }
}
