//! What a newer spec opens that an older one didn't.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::endpoint::Endpoint;
use crate::host::HostPattern;
use crate::internet::InternetHost;
use crate::kinds::has_many_names;
use crate::lan::LanHost;
use crate::number::Rate;
use crate::path::{SpecPath, stored};
use crate::program::Program;
use crate::shown::word;
use crate::spec::{Browser, Internet, Lan, Localhost, Tools};
use crate::upstream::Upstream;

/// A spec's grants with every path resolved on this machine: what somebody
/// agreed to, kept to be compared with what the spec opens the next time.
///
/// The default opens nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grants {
    /// `[files]`.
    pub files: GrantedFiles,
    /// `[internet]`.
    pub internet: Internet,
    /// `[lan]`.
    pub lan: Lan,
    /// `[localhost]`.
    pub localhost: Localhost,
    /// `[tools]`.
    pub tools: Tools,
    /// `[browser]`.
    pub browser: Browser,
    /// `[commands]`.
    pub commands: GrantedCommands,
}

/// `[files]`, resolved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantedFiles {
    /// What may be read.
    pub read: Vec<GrantedPath>,
    /// What may be written.
    pub write: Vec<GrantedPath>,
    /// Write folders whose own dot files may be written.
    pub write_dot_files: Vec<GrantedPath>,
    /// What is hidden.
    pub hide: Vec<GrantedPath>,
}

/// `[commands]`, resolved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantedCommands {
    /// Programs that may run.
    pub allow: Vec<GrantedProgram>,
}

/// A path and where it points.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantedPath {
    /// As the spec writes it.
    pub typed: SpecPath,
    /// The real path, links followed.
    #[serde(with = "stored")]
    pub real: PathBuf,
}

/// A program and where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantedProgram {
    /// As the spec writes it.
    pub typed: Program,
    /// The real path; none for `*`, and for what wasn't found.
    #[serde(default, with = "stored_option", skip_serializing_if = "Option::is_none")]
    pub real: Option<PathBuf>,
    /// Programs elsewhere that links in a folder lead to, by real path, sorted.
    #[serde(default, with = "stored_list", skip_serializing_if = "Vec::is_empty")]
    pub linked: Vec<PathBuf>,
}

mod stored_list {
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Stored(#[serde(with = "crate::path::stored")] PathBuf);

    pub fn serialize<S: Serializer>(list: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(list.iter().cloned().map(Stored))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PathBuf>, D::Error> {
        let stored = Vec::<Stored>::deserialize(from)?;
        Ok(stored.into_iter().map(|Stored(path)| path).collect())
    }
}

mod stored_option {
    use std::path::PathBuf;

    use serde::{Deserializer, Serializer};

    use super::stored;

    pub fn serialize<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
        match path {
            Some(path) => stored::serialize(path, to),
            None => to.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
        stored::deserialize(from).map(Some)
    }
}

/// Something that is open now and wasn't before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Widening {
    /// The section.
    pub section: &'static str,
    /// The key.
    pub key: &'static str,
    /// What changed.
    pub change: Change,
    /// How much it opens.
    pub width: Width,
}

/// How much a widening opens. The widest comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Width {
    /// Everything of its kind: `*`, or the limit itself is gone.
    All,
    /// Many at once: the names under a domain, a range, a folder of programs, or
    /// something that runs or is sent outside the sandbox.
    Many,
    /// One thing.
    One,
}

/// What changed. Shown on one line, escaped, without section and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A path that wasn't open.
    Path(GrantedPath),
    /// A path that leads elsewhere than before.
    PathMoved {
        /// As the spec writes it, and where it points now.
        now: GrantedPath,
        /// Where it pointed.
        was: PathBuf,
    },
    /// A path that is no longer hidden.
    Unhidden(GrantedPath),
    /// A program that couldn't run.
    Program(GrantedProgram),
    /// A program that is elsewhere than before.
    ProgramMoved {
        /// As the spec writes it, and where it is now.
        now: GrantedProgram,
        /// Where it was, if it was found.
        was: Option<PathBuf>,
    },
    /// A host, endpoint, port or tool.
    Entry(String),
    /// Another way out.
    Upstream {
        /// The new one.
        now: Upstream,
        /// The old one, where anything was open before.
        was: Option<Upstream>,
    },
    /// More calls within a minute; none for no limit.
    Rate {
        /// The new limit.
        now: Option<Rate>,
        /// The old limit.
        was: Rate,
    },
}

impl Grants {
    /// What these grants open that `older` didn't, in the order of the sections,
    /// the widest first. Against [`Grants::default`] it is everything they open.
    ///
    /// Paths and programs are compared by where they really are. Nothing is said
    /// of what is narrower.
    #[must_use]
    pub fn widened_since(&self, older: &Grants) -> Vec<Widening> {
        let mut all = Vec::new();
        let sections: [fn(&Grants, &Grants) -> Vec<Widening>; 7] =
            [files, internet, lan, localhost, tools, browser, commands];
        for section in sections {
            let mut widened = section(self, older);
            // Stable, so that the order of keys and entries stays.
            widened.sort_by_key(|widening| widening.width);
            all.extend(widened);
        }
        all
    }
}

fn files(now: &Grants, older: &Grants) -> Vec<Widening> {
    let (now, older) = (&now.files, &older.files);
    let widening = |key, width, change| Widening { section: "files", key, change, width };
    let opened = |key, width, now: &[GrantedPath], older: &[&[GrantedPath]]| {
        new_paths(now, &older.concat()).into_iter().map(move |change| widening(key, width, change))
    };
    // The dot files first: what is written there runs outside.
    let dot_files =
        opened("write_dot_files", Width::Many, &now.write_dot_files, &[&older.write_dot_files]);
    let write = opened("write", Width::One, &now.write, &[&older.write]);
    // What may be written could be read.
    let read = opened("read", Width::One, &now.read, &[&older.read, &older.write]);
    let is_bare = |was: &&GrantedPath| !now.hide.iter().any(|hide| hide.real == was.real);
    let unhidden = older.hide.iter().filter(is_bare);
    let unhidden = unhidden.map(|was| widening("hide", Width::One, Change::Unhidden(was.clone())));
    dot_files.chain(write).chain(read).chain(unhidden).collect()
}

/// The paths that point where no older one did, those that hold most first.
fn new_paths(now: &[GrantedPath], older: &[GrantedPath]) -> Vec<Change> {
    let is_new = |path: &&GrantedPath| !older.iter().any(|was| was.real == path.real);
    let mut new: Vec<&GrantedPath> = now.iter().filter(is_new).collect();
    new.sort_by_key(|path| path.real.components().count());
    new.into_iter()
        .map(|path| match older.iter().find(|was| was.typed == path.typed) {
            Some(was) => Change::PathMoved { now: path.clone(), was: was.real.clone() },
            None => Change::Path(path.clone()),
        })
        .collect()
}

fn internet(now: &Grants, older: &Grants) -> Vec<Widening> {
    let has_older = *older != Grants::default();
    let (now, older) = (&now.internet, &older.internet);
    let entry = |key, width, entry: String| Widening {
        section: "internet",
        key,
        change: Change::Entry(entry),
        width,
    };
    let mut widened: Vec<_> = uncovered(&now.hosts, &older.hosts, InternetHost::covers)
        .map(InternetHost::pattern)
        .map(|host| entry("hosts", host_width(host), host_shown(host)))
        .collect();
    widened.extend(
        uncovered(&now.tcp, &older.tcp, Endpoint::covers)
            .map(|endpoint| entry("tcp", host_width(endpoint.host()), endpoint.to_string())),
    );
    if now.way_out() != older.way_out() {
        let was = has_older.then(|| older.way_out());
        let change = Change::Upstream { now: now.way_out(), was };
        let width = match now.way_out() {
            Upstream::Socks5Name(_) => Width::Many,
            Upstream::Direct | Upstream::Socks5(_) => Width::One,
        };
        widened.push(Widening { section: "internet", key: "upstream", change, width });
    }
    if let Some(was) = older.per_minute
        && now.per_minute.is_none_or(|now| now > was)
    {
        let change = Change::Rate { now: now.per_minute, was };
        let width = if now.per_minute.is_none() { Width::All } else { Width::One };
        widened.push(Widening { section: "internet", key: "per_minute", change, width });
    }
    widened
}

fn lan(now: &Grants, older: &Grants) -> Vec<Widening> {
    let width = |host: &LanHost| match host {
        LanHost::Any => Width::All,
        LanHost::Range(_) => Width::Many,
        LanHost::One(_) => Width::One,
    };
    uncovered(&now.lan.hosts, &older.lan.hosts, LanHost::covers)
        .map(|host| Widening {
            section: "lan",
            key: "hosts",
            change: Change::Entry(match host {
                LanHost::Any => "* (every private address)".into(),
                LanHost::Range(_) | LanHost::One(_) => host.to_string(),
            }),
            width: width(host),
        })
        .collect()
}

fn localhost(now: &Grants, older: &Grants) -> Vec<Widening> {
    let (now, older) = (&now.localhost, &older.localhost);
    let keys = [("ports", &now.ports, &older.ports), ("models", &now.models, &older.models)];
    keys.into_iter()
        .flat_map(|(key, now, older)| {
            uncovered(now, older, PartialEq::eq).map(move |port| Widening {
                section: "localhost",
                key,
                change: Change::Entry(port.to_string()),
                width: Width::One,
            })
        })
        .collect()
}

fn tools(now: &Grants, older: &Grants) -> Vec<Widening> {
    uncovered(&now.tools.allow, &older.tools.allow, PartialEq::eq)
        .map(|tool| Widening {
            section: "tools",
            key: "allow",
            change: Change::Entry(tool.to_string()),
            width: Width::One,
        })
        .collect()
}

fn browser(now: &Grants, older: &Grants) -> Vec<Widening> {
    uncovered(&now.browser.hosts, &older.browser.hosts, HostPattern::covers)
        .map(|host| Widening {
            section: "browser",
            key: "hosts",
            change: Change::Entry(host_shown(host)),
            width: host_width(host),
        })
        .collect()
}

fn commands(now: &Grants, older: &Grants) -> Vec<Widening> {
    let (now, older) = (&now.commands.allow, &older.commands.allow);
    uncovered(now, older, program_covers)
        .map(|program| {
            let was = older.iter().find(|was| was.typed == program.typed);
            let width = match program.typed {
                Program::Any => Width::All,
                Program::Folder(_) => Width::Many,
                Program::Name(_) | Program::Path(_) => Width::One,
            };
            let change = match was {
                Some(was) if was.real != program.real => {
                    Change::ProgramMoved { now: program.clone(), was: was.real.clone() }
                }
                _ => Change::Program(program.clone()),
            };
            Widening { section: "commands", key: "allow", change, width }
        })
        .collect()
}

fn program_covers(older: &GrantedProgram, now: &GrantedProgram) -> bool {
    let is_folder = |program: &GrantedProgram| matches!(program.typed, Program::Folder(_));
    match (&older.real, &now.real) {
        _ if older.typed == Program::Any => true,
        (Some(was), Some(is)) => {
            was == is
                && is_folder(older) == is_folder(now)
                && now.linked.iter().all(|linked| older.linked.contains(linked))
        }
        (was, is) => was == is && older.typed == now.typed,
    }
}

fn host_width(host: &HostPattern) -> Width {
    match host {
        HostPattern::Any => Width::All,
        HostPattern::Under(_) => Width::Many,
        HostPattern::One(_) => Width::One,
    }
}

fn host_shown(host: &HostPattern) -> String {
    match host {
        HostPattern::Any => "* (any host)".into(),
        HostPattern::Under(_) | HostPattern::One(_) => host.to_string(),
    }
}

/// The entries that no older one covers.
fn uncovered<'a, T>(
    now: &'a [T],
    older: &'a [T],
    covers: fn(&T, &T) -> bool,
) -> impl Iterator<Item = &'a T> {
    now.iter().filter(move |entry| !older.iter().any(|was| covers(was, entry)))
}

impl fmt::Display for Change {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Path(path) => path.fmt(to),
            Change::PathMoved { now, was } => {
                write!(
                    to,
                    "{} now is {}, it was {}",
                    word(now.typed.as_path()),
                    word(&now.real),
                    word(was)
                )
            }
            Change::Unhidden(path) => write!(to, "{path} is no longer hidden"),
            Change::Program(program) => program.fmt(to),
            Change::ProgramMoved { now, was } => {
                write!(
                    to,
                    "{} now is {}, it was {}",
                    word(now.typed.written()),
                    place(now.real.as_deref()),
                    place(was.as_deref())
                )
            }
            Change::Entry(entry) => to.write_str(entry),
            Change::Upstream { now, was: Some(was) } => write!(to, "{now}, it was {was}"),
            Change::Upstream { now, was: None } => now.fmt(to),
            Change::Rate { now: Some(now), was } => {
                write!(to, "{now} calls a minute, it was {was}")
            }
            Change::Rate { now: None, was } => write!(to, "no limit, it was {was} calls a minute"),
        }
    }
}

fn place(real: Option<&Path>) -> String {
    real.map_or_else(|| "not found".into(), word)
}

impl fmt::Display for GrantedPath {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        typed_and_real(to, self.typed.as_path(), Some(&self.real))
    }
}

impl fmt::Display for GrantedProgram {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.typed == Program::Any {
            return to.write_str("* (any program)");
        }
        typed_and_real(to, &self.typed.written(), self.real.as_deref())?;
        match &self.real {
            Some(real) if has_many_names(real) => to.write_str(", and every program in that file"),
            Some(_) => Ok(()),
            None => to.write_str(" (not found)"),
        }?;
        let mut between = ", and by links ";
        for linked in &self.linked {
            let all = if has_many_names(linked) { " with every program in it" } else { "" };
            write!(to, "{between}{}{all}", word(linked))?;
            between = ", ";
        }
        Ok(())
    }
}

fn typed_and_real(to: &mut fmt::Formatter<'_>, typed: &Path, real: Option<&Path>) -> fmt::Result {
    match real {
        Some(real) if real != typed => write!(to, "{} ({})", word(typed), word(real)),
        _ => to.write_str(&word(typed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Os, Spec};
    use std::os::unix::ffi::OsStringExt;

    /// A spec's grants, with `~` in `/home/u` and `links` followed.
    fn grants(text: &str, links: &[(&str, &str)]) -> Grants {
        let spec =
            Spec::parse(text.as_bytes(), Os::Linux).unwrap_or_else(|e| panic!("{}", e.shown("")));
        let real = |typed: &SpecPath| {
            let path = typed.absolute(Path::new("/home/u"), Path::new("/specs"));
            let link = links.iter().find(|(from, _)| Path::new(from) == path);
            link.map_or(path, |(_, to)| to.into())
        };
        let paths = |typed: &[SpecPath]| {
            typed
                .iter()
                .map(|typed| GrantedPath { typed: typed.clone(), real: real(typed) })
                .collect()
        };
        let program = |typed: &Program| GrantedProgram {
            typed: typed.clone(),
            real: match typed {
                Program::Any => None,
                Program::Name(name) => Some(real(&format!("/usr/bin/{name}").parse().unwrap())),
                Program::Path(path) | Program::Folder(path) => Some(real(path)),
            },
            linked: Vec::new(),
        };
        Grants {
            files: GrantedFiles {
                read: paths(&spec.files.read),
                write: paths(&spec.files.write),
                write_dot_files: paths(&spec.files.write_dot_files),
                hide: paths(&spec.files.hide),
            },
            commands: GrantedCommands { allow: spec.commands.allow.iter().map(program).collect() },
            internet: spec.internet,
            lan: spec.lan,
            localhost: spec.localhost,
            tools: spec.tools,
            browser: spec.browser,
        }
    }

    fn lines(now: &Grants, older: &Grants) -> Vec<String> {
        let widened = now.widened_since(older);
        widened.iter().map(|w| format!("[{}] {}: {}", w.section, w.key, w.change)).collect()
    }

    fn opened(older: &str, now: &str) -> Vec<String> {
        lines(&grants(now, &[]), &grants(older, &[]))
    }

    const WHOLE: &str = "
        [files]
        read = ['/data/deep/down', '~/docs']
        write = ['a', '~/code']
        write_dot_files = ['~/code']
        hide = ['~/.ssh']
        [internet]
        hosts = ['a.example', '*.b.example', '*']
        tcp = ['a.example:22']
        upstream = 'socks5h://127.0.0.1:1080'
        per_minute = 60
        [lan]
        hosts = ['nas.local', '10.0.0.0/8']
        [localhost]
        ports = [5432]
        models = [11434]
        [tools]
        allow = ['gh']
        [browser]
        hosts = ['github.com']
        [commands]
        allow = ['sh', '/opt/tools/', '*']
    ";

    #[test]
    fn against_nothing_it_is_everything_widest_first() {
        insta::assert_snapshot!(opened("", WHOLE).join("\n"));
    }

    #[test]
    fn the_same_opens_nothing_in_whatever_order() {
        assert_eq!(opened(WHOLE, WHOLE), [""; 0]);
        assert_eq!(opened("[files]\nread=['/a','/b']", "[files]\nread=['/b','/./a']"), [""; 0]);
        assert_eq!(
            opened("[commands]\nallow=['sh']", "[commands]\nallow=['/usr/bin/sh']"),
            [""; 0]
        );
    }

    #[test]
    fn less_opens_nothing() {
        for (section, wide, narrow) in [
            ("files", "read=['/a','/b']", "read=['/a']"),
            ("files", "write=['/a']", "read=['/a']"),
            ("files", "read=['/a']", "read=['/a']\nhide=['/a/b']"),
            ("internet", "hosts=['*']", "hosts=['a.b']"),
            ("internet", "hosts=['*.a.b']", "hosts=['x.a.b']\nper_minute=5"),
            ("internet", "per_minute=5", "per_minute=4"),
            ("internet", "", "upstream='direct'"),
            ("lan", "hosts=['*']", "hosts=['10.0.0.0/8']"),
            ("commands", "allow=['*']", "allow=['sh']"),
        ] {
            let (wide, narrow) = (format!("[{section}]\n{wide}"), format!("[{section}]\n{narrow}"));
            assert_eq!(opened(&wide, &narrow), [""; 0], "{narrow}");
            assert_eq!(opened(&narrow, &wide).is_empty(), wide.ends_with("]\n"), "{wide}");
        }
    }

    #[test]
    fn more_of_each_key_is_said() {
        for (older, now, said) in [
            ("[files]\nread=['/a']", "[files]\nread=['/a', '/a/b']", "[files] read: /a/b"),
            ("[files]\nread=['/a']", "[files]\nwrite=['/a']", "[files] write: /a"),
            (
                "[files]\nhide=['~/.ssh']",
                "",
                "[files] hide: ~/.ssh (/home/u/.ssh) is no longer hidden",
            ),
            ("[internet]\nhosts=['a.b']", "[internet]\nhosts=['*.a.b']", "[internet] hosts: *.a.b"),
            (
                "[internet]\nhosts=['*']",
                "[internet]\nhosts=['*']\ntcp=['a.b:22']",
                "[internet] tcp: a.b:22",
            ),
            (
                "[internet]\nupstream='socks5://127.0.0.1:1'",
                "",
                "[internet] upstream: direct, it was socks5://127.0.0.1:1",
            ),
            (
                "[internet]\nper_minute=4",
                "[internet]\nper_minute=5",
                "[internet] per_minute: 5 calls a minute, it was 4",
            ),
            (
                "[internet]\nper_minute=4",
                "",
                "[internet] per_minute: no limit, it was 4 calls a minute",
            ),
            ("[lan]\nhosts=['*']", "[lan]\nhosts=['nas']", "[lan] hosts: nas"),
            ("[localhost]\nmodels=[1]", "[localhost]\nports=[1]", "[localhost] ports: 1"),
            ("[tools]\nallow=['a']", "[tools]\nallow=['a','b']", "[tools] allow: b"),
            ("[browser]\nhosts=['a.b']", "[browser]\nhosts=['*']", "[browser] hosts: * (any host)"),
            ("[commands]\nallow=['/a']", "[commands]\nallow=['/a/']", "[commands] allow: /a/"),
        ] {
            assert_eq!(opened(older, now), [said]);
        }
    }

    #[test]
    fn a_link_that_points_elsewhere_is_other() {
        let text = "[files]\nread = ['link']\nhide = ['secret']\n[commands]\nallow = ['node']";
        let before = [("/specs/link", "/data"), ("/usr/bin/node", "/opt/node1")];
        let after =
            [("/specs/link", "/home/u"), ("/specs/secret", "/x"), ("/usr/bin/node", "/opt/node2")];
        assert_eq!(
            lines(&grants(text, &after), &grants(text, &before)),
            [
                "[files] read: link now is /home/u, it was /data",
                "[files] hide: secret (/specs/secret) is no longer hidden",
                "[commands] allow: node now is /opt/node2, it was /opt/node1",
            ]
        );
    }

    #[test]
    fn what_is_shown_is_escaped() {
        let text = "[files]\nread = [\"/a\\u001b[2J\u{202e}b\"]";
        assert_eq!(opened("", text), ["[files] read: $'/a\\x1b[2J\\u{202e}b'"]);
    }

    #[test]
    fn grants_are_stored_and_read_back() {
        let mut grants = grants(WHOLE, &[]);
        let strange = PathBuf::from(std::ffi::OsString::from_vec(b"/a\xff\x1b\n".to_vec()));
        grants.files.read[0].real = strange.clone();
        grants.commands.allow[0].real = Some(strange);
        let stored = toml::to_string(&grants).unwrap();
        assert_eq!(toml::from_str::<Grants>(&stored).unwrap(), grants);
        let none = toml::to_string(&Grants::default()).unwrap();
        assert_eq!(toml::from_str::<Grants>(&none).unwrap(), Grants::default());
    }

    #[test]
    fn damaged_grants_arent_read() {
        let stored = toml::to_string(&Grants::default()).unwrap();
        for damage in [
            stored.replace("hosts = []", "hosts = ['a b']"),
            stored.replacen("read = []", "", 1),
            stored.replacen("read = []", "read = []\nnew = 1", 1),
            format!("more = 1\n{stored}"),
            String::new(),
        ] {
            assert!(toml::from_str::<Grants>(&damage).is_err(), "{damage}");
        }
    }
}
