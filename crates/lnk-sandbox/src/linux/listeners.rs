//! Listening sockets of a sandbox's network namespace, made by a process that is
//! in it and served from outside it.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::sockopt::{set_ipv6_v6only, set_socket_reuseaddr};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};

use super::message::{self, FromJoiner};

/// Connections that may wait to be accepted: the start of a program that makes
/// many at once, before anything is served.
const BACKLOG: i32 = 4096;
/// Sockets sent in one message.
const AT_ONCE: usize = 4;

/// Makes the listeners of these ports, at 127.0.0.1 and ::1, in the network
/// namespace of the calling thread, and sends them.
///
/// # Errors
/// Those of bind(2) and sendmsg(2), each with the port.
pub fn open_and_send(ports: &[u16], to: &OwnedFd) -> Result<(), String> {
    let failed = |port: u16| {
        move |error: io::Error| format!("port {port} inside: {}", crate::error::reason(&error))
    };
    let mut opened: Vec<(u16, OwnedFd)> = Vec::new();
    for &port in ports {
        let v4 = open((Ipv4Addr::LOCALHOST, port).into()).map_err(failed(port))?;
        opened.push((port, v4));
        match open((Ipv6Addr::LOCALHOST, port).into()) {
            Ok(v6) => opened.push((port, v6)),
            // A machine without IPv6 has none inside either.
            Err(error) if has_no_ipv6(&error) => {}
            Err(error) => return Err(failed(port)(error)),
        }
    }
    for some in opened.chunks(AT_ONCE) {
        let fds: Vec<_> = some.iter().map(|(_, fd)| fd.as_fd()).collect();
        let ports = some.iter().map(|(port, _)| *port).collect();
        message::send(to.as_fd(), &FromJoiner::Listening(ports), &fds)
            .map_err(|error| format!("the supervisor: {}", crate::error::reason(&error)))?;
    }
    Ok(())
}

fn open(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        set_ipv6_v6only(&socket, true)?;
    }
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn has_no_ipv6(error: &io::Error) -> bool {
    [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
