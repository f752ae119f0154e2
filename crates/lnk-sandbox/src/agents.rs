//! Agents' folders, `~/Link/Agents`, which may not exist.
//!
//! They are hidden also where the first of them is made while a program runs: an
//! empty folder stands in, to be hidden. One that stands in already, for another
//! run, is held as well: `Link` has to stay for as long as anybody needs `Agents`
//! in it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Stat};
use rustix::io::Errno;

use crate::account::Accounts;
use crate::caller::Caller;
use crate::dotfiles::{Cover, Folder, Gate, Mask, Placeholders, Protection};
use crate::paths::{Identity, open_real, real_below_or_written};
use crate::policy::{Hide, Policy, home_folder};

/// The way to them, from a home.
const NAMES: [&str; 2] = ["Link", "Agents"];
/// What the sandbox of an agent's commands is called, behind the agent's name.
const RUN: &str = "-run";
/// How often the way is looked at again when it changes meanwhile.
const LOOKS: usize = 4;

/// Whether this is what the sandbox of an agent's commands is called, `main-run`, and
/// the caller has the agent.
#[must_use]
pub fn is_agents_sandbox(name: &str, caller: &Caller) -> bool {
    let Some(agent) = name.strip_suffix(RUN) else { return false };
    let accounts = Accounts::of(caller.uid, caller.gid);
    let home = home_folder(caller, &accounts).map(|(home, _)| home);
    let is_plain = !agent.is_empty() && !agent.contains('/') && !agent.starts_with('.');
    is_plain && home.is_some_and(|home| home.join(NAMES[0]).join(NAMES[1]).join(agent).is_dir())
}

/// The way to agents' folders, as far as it is there, and the next folder on it.
/// Looked at behind the [`Gate`].
pub struct Agents {
    steps: Vec<Step>,
    /// Where they are, or would be.
    end: PathBuf,
}

/// One folder on the way, which may be missing, and the one it is in.
struct Step {
    path: PathBuf,
    parent: PathBuf,
    parent_fd: OwnedFd,
    protection: Protection,
}

impl Agents {
    /// Looks at the way from `home`, a real path, following links. `None` where
    /// it ends in a folder that isn't `seen`: what is made there doesn't matter.
    ///
    /// # Errors
    /// A folder that is seen can't be looked at.
    pub fn look(home: &Path, seen: impl Fn(&Path) -> bool) -> io::Result<Option<Agents>> {
        let mut agents = Agents { steps: Vec::new(), end: home.to_path_buf() };
        for name in NAMES {
            agents.end = real_below_or_written(&agents.end, Path::new(name));
            if agents.steps.last().is_some_and(Step::is_missing) {
                continue;
            }
            let (Some(parent), Some(_)) = (agents.end.parent(), agents.end.file_name()) else {
                return Ok(None);
            };
            match Step::look(&agents.end, parent) {
                Ok(step) => agents.steps.push(step),
                Err(error) if seen(parent) => return Err(error),
                Err(_) => return Ok(None),
            }
        }
        let last = agents.steps.last();
        Ok(last.is_some_and(|last| seen(&last.parent)).then_some(agents))
    }

    /// For [`Gate::place`].
    pub fn folders(&self) -> Vec<Folder<'_>> {
        let folders = self.steps.iter().map(|Step { parent, parent_fd, protection, .. }| Folder {
            fd: parent_fd.as_fd(),
            path: parent,
            protection,
        });
        folders.collect()
    }

    /// Hides the last folder, which was placed where it wasn't there.
    pub fn hide_in(&self, policy: &mut Policy) {
        // Where the way was longer when the policy was judged, it was another
        // run's, and went with that.
        policy.hides.retain(|hide| hide.asked || hide.path != self.end);
        let Some(last) = self.steps.last() else { return };
        if policy.hides.iter().all(|hide| hide.path != last.path) {
            policy.hides.extend(Hide::of(&last.path, false));
        }
    }

    /// Makes the whole way from `home` and gives its end. It stays as long as
    /// what is given with it.
    ///
    /// # Errors
    /// Those of [`Gate::enter`] and [`Gate::place`]; `EAGAIN` where it changes
    /// all the time.
    pub fn make(state: &Path, home: &Path) -> io::Result<(PathBuf, Placeholders)> {
        // Held until the next look holds it too.
        let mut _held = None;
        for _ in 0..LOOKS {
            let gate = Gate::enter(state)?;
            let agents = Agents::look(home, |_| true)?.ok_or(Errno::NOENT)?;
            let placeholders = gate.place(&agents.folders())?;
            if agents.steps.len() == NAMES.len() && placeholders.appeared().is_empty() {
                return Ok((agents.end, placeholders));
            }
            _held = Some(placeholders);
        }
        Err(Errno::AGAIN.into())
    }
}

impl Step {
    fn look(path: &Path, parent: &Path) -> io::Result<Step> {
        let parent_fd = open_real(parent)?;
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let mut protection = Protection::default();
        match rustix::fs::statat(&parent_fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => protection.masks.push(covered(path, &stat)),
            // A file in the way is told by who makes the missing one.
            Err(Errno::NOENT | Errno::NOTDIR) => protection.missing.push(name.into()),
            Err(error) => return Err(error.into()),
        }
        let (path, parent) = (path.to_path_buf(), parent.to_path_buf());
        Ok(Step { path, parent, parent_fd, protection })
    }

    fn is_missing(&self) -> bool {
        !self.protection.missing.is_empty()
    }
}

fn covered(path: &Path, stat: &Stat) -> Mask {
    Mask { path: path.to_path_buf(), cover: Cover::ReadOnly, identity: Some(Identity::from(stat)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Home {
        _root: tempfile::TempDir,
        state: PathBuf,
        home: PathBuf,
    }

    fn home() -> Home {
        let root = tempfile::tempdir().unwrap();
        let real = root.path().canonicalize().unwrap();
        let (state, home) = (real.join("state"), real.join("home"));
        fs::create_dir(&state).unwrap();
        fs::create_dir(&home).unwrap();
        Home { _root: root, state, home }
    }

    impl Home {
        /// As a run does that sees the home.
        fn start(&self) -> Placeholders {
            let gate = Gate::enter(&self.state).unwrap();
            let agents = Agents::look(&self.home, |_| true).unwrap().unwrap();
            gate.place(&agents.folders()).unwrap()
        }

        fn there(&self) -> [bool; 2] {
            ["Link", "Link/Agents"].map(|path| self.home.join(path).is_dir())
        }

        /// The gate itself isn't one.
        fn records(&self) -> usize {
            fs::read_dir(&self.state).unwrap().count() - 1
        }
    }

    #[test]
    fn of_two_that_make_one_folder_each_the_last_to_end_removes_both() {
        for first_ends_first in [true, false] {
            let home = home();
            let first = home.start();
            assert_eq!(home.there(), [true, false]);
            let second = home.start();
            assert_eq!(home.there(), [true, true]);
            let (ends, stays) = if first_ends_first { (first, second) } else { (second, first) };
            ends.remove().unwrap();
            assert!(home.there()[0]);
            stays.remove().unwrap();
            assert_eq!((home.there(), home.records()), ([false; 2], 0));
        }
    }

    #[test]
    fn what_another_made_stays_for_whoever_found_it() {
        let home = home();
        let (first, second, third) = (home.start(), home.start(), home.start());
        first.remove().unwrap();
        second.remove().unwrap();
        assert_eq!(home.there(), [true, true]);
        third.remove().unwrap();
        assert_eq!((home.there(), home.records()), ([false; 2], 0));
    }

    #[test]
    fn after_a_crash_of_one_the_other_removes_both_and_after_two_a_sweep() {
        for crashes in [[true, false], [false, true], [true, true]] {
            let home = home();
            let runs = [home.start(), home.start()];
            for (run, crashes) in runs.into_iter().zip(crashes) {
                if crashes {
                    run.crash()
                } else {
                    run.remove().unwrap()
                }
                assert!(!crashes || home.there()[0]);
            }
            if crashes[1] {
                crate::dotfiles::sweep(&home.state).unwrap();
            }
            assert_eq!((home.there(), home.records()), ([false; 2], 0), "{crashes:?}");
        }
    }

    /// Each made by a run that doesn't know of the other's records.
    #[test]
    fn a_folder_in_one_is_never_taken_for_the_users() {
        let home = home();
        let first = home.start();
        let inside = home.home.join("Link");
        let protection = Protection { missing: vec!["Agents".into()], ..Protection::default() };
        let fd = open_real(&inside).unwrap();
        let folder = Folder { fd: fd.as_fd(), path: &inside, protection: &protection };
        let second = Gate::enter(&home.state).unwrap().place(&[folder]).unwrap();
        first.remove().unwrap();
        second.remove().unwrap();
        assert_eq!(home.there(), [true, false]);
        crate::dotfiles::sweep(&home.state).unwrap();
        assert_eq!((home.there(), home.records()), ([false; 2], 0));
    }

    #[test]
    fn what_the_user_has_or_makes_stays() {
        let home = home();
        fs::create_dir(home.home.join("Link")).unwrap();
        let run = home.start();
        run.remove().unwrap();
        assert_eq!(home.there(), [true, false]);
        let run = home.start();
        fs::create_dir(home.home.join("Link/Agents/one")).unwrap();
        run.remove().unwrap();
        assert_eq!((home.there(), home.records()), ([true; 2], 0));
    }

    #[test]
    fn links_on_the_way_are_followed_and_nothing_is_made_where_nobody_sees() {
        let home = home();
        let away = home.state.with_file_name("away");
        fs::create_dir(&away).unwrap();
        std::os::unix::fs::symlink(&away, home.home.join("Link")).unwrap();
        let (end, held) = Agents::make(&home.state, &home.home).unwrap();
        assert_eq!(end, away.join("Agents"));
        assert!(end.is_dir());
        held.remove().unwrap();
        assert!(away.is_dir() && !end.exists());
        assert!(Agents::look(&home.home, |path| path == home.home).unwrap().is_none());
        fs::remove_dir(&away).unwrap();
        // Where a link leads there may be a folder one day.
        let (end, held) = Agents::make(&home.state, &home.home).unwrap();
        assert!(end.is_dir());
        held.remove().unwrap();
        assert_eq!((away.exists(), home.records()), (false, 0));
    }

    #[test]
    fn a_file_in_the_way_is_an_error() {
        let home = home();
        fs::write(home.home.join("Link"), "").unwrap();
        let error = Agents::make(&home.state, &home.home).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
        assert_eq!(fs::read(home.home.join("Link")).unwrap(), b"");
    }

    #[test]
    fn many_starts_and_ends_at_once_leave_nothing() {
        let home = home();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let (end, held) = Agents::make(&home.state, &home.home).unwrap();
                        let run = home.start();
                        held.remove().unwrap();
                        assert!(end.is_dir());
                        run.remove().unwrap();
                    }
                });
            }
        });
        assert_eq!((home.there(), home.records()), ([false; 2], 0));
    }
}
