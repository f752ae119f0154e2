//! Placing mounts in a sandbox's tree, by descriptors alone: no path is looked
//! up twice, and no link is followed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use crate::paths::Identity;
use lnk_sys::mount::{Attributes, set_attributes};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags};

/// What a mount of the machine's own gets: no setuid, no devices.
#[must_use]
pub fn bound(write: bool) -> Attributes {
    Attributes { read_only: !write, no_devices: true, no_exec: false }
}

/// Device nodes of the machine's that a sandbox has; bubblewrap's own choice,
/// and the joiner's.
pub const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// What a device node gets. On a read-only mount a device is written as before,
/// but its mode, owner and times, which are the machine's, stay.
pub const DEVICE: Attributes = Attributes { read_only: true, no_devices: false, no_exec: true };

/// Opens a path below `root` without following any link, its last part neither.
///
/// # Errors
/// `ELOOP` or `EXDEV` where a link is met, and those of openat2(2).
pub fn open_below(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let relative = path.strip_prefix("/").unwrap_or(path);
    let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    loop {
        match openat2(root, relative, flags, Mode::empty(), resolve) {
            // A rename somewhere while it looked; try again.
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return Ok(opened?),
        }
    }
}

/// A detached copy of what is at an `O_PATH` descriptor, with the mounts below
/// it, and these attributes.
///
/// # Errors
/// Those of open_tree(2) and mount_setattr(2).
pub fn copy_of(place: BorrowedFd<'_>, attributes: Attributes) -> io::Result<OwnedFd> {
    let tree = bare_copy_of(place)?;
    set_attributes(tree.as_fd(), attributes, true)?;
    Ok(tree)
}

/// [`copy_of`] without attributes, to be set once it is attached.
///
/// # Errors
/// Those of open_tree(2).
pub fn bare_copy_of(place: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    Ok(rustix::mount::open_tree(place, c"", flags)?)
}

/// Attaches a detached mount over what `place` is open on, a link itself too.
///
/// # Errors
/// Those of move_mount(2).
pub fn attach(mount: BorrowedFd<'_>, place: BorrowedFd<'_>) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(mount, c"", place, c"", flags)?)
}

/// A new, detached file system in memory.
///
/// # Errors
/// Those of fsopen(2), `EOVERFLOW` while the user namespace has no map yet.
pub fn tmpfs(mode: u32) -> io::Result<OwnedFd> {
    use rustix::mount::{fsconfig_create, fsconfig_set_string, fsmount, fsopen};
    let context = fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), c"mode", format!("{mode:o}"))?;
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// A new, detached set of pseudo terminals.
///
/// # Errors
/// Those of fsopen(2); older kernels want user 0 mapped.
pub fn devpts() -> io::Result<OwnedFd> {
    use rustix::mount::{fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen};
    let context = fsopen(c"devpts", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_flag(context.as_fd(), c"newinstance")?;
    fsconfig_set_string(context.as_fd(), c"ptmxmode", c"0666")?;
    fsconfig_set_string(context.as_fd(), c"mode", c"620")?;
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// Opens a folder below `root`, making it and its parents where they are
/// missing.
///
/// # Errors
/// Those of [`open_below`] and mkdirat(2).
pub fn folder(root: BorrowedFd<'_>, path: &Path, mode: u32) -> io::Result<OwnedFd> {
    match open_below(root, path) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
        opened => return opened,
    }
    let mode = Mode::from_raw_mode(mode);
    let made = in_parent(root, path, |parent, name| rustix::fs::mkdirat(parent, name, mode))?;
    match made {
        Ok(()) | Err(Errno::EXIST) => open_below(root, path),
        Err(error) => Err(error.into()),
    }
}

/// Opens a file below `root` to mount on, making it and its parents where they
/// are missing.
///
/// # Errors
/// Those of [`folder`] and openat(2).
pub fn file(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    match open_below(root, path) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
        opened => return opened,
    }
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = in_parent(root, path, |parent, name| {
        rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o444))
    })?;
    Ok(made?)
}

/// Makes a file with this content; one that is there stays as it is and is an
/// error.
///
/// # Errors
/// Those of [`folder`], openat(2) and write(2).
pub fn write_file(root: BorrowedFd<'_>, path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = in_parent(root, path, |parent, name| {
        rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o600))
    })??;
    let mut left = content;
    while !left.is_empty() {
        left = &left[rustix::io::write(&file, left)?..];
    }
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
    Ok(())
}

/// Makes a symbolic link; the same link being there already is fine.
///
/// # Errors
/// Those of [`folder`] and symlinkat(2).
pub fn link(root: BorrowedFd<'_>, path: &Path, to: &Path) -> io::Result<()> {
    let made =
        in_parent(root, path, |parent, name| match rustix::fs::symlinkat(to, parent, name) {
            Err(Errno::EXIST) => rustix::fs::readlinkat(parent, name, Vec::new()).map(Some),
            made => made.map(|()| None),
        })?;
    match made? {
        Some(there) => {
            let same = there.to_bytes() == to.as_os_str().as_encoded_bytes();
            if same { Ok(()) } else { Err(Errno::EXIST.into()) }
        }
        None => Ok(()),
    }
}

/// Does something with a path's parent, made where it is missing, and its name.
fn in_parent<T>(
    root: BorrowedFd<'_>,
    path: &Path,
    act: impl FnOnce(BorrowedFd<'_>, &std::ffi::OsStr) -> T,
) -> io::Result<T> {
    let (parent, name) = parent_and_name(path)?;
    if parent.as_os_str().is_empty() || parent == Path::new("/") {
        return Ok(act(root, name));
    }
    let parent = folder(root, parent, 0o755)?;
    Ok(act(parent.as_fd(), name))
}

fn parent_and_name(path: &Path) -> io::Result<(&Path, &std::ffi::OsStr)> {
    path.parent().zip(path.file_name()).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Which mount a descriptor is on, statx(2) (Linux 5.8).
///
/// # Errors
/// Those of statx(2).
pub fn mount_id(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let stat = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, rustix::fs::StatxFlags::MNT_ID)?;
    Ok(stat.stx_mnt_id)
}

/// What is at `path` below `root`, if it still is what was judged.
///
/// # Errors
/// `ESTALE` for something else, and those of [`open_below`].
pub fn place_if_same(root: BorrowedFd<'_>, path: &Path, identity: Identity) -> io::Result<OwnedFd> {
    let place = open_below(root, path)?;
    if Identity::from(&rustix::fs::fstat(&place)?) != identity {
        return Err(io::Error::from_raw_os_error(libc::ESTALE));
    }
    Ok(place)
}

/// Covers `target`, a link itself if it is one, by a generated file; if it still
/// is what was judged.
///
/// # Errors
/// `ESTALE` for something else, and those of [`copy_of`] and [`attach`].
pub fn cover(
    root: BorrowedFd<'_>,
    target: &Path,
    from: &Path,
    over: Option<Identity>,
) -> io::Result<()> {
    let from = open_below(root, from)?;
    let copy = copy_of(from.as_fd(), bound(false))?;
    let place = match over {
        Some(identity) => place_if_same(root, target, identity)?,
        None => open_below(root, target)?,
    };
    attach(copy.as_fd(), place.as_fd())
}
