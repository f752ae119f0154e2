//! The sandboxes that `pause`, `resume` and `paused` know, by the names a user has for
//! them.

use std::io;
use std::path::{Path, PathBuf};

use lnk_sandbox::Caller;
use lnk_sandbox::error::reason;
use lnk_sandbox::nearest::nearest;
use lnk_sandbox::shown::{escaped_name, word};
use lnk_sandbox::wire::control::{self, Change, Running, Told};
use lnk_sandbox::wire::paused::{Kept, Lasting, PAUSES, Pause, State};

use crate::error::{CommandError, Result};
use crate::ui;

/// Names that are shown in place of a wrong one, at most.
const MOST_NAMES: usize = 10;

/// A sandbox that runs, or of which something is kept.
pub struct Known {
    /// What its pauses belong to.
    pub lasting: Lasting,
    /// Its spec's name.
    pub spec: Option<String>,
    /// Its runs with a wire.
    pub runs: Vec<String>,
    /// Its pause.
    pub pause: Option<Pause>,
}

impl Known {
    /// The shortest that a user may call it, where there is no other of the name.
    pub fn name(&self) -> String {
        match (&self.spec, &self.lasting) {
            (Some(spec), _) => escaped_name(spec.as_bytes()),
            (None, Lasting::Spec(path)) => word(path),
            (None, Lasting::Run(name)) => escaped_name(name.as_bytes()),
        }
    }

    /// The same, with its spec's path.
    pub fn whole_name(&self) -> String {
        match (&self.spec, &self.lasting) {
            (Some(_), Lasting::Spec(path)) => format!("{} ({})", self.name(), word(path)),
            _ => self.name(),
        }
    }

    fn is_called(&self, name: &str) -> bool {
        self.spec.as_deref() == Some(name) || self.runs.iter().any(|run| run == name)
    }
}

/// The state in the settings; `None` where there are none.
pub fn state(folder: &Path) -> Result<Option<State>> {
    match State::open(folder) {
        Ok(state) => Ok(Some(state)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CommandError::Because(format!("{}: {}", word(folder), reason(&error)))),
    }
}

/// Why the state can't be read or written, and what to do.
pub fn failed(folder: &Path) -> impl Fn(io::Error) -> CommandError {
    let file = word(folder.join(PAUSES));
    move |error| {
        CommandError::Because(match error.kind() {
            io::ErrorKind::InvalidData => format!(
                "{file} is damaged, so every wire is closed: remove it, which resumes every sandbox"
            ),
            io::ErrorKind::WouldBlock => format!(
                "{file} can't be written, as another lnk that is about to is stopped: let that go on \
                 (fg, kill -CONT) or end it, and try again"
            ),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                format!(
                    "{file} can't be written: {}; make room there, and try again",
                    reason(&error)
                )
            }
            _ => format!("{file} can't be read or written: {}", reason(&error)),
        })
    }
}

/// The wires that run. Those that don't answer are told of.
pub fn running(folder: &Path) -> Result<Running> {
    let running = control::list(folder).map_err(unlisted(folder))?;
    for name in &running.silent {
        ui::failure(&format!(
            "{} doesn't answer: its lnk is stopped or busy",
            escaped_name(name.as_bytes())
        ));
    }
    Ok(running)
}

/// Tells every running wire of a change. Those that don't answer are told of.
pub fn tell(folder: &Path, change: &Change) -> Result<Told> {
    let told = control::tell(folder, change).map_err(unlisted(folder))?;
    for name in &told.silent {
        ui::failure(&format!(
            "{} doesn't answer: its lnk is stopped or busy, and does so once it goes on",
            escaped_name(name.as_bytes())
        ));
    }
    Ok(told)
}

fn unlisted(folder: &Path) -> impl Fn(io::Error) -> CommandError {
    let folder = word(folder.join("run"));
    move |error| CommandError::Because(format!("{folder} can't be read: {}", reason(&error)))
}

/// What is kept and what runs, as one list.
pub fn known(kept: Kept, running: &Running) -> Vec<Known> {
    let mut all: Vec<Known> = Vec::new();
    for entry in kept.entries {
        let (lasting, spec, pause) = (entry.of, entry.spec, entry.pause);
        // What is left of a run that was killed.
        let is_over = |name: &String| {
            !running.wires.iter().any(|wire| wire.name == *name) && !running.silent.contains(name)
        };
        if !matches!(&lasting, Lasting::Run(name) if is_over(name)) {
            all.push(Known { lasting, spec, runs: Vec::new(), pause });
        }
    }
    for wire in &running.wires {
        let lasting = wire.lasting.clone().unwrap_or_else(|| Lasting::Run(wire.name.clone()));
        match all.iter_mut().find(|known| known.lasting == lasting) {
            Some(known) => {
                known.runs.push(wire.name.clone());
                known.spec = wire.spec.clone().or(known.spec.take());
            }
            None => all.push(Known {
                lasting,
                spec: wire.spec.clone(),
                runs: vec![wire.name.clone()],
                pause: None,
            }),
        }
    }
    all.sort_by_key(Known::whole_name);
    all
}

/// The sandbox that a name means: a run's, a spec's, or the path of a spec, also of one
/// that nothing is known of yet.
///
/// # Errors
/// There is none of the name, or more than one.
pub fn find(name: &str, mut all: Vec<Known>, caller: &Caller) -> Result<Known> {
    let is_path = name.contains('/') || name.ends_with(".toml");
    let path = caller.cwd.join(name);
    let path = Lasting::Spec(path.canonicalize().unwrap_or(path));
    let called: Vec<usize> = (0..all.len())
        .filter(|at| all[*at].is_called(name) || (is_path && all[*at].lasting == path))
        .collect();
    match (&called[..], path) {
        ([one], _) => Ok(all.swap_remove(*one)),
        ([], Lasting::Spec(path)) if is_path && path.is_file() => Ok(of_path(path)),
        ([], _) => Err(CommandError::Because(wrong_name(name, &all))),
        (several, _) => {
            let names: Vec<_> = several.iter().map(|at| all[*at].whole_name()).collect();
            Err(CommandError::Because(format!(
                "{}: several sandboxes are called this: give the spec's path of one of {}",
                escaped_name(name.as_bytes()),
                names.join(", ")
            )))
        }
    }
}

fn of_path(path: PathBuf) -> Known {
    Known { lasting: Lasting::Spec(path), spec: None, runs: Vec::new(), pause: None }
}

/// The right names in place of a wrong one, the nearest first.
fn wrong_name(name: &str, all: &[Known]) -> String {
    let shown = escaped_name(name.as_bytes());
    let mut names: Vec<String> = all
        .iter()
        .flat_map(|known| std::iter::once(known.name()).chain(known.runs.clone()))
        .collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        return format!(
            "{shown}: no sandbox is called this, and none with a wire runs; a spec is also named by \
             its path"
        );
    }
    if let Some(at) = nearest(name, names.iter().map(String::as_str))
        .and_then(|right| names.iter().position(|it| it == right))
    {
        let right = names.remove(at);
        names.insert(0, right);
    }
    let more = names.len().saturating_sub(MOST_NAMES);
    names.truncate(MOST_NAMES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{shown}: no sandbox is called this; there are {}{more}", names.join(", "))
}

/// `1 wire`, `2 wires`.
pub fn counted(number: u64, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

/// The wires that were closed, and the calls that ended by it.
pub fn closed(told: &Told) -> (u64, u64) {
    let closed = told.wires.iter().filter(|(_, looked)| looked.closed && looked.changed);
    closed.fold((0, 0), |(wires, calls), (_, looked)| (wires + 1, calls + looked.ended))
}

/// The wires that were opened.
pub fn opened(told: &Told) -> u64 {
    told.wires.iter().filter(|(_, looked)| !looked.closed && looked.changed).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(lasting: Lasting, spec: &str, runs: &[&str]) -> Known {
        let runs = runs.iter().map(|run| (*run).to_owned()).collect();
        Known { lasting, spec: (!spec.is_empty()).then(|| spec.to_owned()), runs, pause: None }
    }

    fn some() -> Vec<Known> {
        let spec = |path: &str| Lasting::Spec(path.into());
        vec![
            known(spec("/no/a.toml"), "app", &["run-1", "run-2"]),
            known(spec("/no/b.toml"), "twice", &[]),
            known(spec("/no/c.toml"), "twice", &["run-3"]),
            known(spec("/no/d.toml"), "", &[]),
            known(Lasting::Run("run-12".into()), "", &["run-12"]),
        ]
    }

    fn found(name: &str) -> Result<Lasting, String> {
        let caller = Caller {
            env: Vec::new(),
            cwd: "/no".into(),
            own_binary: "/lnk".into(),
            uid: 1,
            gid: 1,
        };
        match find(name, some(), &caller) {
            Ok(known) => Ok(known.lasting),
            Err(CommandError::Because(line)) => Err(line),
            Err(_) => Err(String::new()),
        }
    }

    #[test]
    fn a_run_a_spec_and_a_path_are_names() {
        let spec = |path: &str| Ok(Lasting::Spec(path.into()));
        assert_eq!(found("app"), spec("/no/a.toml"));
        assert_eq!(found("run-2"), spec("/no/a.toml"));
        assert_eq!(found("run-12"), Ok(Lasting::Run("run-12".into())));
        assert_eq!(found("/no/c.toml"), spec("/no/c.toml"));
        assert_eq!(found("d.toml"), spec("/no/d.toml"));
        assert_eq!(found("/dev/../etc/passwd"), spec("/etc/passwd"));
    }

    #[test]
    fn what_several_are_called_needs_the_path() {
        let line = found("twice").unwrap_err();
        assert!(line.ends_with("of one of twice (/no/b.toml), twice (/no/c.toml)"), "{line}");
    }

    #[test]
    fn a_wrong_name_lists_the_right_ones_the_nearest_first() {
        let line = found("run-13").unwrap_err();
        assert!(line.contains("there are run-1, /no/d.toml, app, run-12, run-2,"), "{line}");
        assert!(found("e.toml").is_err() && found("").is_err());
    }
}
