//! The probe: `lnk` started once outside, for the controls, and once as the
//! program of a sandbox, to try what it is told on standard input and to tell
//! on standard output how each try ended.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lnk_sys::process::exit_now;
use lnk_sys::signal::Taken;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

pub use crate::plan::PROBE;

use super::tries::{Answer, Evidence, Try, contains, landlock_layers, namespaces_are_limited};
use crate::error::{Error, Result, failed};
use crate::linux::judged::Place;

/// The second that makes it wait for the end of its standard input, to be found
/// by the third.
pub const WAIT: &str = "wait";
/// The second that makes it open its standard input, which is `/proc/keys`,
/// again as itself and look for the third.
pub const KEYS: &str = "keys";
/// The status where it is there.
pub const SHOWN: i32 = 10;
/// The status where it isn't.
pub const NOT_SHOWN: i32 = 11;
/// How long all tries together may take.
const DEADLINE: Duration = Duration::from_secs(120);
/// How long what a sandbox leaves behind may still be ending.
const END: Duration = Duration::from_secs(1);
/// The longest message, in bytes.
const MAX_MESSAGE: usize = 1 << 24;

/// What a probe is told.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Script {
    /// What bait files hold.
    pub secret: Vec<u8>,
    /// What to try, in this order.
    pub tries: Vec<Try>,
    /// What to look at.
    pub evidence: Vec<Evidence>,
}

/// What a probe tells.
#[derive(Debug, Serialize, Deserialize)]
enum Told {
    Tried(Answer),
    Saw(Option<bool>),
    LandlockLayers(Option<u32>),
    /// It waits for a byte while its user namespace is looked at from outside.
    InNamespace(Place),
    Done,
}

/// What a probe told.
#[derive(Debug, Default)]
pub struct Answers {
    /// How each try ended, in their order; fewer when the probe ended early.
    pub tries: Vec<Answer>,
    /// What each look saw.
    pub evidence: Vec<Option<bool>>,
    /// The Landlock rulesets that held the probe.
    pub landlock_layers: Option<u32>,
    /// Whether its session keyring is another than the check's; looked at by
    /// itself.
    pub other_session: Option<bool>,
    /// Whether its user namespace can have no other in it.
    pub namespaces_limited: Option<bool>,
    /// Whether something of it was still there after its end.
    pub left_behind: bool,
    /// The status of what was started.
    pub status: Option<i32>,
    /// What it wrote to standard error.
    pub complaints: String,
    /// A signal that came meanwhile.
    pub signal: Option<i32>,
}

/// Runs the probe: `lnk __probe`, `lnk __probe wait WORD`, `lnk __probe keys KEY`.
pub fn main_probe(mut arguments: impl Iterator<Item = OsString>) -> ! {
    let first = arguments.next();
    if first.as_ref().is_some_and(|first| first == KEYS) {
        let key = arguments.next().unwrap_or_default();
        exit_now(match std::fs::read("/proc/self/fd/0") {
            Ok(keys) if contains(&keys, &key.to_string_lossy()) => SHOWN,
            Ok(_) => NOT_SHOWN,
            Err(_) => 1,
        })
    }
    if first.is_some_and(|first| first == WAIT) {
        // Where only descendants may be traced, the bait may be by anyone.
        let _ = rustix::process::set_ptracer(rustix::process::PTracer::Any);
        let mut byte = [0u8];
        while rustix::io::read(rustix::stdio::stdin(), &mut byte).is_ok_and(|read| read > 0) {}
        exit_now(0)
    }
    exit_now(match try_all() {
        Ok(()) => 0,
        Err(_) => 1,
    })
}

fn try_all() -> io::Result<()> {
    let script: Script = receive()?;
    tell(&Told::LandlockLayers(landlock_layers()))?;
    for look in &script.evidence {
        tell(&Told::Saw(look.look()))?;
    }
    let users = std::fs::read_link("/proc/self/ns/user").unwrap_or_default();
    tell(&Told::InNamespace((&users).into()))?;
    read_exactly(&mut [0])?;
    for attempt in &script.tries {
        tell(&Told::Tried(attempt.make(&script.secret)))?;
    }
    tell(&Told::Done)
}

/// From standard input, unbuffered: what follows is somebody else's.
fn receive() -> io::Result<Script> {
    let mut length = [0u8; 4];
    read_exactly(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_MESSAGE {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    read_exactly(&mut bytes)?;
    postcard::from_bytes(&bytes).map_err(|_| io::ErrorKind::InvalidData.into())
}

fn read_exactly(mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        match rustix::io::read(rustix::stdio::stdin(), &mut *buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => buffer = &mut buffer[read..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn tell(told: &Told) -> io::Result<()> {
    write_all(rustix::stdio::stdout(), &framed(told))
}

fn framed<M: Serialize>(message: &M) -> Vec<u8> {
    let bytes = postcard::to_stdvec(message).expect("plain data is always serialised");
    let length = u32::try_from(bytes.len()).expect("messages are short");
    [&length.to_le_bytes()[..], &bytes].concat()
}

fn write_all(to: impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(&to, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Starts a probe, or what starts one, and hears it to its end.
///
/// # Errors
/// It can't be started, or doesn't end in time.
pub fn run(mut command: Command, script: &Script, signals: &Taken) -> Result<Answers> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed("lnk itself"))?;
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(failed("pipes to the probe")(Errno::BADF));
    };
    let mut probe = Probe {
        child,
        stdin: stdin.into(),
        stdout: stdout.into(),
        buffer: Vec::new(),
        answers: Answers::default(),
    };
    // What doesn't read it says why on standard error.
    let _ = write_all(&probe.stdin, &framed(script));
    let deadline = Instant::now() + DEADLINE;
    probe.hear(signals, deadline)?;
    let status = probe.child.wait().map_err(failed("the probe"))?;
    probe.answers.status = status.code();
    probe.answers.left_behind = !probe.is_at_end(Instant::now() + END)?;
    // What was left behind ends now.
    drop(probe.stdin);
    if !probe.answers.left_behind {
        let complaints = io::read_to_string(stderr).unwrap_or_default();
        probe.answers.complaints = complaints;
    }
    Ok(probe.answers)
}

struct Probe {
    child: Child,
    stdin: OwnedFd,
    stdout: OwnedFd,
    buffer: Vec<u8>,
    answers: Answers,
}

impl Probe {
    /// Until it is done, or can tell no more.
    fn hear(&mut self, signals: &Taken, deadline: Instant) -> Result<()> {
        loop {
            let timeout = left(deadline);
            let mut fds = [
                PollFd::new(&self.stdout, PollFlags::IN),
                PollFd::from_borrowed_fd(signals.fd(), PollFlags::IN),
            ];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => {
                    let _ = self.child.kill();
                    let _ = self.child.wait();
                    return Err(Error::Refused(format!(
                        "the tries didn't end within {} seconds",
                        DEADLINE.as_secs()
                    )));
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(failed("poll")(error)),
            }
            // It ends by itself soon, and what it holds is taken down in order.
            if let Some(received) = signals.next().map_err(failed("signals"))? {
                self.answers.signal.get_or_insert(received.signal);
            }
            if !fds[0].revents().is_empty() && self.read()? {
                return Ok(());
            }
        }
    }

    /// Takes what is there; whether that was the last.
    fn read(&mut self) -> Result<bool> {
        let mut chunk = [0u8; 4096];
        let read = rustix::io::read(&self.stdout, &mut chunk).map_err(failed("the probe"))?;
        self.buffer.extend_from_slice(&chunk[..read]);
        let mut done = read == 0;
        while let Some(told) = self.next()? {
            match told {
                Told::Tried(answer) => self.answers.tries.push(answer),
                Told::Saw(seen) => self.answers.evidence.push(seen),
                Told::LandlockLayers(layers) => self.answers.landlock_layers = layers,
                Told::InNamespace(users) => {
                    self.answers.namespaces_limited = namespaces_are_limited(users.as_ref());
                    let _ = write_all(&self.stdin, &[0]);
                }
                Told::Done => done = true,
            }
        }
        Ok(done)
    }

    fn next(&mut self) -> Result<Option<Told>> {
        let Some((length, rest)) = self.buffer.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        let garbled = || Error::Refused("the probe's words can't be read".into());
        if length > MAX_MESSAGE {
            return Err(garbled());
        }
        let Some(bytes) = rest.get(..length) else { return Ok(None) };
        let told = postcard::from_bytes(bytes).map_err(|_| garbled())?;
        self.buffer.drain(..length + 4);
        Ok(Some(told))
    }

    /// Whether nobody holds the other end any more, or lets go of it in time.
    fn is_at_end(&self, deadline: Instant) -> Result<bool> {
        loop {
            let mut fds = [PollFd::new(&self.stdout, PollFlags::IN)];
            match poll(&mut fds, Some(&left(deadline))) {
                Ok(0) => return Ok(false),
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(failed("poll")(error)),
            }
            let read = rustix::io::read(&self.stdout, &mut [0u8; 4096]);
            if read.map_err(failed("the probe"))? == 0 {
                return Ok(true);
            }
        }
    }
}

fn left(deadline: Instant) -> Timespec {
    let left = deadline.saturating_duration_since(Instant::now());
    Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
}
