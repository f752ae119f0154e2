//! The guard: keeps protected and hidden names covered while a program runs.
//!
//! A mount on a name goes when something outside the sandbox removes or
//! replaces that name: an editor that saves by renaming, `git checkout`. The
//! guard, a process in the sandbox's user and mount namespaces, watches the
//! folders and covers the new file at once. It holds no descriptor of the
//! machine's, follows no link, and may make only the calls this needs. The
//! supervisor ends the run when the guard ends.
//!
//! Between the replacement and the new cover lies a moment (a tenth of a
//! millisecond) in which the program can open the new file: docs/security.md.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use lnk_sys::process::exit_now;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::reason;
use crate::linux::message::{self, FromJoiner};
use crate::linux::tree;
use crate::plan::{EMPTY_COVER, EMPTY_FOLDER, Recover, Watched};

/// Bytes of changes read at one time; more than one record of either kind.
const CHANGES: usize = 4096;

/// How often a name may go while it is covered.
const COVER_TRIES: usize = 1000;

/// Covers what should be covered and isn't yet: links, where bubblewrap made
/// the mounts.
///
/// # Errors
/// What failed, and on what.
pub(super) fn cover_links(root: &OwnedFd, watched: &[Watched]) -> Result<(), String> {
    for Watched { path, cover } in watched {
        if let Recover::Link { from } = cover {
            tree::cover(root.as_fd(), path, from, None)
                .map_err(|error| format!("{}: {error}", lnk_spec::shown::word(path)))?;
        }
    }
    Ok(())
}

/// Watches until the supervisor closes its socket or anything fails.
pub(super) fn watch(root: &OwnedFd, watched: &[Watched], supervisor: &OwnedFd) -> ! {
    if let Err(error) = guard(root, watched, supervisor) {
        let why = FromJoiner::Failed(format!("the guard of dot files: {}", reason(&error)));
        let _ = message::send(supervisor.as_fd(), &why, &[]);
    }
    exit_now(1)
}

/// The watched names of one folder.
struct Folder {
    path: PathBuf,
    names: BTreeMap<OsString, Recover>,
    /// Tells of changes as long as it is open.
    open: OwnedFd,
}

fn guard(root: &OwnedFd, watched: &[Watched], supervisor: &OwnedFd) -> io::Result<()> {
    let mut folders = Vec::new();
    for (path, names) in by_folder(watched) {
        let folder = tree::open_below(root.as_fd(), &path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = rustix::fs::openat(&folder, c".", flags, Mode::empty())?;
        folders.push(Folder { path, names, open });
    }
    let changes = match changes_by_signal(&folders) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => changes_by_inotify(&folders)?,
        changes => changes?,
    };
    confine(root, supervisor, &changes, &folders)?;
    loop {
        // At first too: what changed before the watches stood.
        for folder in &folders {
            for name in folder.names.keys() {
                cover_again(root, folder, name, supervisor)?;
            }
        }
        wait_for_change(&changes, supervisor)?;
    }
}

fn changes_by_signal(folders: &[Folder]) -> io::Result<OwnedFd> {
    let changes = lnk_sys::folder_changes::report()?;
    folders.iter().try_for_each(|folder| lnk_sys::folder_changes::watch(folder.open.as_fd()))?;
    Ok(changes)
}

/// For kernels without the other; its end holds the run's end up.
fn changes_by_inotify(folders: &[Folder]) -> io::Result<OwnedFd> {
    let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let kinds =
        WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::MOVED_FROM | WatchFlags::DELETE;
    for folder in folders {
        rustix::process::fchdir(&folder.open)?;
        inotify::add_watch(&changes, c".", kinds | WatchFlags::ONLYDIR)?;
    }
    rustix::process::chdir("/")?;
    Ok(changes)
}

/// Waits for a change in any of the folders. Which one isn't told: all names
/// are looked at.
fn wait_for_change(changes: &OwnedFd, supervisor: &OwnedFd) -> io::Result<()> {
    loop {
        let mut fds = [PollFd::new(changes, PollFlags::IN), PollFd::new(supervisor, PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(Errno::INTR) => continue,
            polled => polled?,
        };
        if !fds[1].revents().is_empty() {
            return Err(Errno::PIPE.into());
        }
        match rustix::io::read(changes, &mut [0u8; CHANGES]) {
            Ok(_) => return Ok(()),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn by_folder(watched: &[Watched]) -> BTreeMap<PathBuf, BTreeMap<OsString, Recover>> {
    let mut folders: BTreeMap<PathBuf, BTreeMap<OsString, Recover>> = BTreeMap::new();
    for Watched { path, cover } in watched {
        if let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
            folders.entry(parent.to_path_buf()).or_default().insert(name.to_owned(), cover.clone());
        }
    }
    folders
}

/// Gives up what isn't needed: descriptors, and system calls.
fn confine(
    root: &OwnedFd,
    supervisor: &OwnedFd,
    changes: &OwnedFd,
    folders: &[Folder],
) -> io::Result<()> {
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let null = match null {
        Ok(null) => null,
        // The tree that bubblewrap stands in has no devices; the sandbox's has.
        Err(_) => {
            let place = tree::open_below(root.as_fd(), Path::new("/dev"))?;
            rustix::fs::openat(place, c"null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?
        }
    };
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    drop(null);
    let mut kept = vec![root.as_fd(), supervisor.as_fd(), changes.as_fd()];
    kept.extend(folders.iter().map(|folder| folder.open.as_fd()));
    lnk_sys::fd::close_all_but(&kept)?;
    rustix::thread::set_no_new_privs(true)?;
    lnk_sys::seccomp::install(&super::seccomp::guard_filter())
}

/// Covers a name again if it isn't. What goes while it is being covered is
/// looked at anew.
fn cover_again(
    root: &OwnedFd,
    folder: &Folder,
    name: &OsStr,
    supervisor: &OwnedFd,
) -> io::Result<()> {
    for _ in 1..COVER_TRIES {
        match cover_once(root, folder, name, supervisor) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            covered => return covered,
        }
    }
    cover_once(root, folder, name, supervisor)
}

/// A missing name is asked back from the supervisor, as an empty folder, whose
/// making comes here as an event. A hidden name may be missing.
fn cover_once(
    root: &OwnedFd,
    folder: &Folder,
    name: &OsStr,
    supervisor: &OwnedFd,
) -> io::Result<()> {
    let path = folder.path.join(name);
    let cover = &folder.names[name];
    let place = match tree::open_below(root.as_fd(), &path) {
        Ok(place) => place,
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
            if *cover == Recover::Hidden {
                return Ok(());
            }
            return message::send(
                supervisor.as_fd(),
                &FromJoiner::Vanished(path.into_os_string().into_encoded_bytes()),
                &[],
            );
        }
        Err(error) => return Err(error),
    };
    let parent = tree::open_below(root.as_fd(), &folder.path)?;
    if tree::mount_id(place.as_fd())? != tree::mount_id(parent.as_fd())? {
        return Ok(());
    }
    let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode);
    let is_link = kind == rustix::fs::FileType::Symlink;
    match cover {
        Recover::Hidden => {
            let folder = kind == rustix::fs::FileType::Directory;
            let from = if folder { EMPTY_FOLDER } else { EMPTY_COVER };
            tree::cover(root.as_fd(), &path, Path::new(from), None)
        }
        Recover::Link { from } if is_link => tree::cover(root.as_fd(), &path, from, None),
        // A link where none was: covered by what shows nothing.
        Recover::Itself { .. } if is_link => {
            tree::cover(root.as_fd(), &path, Path::new(EMPTY_COVER), None)
        }
        Recover::Itself { write } => {
            let copy = tree::copy_of(place.as_fd(), tree::bound(*write))?;
            tree::attach(copy.as_fd(), place.as_fd())
        }
        Recover::Link { .. } => {
            let copy = tree::copy_of(place.as_fd(), tree::bound(false))?;
            tree::attach(copy.as_fd(), place.as_fd())
        }
    }
}
