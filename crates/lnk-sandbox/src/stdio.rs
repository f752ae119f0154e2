//! What standard input, output and error may be.

use std::os::fd::BorrowedFd;

use rustix::fs::FileType;
use rustix::net::{AddressFamily, SocketType};

use crate::error::{Error, Result, reason};

/// Refuses streams that would be ways out of the sandbox: a folder (what lies
/// beside it can be opened through it), a socket of the machine's network, a
/// socket that can be sent to any address.
///
/// Where there is a list of programs also a file in memory, which Landlock would
/// let run whatever was written to it.
///
/// # Errors
/// [`Error::Refused`], naming the stream and what to do; [`Error::NotReady`]
/// where Landlock is there and can't be asked.
pub fn check(programs_are_listed: bool) -> Result<()> {
    let landlock = lnk_sys::landlock_abi::version()
        .map_err(|error| Error::NotReady(format!("Landlock: {}", reason(&error))))?
        .is_some();
    let streams = [
        ("standard input", rustix::stdio::stdin()),
        ("standard output", rustix::stdio::stdout()),
        ("standard error", rustix::stdio::stderr()),
    ];
    streams.iter().try_for_each(|(name, stream)| {
        match refusal(*stream, landlock).or_else(|| {
            (programs_are_listed && is_program_in_memory(*stream)).then_some(
            "is a file in memory that could be run, which no list names; give it a pipe or a file",
        )
        }) {
            None => Ok(()),
            Some(why) => Err(Error::Refused(format!("{name} {why}"))),
        }
    })
}

/// The terminals among the streams, as they were before a program had them.
#[derive(Debug)]
pub struct Terminals(Vec<(BorrowedFd<'static>, u32, bool)>);

impl Terminals {
    /// Remembers their modes, and whether they were exclusive.
    #[must_use]
    pub fn now() -> Terminals {
        let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
        let terminals = streams.into_iter().filter(|stream| rustix::termios::isatty(stream));
        let remembered = terminals.filter_map(|terminal| {
            let mode = rustix::fs::fstat(terminal).ok()?.st_mode;
            Some((terminal, mode, lnk_sys::terminal::is_exclusive(terminal).ok()?))
        });
        Terminals(remembered.collect())
    }

    /// Puts back what a program changed: others must not be let in to the
    /// caller's terminal, nor the caller be kept out. Where that fails, the
    /// terminal is gone or another's.
    pub fn restore(&self) {
        for (terminal, mode, exclusive) in &self.0 {
            let now = rustix::fs::fstat(terminal).map(|stat| stat.st_mode);
            if now.is_ok_and(|now| now != *mode) {
                let _ = rustix::fs::fchmod(terminal, rustix::fs::Mode::from_raw_mode(*mode));
            }
            if !exclusive && lnk_sys::terminal::is_exclusive(*terminal).unwrap_or(false) {
                let _ = lnk_sys::terminal::end_exclusive(*terminal);
            }
        }
    }
}

fn refusal(stream: BorrowedFd<'_>, landlock: bool) -> Option<&'static str> {
    // A closed stream is none.
    let stat = rustix::fs::fstat(stream).ok()?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Some(
            "is a folder, through which the program could leave the sandbox; give it a file or a pipe",
        ),
        FileType::Socket => socket_refusal(stream),
        FileType::RegularFile if !landlock && opens_wider(stream) => Some(
            "is a file, which only Landlock keeps from being written, and this kernel has none; give it through a pipe: cat FILE | lnk …",
        ),
        FileType::RegularFile | FileType::Fifo | FileType::CharacterDevice => None,
        _ => Some("is neither a file, a pipe nor a terminal; give it one of those"),
    }
}

/// Whether it was made by memfd_create(2), and isn't sealed against being
/// executed: it may be written, and made executable, by its descriptor.
fn is_program_in_memory(stream: BorrowedFd<'_>) -> bool {
    use std::os::fd::AsRawFd;
    /// `HUGETLBFS_MAGIC`, linux/magic.h: it doesn't keep the seal.
    const HUGE: rustix::fs::FsWord = 0x9584_58f6;
    /// `F_SEAL_EXEC`, linux/fcntl.h, Linux 6.3.
    const SEAL_EXEC: u32 = 0x20;
    let path = format!("/proc/self/fd/{}", stream.as_raw_fd());
    let shown = rustix::fs::readlink(path, Vec::new()).unwrap_or_default();
    if !shown.to_bytes().starts_with(b"/memfd:") {
        return false;
    }
    let seals = rustix::fs::fcntl_get_seals(stream).map(|seals| seals.bits());
    let huge = rustix::fs::fstatfs(stream).is_ok_and(|fs| fs.f_type == HUGE);
    huge || !seals.is_ok_and(|seals| seals & SEAL_EXEC != 0)
}

/// Whether a stream that is only read could be opened again for writing.
fn opens_wider(stream: BorrowedFd<'_>) -> bool {
    use rustix::fs::OFlags;
    let read_only =
        rustix::fs::fcntl_getfl(stream).is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDONLY);
    let mount = rustix::fs::fstatvfs(stream).map(|fs| fs.f_flag);
    read_only && !mount.is_ok_and(|flags| flags.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

fn socket_refusal(stream: BorrowedFd<'_>) -> Option<&'static str> {
    use rustix::net::sockopt;
    let local = sockopt::socket_domain(stream).is_ok_and(|domain| domain == AddressFamily::UNIX);
    if !local {
        return Some(
            "is a socket of this machine's network, which the sandbox can't hold; give it through a pipe",
        );
    }
    let stream_like = sockopt::socket_type(stream)
        .is_ok_and(|kind| kind == SocketType::STREAM || kind == SocketType::SEQPACKET);
    let connected = rustix::net::getpeername(stream).is_ok_and(|peer| peer.is_some());
    if stream_like && connected {
        None
    } else {
        Some(
            "is a socket that could be connected to others of this machine; give it through a pipe",
        )
    }
}
