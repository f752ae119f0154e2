//! Where records are: a folder of Link's settings, which several servers may share.
//!
//! Each command has one file, replaced as a whole. Beside it lies another of the same
//! room, for the next version of it: so the end of a command can be written down on a
//! disk that has become full meanwhile.

use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lnk_sandbox::lock;
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::record::{Record, is_id, new_id, now};

/// Bytes that are set aside for a record.
const ROOM: usize = 16 * 1024;
/// Bytes of a file that are read at most.
const MAX_BYTES: u64 = 1024 * 1024;
/// How long another server may hold the lock, which takes it milliseconds.
const LOCK: Duration = Duration::from_secs(5);
/// A day, in milliseconds.
const DAY: u64 = 24 * 60 * 60 * 1000;

/// The names of files.
const LOCKED: &str = "lock";
const STARTS: &str = "starts";
const SERVERS: &str = "servers";
const RECORD: &str = "json";
const SPARE: &str = "spare";

/// The folder, and this server in it.
pub struct Store {
    folder: PathBuf,
    /// This server's id.
    pub server: String,
    /// Locked for as long as this server lives.
    _alive: File,
}

impl Store {
    /// Enters a new server into the folder.
    ///
    /// # Errors
    /// What can't be made or locked.
    pub fn open(folder: &Path) -> io::Result<Store> {
        make_folder(&folder.join(SERVERS))?;
        let _lock = take_lock(folder)?;
        let server = new_id()?;
        let alive = lock_file(&folder.join(SERVERS).join(&server))?;
        alive.try_lock().map_err(|_| io::Error::from(io::ErrorKind::ResourceBusy))?;
        Ok(Store { folder: folder.to_owned(), server, _alive: alive })
    }

    /// Keeps all other servers out of the records.
    ///
    /// # Errors
    /// Another one holds the lock for too long.
    pub fn lock(&self) -> io::Result<Locked<'_>> {
        Ok(Locked { store: self, _lock: take_lock(&self.folder)? })
    }

    /// One record; none where there is no such.
    #[must_use]
    pub fn record(&self, id: &str) -> Option<Record> {
        is_id(id).then(|| read_record(&self.file(id, RECORD))).flatten()
    }

    /// All records, the first started first. What can't be read isn't one.
    ///
    /// # Errors
    /// The folder can't be read.
    pub fn records(&self) -> io::Result<Vec<Record>> {
        let mut records = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == RECORD) {
                records.extend(read_record(&path));
            }
        }
        records.sort_by(|a, b| (a.started, &a.id).cmp(&(b.started, &b.id)));
        Ok(records)
    }

    fn file(&self, id: &str, extension: &str) -> PathBuf {
        self.folder.join(format!("{id}.{extension}"))
    }
}

/// The records, while no other server changes them.
pub struct Locked<'s> {
    store: &'s Store,
    _lock: File,
}

impl Locked<'_> {
    /// Whether a server runs: only where its file isn't there, or isn't locked, it
    /// surely doesn't.
    #[must_use]
    pub fn is_alive(&self, server: &str) -> bool {
        let path = self.store.folder.join(SERVERS).join(server);
        server == self.store.server
            || is_id(server)
                && match File::open(path) {
                    Ok(file) => file.try_lock_shared().is_err(),
                    Err(error) => error.kind() != io::ErrorKind::NotFound,
                }
    }

    /// Forgets servers that have ended.
    pub fn forget_servers(&self) {
        let servers = std::fs::read_dir(self.store.folder.join(SERVERS));
        for entry in servers.into_iter().flatten().flatten() {
            let name = entry.file_name();
            if !name.to_str().is_some_and(|name| self.is_alive(name)) {
                // One that can't be removed is found dead again.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    /// Writes down a new record, and sets room aside for its next version.
    ///
    /// # Errors
    /// It can't be written; then nothing of it is left.
    pub fn add(&self, record: &Record) -> io::Result<()> {
        let added = self.write(record).and_then(|()| self.set_aside(&record.id));
        if added.is_err() {
            self.remove(&record.id);
        }
        added
    }

    /// Writes down a newer version of a record.
    ///
    /// # Errors
    /// It can't be written; then the last version is still there.
    pub fn update(&self, record: &Record) -> io::Result<()> {
        self.write(record)?;
        // The last version has just left as much room.
        let _ = self.set_aside(&record.id);
        Ok(())
    }

    /// Removes a record.
    pub fn remove(&self, id: &str) {
        for extension in [RECORD, SPARE] {
            // Found again later, where it can't be removed now.
            let _ = std::fs::remove_file(self.store.file(id, extension));
        }
    }

    fn write(&self, record: &Record) -> io::Result<()> {
        let text = serde_json::to_vec(record)?;
        let spare = self.store.file(&record.id, SPARE);
        replace(&spare, &self.store.file(&record.id, RECORD), &text)
    }

    fn set_aside(&self, id: &str) -> io::Result<()> {
        let path = self.store.file(id, SPARE);
        let mut file = create(&path)?;
        let filled = file.write_all(&[b' '; ROOM]).and_then(|()| file.sync_all());
        filled.inspect_err(|_| drop(std::fs::remove_file(&path)))
    }

    /// When commands started within the last day, in milliseconds since 1970. What can't
    /// be read fails: it would let more start than may.
    ///
    /// # Errors
    /// The file can't be read, or is damaged.
    pub fn starts(&self) -> io::Result<Vec<u64>> {
        let mut starts: Vec<u64> = match std::fs::read(self.store.folder.join(STARTS)) {
            Ok(bytes) => serde_json::from_slice(&bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let now = now();
        // A clock that was set back makes none of them of the future.
        for start in &mut starts {
            *start = (*start).min(now);
        }
        starts.retain(|start| now - start < DAY);
        Ok(starts)
    }

    /// Writes down when commands started.
    ///
    /// # Errors
    /// It can't be written; then the last version is still there.
    pub fn set_starts(&self, starts: &[u64]) -> io::Result<()> {
        let file = self.store.folder.join(STARTS);
        replace(&file.with_extension(SPARE), &file, &serde_json::to_vec(starts)?)
    }
}

/// Makes a file whole, by way of another.
fn replace(spare: &Path, file: &Path, content: &[u8]) -> io::Result<()> {
    let mut new = create(spare)?;
    new.write_all(content)?;
    new.set_len(content.len() as u64)?;
    new.sync_all()?;
    std::fs::rename(spare, file)?;
    let folder = file.parent().unwrap_or(Path::new("/"));
    File::open(folder)?.sync_all()
}

/// Opens a file for writing from its beginning, keeping what room it has.
fn create(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::RUSR | Mode::WUSR)?.into())
}

fn read_record(path: &Path) -> Option<Record> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    let record: Record = serde_json::from_slice(&bytes).ok()?;
    let named = path.file_stem().is_some_and(|stem| *stem == *record.id);
    (named && is_id(&record.id)).then_some(record)
}

fn make_folder(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn lock_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::RUSR | Mode::WUSR)?.into())
}

fn take_lock(folder: &Path) -> io::Result<File> {
    lock::take(&folder.join(LOCKED), LOCK)
}

#[cfg(test)]
mod tests {
    use super::super::record::{Conversation, Ended};
    use super::*;

    fn record(store: &Store) -> Record {
        Record {
            id: new_id().unwrap(),
            conversation: Conversation::Named("c".into()),
            server: store.server.clone(),
            command: "sleep 9".into(),
            started: now(),
            end: None,
            told: None,
            dropped: 0,
            unkept: 0,
            why_unkept: None,
        }
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let mut record = record(&store);
        store.lock().unwrap().add(&record).unwrap();
        assert_eq!(store.records().unwrap(), [record.clone()]);
        record.end = Some(Ended::lost());
        store.lock().unwrap().update(&record).unwrap();
        assert_eq!(store.record(&record.id), Some(record.clone()));
        std::fs::write(folder.path().join("aaaaaaaaaaaa.json"), "{").unwrap();
        std::fs::copy(store.file(&record.id, RECORD), folder.path().join("bbbbbbbbbbbb.json"))
            .unwrap();
        assert_eq!(store.records().unwrap(), [record.clone()]);
        store.lock().unwrap().remove(&record.id);
        assert_eq!(store.records().unwrap(), []);
        assert_eq!(store.record("../x"), None);
    }

    #[test]
    fn a_server_is_alive_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let one = Store::open(folder.path()).unwrap();
        let other = Store::open(folder.path()).unwrap();
        let ended = one.server.clone();
        assert!(other.lock().unwrap().is_alive(&ended));
        assert!(other.lock().unwrap().is_alive(&other.server));
        drop(one);
        assert!(!other.lock().unwrap().is_alive(&ended));
        assert!(!other.lock().unwrap().is_alive("../lock"));
        other.lock().unwrap().forget_servers();
        assert_eq!(std::fs::read_dir(folder.path().join(SERVERS)).unwrap().count(), 1);
    }

    #[test]
    fn only_starts_of_the_last_day_count() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let locked = store.lock().unwrap();
        assert_eq!(locked.starts().unwrap(), Vec::<u64>::new());
        let now = now();
        locked.set_starts(&[now - DAY - 1, now - DAY / 2, now + DAY]).unwrap();
        assert_eq!(locked.starts().unwrap().len(), 2);
        std::fs::write(folder.path().join(STARTS), "[").unwrap();
        assert!(locked.starts().is_err());
    }
}
