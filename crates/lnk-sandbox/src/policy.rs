//! What was asked for, judged: every path resolved, held and allowed.

use std::path::{Path, PathBuf};

use lnk_spec::shown;
use rustix::fs::FileType;

use crate::account::Accounts;
use crate::caller::Caller;
use crate::error::{Error, Result, reason};
use crate::faults::Faults;
use crate::linux::processes::{self, Limit};
use crate::mountinfo::Mounts;
use crate::network::Network;
use crate::never::{Asked, By, Never, never_shown_below};
use crate::paths::{Held, Identity, Link, Walk, open_real, walk};
use crate::programs::{self, Finder, Found, ProgramList, Programs};
use crate::request::{Inner, Request};
use crate::state::Home;

/// A folder or file that the program may read, or also write.
#[derive(Debug)]
pub struct Grant {
    /// Who asked for it.
    pub asked: Asked,
    /// What is granted.
    pub held: Held,
    /// Whether it may be written.
    pub write: bool,
    /// Whether its own dot files may be written too.
    pub dot_files: bool,
}

/// A run's grants, every one of them allowed.
#[derive(Debug)]
pub struct Policy {
    /// Who the caller is.
    pub accounts: Accounts,
    /// The home that the caller's settings are in.
    pub settings_home: Option<Home>,
    /// The home folder inside, as the caller spells it; `/tmp` without one.
    pub home: PathBuf,
    /// The caller's home folder, a real path.
    pub home_real: PathBuf,
    /// Whether the home folder inside is an agent's own, not the caller's.
    pub has_own_home: bool,
    /// Grants by real path, each path once, parents first.
    pub grants: Vec<Grant>,
    /// What is hidden, by real path: asked for, or hidden from every sandbox.
    pub hides: Vec<Hide>,
    /// Links that typed paths led through, recreated inside.
    pub links: Vec<Link>,
    /// Which programs run.
    pub programs: Programs,
    /// What it reaches.
    pub network: Network,
    /// How many processes it may have.
    pub processes: Option<Limit>,
    /// The working folder's real path.
    pub cwd: PathBuf,
    /// Lines that a person should see: grants that open more than they seem to.
    pub warnings: Vec<String>,
    /// Lines that every reader should see: flags that open nothing.
    pub mistakes: Vec<String>,
    /// The machine's mounts when the grants were judged.
    pub mounts: Mounts,
    /// Fences left out on purpose.
    pub faults: Faults,
}

/// Something hidden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hide {
    /// Its real path.
    pub path: PathBuf,
    /// What it was when it was judged.
    pub identity: Identity,
    /// Whether it is a folder.
    pub folder: bool,
    /// Whether it was asked for: it stays hidden when something outside replaces
    /// it.
    pub asked: bool,
}

impl Policy {
    /// Resolves and judges a request.
    ///
    /// # Errors
    /// [`Error::Refused`] naming the flag, the path and what to do.
    pub fn new(request: &Request, caller: &Caller) -> Result<Policy> {
        let accounts = Accounts::of(caller.uid, caller.gid);
        let mounts = Mounts::parse(&std::fs::read("/proc/self/mountinfo").unwrap_or_default());
        let home = home_folder(caller, &accounts);
        let home_path = home.as_ref().map(|(home, _)| home.as_path());
        let by_spec = request.spec.is_some();
        let writes = by_spec || !request.write.is_empty();
        let never = Never::of(caller, &accounts, home_path, &mounts, writes);
        let never = if by_spec { never.for_specs(&mounts) } else { never };
        let open = |key, typed: &PathBuf| open(request, key, typed, home_path, &caller.cwd);

        let mut links = Vec::new();
        let mut warnings = Vec::new();
        let mut grants: Vec<Grant> = Vec::new();
        let inner = request.inner.as_ref();
        for real in inner.iter().flat_map(|inner| &inner.write) {
            let held = open_own(real)?;
            never.judge(own("write"), &held, &mounts)?;
            refuse_read_only_mount(own("write"), &held)?;
            add(&mut grants, Grant { asked: own("write"), held, write: true, dot_files: false });
        }
        let mut of_spec: Vec<OfSpec> = Vec::new();
        for (key, paths, write) in [("write", &request.write, true), ("read", &request.read, false)]
        {
            for typed in paths {
                let (asked, held) = open(key, typed)?;
                of_spec.extend(OfSpec::of(asked, &held));
                never.judge(asked, &held, &mounts)?;
                if write {
                    refuse_read_only_mount(asked, &held)?;
                    let spec = request.spec.as_ref().map(|spec| spec.file.as_path());
                    refuse_the_spec_itself(asked, &held, spec)?;
                    warnings.extend(never.warning(asked, &held));
                }
                links.extend(held.links.iter().cloned());
                add(&mut grants, Grant { asked, held, write, dot_files: false });
            }
        }
        for real in inner.iter().flat_map(|inner| &inner.read) {
            let held = open_own(real)?;
            never.judge(own("read"), &held, &mounts)?;
            add(&mut grants, Grant { asked: own("read"), held, write: false, dot_files: false });
        }
        for typed in &request.write_dot_files {
            let (asked, held) = open("write_dot_files", typed)?;
            of_spec.extend(OfSpec::of(asked, &held));
            let grant = grants.iter_mut().find(|grant| grant.write && grant.held.real == held.real);
            let grant = grant.ok_or_else(|| {
                let typed = shown::word(typed);
                Error::Refused(format!(
                    "{asked} {typed}: not one of the --write folders; add --write {typed}"
                ))
            })?;
            links.extend(held.links);
            grant.dot_files = true;
        }
        let mut hides = Vec::new();
        for typed in &request.hide {
            let (asked, held) = open("hide", typed)?;
            of_spec.extend(OfSpec::of(asked, &held));
            links.extend_from_slice(&held.links);
            let names = mounts.names_of_all_of(&held.real);
            let others = names.iter().filter(|path| **path != held.real);
            hides.extend(others.filter_map(|path| Hide::of(path, true)));
            // What was held, not what may be there by now.
            hides.push(Hide {
                identity: held.identity(),
                folder: held.file_type() == FileType::Directory,
                path: held.real,
                asked: true,
            });
        }
        hides.extend(never.always_hidden().filter_map(|path| Hide::of(path, false)));
        for grant in &grants {
            let never_shown = never_shown_below(&grant.held.real, &mounts);
            hides.extend(never_shown.iter().filter_map(|path| Hide::of(path, false)));
        }
        hides.sort_by(|a, b| a.path.cmp(&b.path).then(b.asked.cmp(&a.asked)));
        hides.dedup_by(|a, b| a.path == b.path);
        grants.retain(|grant| !hides.iter().any(|hide| hide.path == grant.held.real));
        for real in inner.iter().flat_map(|inner| &inner.keep) {
            keep(&mut grants, real, &mounts)?;
        }
        grants.sort_by(|a, b| a.held.real.cmp(&b.held.real));
        let opened: Vec<(&Path, bool)> =
            grants.iter().map(|grant| (grant.held.real.as_path(), grant.write)).collect();
        of_spec.iter().try_for_each(|path| path.refuse_movable(&opened, &mounts))?;

        request.network.check()?;
        warnings.extend(request.network.warning());
        let mut mistakes = request.network.mistakes();
        let finder = finder(caller, &mounts, &grants);
        let told = (&mut warnings, &mut mistakes);
        let list = listed(request, caller, &finder, home_path, told)?;
        let programs = match list {
            _ if request.learn => Programs::Learnt(list.unwrap_or_default()),
            Some(list) => Programs::Listed(list),
            None => Programs::Any,
        };

        let cwd = walk(&caller.cwd).map_err(|error| cwd_refused(&caller.cwd, &reason(&error)))?;
        if !cwd.exists {
            return Err(cwd_refused(&caller.cwd, "it was deleted; go to a folder that exists"));
        }
        links.extend(cwd.links);
        let settings_home = Home::of(caller, &accounts);
        let own_home = inner.map(own_home).transpose()?.flatten();
        let has_own_home = own_home.is_some();
        let (home, home_real) = match home {
            Some((home, walked)) => {
                links.extend(walked.links);
                (home, walked.real)
            }
            None => ("/tmp".into(), "/tmp".into()),
        };
        let home = own_home.unwrap_or(home);
        let processes = request.processes.and_then(|most| Limit::here(most, caller.uid));
        if request.processes.is_some() && processes.is_none() {
            warnings.push(processes::NO_LIMIT.to_owned());
        }
        let cwd = cwd.real;
        Ok(Policy {
            accounts,
            settings_home,
            home,
            home_real,
            has_own_home,
            grants,
            hides,
            links,
            programs,
            network: request.network.clone(),
            processes,
            cwd,
            warnings,
            mistakes,
            mounts,
            faults: request.faults.clone(),
        })
    }
}

impl Policy {
    /// Finds programs as this sandbox sees them.
    #[must_use]
    pub fn finder<'a>(&'a self, caller: &'a Caller) -> Finder<'a> {
        finder(caller, &self.mounts, &self.grants)
    }
}

fn finder<'a>(caller: &'a Caller, mounts: &'a Mounts, grants: &[Grant]) -> Finder<'a> {
    let real = |grant: &Grant| grant.held.real.clone();
    let writable = grants.iter().filter(|grant| grant.write).map(real).collect();
    Finder::new(caller, mounts, writable, grants.iter().map(real).collect())
}

/// The programs that a request lists; `warnings` and `mistakes` get the lines of
/// entries that open nothing, or more than they seem to.
fn listed(
    request: &Request,
    caller: &Caller,
    finder: &Finder<'_>,
    home: Option<&Path>,
    (warnings, mistakes): (&mut Vec<String>, &mut Vec<String>),
) -> Result<Option<ProgramList>> {
    let Some(entries) = &request.programs else { return Ok(None) };
    let mut list = ProgramList::default();
    for typed in entries {
        let by_spec = request.is_of_spec(typed);
        let asked = if by_spec { "[commands] allow" } else { "--command" };
        let shown = shown::word(typed.written());
        let refused = |why: &str| Error::Refused(format!("{asked} {shown}: {why}"));
        if home.is_none() && typed.written().starts_with("~") {
            return Err(refused("you have no home folder here; give the path from /"));
        }
        let entry = typed.made_absolute(home.unwrap_or(Path::new("/")), &caller.cwd);
        let found = finder.find(&entry).map_err(|why| refused(&why))?;
        if request.spec.as_ref().is_some_and(|spec| spec.has_moved(typed, &found)) {
            return Err(refused("it is elsewhere now than when it was looked at; run it again"));
        }
        if let Found::Nothing(why) = &found {
            // A list that many machines share may name more than this one has.
            let line = format!("{asked} {shown}: {why}");
            if by_spec { &mut *warnings } else { &mut *mistakes }.push(line);
        }
        if !by_spec && let Some(widens) = programs::widens(&found) {
            warnings.push(format!("{asked} {shown}: {widens}"));
        }
        found.add_to(&mut list);
    }
    Ok(Some(list))
}

impl Hide {
    /// What is at a real path; `None` where nothing is.
    #[must_use]
    pub fn of(path: &Path, asked: bool) -> Option<Hide> {
        let stat = rustix::fs::fstat(open_real(path).ok()?).ok()?;
        let folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        Some(Hide { path: path.to_path_buf(), identity: Identity::from(&stat), folder, asked })
    }
}

/// Adds a grant. Of several of one path the first counts: write comes before read.
fn add(grants: &mut Vec<Grant>, grant: Grant) {
    if !grants.iter().any(|its| its.held.real == grant.held.real) {
        grants.push(grant);
    }
}

/// How an agent's own folder is asked for.
fn own(key: &'static str) -> Asked {
    Asked { key, by: By::Link }
}

/// Opens a folder of an agent's own. Nobody agreed to where a link in its place leads,
/// which a sandbox that writes the folder it is in could have put there.
fn open_own(real: &Path) -> Result<Held> {
    let held = Held::open(&own("read").to_string(), real, None, Path::new("/"))?;
    let refused =
        |why: &str| Error::Refused(format!("{} {}: {why}", own("read"), shown::word(real)));
    if held.real != real {
        return Err(refused("a link is in its way; put the folder itself there"));
    }
    if held.file_type() != FileType::Directory {
        return Err(refused("it isn't a folder; put one there"));
    }
    Ok(held)
}

/// Makes a folder, and every grant in it, read-only wherever a grant shows it.
fn keep(grants: &mut Vec<Grant>, real: &Path, mounts: &Mounts) -> Result<()> {
    let kept = open_own(real)?;
    for name in mounts.names_of(real) {
        for grant in grants.iter_mut().filter(|grant| grant.held.real.starts_with(&name)) {
            (grant.write, grant.dot_files) = (false, false);
        }
        if grants.iter().any(|grant| name.starts_with(&grant.held.real)) {
            let held = open_own(&name)?;
            if held.identity() != kept.identity() {
                let (name, real) = (shown::word(&name), shown::word(real));
                return Err(Error::Refused(format!("{name} isn't {real} any more; run it again")));
            }
            add(grants, Grant { asked: own("read"), held, write: false, dot_files: false });
        }
    }
    Ok(())
}

/// The home folder inside that is an agent's own.
fn own_home(inner: &Inner) -> Result<Option<PathBuf>> {
    let Some(home) = &inner.home else { return Ok(None) };
    if !inner.read.contains(home) {
        let home = shown::word(home);
        return Err(Error::Refused(format!("{} {home}: a home has to be read", own("read"))));
    }
    Ok(Some(home.clone()))
}

fn cwd_refused(cwd: &Path, why: &str) -> Error {
    Error::Refused(format!("the working folder {}: {why}", shown::word(cwd)))
}

/// Opens a path of the request. One that a spec names has to lead where it led
/// when the spec was agreed to.
fn open(
    request: &Request,
    key: &'static str,
    typed: &Path,
    home: Option<&Path>,
    cwd: &Path,
) -> Result<(Asked, Held)> {
    let agreed = request.spec.as_ref().and_then(|spec| spec.agreed(key, typed));
    let by = if agreed.is_some() { By::Spec } else { By::Flag };
    let asked = Asked { key, by };
    let held = Held::open(&asked.to_string(), typed, home, cwd)?;
    if agreed.is_some_and(|agreed| agreed != held.real) {
        return Err(Error::Refused(format!(
            "{asked} {}: it leads elsewhere now than when it was looked at; run it again",
            shown::word(typed)
        )));
    }
    Ok((asked, held))
}

/// A path that a spec names: where it leads is asked anew at each run.
struct OfSpec {
    asked: Asked,
    typed: PathBuf,
    real: PathBuf,
    links: Vec<Link>,
}

impl OfSpec {
    fn of(asked: Asked, held: &Held) -> Option<OfSpec> {
        matches!(asked.by, By::Spec).then(|| OfSpec {
            asked,
            typed: held.typed.clone(),
            real: held.real.clone(),
            links: held.links.clone(),
        })
    }

    fn refuse_movable(&self, opened: &[(&Path, bool)], mounts: &Mounts) -> Result<()> {
        let movable = movable(&self.links, &self.real, opened, mounts);
        movable.map_or(Ok(()), |why| {
            Err(Error::Refused(format!("{} {}: {why}", self.asked, shown::word(&self.typed))))
        })
    }
}

/// Why a spec's path can't be followed: one of the links on its way lies in what the
/// sandbox writes, so that its program would choose what the next run opens or hides.
/// `opened` are the grants by real path, with whether each may be written; the nearest
/// one counts.
pub(crate) fn movable(
    links: &[Link],
    real: &Path,
    opened: &[(&Path, bool)],
    mounts: &Mounts,
) -> Option<String> {
    let writes = |folder: &Path| {
        let around = opened.iter().filter(|(grant, _)| folder.starts_with(grant));
        around.max_by_key(|(grant, _)| grant.components().count()).is_some_and(|(_, write)| *write)
    };
    let link = links.iter().find(|link| {
        let folder = link.at.parent().unwrap_or(Path::new("/"));
        mounts.names_of(folder).iter().any(|name| writes(name))
    })?;
    Some(format!(
        "the link {} on its way is in a folder that the sandbox may write, so a program could lead \
         it elsewhere; it leads to {} now: name that instead",
        shown::word(&link.at),
        shown::word(real)
    ))
}

/// A sandbox that writes its own spec would open the next one.
pub(crate) fn refuse_the_spec_itself(asked: Asked, held: &Held, spec: Option<&Path>) -> Result<()> {
    if spec != Some(&held.real) {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "{asked} {}: it is the spec itself, which what it runs may not change; name its folder",
        shown::word(&held.typed)
    )))
}

pub(crate) fn refuse_read_only_mount(asked: Asked, held: &Held) -> Result<()> {
    if !held.on_read_only_mount() {
        return Ok(());
    }
    let typed = shown::word(&held.typed);
    let read = Asked { key: "read", ..asked };
    Err(Error::Refused(format!(
        "{asked} {typed}: it is on a read-only mount; use {read} {typed}, or mount it writable"
    )))
}

/// Folders that are the system's, in which no home can be.
const SYSTEM: [&str; 12] = [
    "/usr", "/etc", "/proc", "/sys", "/dev", "/run", "/tmp", "/bin", "/sbin", "/lib", "/lib64",
    "/nix",
];

/// The caller's home folder: `$HOME` where that can be one, else the one in
/// passwd; with its walk.
pub(crate) fn home_folder(caller: &Caller, accounts: &Accounts) -> Option<(PathBuf, Walk)> {
    home_folders(caller, accounts).next()
}

/// What can be the caller's home folder, in this order.
pub(crate) fn home_folders(
    caller: &Caller,
    accounts: &Accounts,
) -> impl Iterator<Item = (PathBuf, Walk)> {
    let variable = caller.var("HOME").map(PathBuf::from);
    let candidates = [variable, Some(accounts.own.home.clone())];
    candidates.into_iter().flatten().filter(|home| home.is_absolute()).filter_map(|home| {
        let walked = walk(&home).ok()?;
        let real = walked.real.as_path();
        let systems =
            real == Path::new("/") || SYSTEM.iter().any(|system| real.starts_with(system));
        (!systems).then_some((home, walked))
    })
}
