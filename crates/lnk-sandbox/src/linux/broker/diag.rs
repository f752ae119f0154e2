//! Which Unix sockets of a network namespace are bound to which files, by the
//! kernel's own word: `sock_diag(7)`.
//!
//! A path's socket is told by device and inode. That identifies it because both
//! are held at the same time, the inode of the path by a descriptor, the one of
//! the bound socket by the socket, and a file system has one inode of a number
//! at a time. It needs a file system where numbers are one to one:
//! - The kernel tells the lower 32 bits of the inode, so larger ones match
//!   nothing.
//! - It tells the superblock's device. Where `st_dev` is another (btrfs, some
//!   overlays), it is one that no superblock has, and matches nothing.
//! - Numbers that a server or another program makes up (NFS, FUSE, 9p, SMB)
//!   aren't trusted: only the file systems listed here are.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Longest answer: the kernel makes parts of at most 32 KiB.
const PART: usize = 64 << 10;
/// A list that changes while it is told is asked for again, this often.
const TRIES: u32 = 8;

/// The file systems (`f_type` of `statfs(2)`) whose inode numbers are the
/// kernel's own and unique: ext2 to ext4, XFS, tmpfs, F2FS, overlayfs, ZFS.
const TRUSTED: [u64; 6] = [0xef53, 0x5846_5342, 0x0102_1994, 0xf2f5_2010, 0x794c_7630, 0x2fc1_2fc1];

// <linux/netlink.h>, <linux/sock_diag.h>, <linux/unix_diag.h>
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_DUMP: u16 = 0x300;
const UDIAG_SHOW_VFS: u32 = 0x2;
const UNIX_DIAG_VFS: u16 = 1;
const HEADER: usize = 16;
const UNIX_DIAG_MSG: usize = 16;
/// Bound, listening or not: `TCP_CLOSE` and `TCP_LISTEN`, by which `sock_diag`
/// names the states of Unix sockets too.
const BOUND: u32 = 1 << 7 | 1 << 10;

/// Makes the socket by which a network namespace is asked: that of the calling
/// thread. It needs no capability, then or later.
///
/// # Errors
/// `EPROTONOSUPPORT` on a kernel without `CONFIG_UNIX_DIAG`'s base; others of
/// `socket(2)`.
pub fn socket() -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(SOCK_DIAG),
    )?;
    // The kernel answers at once; should it ever not, a connect is refused.
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(1)))?;
    Ok(socket)
}

/// The sockets of one network namespace.
#[derive(Debug)]
pub(super) struct Sockets {
    socket: OwnedFd,
    sequence: u32,
}

impl Sockets {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, sequence: 0 }
    }

    /// Whether one of them is bound to the file that is held.
    ///
    /// # Errors
    /// When the kernel can't tell.
    pub(super) fn have_bound(&mut self, file: BorrowedFd<'_>) -> Result<bool, Errno> {
        let Some(file) = identity(file)? else {
            return Ok(false);
        };
        for _ in 0..TRIES {
            let list = self.list()?;
            if list.bound.contains(&file) {
                return Ok(true);
            }
            if !list.interrupted {
                return Ok(false);
            }
        }
        Ok(false)
    }

    fn list(&mut self) -> Result<Part, Errno> {
        self.sequence = self.sequence.wrapping_add(1);
        let kernel = SocketAddrNetlink::new(0, 0);
        let request = request(self.sequence);
        rustix::net::sendto(&self.socket, &request, SendFlags::empty(), &kernel)?;
        let mut list = Part::default();
        while !list.last {
            let part = self.receive()?;
            list.bound.extend(part.bound);
            list.interrupted |= part.interrupted;
            list.last = part.last;
        }
        Ok(list)
    }

    fn receive(&self) -> Result<Part, Errno> {
        let mut buffer = vec![0; PART];
        let (_, length, sender) = retry_on_intr(|| {
            rustix::net::recvfrom(self.socket.as_fd(), &mut buffer[..], RecvFlags::TRUNC)
        })?;
        let is_kernel = sender
            .and_then(|sender| SocketAddrNetlink::try_from(sender).ok())
            .is_some_and(|sender| sender.pid() == 0);
        if !is_kernel {
            return Ok(Part::default());
        }
        let datagram = buffer.get(..length).ok_or(Errno::MSGSIZE)?;
        part(datagram, self.sequence)
    }
}

/// The file that a socket is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    /// The superblock's device, as the kernel has it inside.
    device: u32,
    /// The lower half of the inode's number.
    inode: u32,
}

/// One datagram of a list, or all of it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Part {
    bound: Vec<Bound>,
    /// The list is complete with this.
    last: bool,
    /// Sockets came or went meanwhile, some may be missing.
    interrupted: bool,
}

/// What the held file would be listed as; `None` when no list can tell it for
/// certain.
fn identity(file: BorrowedFd<'_>) -> Result<Option<Bound>, Errno> {
    let file_system = rustix::fs::fstatfs(file)?;
    // Its type differs between architectures; all the numbers are positive.
    #[allow(clippy::unnecessary_fallible_conversions)]
    let trusted = u64::try_from(file_system.f_type).is_ok_and(|kind| TRUSTED.contains(&kind));
    let stat = rustix::fs::fstat(file)?;
    let inode = u32::try_from(stat.st_ino).ok();
    Ok(inode
        .filter(|_| trusted)
        .zip(kernel_device(stat.st_dev))
        .map(|(inode, device)| Bound { device, inode }))
}

/// `st_dev` as the kernel keeps it: 12 bits of major, 20 of minor number.
fn kernel_device(device: u64) -> Option<u32> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    (major < 1 << 12 && minor < 1 << 20).then_some(major << 20 | minor)
}

/// Asks for every bound Unix socket and its file: a `nlmsghdr` and a
/// `unix_diag_req`.
fn request(sequence: u32) -> Vec<u8> {
    const LENGTH: usize = HEADER + 24;
    let mut bytes = Vec::with_capacity(LENGTH);
    bytes.extend((LENGTH as u32).to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend([libc::AF_UNIX as u8, 0, 0, 0]);
    bytes.extend(BOUND.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(UDIAG_SHOW_VFS.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes
}

/// Reads one datagram of the answer to request `sequence`; messages of another
/// are passed over.
///
/// # Errors
/// The kernel's, or `EBADMSG` for what isn't laid out as it should be.
fn part(datagram: &[u8], sequence: u32) -> Result<Part, Errno> {
    let mut part = Part::default();
    let mut rest = datagram;
    while !rest.is_empty() {
        let length = u32_at(rest, 0)? as usize;
        let message = rest.get(..length).filter(|_| length >= HEADER).ok_or(Errno::BADMSG)?;
        rest = rest.get(aligned(length)..).unwrap_or_default();
        if u32_at(message, 8)? != sequence {
            continue;
        }
        part.interrupted |= u16_at(message, 6)? & NLM_F_DUMP_INTR != 0;
        match u16_at(message, 4)? {
            NLMSG_ERROR => return Err(kernel_error(message)?),
            NLMSG_DONE if kernel_status(message) < 0 => return Err(kernel_error(message)?),
            NLMSG_DONE => part.last = true,
            SOCK_DIAG_BY_FAMILY => part.bound.extend(bound(message)?),
            _ => {}
        }
    }
    Ok(part)
}

/// The file in the message of one socket, which has none when it is abstract.
fn bound(message: &[u8]) -> Result<Option<Bound>, Errno> {
    let mut rest = message.get(HEADER + UNIX_DIAG_MSG..).ok_or(Errno::BADMSG)?;
    while !rest.is_empty() {
        let length = usize::from(u16_at(rest, 0)?);
        let attribute = rest.get(..length).filter(|_| length >= 4).ok_or(Errno::BADMSG)?;
        if u16_at(attribute, 2)? == UNIX_DIAG_VFS {
            return Ok(Some(Bound { inode: u32_at(attribute, 4)?, device: u32_at(attribute, 8)? }));
        }
        rest = rest.get(aligned(length)..).unwrap_or_default();
    }
    Ok(None)
}

/// The number behind the header of an end or error: 0, or an error's, negative.
fn kernel_status(message: &[u8]) -> i32 {
    u32_at(message, HEADER).map_or(0, u32::cast_signed)
}

fn kernel_error(message: &[u8]) -> Result<Errno, Errno> {
    match kernel_status(message).checked_neg() {
        Some(code @ 1..4096) => Ok(Errno::from_raw_os_error(code)),
        _ => Err(Errno::BADMSG),
    }
}

fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

fn u16_at(bytes: &[u8], offset: usize) -> Result<u16, Errno> {
    let bytes = bytes.get(offset..).and_then(<[u8]>::first_chunk).ok_or(Errno::BADMSG)?;
    Ok(u16::from_ne_bytes(*bytes))
}

fn u32_at(bytes: &[u8], offset: usize) -> Result<u32, Errno> {
    let bytes = bytes.get(offset..).and_then(<[u8]>::first_chunk).ok_or(Errno::BADMSG)?;
    Ok(u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::net::UnixListener;

    use proptest::prelude::*;

    use super::*;

    fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(((HEADER + body.len()) as u32).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(body);
        bytes.resize(aligned(bytes.len()), 0);
        bytes
    }

    fn attribute(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(((4 + body.len()) as u16).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(body);
        bytes.resize(aligned(bytes.len()), 0);
        bytes
    }

    fn socket_message(sequence: u32, bound: Option<Bound>) -> Vec<u8> {
        let mut body = vec![0; UNIX_DIAG_MSG];
        body.extend(attribute(6, &[1]));
        if let Some(bound) = bound {
            let file = [bound.inode.to_ne_bytes(), bound.device.to_ne_bytes()].concat();
            body.extend(attribute(UNIX_DIAG_VFS, &file));
        }
        message(SOCK_DIAG_BY_FAMILY, 2, sequence, &body)
    }

    const SOME: Bound = Bound { device: 7, inode: 11 };

    #[test]
    fn a_list_is_read() {
        let datagram = [
            socket_message(3, Some(SOME)),
            socket_message(3, None),
            message(NLMSG_DONE, 2, 3, &[0; 4]),
        ]
        .concat();
        let expected = Part { bound: vec![SOME], last: true, interrupted: false };
        assert_eq!(part(&datagram, 3), Ok(expected));
    }

    #[test]
    fn another_requests_answer_is_passed_over() {
        assert_eq!(part(&socket_message(3, Some(SOME)), 4), Ok(Part::default()));
    }

    #[test]
    fn an_interrupted_list_says_so() {
        let done = message(NLMSG_DONE, NLM_F_DUMP_INTR, 3, &[0; 4]);
        assert!(part(&done, 3).unwrap().interrupted);
    }

    #[test]
    fn the_kernels_error_is_returned() {
        let error = message(NLMSG_ERROR, 0, 3, &(-libc::ENOENT).to_ne_bytes());
        assert_eq!(part(&error, 3), Err(Errno::NOENT));
        let done = message(NLMSG_DONE, 0, 3, &(-libc::EBUSY).to_ne_bytes());
        assert_eq!(part(&done, 3), Err(Errno::BUSY));
        let acknowledged = message(NLMSG_ERROR, 0, 3, &[0; 4]);
        assert_eq!(part(&acknowledged, 3), Err(Errno::BADMSG));
    }

    #[test]
    fn lengths_that_lead_nowhere_are_errors() {
        for length in [0_u32, 15, 17, u32::MAX] {
            let mut datagram = message(NLMSG_DONE, 0, 3, &[]);
            datagram[..4].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(part(&datagram, 3), Err(Errno::BADMSG), "{length}");
        }
        for length in [0_u8, 3, 200] {
            let mut body = vec![0; UNIX_DIAG_MSG];
            body.extend([length, 0, 1, 0]);
            let datagram = message(SOCK_DIAG_BY_FAMILY, 0, 3, &body);
            assert_eq!(part(&datagram, 3), Err(Errno::BADMSG), "{length}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = part(&bytes, 0);
        }

        /// One byte of a good list is changed, so that the deeper parts are met.
        #[test]
        fn a_damaged_list_is_read_without_panic(at in 0_usize..140, byte in any::<u8>()) {
            let mut list = [
                socket_message(3, Some(SOME)),
                socket_message(3, Some(SOME)),
                message(NLMSG_DONE, 2, 3, &[0; 4]),
            ]
            .concat();
            let at = at % list.len();
            list[at] = byte;
            let _ = part(&list, 3);
        }

        #[test]
        fn what_is_written_is_read_back(
            files in proptest::collection::vec(proptest::option::of((any::<u32>(), any::<u32>())), 0..20)
        ) {
            let files: Vec<_> = files
                .into_iter()
                .map(|file| file.map(|(device, inode)| Bound { device, inode }))
                .collect();
            let list: Vec<u8> = files.iter().flat_map(|&file| socket_message(9, file)).collect();
            let bound: Vec<_> = files.into_iter().flatten().collect();
            prop_assert_eq!(part(&list, 9), Ok(Part { bound, last: false, interrupted: false }));
        }
    }

    #[test]
    fn the_kernel_tells_a_bound_file_from_others() {
        // /dev/shm is a tmpfs everywhere, so its numbers are trusted.
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("socket");
        let mut sockets = Sockets::new(socket().unwrap());
        let listener = UnixListener::bind(&path).unwrap();
        let held = super::super::path::open(
            File::open("/").unwrap().as_fd(),
            path.as_os_str().as_encoded_bytes(),
        )
        .unwrap();
        assert_eq!(sockets.have_bound(held.as_fd()), Ok(true));

        let other = File::open(folder.path()).unwrap();
        assert_eq!(sockets.have_bound(other.as_fd()), Ok(false));
        drop(listener);
        assert_eq!(sockets.have_bound(held.as_fd()), Ok(false));
    }
}
