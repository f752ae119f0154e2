//! Finds what must be covered in a write folder.
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
    /// The caller still refuses what may never be opened.
    pub reads: Vec<PathBuf>,
    /// What git runs or reads from outside the folder, by real path. It needs a
    /// read-only mount as well where another write folder holds it.
    pub outside: Vec<PathBuf>,
    /// Protected files that have more than one hard link: another name of the
    /// same file may still be writable.
    pub hard_linked: Vec<PathBuf>,
}

impl Protection {
    /// Everything to mount once the placeholders of `folder` are there: the
    /// masks and each placeholder, read-only, parents first.
    #[must_use]
    pub fn with_placeholders(&self, folder: &Path) -> Vec<Mask> {
        let placeholders = self
            .missing
            .iter()
            .map(|name| Mask { path: folder.join(name), cover: Cover::ReadOnly });
        let mut masks: Vec<_> = self.masks.iter().cloned().chain(placeholders).collect();
        masks.sort_by(|a, b| a.path.cmp(&b.path));
        masks
    }
}

/// Says how to protect `folder`, the absolute, real path of a folder that will
/// be writable inside.
///
/// # Errors
/// A folder that can't be looked at whole: an unreadable part, a git file that
/// is broken or too large (a configuration over 1 MiB, an index over 64 MiB or
/// with more than 1,024 submodules), a protected name that is neither file,
/// folder nor link. The message names the path, escaped, and the run must not
/// start.
pub fn protect(folder: &Path) -> io::Result<Protection> {
    let mut survey = Survey::open(folder)?;
    survey.names()?;
    survey.repository(folder)?;
    Ok(survey.finish())
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
    folders: Vec<PathBuf>,
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
    covers: BTreeMap<PathBuf, Cover>,
    missing: BTreeSet<PathBuf>,
    reads: BTreeSet<PathBuf>,
    outside: BTreeSet<PathBuf>,
    hard_linked: BTreeSet<PathBuf>,
    git_folders: BTreeSet<PathBuf>,
    configs: BTreeSet<(PathBuf, PathBuf)>,
    repositories: usize,
}

impl<'a> Survey<'a> {
    fn open(folder: &'a Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let fd = rustix::fs::openat2(CWD, folder, flags, Mode::empty(), how)
            .map_err(|error| on(folder, &error.to_string()))?;
        Ok(Survey {
            folder,
            fd,
            covers: BTreeMap::new(),
            missing: BTreeSet::new(),
            reads: BTreeSet::new(),
            outside: BTreeSet::new(),
            hard_linked: BTreeSet::new(),
            git_folders: BTreeSet::new(),
            configs: BTreeSet::new(),
            repositories: 0,
        })
    }

    // --- names ---------------------------------------------------------------

    fn names(&mut self) -> io::Result<()> {
        for name in protected::NAMES {
            let there = self.lstat(&self.folder.join(name.name))?.is_some();
            if there || name.if_missing == IfMissing::Placeholder {
                let found = self.cover(self.folder, Path::new(name.name))?;
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

    /// The `.git` of the work tree at `top`, a real path inside the folder.
    fn repository(&mut self, top: &Path) -> io::Result<()> {
        self.repositories += 1;
        if self.repositories > MAX_REPOSITORIES {
            return Err(on(top, &format!("more than {MAX_REPOSITORIES} submodules")));
        }
        let git_folder = self.git_folder_of(top)?;
        let mut valid = false;
        if let Some(git_folder) = git_folder {
            valid = self.is_git_folder(&git_folder)?;
            if valid && !self.is_inside(&git_folder) {
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
        let Some((found, stat)) = self.cover(top, Path::new(protected::GIT))? else {
            return Ok(None);
        };
        let git_folder = if is_folder(&stat) { Some(found) } else { self.named_by(top, &found)? };
        if let (Some(Cover::Link { content }), Some(git_folder)) =
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
        let found = self.cover(top, as_path(path))?;
        Ok(found.filter(|(_, stat)| is_folder(stat)).map(|(path, _)| path))
    }

    /// What git runs by way of a git folder's own files, wherever it lies.
    /// `top` is where its hooks run.
    fn git_folder(&mut self, git_folder: &Path, top: &Path) -> io::Result<()> {
        if !self.git_folders.insert(git_folder.to_owned()) {
            return Ok(());
        }
        // Not HEAD: as a link it names a branch, or git doesn't take it.
        let data = [protected::CONFIG_WORKTREE, "objects", "refs", "index"];
        for name in data.iter().chain(protected::GIT_FOLDER) {
            self.cover_link(git_folder, name)?;
        }
        self.cover_link(&git_folder.join("info"), "attributes")?;
        let common = self.common_folder(git_folder)?;
        if common != git_folder {
            self.git_folder(&common, top)?;
        }
        let hooks = self.found(&common, Path::new("hooks"))?;
        self.cover_links_in(hooks)?;
        let config = self.config(&common, Path::new("config"), top, 0)?;
        self.config(git_folder, Path::new(protected::CONFIG_WORKTREE), top, 0)?;
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
    fn common_folder(&mut self, git_folder: &Path) -> io::Result<PathBuf> {
        let Some(text) = self.pointer(git_folder, "commondir")? else {
            return Ok(git_folder.to_owned());
        };
        let found = self.cover(git_folder, &text)?;
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
                let found = found.clone();
                self.pin(&walk, &found);
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
            self.covers.insert(head, Cover::Link { content });
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
    fn is_git_folder(&mut self, git_folder: &Path) -> io::Result<bool> {
        let head = git_folder.join(protected::HEAD);
        let good = match self.lstat(&head)? {
            Some(stat) if is_link(&stat) => self.readlink(&head)?.starts_with("refs"),
            Some(stat) if is_file(&stat) => {
                self.read(&head, MAX_POINTER)?.is_some_and(|head| names_a_commit(&head))
            }
            _ => false,
        };
        let common = self.common_folder(git_folder)?;
        for name in ["objects", "refs"] {
            let found = self.found(&common, Path::new(name))?;
            if !found.is_some_and(|(_, stat)| is_folder(&stat)) {
                return Ok(false);
            }
        }
        Ok(good)
    }

    /// Makes a git folder outside readable, if it says itself that it belongs
    /// to the work tree at `top`. A `.git` file alone proves nothing: an
    /// earlier program may have written it.
    fn offer_to_read(&mut self, top: &Path, git_folder: &Path) -> io::Result<()> {
        let common = self.common_folder(git_folder)?;
        let agrees = if common == git_folder {
            self.is_submodule_of(top, git_folder)?
        } else {
            // A linked work tree's git folder is one of its repository's
            // `worktrees`; any other commondir could name any folder at all.
            git_folder.parent() == Some(common.join("worktrees").as_path())
                && self.is_git_folder(&common)?
                && self.is_linked_to(top, git_folder)?
        };
        if agrees && !self.is_inside(&common) {
            self.reads.insert(common);
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
        for folder in &walk.folders {
            self.pin_folder(folder);
        }
        self.cover_walked_links(&walk);
        match walk.end {
            End::Missing(path) => {
                if self.is_inside(&path) {
                    self.missing.insert(path);
                }
                Ok(None)
            }
            End::Found(path, stat) => {
                if path == self.folder {
                    let what =
                        "a dot file or a path in git's files leads to the write folder itself";
                    return Err(on(&path, what));
                }
                if self.is_inside(&path) && !is_file(&stat) && !is_folder(&stat) {
                    return Err(on(&path, "is neither a file nor a folder"));
                }
                if self.is_inside(&path) {
                    if is_file(&stat) && stat.st_nlink > 1 {
                        self.hard_linked.insert(path.clone());
                    }
                    self.covers.insert(path.clone(), Cover::ReadOnly);
                } else {
                    self.outside.insert(path.clone());
                }
                Ok(Some((path, stat)))
            }
        }
    }

    /// Covers the way to a folder that itself stays writable.
    fn pin(&mut self, walk: &Walk, folder: &Path) {
        for folder in walk.folders.iter().map(PathBuf::as_path).chain([folder]) {
            self.pin_folder(folder);
        }
        self.cover_walked_links(walk);
    }

    fn pin_folder(&mut self, folder: &Path) {
        if self.is_inside(folder) && folder != self.folder {
            self.covers.entry(folder.to_owned()).or_insert(Cover::Pin);
        }
    }

    fn cover_walked_links(&mut self, walk: &Walk) {
        for link in walk.links.iter().filter(|link| link.starts_with(self.folder)) {
            self.covers.entry(link.clone()).or_insert_with(|| Cover::Link { content: Vec::new() });
        }
    }

    fn finish(self) -> Protection {
        let covered = |path: &Path| {
            path.ancestors().skip(1).any(|above| self.covers.get(above) == Some(&Cover::ReadOnly))
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
            .map(|(path, cover)| Mask { path: path.clone(), cover: cover.clone() })
            .collect();
        Protection {
            masks,
            missing,
            reads: self.reads.into_iter().collect(),
            outside: self.outside.into_iter().collect(),
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
            if last.is_some() {
                walk.folders.push(at.clone());
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
            let protection = protect(&self.top).unwrap();
            for (i, mask) in protection.masks.iter().enumerate() {
                assert!(mask.path.starts_with(&self.top) && mask.path != self.top, "{mask:?}");
                let later_parent = |m: &Mask| mask.path.starts_with(&m.path);
                assert!(!protection.masks[i + 1..].iter().any(later_parent), "{mask:?} too early");
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
            protect(&self.top).unwrap_err().to_string()
        }
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
        assert_eq!((p.reads, p.outside, p.hard_linked), Default::default());
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
        assert_eq!(p.outside, [PathBuf::from("/etc/hostname")]);
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
        let p = protect(&tree).unwrap();
        assert_eq!(p.reads, [main.join(".git")]);
        assert_eq!(p.masks, [Mask { path: tree.join(".git"), cover: Cover::ReadOnly }]);
        assert!(!missing(&p, "HEAD"));

        // Another folder with the same .git file isn't its work tree.
        fs::copy(tree.join(".git"), place.top.join(".git")).unwrap();
        assert_eq!(place.protect().reads, [] as [PathBuf; 0]);
        // Nor may its commondir name any folder.
        let other = place.root.join("other");
        repository(&other);
        let commondir = other.join(".git").into_os_string().into_string().unwrap();
        fs::write(main.join(".git/worktrees/tree/commondir"), commondir).unwrap();
        assert_eq!(protect(&tree).unwrap().reads, [] as [PathBuf; 0]);
    }

    #[test]
    fn a_work_tree_of_a_bare_repository() {
        let place = place();
        repository(&place.root.join("main"));
        git(&place.root, &["clone", "-q", "--bare", "main", "bare.git"]);
        let bare = place.root.join("bare.git");
        let tree = place.top.join("tree");
        git(&bare, &["worktree", "add", "-q", tree.to_str().unwrap()]);
        assert_eq!(protect(&tree).unwrap().reads, [bare]);
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
        let p = protect(&one).unwrap();
        assert_eq!(p.reads, [place.top.join(".git/modules/deps/one")]);
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
        assert!(protect(&place.root.join("link")).is_err());
        assert!(protect(&place.root.join("none")).is_err());
    }
}
