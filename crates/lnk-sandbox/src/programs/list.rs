//! The programs of a run, as its fences need them.

use std::path::{Path, PathBuf};

use crate::paths::Identity;

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
}
