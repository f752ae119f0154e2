//! The protected names of all of a run's write folders, gathered.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use lnk_spec::shown;
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::agents::Agents;
use crate::caller::Caller;
use crate::dotfiles::{Folder, Gate, Mask, Placeholders, Protection, protect, reads_of};
use crate::error::{Error, Result, failed, reason};
use crate::gitconfig;
use crate::paths::Identity;
use crate::policy::{Grant, Policy};
use crate::state::Settings;

/// How often the folders are looked at again when names appear meanwhile.
const LOOKS: usize = 3;

/// What is mounted over dot files, and the placeholders it is mounted on.
#[derive(Debug, Default)]
pub struct Protected {
    /// The masks, parents first.
    pub masks: Vec<Mask>,
    /// Folders that git reads, to be bound read-only.
    pub reads: Vec<(PathBuf, Identity)>,
    /// Lines that a person should see.
    pub warnings: Vec<String>,
    /// The empty folders in place of what is missing.
    pub placeholders: Option<Placeholders>,
}

impl Protected {
    /// Looks at every write folder whose dot files aren't opened, and makes the
    /// placeholders. What must be hidden although it doesn't exist yet is added
    /// to the policy's hides.
    ///
    /// # Errors
    /// [`Error::Refused`] naming a folder that can't be looked at whole.
    pub fn new(policy: &mut Policy, settings: &Settings, caller: &Caller) -> Result<Protected> {
        let config_files = gitconfig::files(caller, &policy.home_real);
        let state = settings.placeholders()?;
        for _ in 0..LOOKS {
            let gate = Gate::enter(&state).map_err(failed(format!(
                "the records of empty folders, {}",
                shown::word(&state)
            )))?;
            // Looked at behind the gate, where no other run's placeholder goes.
            let protections = policy
                .grants
                .iter()
                .filter(|grant| is_protected(grant))
                .map(|grant| look(grant, policy, &config_files));
            let protections = protections.collect::<Result<Vec<_>>>()?;
            let agents = agents(policy)?;
            let mut folders: Vec<Folder<'_>> = protections
                .iter()
                .map(|(grant, protection)| Folder {
                    fd: grant.held.fd.as_fd(),
                    path: &grant.held.real,
                    protection,
                })
                .collect();
            folders.extend(agents.iter().flat_map(Agents::folders));
            let placeholders = gate
                .place(&folders)
                .map_err(failed("an empty folder in place of a dot file that doesn't exist"))?;
            if !placeholders.appeared().is_empty() {
                continue;
            }
            let mut protected = Protected {
                masks: Vec::new(),
                reads: Vec::new(),
                warnings: Vec::new(),
                placeholders: Some(placeholders),
            };
            for (grant, protection) in &protections {
                protected.add(policy, grant, protection)?;
            }
            // With its dot files opened a folder may still be a work tree of a
            // repository elsewhere, which git reads.
            for grant in policy.grants.iter().filter(|grant| grant.dot_files && is_folder(grant)) {
                let reads = reads_of(&grant.held.real).map_err(refused(grant))?;
                protected.add_reads(policy, &reads);
            }
            protected.masks.sort_by(|a, b| a.path.cmp(&b.path));
            protected.masks.dedup_by(|a, b| a.path == b.path);
            drop(protections);
            if let Some(agents) = agents {
                agents.hide_in(policy);
            }
            return Ok(protected);
        }
        Err(Error::Refused(
            "the write folder's dot files change all the time; try again when they are at rest"
                .into(),
        ))
    }

    fn add(&mut self, policy: &Policy, grant: &Grant, protection: &Protection) -> Result<()> {
        // The names in a folder inside whose dot files are opened are its own.
        let masks = protection.with_placeholders(&grant.held.real);
        self.masks.extend(masks.into_iter().filter(|mask| !is_opened(policy, &mask.path)));
        self.add_reads(policy, &protection.reads);
        let linked = protection.hard_linked.iter();
        self.warnings.extend(linked.map(|file| {
            format!(
                "{} has a second name (a hard link), by which it may still be written",
                shown::word(file)
            )
        }));
        Ok(())
    }

    fn add_reads(&mut self, policy: &Policy, reads: &[(PathBuf, Identity)]) {
        let hidden = |path: &Path| policy.hides.iter().any(|hide| path.starts_with(&hide.path));
        let reads = reads.iter().filter(|(path, _)| !is_opened(policy, path) && !hidden(path));
        self.reads.extend(reads.cloned());
    }
}

/// Whether a write folder whose dot files are opened holds this.
fn is_opened(policy: &Policy, path: &Path) -> bool {
    policy.grants.iter().any(|grant| grant.dot_files && path.starts_with(&grant.held.real))
}

fn is_protected(grant: &Grant) -> bool {
    grant.write && !grant.dot_files && is_folder(grant)
}

fn is_folder(grant: &Grant) -> bool {
    grant.held.file_type() == FileType::Directory
}

fn look<'a>(
    grant: &'a Grant,
    policy: &Policy,
    config_files: &[PathBuf],
) -> Result<(&'a Grant, Protection)> {
    let others: Vec<&Path> = policy.grants.iter().map(|other| other.held.real.as_path()).collect();
    let protection = protect(&grant.held.real, config_files, &others).map_err(refused(grant))?;
    Ok((grant, protection))
}

fn refused(grant: &Grant) -> impl FnOnce(io::Error) -> Error {
    move |error| {
        let Grant { asked, held, .. } = grant;
        Error::Refused(format!("{asked} {}: {}", shown::word(&held.typed), reason(&error)))
    }
}

/// Whether there is anything to protect.
///
/// # Errors
/// A folder on the way to agents' folders can't be looked at.
pub fn is_needed(policy: &Policy) -> Result<bool> {
    let written = policy.grants.iter().any(|grant| grant.write);
    Ok(written || agents(policy)?.is_some())
}

/// Where something that is granted would show agents' folders.
fn agents(policy: &Policy) -> Result<Option<Agents>> {
    let seen = |path: &Path| policy.grants.iter().any(|grant| path.starts_with(&grant.held.real));
    Agents::look(&policy.home_real, seen).map_err(failed("agents' folders, ~/Link/Agents"))
}

/// Puts an empty folder where a protected name vanished.
///
/// # Errors
/// The name is in no write folder, or can't be made.
pub fn put_back(
    placeholders: Option<&mut Placeholders>,
    policy: &Policy,
    path: &Path,
) -> io::Result<()> {
    let holding = policy.grants.iter().filter(|grant| path.starts_with(&grant.held.real));
    let grant =
        holding.max_by_key(|grant| grant.held.real.as_os_str().len()).ok_or(Errno::NOENT)?;
    let name = path.strip_prefix(&grant.held.real).map_err(|_| Errno::NOENT)?;
    placeholders.ok_or(Errno::NOENT)?.put_back(grant.held.fd.as_fd(), &grant.held.real, name)
}
