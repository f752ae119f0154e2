//! The `~/.gitconfig` that a sandbox gets: the caller's name and address, so
//! that a commit made inside is theirs, and nothing else of their settings,
//! which may name programs and hold secrets.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::caller::Caller;

use lnk_spec::git::config::{Config, MAX_LEN, quote};
use rustix::fs::{CWD, FileType, Mode, OFlags};

/// How deep configurations may include one another, as in git.
const MAX_INCLUDES: usize = 10;

/// The most files read, whatever includes what.
const MAX_FILES: usize = 100;

/// Where git looks for the caller's own settings, git-config(1), the first of
/// the lowest rank.
#[must_use]
pub fn files(caller: &Caller, home: &Path) -> Vec<PathBuf> {
    let absolute = |name| caller.var(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = absolute("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
    let mut files =
        vec!["/etc/gitconfig".into(), config.join("git/config"), home.join(".gitconfig")];
    files.extend(absolute("GIT_CONFIG_SYSTEM"));
    files.extend(absolute("GIT_CONFIG_GLOBAL"));
    files
}

/// Whether a home has settings of its own for git.
#[must_use]
pub fn is_in(home: &Path) -> bool {
    [".gitconfig", ".config/git/config"].iter().any(|file| home.join(file).exists())
}

/// The text of a configuration that holds only `user.name` and `user.email` as
/// the caller's own `files` give them, later ones first in rank. `None` if they
/// give neither.
///
/// `include.path` is followed where it stands, `~/` being `home`;
/// `includeIf` isn't, because its conditions are about a place and a branch. A
/// file that is missing, unreadable, broken or over 1 MiB counts as empty: the
/// commit then asks for a name, as git does.
#[must_use]
pub fn git_identity(files: &[PathBuf], home: &Path) -> Option<Vec<u8>> {
    let mut reader = Reader { home, identity: Identity::default(), files_left: MAX_FILES };
    for file in files {
        reader.read(file, 0);
    }
    reader.identity.text()
}

#[derive(Default)]
struct Identity {
    name: Option<Vec<u8>>,
    email: Option<Vec<u8>>,
}

impl Identity {
    fn text(&self) -> Option<Vec<u8>> {
        let mut text = b"[user]\n".to_vec();
        for (key, value) in [("name", &self.name), ("email", &self.email)] {
            if let Some(value) = value {
                text.extend(format!("\t{key} = ").bytes());
                text.extend(quote(value));
                text.push(b'\n');
            }
        }
        (self.name.is_some() || self.email.is_some()).then_some(text)
    }
}

struct Reader<'a> {
    home: &'a Path,
    identity: Identity,
    files_left: usize,
}

impl Reader<'_> {
    fn read(&mut self, file: &Path, depth: usize) {
        if depth > MAX_INCLUDES || self.files_left == 0 {
            return;
        }
        self.files_left -= 1;
        let Some(config) = read_config(file) else {
            return;
        };
        for entry in config.entries() {
            let (None, Some(value)) = (&entry.subsection, &entry.value) else {
                continue;
            };
            match (&entry.section[..], &entry.key[..]) {
                (b"user", b"name") => self.identity.name = Some(value.clone()),
                (b"user", b"email") => self.identity.email = Some(value.clone()),
                (b"include", b"path") => self.include(file, value, depth),
                _ => {}
            }
        }
    }

    fn include(&mut self, from: &Path, path: &[u8], depth: usize) {
        let included = match path.strip_prefix(b"~/") {
            Some(below) => self.home.join(OsStr::from_bytes(below)),
            None => from.parent().unwrap_or(from).join(OsStr::from_bytes(path)),
        };
        self.read(&included, depth + 1);
    }
}

fn read_config(file: &Path) -> Option<Config> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(CWD, file, flags, Mode::empty()).ok()?;
    let mode = rustix::fs::fstat(&fd).ok()?.st_mode;
    if FileType::from_raw_mode(mode) != FileType::RegularFile {
        return None;
    }
    let mut bytes = Vec::new();
    File::from(fd).take(MAX_LEN as u64 + 1).read_to_end(&mut bytes).ok()?;
    Config::parse(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    fn as_git_reads(text: &[u8], key: &str) -> Vec<u8> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        let out = Command::new("git")
            .args(["config", "--null", "--file"])
            .arg(file.path())
            .arg(key)
            .output()
            .unwrap();
        out.stdout.strip_suffix(b"\0").unwrap_or_default().to_vec()
    }

    #[test]
    fn name_and_address_come_through_and_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::write(at("system"), "[user]\nname=System\nemail=s@x\n[core]\nfsmonitor=/evil\n")
            .unwrap();
        fs::write(at("global"), "[user]\nname=\"A \\\"B\\\" #c;\\t\\\\\"\n[include]path=~/more\n")
            .unwrap();
        fs::write(at("more"), "[include]\npath = deep/er\n[include]\npath = missing").unwrap();
        fs::create_dir(at("deep")).unwrap();
        fs::write(at("deep/er"), b"[user]email=\xe9@x\n[includeIf \"gitdir:/\"]path=../never")
            .unwrap();
        fs::write(at("never"), "[user]name=Never").unwrap();
        let text = git_identity(&[at("system"), at("global")], home.path()).unwrap();
        assert_eq!(as_git_reads(&text, "user.name"), b"A \"B\" #c;\t\\");
        assert_eq!(as_git_reads(&text, "user.email"), b"\xe9@x");
        assert_eq!(text.split(|&b| b == b'\n').count(), 4);
    }

    #[test]
    fn an_include_counts_where_it_stands() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::write(at("other"), "[user]name=other").unwrap();
        fs::write(at("before"), "[include]path=other\n[user]name=own").unwrap();
        fs::write(at("after"), "[user]name=own\n[include]path=other").unwrap();
        for (file, name) in [("before", "own"), ("after", "other")] {
            let text = git_identity(&[at(file)], home.path()).unwrap();
            assert_eq!(as_git_reads(&text, "user.name"), name.as_bytes());
        }
    }

    #[test]
    fn no_identity_is_none_and_loops_end() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::write(at("loop"), "[include]path=loop\npath=loop\n[core]pager=x").unwrap();
        fs::write(at("broken"), "[user]\nname=x\n!").unwrap();
        rustix::fs::mkfifoat(CWD, at("pipe"), Mode::RUSR).unwrap();
        let files = [at("loop"), at("broken"), at("pipe"), at("none"), home.path().to_owned()];
        assert_eq!(git_identity(&files, home.path()), None);
    }
}
