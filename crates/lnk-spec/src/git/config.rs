//! Git's configuration files (git-config(1), "CONFIGURATION FILE"), read as
//! git 2.47's `config.c` reads them.

/// The longest file that is read, in bytes.
pub const MAX_LEN: usize = 1 << 20;

/// Why a configuration can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// It is longer than [`MAX_LEN`].
    #[error("a git configuration longer than {MAX_LEN} bytes")]
    TooLong,
    /// It holds a NUL byte, where git would cut a name or a value short and so
    /// read another one than stands there.
    #[error("a git configuration with a NUL byte")]
    Nul,
    /// This line, counted from 1, isn't what git accepts.
    #[error("a bad line {0} in a git configuration")]
    Line(u32),
}

/// One `key = value` under its section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The section's name in lower case: `core` of `[Core]`.
    pub section: Vec<u8>,
    /// The subsection, its case kept: `x` of `[remote "x"]`; `[remote.X]` means
    /// the same as `[remote "x"]`.
    pub subsection: Option<Vec<u8>>,
    /// The key in lower case.
    pub key: Vec<u8>,
    /// The value, unquoted. `None` for a key that stands alone, which git takes
    /// for true.
    pub value: Option<Vec<u8>>,
}

/// A parsed configuration: its entries in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    entries: Vec<Entry>,
}

impl Config {
    /// Reads a whole file.
    ///
    /// # Errors
    /// What git refuses, a NUL byte, and more than [`MAX_LEN`] bytes.
    pub fn parse(file: &[u8]) -> Result<Config, ConfigError> {
        if file.len() > MAX_LEN {
            return Err(ConfigError::TooLong);
        }
        if file.contains(&0) {
            return Err(ConfigError::Nul);
        }
        Reader::new(file).read()
    }

    /// The entries in the order of the file.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Every value of `section.key`, in the order of the file, without the
    /// entries of subsections and the keys that have no value. `section` and
    /// `key` are in lower case.
    pub fn all<'a>(&'a self, section: &'a str, key: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.entries
            .iter()
            .filter(move |e| {
                e.section == section.as_bytes() && e.subsection.is_none() && e.key == key.as_bytes()
            })
            .filter_map(|e| e.value.as_deref())
    }

    /// Every `core.hooksPath`. The last one counts for git, but which file
    /// comes last is known only when all are read.
    pub fn hooks_paths(&self) -> impl Iterator<Item = &[u8]> {
        self.all("core", "hookspath")
    }

    /// `core.worktree`, the last one.
    #[must_use]
    pub fn worktree(&self) -> Option<&[u8]> {
        self.all("core", "worktree").last()
    }

    /// `core.bare`, the last one; `None` where it isn't said.
    #[must_use]
    pub fn bare(&self) -> Option<bool> {
        self.boolean("core", "bare")
    }

    /// `extensions.worktreeConfig`: whether `config.worktree` is read too.
    #[must_use]
    pub fn worktree_config(&self) -> bool {
        self.boolean("extensions", "worktreeconfig") == Some(true)
    }

    /// Whether object names are SHA-256 (`extensions.objectFormat`).
    #[must_use]
    pub fn sha256(&self) -> bool {
        self.all("extensions", "objectformat").last() == Some(b"sha256")
    }

    /// Every `include.path`.
    pub fn includes(&self) -> impl Iterator<Item = &[u8]> {
        self.all("include", "path")
    }

    /// Every `includeIf.<condition>.path`, whatever the condition.
    pub fn conditional_includes(&self) -> impl Iterator<Item = &[u8]> {
        self.entries
            .iter()
            .filter(|e| e.section == b"includeif" && e.subsection.is_some() && e.key == b"path")
            .filter_map(|e| e.value.as_deref())
    }

    /// `user.name`, the last one.
    #[must_use]
    pub fn user_name(&self) -> Option<&[u8]> {
        self.all("user", "name").last()
    }

    /// `user.email`, the last one.
    #[must_use]
    pub fn user_email(&self) -> Option<&[u8]> {
        self.all("user", "email").last()
    }

    /// Anything that isn't one of git's words for false is true here: this
    /// decides only how much is looked at.
    fn boolean(&self, section: &str, key: &str) -> Option<bool> {
        let entry = self.entries.iter().rev().find(|e| {
            e.section == section.as_bytes() && e.subsection.is_none() && e.key == key.as_bytes()
        })?;
        let Some(value) = &entry.value else {
            return Some(true);
        };
        let word = value.to_ascii_lowercase();
        Some(!matches!(&word[..], b"" | b"0" | b"false" | b"no" | b"off"))
    }
}

/// `value` in double quotes, so that git reads exactly these bytes back.
///
/// A NUL byte can't be written in a configuration; callers have none, because
/// [`Config::parse`] and paths have none.
#[must_use]
pub fn quote(value: &[u8]) -> Vec<u8> {
    let mut quoted = Vec::with_capacity(value.len() + 2);
    quoted.push(b'"');
    for &byte in value {
        match byte {
            b'"' | b'\\' => quoted.extend([b'\\', byte]),
            b'\n' => quoted.extend(b"\\n"),
            b'\t' => quoted.extend(b"\\t"),
            8 => quoted.extend(b"\\b"),
            _ => quoted.push(byte),
        }
    }
    quoted.push(b'"');
    quoted
}

/// Git's own notion of white space; vertical tab and form feed aren't in it.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

#[derive(Default)]
struct Section {
    name: Vec<u8>,
    subsection: Option<Vec<u8>>,
}

struct Reader<'a> {
    rest: &'a [u8],
    line: u32,
    ended: bool,
}

impl<'a> Reader<'a> {
    fn new(file: &'a [u8]) -> Self {
        let rest = file.strip_prefix(b"\xef\xbb\xbf").unwrap_or(file);
        Reader { rest, line: 1, ended: false }
    }

    /// The next byte, `\r\n` as `\n`, and a last `\n` at the end of the file.
    fn next(&mut self) -> u8 {
        match self.rest {
            [] => {
                self.ended = true;
                b'\n'
            }
            [b'\r', b'\n', rest @ ..] | [b'\n', rest @ ..] => {
                self.rest = rest;
                self.line = self.line.saturating_add(1);
                b'\n'
            }
            [byte, rest @ ..] => {
                self.rest = rest;
                *byte
            }
        }
    }

    fn bad(&self) -> ConfigError {
        ConfigError::Line(self.line)
    }

    fn read(mut self) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        let mut section: Option<Section> = None;
        loop {
            match self.next() {
                b'\n' if self.ended => return Ok(config),
                b'#' | b';' => self.skip_line(),
                b'[' => section = Some(self.section()?),
                byte if is_space(byte) => {}
                byte if byte.is_ascii_alphabetic() => {
                    let section = section.as_ref().ok_or_else(|| self.bad())?;
                    let (key, value) = self.key_and_value(byte)?;
                    config.entries.push(Entry {
                        section: section.name.clone(),
                        subsection: section.subsection.clone(),
                        key,
                        value,
                    });
                }
                _ => return Err(self.bad()),
            }
        }
    }

    fn skip_line(&mut self) {
        while self.next() != b'\n' {}
    }

    /// What stands between `[` and `]`.
    fn section(&mut self) -> Result<Section, ConfigError> {
        let mut name = Vec::new();
        loop {
            match self.next() {
                _ if self.ended => return Err(self.bad()),
                b']' => return Ok(split_at_dot(name)),
                byte if is_space(byte) => {
                    let subsection = self.subsection(byte)?;
                    return Ok(join(name, subsection));
                }
                byte if is_key_byte(byte) || byte == b'.' => name.push(byte.to_ascii_lowercase()),
                _ => return Err(self.bad()),
            }
        }
    }

    fn subsection(&mut self, mut byte: u8) -> Result<Vec<u8>, ConfigError> {
        while is_space(byte) {
            if byte == b'\n' {
                return Err(self.bad());
            }
            byte = self.next();
        }
        if byte != b'"' {
            return Err(self.bad());
        }
        let mut subsection = Vec::new();
        loop {
            match self.next() {
                b'\n' => return Err(self.bad()),
                b'"' => break,
                b'\\' => match self.next() {
                    b'\n' => return Err(self.bad()),
                    escaped => subsection.push(escaped),
                },
                byte => subsection.push(byte),
            }
        }
        if self.next() != b']' {
            return Err(self.bad());
        }
        Ok(subsection)
    }

    fn key_and_value(&mut self, first: u8) -> Result<(Vec<u8>, Option<Vec<u8>>), ConfigError> {
        let mut key = vec![first.to_ascii_lowercase()];
        let mut byte = self.next();
        while is_key_byte(byte) {
            key.push(byte.to_ascii_lowercase());
            byte = self.next();
        }
        while matches!(byte, b' ' | b'\t') {
            byte = self.next();
        }
        match byte {
            b'\n' => Ok((key, None)),
            b'=' => Ok((key, Some(self.value()?))),
            _ => Err(self.bad()),
        }
    }

    fn value(&mut self) -> Result<Vec<u8>, ConfigError> {
        let mut value = Vec::new();
        // How long the value is without the white space at its end.
        let mut kept = 0;
        let mut quoted = false;
        loop {
            match self.next() {
                b'\n' if quoted => return Err(self.bad()),
                b'\n' => break,
                b'#' | b';' if !quoted => {
                    self.skip_line();
                    break;
                }
                byte if is_space(byte) && !quoted => {
                    if !value.is_empty() {
                        value.push(byte);
                    }
                    continue;
                }
                b'\\' => match self.next() {
                    b'\n' => {}
                    b't' => value.push(b'\t'),
                    b'b' => value.push(8),
                    b'n' => value.push(b'\n'),
                    byte @ (b'\\' | b'"') => value.push(byte),
                    _ => return Err(self.bad()),
                },
                b'"' => quoted = !quoted,
                byte => value.push(byte),
            }
            kept = value.len();
        }
        value.truncate(kept);
        Ok(value)
    }
}

/// `[a.b]` is an old spelling of `[a "b"]`.
fn split_at_dot(name: Vec<u8>) -> Section {
    match name.iter().position(|&b| b == b'.') {
        None => Section { name, subsection: None },
        Some(dot) => {
            Section { name: name[..dot].to_vec(), subsection: Some(name[dot + 1..].to_vec()) }
        }
    }
}

/// `[a.b "c"]` is `[a "b.c"]`.
fn join(name: Vec<u8>, subsection: Vec<u8>) -> Section {
    let mut section = split_at_dot(name);
    section.subsection = Some(match section.subsection.take() {
        None => subsection,
        Some(mut before) => {
            before.push(b'.');
            before.extend(subsection);
            before
        }
    });
    section
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    fn one(file: &[u8]) -> Option<Vec<u8>> {
        let config = Config::parse(file).unwrap();
        assert_eq!(config.entries().len(), 1, "{config:?}");
        config.entries()[0].value.clone()
    }

    #[test]
    fn names_are_read_in_any_case_and_spelling() {
        for file in [
            &b"[core]\nhooksPath = h\n"[..],
            b"[CORE] HooksPath=h",
            b"\xef\xbb\xbf[core]\r\n\thookspath\t= h\r\n",
            b"# c\n; c\n[core]hooksPath=h#c",
            b"[core]\nhooksPath=\\\nh",
        ] {
            let config = Config::parse(file).unwrap();
            assert_eq!(config.hooks_paths().collect::<Vec<_>>(), [b"h"], "{file:?}");
        }
        let other = Config::parse(b"[core \"x\"]\nhooksPath=h\n[core.y]\nhooksPath=h").unwrap();
        assert_eq!(other.hooks_paths().count(), 0);
    }

    #[test]
    fn values_are_unquoted_as_git_does() {
        assert_eq!(one(b"[a]\nb = c d  \t ; e"), Some(b"c d".to_vec()));
        assert_eq!(one(b"[a]\nb = \" c \" d\"#\" "), Some(b" c  d#".to_vec()));
        assert_eq!(one(b"[a]\nb = \\t\\n\\b\\\\\\\""), Some(b"\t\n\x08\\\"".to_vec()));
        assert_eq!(one(b"[a]\nb = c\\\n  d"), Some(b"c  d".to_vec()));
        assert_eq!(one(b"[a]\nb ="), Some(vec![]));
        assert_eq!(one(b"[a]\nb"), None);
        assert_eq!(one(b"[a]\nb = \xff\xfe"), Some(vec![0xff, 0xfe]));
    }

    #[test]
    fn refuses_what_git_refuses() {
        for file in [
            &b"a = b"[..],
            b"[a",
            b"[a b]",
            b"[a \"b\nc\"]",
            b"[a \"b\" ]\nc=d",
            b"[a]\n1b = c",
            b"[a]\nb c",
            b"[a]\nb = \"c",
            b"[a]\nb = \\x",
            b"[a]\nb = c\0",
        ] {
            assert!(Config::parse(file).is_err(), "{}", file.escape_ascii());
        }
        assert_eq!(Config::parse(b"[a]\nb=c\n!"), Err(ConfigError::Line(3)));
        assert_eq!(Config::parse(&vec![b'\n'; MAX_LEN + 1]), Err(ConfigError::TooLong));
    }

    #[test]
    fn includes_and_booleans() {
        let config = Config::parse(
            b"[include]path=a\n[includeIf \"gitdir:~/x/\"]\npath=b\n[include]\npath=c\n\
              [core]bare\n[extensions]worktreeConfig=Off\nobjectFormat=sha256",
        )
        .unwrap();
        assert_eq!(config.includes().collect::<Vec<_>>(), [b"a", b"c"]);
        assert_eq!(config.conditional_includes().collect::<Vec<_>>(), [b"b"]);
        assert_eq!(config.bare(), Some(true));
        assert!(!config.worktree_config());
        assert!(config.sha256());
    }

    #[test]
    fn reads_what_git_writes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        let values =
            ["plain", " lead and trail ", "a;b#c", "q\"q\\q", "two\nlines\tand\x08", "é\r"];
        for (i, value) in values.iter().enumerate() {
            let key = format!("Section.Sub \"x\\].y.K{i}");
            let done = Command::new("git")
                .args(["config", "--file"])
                .arg(&file)
                .args([&key, *value])
                .status()
                .unwrap();
            assert!(done.success());
        }
        let config = Config::parse(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(config.entries().len(), values.len());
        for (i, (entry, value)) in config.entries().iter().zip(values).enumerate() {
            assert_eq!(entry.section, b"section");
            assert_eq!(entry.subsection.as_deref(), Some(&b"Sub \"x\\].y"[..]));
            assert_eq!(entry.key, format!("k{i}").as_bytes());
            assert_eq!(entry.value.as_deref(), Some(value.as_bytes()));
        }
    }

    /// Whatever this reader makes of a file, git makes the same of it, or one
    /// of the two refuses it.
    fn agrees_with_git(file: &[u8]) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, file).unwrap();
        let git = Command::new("git")
            .args(["config", "--null", "--list", "--file"])
            .arg(&path)
            .output()
            .unwrap();
        let ours = Config::parse(file);
        assert_eq!(ours.is_ok(), git.status.success(), "{}", file.escape_ascii());
        let Ok(ours) = ours else { return };
        let mut expected = Vec::new();
        for e in ours.entries() {
            expected.extend(&e.section);
            expected.push(b'.');
            if let Some(sub) = &e.subsection {
                expected.extend(sub);
                expected.push(b'.');
            }
            expected.extend(&e.key);
            if let Some(value) = &e.value {
                expected.push(b'\n');
                expected.extend(value);
            }
            expected.push(0);
        }
        assert_eq!(
            git.stdout.escape_ascii().to_string(),
            expected.escape_ascii().to_string(),
            "{}",
            file.escape_ascii()
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn odd_files_mean_what_git_says(
            file in proptest::collection::vec(
                prop_oneof![
                    Just("[core]"), Just("[a \"b\"]"), Just("[a.B \"c\"]"), Just("\n"), Just("\r\n"),
                    Just("\r"), Just("k"), Just("k="), Just("= v"), Just(" "), Just("\t"), Just("\""),
                    Just("\\"), Just("\\n"), Just("#"), Just(";"), Just("hooksPath = x y"), Just("é"),
                ],
                0..12,
            )
        ) {
            agrees_with_git(format!("[s]\n{}", file.concat()).as_bytes());
        }
    }

    proptest! {
        #[test]
        fn a_quoted_value_comes_back(value in proptest::collection::vec(1u8.., 0..100)) {
            let mut file = b"[user]\n\tname = ".to_vec();
            file.extend(quote(&value));
            file.push(b'\n');
            let config = Config::parse(&file).unwrap();
            prop_assert_eq!(config.user_name(), Some(&value[..]));
        }

        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Config::parse(&bytes);
        }
    }
}
