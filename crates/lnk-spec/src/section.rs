//! The table of everything a spec can say.
//!
//! Reading and printing specs, the flags beside them, the lists of permissions,
//! what consent shows and the reference in the documentation all come from it.

use std::fmt::Write;

use serde::Serialize;

use crate::endpoint::Endpoint;
use crate::host::HostPattern;
use crate::internet::InternetHost;
use crate::lan::LanHost;
use crate::name::{Name, ToolName};
use crate::number::{Port, Rate};
use crate::path::SpecPath;
use crate::program::Program;
use crate::spec::{Spec, Version};
use crate::upstream::Upstream;
use crate::value::Value;

/// One of the sections: a group of grants, closed where a spec leaves it out.
#[derive(Debug)]
pub struct Section {
    /// Its name; empty for the keys above all sections.
    pub name: &'static str,
    /// What it opens, in one line.
    pub meaning: &'static str,
    /// Its keys, in the order they are shown.
    pub keys: &'static [Key],
}

/// One key of a section.
#[derive(Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What it is where the spec leaves it out, as TOML or in words.
    pub default: &'static str,
    /// The flag that says the same.
    pub flag: Option<Flag>,
    /// What it means, in one line.
    pub meaning: &'static str,
    /// A value, as TOML.
    pub example: &'static str,
    /// Where a spec holds it, and as what.
    pub(crate) field: Field,
}

/// A flag that says the same as a key.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// The flag, with its dashes.
    pub name: &'static str,
    /// What stands for its value in help.
    pub value: &'static str,
    /// Whether it adds to a spec's key instead of replacing it.
    pub adds: bool,
}

impl Key {
    /// What its value is, in words: `a list of paths`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        with_place!(&self.field, |place| place.kind())
    }
}

/// Where a spec holds the value of a key, and as which type.
#[derive(Debug)]
pub(crate) enum Field {
    Name(Place<Option<Name>>),
    Version(Place<Version>),
    Paths(Place<Vec<SpecPath>>),
    Hosts(Place<Vec<HostPattern>>),
    InternetHosts(Place<Vec<InternetHost>>),
    Endpoints(Place<Vec<Endpoint>>),
    Upstream(Place<Option<Upstream>>),
    Rate(Place<Option<Rate>>),
    LanHosts(Place<Vec<LanHost>>),
    Ports(Place<Vec<Port>>),
    Tools(Place<Vec<ToolName>>),
    Programs(Place<Vec<Program>>),
}

/// The same code for a place, whatever its type.
macro_rules! with_place {
    ($field:expr, |$place:ident| $code:expr) => {
        match $field {
            $crate::section::Field::Name($place) => $code,
            $crate::section::Field::Version($place) => $code,
            $crate::section::Field::Paths($place) => $code,
            $crate::section::Field::Hosts($place) => $code,
            $crate::section::Field::InternetHosts($place) => $code,
            $crate::section::Field::Endpoints($place) => $code,
            $crate::section::Field::Upstream($place) => $code,
            $crate::section::Field::Rate($place) => $code,
            $crate::section::Field::LanHosts($place) => $code,
            $crate::section::Field::Ports($place) => $code,
            $crate::section::Field::Tools($place) => $code,
            $crate::section::Field::Programs($place) => $code,
        }
    };
}
pub(crate) use with_place;

/// A place in a spec.
#[derive(Debug)]
pub(crate) struct Place<T> {
    pub of: fn(&Spec) -> &T,
    pub of_mut: fn(&mut Spec) -> &mut T,
}

impl<T: Value> Place<T> {
    fn kind(&self) -> &'static str {
        T::KIND
    }
}

macro_rules! place {
    ($($part:ident).+) => { Place { of: |spec| &spec.$($part).+, of_mut: |spec| &mut spec.$($part).+ } };
}

const fn flag(name: &'static str, value: &'static str) -> Option<Flag> {
    Some(Flag { name, value, adds: false })
}

/// The keys above all sections.
pub static TOP: Section = Section {
    name: "",
    meaning: "What the spec is",
    keys: &[
        Key {
            name: "name",
            default: "none",
            flag: None,
            meaning: "What to call it: 1 to 32 of a-z, 0-9 and -, with no - at its ends, and not \
                      as Link names its own sandboxes",
            example: "\"app\"",
            field: Field::Name(place!(name)),
        },
        Key {
            name: "version",
            default: "1",
            flag: None,
            meaning: "The version of this format",
            example: "1",
            field: Field::Version(place!(version)),
        },
    ],
};

/// The sections, in the order they are shown.
pub static SECTIONS: [Section; 7] = [
    Section {
        name: "files",
        meaning: "Folders and files it may read or write",
        keys: &[
            Key {
                name: "read",
                default: "[]",
                flag: flag("--read", "PATH"),
                meaning: "Folders and files it may only read; \"~\" is your whole home folder",
                example: "[\"~/Documents/reports\"]",
                field: Field::Paths(place!(files.read)),
            },
            Key {
                name: "write",
                default: "[]",
                flag: flag("--write", "PATH"),
                meaning: "Folders and files it may read and write",
                example: "[\"~/code/app\"]",
                field: Field::Paths(place!(files.write)),
            },
            Key {
                name: "write_dot_files",
                default: "[]",
                flag: flag("--write-dot-files", "PATH"),
                meaning: "Folders of write whose .git, .envrc and the like it may change too",
                example: "[\"~/code/app\"]",
                field: Field::Paths(place!(files.write_dot_files)),
            },
            Key {
                name: "hide",
                default: "[]",
                flag: Some(Flag { name: "--hide", value: "PATH", adds: true }),
                meaning: "Folders and files it may never touch, but for what is opened inside them",
                example: "[\"~/.ssh\"]",
                field: Field::Paths(place!(files.hide)),
            },
        ],
    },
    Section {
        name: "internet",
        meaning: "Hosts of the internet, through Link's proxy",
        keys: &[
            Key {
                name: "hosts",
                default: "[]",
                flag: flag("--internet-host", "HOST"),
                meaning: "Hosts it may reach; \"*.x\" is every name under x, \"*\" any host",
                example: "[\"registry.example.org\", \"*.telegram.org\"]",
                field: Field::InternetHosts(place!(internet.hosts)),
            },
            Key {
                name: "tcp",
                default: "[]",
                flag: flag("--tcp", "HOST:PORT"),
                meaning: "Endpoints of its hosts beyond HTTPS on 443 and HTTP on 80",
                example: "[\"github.com:22\"]",
                field: Field::Endpoints(place!(internet.tcp)),
            },
            Key {
                name: "upstream",
                default: "\"direct\"",
                flag: flag("--upstream", "UPSTREAM"),
                meaning: "Where connections leave from: here, or a SOCKS5 proxy on this machine",
                example: "\"socks5://127.0.0.1:1080\"",
                field: Field::Upstream(place!(internet.upstream)),
            },
            Key {
                name: "per_minute",
                default: "no limit",
                flag: flag("--per-minute", "CALLS"),
                meaning: "The most calls it may make within a minute, 1 to 1000000",
                example: "60",
                field: Field::Rate(place!(internet.per_minute)),
            },
        ],
    },
    Section {
        name: "lan",
        meaning: "Machines of your network, on any port, through Link's proxy",
        keys: &[Key {
            name: "hosts",
            default: "[]",
            flag: flag("--lan-host", "HOST"),
            meaning: "A name, a private address or range, or \"*\" for all private ranges",
            example: "[\"nas.local\", \"192.168.1.0/24\"]",
            field: Field::LanHosts(place!(lan.hosts)),
        }],
    },
    Section {
        name: "localhost",
        meaning: "Ports of this machine's loopback",
        keys: &[
            Key {
                name: "ports",
                default: "[]",
                flag: flag("--port", "PORT"),
                meaning: "Ports it may connect to",
                example: "[5432]",
                field: Field::Ports(place!(localhost.ports)),
            },
            Key {
                name: "models",
                default: "[]",
                flag: flag("--model", "PORT"),
                meaning: "Ports of local model runtimes, for inference only",
                example: "[11434]",
                field: Field::Ports(place!(localhost.models)),
            },
        ],
    },
    Section {
        name: "tools",
        meaning: "Tools that run outside the sandbox",
        keys: &[Key {
            name: "allow",
            default: "[]",
            flag: flag("--tool", "NAME"),
            meaning: "Tools it may call, by the names they were added under",
            example: "[\"gh\"]",
            field: Field::Tools(place!(tools.allow)),
        }],
    },
    Section {
        name: "browser",
        meaning: "Pages it may ask to open in your browser",
        keys: &[Key {
            name: "hosts",
            default: "[]",
            flag: flag("--browser-host", "HOST"),
            meaning: "Hosts whose https:// pages it may ask for; \"*\" is any host",
            example: "[\"github.com\"]",
            field: Field::Hosts(place!(browser.hosts)),
        }],
    },
    Section {
        name: "commands",
        meaning: "Programs it may run",
        keys: &[Key {
            name: "allow",
            default: "[]",
            flag: flag("--command", "PROGRAM"),
            meaning: "Names found on PATH, paths, folders ending in /, or \"*\" for any program",
            example: "[\"sh\", \"node\", \"npm\"]",
            field: Field::Programs(place!(commands.allow)),
        }],
    },
];

/// The section of a name.
#[must_use]
pub fn section(name: &str) -> Option<&'static Section> {
    SECTIONS.iter().find(|section| section.name == name)
}

/// One key of the sections, as the list of permissions shows it.
#[derive(Clone, Debug, Serialize)]
pub struct Permission {
    /// The section.
    pub section: &'static str,
    /// The key.
    pub key: &'static str,
    /// What its value is.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// What it is where it is left out.
    pub default: &'static str,
    /// The flag.
    pub flag: Option<&'static str>,
    /// What it means.
    pub meaning: &'static str,
    /// A value, as TOML.
    pub example: &'static str,
}

/// Every key of every section, in order.
pub fn permissions() -> impl Iterator<Item = Permission> {
    SECTIONS.iter().flat_map(|section| {
        section.keys.iter().map(|key| Permission {
            section: section.name,
            key: key.name,
            kind: key.kind(),
            default: key.default,
            flag: key.flag.map(|flag| flag.name),
            meaning: key.meaning,
            example: key.example,
        })
    })
}

/// The list of permissions as JSON: an array of [`Permission`]s.
#[must_use]
pub fn permissions_json() -> String {
    let list: Vec<Permission> = permissions().collect();
    let mut text = serde_json::to_string_pretty(&list).expect("plain text is always JSON");
    text.push('\n');
    text
}

/// The list of permissions as text: each section, and a line for each of its keys.
#[must_use]
pub fn permissions_text() -> String {
    let mut text = String::new();
    for section in &SECTIONS {
        let gap = if text.is_empty() { "" } else { "\n" };
        let _ = writeln!(text, "{gap}[{}]  {}", section.name, section.meaning);
        for key in section.keys {
            let flag = key.flag.map(|flag| format!("{} {}", flag.name, flag.value));
            let flag = flag.unwrap_or_default();
            let _ = writeln!(text, "  {:<15}  {flag:<22}  {}", key.name, key.meaning);
        }
    }
    text
}

/// The reference of all keys as Markdown, for the documentation.
#[must_use]
pub fn reference() -> String {
    let mut text = String::new();
    for section in std::iter::once(&TOP).chain(&SECTIONS) {
        let title = if section.name.is_empty() {
            "Above the sections".to_owned()
        } else {
            format!("`[{}]`", section.name)
        };
        let _ = write!(
            text,
            "### {title}\n\n{}.\n\n| key | type | default | example | flag | meaning |\n\
             |---|---|---|---|---|---|\n",
            section.meaning
        );
        for key in section.keys {
            let default = if key.default.contains(['[', '"', '1']) {
                format!("`{}`", key.default)
            } else {
                key.default.to_owned()
            };
            let flag =
                key.flag.map_or("–".into(), |flag| format!("`{} {}`", flag.name, flag.value));
            let _ = writeln!(
                text,
                "| `{}` | {} | {default} | `{} = {}` | {flag} | {} |",
                key.name,
                key.kind(),
                key.name,
                key.example,
                key.meaning.replace('*', "\\*")
            );
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Os;

    fn keys() -> impl Iterator<Item = (&'static Section, &'static Key)> {
        let sections = std::iter::once(&TOP).chain(&SECTIONS);
        sections.flat_map(|section| section.keys.iter().map(move |key| (section, key)))
    }

    #[test]
    fn the_reference_in_the_documentation_is_this_table() {
        let page = include_str!("../../../docs/spec.md");
        let (_, rest) = page.split_once("<!-- keys -->\n\n").unwrap();
        let (listed, _) = rest.split_once("<!-- end of keys -->").unwrap();
        assert!(listed == reference(), "docs/spec.md must have\n{}", reference());
    }

    fn blocks(page: &'static str, language: &str) -> Vec<&'static str> {
        let opening = format!("```{language}\n");
        page.split(opening.as_str()).skip(1).map(|rest| rest.split_once("```").unwrap().0).collect()
    }

    #[test]
    fn the_documentations_specs_are_valid() {
        let specs = blocks(include_str!("../../../docs/spec.md"), "toml");
        assert_eq!(specs.len(), 2);
        for text in specs {
            let spec = Spec::parse(text.as_bytes(), Os::Linux).unwrap();
            assert_eq!(spec.files.write, ["~/code/app".parse().unwrap()]);
        }
    }

    #[test]
    fn the_documentations_mistake_is_shown_so() {
        let text = b"name = \"app\"\nversion = 1\n\n[files]\nwirte = [\"~/code/app\"]\n";
        let shown = Spec::parse(text, Os::Linux).unwrap_err().shown("app.toml");
        assert_eq!(blocks(include_str!("../../../docs/spec.md"), "text"), [format!("{shown}\n")]);
    }

    #[test]
    fn every_example_is_a_valid_value_and_no_default() {
        for (section, key) in keys() {
            let header = if section.name.is_empty() {
                String::new()
            } else {
                format!("[{}]\n", section.name)
            };
            let text = format!("{header}{} = {}\n", key.name, key.example);
            let spec = Spec::parse(text.as_bytes(), Os::Linux).unwrap();
            assert_eq!(spec == Spec::default(), key.name == "version", "{text}");
        }
    }

    #[test]
    fn every_default_in_toml_is_the_default() {
        for (section, key) in keys().filter(|(_, key)| key.default.contains(['[', '1'])) {
            let header = if section.name.is_empty() {
                String::new()
            } else {
                format!("[{}]\n", section.name)
            };
            let text = format!("{header}{} = {}\n", key.name, key.default);
            assert_eq!(Spec::parse(text.as_bytes(), Os::Linux).unwrap(), Spec::default(), "{text}");
        }
    }

    #[test]
    fn every_key_of_a_section_has_a_flag_of_its_own() {
        let mut flags: Vec<_> = SECTIONS
            .iter()
            .flat_map(|section| section.keys)
            .map(|key| key.flag.unwrap().name)
            .collect();
        assert_eq!(flags.len(), 14);
        flags.sort_unstable();
        flags.dedup();
        assert_eq!(flags.len(), 14);
    }

    #[test]
    fn permissions_in_text() {
        insta::assert_snapshot!(permissions_text());
    }
}
