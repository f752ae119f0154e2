//! What was agreed to, by spec: `~/.config/lnk/specs/sandbox.toml`.
//!
//! It is read without a lock, since each new one takes the place of the last in
//! one step, and written under one, so that of two at once neither is lost.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lnk_spec::diff::Grants;
use lnk_spec::path::stored;
use lnk_spec::shown;
use rustix::fs::{self, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{Result, failed, reason};
use crate::lock;
use crate::spec_file::read_plain;
use crate::state::Home;

/// The file's name.
const FILE: &str = "sandbox.toml";
/// The file's bytes at most; more isn't ours.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// Specs remembered at most; the longest unchanged are forgotten first.
const MAX_SPECS: usize = 1000;
/// How long another one may hold the lock, which takes it milliseconds.
const LOCK: Duration = Duration::from_secs(10);
/// Damaged files that are kept, at most.
const MAX_DAMAGED: usize = 100;

/// All of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remembered {
    /// The specs, the last agreed to last.
    #[serde(default, rename = "spec")]
    specs: Vec<OneSpec>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OneSpec {
    /// The spec's real path.
    #[serde(with = "stored")]
    path: PathBuf,
    grants: Grants,
}

impl Remembered {
    /// The grants that were agreed to for the spec at a real path. What can't be
    /// read wasn't agreed to: a warning says so, and a damaged file is moved
    /// aside.
    #[must_use]
    pub fn of(home: &Home, spec: &Path, warnings: &mut Vec<String>) -> Option<Grants> {
        let folder = match home.specs() {
            Ok(folder) => folder,
            Err(error) => {
                warnings.push(format!("{error}; every spec asks again"));
                return None;
            }
        };
        let read = match read(&folder) {
            Err(Unread::Damaged) => {
                warnings.push(move_aside(&folder));
                return None;
            }
            Err(Unread::Io(error)) => {
                warnings.push(format!(
                    "{} can't be read: {}; every spec asks again",
                    shown::word(folder.join(FILE)),
                    reason(&error)
                ));
                return None;
            }
            Ok(read) => read,
        };
        let found = read.specs.into_iter().find(|one| one.path == spec);
        found.map(|one| one.grants)
    }
}

/// The real paths of the specs that were agreed to, the last of them last.
///
/// # Errors
/// Something on the way is somebody else's, or the file can't be read or is damaged: the
/// next run of a spec says what comes of that.
pub fn specs(home: &Home) -> io::Result<Vec<PathBuf>> {
    let folder = home.specs().map_err(|error| io::Error::other(error.to_string()))?;
    match read(&folder) {
        Ok(remembered) => Ok(remembered.specs.into_iter().map(|one| one.path).collect()),
        Err(Unread::Damaged) => Err(io::ErrorKind::InvalidData.into()),
        Err(Unread::Io(error)) => Err(error),
    }
}

/// Remembers the grants of the spec at a real path, in place of earlier ones.
///
/// # Errors
/// Naming the file, if it can't be written.
pub fn remember(home: &Home, spec: &Path, grants: Grants) -> Result<()> {
    let folder = home.make_specs()?;
    let file = folder.join(FILE);
    let what = || format!("{} can't be written", shown::word(&file));
    let _lock = lock(&folder).map_err(failed(what()))?;
    let mut remembered = match read(&folder) {
        Ok(remembered) => remembered,
        Err(Unread::Damaged) => {
            set_aside(&folder).map_err(failed(what()))?;
            Remembered::default()
        }
        Err(Unread::Io(error)) => return Err(failed(what())(error)),
    };
    remembered.specs.retain(|one| one.path != spec);
    remembered.specs.push(OneSpec { path: spec.to_path_buf(), grants });
    let over = remembered.specs.len().saturating_sub(MAX_SPECS);
    remembered.specs.drain(..over);
    write(&folder, &remembered).map_err(failed(what()))
}

enum Unread {
    Damaged,
    Io(io::Error),
}

fn read(folder: &Path) -> Result<Remembered, Unread> {
    let real = std::fs::canonicalize(folder.join(FILE));
    let bytes = match real.and_then(|real| read_plain(&real, MAX_BYTES + 1)) {
        Ok((bytes, _)) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Remembered::default()),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(Unread::Damaged),
        Err(error) => return Err(Unread::Io(error)),
    };
    let text = std::str::from_utf8(&bytes).map_err(|_| Unread::Damaged)?;
    if bytes.len() > MAX_BYTES {
        return Err(Unread::Damaged);
    }
    toml::from_str(text).map_err(|_| Unread::Damaged)
}

/// Moves a damaged file aside, unless it was mended meanwhile, and says so.
fn move_aside(folder: &Path) -> String {
    let file = shown::word(folder.join(FILE));
    let moved = lock(folder).and_then(|_lock| match read(folder) {
        Err(Unread::Damaged) => set_aside(folder).map(Some),
        _ => Ok(None),
    });
    match moved {
        Ok(Some(aside)) => {
            format!("{file} is damaged, and now is {}: every spec asks again", shown::word(aside))
        }
        Ok(None) => format!("{file} was damaged: specs may ask again"),
        Err(error) => format!(
            "{file} is damaged, and can't be moved aside: {}; every spec asks again",
            reason(&error)
        ),
    }
}

/// Gives the file the first free of the names for damaged ones.
fn set_aside(folder: &Path) -> io::Result<PathBuf> {
    let file = folder.join(FILE);
    for number in 1..=MAX_DAMAGED {
        let aside = folder.join(format!("{FILE}.damaged-{number}"));
        match fs::renameat_with(fs::CWD, &file, fs::CWD, &aside, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(aside),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::EXIST.into())
}

/// Makes the file anew, whole or not at all.
fn write(folder: &Path, remembered: &Remembered) -> io::Result<()> {
    let text = toml::to_string(remembered).map_err(io::Error::other)?;
    let new = folder.join(format!("{FILE}.new"));
    // Whoever left one behind was killed: this one has the lock.
    match fs::unlink(&new) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = File::from(fs::open(&new, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, folder.join(FILE))?;
    File::open(folder)?.sync_all()
}

fn lock(folder: &Path) -> io::Result<File> {
    lock::take(&folder.join("sandbox.lock"), LOCK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lnk_spec::diff::GrantedPath;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;

    fn reads(path: &str) -> Grants {
        let mut grants = Grants::default();
        grants.files.read = vec![GrantedPath { typed: path.parse().unwrap(), real: path.into() }];
        grants
    }

    fn home() -> (tempfile::TempDir, Home) {
        let root = tempfile::tempdir().unwrap();
        let home = Home::at(root.path().into(), rustix::process::getuid().as_raw());
        (root, home)
    }

    fn of(home: &Home, spec: &Path) -> (Option<Grants>, Vec<String>) {
        let mut warnings = Vec::new();
        (Remembered::of(home, spec, &mut warnings), warnings)
    }

    #[test]
    fn what_was_agreed_to_is_found_by_the_specs_path() {
        let (_root, home) = home();
        let strange = PathBuf::from(OsString::from_vec(b"/s\xff\n.toml".to_vec()));
        assert_eq!(of(&home, &strange), (None, vec![]));
        remember(&home, &strange, reads("/a")).unwrap();
        remember(&home, Path::new("/other"), reads("/b")).unwrap();
        remember(&home, &strange, reads("/c")).unwrap();
        assert_eq!(of(&home, &strange), (Some(reads("/c")), vec![]));
        assert_eq!(of(&home, Path::new("/other")), (Some(reads("/b")), vec![]));
        assert_eq!(of(&home, Path::new("/none")), (None, vec![]));
        assert_eq!(specs(&home).unwrap(), [Path::new("/other"), &strange]);
        let file = home.specs().unwrap().join(FILE);
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_file_is_kept_aside() {
        let (_root, home) = home();
        let folder = home.make_specs().unwrap();
        for number in 1..=2 {
            std::fs::write(folder.join(FILE), "[[spec]]\npath = 7\n").unwrap();
            let (grants, warnings) = of(&home, Path::new("/a"));
            assert_eq!((grants, warnings.len()), (None, 1));
            assert!(warnings[0].contains(&format!("{FILE}.damaged-{number}")), "{warnings:?}");
            assert_eq!(of(&home, Path::new("/a")), (None, vec![]));
        }
        std::fs::create_dir(folder.join(FILE)).unwrap();
        remember(&home, Path::new("/a"), reads("/b")).unwrap();
        assert_eq!(of(&home, Path::new("/a")).0, Some(reads("/b")));
        assert!(folder.join("sandbox.toml.damaged-3").is_dir());
    }

    #[test]
    fn of_many_at_once_none_is_lost() {
        let (_root, home) = home();
        let path = |number: usize| PathBuf::from(format!("/{number}"));
        std::thread::scope(|all| {
            for number in 0..16 {
                let home = &home;
                all.spawn(move || remember(home, &path(number), reads("/a")).unwrap());
            }
        });
        assert!((0..16).all(|number| of(&home, &path(number)).0.is_some()));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let (_root, home) = home();
        let folder = home.make_specs().unwrap();
        let one = |number| OneSpec { path: format!("/{number}").into(), grants: reads("/a") };
        write(&folder, &Remembered { specs: (0..MAX_SPECS).map(one).collect() }).unwrap();
        remember(&home, Path::new("/new"), reads("/a")).unwrap();
        assert_eq!(of(&home, Path::new("/0")).0, None);
        assert!(of(&home, Path::new("/1")).0.is_some());
        assert!(of(&home, Path::new("/new")).0.is_some());
    }
}
