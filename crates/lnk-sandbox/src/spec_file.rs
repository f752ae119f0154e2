//! A spec's file: read, judged, and made a request with flags laid over it.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use lnk_spec::diff::{GrantedFiles, GrantedPath, GrantedProgram, Grants};
use lnk_spec::endpoint::Endpoint;
use lnk_spec::path::SpecPath;
use lnk_spec::print::quoted;
use lnk_spec::program::Program;
use lnk_spec::section::Key;
use lnk_spec::spec::{Files, MAX_BYTES};
use lnk_spec::{Os, Spec, shown};
use rustix::fs::{self, FileType, Mode, OFlags, ResolveFlags};

use crate::account::Accounts;
use crate::caller::Caller;
use crate::error::{Error, Result, reason};
use crate::mountinfo::Mounts;
use crate::network::{NOT_REACHED, Network, OWN, refuse_unreachable};
use crate::never::{Asked, By, Never};
use crate::paths::{Held, Identity, Link, real_or_written, walk};
use crate::policy::{home_folder, movable, refuse_read_only_mount, refuse_the_spec_itself};
use crate::programs::Finder;
use crate::request::{Agreed, Renderer, Request};
use crate::state::Home;

/// Why a `~` can't be followed.
const NO_HOME: &str = "you have no home folder here; give the path from /";
/// The system whose keys hold here.
const OS: Os = if cfg!(target_os = "macos") { Os::Macos } else { Os::Linux };
/// Keys whose part of the sandbox isn't built.
const NOT_BUILT: [(&str, &str); 3] =
    [("localhost", "models"), ("tools", "allow"), ("browser", "hosts")];

/// A spec that was read.
#[derive(Debug)]
pub struct SpecFile {
    /// The file as typed.
    pub typed: PathBuf,
    /// Its real path.
    pub real: PathBuf,
    /// The links that the typed path led through.
    links: Vec<Link>,
    identity: Identity,
    bytes: Vec<u8>,
    /// What it says, with paths as written.
    pub spec: Spec,
    /// The caller's home as it is spelled, where there is one.
    home: Option<PathBuf>,
    /// Where it is kept what was agreed to.
    pub(crate) settings_home: Option<Home>,
}

impl SpecFile {
    /// Reads the spec that was typed: absolute, `~/…`, or from the working folder.
    ///
    /// # Errors
    /// [`Error::Refused`] for a file that can't be read, [`Error::Spec`] for one
    /// that is no valid spec.
    pub fn read(typed: &Path, caller: &Caller) -> Result<SpecFile> {
        SpecFile::read_as("--spec ", typed, caller)
    }

    /// As [`SpecFile::read`], where a refusal has another word before the file.
    ///
    /// # Errors
    /// As for [`SpecFile::read`].
    pub fn read_as(asked: &str, typed: &Path, caller: &Caller) -> Result<SpecFile> {
        let refused = |why: &str| Error::Refused(format!("{asked}{}: {why}", shown::word(typed)));
        let accounts = Accounts::of(caller.uid, caller.gid);
        let home = home_folder(caller, &accounts).map(|(home, _)| home);
        let settings_home = Home::of(caller, &accounts);
        let path = absolute(typed, home.as_deref(), &caller.cwd).ok_or_else(|| refused(NO_HOME))?;
        let walked = walk(&path).map_err(|error| refused(&reason(&error)))?;
        // What has no name is reached by its descriptor alone: a shell's <(…).
        if !walked.exists && std::fs::metadata(&path).is_ok() {
            return Err(refused(
                "it is a pipe, or a file that is gone: a spec has to stay, so that it can be known \
                 again; write it to a file",
            ));
        }
        if !walked.exists {
            return Err(refused("no such file; 'lnk sandbox spec' prints one to start from"));
        }
        let (bytes, identity) =
            read_plain(&walked.real, MAX_BYTES + 1).map_err(|error| refused(&reason(&error)))?;
        let spec = Spec::parse(&bytes, OS)
            .map_err(|errors| Error::Spec(errors.shown(&typed.to_string_lossy())))?;
        let file = SpecFile {
            typed: typed.to_path_buf(),
            real: walked.real,
            links: walked.links,
            identity,
            bytes,
            spec,
            home,
            settings_home,
        };
        file.refuse_tilde_without_home()?;
        Ok(file)
    }

    /// The spec's own grants, resolved and every path of them allowed: what its
    /// user agrees to. Those that flags replace are among them, though a path
    /// that doesn't exist may be replaced.
    ///
    /// # Errors
    /// [`Error::Spec`] for a path that doesn't exist or is never opened,
    /// [`Error::Refused`] inside a sandbox.
    pub fn grants(&self, flags: &Spec, caller: &Caller) -> Result<Grants> {
        crate::run::refuse_inside()?;
        let mounts = Mounts::parse(&std::fs::read("/proc/self/mountinfo").unwrap_or_default());
        let accounts = Accounts::of(caller.uid, caller.gid);
        let never = Never::of(caller, &accounts, self.home.as_deref(), &mounts, true);
        let never = never.for_specs(&mounts);
        let files = &self.spec.files;
        let resolved = |key: &'static str, paths: &[SpecPath]| {
            let replaced = is_replaced(flags, "files", key);
            let resolve = |typed| self.resolve(key, typed, replaced, &never, &mounts);
            paths.iter().map(resolve).collect::<Result<Vec<_>>>()
        };
        let (write, read) = (resolved("write", &files.write)?, resolved("read", &files.read)?);
        let mut grants = Grants {
            files: GrantedFiles {
                write: write.clone(),
                read: read.clone(),
                write_dot_files: resolved("write_dot_files", &files.write_dot_files)?,
                hide: resolved("hide", &files.hide)?,
            },
            internet: self.spec.internet.clone(),
            lan: self.spec.lan.clone(),
            localhost: self.spec.localhost.clone(),
            tools: self.spec.tools.clone(),
            browser: self.spec.browser.clone(),
            ..Grants::default()
        };
        self.refuse_own_ports(flags)?;
        self.refuse_unreachable(flags)?;
        self.refuse_dot_files_not_written(&grants.files, flags, caller)?;
        let (writable, opened) = self.opened_with(&grants.files, flags, caller);
        self.refuse_movable(flags, &writable, &opened, &mounts)?;
        let finder = Finder::new(caller, &mounts, writable, opened);
        let replaced = is_replaced(flags, "commands", "allow");
        let found = |typed| self.found(typed, replaced, &finder);
        grants.commands.allow =
            self.spec.commands.allow.iter().map(found).collect::<Result<Vec<_>>>()?;
        Ok(grants)
    }

    /// What a run of the spec asks for, with the flags laid over it.
    ///
    /// # Errors
    /// [`Error::Spec`] or [`Error::Refused`] for what this version doesn't have.
    pub fn request(
        &self,
        flags: &Spec,
        grants: &Grants,
        program: Vec<OsString>,
        renderer: Renderer,
    ) -> Result<Request> {
        self.refuse_unbuilt(flags)?;
        let mut spec = self.absolute_spec();
        spec.merge(flags.clone());
        let files = &grants.files;
        let paths = [
            ("read", &files.read),
            ("write", &files.write),
            ("write_dot_files", &files.write_dot_files),
            ("hide", &files.hide),
        ];
        let paths = paths.into_iter().filter(|(key, _)| !is_replaced(flags, "files", key));
        let agreed = |key, path: &GrantedPath| {
            (key, path.typed.absolute(self.home_or_root(), self.folder()), path.real.clone())
        };
        let paths = paths.flat_map(|(key, paths)| paths.iter().map(move |path| agreed(key, path)));
        let granted = |program: &GrantedProgram| {
            let typed = program.typed.made_absolute(self.home_or_root(), self.folder());
            (typed, program.real.clone(), program.linked.clone())
        };
        let agreed = Agreed {
            file: self.real.clone(),
            identity: self.identity,
            content: self.bytes.clone(),
            links: self.links.iter().map(|link| link.at.clone()).collect(),
            paths: paths.collect(),
            programs: if is_replaced(flags, "commands", "allow") {
                Vec::new()
            } else {
                grants.commands.allow.iter().map(granted).collect()
            },
        };
        Ok(Request { spec: Some(agreed), ..of_files(&spec, program, renderer) })
    }

    /// Refuses what no run of the spec with these flags can do, whatever is
    /// agreed to.
    ///
    /// # Errors
    /// [`Error::Refused`] where no program may run, or a flag isn't built.
    pub fn refuse_useless(&self, flags: &Spec) -> Result<()> {
        refuse_unbuilt_flags(flags)?;
        if self.spec.commands.allow.is_empty() && flags.commands.allow.is_empty() {
            return Err(Error::Refused(format!(
                "{} lists no program, so nothing may run: add to [commands] allow what it starts \
                 ('lnk sandbox learn' finds that), or \"*\" for any",
                shown::word(&self.typed)
            )));
        }
        Ok(())
    }

    /// The spec as text to read back, its paths absolute and the flags laid over
    /// it.
    ///
    /// # Errors
    /// [`Error::Refused`] for a path that isn't text, or an endpoint without its
    /// host.
    pub fn printed(&self, flags: Spec, caller: &Caller) -> Result<String> {
        self.refuse_unreachable(&flags)?;
        let mut spec = self.absolute_spec();
        spec.merge(absolute_flags(flags, caller)?);
        print(&spec)
    }

    fn absolute_spec(&self) -> Spec {
        let mut spec = self.spec.clone();
        spec.make_absolute(self.home_or_root(), self.folder());
        spec
    }

    /// Where its relative paths start: the real file's folder.
    fn folder(&self) -> &Path {
        self.real.parent().unwrap_or(Path::new("/"))
    }

    /// Without a home no path of the spec begins with `~`.
    fn home_or_root(&self) -> &Path {
        self.home.as_deref().unwrap_or(Path::new("/"))
    }

    fn refuse_tilde_without_home(&self) -> Result<()> {
        let paths = keys(&self.spec.files).into_iter().flat_map(|(key, paths)| {
            paths.iter().map(move |path| ("files", key, path.as_path().to_owned()))
        });
        let programs = self.spec.commands.allow.iter().filter_map(|program| match program {
            Program::Path(_) | Program::Folder(_) => Some(("commands", "allow", program.written())),
            Program::Any | Program::Name(_) => None,
        });
        match paths.chain(programs).find(|(_, _, path)| needs_home(path, &self.home)) {
            Some((section, key, path)) => Err(self.refused(section, key, Some(&path), NO_HOME)),
            None => Ok(()),
        }
    }

    fn resolve(
        &self,
        key: &'static str,
        typed: &SpecPath,
        replaced: bool,
        never: &Never,
        mounts: &Mounts,
    ) -> Result<GrantedPath> {
        let path = typed.as_path();
        let asked = Asked { key, by: By::Spec };
        let at_its_place = |error: Error| match error {
            Error::Refused(why) => self.refused("files", key, Some(path), &why),
            other => other,
        };
        let absolute = typed.absolute(self.home_or_root(), self.folder());
        if replaced
            && let Ok(walked) = walk(&absolute)
            && !walked.exists
        {
            return Ok(GrantedPath { typed: typed.clone(), real: walked.real });
        }
        let held = Held::open(&asked.to_string(), path, self.home.as_deref(), self.folder())
            .map_err(at_its_place)?;
        if key == "read" || key == "write" {
            never.judge(asked, &held, mounts).map_err(at_its_place)?;
        }
        if key == "write" && !replaced {
            refuse_read_only_mount(asked, &held).map_err(at_its_place)?;
            refuse_the_spec_itself(asked, &held, Some(&self.real)).map_err(at_its_place)?;
        }
        Ok(GrantedPath { typed: typed.clone(), real: held.real })
    }

    /// Refuses an entry of `write_dot_files` that isn't a folder to write, where no
    /// flag takes its place.
    fn refuse_dot_files_not_written(
        &self,
        files: &GrantedFiles,
        flags: &Spec,
        caller: &Caller,
    ) -> Result<()> {
        if is_replaced(flags, "files", "write_dot_files") {
            return Ok(());
        }
        let by_flags = is_replaced(flags, "files", "write");
        let written: Vec<PathBuf> = if by_flags {
            let absolute = |path: &SpecPath| path.absolute(self.home_or_root(), &caller.cwd);
            flags.files.write.iter().map(|path| real_or_written(&absolute(path))).collect()
        } else {
            files.write.iter().map(|path| path.real.clone()).collect()
        };
        let is_other = |path: &&GrantedPath| !written.contains(&path.real);
        let Some(other) = files.write_dot_files.iter().find(is_other) else { return Ok(()) };
        let typed = other.typed.as_path();
        let why = if by_flags {
            "the --write folders, which take the place of [files] write"
        } else {
            "the folders of [files] write"
        };
        let why = format!(
            "[files] write_dot_files {}: not one of {why}; add it there, or take it out here",
            shown::word(typed)
        );
        Err(self.refused("files", "write_dot_files", Some(typed), &why))
    }

    /// Refuses a path that a program of the sandbox could lead elsewhere for the next
    /// run: nobody would be asked.
    fn refuse_movable(
        &self,
        flags: &Spec,
        writable: &[PathBuf],
        opened: &[PathBuf],
        mounts: &Mounts,
    ) -> Result<()> {
        let opened: Vec<(&Path, bool)> =
            opened.iter().map(|real| (real.as_path(), writable.contains(real))).collect();
        let kept = |(key, _): &(&'static str, _)| !is_replaced(flags, "files", key);
        for (key, paths) in keys(&self.spec.files).into_iter().filter(kept) {
            for path in paths {
                let walked = walk(&path.absolute(self.home_or_root(), self.folder()));
                // What can't be followed is refused where it is opened.
                let Ok(walked) = walked else { continue };
                if let Some(why) = movable(&walked.links, &walked.real, &opened, mounts) {
                    let typed = path.as_path();
                    let why = format!("[files] {key} {}: {why}", shown::word(typed));
                    return Err(self.refused("files", key, Some(typed), &why));
                }
            }
        }
        Ok(())
    }

    /// What is open to write, and to read or write, by real path: flags decide as
    /// well which file a program's name leads to.
    fn opened_with(
        &self,
        files: &GrantedFiles,
        flags: &Spec,
        caller: &Caller,
    ) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let typed =
            |path: &SpecPath| real_or_written(&path.absolute(self.home_or_root(), &caller.cwd));
        let open = |key, granted: &[GrantedPath], given: &[SpecPath]| -> Vec<PathBuf> {
            match is_replaced(flags, "files", key) {
                true => given.iter().map(typed).collect(),
                false => granted.iter().map(|path| path.real.clone()).collect(),
            }
        };
        let writable = open("write", &files.write, &flags.files.write);
        let read = open("read", &files.read, &flags.files.read);
        (writable.clone(), [writable, read].concat())
    }

    /// A program, and where it is found now.
    fn found(
        &self,
        typed: &Program,
        replaced: bool,
        finder: &Finder<'_>,
    ) -> Result<GrantedProgram> {
        let found = finder.find(&typed.made_absolute(self.home_or_root(), self.folder()));
        let (real, linked) = match found {
            Ok(found) => (found.real().map(Path::to_path_buf), found.linked()),
            Err(_) if replaced => (None, Vec::new()),
            Err(why) => {
                let typed = typed.written();
                let why = format!("[commands] allow {}: {why}", shown::word(&typed));
                return Err(self.refused("commands", "allow", Some(&typed), &why));
            }
        };
        Ok(GrantedProgram { typed: typed.clone(), real, linked })
    }

    /// Refuses ports of the sandbox's own, at their place.
    fn refuse_own_ports(&self, flags: &Spec) -> Result<()> {
        let ports = &self.spec.localhost.ports;
        match Network::own_port(ports).filter(|_| !is_replaced(flags, "localhost", "ports")) {
            Some(port) => {
                let why = format!("[localhost] ports: {port} is {OWN}");
                Err(self.refused("localhost", "ports", Some(Path::new(&port.to_string())), &why))
            }
            None => Ok(()),
        }
    }

    /// Refuses endpoints of the spec's own whose hosts aren't reached, each at its place.
    fn refuse_unreachable(&self, flags: &Spec) -> Result<()> {
        if is_replaced(flags, "internet", "tcp") {
            return Ok(());
        }
        let mut spec = self.spec.clone();
        spec.merge(flags.clone());
        let why = |endpoint: &Endpoint| {
            let opener = endpoint.host_opened_by();
            let add = if is_replaced(flags, opener.section, "hosts") {
                format!("add {opener}: flags take the place of hosts in [{}]", opener.section)
            } else {
                format!("add {} to hosts in [{}]", quoted(&opener.entry), opener.section)
            };
            (endpoint.clone(), format!("[internet] tcp {endpoint}: {NOT_REACHED}; {add}"))
        };
        let refused: Vec<_> = spec.internet.unreachable(&spec.lan).map(why).collect();
        if refused.is_empty() {
            return Ok(());
        }
        let errors = Spec::refused_endpoints(&self.bytes, OS, &refused);
        Err(Error::Spec(errors.shown(&self.typed.to_string_lossy())))
    }

    /// Refuses what a run needs and this version doesn't have.
    fn refuse_unbuilt(&self, flags: &Spec) -> Result<()> {
        refuse_unbuilt_flags(flags)?;
        if let Some((section, key)) =
            self.spec.given().find(|(it, key)| is_unbuilt(it.name, key.name))
        {
            let why = format!(
                "[{}] {} isn't built yet in this version; leave it out",
                section.name, key.name
            );
            return Err(self.refused(section.name, key.name, None, &why));
        }
        Ok(())
    }

    fn refused(&self, section: &str, key: &str, entry: Option<&Path>, why: &str) -> Error {
        let entry = entry.and_then(Path::to_str);
        let errors = Spec::refused(&self.bytes, OS, (section, key), entry, why.to_owned());
        Error::Spec(errors.shown(&self.typed.to_string_lossy()))
    }
}

/// What a run without a spec asks for.
///
/// # Errors
/// [`Error::Refused`] for a flag that this version doesn't have.
pub fn request_of_flags(
    flags: &Spec,
    program: Vec<OsString>,
    renderer: Renderer,
) -> Result<Request> {
    refuse_unbuilt_flags(flags)?;
    Ok(of_files(flags, program, renderer))
}

/// The spec that the flags say, as text to read back; paths absolute.
///
/// # Errors
/// As [`SpecFile::printed`].
pub fn printed_flags(flags: Spec, caller: &Caller) -> Result<String> {
    print(&absolute_flags(flags, caller)?)
}

fn print(spec: &Spec) -> Result<String> {
    refuse_unreachable(&spec.internet, &spec.lan)?;
    spec.printed().map_err(|not_text| Error::Refused(not_text.to_string()))
}

fn of_files(spec: &Spec, program: Vec<OsString>, renderer: Renderer) -> Request {
    let paths = |list: &[SpecPath]| list.iter().map(|path| path.as_path().to_owned()).collect();
    Request {
        read: paths(&spec.files.read),
        write: paths(&spec.files.write),
        write_dot_files: paths(&spec.files.write_dot_files),
        hide: paths(&spec.files.hide),
        programs: listed(&spec.commands.allow),
        name: spec.name.as_ref().map(ToString::to_string),
        network: Network {
            shared: false,
            internet: spec.internet.clone(),
            lan: spec.lan.clone(),
            ports: spec.localhost.ports.clone(),
        },
        program,
        renderer,
        ..Request::default()
    }
}

/// The programs of a list; none where it lets any run, or isn't given.
fn listed(allow: &[Program]) -> Option<Vec<Program>> {
    let any = allow.is_empty() || allow.contains(&Program::Any);
    (!any).then(|| allow.to_vec())
}

fn absolute_flags(mut flags: Spec, caller: &Caller) -> Result<Spec> {
    let accounts = Accounts::of(caller.uid, caller.gid);
    let home = home_folder(caller, &accounts).map(|(home, _)| home);
    for (key, paths) in keys(&flags.files) {
        if let Some(path) = paths.iter().find(|path| needs_home(path.as_path(), &home)) {
            let (asked, path) = (Asked { key, by: By::Flag }, shown::word(path.as_path()));
            return Err(Error::Refused(format!("{asked} {path}: {NO_HOME}")));
        }
    }
    flags.make_absolute(home.as_deref().unwrap_or(Path::new("/")), &caller.cwd);
    Ok(flags)
}

/// The keys of `[files]` and their paths.
fn keys(files: &Files) -> [(&'static str, &Vec<SpecPath>); 4] {
    let Files { read, write, write_dot_files, hide } = files;
    [("read", read), ("write", write), ("write_dot_files", write_dot_files), ("hide", hide)]
}

fn needs_home(path: &Path, home: &Option<PathBuf>) -> bool {
    home.is_none() && path.starts_with("~")
}

fn absolute(typed: &Path, home: Option<&Path>, folder: &Path) -> Option<PathBuf> {
    match typed.strip_prefix("~") {
        Ok(below) => Some(home?.join(below)),
        Err(_) => Some(folder.join(typed)),
    }
}

/// Whether a flag takes the place of a key.
fn is_replaced(flags: &Spec, section: &str, key: &str) -> bool {
    let replaces = |given: &Key| given.flag.is_some_and(|flag| !flag.adds);
    flags.given().any(|(its, given)| its.name == section && given.name == key && replaces(given))
}

fn is_unbuilt(section: &str, key: &str) -> bool {
    NOT_BUILT.contains(&(section, key))
}

fn refuse_unbuilt_flags(flags: &Spec) -> Result<()> {
    for (section, key) in flags.given() {
        let flag = key.flag.map_or("", |flag| flag.name);
        if is_unbuilt(section.name, key.name) {
            return Err(Error::Refused(format!(
                "{flag} isn't built yet in this version; leave it out"
            )));
        }
    }
    Ok(())
}

/// The real path of a spec that was typed; it may not exist.
#[must_use]
pub fn real_path(typed: &Path, caller: &Caller) -> PathBuf {
    let accounts = Accounts::of(caller.uid, caller.gid);
    let home = home_folder(caller, &accounts).map(|(home, _)| home);
    let path = absolute(typed, home.as_deref(), &caller.cwd);
    path.map_or_else(|| typed.to_path_buf(), |path| real_or_written(&path))
}

/// The name that the spec at a real path has; none where it has none, or can't be read.
pub(crate) fn name_in(real: &Path) -> Option<String> {
    let (bytes, _) = read_plain(real, MAX_BYTES + 1).ok()?;
    Some(Spec::parse(&bytes, OS).ok()?.name?.to_string())
}

/// Reads at most `most` bytes of a plain file at a real path, never waiting, and
/// says which file that was.
///
/// # Errors
/// Those of openat2(2) and read(2); `InvalidInput` where it isn't a plain file.
pub(crate) fn read_plain(real: &Path, most: usize) -> io::Result<(Vec<u8>, Identity)> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let flags = flags | OFlags::NOCTTY;
    let file = fs::openat2(fs::CWD, real, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    let stat = fs::fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        let why = "it isn't a plain file, which it has to be";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut bytes = Vec::new();
    std::fs::File::from(file).take(most as u64).read_to_end(&mut bytes)?;
    Ok((bytes, Identity::from(&stat)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn paths() -> impl Strategy<Value = Vec<SpecPath>> {
        let path = r#"\PC{1,12}|[\n\t"\\'\x01-\x1f/\x7f\u{202e}\[\]*$]{1,9}|~|~/\PC{0,5}|\.\.?/a"#;
        let path = path.prop_filter_map("valid", |typed| typed.parse().ok());
        proptest::collection::vec(path, 0..4)
    }

    fn distinct(mut list: Vec<SpecPath>) -> Vec<SpecPath> {
        let mut seen = Vec::new();
        list.retain(|path| !seen.contains(path) && (seen.push(path.clone()), true).1);
        list
    }

    proptest! {
        #[test]
        fn a_printed_spec_asks_for_the_same(files in (paths(), paths(), paths(), paths())) {
            let mut spec = Spec::default();
            spec.files.read = distinct(files.0);
            spec.files.write = distinct(files.1);
            spec.files.write_dot_files = distinct(files.2);
            spec.files.hide = distinct(files.3);
            spec.make_absolute(Path::new("/home/u"), Path::new("/work"));
            let asks = |spec: &Spec| {
                let asked = of_files(spec, Vec::new(), Renderer::Auto);
                [asked.read, asked.write, asked.write_dot_files, asked.hide].map(distinct_paths)
            };
            let mut back = Spec::parse(print(&spec).unwrap().as_bytes(), OS).unwrap();
            // From another place: nothing in it depends on where it is.
            back.make_absolute(Path::new("/else"), Path::new("/where"));
            prop_assert_eq!(asks(&back), asks(&spec));
            prop_assert!(asks(&back).iter().flatten().all(|path| path.is_absolute()));
        }
    }

    /// Two spellings may become one absolute path.
    fn distinct_paths(mut list: Vec<PathBuf>) -> Vec<PathBuf> {
        list.sort();
        list.dedup();
        list
    }

    #[test]
    fn a_flag_that_isnt_built_is_named() {
        for (text, named) in [
            ("[localhost]\nmodels = [1]", "--model isn't built"),
            ("[tools]\nallow = ['a']", "--tool isn't built"),
            ("[browser]\nhosts = ['*']", "--browser-host isn't built"),
        ] {
            let flags = Spec::parse(text.as_bytes(), OS).unwrap();
            let error = request_of_flags(&flags, Vec::new(), Renderer::Auto).unwrap_err();
            assert!(error.to_string().starts_with(named), "{error}");
        }
        let any = Spec::parse(b"[commands]\nallow = ['*']\n[files]\nread = ['/usr']", OS).unwrap();
        assert_eq!(request_of_flags(&any, Vec::new(), Renderer::Auto).unwrap().read.len(), 1);
        let network = b"[internet]\nhosts = ['*']\n[lan]\nhosts = ['*']\n[localhost]\nports = [1]";
        let network = Spec::parse(network, OS).unwrap();
        let request = request_of_flags(&network, Vec::new(), Renderer::Auto).unwrap();
        assert!(request.network.has_proxy() && request.network.ports.len() == 1);
    }
}
