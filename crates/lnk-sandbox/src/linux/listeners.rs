//! Sockets of a sandbox's network namespace, made by a process that is in it and
//! served from outside it.

use std::io;
use std::net::IpAddr;
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

/// Makes these in the network namespace of the calling thread, whose loopback gets these
/// addresses, and sends them.
///
/// # Errors
/// Those of bind(2) and sendmsg(2), each with the port, and of an address.
pub fn open_and_send(
    listens: &[Listens],
    addresses: &[IpAddr],
    to: &OwnedFd,
) -> Result<(), String> {
    for (number, &address) in (0..).zip(addresses) {
        match lnk_sys::socket::add_loopback_address(number, address) {
            // A machine without IPv6 has none inside; the proxy reaches the endpoint.
            Err(_) if address.is_ipv6() => {}
            added => added
                .map_err(|error| format!("{address} inside: {}", crate::error::reason(&error)))?,
        }
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
