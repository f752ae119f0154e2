//! What an exec asks for, as it is read from the caller.

use std::os::fd::{AsFd, OwnedFd};

use lnk_sys::notify::Notification;
use lnk_sys::remote_memory;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::linux::broker::address::{self, Start};

/// Memory is there in pages, and larger ones are multiples of this.
const PAGE: u64 = 4096;
/// Longest path, with its 0.
pub(super) const PATH: usize = libc::PATH_MAX as usize;

/// A string of the caller's memory, without its 0.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum String<'a> {
    Whole(&'a [u8]),
    /// The buffer has no 0.
    TooLong,
}

/// What the file is looked up from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum From<'a> {
    /// The root folder, by this path.
    Root(&'a [u8]),
    /// The caller's working folder, and the path from there.
    WorkingFolder(&'a [u8]),
    /// A descriptor of the caller, and the path from there; empty for what the
    /// descriptor itself is.
    Descriptor(i32, &'a [u8]),
    /// A descriptor of a process inside, by its number inside.
    DescriptorOf(&'a [u8], i32),
    /// The program that the caller is.
    Itself,
}

/// An exec.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked<'a> {
    pub(super) thread: Pid,
    pub(super) from: From<'a>,
    /// A link at the path's end isn't followed.
    pub(super) no_follow: bool,
}

impl<'a> Asked<'a> {
    /// `path` is the string that the call's arguments point to. `None` for what
    /// names no file.
    pub(super) fn new(thread: Pid, call: &Notification, path: &'a [u8]) -> Option<Self> {
        if i64::from(call.nr) == libc::SYS_execve {
            let from = (!path.is_empty()).then(|| from(path))?;
            return Some(Self { thread, from, no_follow: false });
        }
        let (folder, flags) = (as_int(call.args[0]), as_int(call.args[4]));
        let no_follow = flags & libc::AT_SYMLINK_NOFOLLOW != 0;
        let from = match from(path) {
            From::WorkingFolder([]) if flags & libc::AT_EMPTY_PATH == 0 => return None,
            From::WorkingFolder(path) if folder != libc::AT_FDCWD => From::Descriptor(folder, path),
            from => from,
        };
        Some(Self { thread, from, no_follow })
    }
}

/// Which argument of the call points to its path.
pub(super) fn path_of(call: &Notification) -> u64 {
    call.args[usize::from(i64::from(call.nr) == libc::SYS_execveat)]
}

/// Tells what a path starts from. The caller's own folders of `/proc` mean this
/// process when they are looked up here, and magic links aren't followed, so the
/// usual ones are told apart.
pub(super) fn from(path: &[u8]) -> From<'_> {
    if matches!(path, b"/proc/self/exe" | b"/proc/thread-self/exe") {
        return From::Itself;
    }
    for own in [&b"/proc/self/"[..], b"/proc/thread-self/"] {
        let Some(rest) = path.strip_prefix(own) else { continue };
        if let Some(rest) = rest.strip_prefix(b"cwd/") {
            return From::WorkingFolder(rest);
        }
        // The root folder that the program has is the sandbox's.
        if rest.starts_with(b"root/") {
            return From::Root(&rest[b"root".len()..]);
        }
    }
    match address::start(path) {
        Start::Descriptor(number, rest) => From::Descriptor(number, rest),
        Start::WorkingFolder(path) => From::WorkingFolder(path),
        Start::Root => descriptor_of(path).unwrap_or(From::Root(path)),
    }
}

/// `/proc/PID/fd/N`.
fn descriptor_of(path: &[u8]) -> Option<From<'_>> {
    let rest = path.strip_prefix(b"/proc/")?;
    let slash = rest.iter().position(|&byte| byte == b'/')?;
    let (process, number) = (&rest[..slash], rest[slash..].strip_prefix(b"/fd/")?);
    let digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    if !digits(process) || !digits(number) {
        return None;
    }
    let number = str::from_utf8(number).ok()?.parse().ok()?;
    Some(From::DescriptorOf(process, number))
}

/// The calling thread; `None` when it isn't in this process's pid namespace.
pub(super) fn thread(call: &Notification) -> Option<Pid> {
    i32::try_from(call.pid).ok().and_then(Pid::from_raw)
}

/// Copies a string, once, page by page: what comes after it may not be there.
///
/// # Errors
/// `EFAULT` when it isn't all there, `EPERM` without the right to trace the
/// thread, `ESRCH` when it is gone.
pub(super) fn string(thread: Pid, address: u64, buffer: &mut [u8]) -> Result<String<'_>, Errno> {
    let mut read = 0;
    while read < buffer.len() {
        let at = address.checked_add(read as u64).ok_or(Errno::FAULT)?;
        let in_page = (PAGE - at % PAGE) as usize;
        let end = buffer.len().min(read + in_page);
        remote_memory::read(thread, at, &mut buffer[read..end])
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::FAULT))?;
        if let Some(zero) = buffer[read..end].iter().position(|&byte| byte == 0) {
            return Ok(String::Whole(&buffer[..read + zero]));
        }
        read = end;
    }
    Ok(String::TooLong)
}

/// What a descriptor of the thread holds, as an `O_PATH` descriptor.
///
/// # Errors
/// `ENOENT` when it has no such descriptor, `EACCES` without the right to trace
/// it.
pub(super) fn descriptor(thread: Pid, number: i32) -> Result<OwnedFd, Errno> {
    open_link(CWD, &format!("/proc/{}/fd/{number}", thread.as_raw_pid()))
}

/// The program that the thread is.
///
/// # Errors
/// As [`descriptor`].
pub(super) fn itself(thread: Pid) -> Result<OwnedFd, Errno> {
    open_link(CWD, &format!("/proc/{}/exe", thread.as_raw_pid()))
}

/// The thread's working folder.
///
/// # Errors
/// As [`descriptor`].
pub(super) fn working_folder(thread: Pid) -> Result<OwnedFd, Errno> {
    open_link(CWD, &format!("/proc/{}/cwd", thread.as_raw_pid()))
}

/// What a magic link leads to.
pub(super) fn open_link(folder: impl AsFd, link: &str) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(folder, link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// An `int` argument: the register's lower half is all of it.
fn as_int(register: u64) -> i32 {
    register as u32 as i32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn me() -> Pid {
        rustix::process::getpid()
    }

    fn execve() -> Notification {
        Notification { id: 1, pid: 1, nr: libc::SYS_execve as i32, arch: 0, args: [0; 6] }
    }

    fn execveat(folder: i32, flags: i32) -> Notification {
        let mut call = Notification { nr: libc::SYS_execveat as i32, ..execve() };
        // What is above an `int` in a register doesn't count.
        call.args[0] = u64::from(folder.cast_unsigned()) | 7 << 32;
        call.args[4] = u64::from(flags.cast_unsigned()) | 7 << 32;
        call
    }

    fn of<'a>(call: &Notification, path: &'a [u8]) -> Option<From<'a>> {
        Asked::new(me(), call, path).map(|asked| asked.from)
    }

    #[test]
    fn a_path_is_told_by_what_it_starts_from() {
        let execve = execve();
        for (path, from) in [
            (&b"/bin/sh"[..], From::Root(b"/bin/sh")),
            (b"./configure", From::WorkingFolder(b"./configure")),
            (b"/proc/self/exe", From::Itself),
            (b"/proc/self/fd/7", From::Descriptor(7, b"")),
            (b"/proc/thread-self/fd/7/a", From::Descriptor(7, b"a")),
            (b"/dev/fd/7", From::Descriptor(7, b"")),
            (b"/proc/self/root/bin/sh", From::Root(b"/bin/sh")),
            (b"/proc/thread-self/cwd/a", From::WorkingFolder(b"a")),
            (b"/proc/12/fd/7", From::DescriptorOf(b"12", 7)),
            (b"/proc/12/fd/7/a", From::Root(b"/proc/12/fd/7/a")),
            (b"/proc/12/exe", From::Root(b"/proc/12/exe")),
            (b"/proc//fd/7", From::Root(b"/proc//fd/7")),
            (b"/proc/12/fd/99999999999", From::Root(b"/proc/12/fd/99999999999")),
        ] {
            assert_eq!(of(&execve, path), Some(from));
        }
        assert_eq!(of(&execve, b""), None);
    }

    #[test]
    fn execveat_starts_from_its_descriptor_unless_the_path_says_where() {
        let here = libc::AT_FDCWD;
        assert_eq!(of(&execveat(here, 0), b"a"), Some(From::WorkingFolder(b"a")));
        assert_eq!(of(&execveat(5, 0), b"a"), Some(From::Descriptor(5, b"a")));
        assert_eq!(of(&execveat(5, 0), b"/a"), Some(From::Root(b"/a")));
        assert_eq!(of(&execveat(5, 0), b"/dev/fd/6"), Some(From::Descriptor(6, b"")));
        assert_eq!(of(&execveat(5, 0), b""), None);
        let empty = execveat(5, libc::AT_EMPTY_PATH);
        assert_eq!(of(&empty, b""), Some(From::Descriptor(5, b"")));
        assert_eq!(of(&empty, b"a"), Some(From::Descriptor(5, b"a")));
    }

    #[test]
    fn a_string_is_read_up_to_the_end_of_what_is_there() {
        let text = *b"some\0thing";
        let at = |offset: usize| text.as_ptr().addr() as u64 + offset as u64;
        let mut buffer = [0; 64];
        assert_eq!(string(me(), at(0), &mut buffer), Ok(String::Whole(b"some")));
        assert_eq!(string(me(), at(4), &mut buffer), Ok(String::Whole(b"")));
        assert_eq!(string(me(), at(0), &mut buffer[..4]), Ok(String::TooLong));
        assert_eq!(string(me(), at(0), &mut buffer[..5]), Ok(String::Whole(b"some")));
        assert_eq!(string(me(), 8, &mut buffer), Err(Errno::FAULT));
        assert_eq!(string(me(), u64::MAX - 3, &mut buffer), Err(Errno::FAULT));
    }

    proptest! {
        #[test]
        fn any_path_is_told_without_panic(
            path in proptest::collection::vec(any::<u8>(), 0..40),
            tail in "(/?(proc|self|fd|dev|thread-self|exe|root|cwd|[0-9]{1,12}|\\.|\\.\\.)){0,6}",
            flags in any::<i32>(),
        ) {
            for path in [path.as_slice(), tail.as_bytes(), &[tail.as_bytes(), &path].concat()] {
                for call in [execve(), execveat(3, flags)] {
                    match of(&call, path) {
                        Some(From::Root(told)) => {
                            prop_assert!(path.ends_with(told) && told[0] == b'/');
                        }
                        Some(From::WorkingFolder(told)) => prop_assert!(path.ends_with(told)),
                        Some(From::Descriptor(number, rest)) => {
                            prop_assert!(number >= 0);
                            prop_assert!(path.ends_with(rest) || rest == b".");
                        }
                        Some(From::DescriptorOf(..) | From::Itself) => {
                            prop_assert!(path.starts_with(b"/proc/"));
                        }
                        None => prop_assert!(path.is_empty()),
                    }
                }
            }
        }
    }
}
