//! The second layer: Landlock repeats the mounts' grants, landlock(7).

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AddRuleError, AddRulesError, BitFlags, CompatLevel, Compatible,
    PathBeneath, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};
use rustix::fs::{FileType, Mode, OFlags};

use crate::linux::judged::Executable;

/// Device nodes and terminals that programs write to.
const DEVICES: [&str; 9] =
    ["null", "zero", "full", "random", "urandom", "tty", "console", "pts", "ptmx"];

/// The first ABI with scopes, of Linux 6.12.
const SCOPES: u32 = 6;

/// Whether this kernel can keep abstract Unix sockets apart.
///
/// # Errors
/// Landlock is there and can't be asked.
pub fn has_scopes() -> std::io::Result<bool> {
    Ok(lnk_sys::landlock_abi::version()?.is_some_and(|version| version >= SCOPES))
}

/// Restricts this process, and all that it starts, to reading and executing
/// what the mounts show, and to writing `writable` folders, `private` places
/// and devices. Where `programs` are given, nothing else is executed. Its
/// signals and abstract sockets stay among its own processes (Linux 6.12), without
/// fail where they `must_stay`.
///
/// Returns `false` on a kernel without Landlock, which has the mounts alone.
///
/// # Errors
/// Landlock is there and refuses, or lacks what programs or `must_stay` need: the
/// run must not start.
pub fn restrict(
    writable: &[impl AsRef<Path>],
    private: &[impl AsRef<Path>],
    programs: Option<&[Executable]>,
    must_stay: bool,
) -> Result<bool, String> {
    match lnk_sys::landlock_abi::version().map_err(|error| error.to_string())? {
        version if must_stay && version.is_none_or(|version| version < SCOPES) => {
            Err("the machine's network needs its scopes (Linux 6.12)".into())
        }
        Some(version) => restrict_to(known_abi(version), writable, private, programs)
            .map(|()| true)
            .map_err(|error| format!("{error:#}")),
        None if programs.is_some() => Err("a list of programs needs it".into()),
        None => Ok(false),
    }
}

/// Rights that came after the scopes of ABI 6 aren't used: what they close is
/// closed by mounts and seccomp on every kernel.
fn known_abi(version: u32) -> ABI {
    match version {
        0 | 1 => ABI::V1,
        2 => ABI::V2,
        3 => ABI::V3,
        4 => ABI::V4,
        5 => ABI::V5,
        _ => ABI::V6,
    }
}

fn restrict_to(
    abi: ABI,
    writable: &[impl AsRef<Path>],
    private: &[impl AsRef<Path>],
    programs: Option<&[Executable]>,
) -> Result<(), Box<dyn std::error::Error>> {
    let all = AccessFs::from_all(abi);
    let mut ruleset =
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(all)?;
    let scopes = Scope::from_all(abi);
    if !scopes.is_empty() {
        ruleset = ruleset.scope(scopes)?;
    }
    let mut ruleset = ruleset.create()?;
    // One layer for all of it: a second one, of executing alone, would close
    // renames between folders, which it can't be told to leave alone.
    let execute = if programs.is_some() { BitFlags::empty() } else { AccessFs::Execute.into() };
    ruleset = allow(ruleset, Path::new("/"), AccessFs::ReadFile | AccessFs::ReadDir | execute)?;
    for program in programs.unwrap_or_default() {
        ruleset = allow_fd(ruleset, program.hold()?.as_fd(), AccessFs::Execute.into())?;
    }
    // Special files can't be made without capabilities anyway, and what an
    // ioctl on a device in a write folder does isn't the folder's to grant.
    let write = all & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);
    let write = (write & !AccessFs::Execute) | execute;
    for path in writable.iter().map(AsRef::as_ref).chain(private.iter().map(AsRef::as_ref)) {
        ruleset = allow(ruleset, path, write)?;
    }
    let device = all & (AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev);
    for name in DEVICES {
        ruleset = allow(ruleset, &Path::new("/dev").join(name), device)?;
    }
    for stream in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
        ruleset = allow_stream(ruleset, stream, all)?;
    }
    ruleset.restrict_self()?;
    Ok(())
}

/// A path that isn't there needs no rule.
fn allow(
    ruleset: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, Box<dyn std::error::Error>> {
    match rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(fd) => allow_fd(ruleset, fd.as_fd(), access),
        Err(rustix::io::Errno::NOENT) => Ok(ruleset),
        Err(error) => Err(error.into()),
    }
}

fn allow_fd(
    ruleset: RulesetCreated,
    fd: BorrowedFd<'_>,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, Box<dyn std::error::Error>> {
    let folder = FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode) == FileType::Directory;
    let access = if folder { access } else { access & AccessFs::from_file(ABI::V6) };
    if access.is_empty() {
        return Ok(ruleset);
    }
    Ok(ruleset.add_rule(PathBeneath::new(fd, access))?)
}

/// A stream that is a file or a terminal of the caller's may be opened again by
/// name (`/dev/stdin`, `/dev/tty`), for just what it is open for.
fn allow_stream(
    ruleset: RulesetCreated,
    stream: BorrowedFd<'_>,
    all: BitFlags<AccessFs>,
) -> Result<RulesetCreated, Box<dyn std::error::Error>> {
    let Ok(stat) = rustix::fs::fstat(stream) else { return Ok(ruleset) };
    let kind = FileType::from_raw_mode(stat.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::CharacterDevice | FileType::Fifo) {
        return Ok(ruleset);
    }
    let flags = rustix::fs::fcntl_getfl(stream)?;
    let mut access = BitFlags::empty();
    if flags & OFlags::RWMODE != OFlags::WRONLY {
        access |= AccessFs::ReadFile;
    }
    if flags & OFlags::RWMODE != OFlags::RDONLY {
        access |= AccessFs::WriteFile;
        if !flags.contains(OFlags::APPEND) {
            access |= AccessFs::Truncate;
        }
    }
    if kind == FileType::CharacterDevice {
        access |= AccessFs::IoctlDev;
    }
    let access =
        if kind == FileType::RegularFile { access & AccessFs::from_file(ABI::V6) } else { access };
    // The rule goes to the same ruleset in the kernel, whichever descriptor
    // names it; a pipe or memfd has no place in the tree, takes no rule
    // (EBADFD) and needs none.
    match ruleset.try_clone()?.add_rule(PathBeneath::new(stream, access & all)) {
        Ok(_) => Ok(ruleset),
        Err(RulesetError::AddRules(AddRulesError::Fs(AddRuleError::AddRuleCall {
            source,
            ..
        }))) if source.raw_os_error() == Some(libc::EBADFD) => Ok(ruleset),
        Err(error) => Err(error.into()),
    }
}
