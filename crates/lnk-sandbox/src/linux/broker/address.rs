//! What a Unix socket's address says, as the kernel reads it (unix(7)).

use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;

/// `offsetof(struct sockaddr_un, sun_path)`.
const FAMILY: usize = size_of::<libc::sa_family_t>();

/// An address to connect a Unix socket to.
#[derive(Debug, PartialEq, Eq)]
pub enum Unix<'a> {
    /// A name of the network namespace, not of a file; any bytes.
    Abstract(&'a [u8]),
    /// A path, not empty.
    Path(&'a [u8]),
}

/// Where a path starts from.
#[derive(Debug, PartialEq, Eq)]
pub enum Start<'a> {
    /// The root folder.
    Root,
    /// The caller's working folder, and the path from there.
    WorkingFolder(&'a [u8]),
    /// A descriptor of the caller, and the path from there; empty for what the
    /// descriptor itself is.
    Descriptor(i32, &'a [u8]),
}

/// Reads the bytes that were given to `connect(2)`.
///
/// # Errors
/// `EINVAL` for what is no Unix address: too short, longer than a `sockaddr_un`,
/// of another family.
pub fn unix(bytes: &[u8]) -> Result<Unix<'_>, Errno> {
    if bytes.len() > size_of::<libc::sockaddr_un>() {
        return Err(Errno::INVAL);
    }
    let (family, path) = bytes.split_first_chunk::<FAMILY>().ok_or(Errno::INVAL)?;
    if i32::from(libc::sa_family_t::from_ne_bytes(*family)) != libc::AF_UNIX {
        return Err(Errno::INVAL);
    }
    match path {
        [] => Err(Errno::INVAL),
        [0, name @ ..] => Ok(Unix::Abstract(name)),
        _ => Ok(Unix::Path(path.split(|&byte| byte == 0).next().unwrap_or(path))),
    }
}

/// Reads an IPv4 or IPv6 address and its port, as ip(7) and ipv6(7) have them; `None` for
/// what is none.
pub fn inet(bytes: &[u8]) -> Option<SocketAddr> {
    let (family, rest) = bytes.split_first_chunk::<FAMILY>()?;
    let (port, rest) = rest.split_first_chunk()?;
    let address: IpAddr = match i32::from(libc::sa_family_t::from_ne_bytes(*family)) {
        libc::AF_INET => rest.first_chunk::<4>().copied()?.into(),
        // Behind the flow's label.
        libc::AF_INET6 => rest.get(4..)?.first_chunk::<16>().copied()?.into(),
        _ => return None,
    };
    Some((address, u16::from_be_bytes(*port)).into())
}

/// The bytes of the address of `path`, for `connect(2)`; `None` when it's too
/// long for one.
pub fn of_path(path: &str) -> Option<Vec<u8>> {
    if path.len() >= size_of::<libc::sockaddr_un>() - FAMILY {
        return None;
    }
    let family = libc::sa_family_t::try_from(libc::AF_UNIX).ok()?;
    let mut bytes = family.to_ne_bytes().to_vec();
    bytes.extend_from_slice(path.as_bytes());
    bytes.push(0);
    Some(bytes)
}

/// Tells where to start. The caller's own `/proc/self/fd/N` (a common way to
/// names too long for an address) means another process when the broker looks
/// it up, so it is told apart here, by its usual spellings.
pub fn start(path: &[u8]) -> Start<'_> {
    let descriptor = [&b"/proc/self/fd/"[..], b"/proc/thread-self/fd/", b"/dev/fd/"]
        .iter()
        .find_map(|prefix| path.strip_prefix(*prefix))
        .and_then(descriptor);
    match descriptor {
        Some((number, rest)) => Start::Descriptor(number, rest),
        None if path.starts_with(b"/") => Start::Root,
        None => Start::WorkingFolder(path),
    }
}

fn descriptor(path: &[u8]) -> Option<(i32, &[u8])> {
    let end = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
    let (number, rest) = path.split_at(end);
    // The kernel knows no other spelling of a number: no sign, no leading 0.
    if !number.iter().all(u8::is_ascii_digit) || (number.len() > 1 && number[0] == b'0') {
        return None;
    }
    let number = str::from_utf8(number).ok()?.parse().ok()?;
    // "N/" is the folder itself, which only a path ending in "/" or "." names.
    match rest {
        [] => Some((number, rest)),
        [b'/'] => Some((number, b".")),
        [_, rest @ ..] => Some((number, rest)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address(path: &[u8]) -> Vec<u8> {
        [&1_u16.to_ne_bytes()[..], path].concat()
    }

    #[test]
    fn a_path_ends_at_its_first_zero_or_the_length() {
        assert_eq!(unix(&address(b"/tmp/a\0junk")), Ok(Unix::Path(b"/tmp/a")));
        assert_eq!(unix(&address(b"/tmp/a")), Ok(Unix::Path(b"/tmp/a")));
        let longest = [b'x'; 108];
        assert_eq!(unix(&address(&longest)), Ok(Unix::Path(&longest)));
    }

    #[test]
    fn a_leading_zero_is_an_abstract_name() {
        assert_eq!(unix(&address(b"\0/tmp/a")), Ok(Unix::Abstract(b"/tmp/a")));
        assert_eq!(unix(&address(b"\0")), Ok(Unix::Abstract(b"")));
    }

    #[test]
    fn other_lengths_and_families_are_invalid() {
        assert_eq!(unix(b""), Err(Errno::INVAL));
        assert_eq!(unix(&address(b"")), Err(Errno::INVAL));
        assert_eq!(unix(&address(&[b'x'; 109])), Err(Errno::INVAL));
        assert_eq!(unix(&[2, 0, b'a']), Err(Errno::INVAL));
        assert_eq!(unix(&[0, 0, b'a']), Err(Errno::INVAL));
    }

    #[test]
    fn an_address_and_its_port_are_read() {
        let v4 = [&2_u16.to_ne_bytes()[..], &[0x15, 0x38, 127, 77, 0, 1], &[0; 8]].concat();
        assert_eq!(inet(&v4), Some("127.77.0.1:5432".parse().unwrap()));
        let v6 = [&10_u16.to_ne_bytes()[..], &[0x15, 0x38, 9, 9, 9, 9], &[0; 15], &[1]].concat();
        assert_eq!(inet(&v6), Some("[::1]:5432".parse().unwrap()));
        for other in [&v4[..7], &v6[..23], &address(b"/tmp/a"), b"", b"\x02"] {
            assert_eq!(inet(other), None);
        }
    }

    #[test]
    fn a_path_starts_at_root_folder_or_descriptor() {
        assert_eq!(start(b"/tmp/a"), Start::Root);
        assert_eq!(start(b"tmp/a"), Start::WorkingFolder(b"tmp/a"));
        assert_eq!(start(b"../a"), Start::WorkingFolder(b"../a"));
        assert_eq!(start(b"/proc/self/fd/7"), Start::Descriptor(7, b""));
        assert_eq!(start(b"/proc/self/fd/7/"), Start::Descriptor(7, b"."));
        assert_eq!(start(b"/proc/self/fd/7/a/../b"), Start::Descriptor(7, b"a/../b"));
        assert_eq!(start(b"/dev/fd/12//a"), Start::Descriptor(12, b"/a"));
    }

    #[test]
    fn what_is_no_number_is_no_descriptor() {
        for path in ["x", "-1", "+1", "07", "99999999999", "1x/a", ""] {
            let path = format!("/proc/self/fd/{path}");
            assert_eq!(start(path.as_bytes()), Start::Root, "{path}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..140)) {
            if let Ok(Unix::Path(path)) = unix(&bytes) {
                prop_assert!(!path.is_empty() && !path.contains(&0));
            }
            let _ = (start(&bytes), inet(&bytes));
        }

        #[test]
        fn what_is_written_is_read_back(path in "[a-z/]{1,107}") {
            let bytes = of_path(&path).expect("short enough");
            prop_assert_eq!(unix(&bytes), Ok(Unix::Path(path.as_bytes())));
        }
    }
}
