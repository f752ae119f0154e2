//! What commands may run, of what is there.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use lnk_sandbox::mountinfo::Mounts;
use lnk_sandbox::nearest::nearest;
use lnk_sandbox::programs::{Finder, Found};
use lnk_sandbox::shown;
use lnk_sandbox::spec::Spec;
use lnk_sandbox::spec::program::Program;
use lnk_sandbox::spec_file::SpecFile;
use lnk_sandbox::{Caller, Error};

use crate::place::Place;
use crate::quoted::quoted;

/// Where programs are found by their names: the system's own folders, whatever PATH
/// a client was started with.
pub const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The most arguments that are shown.
const MOST_ARGS: usize = 8;

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

/// What some of them start themselves, and the folders where that may be: in them, or two
/// folders deep. Each alone: a folder of them is looked through whole for every call.
const HELPERS: [(&[&str], &[&str], &[&str]); 3] = [
    (
        &["cc", "gcc"],
        &["cc1", "cc1plus", "collect2", "lto1", "lto-wrapper"],
        &["/usr/lib/gcc", "/usr/libexec/gcc", "/usr/local/lib/gcc", "/usr/local/libexec/gcc"],
    ),
    (
        &["git"],
        &[
            "git",
            "git-remote-http",
            "git-remote-https",
            "git-upload-pack",
            "git-receive-pack",
            "git-submodule",
        ],
        &["/usr/lib/git-core", "/usr/libexec/git-core", "/usr/local/libexec/git-core"],
    ),
    (&["rustc"], &["rust-lld"], &["/usr/lib/rustlib", "/usr/local/lib/rustlib"]),
];

/// What commands may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Programs {
    /// Any program.
    Any,
    /// These. With none that is there, there is nothing to offer.
    These {
        /// Those that are there.
        there: Vec<String>,
        /// Those that a spec lists and aren't.
        missing: Vec<String>,
    },
}

impl Programs {
    /// Those of a place's spec, or without one the usual.
    ///
    /// # Errors
    /// A spec that can't be read, or grants what can't be granted. Without a spec: that
    /// none of the usual programs is there, or may be listed.
    pub fn of(place: &Place, caller: &Caller) -> Result<Programs, Error> {
        let Some(spec) = &place.spec else {
            let there = usual(&[place.work()], std::slice::from_ref(&place.files), caller)?;
            return Ok(Programs::These { there, missing: Vec::new() });
        };
        let file = SpecFile::read(spec, caller)?;
        if file.spec.commands.allow.contains(&Program::Any) {
            return Ok(Programs::Any);
        }
        let grants = file.grants(&Spec::default(), caller)?;
        let (mut there, mut missing) = (Vec::new(), Vec::new());
        for program in grants.commands.allow {
            let list = if program.real.is_some() { &mut there } else { &mut missing };
            list.push(shown::word(program.typed.written()));
        }
        Ok(Programs::These { there, missing })
    }

    /// The line for listed programs that aren't there.
    #[must_use]
    pub fn missing_line(&self) -> Option<String> {
        let Programs::These { there, missing } = self else { return None };
        if missing.is_empty() {
            return None;
        }
        let which = if there.is_empty() { "none of the listed programs is" } else { "not" };
        Some(format!(
            "[commands] allow: {which} there: {}; install it, or list it by its path and open its \
             folder with read in [files]",
            missing.join(", ")
        ))
    }

    /// Why there is nothing to run, where that is so.
    #[must_use]
    pub fn why_none(&self) -> Option<String> {
        match self {
            Programs::These { there, missing } if there.is_empty() => Some(match &missing[..] {
                [] => "its sandbox file lists none under [commands] allow".into(),
                _ => format!(
                    "none of those that its sandbox file lists under [commands] allow is there: {}",
                    missing.join(", ")
                ),
            }),
            _ => None,
        }
    }

    /// Whether there is anything to run.
    #[must_use]
    pub fn any(&self) -> bool {
        self.why_none().is_none()
    }

    /// The programs in words.
    #[must_use]
    pub fn described(&self) -> String {
        match self {
            Programs::Any => "any program that is on this computer".into(),
            Programs::These { there, .. } => there.join(", "),
        }
    }
}

/// What runs where there is no spec, as one.
///
/// # Errors
/// None of them is there, or may be listed.
pub fn usual_spec(caller: &Caller) -> Result<Spec, Error> {
    let there = usual(&[], &[], caller)?;
    let helpers = helpers_of(&there, &[], &[], caller);
    let entries = there.iter().chain(&helpers).filter_map(|entry| entry.parse().ok());
    let mut spec = Spec::default();
    spec.commands.allow = entries.collect();
    Ok(spec)
}

/// The usual programs that are there and may be listed.
fn usual(writable: &[PathBuf], opened: &[PathBuf], caller: &Caller) -> Result<Vec<String>, Error> {
    let mounts = mounts();
    let finder = Finder::new(caller, &mounts, writable.to_vec(), opened.to_vec());
    let is_there = |name: &&&str| program(&finder, name).is_some();
    let there: Vec<String> =
        DEFAULTS.iter().filter(is_there).map(|name| (*name).to_string()).collect();
    match finder.find(&Program::Name(DEFAULTS[0].to_string())) {
        Err(why) | Ok(Found::Nothing(why)) if there.is_empty() => {
            Err(Error::Refused(format!("none of the usual programs can run: {why}")))
        }
        _ => Ok(there),
    }
}

/// What usual programs start themselves, such as a compiler's parts, as entries of a
/// list. One that may not be listed is left out, and named when it is
/// needed.
#[must_use]
pub fn helpers(names: &[String], place: &Place, caller: &Caller) -> Vec<String> {
    helpers_of(names, &[place.work()], std::slice::from_ref(&place.files), caller)
}

fn helpers_of(
    names: &[String],
    writable: &[PathBuf],
    opened: &[PathBuf],
    caller: &Caller,
) -> Vec<String> {
    let mounts = mounts();
    let finder = Finder::new(caller, &mounts, writable.to_vec(), opened.to_vec());
    let of_names = HELPERS.iter().filter(|(of, ..)| names.iter().any(|it| of.contains(&&**it)));
    let fixed = of_names.flat_map(|(_, parts, folders)| {
        let folders = folders.iter().flat_map(|folder| two_deep(Path::new(folder)));
        folders.flat_map(|folder| parts.iter().map(move |part| folder.join(part)))
    });
    let fixed = fixed.filter(|path| path.exists());
    let fixed = fixed.filter_map(|path| path.to_str().map(str::to_owned));
    // Each version of Go has its tools beside its program.
    let go = names.iter().find(|name| *name == "go").and_then(|name| program(&finder, name));
    let go = go.and_then(|go| Some(go.parent()?.parent()?.join("pkg/tool/")));
    let go = go.and_then(|folder| folder.to_str().map(str::to_owned));
    let is_there = |entry: &String| {
        // Entries are told to supervisors with commas between.
        let program = Program::try_from(entry.as_ref()).ok().filter(|_| !entry.contains(','));
        let found = program.and_then(|program| finder.find(&program).ok());
        matches!(found, Some(Found::Program(_) | Found::Folder { .. }))
    };
    fixed.chain(go).filter(is_there).collect()
}

/// A folder, those in it, and those in them.
fn two_deep(folder: &Path) -> Vec<PathBuf> {
    let below = |folder: &PathBuf| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|it| it.is_dir()));
        folders.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let itself = vec![folder.to_path_buf()];
    let one: Vec<PathBuf> = itself.iter().flat_map(below).collect();
    let two: Vec<PathBuf> = one.iter().flat_map(below).collect();
    [itself, one, two].concat()
}

/// The line for a program that is nowhere; `None` where one is by its name or path.
/// `offered` are those that may run, any without.
#[must_use]
pub fn not_found(
    program: &[OsString],
    offered: Option<&[Program]>,
    caller: &Caller,
) -> Option<String> {
    let name = program.first()?.to_str()?;
    if is_there(name, caller) {
        return None;
    }
    let mut words = name.split_whitespace();
    let first = words.next().filter(|first| *first != name && is_there(first, caller));
    if let Some(first) = first {
        let given = program[1..].iter().filter_map(|word| word.to_str());
        let args: Vec<_> = words.chain(given).take(MOST_ARGS).map(quoted).collect();
        return Some(format!(
            "no program {}: program is its name, args its arguments: program {}, args [{}]",
            quoted(name),
            quoted(first),
            args.join(", ")
        ));
    }
    if name.contains('/') {
        return Some(format!(
            "{}: not found: there is no such file from the folder that it runs in, {}",
            quoted(name),
            shown::word(&caller.cwd)
        ));
    }
    let offered = match offered {
        Some(entries) => entries
            .iter()
            .filter_map(|it| it.written().into_os_string().into_string().ok())
            .collect(),
        None => names_on_path(),
    };
    Some(match nearest(name, offered.iter().map(String::as_str)) {
        Some(meant) => format!("no program {}: not found: did you mean {meant}?", quoted(name)),
        None => format!(
            "no program {}: not found on this computer: use one that may run, which the tool's \
             description names, or have it installed",
            quoted(name)
        ),
    })
}

/// Whether a file has this name or path, as far as that can be told outside.
fn is_there(name: &str, caller: &Caller) -> bool {
    if name.contains('/') {
        let path = caller.cwd.join(name);
        // What is there inside is another's.
        let is_of_sandbox = ["/tmp", "/proc", "/dev", "/run"].iter().any(|it| path.starts_with(it));
        return is_of_sandbox || path.symlink_metadata().is_ok();
    }
    std::env::split_paths(SYSTEM_PATH).any(|folder| folder.join(name).exists())
}

fn names_on_path() -> Vec<String> {
    let entries = std::env::split_paths(SYSTEM_PATH).filter_map(|it| std::fs::read_dir(it).ok());
    let names = entries.flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.into_string().ok()).collect()
}

fn mounts() -> Mounts {
    Mounts::parse(&std::fs::read("/proc/self/mountinfo").unwrap_or_default())
}

/// The real path of a program that may be listed.
fn program(finder: &Finder<'_>, name: &str) -> Option<PathBuf> {
    match finder.find(&Program::Name(name.to_string())) {
        Ok(Found::Program(listed)) => Some(listed.real),
        _ => None,
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
