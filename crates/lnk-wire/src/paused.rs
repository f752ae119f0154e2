//! Which wires are closed, as it stands on disk in Link's settings.
//!
//! `stopped` is an empty file: while it's there every wire is closed. `pauses.json`
//! holds, by lasting name, what was paused and the refused calls that still count; a
//! new one takes the place of the last in one step, and is made under a lock, so that
//! it's read without one. What can't be read closes a wire. Both have their room kept, so
//! that a full disk has place for the next stop and pause.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use lnk_spec::path::stored;
use lnk_spec::shown::reason;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps, UTIME_NOW,
    fallocate, futimens, openat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::control::lock;
use crate::log::time;
use crate::pause::{Refusals, Refused, Why};

/// The file that stops every wire.
pub const STOPPED: &str = "stopped";
/// The file of all pauses.
pub const PAUSES: &str = "pauses.json";
/// A new one, until it takes the other's place: its room is kept before.
const NEW: &str = "pauses.json.new";
/// What becomes [`STOPPED`] where the disk has no place for it.
const SPARE: &str = "stopped.spare";
/// Bytes of it that are kept: enough for a hundred pauses, or for what twenty names were
/// refused.
const ROOM: u64 = 32 * 1024;
const LOCK: &str = "pauses.lock";
/// How long another one may hold the lock, which takes it milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);
/// The file's bytes at most; more isn't ours.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// Held beside the lock on disk: who is stopped with that one keeps all others from it.
static CHANGING: Mutex<()> = Mutex::new(());

/// Does what stops this process while it has no lock that other ones wait for.
pub fn between_changes<T>(act: impl FnOnce() -> T) -> T {
    let _held = changing();
    act()
}

fn changing() -> MutexGuard<'static, ()> {
    CHANGING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What pauses and counters belong to, and survive its runs with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lasting {
    /// A spec, by its real path.
    Spec(#[serde(with = "stored")] PathBuf),
    /// An agent's sandbox, by its name, which all its runs have.
    Name(String),
    /// A sandbox of no spec, by its own name: it ends with its one run.
    Run(String),
}

/// A pause of one lasting name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Since when.
    #[serde(with = "time")]
    pub since: Timestamp,
    /// Why, in one line of ASCII.
    pub reason: String,
}

/// What is kept of one lasting name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Whose it is.
    pub of: Lasting,
    /// The name that its spec had last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<String>,
    /// Its pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
    /// Its refused calls.
    #[serde(default, skip_serializing_if = "Refusals::is_empty")]
    refusals: Refusals,
}

/// All that is kept.
#[derive(Debug, Default)]
pub struct Kept {
    /// Since when every wire is stopped.
    pub stopped: Option<Timestamp>,
    /// The lasting names, in no order.
    pub entries: Vec<Entry>,
}

/// Why a wire is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// Every wire is.
    Stopped,
    /// Its lasting name is paused: why.
    Paused(String),
    /// What is kept can't be read or written: why.
    Unknown(String),
}

/// What differs whenever the files do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp([Option<(u64, u64, i64, u64)>; 2]);

/// All of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    #[serde(default, rename = "sandboxes")]
    entries: Vec<Entry>,
}

/// The state in one folder of settings.
#[derive(Debug)]
pub struct State {
    folder: OwnedFd,
}

impl State {
    /// Of the settings in `folder`, `~/.config/lnk/sandbox`.
    ///
    /// # Errors
    /// The folder can't be opened.
    pub fn open(folder: &Path) -> io::Result<State> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(State { folder: openat(CWD, folder, flags, Mode::empty())? })
    }

    /// Whether a wire is closed, and why.
    #[must_use]
    pub fn closed(&self, whose: &Lasting) -> Option<Closed> {
        match self.kept() {
            Err(error) => Some(Closed::Unknown(reason(&error))),
            Ok(kept) if kept.stopped.is_some() => Some(Closed::Stopped),
            Ok(kept) => {
                let entry = kept.entries.into_iter().find(|entry| entry.of == *whose);
                entry?.pause.map(|pause| Closed::Paused(pause.reason))
            }
        }
    }

    /// All of it.
    ///
    /// # Errors
    /// It can't be read, or is damaged (`InvalidData`).
    pub fn kept(&self) -> io::Result<Kept> {
        Ok(Kept { stopped: self.stopped()?, entries: self.read()?.entries })
    }

    /// Since when every wire is stopped.
    ///
    /// # Errors
    /// That can't be told.
    pub fn stopped(&self) -> io::Result<Option<Timestamp>> {
        let since = |stat: Stat| {
            let since = Timestamp::new(stat.st_mtime, 0);
            since.unwrap_or(Timestamp::UNIX_EPOCH)
        };
        Ok(self.stat(STOPPED)?.map(since))
    }

    /// What differs once any of it does.
    ///
    /// # Errors
    /// That can't be told.
    pub fn stamp(&self) -> io::Result<Stamp> {
        let stamp = |name| {
            let stat = self.stat(name)?;
            let of = |stat: Stat| (stat.st_dev, stat.st_ino, stat.st_ctime, stat.st_ctime_nsec);
            io::Result::Ok(stat.map(of))
        };
        Ok(Stamp([stamp(STOPPED)?, stamp(PAUSES)?]))
    }

    /// Stops every wire; `false` where that was so already.
    ///
    /// # Errors
    /// The file can't be made.
    pub fn stop(&self) -> io::Result<bool> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        match openat(&self.folder, STOPPED, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR) {
            Ok(_) => Ok(true),
            // Whatever it is, it counts.
            Err(Errno::EXIST) => Ok(false),
            Err(error) => self.stop_with_spare().map_err(|_| error.into()),
        }
    }

    fn stop_with_spare(&self) -> Result<bool, Errno> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let spare = openat(&self.folder, SPARE, flags, Mode::empty())?;
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        // Since when it's stopped.
        futimens(&spare, &Timestamps { last_access: now, last_modification: now })?;
        match renameat_with(&self.folder, SPARE, &self.folder, STOPPED, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            // Not every file system can tell whether there is one.
            Err(Errno::INVAL) => {
                renameat(&self.folder, SPARE, &self.folder, STOPPED).map(|()| true)
            }
            Err(error) => Err(error),
        }
    }

    /// Keeps room for the next stop and pause, where there is any.
    pub(crate) fn reserve(&self) {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        for (name, room) in [(SPARE, 0), (NEW, ROOM)] {
            let made = openat(&self.folder, name, flags, Mode::RUSR | Mode::WUSR);
            if let (Ok(file), 1..) = (made, room) {
                // Not every file system can; what isn't kept is found out when it's written.
                let _ = fallocate(&file, FallocateFlags::KEEP_SIZE, 0, room);
            }
        }
    }

    /// Opens what [`State::stop`] closed; `false` where nothing was stopped.
    ///
    /// # Errors
    /// The file can't be removed.
    pub fn start(&self) -> io::Result<bool> {
        match unlinkat(&self.folder, STOPPED, AtFlags::empty()) {
            Ok(()) => {
                self.reserve();
                Ok(true)
            }
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Pauses a lasting name; `false` where it was already.
    ///
    /// # Errors
    /// The file can't be read or written.
    pub fn pause(&self, whose: &Lasting, spec: Option<&str>, reason: &str) -> io::Result<bool> {
        self.change(PATIENCE, |content| {
            let entry = content.entry(whose, spec);
            let is_new = entry.pause.is_none();
            entry.pause.get_or_insert_with(|| pause(reason));
            (is_new, is_new)
        })
    }

    /// Opens it again, and begins to count anew; `false` where it wasn't paused.
    ///
    /// # Errors
    /// The file can't be read or written.
    pub fn resume(&self, whose: &Lasting) -> io::Result<bool> {
        if self.read()?.entries.iter().all(|entry| entry.of != *whose) {
            return Ok(false);
        }
        self.change(PATIENCE, |content| {
            let at = content.entries.iter().position(|entry| entry.of == *whose);
            let removed = at.map(|at| content.entries.remove(at));
            let was_paused = removed.is_some_and(|entry| entry.pause.is_some());
            (was_paused, was_paused)
        })
    }

    /// Counts refused calls, and pauses the name where they are too many.
    ///
    /// # Errors
    /// The file can't be read or written, or another one changes it for longer than
    /// `patience` (`WouldBlock`): then they aren't counted.
    pub fn refused(
        &self,
        whose: &Lasting,
        spec: Option<&str>,
        calls: &[Refused],
        patience: Duration,
    ) -> io::Result<Option<Why>> {
        self.change(patience, |content| {
            let entry = content.entry(whose, spec);
            if entry.pause.is_some() {
                return (None, false);
            }
            let why = calls.iter().fold(None, |why, call| entry.refusals.count(call).or(why));
            if let Some(why) = why {
                entry.pause = Some(pause(&why.to_string()));
                entry.refusals = Refusals::default();
            }
            (why, why.is_some())
        })
    }

    /// Whether these refused calls are too many beside those that are counted. Nothing is
    /// changed.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn too_many(&self, whose: &Lasting, calls: &[Refused]) -> io::Result<Option<Why>> {
        let mut content = self.read()?;
        let refusals = &mut content.entry(whose, None).refusals;
        Ok(calls.iter().fold(None, |why, call| refusals.count(call).or(why)))
    }

    /// Changes the file under the lock. `change` also says whether that has to be on
    /// the disk before it counts as done.
    fn change<T>(
        &self,
        patience: Duration,
        change: impl FnOnce(&mut Content) -> (T, bool),
    ) -> io::Result<T> {
        let _held = changing();
        let _lock = lock(&self.folder, LOCK, patience)?;
        let mut content = self.read()?;
        let (result, is_lasting) = change(&mut content);
        content.leave_old(Timestamp::now().as_millisecond());
        self.write(&content, is_lasting)?;
        Ok(result)
    }

    fn read(&self) -> io::Result<Content> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&self.folder, PAUSES, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(Content::default()),
            Err(error) => return Err(error.into()),
        };
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "it is damaged");
        if !file.metadata()?.is_file() {
            return Err(damaged());
        }
        let mut bytes = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut bytes)?;
        serde_json::from_slice(&bytes).map_err(|_| damaged())
    }

    fn write(&self, content: &Content, is_lasting: bool) -> io::Result<()> {
        let mut file = self.reserved().map_or_else(|| self.make_new(), Ok)?;
        file.write_all(&serde_json::to_vec(content).expect("text and numbers are JSON"))?;
        if is_lasting {
            file.sync_data()?;
        }
        renameat(&self.folder, NEW, &self.folder, PAUSES)?;
        self.reserve();
        Ok(())
    }

    /// The new file whose room was kept. One that isn't empty was left by one that was
    /// killed, or had no room.
    fn reserved(&self) -> Option<File> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(&self.folder, NEW, flags, Mode::empty()).ok()?);
        let is_new = |it: &std::fs::Metadata| it.is_file() && it.len() == 0;
        file.metadata().is_ok_and(|it| is_new(&it)).then_some(file)
    }

    fn make_new(&self) -> io::Result<File> {
        let _ = unlinkat(&self.folder, NEW, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        Ok(File::from(openat(&self.folder, NEW, flags, Mode::RUSR | Mode::WUSR)?))
    }

    fn stat(&self, name: &str) -> io::Result<Option<Stat>> {
        match statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Content {
    fn entry(&mut self, whose: &Lasting, spec: Option<&str>) -> &mut Entry {
        let at = self.entries.iter().position(|entry| entry.of == *whose);
        let at = at.unwrap_or_else(|| {
            let (of, refusals) = (whose.clone(), Refusals::default());
            self.entries.push(Entry { of, spec: None, pause: None, refusals });
            self.entries.len() - 1
        });
        let entry = &mut self.entries[at];
        entry.spec = spec.map(str::to_owned).or(entry.spec.take());
        entry
    }

    fn leave_old(&mut self, now: i64) {
        self.entries.iter_mut().for_each(|entry| entry.refusals.leave_old(now));
        self.entries.retain(|entry| entry.pause.is_some() || !entry.refusals.is_empty());
    }
}

fn pause(reason: &str) -> Pause {
    Pause { since: Timestamp::now(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn state() -> (tempfile::TempDir, State) {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path()).unwrap();
        (folder, state)
    }

    fn spec(path: &str) -> Lasting {
        Lasting::Spec(path.into())
    }

    fn refused(target: u64) -> Refused {
        let at = Timestamp::now().as_millisecond();
        Refused { at, target: format!("{target}:443"), metadata: false }
    }

    #[test]
    fn a_stop_closes_all_and_a_pause_one() {
        let (_folder, state) = state();
        let (one, other) = (spec("/one.toml"), Lasting::Run("run-1".into()));
        assert_eq!(state.closed(&one), None);
        assert!(state.pause(&one, Some("one"), "by hand").unwrap());
        assert!(!state.pause(&one, None, "again").unwrap());
        assert_eq!(state.closed(&one), Some(Closed::Paused("by hand".into())));
        assert_eq!(state.closed(&other), None);
        let kept = state.kept().unwrap().entries;
        assert_eq!((kept[0].spec.as_deref(), kept.len()), (Some("one"), 1));
        assert!(state.stop().unwrap() && !state.stop().unwrap());
        assert_eq!(state.closed(&other), Some(Closed::Stopped));
        assert!(state.start().unwrap() && !state.start().unwrap());
        assert_eq!(state.closed(&other), None);
        assert!(state.resume(&one).unwrap() && !state.resume(&one).unwrap());
        assert_eq!(state.closed(&one), None);
    }

    #[test]
    fn refused_calls_count_over_all_that_share_a_name_and_anew_after_a_resume() {
        let (folder, state) = state();
        let other = State::open(folder.path()).unwrap();
        let (one, two) = (spec("/one.toml"), spec("/two.toml"));
        for n in 0..19 {
            let state = if n % 2 == 0 { &state } else { &other };
            assert_eq!(state.refused(&one, None, &[refused(n)], PATIENCE).unwrap(), None, "{n}");
        }
        assert_eq!(state.refused(&two, None, &[refused(19)], PATIENCE).unwrap(), None);
        assert_eq!(
            other.refused(&one, None, &[refused(19)], PATIENCE).unwrap(),
            Some(Why::Targets)
        );
        assert_eq!(state.closed(&one), Some(Closed::Paused(Why::Targets.to_string())));
        assert_eq!(state.closed(&two), None);
        assert!(state.resume(&one).unwrap());
        assert_eq!(state.refused(&one, None, &[refused(20)], PATIENCE).unwrap(), None);
    }

    #[test]
    fn what_cant_be_read_closes_every_wire_and_is_not_overwritten() {
        let (folder, state) = state();
        let file = folder.path().join(PAUSES);
        let is_unknown = || matches!(state.closed(&spec("/a")), Some(Closed::Unknown(_)));
        for damaged in ["", "{", "{\"sandboxes\":[{}]}", "{\"other\":1}"] {
            fs::write(&file, damaged).unwrap();
            assert!(is_unknown(), "{damaged}");
            assert!(state.pause(&spec("/a"), None, "x").is_err());
            assert_eq!(fs::read_to_string(&file).unwrap(), damaged);
        }
        fs::remove_file(&file).unwrap();
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, "{}").unwrap();
        symlink(&elsewhere, &file).unwrap();
        assert!(is_unknown());
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert!(is_unknown());
    }

    #[test]
    fn no_link_leads_a_write_elsewhere() {
        let (folder, state) = state();
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, "untouched").unwrap();
        symlink(&elsewhere, folder.path().join(NEW)).unwrap();
        symlink(&elsewhere, folder.path().join(STOPPED)).unwrap();
        assert!(state.pause(&spec("/a"), None, "x").unwrap());
        assert!(!state.stop().unwrap());
        assert_eq!(state.closed(&spec("/b")), Some(Closed::Stopped));
        assert!(state.start().unwrap());
        fs::remove_file(folder.path().join(LOCK)).unwrap();
        symlink(&elsewhere, folder.path().join(LOCK)).unwrap();
        assert!(state.pause(&spec("/b"), None, "x").is_err());
        assert_eq!(fs::read_to_string(elsewhere).unwrap(), "untouched");
    }

    #[test]
    fn the_stamp_tells_every_change() {
        let (folder, state) = state();
        let mut stamps = vec![state.stamp().unwrap()];
        state.pause(&spec("/a"), None, "x").unwrap();
        stamps.push(state.stamp().unwrap());
        state.stop().unwrap();
        stamps.push(state.stamp().unwrap());
        state.resume(&spec("/a")).unwrap();
        stamps.push(state.stamp().unwrap());
        fs::remove_file(folder.path().join(PAUSES)).unwrap();
        stamps.push(state.stamp().unwrap());
        assert!(stamps.windows(2).all(|two| two[0] != two[1]), "{stamps:?}");
        assert_eq!(state.stamp().unwrap(), stamps[4]);
    }

    #[test]
    fn nothing_stops_this_process_while_it_has_the_lock() {
        let (_folder, state) = state();
        let (is_changing, changing) = std::sync::mpsc::channel();
        let (go_on, hold) = std::sync::mpsc::channel::<()>();
        let state = &state;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                state.change(PATIENCE, |_| {
                    is_changing.send(()).unwrap();
                    ((), hold.recv().is_err())
                })
            });
            changing.recv().unwrap();
            assert!(CHANGING.try_lock().is_err());
            drop(go_on);
            // Others can have it, as it isn't held here.
            between_changes(|| lock(&state.folder, LOCK, Duration::ZERO).map(drop)).unwrap();
        });
    }

    #[test]
    fn a_stop_and_a_pause_have_their_room() {
        let (folder, state) = state();
        state.reserve();
        let kept = |name| fs::metadata(folder.path().join(name)).unwrap();
        let inode = |name| std::os::unix::fs::MetadataExt::ino(&kept(name));
        let blocks = |name| std::os::unix::fs::MetadataExt::blocks(&kept(name));
        assert!(blocks(NEW) * 512 >= ROOM && kept(NEW).len() == 0);
        let (new, spare) = (inode(NEW), inode(SPARE));
        state.pause(&spec("/a"), None, "x").unwrap();
        assert_eq!(inode(PAUSES), new);
        assert!(blocks(NEW) * 512 >= ROOM, "for the next");
        assert!(state.stop_with_spare().unwrap());
        assert_eq!((inode(STOPPED), state.stop().unwrap()), (spare, false));
        let since = state.stopped().unwrap().unwrap();
        assert!(Timestamp::now().duration_since(since).as_secs() < 60);
        // Left by one that had no room for all of it.
        fs::write(folder.path().join(NEW), "{").unwrap();
        state.pause(&spec("/b"), None, "x").unwrap();
        assert_eq!(state.kept().unwrap().entries.len(), 2);
        assert!(state.start().unwrap());
        assert!(folder.path().join(SPARE).exists());
    }

    #[test]
    fn a_path_that_isnt_text_is_kept_whole() {
        use std::os::unix::ffi::OsStringExt as _;
        let (_folder, state) = state();
        let odd = Lasting::Spec(std::ffi::OsString::from_vec(b"/a\xff.toml".to_vec()).into());
        state.pause(&odd, None, "x").unwrap();
        assert!(state.closed(&odd).is_some() && state.closed(&spec("/a")).is_none());
    }
}
