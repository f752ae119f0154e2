//! What commands may run, of what is there.

use lnk_sandbox::mountinfo::Mounts;
use lnk_sandbox::programs::{Finder, Found};
use lnk_sandbox::shown;
use lnk_sandbox::spec::Spec;
use lnk_sandbox::spec::program::Program;
use lnk_sandbox::spec_file::SpecFile;
use lnk_sandbox::{Caller, Error};

use crate::place::Place;

/// Where programs are found by their names: the system's own folders, whatever PATH
/// a client was started with.
pub const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What may run where no spec says: a shell, Python, Node, git, curl, jq, the usual
/// file tools, the language servers that Link Code starts and the builds they run.
const DEFAULTS: &[&str] = &[
    // A shell, and what scripts begin with.
    "sh",
    "bash",
    "dash",
    "env",
    "true",
    "false",
    "test",
    "[",
    "echo",
    "printf",
    "sleep",
    "seq",
    "nohup",
    "setsid",
    "yes",
    "kill",
    "timeout",
    "xargs",
    "which",
    "nproc",
    "uname",
    "id",
    "whoami",
    "hostname",
    "date",
    "expr",
    "bc",
    "ps",
    // Languages.
    "python3",
    "python",
    "node",
    "npm",
    "npx",
    "git",
    "curl",
    "jq",
    // Files.
    "ls",
    "cat",
    "cp",
    "mv",
    "rm",
    "mkdir",
    "rmdir",
    "touch",
    "ln",
    "chmod",
    "stat",
    "file",
    "find",
    "du",
    "df",
    "tree",
    "pwd",
    "basename",
    "dirname",
    "realpath",
    "readlink",
    "mktemp",
    "dd",
    "truncate",
    "install",
    "tar",
    "gzip",
    "gunzip",
    "zcat",
    "bzip2",
    "xz",
    "zip",
    "unzip",
    "zstd",
    "sha256sum",
    "sha1sum",
    "md5sum",
    "cksum",
    "base64",
    "cmp",
    "diff",
    "patch",
    // Text.
    "grep",
    "egrep",
    "fgrep",
    "rg",
    "fd",
    "sed",
    "awk",
    "gawk",
    "mawk",
    "perl",
    "sort",
    "uniq",
    "head",
    "tail",
    "wc",
    "cut",
    "paste",
    "join",
    "comm",
    "tr",
    "tee",
    "tac",
    "rev",
    "nl",
    "fold",
    "fmt",
    "column",
    "expand",
    "split",
    "csplit",
    "od",
    "xxd",
    "hexdump",
    "strings",
    "less",
    // Language servers.
    "rust-analyzer",
    "gopls",
    "typescript-language-server",
    "tsc",
    "pyright",
    "pyright-langserver",
    "pylsp",
    "clangd",
    "bash-language-server",
    "yaml-language-server",
    "vscode-json-language-server",
    "vscode-html-language-server",
    "vscode-css-language-server",
    // The builds that they run.
    "cargo",
    "rustc",
    "rustfmt",
    "go",
    "gofmt",
    "make",
    "cc",
    "gcc",
    "ld",
    "as",
    "ar",
];

/// What commands may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Programs {
    /// Any program.
    Any,
    /// These, all of them there. With none there is nothing to offer.
    These(Vec<String>),
}

impl Programs {
    /// Those of a place's spec, or without one the usual.
    ///
    /// # Errors
    /// A spec that can't be read, or grants what can't be granted. Without a spec: that
    /// none of the usual programs is there, or may be listed.
    pub fn of(place: &Place, caller: &Caller) -> Result<Programs, Error> {
        let Some(spec) = &place.spec else {
            return usual(place, caller).map(Programs::These);
        };
        let file = SpecFile::read(spec, caller)?;
        if file.spec.commands.allow.contains(&Program::Any) {
            return Ok(Programs::Any);
        }
        let grants = file.grants(&Spec::default(), caller)?;
        let there = grants.commands.allow.into_iter().filter(|program| program.real.is_some());
        let written = there.map(|program| shown::word(program.typed.written()));
        Ok(Programs::These(written.collect()))
    }

    /// Whether there is anything to run.
    #[must_use]
    pub fn any(&self) -> bool {
        !matches!(self, Programs::These(programs) if programs.is_empty())
    }

    /// The programs in words.
    #[must_use]
    pub fn described(&self) -> String {
        match self {
            Programs::Any => "any program that is on this computer".into(),
            Programs::These(programs) => programs.join(", "),
        }
    }
}

/// The usual programs that are there and may be listed.
fn usual(place: &Place, caller: &Caller) -> Result<Vec<String>, Error> {
    let mounts = Mounts::parse(&std::fs::read("/proc/self/mountinfo").unwrap_or_default());
    let (files, work) = (place.files.clone(), place.work());
    let finder = Finder::new(caller, &mounts, vec![work], vec![files]);
    let find = |name: &str| finder.find(&Program::Name(name.to_string()));
    let is_there = |name: &&&str| matches!(find(name), Ok(Found::Program(_)));
    let there: Vec<String> =
        DEFAULTS.iter().filter(is_there).map(|name| (*name).to_string()).collect();
    match find(DEFAULTS[0]) {
        Err(why) | Ok(Found::Nothing(why)) if there.is_empty() => {
            Err(Error::Refused(format!("none of the usual programs can run: {why}")))
        }
        _ => Ok(there),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Whose;

    #[test]
    fn why_none_of_the_usual_programs_can_run_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let whose =
            Whose::Folder { folder: folder.path().into(), spec: None, server: std::process::id() };
        let place = Place::of_folder(whose, folder.path().into(), None);
        let with_path = |path: &str| {
            let caller = Caller {
                env: [("PATH".into(), path.into())].into(),
                cwd: "/".into(),
                own_binary: "/bin/true".into(),
                uid: 0,
                gid: 0,
            };
            Programs::of(&place, &caller)
        };
        assert!(with_path(SYSTEM_PATH).unwrap().any());
        let why = with_path("/nowhere").unwrap_err().to_string();
        assert!(why.starts_with("none of the usual programs can run: "), "{why}");
    }

    #[test]
    fn each_usual_program_is_one_name_and_listed_once() {
        for (at, name) in DEFAULTS.iter().enumerate() {
            assert!(matches!(Program::try_from(name.as_ref()), Ok(Program::Name(_))), "{name}");
            assert!(!DEFAULTS[..at].contains(name), "{name} twice");
        }
    }
}
