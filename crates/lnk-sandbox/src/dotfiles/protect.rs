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
        let git_folder = if is_folder(&stat) {
            Some(found)
        } else {
            self.named_by(&found)?
        };
        if let (Some(Cover::Link { content }), Some(git_folder)) =
            (self.covers.get_mut(&name), &git_folder)
        {
            *content = [b"gitdir: ", git_folder.as_os_str().as_bytes(), b"\n"].concat();
        }
        Ok(git_folder)
    }

    /// The folder that a `.git` file names, covered where it's inside.
    fn named_by(&mut self, file: &Path) -> io::Result<Option<PathBuf>> {
        let Some(text) = self.read(file, MAX_POINTER)? else {
            return Ok(None);
        };
        let path = gitfile::parse(&text).map_err(|error| on(file, &error.to_string()))?;
        let found = self.cover(parent(file), as_path(path))?;
        Ok(found
            .filter(|(_, stat)| is_folder(stat))
            .map(|(path, _)| path))
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
        let config = self.config(&common.join("config"), top, 0)?;
        self.config(&git_folder.join(protected::CONFIG_WORKTREE), top, 0)?;
        let hash = if config.sha256() {
            index::Hash::Sha256
        } else {
            index::Hash::Sha1
        };
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
            return Err(on(
                top,
                "git's index holds a submodule with a path that leads elsewhere",
            ));
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
                && self
                    .read(&head, MAX_POINTER)?
                    .is_some_and(|h| names_a_commit(&h));
            if !valid {
                return Ok(());
            }
        }
        for name in protected::GIT_FOLDER {
            self.cover(self.folder, Path::new(name))?;
        }
        let config = self.config(&self.folder.join("config"), self.folder, 0)?;
        if config.worktree_config()
            || self
                .lstat(&self.folder.join(protected::CONFIG_WORKTREE))?
                .is_some()
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
            Some(stat) if is_file(&stat) => self
                .read(&head, MAX_POINTER)?
                .is_some_and(|head| names_a_commit(&head)),
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
        Ok(self
            .found(git_folder, as_path(path))?
            .is_some_and(|(path, _)| path == top))
    }

    fn is_linked_to(&mut self, top: &Path, git_folder: &Path) -> io::Result<bool> {
        let Some(path) = self.pointer(git_folder, "gitdir")? else {
            return Ok(false);
        };
        if path.file_name() != Some(OsStr::new(protected::GIT)) {
            return Ok(false);
        }
        Ok(self
            .found(git_folder, parent(&path))?
            .is_some_and(|(path, _)| path == top))
    }

    // --- configuration -------------------------------------------------------

    /// Covers what a configuration makes git run or read: the folders of hooks
    /// and the files that it includes, whatever their conditions.
    fn config(&mut self, file: &Path, top: &Path, depth: usize) -> io::Result<config::Config> {
        if depth > MAX_INCLUDES {
            return Err(on(
                file,
                "git configurations include one another too deeply",
            ));
        }
        let Some((file, stat)) = self.found(parent(file), Path::new(name_of(file)))? else {
            return Ok(config::Config::default());
        };
        if !self.configs.insert((file.clone(), top.to_owned())) && depth > 0 {
            return Ok(config::Config::default());
        }
        if is_folder(&stat) {
            return Ok(config::Config::default()); // a placeholder of another run
        }
        let Some(bytes) = self.read(&file, config::MAX_LEN)? else {
            return Ok(config::Config::default());
        };
        let config =
            config::Config::parse(&bytes).map_err(|error| on(&file, &error.to_string()))?;
        for path in config.includes().chain(config.conditional_includes()) {
            for (base, path) in self.readings(parent(&file), path) {
                if let Some((included, _)) = self.cover(&base, &path)? {
                    self.config(&included, top, depth + 1)?;
                }
            }
        }
        let work_tree = match config.worktree() {
            Some(path) => self
                .found(parent(&file), as_path(path))?
                .map(|(path, _)| path),
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
        let below = path[slash..]
            .iter()
            .position(|&b| b != b'/')
            .map_or(path.len(), |n| slash + n);
        let below = as_path(&path[below..]);
        let homes = self.folder.ancestors().skip(1);
        homes
            .map(|home| (home.to_owned(), below.to_owned()))
            .collect()
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
        for link in walk
            .links
            .iter()
            .filter(|link| link.starts_with(self.folder))
        {
            self.covers
                .entry(link.clone())
                .or_insert_with(|| Cover::Link {
                    content: Vec::new(),
                });
        }
    }

    fn finish(self) -> Protection {
        let covered = |path: &Path| {
            path.ancestors()
                .skip(1)
                .any(|above| self.covers.get(above) == Some(&Cover::ReadOnly))
        };
        let missing = self.missing.iter().filter(|path| !covered(path));
        let missing = missing
            .map(|path| {
                path.strip_prefix(self.folder)
                    .expect("only paths inside are recorded")
            })
            .map(Path::to_owned)
            .collect();
        // The map's order is by components, so parents come first.
        let masks = self
            .covers
            .iter()
            .filter(|(path, _)| !covered(path))
            .map(|(path, cover)| Mask {
                path: path.clone(),
                cover: cover.clone(),
            })
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
        let mut walk = Walk {
            folders: Vec::new(),
            links: Vec::new(),
            end: End::Missing(PathBuf::new()),
        };
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
                let below = if below.as_os_str().is_empty() {
                    Path::new(".")
                } else {
                    below
                };
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
    io::Error::other(format!(
        "{}: {what}",
        path.as_os_str().as_bytes().escape_ascii()
    ))
}
