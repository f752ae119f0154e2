//! A sandbox as plain data: which mounts it has, in which order, and what its
//! program starts with. Nothing here needs a privilege; both renderers of the
//! mounts read the same list.

use std::collections::HashMap;
use std::ffi::OsString;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use crate::caller::Caller;
use crate::dotfiles::{Cover, Mask};
use crate::env::{self, Environment};
use crate::error::{Error, Result};
use crate::faults::{Fault, Faults};
use crate::linux::processes::Limit;
use crate::names::{self, Names, RESOLV_CONF};
use crate::network::{Listens, PROXY_PORT};
use crate::paths::{Identity, Link, walk};
use crate::policy::{Hide, Policy};
use crate::programs::Programs;
use crate::programs::loader::{self, Unpatchable};
use crate::spec_file::read_plain;
use crate::ssh::{self, Ssh};
use crate::system::{self, Entry};
use lnk_spec::shown;
use rustix::fs::FileType;

/// Where the sandbox keeps what is Link's: its own program and covers. A
/// read-only place of its own in `/run`.
pub const OWN_FOLDER: &str = "/run/lnk";
/// `lnk` itself, started inside to finish the fences.
pub const OWN_BINARY: &str = "/run/lnk/lnk";

/// The git configuration of a home that is an agent's own and has none.
const GITCONFIG: &str = "/run/lnk/gitconfig";

/// The first argument that makes `lnk` a probe.
pub const PROBE: &str = "__probe";

/// An empty file that nobody may read, to cover others with.
pub const EMPTY_COVER: &str = "/run/lnk/empty";

/// An empty folder that nobody may read, to cover others with.
pub const EMPTY_FOLDER: &str = "/run/lnk/hidden";

/// A loader's bytes at most: the longest there are have two million.
const MAX_LOADER: usize = 16 << 20;

/// One step of building the file tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mount {
    /// A file system in memory.
    Tmpfs {
        /// Where.
        target: PathBuf,
        /// The mode of its top folder.
        mode: u32,
        /// Made read-only once everything in it is in place.
        frozen: bool,
        /// What it hides, as it was when it was judged.
        over: Option<Identity>,
    },
    /// A file with this content, in a file system in memory.
    File {
        /// Where.
        target: PathBuf,
        /// What it holds.
        content: Vec<u8>,
        /// Its mode.
        mode: u32,
    },
    /// A symbolic link, in a file system in memory.
    Link {
        /// Where.
        target: PathBuf,
        /// What it says.
        to: PathBuf,
    },
    /// A file or folder of the machine's, at the same or another path.
    Bind {
        /// Its real path outside.
        source: PathBuf,
        /// Where it appears.
        target: PathBuf,
        /// What it was when it was judged.
        identity: Identity,
        /// Whether it may be written.
        write: bool,
        /// Whether it is a folder.
        folder: bool,
    },
    /// A generated file of [`OWN_FOLDER`], read-only, over a file or over a
    /// link itself.
    Cover {
        /// What is covered.
        target: PathBuf,
        /// What is seen instead.
        from: PathBuf,
        /// Whether the target is a symbolic link that must not be followed.
        on_link: bool,
        /// What it covers, as it was when it was judged.
        over: Option<Identity>,
    },
}

impl Mount {
    /// Where it appears.
    #[must_use]
    pub fn target(&self) -> &Path {
        match self {
            Mount::Tmpfs { target, .. }
            | Mount::File { target, .. }
            | Mount::Link { target, .. }
            | Mount::Bind { target, .. }
            | Mount::Cover { target, .. } => target,
        }
    }
}

/// A name that is watched, a protected or a hidden one: covered again when something
/// outside replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The path, the same outside and inside.
    pub path: PathBuf,
    /// How it is covered again.
    pub cover: Recover,
}

/// How a watched name is covered again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recover {
    /// By itself: read-only, or writable where it is only held in place.
    Itself {
        /// Whether it may be written.
        write: bool,
    },
    /// A link, by a generated file.
    Link {
        /// The file.
        from: PathBuf,
    },
    /// What is hidden, by [`EMPTY_COVER`] or [`EMPTY_FOLDER`].
    Hidden,
}

/// Everything about one sandbox.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The mounts, parents first.
    pub mounts: Mounts,
    /// What the guard watches.
    pub watched: Vec<Watched>,
    /// Folders and files that may be written, for Landlock.
    pub writable: Vec<PathBuf>,
    /// File systems in memory that belong to the program, for Landlock and the
    /// broker of Unix sockets.
    pub private: Vec<PathBuf>,
    /// The program's environment.
    pub env: Environment,
    /// Whether it has an ssh of its own, whose host keys are read afterwards.
    pub has_ssh: bool,
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// Sockets of its own network that are served from outside.
    pub listens: Vec<Listens>,
    /// Further addresses of its own network's loopback.
    pub addresses: Vec<IpAddr>,
    /// Whether it is in the machine's network, not one of its own.
    pub shares_network: bool,
    /// Which programs it may start, that one among them.
    pub programs: Programs,
    /// How many processes it may have.
    pub processes: Option<Limit>,
    /// The working folder, a real path.
    pub cwd: PathBuf,
    /// `lnk`'s own program, bound to [`OWN_BINARY`].
    pub own_binary: (PathBuf, Identity),
    /// Fences left out on purpose.
    pub faults: Faults,
}

impl Plan {
    /// Lays out a policy's sandbox. `masks` protects the dot files of write
    /// folders, whose placeholders exist by now; `reads` are folders bound
    /// read-only for git's sake.
    ///
    /// # Errors
    /// [`Error::Refused`] when the working folder isn't open inside, naming the
    /// flag that would open it.
    pub fn new(
        policy: &Policy,
        caller: &Caller,
        program: &[OsString],
        masks: &[Mask],
        reads: &[(PathBuf, Identity)],
        gitconfig: Option<Vec<u8>>,
        ssh: Option<&Ssh>,
    ) -> Result<Plan> {
        let mut layout = Layout::default();
        layout.base(policy, caller.uid == 0);
        layout.hide_of_the_systems(&policy.hides);
        for (source, identity) in reads {
            layout.bind(source, *identity, false, true);
        }
        for grant in &policy.grants {
            let folder = grant.held.file_type() == FileType::Directory;
            let write = grant.write || policy.faults.has(Fault::ReadOnly);
            layout.bind(&grant.held.real, grant.held.identity(), write, folder);
        }
        let private = layout.home_and_tmp(policy, gitconfig);
        if let Some(ssh) = ssh {
            let home = if policy.has_own_home { &policy.home } else { &policy.home_real };
            layout.ssh(ssh, home)?;
        }
        let hides = policy
            .hides
            .iter()
            .filter(|hide| !private.contains(&hide.path) && !policy.faults.has(Fault::Hides));
        let hidden: Vec<Watched> = hides.filter_map(|hide| layout.hide(hide)).collect();
        if !hidden.is_empty() {
            layout.tmpfs(EMPTY_FOLDER, 0, true);
        }
        let masks = if policy.faults.has(Fault::Masks) { &[] } else { masks };
        let mut watched = layout.masks(masks)?;
        watched.extend(hidden);
        layout.hold_the_ways()?;
        layout.links(&policy.links);
        let programs = layout.programs(policy, &private)?;

        let writable = policy.grants.iter().filter(|grant| grant.write);
        let mut plan = Plan {
            writable: writable.map(|grant| grant.held.real.clone()).collect(),
            watched,
            private,
            env: Environment::new(),
            has_ssh: ssh.is_some(),
            program: program.to_vec(),
            programs,
            listens: policy.network.listens(&policy.faults),
            addresses: policy.network.addresses(&policy.faults),
            shares_network: policy.network.shared,
            processes: policy.processes,
            cwd: policy.cwd.clone(),
            own_binary: own_binary(caller)?,
            mounts: layout.mounts.ordered(),
            faults: policy.faults.clone(),
        };
        // The probe of `check`, and what connects to endpoints: nothing else of `lnk` does
        // anything inside.
        let is_probe = plan.program.starts_with(&[OWN_BINARY.into(), PROBE.into()]);
        let connects = !policy.network.internet.tcp.is_empty();
        if let Programs::Listed(list) = &mut plan.programs
            && (is_probe || connects)
        {
            list.add(OWN_BINARY.into(), plan.own_binary.1);
        }
        if !plan.shows(&plan.cwd) {
            return Err(cwd_closed(policy));
        }
        let readable = |path: &Path| plan.shows(&crate::paths::real_or_written(path));
        plan.env = env::inside(caller, &policy.accounts, &policy.home, readable);
        if policy.network.has_proxy() {
            plan.env.extend(env::proxy(PROXY_PORT));
        }
        plan.env.extend(ssh.into_iter().flat_map(Ssh::env));
        if plan.generated(Path::new(GITCONFIG)).is_some() {
            plan.env.push(("GIT_CONFIG_GLOBAL".into(), GITCONFIG.into()));
        }
        if plan.faults.has(Fault::Environment) {
            plan.env.extend(caller.env.iter().cloned());
        }
        Ok(plan)
    }
}

impl Plan {
    /// Whether the program can use what is at a real path.
    #[must_use]
    pub fn shows(&self, path: &Path) -> bool {
        self.mounts.shows(path)
    }

    /// The private place that a real path is in, where no grant inside it decides.
    #[must_use]
    pub fn private_place(&self, real: &Path) -> Option<&Path> {
        let decides = self.mounts.deciding(real).map(|mount| mount.target());
        let is_inside =
            |place: &Path| decides.is_some_and(|it| it != place && it.starts_with(place));
        let mut private = self.private.iter().map(PathBuf::as_path);
        private.find(|place| real.starts_with(place) && !is_inside(place))
    }

    /// The limit that its process namespace gets; none in the machine's.
    #[must_use]
    pub fn limits_namespace(&self) -> Option<NonZeroU32> {
        match self.processes {
            Some(Limit::Namespace(most)) if !self.faults.has(Fault::Processes) => Some(most),
            _ => None,
        }
    }

    /// Whether a write folder's dot files are kept as they are.
    #[must_use]
    pub fn protects_dot_files(&self) -> bool {
        self.watched.iter().any(|watched| watched.cover != Recover::Hidden)
    }

    /// Content and mode of a generated file.
    #[must_use]
    pub fn generated(&self, path: &Path) -> Option<(&[u8], u32)> {
        self.mounts.iter().find_map(|mount| match mount {
            Mount::File { target, content, mode } if target == path => {
                Some((content.as_slice(), *mode))
            }
            _ => None,
        })
    }
}

fn own_binary(caller: &Caller) -> Result<(PathBuf, Identity)> {
    let path = crate::paths::real_or_written(&caller.own_binary);
    let stat = rustix::fs::stat(&path)
        .map_err(crate::error::failed(format!("lnk itself, {}", shown::word(&path))))?;
    Ok((path, Identity::from(&stat)))
}

fn cwd_closed(policy: &Policy) -> Error {
    let cwd = shown::word(&policy.cwd);
    let hidden = policy.hides.iter().find(|hide| policy.cwd.starts_with(&hide.path));
    if let Some(hide) = hidden {
        let hide = shown::word(&hide.path);
        return Error::Refused(format!(
            "the working folder {cwd} is in {hide}, which is hidden: start from another"
        ));
    }
    let folders =
        policy.grants.iter().filter(|grant| grant.held.file_type() == FileType::Directory);
    let granted = folders.map(|grant| shown::word(&grant.held.typed)).next();
    let start = granted.map(|folder| format!(", or start in {folder}")).unwrap_or_default();
    Error::Refused(format!(
        "the working folder {cwd} isn't open inside: add --read . or --write .{start}"
    ))
}

/// What is at a path through which no link leads, and whether it is a folder.
fn looked_at(path: &Path) -> Result<(Identity, bool)> {
    let failed = |error| crate::error::failed(shown::word(path))(error);
    let stat =
        crate::paths::open_real(path).and_then(|fd| Ok(rustix::fs::fstat(fd)?)).map_err(failed)?;
    let folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    Ok((Identity::from(&stat), folder))
}

/// The mounts while they are gathered.
#[derive(Clone, Debug, Default)]
struct Layout {
    mounts: Mounts,
}

impl Layout {
    fn base(&mut self, policy: &Policy, root: bool) {
        for entry in system::programs() {
            self.entry(entry);
        }
        let etc_is_granted = policy.grants.iter().any(|grant| grant.held.real == Path::new("/etc"));
        if !etc_is_granted {
            self.tmpfs("/etc", 0o755, true);
            for entry in system::etc() {
                self.entry(entry);
            }
            let names = Names::inside(policy);
            for (name, content) in system::generated_etc(&policy.accounts, &policy.home, names) {
                self.mounts.push(Mount::File {
                    target: Path::new("/etc").join(name),
                    content,
                    mode: 0o644,
                });
            }
            self.mounts
                .push(Mount::Link { target: "/etc/mtab".into(), to: "../proc/self/mounts".into() });
        }
        self.tmpfs("/run", 0o755, false);
        if policy.network.shared && etc_is_granted {
            self.name_servers_in_run();
        }
        self.tmpfs(OWN_FOLDER, 0o755, true);
        self.mounts.push(Mount::File { target: EMPTY_COVER.into(), content: Vec::new(), mode: 0 });
        for (target, folder) in system::kernel_files(root) {
            if folder {
                self.mounts.push(Mount::Tmpfs { target, mode: 0, frozen: true, over: None });
            } else {
                self.cover(target, &[], 0, false, None);
            }
        }
    }

    /// `/etc/resolv.conf` is the machine's, and may lead into `/run`, which isn't: then
    /// what it leads to is put there.
    fn name_servers_in_run(&mut self) {
        let Ok(walked) = walk(Path::new(RESOLV_CONF)) else { return };
        if walked.real.starts_with("/run")
            && let Some(content) = names::read(&walked.real)
        {
            self.mounts.push(Mount::File { target: walked.real, content, mode: 0o644 });
            let links = walked.links.into_iter().filter(|link| link.at.starts_with("/run"));
            self.links(&links.collect::<Vec<_>>());
        }
    }

    fn entry(&mut self, entry: Entry) {
        self.mounts.push(match entry {
            Entry::Link { at, to } => Mount::Link { target: at, to },
            Entry::Bound { source, at, identity, folder } => {
                Mount::Bind { source, target: at, identity, write: false, folder }
            }
        });
    }

    fn tmpfs(&mut self, target: &str, mode: u32, frozen: bool) {
        self.mounts.push(Mount::Tmpfs { target: target.into(), mode, frozen, over: None });
    }

    /// A grant takes the place of what the system would show at its path.
    fn bind(&mut self, real: &Path, identity: Identity, write: bool, folder: bool) {
        if self.mounts.is_target(real) {
            self.mounts.retain(|mount| mount.target() != real);
        }
        let (source, target) = (real.to_path_buf(), real.to_path_buf());
        self.mounts.push(Mount::Bind { source, target, identity, write, folder });
    }

    /// Takes away those of the system's own files that are in a hidden folder:
    /// they aren't grants, which would stay open in it.
    fn hide_of_the_systems(&mut self, hides: &[Hide]) {
        for Hide { path, .. } in hides.iter().filter(|hide| !hide.path.starts_with("/run")) {
            if self.binds(path) {
                continue;
            }
            self.mounts.retain(|mount| {
                let shows =
                    matches!(mount, Mount::Bind { .. } | Mount::File { .. } | Mount::Link { .. });
                !shows || mount.target() == path || !mount.target().starts_with(path)
            });
        }
    }

    /// Closes a path that would be seen; what is inside it and granted stays
    /// reachable by name. Returns what to watch.
    fn hide(&mut self, hide: &Hide) -> Option<Watched> {
        if !self.binds(&hide.path) {
            return None;
        }
        let parent = hide.path.parent().filter(|parent| self.binds(parent));
        let target = hide.path.clone();
        let over = Some(hide.identity);
        let opened_below = self
            .mounts
            .iter()
            .any(|mount| mount.target() != target && mount.target().starts_with(&target));
        if hide.folder {
            let mode = if opened_below { 0o111 } else { 0 };
            self.mounts.push(Mount::Tmpfs { target, mode, frozen: true, over });
        } else {
            self.cover(target, &[], 0, false, over);
        }
        // A folder that the caller can't list can't be watched, nor is it theirs.
        let access = rustix::fs::Access::READ_OK | rustix::fs::Access::EXEC_OK;
        let watch = hide.asked && parent.is_some_and(|at| rustix::fs::access(at, access).is_ok());
        watch.then(|| Watched { path: hide.path.clone(), cover: Recover::Hidden })
    }

    /// Protects dot files wherever the write folder itself decides: not where a
    /// more specific grant or hide does.
    fn masks(&mut self, masks: &[Mask]) -> Result<Vec<Watched>> {
        let mut watched = Vec::new();
        for mask in masks {
            let path = &mask.path;
            let decided = self.mounts.is_target(path);
            if decided || !self.writes(path) {
                continue;
            }
            let cover = match &mask.cover {
                Cover::Link { content } => {
                    let (identity, _) = looked_at(path)?;
                    let from = self.cover(path.clone(), content, 0o444, true, Some(identity));
                    Recover::Link { from }
                }
                Cover::ReadOnly => self.over_itself(path, false, mask.identity)?,
                Cover::Pin => self.over_itself(path, true, mask.identity)?,
            };
            watched.push(Watched { path: path.clone(), cover });
        }
        Ok(watched)
    }

    /// A folder between a write folder and what is decided inside it is held in
    /// place: renamed, it would take the inner decision along, and another could
    /// be put at the path that the next run looks at.
    fn hold_the_ways(&mut self) -> Result<()> {
        let mut ways = Vec::new();
        for mount in self.mounts.iter() {
            let above = mount.target().ancestors().skip(1);
            let between: Vec<&Path> =
                above.take_while(|path| !self.mounts.is_target(path)).collect();
            let below_writable = mount.target().parent().is_some_and(|parent| self.writes(parent));
            if below_writable {
                ways.extend(between.into_iter().map(Path::to_path_buf));
            }
        }
        ways.sort();
        ways.dedup();
        ways.iter().try_for_each(|way| self.over_itself(way, true, None).map(drop))
    }

    fn over_itself(
        &mut self,
        path: &Path,
        write: bool,
        judged: Option<Identity>,
    ) -> Result<Recover> {
        let (identity, folder) = looked_at(path)?;
        if judged.is_some_and(|judged| judged != identity) {
            let path = shown::word(path);
            return Err(Error::Refused(format!("{path} changed meanwhile; run it again")));
        }
        let (source, target) = (path.to_path_buf(), path.to_path_buf());
        self.mounts.push(Mount::Bind { source, target, identity, write, folder });
        Ok(Recover::Itself { write })
    }

    /// Covers a file, or a link, by a generated one; returns where that is.
    fn cover(
        &mut self,
        target: PathBuf,
        content: &[u8],
        mode: u32,
        on_link: bool,
        over: Option<Identity>,
    ) -> PathBuf {
        let same = |mount: &Mount| match mount {
            Mount::File { target, content: held, mode: its } if target.starts_with(OWN_FOLDER) => {
                (held == content && *its == mode).then(|| target.clone())
            }
            _ => None,
        };
        let made = self.mounts.iter().find_map(same);
        let from = made.unwrap_or_else(|| {
            let count =
                self.mounts.iter().filter(|mount| mount.target().starts_with(OWN_FOLDER)).count();
            let from = Path::new(OWN_FOLDER).join(format!("cover-{count}"));
            self.mounts.push(Mount::File { target: from.clone(), content: content.to_vec(), mode });
            from
        });
        self.mounts.push(Mount::Cover { target, from: from.clone(), on_link, over });
        from
    }

    /// Recreates the links that typed paths led through, where the sandbox
    /// doesn't show the real ones. The kernel's own, such as `/proc/self/cwd`, it
    /// has by itself.
    fn links(&mut self, links: &[Link]) {
        let kernels = |at: &Path| at.starts_with("/proc") || at.starts_with("/dev");
        for Link { at, to } in links.iter().filter(|link| !kernels(&link.at)) {
            let taken = self.mounts.is_target(at);
            if !taken && !self.binds(at) {
                self.mounts.push(Mount::Link { target: at.clone(), to: to.clone() });
            }
        }
    }

    /// The programs that may run, without those that aren't seen inside; each
    /// loader is covered by a copy that runs no program by itself.
    fn programs(&mut self, policy: &Policy, private: &[PathBuf]) -> Result<Programs> {
        let Policy { programs, faults, mounts, .. } = policy;
        let Programs::Listed(list) = programs else { return Ok(programs.clone()) };
        let mut list = list.clone();
        for (folder, _) in &list.folders {
            if let Some(place) = private.iter().find(|place| place.starts_with(folder)) {
                return Err(Error::Refused(format!(
                    "the listed folder {} holds {}, which the sandbox may write",
                    shown::word(folder),
                    shown::word(place)
                )));
            }
        }
        list.files.retain(|(real, _)| self.mounts.shows(real));
        list.folders.retain(|(real, _)| self.mounts.shows(real));
        list.loaders.retain(|real| self.mounts.shows(real));
        for real in std::mem::take(&mut list.loaders) {
            // What isn't a plain file, or too long for one, loads no program.
            let Ok((bytes, identity)) = read_plain(&real, MAX_LOADER + 1) else { continue };
            if bytes.len() > MAX_LOADER {
                continue;
            }
            if faults.has(Fault::Loader) {
                list.add(real, identity);
                continue;
            }
            let refused =
                |why: &str| Error::Refused(format!("the loader {}: {why}", shown::word(&real)));
            match loader::closed_copy(&bytes) {
                // By whatever name it is seen.
                Ok(closed) => {
                    for name in mounts.names_of(&real) {
                        if self.mounts.shows(&name) {
                            self.cover(name.clone(), &closed, 0o555, false, Some(identity));
                            list.add_loader(name);
                        }
                    }
                }
                Err(why @ Unpatchable::NoSpareHeader) => return Err(refused(&why.to_string())),
                // No loader: what names it as one doesn't start outside either.
                Err(Unpatchable::NotShared | Unpatchable::HasLoader) => {}
            }
        }
        Ok(Programs::Listed(list))
    }

    /// The private places: `/tmp`, `/run`, and the home folder unless a grant
    /// holds it. Returns them.
    fn home_and_tmp(&mut self, policy: &Policy, gitconfig: Option<Vec<u8>>) -> Vec<PathBuf> {
        let mut private = vec![PathBuf::from("/run"), PathBuf::from("/dev/shm")];
        if !self.mounts.is_target(Path::new("/tmp")) {
            self.tmpfs("/tmp", 0o1777, false);
            private.push("/tmp".into());
        }
        if policy.has_own_home {
            let file = gitconfig.map(|content| (GITCONFIG.into(), content));
            let file = file.map(|(target, content)| Mount::File { target, content, mode: 0o644 });
            file.into_iter().for_each(|file| self.mounts.push(file));
            return private;
        }
        let home = policy.home_real.clone();
        let hidden = policy.hides.iter().any(|hide| hide.path == home);
        if (self.binds(&home) && !hidden) || home == Path::new("/tmp") {
            return private;
        }
        self.mounts.push(Mount::Tmpfs {
            target: home.clone(),
            mode: 0o755,
            frozen: false,
            over: None,
        });
        let file = home.join(".gitconfig");
        if let Some(content) = gitconfig.filter(|_| !self.mounts.is_target(&file)) {
            self.mounts.push(Mount::File { target: file, content, mode: 0o644 });
        }
        private.push(home);
        private
    }

    /// The files of the sandbox's ssh, read-only, and `~/.ssh` that leads to them where
    /// the home is the sandbox's own.
    fn ssh(&mut self, ssh: &Ssh, home: &Path) -> Result<()> {
        self.tmpfs(ssh::FOLDER, 0o755, true);
        for (name, content, mode) in ssh.files()? {
            let target = Path::new(ssh::FOLDER).join(name);
            self.mounts.push(Mount::File { target, content, mode });
        }
        let target = home.join(".ssh");
        if !self.mounts.is_target(&target) && !self.binds(&target) {
            self.mounts.push(Mount::Link { target, to: ssh::FOLDER.into() });
        }
        Ok(())
    }

    /// Whether something of the machine's is at `path`, hidden or not.
    fn binds(&self, path: &Path) -> bool {
        matches!(self.mounts.deciding(path), Some(Mount::Bind { .. }))
    }

    fn writes(&self, path: &Path) -> bool {
        matches!(self.mounts.deciding(path), Some(Mount::Bind { write: true, .. }))
    }
}

/// Mounts in their order, and which of them decides at which path.
#[derive(Clone, Debug, Default)]
pub struct Mounts {
    list: Vec<Mount>,
    /// Of several at one path the last added.
    last_at: HashMap<PathBuf, usize>,
}

impl std::ops::Deref for Mounts {
    type Target = [Mount];

    fn deref(&self) -> &[Mount] {
        &self.list
    }
}

impl Mounts {
    fn push(&mut self, mount: Mount) {
        self.last_at.insert(mount.target().to_path_buf(), self.list.len());
        self.list.push(mount);
    }

    fn retain(&mut self, keep: impl FnMut(&Mount) -> bool) {
        let before = self.list.len();
        self.list.retain(keep);
        if self.list.len() != before {
            self.index();
        }
    }

    /// Parents before what lies in them; of two at one path, the later added
    /// last. `/run`, which holds the covers of others, comes first.
    fn ordered(mut self) -> Mounts {
        self.list.sort_by_cached_key(|mount| {
            let target = mount.target();
            (!target.starts_with("/run"), target.to_path_buf())
        });
        self.index();
        self
    }

    fn index(&mut self) {
        let indexed = self.list.iter().enumerate();
        self.last_at =
            indexed.map(|(index, mount)| (mount.target().to_path_buf(), index)).collect();
    }

    fn is_target(&self, path: &Path) -> bool {
        self.last_at.contains_key(path)
    }

    /// Whether the program can use what is at a real path.
    #[must_use]
    pub fn shows(&self, path: &Path) -> bool {
        match self.deciding(path) {
            Some(Mount::Bind { .. }) => true,
            Some(Mount::Tmpfs { target, mode, .. }) => target == path && mode & 0o444 != 0,
            Some(Mount::File { target, .. }) => target == path,
            Some(Mount::Link { .. } | Mount::Cover { .. }) => false,
            None => path == Path::new("/"),
        }
    }

    /// Whether something at `path` is kept from the program on purpose.
    #[must_use]
    pub fn hides(&self, path: &Path) -> bool {
        match self.deciding(path) {
            Some(Mount::Tmpfs { mode, .. }) => mode & 0o444 == 0,
            Some(Mount::Cover { .. }) => true,
            _ => false,
        }
    }

    /// The mount that decides what is at `path`: the deepest, and of those the
    /// last added.
    fn deciding(&self, path: &Path) -> Option<&Mount> {
        path.ancestors().find_map(|path| self.last_at.get(path)).map(|index| &self.list[*index])
    }
}
