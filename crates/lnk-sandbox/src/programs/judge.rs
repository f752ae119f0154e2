//! Whether a program may be listed: not one that this sandbox or another user
//! could put another in the place of, by whatever name or link.

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::{DirEntryExt, FileExt};
use std::path::{Path, PathBuf};

use lnk_spec::shown;
use rustix::fs::{Access, FileType, Mode, OFlags, ResolveFlags, Stat};

use super::find::Listed;
use super::loader::is_loader;
use super::start::{self, Start};
use crate::caller::Caller;
use crate::error::reason;
use crate::linux::bwrap_path::unmapped_owner;
use crate::mountinfo::Mounts;
use crate::paths::{Identity, Walk, open_real, real_or_written, walk};
use crate::trusted::Trusted;

/// The most names that are looked at in a listed folder and below it.
const MOST_IN_FOLDER: usize = 50_000;
/// The most names in write folders among which a hard link is looked for.
const MOST_WRITABLE: usize = 1_000_000;
/// How often it is looked through write folders that change meanwhile.
const LOOKS: u32 = 8;
/// Everybody's folder, which the sandbox has its own of.
const TMP: &str = "/tmp";

/// Judges for one sandbox.
pub struct Judge<'a> {
    caller: &'a Caller,
    mounts: &'a Mounts,
    /// What the sandbox may write, by real path.
    writable: Vec<PathBuf>,
    trusted: Trusted,
}

/// Why it was stopped to look for a file's names.
enum Stopped {
    /// For this.
    Because(String),
    /// A folder went meanwhile, as another run's placeholder does.
    Gone(String),
}

impl From<String> for Stopped {
    fn from(why: String) -> Self {
        Stopped::Because(why)
    }
}

/// What a folder's programs need besides the folder.
#[derive(Debug, Default)]
pub struct Contents {
    /// Programs elsewhere that links lead to.
    pub linked: Vec<Listed>,
    /// The loaders that its programs start with, or that lie in it.
    pub loaders: BTreeSet<PathBuf>,
}

impl<'a> Judge<'a> {
    /// Of a sandbox that writes `writable`, real paths.
    #[must_use]
    pub fn new(caller: &'a Caller, mounts: &'a Mounts, writable: Vec<PathBuf>) -> Self {
        let trusted = Trusted::of(caller.uid).and(unmapped_owner(Path::new("/")));
        Judge { caller, mounts, writable, trusted }
    }

    /// Where a path leads. What isn't there yet is judged too: it mustn't be put
    /// there either.
    ///
    /// # Errors
    /// Why somebody else decides where it leads, as the rest of a sentence.
    pub fn resolve(&self, path: &Path) -> Result<Walk, String> {
        let walked = walk(path).map_err(|error| reason(&error))?;
        for link in &walked.links {
            self.refuse_replaced(&link.at)
                .map_err(|why| format!("the link {} on the way: {why}", shown::word(&link.at)))?;
        }
        match self.may_be_replaced(&walked.real) {
            Some(why) => Err(why),
            None => Ok(walked),
        }
    }

    /// A file that may be listed, at a real path.
    ///
    /// # Errors
    /// Why it may not, as the rest of a sentence.
    pub fn program(&self, real: &Path) -> Result<Listed, String> {
        if let Some(why) = self.may_be_replaced(real) {
            return Err(why);
        }
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
        if self.has_names_elsewhere(real, &stat) {
            self.refuse_writable_names(&HashSet::from([Identity::from(&stat)]))?;
        }
        // What nobody but the kernel reads has no loader that could be found.
        let loader = match &file {
            Some(file) if is_loader(real, &head(file)) => {
                return Err(
                    "it is a loader, which runs any program it is given; list the programs".into(),
                );
            }
            Some(file) => self.loader_of(file)?,
            None => None,
        };
        Ok(Listed { real: real.to_path_buf(), identity: Identity::from(&stat), loader })
    }

    /// Refuses a folder, at a real path, that may be replaced or written.
    ///
    /// # Errors
    /// Why, as the rest of a sentence.
    pub fn refuse_folder(&self, real: &Path) -> Result<(), String> {
        self.refuse_replaced(real)?;
        self.refuse_writable_parts(real)
    }

    /// The programs of a folder that isn't refused; `is_open` tells whether a real path
    /// is seen inside. A link to what can't be listed is left out.
    ///
    /// # Errors
    /// Why the folder may not be listed, as the rest of a sentence.
    pub fn folder(&self, top: &Path, is_open: impl Fn(&Path) -> bool) -> Result<Contents, String> {
        let mut contents = Contents::default();
        let mut linked_elsewhere = HashSet::new();
        let mut of_many_names: Vec<(Identity, PathBuf)> = Vec::new();
        let (mut folders, mut left) = (vec![top.to_path_buf()], MOST_IN_FOLDER);
        while let Some(folder) = folders.pop() {
            for entry in entries(&folder)? {
                left = left.checked_sub(1).ok_or_else(|| {
                    format!(
                        "it holds more than {MOST_IN_FOLDER} files; name the folders of programs in it"
                    )
                })?;
                let path = entry.path();
                let Ok(stat) = rustix::fs::lstat(&path) else { continue };
                match FileType::from_raw_mode(stat.st_mode) {
                    FileType::Symlink => {
                        let walked = self.resolve(&path).ok();
                        let real = walked.map(|walked| walked.real);
                        let outside = real.filter(|real| !real.starts_with(top) && is_open(real));
                        contents.linked.extend(outside.and_then(|real| self.program(&real).ok()));
                        continue;
                    }
                    FileType::Directory => folders.push(path.clone()),
                    FileType::RegularFile => {
                        // One that isn't executable yet may be made so by another name.
                        if self.has_names_elsewhere(&path, &stat) {
                            linked_elsewhere.insert(Identity::from(&stat));
                        }
                        if stat.st_nlink > 1 {
                            of_many_names.push((Identity::from(&stat), path.clone()));
                        }
                        contents.loaders.extend(self.loader_in_folder(&path, &stat)?);
                    }
                    _ => continue,
                }
                if let Some(why) = self.trusted.changed_by_others(&path, &stat, None) {
                    return Err(why);
                }
            }
        }
        self.refuse_writable_names(&linked_elsewhere)?;
        // A loader by another name is one, too.
        let loaders: HashSet<Identity> =
            contents.loaders.iter().filter_map(|loader| identity_of(loader)).collect();
        let others = of_many_names.into_iter().filter(|(file, _)| loaders.contains(file));
        contents.loaders.extend(others.map(|(_, path)| path));
        contents.loaders.extend(contents.linked.iter().filter_map(|it| it.loader.clone()));
        Ok(contents)
    }

    /// How the sandbox could put a program in the place of one.
    #[must_use]
    pub fn may_be_replaced(&self, real: &Path) -> Option<String> {
        if real.starts_with(TMP) {
            return Some("it is in /tmp, where anything may be put".into());
        }
        let names = self.mounts.names_of(real);
        let folder =
            self.writable.iter().find(|its| names.iter().any(|name| name.starts_with(its)))?;
        Some(format!("it is in {}, which the sandbox may write", shown::word(folder)))
    }

    fn refuse_replaced(&self, real: &Path) -> Result<(), String> {
        if let Some(why) = self.may_be_replaced(real) {
            return Err(why);
        }
        match self.trusted.replaced_by_others(real) {
            Ok(None) => Ok(()),
            Ok(Some(why)) => Err(why),
            Err(error) => Err(reason(&error)),
        }
    }

    /// Refuses a folder of which a part, by whatever name, may be written.
    fn refuse_writable_parts(&self, real: &Path) -> Result<(), String> {
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

    /// Whether a file that the sandbox's user may change has names (hard links) in
    /// other folders than its own.
    fn has_names_elsewhere(&self, path: &Path, stat: &Stat) -> bool {
        let changes = self.caller.uid == 0
            || stat.st_uid == self.caller.uid
            || rustix::fs::access(path, Access::WRITE_OK).is_ok();
        if stat.st_nlink == 1 || !changes {
            return false;
        }
        let identity = Identity::from(stat);
        let beside = path.parent().map(entries).and_then(Result::ok).into_iter().flatten();
        let beside = beside.filter(|entry| is_it(entry, &HashSet::from([identity]))).count();
        (beside as u128) < u128::from(stat.st_nlink)
    }

    /// Refuses files of which a name lies where the sandbox may write.
    fn refuse_writable_names(&self, files: &HashSet<Identity>) -> Result<(), String> {
        if files.is_empty() {
            return Ok(());
        }
        let mut looks = 1;
        loop {
            match self.look_for_names(files) {
                Ok(()) => return Ok(()),
                // It may be where was looked before: only another look tells.
                Err(Stopped::Gone(_)) if looks < LOOKS => looks += 1,
                Err(Stopped::Gone(why) | Stopped::Because(why)) => return Err(why),
            }
        }
    }

    fn look_for_names(&self, files: &HashSet<Identity>) -> Result<(), Stopped> {
        let refused = |at: &Path| {
            format!(
                "it has another name (a hard link), {}, by which the sandbox may write it; copy it",
                shown::word(at)
            )
        };
        let (mut folders, mut left) = (Vec::new(), MOST_WRITABLE);
        for place in &self.writable {
            let stat = rustix::fs::lstat(place).map_err(|error| reason(&error.into()))?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => folders.push(place.clone()),
                _ if files.contains(&Identity::from(&stat)) => return Err(refused(place).into()),
                _ => {}
            }
        }
        while let Some(folder) = folders.pop() {
            let looked = entries(&folder).map_err(|why| match folder.exists() {
                true => Stopped::Because(why),
                false => Stopped::Gone(why),
            });
            for entry in looked? {
                left = left.checked_sub(1).ok_or(
                    "it has other names (hard links), and too many files may be written to look \
                     for them; copy it"
                        .to_owned(),
                )?;
                if is_it(&entry, files) {
                    return Err(refused(&entry.path()).into());
                }
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push(entry.path());
                }
            }
        }
        Ok(())
    }

    /// The loader that a program in a listed folder starts with, or that it is.
    fn loader_in_folder(&self, path: &Path, stat: &Stat) -> Result<Option<PathBuf>, String> {
        let Ok((Some(file), _)) = open(path) else { return Ok(None) };
        if is_loader(path, &head(&file)) {
            return Ok(Some(path.to_path_buf()));
        }
        if is_executable(stat) { self.loader_of(&file) } else { Ok(None) }
    }

    /// The loader that a program starts with, by its real path.
    fn loader_of(&self, file: &File) -> Result<Option<PathBuf>, String> {
        let Ok(Start::Elf { loader: Some(loader) }) = start::of_file(file) else { return Ok(None) };
        let refused = |why: String| format!("its loader {}: {why}", shown::word(&loader));
        if !loader.is_absolute() {
            return Err(refused("it is looked for from wherever the program is started".into()));
        }
        let walked = self.resolve(&loader).map_err(refused)?;
        if walked.exists {
            self.refuse_replaced(&walked.real).map_err(refused)?;
        }
        Ok(walked.exists.then_some(walked.real))
    }
}

/// A folder's entries; one that can't be looked through may hold anything.
fn entries(folder: &Path) -> Result<Vec<std::fs::DirEntry>, String> {
    let unread = |error: io::Error| {
        format!("{} can't be looked through: {}", shown::word(folder), reason(&error))
    };
    std::fs::read_dir(folder).map_err(unread)?.collect::<Result<_, _>>().map_err(unread)
}

fn is_it(entry: &std::fs::DirEntry, files: &HashSet<Identity>) -> bool {
    files.iter().any(|file| file.inode == entry.ino())
        && rustix::fs::lstat(entry.path()).is_ok_and(|stat| files.contains(&Identity::from(&stat)))
}

/// Opens a real path, to read where that is allowed.
fn open(real: &Path) -> io::Result<(Option<File>, Stat)> {
    let stat = rustix::fs::fstat(open_real(real)?)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok((None, stat));
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = flags | OFlags::CLOEXEC;
    let file =
        rustix::fs::openat2(rustix::fs::CWD, real, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    let is_same = |file: &_| {
        rustix::fs::fstat(file).is_ok_and(|its| Identity::from(&its) == Identity::from(&stat))
    };
    Ok((file.ok().filter(is_same).map(File::from), stat))
}

/// A file's first page, or less where there isn't one.
fn head(file: &File) -> Vec<u8> {
    let mut head = vec![0; 4096];
    let read = file.read_at(&mut head, 0).unwrap_or(0);
    head.truncate(read);
    head
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

/// What is at a real path.
pub(crate) fn identity_of(real: &Path) -> Option<Identity> {
    Some(Identity::from(&rustix::fs::lstat(real).ok()?))
}

/// How a file starts, as far as that can be read.
pub(crate) fn start_of(real: &Path) -> Start {
    let file = open(&real_or_written(real)).ok().and_then(|(file, _)| file);
    file.and_then(|file| start::of_file(&file).ok()).unwrap_or(Start::Other)
}
