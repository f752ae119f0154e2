//! The names at the top of a write folder that tools run by themselves.
//!
//! What a program writes under one of these names runs later outside the
//! sandbox, in the user's own shell, editor or git, without being asked for.
//! They are therefore read-only inside, and the ones that are missing can't be
//! made.

/// What happens to a protected name that doesn't exist when the run starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfMissing {
    /// An empty folder stands in for it while the run lasts, so that it can't
    /// be made. For names that run as soon as they are there.
    Placeholder,
    /// Nothing: the name runs only after a further step by the user, so its
    /// appearance is seen first.
    Leave,
}

/// One protected name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protected {
    /// A single path component, spelt as the tool looks for it.
    pub name: &'static str,
    /// What happens when it doesn't exist.
    pub if_missing: IfMissing,
}

const fn placeholder(name: &'static str) -> Protected {
    Protected { name, if_missing: IfMissing::Placeholder }
}

const fn leave(name: &'static str) -> Protected {
    Protected { name, if_missing: IfMissing::Leave }
}

/// Git's own name: a folder, a file that names one, or a link to either.
pub const GIT: &str = ".git";

/// The name that makes a folder a bare repository, together with `objects` and
/// `refs`: protected where the folder holds no valid `.git`, because git then
/// takes the folder itself for a repository and runs what its `config` says.
pub const HEAD: &str = "HEAD";

/// The names protected at the top of every write folder, besides [`GIT`] and
/// [`HEAD`], which take more than a mount.
pub const NAMES: &[Protected] = &[
    placeholder(".envrc"),
    placeholder(".vscode"),
    placeholder(".idea"),
    placeholder(".husky"),
    placeholder(".claude"),
    placeholder(".cursor"),
    placeholder(".zed"),
    placeholder(".devcontainer"),
    placeholder(".githooks"),
    leave(".mcp.json"),
    leave(".exrc"),
    leave(".nvim.lua"),
    leave(".nvimrc"),
    leave(".mise.toml"),
    leave("mise.toml"),
    leave(".pre-commit-config.yaml"),
];

/// What git runs, or takes the place of what it runs from, in a git folder
/// (gitrepository-layout(5)), besides [`HEAD`]. In a write folder that is
/// itself a git folder these are protected one by one, while `objects`, `refs`
/// and the other data stay writable.
///
/// `commondir` moves `config` and `hooks` to another folder; `worktrees` holds
/// one `commondir` for each linked work tree and `modules` the git folders of
/// submodules; `info/attributes` switches configured filters on; `rebase-merge`,
/// `rebase-apply` and `sequencer` hold the commands that `git rebase
/// --continue` runs; `remotes` and `branches` hold addresses to fetch from.
pub const GIT_FOLDER: &[&str] = &[
    "config",
    "commondir",
    "hooks",
    "info",
    "worktrees",
    "modules",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
    "remotes",
    "branches",
];

/// The configuration of one work tree, read only where
/// `extensions.worktreeConfig` is on.
pub const CONFIG_WORKTREE: &str = "config.worktree";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_one_component_and_listed_once() {
        let mut names: Vec<_> = NAMES.iter().map(|p| p.name).collect();
        names.extend([GIT, HEAD, CONFIG_WORKTREE]);
        names.extend(GIT_FOLDER);
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(names.iter().all(|n| !n.is_empty() && !n.contains('/')));
    }
}
