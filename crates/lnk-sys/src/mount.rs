//! mount_setattr(2), which rustix lacks.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `struct mount_attr`, linux/mount.h.
#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

/// What a mount must not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Nothing below can be written.
    pub read_only: bool,
    /// Device nodes below can't be opened.
    pub no_devices: bool,
    /// Nothing below can be executed.
    pub no_exec: bool,
}

/// Sets attributes on the mount at `mount` (a descriptor from open_tree(2),
/// fsmount(2) or an `O_PATH` of a mount's root), with setuid bits always
/// ignored, and on every mount below it when `recursive`. Detaches it from
/// propagation: nothing mounted later on either side appears on the other.
///
/// Linux 5.12 and newer.
///
/// # Errors
/// Those of mount_setattr(2); `ENOSYS` on older kernels.
pub fn set_attributes(
    mount: BorrowedFd<'_>,
    attributes: Attributes,
    recursive: bool,
) -> io::Result<()> {
    let mut set = libc::MOUNT_ATTR_NOSUID;
    if attributes.read_only {
        set |= libc::MOUNT_ATTR_RDONLY;
    }
    if attributes.no_devices {
        set |= libc::MOUNT_ATTR_NODEV;
    }
    if attributes.no_exec {
        set |= libc::MOUNT_ATTR_NOEXEC;
    }
    let attr = MountAttr { set, clear: 0, propagation: libc::MS_PRIVATE, userns: 0 };
    setattr(mount, if recursive { libc::AT_RECURSIVE } else { 0 }, &attr)
}

fn setattr(mount: BorrowedFd<'_>, flags: libc::c_int, attr: &MountAttr) -> io::Result<()> {
    // SAFETY: the path is a C string, `attr` has the size given and outlives
    // the call, which only reads it.
    crate::checked(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags | libc::AT_EMPTY_PATH,
            std::ptr::from_ref(attr),
            size_of::<MountAttr>(),
        )
    })
    .map(drop)
}

/// Detaches the mount at `mount`, and every mount below it, from propagation.
///
/// Linux 5.12 and newer.
///
/// # Errors
/// Those of mount_setattr(2).
pub fn make_private(mount: BorrowedFd<'_>) -> io::Result<()> {
    let attr = MountAttr { set: 0, clear: 0, propagation: libc::MS_PRIVATE, userns: 0 };
    setattr(mount, libc::AT_RECURSIVE, &attr)
}

/// The user namespace that owns the namespace open at `namespace`, ioctl_ns(2).
///
/// # Errors
/// `EPERM` when it lies outside the caller's own user namespace.
pub fn owning_user_namespace(namespace: BorrowedFd<'_>) -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::FromRawFd;
    /// `NS_GET_USERNS`, linux/nsfs.h.
    const NS_GET_USERNS: libc::c_ulong = 0xb701;
    // SAFETY: the request takes no argument and returns a new descriptor.
    let fd = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_USERNS) };
    let fd = crate::checked(fd.into())?;
    // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
    Ok(unsafe { std::os::fd::OwnedFd::from_raw_fd(fd as i32) })
}
