//! SSH in a sandbox that has an endpoint for it: a key of its own, the host keys that it
//! knows, and how `ssh` is told to use them and nothing else.

pub mod key;
pub mod known_hosts;

use std::io;
use std::path::{Path, PathBuf};

use lnk_spec::endpoint::Endpoint;
use lnk_spec::host::HostPattern;
use lnk_spec::{Spec, shown};

use crate::account::Accounts;
use crate::agents::is_agents_sandbox;
use crate::caller::Caller;
use crate::consent::Question;
use crate::env::Environment;
use crate::error::{Error, Result, failed};
use crate::mountinfo::Mounts;
use crate::never::{Asked, By, Never};
use crate::paths::Held;
use crate::policy::{home_folder, refuse_read_only_mount};
use crate::spec_file::{SpecFile, read_plain};
use crate::state::{Home, Settings};

use key::{Key, Owner, PRIVATE};
use known_hosts::HostKey;

/// Where the files are inside: a read-only folder, which `~/.ssh` leads to.
pub const FOLDER: &str = "/run/lnk/ssh";
/// The folder that ssh writes host keys in that servers showed it.
pub const ACCEPTED_FOLDER: &str = "/run";
/// Their file there, which anything inside can write.
pub const ACCEPTED: &str = "accepted_known_hosts";
/// The port that is taken for SSH.
const PORT: u16 = 22;
/// The host keys that the sandbox said were shown, in the folder kept outside.
const KNOWN_HOSTS: &str = "known_hosts";
/// Host keys kept for a sandbox at most.
const MAX_KEPT: usize = 1000;
/// Host keys taken from one run at most.
const MAX_NEW: usize = 16;

/// Whether an endpoint is taken for SSH: one on port 22. What is spoken at another port
/// can't be told from its number.
#[must_use]
pub fn is_ssh(endpoint: &Endpoint) -> bool {
    endpoint.port().get() == PORT
}

/// What the ssh of one sandbox has.
#[derive(Debug)]
pub struct Ssh {
    endpoints: Vec<Endpoint>,
    owner: Option<(Owner, PathBuf)>,
    key: Option<Key>,
    /// Published host keys and kept ones.
    known: Vec<HostKey>,
}

impl Ssh {
    /// What a sandbox with these endpoints has: a key where one is on port 22, and where
    /// one was made for it before; `None` where neither is so. Without an owner it has
    /// no key. A new key is kept by [`Ssh::start`].
    ///
    /// # Errors
    /// Naming the file of settings that can't be read or made, or isn't what it should be.
    pub fn of(
        endpoints: &[Endpoint],
        owner: Option<Owner>,
        settings: &Settings,
    ) -> Result<Option<Ssh>> {
        let is_asked = endpoints.iter().any(is_ssh);
        let key = match &owner {
            _ if endpoints.is_empty() => None,
            Some(owner) if is_asked => Some(Key::find_or_new(settings, owner)?),
            Some(owner) => Key::find(settings, owner)?,
            None => None,
        };
        if !is_asked && key.is_none() {
            return Ok(None);
        }
        let owner = match owner {
            None => None,
            Some(owner) => {
                let folder = settings.key_folder(&owner.id())?;
                Some((owner, folder))
            }
        };
        let mut known = known_hosts::published();
        if let Some((_, folder)) = &owner {
            known.extend(kept(folder)?);
        }
        Ok(Some(Ssh { endpoints: endpoints.to_vec(), owner, key, known }))
    }

    /// The files of [`FOLDER`]: name, content and mode.
    ///
    /// # Errors
    /// The key can't be written down.
    pub fn files(&self) -> Result<Vec<(&'static str, Vec<u8>, u32)>> {
        let known = known_hosts::text(&self.known);
        let mut files = vec![
            ("config", self.config().into_bytes(), 0o644),
            (KNOWN_HOSTS, known.into_bytes(), 0o644),
        ];
        if let Some(key) = &self.key {
            let what = || failed::<io::Error>("the sandbox's SSH key");
            files.push((PRIVATE, key.private().map_err(what())?, 0o600));
            let public = key.public().map_err(what())? + "\n";
            files.push(("id_ed25519.pub", public.into_bytes(), 0o644));
        }
        Ok(files)
    }

    /// How git, and whoever types it, starts ssh. No word of it needs quoting.
    #[must_use]
    pub fn env(&self) -> Environment {
        vec![("GIT_SSH_COMMAND".into(), format!("ssh -F {FOLDER}/config").into())]
    }

    /// The sandbox starts: a new key is kept. The line for it, or that there is none,
    /// which every reader is told.
    ///
    /// # Errors
    /// The key can't be kept.
    pub fn start(&self) -> Result<Option<String>> {
        let (Some(key), Some((owner, _))) = (&self.key, &self.owner) else {
            let line = "this sandbox has no SSH key, and forgets the host keys that its servers \
                        show: both are kept by a spec or a --write folder; name one";
            return Ok(Some(line.into()));
        };
        if !key.keep()? {
            return Ok(None);
        }
        let public = key.public().map_err(failed("the sandbox's SSH key"))?;
        Ok(Some(format!(
            "made an SSH key for this sandbox; add it where it should be let in, as a deploy key, \
             say ({} prints it again): {public}",
            shown::command(&format!("lnk sandbox key {}", owner.flag()))
        )))
    }

    /// A server whose key isn't known may bring one; of one that has a known key, ssh
    /// takes no other, of another kind neither.
    fn config(&self) -> String {
        let mut text = String::from("# Written by lnk for this sandbox.\nHost *\n");
        if self.key.is_some() {
            text.push_str(&format!("    IdentityFile {FOLDER}/{PRIVATE}\n"));
        }
        text.push_str(&format!(
            "    IdentitiesOnly yes
    IdentityAgent none
    StrictHostKeyChecking accept-new
    UserKnownHostsFile {ACCEPTED_FOLDER}/{ACCEPTED} {FOLDER}/{KNOWN_HOSTS}
    GlobalKnownHostsFile /dev/null
    CheckHostIP no
    HashKnownHosts no
    UpdateHostKeys no
"
        ));
        text
    }

    /// Keeps what ssh was shown, out of what anything inside may have written: keys of
    /// servers that are endpoints and had none, the first of each. The lines say so.
    ///
    /// # Errors
    /// They can't be kept.
    pub fn keep(&self, shown: &[u8]) -> Result<Vec<String>> {
        let mut new: Vec<HostKey> = Vec::new();
        for key in known_hosts::parse_foreign(shown) {
            let is_endpoint = |endpoint: &Endpoint| {
                endpoint.port().get() == key.port && endpoint.host().matches(&key.host)
            };
            let is_known = self.known.iter().chain(&new).any(|known| known.is_of(&key));
            if !is_known && self.endpoints.iter().any(is_endpoint) {
                new.push(key);
            }
        }
        if new.is_empty() {
            return Ok(Vec::new());
        }
        let more = new.len() > MAX_NEW;
        new.truncate(MAX_NEW);
        let Some((owner, folder)) = &self.owner else {
            return Ok(new.iter().map(|key| shown_line(key, "it is forgotten now")).collect());
        };
        let mut lines: Vec<String> = keep_in(folder, owner, new)?
            .iter()
            .map(|key| shown_line(key, "this sandbox takes no other from now on"))
            .collect();
        if more {
            lines.push(format!(
                "of the other host keys that it says were shown none is kept: a run adds {MAX_NEW} \
                 at most"
            ));
        }
        Ok(lines)
    }
}

/// Who writes where ssh does can say so of any key, which is for a person to compare.
fn shown_line(key: &HostKey, then: &str) -> String {
    format!("the sandbox says that {}; {then}", shown_by(key, "showed"))
}

fn shown_by(key: &HostKey, showed: &str) -> String {
    let HostKey { host, port, .. } = key;
    format!("{host}, port {port}, {showed} the SSH host key {}", key.fingerprint())
}

/// The kept host keys of a folder; none where it has no such file.
fn kept(folder: &Path) -> Result<Vec<HostKey>> {
    let path = folder.join(KNOWN_HOSTS);
    let bytes = match read_plain(&path, known_hosts::MAX_BYTES * 16 + 1) {
        Ok((bytes, _)) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(shown::word(&path))(error)),
    };
    known_hosts::parse(&bytes).ok_or_else(|| {
        Error::Refused(format!(
            "{} isn't a list of host keys as lnk writes it: remove it, and they are kept anew",
            shown::word(&path)
        ))
    })
}

/// Adds keys of servers that have none there; returns those that were added.
fn keep_in(folder: &Path, owner: &Owner, new: Vec<HostKey>) -> Result<Vec<HostKey>> {
    let what = || format!("the host keys in {}", shown::word(folder));
    let _lock = key::lock(folder).map_err(failed(what()))?;
    let mut all = kept(folder)?;
    let new: Vec<HostKey> =
        new.into_iter().filter(|key| !all.iter().any(|kept| kept.is_of(key))).collect();
    if all.len() + new.len() > MAX_KEPT {
        // No older one makes room: a program could so push out what holds it.
        return Err(Error::Refused(format!(
            "{MAX_KEPT} SSH host keys are kept for this sandbox already, and no more: 'lnk sandbox \
             key --forget HOST {}' makes room",
            owner.flag()
        )));
    }
    all.extend(new.iter().cloned());
    let text = known_hosts::text(&all);
    key::write(folder, KNOWN_HOSTS, text.as_bytes()).map_err(failed(what()))?;
    Ok(new)
}

/// The public half of a sandbox's key, which is made where there is none yet: the
/// sandbox of a spec that was agreed to, or the one of a write folder. One line, without
/// its end. Warnings are lines to show in any case.
///
/// # Errors
/// [`Error::Refused`] inside a sandbox, for what is no spec, or one that nobody agreed
/// to, and for what no `--write` opens; what [`Key::find_or_new`] says.
pub fn public_key(of: &Typed, caller: &Caller, warnings: &mut Vec<String>) -> Result<String> {
    let (settings, owner, spec) = owner(of, caller)?;
    if let (None, Some(spec)) = (Key::find(&settings, &owner)?, spec) {
        refuse_not_agreed(&spec, caller, warnings)?;
    }
    let key = Key::find_or_new(&settings, &owner)?;
    key.keep()?;
    key.public().map_err(failed("the sandbox's SSH key"))
}

/// Forgets the host keys that are kept for a sandbox's servers of these hosts, on every
/// port. A line for each.
///
/// # Errors
/// As for [`public_key`], and [`Error::Refused`] where none is kept.
pub fn forget(of: &Typed, hosts: &HostPattern, caller: &Caller) -> Result<Vec<String>> {
    let (settings, owner, _) = owner(of, caller)?;
    let folder = settings.key_folder(&owner.id())?;
    let forgotten = if folder.exists() { forget_in(&folder, hosts)? } else { Vec::new() };
    if forgotten.is_empty() {
        let published = known_hosts::published();
        let is_published = published.iter().any(|key| hosts.matches(&key.host));
        let why = if is_published { "; the one that it publishes always holds" } else { "" };
        return Err(Error::Refused(format!(
            "no host key of {hosts} is kept for this sandbox{why}"
        )));
    }
    let line = |key: &HostKey| format!("forgot that {}", shown_by(key, "showed"));
    Ok(forgotten.iter().map(line).collect())
}

/// Takes keys out of a folder; returns them.
fn forget_in(folder: &Path, hosts: &HostPattern) -> Result<Vec<HostKey>> {
    let what = || format!("the host keys in {}", shown::word(folder));
    let _lock = key::lock(folder).map_err(failed(what()))?;
    let (forgotten, left): (Vec<_>, Vec<_>) =
        kept(folder)?.into_iter().partition(|key| hosts.matches(&key.host));
    if !forgotten.is_empty() {
        let text = known_hosts::text(&left);
        key::write(folder, KNOWN_HOSTS, text.as_bytes()).map_err(failed(what()))?;
    }
    Ok(forgotten)
}

/// Whose key and host keys a typed sandbox has, where they are, and its spec.
fn owner(of: &Typed, caller: &Caller) -> Result<(Settings, Owner, Option<SpecFile>)> {
    crate::run::refuse_inside()?;
    let (owner, spec) = match of {
        Typed::Folder(typed) => (Owner::Folder(folder(typed, caller)?), None),
        Typed::Spec(typed) => {
            let spec = SpecFile::read(typed, caller)?;
            (Owner::Spec(spec.real.clone()), Some(spec))
        }
        Typed::Name(name) => (Owner::Name(agents(name, caller)?), None),
    };
    let accounts = Accounts::of(caller.uid, caller.gid);
    let home = Home::of(caller, &accounts).ok_or_else(|| {
        Error::Refused("you have no home folder to keep it in; set HOME to one of yours".into())
    })?;
    Ok((Settings::open(&home)?, owner, spec))
}

/// A key for a spec that never ran is one that somebody may let in unseen.
fn refuse_not_agreed(spec: &SpecFile, caller: &Caller, warnings: &mut Vec<String>) -> Result<()> {
    let grants = spec.grants(&Spec::default(), caller)?;
    match Question::of(spec, grants, warnings) {
        None => Ok(()),
        Some(question) => Err(Error::Refused(format!(
            "{}, so it has no SSH key: run it once and agree to what it opens, then ask again",
            question.why
        ))),
    }
}

/// A sandbox as it was typed.
#[derive(Clone, Debug)]
pub enum Typed {
    /// By its spec.
    Spec(PathBuf),
    /// By its write folder.
    Folder(PathBuf),
    /// By its agent's name and `-run`.
    Name(String),
}

fn agents(name: &str, caller: &Caller) -> Result<String> {
    if !is_agents_sandbox(name, caller) {
        let name = shown::word(name);
        return Err(Error::Refused(format!(
            "--name {name}: no agent's sandbox is called this; it is the agent's name and -run"
        )));
    }
    Ok(name.to_owned())
}

fn folder(typed: &Path, caller: &Caller) -> Result<PathBuf> {
    let accounts = Accounts::of(caller.uid, caller.gid);
    let home = home_folder(caller, &accounts).map(|(home, _)| home);
    let held = Held::open("--write", typed, home.as_deref(), &caller.cwd)?;
    if held.file_type() != rustix::fs::FileType::Directory {
        let typed = shown::word(typed);
        return Err(Error::Refused(format!("--write {typed}: it isn't a folder; name one")));
    }
    let asked = Asked { key: "write", by: By::Flag };
    let mounts = Mounts::parse(&std::fs::read("/proc/self/mountinfo").unwrap_or_default());
    Never::of(caller, &accounts, home.as_deref(), &mounts, true).judge(asked, &held, &mounts)?;
    refuse_read_only_mount(asked, &held)?;
    Ok(held.real)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::thread;

    const KEYS: [&str; 2] = [
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAfuCHKVTjquxvt6CM6tdG4SLp1Btn/nOeHHE5UOzRdf",
    ];

    fn settings() -> (tempfile::TempDir, Settings) {
        let root = tempfile::tempdir().unwrap();
        let home = Home::at(root.path().into(), rustix::process::getuid().as_raw());
        let settings = Settings::open(&home).unwrap();
        (root, settings)
    }

    fn endpoints(list: &str) -> Vec<Endpoint> {
        list.split_whitespace().map(|endpoint| endpoint.parse().unwrap()).collect()
    }

    fn of(list: &str, owner: Option<Owner>, settings: &Settings) -> Option<Ssh> {
        Ssh::of(&endpoints(list), owner, settings).unwrap()
    }

    fn started(list: &str, owner: Option<Owner>, settings: &Settings) -> Ssh {
        let ssh = of(list, owner, settings).unwrap();
        ssh.start().unwrap();
        ssh
    }

    fn owner(path: &str) -> Option<Owner> {
        Some(Owner::Folder(path.into()))
    }

    fn public(ssh: &Ssh) -> Option<String> {
        ssh.key.as_ref().map(|key| key.public().unwrap())
    }

    #[test]
    fn a_key_is_the_owners_and_stays() {
        let (_root, settings) = settings();
        let made = of("a.example:22", owner("/w"), &settings).unwrap();
        assert!(made.start().unwrap().unwrap().starts_with("made an SSH key"));
        let again = of("b.example:22", owner("/w"), &settings).unwrap();
        assert_eq!(again.start().unwrap(), None);
        assert_eq!(public(&made), public(&again));
        for other in [Owner::Folder("/w/x".into()), Owner::Spec("/w".into())] {
            let other = started("a.example:22", Some(other), &settings);
            assert_ne!(public(&other), public(&made));
        }
        use std::os::unix::fs::PermissionsExt as _;
        let folder = &made.owner.as_ref().unwrap().1;
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder.join(PRIVATE)), mode(folder)), (0o600, 0o700));
        let nobodys = of("a.example:22", None, &settings).unwrap();
        assert!(nobodys.key.is_none());
        assert!(nobodys.start().unwrap().unwrap().contains("has no SSH key"));
    }

    #[test]
    fn a_key_of_a_run_that_never_starts_isnt_made() {
        let (_root, settings) = settings();
        let first = of("a.example:22", owner("/w"), &settings).unwrap();
        let public_of_first = public(&first);
        drop(first);
        assert!(Key::find(&settings, &owner("/w").unwrap()).unwrap().is_none());
        let second = of("a.example:22", owner("/w"), &settings).unwrap();
        assert_ne!(public(&second), public_of_first);
        assert!(second.start().unwrap().is_some());
        let kept = Key::find(&settings, &owner("/w").unwrap()).unwrap().unwrap();
        assert_eq!(kept.public().ok(), public(&second));
    }

    #[test]
    fn a_forgotten_host_key_may_be_another() {
        let (_root, settings) = settings();
        let list = "*.a.example:22 *.a.example:2222";
        let ssh = || started(list, owner("/w"), &settings);
        let folder = ssh().owner.unwrap().1;
        let line = |n: usize, key: usize| format!("n{n}.a.example {}\n", KEYS[key]);
        let ported = format!("[n1.a.example]:2222 {}\n", KEYS[0]);
        assert_eq!(ssh().keep((line(1, 0) + &line(2, 0) + &ported).as_bytes()).unwrap().len(), 3);
        let forget = |hosts: &str| forget_in(&folder, &hosts.parse().unwrap()).unwrap().len();
        assert_eq!((forget("n3.a.example"), forget("*.n1.a.example")), (0, 0));
        assert_eq!(forget("n1.a.example"), 2);
        assert_eq!(kept(&folder).unwrap().len(), 1);
        assert_eq!(ssh().keep(line(1, 1).as_bytes()).unwrap().len(), 1);
        assert_eq!(forget("*.a.example"), 2);
    }

    #[test]
    fn a_full_list_loses_nothing_and_says_what_makes_room() {
        let (_root, settings) = settings();
        let ssh = || started("*.a.example:22", owner("/w"), &settings);
        let folder = ssh().owner.unwrap().1;
        let lines = |range: std::ops::Range<usize>| -> String {
            range.map(|n| format!("n{n}.a.example {}\n", KEYS[0])).collect()
        };
        std::fs::write(folder.join(KNOWN_HOSTS), lines(0..MAX_KEPT)).unwrap();
        let error = ssh().keep(lines(2000..2001).as_bytes()).unwrap_err().to_string();
        assert!(
            error.ends_with("'lnk sandbox key --forget HOST --write /w' makes room"),
            "{error}"
        );
        assert_eq!(kept(&folder).unwrap().len(), MAX_KEPT);
        forget_in(&folder, &"n7.a.example".parse().unwrap()).unwrap();
        assert_eq!(ssh().keep(lines(2000..2001).as_bytes()).unwrap().len(), 1);
    }

    #[test]
    fn openssh_reads_the_key() {
        let (_root, settings) = settings();
        let made = started("a.example:22", owner("/w"), &settings);
        let file = made.owner.as_ref().unwrap().1.join(PRIVATE);
        let read = std::process::Command::new("ssh-keygen").args(["-y", "-f"]).arg(file).output();
        let read = String::from_utf8(read.unwrap().stdout).unwrap();
        assert_eq!(read.trim_end(), public(&made).unwrap());
    }

    #[test]
    fn of_many_runs_at_once_all_have_one_key() {
        let (_root, settings) = settings();
        let keys = thread::scope(|all| {
            let run = || public(&started("a.example:22", owner("/w"), &settings));
            let runs: Vec<_> = (0..8).map(|_| all.spawn(run)).collect();
            runs.into_iter().map(|run| run.join().unwrap()).collect::<BTreeSet<_>>()
        });
        assert_eq!(keys.len(), 1);
    }

    #[test]
    fn another_port_has_the_key_that_was_made_for_it() {
        let (_root, settings) = settings();
        assert!(of("a.example:2222", owner("/w"), &settings).is_none());
        assert!(of("", owner("/w"), &settings).is_none());
        Key::find_or_new(&settings, &owner("/w").unwrap()).unwrap().keep().unwrap();
        assert!(of("a.example:2222", owner("/w"), &settings).unwrap().key.is_some());
        assert!(of("", owner("/w"), &settings).is_none());
    }

    #[test]
    fn what_a_program_wrote_adds_first_keys_of_endpoints_and_nothing_else() {
        let (_root, settings) = settings();
        let list = "github.com:22 a.example:22 b.example:22";
        let ssh = started(list, owner("/w"), &settings);
        let wrote = format!(
            "github.com {0}\nelsewhere.example {0}\n[a.example]:2222 {0}\n* {0}\na.example {1}\n\
             a.example {0}\n\u{1b}[2J\n",
            KEYS[0], KEYS[1]
        );
        let lines = ssh.keep(wrote.as_bytes()).unwrap();
        assert_eq!(lines.len(), 1, "{lines:?}");
        let said =
            "the sandbox says that a.example, port 22, showed the SSH host key SHA256:eUXGGm1";
        assert!(lines[0].starts_with(said), "{lines:?}");
        let file = ssh.owner.as_ref().unwrap().1.join(KNOWN_HOSTS);
        let kept = || std::fs::read_to_string(&file).unwrap();
        assert_eq!(kept(), format!("a.example {}\n", KEYS[1]));
        // Neither a later run's nor that of one which began before replaces it.
        let replaced = format!("a.example {}\n", KEYS[0]);
        for ssh in [&ssh, &of(list, owner("/w"), &settings).unwrap()] {
            assert_eq!(ssh.keep(replaced.as_bytes()).unwrap(), Vec::<String>::new());
        }
        assert_eq!(kept(), format!("a.example {}\n", KEYS[1]));
        std::fs::write(&file, "* anything").unwrap();
        assert!(Ssh::of(&endpoints(list), owner("/w"), &settings).is_err());
    }

    #[test]
    fn a_run_adds_few() {
        let (_root, settings) = settings();
        let ssh = started("*.a.example:22", owner("/w"), &settings);
        let wrote: String = (0..50).map(|n| format!("n{n}.a.example {}\n", KEYS[0])).collect();
        assert_eq!(ssh.keep(wrote.as_bytes()).unwrap().len(), MAX_NEW + 1);
        let kept = of("*.a.example:22", owner("/w"), &settings).unwrap().known.len();
        assert_eq!(kept, known_hosts::published().len() + MAX_NEW);
    }
}
