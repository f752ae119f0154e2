//! Writing the log.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom, Stat, fallocate, fstat,
    openat, renameat, renameat_with, seek, statat, unlinkat,
};
use rustix::io::{Errno, pread};
use tokio::sync::Notify;

use super::{FILE, FULL, KEPT, Line, Moved, Sandbox, Verb, What};
use crate::traffic::Traffic;

/// Held by whoever renames full files. Lines are written without it.
const LOCK: &str = "wire.log.lock";
/// The file after the present one, its room kept before it's needed.
pub(super) const NEXT: &str = "wire.log.next";

/// Lines of calls that were turned away, within a minute, at most: a program that is
/// on and on must not push out of the log what it did before.
const TURNED_AWAY: u64 = 1000;
const MINUTE: Duration = Duration::from_secs(60);
/// How long the end of a call may wait to be written with the next line, and how many
/// bytes of ends may.
const SOON: Duration = Duration::from_millis(20);
const ENDS: usize = 32 * 1024;
/// Bytes that are kept beyond a full file: for the lines that make it full, of all wires.
const BEYOND: u64 = 1024 * 1024;

/// The log, as one wire writes it. A call whose beginning can't be written isn't let
/// through; other lines that can't be are left out and counted.
#[derive(Debug)]
pub struct Log {
    folder: OwnedFd,
    current: RefCell<Current>,
    sandbox: Sandbox,
    traffic: Arc<Traffic>,
    next_call: Cell<u64>,
    left_out: Cell<u64>,
    minute: RefCell<Minute>,
    /// Lines of calls that are over, which wait to be written with the next.
    ends: RefCell<Ends>,
    /// There are some.
    has_ends: Notify,
}

/// Lines that are to be written.
#[derive(Debug, Default)]
struct Ends {
    bytes: Vec<u8>,
    lines: u64,
}

/// The file that lines go to.
#[derive(Debug)]
struct Current {
    file: File,
    id: (u64, u64),
    /// Where the last line of this wire's own ended; none where it wasn't whole.
    end: Option<u64>,
}

/// The calls of the latest minute that were turned away.
#[derive(Debug)]
struct Minute {
    since: Instant,
    calls: u64,
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

impl Call {
    fn carried(&self, up: u64, down: u64) -> Moved {
        let ms = u64::try_from(self.asked.elapsed().as_millis()).unwrap_or(u64::MAX);
        Moved { up, down, ms }
    }

    /// Where to: what can be said of it.
    pub(crate) fn target(&self) -> String {
        let host = self.host.as_deref().unwrap_or("-");
        self.port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }
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
        // Without room for the next file this one goes on.
        let _ = keep_next(&folder);
        let current = RefCell::new(Current::open(&folder)?);
        // Numbers of an earlier wire with the same name are below.
        let micros = Timestamp::now().as_microsecond();
        let next_call = Cell::new(u64::try_from(micros).unwrap_or_default());
        let left_out = Cell::new(0);
        let minute = RefCell::new(Minute { since: Instant::now(), calls: 0 });
        let ends = RefCell::default();
        let has_ends = Notify::new();
        Ok(Log { folder, current, sandbox, traffic, next_call, left_out, minute, ends, has_ends })
    }

    /// A call to a host, canonical, that asks now.
    pub fn call(&self, verb: Verb, host: impl fmt::Display, port: impl Into<Option<u16>>) -> Call {
        self.new_call(verb, Some(host.to_string()), port.into())
    }

    /// A call whose target can't be read. Of the target only what may be a host
    /// and port is kept: never a path or a password.
    pub fn unknown_call(&self, target: &[u8]) -> Call {
        let host = authority(target).map(|host| super::bounded(host, super::MAX_HOST));
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

    /// It is let through, and somebody answered. [`ended`](Self::ended) or
    /// [`broke`](Self::broke) follows.
    ///
    /// # Errors
    /// The line can't be written: then the call must not be let through.
    pub fn allowed(&self, call: &Call) -> io::Result<()> {
        self.append(call, What::Allowed)?;
        self.traffic.count_allowed();
        Ok(())
    }

    /// An allowed call is over: the bytes from the sandbox and to it.
    pub fn ended(&self, call: &Call, up: u64, down: u64) {
        let line = self.line(call, What::Ended(call.carried(up, down)));
        let waiting = {
            let mut ends = self.ends.borrow_mut();
            ends.bytes.extend(line);
            ends.lines += 1;
            ends.bytes.len()
        };
        if waiting < ENDS {
            self.has_ends.notify_one();
        } else {
            self.write_ends();
        }
    }

    /// Writes the ends of calls, each within 20 ms, where no other line took it along.
    /// Never returns.
    pub(crate) async fn write_on(&self) {
        loop {
            self.has_ends.notified().await;
            tokio::time::sleep(SOON).await;
            self.write_ends();
        }
    }

    fn write_ends(&self) {
        if self.ends.borrow().lines > 0 {
            // What is left out is counted.
            let _ = self.write(Vec::new(), 0);
        }
    }

    /// The wire was closed: why, in one line.
    pub(crate) fn closed(&self, reason: &str) {
        // What is left out is counted.
        let what = What::Refused { reason: reason.to_owned() };
        let _ = self.append(&self.event(Verb::Pause), what);
    }

    /// An allowed call is over by a fault of the other side's: why, in one line, and the
    /// bytes until then.
    pub fn broke(&self, call: &Call, reason: &str, up: u64, down: u64) {
        self.count_failed(call, reason);
        let carried = Some(call.carried(up, down));
        let _ = self.append(call, What::Failed { reason: reason.to_owned(), carried });
    }

    /// It wasn't let through, after somebody was asked for it, a name server at least:
    /// why, in one line.
    pub fn refused(&self, call: &Call, reason: &str) {
        self.count_refused(call, reason, 1);
        let _ = self.append(call, What::Refused { reason: reason.to_owned() });
    }

    /// It would have been let through, but nothing answered: why, in one line.
    pub fn failed(&self, call: &Call, reason: &str) {
        self.count_failed(call, reason);
        let _ = self.append(call, What::Failed { reason: reason.to_owned(), carried: None });
    }

    fn count_failed(&self, call: &Call, reason: &str) {
        self.traffic.count_failed();
        // Of others the program hears from the proxy.
        if matches!(call.verb, Verb::Tcp | Verb::Dns)
            && let Some(host) = &call.host
        {
            self.traffic.failures.add(&target(host, call.port), reason, 1);
        }
    }

    /// It wasn't let through, and nobody was asked for anything: why, in one line. There
    /// are 1,000 lines a minute for such calls.
    pub fn turned_away(&self, call: &Call, reason: &str) {
        self.turn_away(call, reason, 1);
    }

    /// The same where it is one of two that are made at a time, and the other counts.
    pub(crate) fn turned_away_with_another(&self, call: &Call, reason: &str) {
        self.turn_away(call, reason, 0);
    }

    fn turn_away(&self, call: &Call, reason: &str, times: u64) {
        self.count_refused(call, reason, times);
        self.tell_the_rest(false);
        let calls = {
            let mut minute = self.minute.borrow_mut();
            minute.calls += 1;
            minute.calls
        };
        if calls <= TURNED_AWAY {
            let _ = self.append(call, What::Refused { reason: reason.to_owned() });
        }
    }

    fn count_refused(&self, call: &Call, reason: &str, times: u64) {
        self.traffic.count_refused();
        if let Some(host) = &call.host {
            self.traffic.refusals.add(&target(host, call.port), reason, times);
        }
    }

    /// Lines that couldn't be written.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out.get()
    }

    /// Says in one line how many calls of a minute that is over have none.
    fn tell_the_rest(&self, over: bool) {
        let mut minute = self.minute.borrow_mut();
        if !over && minute.since.elapsed() < MINUTE {
            return;
        }
        let rest = minute.calls.saturating_sub(TURNED_AWAY);
        *minute = Minute { since: Instant::now(), calls: 0 };
        if rest > 0 {
            let reason = format!("{rest} more calls were refused within a minute");
            let _ = self.append(&self.event(Verb::Unknown), What::Refused { reason });
        }
    }

    fn append(&self, call: &Call, what: What) -> io::Result<()> {
        self.write(self.line(call, what), 1)
    }

    fn line(&self, call: &Call, what: What) -> Vec<u8> {
        let line = Line {
            time: Timestamp::now(),
            sandbox: self.sandbox.clone(),
            call: call.number,
            verb: call.verb,
            host: call.host.clone(),
            port: call.port,
            what,
        };
        line.written()
    }

    /// Appends the lines that wait, and these.
    fn write(&self, bytes: Vec<u8>, lines: u64) -> io::Result<()> {
        let mut ends = self.ends.take();
        ends.bytes.extend(bytes);
        let append = || self.current.borrow_mut().append(&self.folder, &ends.bytes);
        // Where a full file had no room for them, the next one may.
        let size = append().or_else(|_| rotate(&self.folder).and_then(|()| append()));
        let size = size.inspect_err(|_| {
            let left_out = ends.lines + lines;
            self.left_out.set(self.left_out.get() + left_out);
            self.traffic.unlogged(left_out);
        })?;
        if size >= FULL {
            // Where that fails the file grows on, and the next line tries again.
            let _ = rotate(&self.folder);
        }
        Ok(())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.tell_the_rest(true);
        self.write_ends();
    }
}

impl Current {
    fn open(folder: &OwnedFd) -> io::Result<Current> {
        // Read too, for how the file ends; never waiting for a pipe's other end.
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW;
        let file = open_plain(folder, FILE, flags)?;
        // One that is new, and wasn't the next one before, has no room kept yet. Where the
        // disk is full already, its lines find out.
        let _ = reserve(&file);
        let stat = fstat(&file)?;
        Ok(Current { file, id: id(&stat), end: None })
    }

    /// Appends lines in one write, and answers the file's size then. Another wire may
    /// rename the file meanwhile: then they are the last of the renamed one.
    fn append(&mut self, folder: &OwnedFd, lines: &[u8]) -> io::Result<u64> {
        let named = statat(folder, FILE, AtFlags::SYMLINK_NOFOLLOW);
        let named = named.ok().filter(|named| id(named) == self.id);
        if named.is_none() {
            *self = Current::open(folder)?;
        }
        // Nobody wrote since: it's known how the file ends.
        let same = named.is_some_and(|named| self.end == Some(named.st_size.cast_unsigned()));
        // A part that was written, on a full disk, is ended by the next line.
        self.end = None;
        if same || ends_whole(&self.file)? {
            write(&self.file, lines)?;
        } else {
            write(&self.file, &[b"\n", lines].concat())?;
        }
        let end = seek(&self.file, SeekFrom::Current(0))?;
        self.end = Some(end);
        Ok(end)
    }
}

/// Makes the next file where there is none, its room kept. Where the disk is full, the
/// file that would go with it gives up its own.
fn keep_next(folder: &OwnedFd) -> io::Result<()> {
    if size(folder, NEXT).is_some() {
        return Ok(());
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let next = open_plain(folder, NEXT, flags)?;
    let mut reserved = reserve(&next);
    if reserved == Err(Errno::NOSPC) && size(folder, &kept(KEPT)).is_some() {
        unlinkat(folder, kept(KEPT), AtFlags::empty())?;
        reserved = reserve(&next);
    }
    match reserved {
        // Not every file system can keep room.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(error) => {
            unlinkat(folder, NEXT, AtFlags::empty())?;
            Err(error.into())
        }
    }
}

/// Keeps room for a whole file: so that filling the disk doesn't end the log.
fn reserve(file: &File) -> Result<(), Errno> {
    fallocate(file, FallocateFlags::KEEP_SIZE, 0, FULL + BEYOND)
}

/// The size of a file of the folder; `None` where there is none.
fn size(folder: &OwnedFd, name: &str) -> Option<u64> {
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(stat.st_size.cast_unsigned())
}

/// A host and its port as they are asked for.
fn target(host: &str, port: Option<u16>) -> String {
    match port {
        Some(port) if host.contains(':') => format!("[{host}]:{port}"),
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

fn write(file: &File, bytes: &[u8]) -> io::Result<()> {
    match rustix::io::retry_on_intr(|| rustix::io::write(file, bytes))? {
        written if written == bytes.len() => Ok(()),
        _ => Err(Errno::NOSPC.into()),
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

/// Opens or makes a file of ours in the folder: a plain one, for its owner alone.
fn open_plain(folder: &OwnedFd, name: &str, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(Errno::INVAL.into()) }
}

pub(super) fn id(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Whether a file ends with a line's end: a wire that was killed may leave half a
/// line. While another wire writes, what is seen of its line may be half of it, so as
/// long as the file grows it is looked at again.
fn ends_whole(file: &File) -> io::Result<bool> {
    let size = || io::Result::Ok(fstat(file)?.st_size.cast_unsigned());
    let mut end = size()?;
    loop {
        let mut last = [b'\n'];
        if let Some(at) = end.checked_sub(1) {
            pread(file, &mut last, at)?;
        }
        let now = size()?;
        if last == *b"\n" || now == end {
            return Ok(last == *b"\n");
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
    // A wire that was killed in between left the full file under the next one's name.
    if size(folder, NEXT).is_some_and(|size| size > 0) {
        keep(folder, NEXT)?;
    }
    if size(folder, FILE).is_none_or(|size| size < FULL) {
        return Ok(());
    }
    keep_next(folder)?;
    // Never without the file: another wire would make it.
    match renameat_with(folder, NEXT, folder, FILE, RenameFlags::EXCHANGE) {
        Ok(()) => keep(folder, NEXT)?,
        // Not every file system can; the lines of the next wire make the file.
        Err(Errno::INVAL | Errno::NOSYS) => keep(folder, FILE)?,
        Err(error) => return Err(error.into()),
    }
    keep_next(folder)
}

/// Makes a full file the newest that is kept.
fn keep(folder: &OwnedFd, full: &str) -> io::Result<()> {
    // A wire that was killed here may have left a gap: then no file has to go.
    let free = (1..=KEPT).find(|number| size(folder, &kept(*number)).is_none()).unwrap_or(KEPT);
    for number in (1..free).rev() {
        renameat(folder, kept(number), folder, kept(number + 1))?;
    }
    Ok(renameat(folder, full, folder, kept(1))?)
}

pub(super) fn kept(number: u32) -> String {
    format!("{FILE}.{number}")
}
