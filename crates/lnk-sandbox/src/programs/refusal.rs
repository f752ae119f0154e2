//! What a person reads of programs that weren't let run.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use lnk_spec::program::Program;
use lnk_spec::shown;

use super::find::Finder;
use crate::linux::execs::{Executed, How};
use crate::plan::{OWN_BINARY, Plan};

/// Lines of one run; what follows is only counted.
const MOST_LINES: usize = 20;

/// Entries in the line at the end.
const MOST_IN_FOOTER: usize = 8;

/// How a program is added to the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adding {
    /// In the spec.
    ToSpec,
    /// By another flag.
    ByFlag,
}

impl Adding {
    /// What to do, for one entry.
    #[must_use]
    pub fn advice(self, entry: &Program) -> String {
        match self {
            Adding::ToSpec => format!("add {} to [commands] allow", quoted(entry)),
            Adding::ByFlag => format!("add --command {}", shown::word(entry.written())),
        }
    }

    /// What to do for folders that aren't open, as words of a command.
    #[must_use]
    pub fn reading(self, folders: &[String]) -> String {
        match self {
            Adding::ToSpec => format!("add {} to read in [files]", folders.join(", ")),
            Adding::ByFlag => format!("add --read {}", folders.join(" --read ")),
        }
    }

    /// What to do for what can't be listed.
    #[must_use]
    pub fn advice_for_unlisted(self) -> &'static str {
        match self {
            Adding::ToSpec => "only \"*\" in [commands] allow, any program, lets it run",
            Adding::ByFlag => "only --command '*', any program, lets it run",
        }
    }
}

/// Why a real path inside can't be listed; `None` where it can.
#[must_use]
pub fn never_listed(finder: &Finder<'_>, plan: &Plan, real: &Path) -> Option<String> {
    match plan.private_place(real) {
        Some(place) => {
            Some(format!("it is in {}, which the sandbox may write", shown::word(place)))
        }
        None => finder.never_listed(real),
    }
}

/// An entry as a spec has it.
#[must_use]
pub fn quoted(entry: &Program) -> String {
    lnk_spec::print::quoted(&entry.written().to_string_lossy())
}

/// The refusals of one run, in their order.
pub struct Refusals<'a> {
    finder: Finder<'a>,
    plan: &'a Plan,
    adding: Adding,
    count: u64,
    entries: Vec<Program>,
    /// The last one that PATH led to, by the name that was looked for.
    last_on_path: Option<OsString>,
}

impl<'a> Refusals<'a> {
    /// None yet.
    #[must_use]
    pub fn new(finder: Finder<'a>, plan: &'a Plan, adding: Adding) -> Self {
        Refusals { finder, plan, adding, count: 0, entries: Vec::new(), last_on_path: None }
    }

    /// The line for a program that was refused, by a list; none once there were
    /// many.
    pub fn line(&mut self, executed: &Executed) -> Option<String> {
        if executed.how == How::Run || self.goes_on_searching(executed) {
            return None;
        }
        self.count += 1;
        if self.count > MOST_LINES as u64 {
            return None;
        }
        let asked = shown::word(OsStr::from_bytes(&executed.asked));
        Some(match &executed.how {
            How::Refused | How::Run => {
                format!("refused {asked}: {}", self.what_to_do(executed))
            }
            How::InterpreterOf(script) => format!(
                "refused {asked}, which {} starts with: {}",
                shown::word(script),
                self.what_to_do(executed)
            ),
            How::LoaderOf(program) => format!(
                "refused {}: its loader {asked} isn't one that can be closed to other programs",
                shown::word(program)
            ),
            How::Loader => {
                format!("refused {asked}: a loader would run any program; start the program itself")
            }
            How::Nameless => format!(
                "refused {}, a program in memory or a removed one: only files can be listed",
                shown::word(&executed.real)
            ),
        })
    }

    /// Whether whoever searches PATH for a name, and was refused the first file
    /// of it, tries the next: that isn't the program that was meant.
    fn goes_on_searching(&mut self, executed: &Executed) -> bool {
        let asked = Path::new(OsStr::from_bytes(&executed.asked));
        let on_path = asked.parent().is_some_and(|folder| self.finder.searches(folder));
        let name = asked.file_name().filter(|_| on_path && executed.how == How::Refused);
        let before = std::mem::replace(&mut self.last_on_path, name.map(OsStr::to_owned));
        name.is_some() && before.as_deref() == name
    }

    fn what_to_do(&mut self, executed: &Executed) -> String {
        if executed.real == Path::new(OWN_BINARY) {
            return "it connects to endpoints, and none is named: add --tcp HOST:PORT, or it to tcp \
                    in [internet]"
                .into();
        }
        if let Some(why) = never_listed(&self.finder, self.plan, &executed.real) {
            let only = self.adding.advice_for_unlisted();
            return format!("it can't be listed: {why}; {only}");
        }
        let asked = Path::new(OsStr::from_bytes(&executed.asked));
        let entry = self.finder.entry(asked, &executed.real);
        if self.adding == Adding::ToSpec && entry.written().to_str().is_none() {
            return "it can't be listed: it isn't UTF-8 text, so a spec can't name it".into();
        }
        let hint = match self.adding {
            Adding::ToSpec => "add it to [commands] allow".into(),
            Adding::ByFlag => {
                format!("add it to [commands] allow (--command {})", shown::word(entry.written()))
            }
        };
        if !self.entries.contains(&entry) {
            self.entries.push(entry);
        }
        hint
    }

    /// Whether there was any.
    #[must_use]
    pub fn any(&self) -> bool {
        self.count > 0
    }

    /// The line for those without one, of which `unheard` more were.
    #[must_use]
    pub fn rest(&self, unheard: u64) -> Option<String> {
        let rest = self.count.saturating_sub(MOST_LINES as u64).saturating_add(unheard);
        (rest > 0).then(|| format!("refused {rest} more programs"))
    }

    /// All that could be added, in one line.
    #[must_use]
    pub fn footer(&self) -> Option<String> {
        let entries = self.entries.iter().take(MOST_IN_FOOTER);
        let (to, entries): (_, Vec<String>) = match self.adding {
            Adding::ToSpec => ("add to [commands] allow: ", entries.map(quoted).collect()),
            Adding::ByFlag => {
                let flag = |entry: &Program| format!("--command {}", shown::word(entry.written()));
                ("add ", entries.map(flag).collect())
            }
        };
        let more = match self.entries.len().saturating_sub(MOST_IN_FOOTER) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let between = if self.adding == Adding::ToSpec { ", " } else { " " };
        (!entries.is_empty()).then(|| {
            format!(
                "to let these run, {to}{}{more}; 'lnk sandbox learn' lists all that a command starts",
                entries.join(between)
            )
        })
    }
}
