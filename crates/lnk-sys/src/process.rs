//! fork(2) and what belongs to it.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{Dir, DirEntry, Mode, OFlags};

/// Which side of a fork(2) this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forked {
    /// The new process.
    Child,
    /// The old one, with the child's process id.
    Parent(i32),
}

/// Forks this process, which must be single-threaded: in a child of a process
/// with threads a lock may be held for ever by a thread that isn't there.
///
/// # Errors
/// `EAGAIN` and `ENOMEM` of fork(2), and `EBUSY` when there are other threads.
pub fn fork_single_threaded() -> io::Result<Forked> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fork_single_threaded_seen_in(rustix::fs::open("/proc", flags, Mode::empty())?.as_fd())
}

/// [`fork_single_threaded`] where `/proc` isn't one that shows this process: `proc` does.
///
/// # Errors
/// As for [`fork_single_threaded`].
pub fn fork_single_threaded_seen_in(proc: BorrowedFd<'_>) -> io::Result<Forked> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let threads = rustix::fs::openat(proc, "self/task", flags, Mode::empty())?;
    let mut threads = Dir::new(threads)?;
    let is_thread = |entry: &rustix::io::Result<DirEntry>| {
        entry.as_ref().map_or(true, |entry| !entry.file_name().to_bytes().starts_with(b"."))
    };
    if threads.by_ref().filter(is_thread).count() != 1 {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    // SAFETY: there is one thread only, so the child finds every lock free and
    // all memory consistent.
    match crate::checked(unsafe { libc::fork() }.into())? {
        0 => Ok(Forked::Child),
        child => Ok(Forked::Parent(child as i32)),
    }
}

/// Ends this process at once: no destructor and no `atexit` handler runs, which
/// in a forked child belong to the parent.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: _exit(2) can be called at any time.
    unsafe { libc::_exit(status) }
}

/// Strings in the form that execve(2) takes.
#[derive(Debug)]
pub struct CStrings(Vec<CString>);

impl CStrings {
    /// # Errors
    /// `InvalidInput` for a string with a NUL byte.
    pub fn new<S: AsRef<OsStr>>(strings: impl IntoIterator<Item = S>) -> io::Result<Self> {
        let strings = strings.into_iter().map(|string| CString::new(string.as_ref().as_bytes()));
        Ok(CStrings(strings.collect::<Result<_, _>>()?))
    }

    fn pointers(&self) -> Vec<*const libc::c_char> {
        let strings = self.0.iter().map(|string| string.as_ptr());
        strings.chain([std::ptr::null()]).collect()
    }
}

/// Replaces this process by `program`. Returns only to say why it couldn't.
pub fn exec(program: &OsStr, arguments: &CStrings, environment: &CStrings) -> io::Error {
    let Ok(program) = CString::new(program.as_bytes()) else {
        return io::Error::from_raw_os_error(libc::EINVAL);
    };
    let (arguments, environment) = (arguments.pointers(), environment.pointers());
    // SAFETY: both arrays end with a null pointer and, like the strings they
    // point to, live until execve(2) has copied them.
    unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}
