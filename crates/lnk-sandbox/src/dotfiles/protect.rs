//! Finds what must be covered in a write folder.
//!
//! Git runs what the folder's own repository says, and as well what the ones
//! around it say and the user's configuration: they are all followed, and what
//! of it leads into the folder is covered.
//!
//! The folder may be hostile: everything in it is opened from the folder's
//! descriptor, component by component and never through a link that the kernel
//! resolves; reads are bounded; nothing but plain files is opened for reading;
//! and what can't be understood refuses the run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use lnk_spec::git::{config, gitfile, index};
use lnk_spec::protected::{self, IfMissing};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat};

use crate::paths::Identity;

/// How one path is covered inside the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cover {
    /// The file or folder, bound read-only over itself.
    ReadOnly,
    /// The path is a symbolic link. A read-only file with this content is
    /// mounted over the link itself, not over what it names, so that it can't
    /// be replaced.
    Link {
        /// Empty, or `gitdir: <path>` for a `.git`, so that git still works.
        content: Vec<u8>,
    },
    /// The folder, bound over itself and still writable, so that it can't be
    /// renamed and made anew with other content.
    Pin,
}

/// One mount over one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask {
    /// Absolute, inside the folder, without links in its parents.
    pub path: PathBuf,
    /// What is mounted there.
    pub cover: Cover,
    /// What was looked at under this path, to compare with what is mounted.
    /// `None` for a link and for a placeholder.
    pub identity: Option<Identity>,
}

/// What keeps a write folder's protected names as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Protection {
    /// In the order to mount: parents first. None lies below a
    /// [`Cover::ReadOnly`].
    pub masks: Vec<Mask>,
    /// Names that don't exist and must not come to exist, relative to the
    /// folder: to be made as placeholders, then bound read-only. Their parents
    /// exist and are among the masks.
    pub missing: Vec<PathBuf>,
    /// Folders outside that git needs to read here: the repository of a linked
    /// work tree or a submodule. Only those that name this folder as theirs.
    /// The caller still refuses what may never be opened, and mounts only what
    /// is still the same.
    pub reads: Vec<(PathBuf, Identity)>,
    /// Protected files that have more than one hard link: another name of the
    /// same file may still be writable.
    pub hard_linked: Vec<PathBuf>,
}

impl Protection {
    /// Everything to mount once the placeholders of `folder` are there: the
    /// masks and each placeholder, read-only, parents first.
    #[must_use]
    pub fn with_placeholders(&self, folder: &Path) -> Vec<Mask> {
        let placeholders = self.missing.iter().map(|name| Mask {
            path: folder.join(name),
            cover: Cover::ReadOnly,
            identity: None,
        });
        let mut masks: Vec<_> = self.masks.iter().cloned().chain(placeholders).collect();
        masks.sort_by(|a, b| a.path.cmp(&b.path));
        masks
    }
}

/// Says how to protect `folder`, the absolute, real path of a folder that will
/// be writable inside.
///
/// `config_files` are git's configuration files of the user and the system, by
/// absolute path; those that don't exist are passed over. `others` are the
/// run's other folders, by real path: what their repositories run may lie in
/// this one. Those inside `folder` don't count, they are protected themselves.
///
/// # Errors
/// A folder that can't be looked at whole: an unreadable part, a git file that
/// is broken or too large (a configuration over 1 MiB, an index over 64 MiB or
/// with more than 1,024 submodules), a protected name that is neither file,
/// folder nor link, the folder itself being where git runs something from. The
/// message names the path, escaped, and the run must not start. Outside the
/// folder, what the caller can't read is passed over: git can't either.
pub fn protect(
    folder: &Path,
    config_files: &[PathBuf],
    others: &[&Path],
) -> io::Result<Protection> {
    let mut survey = Survey::open(folder, config_files)?;
    survey.names(folder)?;
    survey.user_configuration(folder)?;
    survey.repository(folder)?;
    let others = others.iter().filter(|other| !other.starts_with(folder));
    for around in folder.ancestors().skip(1).chain(others.flat_map(|other| other.ancestors())) {
        survey.surrounding(around)?;
    }
    Ok(survey.finish())
}

/// The [`Protection::reads`] of a folder whose dot files are opened, which
/// needs nothing else of [`protect`].
///
/// # Errors
/// As for [`protect`], of the folder's `.git` and the repository it names.
pub fn reads_of(folder: &Path) -> io::Result<Vec<(PathBuf, Identity)>> {
    let mut survey = Survey::open(folder, &[])?;
    if let Some(git_folder) = survey.git_folder_of(folder)?
        && !survey.is_inside(&git_folder)
        && survey.is_git_folder(&git_folder, folder)?
    {
        survey.offer_to_read(folder, &git_folder)?;
    }
    Ok(survey.reads.into_iter().collect())
}

/// The most links followed in one path, as in the kernel.
const MAX_LINKS: usize = 40;

/// How deep configurations may include one another, as in git.
const MAX_INCLUDES: usize = 10;

/// The most repositories looked at, submodules of submodules counted.
const MAX_REPOSITORIES: usize = 1024;

/// The most entries of a folder of hooks, or of another protected folder, whose
/// links are followed.
const MAX_ENTRIES: usize = 10_000;

/// Longest first line of `HEAD`, `commondir` or `gitdir` that is read, in bytes.
const MAX_POINTER: usize = gitfile::MAX_LEN;

/// How one path leads to where it ends, found without the kernel following a
/// link. All paths are absolute and real.
struct Walk {
    /// The real folders on the way.
    folders: Vec<(PathBuf, Stat)>,
    /// The links on the way.
    links: Vec<PathBuf>,
    end: End,
}

enum End {
    /// It exists and isn't a link, or it is a file that stands where a folder
    /// was expected.
    Found(PathBuf, Stat),
    /// Its first component that doesn't exist.
    Missing(PathBuf),
}

struct Survey<'a> {
    folder: &'a Path,
    fd: OwnedFd,
    config_files: &'a [PathBuf],
    covers: BTreeMap<PathBuf, (Cover, Option<Identity>)>,
    missing: BTreeSet<PathBuf>,
    reads: BTreeMap<PathBuf, Identity>,
    hard_linked: BTreeSet<PathBuf>,
    /// Where repositories were looked for.
    tops: BTreeSet<PathBuf>,
    /// Git folders, each with the top whose repository it is.
    git_folders: BTreeSet<(PathBuf, PathBuf)>,
    configs: BTreeSet<(PathBuf, PathBuf)>,
}

impl<'a> Survey<'a> {
    fn open(folder: &'a Path, config_files: &'a [PathBuf]) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let fd = rustix::fs::openat2(CWD, folder, flags, Mode::empty(), how)
            .map_err(|error| on(folder, &error.to_string()))?;
        Ok(Survey {
            folder,
            fd,
            config_files,
            covers: BTreeMap::new(),
            missing: BTreeSet::new(),
            reads: BTreeMap::new(),
            hard_linked: BTreeSet::new(),
            tops: BTreeSet::new(),
            git_folders: BTreeSet::new(),
            configs: BTreeSet::new(),
        })
    }

    // --- names ---------------------------------------------------------------

    /// The protected names of the folder `top`, of which nothing is recorded
    /// but what is inside.
    fn names(&mut self, top: &Path) -> io::Result<()> {
        for name in protected::NAMES {
            let path = Path::new(name.name);
            let there = self.lstat(&top.join(path))?.is_some();
            // One that was itself given to be written stays so.
            let given =
                || Ok::<_, io::Error>(self.found(top, path)?.is_some_and(|it| it.0 == self.folder));
            if top != self.folder && (!there || given()?) {
                continue;
            }
            if there || name.if_missing == IfMissing::Placeholder {
                let found = self.cover(top, path)?;
                self.cover_links_in(found)?;
            }
        }
        Ok(())
    }

    /// What links directly in a protected folder name is protected too: a hook
    /// or a settings file is often a link to a file elsewhere in the tree.
    fn cover_links_in(&mut self, found: Option<(PathBuf, Stat)>) -> io::Result<()> {
        let Some((path, _)) = found.filter(|(_, stat)| is_folder(stat)) else {
            return Ok(());
        };
        for name in self.links_in(&path)? {
            self.cover(&path, Path::new(&name))?;
        }
        Ok(())
    }

    // --- repositories --------------------------------------------------------

    /// A folder outside that may be the top of a repository, or one itself.
    fn surrounding(&mut self, top: &Path) -> io::Result<()> {
        if self.tops.contains(top) {
            return Ok(());
        }
        if self.lstat(&top.join(protected::GIT))?.is_some() {
            self.names(top)?;
        }
        self.repository(top)?;
        if self.is_git_folder(top, top)? {
            self.git_folder(top, top)?;
        }
        Ok(())
    }

    /// The `.git` of the work tree at `top`, a real path.
    fn repository(&mut self, top: &Path) -> io::Result<()> {
        if !self.tops.insert(top.to_owned()) {
            return Ok(());
        }
        if self.tops.len() > MAX_REPOSITORIES {
            return Err(on(top, &format!("more than {MAX_REPOSITORIES} submodules")));
        }
        let git_folder = self.git_folder_of(top)?;
        let mut valid = false;
        if let Some(git_folder) = git_folder {
            valid = self.is_git_folder(&git_folder, top)?;
            if valid && self.is_inside(top) && !self.is_inside(&git_folder) {
                self.offer_to_read(top, &git_folder)?;
            }
            self.git_folder(&git_folder, top)?;
        }
        if top == self.folder && !valid {
            self.bare_repository()?;
        }
        Ok(())
    }

    /// Covers `top/.git` in whichever form it has, and finds the git folder
    /// that it stands for.
    fn git_folder_of(&mut self, top: &Path) -> io::Result<Option<PathBuf>> {
        let name = top.join(protected::GIT);
        let Some((found, stat)) = self.cover_git_folder(top, Path::new(protected::GIT), top)?
        else {
            return Ok(None);
        };
        let git_folder = if is_folder(&stat) { Some(found) } else { self.named_by(top, &found)? };
        if let (Some((Cover::Link { content }, _)), Some(git_folder)) =
            (self.covers.get_mut(&name), &git_folder)
        {
            *content = [b"gitdir: ", git_folder.as_os_str().as_bytes(), b"\n"].concat();
        }
        Ok(git_folder)
    }

    /// The folder that a `.git` file names, covered where it's inside. As in git,
    /// a relative path starts at `top`, even where the file is behind a link.
    fn named_by(&mut self, top: &Path, file: &Path) -> io::Result<Option<PathBuf>> {
        let Some(text) = self.read(file, MAX_POINTER)? else {
            return Ok(None);
        };
        let path = gitfile::parse(&text).map_err(|error| on(file, &error.to_string()))?;
        let found = self.cover_git_folder(top, as_path(path), top)?;
        Ok(found.filter(|(_, stat)| is_folder(stat)).map(|(path, _)| path))
    }

    /// Covers what should be a git folder. The write folder itself may be one
    /// of a repository outside: then each name that git runs is covered in it.
    fn cover_git_folder(
        &mut self,
        base: &Path,
        path: &Path,
        top: &Path,
    ) -> io::Result<Option<(PathBuf, Stat)>> {
        let walk = self.walk(base, path)?;
        match &walk.end {
            End::Found(found, stat) if found == self.folder && !self.is_inside(top) => {
                let found = (found.clone(), *stat);
                self.pin(&walk, None);
                self.bare_repository()?;
                Ok(Some(found))
            }
            _ => self.record(walk),
        }
    }

    /// What git runs by way of a git folder's own files, wherever it lies.
    /// `top` is where its hooks run.
    fn git_folder(&mut self, git_folder: &Path, top: &Path) -> io::Result<()> {
        if !self.git_folders.insert((git_folder.to_owned(), top.to_owned())) {
            return Ok(());
        }
        // Not HEAD: as a link it names a branch, or git doesn't take it.
        let data = [protected::CONFIG_WORKTREE, "objects", "refs", "index"];
        for name in data.iter().chain(protected::GIT_FOLDER) {
            self.cover_link(git_folder, name)?;
        }
        self.cover_link(&git_folder.join("info"), "attributes")?;
        let common = self.common_folder(git_folder, top)?;
        if common != git_folder {
            self.git_folder(&common, top)?;
        }
        let hooks = self.found(&common, Path::new("hooks"))?;
        self.cover_links_in(hooks)?;
        let config = self.config(&common, Path::new("config"), top, 0)?;
        self.config(git_folder, Path::new(protected::CONFIG_WORKTREE), top, 0)?;
        self.user_configuration(top)?;
        let hash = if config.sha256() { index::Hash::Sha256 } else { index::Hash::Sha1 };
        self.submodules(git_folder, top, hash)
    }

    /// Follows and covers one name of a git folder if it's a link. What isn't a
    /// link is covered with the git folder.
    fn cover_link(&mut self, git_folder: &Path, name: &str) -> io::Result<()> {
        match self.lstat(&git_folder.join(name))? {
            Some(stat) if is_link(&stat) => self.cover(git_folder, Path::new(name)).map(drop),
            _ => Ok(()),
        }
    }

    /// The folder that holds `config`, `hooks`, `objects` and `refs`: the git
    /// folder itself, or the one that its `commondir` names.
    fn common_folder(&mut self, git_folder: &Path, top: &Path) -> io::Result<PathBuf> {
        let Some(text) = self.pointer(git_folder, "commondir")? else {
            return Ok(git_folder.to_owned());
        };
        let found = self.cover_git_folder(git_folder, &text, top)?;
        match found {
            Some((path, stat)) if is_folder(&stat) => Ok(path),
            _ => Ok(git_folder.to_owned()),
        }
    }

    fn submodules(&mut self, git_folder: &Path, top: &Path, hash: index::Hash) -> io::Result<()> {
        let mut scan = self.index(&git_folder.join("index"), hash)?;
        if let Some(shared) = scan.shared.take() {
            let file = git_folder.join(format!("sharedindex.{shared}"));
            scan.gitlinks.extend(self.index(&file, hash)?.gitlinks);
        }
        for path in scan.gitlinks {
            self.submodule(top, as_path(&path))?;
        }
        Ok(())
    }

    fn submodule(&mut self, top: &Path, path: &Path) -> io::Result<()> {
        if !path.components().all(|c| matches!(c, Component::Normal(_))) {
            return Err(on(top, "git's index holds a submodule with a path that leads elsewhere"));
        }
        let walk = self.walk(top, path)?;
        match &walk.end {
            End::Found(found, stat) if is_folder(stat) => {
                let (found, stat) = (found.clone(), *stat);
                self.pin(&walk, Some((&found, &stat)));
                if found != top && self.is_inside(&found) {
                    self.repository(&found)
                } else {
                    Ok(())
                }
            }
            _ => self.record(walk).map(drop),
        }
    }

    fn index(&self, file: &Path, hash: index::Hash) -> io::Result<index::Scan> {
        let Some(file) = self.found(parent(file), Path::new(name_of(file)))? else {
            return Ok(index::Scan::default());
        };
        let Some(bytes) = self.read(&file.0, index::MAX_LEN)? else {
            return Ok(index::Scan::default());
        };
        index::scan(&bytes, hash).map_err(|error| on(&file.0, &error.to_string()))
    }

    /// A folder without a valid `.git` that is a bare repository, or that would
    /// become one with a `HEAD`. Then each name that git runs something from is
    /// covered by itself; objects and refs stay writable.
    ///
    /// A placeholder for `commondir` keeps git from working at the top of a
    /// bare repository for as long as the run lasts; without it, a program
    /// could have the user's next git command read its configuration.
    fn bare_repository(&mut self) -> io::Result<()> {
        let head = self.folder.join(protected::HEAD);
        let Some(stat) = self.lstat(&head)? else {
            self.missing.insert(head);
            return Ok(());
        };
        if is_link(&stat) {
            // Its target is a branch, which stays writable.
            let target = self.readlink(&head)?;
            let content = [b"ref: ", target.as_os_str().as_bytes(), b"\n"].concat();
            self.covers.insert(head, (Cover::Link { content }, None));
        } else {
            self.cover(self.folder, Path::new(protected::HEAD))?;
            let valid = is_file(&stat)
                && self.read(&head, MAX_POINTER)?.is_some_and(|h| names_a_commit(&h));
            if !valid {
                return Ok(());
            }
        }
        for name in protected::GIT_FOLDER {
            self.cover(self.folder, Path::new(name))?;
        }
        let config = self.config(self.folder, Path::new("config"), self.folder, 0)?;
        if config.worktree_config()
            || self.lstat(&self.folder.join(protected::CONFIG_WORKTREE))?.is_some()
        {
            self.cover(self.folder, Path::new(protected::CONFIG_WORKTREE))?;
        }
        self.git_folder(self.folder, self.folder)
    }

    /// Whether git takes a folder for a repository: then it looks no further,
    /// and a `HEAD` beside it means nothing.
    fn is_git_folder(&mut self, git_folder: &Path, top: &Path) -> io::Result<bool> {
        let head = git_folder.join(protected::HEAD);
        let good = match self.lstat(&head)? {
            Some(stat) if is_link(&stat) => self.readlink(&head)?.starts_with("refs"),
            Some(stat) if is_file(&stat) => {
                self.read(&head, MAX_POINTER)?.is_some_and(|head| names_a_commit(&head))
            }
            _ => false,
        };
        if !good {
            return Ok(false);
        }
        let common = self.common_folder(git_folder, top)?;
        for name in ["objects", "refs"] {
            let found = self.found(&common, Path::new(name))?;
            if !found.is_some_and(|(_, stat)| is_folder(&stat)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes a git folder outside readable, if it says itself that it belongs
    /// to the work tree at `top`. A `.git` file alone proves nothing: an
    /// earlier program may have written it.
    fn offer_to_read(&mut self, top: &Path, git_folder: &Path) -> io::Result<()> {
        let common = self.common_folder(git_folder, top)?;
        let Some(looked_at) = self.lstat(&common)? else {
            return Ok(());
        };
        let agrees = if common == git_folder {
            self.is_submodule_of(top, git_folder)?
        } else {
            // A linked work tree's git folder is one of its repository's
            // `worktrees`; any other commondir could name any folder at all.
            git_folder.parent() == Some(common.join("worktrees").as_path())
                && self.is_git_folder(&common, top)?
                && self.is_linked_to(top, git_folder)?
        };
        if agrees && !self.is_inside(&common) {
            self.reads.insert(common, Identity::from(&looked_at));
        }
        Ok(())
    }

    fn is_submodule_of(&mut self, top: &Path, git_folder: &Path) -> io::Result<bool> {
        let Some(file) = self.read(&git_folder.join("config"), config::MAX_LEN)? else {
            return Ok(false);
        };
        let Ok(config) = config::Config::parse(&file) else {
            return Ok(false);
        };
        let Some(path) = config.worktree() else {
            return Ok(false);
        };
        Ok(self.found(git_folder, as_path(path))?.is_some_and(|(path, _)| path == top))
    }

    fn is_linked_to(&mut self, top: &Path, git_folder: &Path) -> io::Result<bool> {
        let Some(path) = self.pointer(git_folder, "gitdir")? else {
            return Ok(false);
        };
        if path.file_name() != Some(OsStr::new(protected::GIT)) {
            return Ok(false);
        }
        Ok(self.found(git_folder, parent(&path))?.is_some_and(|(path, _)| path == top))
    }

    // --- configuration -------------------------------------------------------

    /// What the user's and the system's configuration makes git run or read for
    /// a repository at `top`.
    fn user_configuration(&mut self, top: &Path) -> io::Result<()> {
        let root = Path::new("/");
        for file in self.config_files {
            self.cover(root, file)?;
            self.config(root, file, top, 0)?;
        }
        Ok(())
    }

    /// Covers what a configuration makes git run or read: the folders of hooks
    /// and the files that it includes, whatever their conditions. It is the file
    /// that `path` names from `base`.
    fn config(
        &mut self,
        base: &Path,
        path: &Path,
        top: &Path,
        depth: usize,
    ) -> io::Result<config::Config> {
        let none = config::Config::default();
        let Some((file, stat)) = self.found(base, path)? else {
            return Ok(none);
        };
        if depth > MAX_INCLUDES {
            return Err(on(&file, "git configurations include one another too deeply"));
        }
        if !self.configs.insert((file.clone(), top.to_owned())) && depth > 0 {
            return Ok(none);
        }
        if is_folder(&stat) {
            return Ok(none); // a placeholder of another run
        }
        let Some(bytes) = self.read(&file, config::MAX_LEN)? else {
            return Ok(none);
        };
        let config =
            config::Config::parse(&bytes).map_err(|error| on(&file, &error.to_string()))?;
        // Where the file is a link, git starts at the link's folder.
        let from = self.found(base, parent(path))?.map_or(base.to_owned(), |(folder, _)| folder);
        for included in config.includes().chain(config.conditional_includes()) {
            for (base, path) in self.readings(&from, included) {
                self.cover(&base, &path)?;
                self.config(&base, &path, top, depth + 1)?;
            }
        }
        let work_tree = match config.worktree() {
            Some(path) => self.found(&from, as_path(path))?.map(|(path, _)| path),
            None => None,
        };
        for path in config.hooks_paths() {
            for base in [Some(top), work_tree.as_deref()].into_iter().flatten() {
                for (base, path) in self.readings(base, path) {
                    let hooks = self.cover(&base, &path)?;
                    self.cover_links_in(hooks)?;
                }
            }
        }
        Ok(config)
    }

    /// What a path in a configuration may mean (git-config(1), "pathname").
    /// `~` is a home, and which one doesn't matter: only one that holds the
    /// folder can lead into it.
    fn readings(&self, base: &Path, path: &[u8]) -> Vec<(PathBuf, PathBuf)> {
        let path = path.strip_prefix(b":(optional)").unwrap_or(path);
        if path.is_empty() || path.starts_with(b"%(prefix)/") {
            return Vec::new();
        }
        if path[0] != b'~' {
            return vec![(base.to_owned(), as_path(path).to_owned())];
        }
        let Some(slash) = path.iter().position(|&b| b == b'/') else {
            return Vec::new();
        };
        let below = path[slash..].iter().position(|&b| b != b'/').map_or(path.len(), |n| slash + n);
        let below = as_path(&path[below..]);
        let homes = self.folder.ancestors().skip(1);
        homes.map(|home| (home.to_owned(), below.to_owned())).collect()
    }

    // --- covering ------------------------------------------------------------

    /// Covers what `path` names from `base`: read-only if it exists, by a
    /// placeholder if it doesn't; its links and folders on the way so that it
    /// can't be replaced. Gives what exists, inside or outside.
    fn cover(&mut self, base: &Path, path: &Path) -> io::Result<Option<(PathBuf, Stat)>> {
        let walk = self.walk(base, path)?;
        self.record(walk)
    }

    fn record(&mut self, walk: Walk) -> io::Result<Option<(PathBuf, Stat)>> {
        self.pin(&walk, None);
        match walk.end {
            End::Missing(path) => {
                if self.is_inside(&path) {
                    self.missing.insert(path);
                }
                Ok(None)
            }
            End::Found(path, stat) => {
                if path == self.folder {
                    let what = "a dot file or a path in git's files leads to the write folder \
                                itself, which --write-dot-files opens";
                    return Err(on(&path, what));
                }
                if self.is_inside(&path) && !is_file(&stat) && !is_folder(&stat) {
                    return Err(on(&path, "is neither a file nor a folder; remove it"));
                }
                if self.is_inside(&path) {
                    if is_file(&stat) && stat.st_nlink > 1 {
                        self.hard_linked.insert(path.clone());
                    }
                    let cover = (Cover::ReadOnly, Some(Identity::from(&stat)));
                    self.covers.insert(path.clone(), cover);
                }
                Ok(Some((path, stat)))
            }
        }
    }

    /// Covers the way, and the folder at its end if that stays writable itself.
    fn pin(&mut self, walk: &Walk, end: Option<(&Path, &Stat)>) {
        let way = walk.folders.iter().map(|(folder, stat)| (folder.as_path(), stat));
        for (folder, stat) in way.chain(end) {
            if self.is_inside(folder) && folder != self.folder {
                let pin = || (Cover::Pin, Some(Identity::from(stat)));
                self.covers.entry(folder.to_owned()).or_insert_with(pin);
            }
        }
        self.cover_walked_links(walk);
    }

    fn cover_walked_links(&mut self, walk: &Walk) {
        let link = || (Cover::Link { content: Vec::new() }, None);
        for path in walk.links.iter().filter(|path| path.starts_with(self.folder)) {
            self.covers.entry(path.clone()).or_insert_with(link);
        }
    }

    fn finish(self) -> Protection {
        let covered = |path: &Path| {
            let cover = |above| self.covers.get(above).map(|(cover, _)| cover);
            path.ancestors().skip(1).any(|above| cover(above) == Some(&Cover::ReadOnly))
        };
        let missing = self.missing.iter().filter(|path| !covered(path));
        let missing = missing
            .map(|path| path.strip_prefix(self.folder).expect("only paths inside are recorded"))
            .map(Path::to_owned)
            .collect();
        // The map's order is by components, so parents come first.
        let masks = self
            .covers
            .iter()
            .filter(|(path, _)| !covered(path))
            .map(|(path, (cover, identity))| Mask {
                path: path.clone(),
                cover: cover.clone(),
                identity: *identity,
            })
            .collect();
        Protection {
            masks,
            missing,
            reads: self.reads.into_iter().collect(),
            hard_linked: self.hard_linked.into_iter().collect(),
        }
    }

    // --- looking -------------------------------------------------------------

    fn is_inside(&self, path: &Path) -> bool {
        path.starts_with(self.folder)
    }

    fn found(&self, base: &Path, path: &Path) -> io::Result<Option<(PathBuf, Stat)>> {
        match self.walk(base, path)?.end {
            End::Found(path, stat) => Ok(Some((path, stat))),
            End::Missing(_) => Ok(None),
        }
    }

    /// Follows `path` from the real folder `base` as the kernel would.
    fn walk(&self, base: &Path, path: &Path) -> io::Result<Walk> {
        let mut walk =
            Walk { folders: Vec::new(), links: Vec::new(), end: End::Missing(PathBuf::new()) };
        let mut at = base.to_owned();
        let mut last: Option<Stat> = None;
        let mut rest: VecDeque<OsString> = VecDeque::new();
        push_front(&mut rest, &mut at, path);
        let mut links = 0;
        while let Some(name) = rest.pop_front() {
            if name == ".." {
                at.pop();
                last = None;
                continue;
            }
            if let Some(stat) = last {
                walk.folders.push((at.clone(), stat));
            }
            let next = at.join(&name);
            let Some(stat) = self.lstat(&next)? else {
                // Made as a placeholder, `missing/../x` would begin to lead
                // somewhere.
                if self.is_inside(&next) && rest.iter().any(|name| name == "..") {
                    return Err(on(
                        &next,
                        "doesn't exist, and a path in git's files leads through it and back",
                    ));
                }
                walk.end = End::Missing(next);
                return Ok(walk);
            };
            if is_link(&stat) {
                links += 1;
                if links > MAX_LINKS {
                    return Err(on(&next, "too many symbolic links"));
                }
                let target = self.readlink(&next)?;
                walk.links.push(next);
                push_front(&mut rest, &mut at, &target);
                last = None;
                continue;
            }
            at = next;
            last = Some(stat);
            if !is_folder(&stat) {
                break;
            }
        }
        let stat = match last {
            Some(stat) => stat,
            None => match self.lstat(&at)? {
                Some(stat) => stat,
                None => return Err(on(&at, "vanished while it was looked at")),
            },
        };
        walk.end = End::Found(at, stat);
        Ok(walk)
    }

    /// Opens a real path without following any link: from the folder's
    /// descriptor where it's inside.
    fn open_at(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match path.strip_prefix(self.folder) {
            Ok(below) => {
                let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
                let how = how | ResolveFlags::BENEATH;
                rustix::fs::openat2(self.fd.as_fd(), below, flags, Mode::empty(), how)
            }
            Err(_) => rustix::fs::openat2(CWD, path, flags, Mode::empty(), how),
        }
    }

    /// `None` where nothing is, and where something outside can't be seen.
    fn lstat(&self, path: &Path) -> io::Result<Option<Stat>> {
        use rustix::io::Errno;
        match self.open_at(path, OFlags::PATH) {
            Ok(fd) => Ok(Some(rustix::fs::fstat(fd)?)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(Errno::ACCESS) if !self.is_inside(path) => Ok(None),
            Err(error) => Err(on(path, &error.to_string())),
        }
    }

    fn readlink(&self, path: &Path) -> io::Result<PathBuf> {
        let target = self
            .open_at(path, OFlags::PATH)
            .and_then(|fd| rustix::fs::readlinkat(fd, "", Vec::new()))
            .map_err(|error| on(path, &error.to_string()))?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    /// The whole of a plain file. `None` where nothing is, and where something
    /// outside can't be read.
    fn read(&self, path: &Path, limit: usize) -> io::Result<Option<Vec<u8>>> {
        let Some(stat) = self.lstat(path)? else {
            return Ok(None);
        };
        if !is_file(&stat) {
            // A pipe would let a program inside write to git through a
            // read-only mount. Outside, /dev/null is a usual include.
            return if self.is_inside(path) {
                Err(on(path, "is not a plain file"))
            } else {
                Ok(None)
            };
        }
        let fd = match self.open_at(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::ACCESS) if !self.is_inside(path) => return Ok(None),
            Err(error) => return Err(on(path, &error.to_string())),
        };
        if !is_file(&rustix::fs::fstat(&fd)?) {
            return Err(on(path, "is not a plain file"));
        }
        let mut bytes = Vec::new();
        let most = u64::try_from(limit).expect("the limits are small") + 1;
        std::fs::File::from(fd).take(most).read_to_end(&mut bytes)?;
        if bytes.len() > limit {
            return Err(on(path, &format!("is larger than {limit} bytes")));
        }
        Ok(Some(bytes))
    }

    /// The path in a one-line file of a git folder, such as `commondir`.
    fn pointer(&self, git_folder: &Path, name: &str) -> io::Result<Option<PathBuf>> {
        let Some((file, stat)) = self.found(git_folder, Path::new(name))? else {
            return Ok(None);
        };
        if is_folder(&stat) {
            return Ok(None); // a placeholder of another run
        }
        let Some(text) = self.read(&file, MAX_POINTER)? else {
            return Ok(None);
        };
        match gitfile::trim_line_ends(&text) {
            [] => Ok(None),
            path if path.contains(&0) => Err(on(&file, "holds a NUL byte")),
            path => Ok(Some(as_path(path).to_owned())),
        }
    }

    /// The names of the links directly in a folder.
    fn links_in(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
        let fd = match self.open_at(folder, flags) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::ACCESS) if !self.is_inside(folder) => return Ok(Vec::new()),
            Err(error) => return Err(on(folder, &error.to_string())),
        };
        let mut links = Vec::new();
        for (count, entry) in rustix::fs::Dir::new(fd)?.enumerate() {
            if count > MAX_ENTRIES {
                return Err(on(folder, &format!("holds more than {MAX_ENTRIES} names")));
            }
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let link = match entry.file_type() {
                FileType::Symlink => true,
                FileType::Unknown => self.lstat(&folder.join(name))?.is_some_and(|s| is_link(&s)),
                _ => false,
            };
            if link {
                links.push(name.to_owned());
            }
        }
        Ok(links)
    }
}

/// Puts a path's components before what is left to walk; an absolute one starts
/// again at the root.
fn push_front(rest: &mut VecDeque<OsString>, at: &mut PathBuf, path: &Path) {
    if path.is_absolute() {
        *at = PathBuf::from("/");
    }
    for component in path.components().rev() {
        if matches!(component, Component::Normal(_) | Component::ParentDir) {
            rest.push_front(component.as_os_str().to_owned());
        }
    }
}

/// Whether git accepts this as a `HEAD`: a branch by name, or an object.
fn names_a_commit(head: &[u8]) -> bool {
    if let Some(name) = head.strip_prefix(b"ref:") {
        return name.trim_ascii_start().starts_with(b"refs/");
    }
    head.len() >= 40 && head[..40].iter().all(u8::is_ascii_hexdigit)
}

fn is_link(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
}

fn is_folder(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

fn name_of(path: &Path) -> &OsStr {
    path.file_name().unwrap_or(path.as_os_str())
}

/// An error that names its path, escaped.
fn on(path: &Path, what: &str) -> io::Error {
    io::Error::other(format!("{}: {what}", path.as_os_str().as_bytes().escape_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    /// A folder `top` in a folder of its own.
    struct Place {
        _root: tempfile::TempDir,
        root: PathBuf,
        top: PathBuf,
    }

    fn place() -> Place {
        let root = tempfile::tempdir().unwrap();
        let real = root.path().canonicalize().unwrap();
        fs::create_dir(real.join("top")).unwrap();
        Place { top: real.join("top"), root: real, _root: root }
    }

    fn git(folder: &Path, args: &[&str]) {
        let out = Command::new("git")
            .current_dir(folder)
            .args(["-c", "protocol.file.allow=always", "-c", "user.name=n", "-c", "user.email=e"])
            .args(args)
            .output()
            .unwrap();
        assert!(out.status.success(), "git {args:?}: {}", out.stderr.escape_ascii());
    }

    fn repository(folder: &Path) {
        fs::create_dir_all(folder).unwrap();
        git(folder, &["init", "-q"]);
        git(folder, &["commit", "-q", "--allow-empty", "-m", "m"]);
    }

    impl Place {
        fn write(&self, path: &str, text: &str) {
            let path = self.top.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn protect(&self) -> Protection {
            let protection = protect(&self.top, &[], &[]).unwrap();
            for (i, mask) in protection.masks.iter().enumerate() {
                assert!(mask.path.starts_with(&self.top) && mask.path != self.top, "{mask:?}");
                let later_parent = |m: &Mask| mask.path.starts_with(&m.path);
                assert!(!protection.masks[i + 1..].iter().any(later_parent), "{mask:?} too early");
                let is_link = matches!(mask.cover, Cover::Link { .. });
                let expected = (!is_link).then(|| identity(&mask.path));
                assert_eq!(mask.identity, expected, "{mask:?}");
            }
            for missing in &protection.missing {
                assert!(fs::symlink_metadata(self.top.join(missing)).is_err());
                self.assert_pinned(&protection, missing);
            }
            for mask in &protection.masks {
                self.assert_pinned(&protection, mask.path.strip_prefix(&self.top).unwrap());
            }
            protection
        }

        /// Every folder between the top and `path` is a mount, so that none can
        /// be renamed.
        fn assert_pinned(&self, protection: &Protection, path: &Path) {
            for above in path.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()) {
                let cover = self.cover(protection, above.to_str().unwrap());
                assert!(cover.is_some(), "{above:?} above {path:?} isn't covered");
            }
        }

        fn cover(&self, protection: &Protection, path: &str) -> Option<Cover> {
            let path = self.top.join(path);
            protection.masks.iter().find(|m| m.path == path).map(|m| m.cover.clone())
        }

        fn refused(&self) -> String {
            protect(&self.top, &[], &[]).unwrap_err().to_string()
        }
    }

    fn identity(path: &Path) -> Identity {
        Identity::from(&rustix::fs::lstat(path).unwrap())
    }

    fn read(path: &Path) -> (PathBuf, Identity) {
        (path.to_owned(), identity(path))
    }

    fn link(content: &str) -> Option<Cover> {
        Some(Cover::Link { content: content.into() })
    }

    fn missing(protection: &Protection, name: &str) -> bool {
        protection.missing.contains(&PathBuf::from(name))
    }

    const READ_ONLY: Option<Cover> = Some(Cover::ReadOnly);
    const PIN: Option<Cover> = Some(Cover::Pin);

    #[test]
    fn an_empty_folder_gets_placeholders_only() {
        let p = place().protect();
        assert_eq!(p.masks, []);
        assert!(missing(&p, ".git") && missing(&p, "HEAD") && missing(&p, ".envrc"));
        assert!(!missing(&p, ".mcp.json"));
    }

    #[test]
    fn existing_names_are_read_only_and_others_untouched() {
        let place = place();
        repository(&place.top);
        place.write(".envrc", "x");
        place.write(".vscode/tasks.json", "x");
        place.write(".mcp.json", "x");
        place.write("src/main.rs", "x");
        let p = place.protect();
        for name in [".git", ".envrc", ".vscode", ".mcp.json"] {
            assert_eq!(place.cover(&p, name), READ_ONLY, "{name}");
        }
        assert_eq!(p.masks.len(), 4);
        assert!(!missing(&p, "HEAD") && !missing(&p, ".git") && missing(&p, ".idea"));
        assert_eq!((p.reads, p.hard_linked), Default::default());
    }

    #[test]
    fn a_linked_name_is_covered_with_its_target() {
        let place = place();
        place.write("conf/editor/tasks.json", "x");
        symlink("conf/editor", place.top.join(".vscode")).unwrap();
        symlink("conf/none/env", place.top.join(".envrc")).unwrap();
        symlink("/etc/hostname", place.top.join(".exrc")).unwrap();
        let p = place.protect();
        assert_eq!(place.cover(&p, ".vscode"), link(""));
        assert_eq!(place.cover(&p, "conf"), PIN);
        assert_eq!(place.cover(&p, "conf/editor"), READ_ONLY);
        assert_eq!(place.cover(&p, ".envrc"), link(""));
        assert!(missing(&p, "conf/none"));
        assert_eq!(place.cover(&p, ".exrc"), link(""));
    }

    #[test]
    fn links_in_a_protected_folder_lead_on() {
        let place = place();
        repository(&place.top);
        place.write("scripts/check.sh", "x");
        symlink("../../scripts/check.sh", place.top.join(".git/hooks/pre-commit")).unwrap();
        place.write("tasks.json", "x");
        fs::create_dir(place.top.join(".vscode")).unwrap();
        symlink("../tasks.json", place.top.join(".vscode/tasks.json")).unwrap();
        let p = place.protect();
        assert_eq!(place.cover(&p, "scripts/check.sh"), READ_ONLY);
        assert_eq!(place.cover(&p, "tasks.json"), READ_ONLY);
        assert_eq!(place.cover(&p, ".git/hooks/pre-commit"), None);
    }

    #[test]
    fn a_linked_git_folder_says_where_it_is() {
        let place = place();
        repository(&place.top);
        fs::create_dir(place.top.join("store")).unwrap();
        fs::rename(place.top.join(".git"), place.top.join("store/git")).unwrap();
        symlink("store/git", place.top.join(".git")).unwrap();
        let p = place.protect();
        let real = place.top.join("store/git");
        assert_eq!(place.cover(&p, ".git"), link(&format!("gitdir: {}\n", real.display())));
        assert_eq!(place.cover(&p, "store"), PIN);
        assert_eq!(place.cover(&p, "store/git"), READ_ONLY);
        assert!(!missing(&p, "HEAD"));
    }

    #[test]
    fn a_git_file_is_followed_inside() {
        let place = place();
        fs::create_dir_all(place.top.join("a/b")).unwrap();
        git(&place.top, &["init", "-q", "--separate-git-dir", "a/b/git"]);
        fs::write(place.top.join(".git"), "gitdir: a/b/git\n").unwrap();
        let p = place.protect();
        for (name, cover) in [(".git", READ_ONLY), ("a", PIN), ("a/b", PIN), ("a/b/git", READ_ONLY)]
        {
            assert_eq!(place.cover(&p, name), cover, "{name}");
        }
    }

    #[test]
    fn a_linked_work_tree_may_read_its_repository_and_no_other() {
        let place = place();
        let main = place.root.join("main");
        repository(&main);
        let tree = place.top.join("tree");
        git(&main, &["worktree", "add", "-q", tree.to_str().unwrap()]);
        let p = protect(&tree, &[], &[]).unwrap();
        assert_eq!(p.reads, [read(&main.join(".git"))]);
        assert_eq!(reads_of(&tree).unwrap(), p.reads);
        let (path, identity) = read(&tree.join(".git"));
        assert_eq!(p.masks, [Mask { path, cover: Cover::ReadOnly, identity: Some(identity) }]);
        assert!(!missing(&p, "HEAD"));

        // Another folder with the same .git file isn't its work tree.
        fs::copy(tree.join(".git"), place.top.join(".git")).unwrap();
        assert_eq!(place.protect().reads, []);
        // Nor may its commondir name any folder.
        let other = place.root.join("other");
        repository(&other);
        let commondir = other.join(".git").into_os_string().into_string().unwrap();
        fs::write(main.join(".git/worktrees/tree/commondir"), commondir).unwrap();
        assert_eq!(protect(&tree, &[], &[]).unwrap().reads, []);
    }

    #[test]
    fn a_work_tree_of_a_bare_repository() {
        let place = place();
        repository(&place.root.join("main"));
        git(&place.root, &["clone", "-q", "--bare", "main", "bare.git"]);
        let bare = place.root.join("bare.git");
        let tree = place.top.join("tree");
        git(&bare, &["worktree", "add", "-q", tree.to_str().unwrap()]);
        assert_eq!(protect(&tree, &[], &[]).unwrap().reads, [read(&bare)]);
    }

    #[test]
    fn submodules_are_protected_where_they_are() {
        let place = place();
        let lib = place.root.join("lib");
        repository(&lib);
        repository(&place.top);
        let lib = lib.to_str().unwrap();
        git(&place.top, &["submodule", "add", "-q", lib, "deps/one"]);
        git(&place.top, &["submodule", "add", "-q", lib, "deps/two"]);
        git(&place.top, &["submodule", "add", "-q", lib, "three"]);
        git(&place.top, &["submodule", "deinit", "-q", "-f", "deps/two"]);
        fs::remove_dir_all(place.top.join("three")).unwrap();
        let p = place.protect();
        assert_eq!(place.cover(&p, "deps"), PIN);
        assert_eq!(place.cover(&p, "deps/one"), PIN);
        assert_eq!(place.cover(&p, "deps/one/.git"), READ_ONLY);
        assert!(missing(&p, "deps/two/.git"));
        let all = p.with_placeholders(&place.top);
        let at = |name: &str| all.iter().position(|m| m.path == place.top.join(name));
        assert!(at("deps") < at("deps/two") && at("deps/two") < at("deps/two/.git"));
        assert_eq!(all.len(), p.masks.len() + p.missing.len());
        assert!(missing(&p, "three"));

        // The submodule's own folder as write folder.
        let one = place.top.join("deps/one");
        let p = protect(&one, &[], &[]).unwrap();
        assert_eq!(p.reads, [read(&place.top.join(".git/modules/deps/one"))]);
    }

    #[test]
    fn hooks_and_includes_inside_are_protected() {
        let place = place();
        repository(&place.top);
        place.write("conf/git", "[include]\npath = more\n");
        place.write("conf/more", "[core]\nhooksPath = tools/hooks\n");
        place.write("tools/hooks/pre-commit", "x");
        let name = place.top.file_name().unwrap().to_str().unwrap();
        git(&place.top, &["config", "include.path", "../conf/git"]);
        git(&place.top, &["config", "includeIf.onbranch:x.path", "../none/at/all"]);
        git(&place.top, &["config", "core.hooksPath", &format!("~/{name}/later/hooks")]);
        let p = place.protect();
        for file in ["conf/git", "conf/more", "tools/hooks"] {
            assert_eq!(place.cover(&p, file), READ_ONLY, "{file}");
        }
        assert!(missing(&p, "none") && missing(&p, "later"));
    }

    #[test]
    fn relative_paths_start_where_git_starts_them() {
        let place = place();
        repository(&place.top.join("repo"));
        fs::create_dir(place.top.join("conf")).unwrap();
        let git_folder = place.top.join("repo/.git");
        fs::rename(git_folder.join("config"), place.top.join("conf/config")).unwrap();
        symlink("../../conf/config", git_folder.join("config")).unwrap();
        let config = place.top.join("conf/config");
        git(&place.top, &["config", "--file", config.to_str().unwrap(), "include.path", "../inc"]);
        place.write("repo/inc", "[core]\nhooksPath = by-name");
        place.write("conf/gitfile", "gitdir: repo/.git");
        symlink("conf/gitfile", place.top.join(".git")).unwrap();
        let out = Command::new("git")
            .current_dir(&place.top)
            .args(["config", "core.hooksPath"])
            .output()
            .unwrap();
        assert_eq!(out.stdout, b"by-name\n");
        let p = place.protect();
        let content = format!("gitdir: {}\n", git_folder.display());
        assert_eq!(place.cover(&p, ".git"), link(&content));
        for name in ["conf/gitfile", "conf/config", "repo/.git", "repo/inc"] {
            assert_eq!(place.cover(&p, name), READ_ONLY, "{name}");
        }
        assert!(missing(&p, "by-name"));
    }

    #[test]
    fn a_bare_repository_keeps_its_data_writable_only() {
        let place = place();
        git(&place.top, &["init", "-q", "--bare"]);
        let p = place.protect();
        for name in ["HEAD", "config", "hooks", "info"] {
            assert_eq!(place.cover(&p, name), READ_ONLY, "{name}");
        }
        for name in [".git", "commondir", "worktrees", "modules"] {
            assert!(missing(&p, name), "{name}");
        }
        for name in ["objects", "refs"] {
            assert_eq!(place.cover(&p, name), None, "{name}");
        }
    }

    #[test]
    fn a_head_without_the_rest_is_a_repository_to_be() {
        let place = place();
        place.write("HEAD", "ref: refs/heads/main\n");
        assert!(missing(&place.protect(), "config"));
        place.write("HEAD", "just a file\n");
        let p = place.protect();
        assert_eq!(place.cover(&p, "HEAD"), READ_ONLY);
        assert!(!missing(&p, "config"));
        fs::remove_file(place.top.join("HEAD")).unwrap();
        symlink("refs/heads/main", place.top.join("HEAD")).unwrap();
        let p = place.protect();
        assert_eq!(place.cover(&p, "HEAD"), link("ref: refs/heads/main\n"));
        assert!(missing(&p, "config") && !missing(&p, "refs"));
    }

    #[test]
    fn an_invalid_git_folder_leaves_head_protected() {
        let place = place();
        fs::create_dir(place.top.join(".git")).unwrap();
        let p = place.protect();
        assert_eq!(place.cover(&p, ".git"), READ_ONLY);
        assert!(missing(&p, "HEAD"));
    }

    #[test]
    fn hard_links_are_told() {
        let place = place();
        place.write("free", "x");
        fs::hard_link(place.top.join("free"), place.top.join(".envrc")).unwrap();
        assert_eq!(place.protect().hard_linked, [place.top.join(".envrc")]);
    }

    #[test]
    fn what_cannot_be_looked_at_whole_refuses_the_run() {
        let place = place();
        repository(&place.top);
        let config = fs::read(place.top.join(".git/config")).unwrap();
        place.write(".git/config", "[core\n");
        assert!(place.refused().contains(".git/config: a bad line"));
        place.write(".git/config", &"\n".repeat(config::MAX_LEN + 1));
        assert!(place.refused().contains("larger than"));
        fs::remove_file(place.top.join(".git/config")).unwrap();
        let pipe = place.top.join(".git/config");
        rustix::fs::mkfifoat(CWD, &pipe, Mode::RWXU).unwrap();
        assert!(place.refused().contains("not a plain file"));
        fs::remove_file(&pipe).unwrap();
        fs::write(&pipe, config).unwrap();
        place.write(".git/index", "garbage");
        assert!(place.refused().contains("not a git index"));
        fs::remove_file(place.top.join(".git/index")).unwrap();
        place.protect();

        rustix::fs::mkfifoat(CWD, place.top.join(".envrc"), Mode::RWXU).unwrap();
        assert!(place.refused().contains("neither a file nor a folder"));
        fs::remove_file(place.top.join(".envrc")).unwrap();
        symlink(".envrc", place.top.join(".envrc")).unwrap();
        assert!(place.refused().contains("too many symbolic links"));
        fs::remove_file(place.top.join(".envrc")).unwrap();
        symlink("nothing/../x", place.top.join(".envrc")).unwrap();
        assert!(place.refused().contains("and back"));
        fs::remove_file(place.top.join(".envrc")).unwrap();
        git(&place.top, &["config", "core.hooksPath", "."]);
        assert!(place.refused().contains("the write folder itself"));
    }

    /// A write folder `top/sub` in the repository `top`.
    fn sub(place: &Place) -> PathBuf {
        repository(&place.top);
        fs::create_dir_all(place.top.join("sub")).unwrap();
        place.top.join("sub")
    }

    fn covered(protection: &Protection, path: &Path) -> Option<Cover> {
        protection.masks.iter().find(|m| m.path == path).map(|m| m.cover.clone())
    }

    #[test]
    fn what_the_repository_around_runs_is_covered() {
        let place = place();
        let sub = sub(&place);
        place.write("sub/tools/hooks/pre-commit", "x");
        place.write("sub/cfg/shared", "[core]\nhooksPath = sub/later/hooks\n");
        place.write("sub/check.sh", "x");
        place.write("sub/envrc", "x");
        place.write("sub/tasks", "x");
        git(&place.top, &["config", "core.hooksPath", "sub/tools/hooks"]);
        git(&place.top, &["config", "include.path", "../sub/cfg/shared"]);
        symlink("../../sub/check.sh", place.top.join(".git/hooks/post-commit")).unwrap();
        symlink("sub/envrc", place.top.join(".envrc")).unwrap();
        fs::create_dir(place.top.join(".vscode")).unwrap();
        symlink("../sub/tasks", place.top.join(".vscode/tasks.json")).unwrap();
        let p = protect(&sub, &[], &[]).unwrap();
        for (path, cover) in [
            ("tools", PIN),
            ("tools/hooks", READ_ONLY),
            ("cfg", PIN),
            ("cfg/shared", READ_ONLY),
            ("check.sh", READ_ONLY),
            ("envrc", READ_ONLY),
            ("tasks", READ_ONLY),
        ] {
            assert_eq!(covered(&p, &sub.join(path)), cover, "{path}");
        }
        assert!(missing(&p, "later"));
        assert!(p.masks.iter().all(|mask| mask.path.starts_with(&sub)));
        assert_eq!(p.reads, []);
    }

    #[test]
    fn a_linked_work_tree_around_is_followed_to_its_repository() {
        let place = place();
        let main = place.root.join("main");
        repository(&main);
        let tree = place.top.join("tree");
        git(&main, &["worktree", "add", "-q", tree.to_str().unwrap()]);
        git(&main, &["config", "core.hooksPath", "sub/hooks"]);
        place.write("tree/sub/hooks/pre-commit", "x");
        let sub = tree.join("sub");
        let p = protect(&sub, &[], &[]).unwrap();
        assert_eq!(covered(&p, &sub.join("hooks")), READ_ONLY);
        // Only a work tree of its own may read the repository.
        assert_eq!(p.reads, []);
    }

    #[test]
    fn submodules_of_the_repository_around_are_covered() {
        let place = place();
        let lib = place.root.join("lib");
        repository(&lib);
        let sub = sub(&place);
        git(&place.top, &["submodule", "add", "-q", lib.to_str().unwrap(), "sub/dep"]);
        let p = protect(&sub, &[], &[]).unwrap();
        assert_eq!(covered(&p, &sub.join("dep")), PIN);
        assert_eq!(covered(&p, &sub.join("dep/.git")), READ_ONLY);
        fs::remove_dir_all(sub.join("dep")).unwrap();
        assert!(missing(&protect(&sub, &[], &[]).unwrap(), "dep"));
        // The submodule as write folder of its own.
        fs::create_dir(sub.join("dep")).unwrap();
        assert!(missing(&protect(&sub.join("dep"), &[], &[]).unwrap(), ".git"));
    }

    #[test]
    fn what_the_users_configuration_names_is_covered() {
        let place = place();
        let home = place.root.join("home");
        let sub = sub(&place);
        place.write("sub/dots/gitconfig", "[include]\npath = more\n");
        place.write("sub/dots/more", "[core]\nhooksPath = .githooks\n");
        place.write("sub/shared", "[alias]\n");
        fs::create_dir_all(home.join(".config/git")).unwrap();
        symlink(sub.join("dots/gitconfig"), home.join(".gitconfig")).unwrap();
        let include = format!("[include]\npath = {0}/shared\npath = {0}/none\n", sub.display());
        fs::write(home.join(".config/git/config"), include).unwrap();
        fs::write(home.join("more"), "[core]\nhooksPath = sub/at-the-top\n").unwrap();
        let files =
            [".gitconfig", ".config/git/config", ".config/none"].map(|name| home.join(name));
        let p = protect(&sub, &files, &[]).unwrap();
        assert_eq!(covered(&p, &sub.join("dots/gitconfig")), READ_ONLY);
        assert_eq!(covered(&p, &sub.join("shared")), READ_ONLY);
        assert!(missing(&p, "none") && missing(&p, ".githooks"));
        // As git does, where the file's link is: there hooks are the top's.
        assert!(missing(&p, "at-the-top"));
        assert_eq!(covered(&p, &sub.join("dots/more")), None);
    }

    #[test]
    fn what_another_folders_repository_runs_is_covered() {
        let place = place();
        let other = place.root.join("other");
        repository(&other);
        git(&other, &["config", "core.hooksPath", "../top/hooks"]);
        place.write("hooks/pre-commit", "x");
        assert_eq!(place.cover(&place.protect(), "hooks"), None);
        let p = protect(&place.top, &[], &[&other]).unwrap();
        assert_eq!(place.cover(&p, "hooks"), READ_ONLY);
        // A work tree whose repository lies below the write folder's top.
        let tree = place.root.join("tree");
        repository(&place.top.join("in/main"));
        git(&place.top.join("in/main"), &["worktree", "add", "-q", tree.to_str().unwrap()]);
        let p = protect(&place.top, &[], &[&tree]).unwrap();
        assert_eq!(place.cover(&p, "in/main"), PIN);
        assert_eq!(place.cover(&p, "in/main/.git"), READ_ONLY);
    }

    #[test]
    fn a_git_folder_as_write_folder_is_covered_by_name() {
        let place = place();
        let sub = sub(&place);
        fs::rename(place.top.join(".git"), sub.join(".git")).unwrap();
        git(&sub, &["config", "core.hooksPath", ".git/own"]);
        let git_folder = sub.join(".git");
        let tree = place.root.join("tree");
        git(&sub, &["worktree", "add", "-q", tree.to_str().unwrap()]);
        for others in [&[][..], &[tree.as_path()]] {
            let p = protect(&git_folder, &[], others).unwrap();
            for name in ["HEAD", "config", "hooks", "info", "worktrees"] {
                assert_eq!(covered(&p, &git_folder.join(name)), READ_ONLY, "{name}");
            }
            assert!(missing(&p, "own") && missing(&p, "commondir"));
            assert_eq!(covered(&p, &git_folder.join("objects")), None);
        }
        // Also when the folder is a repository itself besides.
        let other = place.root.join("other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join(".git"), format!("gitdir: {}\n", sub.display())).unwrap();
        for name in ["HEAD", "config", "objects", "refs"] {
            let _ = Command::new("cp").arg("-r").arg(git_folder.join(name)).arg(&sub).status();
        }
        let p = protect(&sub, &[], &[&other]).unwrap();
        assert_eq!(covered(&p, &sub.join("config")), READ_ONLY);
        assert_eq!(covered(&p, &sub.join(".git")), READ_ONLY);
    }

    #[test]
    fn a_folder_of_hooks_as_write_folder_is_refused() {
        let place = place();
        let sub = sub(&place);
        git(&place.top, &["config", "core.hooksPath", "sub"]);
        let error = protect(&sub, &[], &[]).unwrap_err().to_string();
        assert!(error.contains("--write-dot-files opens"), "{error}");
        assert_eq!(reads_of(&sub).unwrap(), []);
        // A protected name that is given by itself is open.
        git(&place.top, &["config", "--unset", "core.hooksPath"]);
        symlink("sub", place.top.join(".vscode")).unwrap();
        protect(&sub, &[], &[]).unwrap();
    }

    #[test]
    fn a_broken_repository_around_refuses_the_run() {
        let place = place();
        let sub = sub(&place);
        place.write(".git/config", "[core\n");
        let error = protect(&sub, &[], &[]).unwrap_err().to_string();
        assert!(error.contains("top/.git/config: a bad line"), "{error}");
    }

    #[test]
    fn a_refusal_escapes_the_path() {
        let place = place();
        repository(&place.top);
        git(&place.top, &["config", "include.path", "../a\x1b[2J"]);
        place.write("a\x1b[2J", "!");
        assert!(place.refused().contains("a\\x1b[2J"));
    }

    #[test]
    fn a_path_that_is_no_real_folder_is_refused() {
        let place = place();
        symlink(&place.top, place.root.join("link")).unwrap();
        assert!(protect(&place.root.join("link"), &[], &[]).is_err());
        assert!(protect(&place.root.join("none"), &[], &[]).is_err());
    }
}
