//! Which bubblewrap is run.
//!
//! Never one found on `PATH`: whoever can write a folder of it would hold every
//! fence. Only the places where a system installs programs count, and there
//! only a file that nobody but root can have put or can change.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use lnk_spec::shown::word;

use crate::error::reason;

/// Where bubblewrap may be, in the order looked.
pub const PLACES: [&str; 4] =
    ["/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap", "/run/current-system/sw/bin/bwrap"];

/// Why there is no bubblewrap to run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    /// None of [`PLACES`] has one.
    #[error("bubblewrap isn't installed: there is no {}", PLACES[0])]
    Missing,
    /// There is one, and someone else than root could have changed it.
    #[error("{} isn't used: {why}", word(.path))]
    Untrusted {
        /// The place where it is.
        path: PathBuf,
        /// What about it can't be trusted.
        why: String,
    },
}

/// The bubblewrap of the system under `root` (`/`, but for tests), without
/// symlinks: the very path whose every folder was checked.
///
/// # Errors
/// [`NotFound`], with the first untrusted one where there is no trusted one.
pub fn find(root: &Path) -> Result<PathBuf, NotFound> {
    let owners: Vec<u32> = [0].into_iter().chain(unmapped_owner(root)).collect();
    find_owned_by(root, &owners)
}

/// Whom the files of users outside this user namespace seem to belong to,
/// root's among them (`kernel.overflowuid`); `None` where that id is a user
/// here, as in every namespace that maps all ids (user_namespaces(7)). In one
/// that maps root away, root's own programs look like this.
pub(crate) fn unmapped_owner(root: &Path) -> Option<u32> {
    let overflow: u32 =
        fs::read_to_string(root.join("proc/sys/kernel/overflowuid")).ok()?.trim().parse().ok()?;
    let map = fs::read_to_string(root.join("proc/self/uid_map")).ok()?;
    let mapped = map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
        let (first, _, count) = (numbers.next(), numbers.next(), numbers.next());
        let first = first.unwrap_or(0);
        (first..first + count.unwrap_or(0)).contains(&u64::from(overflow))
    });
    (!mapped).then_some(overflow)
}

fn find_owned_by(root: &Path, owners: &[u32]) -> Result<PathBuf, NotFound> {
    let mut reason = NotFound::Missing;
    for place in PLACES {
        let path = root.join(place.trim_start_matches('/'));
        match trusted(root, &path, owners) {
            Ok(found) => return Ok(found),
            Err(Distrust::Absent) => {}
            Err(Distrust::Because(why)) if reason == NotFound::Missing => {
                reason = NotFound::Untrusted { path: place.into(), why };
            }
            Err(Distrust::Because(_)) => {}
        }
    }
    Err(reason)
}

enum Distrust {
    Absent,
    Because(String),
}

fn trusted(root: &Path, path: &Path, owners: &[u32]) -> Result<PathBuf, Distrust> {
    let real = path.canonicalize().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Distrust::Absent,
        _ => Distrust::Because(format!("it can't be looked at ({})", reason(&error))),
    })?;
    for part in real.ancestors() {
        let meta = fs::metadata(part).map_err(|error| {
            Distrust::Because(format!("{} can't be looked at ({})", word(part), reason(&error)))
        })?;
        if let Some(why) = changeable(part, &meta, owners) {
            return Err(Distrust::Because(why));
        }
        if part == root {
            break;
        }
    }
    let meta = fs::metadata(&real).map_err(|error| Distrust::Because(reason(&error)))?;
    if !meta.is_file() || meta.mode() & 0o111 == 0 {
        return Err(Distrust::Because(format!("{} isn't a program", word(&real))));
    }
    Ok(real)
}

/// Who but its owner could change this file, or replace what is in this folder.
fn changeable(path: &Path, meta: &Metadata, owners: &[u32]) -> Option<String> {
    const STICKY: u32 = 0o1000;
    let (path, mode) = (word(path), meta.mode());
    if !owners.contains(&meta.uid()) {
        return Some(format!("{path} belongs to user {}, not to root", meta.uid()));
    }
    // In a sticky folder others add names, and can't replace root's.
    if meta.is_dir() && mode & STICKY != 0 {
        return None;
    }
    if mode & 0o002 != 0 {
        return Some(format!("everyone may write {path}"));
    }
    if mode & 0o020 != 0 && meta.gid() != 0 {
        return Some(format!("group {} may write {path}", meta.gid()));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use tempfile::TempDir;

    /// A system whose files belong to whoever runs the test, who stands for root.
    struct System(TempDir);

    impl System {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
            let system = Self(dir);
            for folder in ["usr", "usr/bin", "usr/local", "usr/local/bin"] {
                fs::create_dir(system.at(folder)).unwrap();
                system.mode(folder, 0o755);
            }
            system
        }

        fn at(&self, path: &str) -> PathBuf {
            self.0.path().canonicalize().unwrap().join(path)
        }

        fn mode(&self, path: &str, mode: u32) {
            fs::set_permissions(self.at(path), Permissions::from_mode(mode)).unwrap();
        }

        fn program(&self, path: &str, mode: u32) {
            fs::write(self.at(path), "").unwrap();
            self.mode(path, mode);
        }

        fn find(&self) -> Result<PathBuf, NotFound> {
            find_owned_by(&self.at(""), &[rustix::process::geteuid().as_raw()])
        }

        fn refusal(&self) -> String {
            match self.find() {
                Err(NotFound::Untrusted { why, .. }) => why
                    .replace(&format!("{}/", self.0.path().canonicalize().unwrap().display()), "/"),
                other => panic!("not refused: {other:?}"),
            }
        }
    }

    #[test]
    fn the_systems_own_is_found() {
        let system = System::new();
        assert_eq!(system.find(), Err(NotFound::Missing));
        system.program("usr/bin/bwrap", 0o755);
        assert_eq!(system.find(), Ok(system.at("usr/bin/bwrap")));
    }

    #[test]
    fn one_that_others_can_write_is_refused() {
        let system = System::new();
        system.program("usr/bin/bwrap", 0o757);
        assert_eq!(system.refusal(), "everyone may write /usr/bin/bwrap");
        system.program("usr/bin/bwrap", 0o755);
        assert!(system.find().is_ok());
    }

    #[test]
    fn one_in_a_folder_that_others_can_write_is_refused() {
        let system = System::new();
        system.program("usr/bin/bwrap", 0o755);
        system.mode("usr", 0o777);
        assert_eq!(system.refusal(), "everyone may write /usr");
        system.mode("usr", 0o1777);
        assert!(system.find().is_ok(), "nobody replaces root's names in a sticky folder");
    }

    #[test]
    fn one_of_another_user_is_refused() {
        let system = System::new();
        system.program("usr/bin/bwrap", 0o755);
        let stranger = rustix::process::geteuid().as_raw() + 1;
        let refused = find_owned_by(&system.at(""), &[stranger]);
        assert!(
            matches!(refused, Err(NotFound::Untrusted { why, .. }) if why.contains("not to root"))
        );
    }

    #[test]
    fn a_trusted_one_further_on_is_used_instead() {
        let system = System::new();
        system.program("usr/bin/bwrap", 0o757);
        system.program("usr/local/bin/bwrap", 0o755);
        assert_eq!(system.find(), Ok(system.at("usr/local/bin/bwrap")));
    }

    #[test]
    fn a_symlink_counts_as_what_it_leads_to() {
        let system = System::new();
        fs::create_dir(system.at("open")).unwrap();
        system.mode("open", 0o777);
        system.program("open/bwrap", 0o755);
        symlink("../../open/bwrap", system.at("usr/bin/bwrap")).unwrap();
        assert_eq!(system.refusal(), "everyone may write /open");
        system.mode("open", 0o755);
        assert_eq!(system.find(), Ok(system.at("open/bwrap")));
    }

    #[test]
    fn what_cant_be_run_is_refused() {
        let system = System::new();
        system.program("usr/bin/bwrap", 0o644);
        assert_eq!(system.refusal(), "/usr/bin/bwrap isn't a program");
        fs::remove_file(system.at("usr/bin/bwrap")).unwrap();
        fs::create_dir(system.at("usr/bin/bwrap")).unwrap();
        system.mode("usr/bin/bwrap", 0o755);
        assert_eq!(system.refusal(), "/usr/bin/bwrap isn't a program");
    }

    #[test]
    fn root_outside_this_namespace_is_still_root() {
        let system = System::new();
        fs::create_dir_all(system.at("proc/sys/kernel")).unwrap();
        fs::create_dir_all(system.at("proc/self")).unwrap();
        fs::write(system.at("proc/sys/kernel/overflowuid"), "65534\n").unwrap();
        let owner = |map: &str| {
            fs::write(system.at("proc/self/uid_map"), map).unwrap();
            unmapped_owner(&system.at(""))
        };
        assert_eq!(owner("         0          0 4294967295\n"), None, "every id is somebody");
        assert_eq!(owner("0 1001 1\n"), Some(65534), "root is mapped away");
        assert_eq!(owner("0 1001 1\n1 100000 65536\n"), None, "a rootless container");
    }
}
