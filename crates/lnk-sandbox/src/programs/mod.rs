//! Which programs may run: `[commands] allow`, from entries as they are typed
//! to files that the fences hold on to.

pub mod list;

pub use list::ProgramList;
