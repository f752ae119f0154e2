//! Bait: files, folders and sockets with random names, made for one check and
//! removed whatever happens.
//!
//! Each is written down, in Link's settings, before it is made, and its device
//! and inode once they are known; only what still has those is removed. The
//! record is locked as long as its check lives, so the next check finds and
//! clears what a crash left. Nothing is made over something or through a link.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::error::{Result, failed};
use crate::paths::{Identity, open_real};
use lnk_spec::shown;

/// What a bait's name begins with.
const NAME: &str = "lnk-check-";
/// The suffix of a record's name.
const RECORD: &str = ".record";

/// All bait of one check. Dropped, it is removed.
#[derive(Debug)]
pub struct Bait {
    folder: OwnedFd,
    record_name: String,
    record: File,
    made: Vec<Entry>,
    /// Whether another check's bait is in a folder of this one's, which stays in
    /// the record until that one ends.
    shared: bool,
}

/// What was, or may have been, made.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    path: PathBuf,
    /// `None` before it is known.
    identity: Option<Identity>,
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
        Ok(Bait { folder: opened, record_name, record, made: Vec::new(), shared: false })
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

    /// Makes a folder by this name, unless something has it.
    ///
    /// # Errors
    /// `EEXIST`, and those of mkdirat(2).
    pub fn folder(&mut self, path: &Path) -> Result<(), Errno> {
        let above = path.parent().ok_or(Errno::INVAL)?;
        let name = path.file_name().ok_or(Errno::INVAL)?;
        // Known by its inode before it gets a name that isn't random.
        let (random_path, parent, random_name) = self.intend(above)?;
        rustix::fs::mkdirat(&parent, &random_name, Mode::RWXU)?;
        let stat = rustix::fs::statat(&parent, &random_name, AtFlags::SYMLINK_NOFOLLOW)?;
        self.note(&random_path, Identity::from(&stat))?;
        self.note(path, Identity::from(&stat))?;
        rustix::fs::renameat_with(&parent, &random_name, &parent, name, RenameFlags::NOREPLACE)
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
        rustix::fs::flock(&self.folder, FlockOperation::LockExclusive)
            .map_err(failed("the records of bait"))?;
        self.clear()?;
        // From here on whoever ends last clears what was shared.
        rustix::fs::flock(&self.record, FlockOperation::Unlock)
            .and_then(|()| sweep(&self.folder))
            .map_err(failed("the records of bait"))
    }

    fn clear(&mut self) -> Result<()> {
        self.shared |= !clear(&self.made)?;
        self.made.clear();
        if self.shared {
            return Ok(());
        }
        match rustix::fs::unlinkat(&self.folder, &self.record_name, AtFlags::empty()) {
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

    /// Removes it, if it is still what was made. `false` for a folder that stays
    /// because another check's bait is in it.
    fn remove(&self) -> Result<bool, Errno> {
        let found = match lstat(&self.path) {
            // Nothing is made behind a link.
            Err(Errno::LOOP | Errno::NOTDIR) if self.identity.is_none() => return Ok(true),
            found => found?,
        };
        let Some((parent, stat)) = found else { return Ok(true) };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let ours = match self.identity {
            Some(identity) => Identity::from(&stat) == identity,
            // Made, and not looked at before the crash: its name is random, and
            // there is nothing in it.
            None => {
                stat.st_uid == rustix::process::geteuid().as_raw()
                    && match kind {
                        FileType::RegularFile => stat.st_size == 0,
                        // One that isn't empty isn't removed either.
                        FileType::Directory | FileType::Socket => true,
                        _ => false,
                    }
            }
        };
        let name = self.path.file_name().filter(|_| ours);
        let Some(name) = name else { return Ok(true) };
        let flags = if kind == FileType::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match rustix::fs::unlinkat(&parent, name, flags) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            // Somebody put something into a folder: it is theirs now.
            Err(Errno::NOTEMPTY) => Ok(!has_bait(&self.path)),
            Err(error) => Err(error),
        }
    }
}

fn has_bait(folder: &Path) -> bool {
    let mut entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.any(|entry| {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        entry.file_name().as_bytes().starts_with(NAME.as_bytes())
            || (is_folder && has_bait(&entry.path()))
    })
}

/// Does something with the records in `folder`, which nobody else touches
/// meanwhile: none is made or cleared unlocked.
fn locked<T>(folder: &OwnedFd, work: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    rustix::fs::flock(folder, FlockOperation::LockExclusive)?;
    let done = work();
    rustix::fs::flock(folder, FlockOperation::Unlock)?;
    done
}

/// Latest first: a folder after what is in it. Whether all of it is gone.
fn clear(made: &[Entry]) -> Result<bool> {
    let mut result = Ok(true);
    for (index, entry) in made.iter().enumerate().rev() {
        // Once it was looked at, only that counts.
        let known = entry.identity.is_none()
            && made[index + 1..].iter().any(|later| later.path == entry.path);
        if known {
            continue;
        }
        let removed = entry.remove();
        let removed = removed.map_err(failed(format!("bait, {}", shown::word(&entry.path))));
        result = result.and_then(|whole| Ok(removed? && whole));
    }
    result
}

/// Clears the records that no check holds.
fn sweep(opened: &OwnedFd) -> Result<(), Errno> {
    // What is of use only once another record is cleared is so the second time.
    sweep_once(opened).and_then(|()| sweep_once(opened))
}

fn sweep_once(opened: &OwnedFd) -> Result<(), Errno> {
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
        if matches!(clear(&made), Ok(true)) {
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

/// 128 random bits in hexadecimal.
fn random() -> Result<String, Errno> {
    let mut bytes = [0u8; 16];
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
        bait.folder(&place.join("Link")).unwrap();
        bait.file(&place.join("Link"), b"").unwrap();
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
        crashed.folder(&place.join("Link")).unwrap();
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
    fn a_folder_that_two_share_goes_with_the_last() {
        for crashed in [false, true] {
            let (_keep, records, place) = places();
            let shared = place.join("shared");
            let mut one = Bait::begin(&records).unwrap();
            one.folder(&shared).unwrap();
            let mut other = Bait::begin(&records).unwrap();
            assert_eq!(other.folder(&shared), Err(Errno::EXIST));
            let below = shared.join("below");
            other.folder(&below).unwrap();
            other.file(&below, b"secret").unwrap();
            if crashed {
                crash(one)
            } else {
                one.remove().unwrap()
            }
            assert_eq!(count(&below), 1);
            other.remove().unwrap();
            assert_eq!((count(&place), count(&records)), (0, 0));
        }
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
        bait.folder(&place.join("folder")).unwrap();
        std::fs::write(place.join("folder/theirs"), b"").unwrap();
        bait.remove().unwrap();
        assert_eq!(std::fs::read(precious).unwrap(), b"mine");
        assert!(path.is_symlink() && expected.exists() && place.join("folder/theirs").exists());
    }

    #[test]
    fn nothing_is_made_through_a_link_or_over_something() {
        let (_temp, records, place) = places();
        symlink(&place, records.join("link")).unwrap();
        let mut bait = Bait::begin(&records).unwrap();
        assert_eq!(bait.file(&records.join("link"), b"").unwrap_err(), Errno::NOTDIR);
        std::fs::create_dir(place.join("Link")).unwrap();
        assert_eq!(bait.folder(&place.join("Link")).unwrap_err(), Errno::EXIST);
        bait.remove().unwrap();
        assert!(place.join("Link").is_dir());
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
