//! The listener's side of seccomp(2): system calls that wait for an answer,
//! as seccomp_unotify(2) describes.
//!
//! An answer is a result, an error, a descriptor, or that the kernel go on with
//! the call. The last grants nothing and checks nothing: the caller's memory and
//! descriptors may have changed since they were looked at. It is for calls that
//! another fence decides, and that are only to be heard of.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;

use libc::{c_ulong, seccomp_notif, seccomp_notif_addfd, seccomp_notif_resp, seccomp_notif_sizes};
use rustix::io::Errno;

/// A system call that waits for its answer.
///
/// All of it is the kernel's own copy: the caller can't change it any more.
/// What an argument points to, it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notification {
    /// Names the call in [`is_valid`] and [`respond`]; unique to the listener.
    pub id: u64,
    /// The calling **thread**, as this process's pid namespace numbers it; 0
    /// when it isn't in it. The number may name another thread by the time it
    /// is used: check [`is_valid`] after everything that was found by it.
    pub pid: u32,
    /// The system call's number in the table of `arch`.
    pub nr: i32,
    /// The `AUDIT_ARCH_*` of linux/audit.h that the call was made by.
    pub arch: u32,
    /// The arguments. A 32-bit one has anything in its upper half.
    pub args: [u64; 6],
}

/// Waits for the next call.
///
/// On kernels before 6.11 it waits for ever when no process with the filter is
/// left: poll(2) first. `POLLIN` is a call, `POLLHUP` says there will be none.
///
/// # Errors
/// Neither of these ends the listener's work: `ENOENT`, the caller was killed
/// or interrupted before the call could be handed over; `EINTR`, a signal came
/// to this process.
pub fn receive(listener: BorrowedFd<'_>) -> io::Result<Notification> {
    // The kernel insists on zeros, and writes as much as its own structure has.
    let mut buffer = zeroed_words(size_of::<seccomp_notif>().max(sizes()?.seccomp_notif.into()));
    // SAFETY: the buffer is aligned to 8 bytes as the structure is, and not
    // shorter than the kernel says it writes nor than libc's structure.
    let received = unsafe {
        let result =
            libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, buffer.as_mut_ptr());
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        // Every bit pattern is a valid seccomp_notif: it has only integers.
        buffer.as_ptr().cast::<seccomp_notif>().read()
    };
    Ok(Notification {
        id: received.id,
        pid: received.pid,
        nr: received.data.nr,
        arch: received.data.arch,
        args: received.data.args,
    })
}

/// Whether the call still waits, so that what was read of its thread since
/// [`receive`] (a descriptor, memory, a path under `/proc`) was that thread's.
#[must_use]
pub fn is_valid(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the kernel only reads the 64-bit id, which outlives the call.
    let result = unsafe {
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id)
    };
    result == 0
}

/// Ends the call: it returns the number, or fails with the error.
///
/// # Errors
/// `ENOENT` when the call doesn't wait any more, because its thread was killed
/// or interrupted; `EINPROGRESS` when it was answered before.
pub fn respond(listener: BorrowedFd<'_>, id: u64, result: Result<i64, Errno>) -> io::Result<()> {
    let (val, error) = match result {
        Ok(value) => (value, 0),
        Err(errno) => (0, -errno.raw_os_error()),
    };
    send(listener, seccomp_notif_resp { id, val, error, flags: 0 })
}

/// Lets the kernel go on with the call, as if nobody had been asked
/// (`SECCOMP_USER_NOTIF_FLAG_CONTINUE`, Linux 5.5).
///
/// Only for a call that another fence decides anyway, such as Landlock for
/// execve(2): what it does by now needn't be what was looked at.
///
/// # Errors
/// As [`respond`].
pub fn go_on(listener: BorrowedFd<'_>, id: u64) -> io::Result<()> {
    let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
    send(listener, seccomp_notif_resp { id, val: 0, error: 0, flags })
}

/// Ends the call: the caller gets a duplicate of `descriptor`, and the call
/// returns its number there (`SECCOMP_ADDFD_FLAG_SEND`, Linux 5.14).
///
/// # Errors
/// After these the call waits still, for another answer: `EMFILE`, the caller is
/// at its limit of descriptors; `EINVAL`, the kernel is older. As [`respond`]
/// otherwise.
pub fn respond_with_descriptor(
    listener: BorrowedFd<'_>,
    id: u64,
    descriptor: BorrowedFd<'_>,
    close_on_exec: bool,
) -> io::Result<()> {
    let addition = seccomp_notif_addfd {
        id,
        flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
        srcfd: descriptor.as_raw_fd().cast_unsigned(),
        newfd: 0,
        newfd_flags: if close_on_exec { libc::O_CLOEXEC.cast_unsigned() } else { 0 },
    };
    // SAFETY: the kernel only reads the structure, whose size is part of the
    // request's number, and which outlives the call.
    let result = unsafe {
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ADDFD, &raw const addition)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Has the caller and whoever listens take turns on one processor where they
/// can, which is quicker than to wake another
/// (`SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`, Linux 6.6).
///
/// # Errors
/// `EINVAL` from an older kernel; it works as before then.
pub fn wake_in_turns(listener: BorrowedFd<'_>) -> io::Result<()> {
    /// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP` of linux/seccomp.h.
    const SYNC_WAKE_UP: c_ulong = 1;
    // SAFETY: this request takes a plain number.
    let result = unsafe {
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn send(listener: BorrowedFd<'_>, response: seccomp_notif_resp) -> io::Result<()> {
    let mut buffer =
        zeroed_words(size_of::<seccomp_notif_resp>().max(sizes()?.seccomp_notif_resp.into()));
    // SAFETY: the buffer is aligned to 8 bytes as the structure is, and not
    // shorter than the kernel says it reads nor than libc's structure.
    let sent = unsafe {
        buffer.as_mut_ptr().cast::<seccomp_notif_resp>().write(response);
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, buffer.as_mut_ptr())
    };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// How long the kernel's own structures are: a later one's may be longer.
fn sizes() -> io::Result<seccomp_notif_sizes> {
    static SIZES: OnceLock<seccomp_notif_sizes> = OnceLock::new();
    if let Some(sizes) = SIZES.get() {
        return Ok(*sizes);
    }
    let mut sizes =
        seccomp_notif_sizes { seccomp_notif: 0, seccomp_notif_resp: 0, seccomp_data: 0 };
    // SAFETY: GET_NOTIF_SIZES writes one seccomp_notif_sizes, which this is.
    unsafe {
        crate::seccomp::call(libc::SECCOMP_GET_NOTIF_SIZES, 0, (&raw mut sizes).cast())?;
    }
    Ok(*SIZES.get_or_init(|| sizes))
}

fn zeroed_words(bytes: usize) -> Vec<u64> {
    vec![0; bytes.div_ceil(size_of::<u64>())]
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, FromRawFd, OwnedFd};
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::seccomp::{Instruction, install_with_listener};

    /// Asks the listener about getpgid(2) and allows the rest.
    fn ask_about_getpgid() -> Vec<Instruction> {
        let plain = |code: u32, k: u32| Instruction { code: code as u16, jt: 0, jf: 0, k };
        let number = u32::try_from(libc::SYS_getpgid).expect("numbers of calls are small");
        vec![
            plain(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
            Instruction { jf: 1, ..plain(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number) },
            plain(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_USER_NOTIF),
            plain(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        ]
    }

    /// A thread that calls getpgid(2) once for each of `arguments` and sends
    /// back what came of it: the result, or the error as a negative number.
    fn caller(arguments: &'static [i32]) -> (OwnedFd, thread::JoinHandle<Vec<i32>>) {
        let (send, receive) = mpsc::channel();
        let results = thread::spawn(move || {
            rustix::thread::set_no_new_privs(true).expect("no_new_privs");
            send.send(install_with_listener(&ask_about_getpgid()).expect("the filter"))
                .expect("the test waits");
            arguments.iter().map(|&argument| getpgid(argument)).collect()
        });
        (receive.recv().expect("the thread sends"), results)
    }

    fn getpgid(pid: i32) -> i32 {
        // SAFETY: getpgid takes and returns plain numbers.
        match unsafe { libc::getpgid(pid) } {
            -1 => -io::Error::last_os_error().raw_os_error().expect("errno"),
            group => group,
        }
    }

    #[test]
    fn a_call_is_received_and_answered() {
        let (listener, results) = caller(&[7, 8]);
        let listener = listener.as_fd();

        let first = receive(listener).expect("the first call");
        assert_eq!(i64::from(first.nr), libc::SYS_getpgid);
        assert_eq!(first.args[0], 7);
        assert_ne!(first.pid, 0);
        assert_ne!(first.pid, std::process::id(), "the thread's id, not the process's");
        assert!(is_valid(listener, first.id));
        assert!(!is_valid(listener, first.id + 1));
        respond(listener, first.id, Ok(4242)).expect("the caller waits");

        let second = receive(listener).expect("the second call");
        assert_eq!(second.args[0], 8);
        assert!(!is_valid(listener, first.id));
        respond(listener, second.id, Err(Errno::CONNREFUSED)).expect("the caller waits");

        let results = results.join().expect("the thread doesn't panic");
        assert_eq!(results, [4242, -libc::ECONNREFUSED]);
    }

    #[test]
    fn an_unknown_call_can_not_be_answered() {
        let (listener, results) = caller(&[1]);
        let listener = listener.as_fd();
        let call = receive(listener).expect("the call");
        let error = respond(listener, call.id + 1, Ok(0)).expect_err("no such call");
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
        respond(listener, call.id, Ok(0)).expect("the caller waits");
        results.join().expect("the thread doesn't panic");
    }

    #[test]
    fn a_call_that_may_go_on_does_what_it_would() {
        let (listener, results) = caller(&[0, -7]);
        let listener = listener.as_fd();
        for _ in 0..2 {
            let call = receive(listener).expect("the call");
            go_on(listener, call.id).expect("the caller waits");
            let error = go_on(listener, call.id).expect_err("it was answered");
            assert!(matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINPROGRESS)));
        }
        let results = results.join().expect("the thread doesn't panic");
        assert_eq!(results, [getpgid(0), -libc::ESRCH]);
    }

    #[test]
    fn a_descriptor_is_the_answer() {
        let (listener, results) = caller(&[1, 2]);
        let listener = listener.as_fd();
        for close_on_exec in [true, false] {
            let call = receive(listener).expect("the call");
            let (end, _other) = rustix::pipe::pipe().expect("a pipe");
            respond_with_descriptor(listener, call.id, end.as_fd(), close_on_exec)
                .expect("the caller waits");
        }
        // A thread of this process: what it got is here.
        let given = results.join().expect("the thread doesn't panic");
        let flags = given.iter().map(|&number| {
            assert!(number > 2, "no descriptor: {number}");
            // SAFETY: the kernel opened it for the thread, which is gone.
            let given = unsafe { OwnedFd::from_raw_fd(number) };
            rustix::io::fcntl_getfd(&given).expect("it is open")
        });
        let flags: Vec<_> = flags.collect();
        assert_eq!(flags, [rustix::io::FdFlags::CLOEXEC, rustix::io::FdFlags::empty()]);
    }

    #[test]
    fn a_descriptor_that_can_not_be_had_leaves_the_call_to_be_answered() {
        let (listener, results) = caller(&[1]);
        let listener = listener.as_fd();
        let call = receive(listener).expect("the call");
        let (end, _other) = rustix::pipe::pipe().expect("a pipe");
        let error = respond_with_descriptor(listener, call.id + 1, end.as_fd(), true);
        assert_eq!(error.expect_err("no such call").raw_os_error(), Some(libc::ENOENT));
        respond(listener, call.id, Err(Errno::MFILE)).expect("it waits still");
        assert_eq!(results.join().expect("the thread doesn't panic"), [-libc::EMFILE]);
    }

    #[test]
    fn turns_are_taken_where_the_kernel_knows_them() {
        let (listener, results) = caller(&[1]);
        let listener = listener.as_fd();
        if let Err(error) = wake_in_turns(listener) {
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "not an older kernel: {error}");
        }
        let call = receive(listener).expect("the call");
        respond(listener, call.id, Ok(5)).expect("the caller waits");
        assert_eq!(results.join().expect("the thread doesn't panic"), [5]);
    }
}
