//! `memfd_create(2)`, made outside: a file in memory that can be written, mapped
//! and sealed as before, and never executed (`MFD_NOEXEC_SEAL`, Linux 6.3).
//!
//! A program sees the difference by `F_SEAL_EXEC` among its seals, by its mode
//! 0666, and by `EACCES` where it asks for an executable one, which is what the
//! kernel says itself under `vm.memfd_noexec=2`. On older kernels there are no
//! files in memory, and nowhere any of huge pages, whose file system doesn't keep
//! the seal: `EPERM`.

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

use lnk_sys::notify::{self, Notification};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::process::Pid;

use super::asked::{self, String};
use crate::linux::broker::Answer;

/// Longest name: `NAME_MAX` without `memfd:`.
const NAME: usize = 249;
/// What Linux 6.18 knows but for [`HUGE_SIZE`]: a later kernel's might undo
/// `MFD_NOEXEC_SEAL`.
const KNOWN: u32 = libc::MFD_CLOEXEC
    | libc::MFD_ALLOW_SEALING
    | libc::MFD_HUGETLB
    | libc::MFD_NOEXEC_SEAL
    | libc::MFD_EXEC;
/// The size of huge pages, with `MFD_HUGETLB`.
const HUGE_SIZE: u32 = libc::MFD_HUGE_MASK << libc::MFD_HUGE_SHIFT;

pub(super) fn answer(listener: BorrowedFd<'_>, call: &Notification) -> Answer {
    match make(listener, call) {
        Ok(answer) => answer,
        Err(error) => Answer::Result(Err(error)),
    }
}

fn make(listener: BorrowedFd<'_>, call: &Notification) -> Result<Answer, Errno> {
    let [name, flags, ..] = call.args;
    let flags = check(flags as u32)?;
    if !can_be_closed_from_execution() {
        return Err(Errno::PERM);
    }
    let mut buffer = [0; NAME + 1];
    let name = match asked::string(thread(call)?, name, &mut buffer)? {
        String::Whole(name) => name,
        String::TooLong => return Err(Errno::INVAL),
    };
    if !notify::is_valid(listener, call.id) {
        return Err(Errno::SRCH);
    }
    let wanted = MemfdFlags::from_bits_retain(flags);
    let ours = MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL;
    let descriptor = memfd_create(name, wanted | ours)?;
    if !wanted.intersects(MemfdFlags::ALLOW_SEALING | MemfdFlags::NOEXEC_SEAL) {
        fcntl_add_seals(&descriptor, SealFlags::SEAL)?;
    }
    let close_on_exec = wanted.contains(MemfdFlags::CLOEXEC);
    Ok(Answer::Descriptor { descriptor, close_on_exec })
}

/// As the kernel checks them.
fn check(flags: u32) -> Result<u32, Errno> {
    let known = if flags & libc::MFD_HUGETLB == 0 { KNOWN } else { KNOWN | HUGE_SIZE };
    let both = libc::MFD_EXEC | libc::MFD_NOEXEC_SEAL;
    if flags & !known != 0 || flags & both == both {
        return Err(Errno::INVAL);
    }
    if flags & libc::MFD_EXEC != 0 {
        return Err(Errno::ACCESS);
    }
    if flags & libc::MFD_HUGETLB != 0 {
        return Err(Errno::PERM);
    }
    Ok(flags)
}

fn can_be_closed_from_execution() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    // Nothing but an unknown flag makes these arguments invalid; what else fails
    // is told by the one that is asked for.
    *CAN.get_or_init(|| {
        let probe = memfd_create("probe", MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL);
        !matches!(probe, Err(Errno::INVAL))
    })
}

fn thread(call: &Notification) -> Result<Pid, Errno> {
    asked::thread(call).ok_or(Errno::SRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_checked_as_the_kernel_does() {
        for flags in [0, 1, 2, 3, 8, 9] {
            assert_eq!(check(flags), Ok(flags));
        }
        for flags in [libc::MFD_HUGETLB, libc::MFD_HUGETLB | libc::MFD_HUGE_2MB] {
            assert_eq!(check(flags), Err(Errno::PERM));
        }
        for flags in [0x20, 0x8000_0000, libc::MFD_HUGE_2MB, 0x18] {
            assert_eq!(check(flags), Err(Errno::INVAL));
        }
        assert_eq!(check(libc::MFD_EXEC | libc::MFD_CLOEXEC), Err(Errno::ACCESS));
    }
}
