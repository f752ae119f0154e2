//! Sockets of a sandbox's network namespace, made by a process that is in it and
//! served from outside it.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};

use lnk_wire::wire::Serves;
use rustix::io::Errno;
use rustix::net::sockopt::{set_ipv6_v6only, set_socket_reuseaddr};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};

use super::message::{self, FromJoiner};
use crate::network::Listens;

/// Connections that may wait to be accepted: the start of a program that makes
/// many at once, before anything is served.
const BACKLOG: i32 = 4096;
/// Sockets sent in one message.
const AT_ONCE: usize = 4;

/// With none but 127.0.0.1, which it doesn't count, getaddrinfo(3) has no IPv4 for who
/// asks for it by `AI_ADDRCONFIG`.
const THAT_COUNTS: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 0);

/// Makes these in the network namespace of the calling thread, and sends them.
///
/// # Errors
/// Those of bind(2) and sendmsg(2), each with the port.
pub fn open_and_send(listens: &[Listens], to: &OwnedFd) -> Result<(), String> {
    if listens.iter().any(|its| its.serves == Serves::NamesByUdp) {
        lnk_sys::socket::add_loopback_address(THAT_COUNTS)
            .map_err(|error| format!("an address inside: {}", crate::error::reason(&error)))?;
    }
    let mut opened: Vec<(Listens, OwnedFd)> = Vec::new();
    for &listens in listens {
        match open(listens) {
            Ok(socket) => opened.push((listens, socket)),
            // A machine without IPv6 has none inside either.
            Err(error) if listens.at.is_ipv6() && has_no_ipv6(&error) => {}
            Err(error) => {
                let (port, reason) = (listens.at.port(), crate::error::reason(&error));
                return Err(format!("port {port} inside: {reason}"));
            }
        }
    }
    for some in opened.chunks(AT_ONCE) {
        let fds: Vec<_> = some.iter().map(|(_, fd)| fd.as_fd()).collect();
        let listens = some.iter().map(|(listens, _)| *listens).collect();
        message::send(to.as_fd(), &FromJoiner::Listening(listens), &fds)
            .map_err(|error| format!("the supervisor: {}", crate::error::reason(&error)))?;
    }
    Ok(())
}

fn open(Listens { at, serves }: Listens) -> io::Result<OwnedFd> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    if serves == Serves::NamesByUdp {
        // Without SO_REUSEADDR, by which another could take the address too.
        let socket = socket_with(family, SocketType::DGRAM, flags, None)?;
        bind(&socket, &at)?;
        return Ok(socket);
    }
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    set_socket_reuseaddr(&socket, true)?;
    if at.is_ipv6() {
        set_ipv6_v6only(&socket, true)?;
    }
    bind(&socket, &at)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn has_no_ipv6(error: &io::Error) -> bool {
    [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
