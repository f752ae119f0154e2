//! What a machine's files and kernel tell about sandboxes on it.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fmt, fs, io};

use lnk_spec::shown::escaped;
use lnk_sys::landlock_abi;

use super::probe;
use crate::linux::bwrap_path::{self, NotFound};

/// How long `bwrap --version` may take: what it would say isn't worth more.
const VERSION_DEADLINE: Duration = Duration::from_secs(2);

/// The facts from which a cause is told. Each is `None` or `false` where its
/// file can't be read, which is how kernels without the feature have it.
#[derive(Debug)]
pub struct Machine {
    /// Run by root of this user namespace (effective id 0 in `/proc/self/status`).
    pub root: bool,
    /// `kernel.unprivileged_userns_clone`, of Debian's kernels.
    pub unprivileged_userns_clone: Option<u64>,
    /// `user.max_user_namespaces`, of this user namespace.
    pub max_user_namespaces: Option<u64>,
    /// Whether the kernel has user namespaces at all.
    pub user_namespaces: bool,
    /// `kernel.apparmor_restrict_unprivileged_userns` is 1 (Ubuntu 23.10 and newer).
    pub apparmor_restricts: bool,
    /// A file in `/etc/apparmor.d`, other than ours, with a profile for bubblewrap.
    pub other_profile: Option<PathBuf>,
    /// A seccomp filter holds this process (`Seccomp: 2`).
    pub filtered: bool,
    /// Inside a container of Docker, Podman or another manager.
    pub container: bool,
    /// The trusted bubblewrap.
    pub bwrap: Result<Bwrap, NotFound>,
    /// What installs programs here.
    pub packages: Option<PackageManager>,
    /// Whether apt has no list of packages yet, as in a fresh container.
    pub apt_lists_empty: bool,
    /// Whether there is a `sudo`.
    pub sudo: bool,
    /// The kernel's Landlock.
    pub landlock: Landlock,
    /// Whether seccomp can hand calls to a supervisor (Linux 5.0).
    pub user_notification: bool,
    /// The kernel's release, for messages.
    pub kernel: String,
}

/// The system's bubblewrap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bwrap {
    /// Its path without symlinks.
    pub path: PathBuf,
    /// Its version; `None` where it doesn't tell.
    pub version: Option<Version>,
    /// It has the set-user-ID bit.
    pub setuid: bool,
}

/// A version of bubblewrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// The kernel's Landlock.
#[derive(Debug)]
pub enum Landlock {
    /// There, with this ABI version.
    Abi(u32),
    /// The kernel is built without it (`ENOSYS`).
    NotBuilt,
    /// Built, and not among the `lsm=` of this boot (`EOPNOTSUPP`).
    OffAtBoot,
    /// Another answer, of a filter around this process for one.
    Failing(io::Error),
}

/// The package managers whose command for bubblewrap is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackageManager {
    /// Debian, Ubuntu and their kin.
    Apt,
    /// Fedora, RHEL and their kin.
    Dnf,
    /// Arch.
    Pacman,
    /// SUSE.
    Zypper,
    /// Alpine.
    Apk,
}

impl Machine {
    /// Looks at the machine whose files are under `root` (`/`, but for tests),
    /// asks the running kernel, and the bubblewrap found for its version.
    pub fn look(root: &Path) -> Self {
        let files = Files(root);
        let status = files.text("proc/self/status").unwrap_or_default();
        Self {
            root: status_field(&status, "Uid:", 1) == Some("0"),
            unprivileged_userns_clone: files.number("proc/sys/kernel/unprivileged_userns_clone"),
            max_user_namespaces: files.number("proc/sys/user/max_user_namespaces"),
            user_namespaces: files.has("proc/self/ns/user"),
            apparmor_restricts: files
                .number("proc/sys/kernel/apparmor_restrict_unprivileged_userns")
                .is_some_and(|value| value != 0),
            other_profile: other_profile(root),
            filtered: status_field(&status, "Seccomp:", 0) == Some("2"),
            container: [".dockerenv", "run/.containerenv", "run/systemd/container"]
                .iter()
                .any(|path| files.has(path)),
            bwrap: bwrap_path::find(root).map(look_at_bwrap),
            packages: files.text("etc/os-release").and_then(|text| package_manager(&text)),
            apt_lists_empty: apt_lists_empty(root),
            sudo: files.has("usr/bin/sudo"),
            landlock: landlock(),
            user_notification: lnk_sys::seccomp::user_notification_available(),
            kernel: files
                .text("proc/sys/kernel/osrelease")
                .map_or_else(|| "unknown".into(), |text| escaped(text.trim().as_bytes())),
        }
    }
}

struct Files<'a>(&'a Path);

impl Files<'_> {
    fn text(&self, path: &str) -> Option<String> {
        fs::read(self.0.join(path)).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.trim().parse().ok()
    }

    fn has(&self, path: &str) -> bool {
        fs::symlink_metadata(self.0.join(path)).is_ok()
    }
}

/// A word of a line of `/proc/self/status` (proc_pid_status(5)).
fn status_field<'a>(status: &'a str, key: &str, word: usize) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(key))?.split_whitespace().nth(word)
}

fn landlock() -> Landlock {
    match landlock_abi::version() {
        Ok(Some(abi)) => Landlock::Abi(abi),
        Ok(None) if landlock_abi::is_off_since_boot() => Landlock::OffAtBoot,
        Ok(None) => Landlock::NotBuilt,
        Err(error) => Landlock::Failing(error),
    }
}

fn look_at_bwrap(path: PathBuf) -> Bwrap {
    const SETUID: u32 = 0o4000;
    let setuid = fs::metadata(&path).is_ok_and(|meta| meta.mode() & SETUID != 0);
    let version = version_of(&path);
    Bwrap { path, version, setuid }
}

fn version_of(path: &Path) -> Option<Version> {
    let mut command = Command::new(path);
    command.arg("--version").env_clear();
    let said = probe::watch(command, VERSION_DEADLINE).ok()?;
    parse_version(&String::from_utf8_lossy(&said))
}

/// `bubblewrap 0.8.0`, as `bwrap --version` prints it; also `0.11`.
fn parse_version(text: &str) -> Option<Version> {
    let mut numbers = text.trim().strip_prefix("bubblewrap ")?.split('.');
    let major = numbers.next()?.parse().ok()?;
    let minor = numbers.next()?.parse().ok()?;
    let patch = numbers.next().map_or(Some(0), |text| text.parse().ok())?;
    Some(Version(major, minor, patch))
}

/// By `ID`, then by each of `ID_LIKE` (os-release(5)).
fn package_manager(os_release: &str) -> Option<PackageManager> {
    let value = |key: &str| {
        let line = os_release.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.trim().trim_matches(['"', '\'']).to_owned())
    };
    let ids = [value("ID="), value("ID_LIKE=")].into_iter().flatten().collect::<Vec<_>>().join(" ");
    ids.split_whitespace().find_map(|id| match id {
        "debian" | "ubuntu" => Some(PackageManager::Apt),
        "fedora" | "rhel" | "centos" => Some(PackageManager::Dnf),
        "arch" => Some(PackageManager::Pacman),
        "suse" | "opensuse" => Some(PackageManager::Zypper),
        "alpine" => Some(PackageManager::Apk),
        _ => None,
    })
}

fn apt_lists_empty(root: &Path) -> bool {
    fs::read_dir(root.join("var/lib/apt/lists")).is_ok_and(|lists| {
        !lists.flatten().any(|entry| entry.file_name().to_string_lossy().contains("_Packages"))
    })
}

/// A profile of the machine's own for bubblewrap: two for one path conflict.
/// One with a link in `disable` isn't loaded (apparmor_parser(8)).
fn other_profile(root: &Path) -> Option<PathBuf> {
    let folder = root.join("etc/apparmor.d");
    let mut names: Vec<_> =
        fs::read_dir(&folder).ok()?.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    names
        .into_iter()
        .filter(|name| name != "lnk-bwrap" && !folder.join("disable").join(name).exists())
        .filter(|name| {
            fs::read_to_string(folder.join(name)).is_ok_and(|text| attaches_to_bwrap(&text))
        })
        .map(|name| Path::new("/etc/apparmor.d").join(name))
        .next()
}

/// Whether a profile's head (apparmor.d(5)) names a path that ends in bwrap:
/// `profile bwrap /usr/bin/bwrap flags=(…) {`, or without the keyword.
fn attaches_to_bwrap(profile: &str) -> bool {
    profile.lines().map(str::trim).any(|line| {
        line.ends_with('{')
            && line.split_whitespace().any(|word| {
                let path = word.trim_matches('"');
                path.starts_with(['/', '@', '{']) && path.ends_with("bwrap")
            })
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use tempfile::TempDir;

    /// A machine where everything works, run by an ordinary user.
    pub(crate) fn good_machine() -> Machine {
        Machine {
            root: false,
            unprivileged_userns_clone: None,
            max_user_namespaces: Some(31_000),
            user_namespaces: true,
            apparmor_restricts: false,
            other_profile: None,
            filtered: false,
            container: false,
            bwrap: Ok(Bwrap {
                path: "/usr/bin/bwrap".into(),
                version: Some(Version(0, 8, 0)),
                setuid: false,
            }),
            packages: Some(PackageManager::Apt),
            apt_lists_empty: false,
            sudo: true,
            landlock: Landlock::Abi(7),
            user_notification: true,
            kernel: "6.18.0".into(),
        }
    }

    /// The machine whose files are these, by path under its root.
    fn machine(files: &[(&str, &str)]) -> Machine {
        let root = system(files);
        Machine::look(root.path())
    }

    fn system(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn an_empty_machine_has_nothing() {
        let machine = machine(&[]);
        assert_eq!(machine.bwrap, Err(NotFound::Missing));
        assert_eq!(machine.max_user_namespaces, None);
        assert_eq!(machine.unprivileged_userns_clone, None);
        assert!(!machine.user_namespaces && !machine.root && !machine.filtered);
        assert!(!machine.apparmor_restricts && !machine.container && !machine.sudo);
        assert_eq!(machine.packages, None);
    }

    #[test]
    fn each_fact_comes_from_its_file() {
        let machine = machine(&[
            ("proc/self/status", "Name:\tlnk\nUid:\t1001\t0\t0\t0\nSeccomp:\t2\n"),
            ("proc/self/ns/user", ""),
            ("proc/sys/kernel/unprivileged_userns_clone", "0\n"),
            ("proc/sys/user/max_user_namespaces", "12\n"),
            ("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n"),
            ("proc/sys/kernel/osrelease", "6.8.0-31-generic\n"),
            ("etc/os-release", "NAME=x\nID=ubuntu\nID_LIKE=debian\n"),
            (".dockerenv", ""),
            ("usr/bin/sudo", ""),
            ("var/lib/apt/lists/lock", ""),
        ]);
        assert!(machine.root && machine.filtered && machine.user_namespaces);
        assert_eq!(machine.unprivileged_userns_clone, Some(0));
        assert_eq!(machine.max_user_namespaces, Some(12));
        assert!(machine.apparmor_restricts && machine.container && machine.sudo);
        assert_eq!(machine.kernel, "6.8.0-31-generic");
        assert_eq!(machine.packages, Some(PackageManager::Apt));
        assert!(machine.apt_lists_empty);
    }

    #[test]
    fn the_files_of_podman_count_as_a_container() {
        assert!(machine(&[("run/.containerenv", "")]).container);
    }

    #[test]
    fn the_real_machine_can_be_looked_at() {
        let machine = Machine::look(Path::new("/"));
        assert_eq!(machine.root, rustix::process::geteuid().is_root());
        assert!(machine.max_user_namespaces.is_some());
        if let Ok(bwrap) = machine.bwrap {
            assert!(bwrap.version >= Some(Version(0, 1, 0)), "{bwrap:?}");
        }
    }

    #[test]
    fn versions_are_read_as_bubblewrap_prints_them() {
        assert_eq!(parse_version("bubblewrap 0.8.0\n"), Some(Version(0, 8, 0)));
        assert_eq!(parse_version("bubblewrap 0.11"), Some(Version(0, 11, 0)));
        for strange in ["", "bubblewrap", "bubblewrap x.1", "bubblewrap 1", "fake 0.8.0"] {
            assert_eq!(parse_version(strange), None, "{strange}");
        }
        assert!(Version(0, 11, 0) > Version(0, 8, 0));
    }

    #[test]
    fn kin_of_a_system_install_as_it_does() {
        let by = |text| package_manager(text);
        assert_eq!(by("ID=debian"), Some(PackageManager::Apt));
        assert_eq!(by("ID=linuxmint\nID_LIKE=\"ubuntu debian\""), Some(PackageManager::Apt));
        assert_eq!(by("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\""), Some(PackageManager::Dnf));
        assert_eq!(by("ID=arch"), Some(PackageManager::Pacman));
        assert_eq!(by("ID=opensuse-leap\nID_LIKE='suse opensuse'"), Some(PackageManager::Zypper));
        assert_eq!(by("ID=alpine"), Some(PackageManager::Apk));
        assert_eq!(by("ID=nixos"), None);
    }

    #[test]
    fn a_profile_of_the_machines_own_is_found() {
        let ubuntus = "# bwrap\nprofile bwrap /usr/bin/bwrap flags=(attach_disconnected) {\n}\n";
        let at = |path: &str, text: &str| system(&[(path, text)]);
        let found = |root: TempDir| other_profile(root.path());

        let theirs = Path::new("/etc/apparmor.d/bwrap-userns-restrict").to_owned();
        assert_eq!(found(at("etc/apparmor.d/bwrap-userns-restrict", ubuntus)), Some(theirs));
        assert_eq!(found(at("etc/apparmor.d/lnk-bwrap", ubuntus)), None);
        assert_eq!(
            found(at("etc/apparmor.d/x", "/{usr/,}bin/other {\n /usr/bin/bwrap ix,\n}")),
            None
        );

        let root = at("etc/apparmor.d/bwrap-userns-restrict", ubuntus);
        fs::create_dir(root.path().join("etc/apparmor.d/disable")).unwrap();
        fs::write(root.path().join("etc/apparmor.d/disable/bwrap-userns-restrict"), "").unwrap();
        assert_eq!(found(root), None);
    }
}
