//! What no grant opens, by whatever name it is spelled.

use std::fmt;
use std::path::{Path, PathBuf};

use lnk_spec::{protected, shown};
use rustix::fs::FileType;

use crate::account::Accounts;
use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::mountinfo::Mounts;
use crate::paths::{Held, Identity, real_below_or_written, real_or_written, walk_below};

/// Link's settings, in a home.
const SETTINGS: &str = ".config/lnk";
/// Agents' folders, in a home.
const AGENTS: &str = "Link/Agents";
/// Kernel and run-time folders: never granted, not even to read.
const KERNEL_FOLDERS: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];
/// System folders that no grant lets a program write.
const SYSTEM_FOLDERS: [&str; 13] = [
    "/etc",
    "/usr",
    "/opt",
    "/boot",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix",
    "/var/spool/cron",
    "/var/spool/at",
    "/efi",
];
/// Files and folders in a home that run by themselves, at login or with the
/// next ssh, git or desktop session.
const STARTUP: [&str; 48] = [
    ".profile",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bashrc",
    ".bash_aliases",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".zsh",
    ".oh-my-zsh",
    ".kshrc",
    ".mkshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".logout",
    ".inputrc",
    ".pam_environment",
    ".environment",
    ".xprofile",
    ".xinitrc",
    ".xsession",
    ".xsessionrc",
    ".xserverrc",
    ".Xresources",
    ".Xdefaults",
    ".dmrc",
    ".ssh",
    ".gnupg",
    ".gitconfig",
    ".git-templates",
    ".forward",
    ".procmailrc",
    ".rhosts",
    ".shosts",
    ".config/autostart",
    ".config/systemd",
    ".config/environment.d",
    ".config/git",
    ".config/fish",
    ".config/plasma-workspace",
    ".local/bin",
    "bin",
    "Library",
    ".xmonad",
];
/// Dot folders in a home that hold nothing but caches: not what a build tool
/// reads beside them, `.gradle/init.d` or `.m2/settings.xml`, which runs.
const CACHES: [&str; 6] = [
    ".cache",
    ".npm/_cacache",
    ".cargo/registry",
    ".m2/repository",
    ".gradle/caches",
    ".ivy2/cache",
];
/// Files of the settings compared with a hard-linked grant, at most.
const MAX_SETTINGS_FILES: usize = 10_000;

/// Who asks for a path, and for what; shown as messages name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The key of `[files]`.
    pub key: &'static str,
    /// Where it was asked.
    pub by: By,
}

/// Where a path is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// In a flag that a person typed.
    Flag,
    /// In a spec.
    Spec,
    /// Nowhere: it is an agent's own folder, which Link opens to it.
    Link,
}

impl fmt::Display for Asked {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.by {
            By::Flag => write!(to, "--{}", self.key.replace('_', "-")),
            By::Spec => write!(to, "[files] {}", self.key),
            By::Link => to.write_str("the agent's folder"),
        }
    }
}

/// The folders that decide over grants, with links followed and under every
/// name that a mount gives them.
#[derive(Debug, Default)]
pub struct Never {
    settings: Vec<PathBuf>,
    agents: Vec<PathBuf>,
    /// Links on the way from a home to settings and agents' folders.
    ways: Vec<PathBuf>,
    startup: Vec<PathBuf>,
    programs: Vec<PathBuf>,
    lnk: Vec<PathBuf>,
    dot_files: DotFiles,
    /// The same without the names that only a mount gives.
    named_dot_files: DotFiles,
}

/// What holds the dot files of homes.
#[derive(Debug, Default)]
struct DotFiles {
    homes: Vec<PathBuf>,
    /// Where dot names of the homes that are links lead.
    links: Vec<PathBuf>,
}

impl Never {
    /// Gathers them for a caller. `home` is the caller's `$HOME`. Without
    /// `writes` only what matters to reading by flags is looked up.
    #[must_use]
    pub fn of(
        caller: &Caller,
        accounts: &Accounts,
        home: Option<&Path>,
        mounts: &Mounts,
        writes: bool,
    ) -> Self {
        let homes = accounts.homes.iter().map(PathBuf::as_path).chain(home);
        let homes = distinct(homes.map(real_or_written));
        let everywhere = |name: &str| {
            let real = homes.iter().map(|home| real_below_or_written(home, Path::new(name)));
            distinct(real.flat_map(|real| mounts.names_of_all_of(&real)))
        };
        let with_every_name = |paths: Vec<PathBuf>| {
            distinct(paths.iter().flat_map(|path| mounts.names_of_all_of(path)))
        };
        let mut never = Never {
            settings: everywhere(SETTINGS),
            agents: everywhere(AGENTS),
            ..Never::default()
        };
        if writes {
            never.dot_files.homes = distinct(homes.iter().flat_map(|home| mounts.names_of(home)));
            never.named_dot_files.homes.clone_from(&homes);
            let names_below =
                homes.iter().flat_map(|home| [SETTINGS, AGENTS].map(|name| (home, name)));
            let ways =
                names_below.filter_map(|(home, name)| walk_below(home, Path::new(name)).ok());
            let ways = ways.flat_map(|walked| walked.links.into_iter().map(|link| link.at));
            never.ways = with_every_name(distinct(ways));
            let names = || STARTUP.iter().map(Path::new);
            let written =
                never.dot_files.homes.iter().flat_map(|home| names().map(|name| home.join(name)));
            // Only links lead elsewhere than is written.
            let real = homes.iter().flat_map(|home| {
                let real = names().map(move |name| (name, real_below_or_written(home, name)));
                real.filter_map(|(name, real)| (real != home.join(name)).then_some(real))
            });
            never.startup = with_every_name(written.chain(real).collect());
            // One that is behind another is searched outside all the same.
            let paths = caller.env.iter().filter(|(name, path)| name == "PATH" && !path.is_empty());
            let folders = paths.flat_map(|(_, path)| std::env::split_paths(path));
            let programs = folders.map(|folder| real_or_written(&caller.cwd.join(folder)));
            never.programs = with_every_name(distinct(programs));
            let own = caller.own_binary.parent().map(real_or_written);
            never.lnk = with_every_name(own.into_iter().collect());
        }
        never
    }

    /// Adds what matters to a spec's grants alone.
    #[must_use]
    pub fn for_specs(mut self, mounts: &Mounts) -> Self {
        let entries = self.dot_files.homes.iter().flat_map(std::fs::read_dir).flatten().flatten();
        let dotted = entries.filter(|entry| {
            let name = entry.file_name();
            name.as_encoded_bytes().starts_with(b".") && !CACHES.iter().any(|cache| name == *cache)
        });
        let links = dotted.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
        let links = distinct(links.map(|entry| real_or_written(&entry.path())));
        self.dot_files.links = distinct(links.iter().flat_map(|real| mounts.names_of(real)));
        self.named_dot_files.links = links;
        self
    }

    /// What is hidden from every sandbox, whatever it is granted: settings and
    /// agents' folders.
    pub fn always_hidden(&self) -> impl Iterator<Item = &Path> {
        self.settings.iter().chain(&self.agents).map(PathBuf::as_path)
    }

    /// Judges a grant to read or write.
    ///
    /// # Errors
    /// [`Error::Refused`] with the reason.
    pub fn judge(&self, asked: Asked, held: &Held, mounts: &Mounts) -> Result<()> {
        let Some(reason) = self.reason_against(asked, held, mounts) else { return Ok(()) };
        let typed = shown::word(&held.typed);
        let real = if held.typed == held.real {
            String::new()
        } else {
            format!(" ({})", shown::word(&held.real))
        };
        Err(Error::Refused(format!("{asked} {typed}{real}: {reason}")))
    }

    fn reason_against(&self, asked: Asked, held: &Held, mounts: &Mounts) -> Option<String> {
        // By a bind mount, it may be part of what is protected by another name.
        let names = mounts.names_of(&held.real);
        let none: &[PathBuf] = &[];
        let written = if asked.key == "write" { &names } else { none };
        let by_spec = |names| if asked.by == By::Spec { names } else { none };
        let shown = |name: &Path| self.reason_never_to_show(name, asked.by);
        shown(&held.real)
            .or_else(|| self.reason_never(held, mounts))
            .or_else(|| names.iter().find_map(|name| shown(name)))
            .or_else(|| written.iter().find_map(|name| self.reason_not_to_write(name)))
            .or_else(|| {
                by_spec(written).iter().find_map(|name| self.reason_not_by_spec(name, held))
            })
            .or_else(|| {
                by_spec(&names).iter().find_map(|name| {
                    let reason = self.reason_not_by_a_mount(name, &held.real, asked, held)?;
                    Some(format!("{} is mounted there: {reason}", shown::word(name)))
                })
            })
            .or_else(|| self.reason_of_a_mount_below(asked, held, mounts))
    }

    fn reason_never_to_show(&self, real: &Path, by: By) -> Option<String> {
        if real == Path::new("/") {
            return Some("the whole machine can't be opened; name the folders it needs".into());
        }
        if self.settings.iter().any(|settings| real.starts_with(settings)) {
            return Some("Link's settings are never opened".into());
        }
        if by != By::Link && self.agents.iter().any(|agents| real.starts_with(agents)) {
            return Some("agents' folders are never opened".into());
        }
        let folder = KERNEL_FOLDERS.iter().find(|folder| real.starts_with(folder))?;
        Some(format!("nothing of {folder} can be opened; a sandbox has its own"))
    }

    fn reason_never(&self, held: &Held, mounts: &Mounts) -> Option<String> {
        if mounts.is_kernel_window(&held.real) {
            return Some("it is a window on the kernel, which is never opened".into());
        }
        match held.file_type() {
            FileType::Socket => Some("a socket of this machine is never opened".into()),
            FileType::Directory => None,
            FileType::RegularFile
                if held.stat.st_nlink > 1 && self.is_settings_file(held.identity()) =>
            {
                Some(
                    "it is another name of a file in Link's settings, which are never opened"
                        .into(),
                )
            }
            FileType::RegularFile => None,
            _ => Some("only a folder or a plain file can be opened".into()),
        }
    }

    fn reason_not_to_write(&self, real: &Path) -> Option<String> {
        let overlaps = |path: &Path| real.starts_with(path) || path.starts_with(real);
        if self.dot_files.homes.iter().any(|home| home.starts_with(real)) {
            return Some(
                "it is a home folder, or holds one; name the project's folder in it".into(),
            );
        }
        if self.ways.iter().any(|way| way.starts_with(real)) {
            return Some(
                "it holds a link to Link's settings or agents' folders; name the project's folder in it"
                    .into(),
            );
        }
        if let Some(file) = self.startup.iter().find(|path| overlaps(path)) {
            return Some(format!(
                "{} runs or unlocks things outside the sandbox, so nothing may write it",
                shown::word(file)
            ));
        }
        if self.lnk.iter().any(|folder| folder.starts_with(real)) {
            return Some("it holds lnk itself, so nothing may write it".into());
        }
        if let Some(folder) = SYSTEM_FOLDERS.iter().find(|folder| overlaps(Path::new(folder))) {
            return Some(format!("{folder} belongs to the system, so nothing may write it"));
        }
        let program_folder = self.programs.iter().find(|folder| folder.starts_with(real))?;
        Some(format!(
            "{} is on your PATH: what is written there would run as you, outside the sandbox; \
             take it off PATH, or name another folder",
            shown::word(program_folder)
        ))
    }

    fn reason_not_by_spec(&self, real: &Path, held: &Held) -> Option<String> {
        let overlaps = |path: &PathBuf| real.starts_with(path) || path.starts_with(real);
        let dotted = self.dot_files.has(real) || self.dot_files.links.iter().any(overlaps);
        dotted.then(|| {
            format!(
                "dot files of your home may run or unlock things outside the sandbox, so no spec \
                 opens them to write: take it out, and give the flag --write {}",
                shown::word(&held.real)
            )
        })
    }

    /// What is mounted in a folder is opened together with it.
    fn reason_of_a_mount_below(
        &self,
        asked: Asked,
        held: &Held,
        mounts: &Mounts,
    ) -> Option<String> {
        mounts.other_names_below(&held.real).find_map(|(mount, name)| {
            let writes = asked.key == "write" && !mount.read_only;
            let reason = if writes { self.reason_not_to_write(&name) } else { None };
            // Windows on the kernel are hidden.
            let judged = asked.by == By::Spec && !mounts.is_kernel_window(&mount.point);
            let shown = || self.reason_never_to_show(&name, asked.by);
            let spec = || self.reason_not_by_a_mount(&name, &mount.point, asked, held);
            let reason = reason.or_else(|| if judged { shown().or_else(spec) } else { None })?;
            let [point, name] = [&mount.point, &name].map(shown::word);
            Some(format!("{name} is mounted in it, as {point}: {reason}"))
        })
    }

    /// Dot files that a spec opens are to be seen as such when it asks: not as
    /// what is mounted `at` a plain name.
    fn reason_not_by_a_mount(
        &self,
        name: &Path,
        at: &Path,
        asked: Asked,
        held: &Held,
    ) -> Option<String> {
        let dotted = self.dot_files.are_opened_by(name) && !self.named_dot_files.are_opened_by(at);
        dotted.then(|| {
            format!(
                "dot files of a home may run or unlock things outside the sandbox, so no spec opens \
                 them through a mount: take it out, and give the flag --{} {}",
                asked.key,
                shown::word(&held.real)
            )
        })
    }

    /// A line for a write grant that is given because a person typed it, though
    /// what is written there may run outside.
    #[must_use]
    pub fn warning(&self, asked: Asked, held: &Held) -> Option<String> {
        let typed = shown::word(&held.typed);
        // Where a spec's paths lead was shown when it was agreed to.
        if held.is_link() && asked.by != By::Spec {
            return Some(format!("--write {typed} is a link to {}", shown::word(&held.real)));
        }
        let may_run = self.dot_files.has(&held.real) || is_protected_name(&held.real);
        may_run.then(|| {
            format!("{asked} {typed}: programs outside the sandbox may run what is written there")
        })
    }

    /// Whether a file of the settings is this one, by another name.
    fn is_settings_file(&self, identity: Identity) -> bool {
        let mut folders = self.settings.clone();
        let mut left = MAX_SETTINGS_FILES;
        while let Some(folder) = folders.pop() {
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            for entry in entries.flatten() {
                left = left.saturating_sub(1);
                if left == 0 {
                    return true;
                }
                match rustix::fs::lstat(entry.path()) {
                    Ok(stat) if Identity::from(&stat) == identity => return true,
                    Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                        folders.push(entry.path());
                    }
                    _ => {}
                }
            }
        }
        false
    }
}

/// The mount points below a granted folder that show what is never opened: windows
/// on the kernel, and parts of its and the run-time folders.
#[must_use]
pub fn never_shown_below(real: &Path, mounts: &Mounts) -> Vec<PathBuf> {
    let is_kernels = |name: &Path| KERNEL_FOLDERS.iter().any(|folder| name.starts_with(folder));
    let named = mounts.other_names_below(real).filter(|(_, name)| is_kernels(name));
    let named = named.map(|(mount, _)| mount.point.clone());
    named.chain(mounts.kernel_windows_below(real)).collect()
}

impl DotFiles {
    /// Whether a path has a dot name of a home in it.
    fn has(&self, real: &Path) -> bool {
        // A home may lie in another one.
        self.homes.iter().filter_map(|home| real.strip_prefix(home).ok()).any(|below| {
            let dotted = below.as_os_str().as_encoded_bytes().starts_with(b".");
            dotted && !CACHES.iter().any(|cache| below.starts_with(cache))
        })
    }

    /// Whether who has a path has dot files of a home.
    fn are_opened_by(&self, real: &Path) -> bool {
        self.has(real)
            || self.links.iter().any(|path| real.starts_with(path))
            || self.homes.iter().any(|home| home.starts_with(real))
    }
}

fn is_protected_name(real: &Path) -> bool {
    let name = real.file_name().unwrap_or_default();
    protected::NAMES.iter().any(|protected| name == protected.name)
}

fn distinct(paths: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = paths.collect();
    paths.sort();
    paths.dedup();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_files_are_those_of_every_home() {
        let homes = ["/root", "/root/app", "/home/u"].map(PathBuf::from).into();
        let dots = DotFiles { homes, links: vec!["/data/vim".into()] };
        for real in ["/root/.x", "/root/app/.x/y", "/home/u/.npm", "/home/u/.config/foo"] {
            assert!(dots.has(Path::new(real)) && dots.are_opened_by(Path::new(real)), "{real}");
        }
        for real in ["/root/app", "/root/app/x/.y", "/home/u/.cache/x", "/home/u/.npm/_cacache"] {
            assert!(!dots.has(Path::new(real)), "{real}");
        }
        for real in ["/home", "/root/app", "/data/vim/x"] {
            assert!(dots.are_opened_by(Path::new(real)), "{real}");
        }
        assert!(!dots.are_opened_by(Path::new("/data")));
        assert!(!dots.are_opened_by(Path::new("/home/u/code")));
    }
}
