//! The sandboxes that are known by a name: those that run, those of which something is
//! kept, and those of specs that were agreed to.

use std::path::{Path, PathBuf};

use lnk_spec::name::Name;
use lnk_spec::shown::word;
use lnk_wire::control::{self, Present};
use lnk_wire::gate::Whose;
use lnk_wire::paused::{Kept, Lasting, Pause, State};

use crate::remembered::specs;
use crate::spec_file::name_in;
use crate::state::Home;

/// A sandbox that runs, of which something is kept, or whose spec was agreed to.
#[derive(Clone, Debug)]
pub struct Known {
    /// What its pauses belong to.
    pub lasting: Lasting,
    /// What its spec is called: in its file now, then as its runs and its pause have it.
    pub names: Vec<String>,
    /// Its runs with a wire.
    pub runs: Vec<String>,
    /// Its pause.
    pub pause: Option<Pause>,
}

impl Known {
    /// One that nothing else is known of.
    #[must_use]
    pub fn of(lasting: Lasting) -> Known {
        Known { lasting, names: Vec::new(), runs: Vec::new(), pause: None }
    }

    /// Of the spec at a real path.
    #[must_use]
    pub fn of_spec(path: PathBuf, name: Option<String>) -> Known {
        Known { names: name.into_iter().collect(), ..Known::of(Lasting::Spec(path)) }
    }

    /// Whether it, or a run of it, is called this.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        match &self.lasting {
            // Its spec may call itself anything.
            Lasting::Name(its) => its == name,
            _ => self.names.iter().chain(&self.runs).any(|its| its == name),
        }
    }

    /// Its spec's real path.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.lasting {
            Lasting::Spec(path) => Some(path),
            Lasting::Name(_) | Lasting::Run(_) => None,
        }
    }

    /// What a user types for it, as one word of a shell: its name where no other of all
    /// is called so, else its spec's path.
    #[must_use]
    pub fn word(&self, all: &[Known]) -> String {
        let is_own = |name: &&String| {
            !all.iter().any(|other| other.lasting != self.lasting && other.is_called(name))
        };
        match &self.lasting {
            Lasting::Name(name) | Lasting::Run(name) => word(name),
            Lasting::Spec(path) => self.names.iter().find(is_own).map_or_else(|| word(path), word),
        }
    }

    /// Its name, and its spec's path behind it.
    #[must_use]
    pub fn whole_name(&self) -> String {
        match (&self.lasting, self.names.first()) {
            (Lasting::Name(name) | Lasting::Run(name), _) => word(name),
            (Lasting::Spec(path), None) => word(path),
            (Lasting::Spec(path), Some(name)) => format!("{} ({})", word(name), word(path)),
        }
    }

    fn add_name(&mut self, name: Option<String>) {
        // No other could have been a spec's: a file of the settings was edited.
        let name = name.filter(|name| name.parse::<Name>().is_ok());
        self.names.extend(name.filter(|name| !self.names.contains(name)));
    }
}

/// All of a home, by their names: of what is kept, of what runs, and of the specs that
/// were agreed to. There are none of the last where they can't be read: then they ask
/// again.
#[must_use]
pub fn known(home: &Home, kept: Kept, running: Vec<Present>) -> Vec<Known> {
    let mut all: Vec<Known> = Vec::new();
    let agreed = specs(home).unwrap_or_default();
    for path in agreed.into_iter().filter(|path| path.exists()) {
        of(&mut all, Lasting::Spec(path));
    }
    // What is left of a run that was killed isn't one any more.
    let is_over = |of: &Lasting| {
        matches!(of, Lasting::Run(_)) && !running.iter().any(|run| run.lasting == *of)
    };
    for entry in kept.entries {
        if !is_over(&entry.of) {
            let known = of(&mut all, entry.of);
            known.pause = entry.pause;
            known.add_name(entry.spec);
        }
    }
    for run in running {
        let known = of(&mut all, run.lasting);
        // Those of an agent have one name.
        if !known.runs.contains(&run.name) {
            known.runs.push(run.name);
        }
        known.add_name(run.spec);
    }
    all.sort_by_key(Known::whole_name);
    all
}

/// The one of this lasting name, with what its file says now.
fn of(all: &mut Vec<Known>, lasting: Lasting) -> &mut Known {
    let at = all.iter().position(|known| known.lasting == lasting).unwrap_or_else(|| {
        let mut known = Known::of(lasting);
        known.add_name(known.path().and_then(name_in));
        all.push(known);
        all.len() - 1
    });
    &mut all[at]
}

/// What a user types for the sandbox of a wire, as one word of a shell.
#[must_use]
pub fn word_for(whose: &Whose, home: &Home, settings: &Path) -> String {
    let Lasting::Spec(path) = &whose.lasting else { return word(whose.name()) };
    let mut own = Known::of_spec(path.clone(), None);
    own.add_name(whose.sandbox.spec.clone());
    let kept = State::open(settings).and_then(|state| state.kept());
    match (kept, control::present(settings)) {
        (Ok(kept), Ok(running)) => own.word(&known(home, kept, running)),
        _ => word(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remembered::remember;
    use lnk_wire::log::Sandbox;

    /// Specs with names, in a folder of settings.
    struct Specs {
        root: tempfile::TempDir,
        home: Home,
        settings: PathBuf,
    }

    impl Specs {
        fn new() -> Specs {
            let root = tempfile::tempdir().unwrap();
            let home = Home::at(root.path().into(), rustix::process::getuid().as_raw());
            let settings = crate::state::Settings::open(&home).unwrap().folder().to_path_buf();
            Specs { root, home, settings }
        }

        fn write(&self, file: &str, text: &str) -> PathBuf {
            let path = self.root.path().canonicalize().unwrap().join(file);
            std::fs::write(&path, text).unwrap();
            path
        }

        fn known(&self) -> Vec<Known> {
            let kept = State::open(&self.settings).unwrap().kept().unwrap();
            known(&self.home, kept, control::present(&self.settings).unwrap())
        }

        fn word_for(&self, path: &Path, name: Option<&str>) -> String {
            let spec = name.map(str::to_owned);
            let sandbox = Sandbox { name: "run-1".into(), spec, spec_path: None };
            let lasting = Lasting::Spec(path.into());
            let whose = Whose { sandbox, lasting, pauses_itself: true };
            word_for(&whose, &self.home, &self.settings)
        }
    }

    #[test]
    fn an_idle_spec_has_the_name_in_its_file_and_a_paused_one_also_that_it_had() {
        let specs = Specs::new();
        let path = specs.write("a.toml", "name = 'one'");
        assert!(specs.known().is_empty());
        remember(&specs.home, &path, Default::default()).unwrap();
        assert_eq!(specs.known()[0].names, ["one"]);
        let state = State::open(&specs.settings).unwrap();
        state.pause(&Lasting::Spec(path.clone()), Some("one"), "by hand").unwrap();
        specs.write("a.toml", "name = 'two'");
        assert_eq!(specs.known()[0].names, ["two", "one"]);
        specs.write("a.toml", "not a spec");
        assert_eq!(specs.known()[0].names, ["one"]);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(specs.known()[0].names, ["one"], "its pause stays");
        state.resume(&Lasting::Spec(path)).unwrap();
        assert!(specs.known().is_empty(), "a spec that is gone is forgotten");
    }

    #[test]
    fn a_name_that_another_has_too_is_no_word_for_it() {
        let specs = Specs::new();
        let (one, other) = (specs.write("a.toml", "name = 'app'"), specs.write("b b.toml", ""));
        for path in [&one, &other] {
            remember(&specs.home, path, Default::default()).unwrap();
        }
        assert_eq!(specs.word_for(&one, Some("app")), "app");
        assert_eq!(specs.word_for(&other, None), word(&other));
        assert!(word(&other).starts_with('\''));
        specs.write("b b.toml", "name = 'app'");
        assert_eq!(specs.word_for(&one, Some("app")), word(&one));
        let all = specs.known();
        let words: Vec<String> = all.iter().map(|known| known.word(&all)).collect();
        assert_eq!(words, [word(&other), word(&one)]);
    }

    #[test]
    fn a_bare_runs_pause_is_known_while_it_runs() {
        let specs = Specs::new();
        let state = State::open(&specs.settings).unwrap();
        state.pause(&Lasting::Run("run-1".into()), None, "by hand").unwrap();
        assert!(specs.known().is_empty());
        // It answers nothing.
        let _hangs = control::Listener::bind(&specs.settings, "run-1").unwrap();
        let all = specs.known();
        assert_eq!((all[0].word(&all), all[0].pause.is_some()), ("run-1".into(), true));
    }
}
