//! Link's settings folder, `~/.config/lnk`: which no sandbox reads or writes.
//!
//! What is done in it is done as the caller. Somebody else who could put a link on the
//! way, as any user can whose home root runs with (`sudo -E`), would have it done
//! elsewhere: nobody but the caller and root may change anything on the way.

use std::fs;
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
use crate::trusted::Trusted;

/// Where the sandbox keeps its own, in a home.
const SANDBOX: [&str; 3] = [".config", "lnk", "sandbox"];
/// Where what was agreed to is kept, in a home.
const SPECS: [&str; 3] = [".config", "lnk", "specs"];

/// Where SSH keys are, in the sandbox's settings.
const KEYS: &str = "keys";

/// The home that a caller's settings are in.
#[derive(Clone, Debug)]
pub struct Home {
    real: PathBuf,
    trusted: Trusted,
}

impl Home {
    /// `$HOME` where nobody but the caller and root could change it, nor a folder or link
    /// on the way to it; otherwise the home in passwd. `None` where there is none.
    #[must_use]
    pub fn of(caller: &Caller, accounts: &Accounts) -> Option<Home> {
        let (own, trusted) = (&accounts.own.home, trusted(caller.uid));
        let mut homes = home_folders(caller, accounts);
        let found = homes.find(|(home, walked)| home == own || is_own_way(&trusted, walked))?;
        Some(Home { real: found.1.real, trusted })
    }

    /// A home by its real path, for the settings of the user `uid`.
    #[must_use]
    pub fn at(real: PathBuf, uid: u32) -> Home {
        Home { real, trusted: trusted(uid) }
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
            refuse_others(&self.trusted, &folder)?;
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
            make(&self.trusted, &folder)?;
        }
        Ok(folder)
    }
}

fn trusted(uid: u32) -> Trusted {
    Trusted::of(uid).and(unmapped_owner(Path::new("/")))
}

/// Whether nobody else changes anything on the way to a home.
fn is_own_way(trusted: &Trusted, walked: &Walk) -> bool {
    let own = |path: &Path| trusted.replaced_by_others(path).is_ok_and(|why| why.is_none());
    let links = walked.links.iter().map(|link| link.at.as_path());
    // A home that doesn't exist yet is made by nobody here.
    let real = walked.real.ancestors().find(|path| path.exists());
    links.chain(real).all(own)
}

/// Refuses a folder that somebody else could change, or a link to it, or what is on
/// the way that a link leads.
fn refuse_others(trusted: &Trusted, folder: &Path) -> Result<()> {
    let changed = |stat: Result<Stat, Errno>| {
        stat.ok().and_then(|stat| trusted.changed_by_others(folder, &stat, None))
    };
    let led = || {
        let real = fs::canonicalize(folder).ok().filter(|_| folder.is_symlink())?;
        trusted.replaced_by_others(&real).ok().flatten()
    };
    match changed(lstat(folder)).or_else(|| changed(stat(folder))).or_else(led) {
        None => Ok(()),
        Some(why) => Err(Error::Refused(format!(
            "{why}: Link keeps its settings there; change that, or set HOME to another folder of \
             yours"
        ))),
    }
}

fn make(trusted: &Trusted, folder: &Path) -> Result<()> {
    match rustix::fs::mkdir(folder, Mode::RWXU) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => refuse_others(trusted, folder),
        Err(error) => Err(Error::Refused(format!(
            "Link keeps its settings in {}, which can't be made: {}; let it be made, or set HOME to another folder",
            shown::word(folder),
            reason(&error.into())
        ))),
    }
}

/// The settings of one home.
#[derive(Clone, Debug)]
pub struct Settings {
    folder: PathBuf,
    trusted: Trusted,
}

impl Settings {
    /// Opens the settings in a home, making them, for their owner alone, where
    /// they don't exist.
    ///
    /// # Errors
    /// Naming the folder that can't be made, or is somebody else's.
    pub fn open(home: &Home) -> Result<Settings> {
        Ok(Settings { folder: home.make(&SANDBOX)?, trusted: home.trusted.clone() })
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
        make(&self.trusted, &folder)?;
        Ok(folder)
    }

    /// The folder of one SSH key, which may not exist.
    ///
    /// # Errors
    /// Naming what on the way is somebody else's.
    pub fn key_folder(&self, id: &str) -> Result<PathBuf> {
        let mut folder = self.folder.clone();
        for name in [KEYS, id] {
            folder.push(name);
            refuse_others(&self.trusted, &folder)?;
        }
        Ok(folder)
    }

    /// [`Settings::key_folder`], made where it doesn't exist.
    ///
    /// # Errors
    /// Naming the folder, if it can't be made or is somebody else's.
    pub fn make_key_folder(&self, id: &str) -> Result<PathBuf> {
        let mut folder = self.folder.clone();
        for name in [KEYS, id] {
            folder.push(name);
            make(&self.trusted, &folder)?;
        }
        Ok(folder)
    }

    /// The records of bait, and bait itself.
    ///
    /// # Errors
    /// Naming the folder, if it can't be made or is somebody else's.
    pub fn check(&self) -> Result<PathBuf> {
        let folder = self.folder.join("check");
        make(&self.trusted, &folder)?;
        Ok(crate::paths::real_or_written(&folder))
    }
}

/// The folder of the caller's settings, which may not exist.
///
/// # Errors
/// The caller has no home folder, or something on the way is somebody else's.
pub fn sandbox(caller: &Caller) -> Result<PathBuf> {
    home(caller)?.sandbox()
}

/// [`sandbox`], made where it doesn't exist.
///
/// # Errors
/// As for [`sandbox`], and naming the folder that can't be made.
pub fn make_sandbox(caller: &Caller) -> Result<PathBuf> {
    home(caller)?.make(&SANDBOX)
}

/// The folder of what Link Run keeps of an agent, or of another folder, by a name that is
/// one folder's, made where it doesn't exist.
///
/// # Errors
/// As for [`make_sandbox`].
pub fn make_run(caller: &Caller, name: &str) -> Result<PathBuf> {
    let [config, lnk, _] = SANDBOX;
    home(caller)?.make(&[config, lnk, "run", name])
}

/// The home that the caller's settings are in.
///
/// # Errors
/// The caller has none.
pub fn home(caller: &Caller) -> Result<Home> {
    Home::of(caller, &Accounts::of(caller.uid, caller.gid)).ok_or_else(|| {
        Error::Refused(
            "you have no home folder in which Link's settings could be; set HOME to one of yours"
                .into(),
        )
    })
}
