//! What a program that is to be executed is, and what it starts with.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lnk_sys::notify::{self, Notification};
use rustix::fs::{Access, AtFlags, CWD, FileType, Mode as FileMode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::Pid;

use super::asked::{self, Asked, From, String};
use super::reports::Reports;
use super::{Executed, How, Mode};
use crate::linux::broker::path;
use crate::paths::Identity;
use crate::programs::ProgramList;
use crate::programs::start::{self, Start};

/// Interpreters of interpreters that the kernel follows (`exec_binprm` of
/// fs/exec.c).
const INTERPRETERS: usize = 5;
/// Links in one path, as path_resolution(7) has it.
const LINKS: usize = 40;
/// Most paths of which nothing new is to be told, and the longest of them: one
/// megabyte.
const SETTLED: usize = 4096;
const SETTLED_PATH: usize = 255;

#[derive(Debug)]
pub(super) struct Judge {
    root: OwnedFd,
    mode: Mode,
    writable: Vec<PathBuf>,
    pub(super) reports: Reports,
    /// Absolute paths that were told of, or allowed, with all that they start:
    /// most execs are of these. The sandbox can change nothing on their way.
    settled: Mutex<HashSet<Vec<u8>>>,
}

/// What a path or a descriptor led to.
struct Found {
    file: OwnedFd,
    /// As in [`Executed`].
    asked: Vec<u8>,
    real: PathBuf,
    identity: Identity,
    is_file: bool,
    /// `real` leads to it.
    is_named: bool,
    /// Nothing on the way to it is the sandbox's to change.
    lasts: bool,
}

/// What is to be told of an exec.
#[derive(Default)]
struct Told {
    programs: Vec<Executed>,
    /// It will be the same the next time.
    lasts: bool,
}

impl Judge {
    pub(super) fn new(root: OwnedFd, mode: Mode, writable: Vec<PathBuf>, reports: Reports) -> Self {
        Self { root, mode, writable, reports, settled: Mutex::default() }
    }

    /// Tells what is to be told of an exec. What can't be seen isn't told of.
    pub(super) fn look_at(&self, listener: BorrowedFd<'_>, call: &Notification) {
        let mut buffer = [0; asked::PATH];
        let Some(thread) = asked::thread(call) else { return };
        let path = asked::string(thread, asked::path_of(call), &mut buffer);
        let Ok(String::Whole(path)) = path else { return };
        if self.settled().contains(path) {
            return;
        }
        let Some(told) = Asked::new(thread, call, path).and_then(|asked| self.judge(&asked)) else {
            return;
        };
        // Only now is it certain that all that was the caller's.
        if !notify::is_valid(listener, call.id) {
            return;
        }
        told.programs.into_iter().for_each(|program| self.reports.add(program));
        if told.lasts && path.len() <= SETTLED_PATH {
            let mut settled = self.settled();
            if settled.len() == SETTLED {
                settled.clear();
            }
            settled.insert(path.to_vec());
        }
    }

    /// Follows a program to all that the kernel executes for it.
    fn judge(&self, asked: &Asked<'_>) -> Option<Told> {
        let mut found = self.find(asked).ok()?;
        let mut told = Told { programs: Vec::new(), lasts: found.lasts };
        let mut script = None;
        for _ in 0..=INTERPRETERS {
            if !found.can_be_executed() {
                break;
            }
            told.lasts &= found.lasts;
            let list = match &self.mode {
                Mode::List(list) => Some(list),
                Mode::Learn => None,
            };
            let how = list.map_or(Some(How::Run), |list| refusal(list, &found));
            if let Some(how) = how {
                told.programs.push(found.told(how, script.as_ref()));
                if list.is_some() {
                    break;
                }
            }
            match (found.starts_with(), list) {
                (Start::Script { interpreter }, _) => {
                    let Ok(next) = self.find_needed(asked.thread, &interpreter) else { break };
                    script = Some(std::mem::replace(&mut found, next).real);
                }
                (Start::Elf { loader: Some(loader) }, Some(list)) => {
                    let Ok(loader) = self.find_needed(asked.thread, &loader) else { break };
                    told.lasts &= loader.lasts;
                    if !list.is_loader(&loader.real) && !list.allows(&loader.real, loader.identity)
                    {
                        told.programs.push(loader.told(How::LoaderOf(found.real), None));
                    }
                    break;
                }
                _ => break,
            }
        }
        Some(told)
    }

    /// What a file names as its interpreter or loader, which the kernel looks up
    /// as if the caller had named it.
    fn find_needed(&self, thread: Pid, path: &Path) -> Result<Found, Errno> {
        let from = asked::from(path.as_os_str().as_bytes());
        self.find(&Asked { thread, from, no_follow: false })
    }

    fn find(&self, asked: &Asked<'_>) -> Result<Found, Errno> {
        let (root, thread) = (self.root.as_fd(), asked.thread);
        match asked.from {
            From::Root(path) => {
                let lasts = !asked.no_follow
                    && !contains_parent(path)
                    && !self.is_writable(Path::new(as_text(path)));
                self.find_path(path.to_vec(), asked.no_follow, lasts)
            }
            From::WorkingFolder(rest) => {
                let folder = path::of_folder(root, asked::working_folder(thread)?.as_fd())?;
                self.find_path(path::join(folder, without_dot(rest)), asked.no_follow, false)
            }
            From::Descriptor(number, b"") => self.find_held(asked::descriptor(thread, number)?),
            From::Descriptor(number, rest) => {
                let folder = path::of_folder(root, asked::descriptor(thread, number)?.as_fd())?;
                self.find_path(path::join(folder, rest), asked.no_follow, false)
            }
            From::DescriptorOf(process, number) => {
                let descriptors = [b"/proc/", process, b"/fd"].concat();
                let descriptors = path::open(root, &descriptors)?;
                self.find_held(asked::open_link(descriptors, &number.to_string())?)
            }
            From::Itself => self.find_held(asked::itself(thread)?),
        }
    }

    fn find_path(&self, asked: Vec<u8>, no_follow: bool, lasts: bool) -> Result<Found, Errno> {
        let file = path::open_with(self.root.as_fd(), &asked, no_follow)?;
        let stat = rustix::fs::fstat(&file)?;
        let (real, is_named) = self.named(real(&file)?, &file, stat.st_nlink > 0);
        let real = PathBuf::from(OsString::from_vec(real));
        let lasts = lasts && is_named && self.way_lasts(Path::new(as_text(&asked)));
        let (identity, is_file) = (Identity::from(&stat), is_file(&stat));
        Ok(Found { file, asked, real, identity, is_file, is_named, lasts })
    }

    fn find_held(&self, file: OwnedFd) -> Result<Found, Errno> {
        let stat = rustix::fs::fstat(&file)?;
        let (asked, is_named) = self.named(real(&file)?, &file, false);
        let is_named = is_named || (stat.st_nlink > 0 && self.leads_to(&asked, &file));
        let real = PathBuf::from(OsStr::from_bytes(&asked));
        let (identity, is_file) = (Identity::from(&stat), is_file(&stat));
        Ok(Found { file, asked, real, identity, is_file, is_named, lasts: false })
    }

    /// The path that leads to a file, and whether one does. A removed file that is
    /// mounted over a path, as bubblewrap does it, is reached by that.
    fn named(&self, shown: Vec<u8>, file: &OwnedFd, is_linked: bool) -> (Vec<u8>, bool) {
        let Some(mounted) = shown.strip_suffix(b" (deleted)") else { return (shown, is_linked) };
        // A name may end so by itself, too.
        for path in [mounted, &shown] {
            if self.leads_to(path, file) {
                return (path.to_vec(), true);
            }
        }
        (shown, false)
    }

    fn leads_to(&self, path: &[u8], file: &OwnedFd) -> bool {
        path::open(self.root.as_fd(), path)
            .and_then(|there| path::is_same(there.as_fd(), file.as_fd()))
            .unwrap_or(false)
    }

    /// Whether the sandbox can change nothing on the way to what a path leads to, nor
    /// that itself.
    fn way_lasts(&self, asked: &Path) -> bool {
        let mut left: Vec<PathBuf> = parts(asked);
        let mut real = PathBuf::from("/");
        let mut links = 0;
        while let Some(part) = left.pop() {
            if part == Path::new("..") {
                real.pop();
                continue;
            }
            real.push(part);
            if self.is_writable(&real) {
                return false;
            }
            let held = path::open_with(self.root.as_fd(), real.as_os_str().as_bytes(), true);
            let Ok(held) = held else { return false };
            let to = rustix::fs::readlinkat(&held, "", Vec::new());
            let Ok(to) = to else { continue };
            links += 1;
            if links > LINKS {
                return false;
            }
            let to = PathBuf::from(OsString::from_vec(to.into_bytes()));
            real = if to.is_absolute() { "/".into() } else { parent(real) };
            left.extend(parts(&to));
        }
        true
    }

    fn is_writable(&self, path: &Path) -> bool {
        self.writable.iter().any(|place| path.starts_with(place))
    }

    fn settled(&self) -> MutexGuard<'_, HashSet<Vec<u8>>> {
        // Each change of it is whole.
        self.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Found {
    /// Whether the caller may execute it but for Landlock: this thread has the
    /// caller's user, and no capability that overrides permissions either. A
    /// mount without execution counts.
    fn can_be_executed(&self) -> bool {
        let own = path::own(self.file.as_fd());
        self.is_file && rustix::fs::accessat(CWD, own, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
    }

    /// What can't be read starts with nothing.
    fn starts_with(&self) -> Start {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(path::own(self.file.as_fd()), flags, FileMode::empty());
        file.ok().and_then(|file| start::of_file(&File::from(file)).ok()).unwrap_or(Start::Other)
    }

    fn told(&self, how: How, script: Option<&PathBuf>) -> Executed {
        let how = match (how, script) {
            _ if !self.is_named => How::Nameless,
            (How::Refused | How::Run, Some(script)) => How::InterpreterOf(script.clone()),
            (how, _) => how,
        };
        let (asked, real) = (self.asked.clone(), self.real.clone());
        Executed { asked, real, identity: self.identity, how }
    }
}

/// Why a list doesn't let a program run.
fn refusal(list: &ProgramList, found: &Found) -> Option<How> {
    if list.is_loader(&found.real) {
        return Some(How::Loader);
    }
    (!list.allows(&found.real, found.identity)).then_some(How::Refused)
}

fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// The path of what is held, as the kernel tells it: from the root of its mounts.
fn real(file: &OwnedFd) -> Result<Vec<u8>, Errno> {
    Ok(rustix::fs::readlink(path::own(file.as_fd()), Vec::new())?.into_bytes())
}

/// The names and `..` of a path, the last first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let matter = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().rev().filter(matter).map(|part| part.as_os_str().into()).collect()
}

fn parent(mut path: PathBuf) -> PathBuf {
    path.pop();
    path
}

fn contains_parent(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/').any(|part| part == b"..")
}

fn without_dot(path: &[u8]) -> &[u8] {
    path.strip_prefix(b"./").unwrap_or(path)
}

fn as_text(path: &[u8]) -> &OsStr {
    OsStr::from_bytes(path)
}
