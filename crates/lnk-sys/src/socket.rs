//! Socket calls that the safe libraries don't have.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

/// `SO_NETNS_COOKIE` of `<asm-generic/socket.h>`.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// The cookie of the network namespace that a socket lives in. It is never
/// used twice while the machine is up, and 0 is no namespace's.
///
/// # Errors
/// `ENOTSOCK` for another kind of descriptor, `ENOPROTOOPT` before Linux 5.14.
pub fn netns_cookie(socket: impl AsFd) -> io::Result<u64> {
    let mut cookie = 0_u64;
    let mut size = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes to `cookie`, which is that
    // long, and the new length to `size`; both outlive the call.
    let status = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut size,
        )
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(cookie) }
}

/// `connect(2)` with an address of any family, as the bytes of its `sockaddr`.
/// It may block, and ends with `EINTR` when a signal is handled meanwhile.
///
/// # Errors
/// Those of `connect(2)`.
pub fn connect(socket: impl AsFd, address: &[u8]) -> io::Result<()> {
    let length = libc::socklen_t::try_from(address.len())
        .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: the kernel reads `length` bytes of `address`, which are there for
    // the whole call, as plain bytes of no alignment.
    let status =
        unsafe { libc::connect(socket.as_fd().as_raw_fd(), address.as_ptr().cast(), length) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Gives the loopback of the calling thread's network namespace an address beside its
/// own, and no others with it. An IPv4 address has the label `lo:` and this number, which
/// no other may have (`SIOCSIFADDR` and `SIOCSIFNETMASK` of netdevice(7), ipv6(7)).
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN` there, those of `socket(2)`, and for IPv6 those of a
/// system without it.
pub fn add_loopback_address(number: u16, address: IpAddr) -> io::Result<()> {
    match address {
        IpAddr::V4(address) => {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            ask(&socket, libc::SIOCSIFADDR as _, ifreq(number, address))?;
            // Else it would be all of the address's class.
            ask(&socket, libc::SIOCSIFNETMASK as _, ifreq(number, Ipv4Addr::BROADCAST))
        }
        IpAddr::V6(address) => {
            let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?;
            // `struct in6_ifreq` of <linux/ipv6.h>: an address, the length of its prefix,
            // and the number of the interface. The loopback is the first of every
            // namespace.
            let mut request = [0_u8; REQUEST];
            request[..16].copy_from_slice(&address.octets());
            request[16..20].copy_from_slice(&128_u32.to_ne_bytes());
            request[20..24].copy_from_slice(&1_i32.to_ne_bytes());
            ask(&socket, libc::SIOCSIFADDR as _, request)
        }
    }
}

/// Bytes of `struct ifreq` of <linux/if.h>.
const REQUEST: usize = 40;

/// A `struct ifreq` of one of the loopback's labels: a name of 16 bytes, and a
/// `sockaddr_in`.
fn ifreq(number: u16, address: Ipv4Addr) -> [u8; REQUEST] {
    let mut request = [0; REQUEST];
    let label = format!("lo:{number}");
    request[..label.len()].copy_from_slice(label.as_bytes());
    request[16..18].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    request[20..24].copy_from_slice(&address.octets());
    request
}

fn ask(socket: &UdpSocket, request: libc::Ioctl, about: [u8; REQUEST]) -> io::Result<()> {
    // SAFETY: the kernel reads an ifreq of 40 bytes, or an in6_ifreq of 24, of no
    // alignment, and these outlive the call.
    let status = unsafe { libc::ioctl(socket.as_raw_fd(), request, about.as_ptr()) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn sockets_of_one_namespace_have_one_cookie() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (unix, _peer) = UnixStream::pair().unwrap();
        let cookie = netns_cookie(&udp).unwrap();
        assert_ne!(cookie, 0);
        assert_eq!(netns_cookie(&unix).unwrap(), cookie);
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(netns_cookie(&file).unwrap_err().raw_os_error(), Some(libc::ENOTSOCK));
    }

    #[test]
    fn connects_by_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_be_bytes();
        let mut address = [0; 16];
        address[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        address[2..4].copy_from_slice(&port);
        address[4..8].copy_from_slice(&[127, 0, 0, 1]);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        connect(&socket, &address).unwrap();
        assert_eq!(socket.peer_addr().unwrap(), listener.local_addr().unwrap());

        let short = connect(&socket, &address[..3]).unwrap_err();
        assert_eq!(short.raw_os_error(), Some(libc::EINVAL));
    }
}
