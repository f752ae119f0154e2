//! `lnk sandbox check`: plants bait, tries from inside to reach it, and judges.
//!
//! Every try is made twice by the same [`probe`]: outside first, as the control
//! that shows that it would work, then as the program of a sandbox run with the
//! flags given. Only a refusal by an errno of the sandbox's own, after a control
//! that worked, counts as blocked.

mod bait;
pub mod gaps;
pub mod probe;
mod rows;
mod tries;

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use lnk_spec::shown;
use lnk_sys::signal::Taken;
use lnk_wire::paused::{Closed, Lasting, State};
use serde::Serialize;

use crate::caller::Caller;
use crate::error::{Error, Result, failed, reason};
use crate::known::word_for;
use crate::plan::OWN_BINARY;
use crate::policy::Policy;
use crate::request::Request;
use crate::state::{Home, Settings};
use bait::Bait;
pub(crate) use bait::is_bait;
use probe::{Answers, KEYS, PROBE, Script, WAIT};
use rows::{Held, Missing, Opened, Row, Seen, Table};
use tries::Answer;

/// What came of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// The sandbox stopped it.
    #[serde(rename = "blocked")]
    Blocked,
    /// A flag opens it.
    #[serde(rename = "allowed")]
    Allowed,
    /// A known gap.
    #[serde(rename = "open")]
    Open,
    /// Nothing allows it, and it got through.
    #[serde(rename = "LEAK")]
    Leak,
    /// It can't be said.
    #[serde(rename = "not tried")]
    NotTried,
}

impl Verdict {
    /// The word of the table.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Blocked => "blocked",
            Verdict::Allowed => "allowed",
            Verdict::Open => "open",
            Verdict::Leak => "LEAK",
            Verdict::NotTried => "not tried",
        }
    }
}

/// One line of the outcome. Untrusted text in it is escaped.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// What was tried.
    pub tried: String,
    /// What came of it.
    pub result: Verdict,
    /// By what: the system's reason, the flag, or why it wasn't tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The layers that stand behind it, and whether each is there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<Layer>,
}

/// One of the layers behind a try.
#[derive(Clone, Debug, Serialize)]
pub struct Layer {
    /// Its name.
    pub name: &'static str,
    /// Whether it is there; `None` where another answered before it and nothing
    /// shows it.
    pub there: Option<bool>,
}

/// What `check` found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The name of the sandbox that was checked, `check-PID`.
    pub sandbox: String,
    /// The table.
    pub lines: Vec<Line>,
    /// What this machine has nothing to try for, and why.
    pub left_out: Vec<LeftOut>,
}

/// A try that makes no sense here.
#[derive(Clone, Debug, Serialize)]
pub struct LeftOut {
    /// What would have been tried.
    pub tried: String,
    /// Why not.
    pub why: String,
}

/// How a check ended.
#[derive(Debug)]
pub enum Checked {
    /// With a table.
    Whole(Report),
    /// By a signal, the bait removed.
    Interrupted(i32),
}

impl Report {
    /// How many lines came to this.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.lines.iter().filter(|line| line.result == verdict).count()
    }

    /// Whether nothing leaked and everything was tried.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.count(Verdict::Leak) + self.count(Verdict::NotTried) == 0
    }
}

/// Tries the sandbox that `request` describes; its program isn't run. `flags`
/// are those of `lnk sandbox run` that describe the same sandbox.
///
/// # Errors
/// Those of [`run`](crate::run()), and a bait that can't be planted or removed.
pub fn check(request: &Request, caller: &Caller, flags: &[OsString]) -> Result<Checked> {
    crate::run::refuse_inside()?;
    let policy = Policy::new(request, caller)?;
    let Some(home) = &policy.settings_home else {
        return Err(Error::Refused(
            "you have no home folder to plant bait in; set HOME to one of yours".into(),
        ));
    };
    // What ends a check early would leave its bait behind.
    let signals = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];
    let signals = Taken::new(&signals).map_err(failed("signals"))?;
    let settings = Settings::open(home)?;
    if policy.network.is_served() {
        refuse_closed(request, home, settings.folder())?;
    }
    let (folder, placeholders) = (settings.check()?, settings.placeholders()?);
    let mut bait = Bait::begin(&folder)?;
    let spec = request.spec.as_ref().map(|agreed| agreed.file.as_path());
    let asked = Sandbox { policy: &policy, caller, flags, spec };
    let checked = with_bait(&mut bait, &asked, (&folder, &placeholders), &signals);
    let removed = bait.remove();
    let checked = checked?;
    removed?;
    Ok(checked)
}

/// What a wire refuses can't be tried where it refuses everything.
fn refuse_closed(request: &Request, home: &Home, settings: &Path) -> Result<()> {
    let mut whose = request.whose();
    if let Some(spec) = &request.spec {
        // A run of it would be closed; the check's own isn't.
        whose.lasting = Lasting::Spec(spec.file.clone());
    }
    let state = State::open(settings).map_err(failed("Link's settings"))?;
    Err(Error::Refused(match state.closed(&whose.lasting) {
        None => return Ok(()),
        Some(Closed::Stopped) => {
            "every wire is stopped, so this sandbox's can't be tried: 'lnk sandbox stop --off' \
             opens them"
                .into()
        }
        Some(Closed::Paused(why)) => {
            let name = word_for(&whose, home, settings);
            format!(
                "the wire of {name} is paused ({why}), so it can't be tried: {} opens it",
                shown::command(&format!("lnk sandbox resume {name}"))
            )
        }
        Some(Closed::Unknown(why)) => format!(
            "whether this sandbox's wire is paused can't be told ({why}), so it can't be tried: \
             'lnk sandbox paused' says more"
        ),
    }))
}

/// The sandbox to check.
struct Sandbox<'a> {
    policy: &'a Policy,
    caller: &'a Caller,
    flags: &'a [OsString],
    spec: Option<&'a Path>,
}

impl Sandbox<'_> {
    /// The probe as its program.
    fn probe(&self) -> Command {
        let mut command = Command::new(&self.caller.own_binary);
        command.args(["sandbox", "run"]).args(self.flags).args(["--", OWN_BINARY, PROBE]);
        if let Some(folder) = working_folder(self.policy) {
            command.current_dir(folder);
        }
        command
    }
}

fn with_bait(
    bait: &mut Bait,
    asked: &Sandbox<'_>,
    (folder, placeholders): (&Path, &Path),
    signals: &Taken,
) -> Result<Checked> {
    let Sandbox { policy, caller, spec, .. } = *asked;
    let secret = Bait::name()?.into_bytes();
    let secret_file = bait.file(folder, &secret).map_err(failed("bait in Link's settings"))?;
    let open = File::open(&secret_file).map_err(failed("bait in Link's settings"))?;
    let word = Bait::name()?;
    let process = Waiting::start(caller, &word)?;
    let key = key_in_the_session(&word);
    let variable = word.to_uppercase().replace('-', "_");
    let held = Held {
        settings: folder,
        placeholders,
        process: (process.pid(), &word),
        key: key.as_ref().map(|()| word.as_str()).map_err(Clone::clone),
        variable: &variable,
        descriptor: bait::identity(open.as_fd()).map_err(failed("bait in Link's settings"))?,
        secret_file: &secret_file,
        own_binary: &caller.own_binary,
        spec,
    };
    let mut table = Table::plant(policy, caller.uid == 0, bait, &secret, &held)?;

    // Whatever is started from here on inherits it.
    rustix::io::fcntl_setfd(&open, rustix::io::FdFlags::empty()).map_err(failed("fcntl"))?;
    let controls = table.rows.iter().map(|row| row.control.clone()).collect();
    let mut command = Command::new(&caller.own_binary);
    command.arg(PROBE).env(&variable, "1");
    let script = Script { secret: secret.clone(), tries: controls, evidence: Vec::new() };
    let outside = probe::run(command, &script, signals)?;
    if let Some(signal) = outside.signal {
        return Ok(Checked::Interrupted(signal));
    }

    table.know_outside(&outside);
    let mut command = asked.probe();
    command.env(&variable, "1");
    let evidence = table.rows.iter().flat_map(|row| &row.layers);
    let evidence = evidence.filter_map(|(_, seen)| match seen {
        Seen::By(evidence) => Some(evidence.clone()),
        Seen::Answer | Seen::Alone | Seen::NamespacesLimited | Seen::OtherSession => None,
    });
    let script = Script {
        secret,
        tries: table.rows.iter().map(|row| row.attempt.clone()).collect(),
        evidence: evidence.collect(),
    };
    let mut inside = probe::run(command, &script, signals)?;
    if let Some(signal) = inside.signal {
        return Ok(Checked::Interrupted(signal));
    }
    if inside.tries.is_empty() {
        return Err(Error::Refused(why_nothing_ran(&inside)));
    }
    inside.other_session = key.ok().and_then(|()| has_other_session(asked, &word));
    Ok(Checked::Whole(judge(table, &outside, &inside)))
}

/// A sandbox starts in the caller's folder where that is open inside, and in the
/// home folder otherwise.
fn working_folder(policy: &Policy) -> Option<&Path> {
    let open = policy.grants.iter().any(|grant| policy.cwd.starts_with(&grant.held.real));
    (!open).then_some(policy.home_real.as_path())
}

fn why_nothing_ran(inside: &Answers) -> String {
    let line = inside.complaints.lines().next().unwrap_or_default();
    let line = line.strip_prefix("lnk sandbox: ").unwrap_or(line);
    match (line, inside.status) {
        ("", Some(status)) => format!("the sandbox ended with status {status}, and tried nothing"),
        ("", None) => "the sandbox was killed, and tried nothing".into(),
        (line, _) => shown::escaped(line.as_bytes()),
    }
}

/// A process to be found outside, ended when dropped.
struct Waiting(Child);

impl Waiting {
    fn start(caller: &Caller, word: &str) -> Result<Waiting> {
        let mut command = Command::new(&caller.own_binary);
        command.args([PROBE, WAIT, word]).stdout(Stdio::null()).stderr(Stdio::null());
        // It ends with its input, whatever becomes of us.
        command.stdin(Stdio::piped()).spawn().map(Waiting).map_err(failed("lnk itself"))
    }

    fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Puts a key into a session keyring of this check's own, which what it starts
/// inherits, and which goes with it.
fn key_in_the_session(name: &str) -> Result<(), String> {
    let name = std::ffi::CString::new(name).map_err(|_| "a name with a NUL".to_owned())?;
    lnk_sys::keyring::join_anonymous_session()
        .and_then(|()| lnk_sys::keyring::add_to_session(&name, b"bait"))
        .map_err(|error| format!("this machine lets you keep no keys: {}", reason(&error)))
}

/// Whether the sandbox's session keyring isn't this one, which holds `key`: what
/// `/proc/keys` shows depends on who opens it. `None` where that can't be told.
fn has_other_session(asked: &Sandbox<'_>, key: &str) -> Option<bool> {
    let shows_it = |mut command: Command| {
        let keys = File::open("/proc/keys").ok()?;
        command.args([KEYS, key]).stdin(keys).stdout(Stdio::null()).stderr(Stdio::null());
        match command.status().ok()?.code()? {
            probe::SHOWN => Some(true),
            probe::NOT_SHOWN => Some(false),
            _ => None,
        }
    };
    let mut outside = Command::new(&asked.caller.own_binary);
    outside.arg(PROBE);
    shows_it(outside).filter(|shown| *shown)?;
    shows_it(asked.probe()).map(|shown| !shown)
}

fn judge(table: Table<'_>, outside: &Answers, inside: &Answers) -> Report {
    let left_out = |missing: Missing| LeftOut { tried: missing.what, why: missing.why };
    let mut report = Report {
        sandbox: format!("check-{}", std::process::id()),
        lines: Vec::new(),
        left_out: table.left_out.into_iter().map(left_out).collect(),
    };
    let mut seen = inside.evidence.iter().copied();
    for (index, row) in table.rows.into_iter().enumerate() {
        let look = |(_, by): &(_, Seen)| match by {
            Seen::By(_) => seen.next().flatten(),
            Seen::NamespacesLimited => inside.namespaces_limited,
            Seen::OtherSession => inside.other_session,
            Seen::Answer | Seen::Alone => None,
        };
        let looks: Vec<Option<bool>> = row.layers.iter().map(look).collect();
        let control = outside.tries.get(index).copied();
        let control = control.filter(|_| row.shows.control_reached(outside));
        let answer = inside.tries.get(index).copied().map(|answer| match answer {
            Answer::Through if !row.shows.reached(inside) => Answer::Elsewhere,
            answer => answer,
        });
        match judge_row(&row, control, answer, &looks) {
            Judged::LeftOut(why) => {
                report.left_out.push(LeftOut { tried: row.what, why: why.into() });
            }
            Judged::Line(result, by) => {
                let others_missing = looks.iter().filter(|look| **look != Some(false)).count() == 1;
                let layers = row.layers.iter().zip(&looks).map(|((name, by), look)| {
                    let there = match by {
                        Seen::By(_) | Seen::NamespacesLimited => *look,
                        Seen::Answer => by_the_answer(result),
                        Seen::OtherSession if look.is_some() => *look,
                        Seen::Alone | Seen::OtherSession => {
                            by_the_answer(result).filter(|_| others_missing)
                        }
                    };
                    Layer { name, there }
                });
                let layers = layers.collect();
                report.lines.push(Line { tried: row.what, result, by, layers });
            }
        }
    }
    let not_tried = table.not_tried.into_iter().map(|missing| Line {
        tried: missing.what,
        result: Verdict::NotTried,
        by: Some(missing.why),
        layers: Vec::new(),
    });
    report.lines.extend(not_tried);
    let line = |result| {
        move |opened: Opened| Line {
            tried: opened.what,
            result,
            by: Some(opened.flag),
            layers: Vec::new(),
        }
    };
    report.lines.extend(table.opened.into_iter().map(line(Verdict::Allowed)));
    report.lines.extend(table.gaps.into_iter().map(line(Verdict::Open)));
    let open = gaps::GAPS.iter().map(|(_, what)| Line {
        tried: (*what).to_owned(),
        result: Verdict::Open,
        by: None,
        layers: Vec::new(),
    });
    report.lines.extend(open);
    report
}

/// Whether the one layer that can't be looked at is there.
fn by_the_answer(result: Verdict) -> Option<bool> {
    match result {
        Verdict::Leak => Some(false),
        Verdict::Blocked => Some(true),
        Verdict::Allowed | Verdict::Open | Verdict::NotTried => None,
    }
}

enum Judged {
    Line(Verdict, Option<String>),
    LeftOut(&'static str),
}

fn judge_row(
    row: &Row,
    control: Option<Answer>,
    answer: Option<Answer>,
    looks: &[Option<bool>],
) -> Judged {
    let because = |errno: i32| Some(reason(&std::io::Error::from_raw_os_error(errno)));
    let not_tried = |why: String| Judged::Line(Verdict::NotTried, Some(why));
    let Some(answer) = answer else {
        return not_tried("the probe ended before it".into());
    };
    if answer == Answer::Through {
        return match &row.allowed {
            Some(flag) => Judged::Line(Verdict::Allowed, Some(flag.clone())),
            None => Judged::Line(Verdict::Leak, None),
        };
    }
    let Some(control) = control.filter(|control| row.control_worked(*control)) else {
        return match (row.optional, control) {
            (Some(why), _) => Judged::LeftOut(why),
            (None, Some(Answer::Refused(errno))) => not_tried(format!(
                "outside it doesn't work either: {}",
                because(errno).unwrap_or_default()
            )),
            (None, _) => not_tried("outside it doesn't work either".into()),
        };
    };
    match answer {
        Answer::Refused(errno) if control == answer => {
            judge_by_looks(row, looks).unwrap_or_else(|| {
                not_tried(format!("outside too: {}", because(errno).unwrap_or_default()))
            })
        }
        Answer::Refused(errno) if row.blocked.contains(&errno) => {
            Judged::Line(Verdict::Blocked, because(errno))
        }
        Answer::Refused(errno) => {
            not_tried(format!("refused for another reason: {}", because(errno).unwrap_or_default()))
        }
        Answer::Elsewhere => {
            Judged::Line(Verdict::Blocked, Some("it stayed in the sandbox".into()))
        }
        Answer::Through => Judged::Line(Verdict::Leak, None),
    }
}

/// Where the caller's own permissions refuse a try that the sandbox's layers
/// refuse before them: what is seen of the layers decides.
fn judge_by_looks(row: &Row, looks: &[Option<bool>]) -> Option<Judged> {
    let there = row.layers.iter().zip(looks).filter(|(_, look)| **look == Some(true));
    let there: Vec<&str> = there.map(|((name, _), _)| *name).collect();
    if !there.is_empty() {
        return Some(Judged::Line(Verdict::Blocked, Some(there.join(", "))));
    }
    if looks.iter().all(Option::is_none) {
        return row.optional.map(Judged::LeftOut);
    }
    let missing = looks.iter().all(|look| *look == Some(false));
    let why = "no layer of the sandbox's is there, only your own permissions";
    missing.then(|| Judged::Line(Verdict::Leak, Some(why.into())))
}
