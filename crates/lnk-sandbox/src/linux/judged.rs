//! What was judged outside, looked at again inside before anything runs.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, Stat, StatVfsMountFlags};
use serde::{Deserialize, Serialize};

use crate::paths::Identity;

/// A string of the operating system's.
pub type Bytes = Vec<u8>;

/// A path, which is any bytes: serde takes a `PathBuf` for text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Place(Bytes);

impl From<&PathBuf> for Place {
    fn from(path: &PathBuf) -> Self {
        Place(path.as_os_str().as_bytes().to_vec())
    }
}

impl From<&Path> for Place {
    fn from(path: &Path) -> Self {
        Place(path.as_os_str().as_bytes().to_vec())
    }
}

impl AsRef<Path> for Place {
    fn as_ref(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }
}

/// What must be seen at a path.
#[derive(Debug, Serialize, Deserialize)]
pub enum Expected {
    /// The file or folder that was judged.
    Bound {
        /// Where.
        at: Place,
        /// What.
        identity: Identity,
        /// Whether its mount may be writable.
        write: bool,
    },
    /// Something of this mode in a file system in memory.
    InMemory {
        /// Where.
        at: Place,
        /// Its permission bits.
        mode: u32,
    },
}

/// What may be executed.
#[derive(Debug, Serialize, Deserialize)]
pub enum Executable {
    /// A program, or a folder of them, as it was judged.
    Judged {
        /// Where.
        at: Place,
        /// What.
        identity: Identity,
    },
    /// A loader's copy, in a file system in memory.
    Loader(Place),
}

/// `TMPFS_MAGIC`, linux/magic.h.
const TMPFS: i64 = 0x0102_1994;

/// Refuses what isn't at its path as it was judged.
///
/// # Errors
/// A sentence that names the path.
pub fn expect(expected: &Expected) -> Result<(), String> {
    let (Expected::Bound { at, .. } | Expected::InMemory { at, .. }) = expected;
    let at = at.as_ref();
    let other = || changed(at);
    let (fd, stat) = open(at)?;
    let as_expected = match expected {
        Expected::Bound { identity, write, .. } => {
            let mount = rustix::fs::fstatvfs(&fd).map_err(|_| other())?.f_flag;
            Identity::from(&stat) == *identity
                && (*write || mount.contains(StatVfsMountFlags::RDONLY))
        }
        Expected::InMemory { mode, .. } => {
            let kind = rustix::fs::fstatfs(&fd).map_err(|_| other())?.f_type;
            kind as i64 == TMPFS && stat.st_mode & 0o7777 == *mode
        }
    };
    if as_expected { Ok(()) } else { Err(other()) }
}

impl Executable {
    /// Holds it, the very file that was judged.
    ///
    /// # Errors
    /// A sentence where another is there by now.
    pub fn hold(&self) -> Result<OwnedFd, String> {
        let (Executable::Judged { at, .. } | Executable::Loader(at)) = self;
        let at = at.as_ref();
        let (fd, stat) = open(at)?;
        let as_judged = match self {
            Executable::Judged { identity, .. } => Identity::from(&stat) == *identity,
            Executable::Loader(_) => {
                rustix::fs::fstatfs(&fd).map_err(|_| changed(at))?.f_type as i64 == TMPFS
            }
        };
        if as_judged { Ok(fd) } else { Err(changed(at)) }
    }
}

/// Opens a path without following any link.
fn open(at: &Path) -> Result<(OwnedFd, Stat), String> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd =
        rustix::fs::openat2(rustix::fs::CWD, at, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
            .map_err(|_| changed(at))?;
    let stat = rustix::fs::fstat(&fd).map_err(|_| changed(at))?;
    Ok((fd, stat))
}

fn changed(at: &Path) -> String {
    format!("{} changed while the sandbox was built", lnk_spec::shown::word(at))
}
