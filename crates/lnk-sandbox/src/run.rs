//! `lnk sandbox run`: from what was asked to the program's exit status.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use lnk_spec::shown;

use crate::caller::Caller;
use crate::dotfiles::{Cover, Folder, Gate, Mask, Placeholders, Protection, protect};
use crate::error::{Error, Result, failed};
use crate::linux::launch::{Ended, Launch, LaunchError};
use crate::paths::Identity;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::state::{Settings, no_home};
use crate::{gitconfig, not_run};

/// What `run` was asked for, as typed: paths aren't resolved yet.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// `--read` folders or files.
    pub read: Vec<PathBuf>,
    /// `--write` folders or files.
    pub write: Vec<PathBuf>,
    /// `--write-dot-files` folders.
    pub write_dot_files: Vec<PathBuf>,
    /// `--hide` folders or files.
    pub hide: Vec<PathBuf>,
    /// The program and its arguments; never empty.
    pub program: Vec<OsString>,
    /// How the mounts are made; [`Renderer::Auto`] unless forced.
    pub renderer: Renderer,
}

/// Who makes the mounts. Both give the same sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Renderer {
    /// The joiner, and bubblewrap where the joiner can't.
    #[default]
    Auto,
    /// bubblewrap's own arguments.
    Bwrap,
    /// The joiner or nothing.
    Joiner,
}

/// Something worth a line while or after a program runs.
#[derive(Clone, Debug)]
pub struct Notice(pub String);

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The status to exit with: the program's own, 128 + signal, 126 or 127.
    pub status: u8,
    /// A message to print even without a terminal (program not found, say).
    pub message: Option<String>,
    /// What was refused, for the footer that only a terminal sees.
    pub refused: Vec<Notice>,
}

/// Runs a program in a sandbox and waits for its end.
///
/// # Errors
/// [`Error::Refused`] for a grant that can't be given, [`Error::NotReady`] where
/// this machine can't build the sandbox. The program has not run then.
pub fn run(request: &Request, caller: &Caller, on_notice: &mut dyn FnMut(Notice)) -> Result<Outcome> {
    crate::stdio::check()?;
    let bwrap = crate::linux::bwrap_path::find(Path::new("/")).map_err(|error| Error::NotReady(error.to_string()))?;
    let settings = settings(caller)?;
    let policy = Policy::new(request, caller)?;
    policy.warnings.iter().cloned().map(Notice).for_each(&mut *on_notice);

    let protected = protect_all(&policy, &settings)?;
    protected.warnings.iter().cloned().map(Notice).for_each(&mut *on_notice);
    let gitconfig = gitconfig::git_identity(&git_config_files(&policy.home_real), &policy.home_real);
    let plan = Plan::new(&policy, caller, &request.program, &protected.masks, &protected.reads, gitconfig)?;

    let replace = |path: &Path| protected.replace(path);
    let launch = |joiner| Launch { plan: &plan, bwrap: &bwrap, joiner, replace: &replace }.run();
    let ended = match request.renderer {
        Renderer::Bwrap => launch(false),
        Renderer::Joiner => launch(true),
        Renderer::Auto => match launch(true) {
            Err(LaunchError::JoinerUnsupported(_)) => launch(false),
            ended => ended,
        },
    };
    let removed = protected.placeholders.remove();
    let ended = ended.map_err(|error| match error {
        LaunchError::JoinerUnsupported(why) => Error::NotReady(format!("the joiner can't make mounts here: {why}")),
        LaunchError::Bwrap(complaint) => Error::NotReady(shown::escaped(complaint.as_bytes())),
        LaunchError::Other(error) => error,
    })?;
    removed.map_err(failed("the empty folders in place of dot files"))?;
    Ok(outcome(ended, request, caller, &plan))
}

/// Where git looks for the caller's own settings, git-config(1), the first of
/// the lowest rank.
fn git_config_files(home: &Path) -> [PathBuf; 3] {
    ["/etc/gitconfig".into(), home.join(".config/git/config"), home.join(".gitconfig")]
}

fn settings(caller: &Caller) -> Result<Settings> {
    let home = caller.var("HOME").map(PathBuf::from).filter(|home| home.is_absolute() && home.is_dir());
    let home = home.or_else(|| {
        let own = crate::account::Accounts::of(caller.uid, caller.gid).own.home;
        own.is_dir().then_some(own)
    });
    Settings::open(&home.ok_or_else(no_home)?)
}

/// The write folders' dot files, protected.
struct Protected {
    masks: Vec<Mask>,
    reads: Vec<(PathBuf, Identity)>,
    warnings: Vec<String>,
    placeholders: Placeholders,
}

impl Protected {
    /// Puts an empty folder where a protected name vanished.
    fn replace(&self, path: &Path) -> std::io::Result<()> {
        match rustix::fs::mkdir(path, rustix::fs::Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn protect_all(policy: &Policy, settings: &Settings) -> Result<Protected> {
    let gate = Gate::enter(&settings.placeholders()?).map_err(failed("the records of placeholders"))?;
    let written = policy.grants.iter().filter(|grant| {
        grant.write && !grant.dot_files && grant.held.file_type() == rustix::fs::FileType::Directory
    });
    let mut protections: Vec<(&crate::paths::Held, Protection)> = Vec::new();
    for grant in written {
        let path = &grant.held.real;
        let protection = protect(path).map_err(|error| {
            Error::Refused(format!("--write {}: {}", shown::word(&grant.held.typed), crate::error::reason(&error)))
        })?;
        protections.push((&grant.held, protection));
    }
    let folders: Vec<Folder<'_>> = protections
        .iter()
        .map(|(held, protection)| Folder { fd: held.fd.as_fd(), path: &held.real, protection })
        .collect();
    let placeholders = gate.place(&folders).map_err(failed("an empty folder in place of a dot file"))?;
    let mut protected = Protected { masks: Vec::new(), reads: Vec::new(), warnings: Vec::new(), placeholders };
    let opened = |path: &Path| policy.grants.iter().any(|grant| grant.dot_files && path.starts_with(&grant.held.real));
    for (held, protection) in &protections {
        protected.masks.extend(protection.masks.iter().cloned());
        // What git runs from another write folder, unless that one's dot files
        // are opened.
        let outside = protection.outside.iter().filter(|path| !opened(path));
        protected.masks.extend(outside.map(|path| Mask { path: path.clone(), cover: Cover::ReadOnly }));
        for read in protection.reads.iter().filter(|path| !opened(path)) {
            let stat = rustix::fs::stat(read).map_err(failed(shown::word(read)))?;
            protected.reads.push((read.clone(), Identity::from(&stat)));
        }
        for file in &protection.hard_linked {
            protected.warnings.push(format!(
                "{} has another name, by which it may still be written",
                shown::word(file)
            ));
        }
        let missing = protection.missing.iter().map(|name| held.real.join(name));
        protected.masks.extend(missing.map(|path| Mask { path, cover: Cover::ReadOnly }));
    }
    protected.masks.sort_by(|a, b| a.path.cmp(&b.path));
    protected.masks.dedup_by(|a, b| a.path == b.path);
    Ok(protected)
}

fn outcome(ended: Ended, request: &Request, caller: &Caller, plan: &Plan) -> Outcome {
    let message = ended
        .not_executed
        .as_ref()
        .map(|(errno, path)| not_run::explain(*errno, path, &request.program[0], caller, plan));
    let sockets = ended.refused_sockets.iter().map(|path| {
        Notice(format!("refused the socket {}: a socket of this machine's can't be reached from inside", shown::escaped(path)))
    });
    let mut refused: Vec<Notice> = sockets.collect();
    if ended.status != 0 && !plan.watched.is_empty() && is_git(&request.program[0]) {
        refused.push(Notice("the repository's own files are read only: --write-dot-files opens them".into()));
    }
    Outcome { status: ended.status, message, refused }
}

fn is_git(program: &OsString) -> bool {
    Path::new(program).file_name().is_some_and(|name| name == "git")
}
