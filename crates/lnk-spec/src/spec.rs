//! A spec: what a sandbox may do, as written down or as flags say it.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::address::{Class, class_of};
use crate::endpoint::Endpoint;
use crate::host::{Host, HostPattern};
use crate::internet::InternetHost;
use crate::lan::LanHost;
use crate::name::{Name, ToolName};
use crate::nearest::nearest;
use crate::number::{Port, Rate};
use crate::path::SpecPath;
use crate::problem::{Problem, SpecErrors};
use crate::program::Program;
use crate::section::{self, Key, SECTIONS, Section, TOP, with_place};
use crate::shown::{escaped, escaped_name};
use crate::upstream::Upstream;
use crate::value::{Fault, MAX_ENTRIES, Value, kind_of};

/// Bytes of a spec at most.
pub const MAX_BYTES: usize = 256 * 1024;

/// A spec's grants, for one operating system. What it leaves out is closed, so
/// [`Spec::default`] opens nothing. The flags of a command line are one too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    /// What it is called.
    pub name: Option<Name>,
    /// The format's version.
    pub version: Version,
    /// Folders and files.
    pub files: Files,
    /// Hosts of the internet.
    pub internet: Internet,
    /// Machines of the user's network.
    pub lan: Lan,
    /// Ports of this machine's loopback.
    pub localhost: Localhost,
    /// Tools that run outside.
    pub tools: Tools,
    /// Pages to open.
    pub browser: Browser,
    /// Programs.
    pub commands: Commands,
}

/// Version 1, the only one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version;

/// `[files]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// What it may only read.
    pub read: Vec<SpecPath>,
    /// What it may read and write.
    pub write: Vec<SpecPath>,
    /// Write folders whose own dot files it may change too.
    pub write_dot_files: Vec<SpecPath>,
    /// What it may never touch.
    pub hide: Vec<SpecPath>,
}

/// `[internet]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Internet {
    /// Hosts it may reach.
    pub hosts: Vec<InternetHost>,
    /// Endpoints beyond HTTPS on 443 and HTTP on 80.
    pub tcp: Vec<Endpoint>,
    /// Where connections leave from; directly where it isn't given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Upstream>,
    /// Calls within a minute at most; no limit where it isn't given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_minute: Option<Rate>,
}

impl Internet {
    /// The endpoints that are of no host it may reach, here or in `lan`.
    pub fn unreachable<'s>(&'s self, lan: &'s Lan) -> impl Iterator<Item = &'s Endpoint> {
        self.tcp.iter().filter(|endpoint| !self.reaches(lan, endpoint.host()))
    }

    /// Whether a host may be reached, here or in `lan`.
    #[must_use]
    pub fn reaches(&self, lan: &Lan, host: &HostPattern) -> bool {
        let is_local = match host {
            HostPattern::One(one @ Host::Address(_)) if class_of(one) == Some(Class::Private) => {
                let one = LanHost::One(one.clone());
                return lan.hosts.iter().any(|open| open.covers(&one));
            }
            HostPattern::One(one @ Host::Name(name)) => {
                if lan.hosts.contains(&LanHost::One(one.clone())) {
                    return true;
                }
                name.is_local()
            }
            HostPattern::Under(name) => name.is_local(),
            HostPattern::One(Host::Address(_)) | HostPattern::Any => false,
        };
        // No public zone has such a name, so that the internet doesn't reach it.
        match is_local {
            true => lan.hosts.contains(&LanHost::Any),
            false => self.hosts.iter().any(|open| open.pattern().covers(host)),
        }
    }

    /// Where connections leave from.
    #[must_use]
    pub fn way_out(&self) -> Upstream {
        self.upstream.unwrap_or(Upstream::Direct)
    }
}

/// `[lan]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lan {
    /// Machines it may reach.
    pub hosts: Vec<LanHost>,
}

/// `[localhost]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Localhost {
    /// Ports it may connect to.
    pub ports: Vec<Port>,
    /// Ports of model runtimes, for inference only.
    pub models: Vec<Port>,
}

/// `[tools]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tools {
    /// Tools it may call.
    pub allow: Vec<ToolName>,
}

/// `[browser]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Browser {
    /// Hosts whose pages it may ask for.
    pub hosts: Vec<HostPattern>,
}

/// `[commands]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commands {
    /// Programs it may run.
    pub allow: Vec<Program>,
}

/// The system whose `[<section>.linux]` or `[<section>.macos]` holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Os {
    /// Linux.
    Linux,
    /// macOS.
    Macos,
}

impl Os {
    /// The name of its part of a section.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Os::Linux => "linux",
            Os::Macos => "macos",
        }
    }
}

impl Spec {
    /// Reads a spec. The other system's keys are judged too, and then left out.
    ///
    /// # Errors
    /// Everything that is wrong with it, by position.
    pub fn parse(bytes: &[u8], os: Os) -> Result<Spec, SpecErrors> {
        if bytes.len() > MAX_BYTES {
            return Err(SpecErrors::new(vec![(Problem::TooLarge(MAX_BYTES), 0..0)], ""));
        }
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let lossy = String::from_utf8_lossy(bytes);
                // Up to the first wrong byte both are the same.
                let at = error.valid_up_to();
                return Err(SpecErrors::new(vec![(Problem::NotUtf8, at..at + 1)], &lossy));
            }
        };
        let (document, mistakes) = DeTable::parse_recoverable(text);
        let mistakes = syntax(&mistakes, text);
        // What was understood of text that isn't TOML would mislead, and so would
        // what the reader took for further mistakes after the first.
        let is_syntax = |(problem, _): &&(Problem, _)| matches!(problem, Problem::Syntax(_));
        if let Some(first) = mistakes.iter().filter(is_syntax).min_by_key(|(_, at)| at.start) {
            return Err(SpecErrors::new(vec![first.clone()], text));
        }
        let mut reader = Reader { os, found: mistakes };
        let spec = reader.document(document.get_ref());
        if reader.found.is_empty() { Ok(spec) } else { Err(SpecErrors::new(reader.found, text)) }
    }

    /// Says that what a valid spec asks for in a key, or in one entry of it,
    /// can't be had: `why`, escaped already, at its place in the text.
    #[must_use]
    pub fn refused(
        bytes: &[u8],
        os: Os,
        (section, key): (&str, &str),
        entry: Option<&str>,
        why: String,
    ) -> SpecErrors {
        let text = String::from_utf8_lossy(bytes);
        let (document, _) = DeTable::parse_recoverable(&text);
        let is_it = |written: &str| Some(written) == entry;
        let place = place_of(document.get_ref(), os, section, key, is_it).unwrap_or(0..0);
        SpecErrors::new(vec![(Problem::Refused(why), place)], &text)
    }

    /// [`Spec::refused`] for endpoints of `[internet] tcp`, each with its reason.
    #[must_use]
    pub fn refused_endpoints(bytes: &[u8], os: Os, refused: &[(Endpoint, String)]) -> SpecErrors {
        let text = String::from_utf8_lossy(bytes);
        let (document, _) = DeTable::parse_recoverable(&text);
        let at_its_place = |(endpoint, why): &(Endpoint, String)| {
            // However it is spelled.
            let is_it = |written: &str| written.parse().as_ref() == Ok(endpoint);
            let place = place_of(document.get_ref(), os, "internet", "tcp", is_it);
            (Problem::Refused(why.clone()), place.unwrap_or(0..0))
        };
        SpecErrors::new(refused.iter().map(at_its_place).collect(), &text)
    }

    /// The keys of the sections that are given, with their sections, in the order
    /// of the table. An empty list isn't given: it opens nothing.
    pub fn given(&self) -> impl Iterator<Item = (&'static Section, &'static Key)> {
        let keys =
            SECTIONS.iter().flat_map(|section| section.keys.iter().map(move |key| (section, key)));
        keys.filter(|(_, key)| with_place!(&key.field, |place| (place.of)(self).is_given()))
    }

    /// Lays flags over the spec: a flag that is given replaces that key, but
    /// `--hide` adds to it.
    pub fn merge(&mut self, flags: Spec) {
        let mut flags = flags;
        for key in std::iter::once(&TOP).chain(&SECTIONS).flat_map(|section| section.keys) {
            let adds = key.flag.is_some_and(|flag| flag.adds);
            with_place!(&key.field, |place| {
                std::mem::take((place.of_mut)(&mut flags)).replace((place.of_mut)(self), adds);
            });
        }
    }

    /// Makes every path absolute by text, as [`SpecPath::absolute`] does.
    pub fn make_absolute(&mut self, home: &std::path::Path, folder: &std::path::Path) {
        let Files { read, write, write_dot_files, hide } = &mut self.files;
        for path in [read, write, write_dot_files, hide].into_iter().flatten() {
            *path = path.made_absolute(home, folder);
        }
        for program in &mut self.commands.allow {
            *program = program.made_absolute(home, folder);
        }
    }
}

/// Where an entry of a key stands; the whole value where there is no such entry.
fn place_of(
    document: &DeTable<'_>,
    os: Os,
    section: &str,
    key: &str,
    is_it: impl Fn(&str) -> bool,
) -> Option<Range<usize>> {
    let all = document.get(section)?.get_ref().as_table()?;
    let own = all.get(os.name()).and_then(|own| own.get_ref().as_table());
    let value = own.and_then(|own| own.get(key)).or_else(|| all.get(key))?;
    let entries = value.get_ref().as_array().into_iter().flat_map(|list| list.iter());
    let written = |found: &Spanned<DeValue<'_>>| match found.get_ref() {
        DeValue::Integer(number) => Some(number.as_str().to_owned()),
        other => other.as_str().map(str::to_owned),
    };
    let found = entries.into_iter().find(|found| written(found).is_some_and(|it| is_it(&it)));
    Some(found.unwrap_or(value).span())
}

fn syntax(mistakes: &[toml::de::Error], text: &str) -> Vec<(Problem, Range<usize>)> {
    let problem = |mistake: &toml::de::Error| {
        let place = mistake.span().unwrap_or(0..0);
        let problem = match mistake.message() {
            "duplicate key" => {
                let key = text.get(place.clone()).unwrap_or_default();
                Problem::Twice(escaped_name(key.trim().as_bytes()))
            }
            message => Problem::Syntax(escaped(message.as_bytes())),
        };
        (problem, place)
    };
    mistakes.iter().map(problem).collect()
}

/// Reads the tables and collects what is wrong.
struct Reader {
    os: Os,
    found: Vec<(Problem, Range<usize>)>,
}

impl Reader {
    fn document(&mut self, document: &DeTable<'_>) -> Spec {
        let mut spec = Spec::default();
        for (name, value) in document {
            let known = |key: &&Key| key.name == name.get_ref();
            if let Some(key) = TOP.keys.iter().find(known) {
                self.key("", key, value, &mut spec);
            } else if let Some(section) = section::section(name.get_ref()) {
                self.section(section, value, &mut spec);
            } else {
                self.found.push((unknown_at_top(name.get_ref(), value.get_ref()), name.span()));
            }
        }
        spec
    }

    fn section(&mut self, section: &Section, value: &Spanned<DeValue<'_>>, spec: &mut Spec) {
        let Some(table) = self.table(section.name, value) else {
            return;
        };
        self.keys(section, section.name, table, true, spec);
        // After the keys for every system, because it replaces them.
        for os in [Os::Linux, Os::Macos] {
            let name = format!("{}.{}", section.name, os.name());
            let part = table.iter().find(|(key, _)| key.get_ref() == os.name());
            if let Some(part) = part.and_then(|(_, part)| self.table(&name, part)) {
                let mut other = Spec::default();
                let target = if os == self.os { &mut *spec } else { &mut other };
                self.keys(section, &name, part, false, target);
            }
        }
    }

    fn table<'t, 'i>(
        &mut self,
        name: &str,
        value: &'t Spanned<DeValue<'i>>,
    ) -> Option<&'t DeTable<'i>> {
        match value.get_ref() {
            DeValue::Table(table) => Some(table),
            other => {
                let problem = Problem::NotASection { name: name.into(), got: kind_of(other) };
                self.found.push((problem, value.span()));
                None
            }
        }
    }

    fn keys(
        &mut self,
        section: &Section,
        label: &str,
        table: &DeTable<'_>,
        has_systems: bool,
        spec: &mut Spec,
    ) {
        for (name, value) in table {
            if has_systems && [Os::Linux, Os::Macos].iter().any(|os| os.name() == name.get_ref()) {
                continue;
            }
            match section.keys.iter().find(|key| key.name == name.get_ref()) {
                Some(key) => self.key(&format!("[{label}] "), key, value, spec),
                None => self.found.push((unknown_key(section, label, name.get_ref()), name.span())),
            }
        }
    }

    fn key(&mut self, label: &str, key: &Key, value: &Spanned<DeValue<'_>>, spec: &mut Spec) {
        let mut faults = Vec::new();
        with_place!(&key.field, |place| {
            if let Some(read) = Value::read(value, &mut faults) {
                *(place.of_mut)(spec) = read;
            }
        });
        let name = format!("{label}{}", key.name);
        let problems = faults.into_iter().map(|(fault, span)| (problem(&name, key, fault), span));
        self.found.extend(problems);
    }
}

fn problem(name: &str, key: &Key, fault: Fault) -> Problem {
    let name = name.to_owned();
    match fault {
        Fault::WrongType(got) => {
            Problem::WrongType { key: name, wants: key.kind(), got, example: example(key) }
        }
        Fault::WrongEntry(got, wants) => {
            let key_of_entry = format!("an entry of {name}");
            Problem::WrongType { key: key_of_entry, wants, got, example: example(key) }
        }
        Fault::TooMany(count) => Problem::TooMany { key: name, count, most: MAX_ENTRIES },
        Fault::Invalid(why) => Problem::Invalid { key: name, why },
    }
}

fn example(key: &Key) -> String {
    format!("{} = {}", key.name, key.example)
}

fn unknown_at_top(typed: &str, value: &DeValue<'_>) -> Problem {
    let shown = escaped_name(typed.as_bytes());
    if matches!(value, DeValue::Table(_)) {
        let meant = nearest(typed, SECTIONS.iter().map(|section| section.name));
        return Problem::UnknownSection {
            typed: shown,
            meant: meant.map(|name| format!("[{name}]")),
        };
    }
    let key = nearest(typed, TOP.keys.iter().map(|key| key.name)).map(str::to_owned);
    Problem::UnknownTopKey { typed: shown, meant: key.or_else(|| key_of_sections(typed)) }
}

fn unknown_key(section: &Section, label: &str, typed: &str) -> Problem {
    let names = || section.keys.iter().map(|key| key.name);
    let meant = nearest(typed, names()).map(str::to_owned);
    let keys = match section.keys {
        [only] => format!("its only key is {}", only.name),
        [most @ .., last] => {
            let most: Vec<_> = most.iter().map(|key| key.name).collect();
            format!("its keys are {} and {}", most.join(", "), last.name)
        }
        [] => String::new(),
    };
    Problem::UnknownKey {
        section: label.into(),
        typed: escaped_name(typed.as_bytes()),
        meant: meant.or_else(|| key_of_sections(typed)),
        keys,
    }
}

/// The sections that have a key of exactly this name.
fn key_of_sections(typed: &str) -> Option<String> {
    let has_it = |section: &&Section| section.keys.iter().any(|key| key.name == typed);
    let sections: Vec<_> =
        SECTIONS.iter().filter(has_it).map(|section| format!("[{}]", section.name)).collect();
    (!sections.is_empty()).then(|| format!("{typed} of {}", sections.join(" or ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn parse(text: &str) -> Spec {
        Spec::parse(text.as_bytes(), Os::Linux).unwrap_or_else(|e| panic!("{}", e.shown("spec")))
    }

    fn wrong(text: impl AsRef<[u8]>) -> String {
        Spec::parse(text.as_ref(), Os::Linux).unwrap_err().shown("app.toml")
    }

    fn paths(paths: &[&str]) -> Vec<SpecPath> {
        paths.iter().map(|path| path.parse().unwrap()).collect()
    }

    #[test]
    fn every_key_is_read() {
        let spec = parse(
            r#"
            name = "app"
            version = 1
            [files]
            read = ["/data"]
            write = ["~/code/app", "."]
            write_dot_files = ["."]
            hide = ["~/.ssh"]
            [internet]
            hosts = ["Registry.Example.org", "*.telegram.org"]
            tcp = ["registry.example.org:22"]
            upstream = "socks5://127.0.0.1:1080"
            per_minute = 60
            [lan]
            hosts = ["nas.local", "192.168.1.0/24"]
            [localhost]
            ports = [5432]
            models = [11434]
            [tools]
            allow = ["gh"]
            [browser]
            hosts = ["github.com"]
            [commands]
            allow = ["sh", "/opt/tools/"]
            "#,
        );
        assert_eq!(spec.name.unwrap().as_str(), "app");
        assert_eq!(spec.files.read, paths(&["/data"]));
        assert_eq!(spec.files.write, paths(&["~/code/app", "."]));
        assert_eq!(spec.files.write_dot_files, paths(&["."]));
        assert_eq!(spec.files.hide, paths(&["~/.ssh"]));
        assert_eq!(spec.internet.hosts[0].to_string(), "registry.example.org");
        assert_eq!(spec.internet.tcp[0].port().get(), 22);
        assert_eq!(spec.internet.way_out().to_string(), "socks5://127.0.0.1:1080");
        assert_eq!(spec.internet.per_minute.unwrap().get(), 60);
        assert_eq!(spec.lan.hosts.len(), 2);
        assert_eq!(spec.localhost.ports[0].get(), 5432);
        assert_eq!(spec.localhost.models[0].get(), 11434);
        assert_eq!(spec.tools.allow[0].as_str(), "gh");
        assert_eq!(spec.browser.hosts.len(), 1);
        assert_eq!(spec.commands.allow.len(), 2);
    }

    #[test]
    fn what_is_left_out_is_closed() {
        for text in
            ["", "# only words\n", "[files]\n", "[internet]\n[lan]\n", "\u{feff}version = 1"]
        {
            assert_eq!(parse(text), Spec::default(), "{text:?}");
        }
    }

    #[test]
    fn names_in_lists_are_literal() {
        let spec = parse(
            "[files]\nwrite = ['app[slug]', 'proj*1', 'adv..lock', '~Top', '-dash', 'a:b', 'a,b', '$HOME', '{x}', 'C:\\x']",
        );
        let expected = [
            "app[slug]",
            "proj*1",
            "adv..lock",
            "~Top",
            "-dash",
            "a:b",
            "a,b",
            "$HOME",
            "{x}",
            "C:\\x",
        ];
        assert_eq!(spec.files.write, paths(&expected));
    }

    #[test]
    fn a_systems_keys_replace_those_for_all() {
        let text = "
            [files]
            read = ['/all']
            hide = ['/h']
            [files.linux]
            read = ['/linux']
            hide = []
            [files.macos]
            read = ['/macos']
            [localhost.macos]
            ports = [1]
        ";
        let linux = Spec::parse(text.as_bytes(), Os::Linux).unwrap();
        let macos = Spec::parse(text.as_bytes(), Os::Macos).unwrap();
        assert_eq!((linux.files.read, linux.files.hide), (paths(&["/linux"]), vec![]));
        assert_eq!((macos.files.read, macos.files.hide), (paths(&["/macos"]), paths(&["/h"])));
        assert!(linux.localhost.ports.is_empty());
        assert_eq!(macos.localhost.ports.len(), 1);
    }

    #[test]
    fn flags_replace_their_key_and_hide_adds() {
        let mut spec = parse(
            "name = 'app'\n[files]\nread = ['/r']\nwrite = ['/w']\nhide = ['/a']\n\
             [internet]\nhosts = ['a.b']\nper_minute = 5",
        );
        spec.merge(parse(
            "[files]\nwrite = ['/x', '/y']\nhide = ['/a', '/b']\n[internet]\nper_minute = 9",
        ));
        let expected = parse(
            "name = 'app'\n[files]\nread = ['/r']\nwrite = ['/x', '/y']\nhide = ['/a', '/b']\n\
             [internet]\nhosts = ['a.b']\nper_minute = 9",
        );
        assert_eq!(spec, expected);
        spec.merge(Spec::default());
        assert_eq!(spec, expected);
    }

    #[test]
    fn the_keys_that_are_given_are_named() {
        let given = |text| {
            let spec = parse(text);
            let names = spec.given().map(|(section, key)| format!("{}.{}", section.name, key.name));
            names.collect::<Vec<_>>()
        };
        assert_eq!(given("name = 'a'\nversion = 1\n[lan]\nhosts = []"), [""; 0]);
        assert_eq!(
            given("[browser]\nhosts = ['*']\n[files]\nread = ['~']\n[internet]\nper_minute = 1"),
            ["files.read", "internet.per_minute", "browser.hosts"]
        );
    }

    #[test]
    fn paths_are_made_absolute() {
        let mut spec = parse(
            "[files]\nread = ['~']\nwrite = ['a/.', '/b']\n[commands]\nallow = ['sh', './x', 'bin/', '*']",
        );
        spec.make_absolute(Path::new("/home/u"), Path::new("/specs"));
        let expected = parse(
            "[files]\nread = ['/home/u']\nwrite = ['/specs/a', '/b']\n\
             [commands]\nallow = ['sh', '/specs/x', '/specs/bin/', '*']",
        );
        assert_eq!(spec, expected);
    }

    #[test]
    fn an_endpoint_needs_its_host() {
        let spec = parse(
            "[internet]\nhosts = ['a.b', '*.c.d']\ntcp = ['a.b:1', 'x.c.d:2', '*.c.d:3', 'c.d:4', '*.b.b:5']",
        );
        let unreachable = |spec: &Spec| -> Vec<_> {
            spec.internet.unreachable(&spec.lan).map(ToString::to_string).collect()
        };
        assert_eq!(unreachable(&spec), ["c.d:4", "*.b.b:5"]);
        let of_lan = "tcp = ['nas:1', 'nas.local:1', '*.x.internal:1', 'a.b:1']";
        for (hosts, lan, closed) in [
            ("['*']", "[]", vec!["nas:1", "nas.local:1", "*.x.internal:1"]),
            ("[]", "['*']", vec!["a.b:1"]),
            ("[]", "['nas', 'a.b']", vec!["nas.local:1", "*.x.internal:1"]),
            ("['*']", "['*']", vec![]),
        ] {
            let text = format!("[internet]\nhosts = {hosts}\n{of_lan}\n[lan]\nhosts = {lan}");
            assert_eq!(unreachable(&parse(&text)), closed, "{text}");
        }
        let of_addresses = "tcp = ['10.0.0.1:1', '[fd00::5]:1', '1.1.1.1:1']";
        for (hosts, lan, closed) in [
            ("['*']", "[]", vec!["10.0.0.1:1", "[fd00::5]:1"]),
            ("[]", "['*']", vec!["1.1.1.1:1"]),
            ("['1.1.1.1']", "['10.0.0.1', 'fd00::/16']", vec![]),
            ("['*']", "['10.0.0.0/24']", vec!["[fd00::5]:1"]),
            ("['*']", "['10.0.1.0/24', 'fd00::5']", vec!["10.0.0.1:1"]),
        ] {
            let text = format!("[internet]\nhosts = {hosts}\n{of_addresses}\n[lan]\nhosts = {lan}");
            assert_eq!(unreachable(&parse(&text)), closed, "{text}");
        }
    }

    #[test]
    fn each_mistake_has_its_sentence() {
        let many = format!("[localhost]\nports = [{}]", "1,".repeat(1001));
        for (name, text) in [
            ("syntax", "[files]\nread = [\"/a\"\nwrite = []\n"),
            ("syntax_string", "name = \"app\n[files]\n"),
            ("key_twice", "[files]\nread = []\nwrite = []\nread = ['/']\n"),
            ("section_twice", "[files]\nread = []\n[lan]\n[files]\nwrite = []\n"),
            ("system_twice", "[files.linux]\nread = []\n[files.linux]\nread = []\n"),
            ("unknown_section", "[flies]\nread = []\n"),
            ("unknown_section_far", "[tool.run]\nmemory = 1\n"),
            ("unknown_system", "[files.windows]\nread = []\n"),
            ("unknown_key", "[files]\nread = []\nwirte = ['~/code']\n"),
            ("unknown_key_hyphen", "[files]\nwrite-dot-files = ['.']\n"),
            ("unknown_key_far", "[lan]\nsubnet = '10.0.0.0/8'\n"),
            ("key_of_another_section", "[internet]\nports = [22]\n"),
            ("key_in_a_system_of_a_system", "[files.linux.linux]\nread = []\n"),
            ("key_above_the_sections", "write = ['.']\n"),
            ("key_above_the_sections_of_some", "hosts = ['a.b']\n"),
            ("unknown_top_key", "vresion = 1\n"),
            ("unknown_top_key_far", "author = 'me'\n"),
            ("section_is_no_table", "files = ['/a']\n"),
            ("section_is_a_list", "[[files]]\nread = []\n"),
            ("system_is_no_table", "[files]\nlinux = true\n"),
            ("type_of_list", "[files]\nread = \"~/code\"\n"),
            ("type_of_entry", "[files]\nread = [\"/a\", 7]\n"),
            ("type_of_port", "[localhost]\nports = ['5432']\n"),
            ("type_of_rate", "[internet]\nper_minute = 1.5\n"),
            ("type_of_version", "version = \"1\"\n"),
            ("version", "version = 2\n"),
            ("name", "name = \"My App\"\n"),
            ("name_taken", "name = \"run-12\"\n"),
            ("path_empty", "[files]\nwrite = [\"\"]\n"),
            ("path_with_nul", "[files]\nwrite = [\"/a\\u0000b\"]\n"),
            ("host", "[internet]\nhosts = [\"exa mple.com\"]\n"),
            ("host_is_url", "[internet]\nhosts = [\"https://example.com/\"]\n"),
            ("host_has_port", "[internet]\nhosts = [\"example.com:22\"]\n"),
            ("host_ipv4_spelling", "[internet]\nhosts = [\"127.1\"]\n"),
            ("host_of_this_machine", "[internet]\nhosts = [\"localhost\"]\n"),
            ("host_of_the_lan", "[internet]\nhosts = [\"a.b\", \"192.168.1.1\"]\n"),
            ("host_wildcard", "[internet]\nhosts = [\"api*.example.com\"]\n"),
            ("endpoint", "[internet]\ntcp = [\"github.com\"]\n"),
            ("endpoint_brackets", "[internet]\ntcp = [\"2606:4700::1:5432\"]\n"),
            ("endpoint_own_port", "[internet]\ntcp = [\"example.com:53\"]\n"),
            ("endpoint_proxy_port", "[internet]\ntcp = [\"example.com:40781\"]\n"),
            ("endpoint_any", "[internet]\ntcp = [\"*:22\"]\n"),
            ("endpoint_shared", "[internet]\ntcp = [\"*.mongodb.net:27017\"]\n"),
            ("endpoint_suffix", "[internet]\ntcp = [\"*.co.uk:22\"]\n"),
            ("endpoint_of_this_machine", "[internet]\ntcp = [\"[::1]:5432\"]\n"),
            ("endpoint_port", "[internet]\ntcp = [\"example.com:70000\"]\n"),
            ("port", "[localhost]\nports = [5432, 65536]\n"),
            ("port_zero", "[localhost]\nmodels = [0x0]\n"),
            ("port_huge", "[localhost]\nports = [99999999999999999999]\n"),
            ("rate", "[internet]\nper_minute = 0\n"),
            ("upstream", "[internet]\nupstream = \"http://127.0.0.1:3128\"\n"),
            ("upstream_elsewhere", "[internet]\nupstream = \"socks5://10.0.0.1:1080\"\n"),
            ("lan_host", "[lan]\nhosts = [\"*.local\"]\n"),
            ("lan_range_start", "[lan]\nhosts = [\"192.168.1.7/24\"]\n"),
            ("lan_metadata", "[lan]\nhosts = [\"169.254.169.254\"]\n"),
            ("lan_of_this_machine", "[lan]\nhosts = [\"127.0.0.1\"]\n"),
            ("lan_not_private", "[lan]\nhosts = [\"8.8.8.8\"]\n"),
            ("tool", "[tools]\nallow = [\"GH\"]\n"),
            ("program", "[commands]\nallow = [\"..\"]\n"),
            ("too_many", &many),
            ("several", "version = 3\n[files]\nreed = []\nread = ['', 5]\n[lna]\nhosts = []\n"),
            ("more_than_shown", "[localhost]\nports = [0,0,0,0,0,0,0,0,0,0,0,0]\n"),
            ("tricks_are_escaped", "[files]\n\"re\\u001b[2Jad\" = [\"\u{202e}x\"]\tz"),
            ("key_with_tricks", "[files]\n\"re\\u001b[2Jad\" = ['a']\n"),
            ("after_wide_text", "[files]\nread = ['日本', '']\r\n"),
            ("other_systems_keys", "[localhost.macos]\nports = [0]\n"),
        ] {
            let shown = wrong(text);
            insta::with_settings!({ description => text.get(..200).unwrap_or(text) }, {
                insta::assert_snapshot!(name, shown);
            });
        }
        insta::assert_snapshot!("not_utf8", wrong(b"name = 'a'\nx = '\xff'\n"));
        insta::assert_snapshot!("too_large", wrong(" ".repeat(MAX_BYTES + 1)));
    }

    #[test]
    fn what_is_refused_is_shown_at_its_place() {
        let text = b"[files]\nwrite = ['~/a',\n  '~/b']\n[files.linux]\nread = ['/x', \"~\\u002fb\"]\n[files.macos]\nread = ['~/b']";
        let shown = |key, entry| {
            let errors = Spec::refused(text, Os::Linux, ("files", key), entry, "no".into());
            let error = &errors.errors[0];
            (error.line, error.column)
        };
        assert_eq!(shown("write", Some("~/b")), (3, 3));
        // Another spelling of the same text, and the part of this system.
        assert_eq!(shown("read", Some("~/b")), (5, 15));
        assert_eq!(shown("write", None), (2, 9));
        assert_eq!(shown("write", Some("~/c")), (2, 9));
        let text = b"[internet]\ntcp = [\n  'A.b:1', 'c.d:2',\n  'E.f.:3']";
        let endpoints = ["e.f:3", "a.b:1"].map(|it| (it.parse().unwrap(), it.to_owned()));
        let errors = Spec::refused_endpoints(text, Os::Linux, &endpoints).errors;
        let places: Vec<_> =
            errors.iter().map(|it| (it.problem.to_string(), it.line, it.column)).collect();
        assert_eq!(places, [("a.b:1".to_owned(), 3, 3), ("e.f:3".to_owned(), 4, 3)]);
        assert_eq!(shown("hide", None), (1, 1));
    }

    #[test]
    fn a_list_may_have_a_thousand_entries() {
        let ports: Vec<String> = (1..=1000).map(|port| port.to_string()).collect();
        let spec = parse(&format!("[localhost]\nports = [{}]", ports.join(",")));
        assert_eq!(spec.localhost.ports.len(), 1000);
    }
}
