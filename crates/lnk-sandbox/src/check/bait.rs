//! Bait: files and sockets with random names, made for one check and
//! removed whatever happens.
//!
//! Each is written down, in Link's settings, before it is made, and its device
//! and inode once they are known; only what still has those is removed. The
//! record is locked as long as its check lives, so the next check finds and
//! clears what a crash left. Nothing is made over something or through a link.
//! The folders that some of it is in are placeholders (`dotfiles/placeholder.rs`),
//! which runs and checks share.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::agents::Agents;
use crate::dotfiles::Placeholders;
use crate::error::{Result, failed};
use crate::paths::{Identity, open_real};
use lnk_spec::shown;

/// What a bait's name begins with.
const NAME: &str = "lnk-check-";
/// How many random bytes its rest stands for.
const RANDOM: usize = 16;
/// The suffix of a record's name.
const RECORD: &str = ".record";

/// All bait of one check. Dropped, it is removed.
#[derive(Debug)]
pub struct Bait {
    folder: OwnedFd,
    record_name: String,
    record: File,
    made: Vec<Entry>,
    /// Folders that bait is in: removed once that is.
    agents: Option<Placeholders>,
}

/// What was, or may have been, made.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    path: PathBuf,
    /// `None` before it is known.
    identity: Option<Identity>,
}

/// Whether a file's name is one that bait has.
pub fn is_bait(name: &[u8]) -> bool {
    let random = name.strip_prefix(NAME.as_bytes());
    random.is_some_and(|hex| hex.len() == 2 * RANDOM && hex.iter().all(u8::is_ascii_hexdigit))
}

impl Bait {
    /// Clears what earlier checks left behind, and begins a new record in
    /// `folder`.
    ///
    /// # Errors
    /// Naming the folder.
    pub fn begin(folder: &Path) -> Result<Bait> {
        let named = || format!("the records of bait, {}", shown::word(folder));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(folder, flags, Mode::empty()).map_err(failed(named()))?;
        let record_name = format!("{}{RECORD}", random().map_err(failed("/dev/urandom"))?);
        let record = locked(&opened, || {
            sweep(&opened)?;
            new_record(&opened, &record_name)
        });
        let record = record.map_err(failed(named()))?;
        Ok(Bait { folder: opened, record_name, record, made: Vec::new(), agents: None })
    }

    /// A name that nothing has.
    ///
    /// # Errors
    /// `/dev/urandom` can't be read.
    pub fn name() -> Result<String> {
        Ok(format!("{NAME}{}", random().map_err(failed("/dev/urandom"))?))
    }

    /// Makes a file, for its owner alone, holding `content`, in a folder given
    /// by its real path.
    ///
    /// # Errors
    /// Those of openat2(2): `EACCES`, `EROFS` where the folder can't be written.
    pub fn file(&mut self, folder: &Path, content: &[u8]) -> Result<PathBuf, Errno> {
        let (path, parent, name) = self.intend(folder)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&parent, &name, flags, Mode::RUSR | Mode::WUSR)?;
        // An entry without identity is removed while it is empty only.
        self.note(&path, Identity::from(&rustix::fs::fstat(&file)?))?;
        File::from(file).write_all(content).map_err(errno)?;
        Ok(path)
    }

    /// Agents' folders of a home, made where they don't exist, and there until
    /// all bait is removed. `placeholders` is the folder of their records.
    ///
    /// # Errors
    /// Those of [`Agents::make`].
    pub fn agents(&mut self, placeholders: &Path, home: &Path) -> io::Result<PathBuf> {
        let (path, held) = Agents::make(placeholders, home)?;
        self.agents = Some(held);
        Ok(path)
    }

    /// Makes a listening stream socket.
    ///
    /// # Errors
    /// Those of bind(2).
    pub fn listener(&mut self, folder: &Path) -> Result<(UnixListener, PathBuf), Errno> {
        let (path, by_parent, _parent) = self.socket_path(folder)?;
        let socket = UnixListener::bind(by_parent).map_err(errno)?;
        self.note_made(&path)?;
        Ok((socket, path))
    }

    /// Makes a datagram socket.
    ///
    /// # Errors
    /// Those of bind(2).
    pub fn datagram(&mut self, folder: &Path) -> Result<(UnixDatagram, PathBuf), Errno> {
        let (path, by_parent, _parent) = self.socket_path(folder)?;
        let socket = UnixDatagram::bind(by_parent).map_err(errno)?;
        self.note_made(&path)?;
        Ok((socket, path))
    }

    /// A name in a folder at which a try may make an empty file, to be removed
    /// with the rest.
    ///
    /// # Errors
    /// The record can't be written.
    pub fn expect(&mut self, folder: &Path) -> Result<PathBuf, Errno> {
        self.intend(folder).map(|(path, _, _)| path)
    }

    fn socket_path(&mut self, folder: &Path) -> Result<(PathBuf, PathBuf, OwnedFd), Errno> {
        let (path, parent, name) = self.intend(folder)?;
        // Past the length that an address has room for.
        let by_parent = format!("/proc/self/fd/{}/{name}", parent.as_raw_fd());
        Ok((path, by_parent.into(), parent))
    }

    /// Writes down what will be made in a folder, by a random name.
    fn intend(&mut self, folder: &Path) -> Result<(PathBuf, OwnedFd, String), Errno> {
        let parent = open_real(folder).map_err(errno)?;
        let name = format!("{NAME}{}", random()?);
        let path = folder.join(&name);
        self.write_down(Entry { path: path.clone(), identity: None })?;
        Ok((path, parent, name))
    }

    fn note_made(&mut self, path: &Path) -> Result<(), Errno> {
        let stat = lstat(path)?.ok_or(Errno::NOENT)?.1;
        self.note(path, Identity::from(&stat))
    }

    fn note(&mut self, path: &Path, identity: Identity) -> Result<(), Errno> {
        self.write_down(Entry { path: path.to_path_buf(), identity: Some(identity) })
    }

    fn write_down(&mut self, entry: Entry) -> Result<(), Errno> {
        self.record.write_all(entry.line().as_bytes()).map_err(errno)?;
        self.made.push(entry);
        Ok(())
    }

    /// Removes it all, and the record.
    ///
    /// # Errors
    /// Naming what is left; the next check tries again.
    pub fn remove(mut self) -> Result<()> {
        self.clear()?;
        let agents = self.agents.take().map_or(Ok(()), Placeholders::remove);
        agents.map_err(failed("the empty folders in place of agents'"))
    }

    fn clear(&mut self) -> Result<()> {
        clear(&self.made)?;
        self.made.clear();
        let removed = locked(&self.folder, || {
            rustix::fs::unlinkat(&self.folder, &self.record_name, AtFlags::empty())
        });
        match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(failed("the record of bait")(error)),
        }
    }
}

impl Drop for Bait {
    fn drop(&mut self) {
        // What is left stays in the record, for the next check.
        let _ = self.clear();
    }
}

impl Entry {
    /// `DEVICE INODE PATH` in hexadecimal, `- - PATH` before they are known.
    fn line(&self) -> String {
        let path: String =
            self.path.as_os_str().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        match self.identity {
            Some(Identity { device, inode }) => format!("{device:x} {inode:x} {path}\n"),
            None => format!("- - {path}\n"),
        }
    }

    /// A line cut short by a crash was never acted upon.
    fn parse(line: &str) -> Option<Entry> {
        let mut fields = line.strip_suffix('\n')?.split(' ');
        let (device, inode, path) = (fields.next()?, fields.next()?, fields.next()?);
        let number = |field| u64::from_str_radix(field, 16).ok();
        let identity = match device {
            "-" => None,
            _ => Some(Identity { device: number(device)?, inode: number(inode)? }),
        };
        let bytes = (0..path.len())
            .step_by(2)
            .map(|at| path.get(at..at + 2).and_then(|byte| u8::from_str_radix(byte, 16).ok()));
        let path = PathBuf::from(std::ffi::OsString::from_vec(bytes.collect::<Option<_>>()?));
        path.is_absolute().then_some(Entry { path, identity })
    }

    /// Removes it, if it is still what was made.
    fn remove(&self) -> Result<(), Errno> {
        let found = match lstat(&self.path) {
            // Nothing is made behind a link.
            Err(Errno::LOOP | Errno::NOTDIR) if self.identity.is_none() => return Ok(()),
            found => found?,
        };
        let Some((parent, stat)) = found else { return Ok(()) };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let ours = match self.identity {
            Some(identity) => Identity::from(&stat) == identity,
            // Made, and not looked at before the crash: its name is random, and
            // there is nothing in it.
            None => {
                stat.st_uid == rustix::process::geteuid().as_raw()
                    && match kind {
                        FileType::RegularFile => stat.st_size == 0,
                        FileType::Socket => true,
                        _ => false,
                    }
            }
        };
        let name = self.path.file_name().filter(|_| ours);
        let Some(name) = name else { return Ok(()) };
        match rustix::fs::unlinkat(&parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Does something with the records in `folder`, which nobody else touches
/// meanwhile: none is made or cleared unlocked.
fn locked<T>(folder: &OwnedFd, work: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    rustix::fs::flock(folder, FlockOperation::LockExclusive)?;
    let done = work();
    rustix::fs::flock(folder, FlockOperation::Unlock)?;
    done
}

/// All that was made.
fn clear(made: &[Entry]) -> Result<()> {
    let mut result = Ok(());
    for (index, entry) in made.iter().enumerate() {
        // Once it was looked at, only that counts.
        let known = entry.identity.is_none()
            && made[index + 1..].iter().any(|later| later.path == entry.path);
        if known {
            continue;
        }
        let removed = entry.remove();
        let removed = removed.map_err(failed(format!("bait, {}", shown::word(&entry.path))));
        result = result.and(removed);
    }
    result
}

/// Clears the records that no check holds.
fn sweep(opened: &OwnedFd) -> Result<(), Errno> {
    let folder = format!("/proc/self/fd/{}", opened.as_raw_fd());
    for entry in std::fs::read_dir(folder).map_err(errno)?.flatten() {
        let name = entry.file_name();
        if !name.as_bytes().ends_with(RECORD.as_bytes()) {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(record) = rustix::fs::openat(opened, &name, flags, Mode::empty()) else { continue };
        if rustix::fs::flock(&record, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        let mut text = String::new();
        File::from(record).read_to_string(&mut text).map_err(errno)?;
        let made: Vec<Entry> = text.split_inclusive('\n').filter_map(Entry::parse).collect();
        if clear(&made).is_ok() {
            rustix::fs::unlinkat(opened, &name, AtFlags::empty())?;
        }
    }
    Ok(())
}

fn new_record(folder: &OwnedFd, name: &str) -> Result<File, Errno> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let record = rustix::fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::flock(&record, FlockOperation::NonBlockingLockExclusive)?;
    Ok(File::from(record))
}

/// What is at a path that no link leads to, and its folder; `None` for nothing.
/// A link or file where its folder was is an error: the folder may be back later,
/// with what is in it.
fn lstat(path: &Path) -> Result<Option<(OwnedFd, Stat)>, Errno> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    let parent = match open_real(folder).map_err(errno) {
        Err(Errno::NOENT) => return Ok(None),
        parent => parent?,
    };
    match rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some((parent, stat))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether something is at a path that no link leads to.
#[must_use]
pub fn exists(path: &Path) -> bool {
    lstat(path).is_ok_and(|found| found.is_some())
}

/// The identity of an open file.
///
/// # Errors
/// Those of fstat(2).
pub fn identity(file: BorrowedFd<'_>) -> Result<Identity, Errno> {
    Ok(Identity::from(&rustix::fs::fstat(file.as_fd())?))
}

/// Random bytes, in hexadecimal.
fn random() -> Result<String, Errno> {
    let mut bytes = [0u8; RANDOM];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).map_err(errno)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn places() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let temp = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(temp.path()).unwrap();
        let (records, place) = (base.join("records"), base.join("place"));
        std::fs::create_dir(&records).unwrap();
        std::fs::create_dir(&place).unwrap();
        (temp, records, place)
    }

    fn count(folder: &Path) -> usize {
        std::fs::read_dir(folder).unwrap().count()
    }

    /// As a crash leaves it: nothing is removed, the lock is gone.
    fn crash(mut bait: Bait) {
        bait.agents.take().into_iter().for_each(Placeholders::crash);
        bait.made.clear();
        bait.record_name = "none".into();
    }

    #[test]
    fn behind_a_link_for_a_moment_it_is_removed_by_the_next() {
        let (temp, records, place) = places();
        let mut bait = Bait::begin(&records).unwrap();
        let path = bait.file(&place, b"secret").unwrap();
        let away = temp.path().join("away");
        std::fs::rename(&place, &away).unwrap();
        symlink("elsewhere", &place).unwrap();
        assert!(bait.remove().is_err());
        std::fs::remove_file(&place).unwrap();
        std::fs::rename(&away, &place).unwrap();
        assert!(path.exists());
        Bait::begin(&records).unwrap().remove().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn it_is_removed_at_the_end() {
        let (_temp, records, place) = places();
        let mut bait = Bait::begin(&records).unwrap();
        let path = bait.file(&place, b"secret").unwrap();
        assert_eq!(std::fs::read(path).unwrap(), b"secret");
        bait.listener(&place).unwrap();
        bait.datagram(&place).unwrap();
        let expected = bait.expect(&place).unwrap();
        std::fs::write(expected, b"").unwrap();
        bait.remove().unwrap();
        assert_eq!((count(&records), count(&place)), (0, 0));
    }

    #[test]
    fn the_next_one_clears_what_a_crash_left_and_not_what_another_holds() {
        let (_temp, records, place) = places();
        let mut crashed = Bait::begin(&records).unwrap();
        let left = crashed.file(&place, b"secret").unwrap();
        crash(crashed);
        let mut living = Bait::begin(&records).unwrap();
        assert!(!left.exists());
        let held = living.file(&place, b"secret").unwrap();
        drop(Bait::begin(&records).unwrap());
        assert!(held.exists());
        drop(living);
        assert_eq!((count(&records), count(&place)), (0, 0));
    }

    #[test]
    fn agents_folders_that_two_share_go_with_the_last() {
        let (temp, records, place) = places();
        let state = temp.path().join("state");
        std::fs::create_dir(&state).unwrap();
        for first_ends_first in [true, false] {
            let mut one = Bait::begin(&records).unwrap();
            let agents = one.agents(&state, &place).unwrap();
            assert_eq!(agents, place.join("Link/Agents"));
            one.file(&agents, b"secret").unwrap();
            let mut other = Bait::begin(&records).unwrap();
            assert_eq!(other.agents(&state, &place).unwrap(), agents);
            other.file(&agents, b"secret").unwrap();
            let (ends, stays) = if first_ends_first { (one, other) } else { (other, one) };
            ends.remove().unwrap();
            assert_eq!(count(&agents), 1);
            stays.remove().unwrap();
            assert_eq!((count(&place), count(&records)), (0, 0));
        }
    }

    #[test]
    fn a_sweep_of_placeholders_keeps_those_with_a_crashed_checks_bait_until_that_is_gone() {
        let (temp, records, place) = places();
        let state = temp.path().join("state");
        std::fs::create_dir(&state).unwrap();
        let mut bait = Bait::begin(&records).unwrap();
        let agents = bait.agents(&state, &place).unwrap();
        bait.file(&agents, b"secret").unwrap();
        crash(bait);
        for _ in 0..2 {
            crate::dotfiles::sweep(&state).unwrap();
            assert_eq!(count(&agents), 1);
        }
        Bait::begin(&records).unwrap().remove().unwrap();
        assert_eq!(count(&agents), 0);
        crate::dotfiles::sweep(&state).unwrap();
        assert_eq!((count(&place), count(&records), count(&state)), (0, 0, 1));
    }

    #[test]
    fn what_took_its_place_stays() {
        let (_temp, records, place) = places();
        let mut bait = Bait::begin(&records).unwrap();
        let path = bait.file(&place, b"secret").unwrap();
        let precious = place.join("precious");
        std::fs::write(&precious, b"mine").unwrap();
        std::fs::rename(&path, place.join("moved")).unwrap();
        symlink(&precious, &path).unwrap();
        let expected = bait.expect(&place).unwrap();
        std::fs::write(&expected, b"something").unwrap();
        bait.remove().unwrap();
        assert_eq!(std::fs::read(precious).unwrap(), b"mine");
        assert!(path.is_symlink() && expected.exists());
    }

    #[test]
    fn nothing_is_made_through_a_link() {
        let (_temp, records, place) = places();
        symlink(&place, records.join("link")).unwrap();
        let mut bait = Bait::begin(&records).unwrap();
        assert_eq!(bait.file(&records.join("link"), b"").unwrap_err(), Errno::NOTDIR);
        bait.remove().unwrap();
        assert_eq!(count(&place), 0);
    }

    #[test]
    fn only_a_whole_name_is_baits() {
        let name = Bait::name().unwrap();
        assert!(is_bait(name.as_bytes()));
        for other in [&name[1..], &name[..name.len() - 1], "lnk-check-", "notes"] {
            assert!(!is_bait(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn a_record_is_read_back_whole_and_never_in_part() {
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(b"/a b\n\xff"));
        for identity in [None, Some(Identity { device: 7, inode: u64::MAX })] {
            let entry = Entry { path: path.clone(), identity };
            assert_eq!(Entry::parse(&entry.line()), Some(entry.clone()));
            assert_eq!(Entry::parse(entry.line().trim_end()), None);
        }
        for broken in ["\n", "- -\n", "- - zz\n", "x y 2f\n", "- - 2\n", "- - 61\n"] {
            assert_eq!(Entry::parse(broken), None, "{broken:?}");
        }
    }
}
