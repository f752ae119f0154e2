//! What a run is asked for.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lnk_spec::program::Program;
use lnk_spec::shown::escaped;
use lnk_wire::gate::Whose;
use lnk_wire::log::Sandbox;
use lnk_wire::paused::Lasting;

use crate::dotfiles::{Cover, Mask};
use crate::faults::Faults;
use crate::mountinfo::Mounts;
use crate::network::Network;
use crate::paths::Identity;
use crate::programs::Found;

/// How long a program may go on after TERM, unless a request says otherwise.
pub const GRACE: Duration = Duration::from_secs(5);

/// What `run` was asked for, as typed: paths aren't resolved yet.
#[derive(Clone, Debug)]
pub struct Request {
    /// `--read` folders or files.
    pub read: Vec<PathBuf>,
    /// `--write` folders or files.
    pub write: Vec<PathBuf>,
    /// `--write-dot-files` folders.
    pub write_dot_files: Vec<PathBuf>,
    /// `--hide` folders or files.
    pub hide: Vec<PathBuf>,
    /// The programs that may run, as typed or with absolute paths; any where
    /// there is no list.
    pub programs: Option<Vec<Program>>,
    /// The check that this run belongs to, by its process.
    pub check: Option<u32>,
    /// The spec's own name.
    pub name: Option<String>,
    /// What it reaches.
    pub network: Network,
    /// Whether any program runs, to learn which: then `programs` are those known
    /// already.
    pub learn: bool,
    /// The spec that some of these paths come from.
    pub spec: Option<Agreed>,
    /// Folders of an agent's own.
    pub inner: Option<Inner>,
    /// How long the program may go on after TERM, until it's killed.
    pub grace: Duration,
    /// The most processes and threads that there may be inside at once; no limit of
    /// its own where there is none.
    pub processes: Option<NonZeroU32>,
    /// The program and its arguments; never empty.
    pub program: Vec<OsString>,
    /// How the mounts are made; [`Renderer::Auto`] unless forced.
    pub renderer: Renderer,
    /// Fences left out on purpose; none but in a test's build.
    pub faults: Faults,
}

/// Folders of an agent's own, which no spec can name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inner {
    /// The sandbox's lasting name, such as `main-run`: log lines, pauses and their
    /// counters are by it, and several runs may have it at once. `run-<pid>`, which
    /// doesn't outlast its process, names the runs only: their spec is what lasts.
    pub name: String,
    /// Folders that are read: real paths.
    pub read: Vec<PathBuf>,
    /// Folders that are written: real paths.
    pub write: Vec<PathBuf>,
    /// What stays read-only whatever a grant opens: real paths.
    pub keep: Vec<PathBuf>,
    /// HOME inside, one of `read`; the usual empty home without.
    pub home: Option<PathBuf>,
}

impl Inner {
    fn lasts(&self) -> bool {
        let number = self.name.strip_prefix("run-");
        !number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    }
}

impl Default for Request {
    fn default() -> Request {
        Request {
            read: Vec::new(),
            write: Vec::new(),
            write_dot_files: Vec::new(),
            hide: Vec::new(),
            programs: None,
            check: None,
            name: None,
            network: Network::default(),
            learn: false,
            spec: None,
            inner: None,
            grace: GRACE,
            processes: None,
            program: Vec::new(),
            renderer: Renderer::default(),
            faults: Faults::default(),
        }
    }
}

impl Request {
    /// What the sandbox is called.
    #[must_use]
    pub fn sandbox(&self) -> String {
        match (self.check, &self.inner) {
            (Some(check), _) => format!("check-{check}"),
            (None, Some(inner)) => inner.name.clone(),
            (None, None) => format!("run-{}", std::process::id()),
        }
    }

    /// Whose its wire is. A spec is known by its path, not by a name that it gives
    /// itself.
    #[must_use]
    pub fn whose(&self) -> Whose {
        let inner = self.inner.as_ref().filter(|inner| inner.lasts());
        let lasting = match (inner, &self.spec) {
            _ if self.check.is_some() => Lasting::Run(self.sandbox()),
            (Some(inner), _) => Lasting::Name(inner.name.clone()),
            (None, Some(spec)) => Lasting::Spec(spec.file.clone()),
            (None, None) => Lasting::Run(self.sandbox()),
        };
        let spec_path = self.spec.as_ref().map(|spec| escaped(spec.file.as_os_str().as_bytes()));
        Whose {
            sandbox: Sandbox { name: self.sandbox(), spec: self.name.clone(), spec_path },
            lasting,
            pauses_itself: self.check.is_none(),
        }
    }

    /// Whether the list is the spec's, not one that flags give in its place.
    #[must_use]
    pub fn is_listed_by_spec(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| !spec.programs.is_empty())
    }

    /// Whether an entry of the list comes from the spec, not from a flag.
    #[must_use]
    pub fn is_of_spec(&self, program: &Program) -> bool {
        let agreed = self.spec.as_ref().map(|spec| spec.programs.as_slice()).unwrap_or_default();
        agreed.iter().any(|(its, ..)| its == program)
    }
}

/// Who makes the mounts. Both give the same sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Renderer {
    /// The joiner, and bubblewrap where the joiner can't.
    #[default]
    Auto,
    /// bubblewrap's own arguments.
    Bwrap,
    /// The joiner or nothing.
    Joiner,
}

/// The spec of a request, and where its paths led when they were agreed to.
#[derive(Clone, Debug)]
pub struct Agreed {
    /// The spec's real path.
    pub file: PathBuf,
    /// What the file was when it was read.
    pub(crate) identity: Identity,
    /// What it holds.
    pub(crate) content: Vec<u8>,
    /// The links that led to it.
    pub(crate) links: Vec<PathBuf>,
    /// Key, absolute path and real path.
    pub(crate) paths: Vec<(&'static str, PathBuf, PathBuf)>,
    /// Programs, their paths absolute, where each was found, and to which others
    /// links in it led.
    pub(crate) programs: Vec<(Program, Option<PathBuf>, Vec<PathBuf>)>,
}

impl Agreed {
    /// Where a path of the request led; `None` where a flag names it.
    #[must_use]
    pub fn agreed(&self, key: &str, typed: &Path) -> Option<&Path> {
        let found = self.paths.iter().find(|(its, path, _)| *its == key && path == typed);
        found.map(|(_, _, real)| real.as_path())
    }

    /// Whether a program is elsewhere than it was; never for one that a flag names.
    #[must_use]
    pub fn has_moved(&self, program: &Program, found: &Found) -> bool {
        let agreed = self.programs.iter().find(|(its, ..)| its == program);
        agreed.is_some_and(|(_, real, linked)| {
            found.real() != real.as_deref() || found.linked() != *linked
        })
    }

    /// Keeps the spec, and the links that lead to it, from being changed inside.
    pub(crate) fn masks(&self, mounts: &Mounts) -> Vec<Mask> {
        let file = mounts.names_of(&self.file).into_iter();
        let file =
            file.map(|path| Mask { path, cover: Cover::ReadOnly, identity: Some(self.identity) });
        let links = self.links.iter().flat_map(|link| mounts.names_of(link));
        let cover = Cover::Link { content: self.content.clone() };
        let link = |path| Mask { path, cover: cover.clone(), identity: None };
        file.chain(links.map(link)).collect()
    }
}
