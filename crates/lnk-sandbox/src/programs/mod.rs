//! Which programs may run: `[commands] allow`, from entries as they are typed
//! to files that the fences hold on to.

mod elf;
pub mod find;
pub mod given;
pub mod learnt;
pub mod list;
pub mod loader;
pub mod refusal;
pub mod replaceable;
pub mod start;

use std::path::Path;

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
    let Found::Program(Listed { real, .. }) = found else { return None };
    has_many_names(real)
        .then(|| format!("it is {}, all of whose programs may run then", shown::word(real)))
}
