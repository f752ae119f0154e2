//! seccomp(2): a filter on the calling thread's system calls.
//!
//! A filter can't be taken off again. It is kept over fork(2) and execve(2),
//! and each filter added later can only refuse more.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use libc::{c_uint, c_ulong, c_void};

/// One instruction of a classic BPF program, as `struct sock_filter` of
/// linux/filter.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// The operation: `BPF_LD | BPF_W | BPF_ABS` and so on, of linux/bpf_common.h.
    pub code: u16,
    /// How many instructions a conditional jump skips when its test holds.
    pub jt: u8,
    /// How many instructions a conditional jump skips when it doesn't.
    pub jf: u8,
    /// The operand: an offset, a constant or an action.
    pub k: u32,
}

/// Puts `filter` on the calling thread and on all it starts from then on;
/// other threads that run already stay without.
///
/// A filter that answers `SECCOMP_RET_USER_NOTIF` needs
/// [`install_with_listener`]: put on by this, those calls fail with `ENOSYS`.
///
/// # Errors
/// `InvalidInput` for a filter longer than 65,535 instructions. The kernel's
/// own, by seccomp(2): `EACCES` when the thread has not set `no_new_privs`,
/// `EINVAL` when the filter is empty, longer than 4,096 instructions or not
/// valid, `ENOMEM` when all filters of the thread together are longer than
/// 32,768 instructions.
pub fn install(filter: &[Instruction]) -> io::Result<()> {
    set_filter(0, filter).map(drop)
}

/// Puts `filter` on like [`install`] and returns the descriptor on which its
/// `SECCOMP_RET_USER_NOTIF` calls arrive, for [`notify`](crate::notify). It is
/// closed on exec. Linux 5.0.
///
/// From Linux 5.19 on a call that the listener has received is only broken off
/// by a signal that kills; before, any signal restarts it, and the listener
/// sees it anew.
///
/// # Errors
/// As [`install`], and `EBUSY` when a filter of the thread has a listener
/// already.
pub fn install_with_listener(filter: &[Instruction]) -> io::Result<OwnedFd> {
    let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let number = match set_filter(listener | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, filter) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => set_filter(listener, filter)?,
        result => result?,
    };
    // SAFETY: with NEW_LISTENER a result of 0 or more is a descriptor that the
    // kernel has just opened for this call, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Whether the kernel knows `SECCOMP_RET_USER_NOTIF` (Linux 5.0, and not every
/// kernel that passes for Linux).
#[must_use]
pub fn user_notification_available() -> bool {
    let action: c_uint = libc::SECCOMP_RET_USER_NOTIF;
    // SAFETY: GET_ACTION_AVAIL only reads the 32-bit action, which outlives
    // the call.
    unsafe { call(libc::SECCOMP_GET_ACTION_AVAIL, 0, (&raw const action).cast()) }.is_ok()
}

fn set_filter(flags: c_ulong, filter: &[Instruction]) -> io::Result<RawFd> {
    let mut filter: Vec<libc::sock_filter> = filter.iter().map(|&each| each.into()).collect();
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "a seccomp filter has at most 65,535 instructions",
            )
        })?,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: SET_MODE_FILTER only reads the program and the `len` instructions
    // it points to; both outlive the call.
    unsafe { call(libc::SECCOMP_SET_MODE_FILTER, flags, (&raw const program).cast()) }
}

/// # Safety
/// `argument` points to what seccomp(2) names for `operation`.
pub(crate) unsafe fn call(
    operation: c_uint,
    flags: c_ulong,
    argument: *const c_void,
) -> io::Result<RawFd> {
    // SAFETY: the caller vouches for the argument; the rest is plain numbers.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, operation, flags, argument) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(RawFd::try_from(result).expect("seccomp(2) returns 0, a descriptor or a thread id"))
}

impl From<Instruction> for libc::sock_filter {
    fn from(instruction: Instruction) -> Self {
        Self { code: instruction.code, jt: instruction.jt, jf: instruction.jf, k: instruction.k }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(action: u32) -> Instruction {
        Instruction { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: action }
    }

    /// Filters belong to a thread, so each test puts its own on one of its own.
    fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| scope.spawn(work).join().expect("the thread doesn't panic"))
    }

    #[test]
    fn a_valid_filter_is_taken_and_others_are_refused() {
        on_a_thread(|| {
            rustix::thread::set_no_new_privs(true).expect("no_new_privs");
            install(&[answer(libc::SECCOMP_RET_ALLOW)]).expect("a filter that allows all");

            let code =
                |filter: &[Instruction]| install(filter).expect_err("refused").raw_os_error();
            assert_eq!(code(&[]), Some(libc::EINVAL));
            assert_eq!(code(&vec![answer(0x7fff_0000); 4097]), Some(libc::EINVAL));
            assert_eq!(
                code(&[Instruction { code: 0xffff, jt: 0, jf: 0, k: 0 }]),
                Some(libc::EINVAL)
            );

            let long = install(&vec![answer(0x7fff_0000); 65_536]).expect_err("refused");
            assert_eq!(long.kind(), io::ErrorKind::InvalidInput);
        });
    }

    #[test]
    fn a_second_listener_is_refused() {
        on_a_thread(|| {
            rustix::thread::set_no_new_privs(true).expect("no_new_privs");
            let allow = [answer(libc::SECCOMP_RET_ALLOW)];
            let _listener = install_with_listener(&allow).expect("the first");
            let error = install_with_listener(&allow).expect_err("the second");
            assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
        });
    }

    #[test]
    fn the_kernel_is_asked_for_notifications() {
        assert!(user_notification_available());
    }
}
