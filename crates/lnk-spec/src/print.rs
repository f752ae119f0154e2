//! A spec as text to read, change and read back.

use std::fmt::Write;
use std::path::PathBuf;

use crate::section::{Key, SECTIONS, Section, TOP, with_place};
use crate::shown::{is_deceptive, is_deceptive_space, word};
use crate::spec::Spec;
use crate::value::{Value, Written};

/// Columns up to which a list stays on one line.
const WIDTH: usize = 90;

/// A path that isn't UTF-8, which a spec can't hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} isn't UTF-8 text, so a spec can't name it", word(.0))]
pub struct NotText(pub PathBuf);

impl Spec {
    /// The spec as TOML. Keys that aren't given stand there as comments, each
    /// with an example. Reading it gives an equal spec.
    ///
    /// # Errors
    /// [`NotText`]: a path came from a flag and isn't UTF-8.
    pub fn printed(&self) -> Result<String, NotText> {
        let mut text = String::from(
            "# A sandbox, for lnk sandbox run --spec. What isn't opened here stays closed.\n",
        );
        for section in std::iter::once(&TOP).chain(&SECTIONS) {
            self.print_section(section, &mut text)?;
        }
        Ok(text)
    }

    fn print_section(&self, section: &Section, text: &mut String) -> Result<(), NotText> {
        let keys: Result<Vec<_>, _> =
            section.keys.iter().map(|key| Ok((key, self.written(key)?))).collect();
        let keys = keys?;
        if !section.name.is_empty() {
            let closed = if keys.iter().all(|(_, value)| value.is_none()) { "# " } else { "" };
            let _ = write!(text, "\n# {}\n{closed}[{}]\n", section.meaning, section.name);
        }
        for (key, value) in keys {
            match value {
                Some(value) => {
                    let _ = writeln!(
                        text,
                        "# {}\n{} = {}",
                        key.meaning,
                        key.name,
                        laid_out(key, value)
                    );
                }
                None => {
                    let _ = writeln!(text, "# {}\n# {} = {}", key.meaning, key.name, key.example);
                }
            }
        }
        Ok(())
    }

    fn written(&self, key: &Key) -> Result<Option<Written>, NotText> {
        with_place!(&key.field, |place| (place.of)(self).written())
    }
}

fn laid_out(key: &Key, value: Written) -> String {
    let entries = match value {
        Written::One(value) => return value,
        Written::List(entries) => entries,
    };
    let line = format!("[{}]", entries.join(", "));
    if key.name.len() + " = ".len() + line.chars().count() <= WIDTH {
        return line;
    }
    let lines: String = entries.iter().map(|entry| format!("    {entry},\n")).collect();
    format!("[\n{lines}]")
}

/// A basic string of TOML, in which everything that isn't plain text is escaped,
/// and each space that could mislead, so that it may be shown on a terminal.
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for (at, character) in text.char_indices() {
        match character {
            ' ' if is_deceptive_space(text.as_bytes(), at) => quoted.push_str("\\u0020"),
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            _ if character.is_control() || is_deceptive(character) => {
                let _ = write!(quoted, "\\U{:08x}", u32::from(character));
            }
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Os;
    use proptest::prelude::*;
    use std::str::FromStr;

    fn list<T: FromStr + PartialEq + std::fmt::Debug>(
        typed: impl Strategy<Value = String>,
    ) -> impl Strategy<Value = Vec<T>> {
        let entry = typed.prop_filter_map("valid", |typed| typed.parse().ok());
        proptest::collection::vec(entry, 0..4).prop_map(|entries| {
            let mut distinct = Vec::new();
            for entry in entries {
                if !distinct.contains(&entry) {
                    distinct.push(entry);
                }
            }
            distinct
        })
    }

    fn specs() -> impl Strategy<Value = Spec> {
        let path = || r#"[~/.]{0,2}\PC{1,20}| {0,2}a {1,3}b {0,2}|[\n\t"\\'\x01-\x1f/\x7f\u{202e}\u{feff}\[\]]{1,9}|~|~/a|\."#;
        let host = || r"\*|(\*\.)?[a-z]{1,5}(\.[a-z]{1,3}){1,2}|9\.9\.9\.[1-9]";
        let port = || "[1-9][0-9]{0,3}";
        let files = (list(path()), list(path()), list(path()), list(path()));
        let internet = (
            list(host()),
            list(
                r"(\*\.a\.)?[a-z]{1,5}\.com:[1-9][0-9]{0,3}|\[2600::1\]:[1-9]"
                    .prop_map(String::from),
            ),
            proptest::option::of("direct|socks5h?://127\\.0\\.0\\.1:[1-9]{1,4}"),
            proptest::option::of("[1-9][0-9]{0,5}"),
        );
        let rest = (
            list(r"\*|nas\.local|10\.0\.0\.[1-9]|10\.[0-9]\.0\.0/16"),
            list(port()),
            list(port()),
            list("[a-z0-9-]{1,32}"),
            list(host()),
            list(r"\*|\PC{1,9}|/\PC{0,9}/"),
        );
        (proptest::option::of("[a-z]{1,32}"), files, internet, rest).prop_map(
            |(name, files, internet, rest)| {
                let mut spec = Spec { name: name.map(|n| n.parse().unwrap()), ..Spec::default() };
                (spec.files.read, spec.files.write, spec.files.write_dot_files, spec.files.hide) =
                    files;
                let (hosts, tcp, upstream, rate) = internet;
                (spec.internet.hosts, spec.internet.tcp) = (hosts, tcp);
                spec.internet.upstream = upstream.map(|typed| typed.parse().unwrap());
                spec.internet.per_minute = rate.map(|typed| typed.parse().unwrap());
                (
                    spec.lan.hosts,
                    spec.localhost.ports,
                    spec.localhost.models,
                    spec.tools.allow,
                    spec.browser.hosts,
                    spec.commands.allow,
                ) = rest;
                spec
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back_equal(spec in specs()) {
            let printed = spec.printed().unwrap();
            prop_assert!(!printed.chars().any(|c| (c.is_control() && c != '\n') || is_deceptive(c)));
            prop_assert!(!printed.lines().any(|line| line.trim_start().contains("  ")));
            for os in [Os::Linux, Os::Macos] {
                let read = Spec::parse(printed.as_bytes(), os).map_err(|e| TestCaseError::fail(e.shown("spec")))?;
                prop_assert_eq!(&read, &spec);
            }
        }

        #[test]
        fn no_text_panics(text in r#"([\[\]"'=,.#\n a-z0-9\\*]|files|read|=|\[internet\]|hosts){0,60}"#) {
            let _ = Spec::parse(text.as_bytes(), Os::Linux).map_err(|errors| errors.shown("spec"));
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = Spec::parse(&bytes, Os::Linux).map_err(|errors| errors.shown("spec"));
        }
    }

    #[test]
    fn a_closed_spec_shows_every_key() {
        insta::assert_snapshot!(Spec::default().printed().unwrap());
    }

    #[test]
    fn every_commented_key_can_be_switched_on() {
        let open: String = Spec::default()
            .printed()
            .unwrap()
            .lines()
            .filter_map(|line| line.strip_prefix("# ").or(Some(line)))
            .filter(|line| line.starts_with('[') || line.contains(" = "))
            .map(|line| format!("{line}\n"))
            .collect();
        let spec =
            Spec::parse(open.as_bytes(), Os::Linux).unwrap_or_else(|e| panic!("{}", e.shown("")));
        assert!(
            SECTIONS.iter().flat_map(|s| s.keys).all(|key| spec.written(key).unwrap().is_some())
        );
    }

    #[test]
    fn given_keys_are_printed() {
        let spec = "name = 'app'\n[files]\nwrite = ['~/code/app']\n[internet]\nhosts = ['*']\n[commands]\nallow = ['node']\n\
             [localhost]\nports = [1000,1001,1002,1003,1004,1005,1006,1007,1008,1009,1010,1011,1012,1013,1014,1015]";
        let spec = Spec::parse(spec.as_bytes(), Os::Linux).unwrap();
        insta::assert_snapshot!(spec.printed().unwrap());
    }

    #[test]
    fn a_path_that_isnt_text_cant_be_printed() {
        use std::os::unix::ffi::OsStrExt;
        let path = std::ffi::OsStr::from_bytes(b"/a\xff");
        let mut spec = Spec::default();
        spec.files.read = vec![path.try_into().unwrap()];
        assert_eq!(spec.printed(), Err(NotText(path.into())));
    }
}
