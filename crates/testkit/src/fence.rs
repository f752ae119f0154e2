//! Machines with a fence taken away: what a sandbox needs is missing or refuses.
//!
//! Each is a command in front of the program's own, so that this process stays
//! as it is: `unshare(1)` for namespaces, `setpriv(1)` to become the user once
//! root's part is done, `python3` to install a seccomp filter.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::User;

#[derive(Default)]
pub(crate) struct Fences {
    pub(crate) replaced: Vec<(PathBuf, PathBuf)>,
    pub(crate) removed: Option<PathBuf>,
    pub(crate) no_user_namespaces: bool,
    pub(crate) denied: Vec<(libc::c_long, i32)>,
    /// The words that enter another network; root's.
    pub(crate) network: Vec<OsString>,
}

/// A command, outermost word first.
type Argv = Vec<OsString>;

impl Fences {
    /// `argv` behind what takes the fences away, and whether that becomes
    /// `user` by itself.
    pub(crate) fn wrap(&self, argv: Argv, user: &User) -> (Argv, bool) {
        let mut argv = argv;
        for (call, errno) in &self.denied {
            argv = deny(*call, *errno, argv);
        }
        if self.no_user_namespaces {
            argv = use_up_user_namespaces(user, argv);
        }
        let mounts = self.mounts();
        if mounts.is_empty() && self.network.is_empty() {
            return (argv, false);
        }
        ([self.network.clone(), in_mount_namespace(&mounts, user, argv)].concat(), true)
    }

    /// Shell commands that change a private mount namespace.
    fn mounts(&self) -> Vec<Argv> {
        let bind = |(path, by): &(PathBuf, PathBuf)| {
            script("mount --bind -- \"$1\" \"$2\" && shift 2 && exec \"$@\"", [by, path])
        };
        // First what covers a whole folder, then what lies in it.
        let removed = self.removed.iter().map(|path| script(REMOVE, [path]));
        removed.chain(self.replaced.iter().map(bind)).collect()
    }
}

/// Removes a file from its folder by an overlay whose changes are in memory.
const REMOVE: &str = "\
mount -t tmpfs none /mnt && mkdir /mnt/upper /mnt/work && folder=$(dirname \"$1\") && \
mount -t overlay none -o \"lowerdir=$folder,upperdir=/mnt/upper,workdir=/mnt/work\" \"$folder\" && \
rm -- \"$1\" && shift && exec \"$@\"";

/// Root becomes the user after the mounts are made; an ordinary user makes them
/// as root of a user namespace and then is itself again in a nested one.
fn in_mount_namespace(mounts: &[Argv], user: &User, argv: Argv) -> Argv {
    let privileged = User::current().is_root();
    let unshare = if privileged {
        words(["unshare", "--mount", "--"])
    } else {
        words(["unshare", "--user", "--map-root-user", "--mount", "--"])
    };
    let become_user = match (privileged, user.is_root()) {
        (true, true) => Argv::new(),
        (true, false) => words([
            "setpriv",
            &format!("--reuid={}", user.uid),
            &format!("--regid={}", user.gid),
            "--clear-groups",
            "--",
        ]),
        (false, _) => in_user_namespace_as(user),
    };
    [unshare, mounts.concat(), become_user, argv].concat()
}

/// The limit counts what is nested below, too: an ordinary user needs one more
/// namespace to be itself again.
fn use_up_user_namespaces(user: &User, argv: Argv) -> Argv {
    let limit = "echo \"$1\" > /proc/sys/user/max_user_namespaces && shift && exec \"$@\"";
    let unshare = words(["unshare", "--user", "--map-root-user", "--"]);
    if user.is_root() {
        return [unshare, script(limit, ["0"]), argv].concat();
    }
    [unshare, script(limit, ["1"]), in_user_namespace_as(user), argv].concat()
}

fn in_user_namespace_as(user: &User) -> Argv {
    words([
        "unshare",
        "--user",
        &format!("--map-user={}", user.uid),
        &format!("--map-group={}", user.gid),
        "--",
    ])
}

/// A seccomp filter of four instructions (seccomp(2)): load the number, and
/// answer the one by its errno.
const DENY: &str = "\
import ctypes, os, struct, sys
number, errno, *argv = sys.argv[1:]
code = struct.pack('HBBI' * 4, 0x20, 0, 0, 0, 0x15, 0, 1, int(number),
                   0x06, 0, 0, 0x50000 | int(errno), 0x06, 0, 0, 0x7fff0000)
filter = ctypes.create_string_buffer(code)
program = struct.pack('HxxxxxxP', 4, ctypes.addressof(filter))
prctl = ctypes.CDLL(None, use_errno=True).prctl
assert prctl(38, 1, 0, 0, 0) == 0 and prctl(22, 2, program, 0, 0) == 0, 'no filter'
os.execvp(argv[0], argv)
";

fn deny(call: libc::c_long, errno: i32, argv: Argv) -> Argv {
    let (call, errno) = (call.to_string(), errno.to_string());
    [words(["/usr/bin/python3", "-Ic", DENY, &call, &errno]), argv].concat()
}

/// A shell script that ends by executing the words after its own arguments.
fn script<A: Into<OsString>>(body: &str, args: impl IntoIterator<Item = A>) -> Argv {
    let mut argv = words(["sh", "-c", body, "sh"]);
    argv.extend(args.into_iter().map(Into::into));
    argv
}

fn words<const N: usize>(words: [&str; N]) -> Argv {
    words.map(OsString::from).into()
}
