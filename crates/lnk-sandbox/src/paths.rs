//! A path as typed, resolved once and held from then on.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use lnk_spec::shown;
use rustix::fs::{self, FileType, Mode, OFlags, ResolveFlags, Stat};

use crate::error::{Error, Result};

/// Links followed in one path before it counts as a loop, as in path_resolution(7).
const MAX_LINKS: usize = 40;

/// A file's device and inode: what it is, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Identity {
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
}

impl From<&Stat> for Identity {
    fn from(stat: &Stat) -> Self {
        Identity { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// A symbolic link that a path led through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Where the link is: its real folder and its name.
    pub at: PathBuf,
    /// What it says.
    pub to: PathBuf,
}

/// A path without links, and those that led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// The real path; its last parts may not exist.
    pub real: PathBuf,
    /// The links followed, in order.
    pub links: Vec<Link>,
    /// Whether everything on the path exists.
    pub exists: bool,
}

/// Follows an absolute path's links as the kernel would; from the first part
/// that doesn't exist the rest is taken as it is written.
///
/// # Errors
/// `ELOOP` for more than forty links, `ENOTDIR`, `EACCES`.
pub fn walk(path: &Path) -> io::Result<Walk> {
    walk_below(Path::new("/"), path)
}

/// As [`walk`], from a folder whose path is real already.
///
/// # Errors
/// As for [`walk`].
pub fn walk_below(folder: &Path, path: &Path) -> io::Result<Walk> {
    let mut left: VecDeque<PathBuf> = parts(path);
    let mut walked = Walk { real: folder.to_path_buf(), links: Vec::new(), exists: true };
    while let Some(part) = left.pop_front() {
        if part == Path::new("..") {
            walked.real.pop();
            continue;
        }
        walked.real.push(&part);
        if !walked.exists {
            continue;
        }
        match fs::lstat(&walked.real) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
                if walked.links.len() == MAX_LINKS {
                    return Err(io::Error::from_raw_os_error(libc::ELOOP));
                }
                let to = PathBuf::from(OsStr::from_bytes(
                    fs::readlink(&walked.real, Vec::new())?.to_bytes(),
                ));
                walked.links.push(Link { at: walked.real.clone(), to: to.clone() });
                if to.is_absolute() {
                    walked.real = PathBuf::from("/");
                } else {
                    walked.real.pop();
                }
                for part in parts(&to).into_iter().rev() {
                    left.push_front(part);
                }
            }
            Ok(_) => {}
            Err(rustix::io::Errno::NOENT) => walked.exists = false,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(walked)
}

/// The parts that matter: names and `..`.
fn parts(path: &Path) -> VecDeque<PathBuf> {
    path.components()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| PathBuf::from(part.as_os_str()))
        .collect()
}

/// The real path of something that may not exist; a path that can't be followed
/// is taken as written.
#[must_use]
pub fn real_or_written(path: &Path) -> PathBuf {
    real_below_or_written(Path::new("/"), path)
}

/// As [`real_or_written`], from a folder whose path is real already.
#[must_use]
pub fn real_below_or_written(folder: &Path, path: &Path) -> PathBuf {
    walk_below(folder, path).map_or_else(|_| folder.join(path), |walked| walked.real)
}

/// A file or folder of the caller's, held by descriptor from the moment it was
/// judged until it is mounted.
#[derive(Debug)]
pub struct Held {
    /// As typed.
    pub typed: PathBuf,
    /// Its real path.
    pub real: PathBuf,
    /// The links that led there.
    pub links: Vec<Link>,
    /// The name as typed, in its real folder; none for `.` and `..`.
    named: Option<PathBuf>,
    /// Its `O_PATH` descriptor.
    pub fd: OwnedFd,
    /// What the descriptor is open on.
    pub stat: Stat,
}

impl Held {
    /// Resolves and opens what `flag` was given.
    ///
    /// # Errors
    /// [`Error::Refused`] naming the flag and the path when there is no such
    /// file, or it can't be reached.
    pub fn open(flag: &str, typed: &Path, home: Option<&Path>, cwd: &Path) -> Result<Held> {
        let absolute = expand(flag, typed, home)?.unwrap_or_else(|| cwd.join(typed));
        let refused = |why: &str| Error::Refused(format!("{flag} {}: {why}", shown::word(typed)));
        let walked = walk(&absolute).map_err(|error| refused(&crate::error::reason(&error)))?;
        if !walked.exists {
            return Err(refused("no such file or folder; make it first, or name one that exists"));
        }
        let fd = open_real(&walked.real).map_err(|error| refused(&crate::error::reason(&error)))?;
        let stat = fs::fstat(&fd).map_err(|error| refused(&crate::error::reason(&error.into())))?;
        let named = absolute.parent().zip(absolute.file_name());
        let named = named.map(|(folder, name)| real_or_written(folder).join(name));
        Ok(Held {
            typed: typed.to_path_buf(),
            real: walked.real,
            links: walked.links,
            named,
            fd,
            stat,
        })
    }

    /// What is held.
    #[must_use]
    pub fn identity(&self) -> Identity {
        Identity::from(&self.stat)
    }

    /// Its kind.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// Whether what was typed is itself a link: it may lead anywhere, and
    /// whoever could write the folder it is in may have made it.
    #[must_use]
    pub fn is_link(&self) -> bool {
        self.links.iter().any(|link| Some(&link.at) == self.named.as_ref())
    }

    /// Whether the mount it is on can't be written.
    #[must_use]
    pub fn on_read_only_mount(&self) -> bool {
        fs::fstatvfs(self.fd.as_fd())
            .is_ok_and(|fs| fs.f_flag.contains(fs::StatVfsMountFlags::RDONLY))
    }
}

/// Opens a real path, failing if a link has taken the place of any of its parts.
///
/// # Errors
/// `ELOOP` for a link, and those of openat2(2).
pub fn open_real(real: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(fs::openat2(fs::CWD, real, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)
}

/// `~` and `~/…` mean the home folder; `None` for every other path.
fn expand(flag: &str, typed: &Path, home: Option<&Path>) -> Result<Option<PathBuf>> {
    let Ok(rest) = typed.strip_prefix("~") else { return Ok(None) };
    match home {
        Some(home) => Ok(Some(home.join(rest))),
        None => Err(Error::Refused(format!(
            "{flag} {}: you have no home folder here; give the path from /",
            shown::word(typed)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_followed_and_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(folder.path()).unwrap();
        std::fs::create_dir_all(base.join("real/in")).unwrap();
        symlink("real", base.join("link")).unwrap();
        symlink(base.join("link/in"), base.join("far")).unwrap();
        let walked = walk(&base.join("far/../in/./new/x")).unwrap();
        assert_eq!(walked.real, base.join("real/in/new/x"));
        assert!(!walked.exists);
        assert_eq!(walked.links.len(), 2);
        assert_eq!(walked.links[1], Link { at: base.join("link"), to: "real".into() });
    }

    #[test]
    fn a_loop_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        symlink("b", folder.path().join("a")).unwrap();
        symlink("a", folder.path().join("b")).unwrap();
        assert_eq!(walk(&folder.path().join("a")).unwrap_err().raw_os_error(), Some(libc::ELOOP));
    }

    #[test]
    fn only_a_tilde_alone_or_before_a_slash_is_the_home() {
        let folder = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(folder.path()).unwrap();
        std::fs::create_dir(base.join("~Top")).unwrap();
        std::fs::create_dir(base.join("home")).unwrap();
        let open =
            |typed: &str| Held::open("--read", Path::new(typed), Some(&base.join("home")), &base);
        assert_eq!(open("~").unwrap().real, base.join("home"));
        assert_eq!(open("~Top").unwrap().real, base.join("~Top"));
        assert!(open("~/none").unwrap_err().to_string().contains("no such file"));
    }
}
