//! Keeps an agent's scratch folder usable: what a program leaves in `work/` must not keep
//! every later call from running.
//!
//! A sandbox isn't made where what it has to protect can't be looked at whole. Most names
//! that are protected can't come to exist inside; those that can are left to be made, and
//! whatever else than a file or a folder was put there is set aside.

use std::fs::{self, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use lnk_sandbox::error::reason;
use lnk_sandbox::shown;
use lnk_sandbox::spec::protected::{IfMissing, NAMES};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, fstat, openat, renameat_with};
use rustix::process::getuid;

/// The most entries of a folder with a protected name.
const MOST_ENTRIES: usize = 10_000;
/// How many things of one name are set aside.
const MOST_ASIDE: usize = 100;

/// Makes `work`, a real path, usable again where a program left it unusable. Answers with
/// a line for everything that was changed; what can't be is the sandbox's to refuse.
#[must_use]
pub fn mend(work: &Path) -> Vec<String> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(folder) = openat(CWD, work, flags, Mode::empty()) else { return Vec::new() };
    let mut notes = Vec::new();
    notes.extend(open_up(&folder));
    let can_be_made = NAMES.iter().filter(|name| name.if_missing == IfMissing::Leave);
    for name in can_be_made.map(|name| name.name) {
        let Some(why) = unusable(work, name) else { continue };
        let shown = shown::word(Path::new(name));
        notes.push(match set_aside(folder.as_fd(), name) {
            Ok(aside) => {
                format!("work/{shown} was set aside as work/{}: {why}", shown::word(aside))
            }
            Err(error) => format!("work/{shown}: {why}; set it aside: {}", reason(&error)),
        });
    }
    notes
}

/// Gives the folder's owner back what a program took from itself.
fn open_up(folder: &OwnedFd) -> Option<String> {
    let stat = fstat(folder).ok()?;
    let (mode, all) = (Mode::from_raw_mode(stat.st_mode), Mode::RWXU);
    if mode.contains(all) || stat.st_uid != getuid().as_raw() {
        return None;
    }
    // chmod(2) of the very folder: a descriptor of O_PATH can't be given to fchmod(2).
    let itself = format!("/proc/self/fd/{}", folder.as_raw_fd());
    rustix::fs::chmod(itself, mode | all).ok()?;
    Some("work/ could not be read and written by its owner: it can again".into())
}

/// Why nothing can be protected by this name; none where it can, or nothing has it.
fn unusable(work: &Path, name: &str) -> Option<&'static str> {
    let path = work.join(name);
    let itself = fs::symlink_metadata(&path).ok()?;
    if itself.is_symlink() {
        return unusable_link(work, &path);
    }
    if !itself.is_dir() {
        return unusable_kind(&itself);
    }
    let Ok(entries) = fs::read_dir(&path) else { return Some("a folder that can't be read") };
    for (at, entry) in entries.enumerate() {
        let Ok(entry) = entry else { return Some("a folder that can't be read") };
        if at == MOST_ENTRIES {
            return Some("a folder with too much in it");
        }
        // What isn't a link is protected with its folder.
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        if is_link && unusable_link(work, &entry.path()).is_some() {
            return Some("a folder with a link in it that leads nowhere");
        }
    }
    None
}

fn unusable_kind(metadata: &Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    let is_odd = kind.is_fifo() || kind.is_socket() || kind.is_block_device();
    (is_odd || kind.is_char_device()).then_some("neither a file nor a folder")
}

/// A link is followed by whoever protects it, and so has to lead somewhere.
fn unusable_link(work: &Path, link: &Path) -> Option<&'static str> {
    let (Ok(to), Ok(folder)) = (fs::metadata(link), fs::metadata(work)) else {
        return Some("a link that leads nowhere");
    };
    if (to.dev(), to.ino()) == (folder.dev(), folder.ino()) {
        return Some("a link to work/ itself");
    }
    if to.is_dir() && fs::read_dir(link).is_err() {
        return Some("a link to a folder that can't be read");
    }
    unusable_kind(&to)
}

/// Renames something to a name that nothing has.
fn set_aside(folder: BorrowedFd<'_>, name: &str) -> io::Result<String> {
    for number in 1..=MOST_ASIDE {
        let aside = format!("{}.set-aside-{number}", name.trim_start_matches('.'));
        match renameat_with(folder, name, folder, &aside, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(aside),
            Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other("remove what was set aside before"))
}
