//! Link's settings folder, `~/.config/lnk`: which no sandbox reads or writes.

use std::path::{Path, PathBuf};

use lnk_spec::shown;
use rustix::fs::Mode;
use rustix::io::Errno;

use crate::account::Accounts;
use crate::caller::Caller;
use crate::error::{Error, Result, reason};
use crate::policy::home_folder;

/// Where the sandbox keeps its own, in a home.
const SANDBOX: [&str; 3] = [".config", "lnk", "sandbox"];
/// Where what was agreed to is kept, in a home.
const SPECS: [&str; 3] = [".config", "lnk", "specs"];

/// The settings of one home.
#[derive(Clone, Debug)]
pub struct Settings {
    folder: PathBuf,
}

impl Settings {
    /// Opens the settings in `home`, making them, for their owner alone, where
    /// they don't exist.
    ///
    /// # Errors
    /// Naming the folder that can't be made.
    pub fn open(home: &Path) -> Result<Settings> {
        Ok(Settings { folder: make_below(home, &SANDBOX)? })
    }

    /// The folder itself.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The records of placeholders.
    ///
    /// # Errors
    /// Naming the folder, if it can't be made.
    pub fn placeholders(&self) -> Result<PathBuf> {
        let folder = self.folder.join("placeholders");
        make(&folder)?;
        Ok(folder)
    }

    /// The records of bait, and bait itself.
    ///
    /// # Errors
    /// Naming the folder, if it can't be made.
    pub fn check(&self) -> Result<PathBuf> {
        let folder = self.folder.join("check");
        make(&folder)?;
        Ok(crate::paths::real_or_written(&folder))
    }
}

/// The folder of the settings in the caller's home, which may not exist.
///
/// # Errors
/// The caller has no home folder.
pub fn sandbox(caller: &Caller) -> Result<PathBuf> {
    let accounts = Accounts::of(caller.uid, caller.gid);
    match home_folder(caller, &accounts) {
        Some((_, walked)) => Ok(walked.real.join(SANDBOX.iter().collect::<PathBuf>())),
        None => Err(Error::Refused(
            "you have no home folder in which Link's settings could be; set HOME to one of yours"
                .into(),
        )),
    }
}

/// The folder of agreed specs in `home`, which may not exist.
#[must_use]
pub fn specs(home: &Path) -> PathBuf {
    home.join(SPECS.iter().collect::<PathBuf>())
}

/// [`specs`], made where it doesn't exist.
///
/// # Errors
/// Naming the folder that can't be made.
pub fn make_specs(home: &Path) -> Result<PathBuf> {
    make_below(home, &SPECS)
}

fn make_below(home: &Path, names: &[&str]) -> Result<PathBuf> {
    if home.try_exists().is_ok_and(|there| !there) {
        return Err(Error::Refused(format!(
            "your home folder {} doesn't exist: make it, or set HOME to another folder",
            shown::word(home)
        )));
    }
    let mut folder = home.to_path_buf();
    for name in names {
        folder.push(name);
        make(&folder)?;
    }
    Ok(folder)
}

fn make(folder: &Path) -> Result<()> {
    match rustix::fs::mkdir(folder, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(Error::Refused(format!(
            "Link keeps its settings in {}, which can't be made: {}; let it be made, or set HOME to another folder",
            shown::word(folder),
            reason(&error.into())
        ))),
    }
}
