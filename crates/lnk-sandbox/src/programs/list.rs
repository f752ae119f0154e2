//! The programs of a run, as its fences need them.

use std::path::{Path, PathBuf};

use crate::paths::Identity;

/// Which programs a run starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Programs {
    /// Any.
    #[default]
    Any,
    /// Any, and each is told that isn't on this list.
    Learnt(ProgramList),
    /// Those of a list.
    Listed(ProgramList),
}

impl Programs {
    /// The list, where there is one.
    #[must_use]
    pub fn list(&self) -> Option<&ProgramList> {
        match self {
            Programs::Listed(list) => Some(list),
            Programs::Any | Programs::Learnt(_) => None,
        }
    }
}

/// What may be executed. Landlock holds on to the files themselves; this is what
/// its rules are made from, and how a refusal is told from a permission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramList {
    /// Programs, by real path, and what they were when they were judged.
    pub files: Vec<(PathBuf, Identity)>,
    /// Folders whose programs may all run, by real path.
    pub folders: Vec<(PathBuf, Identity)>,
    /// Loaders of these programs (`PT_INTERP`, elf(5)), by real path. Inside
    /// there is a copy in each one's place that does nothing by itself.
    pub loaders: Vec<PathBuf>,
}

impl ProgramList {
    /// Whether a file, of this real path inside, may be executed.
    #[must_use]
    pub fn allows(&self, real: &Path, identity: Identity) -> bool {
        self.files.iter().any(|(_, its)| *its == identity)
            || self.folders.iter().any(|(folder, _)| real.starts_with(folder))
    }

    /// Whether it is the loader of a listed program.
    #[must_use]
    pub fn is_loader(&self, real: &Path) -> bool {
        self.loaders.iter().any(|loader| loader == real)
    }

    /// Adds a program.
    pub fn add(&mut self, real: PathBuf, identity: Identity) {
        if !self.files.iter().any(|(_, its)| *its == identity) {
            self.files.push((real, identity));
        }
    }

    /// Adds a loader.
    pub fn add_loader(&mut self, real: PathBuf) {
        if !self.is_loader(&real) {
            self.loaders.push(real);
        }
    }
}
