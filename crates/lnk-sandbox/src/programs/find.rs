//! From an entry of `[commands] allow` to the files it names.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use lnk_spec::nearest::nearest;
use lnk_spec::program::Program;
use lnk_spec::shown;
use rustix::fs::FileType;

use super::judge::{Contents, Judge, is_program};
use crate::caller::Caller;
use crate::error::reason;
use crate::mountinfo::Mounts;
use crate::not_run::folder_to_open;
use crate::paths::{Identity, open_real, real_or_written};

/// What is said of an entry that looks like a pattern.
const NO_PATTERNS: &str = "there are no patterns: a folder with a slash at its end has all its programs, '*' alone is any";

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
    judge: Judge<'a>,
    /// What it may read besides the system's own, by real path.
    opened: Vec<PathBuf>,
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
        Finder { caller, judge: Judge::new(caller, mounts, writable), opened }
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
        self.judge.program(real).err()
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
    /// the path by which it was asked for, where nobody else decides where that
    /// leads, else its real path.
    #[must_use]
    pub fn entry(&self, asked: &Path, real: &Path) -> Program {
        let names = [asked, real].into_iter().filter_map(|path| path.file_name()?.to_str());
        let by_name = names.into_iter().find_map(|name| {
            let found = self.first_on_path(name)?.ok()?;
            let entry = Program::try_from(name.as_ref()).ok()?;
            let is_name = matches!(entry, Program::Name(_)) && !name.starts_with('-');
            (is_name && found.real() == Some(real)).then_some(entry)
        });
        let leads_there = asked.is_absolute()
            && !asked.components().any(|part| part == Component::ParentDir)
            && self.judge.resolve(asked).is_ok_and(|walked| walked.real == real);
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
            if !is_program(&real_or_written(&path)) {
                continue;
            }
            match self.judge.resolve(&path) {
                Err(why) => {
                    unlisted.get_or_insert(Err(format!("{}: {why}", shown::word(&path))));
                }
                Ok(walked) if self.is_open(&walked.real) => {
                    return Some(self.judge.program(&walked.real).map(Found::Program));
                }
                Ok(walked) => {
                    unlisted.get_or_insert_with(|| Ok(Found::Nothing(self.closed(&walked.real))));
                }
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
        let walked = self.judge.resolve(path)?;
        if !walked.exists {
            let pattern = path.to_string_lossy().contains(['*', '?']);
            return Ok(Found::Nothing(if pattern { NO_PATTERNS } else { "no such file" }.into()));
        }
        let listed = self.judge.program(&walked.real)?;
        if self.is_open(&listed.real) {
            return Ok(Found::Program(listed));
        }
        Ok(Found::Nothing(self.closed(&listed.real)))
    }

    fn closed(&self, real: &Path) -> String {
        let folder = shown::word(folder_to_open(real, self.caller));
        format!("it is in {folder}, which isn't open inside: add --read {folder}")
    }

    fn folder(&self, path: &Path) -> Result<Found, String> {
        let walked = self.judge.resolve(path)?;
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
        self.judge.refuse_folder(&real)?;
        if !self.is_open(&real) {
            return Ok(Found::Nothing(self.closed(&real)));
        }
        let Contents { linked, loaders } = self.judge.folder(&real, |real| self.is_open(real))?;
        Ok(Found::Folder { real, identity: Identity::from(&stat), linked, loaders })
    }

    /// Whether the sandbox shows a real path, as far as its grants tell.
    fn is_open(&self, real: &Path) -> bool {
        crate::system::holds(real) || self.opened.iter().any(|folder| real.starts_with(folder))
    }
}
