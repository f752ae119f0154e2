//! What helps against a cause: commands, and who should decide to run them.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use lnk_spec::shown::{escaped, word};

use super::cause::Cause;
use super::machine::{Machine, PackageManager};
use crate::linux::bwrap_path::NotFound;

/// Where our AppArmor profile goes.
const PROFILE: &str = "/etc/apparmor.d/lnk-bwrap";

/// Where a link to a profile keeps it from being loaded, apparmor_parser(8).
const DISABLED: &str = "/etc/apparmor.d/disable/";

/// Where programs that change the system are looked for; never the caller's
/// `PATH`, which may name folders that others write.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What helps against a [`Cause`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fix {
    /// What to do, or what the steps do and open: one sentence.
    pub what: String,
    /// The commands that do it; none where it can't be done by a command here.
    pub steps: Vec<Step>,
    /// Whether `lnk` offers to run the steps itself. Otherwise they change more
    /// than the sandbox needs, and are the reader's own to decide.
    pub offered: bool,
}

/// One command, as root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    argv: Vec<OsString>,
    stdin: Option<String>,
}

impl Step {
    /// The command as typed in a shell, a line each.
    pub fn lines(&self) -> Vec<String> {
        let command = self.argv.iter().map(word).collect::<Vec<_>>().join(" ");
        match &self.stdin {
            None => vec![command],
            Some(text) => std::iter::once(format!("{command} >/dev/null <<'END'"))
                .chain(text.lines().map(str::to_owned))
                .chain(["END".to_owned()])
                .collect(),
        }
    }

    /// Runs it, `sudo` asking for its password on the terminal. It gets nothing
    /// of the caller's input, which is the program's to be run, and what it
    /// prints goes to stderr.
    ///
    /// # Errors
    /// Where it can't be started or doesn't end with success.
    pub fn run(&self) -> io::Result<()> {
        let (program, args) = self.argv.split_first().expect("every step has a program");
        let mut command = Command::new(program);
        command.args(args).env("PATH", SYSTEM_PATH).stdin(Stdio::null());
        command.stdout(io::stderr().as_fd().try_clone_to_owned()?);
        if self.stdin.is_some() {
            command.stdin(Stdio::piped()).stdout(Stdio::null());
        }
        let mut child = command.spawn()?;
        if let (Some(text), Some(mut pipe)) = (&self.stdin, child.stdin.take()) {
            // One that ends early tells so by its status.
            let _ = pipe.write_all(text.as_bytes());
        }
        let status = child.wait()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(status.to_string())) }
    }
}

impl Cause {
    /// What helps on this machine.
    pub fn fix(&self, machine: &Machine) -> Fix {
        match self {
            Self::Bwrap(NotFound::Missing) => install(machine),
            Self::Bwrap(NotFound::Untrusted { .. }) => {
                advice("install your system's own, or make it root's alone to write")
            }
            Self::TooOld { .. } => {
                advice("upgrade it: Debian 12, Ubuntu 23.04, Fedora 38 and newer systems have one")
            }
            Self::Setuid(path) => decide(
                "the sandbox needs no setuid bit where ordinary users may make user namespaces",
                vec![as_root(machine, [OsStr::new("chmod"), OsStr::new("u-s"), path.as_os_str()])],
            ),
            Self::NoNotification { .. } => {
                advice("run it on a Linux kernel of its own, such as WSL 2 or a virtual machine")
            }
            Self::Landlock(_) => advice("end whatever filters system calls around it"),
            Self::NoUserNamespaces { .. } => advice("use a kernel built with CONFIG_USER_NS"),
            Self::UserNamespacesOff => decide(
                "this lets every user of this machine make user namespaces, until it restarts",
                vec![as_root(machine, ["sysctl", "-w", "kernel.unprivileged_userns_clone=1"])],
            ),
            Self::UserNamespaceLimit(Some(0)) => decide(
                "this lets user namespaces be made on this machine, until it restarts",
                vec![as_root(machine, ["sysctl", "-w", "user.max_user_namespaces=15000"])],
            ),
            Self::UserNamespaceLimit(_) => {
                advice("end other sandboxes and containers, or raise user.max_user_namespaces")
            }
            Self::AppArmor(bwrap) => apparmor_profile(machine, bwrap),
            Self::OtherProfile(profile) => disable_profile(machine, profile),
            Self::ContainerFilter => advice(
                "start the container with --security-opt seccomp=unconfined, or with a filter \
                 that lets it make user namespaces",
            ),
            Self::CoveredProc => {
                advice("start the container with --security-opt systempaths=unconfined")
            }
            Self::ContainerMounts => {
                advice("start the container with --security-opt apparmor=unconfined")
            }
            Self::Refused(_) => advice(
                "look for a security policy of this machine (AppArmor, SELinux, a container's) \
                 that keeps bubblewrap from making user namespaces",
            ),
            Self::TooLate => advice("try again when the machine is less busy"),
            Self::NotRun(_) | Self::Other(_) => {
                advice("see whether 'bwrap --ro-bind / / true' works, and install it again")
            }
        }
    }
}

fn advice(what: &str) -> Fix {
    Fix { what: what.into(), steps: Vec::new(), offered: false }
}

fn decide(what: &str, steps: Vec<Step>) -> Fix {
    Fix { what: what.into(), steps, offered: false }
}

/// A command that becomes root by itself: with sudo, but for root.
fn as_root<S: AsRef<OsStr>>(machine: &Machine, argv: impl IntoIterator<Item = S>) -> Step {
    let mut whole: Vec<OsString> = Vec::new();
    if !machine.root {
        whole.push("sudo".into());
    }
    whole.extend(argv.into_iter().map(|word| word.as_ref().to_owned()));
    Step { argv: whole, stdin: None }
}

/// Only who is root or has sudo can be offered to run a step.
fn can_be_root(machine: &Machine) -> bool {
    machine.root || machine.sudo
}

fn install(machine: &Machine) -> Fix {
    let command: &[&str] = match machine.packages {
        Some(PackageManager::Apt) => &["apt-get", "install", "-y", "bubblewrap"],
        Some(PackageManager::Dnf) => &["dnf", "install", "-y", "bubblewrap"],
        Some(PackageManager::Pacman) => &["pacman", "-S", "--noconfirm", "bubblewrap"],
        Some(PackageManager::Zypper) => &["zypper", "--non-interactive", "install", "bubblewrap"],
        Some(PackageManager::Apk) => &["apk", "add", "bubblewrap"],
        None => return advice("install bubblewrap with your system's package manager"),
    };
    let mut steps = vec![as_root(machine, command)];
    if machine.packages == Some(PackageManager::Apt) && machine.apt_lists_empty {
        steps.insert(0, as_root(machine, ["apt-get", "update"]));
    }
    Fix { what: "this installs bubblewrap".into(), steps, offered: can_be_root(machine) }
}

/// Lets bubblewrap, and through it every user, make user namespaces again, as
/// before Ubuntu 23.10.
fn apparmor_profile(machine: &Machine, bwrap: &Path) -> Fix {
    let path = escaped(bwrap.as_os_str().as_bytes());
    if !is_plain(&path) {
        return advice("install your system's own bubblewrap, in /usr/bin");
    }
    let text = format!(
        "abi <abi/4.0>,\n\
         include <tunables/global>\n\
         profile lnk-bwrap {path} flags=(unconfined) {{\n\
         \x20 userns,\n\
         \x20 include if exists <local/lnk-bwrap>\n\
         }}\n"
    );
    let write = Step { stdin: Some(text), ..as_root(machine, ["tee", PROFILE]) };
    Fix {
        what: format!(
            "this adds a profile that lets {path}, whoever on this machine runs it, make user \
             namespaces"
        ),
        steps: vec![write, as_root(machine, ["apparmor_parser", "-r", PROFILE])],
        offered: can_be_root(machine),
    }
}

fn disable_profile(machine: &Machine, profile: &Path) -> Fix {
    let disable = [OsStr::new("ln"), OsStr::new("-s"), profile.as_os_str(), OsStr::new(DISABLED)];
    let unload = [OsStr::new("apparmor_parser"), OsStr::new("-R"), profile.as_os_str()];
    decide(
        "two profiles for one program conflict, so that one has to go first: then run \
         lnk sandbox ready again",
        vec![as_root(machine, disable), as_root(machine, unload)],
    )
}

/// Whether a path means only itself in an AppArmor profile, where many
/// characters stand for others.
fn is_plain(path: &str) -> bool {
    path.chars().all(|c| c.is_ascii_alphanumeric() || "/._+-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::super::machine::Version;
    use super::super::machine::tests::good_machine;
    use super::*;

    fn text(fix: &Fix) -> String {
        let lines: Vec<_> = fix.steps.iter().flat_map(Step::lines).collect();
        format!("{} [offered: {}]\n{}", fix.what, fix.offered, lines.join("\n"))
    }

    fn missing() -> Cause {
        Cause::Bwrap(NotFound::Missing)
    }

    #[test]
    fn bubblewrap_is_installed_as_the_system_does() {
        let command = |packages| {
            let fix = missing().fix(&Machine { packages, ..good_machine() });
            assert_eq!(fix.offered, packages.is_some());
            fix.steps.iter().flat_map(Step::lines).collect::<Vec<_>>().join("; ")
        };
        insta::assert_snapshot!(command(Some(PackageManager::Apt)), @"sudo apt-get install -y bubblewrap");
        insta::assert_snapshot!(command(Some(PackageManager::Dnf)), @"sudo dnf install -y bubblewrap");
        insta::assert_snapshot!(command(Some(PackageManager::Pacman)), @"sudo pacman -S --noconfirm bubblewrap");
        insta::assert_snapshot!(command(Some(PackageManager::Zypper)), @"sudo zypper --non-interactive install bubblewrap");
        insta::assert_snapshot!(command(Some(PackageManager::Apk)), @"sudo apk add bubblewrap");
        assert_eq!(command(None), "");
    }

    #[test]
    fn root_needs_no_sudo_and_nobody_is_offered_what_cant_run() {
        let root = Machine { root: true, sudo: false, apt_lists_empty: true, ..good_machine() };
        insta::assert_snapshot!(text(&missing().fix(&root)), @r#"
        this installs bubblewrap [offered: true]
        apt-get update
        apt-get install -y bubblewrap
        "#);
        let user = Machine { sudo: false, ..good_machine() };
        assert!(!missing().fix(&user).offered);
    }

    #[test]
    fn the_profile_is_shown_whole() {
        let fix = Cause::AppArmor("/usr/bin/bwrap".into()).fix(&good_machine());
        insta::assert_snapshot!(text(&fix), @r#"
        this adds a profile that lets /usr/bin/bwrap, whoever on this machine runs it, make user namespaces [offered: true]
        sudo tee /etc/apparmor.d/lnk-bwrap >/dev/null <<'END'
        abi <abi/4.0>,
        include <tunables/global>
        profile lnk-bwrap /usr/bin/bwrap flags=(unconfined) {
          userns,
          include if exists <local/lnk-bwrap>
        }
        END
        sudo apparmor_parser -r /etc/apparmor.d/lnk-bwrap
        "#);
    }

    #[test]
    fn what_opens_more_than_the_sandbox_needs_is_left_to_the_reader() {
        let machine = good_machine();
        let profile = "/etc/apparmor.d/bwrap-userns-restrict".into();
        insta::assert_snapshot!(text(&Cause::OtherProfile(profile).fix(&machine)), @r#"
        two profiles for one program conflict, so that one has to go first: then run lnk sandbox ready again [offered: false]
        sudo ln -s /etc/apparmor.d/bwrap-userns-restrict /etc/apparmor.d/disable/
        sudo apparmor_parser -R /etc/apparmor.d/bwrap-userns-restrict
        "#);
        insta::assert_snapshot!(text(&Cause::UserNamespacesOff.fix(&machine)), @r#"
        this lets every user of this machine make user namespaces, until it restarts [offered: false]
        sudo sysctl -w kernel.unprivileged_userns_clone=1
        "#);
        insta::assert_snapshot!(text(&Cause::UserNamespaceLimit(Some(0)).fix(&machine)), @r#"
        this lets user namespaces be made on this machine, until it restarts [offered: false]
        sudo sysctl -w user.max_user_namespaces=15000
        "#);
        insta::assert_snapshot!(text(&Cause::Setuid("/usr/bin/bwrap".into()).fix(&machine)), @r#"
        the sandbox needs no setuid bit where ordinary users may make user namespaces [offered: false]
        sudo chmod u-s /usr/bin/bwrap
        "#);
    }

    #[test]
    fn every_other_cause_has_words_and_no_commands() {
        let path = || "/usr/local/bin/bwrap".into();
        let kernel = || "4.4".to_owned();
        for cause in [
            Cause::Bwrap(NotFound::Untrusted { path: path(), why: "why".into() }),
            Cause::TooOld { path: path(), version: Some(Version(0, 6, 1)) },
            Cause::NoNotification { kernel: kernel() },
            Cause::Landlock("why".into()),
            Cause::NoUserNamespaces { kernel: kernel() },
            Cause::UserNamespaceLimit(Some(3)),
            Cause::ContainerFilter,
            Cause::CoveredProc,
            Cause::ContainerMounts,
            Cause::Refused("said".into()),
            Cause::TooLate,
            Cause::NotRun("why".into()),
            Cause::Other("said".into()),
        ] {
            let fix = cause.fix(&good_machine());
            assert!(!fix.what.is_empty() && fix.steps.is_empty() && !fix.offered, "{cause:?}");
        }
    }

    #[test]
    fn a_step_gets_its_text_and_tells_of_failure() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("profile");
        let argv = vec!["tee".into(), to.clone().into()];
        Step { argv, stdin: Some("text\n".into()) }.run().unwrap();
        assert_eq!(std::fs::read_to_string(to).unwrap(), "text\n");

        let fails = Step { argv: vec!["false".into()], stdin: None };
        assert!(fails.run().is_err());
        let absent = Step { argv: vec!["no-such-program".into()], stdin: None };
        assert!(absent.run().is_err());
    }

    #[test]
    fn a_path_with_strange_characters_stays_one_word() {
        let machine = good_machine();
        let fix = Cause::Setuid("/opt/it's here/bwrap".into()).fix(&machine);
        assert_eq!(fix.steps[0].lines(), ["sudo chmod u-s '/opt/it'\\''s here/bwrap'"]);
        let profile = Cause::AppArmor("/opt/* {/bwrap".into()).fix(&machine);
        assert!(profile.steps.is_empty(), "it would open more than that path");
    }
}
