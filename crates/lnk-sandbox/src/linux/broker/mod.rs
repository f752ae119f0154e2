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
//! - IPv4 and IPv6: connected as asked. The namespace is the fence.
//! - Unix, abstract: connected as asked. The kernel looks the name up in the
//!   socket's own namespace.
//! - Unix, by path: the path is resolved inside the sandbox's root and the file
//!   held. It is connected when it lies on one of the sandbox's private tmpfs,
//!   or when a socket of the sandbox's namespace is bound to it ([`diag`]).
//! - Other families: refused.
//!
//! Refused is `EACCES`. Differences that a program can see: the peer's
//! `SO_PEERCRED` names the broker's process (0, as seen from inside); a socket
//! file in a granted folder that nobody is bound to any more answers `EACCES`,
//! not `ECONNREFUSED`, as it can't be told from a socket of the host; the same
//! answer on btrfs, network and FUSE file systems, whose inode numbers prove
//! nothing; and paths through `/proc/PID/` work for `/proc/self/fd/N` only.
//!
//! All of it happens on worker threads, so that neither a full backlog nor a
//! hanging file system nor a lingering socket stops the thread that waits for
//! notifications. [`Broker::tick`] ends the workers whose caller is gone.

mod address;
mod connection;
mod diag;
mod path;
mod target;
mod workers;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use lnk_sys::notify::{self, Notification};
use rustix::io::Errno;

pub use diag::socket as diag_socket;

use connection::Judge;
use workers::Workers;

/// The sandbox, as the broker needs to know it.
#[derive(Debug)]
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
}

/// Answers the `connect(2)` notifications of one sandbox.
///
/// Made once the sandbox's mounts stand. Threads start with the first connect;
/// dropping it ends them, and what still waits is left unanswered (`ENOSYS` for
/// the caller once the listener is closed).
#[derive(Debug)]
pub struct Broker {
    workers: Workers,
}

impl Broker {
    /// A broker that answers what arrives on `listener`.
    #[must_use]
    pub fn new(listener: OwnedFd, inside: Inside) -> Self {
        let judge = Judge::new(listener, inside);
        Self { workers: Workers::new(Arc::new(judge)) }
    }

    /// The listener, to poll: `POLLIN` asks for [`Broker::on_readable`],
    /// `POLLHUP` says that no process with the filter is left.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.workers.judge().listener.as_fd()
    }

    /// Takes one notification and has it answered. Never waits for what the
    /// caller connects to.
    ///
    /// # Errors
    /// What the listener fails with; a caller that is gone again isn't an error.
    pub fn on_readable(&mut self) -> io::Result<()> {
        match notify::receive(self.fd()) {
            Ok(notification) => {
                self.answer(notification);
                Ok(())
            }
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::NOENT | Errno::INTR) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Has a notification answered that was received elsewhere, for a listener
    /// that has other calls too. Calls other than `connect(2)` get `ENOSYS`.
    ///
    /// With 64 connects under way, or no thread to be had, the answer is
    /// `EAGAIN`.
    pub fn answer(&mut self, notification: Notification) {
        let refusal = if i64::from(notification.nr) != libc::SYS_connect {
            Err(Errno::NOSYS)
        } else {
            self.workers.take(notification)
        };
        if let Err(errno) = refusal {
            // A caller that is gone needs no answer.
            let _gone = notify::respond(self.fd(), notification.id, Err(errno));
        }
    }

    /// Whether a connect is under way: then [`Broker::tick`] is to be called
    /// about every 100 ms.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.workers.is_busy()
    }

    /// Breaks off the connects whose caller was killed or has a signal to
    /// handle; those are answered `EINTR`, as the kernel does. It takes two
    /// calls for one connect.
    pub fn tick(&mut self) {
        self.workers.break_off();
    }

    /// The paths of Unix sockets that were refused, as the program asked for
    /// them (a relative one behind its working folder), each once, in their
    /// order, the first 32. Untrusted bytes: escape them before a terminal.
    #[must_use]
    pub fn refused(&self) -> Vec<Vec<u8>> {
        self.workers.judge().refused()
    }
}
