//! What was asked for on the command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::Result;

const USAGE: &str = "usage: benches [--rounds N] [--lnk PATH] [--link-run PATH] \
    [--as USER]... [--only starts|wire|run] [--rr]";
/// The ordinary user that is measured beside root where it exists.
const ORDINARY: &str = "lnk-test";

/// A part of what is measured, with tables of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Starts of sandboxes, and what is timed inside.
    Starts,
    /// The wire beside other proxies.
    Wire,
    /// Link Run's calls beside sandboxes of the same grants.
    Run,
}

impl Part {
    const ALL: [(Part, &str); 3] =
        [(Part::Starts, "starts"), (Part::Wire, "wire"), (Part::Run, "run")];

    fn parse(name: &str) -> Option<Part> {
        Part::ALL.iter().find(|(_, its)| *its == name).map(|(part, _)| *part)
    }

    fn name(self) -> &'static str {
        Part::ALL.iter().find(|(part, _)| *part == self).expect("all are there").1
    }
}

/// How to measure.
#[derive(Debug)]
pub struct Options {
    /// Rounds that count.
    pub rounds: usize,
    /// The `lnk` to measure.
    pub lnk: PathBuf,
    /// The `lnk-link-run` to measure.
    pub link_run: PathBuf,
    /// The users to measure as, by name.
    pub names: Vec<String>,
    /// The one part to measure; else all.
    pub only: Option<Part>,
    /// Whether everything is to run under `chrt -r 1`.
    pub real_time: bool,
    /// Set in the process that measures: the home folder made for it.
    pub measure_in: Option<PathBuf>,
}

/// A user of the machine's.
#[derive(Clone, Debug)]
pub struct User {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
}

impl Options {
    /// Reads the arguments.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options> {
        let own = std::env::current_exe()?;
        let mut options = Options {
            rounds: 60,
            lnk: own.with_file_name("lnk"),
            link_run: own.with_file_name("lnk-link-run"),
            names: Vec::new(),
            only: None,
            real_time: false,
            measure_in: None,
        };
        while let Some(flag) = arguments.next() {
            let mut value = || arguments.next().ok_or(USAGE);
            match flag.as_str() {
                "--rounds" => options.rounds = value()?.parse().map_err(|_| USAGE)?,
                "--lnk" => options.lnk = std::fs::canonicalize(value()?)?,
                "--link-run" => options.link_run = std::fs::canonicalize(value()?)?,
                "--as" => options.names.push(value()?),
                "--only" => options.only = Some(Part::parse(&value()?).ok_or(USAGE)?),
                "--rr" => options.real_time = true,
                "--measure-in" => options.measure_in = Some(value()?.into()),
                _ => return Err(USAGE.into()),
            }
        }
        for (program, package) in [(&options.lnk, "lnk"), (&options.link_run, "lnk-link-run")] {
            let is_needed = package == "lnk" || matches!(options.only, None | Some(Part::Run));
            if is_needed && !program.is_file() {
                let program = program.display();
                return Err(
                    format!("{program} isn't there: cargo build --release -p {package}").into()
                );
            }
        }
        options.rounds = options.rounds.max(1);
        Ok(options)
    }

    /// The arguments for the next process: without `--rr`, which is done, and
    /// for the one that measures a part with the home that its programs are in.
    pub fn again(&self, measure: Option<(Part, &Path)>) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["--rounds".into(), self.rounds.to_string().into()];
        let program = |own: &Path, name| measure.map_or(own.into(), |(_, home)| home.join(name));
        arguments.extend(["--lnk".into(), program(&self.lnk, "lnk").into()]);
        arguments.extend(["--link-run".into(), program(&self.link_run, "lnk-link-run").into()]);
        if let Some(part) = measure.map(|(part, _)| part).or(self.only) {
            arguments.extend(["--only".into(), part.name().into()]);
        }
        if let Some((_, home)) = measure {
            arguments.extend(["--measure-in".into(), home.into()]);
        }
        for name in &self.names {
            arguments.extend(["--as".into(), name.into()]);
        }
        arguments
    }

    /// The caller; for root, the users named, or root and an ordinary one.
    pub fn users(&self) -> Result<Vec<User>> {
        let passwd = std::fs::read_to_string("/etc/passwd")?;
        let known: Vec<User> = passwd.lines().filter_map(user).collect();
        let own = rustix::process::getuid().as_raw();
        if !self.names.is_empty() {
            let named = |name: &String| {
                let found = known.iter().find(|user| user.name == *name).cloned();
                found.ok_or_else(|| format!("there is no user {name}").into())
            };
            return self.names.iter().map(named).collect();
        }
        let wanted = |user: &&User| user.uid == own || (own == 0 && user.name == ORDINARY);
        Ok(known.iter().filter(wanted).cloned().collect())
    }
}

/// A line of passwd(5).
fn user(line: &str) -> Option<User> {
    let mut fields = line.split(':');
    let name = fields.next()?.to_owned();
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    Some(User { name, uid, gid })
}
