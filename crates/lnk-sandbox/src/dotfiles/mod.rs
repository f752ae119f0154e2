//! Keeps a sandboxed program from writing what runs by itself outside: the dot
//! files at the top of a write folder, and what git runs from there.
//!
//! [`protect`] looks at a folder and says what must be mounted over it;
//! [`Gate`] makes the empty folders that stand in for missing names, and takes
//! them away after the last run that needs them. The two belong together: a
//! placeholder of another run may vanish between a look and a mount unless the
//! gate is held over both.
//!
//! ```no_run
//! # fn main() -> std::io::Result<()> {
//! use lnk_sandbox::dotfiles::{Folder, Gate, protect};
//! # use std::os::fd::AsFd;
//! # let (state, path) = (std::path::Path::new("/s"), std::path::Path::new("/f"));
//! # let folder = std::fs::File::open(path)?;
//! let gate = Gate::enter(state)?;
//! let protection = protect(path, &["/etc/gitconfig".into()], &[])?;
//! let fd = folder.as_fd();
//! let placeholders = gate.place(&[Folder { fd, path, protection: &protection }])?;
//! let masks = protection.with_placeholders(path);
//! // mount them, run, and then:
//! placeholders.remove()?;
//! # Ok(()) }
//! ```
//!
//! What stays open: repositories below the top other than submodules, and ones
//! elsewhere that run something from the folder without surrounding it; scripts
//! that the user's own tools run without being dot files; a name that a program
//! outside replaces while the sandbox runs, until the mount is repaired.

mod placeholder;
mod protect;

pub use placeholder::{Folder, Gate, Placeholders, sweep};
pub use protect::{Cover, Mask, Protection, protect, reads_of};
