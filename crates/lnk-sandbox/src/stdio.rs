//! What standard input, output and error may be.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use rustix::fs::FileType;
use rustix::net::{AddressFamily, SocketType};

use crate::error::{Error, Result, reason};
use crate::mountinfo::Mounts;
use crate::paths::Identity;
use crate::programs::ProgramList;

/// Refuses streams that would be ways out of the sandbox: a folder (what lies
/// beside it can be opened through it), a socket of the machine's network, a
/// socket that can be sent to any address.
///
/// # Errors
/// [`Error::Refused`], naming the stream and what to do; [`Error::NotReady`]
/// where Landlock is there and can't be asked.
pub fn check() -> Result<()> {
    let landlock = lnk_sys::landlock_abi::version()
        .map_err(|error| Error::NotReady(format!("Landlock: {}", reason(&error))))?
        .is_some();
    let streams = [
        ("standard input", rustix::stdio::stdin()),
        ("standard output", rustix::stdio::stdout()),
        ("standard error", rustix::stdio::stderr()),
    ];
    streams.iter().try_for_each(|(name, stream)| match refusal(*stream, landlock) {
        None => Ok(()),
        Some(why) => Err(Error::Refused(format!("{name} {why}"))),
    })
}

/// Refuses streams by which a program could run that no list names: by its
/// descriptor a file is executed that the sandbox's tree doesn't show.
///
/// # Errors
/// [`Error::Refused`], naming the stream and what to do.
pub fn check_against(list: &ProgramList, mounts: &Mounts) -> Result<()> {
    let streams = [
        ("standard input", rustix::stdio::stdin()),
        ("standard output", rustix::stdio::stdout()),
        ("standard error", rustix::stdio::stderr()),
    ];
    streams.iter().try_for_each(|(name, stream)| match could_run(*stream, list, mounts) {
        None => Ok(()),
        Some(why) => Err(Error::Refused(format!("{name} {why}; give it a pipe or another file"))),
    })
}

/// `HUGETLBFS_MAGIC`, linux/magic.h.
const HUGE: rustix::fs::FsWord = 0x9584_58f6;

fn could_run(stream: BorrowedFd<'_>, list: &ProgramList, mounts: &Mounts) -> Option<&'static str> {
    use std::os::fd::AsRawFd;
    let stat = rustix::fs::fstat(stream).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    /// `TMPFS_MAGIC` and `HUGETLBFS_MAGIC`, linux/magic.h.
    const MEMORY: [rustix::fs::FsWord; 2] = [0x0102_1994, HUGE];
    let in_memory = stat.st_nlink == 0
        && rustix::fs::fstatfs(stream).is_ok_and(|fs| MEMORY.contains(&fs.f_type))
        && !mounts.has_device(stat.st_dev);
    if in_memory && !is_sealed(stream) {
        return Some("is a file in memory that could be run, which no list names");
    }
    let writes = rustix::fs::fcntl_getfl(stream)
        .is_ok_and(|flags| flags & rustix::fs::OFlags::RWMODE != rustix::fs::OFlags::RDONLY);
    if writes && list.files.iter().any(|(_, its)| *its == Identity::from(&stat)) {
        return Some("is a listed program, which could be written by it");
    }
    let path = format!("/proc/self/fd/{}", stream.as_raw_fd());
    let real = std::fs::read_link(path).ok()?;
    let names = mounts.names_of(&real);
    let listed = |name: &PathBuf| list.folders.iter().any(|(folder, _)| name.starts_with(folder));
    names.iter().any(listed).then_some("is in a listed folder, so it could be run by it")
}

/// Whether a file in memory can never be executed. Huge pages' file system doesn't
/// keep that seal.
fn is_sealed(stream: BorrowedFd<'_>) -> bool {
    /// `F_SEAL_EXEC`, linux/fcntl.h, Linux 6.3.
    const SEAL_EXEC: u32 = 0x20;
    let seals = rustix::fs::fcntl_get_seals(stream).map(|seals| seals.bits());
    seals.is_ok_and(|seals| seals & SEAL_EXEC != 0)
        && !rustix::fs::fstatfs(stream).is_ok_and(|fs| fs.f_type == HUGE)
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
