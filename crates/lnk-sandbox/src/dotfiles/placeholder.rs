//! Empty folders that stand in for protected names that don't exist.
//!
//! A mount needs something to be mounted on, so a missing name is made as an
//! empty folder for as long as a sandbox needs it: git doesn't list empty
//! folders, and taking one away is `rmdir(2)`, which can't delete what the user
//! has put there meanwhile.
//!
//! Runs share placeholders. Removing one that is mounted on in another sandbox
//! would take that sandbox's mount away, so they are counted by locks, which
//! the kernel drops when a run crashes:
//!
//! - `gate` is locked exclusively by whoever starts, stops or sweeps, briefly.
//! - `<device>-<inode>` stands for one folder that holds placeholders, wherever
//!   it is reached from. Each run that needs them holds a shared lock; the
//!   names are in it before they are made. Who gets it exclusively is the last
//!   one and takes them away.
//!
//! The files are opened, locked and deleted behind the gate only, so that none
//! is deleted while another run is about to lock it.
//!
//! All of that is one user's and one home's. Runs of others know each other by
//! a shared lock on the folder itself, of which each removal needs an exclusive
//! one; and by the sticky bit of a placeholder, by which it is told from an
//! empty folder of the user's. Whoever finds one records it too, and so the
//! last run takes all away. A program in the sandbox can lock its folder as
//! well, so nothing ever waits for that lock: what it keeps from being removed
//! stays recorded for the next sweep.
//!
//! A placeholder that can't be removed has something in it, and is the user's
//! from then on. Where that is only other placeholders, or bait that a killed
//! check left, it stays recorded instead until those are gone.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::path::Arg;
use rustix::process::Pid;

use super::{Cover, Mask, Protection};
use crate::check::is_bait;
use crate::paths::Identity;

/// A write folder whose placeholders are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Folder<'a> {
    /// The folder, `O_PATH` is enough. Everything is made below it.
    pub fd: BorrowedFd<'a>,
    /// Its absolute, real path, by which it is found again after a crash.
    pub path: &'a Path,
    /// What [`protect`](super::protect) said about it behind the same gate.
    pub protection: &'a Protection,
}

/// The right to start: while it is held, no placeholder appears or goes.
///
/// Held for a moment only, by one run at a time, over
/// [`protect`](super::protect) and [`place`](Gate::place). A thread that holds
/// it must not drop [`Placeholders`].
#[derive(Debug)]
pub struct Gate {
    state: OwnedFd,
    _lock: File,
}

/// The placeholders of one run. They stay until [`remove`](Self::remove) or
/// drop, or until the last other run that needs them ends.
#[derive(Debug)]
pub struct Placeholders {
    state: OwnedFd,
    /// Deepest first: a placeholder may hold another run's.
    held: Vec<Held>,
    appeared: Vec<PathBuf>,
    /// A forked child must not take away what its parent needs.
    owner: Pid,
}

/// A folder that holds placeholders, locked.
#[derive(Debug)]
struct Held {
    folder: OwnedFd,
    /// To read, to lock it against runs with other records. `None` where the
    /// caller may not read the folder.
    lock: Option<OwnedFd>,
    key: String,
    depth: usize,
    /// Its lock is shared until the end. Closed on exec.
    record: File,
}

/// What a lock file says: which folder, and the names made in it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Record {
    path: PathBuf,
    names: BTreeSet<OsString>,
}

const GATE: &str = "gate";

/// How long one other run may hold the gate: each does for a moment only.
const PATIENCE: Duration = Duration::from_secs(10);

/// A placeholder's mode. The sticky bit tells it from a folder of the user's:
/// it is set by mkdir(2) at once, and means nothing in a folder of one's own.
const MODE: u32 = 0o1755;

/// Placeholders may stand in placeholders, no deeper than this.
const MAX_NESTED: usize = 8;

/// More than the names of one folder ever take, in bytes.
const MAX_RECORD: usize = 1 << 20;

impl Gate {
    /// Waits for the gate of `state`, a folder of mode 0700 that holds nothing
    /// else, and removes what crashed runs left.
    ///
    /// # Errors
    /// `state` can't be opened or written; `TimedOut` when one other process
    /// holds the gate for 10 s.
    pub fn enter(state: &Path) -> io::Result<Gate> {
        Gate::enter_within(state, PATIENCE)
    }

    fn enter_within(state: &Path, patience: Duration) -> io::Result<Gate> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let state = rustix::fs::open(state, flags, Mode::empty())?;
        let gate = Gate { _lock: lock_gate(&state, patience)?, state };
        gate.sweep()?;
        Ok(gate)
    }

    /// Makes the missing names of all write folders of a run, and keeps those
    /// of other runs that this one needs too. Lets the gate go.
    ///
    /// # Errors
    /// A name can't be made, other than because it exists by now; then nothing
    /// is left behind and the run must not start.
    pub fn place(self, folders: &[Folder<'_>]) -> io::Result<Placeholders> {
        let mut placeholders = Placeholders {
            state: self.state.try_clone()?,
            held: Vec::new(),
            appeared: Vec::new(),
            owner: rustix::process::getpid(),
        };
        match self.place_each(folders, &mut placeholders) {
            Ok(()) => Ok(placeholders),
            Err(error) => {
                // Behind this gate: dropping them would wait for it.
                for held in std::mem::take(&mut placeholders.held) {
                    let _ = held.release(&self.state);
                }
                Err(error)
            }
        }
    }

    fn place_each(&self, folders: &[Folder<'_>], into: &mut Placeholders) -> io::Result<()> {
        let mut parents: Vec<_> = parents(folders)?.into_iter().collect();
        parents.sort_by_key(|(_, parent)| Reverse(depth(&parent.path)));
        for (key, parent) in parents {
            // Before a look at what is there: from now on nobody removes it.
            let lock = lock_shared(&parent.fd)?;
            into.appeared.extend(parent.changed()?);
            let found = parent.placeholders()?;
            let wanted = !parent.names.missing.is_empty() || !found.is_empty();
            let Some(record) = self.open_record(&key, wanted)? else {
                continue;
            };
            let depth = depth(&parent.path);
            into.held.push(Held { folder: parent.fd, lock, key, depth, record });
            let held = into.held.last().expect("pushed just now");
            held.note(&parent.path, found)?;
            into.appeared.extend(held.make(parent.path, parent.names.missing)?);
        }
        Ok(())
    }

    /// Opens and share-locks the lock file of one folder. `None` where there is
    /// none and none is wanted.
    fn open_record(&self, key: &str, create: bool) -> io::Result<Option<File>> {
        let mut flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if create {
            flags |= OFlags::CREATE;
        }
        match rustix::fs::openat(&self.state, key, flags, Mode::RUSR | Mode::WUSR) {
            Ok(fd) => {
                // Nobody holds it exclusively outside the gate.
                rustix::fs::flock(&fd, FlockOperation::NonBlockingLockShared)?;
                Ok(Some(File::from(fd)))
            }
            Err(Errno::NOENT) if !create => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes away what is recorded and needed by no run. A folder that can't be
    /// found keeps its record: it may be back later.
    fn sweep(&self) -> io::Result<()> {
        let mut free = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.state)? {
            let entry = entry?;
            let Some(key) = entry.file_name().to_str().ok().filter(|name| is_key(name)) else {
                continue;
            };
            if let Some(file) = self.open_free(key)? {
                free.push((Record::read(&file)?, key.to_owned(), file));
            }
        }
        free.sort_by_key(|(record, ..)| Reverse(depth(&record.path)));
        free.iter().try_for_each(|(record, key, file)| self.sweep_one(key, record, file))
    }

    fn sweep_one(&self, key: &str, record: &Record, file: &File) -> io::Result<()> {
        if !record.names.is_empty() {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(folder) = rustix::fs::open(&record.path, flags, Mode::empty()) else {
                return Ok(());
            };
            // The path may lead elsewhere by now, even by a hostile hand.
            if key_of(&folder)? != key {
                return Ok(());
            }
            let lock = open_to_lock(&folder)?;
            if !lock_exclusive(lock.as_ref())?
                || !record.remove_from(&folder, file).unwrap_or(false)
            {
                return Ok(());
            }
        }
        Ok(rustix::fs::unlinkat(&self.state, key, AtFlags::empty())?)
    }

    /// The lock file, exclusively locked; `None` if a run holds it.
    fn open_free(&self, key: &str) -> io::Result<Option<File>> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.state, key, flags, Mode::empty())?;
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(File::from(fd))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Removes what crashed runs left; a run's start does the same.
///
/// # Errors
/// As for [`Gate::enter`].
pub fn sweep(state: &Path) -> io::Result<()> {
    Gate::enter(state).map(drop)
}

impl Placeholders {
    /// What changed since [`protect`](super::protect) looked, by absolute path:
    /// names that weren't made because something was made there, and covered
    /// ones that went or were replaced. Nothing protects them: the caller looks
    /// again, or doesn't start.
    #[must_use]
    pub fn appeared(&self) -> &[PathBuf] {
        &self.appeared
    }

    /// The placeholders' names, by absolute path, at which something else than
    /// an empty placeholder stands now: what was made while the program ran, by
    /// whomever. What can't be looked at isn't among them.
    #[must_use]
    pub fn occupied(&self) -> Vec<PathBuf> {
        let mut occupied = Vec::new();
        for held in &self.held {
            let Ok(record) = Record::read(&held.record) else { continue };
            let names = record.names.iter().filter(|name| {
                let there = rustix::fs::statat(&held.folder, *name, AtFlags::SYMLINK_NOFOLLOW);
                there.is_ok() && !is_empty_placeholder(&held.folder, *name, MAX_NESTED)
            });
            occupied.extend(names.map(|name| record.path.join(name)));
        }
        occupied.sort();
        occupied
    }

    /// Makes one more while the run lasts, for a protected name that vanished:
    /// `name` below `folder`, whose absolute, real path is `path`. What exists
    /// there by now stays as it is. Waits for the gate, as [`Gate::enter`] does.
    ///
    /// # Errors
    /// The name can't be made, or a folder on the way isn't a real one.
    pub fn put_back(&mut self, folder: BorrowedFd<'_>, path: &Path, name: &Path) -> io::Result<()> {
        let lock = lock_gate(&self.state, PATIENCE)?;
        let gate = Gate { _lock: lock, state: self.state.try_clone()? };
        let protection = Protection { missing: vec![name.to_owned()], ..Protection::default() };
        for (key, parent) in parents(&[Folder { fd: folder, path, protection: &protection }])? {
            if let Some(held) = self.held.iter().find(|held| held.key == key) {
                // A program may have kept the lock from this run until now.
                held.lock_shared()?;
                held.make(parent.path, parent.names.missing)?;
            } else if let Some(record) = gate.open_record(&key, true)? {
                let depth = depth(&parent.path);
                let lock = lock_shared(&parent.fd)?;
                let held = Held { folder: parent.fd, lock, key, depth, record };
                let made = held.make(parent.path, parent.names.missing);
                let place = self.held.partition_point(|other| other.depth >= depth);
                self.held.insert(place, held);
                made?;
            }
        }
        Ok(())
    }

    /// Takes the placeholders away, but for those that another run needs and
    /// those in which there is something by now.
    ///
    /// # Errors
    /// The gate can't be had, or a folder doesn't let its placeholders be
    /// removed; the next start tries again.
    pub fn remove(mut self) -> io::Result<()> {
        self.release()
    }

    /// As the kernel does when a run is killed: its descriptors are closed.
    #[cfg(test)]
    pub(crate) fn crash(mut self) {
        self.held.clear();
    }

    fn release(&mut self) -> io::Result<()> {
        let held = std::mem::take(&mut self.held);
        if held.is_empty() || rustix::process::getpid() != self.owner {
            return Ok(());
        }
        let _gate = lock_gate(&self.state, PATIENCE)?;
        let mut result = Ok(());
        for held in held {
            result = result.and(held.release(&self.state));
        }
        result
    }
}

impl Drop for Placeholders {
    fn drop(&mut self) {
        let _ = self.release();
    }
}

impl Held {
    fn lock_shared(&self) -> io::Result<()> {
        match &self.lock {
            Some(lock) => try_flock(lock, FlockOperation::NonBlockingLockShared).map(drop),
            None => Ok(()),
        }
    }

    /// Writes down placeholders that are there already, some of them by runs
    /// with records of their own.
    fn note(&self, path: &Path, found: BTreeSet<OsString>) -> io::Result<()> {
        let mut record = Record::read(&self.record)?;
        if found.is_subset(&record.names) {
            return Ok(());
        }
        record.path = path.to_owned();
        record.names.extend(found);
        record.write(&self.record)
    }

    /// Writes the names down, then makes them; gives those that exist already.
    fn make(&self, path: PathBuf, names: BTreeSet<OsString>) -> io::Result<Vec<PathBuf>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut record = Record::read(&self.record)?;
        let before = std::mem::take(&mut record.names);
        record.path.clone_from(&path);
        record.names = before.union(&names).cloned().collect();
        record.write(&self.record)?;
        let mut appeared = Vec::new();
        for name in names {
            let mode = Mode::from_raw_mode(MODE);
            match rustix::fs::mkdirat(&self.folder, &name, mode) {
                Ok(()) => {}
                Err(Errno::EXIST) => {
                    if !before.contains(&name) {
                        record.names.remove(&name);
                    }
                    appeared.push(path.join(name));
                }
                Err(error) => return Err(error.into()),
            }
        }
        if !appeared.is_empty() {
            record.write(&self.record)?;
        }
        Ok(appeared)
    }

    /// Behind the gate: removes the placeholders if no other run needs them.
    fn release(self, state: &OwnedFd) -> io::Result<()> {
        match rustix::fs::flock(&self.record, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let record = Record::read(&self.record)?;
        if !record.names.is_empty() {
            // Runs with other records need them still, and remove them.
            if !lock_exclusive(self.lock.as_ref())? {
                return Ok(());
            }
            if !record.remove_from(&self.folder, &self.record)? {
                return Ok(());
            }
        }
        Ok(rustix::fs::unlinkat(state, &self.key, AtFlags::empty())?)
    }
}

impl Record {
    /// `path`, the names and an empty field, each ended by a NUL: what neither
    /// a path nor a name can hold. Names that a crash cut short weren't made
    /// yet, and don't count.
    fn read(file: &File) -> io::Result<Record> {
        let len = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        let mut bytes = vec![0; len.min(MAX_RECORD)];
        let mut done = 0;
        while done < bytes.len() {
            match file.read_at(&mut bytes[done..], done as u64)? {
                0 => break,
                read => done += read,
            }
        }
        let mut fields = bytes[..done].split_inclusive(|&b| b == 0).map_while(|field| {
            field.strip_suffix(b"\0").filter(|f| !f.is_empty()).map(OsStr::from_bytes)
        });
        Ok(Record {
            path: fields.next().map(PathBuf::from).unwrap_or_default(),
            names: fields.map(OsStr::to_owned).collect(),
        })
    }

    fn write(&self, file: &File) -> io::Result<()> {
        let mut bytes = self.path.as_os_str().as_bytes().to_vec();
        bytes.push(0);
        for name in &self.names {
            bytes.extend(name.as_bytes());
            bytes.push(0);
        }
        bytes.push(0);
        // Not synced: a killed run loses nothing, and after a power cut there
        // may be an empty folder too many. Waiting for the disk would cost each
        // run a fifth of its start.
        file.write_all_at(&bytes, 0)
    }

    /// Only ever `rmdir(2)`: what isn't an empty folder stays. `false` where
    /// some are to be tried again, which alone are in the record's `file` then.
    fn remove_from(&self, folder: &OwnedFd, file: &File) -> io::Result<bool> {
        let mut left = BTreeSet::new();
        for name in &self.names {
            match rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(Errno::NOTEMPTY | Errno::EXIST) => {
                    if is_empty_placeholder(folder, name, MAX_NESTED) {
                        left.insert(name.clone());
                    } else {
                        give_to_user(folder, name);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        if left.is_empty() {
            return Ok(true);
        }
        Record { path: self.path.clone(), names: left }.write(file)?;
        Ok(false)
    }
}

/// A folder in which names are missing or covered.
struct Parent {
    fd: OwnedFd,
    path: PathBuf,
    names: Names,
}

/// Names in one folder.
#[derive(Default)]
struct Names {
    missing: BTreeSet<OsString>,
    /// Those that exist, but for links.
    covered: BTreeMap<OsString, Option<Identity>>,
}

impl Parent {
    /// What isn't any more what was looked at, by absolute path.
    fn changed(&self) -> io::Result<Vec<PathBuf>> {
        let mut changed = Vec::new();
        for (name, identity) in &self.names.covered {
            let stat = match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => Some(Identity::from(&stat)),
                Err(Errno::NOENT) => None,
                Err(error) => return Err(error.into()),
            };
            if identity.is_some() && stat != *identity {
                changed.push(self.path.join(name));
            }
        }
        Ok(changed)
    }

    /// The placeholders among what is covered.
    fn placeholders(&self) -> io::Result<BTreeSet<OsString>> {
        let mut found = BTreeSet::new();
        for name in self.names.covered.keys() {
            match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if is_marked(stat.st_mode) => drop(found.insert(name.clone())),
                Ok(_) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(found)
    }
}

/// The folders that hold the missing names, and those that hold covered ones:
/// what is covered there may be another run's placeholder.
fn parents(folders: &[Folder<'_>]) -> io::Result<BTreeMap<String, Parent>> {
    let mut parents: BTreeMap<String, Parent> = BTreeMap::new();
    for folder in folders {
        for (above, names) in names_by_folder(folder)? {
            let fd = open_below(folder.fd, above)?;
            let path = folder.path.join(above);
            match parents.entry(key_of(&fd)?) {
                Entry::Vacant(entry) => drop(entry.insert(Parent { fd, path, names })),
                Entry::Occupied(mut entry) => {
                    let into = &mut entry.get_mut().names;
                    into.missing.extend(names.missing);
                    into.covered.extend(names.covered);
                }
            }
        }
    }
    Ok(parents)
}

fn names_by_folder<'a>(folder: &Folder<'a>) -> io::Result<BTreeMap<&'a Path, Names>> {
    let mut by_folder: BTreeMap<&Path, Names> = BTreeMap::new();
    for path in &folder.protection.missing {
        let (above, name) = split(path)?;
        by_folder.entry(above).or_default().missing.insert(name.to_owned());
    }
    for Mask { path, cover, identity } in &folder.protection.masks {
        let Ok(path) = path.strip_prefix(folder.path) else { continue };
        let (above, name) = split(path)?;
        let names = by_folder.entry(above).or_default();
        if !matches!(cover, Cover::Link { .. }) {
            names.covered.insert(name.to_owned(), *identity);
        }
    }
    Ok(by_folder)
}

fn open_below(folder: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(folder, path, flags, Mode::empty(), how)?)
}

/// The folder and the single name of a path below a write folder.
fn split(path: &Path) -> io::Result<(&Path, &OsStr)> {
    let plain = path.components().all(|c| matches!(c, Component::Normal(_)));
    match (path.parent(), path.file_name()) {
        (Some(above), Some(name)) if plain => Ok((above, name)),
        _ => Err(io::Error::from(io::ErrorKind::InvalidInput)),
    }
}

/// Waits for the gate; dropping the file opens it again.
///
/// The file counts who held it, so that many runs at once, each of them quick,
/// aren't taken for one that hangs.
fn lock_gate(state: &OwnedFd, patience: Duration) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(state, GATE, flags, Mode::RUSR | Mode::WUSR)?;
    let gate = File::from(fd);
    let (mut seen, mut since) = (times_held(&gate)?, Instant::now());
    while !try_flock(&gate, FlockOperation::NonBlockingLockExclusive)? {
        // flock(2) itself waits without a limit.
        std::thread::sleep(Duration::from_millis(10));
        let now = times_held(&gate)?;
        if now != seen {
            (seen, since) = (now, Instant::now());
        } else if since.elapsed() >= patience {
            let what = format!(
                "another lnk has held them locked for {} s: end that one, or try again",
                patience.as_secs()
            );
            return Err(io::Error::new(io::ErrorKind::TimedOut, what));
        }
    }
    gate.write_all_at(&times_held(&gate)?.wrapping_add(1).to_ne_bytes(), 0)?;
    Ok(gate)
}

fn times_held(gate: &File) -> io::Result<u64> {
    let mut count = [0; 8];
    // Shorter only where nobody has held it yet.
    gate.read_at(&mut count, 0)?;
    Ok(u64::from_ne_bytes(count))
}

/// Locks a folder that holds placeholders, against their removal by runs with
/// other records. Where a program keeps it locked, this goes on without: the
/// guard makes again what another run removes.
fn lock_shared(folder: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let lock = open_to_lock(folder)?;
    if let Some(lock) = &lock {
        try_flock(lock, FlockOperation::NonBlockingLockShared)?;
    }
    Ok(lock)
}

/// Whether placeholders may be removed from a folder. Failing, it takes one's
/// own lock as well, so that of two runs that end together the second succeeds.
fn lock_exclusive(lock: Option<&OwnedFd>) -> io::Result<bool> {
    lock.map_or(Ok(true), |lock| try_flock(lock, FlockOperation::NonBlockingLockExclusive))
}

/// `None` for a folder that the caller may not read.
fn open_to_lock(folder: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat(folder, ".", flags, Mode::empty()) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::ACCESS) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn try_flock(fd: impl AsFd + Copy, operation: FlockOperation) -> io::Result<bool> {
    match rustix::io::retry_on_intr(|| rustix::fs::flock(fd, operation)) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn is_marked(mode: u32) -> bool {
    FileType::from_raw_mode(mode) == FileType::Directory
        && Mode::from_raw_mode(mode).contains(Mode::SVTX)
}

/// Whether there is a placeholder that holds nothing, but for other such ones
/// and bait of a check.
fn is_empty_placeholder(folder: impl AsFd, name: impl Arg, nested: usize) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let look = || {
        let fd = rustix::fs::openat(folder, name, flags, Mode::empty())?;
        let mut is_one = is_marked(rustix::fs::fstat(&fd)?.st_mode);
        for entry in rustix::fs::Dir::read_from(&fd)? {
            let entry = entry?;
            let name = entry.file_name();
            is_one &= [c".", c".."].contains(&name)
                || is_bait(name.to_bytes())
                || (nested > 0 && is_empty_placeholder(&fd, name, nested - 1));
            if !is_one {
                break;
            }
        }
        Ok::<_, Errno>(is_one)
    };
    look().unwrap_or(false)
}

/// A placeholder that the user has put something in is theirs from now on.
fn give_to_user(folder: &OwnedFd, name: &OsStr) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(fd) = rustix::fs::openat(folder, name, flags, Mode::empty()) else { return };
    if let Ok(stat) = rustix::fs::fstat(&fd) {
        // Where it isn't the caller's to change, the bit does no harm either.
        let _ = rustix::fs::fchmod(&fd, Mode::from_raw_mode(stat.st_mode) - Mode::SVTX);
    }
}

/// A placeholder may come to hold another: a missing submodule's folder is one,
/// and for the next run its `.git` is missing. The deepest go first.
fn depth(path: &Path) -> usize {
    path.components().count()
}

/// A folder by itself, whatever its path.
fn key_of(folder: impl AsFd) -> io::Result<String> {
    let stat = rustix::fs::fstat(folder)?;
    Ok(format!("{}-{}", stat.st_dev, stat.st_ino))
}

fn is_key(name: &str) -> bool {
    let number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    name.split_once('-').is_some_and(|(device, inode)| number(device) && number(inode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dotfiles::protect;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    struct Place {
        _root: tempfile::TempDir,
        state: PathBuf,
        folder: PathBuf,
    }

    fn place() -> Place {
        let root = tempfile::tempdir().unwrap();
        let real = root.path().canonicalize().unwrap();
        let (state, folder) = (real.join("state"), real.join("folder"));
        fs::create_dir(&state).unwrap();
        fs::create_dir(&folder).unwrap();
        Place { _root: root, state, folder }
    }

    impl Place {
        fn start(&self) -> Placeholders {
            self.start_from(&self.state)
        }

        /// A home of its own, or another user.
        fn other_state(&self) -> PathBuf {
            let other = self.state.with_file_name("other");
            fs::create_dir(&other).unwrap();
            other
        }

        fn start_from(&self, state: &Path) -> Placeholders {
            let gate = Gate::enter(state).unwrap();
            let protection = protect(&self.folder, &[], &[]).unwrap();
            let fd = File::open(&self.folder).unwrap();
            let folder = Folder { fd: fd.as_fd(), path: &self.folder, protection: &protection };
            let placeholders = gate.place(&[folder]).unwrap();
            assert_eq!(placeholders.appeared(), [] as [PathBuf; 0]);
            placeholders
        }

        fn names(&self) -> BTreeSet<String> {
            listing(&self.folder)
        }

        fn records(&self) -> usize {
            listing(&self.state).len() - 1
        }
    }

    fn listing(folder: &Path) -> BTreeSet<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn they_are_there_while_it_runs_and_gone_after() {
        let place = place();
        let run = place.start();
        for name in [".git", ".envrc", ".vscode", "HEAD"] {
            assert!(place.folder.join(name).is_dir(), "{name}");
        }
        assert!(!place.names().contains("mise.toml"));
        run.remove().unwrap();
        assert_eq!(place.names(), BTreeSet::new());
        assert_eq!(place.records(), 0);
        drop(place.start());
        assert_eq!(place.names(), BTreeSet::new());
    }

    #[test]
    fn of_two_runs_the_last_removes_whichever_ends_first() {
        let place = place();
        for first_ends_first in [true, false] {
            let (first, second) = (place.start(), place.start());
            let during = place.names();
            assert!(during.contains(".git"));
            let (ends, stays) = if first_ends_first { (first, second) } else { (second, first) };
            ends.remove().unwrap();
            assert_eq!(place.names(), during);
            stays.remove().unwrap();
            assert_eq!(place.names(), BTreeSet::new());
            assert_eq!(place.records(), 0);
        }
    }

    #[test]
    fn a_crash_is_cleaned_by_the_next_run_and_by_a_sweep() {
        let place = place();
        place.start().crash();
        assert!(place.names().contains(".envrc"));
        place.start().remove().unwrap();
        assert_eq!(place.names(), BTreeSet::new());

        place.start().crash();
        assert!(place.names().contains(".envrc"));
        sweep(&place.state).unwrap();
        assert_eq!(place.names(), BTreeSet::new());
        assert_eq!(place.records(), 0);
    }

    #[test]
    fn a_sweep_leaves_a_running_one_alone() {
        let place = place();
        let run = place.start();
        place.start().crash();
        let during = place.names();
        sweep(&place.state).unwrap();
        assert_eq!(place.names(), during);
        run.remove().unwrap();
        assert_eq!(place.names(), BTreeSet::new());
    }

    #[test]
    fn what_the_user_puts_there_stays() {
        let place = place();
        let run = place.start();
        fs::write(place.folder.join(".vscode/settings.json"), "{}").unwrap();
        fs::remove_dir(place.folder.join(".envrc")).unwrap();
        fs::write(place.folder.join(".envrc"), "use flake").unwrap();
        fs::remove_dir(place.folder.join(".idea")).unwrap();
        run.remove().unwrap();
        assert_eq!(place.names(), [".envrc", ".vscode"].map(String::from).into());
        assert_eq!(fs::read(place.folder.join(".vscode/settings.json")).unwrap(), b"{}");
        assert_eq!(place.records(), 0);
    }

    #[test]
    fn an_empty_folder_of_the_users_is_never_taken_for_one() {
        let place = place();
        fs::create_dir(place.folder.join(".vscode")).unwrap();
        let (first, second) = (place.start(), place.start());
        first.remove().unwrap();
        second.remove().unwrap();
        assert_eq!(place.names(), [".vscode"].map(String::from).into());
    }

    #[test]
    fn what_appears_between_look_and_make_is_told_and_kept() {
        let place = place();
        let gate = Gate::enter(&place.state).unwrap();
        let protection = protect(&place.folder, &[], &[]).unwrap();
        fs::create_dir(place.folder.join(".idea")).unwrap();
        let fd = File::open(&place.folder).unwrap();
        let folder = Folder { fd: fd.as_fd(), path: &place.folder, protection: &protection };
        let run = gate.place(&[folder]).unwrap();
        assert_eq!(run.appeared(), [place.folder.join(".idea")]);
        run.remove().unwrap();
        assert_eq!(place.names(), [".idea"].map(String::from).into());
    }

    #[test]
    fn names_below_and_with_odd_bytes_are_counted_by_their_own_folder() {
        let place = place();
        let odd = Path::new(OsStr::from_bytes(b"a\nb/c \xff"));
        let inner = place.folder.join(odd);
        fs::create_dir_all(&inner).unwrap();
        let outer_run = {
            let gate = Gate::enter(&place.state).unwrap();
            let protection =
                Protection { missing: vec![odd.join("d\n.git")], ..Protection::default() };
            let fd = File::open(&place.folder).unwrap();
            let folder = Folder { fd: fd.as_fd(), path: &place.folder, protection: &protection };
            gate.place(&[folder]).unwrap()
        };
        assert!(inner.join("d\n.git").is_dir());
        // A run on the inner folder needs the same placeholder.
        let inner_run = {
            let gate = Gate::enter(&place.state).unwrap();
            let mask = crate::dotfiles::Mask {
                path: inner.join("d\n.git"),
                cover: crate::dotfiles::Cover::ReadOnly,
                identity: None,
            };
            let protection = Protection { masks: vec![mask], ..Protection::default() };
            let fd = File::open(&inner).unwrap();
            let folder = Folder { fd: fd.as_fd(), path: &inner, protection: &protection };
            gate.place(&[folder]).unwrap()
        };
        outer_run.remove().unwrap();
        assert!(inner.join("d\n.git").is_dir());
        inner_run.crash();
        sweep(&place.state).unwrap();
        assert!(!inner.join("d\n.git").exists());
    }

    #[test]
    fn runs_with_other_records_keep_each_others_and_the_last_removes() {
        let place = place();
        let other = place.other_state();
        fs::create_dir(place.folder.join(".idea")).unwrap();
        for first_ends_first in [true, false] {
            let (first, second) = (place.start(), place.start_from(&other));
            let during = place.names();
            assert!(during.contains(".envrc"));
            let (ends, stays) = if first_ends_first { (first, second) } else { (second, first) };
            ends.remove().unwrap();
            assert_eq!(place.names(), during);
            stays.remove().unwrap();
            // The user's own empty folder is none of either's.
            assert_eq!(place.names(), [".idea"].map(String::from).into());
        }
        sweep(&place.state).unwrap();
        sweep(&other).unwrap();
        assert_eq!((place.records(), listing(&other).len()), (0, 1));
    }

    #[test]
    fn a_crash_of_another_record_is_cleaned_by_whoever_comes() {
        let place = place();
        let other = place.other_state();
        place.start().crash();
        let run = place.start_from(&other);
        sweep(&place.state).unwrap();
        assert!(place.names().contains(".envrc"));
        run.remove().unwrap();
        assert_eq!(place.names(), BTreeSet::new());
    }

    /// As a program in the sandbox may.
    #[test]
    fn a_lock_on_the_folder_delays_removal_to_the_next_sweep() {
        let place = place();
        let lock = |operation| {
            let fd = OwnedFd::from(File::open(&place.folder).unwrap());
            assert!(try_flock(&fd, operation).unwrap());
            fd
        };
        for (before, operation) in [
            (false, FlockOperation::NonBlockingLockShared),
            (true, FlockOperation::NonBlockingLockShared),
            (true, FlockOperation::NonBlockingLockExclusive),
        ] {
            let early = before.then(|| lock(operation));
            let run = place.start();
            let held = early.unwrap_or_else(|| lock(operation));
            run.remove().unwrap();
            assert!(place.names().contains(".envrc"));
            sweep(&place.state).unwrap();
            assert!(place.names().contains(".envrc"));
            drop(held);
            sweep(&place.state).unwrap();
            assert_eq!(place.names(), BTreeSet::new());
            assert_eq!(place.records(), 0);
        }
    }

    #[test]
    fn the_gate_is_not_waited_for_for_ever() {
        let place = place();
        let _held = Gate::enter(&place.state).unwrap();
        let error = Gate::enter_within(&place.state, Duration::from_millis(30)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().starts_with("another lnk has held them locked for"), "{error}");
    }

    #[test]
    fn what_stands_at_a_placeholders_name_is_told() {
        let place = place();
        let run = place.start();
        let second = place.start();
        assert_eq!(run.occupied(), [] as [PathBuf; 0]);
        fs::write(place.folder.join(".vscode/settings.json"), "{}").unwrap();
        fs::remove_dir(place.folder.join(".envrc")).unwrap();
        fs::write(place.folder.join(".envrc"), "use flake").unwrap();
        fs::remove_dir(place.folder.join(".idea")).unwrap();
        fs::create_dir(place.folder.join(".idea")).unwrap();
        fs::remove_dir(place.folder.join(".zed")).unwrap();
        let expected = [".envrc", ".idea", ".vscode"].map(|name| place.folder.join(name));
        assert_eq!(run.occupied(), expected);
        assert_eq!(second.occupied(), expected);
        // What the user made of one has nothing of a placeholder any more.
        second.remove().unwrap();
        run.remove().unwrap();
        let mode = fs::metadata(place.folder.join(".vscode")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o755);
    }

    #[test]
    fn what_is_replaced_between_look_and_place_is_told() {
        let place = place();
        fs::write(place.folder.join(".envrc"), "").unwrap();
        fs::create_dir(place.folder.join(".idea")).unwrap();
        let gate = Gate::enter(&place.state).unwrap();
        let protection = protect(&place.folder, &[], &[]).unwrap();
        fs::write(place.folder.join("new"), "").unwrap();
        fs::rename(place.folder.join("new"), place.folder.join(".envrc")).unwrap();
        fs::remove_dir(place.folder.join(".idea")).unwrap();
        let fd = File::open(&place.folder).unwrap();
        let folder = Folder { fd: fd.as_fd(), path: &place.folder, protection: &protection };
        let run = gate.place(&[folder]).unwrap();
        assert_eq!(run.appeared(), [".envrc", ".idea"].map(|name| place.folder.join(name)));
    }

    #[test]
    fn a_sweep_touches_nothing_where_the_path_leads_elsewhere() {
        let place = place();
        place.start().crash();
        let moved = place.folder.with_file_name("moved");
        fs::rename(&place.folder, &moved).unwrap();
        fs::create_dir_all(place.folder.join(".git")).unwrap();
        sweep(&place.state).unwrap();
        assert!(place.folder.join(".git").is_dir());
        assert!(moved.join(".git").is_dir());
        // Back at its place, it is cleaned.
        fs::remove_dir_all(&place.folder).unwrap();
        fs::rename(&moved, &place.folder).unwrap();
        sweep(&place.state).unwrap();
        assert_eq!(place.names(), BTreeSet::new());
    }

    #[test]
    fn a_folder_that_links_away_is_refused_and_nothing_is_left() {
        let place = place();
        let away = place.folder.with_file_name("away");
        fs::create_dir(&away).unwrap();
        std::os::unix::fs::symlink(&away, place.folder.join("sub")).unwrap();
        for missing in ["sub/.git", "../away/.git", "/away/.git"] {
            let gate = Gate::enter(&place.state).unwrap();
            let missing = vec![PathBuf::from(".envrc"), PathBuf::from(missing)];
            let protection = Protection { missing, ..Protection::default() };
            let fd = File::open(&place.folder).unwrap();
            let folder = Folder { fd: fd.as_fd(), path: &place.folder, protection: &protection };
            assert!(gate.place(&[folder]).is_err());
        }
        assert_eq!(listing(&away), BTreeSet::new());
        assert_eq!(place.names(), ["sub"].map(String::from).into());
        assert_eq!(place.records(), 0);
    }

    #[test]
    fn a_name_that_cannot_be_made_takes_the_others_with_it() {
        let place = place();
        let gate = Gate::enter(&place.state).unwrap();
        let missing = vec![PathBuf::from(".envrc"), PathBuf::from("x".repeat(300))];
        let protection = Protection { missing, ..Protection::default() };
        let fd = File::open(&place.folder).unwrap();
        let folder = Folder { fd: fd.as_fd(), path: &place.folder, protection: &protection };
        assert!(gate.place(&[folder]).is_err());
        assert_eq!(place.names(), BTreeSet::new());
    }

    #[test]
    fn what_is_put_back_is_counted_as_well() {
        let place = place();
        let names = [".git", "deep/.envrc", ".vscode"];
        for crashes in [false, true] {
            fs::create_dir(place.folder.join("deep")).unwrap();
            let mut run = place.start();
            fs::remove_dir(place.folder.join(".git")).unwrap();
            fs::write(place.folder.join(".vscode/kept"), "").unwrap();
            let fd = File::open(&place.folder).unwrap();
            for name in names {
                run.put_back(fd.as_fd(), &place.folder, Path::new(name)).unwrap();
                assert!(place.folder.join(name).is_dir());
            }
            let second = place.start();
            if crashes {
                run.crash();
                second.crash();
                sweep(&place.state).unwrap();
            } else {
                run.remove().unwrap();
                assert!(place.folder.join(".git").is_dir());
                second.remove().unwrap();
            }
            assert_eq!(place.names(), ["deep", ".vscode"].map(String::from).into());
            assert_eq!(listing(&place.folder.join("deep")), BTreeSet::new());
            assert_eq!(place.records(), 0);
            fs::remove_dir_all(place.folder.join(".vscode")).unwrap();
            fs::remove_dir(place.folder.join("deep")).unwrap();
        }
    }

    #[test]
    fn placeholders_in_a_placeholder_go_first() {
        let place = place();
        let info = format!("160000,{},sub/mod", "1".repeat(40));
        for args in [&["init", "-q"][..], &["update-index", "--add", "--cacheinfo", &info]] {
            let mut git = std::process::Command::new("git");
            assert!(git.current_dir(&place.folder).args(args).status().unwrap().success());
        }
        for _ in 0..2 {
            let (first, second, third) = (place.start(), place.start(), place.start());
            assert!(place.folder.join("sub/mod/.git").is_dir());
            assert_eq!(first.occupied(), [] as [PathBuf; 0]);
            second.remove().unwrap();
            assert!(place.folder.join("sub/mod/.git").is_dir());
            first.remove().unwrap();
            third.crash();
            assert!(place.folder.join("sub/mod/.git").is_dir());
            sweep(&place.state).unwrap();
            assert_eq!(place.names(), [".git"].map(String::from).into());
        }
    }

    #[test]
    fn a_record_cut_short_counts_as_far_as_it_is_whole() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"/p\0a\0b\nc\0cut", 0).unwrap();
        let record = Record::read(&file).unwrap();
        assert_eq!(record.path, Path::new("/p"));
        assert_eq!(record.names, ["a", "b\nc"].map(OsString::from).into());
        let shorter = Record { path: "/p".into(), names: ["a".into()].into() };
        shorter.write(&file).unwrap();
        assert_eq!(Record::read(&file).unwrap(), shorter);
    }

    #[test]
    fn many_starts_and_ends_at_once_leave_nothing() {
        let place = place();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        let run = place.start();
                        assert!(place.folder.join(".git").is_dir());
                        run.remove().unwrap();
                    }
                });
            }
        });
        assert_eq!(place.names(), BTreeSet::new());
        assert_eq!(place.records(), 0);
    }
}
