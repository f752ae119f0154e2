//! From an entry of `[commands] allow` to the files it names.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirEntryExt, FileExt};
use std::path::{Component, Path, PathBuf};

use lnk_spec::nearest::nearest;
use lnk_spec::program::Program;
use lnk_spec::shown;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};

use super::loader::is_loader;
use super::replaceable::Trusted;
use super::start::{self, Start};
use crate::caller::Caller;
use crate::error::reason;
use crate::mountinfo::Mounts;
use crate::not_run::folder_to_open;
use crate::paths::{Identity, Walk, open_real, real_or_written, walk};

/// The most names that are looked at in a listed folder and below it.
const MOST_IN_FOLDER: usize = 50_000;
/// What is said of an entry that looks like a pattern.
const NO_PATTERNS: &str = "there are no patterns: a folder with a slash at its end has all its programs, '*' alone is any";
/// Everybody's folder, which the sandbox has its own of.
const TMP: &str = "/tmp";

/// What an entry names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Any program.
    Any,
    /// A program.
    Program(Listed),
    /// A folder of programs.
    Folder {
        /// Its real path.
        real: PathBuf,
        /// What it is.
        identity: Identity,
        /// Programs elsewhere that links in it lead to.
        linked: Vec<Listed>,
        /// The loaders of its programs, and those that lie in it.
        loaders: BTreeSet<PathBuf>,
    },
    /// Nothing that could run: a sentence that says why.
    Nothing(String),
}

/// A program that may be listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its real path.
    pub real: PathBuf,
    /// What it is.
    pub identity: Identity,
    /// Its loader's real path, where it has one.
    pub loader: Option<PathBuf>,
}

/// Finds programs for one sandbox.
pub struct Finder<'a> {
    caller: &'a Caller,
    mounts: &'a Mounts,
    /// What the sandbox may write, by real path.
    writable: Vec<PathBuf>,
    /// What it may read besides the system's own, by real path.
    opened: Vec<PathBuf>,
    trusted: Trusted,
}

impl<'a> Finder<'a> {
    /// Of a sandbox that writes `writable` and reads `opened`, real paths.
    #[must_use]
    pub fn new(
        caller: &'a Caller,
        mounts: &'a Mounts,
        writable: Vec<PathBuf>,
        opened: Vec<PathBuf>,
    ) -> Self {
        Finder { caller, mounts, writable, opened, trusted: Trusted::of(caller.uid) }
    }

    /// Finds what an entry names, its path absolute.
    ///
    /// # Errors
    /// Why it can't be listed, as the rest of a sentence.
    pub fn find(&self, entry: &Program) -> Result<Found, String> {
        match entry {
            Program::Any => Ok(Found::Any),
            Program::Name(name) => self.on_path(name),
            Program::Path(path) => self.at(path.as_path()),
            Program::Folder(path) => self.folder(path.as_path()),
        }
    }

    /// Why a file that runs inside can't be listed; `None` where it can.
    #[must_use]
    pub fn never_listed(&self, real: &Path) -> Option<String> {
        // A program that was started may be gone by now; where it was, it isn't.
        match self.may_be_replaced(real) {
            Some(why) => Some(format!("it {why}")),
            None => self.listed(real).err(),
        }
    }

    /// Whether PATH leads to a folder.
    #[must_use]
    pub fn searches(&self, folder: &Path) -> bool {
        self.absolute_path().any(|its| its == folder)
    }

    fn absolute_path(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let path = self.caller.var("PATH").unwrap_or_default();
        std::env::split_paths(path).filter(|folder| folder.is_absolute())
    }

    /// The entry that names a file: its name where PATH finds it by that, else
    /// the path by which it was asked for, where that leads to it.
    #[must_use]
    pub fn entry(&self, asked: &Path, real: &Path) -> Program {
        let names = [asked, real].into_iter().filter_map(|path| path.file_name()?.to_str());
        let by_name = names.into_iter().find_map(|name| {
            let found = self.first_on_path(name)?.ok()?;
            (found.real() == Some(real)).then(|| Program::try_from(name.as_ref()).ok())?
        });
        let leads_there = asked.is_absolute()
            && !asked.components().any(|part| part == Component::ParentDir)
            && real_or_written(asked) == real;
        // Without what is no name, such as `.` in the middle.
        let path: PathBuf = if leads_there { asked } else { real }.components().collect();
        by_name.unwrap_or_else(|| {
            Program::try_from(path.as_os_str()).expect("an absolute path, as the kernel has it")
        })
    }

    fn on_path(&self, name: &str) -> Result<Found, String> {
        self.first_on_path(name).unwrap_or_else(|| Ok(Found::Nothing(self.not_on_path(name))))
    }

    fn first_on_path(&self, name: &str) -> Option<Result<Found, String>> {
        let mut unlisted = None;
        for folder in self.absolute_path() {
            let path = folder.join(name);
            let real = real_or_written(&path);
            if !is_program(&real) {
                continue;
            }
            if let Some(why) = self.may_be_replaced(&real_or_written(&folder)) {
                unlisted.get_or_insert(Err(format!("{} {why}", shown::word(&path))));
            } else if self.is_open(&real) {
                return Some(self.listed(&real).map(Found::Program));
            } else {
                unlisted.get_or_insert_with(|| Ok(Found::Nothing(self.closed(&real))));
            }
        }
        unlisted
    }

    fn not_on_path(&self, name: &str) -> String {
        if name.contains(char::is_whitespace) {
            let program = name.split_whitespace().next().unwrap_or_default();
            return format!(
                "not on your PATH: an entry is a program without its arguments, {}",
                shown::word(program)
            );
        }
        if name.contains(',') {
            return "not on your PATH: an entry is one program; give each its own".into();
        }
        if name.contains(['*', '?']) {
            return NO_PATTERNS.into();
        }
        let names = self.absolute_path().filter_map(|folder| std::fs::read_dir(folder).ok());
        let names = names.flatten().flatten().filter_map(|it| it.file_name().into_string().ok());
        let names: BTreeSet<String> = names.collect();
        match nearest(name, names.iter().map(String::as_str)) {
            Some(meant) => format!("not on your PATH: did you mean {}?", shown::word(meant)),
            None => "not on your PATH: install it, or give its path".into(),
        }
    }

    fn at(&self, path: &Path) -> Result<Found, String> {
        let walked = self.walk(path)?;
        if !walked.exists {
            let pattern = path.to_string_lossy().contains(['*', '?']);
            return Ok(Found::Nothing(if pattern { NO_PATTERNS } else { "no such file" }.into()));
        }
        let listed = self.listed(&walked.real)?;
        if self.is_open(&listed.real) {
            return Ok(Found::Program(listed));
        }
        Ok(Found::Nothing(self.closed(&listed.real)))
    }

    /// Where a path leads. What isn't there yet mustn't be put there either.
    fn walk(&self, path: &Path) -> Result<Walk, String> {
        let walked = walk(path).map_err(|error| reason(&error))?;
        match self.may_be_replaced(&walked.real) {
            Some(why) => Err(format!("it {why}")),
            None => Ok(walked),
        }
    }

    fn closed(&self, real: &Path) -> String {
        let folder = shown::word(folder_to_open(real, self.caller));
        format!("it is in {folder}, which isn't open inside: add --read {folder}")
    }

    /// A file that may be listed, at a real path.
    fn listed(&self, real: &Path) -> Result<Listed, String> {
        let (file, stat) = open(real).map_err(|error| reason(&error))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => {
                return Err("it is a folder; a slash at its end lists the programs in it".into());
            }
            _ => return Err("it isn't a program".into()),
        }
        if !is_executable(&stat) {
            return Err("it isn't a program: chmod +x makes a file executable".into());
        }
        self.refuse_replaced(real)?;
        self.refuse_other_names(real, &stat)?;
        // What nobody but the kernel reads has no loader that could be found.
        let start =
            file.as_ref().map_or(Start::Other, |file| start::of_file(file).unwrap_or(Start::Other));
        let loader = match start {
            Start::Elf { loader } => loader.map(|loader| real_or_written(&loader)),
            Start::Script { .. } | Start::Other => None,
        };
        if file.as_ref().is_some_and(|file| is_loader(real, &head(file))) {
            return Err(
                "it is a loader, which runs any program it is given; list the programs".into()
            );
        }
        if let Some(loader) = loader.as_ref().filter(|loader| loader.exists()) {
            self.refuse_replaced(loader)?;
        }
        Ok(Listed { real: real.to_path_buf(), identity: Identity::from(&stat), loader })
    }

    fn refuse_replaced(&self, real: &Path) -> Result<(), String> {
        if let Some(why) = self.may_be_replaced(real) {
            return Err(format!("it {why}"));
        }
        match self.trusted.replaced_by_others(real) {
            Ok(None) => Ok(()),
            Ok(Some(why)) => Err(why),
            Err(error) => Err(reason(&error)),
        }
    }

    /// How the sandbox could put a program in this one's place.
    fn may_be_replaced(&self, real: &Path) -> Option<String> {
        if real.starts_with(TMP) {
            return Some("is in /tmp, where anything may be put".into());
        }
        let names = self.mounts.names_of(real);
        let folder =
            self.writable.iter().find(|its| names.iter().any(|name| name.starts_with(its)))?;
        Some(format!("is in {}, which the sandbox may write", shown::word(folder)))
    }

    /// By another name (a hard link) in a folder that it may write, the sandbox
    /// could change the program itself.
    fn refuse_other_names(&self, real: &Path, stat: &Stat) -> Result<(), String> {
        let changed_by_caller = self.caller.uid == 0 || stat.st_uid == self.caller.uid;
        let identity = Identity::from(stat);
        let mut left = MOST_IN_FOLDER;
        if stat.st_nlink == 1 || !changed_by_caller {
            return Ok(());
        }
        let beside = real.parent().map(|folder| count_in(folder, identity, false, &mut left));
        if u128::from(beside.unwrap_or(0)) >= u128::from(stat.st_nlink) {
            return Ok(());
        }
        let mut left = MOST_IN_FOLDER;
        let names = self.writable.iter().map(|folder| count_in(folder, identity, true, &mut left));
        if names.sum::<u64>() == 0 && left > 0 {
            return Ok(());
        }
        Err("it has other names (hard links), by which the sandbox may write it; copy it".into())
    }

    fn folder(&self, path: &Path) -> Result<Found, String> {
        let walked = self.walk(path)?;
        if !walked.exists {
            return Ok(Found::Nothing("no such folder".into()));
        }
        let real = walked.real;
        if real == Path::new("/") {
            return Err("it is the whole machine; '*' lets any program run".into());
        }
        let held = open_real(&real).map_err(|error| reason(&error))?;
        let stat = rustix::fs::fstat(&held).map_err(|error| reason(&error.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Err("it isn't a folder; without the slash at its end it is one program".into());
        }
        self.refuse_replaced(&real)?;
        self.refuse_what_it_holds(&real)?;
        if !self.is_open(&real) {
            return Ok(Found::Nothing(self.closed(&real)));
        }
        let (linked, loaders) = self.in_folder(&real)?;
        Ok(Found::Folder { real, identity: Identity::from(&stat), linked, loaders })
    }

    /// Refuses a folder of which a part, by whatever name, may be written.
    fn refuse_what_it_holds(&self, real: &Path) -> Result<(), String> {
        let mut names = self.mounts.names_of_all_of(real);
        names.extend(self.mounts.other_names_below(real).map(|(_, name)| name));
        let overlaps = |its: &&PathBuf| {
            names.iter().any(|name| its.starts_with(name) || name.starts_with(its))
        };
        match self.writable.iter().find(overlaps) {
            Some(its) => Err(format!("it holds {}, which the sandbox may write", shown::word(its))),
            None => Ok(()),
        }
    }

    /// Programs that links in a folder lead out of it to, and the loaders that
    /// its programs start with or that lie in it. A link to what can't be listed
    /// is left out.
    fn in_folder(&self, top: &Path) -> Result<(Vec<Listed>, BTreeSet<PathBuf>), String> {
        let (mut linked, mut loaders) = (Vec::new(), BTreeSet::new());
        let (mut folders, mut left) = (vec![top.to_path_buf()], MOST_IN_FOLDER);
        while let Some(folder) = folders.pop() {
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            for entry in entries.flatten() {
                left = left.checked_sub(1).ok_or_else(|| {
                    format!("it holds more than {MOST_IN_FOLDER} files; name the folders of programs in it")
                })?;
                let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
                if kind.is_dir() {
                    self.refuse_changed_in_folder(&path)?;
                    folders.push(path);
                } else if kind.is_symlink() {
                    let real = real_or_written(&path);
                    if !real.starts_with(top) && is_program(&real) && self.is_open(&real) {
                        linked.extend(self.listed(&real).ok());
                    }
                } else if kind.is_file() && is_program(&path) {
                    self.refuse_changed_in_folder(&path)?;
                    loaders.extend(loader_of(&path));
                }
            }
        }
        loaders.extend(linked.iter().filter_map(|it| it.loader.clone()));
        for loader in loaders.iter().filter(|loader| loader.exists()) {
            self.refuse_replaced(loader)?;
        }
        Ok((linked, loaders))
    }

    fn refuse_changed_in_folder(&self, path: &Path) -> Result<(), String> {
        let stat = rustix::fs::lstat(path).map_err(|error| reason(&error.into()))?;
        self.trusted.changed_by_others(path, &stat, None).map_or(Ok(()), Err)
    }

    /// Whether the sandbox shows a real path, as far as its grants tell.
    fn is_open(&self, real: &Path) -> bool {
        crate::system::holds(real) || self.opened.iter().any(|folder| real.starts_with(folder))
    }
}

/// The loader that a program in a listed folder starts with, or that it is.
fn loader_of(path: &Path) -> Option<PathBuf> {
    let (file, stat) = open(path).ok()?;
    let file = file.filter(|_| is_executable(&stat))?;
    if is_loader(path, &head(&file)) {
        return Some(path.to_path_buf());
    }
    match start::of_file(&file).ok()? {
        Start::Elf { loader } => loader.map(|loader| real_or_written(&loader)),
        Start::Script { .. } | Start::Other => None,
    }
}

/// Opens a real path, to read where that is allowed.
fn open(real: &Path) -> io::Result<(Option<File>, Stat)> {
    let held = open_real(real)?;
    let stat = rustix::fs::fstat(&held)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok((None, stat));
    }
    Ok((read_held(real, &stat).map(File::from), stat))
}

/// The same file once more, for reading.
fn read_held(real: &Path, stat: &Stat) -> Option<OwnedFd> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file =
        rustix::fs::openat2(rustix::fs::CWD, real, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
            .ok()?;
    let same =
        rustix::fs::fstat(&file).is_ok_and(|its| Identity::from(&its) == Identity::from(stat));
    same.then_some(file)
}

/// A file's first page, or less where there isn't one.
fn head(file: &File) -> Vec<u8> {
    let mut head = vec![0; 4096];
    let read = file.read_at(&mut head, 0).unwrap_or(0);
    head.truncate(read);
    head
}

/// What is at a real path.
pub(crate) fn identity_of(real: &Path) -> Option<Identity> {
    Some(Identity::from(&rustix::fs::lstat(real).ok()?))
}

/// How a file starts, as far as that can be read.
pub(crate) fn start_of(real: &Path) -> Start {
    let file = open(real).ok().and_then(|(file, _)| file);
    file.and_then(|file| start::of_file(&file).ok()).unwrap_or(Start::Other)
}

fn is_executable(stat: &Stat) -> bool {
    stat.st_mode & 0o111 != 0
}

/// Whether a real path leads to a file that may be executed.
pub(super) fn is_program(real: &Path) -> bool {
    rustix::fs::stat(real).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && is_executable(&stat)
    })
}

/// How many names a file has in a folder, or below it too. What `left` is used
/// up for isn't looked at any more.
fn count_in(folder: &Path, identity: Identity, below: bool, left: &mut usize) -> u64 {
    let is_it = |path: PathBuf| {
        rustix::fs::lstat(&path).is_ok_and(|stat| Identity::from(&stat) == identity)
    };
    let mut count = u64::from(is_it(folder.to_path_buf()));
    let mut folders = vec![folder.to_path_buf()];
    while let Some(entries) = folders.pop().map(std::fs::read_dir) {
        for entry in entries.into_iter().flatten().flatten() {
            *left = left.saturating_sub(1);
            if *left == 0 {
                return count;
            }
            if entry.ino() == identity.inode && is_it(entry.path()) {
                count += 1;
            }
            if below && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
    count
}
