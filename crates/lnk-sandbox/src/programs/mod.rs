//! Which programs may run: `[commands] allow`, from entries as they are typed
//! to files that the fences hold on to.

mod elf;
pub mod find;
pub mod given;
pub mod judge;
pub mod learnt;
pub mod list;
pub mod loader;
pub mod refusal;
pub mod start;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use lnk_spec::kinds::has_many_names;
use lnk_spec::shown;

pub use find::{Finder, Found, Listed};
pub use list::{ProgramList, Programs};

impl Found {
    /// Where it is, by real path.
    #[must_use]
    pub fn real(&self) -> Option<&Path> {
        match self {
            Found::Program(Listed { real, .. }) | Found::Folder { real, .. } => Some(real),
            Found::Any | Found::Nothing(_) => None,
        }
    }

    /// Programs elsewhere that links in a folder lead to, by real path, sorted.
    #[must_use]
    pub fn linked(&self) -> Vec<PathBuf> {
        let Found::Folder { linked, .. } = self else { return Vec::new() };
        let linked: BTreeSet<PathBuf> = linked.iter().map(|its| its.real.clone()).collect();
        linked.into_iter().collect()
    }

    /// Adds it to a list.
    pub fn add_to(self, list: &mut ProgramList) {
        let mut add = |program: Listed| {
            list.add(program.real, program.identity);
            program.loader.into_iter().for_each(|loader| list.add_loader(loader));
        };
        match self {
            Found::Any | Found::Nothing(_) => {}
            Found::Program(program) => add(program),
            Found::Folder { real, identity, linked, loaders } => {
                linked.into_iter().for_each(add);
                list.folders.push((real, identity));
                loaders.into_iter().for_each(|loader| list.add_loader(loader));
            }
        }
    }
}

/// What an entry lets run besides what it says: by one of the names of a file
/// that is many programs, all of them run.
#[must_use]
pub fn widens(found: &Found) -> Option<String> {
    let linked = found.linked();
    let mut files = found.real().into_iter().chain(linked.iter().map(PathBuf::as_path));
    let real = files.find(|file| has_many_names(file))?;
    let by = if found.real() == Some(real) { "it is" } else { "a link in it leads to" };
    Some(format!("{by} {}, all of whose programs may run then", shown::word(real)))
}
