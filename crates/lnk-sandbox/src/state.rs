//! Link's settings folder, `~/.config/lnk`: which no sandbox reads or writes.

use std::path::{Path, PathBuf};

use lnk_spec::shown;
use rustix::fs::Mode;
use rustix::io::Errno;

use crate::error::{Error, Result, reason};

/// Where the sandbox keeps its own, in a home.
const SANDBOX: [&str; 3] = [".config", "lnk", "sandbox"];

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
        let mut folder = home.to_path_buf();
        for name in SANDBOX {
            folder.push(name);
            make(&folder)?;
        }
        Ok(Settings { folder })
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
