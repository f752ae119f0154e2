//! Ways out that were tried by hand once: races against a run's start, folders
//! moved away under what is decided inside them, the machine's own nodes and
//! terminals, mounts made later, and fences that answer with an error.

use std::fs;
use std::os::unix::fs::MetadataExt;

use testkit::{Call, Mounts, Run, Running, Terminal, TestEnv, each};

const SECRET: &str = "never to be seen\n";

/// `lnk sandbox run` with these flags, of a shell script.
fn inside(env: &TestEnv, flags: &[&str], script: &str) -> Call {
    env.lnk(["sandbox", "run"].iter().chain(flags).chain(&["--", "sh", "-c", script]))
}

/// One line of `lnk`'s own, and status 125.
#[track_caller]
fn is_refused(run: &Run) {
    let lines = run.stderr.lines().count();
    assert!(run.code() == 125 && lines == 1 && run.stderr.starts_with("lnk sandbox: "), "{run}");
}

// --- races against a start ----------------------------------------------------------

/// Starts of one race.
fn starts(few: usize) -> usize {
    if std::env::var_os("LNK_LONG").is_some_and(|long| long == "1") { few * 2 } else { few }
}

/// Exchanges two names for ever, after waits of 10 µs to 100 ms.
const SWAP: &str = "\
import ctypes, random, time
swap = ctypes.CDLL(None).renameat2
print('swapping', flush=True)
while True:
    swap(-100, b'zz', -100, b'yy', 2)
    end = time.perf_counter() + 10 ** random.uniform(-5, -1)
    while time.perf_counter() < end: pass
";

/// An earlier run that has the project too and swaps `zz` and `yy` in it.
fn swapping(env: &TestEnv) -> Running {
    let mut earlier = env.lnk(["sandbox", "run", "--write", ".", "--", "python3", "-c", SWAP]);
    earlier = earlier.env("LNK_SANDBOX_MOUNTS", Mounts::Joiner.name());
    let mut earlier = earlier.spawn();
    earlier.wait_for_stdout("swapping");
    earlier
}

/// Starts run after run, which each work or are refused; some must work.
#[track_caller]
fn race(env: &TestEnv, starts: usize, flags: &[&str], script: &str, check: impl Fn(&Run)) {
    let (mut started, mut worked) = (0, 0);
    while started < starts || (worked == 0 && started < 10 * starts) {
        started += 1;
        let run = inside(env, flags, &format!("({script}) 2> /dev/null; exit 0")).run();
        check(&run);
        if run.code() == 0 {
            assert!(run.stderr.is_empty(), "{run}");
            worked += 1;
        } else {
            is_refused(&run);
        }
    }
    assert!(worked > 0, "none of {started} runs worked");
}

#[test]
fn a_folder_swapped_for_a_link_while_runs_start_is_never_followed() {
    each!(|env| {
        env.write(env.home().join("closed/x"), SECRET);
        env.write("zz/x", "plain\n");
        env.link(env.home().join("closed"), "yy");
        let _earlier = swapping(env);
        // What a protected name leads to is a mount of its own.
        fs::remove_dir(env.project().join(".mcp.json")).ok();
        env.link("zz/x", ".mcp.json");
        race(env, starts(150), &["--write", "."], "cat zz/x yy/x", |run| {
            assert!(!run.stdout.contains(SECRET), "{run}");
        });
    });
}

#[test]
fn a_way_swapped_for_a_link_while_runs_start_is_never_written_through() {
    each!(|env| {
        let victim = env.write(env.home().join("closed/sub/keys"), SECRET);
        env.folder(env.home().join("closed/sub/a"));
        env.folder("zz/sub/a");
        env.write("f", "f\n");
        env.link(env.home().join("closed"), "yy");
        let _earlier = swapping(env);
        fs::remove_dir(env.project().join(".mcp.json")).ok();
        env.link("zz/sub/a/../../../f", ".mcp.json");
        let script = "for d in zz yy; do cat $d/sub/keys; echo broken >> $d/sub/keys; done";
        race(env, starts(50), &["--write", "."], script, |run| {
            assert!(!run.stdout.contains(SECRET), "{run}");
            assert_eq!(fs::read_to_string(&victim).unwrap(), SECRET, "{run}");
        });
    });
}

/// Which of the two files is hidden depends on the moment; one of them is.
#[test]
fn what_is_hidden_while_it_is_swapped_stays_hidden() {
    each!(|env| {
        for link in [false, true] {
            fs::remove_dir_all(env.project()).unwrap();
            env.write("zz/x", "one\n");
            env.write(if link { "tt/x" } else { "yy/x" }, "two\n");
            if link {
                env.link("tt", "yy");
            }
            let _earlier = swapping(env);
            let flags = ["--write", ".", "--hide", "zz"];
            race(env, starts(50), &flags, "cat zz/x yy/x tt/x", |run| {
                let both = run.stdout.contains("one") && run.stdout.contains("two");
                assert!(!both, "{run}");
            });
        }
    });
}

#[test]
fn a_write_folder_in_a_read_folder_swapped_while_runs_start_opens_nothing_else() {
    each!(|env| {
        let victim = env.write(env.home().join(".ssh/x"), SECRET);
        env.write("zz/x", "plain\n");
        env.write("f", "f\n");
        env.link(env.home().join(".ssh"), "yy");
        let _earlier = swapping(env);
        let script = "for f in zz/x yy/x f; do cat $f; echo broken >> $f; done";
        race(env, starts(50), &["--read", ".", "--write", "zz"], script, |run| {
            assert!(!run.stdout.contains(SECRET), "{run}");
            assert_eq!(fs::read_to_string(&victim).unwrap(), SECRET, "{run}");
            assert_eq!(fs::read_to_string(env.project().join("f")).unwrap(), "f\n", "{run}");
        });
    });
}

// --- folders moved away -------------------------------------------------------------

/// Every way to take `folder` away, or put another in its place.
fn moves(folder: &str) -> String {
    format!(
        "mkdir -p other; exec python3 -c '\
         import ctypes, errno, os\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         def exchange(a, b):\n\
         \tif libc.renameat2(-100, a, -100, b, 2): raise OSError(ctypes.get_errno(), \"\")\n\
         old = b\"{folder}\"\n\
         beside = old + b\"2\"\n\
         for move in (lambda: os.rename(old, beside), lambda: os.rename(old, b\"moved\"),\n\
         \tlambda: os.rename(\"other\", old), lambda: exchange(old, b\"other\"),\n\
         \tlambda: os.rmdir(old)):\n\
         \ttry: print(move(), \"moved\")\n\
         \texcept OSError as error: print(errno.errorcode[error.errno], end=\" \")\n\
         '"
    )
}

#[test]
fn a_folder_on_the_way_to_what_is_decided_inside_cant_be_moved() {
    each!(|env| {
        env.write("docs/a/private/s", SECRET);
        env.write("lib/a/vendor/f", "orig\n");
        env.git(["init", "-q", "in/a/repo"]);
        let cases: [(&[&str], &str, &[&str]); 4] = [
            (&["--hide", "docs/a/private"], "docs", &["docs", "docs/a", "docs/a/private"]),
            (&["--hide", "docs/a/private/s"], "docs", &["docs", "docs/a", "docs/a/private"]),
            (&["--read", "lib/a/vendor"], "lib", &["lib", "lib/a", "lib/a/vendor"]),
            (&["--write", "in/a/repo"], "in", &["in", "in/a", "in/a/repo"]),
        ];
        for (flags, top, folders) in cases {
            let flags = [&["--write", "."], flags].concat();
            for folder in folders {
                let run = inside(env, &flags, &moves(folder)).run().ok().quiet().has_not("moved");
                // Another mount, where the folder above is held as well.
                let words = run.stdout.split_whitespace();
                assert_eq!(words.clone().count(), 5, "{run}");
                assert!(run.stdout.starts_with("EBUSY "), "{run}");
                assert!(words.clone().all(|errno| errno == "EBUSY" || errno == "EXDEV"), "{run}");
            }
            // Beside what is decided, folders are moved as anywhere.
            let free = format!("mkdir {top}/new && mv {top}/new {top}/b && rmdir {top}/b");
            inside(env, &flags, &free).run().ok().quiet();
        }
        let all = ["--write", ".", "--hide", "docs/a/private", "--read", "lib/a/vendor"];
        let all = [&all[..], &["--write", "in/a/repo"]].concat();
        let tries = "cat docs/a/private/s; echo x > lib/a/vendor/f; \
            echo x > in/a/repo/.git/config; echo ok > in/a/repo/new && cat lib/a/vendor/f";
        let run = inside(env, &all, tries).run().ok().prints("orig\n").has_not(SECRET);
        assert_eq!(run.stderr.lines().count(), 3, "{run}");
        assert!(!env.git(["-C", "in/a/repo", "config", "-l"]).is_empty(), "whole");
    });
}

#[test]
fn settings_and_agents_behind_a_link_stay_where_they_are() {
    each!(|env| {
        let home = env.home().to_owned();
        env.write(home.join("dots/a/lnk/sandbox/settings.toml"), SECRET);
        env.folder(home.join(".config"));
        env.link("../dots/a/lnk", home.join(".config/lnk"));
        env.write(home.join("data/real/Agents/k"), SECRET);
        env.folder(home.join("data/links"));
        env.link("../real", home.join("data/links/Link"));
        env.link("data/links/Link", home.join("Link"));
        let refused = |folder: &str, why: &str| {
            let run = inside(env, &["--write", folder], "echo ran").run().prints("");
            is_refused(&run.stderr_has(why));
        };
        // A link could be made another.
        for folder in ["~/data", "~/data/links"] {
            refused(folder, "it holds a link to Link's settings or agents' folders");
        }
        refused("~/dots/a/lnk", "Link's settings are never opened");
        refused("~/data/real/Agents", "agents' folders are never opened");
        let reads = "cat ~/dots/a/lnk/sandbox/settings.toml ~/.config/lnk/sandbox/settings.toml \
            ~/Link/Agents/k ~/data/real/Agents/k ~/data/links/Link/Agents/k";
        inside(env, &["--read", "~"], reads).run().fails().has_not(SECRET);
        for (grant, folders) in
            [("dots", &["a", "a/lnk"][..]), ("dots/a", &["lnk"]), ("data/real", &["Agents"])]
        {
            let at = home.join(grant);
            for folder in folders {
                let run = inside(env, &["--write", "."], &moves(folder)).cwd(&at).run().ok();
                assert!(run.stdout.starts_with("EBUSY "), "{run}");
                let run = inside(env, &["--write", "."], reads).cwd(&at).run();
                run.fails().has_not(SECRET);
            }
        }
        // An agents' folder that isn't there can't be made either.
        fs::remove_file(home.join("Link")).expect("just made");
        let link = env.folder(home.join("Link"));
        inside(env, &["--write", "."], "mkdir -p Agents/x || mv new Agents")
            .cwd(&link)
            .run()
            .fails();
        assert!(!link.join("Agents/x").exists());
    });
}

// --- the machine's own nodes ----------------------------------------------------------

/// Tries to change mode, owner and times of each path to what they are: allowed,
/// that would change nothing of the machine's but the time of the change.
const CHANGE: &str = "\
import os, sys
for path in sys.argv[1:]:
    now = os.stat(path)
    for change in (lambda: os.chmod(path, now.st_mode), lambda: os.chown(path, now.st_uid, -1),
                   lambda: os.utime(path, ns=(now.st_atime_ns, now.st_mtime_ns)),
                   lambda: os.rename(path, path + '2'), lambda: os.unlink(path)):
        try: change()
        except OSError: continue
        print('changed', path)
print('tri' + 'ed')
";

const NODES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

fn changed_at(path: &str) -> (i64, i64) {
    let stat = fs::metadata(path).expect("every machine has it");
    (stat.ctime(), stat.ctime_nsec())
}

#[test]
fn modes_owners_and_times_of_devices_and_the_kernels_files() {
    each!(|env| {
        env.write("change", CHANGE);
        let kernels = ["/proc/uptime", "/proc/cpuinfo", "/proc/sys/kernel/hostname", "/proc/sys"];
        let folders = ["/dev", "/dev/pts", "/proc", "/dev/fd", "/proc/1", "/proc/1/status"];
        let before = NODES.map(changed_at);
        let words = ["sandbox", "run", "--read", ".", "--", "python3", "change"];
        let all = words.iter().chain(&NODES).chain(&kernels).chain(&folders[..1]);
        env.lnk(all.chain(&folders[2..])).run().ok().prints("tried\n");
        assert_eq!(NODES.map(changed_at), before);
        // Devices work, and what is the sandbox's own is its own.
        let works = "echo x > /dev/null && head -c 2 /dev/zero | od -An -tx1 && \
            touch /dev/shm/x && chmod 600 /dev/shm/x";
        inside(env, &["--read", "."], works).run().ok().prints(" 00 00\n").quiet();
    });
}

/// A shell outside on a terminal, with `lnk` on PATH.
fn outer_shell(env: &TestEnv) -> Terminal {
    let mut shell = env.program("bash", ["--norc", "-i"]).env("PS1", "OUT> ").terminal(24, 80);
    shell.shows("OUT> ");
    shell
}

#[test]
fn the_callers_terminal_is_as_it_was() {
    each!(|env| {
        env.write("change", CHANGE);
        let mut shell = outer_shell(env);
        shell.line("chmod 620 $(tty); stat -c 'is %a %u' $(tty)").shows("is 620");
        let run = "clear; lnk sandbox run --read . -- python3";
        shell.line(&format!("{run} change /dev/console /dev/tty")).shows("tried");
        assert!(!shell.screen().contains("changed"), "{}", shell.screen());

        // Through the descriptor it can; that ends with the run.
        let own = "import fcntl, os, struct\n\
            os.fchmod(0, 0o666); fcntl.ioctl(0, 0x540c)\n\
            print('now %o' % (os.fstat(0).st_mode & 0o777),\n\
            \tstruct.unpack('i', fcntl.ioctl(0, 0x80045440, b'0000'))[0] > 0)\n";
        env.write("own", own);
        shell.line(&format!("{run} own")).shows("now 666 True");
        let after = "import fcntl, os, struct\n\
            print('then %o' % (os.fstat(0).st_mode & 0o777),\n\
            \tstruct.unpack('i', fcntl.ioctl(0, 0x80045440, b'0000'))[0] > 0)\n";
        env.write("after", after);
        shell.line("python3 after; (exec 5<>/dev/tty && echo open''ed)");
        shell.shows("then 620 False").shows("opened");
        // The same after a run that is killed by its program's own signal.
        env.write("own", format!("{own}os.kill(os.getpid(), 9)\n"));
        shell.line(&format!("{run} own; python3 after")).shows("then 620 False");
    });
}

// --- mounts made later ----------------------------------------------------------------

#[test]
fn mounts_made_after_the_start_dont_appear() {
    each!(|env| {
        env.write("ro/m/before", "before\n");
        for folder in ["w/chroot/dev", "w/chroot/proc", "w/old/proc"] {
            env.folder(folder);
        }
        let (unshare, proc) = if env.user.is_root() {
            ("-m", "mount -t proc proc")
        } else {
            // In a user namespace of one's own only what is mounted is mounted again.
            ("-Urm", "mount --rbind /proc")
        };
        let look = "grep -c -e ' shared:' -e ' master:' -e ' propagate_from:' \
            /proc/self/mountinfo; cat ../ro/m/*; ls chroot/dev chroot/proc; ls old/proc; \
            (: >> chroot/proc/sys/kernel/core_pattern); echo looked";
        let script = format!(
            "mkfifo w/up w/go; {proc} w/old/proc; cd w\n\
             lnk sandbox run --read ../ro --write . -- \
             sh -c 'echo > up; read go < go; {look}' &\n\
             read up < up\n\
             mount -t tmpfs none ../ro/m && echo '{SECRET}' > ../ro/m/after && \
             mount --rbind /dev chroot/dev && {proc} chroot/proc && \
             ls chroot/proc/uptime chroot/dev/null\n\
             echo > go; wait $!",
            look = look.replace('\'', "'\\''"),
        );
        let args = [unshare, "--propagation", "shared", "bash", "-c", &script];
        let run = env.program("unshare", args).run().ok();
        let mounted = "chroot/dev/null\nchroot/proc/uptime\n";
        let seen = "0\nbefore\nchroot/dev:\n\nchroot/proc:\nlooked\n";
        let run = run.prints(&format!("{mounted}{seen}"));
        run.stderr_has("'old/proc': Permission denied").stderr_has("core_pattern").has_not(SECRET);
    });
}

// --- stopped orphans --------------------------------------------------------------------

/// A stopped orphan of the program's is there, and while nobody answers, the
/// program itself is stopped and goes on.
const ORPHAN: &str = r#"
import os, signal, socket, time
def stopped(pid):
    while open(f'/proc/{pid}/stat').read().split(') ')[1][0] != 'T': pass
program = os.getpid()
reads, writes = os.pipe()
if os.fork() == 0:
    orphan = os.fork()
    if orphan == 0:
        os.write(writes, b'%8d' % os.getpid())
        signal.raise_signal(signal.SIGSTOP)
    os._exit(0)
orphan = int(os.read(reads, 8))
os.wait()
stopped(orphan)
if os.fork() == 0:
    open('up', 'w').write('\n')
    open('go').read()
    os.kill(program, signal.SIGSTOP)
    stopped(program)
    time.sleep(0.2)  # for the sandbox's first process to notice
    os.kill(program, signal.SIGCONT)
    open('done', 'w').write('\n')
    os._exit(0)
os.wait()
server = socket.socket(socket.AF_UNIX)
server.bind('/tmp/s')
server.listen()
for _ in range(2):
    socket.socket(socket.AF_UNIX).connect('/tmp/s')
print('thr' + 'ough', flush=True)
"#;

#[test]
fn a_stopped_orphan_doesnt_stop_the_supervisor() {
    each!(|env| {
        env.write("orphan", ORPHAN);
        env.program("mkfifo", ["up", "go", "done"]).run().ok();
        let mut shell = outer_shell(env);
        shell.line("lnk sandbox run --write . -- python3 orphan & read x < up; echo u''p");
        shell.shows("up\n").line("kill -STOP $!; echo > go; read x < done; echo don''e");
        shell.shows("done\n").line("kill -CONT $!").shows("through");
        shell.line("clear; wait $!; echo end''ed $?").shows("ended 0");
    });
}

// --- broken fences ----------------------------------------------------------------------

/// Says what of the fences a program sees, and ends with `whole` if all stand.
const FENCES: &str = "\
import os
status = dict(line.split(':\\t', 1) for line in open('/proc/self/status').read().splitlines())
print(status['NoNewPrivs'], status['Seccomp'], int(status['CapBnd'], 16), int(status['CapEff'], 16))
def opened(path, mode):
    try: open(path, mode).close()
    except OSError: return False
    return True
print([path for path in ('hidden/f', '../closed') if opened(path, 'r')],
      [path for path in ('ro/f', '.git/config', '/etc/new', '/proc/sys/kernel/hostname')
       if opened(path, 'a')])
print([fd for fd in range(1024) if os.path.exists(f'/proc/self/fd/{fd}')])
print(opened('new', 'w') and opened('ro/f', 'r') and 'whole', flush=True)
";

const WHOLE: &str = "1 2 0 0\n[] []\n[0, 1, 2]\nwhole\n";

/// A run with every kind of grant.
fn fenced(env: &TestEnv) -> Call {
    env.write("look", FENCES);
    for file in ["hidden/f", "ro/f", "../closed"] {
        env.write(file, "x\n");
    }
    env.folder(".git");
    let flags = ["--write", ".", "--read", "ro", "--hide", "hidden"];
    env.lnk(["sandbox", "run"].iter().chain(&flags).chain(&["--", "/usr/bin/python3", "look"]))
}

/// Either whole, or nothing ran, and a line says where to look. Answers which.
#[track_caller]
fn whole_or_refused(env: &TestEnv, what: &str, run: &Run) -> bool {
    if run.stdout == WHOLE {
        assert!(run.code() == 0, "{what}\n{run}");
        return true;
    }
    let refused = run.code() == 125 && run.stdout.is_empty();
    assert!(refused && !env.project().join("new").exists(), "{what}: half of it ran\n{run}");
    assert!(run.stderr.contains("lnk sandbox ready"), "{what}: says nothing of ready\n{run}");
    false
}

/// A call that the kernel, or a container's own filter, refuses.
#[track_caller]
fn refusing(env: &TestEnv, name: &str, call: i64, auto: bool) {
    for errno in [libc::ENOSYS, libc::EPERM] {
        let run = fenced(env).denied(call, errno);
        let run = if auto { run.env_remove("LNK_SANDBOX_MOUNTS") } else { run }.run();
        whole_or_refused(env, &format!("{name} refused by {errno}"), &run);
        fs::remove_file(env.project().join("new")).ok();
    }
}

#[test]
fn refused_mount_calls_leave_no_fence_out() {
    each!(|env| {
        whole_or_refused(env, "nothing refused", &fenced(env).run().ok());
        fs::remove_file(env.project().join("new")).unwrap();
        for (name, call) in [
            ("open_tree", libc::SYS_open_tree),
            ("move_mount", libc::SYS_move_mount),
            ("fsopen", libc::SYS_fsopen),
            ("fsconfig", libc::SYS_fsconfig),
            ("fsmount", libc::SYS_fsmount),
            ("mount_setattr", libc::SYS_mount_setattr),
        ] {
            refusing(env, name, call, env.mounts == Mounts::Joiner);
        }
        // No grant is looked up without it.
        for errno in [libc::ENOSYS, libc::EPERM] {
            let run = fenced(env).denied(libc::SYS_openat2, errno).run().prints("");
            is_refused(&run.stderr_has("--write ."));
        }
    });
}

#[test]
fn refused_calls_leave_no_fence_out() {
    each!(|env| {
        for (name, call) in [
            ("landlock_create_ruleset", libc::SYS_landlock_create_ruleset),
            ("landlock_add_rule", libc::SYS_landlock_add_rule),
            ("landlock_restrict_self", libc::SYS_landlock_restrict_self),
            ("seccomp", libc::SYS_seccomp),
            ("setns", libc::SYS_setns),
            ("close_range", libc::SYS_close_range),
            ("pidfd_open", libc::SYS_pidfd_open),
            ("pidfd_send_signal", libc::SYS_pidfd_send_signal),
            ("prctl", libc::SYS_prctl),
            ("inotify_init1", libc::SYS_inotify_init1),
            ("inotify_add_watch", libc::SYS_inotify_add_watch),
            ("clone", libc::SYS_clone),
            ("unshare", libc::SYS_unshare),
            ("pivot_root", libc::SYS_pivot_root),
            ("mount", libc::SYS_mount),
            ("memfd_create", libc::SYS_memfd_create),
            ("keyctl", libc::SYS_keyctl),
            ("signalfd4", libc::SYS_signalfd4),
        ] {
            refusing(env, name, call, false);
        }
    });
}

#[test]
fn too_few_descriptors_leave_no_fence_out() {
    each!(|env| {
        whole_or_refused(env, "no limit", &fenced(env).run().ok());
        fs::remove_file(env.project().join("new")).unwrap();
        for most in [3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 64] {
            let limited = format!("ulimit -n {most}; exec lnk \"$@\"");
            let flags = ["--write", ".", "--read", "ro", "--hide", "hidden"];
            let words = ["-c", &limited, "bash", "sandbox", "run"];
            let words = words.iter().chain(&flags).chain(&["--", "/usr/bin/python3", "look"]);
            let run = env.program("bash", words).run();
            if run.stdout == WHOLE {
                run.ok();
            } else {
                is_refused(&run);
                assert!(!env.project().join("new").exists(), "{most}\n{run}");
            }
            fs::remove_file(env.project().join("new")).ok();
        }
    });
}
