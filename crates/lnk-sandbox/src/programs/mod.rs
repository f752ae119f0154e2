//! Which programs may run: `[commands] allow`, from entries as they are typed
//! to files that the fences hold on to.

mod elf;
pub mod list;
pub mod loader;
pub mod start;

pub use list::ProgramList;
