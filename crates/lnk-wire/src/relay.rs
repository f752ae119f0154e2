//! Bytes both ways between two connections, until both directions have ended.
//!
//! Every tunnel of a wire reads into the one buffer of its thread and writes from
//! there, so that an idle one holds none. A direction that has carried much is
//! spliced: its bytes stay in the kernel.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Poll, ready};
use std::time::Duration;

use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle};
use rustix::net::{Shutdown, shutdown};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::sleep;

use crate::calls::Open;
use crate::room::Room;

/// Bytes of the thread's buffer.
const BUFFER: usize = 64 * 1024;
/// Bytes after which a direction is spliced. The pipe and its two descriptors cost
/// more than they save before.
const MUCH: u64 = 128 * 1024;
/// Bytes of a splice's pipe.
const PIPE: usize = 512 * 1024;
/// How long the other direction may go on before that is looked at.
const HALF_CLOSED: Duration = Duration::from_secs(10);
/// How long a half-closed tunnel is silent before the other end is asked whether
/// it's still there.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

thread_local! {
    static SHARED: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER].into_boxed_slice());
}

/// How a direction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// With all of its bytes, the other side told.
    Whole,
    /// The other side takes no more. What it sent before may still be on its way.
    Unwanted,
    /// Reading failed: this side is gone.
    Broken,
}

/// Relays until both directions have ended, or one side is gone. `early_up` and
/// `early_down` were read before.
pub(crate) async fn run(
    client: &mut TcpStream,
    origin: &mut TcpStream,
    early_up: &[u8],
    early_down: &[u8],
    open: &Open<'_>,
    room: &Rc<Room>,
) {
    let (up, down) = (Cell::new(None), Cell::new(None));
    {
        let (from_client, to_client) = client.split();
        let (from_origin, to_origin) = origin.split();
        let sent = |bytes| open.sent(bytes);
        let received = |bytes| open.received(bytes);
        let ups = direction(from_client, to_origin, early_up, sent, &up, &down, room);
        let downs = direction(from_origin, to_client, early_down, received, &down, &up, room);
        let (mut ups, mut downs) = (pin!(ups), pin!(downs));
        poll_fn(|cx| {
            let Poll::Pending = ups.as_mut().poll(cx);
            let Poll::Pending = downs.as_mut().poll(cx);
            match (up.get(), down.get()) {
                (Some(End::Broken), _) | (_, Some(End::Broken)) | (Some(_), Some(_)) => {
                    Poll::Ready(())
                }
                _ => Poll::Pending,
            }
        })
        .await;
    }
    // A connection that broke on one side must not look ended on the other.
    if up.get() == Some(End::Broken) {
        let _ = origin.set_zero_linger();
    }
    if down.get() == Some(End::Broken) {
        let _ = client.set_zero_linger();
    }
}

/// One direction; how it ended is in `end` then. It never returns, for what it does
/// while the other goes on.
async fn direction(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    early: &[u8],
    count: impl Fn(u64),
    end: &Cell<Option<End>>,
    other: &Cell<Option<End>>,
    room: &Rc<Room>,
) -> Infallible {
    let ended = match pump(&mut from, &mut to, early, count, room).await {
        // Closing both connections says it too.
        Ok(()) if other.get().is_some() => End::Whole,
        Ok(()) => tell_end(&to),
        Err(end) => end,
    };
    end.set(Some(ended));
    // A side that closed for good looks half-closed. Whether it's still there shows
    // only when it's asked; for the rest of the tunnel's life the kernel does.
    sleep(HALF_CLOSED).await;
    for stream in [from.as_ref(), to.as_ref()] {
        let _ = set_socket_keepalive(stream, true);
        let _ = set_tcp_keepidle(stream, KEEP_ALIVE);
    }
    pending().await
}

fn tell_end(to: &WriteHalf<'_>) -> End {
    if shutdown(to.as_ref(), Shutdown::Write).is_ok() { End::Whole } else { End::Unwanted }
}

/// Passes on `early`, then what comes, to its end.
async fn pump(
    from: &mut ReadHalf<'_>,
    to: &mut WriteHalf<'_>,
    early: &[u8],
    count: impl Fn(u64),
    room: &Rc<Room>,
) -> Result<(), End> {
    to.write_all(early).await.map_err(|_| End::Unwanted)?;
    count(early.len() as u64);
    let mut carried = 0;
    while carried < MUCH {
        match pass(from, to, room).await? {
            0 => return Ok(()),
            bytes => {
                count(bytes);
                carried += bytes;
            }
        }
    }
    match Pipe::new() {
        Some(pipe) => pump_spliced(from, to, &pipe, count).await,
        None => pump_copied(from, to, count, room).await,
    }
}

/// As [`pump`], where there is no pipe to be had.
async fn pump_copied(
    from: &mut ReadHalf<'_>,
    to: &mut WriteHalf<'_>,
    count: impl Fn(u64),
    room: &Rc<Room>,
) -> Result<(), End> {
    loop {
        match pass(from, to, room).await? {
            0 => return Ok(()),
            bytes => count(bytes),
        }
    }
}

/// Passes on what is there, once the other side takes any. What it doesn't take at once
/// is copied out of the shared buffer, and waits.
async fn pass(
    from: &mut ReadHalf<'_>,
    to: &mut WriteHalf<'_>,
    room: &Rc<Room>,
) -> Result<u64, End> {
    let mut left = Vec::new();
    let read = poll_fn(|cx| {
        if ready!(to.as_ref().poll_write_ready(cx)).is_err() {
            return Poll::Ready(Err(End::Unwanted));
        }
        SHARED.with_borrow_mut(|shared| {
            let mut space = ReadBuf::new(&mut shared[..room.piece(BUFFER)]);
            if ready!(Pin::new(&mut *from).poll_read(cx, &mut space)).is_err() {
                return Poll::Ready(Err(End::Broken));
            }
            let read = space.filled();
            if read.is_empty() {
                return Poll::Ready(Ok(0));
            }
            let taken = match Pin::new(&mut *to).poll_write(cx, read) {
                Poll::Ready(Ok(taken)) => taken,
                Poll::Ready(Err(_)) => return Poll::Ready(Err(End::Unwanted)),
                Poll::Pending => 0,
            };
            left.extend_from_slice(&read[taken..]);
            Poll::Ready(Ok(read.len() as u64))
        })
    })
    .await?;
    if !left.is_empty() {
        let _held = room.body(left.len());
        to.write_all(&left).await.map_err(|_| End::Unwanted)?;
    }
    Ok(read)
}

struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pipe {
    /// `None` where descriptors or the user's pipe memory run out: such a pipe would
    /// be slower than copying.
    fn new() -> Option<Pipe> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        fcntl_setpipe_size(&write, PIPE).ok()?;
        Some(Pipe { read, write })
    }
}

async fn pump_spliced(
    from: &ReadHalf<'_>,
    to: &WriteHalf<'_>,
    pipe: &Pipe,
    count: impl Fn(u64),
) -> Result<(), End> {
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    loop {
        // The pipe is empty here, so that only the socket can make this wait.
        let fill = || Ok(splice(from.as_ref(), None, &pipe.write, None, PIPE, flags)?);
        let filled = match from.as_ref().async_io(Interest::READABLE, fill).await {
            Ok(0) => return Ok(()),
            Ok(filled) => filled,
            Err(_) => return Err(End::Broken),
        };
        drain(pipe, to, filled, flags).await.map_err(|_| End::Unwanted)?;
        count(filled as u64);
        tokio::task::coop::consume_budget().await;
    }
}

async fn drain(
    pipe: &Pipe,
    to: &WriteHalf<'_>,
    mut left: usize,
    flags: SpliceFlags,
) -> io::Result<()> {
    while left > 0 {
        let drain = || Ok(splice(&pipe.read, None, to.as_ref(), None, left, flags)?);
        left -= to.as_ref().async_io(Interest::WRITABLE, drain).await?;
    }
    Ok(())
}
