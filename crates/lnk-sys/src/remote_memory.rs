//! Reading another process's memory.

use std::io;

use rustix::process::Pid;

/// Copies memory of a process or thread into `buffer`, with
/// `process_vm_readv(2)` (Linux 3.2).
///
/// The bytes are those at one moment or another: the other process may be
/// changing them, so what is decided on must be this copy and nothing read
/// again.
///
/// # Errors
/// `EFAULT` when any of the bytes can't be read, `ESRCH` when the process is
/// gone, `EPERM` without the right to trace it (`ptrace(2)`).
pub fn read(pid: Pid, address: u64, buffer: &mut [u8]) -> io::Result<()> {
    let address =
        usize::try_from(address).map_err(|_| io::Error::from_raw_os_error(libc::EFAULT))?;
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote =
        libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: buffer.len() };
    // SAFETY: `local` names exactly `buffer`, borrowed for the whole call, the
    // only memory of ours that is written. `remote` is an address in the other
    // process; the kernel checks it and answers EFAULT.
    let read = unsafe { libc::process_vm_readv(pid.as_raw_pid(), &local, 1, &remote, 1, 0) };
    match usize::try_from(read) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(read) if read < buffer.len() => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_is_there_and_nothing_else() {
        let me = rustix::process::getpid();
        let source = *b"some bytes";
        let mut copy = [0; 10];
        read(me, source.as_ptr().addr() as u64, &mut copy).unwrap();
        assert_eq!(copy, source);

        let nowhere = read(me, 8, &mut copy).unwrap_err();
        assert_eq!(nowhere.raw_os_error(), Some(libc::EFAULT));
        let beyond = read(me, u64::MAX, &mut copy).unwrap_err();
        assert_eq!(beyond.raw_os_error(), Some(libc::EFAULT));
    }
}
