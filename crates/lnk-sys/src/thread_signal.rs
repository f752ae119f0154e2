//! Threads that take no signal but one, by which their system calls are
//! interrupted.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Once;
use std::thread;

use rustix::process::Pid;

/// The signal of [`interrupt`]. Nobody sends it by chance: it tells of urgent
/// data on a socket whose owner was set with `F_SETOWN`, and is ignored by
/// default.
const SIGNAL: libc::c_int = libc::SIGURG;

/// Starts a thread that takes no signal but that of [`interrupt`]: those for
/// the process go to its other threads.
///
/// The first call installs a handler of `SIGURG` that does nothing, for the
/// process. It replaces another one; a program that is executed has the default
/// again.
///
/// # Errors
/// `EAGAIN` at the limit of threads.
pub fn spawn_interruptible(
    builder: thread::Builder,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<thread::JoinHandle<()>> {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(install_handler);
    // The mask is inherited: no signal reaches the thread before its own mask.
    let before = change_mask(libc::SIG_SETMASK, &full_set());
    let thread = builder.spawn(move || {
        change_mask(libc::SIG_UNBLOCK, &set_of_the_signal());
        body();
    });
    change_mask(libc::SIG_SETMASK, &before);
    thread
}

/// Interrupts the system call that a thread of this process, started by
/// [`spawn_interruptible`], is in: it ends with `EINTR`. A call that the thread
/// makes only later isn't interrupted, so whoever wants a thread to stop says so
/// in memory first and calls this until it has.
///
/// # Errors
/// `ESRCH` when this process has no such thread (any more).
pub fn interrupt(thread: Pid) -> io::Result<()> {
    let process = rustix::process::getpid();
    // SAFETY: tgkill takes three numbers and touches no memory. The signal's
    // handler is installed (or its default is to be ignored) and does nothing.
    let status = unsafe {
        libc::syscall(libc::SYS_tgkill, process.as_raw_pid(), thread.as_raw_pid(), SIGNAL)
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

extern "C" fn do_nothing(_signal: libc::c_int) {}

fn install_handler() {
    // No SA_RESTART: the system call must end.
    let action = libc::sigaction {
        sa_sigaction: do_nothing as extern "C" fn(libc::c_int) as libc::sighandler_t,
        sa_mask: empty_set(),
        sa_flags: 0,
        sa_restorer: None,
    };
    // SAFETY: the action is whole, its handler is a function that lives forever
    // and may run at any moment, as it does nothing.
    let status = unsafe { libc::sigaction(SIGNAL, &raw const action, ptr::null_mut()) };
    assert_eq!(status, 0, "sigaction fails only for an invalid signal");
}

fn empty_set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset writes the whole set, so it is initialized after.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

fn full_set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigfillset writes the whole set, so it is initialized after.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        set.assume_init()
    }
}

fn set_of_the_signal() -> libc::sigset_t {
    let mut set = empty_set();
    // SAFETY: `set` is an initialized set, and the signal a valid one.
    unsafe { libc::sigaddset(&raw mut set, SIGNAL) };
    set
}

fn change_mask(how: libc::c_int, set: &libc::sigset_t) -> libc::sigset_t {
    let mut before = MaybeUninit::uninit();
    // SAFETY: `set` is initialized, and pthread_sigmask writes the whole old
    // set where it succeeds, which is asserted before it's read.
    unsafe {
        let status = libc::pthread_sigmask(how, set, before.as_mut_ptr());
        assert_eq!(status, 0, "pthread_sigmask fails only for an invalid `how`");
        before.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_blocked_call_ends_with_eintr() {
        let (tell, told) = mpsc::channel();
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let thread = spawn_interruptible(thread::Builder::new(), move || {
            tell.send(rustix::thread::gettid()).unwrap();
            let result = rustix::io::read(&reader, &mut [0_u8; 1]);
            assert_eq!(result.unwrap_err(), rustix::io::Errno::INTR);
        })
        .unwrap();
        let id = told.recv().unwrap();
        while !thread.is_finished() {
            let _gone = interrupt(id);
            thread::yield_now();
        }
        thread.join().unwrap();
        assert_eq!(interrupt(id).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
