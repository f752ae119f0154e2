//! The connections of one wire to what is outside. Whoever closes the wire ends them
//! there and then, on any thread: nothing that keeps the wire's own busy delays it.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};
use tokio::net::TcpStream;

/// Those that are open. While they are closed none is made.
#[derive(Debug, Default)]
pub struct Connections(Mutex<Now>);

#[derive(Debug, Default)]
struct Now {
    closed: bool,
    last: u64,
    /// By their numbers. Each is a descriptor of its own, so that it can't be another
    /// connection's by the time it's used.
    open: HashMap<u64, OwnedFd>,
}

/// A connection that ends when they are closed, with what the kernel still holds of it.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    _entry: Entry,
}

#[derive(Debug)]
struct Entry {
    all: Arc<Connections>,
    number: u64,
}

impl Connections {
    /// Connects, on a runtime.
    ///
    /// # Errors
    /// `ConnectionAborted` while they are closed, and those of `connect(2)`.
    pub async fn connect(self: &Arc<Self>, to: SocketAddr) -> io::Result<Connection> {
        let (socket, entry) = self.begin(to)?;
        let stream = TcpStream::from_std(socket.into())?;
        let connection = Connection { stream, _entry: entry };
        // It stands, or failed: connect(2), EINPROGRESS.
        connection.writable().await?;
        connection.take_error()?.map_or(Ok(connection), Err)
    }

    fn begin(self: &Arc<Self>, to: SocketAddr) -> io::Result<(OwnedFd, Entry)> {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        let ours = fcntl_dupfd_cloexec(&socket, 0)?;
        let mut now = self.while_open()?;
        match rustix::net::connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        now.last += 1;
        let number = now.last;
        now.open.insert(number, ours);
        Ok((socket, Entry { all: Arc::clone(self), number }))
    }

    /// Does what reaches outside and doesn't wait. They aren't closed before it's done.
    ///
    /// # Errors
    /// `ConnectionAborted` while they are closed, and its own.
    pub fn unless_closed<T>(&self, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let _open = self.while_open()?;
        act()
    }

    /// Ends all that are open. None is made from now on.
    pub fn close(&self) {
        let mut now = self.now();
        now.closed = true;
        now.open.values().for_each(end);
    }

    /// Lets new ones be made again.
    pub fn open(&self) {
        self.now().closed = false;
    }

    fn while_open(&self) -> io::Result<MutexGuard<'_, Now>> {
        let now = self.now();
        if now.closed { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(now) }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a connection, or the making of one: the other side gets a reset, and the kernel
/// drops what it holds in either direction (`tcp_disconnect` of Linux).
fn end(socket: &OwnedFd) {
    if rustix::net::connect_unspec(socket).is_err() {
        // Then at least nothing is added.
        let _ = rustix::net::shutdown(socket, Shutdown::Both);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let ended = self.all.now().open.remove(&self.number);
        // What closing it takes keeps no other waiting.
        drop(ended);
    }
}

impl Deref for Connection {
    type Target = TcpStream;

    fn deref(&self) -> &TcpStream {
        &self.stream
    }
}

impl DerefMut for Connection {
    fn deref_mut(&mut self) -> &mut TcpStream {
        &mut self.stream
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    use tokio::io::AsyncReadExt;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(future)
    }

    fn kind<T>(result: io::Result<T>) -> Option<io::ErrorKind> {
        result.err().map(|error| error.kind())
    }

    #[test]
    fn a_closing_on_another_thread_ends_them_with_what_the_kernel_holds() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let all = Arc::new(Connections::default());
        block_on(async {
            let mut connection = all.connect(to).await.unwrap();
            let mut origin = listener.accept().unwrap().0;
            let mut held = 0;
            while let Ok(sent) = connection.try_write(&[0; 65536]) {
                held += sent;
            }
            let closing = Arc::clone(&all);
            std::thread::spawn(move || closing.close()).join().unwrap();
            let mut read = Vec::new();
            let ended = kind(origin.read_to_end(&mut read));
            assert_eq!(ended, Some(io::ErrorKind::ConnectionReset));
            assert!(read.len() < held, "{} of {held}", read.len());
            assert!(connection.read(&mut [0]).await.is_err());
            assert!(connection.try_write(b"x").is_err());

            listener.set_nonblocking(true).unwrap();
            let aborted = Some(io::ErrorKind::ConnectionAborted);
            assert_eq!(kind(all.connect(to).await), aborted);
            assert_eq!(kind(all.unless_closed(|| Ok(()))), aborted);
            assert_eq!(kind(listener.accept()), Some(io::ErrorKind::WouldBlock));
            all.open();
            let _again = all.connect(to).await.unwrap();
            assert!(listener.accept().is_ok() && all.unless_closed(|| Ok(())).is_ok());
        });
    }

    #[test]
    fn one_that_is_being_made_ends_too_and_one_that_is_over_is_let_go() {
        // Whose queue is full takes no more for a while.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let to = listener.local_addr().unwrap();
        let all = Arc::new(Connections::default());
        block_on(async {
            let first = all.connect(to).await.unwrap();
            let mut second = std::pin::pin!(all.connect(to));
            let pending = std::future::poll_fn(|cx| {
                std::task::Poll::Ready(second.as_mut().poll(cx).is_pending())
            });
            assert!(pending.await);
            all.close();
            assert_eq!(kind(second.await), Some(io::ErrorKind::ConnectionReset));
            drop(first);
            assert!(all.now().open.is_empty());
        });
    }

    #[test]
    fn nobody_there_is_said() {
        // Nobody has had port 1 (tcpmux) for decades.
        let all = Arc::new(Connections::default());
        let refused = block_on(all.connect(([127, 0, 0, 1], 1).into()));
        assert_eq!(kind(refused), Some(io::ErrorKind::ConnectionRefused));
    }
}
