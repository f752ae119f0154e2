//! `lnk sandbox run`: from what was asked to the program's exit status.

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use lnk_spec::shown;
use lnk_wire::gate::{Closing, Whose};
use lnk_wire::paused::{Closed, Lasting, PAUSES};
use rustix::fs::FileType;

use crate::caller::Caller;
use crate::dotfiles::Placeholders;
use crate::error::{Error, Result, failed};
use crate::known::word_for;
use crate::linux::begun::Begun;
use crate::linux::execs::Executed;
use crate::linux::failure::{LaunchError, name_ready};
use crate::linux::launch::{Ended, Launch, Served};
use crate::network::Network;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::programs::Programs;
use crate::programs::learnt::{Learner, Learnt};
use crate::programs::refusal::{Adding, Refusals};
use crate::protected::{self, Protected, put_back};
use crate::request::{Renderer, Request};
use crate::ssh::Ssh;
use crate::ssh::key::Owner;
use crate::state::Settings;
use crate::{gitconfig, not_run, notification, programs, unasked};

/// Something worth a line while or after a program runs.
#[derive(Clone, Debug)]
pub enum Notice {
    /// What helps whoever watches.
    Hint(String),
    /// What every reader is told: a program that wasn't let run, a flag that opens
    /// nothing.
    Warning(String),
}

/// How a run ended.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The status to exit with: the program's own, 128 + signal, 126 or 127.
    pub status: u8,
    /// A message to print even without a terminal (program not found, say).
    pub message: Option<String>,
    /// What a person must see, terminal or not.
    pub warnings: Vec<String>,
    /// What was refused, for the footer that only a terminal sees.
    pub refused: Vec<String>,
    /// The programs that it started, where that was to be learnt.
    pub learnt: Option<Learnt>,
}

/// The status of a program that exists and isn't executed, as a shell has it.
const NOT_EXECUTED: u8 = 126;

/// Runs a program in a sandbox and waits for its end.
///
/// # Errors
/// [`Error::Refused`] for a grant that can't be given, [`Error::NotReady`] where
/// this machine can't build the sandbox. The program has not run then.
pub fn run(request: &Request, caller: &Caller, on_notice: &dyn Fn(Notice)) -> Result<Outcome> {
    refuse_inside()?;
    crate::stdio::check()?;
    let bwrap = crate::linux::bwrap_path::find(Path::new("/"))
        .map_err(|error| Error::NotReady(error.to_string()))?;
    // bubblewrap starts while the grants are judged.
    let begun = match request.renderer {
        Renderer::Bwrap => None,
        Renderer::Joiner | Renderer::Auto => Some(
            Begun::for_joiner(&bwrap, &request.faults).map_err(name_ready).map_err(not_ready)?,
        ),
    };
    let mut policy = Policy::new(request, caller)?;
    if let Programs::Listed(list) = &policy.programs {
        crate::stdio::check_against(list, &policy.mounts)?;
    }
    policy.warnings.iter().cloned().map(Notice::Hint).for_each(on_notice);
    policy.mistakes.iter().cloned().map(Notice::Warning).for_each(on_notice);
    let is_protected = protected::is_needed(&policy)?;
    let settings = settings(&policy, is_protected)?;

    let protected = match settings.as_ref().filter(|_| is_protected) {
        Some(settings) => Protected::new(&mut policy, settings, caller)?,
        None => Protected::default(),
    };
    protected.warnings.iter().cloned().map(Notice::Hint).for_each(on_notice);
    let spec = request.spec.as_ref().map_or_else(Vec::new, |spec| spec.masks(&policy.mounts));
    let masks = [protected.masks, spec].concat();
    let identity =
        || gitconfig::git_identity(&gitconfig::files(caller, &policy.home_real), &policy.home_real);
    let has_its_own = policy.has_own_home && gitconfig::is_in(&policy.home);
    let gitconfig = if has_its_own { None } else { identity() };
    let ssh = ssh(request, &policy, settings.as_ref())?;
    let plan = Plan::new(
        &policy,
        caller,
        &request.program,
        &masks,
        &protected.reads,
        gitconfig,
        ssh.as_ref(),
    )?;

    if let Some(notice) = not_run::another_found(&request.program[0], caller, &plan) {
        on_notice(Notice::Hint(notice));
    }
    // An agent's programs have no flags, whether it has a spec yet or not.
    let by_spec = request.is_listed_by_spec() || request.inner.is_some();
    let adding = if by_spec { Adding::ToSpec } else { Adding::ByFlag };
    if let Some(line) = programs::given::refusal(&plan, &policy.finder(caller), adding) {
        return Ok(Outcome { status: NOT_EXECUTED, message: Some(line), ..Outcome::default() });
    }
    let told = RefCell::new(Told::new(caller, &policy, &plan, adding));
    let on_program = |program| {
        if let Some(line) = told.borrow_mut().hear(&program) {
            on_notice(Notice::Warning(line));
        }
    };
    let placeholders = RefCell::new(protected.placeholders);
    let replace = |path: &Path| put_back(placeholders.borrow_mut().as_mut(), &policy, path);
    let terminals = crate::stdio::Terminals::now();
    let whose = request.whose();
    let own_name = || match (&policy.settings_home, &settings) {
        (Some(home), Some(settings)) => word_for(&whose, home, settings.folder()),
        _ => whose.name().to_owned(),
    };
    let on_closed = |closing: Closing| {
        on_notice(Notice::Warning(closed_line(&whose, &closing.why, own_name)));
        if let (true, Closed::Paused(why)) = (closing.by_itself, &closing.why) {
            notification::show(&format!("{} is paused", whose.name()), why, caller);
        }
    };
    let served = settings.as_ref().filter(|_| policy.network.is_served()).map(|settings| Served {
        policy: policy.network.policy(),
        whose: whose.clone(),
        settings: settings.folder(),
        on_closed: &on_closed,
    });
    let on_start = || {
        let line = ssh.as_ref().map(Ssh::start).transpose()?.flatten();
        line.map(Notice::Warning).into_iter().for_each(on_notice);
        Ok(())
    };
    let launch = Launch {
        plan: &plan,
        on_start: &on_start,
        served,
        grace: request.grace,
        replace: &replace,
        on_program: &on_program,
        host_mounts: &policy.mounts,
    };
    let ended = match begun {
        None => launch.without_joiner(&bwrap),
        Some(begun) => match launch.with_joiner(begun) {
            Err(LaunchError::JoinerUnsupported(_)) if request.renderer == Renderer::Auto => {
                launch.without_joiner(&bwrap)
            }
            ended => ended,
        },
    };
    terminals.restore();
    let placeholders = placeholders.into_inner();
    let appeared = placeholders.as_ref().map(Placeholders::occupied).unwrap_or_default();
    let removed = placeholders.map_or(Ok(()), Placeholders::remove);
    let ended = ended.map_err(not_ready)?;
    let (unheard, uncounted) = (ended.unheard_programs, ended.uncounted);
    let unlogged = ended.carried.map_or(0, |carried| carried.unlogged);
    let accepted = ssh.as_ref().map(|ssh| ssh.keep(&ended.host_keys)).transpose();
    let mut outcome = outcome(ended, request, &policy.network, caller, &plan);
    match told.into_inner() {
        Told::Refused(refusals) => {
            // What the kernel said of it is told already.
            outcome.message.take_if(|_| outcome.status == NOT_EXECUTED && refusals.any());
            refusals.rest(unheard).into_iter().for_each(|line| on_notice(Notice::Warning(line)));
            outcome.refused.extend(refusals.footer());
        }
        Told::Started(learner) => outcome.learnt = Some(learner.learnt(outcome.status, unheard)),
    }
    outcome.warnings = appeared.iter().map(|path| appeared_notice(path)).collect();
    // The program has run, and may be why: its end is told all the same.
    let left = removed.map_err(failed("the empty folders in place of dot files")).err();
    outcome.warnings.extend(left.map(|error| error.to_string()));
    // The program has run: that it will be asked again isn't the end of it.
    outcome.warnings.extend(match accepted {
        Ok(lines) => lines.unwrap_or_default(),
        Err(error) => vec![format!("{error}; what ssh was shown is taken anew next time")],
    });
    if unlogged > 0 {
        let lines = if unlogged == 1 { "1 line" } else { &format!("{unlogged} lines") };
        outcome.warnings.push(format!(
            "{lines} of its calls couldn't be written to the log, so calls were refused: make room \
             in ~/.config/lnk"
        ));
    }
    if uncounted > 0 {
        let calls =
            if uncounted == 1 { "1 refused call" } else { &format!("{uncounted} refused calls") };
        let name = whose.name();
        outcome.warnings.push(format!(
            "{calls} of {name} couldn't be counted in ~/.config/lnk/sandbox, so its next run isn't \
             closed for that: make room there, or let a stopped lnk go on; 'lnk sandbox pause {name}' \
             closes it"
        ));
    }
    Ok(outcome)
}

/// The line for a wire that was closed; `typed` is what is typed for its sandbox.
fn closed_line(whose: &Whose, why: &Closed, typed: impl Fn() -> String) -> String {
    match why {
        Closed::Stopped => {
            "every wire is stopped, this sandbox's too: 'lnk sandbox stop --off' opens them".into()
        }
        Closed::Paused(why) => {
            let name = typed();
            format!(
                "the wire of {name} is paused: {why}; {} shows its calls, {} opens it",
                shown::command(&format!("lnk sandbox log --sandbox {name}")),
                shown::command(&format!("lnk sandbox resume {name}"))
            )
        }
        Closed::Unknown(why) => format!(
            "the wire of {} is closed, as ~/.config/lnk/sandbox/{PAUSES}, which says whether it \
             is paused, can't be read or written: {why}",
            whose.name()
        ),
    }
}

/// The ssh of a sandbox with endpoints, kept by its lasting name or its spec, else by the
/// first of its write folders.
fn ssh(request: &Request, policy: &Policy, settings: Option<&Settings>) -> Result<Option<Ssh>> {
    let Some(settings) = settings else { return Ok(None) };
    let folder = |typed: &PathBuf| {
        let its = policy.grants.iter().find(|grant| grant.write && grant.held.typed == *typed)?;
        let is_folder = its.held.file_type() == FileType::Directory;
        is_folder.then(|| Owner::Folder(its.held.real.clone()))
    };
    let owner = match request.whose().lasting {
        Lasting::Name(name) => Some(Owner::Name(name)),
        Lasting::Spec(file) => Some(Owner::Spec(file)),
        Lasting::Run(_) => match &request.spec {
            // A check of it.
            Some(spec) => Some(Owner::Spec(spec.file.clone())),
            None => request.write.iter().find_map(folder),
        },
    };
    Ssh::of(&policy.network.internet.tcp, owner, settings)
}

/// What is done with programs that are told.
enum Told<'a> {
    /// They weren't let run.
    Refused(Refusals<'a>),
    /// They were started.
    Started(Learner<'a>),
}

impl<'a> Told<'a> {
    fn new(caller: &'a Caller, policy: &'a Policy, plan: &'a Plan, adding: Adding) -> Self {
        let finder = policy.finder(caller);
        match &policy.programs {
            Programs::Learnt(list) => Told::Started(Learner::new(finder, plan, list.clone())),
            Programs::Any | Programs::Listed(_) => {
                Told::Refused(Refusals::new(finder, plan, adding))
            }
        }
    }

    /// The line for a program, if it gets one.
    fn hear(&mut self, program: &Executed) -> Option<String> {
        match self {
            Told::Refused(refusals) => refusals.line(program),
            Told::Started(learner) => {
                learner.add(program);
                None
            }
        }
    }
}

fn not_ready(error: LaunchError) -> Error {
    match error {
        LaunchError::JoinerUnsupported(why) => {
            Error::NotReady(format!("the mounts can't be made here: {why}"))
        }
        LaunchError::Bwrap(complaint) => Error::NotReady(shown::escaped(complaint.as_bytes())),
        LaunchError::Other(error) => error,
    }
}

/// A sandbox in a sandbox can't be built: say so before anything fails for it.
///
/// # Errors
/// [`Error::Refused`] inside.
pub fn refuse_inside() -> Result<()> {
    if is_inside() {
        return Err(Error::Refused(
            "this is inside a sandbox already, where none can be made; run it outside".into(),
        ));
    }
    Ok(())
}

/// Whether this process is in a sandbox.
#[must_use]
pub fn is_inside() -> bool {
    Path::new(crate::plan::OWN_BINARY).exists()
}

/// What protects dot files, and a wire, are remembered in Link's settings. A run that
/// has neither does without.
fn settings(policy: &Policy, is_protected: bool) -> Result<Option<Settings>> {
    if !is_protected && !policy.network.is_served() {
        return Ok(None);
    }
    let missing = "you have no home folder to keep Link's settings in; set HOME to one of yours";
    let home = policy.settings_home.as_ref().ok_or_else(|| Error::Refused(missing.into()))?;
    Settings::open(home).map(Some)
}

fn outcome(
    ended: Ended,
    request: &Request,
    network: &Network,
    caller: &Caller,
    plan: &Plan,
) -> Outcome {
    let adding = if request.inner.is_some() { Adding::ToSpec } else { Adding::ByFlag };
    let message = ended.not_executed.as_ref().map(|(errno, path)| {
        not_run::explain(*errno, path, &request.program[0], (caller, plan), adding)
    });
    let why = if plan.shares_network {
        "with --allow network only those in its own /tmp can be told from this machine's"
    } else {
        "a socket of this machine's can't be reached from inside"
    };
    let sockets = ended.refused_sockets.iter();
    let sockets = sockets.map(|path| format!("refused the socket {}: {why}", shown::escaped(path)));
    let mut refused: Vec<String> = sockets.chain(ended.refused_calls.refused_lines()).collect();
    if ended.status != 0 {
        refused.extend(ended.failed_calls.failed_lines());
        refused.extend(unasked::line(&ended, network, &request.program));
    }
    if ended.status != 0 && plan.protects_dot_files() && changes_repository(&request.program) {
        // An agent's programs have no flags.
        let opens = match request.inner {
            Some(_) => "write_dot_files in [files]",
            None => "--write-dot-files",
        };
        refused.push(format!("the repository's own files are read only: {opens} opens them"));
    }
    Outcome { status: ended.status, message, refused, ..Outcome::default() }
}

/// A name that was kept free was taken all the same: something outside removed
/// the empty folder, and then made this, or the program did before it was kept
/// again.
fn appeared_notice(path: &Path) -> String {
    format!("{} appeared while the program ran: look at it before you use it", shown::word(path))
}

/// Whether it is a git that would have written to the repository's own files.
fn changes_repository(program: &[OsString]) -> bool {
    const CHANGING: [&str; 30] = [
        "add",
        "am",
        "apply",
        "bisect",
        "branch",
        "checkout",
        "cherry-pick",
        "clean",
        "commit",
        "config",
        "fetch",
        "gc",
        "init",
        "maintenance",
        "merge",
        "mv",
        "notes",
        "pull",
        "push",
        "rebase",
        "remote",
        "replace",
        "reset",
        "restore",
        "revert",
        "rm",
        "stash",
        "submodule",
        "switch",
        "tag",
    ];
    let is_git = |name: &OsString| Path::new(name).file_name().is_some_and(|it| it == "git");
    let command = program.iter().skip(1).find(|word| !word.as_encoded_bytes().starts_with(b"-"));
    program.first().is_some_and(is_git)
        && command.is_some_and(|command| CHANGING.iter().any(|changing| command == changing))
}
