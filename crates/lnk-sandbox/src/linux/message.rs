//! What the stages of a run tell each other, over SEQPACKET socket pairs.

use std::io;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use crate::network::Listens;

/// The longest message, bytes: a path, an errno and a few words.
const MAX_MESSAGE: usize = 16 * 1024;
/// Descriptors in one message, at most.
const MAX_FDS: usize = 4;

/// From the inner stage to the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromInner {
    /// Every fence stands. Comes with the seccomp listener and a socket for
    /// UNIX_DIAG of the sandbox's network namespace.
    Ready,
    /// Sent by the program's process just before it becomes the program.
    Program,
    /// The program couldn't be executed.
    ExecFailed {
        /// Why.
        errno: i32,
        /// The path tried last.
        path: Vec<u8>,
    },
    /// A fence couldn't be built.
    Failed {
        /// Which, and why.
        what: String,
    },
    /// The program was stopped, by itself or the terminal.
    Stopped,
}

/// From the joiner, later the guard, to the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromJoiner {
    /// Sockets of the sandbox's network, in this order; the last of them come before
    /// [`FromJoiner::Done`].
    Listening(Vec<Listens>),
    /// Every mount is in place.
    Done,
    /// This kernel or bubblewrap doesn't let a joiner in; nothing ran.
    Unsupported(String),
    /// bubblewrap failed before the mounts were due, in the joiner's words.
    Bwrap(String),
    /// A mount couldn't be made, or what was to be mounted isn't what was
    /// judged: the run must end.
    Failed(String),
    /// A protected name vanished outside: make an empty folder there.
    Vanished(Vec<u8>),
}

/// What arrived.
#[derive(Debug)]
pub struct Received<M> {
    /// The message.
    pub message: M,
    /// Descriptors that came with it.
    pub fds: Vec<OwnedFd>,
    /// The sender's process id as this process sees it, where the socket asks
    /// for credentials.
    pub pid: Option<rustix::process::Pid>,
}

/// Sends one message.
///
/// # Errors
/// Those of sendmsg(2); `EPIPE` when the other side is gone.
pub fn send<M: Serialize>(
    socket: BorrowedFd<'_>,
    message: &M,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = postcard::to_stdvec(message).map_err(io::Error::other)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one message; `None` when the other side closed.
///
/// # Errors
/// Those of recvmsg(2), and `InvalidData` for what is no message.
pub fn receive<M: for<'de> Deserialize<'de>>(
    socket: BorrowedFd<'_>,
) -> io::Result<Option<Received<M>>> {
    let mut bytes = [0u8; MAX_MESSAGE];
    let mut space =
        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let read = loop {
        match recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(rustix::io::Errno::INTR) => {}
            read => break read?.bytes,
        }
    };
    let (mut fds, mut pid) = (Vec::new(), None);
    for part in control.drain() {
        match part {
            RecvAncillaryMessage::ScmRights(received) => fds.extend(received),
            RecvAncillaryMessage::ScmCredentials(credentials) => pid = Some(credentials.pid),
            _ => {}
        }
    }
    if read == 0 {
        return Ok(None);
    }
    Ok(Some(Received { message: decode(&bytes[..read])?, fds, pid }))
}

/// Reads one message's bytes; they may come from inside.
///
/// # Errors
/// `InvalidData` for what is no message.
pub fn decode<M: for<'de> Deserialize<'de>>(bytes: &[u8]) -> io::Result<M> {
    postcard::from_bytes(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

/// A pair of connected SEQPACKET sockets, closed by execve(2).
///
/// # Errors
/// `EMFILE` and `ENFILE` of socketpair(2).
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Asks for every sender's credentials on this socket.
///
/// # Errors
/// Those of setsockopt(2).
pub fn ask_for_credentials(socket: &OwnedFd) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_passcred(socket.as_fd(), true)?)
}
