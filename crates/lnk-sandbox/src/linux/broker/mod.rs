//! The broker of connections: makes every `connect(2)` of the sandbox for it.
//!
//! A mount can't close a Unix socket: whoever sees its path may connect, even
//! through a read-only mount. So the seccomp filter holds each `connect(2)`,
//! and the broker, outside, takes a duplicate of the caller's socket, one copy
//! of the address, decides, and connects the duplicate itself. The kernel never
//! goes on with the caller's own call, so nothing that the caller changes
//! meanwhile (the address, the descriptor, the path) counts.
//!
//! What is decided:
//! - The socket must live in the sandbox's network namespace (by its cookie,
//!   Linux 5.14; on older kernels every connect is refused). One of the host
//!   that came in as an inherited descriptor is refused.
//! - IPv4 and IPv6: connected as asked. The namespace is the fence. Where nobody listens
//!   at the address of an endpoint, the wire is told, which says so.
//! - Unix, abstract: connected as asked. The kernel looks the name up in the
//!   socket's own namespace. Refused where that is the machine's: Landlock, which
//!   would hold the program, doesn't hold the broker.
//! - Unix, by path: the path is resolved inside the sandbox's root and the file
//!   held. It is connected when it lies on one of the sandbox's private tmpfs,
//!   or, where the namespace is the sandbox's own, when a socket of it is bound to it
//!   (`diag`).
//! - Other families: refused.
//!
//! Refused is `EACCES`. Differences that a program can see: the peer's
//! `SO_PEERCRED` names the broker's process (0, as seen from inside); a socket
//! file in a granted folder that nobody is bound to any more answers `EACCES`,
//! not `ECONNREFUSED`, as it can't be told from a socket of the host; the same
//! answer on btrfs, network and FUSE file systems, whose inode numbers prove
//! nothing; and paths through `/proc/PID/` work for `/proc/self/fd/N` only.
//!
//! All of it happens on threads of the broker's own, so that neither a full
//! backlog nor a hanging file system nor a lingering socket stops anything but
//! its own connect (`workers`). One whose caller was killed is broken off
//! within 200 ms; one whose caller has a signal to handle too, and answered
//! `EINTR`, as the kernel does.

pub mod address;
mod connection;
mod diag;
pub(super) mod path;
pub(super) mod target;
mod workers;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use lnk_sys::notify::{self, Notification};
use rustix::io::Errno;

pub use diag::socket as diag_socket;

use connection::Judge;
use workers::Workers;

/// The sandbox, as the broker needs to know it.
pub struct Inside {
    /// `O_PATH` descriptor of the sandbox's root folder, opened through
    /// `/proc/PID/root` once its mounts are made.
    pub root: OwnedFd,
    /// `st_dev` of each tmpfs that the sandbox alone has: `/tmp`, `/run`, the
    /// home, `/dev/shm`.
    pub private: Vec<u64>,
    /// What [`diag_socket`] made in the sandbox's network namespace. `None` when
    /// the sandbox has the machine's own network: then sockets on `private`
    /// alone are connected, and no abstract ones.
    pub diag: Option<OwnedFd>,
    /// [`lnk_sys::socket::netns_cookie`] of a socket made in the sandbox's
    /// network namespace, such as `diag`.
    pub netns_cookie: u64,
    /// Hears of connections to where nobody listens, at an address that isn't a
    /// program's own: any but the usual ones of the loopback. `None` in the machine's
    /// network.
    pub unheard: Option<Unheard>,
}

/// Hears where a connection was to go, before its caller knows what became of it. It is
/// called on the broker's threads, several at a time.
pub type Unheard = Box<dyn Fn(SocketAddr) + Send + Sync>;

/// Answers the calls of the sandbox that aren't `connect(2)` but arrive on the
/// same listener: it is given the listener, to ask whether a call waits still,
/// and the notification. It is called on the broker's threads, several at a time;
/// while it runs, a further thread serves, up to 65 in all, 1025 in the machine's
/// network. Those threads have no
/// capability but `CAP_SYS_PTRACE`.
pub type Others = Box<dyn Fn(BorrowedFd<'_>, &Notification) -> Answer + Send + Sync>;

/// What a call comes to.
#[derive(Debug)]
pub enum Answer {
    /// It returns the number, or fails with the error.
    Result(Result<i64, Errno>),
    /// The kernel goes on with it: another fence decides.
    GoOn,
    /// It returns a duplicate of the descriptor, and fails where the caller can
    /// have no more of them.
    Descriptor {
        /// What the caller gets.
        descriptor: OwnedFd,
        /// Whether it is closed when the caller executes a program.
        close_on_exec: bool,
    },
}

/// Answers the notifications of one sandbox.
///
/// Made once the sandbox's mounts stand. It has no thread until the first
/// notification: then [`Broker::start`] starts them. Dropping it ends them,
/// within a second, and what still waits is left unanswered (`ENOSYS` for the
/// caller once the listener is closed).
pub struct Broker {
    workers: Workers,
}

impl Broker {
    /// A broker that answers what arrives on `listener`. Without `others`, calls
    /// that aren't `connect(2)` get `ENOSYS`.
    #[must_use]
    pub fn new(listener: OwnedFd, inside: Inside, others: Option<Others>) -> Self {
        // Half a connect's time where the machine is busy; without it, it works.
        let _older_kernel = notify::wake_in_turns(listener.as_fd());
        Self { workers: Workers::new(Judge::new(listener, inside), others) }
    }

    /// The listener, to poll as long as there are no threads: `POLLIN` asks for
    /// [`Broker::start`]. `None` when they have taken over.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        (!self.workers.have_started()).then(|| self.workers.judge().listener.as_fd())
    }

    /// Starts the threads that receive and answer from now on. Does nothing when
    /// they were started.
    ///
    /// # Errors
    /// `EAGAIN` at the limit of threads: nothing is answered then, and the run
    /// can't go on.
    pub fn start(&mut self) -> io::Result<()> {
        self.workers.start()
    }

    /// Whether a connect is under way.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.workers.is_busy()
    }

    /// The paths of Unix sockets that were refused, as the program asked for
    /// them (a relative one behind its working folder; an abstract name behind an
    /// `@`), each once, in their order, the first 32. Untrusted bytes: escape them before a terminal.
    #[must_use]
    pub fn refused(&self) -> Vec<Vec<u8>> {
        self.workers.judge().refused()
    }
}
