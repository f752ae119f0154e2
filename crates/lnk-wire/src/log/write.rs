//! Writing the log.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use rustix::fs::{CWD, Mode, OFlags, Stat, fstat, openat, renameat, statat};
use rustix::io::{Errno, pread};

use super::{FILE, FULL, KEPT, Line, Sandbox, Verb, What};
use crate::traffic::Traffic;

/// Held by whoever renames full files. Lines are written without it.
const LOCK: &str = "wire.log.lock";

/// The log, as one wire writes it. What can't be written is left out and counted:
/// no call waits for the log or ends with it.
#[derive(Debug)]
pub struct Log {
    folder: OwnedFd,
    file: RefCell<File>,
    sandbox: Sandbox,
    traffic: Arc<Traffic>,
    next_call: Cell<u64>,
    left_out: Cell<u64>,
}

/// A call, from when it asked: what its lines share.
#[derive(Clone, Debug)]
pub struct Call {
    number: u64,
    verb: Verb,
    host: Option<String>,
    port: Option<u16>,
    asked: Instant,
}

impl Log {
    /// Opens the log in Link's settings, `~/.config/lnk/sandbox`, for the wire of
    /// one sandbox. Calls are counted in `traffic` too.
    ///
    /// # Errors
    /// The folder or file can't be opened, or the file is something else.
    pub fn open(folder: &Path, sandbox: Sandbox, traffic: Arc<Traffic>) -> io::Result<Log> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, folder, flags, Mode::empty())?;
        let file = RefCell::new(open(&folder)?);
        // Numbers of an earlier wire with the same name are below.
        let micros = Timestamp::now().as_microsecond();
        let next_call = Cell::new(u64::try_from(micros).unwrap_or_default());
        Ok(Log { folder, file, sandbox, traffic, next_call, left_out: Cell::new(0) })
    }

    /// A call to a host, canonical, that asks now.
    pub fn call(&self, verb: Verb, host: impl fmt::Display, port: impl Into<Option<u16>>) -> Call {
        self.new_call(verb, Some(host.to_string()), port.into())
    }

    /// A call whose target can't be read. Of the target only what may be a host
    /// and port is kept: never a path or a password.
    pub fn unknown_call(&self, target: &[u8]) -> Call {
        let host = authority(target).map(|host| super::bounded(host, super::MAX_NAME));
        self.new_call(Verb::Unknown, host, None)
    }

    /// What has no target, such as a pause.
    pub fn event(&self, verb: Verb) -> Call {
        self.new_call(verb, None, None)
    }

    fn new_call(&self, verb: Verb, host: Option<String>, port: Option<u16>) -> Call {
        let number = self.next_call.get();
        self.next_call.set(number + 1);
        Call { number, verb, host, port, asked: Instant::now() }
    }

    /// It was let through, and somebody answered. [`ended`](Self::ended) or
    /// [`failed`](Self::failed) follows.
    pub fn allowed(&self, call: &Call) {
        self.traffic.count_allowed();
        self.append(call, What::Allowed);
    }

    /// An allowed call is over: the bytes from the sandbox and to it.
    pub fn ended(&self, call: &Call, up: u64, down: u64) {
        let ms = u64::try_from(call.asked.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.append(call, What::Ended { up, down, ms });
    }

    /// It wasn't let through: why, in one line.
    pub fn refused(&self, call: &Call, reason: &str) {
        self.traffic.count_refused();
        self.append(call, What::Refused { reason: reason.to_owned() });
    }

    /// It would have been let through, but nothing answered: why, in one line.
    pub fn failed(&self, call: &Call, reason: &str) {
        self.traffic.count_failed();
        self.append(call, What::Failed { reason: reason.to_owned() });
    }

    /// Lines that couldn't be written.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out.get()
    }

    fn append(&self, call: &Call, what: What) {
        let line = Line {
            time: Timestamp::now(),
            sandbox: self.sandbox.clone(),
            call: call.number,
            verb: call.verb,
            host: call.host.clone(),
            port: call.port,
            what,
        };
        match self.try_append(line.written()) {
            Ok(size) if size >= FULL => {
                // Where that fails the file grows on, and the next line tries again.
                let _ = rotate(&self.folder);
            }
            Ok(_) => {}
            Err(_) => {
                self.left_out.set(self.left_out.get() + 1);
                self.traffic.unlogged();
            }
        }
    }

    /// Appends in one write, and answers the file's size then. Another wire may
    /// rename the file meanwhile: then the line is the last of the renamed one.
    fn try_append(&self, mut line: Vec<u8>) -> io::Result<u64> {
        let mut file = self.file.borrow_mut();
        if !is_current(&self.folder, &file) {
            *file = open(&self.folder)?;
        }
        let (size, whole) = end_of(&file)?;
        if !whole {
            line.insert(0, b'\n');
        }
        // A part that was written, on a full disk, is ended by the next line.
        match rustix::io::retry_on_intr(|| rustix::io::write(&*file, &line))? {
            written if written == line.len() => Ok(size + written as u64),
            _ => Err(Errno::NOSPC.into()),
        }
    }
}

/// The part of a request's target that names a host and port, if that is all it
/// can be: `HOST:PORT`, or behind a scheme at the very beginning. Nothing where it may
/// be, or hold, a path, a query or a password.
fn authority(target: &[u8]) -> Option<&[u8]> {
    let scheme = target.windows(3).position(|part| part == b"://");
    let is_scheme = |scheme: &[u8]| {
        scheme.first().is_some_and(u8::is_ascii_alphabetic)
            && scheme.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+.-".contains(byte))
    };
    let rest = match scheme {
        Some(at) if is_scheme(&target[..at]) => &target[at + 3..],
        Some(_) => return None,
        None => target,
    };
    let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let of_host =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(byte) || *byte >= 0x80;
    let host = authority.iter().all(of_host);
    // Without a scheme, what comes before a colon may be one, and a password behind.
    let port = authority.iter().rposition(|byte| *byte == b':').map(|at| &authority[at + 1..]);
    let port =
        port.is_none_or(|port| port.iter().all(u8::is_ascii_digit) || authority.ends_with(b"]"));
    let plain =
        host && port && (scheme.is_some() || authority.contains(&b':')) && !path.contains(&b'@');
    (plain && !authority.is_empty()).then_some(authority)
}

fn open(folder: &OwnedFd) -> io::Result<File> {
    // Read too, for how the file ends; never waiting for a pipe's other end.
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW;
    open_plain(folder, FILE, flags)
}

/// Opens or makes a file of ours in the folder: a plain one, for its owner alone.
fn open_plain(folder: &OwnedFd, name: &str, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(Errno::INVAL.into()) }
}

fn is_current(folder: &OwnedFd, file: &File) -> bool {
    match (statat(folder, FILE, rustix::fs::AtFlags::SYMLINK_NOFOLLOW), fstat(file)) {
        (Ok(current), Ok(ours)) => id(&current) == id(&ours),
        _ => false,
    }
}

pub(super) fn id(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Where a file ends, and whether a line does there: a wire that was killed may
/// leave half a one. While another wire writes, what is seen of its line may be
/// half of it, so as long as the file grows it is looked at again.
fn end_of(file: &File) -> io::Result<(u64, bool)> {
    let size = || io::Result::Ok(fstat(file)?.st_size.cast_unsigned());
    let mut end = size()?;
    loop {
        let mut last = [b'\n'];
        if let Some(at) = end.checked_sub(1) {
            pread(file, &mut last, at)?;
        }
        let now = size()?;
        if last == *b"\n" || now == end {
            return Ok((now, last == *b"\n"));
        }
        end = now;
    }
}

/// Renames the full file, and those renamed before. Only one wire does at a time;
/// the others write on meanwhile.
fn rotate(folder: &OwnedFd) -> io::Result<()> {
    let lock = open_plain(folder, LOCK, OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(()),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let size = |name: &str| statat(folder, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
    if size(FILE)?.st_size.cast_unsigned() < FULL {
        return Ok(());
    }
    // A wire that was killed here may have left a gap: then no file has to go.
    let free = (1..=KEPT).find(|number| size(&kept(*number)).is_err()).unwrap_or(KEPT);
    for number in (1..free).rev() {
        renameat(folder, kept(number), folder, kept(number + 1))?;
    }
    Ok(renameat(folder, FILE, folder, kept(1))?)
}

pub(super) fn kept(number: u32) -> String {
    format!("{FILE}.{number}")
}
