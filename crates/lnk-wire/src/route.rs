//! Which addresses are this machine's own.

use std::io;
use std::net::IpAddr;

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
const RTA_DST: u16 = 1;
const RTN_LOCAL: u8 = 2;
const RTN_ANYCAST: u8 = 4;
/// Bytes of `nlmsghdr`, which `rtmsg` follows.
const HEADER: usize = 16;
/// Where `rtmsg` holds the route's type.
const ROUTE_TYPE: usize = HEADER + 7;

/// Whether the kernel would deliver what is sent to an address to this machine:
/// what a connect now would do, whichever interface, namespace, rule or local route
/// makes it so (rtnetlink(7), `RTM_GETROUTE`).
///
/// # Errors
/// The kernel can't be asked. An address without a route isn't an error.
pub(crate) fn is_own(address: IpAddr) -> io::Result<bool> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        NETLINK_ROUTE,
    )?;
    send(&socket, &question(address), SendFlags::empty())?;
    // The kernel answers within the send.
    let mut answer = [0; 4096];
    let (length, _) = recv(&socket, &mut answer[..], RecvFlags::DONTWAIT)?;
    verdict(&answer[..length.min(4096)])
}

fn question(address: IpAddr) -> Vec<u8> {
    let (family, octets) = match address {
        IpAddr::V4(address) => (AddressFamily::INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AddressFamily::INET6, address.octets().to_vec()),
    };
    let octets_length = octets.len() as u8;
    let mut route = vec![family.as_raw() as u8, octets_length * 8];
    route.extend([0; 10]);
    route.extend((4 + u16::from(octets_length)).to_ne_bytes());
    route.extend(RTA_DST.to_ne_bytes());
    route.extend(octets);

    let mut message = ((HEADER + route.len()) as u32).to_ne_bytes().to_vec();
    message.extend(RTM_GETROUTE.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(route);
    message
}

fn verdict(answer: &[u8]) -> io::Result<bool> {
    let kind = answer.get(4..6).map(|kind| u16::from_ne_bytes([kind[0], kind[1]]));
    match kind {
        Some(RTM_NEWROUTE) => {
            let route = answer.get(ROUTE_TYPE).ok_or(io::ErrorKind::InvalidData)?;
            Ok([RTN_LOCAL, RTN_ANYCAST].contains(route))
        }
        Some(NLMSG_ERROR) => {
            let error = answer.get(HEADER..).and_then(|error| error.first_chunk());
            let errno = i32::from_ne_bytes(*error.ok_or(io::ErrorKind::InvalidData)?);
            let error = io::Error::from_raw_os_error(errno.wrapping_neg());
            match Errno::from_io_error(&error) {
                // No route, or one that forbids: ip-route(8), 'unreachable',
                // 'prohibit', 'blackhole'.
                Some(Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::ACCESS | Errno::INVAL) => {
                    Ok(false)
                }
                _ => Err(error),
            }
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn loopback_is_own_and_the_internet_is_not() {
        for (address, own) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("::1", true),
            ("1.1.1.1", false),
            ("2606:4700::1", false),
        ] {
            assert_eq!(is_own(address.parse().unwrap()).unwrap(), own, "{address}");
        }
    }

    proptest! {
        #[test]
        fn no_answer_panics(answer: Vec<u8>, kind in 0u16..30, tail: [u8; 12]) {
            let _ = verdict(&answer);
            let mut message = vec![0; 4];
            message.extend(kind.to_ne_bytes());
            message.extend([0; 10]);
            message.extend(tail);
            let own = verdict(&message).ok();
            prop_assert_eq!(own == Some(true), kind == RTM_NEWROUTE && matches!(tail[7], 2 | 4));
            prop_assert!(verdict(&message[..15]).is_err());
        }
    }
}
