//! What is timed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;

/// Dot files of a write folder that are protected where they exist.
const DOT_FOLDERS: [&str; 10] = [
    ".vscode",
    ".idea",
    ".husky",
    ".claude",
    ".cursor",
    ".zed",
    ".devcontainer",
    ".githooks",
    ".git/hooks",
    ".git/objects",
];
const DOT_FILES: [&str; 9] = [
    ".envrc",
    ".mcp.json",
    ".exrc",
    ".nvim.lua",
    ".nvimrc",
    ".mise.toml",
    "mise.toml",
    ".pre-commit-config.yaml",
    ".git/description",
];

/// Where Link Run finds programs by their names.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// One command that is timed.
#[derive(Debug)]
pub struct Case {
    /// As the table says it.
    pub name: &'static str,
    /// What it must reach and what it aims for, against bare bubblewrap.
    pub limit: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
    env: Option<(&'static str, &'static str)>,
}

impl Case {
    /// `lnk sandbox run` of `/bin/true` with these flags, by the system's PATH.
    pub fn of_lnk(name: &'static str, lnk: &Path, flags: &[String], folder: &Path) -> Case {
        let flags = flags.iter().map(String::as_str).collect::<Vec<_>>();
        Case { name, env: Some(("PATH", SYSTEM_PATH)), ..lnk_case(lnk, &flags, folder) }
    }

    /// The command, from its own folder and with nothing to say.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(&self.folder).stdin(Stdio::null());
        command.envs(self.env).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// The same case, running another program.
    pub fn with_program(&self, program: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        let own = self.arguments.len() - 1;
        command.args(&self.arguments[..own]).args(program).current_dir(&self.folder);
        command.envs(self.env).stdin(Stdio::null());
        command
    }
}

/// The cases, bare bubblewrap first; peers that aren't installed are left out.
pub fn all(lnk: &Path, home: &Path) -> Result<Vec<Case>> {
    let folders = Folders::make(home)?;
    let mut cases = vec![
        bare(&folders.plain),
        Case {
            name: "`--read .`",
            limit: "≤ 1.5, aim 1.3",
            ..lnk_case(lnk, &["--read", "."], &folders.plain)
        },
        Case {
            name: "`--read . --internet-host '*'`: with a wire",
            limit: "≤ 1.7, aim 1.5",
            ..lnk_case(lnk, &["--read", ".", "--internet-host", "*"], &folders.plain)
        },
        Case {
            name: "… and `--tcp db.example.com:5432`: with DNS",
            limit: "≤ 1.7, aim 1.5",
            ..lnk_case(
                lnk,
                &[
                    "--read",
                    ".",
                    "--internet-host",
                    "db.example.com",
                    "--tcp",
                    "db.example.com:5432",
                ],
                &folders.plain,
            )
        },
        Case {
            name: "`--read . --command true`",
            ..lnk_case(lnk, &["--read", ".", "--command", "true"], &folders.plain)
        },
        Case {
            name: "`--read '~' --write .`, every dot file there",
            limit: "≤ 2, aim 1.7",
            ..lnk_case(lnk, &["--read", "~", "--write", "."], &folders.repository)
        },
        Case {
            name: "`--read '~' --write .`, none there",
            ..lnk_case(lnk, &["--read", "~", "--write", "."], &folders.empty)
        },
        Case {
            name: "`--read .`, mounts by bubblewrap",
            env: Some(("LNK_SANDBOX_MOUNTS", "bwrap")),
            ..lnk_case(lnk, &["--read", "."], &folders.plain)
        },
        Case {
            name: "`--read '~' --write .`, every dot file, mounts by bubblewrap",
            env: Some(("LNK_SANDBOX_MOUNTS", "bwrap")),
            ..lnk_case(lnk, &["--read", "~", "--write", "."], &folders.repository)
        },
        Case {
            name: "`lnk --version` (no sandbox)",
            arguments: vec!["--version".into()],
            ..lnk_case(lnk, &[], &folders.plain)
        },
        Case {
            name: "`/bin/true` alone",
            program: "/bin/true".into(),
            arguments: Vec::new(),
            ..lnk_case(lnk, &[], &folders.plain)
        },
    ];
    cases.extend(peers(&folders.plain));
    Ok(cases)
}

/// `--read .` where only `true` and `own`, a program of the folder's, may run.
pub fn listed(lnk: &Path, own: &Path, home: &Path) -> Case {
    let own = own.to_string_lossy();
    let flags = ["--read", ".", "--command", "true", "--command", &own];
    Case { name: "`--read .` with a list", ..lnk_case(lnk, &flags, &Folders::of(home).plain) }
}

/// Bubblewrap with the flags that a sandbox starts from and the system's
/// programs: what nobody who uses it can do without.
fn bare(folder: &Path) -> Case {
    let here = folder.to_string_lossy();
    let mut arguments = "--unshare-user --unshare-ipc --unshare-pid --unshare-net --unshare-uts \
        --unshare-cgroup-try --disable-userns --die-with-parent --cap-drop ALL --clearenv \
        --setenv PATH /usr/bin:/bin --hostname bare --ro-bind /usr /usr"
        .split_whitespace()
        .map(str::to_owned)
        .collect::<Vec<_>>();
    for name in ["bin", "sbin", "lib", "lib64"] {
        match fs::read_link(Path::new("/").join(name)) {
            Ok(to) => arguments.extend([
                "--symlink".into(),
                to.to_string_lossy().into(),
                format!("/{name}"),
            ]),
            Err(_) => {
                arguments.extend(["--ro-bind-try".into(), format!("/{name}"), format!("/{name}")])
            }
        }
    }
    arguments.extend("--proc /proc --dev /dev --tmpfs /tmp".split(' ').map(str::to_owned));
    arguments.extend(["--bind", &here, &here, "--chdir", &here, "/bin/true"].map(str::to_owned));
    Case {
        name: "bare bubblewrap",
        limit: "1",
        program: "bwrap".into(),
        arguments,
        folder: folder.into(),
        env: None,
    }
}

fn lnk_case(lnk: &Path, flags: &[&str], folder: &Path) -> Case {
    let arguments = ["sandbox", "run"].iter().chain(flags).chain(&["--", "/bin/true"]);
    Case {
        name: "",
        limit: "",
        program: lnk.into(),
        arguments: arguments.map(|&argument| argument.to_owned()).collect(),
        folder: folder.into(),
        env: None,
    }
}

/// Sandboxes by others, as closed as they come with one flag.
fn peers(folder: &Path) -> Vec<Case> {
    const PEERS: [(&str, &str, &str); 5] = [
        ("firejail", "firejail", "--quiet --noprofile --net=none -- /bin/true"),
        ("nsjail", "nsjail", "-Mo -Q -c / -- /bin/true"),
        ("sandlock", "sandlock", "run -r /usr -r /lib -r /lib64 -r /bin -r /etc -- /bin/true"),
        ("nono", "nono", "run --silent --block-net --allow . -- /bin/true"),
        ("srt", "srt", "/bin/true"),
    ];
    let installed = PEERS.iter().filter(|(_, program, _)| is_on_path(program));
    let case = |&(name, program, arguments): &(&'static str, &str, &str)| Case {
        name,
        limit: "",
        program: program.into(),
        arguments: arguments.split(' ').map(str::to_owned).collect(),
        folder: folder.into(),
        env: None,
    };
    installed.map(case).collect()
}

/// Whether a program is installed.
pub fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Folders to run in, in a home with a few dozen names.
struct Folders {
    plain: PathBuf,
    repository: PathBuf,
    empty: PathBuf,
}

impl Folders {
    fn make(home: &Path) -> Result<Folders> {
        for number in 0..20 {
            fs::create_dir_all(home.join(format!("folder-{number}")))?;
            fs::write(home.join(format!(".setting-{number}")), "x\n")?;
        }
        for name in [".ssh", ".config/git", ".cache", ".local/bin", "Link/Agents"] {
            fs::create_dir_all(home.join(name))?;
        }
        fs::write(home.join(".gitconfig"), "[user]\n\tname = A\n\temail = a@example.org\n")?;
        let folders = Folders::of(home);
        for folder in [&folders.plain, &folders.repository, &folders.empty] {
            fs::create_dir_all(folder)?;
        }
        repository(&folders.repository)?;
        Ok(folders)
    }

    fn of(home: &Path) -> Folders {
        Folders {
            plain: home.join("plain"),
            repository: home.join("repository"),
            empty: home.join("empty"),
        }
    }
}

/// A repository as `git init` leaves it, and every protected dot file.
fn repository(at: &Path) -> Result<()> {
    for name in DOT_FOLDERS.iter().chain(&[".git/refs/heads", ".git/refs/tags", ".git/info"]) {
        fs::create_dir_all(at.join(name))?;
    }
    for name in DOT_FILES {
        fs::write(at.join(name), "")?;
    }
    fs::write(at.join(".git/HEAD"), "ref: refs/heads/main\n")?;
    fs::write(
        at.join(".git/config"),
        "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n",
    )?;
    Ok(())
}
