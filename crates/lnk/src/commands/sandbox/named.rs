//! The sandboxes that `pause`, `resume`, `paused` and `log` know, by the names a user has
//! for them.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use lnk_sandbox::error::reason;
use lnk_sandbox::known::{self, Known};
use lnk_sandbox::nearest::nearest;
use lnk_sandbox::shown::{command, escaped_name, word};
use lnk_sandbox::spec_file::{SpecFile, real_path};
use lnk_sandbox::state::home;
use lnk_sandbox::wire::control::{self, Change, Looked, Running, Told};
use lnk_sandbox::wire::paused::{Kept, Lasting, PAUSES, State};
use lnk_sandbox::{Caller, Error, is_agents_sandbox};

use crate::error::{CommandError, Result};
use crate::ui;

/// Names that are shown in place of a wrong one, at most.
const MOST_NAMES: usize = 10;
/// The status where something was done, and a wire didn't answer or it couldn't be told.
pub const NOT_WHOLE: u8 = 1;

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

/// All that are known, in the order of their names.
pub fn known(caller: &Caller, folder: &Path) -> Result<Vec<Known>> {
    let kept = state(folder)?.map_or_else(|| Ok(Kept::default()), |state| state.kept());
    let kept = kept.map_err(failed(folder))?;
    let running = control::present(folder).map_err(unlisted(folder))?;
    Ok(known::known(&home(caller)?, kept, running))
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

/// Tells every running wire of a change.
pub fn tell(folder: &Path, change: &Change) -> Result<Told> {
    control::tell(folder, change).map_err(unlisted(folder))
}

fn unlisted(folder: &Path) -> impl Fn(io::Error) -> CommandError {
    let folder = word(folder.join("run"));
    move |error| CommandError::Because(format!("{folder} can't be read: {}", reason(&error)))
}

/// The status after something was done. That it was stands, though it couldn't be told.
pub fn done(told: Result<u8>) -> u8 {
    told.unwrap_or_else(|error| {
        ui::tell(&match error {
            CommandError::Because(line) => {
                CommandError::Because(format!("{line}; what was asked for is done all the same"))
            }
            other => other,
        });
        NOT_WHOLE
    })
}

/// The sandbox that a word means: a run's or a spec's name, or the path of a spec, also of
/// one that nothing is known of yet.
///
/// # Errors
/// There is none of the name, or more than one; the file is no spec.
pub fn find(typed: &OsStr, all: &[Known], caller: &Caller) -> Result<Known> {
    if typed.is_empty() {
        return Err(CommandError::Because(
            "'' is no name: give run-PID, a spec's name, or a spec's path; 'lnk sandbox paused' \
             lists the paused ones"
                .into(),
        ));
    }
    let called: Vec<&Known> = match typed.to_str() {
        Some(name) => all.iter().filter(|known| known.is_called(name)).collect(),
        None => Vec::new(),
    };
    match &called[..] {
        [one] => Ok((*one).clone()),
        [] => match typed.to_str().filter(|name| is_agents_sandbox(name, caller)) {
            // Also between its commands, each of which is over soon.
            Some(name) => Ok(Known::of(Lasting::Name(name.to_owned()))),
            None => at_path(typed, all, caller),
        },
        several => Err(CommandError::Because(format!(
            "{}: several sandboxes are called this: give the path of one, {}",
            word(typed),
            paths(several).join(" or ")
        ))),
    }
}

/// The specs' paths of several, those that have one.
pub fn paths(several: &[&Known]) -> Vec<String> {
    several.iter().filter_map(|known| known.path()).map(word).collect()
}

fn at_path(typed: &OsStr, all: &[Known], caller: &Caller) -> Result<Known> {
    let path = real_path(Path::new(typed), caller);
    if let Some(known) = all.iter().find(|known| known.path() == Some(&path)) {
        return Ok(known.clone());
    }
    let exists = path.exists();
    match SpecFile::read_as("", Path::new(typed), caller) {
        Ok(spec) => Ok(Known::of_spec(spec.real, spec.spec.name.map(|name| name.to_string()))),
        Err(error) if exists && is_path(typed) => Err(not_a_spec(typed, error)),
        Err(_) => Err(CommandError::Because(wrong_name(typed, all))),
    }
}

/// Whether a word can't be a name.
fn is_path(typed: &OsStr) -> bool {
    let in_name = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    !typed.as_encoded_bytes().iter().all(in_name)
}

fn not_a_spec(typed: &OsStr, error: Error) -> CommandError {
    match error {
        Error::Spec(_) => {
            let why = command(&format!("lnk sandbox spec --spec {}", word(typed)));
            CommandError::Because(format!(
                "{} isn't a valid spec, nor one that was agreed to: {why} says what is wrong",
                word(typed)
            ))
        }
        other => other.into(),
    }
}

/// The right names in place of a wrong one, the nearest first.
fn wrong_name(typed: &OsStr, all: &[Known]) -> String {
    let shown = word(typed);
    let words =
        all.iter().flat_map(|known| [known.word(all)].into_iter().chain(known.runs.clone()));
    let mut names: Vec<String> = words.collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        return format!(
            "{shown}: no sandbox is called this, and none is known; a spec is also named by its path"
        );
    }
    if let Some(at) = nearest(&typed.to_string_lossy(), names.iter().map(String::as_str))
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
pub fn closed<'a>(wires: impl Iterator<Item = &'a Looked>) -> (u64, u64) {
    let closed = wires.filter(|looked| looked.closed && looked.changed);
    closed.fold((0, 0), |(wires, calls), looked| (wires + 1, calls + looked.ended))
}

/// The wires that were opened.
pub fn opened<'a>(wires: impl Iterator<Item = &'a Looked>) -> u64 {
    wires.filter(|looked| !looked.closed && looked.changed).count() as u64
}

/// What the wires of one sandbox found when they looked, and which of them didn't answer.
pub fn own<'a>(known: &Known, told: &'a Told) -> (Vec<&'a Looked>, Vec<&'a str>) {
    let is_own = |name: &String| known.runs.contains(name);
    let looked = told.wires.iter().filter(|(name, _)| is_own(name)).map(|(_, looked)| looked);
    let silent = told.silent.iter().filter(|name| is_own(name)).map(String::as_str);
    (looked.collect(), silent.collect())
}

/// The end of a line, of wires that do it later: `; run-1 closes once its lnk goes on`.
pub fn later(silent: &[&str], does: &str) -> String {
    silent
        .iter()
        .map(|name| format!("; {name} {does} once its lnk, which is stopped or busy, goes on"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lnk_sandbox::wire::paused::Lasting;

    fn known(lasting: Lasting, name: &str, runs: &[&str]) -> Known {
        let names = (!name.is_empty()).then(|| name.to_owned()).into_iter().collect();
        let runs = runs.iter().map(|run| (*run).to_owned()).collect();
        Known { lasting, names, runs, pause: None }
    }

    fn some() -> Vec<Known> {
        let spec = |path: &str| Lasting::Spec(path.into());
        vec![
            known(spec("/no/a.toml"), "app", &["run-1", "run-2"]),
            known(spec("/no/b.toml"), "twice", &[]),
            known(spec("/no/c c.toml"), "twice", &["run-3"]),
            known(spec("/no/d.toml"), "", &[]),
            known(Lasting::Run("run-12".into()), "", &["run-12"]),
            known(Lasting::Name("main-run".into()), "app-too", &["main-run"]),
        ]
    }

    fn found(name: impl AsRef<OsStr>) -> Result<Lasting, String> {
        let caller = Caller {
            env: Vec::new(),
            cwd: "/no".into(),
            own_binary: "/lnk".into(),
            uid: 1,
            gid: 1,
        };
        match find(name.as_ref(), &some(), &caller) {
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
        assert_eq!(found("main-run"), Ok(Lasting::Name("main-run".into())));
        assert!(found("app-too").is_err(), "an agent's spec may call itself anything");
        assert_eq!(found("/no/c c.toml"), spec("/no/c c.toml"));
        assert_eq!(found("d.toml"), spec("/no/d.toml"));
    }

    #[test]
    fn what_several_are_called_needs_the_path() {
        let line = found("twice").unwrap_err();
        assert!(line.ends_with("the path of one, /no/b.toml or '/no/c c.toml'"), "{line}");
    }

    #[test]
    fn what_is_no_spec_is_no_sandbox() {
        let line = found("/dev/../etc/passwd").unwrap_err();
        assert!(line.starts_with("/dev/../etc/passwd isn't a valid spec, nor one "), "{line}");
        assert!(found("/etc").unwrap_err().contains("plain file"));
        assert!(found("").unwrap_err().starts_with("'' is no name: "));
    }

    #[test]
    fn a_wrong_name_lists_the_right_ones_once_the_nearest_first() {
        let line = found("run-13").unwrap_err();
        assert!(
            line.ends_with(
                "there are run-1, '/no/c c.toml', /no/b.toml, /no/d.toml, app, main-run, run-12, run-2, run-3"
            ),
            "{line}"
        );
        assert!(found("e.toml").is_err() && found("\u{1b}[2J").unwrap_err().starts_with("$'"));
    }
}
