//! Signal dispositions, masks and signalfd(2).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A signal that a signalfd(2) reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The signal's number.
    pub signal: i32,
    /// Whether a process sent it (`SI_USER`, `SI_QUEUE`, `SI_TKILL`), as
    /// opposed to the kernel: the terminal's keys, say.
    pub by_process: bool,
}

pub(crate) fn set_of(signals: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset(3) initialises the set, sigaddset(3) changes it; a
    // number that is no signal makes the latter fail and change nothing.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        set.assume_init()
    }
}

/// Signals taken from their usual course: blocked in this thread and reported by
/// a descriptor. What is started by execve(2) meanwhile ignores them. Dropped,
/// everything is as it was.
#[derive(Debug)]
pub struct Taken {
    reporter: OwnedFd,
    mask: libc::sigset_t,
    actions: Vec<(i32, libc::sigaction)>,
}

impl Taken {
    /// Takes `signals`; those that are no signal are left out.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM` of signalfd(2).
    pub fn new(signals: &[i32]) -> io::Result<Taken> {
        let set = set_of(signals);
        // SAFETY: the set is initialised and only read.
        let fd =
            unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        let fd = crate::checked(fd.into())?;
        // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
        let reporter = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let mut mask = set_of(&[]);
        // SAFETY: the new set is initialised and only read, the old one written.
        let blocked = unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, &raw mut mask) };
        crate::checked(blocked.into())?;
        let actions = signals.iter().filter_map(|signal| Some((*signal, action(*signal)?)));
        let taken = Taken { reporter, mask, actions: actions.collect() };
        signals.iter().for_each(|signal| ignore(*signal));
        Ok(taken)
    }

    /// The descriptor to wait on.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.reporter.as_fd()
    }

    /// Whether whoever started this process had it ignore `signal`, as
    /// nohup(1) does, or a shell that starts a job in the background.
    #[must_use]
    pub fn was_ignored(&self, signal: i32) -> bool {
        let mut actions = self.actions.iter();
        actions.any(|(taken, action)| *taken == signal && action.sa_sigaction == libc::SIG_IGN)
    }

    /// The next signal that was reported, if any.
    ///
    /// # Errors
    /// Those of read(2) but `EAGAIN`.
    pub fn next(&self) -> io::Result<Option<Received>> {
        next(self.fd())
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        for (signal, action) in &self.actions {
            // SAFETY: the action is one that sigaction(2) gave for this signal.
            unsafe { libc::sigaction(*signal, action, std::ptr::null_mut()) };
        }
        // SAFETY: the set is one that sigprocmask(2) gave, and only read.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const self.mask, std::ptr::null_mut()) };
    }
}

fn action(signal: i32) -> Option<libc::sigaction> {
    let mut action = MaybeUninit::uninit();
    // SAFETY: asks only; the kernel writes the whole action on success.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: the call succeeded and has written it.
    (asked == 0).then(|| unsafe { action.assume_init() })
}

fn next(reporter: BorrowedFd<'_>) -> io::Result<Option<Received>> {
    let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: the buffer is as large as said; a signalfd writes whole records.
    let read = unsafe { libc::read(reporter.as_raw_fd(), info.as_mut_ptr().cast(), size) };
    match crate::checked(read as libc::c_long) {
        Ok(read) if read as usize == size => {
            // SAFETY: the kernel wrote a whole record.
            let info = unsafe { info.assume_init() };
            let by_process =
                matches!(info.ssi_code, libc::SI_USER | libc::SI_QUEUE | libc::SI_TKILL);
            Ok(Some(Received { signal: info.ssi_signo as i32, by_process }))
        }
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EIO)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Ignores a signal, in this process and in what it starts by execve(2).
pub fn ignore(signal: i32) {
    // SAFETY: SIG_IGN is no handler that could run. The call fails for SIGKILL,
    // SIGSTOP and numbers that are no signal, harmlessly.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Gives a signal its default effect again.
pub fn restore_default(signal: i32) {
    // SAFETY: SIG_DFL is no handler that could run. The call fails for SIGKILL,
    // SIGSTOP and numbers that are no signal, harmlessly.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Every signal back to its default effect and none blocked: what a program
/// expects to be started with (execve(2) keeps ignored ones and the mask). The
/// C library's own signals too: its posix_spawn(3) leaves one ignored, and its
/// functions refuse to touch them.
pub fn reset_all() {
    /// A kernel's set of 64 signals, in bytes.
    const SET: usize = 8;
    // The kernel's struct sigaction in zeros: SIG_DFL, no flags, no mask.
    let default = [0u64; 4];
    let none = 0u64;
    for signal in 1..=64 {
        // SAFETY: the kernel only reads the action, which is as large as it
        // expects; SIGKILL and SIGSTOP fail, harmlessly.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                std::ptr::null_mut::<u64>(),
                SET,
            )
        };
    }
    // SAFETY: the set is of the size given and only read.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const none,
            std::ptr::null_mut::<u64>(),
            SET,
        )
    };
}

/// Stops this process as the terminal's suspend key would: nothing happens in a
/// process group that no shell watches.
pub fn suspend_self() {
    // SAFETY: raise(3) takes a number.
    unsafe { libc::raise(libc::SIGTSTP) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_signal_is_reported_and_later_as_before() {
        let before = action(libc::SIGUSR2).unwrap().sa_sigaction;
        let taken = Taken::new(&[libc::SIGUSR2]).unwrap();
        assert!(!taken.was_ignored(libc::SIGUSR2));
        assert_eq!(taken.next().unwrap(), None);
        // SAFETY: raise(3) takes a number; the signal is blocked in this thread.
        unsafe { libc::raise(libc::SIGUSR2) };
        let received = taken.next().unwrap().unwrap();
        assert_eq!(received, Received { signal: libc::SIGUSR2, by_process: true });
        drop(taken);
        assert_eq!(action(libc::SIGUSR2).unwrap().sa_sigaction, before);
    }
}
