//! A home of its own for one test.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::{Call, User};

/// Where programs are found outside; the test's own `lnk` comes before these.
const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// Who makes the mounts of the sandboxes that a test starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mounts {
    /// The joiner, through the mount API.
    Joiner,
    /// bubblewrap, from its arguments.
    Bwrap,
}

impl Mounts {
    /// Value of `LNK_SANDBOX_MOUNTS`.
    pub fn name(self) -> &'static str {
        match self {
            Mounts::Joiner => "joiner",
            Mounts::Bwrap => "bwrap",
        }
    }
}

/// A user with an empty home, a project folder in it, and `lnk` on PATH. All of
/// it is removed when dropped.
///
/// The home is not under `/tmp`, which a sandbox has one of its own of.
pub struct TestEnv {
    /// Who the test's programs run as.
    pub user: User,
    /// Who makes the sandboxes' mounts.
    pub mounts: Mounts,
    root: TempDir,
    home: PathBuf,
    project: PathBuf,
}

impl TestEnv {
    /// A fresh home for `user`.
    ///
    /// # Panics
    /// When `/var/tmp` can't be written, or `lnk` doesn't exist.
    pub fn new(lnk: &Path, user: &User, mounts: Mounts) -> TestEnv {
        let root = tempfile::Builder::new()
            .prefix("lnk-test-")
            .permissions(Permissions::from_mode(0o755))
            .tempdir_in("/var/tmp")
            .expect("/var/tmp can be written");
        // tempfile's mode goes through the umask; a user must get through here.
        fs::set_permissions(root.path(), Permissions::from_mode(0o755)).expect("own folder");
        let home = root.path().join("home");
        let env = TestEnv { user: user.clone(), mounts, project: home.join("project"), home, root };
        env.install(lnk);
        env.make_folder(&env.home);
        fs::set_permissions(&env.home, Permissions::from_mode(0o700)).expect("own folder");
        env.make_folder(&env.project);
        env.write(env.home.join(".gitconfig"), GIT_CONFIG);
        env
    }

    /// The home: mode 0700, the user's.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The project: an empty folder in the home, where programs start.
    pub fn project(&self) -> &Path {
        &self.project
    }

    /// A folder beside the home that any user can search and only the test's
    /// own process can write, for what must lie outside every home.
    pub fn outside(&self) -> &Path {
        self.root.path()
    }

    /// Path of this test's copy of `lnk`.
    pub fn lnk_path(&self) -> PathBuf {
        self.root.path().join("bin/lnk")
    }

    /// Writes a file as the user's own, with the folders it needs; a relative
    /// path is the project's. Answers the whole path.
    ///
    /// # Panics
    /// When it can't be written.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.project.join(path);
        self.make_folder(path.parent().expect("a file has a folder"));
        fs::write(&path, content).unwrap_or_else(|e| panic!("write {}: {e}", path.display()));
        self.own(&path);
        path
    }

    /// [`write`](Self::write) of a program: mode 0755.
    ///
    /// # Panics
    /// When it can't be written.
    pub fn write_program(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.write(path, content);
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("own file");
        path
    }

    /// Makes a folder of the user's, with those above it; a relative path is
    /// the project's. Answers the whole path.
    ///
    /// # Panics
    /// When it can't be made.
    pub fn folder(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = self.project.join(path);
        self.make_folder(&path);
        path
    }

    /// Makes a symbolic link of the user's at `path`; a relative path is the
    /// project's.
    ///
    /// # Panics
    /// When it can't be made.
    pub fn link(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> PathBuf {
        let path = self.project.join(path);
        symlink(target, &path).unwrap_or_else(|e| panic!("link {}: {e}", path.display()));
        self.own(&path);
        path
    }

    /// `lnk` with these arguments, ready to run in the project.
    pub fn lnk<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Call {
        self.program(self.lnk_path(), args)
    }

    /// Any program, outside, as the user: environment, working folder and
    /// standard input as for [`lnk`](Self::lnk).
    pub fn program<A: AsRef<OsStr>>(
        &self,
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = A>,
    ) -> Call {
        let mut argv = vec![program.as_ref().to_owned()];
        argv.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        Call::new(argv, self.user.clone(), self.project.clone(), self.vars())
    }

    /// A bash script, outside, as the user, with `lnk` on PATH.
    pub fn sh(&self, script: &str) -> Call {
        self.program("bash", ["-c", script])
    }

    /// Runs git in the project, as the user, and answers what it printed
    /// without the last newline.
    ///
    /// # Panics
    /// When git fails.
    pub fn git<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> String {
        let run = self.program("git", args).run().ok();
        run.stdout.trim_end_matches('\n').to_owned()
    }

    /// Gives the user a Rust toolchain of its own, `~/.rustup/toolchains/stable`: this
    /// process's, by hard links or, where it is on another file system, copies. Whether
    /// there is one.
    ///
    /// # Panics
    /// When it can't be copied.
    pub fn give_rust(&self) -> bool {
        let Some(toolchain) = sysroot() else { return false };
        let own = self.folder(self.home.join(".rustup/toolchains/stable"));
        let copied = ["-al", "-a"].iter().any(|how| {
            let copy = Command::new("cp")
                .arg(how)
                .args(["--remove-destination", "--"])
                .args(["bin", "lib"].map(|part| toolchain.join(part)))
                .arg(&own)
                .output();
            copy.is_ok_and(|copy| copy.status.success())
        });
        assert!(copied, "copy {}", toolchain.display());
        true
    }

    /// Puts a program beside `lnk`, where every user can run it: the build folder may be
    /// in a home that only its owner enters. Answers the whole path.
    ///
    /// # Panics
    /// When it can't be copied.
    pub fn give_program(&self, program: &Path) -> PathBuf {
        let to = self.lnk_path().with_file_name(program.file_name().expect("a program's path"));
        put(program, &to);
        to
    }

    fn install(&self, lnk: &Path) {
        let folder = self.lnk_path().with_file_name("");
        fs::create_dir(&folder).expect("a fresh folder");
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("own folder");
        put(lnk, &self.lnk_path());
    }

    /// The caller's environment: nothing of this process's crosses.
    fn vars(&self) -> Vec<(OsString, OsString)> {
        let mut path = self.root.path().join("bin").into_os_string();
        path.push(":");
        path.push(SYSTEM_PATH);
        vec![
            ("HOME".into(), self.home.clone().into()),
            ("PATH".into(), path),
            ("USER".into(), self.user.name.clone().into()),
            ("LOGNAME".into(), self.user.name.clone().into()),
            ("LANG".into(), "C.UTF-8".into()),
            ("GIT_CONFIG_NOSYSTEM".into(), "1".into()),
            ("LNK_SANDBOX_MOUNTS".into(), self.mounts.name().into()),
        ]
    }

    fn make_folder(&self, path: &Path) {
        if path.is_dir() {
            return;
        }
        self.make_folder(path.parent().expect("/ is a folder"));
        fs::create_dir(path).unwrap_or_else(|e| panic!("mkdir {}: {e}", path.display()));
        fs::set_permissions(path, Permissions::from_mode(0o755)).expect("own folder");
        self.own(path);
    }

    fn own(&self, path: &Path) {
        let owner = fs::symlink_metadata(path).expect("just made").uid();
        if owner != self.user.uid {
            lchown(path, Some(self.user.uid), Some(self.user.gid))
                .expect("only root makes files for others");
        }
    }
}

/// A program that every user can run, at `to`.
fn put(program: &Path, to: &Path) {
    if fs::hard_link(program, to).is_ok() {
        return;
    }
    // By another process: were the copy open for writing in this one, a
    // child forked meanwhile would hold it, and it couldn't be executed.
    let copied = Command::new("cp").arg("--").arg(program).arg(to).status();
    assert!(copied.is_ok_and(|status| status.success()), "copy {}", program.display());
    fs::set_permissions(to, Permissions::from_mode(0o755)).expect("own file");
}

/// Where the Rust toolchain of this process is.
fn sysroot() -> Option<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = Command::new(rustc).args(["--print", "sysroot"]).output().ok()?;
    let path = PathBuf::from(String::from_utf8(said.stdout).ok()?.trim_end());
    path.join("bin/cargo").exists().then_some(path)
}

/// Makes git the same on every machine; the name is what commits are looked up
/// by in tests.
const GIT_CONFIG: &str = "\
[user]
\tname = Test Person
\temail = person@example.org
[init]
\tdefaultBranch = main
[advice]
\tdetachedHead = false
";
