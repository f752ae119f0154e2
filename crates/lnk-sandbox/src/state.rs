//! Link's settings folder, `~/.config/lnk`: which no sandbox reads or writes.
//!
//! What is done in it is done as the caller. Somebody else who could put a link on the
//! way, as any user can whose home root runs with (`sudo -E`), would have it done
//! elsewhere: the whole way has to be the caller's or root's.

use std::path::{Path, PathBuf};

use lnk_spec::shown;
use rustix::fs::{Mode, Stat, lstat, stat};
use rustix::io::Errno;

use crate::account::Accounts;
use crate::caller::Caller;
use crate::error::{Error, Result, reason};
use crate::linux::bwrap_path::unmapped_owner;
use crate::paths::Walk;
use crate::policy::home_folders;

/// Where the sandbox keeps its own, in a home.
const SANDBOX: [&str; 3] = [".config", "lnk", "sandbox"];
/// Where what was agreed to is kept, in a home.
const SPECS: [&str; 3] = [".config", "lnk", "specs"];

/// The home that a caller's settings are in.
#[derive(Clone, Debug)]
pub struct Home {
    real: PathBuf,
    owners: Owners,
}

/// Whose files nobody but the caller or root changes.
#[derive(Clone, Debug)]
struct Owners(Vec<u32>);

impl Home {
    /// `$HOME` where that is the caller's or root's, with all folders and links on
    /// the way to it; otherwise the home in passwd. `None` where there is none.
    #[must_use]
    pub fn of(caller: &Caller, accounts: &Accounts) -> Option<Home> {
        let (own, owners) = (&accounts.own.home, Owners::of(caller.uid));
        let mut homes = home_folders(caller, accounts);
        let found = homes.find(|(home, walked)| home == own || owners.have_way(walked))?;
        Some(Home { real: found.1.real, owners })
    }

    /// A home by its real path, for the settings of the user `uid`.
    #[must_use]
    pub fn at(real: PathBuf, uid: u32) -> Home {
        Home { real, owners: Owners::of(uid) }
    }

    /// The folder of the sandbox's settings, which may not exist.
    ///
    /// # Errors
    /// Naming what on the way is somebody else's.
    pub fn sandbox(&self) -> Result<PathBuf> {
        self.find(&SANDBOX)
    }

    /// The folder of agreed specs, which may not exist.
    ///
    /// # Errors
    /// As for [`Home::sandbox`].
    pub fn specs(&self) -> Result<PathBuf> {
        self.find(&SPECS)
    }

    /// [`Home::specs`], made where it doesn't exist.
    ///
    /// # Errors
    /// Naming the folder that can't be made, or is somebody else's.
    pub fn make_specs(&self) -> Result<PathBuf> {
        self.make(&SPECS)
    }

    fn find(&self, names: &[&str]) -> Result<PathBuf> {
        let mut folder = self.real.clone();
        for name in names {
            folder.push(name);
            self.owners.refuse_others(&folder)?;
        }
        Ok(folder)
    }

    fn make(&self, names: &[&str]) -> Result<PathBuf> {
        if self.real.try_exists().is_ok_and(|there| !there) {
            return Err(Error::Refused(format!(
                "your home folder {} doesn't exist: make it, or set HOME to another folder",
                shown::word(&self.real)
            )));
        }
        let mut folder = self.real.clone();
        for name in names {
            folder.push(name);
            self.owners.make(&folder)?;
        }
        Ok(folder)
    }
}

impl Owners {
    fn of(uid: u32) -> Owners {
        Owners([0, uid].into_iter().chain(unmapped_owner(Path::new("/"))).collect())
    }

    /// Whether everything on the way that there is, is theirs.
    fn have_way(&self, walked: &Walk) -> bool {
        let links = walked.links.iter().map(|link| link.at.as_path());
        links.chain(walked.real.ancestors()).all(|path| self.other(lstat(path)).is_none())
    }

    /// Who else something belongs to; where there is nothing, nobody.
    fn other(&self, found: Result<Stat, Errno>) -> Option<u32> {
        found.ok().map(|stat| stat.st_uid).filter(|owner| !self.0.contains(owner))
    }

    /// Refuses a folder that is somebody else's, or a link to it.
    fn refuse_others(&self, folder: &Path) -> Result<()> {
        match self.other(lstat(folder)).or_else(|| self.other(stat(folder))) {
            None => Ok(()),
            Some(owner) => Err(Error::Refused(format!(
                "{}, where Link keeps its settings, belongs to user {owner}, who could have it lead \
                 elsewhere: give it to yourself (chown), or set HOME to another folder of yours",
                shown::word(folder)
            ))),
        }
    }

    fn make(&self, folder: &Path) -> Result<()> {
        match rustix::fs::mkdir(folder, Mode::RWXU) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => self.refuse_others(folder),
            Err(error) => Err(Error::Refused(format!(
                "Link keeps its settings in {}, which can't be made: {}; let it be made, or set HOME to another folder",
                shown::word(folder),
                reason(&error.into())
            ))),
        }
    }
}

/// The settings of one home.
#[derive(Clone, Debug)]
pub struct Settings {
    folder: PathBuf,
    owners: Owners,
}

impl Settings {
    /// Opens the settings in a home, making them, for their owner alone, where
    /// they don't exist.
    ///
    /// # Errors
    /// Naming the folder that can't be made, or is somebody else's.
    pub fn open(home: &Home) -> Result<Settings> {
        Ok(Settings { folder: home.make(&SANDBOX)?, owners: home.owners.clone() })
    }

    /// The folder itself.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The records of placeholders.
    ///
    /// # Errors
    /// Naming the folder, if it can't be made or is somebody else's.
    pub fn placeholders(&self) -> Result<PathBuf> {
        let folder = self.folder.join("placeholders");
        self.owners.make(&folder)?;
        Ok(folder)
    }

    /// The records of bait, and bait itself.
    ///
    /// # Errors
    /// Naming the folder, if it can't be made or is somebody else's.
    pub fn check(&self) -> Result<PathBuf> {
        let folder = self.folder.join("check");
        self.owners.make(&folder)?;
        Ok(crate::paths::real_or_written(&folder))
    }
}

/// The folder of the caller's settings, which may not exist.
///
/// # Errors
/// The caller has no home folder, or something on the way is somebody else's.
pub fn sandbox(caller: &Caller) -> Result<PathBuf> {
    match Home::of(caller, &Accounts::of(caller.uid, caller.gid)) {
        Some(home) => home.sandbox(),
        None => Err(Error::Refused(
            "you have no home folder in which Link's settings could be; set HOME to one of yours"
                .into(),
        )),
    }
}
