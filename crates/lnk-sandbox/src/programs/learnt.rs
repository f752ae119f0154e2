//! The programs that a run started, as entries for `[commands] allow`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lnk_spec::kinds::{has_many_names, is_interpreter};
use lnk_spec::shown;

use super::ProgramList;
use super::find::Finder;
use super::refusal::never_listed;
use crate::linux::execs::{Executed, How};
use crate::plan::Plan;

/// What a run's programs come to.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Learnt {
    /// The status that the run ended with.
    pub status: u8,
    /// Entries to add, sorted.
    pub allow: Vec<Entry>,
    /// Programs that can't be listed.
    pub left_out: Vec<LeftOut>,
    /// Whether there is a list already.
    pub has_list: bool,
    /// How many of the programs it has.
    pub listed: usize,
    /// Programs that there were too many others for to be told.
    pub unheard: u64,
}

/// An entry to add.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Entry {
    /// As a spec has it: a name that PATH finds, or a path.
    pub entry: String,
    /// The program's real path.
    pub path: String,
    /// Whether it runs whatever code it is given.
    pub interpreter: bool,
    /// Whether the file is many programs, all of which the entry lets run.
    pub many_names: bool,
}

/// A program that can't be listed.
#[derive(Clone, Debug, serde::Serialize)]
pub struct LeftOut {
    /// Its path as it was started, escaped.
    pub path: String,
    /// Why.
    pub why: String,
}

/// Gathers the programs of one run.
pub struct Learner<'a> {
    finder: Finder<'a>,
    plan: &'a Plan,
    /// What is listed already.
    list: ProgramList,
    entries: BTreeMap<String, Entry>,
    left_out: Vec<LeftOut>,
    listed: usize,
}

impl<'a> Learner<'a> {
    /// Nothing yet; what `list` has needn't be added.
    #[must_use]
    pub fn new(finder: Finder<'a>, plan: &'a Plan, list: ProgramList) -> Self {
        let (entries, left_out) = (BTreeMap::new(), Vec::new());
        Learner { finder, plan, list, entries, left_out, listed: 0 }
    }

    /// Takes a program that was started.
    pub fn add(&mut self, program: &Executed) {
        if self.list.allows(&program.real, program.identity) {
            self.listed += 1;
            return;
        }
        let asked = Path::new(OsStr::from_bytes(&program.asked));
        match self.entry(asked, program) {
            Ok(entry) => {
                self.entries.entry(entry.entry.clone()).or_insert(entry);
            }
            Err(why) => self.left_out.push(LeftOut { path: shown::escaped(&program.asked), why }),
        }
    }

    fn entry(&self, asked: &Path, program: &Executed) -> Result<Entry, String> {
        let real: &PathBuf = &program.real;
        if program.how == How::Nameless {
            return Err("it is in memory or was removed: only files can be listed".into());
        }
        if let Some(why) = never_listed(&self.finder, self.plan, real) {
            return Err(why);
        }
        let entry = self.finder.entry(asked, real).written();
        let text = entry.to_str().ok_or("it isn't UTF-8 text, so a spec can't name it")?;
        Ok(Entry {
            entry: text.to_owned(),
            path: shown::escaped(real.as_os_str().as_bytes()),
            interpreter: is_interpreter(&entry) || is_interpreter(real),
            many_names: has_many_names(real),
        })
    }

    /// All of it; `unheard` programs came on top.
    #[must_use]
    pub fn learnt(mut self, status: u8, unheard: u64) -> Learnt {
        self.left_out.sort_by(|a, b| a.path.cmp(&b.path));
        Learnt {
            status,
            has_list: self.list != ProgramList::default(),
            allow: self.entries.into_values().collect(),
            left_out: self.left_out,
            listed: self.listed,
            unheard,
        }
    }
}
