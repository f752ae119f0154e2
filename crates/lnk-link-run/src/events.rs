//! Telling a harness that a background command has ended.
//!
//! A harness that takes messages from others gets one line of JSON, which it hands on in
//! the conversation as a message from the tool. `--events` says where: `fd:N`, a
//! descriptor that it passed, or the path of a Unix socket that it listens on. On a
//! socket each event has a connection of its own, and is taken once the harness has
//! closed that without a word and without an error.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lnk_sandbox::shown::{reason, word};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::getuid;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

/// Bytes of a line that are written at once: `PIPE_BUF`.
const AT_ONCE: usize = 4096;

/// How long the harness may take to accept an event, and to close its connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// The end of a background command, as a harness is told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// What happened: `background_ended`.
    pub event: String,
    /// The command's id. An event that comes twice, because the harness ended before it
    /// took the first, has the same.
    pub id: String,
    /// The conversation that started it, as `--conversation` named it.
    pub conversation: Option<String>,
    /// Program and arguments, cut where they are long.
    pub command: String,
    /// How it ended: `exited`, `failed`, `timed_out`, `stopped`, `killed` or `lost`.
    pub state: String,
    /// Its exit status, where it has one.
    pub status: Option<u8>,
    /// How long it ran, in milliseconds; not known of a lost one.
    pub ran_ms: Option<u64>,
    /// Bytes of its output.
    pub bytes: u64,
    /// All of it in words, with the end of the output: what the agent reads.
    pub message: String,
}

/// [`Event::event`] of the end of a background command.
pub const ENDED: &str = "background_ended";

/// Where events go.
#[derive(Clone, Debug)]
pub enum Sink {
    /// A descriptor that was inherited.
    Descriptor(Arc<Descriptor>),
    /// A socket that the harness listens on.
    Socket(PathBuf),
}

/// A descriptor that lines are written to, which others may write to as well: it stays
/// as it is.
#[derive(Debug)]
pub struct Descriptor {
    file: File,
    /// The last line was given up in its middle.
    is_cut: AtomicBool,
}

impl From<OwnedFd> for Descriptor {
    fn from(file: OwnedFd) -> Self {
        Descriptor { file: file.into(), is_cut: AtomicBool::new(false) }
    }
}

impl Descriptor {
    /// Writes a line, as far as the harness reads it in time.
    fn write_line(&self, line: &[u8]) -> io::Result<()> {
        let give_up = Instant::now() + PATIENCE;
        if self.is_cut.load(Ordering::Relaxed) {
            self.write_some(b"\n", give_up)?;
            self.is_cut.store(false, Ordering::Relaxed);
        }
        for (at, part) in line.chunks(AT_ONCE).enumerate() {
            self.write_some(part, give_up).inspect_err(|_| {
                self.is_cut.store(at > 0, Ordering::Relaxed);
            })?;
        }
        Ok(())
    }

    /// Writes what a pipe takes whole once it can be written to, pipe(7).
    fn write_some(&self, part: &[u8], give_up: Instant) -> io::Result<()> {
        let left = give_up.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|_| io::ErrorKind::TimedOut)?;
        let mut writable = [PollFd::new(&self.file, PollFlags::OUT)];
        match poll(&mut writable, Some(&left))? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => (&self.file).write_all(part),
        }
    }
}

impl Sink {
    /// What `--events` says. A number's descriptor is taken over: nothing else in this
    /// process may own it.
    ///
    /// # Errors
    /// A line for a descriptor that isn't open, or a path that no socket can have.
    pub fn parse(text: &str) -> Result<Sink, String> {
        let Some(number) = text.strip_prefix("fd:") else {
            return match SocketAddrUnix::new(text) {
                Ok(_) if !text.is_empty() => Ok(Sink::Socket(text.into())),
                _ => Err(format!(
                    "--events {}: no socket can have this path; give one of 1 to 108 bytes, or fd:N",
                    word(text)
                )),
            };
        };
        let number = number.parse().map_err(|_| {
            format!("--events {}: write fd: and a number, such as fd:3", word(text))
        })?;
        let taken = lnk_sys::fd::take(number).map_err(|error| {
            format!(
                "--events {}: {}; pass an open descriptor from 3 on",
                word(text),
                reason(&error)
            )
        })?;
        Ok(Sink::Descriptor(Arc::new(taken.into())))
    }

    /// Gives the harness an event. Answers whether it took it.
    pub async fn send(&self, event: &Event) -> bool {
        let Ok(mut line) = serde_json::to_vec(event) else { return false };
        line.push(b'\n');
        let (done, is_done) = oneshot::channel();
        let sink = self.clone();
        // A harness that doesn't read holds up this thread and nothing else.
        let send = move || {
            // Nobody waits where the server is ending.
            let _ = done.send(sink.write(&line).is_ok());
        };
        let started = thread::Builder::new().name("events".into()).spawn(send);
        started.is_ok() && is_done.await.unwrap_or(false)
    }

    fn write(&self, line: &[u8]) -> io::Result<()> {
        match self {
            Sink::Descriptor(file) => file.write_line(line),
            Sink::Socket(path) => {
                let mut stream = UnixStream::from(connected(path)?);
                stream.write_all(line)?;
                stream.shutdown(Shutdown::Write)?;
                // Reset where the other end is closed before it has read all.
                match stream.read(&mut [0; 64])? {
                    0 => Ok(()),
                    _ => Err(io::ErrorKind::ConnectionRefused.into()),
                }
            }
        }
    }
}

/// A connection to a socket of the same user's.
fn connected(path: &PathBuf) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Sending's holds for connecting too, unix(7).
    for which in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&socket, which, Some(PATIENCE))?;
    }
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    if !is_own(&socket) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(socket)
}

/// Whether the other end of a connection is a process of this user, or root's.
pub(crate) fn is_own(socket: &impl std::os::fd::AsFd) -> bool {
    socket_peercred(socket.as_fd()).is_ok_and(|peer| peer.uid == getuid() || peer.uid.is_root())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufRead as _;
    use std::os::unix::net::UnixListener;

    fn event() -> Event {
        Event {
            event: ENDED.into(),
            id: "aaaaaaaaaaaa".into(),
            conversation: None,
            command: "true".into(),
            state: "exited".into(),
            status: Some(0),
            ran_ms: Some(1),
            bytes: 0,
            message: "m\n".repeat(50_000),
        }
    }

    fn send(sink: &Sink) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(sink.send(&event()))
    }

    #[test]
    fn what_events_says_is_read() {
        for text in ["", "fd:", "fd:x", "fd:2", "fd:99999", &"x".repeat(109)] {
            assert!(Sink::parse(text).unwrap_err().starts_with("--events "), "{text}");
        }
        assert!(matches!(Sink::parse("/run/x"), Ok(Sink::Socket(_))));
    }

    #[test]
    fn a_harness_has_taken_what_it_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let sink = Sink::parse(path.to_str().unwrap()).unwrap();
        assert!(!send(&sink), "nobody listens");
        let listener = UnixListener::bind(&path).unwrap();
        let harness = thread::spawn(move || {
            // One that closes before it has read isn't told, nor is one that says so.
            drop(listener.accept().unwrap());
            let mut refusing = listener.accept().unwrap().0;
            refusing.read_to_string(&mut String::new()).unwrap();
            refusing.write_all(b"not taken\n").unwrap();
            drop(refusing);
            let mut line = String::new();
            listener.accept().unwrap().0.read_to_string(&mut line).unwrap();
            line
        });
        assert!(!send(&sink));
        assert!(!send(&sink));
        assert!(send(&sink));
        let line = harness.join().unwrap();
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event());
        assert!(line.ends_with('\n') && line.lines().count() == 1);
        assert!(!send(&sink), "nobody listens any more");
    }

    #[test]
    fn a_descriptor_that_nobody_reads_takes_nothing() {
        let (read, write) = io::pipe().unwrap();
        let sink = Sink::Descriptor(Arc::new(OwnedFd::from(write).into()));
        let harness = thread::spawn(move || io::BufReader::new(read).lines().next());
        assert!(send(&sink));
        let line = harness.join().unwrap().unwrap().unwrap();
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event());
        assert!(!send(&sink));
    }
}
