//! Which addresses are this machine's own.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

// linux/netlink.h and linux/rtnetlink.h.
/// `NETLINK_ROUTE` is protocol 0.
const NETLINK_ROUTE: Option<Protocol> = None;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTM_F_FIB_MATCH: u32 = 0x2000;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
/// A router, by one address, several, or another family's.
const ROUTERS: [u16; 3] = [5, 9, 18];
const RTN_UNICAST: u8 = 1;
/// Who made the route: the kernel for an interface's own address, or a router's
/// announcement.
const RTPROT_KERNEL: u8 = 2;
const RTPROT_RA: u8 = 9;
/// Bits of a prefix that may be a network's own, at least. What leads everything to
/// an interface is wider: all, or a half of all.
const OWN_PREFIX: (u8, u8) = (8, 32);
const RTN_LOCAL: u8 = 2;
const RTN_ANYCAST: u8 = 4;
/// Bytes of `nlmsghdr`, which `rtmsg` follows.
const HEADER: usize = 16;
/// Where `nlmsghdr` holds the number of the question.
const SEQUENCE: usize = 8;
/// Bytes of `rtmsg`, which attributes follow.
const ROUTE: usize = 12;
/// Bytes of `ifinfomsg`, and where it holds the flags (netdevice(7)).
const LINK: usize = 16;
const LINK_FLAGS: usize = HEADER + 8;
/// Nobody is asked who has an address: one end of a tunnel, such as a VPN's.
const IFF_NOARP: u32 = 0x80;
/// Where `rtmsg` holds the length of the prefix, who made the route, and its type.
const PREFIX: usize = HEADER + 1;
const MADE_BY: usize = HEADER + 5;
const ROUTE_TYPE: usize = HEADER + 7;

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// On this machine.
    Own,
    /// In a network that this machine is in, without a router between: its prefix is
    /// an interface's own, or one that a router announced for it, or who has an address
    /// in it is asked there.
    Neighbour,
    /// Elsewhere, or nowhere.
    Far,
}

/// Asks the kernel for its routes.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    socket: RefCell<Option<OwnedFd>>,
    asked: Cell<u32>,
}

impl Routes {
    /// Where the kernel would deliver what is sent to an address: what a connect now
    /// would do, whichever interface, namespace, rule or local route makes it so
    /// (rtnetlink(7), `RTM_GETROUTE`; `RTM_F_FIB_MATCH`, Linux 4.13, tells the route by
    /// which).
    ///
    /// # Errors
    /// The kernel can't be asked. An address without a route isn't an error.
    pub fn way_to(&self, address: IpAddr) -> io::Result<Way> {
        // After an error it's another one's turn: an answer might still be on its way.
        let socket = self.socket.take().map_or_else(connect, Ok)?;
        let way = self.way_by(&socket, address)?;
        self.socket.replace(Some(socket));
        Ok(way)
    }

    fn way_by(&self, socket: &OwnedFd, address: IpAddr) -> io::Result<Way> {
        Ok(match route(&self.ask(socket, question(address))?, address)? {
            Route::Own => Way::Own,
            Route::Connected { by_kernel: true, .. } => Way::Neighbour,
            Route::Connected { interface, .. } => {
                match asks_neighbours(&self.ask(socket, question_of_link(interface))?)? {
                    true => Way::Neighbour,
                    false => Way::Far,
                }
            }
            Route::Far => Way::Far,
        })
    }

    fn ask(&self, socket: &OwnedFd, (kind, question): (u16, Vec<u8>)) -> io::Result<Vec<u8>> {
        let number = self.asked.get().wrapping_add(1);
        self.asked.set(number);
        send(socket, &message(kind, number, &question), SendFlags::empty())?;
        // The kernel answers within the send.
        let mut answer = vec![0; 4096];
        let (_, length) = recv(socket, &mut answer[..], RecvFlags::DONTWAIT)?;
        answer.truncate(length);
        let same = answer.get(SEQUENCE..SEQUENCE + 4) == Some(&number.to_ne_bytes());
        if same { Ok(answer) } else { Err(io::ErrorKind::InvalidData.into()) }
    }
}

fn connect() -> io::Result<OwnedFd> {
    let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
    Ok(socket_with(family, SocketType::DGRAM, flags, NETLINK_ROUTE)?)
}

fn question(address: IpAddr) -> (u16, Vec<u8>) {
    let (family, octets) = match address {
        IpAddr::V4(address) => (AddressFamily::INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AddressFamily::INET6, address.octets().to_vec()),
    };
    let octets_length = octets.len() as u8;
    let mut route = vec![family.as_raw() as u8, octets_length * 8];
    route.extend([0; 6]);
    route.extend(RTM_F_FIB_MATCH.to_ne_bytes());
    route.extend((4 + u16::from(octets_length)).to_ne_bytes());
    route.extend(RTA_DST.to_ne_bytes());
    route.extend(octets);
    (RTM_GETROUTE, route)
}

fn question_of_link(interface: u32) -> (u16, Vec<u8>) {
    let mut link = vec![0; 4];
    link.extend(interface.to_ne_bytes());
    link.extend([0; LINK - 8]);
    (RTM_GETLINK, link)
}

fn message(kind: u16, number: u32, content: &[u8]) -> Vec<u8> {
    let mut message = ((HEADER + content.len()) as u32).to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend(number.to_ne_bytes());
    message.extend([0; 4]);
    message.extend(content);
    message
}

/// What the kernel's answer says of the route to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Own,
    /// By an interface, without a router.
    Connected {
        interface: u32,
        /// The kernel or a router's announcement made it.
        by_kernel: bool,
    },
    Far,
}

fn route(answer: &[u8], address: IpAddr) -> io::Result<Route> {
    match kind(answer) {
        Some(RTM_NEWROUTE) => {
            let route = answer.get(..HEADER + ROUTE).ok_or(io::ErrorKind::InvalidData)?;
            let (kind, prefix) = (route[ROUTE_TYPE], route[PREFIX]);
            let by_kernel = [RTPROT_KERNEL, RTPROT_RA].contains(&route[MADE_BY]);
            let own = if address.is_ipv4() { OWN_PREFIX.0 } else { OWN_PREFIX.1 };
            let narrow = prefix >= own || (by_kernel && prefix > 0);
            let attributes = &answer[HEADER + ROUTE..];
            let has_router = ROUTERS.iter().any(|router| attribute(attributes, *router).is_some());
            Ok(match kind {
                RTN_LOCAL | RTN_ANYCAST => Route::Own,
                RTN_UNICAST if narrow && !has_router => {
                    let interface = attribute(attributes, RTA_OIF).and_then(|it| it.first_chunk());
                    let interface = interface.ok_or(io::ErrorKind::InvalidData)?;
                    Route::Connected { interface: u32::from_ne_bytes(*interface), by_kernel }
                }
                _ => Route::Far,
            })
        }
        Some(NLMSG_ERROR) => {
            let error = answer.get(HEADER..).and_then(|error| error.first_chunk());
            let errno = i32::from_ne_bytes(*error.ok_or(io::ErrorKind::InvalidData)?);
            let error = io::Error::from_raw_os_error(errno.wrapping_neg());
            match Errno::from_io_error(&error) {
                // No route, or one that forbids: ip-route(8), 'unreachable',
                // 'prohibit', 'blackhole'.
                Some(Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::ACCESS | Errno::INVAL) => {
                    Ok(Route::Far)
                }
                _ => Err(error),
            }
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn kind(answer: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(*answer.get(4..)?.first_chunk()?))
}

/// Whether who has an address is asked on an interface.
fn asks_neighbours(answer: &[u8]) -> io::Result<bool> {
    let flags = answer.get(LINK_FLAGS..HEADER + LINK).and_then(|flags| flags.first_chunk());
    match (kind(answer), flags) {
        (Some(RTM_NEWLINK), Some(flags)) => Ok(u32::from_ne_bytes(*flags) & IFF_NOARP == 0),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// The content of the first attribute of a type (`struct rtattr`: length, type).
fn attribute(mut attributes: &[u8], of: u16) -> Option<&[u8]> {
    while let [a, b, c, d, ..] = *attributes {
        let length = usize::from(u16::from_ne_bytes([a, b])).max(4);
        if u16::from_ne_bytes([c, d]) & 0x3fff == of {
            return attributes.get(4..length);
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn loopback_is_own_and_the_internet_is_not() {
        let routes = Routes::default();
        for (address, own) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("::1", true),
            ("1.1.1.1", false),
            ("2606:4700::1", false),
        ] {
            let way = routes.way_to(address.parse().unwrap()).unwrap();
            assert_eq!(way == Way::Own, own, "{address}");
        }
    }

    proptest! {
        #[test]
        fn no_answer_panics(answer: Vec<u8>, kind in 0u16..30, tail: [u8; 12], rest: Vec<u8>) {
            for to in ["192.0.2.1", "2001:db8::1"].map(|to| to.parse().unwrap()) {
                let _ = (route(&answer, to), asks_neighbours(&answer));
                let mut message = vec![0; 4];
                message.extend(kind.to_ne_bytes());
                message.extend([0; 10]);
                message.extend(tail);
                let own = route(&message, to).is_ok_and(|route| route == Route::Own);
                prop_assert_eq!(own, kind == RTM_NEWROUTE && matches!(tail[7], 2 | 4));
                prop_assert!(route(&message[..15], to).is_err());
                message.extend(&rest);
                let _ = (route(&message, to), asks_neighbours(&message));
            }
        }
    }
}
