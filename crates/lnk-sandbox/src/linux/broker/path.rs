//! Paths as the sandbox sees them, resolved from outside.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// How often a resolution is tried again that a rename somewhere on the machine
/// disturbed (`EAGAIN` of `openat2(2)`).
const TRIES: usize = 128;

/// Opens what `path` names for a process whose root folder is `root`, as an
/// `O_PATH` descriptor. Symlinks are followed, none leads out of `root`; magic
/// links of `/proc` are refused.
///
/// # Errors
/// Those of `openat2(2)`.
pub(in crate::linux) fn open(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    open_with(root, path, false)
}

/// As [`open`]; with `no_follow` a symlink at the path's end is opened itself.
///
/// # Errors
/// As for [`open`].
pub(in crate::linux) fn open_with(
    root: BorrowedFd<'_>,
    path: &[u8],
    no_follow: bool,
) -> Result<OwnedFd, Errno> {
    let flags = if no_follow { OFlags::NOFOLLOW } else { OFlags::empty() };
    for _ in 0..TRIES {
        let opened = rustix::fs::openat2(
            root,
            path,
            OFlags::PATH | OFlags::CLOEXEC | flags,
            Mode::empty(),
            ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
        );
        if !matches!(opened, Err(Errno::AGAIN)) {
            return opened;
        }
    }
    Err(Errno::ACCESS)
}

/// Where `folder` is, below `root`.
///
/// # Errors
/// `EACCES` when no path leads to it: it was removed, lies outside or is covered
/// by a mount.
pub(in crate::linux) fn of_folder(
    root: BorrowedFd<'_>,
    folder: BorrowedFd<'_>,
) -> Result<Vec<u8>, Errno> {
    // The kernel tells a path from the root of the folder's own mounts; that it
    // is the right one from `root` is seen by going there.
    let path = rustix::fs::readlink(own(folder), Vec::new())?.into_bytes();
    let there = open(root, &path).map_err(|_| Errno::ACCESS)?;
    if is_same(there.as_fd(), folder)? { Ok(path) } else { Err(Errno::ACCESS) }
}

/// The path by which this process reaches exactly what a descriptor of its own
/// holds.
pub(in crate::linux) fn own(descriptor: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}

/// `path` from the folder `from`.
pub(in crate::linux) fn join(mut from: Vec<u8>, path: &[u8]) -> Vec<u8> {
    if !from.ends_with(b"/") {
        from.push(b'/');
    }
    from.extend_from_slice(path);
    from
}

/// Whether two descriptors hold one file.
///
/// # Errors
/// Those of `fstat(2)`.
pub(in crate::linux) fn is_same(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> Result<bool, Errno> {
    let (one, other) = (rustix::fs::fstat(one)?, rustix::fs::fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn nothing_leads_out_of_the_root() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("in")).unwrap();
        fs::write(folder.path().join("in/file"), "").unwrap();
        std::os::unix::fs::symlink("/file", folder.path().join("in/link")).unwrap();
        fs::write(folder.path().join("secret"), "").unwrap();
        let root = File::open(folder.path().join("in")).unwrap();

        assert!(open(root.as_fd(), b"/file").is_ok());
        assert!(open(root.as_fd(), b"/link").is_ok());
        assert!(open(root.as_fd(), b"/../../file").is_ok());
        assert_eq!(open(root.as_fd(), b"/../secret").unwrap_err(), Errno::NOENT);
    }

    #[test]
    fn a_folder_has_a_path_until_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let root = File::open("/").unwrap();
        let held = File::open(&inner).unwrap();
        let real = inner.canonicalize().unwrap().into_os_string().into_encoded_bytes();
        assert_eq!(of_folder(root.as_fd(), held.as_fd()), Ok(real));

        fs::remove_dir(&inner).unwrap();
        assert_eq!(of_folder(root.as_fd(), held.as_fd()), Err(Errno::ACCESS));
        fs::create_dir(folder.path().join("inner (deleted)")).unwrap();
        assert_eq!(of_folder(root.as_fd(), held.as_fd()), Err(Errno::ACCESS));
    }
}
