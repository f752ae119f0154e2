//! One `connect(2)` of the sandbox: what it asks, whether it may, and doing it.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use lnk_sys::notify::{self, Notification};
use lnk_sys::socket::{connect, netns_cookie};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;

use super::address::{self, Start, Unix};
use super::diag::Sockets;
use super::target::Target;
use super::{Inside, Unheard, path};

/// How many refused paths are kept.
const REFUSED: usize = 32;
/// Most connects under way at one time.
const MOST: usize = 64;
/// The same where they go to other machines, which may take minutes to answer.
const MOST_AFAR: usize = 1024;

/// Decides for one sandbox.
pub(super) struct Judge {
    pub(super) listener: OwnedFd,
    root: OwnedFd,
    private: Vec<u64>,
    netns_cookie: u64,
    sockets: Option<Mutex<Sockets>>,
    refused: Mutex<Vec<Vec<u8>>>,
    unheard: Option<Unheard>,
}

/// A socket that may be connected, and where to: both held, so that nothing
/// that changes outside counts any more.
#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    address: Vec<u8>,
    /// The file that `address` names by its descriptor.
    _file: Option<OwnedFd>,
}

/// What the caller asked, as copied from it.
struct Asked {
    socket: OwnedFd,
    domain: AddressFamily,
    address: Vec<u8>,
    /// What the address's path starts from, when that's the caller's own.
    from: Option<OwnedFd>,
}

impl Connection {
    /// Connects, for as long as it takes.
    ///
    /// # Errors
    /// Those of `connect(2)`; `EINTR` when this thread was interrupted, after
    /// which it can be called again.
    pub(super) fn make(&self) -> Result<(), Errno> {
        connect(&self.socket, &self.address)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    /// Where nobody listened, by what came of it.
    fn unheard(&self, made: Result<(), Errno>) -> Option<SocketAddr> {
        let to = address::inet(&self.address).filter(|to| stands_for_a_host(to.ip()))?;
        let refused = match made {
            Err(Errno::CONNREFUSED) => true,
            // Of a socket that doesn't wait the answer is there, on the loopback, and its
            // owner's to take.
            Err(Errno::INPROGRESS) => has_failed(&self.socket),
            _ => false,
        };
        refused.then_some(to)
    }
}

/// Whether it is none of the loopback's usual addresses: then it's there for an endpoint.
fn stands_for_a_host(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) if address.octets()[..2] == [127, 77] => true,
        address => !address.is_loopback() && !address.is_unspecified(),
    }
}

fn has_failed(socket: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(socket, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().contains(PollFlags::ERR)
}

impl Judge {
    pub(super) fn new(listener: OwnedFd, inside: Inside) -> Self {
        Self {
            listener,
            root: inside.root,
            private: inside.private,
            netns_cookie: inside.netns_cookie,
            sockets: inside.diag.map(|socket| Mutex::new(Sockets::new(socket))),
            refused: Mutex::default(),
            unheard: inside.unheard,
        }
    }

    /// How many connects may be under way at one time.
    pub(super) fn most(&self) -> usize {
        if self.sockets.is_some() { MOST } else { MOST_AFAR }
    }

    /// What a notification asks for, if it may be.
    ///
    /// # Errors
    /// What the call is to fail with.
    pub(super) fn allow(&self, notification: &Notification) -> Result<Connection, Errno> {
        let asked = Asked::read(notification)?;
        // Only now is it certain that all that was the caller's.
        if !notify::is_valid(self.listener.as_fd(), notification.id) {
            return Err(Errno::SRCH);
        }
        // A socket of elsewhere (an inherited descriptor) would carry the
        // connection there.
        if netns_cookie(&asked.socket).map_err(|_| Errno::ACCESS)? != self.netns_cookie {
            return Err(Errno::ACCESS);
        }
        match asked.domain {
            AddressFamily::INET | AddressFamily::INET6 => Ok(asked.unchanged()),
            AddressFamily::UNIX => self.allow_unix(asked),
            _ => Err(Errno::ACCESS),
        }
    }

    fn allow_unix(&self, asked: Asked) -> Result<Connection, Errno> {
        match address::unix(&asked.address)? {
            // The kernel looks it up in the socket's namespace, which is shared
            // with the host when there are no own sockets to ask about.
            Unix::Abstract(_) if self.sockets.is_some() => Ok(asked.unchanged()),
            Unix::Abstract(name) => {
                self.note_refused([b"@", name].concat());
                Err(Errno::ACCESS)
            }
            Unix::Path(path) => {
                let (file, path) = self.open(path, asked.from.as_ref())?;
                self.allow_file(&file, path)?;
                // By its descriptor: whatever the path is by now.
                let address = address::of_path(&path::own(file.as_fd()))
                    .expect("a short path fits an address");
                Ok(Connection { socket: asked.socket, address, _file: Some(file) })
            }
        }
    }

    /// Holds what `path` names, and tells it from the root.
    fn open(&self, path: &[u8], from: Option<&OwnedFd>) -> Result<(OwnedFd, Vec<u8>), Errno> {
        let root = self.root.as_fd();
        let path = match (address::start(path), from) {
            (Start::Root, _) => path.to_vec(),
            (Start::Descriptor(_, b""), Some(itself)) => {
                return Ok((itself.try_clone().map_err(|_| Errno::MFILE)?, path.to_vec()));
            }
            (Start::WorkingFolder(rest) | Start::Descriptor(_, rest), Some(folder)) => {
                path::join(path::of_folder(root, folder.as_fd())?, rest)
            }
            (_, None) => return Err(Errno::ACCESS),
        };
        Ok((path::open(root, &path)?, path))
    }

    fn allow_file(&self, file: &OwnedFd, path: Vec<u8>) -> Result<(), Errno> {
        let stat = rustix::fs::fstat(file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            return Err(Errno::CONNREFUSED);
        }
        if self.private.contains(&stat.st_dev) || self.is_bound_inside(file) {
            return Ok(());
        }
        self.note_refused(path);
        Err(Errno::ACCESS)
    }

    fn is_bound_inside(&self, file: &OwnedFd) -> bool {
        self.sockets.as_ref().is_some_and(|sockets| {
            // Each list is asked for anew, so an earlier panic left nothing behind.
            let mut sockets = sockets.lock().unwrap_or_else(PoisonError::into_inner);
            sockets.have_bound(file.as_fd()).unwrap_or(false)
        })
    }

    /// Tells of a connection that nobody heard.
    pub(super) fn tell_unheard(&self, connection: &Connection, made: Result<(), Errno>) {
        if let (Some(unheard), Some(to)) = (&self.unheard, connection.unheard(made)) {
            unheard(to);
        }
    }

    fn note_refused(&self, path: Vec<u8>) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() < REFUSED && !refused.contains(&path) {
            refused.push(path);
        }
    }

    pub(super) fn refused(&self) -> Vec<Vec<u8>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Asked {
    /// Copies all that counts from the caller, once.
    fn read(notification: &Notification) -> Result<Self, Errno> {
        let [descriptor, address, length, ..] = notification.args;
        let target = Target::open(notification.pid)?;
        let socket = target.descriptor(as_int(descriptor))?;
        let length = usize::try_from(as_int(length)).map_err(|_| Errno::INVAL)?;
        if length > size_of::<libc::sockaddr_storage>() {
            return Err(Errno::INVAL);
        }
        let address = target.memory(address, length)?;
        let domain = socket_domain(&socket)?;
        let from = match address::unix(&address) {
            Ok(Unix::Path(path)) if domain == AddressFamily::UNIX => start(&target, path)?,
            _ => None,
        };
        Ok(Self { socket, domain, address, from })
    }

    fn unchanged(self) -> Connection {
        Connection { socket: self.socket, address: self.address, _file: None }
    }
}

fn start(target: &Target, path: &[u8]) -> Result<Option<OwnedFd>, Errno> {
    match address::start(path) {
        Start::Root => Ok(None),
        Start::WorkingFolder(_) => target.working_folder().map(Some),
        // What isn't there is a missing file, not a bad argument.
        Start::Descriptor(number, _) => match target.descriptor(number) {
            Err(Errno::BADF) => Err(Errno::NOENT),
            result => result.map(Some),
        },
    }
}

/// An `int` argument: the register's lower half is all of it.
fn as_int(register: u64) -> i32 {
    register as u32 as i32
}
