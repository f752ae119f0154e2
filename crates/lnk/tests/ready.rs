//! Machines with a fence missing or broken: nothing runs, and `ready` says why.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::{Call, Mounts, Run, TestEnv, User, each};

const BWRAP: &str = "/usr/bin/bwrap";

fn run(env: &TestEnv) -> Call {
    env.lnk(["sandbox", "run", "--write", ".", "--", "sh", "-c", "echo ran; touch ran"])
}

fn ready(env: &TestEnv) -> Call {
    env.lnk(["sandbox", "ready"])
}

/// `run` in a broken place: 125, nothing ran, a line that says what to do.
#[track_caller]
fn refused(env: &TestEnv, call: Call) -> Run {
    let run = call.run().fails_with(125).prints("");
    let run = run.stderr_has("lnk sandbox: ").stderr_has("the program didn't run");
    assert!(!env.project().join("ran").exists(), "it ran\n{run}");
    run.stderr_has("lnk sandbox ready")
}

/// A bubblewrap of root's that isn't one; `None` where the test isn't root and
/// so can't make one that is trusted.
fn fake_bwrap(env: &TestEnv, does: &str) -> Option<PathBuf> {
    if !User::current().is_root() {
        testkit::skip("only root makes a bubblewrap that lnk would run");
        return None;
    }
    let path = env.outside().join("fake-bwrap");
    let version = "[ \"$1\" = --version ] && echo bubblewrap 0.8.0 && exit";
    std::fs::write(&path, format!("#!/bin/sh\n{version}\n{does}\n")).expect("own folder");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("own file");
    Some(path)
}

#[test]
fn a_good_machine_is_ready() {
    each!(|env| {
        ready(env).run().ok().stdout_has("The sandbox can run here (bubblewrap ").quiet();
        run(env).run().ok().prints("ran\n");
    });
}

#[test]
fn without_bubblewrap_nothing_runs() {
    each!(|env| {
        let missing = "bubblewrap isn't installed: there is no /usr/bin/bwrap";
        refused(env, run(env).removed(BWRAP)).stderr_has(missing);
        let ready = ready(env).removed(BWRAP).run().fails_with(125).prints("");
        ready.stderr_has(missing).stderr_has("bubblewrap");
    });
}

#[test]
fn a_bubblewrap_on_path_is_never_used() {
    each!(|env| {
        let used = env.home().join("used");
        let fake = format!("#!/bin/sh\ntouch {}\nexec {BWRAP} \"$@\"\n", used.display());
        env.write_program(env.home().join("bin/bwrap"), fake);
        let path = format!("{}/bin:/usr/bin:/bin:/usr/sbin", env.home().display());
        run(env).env("PATH", &path).run().ok().prints("ran\n");
        ready(env).env("PATH", &path).run().ok();
        std::fs::remove_file(env.project().join("ran")).expect("it ran");
        refused(env, run(env).env("PATH", &path).removed(BWRAP));
        ready(env).env("PATH", &path).removed(BWRAP).run().fails_with(125);
        assert!(!used.exists());
    });
}

#[test]
fn each_failure_of_bubblewrap_is_told_apart() {
    each!(|env| {
        for (said, cause) in [
            ("setting up uid map: Permission denied", "refuses namespaces"),
            (
                "No permissions to create new namespace, likely because the kernel does not \
                 allow non-privileged user namespaces.",
                "refuses namespaces",
            ),
            ("Creating new namespace failed: No space left on device", "user.max_user_namespaces"),
            ("Can't mount proc on /newroot/proc: Operation not permitted", "covers parts of /proc"),
            ("loopback: Failed RTM_NEWADDR: Operation not permitted", "refuses namespaces"),
            ("Unknown option --disable-userns", "too old"),
            ("something else", "bubblewrap failed: something else"),
        ] {
            let fails = format!("echo \"bwrap: {said}\" >&2; exit 1");
            let Some(fake) = fake_bwrap(env, &fails) else { return };
            refused(env, run(env).replaced(BWRAP, &fake)).stderr_has(cause);
            ready(env).replaced(BWRAP, &fake).run().fails_with(125).prints("").stderr_has(cause);
        }
    });
}

#[test]
fn a_bubblewrap_that_ends_without_a_word_ran_nothing() {
    each!(|env| {
        for does in ["exit 1", "exit 0", "kill -9 $$"] {
            let Some(fake) = fake_bwrap(env, does) else { return };
            refused(env, run(env).replaced(BWRAP, fake));
        }
    });
}

#[test]
fn what_bubblewrap_says_cant_move_the_cursor() {
    each!(|env| {
        let Some(fake) = fake_bwrap(env, "printf 'bwrap: \\033[2J\\r\\n' >&2; exit 1") else {
            return;
        };
        let run = refused(env, run(env).replaced(BWRAP, fake));
        assert!(!run.stderr.contains(['\x1b', '\r']), "{run}");
    });
}

#[test]
fn a_bubblewrap_that_hangs_is_given_up() {
    each!(|env| {
        let Some(fake) = fake_bwrap(env, "exec sleep 600") else { return };
        ready(env).replaced(BWRAP, &fake).run().fails_with(125).stderr_has("didn't end within 10");
    });
}

/// The system calls, proc_pid_syscall(5), that processes of this program are in.
fn calls_in(program: &Path) -> Vec<String> {
    let all = std::fs::read_dir("/proc").expect("/proc is there").flatten();
    let all = all.map(|entry| entry.path());
    let its = all.filter(|proc| std::fs::read_link(proc.join("exe")).is_ok_and(|e| e == program));
    its.map(|proc| std::fs::read_to_string(proc.join("syscall")).unwrap_or_default()).collect()
}

#[track_caller]
fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_trial_whose_lnk_is_killed_ends_by_itself() {
    if !Path::new("/usr/bin/strace").exists() {
        return testkit::skip("there is no strace, to hold bubblewrap up");
    }
    each!(|env| {
        let bwrap = env.outside().join("bwrap");
        std::fs::copy(BWRAP, &bwrap).expect("bubblewrap is there");
        // Between the making of its first process and the word to that.
        let held = format!(
            "exec strace -D -qq -o /dev/null -e trace=write -e inject=write:delay_enter=500000 \
             {} \"$@\"",
            bwrap.display()
        );
        let Some(fake) = fake_bwrap(env, &held) else { return };
        let ready = ready(env).replaced(BWRAP, &fake).spawn();
        let write = format!("{} ", libc::SYS_write);
        let writes = || calls_in(&bwrap).iter().any(|call| call.starts_with(&write));
        until("bubblewrap says no word", writes);
        ready.signal(Signal::KILL);
        ready.wait();
        until("something is left", || calls_in(&bwrap).is_empty());
    });
}

#[test]
fn a_run_that_hangs_before_its_program_is_given_up() {
    if std::env::var_os("LNK_LONG").is_none_or(|long| long != "1") {
        return testkit::skip("it takes more than a minute: LNK_LONG=1 runs it");
    }
    let lnk = env!("CARGO_BIN_EXE_lnk");
    let env = TestEnv::new(lnk.as_ref(), &User::current(), Mounts::Joiner);
    let Some(fake) = fake_bwrap(&env, "exec sleep 600") else { return };
    let started = Instant::now();
    refused(&env, run(&env).replaced(BWRAP, &fake).deadline(Duration::from_secs(200)));
    assert!(started.elapsed() > Duration::from_secs(60));
}

#[test]
fn user_namespaces_off_are_named_for_root_too() {
    each!(|env| {
        let limit = "user.max_user_namespaces";
        refused(env, run(env).no_user_namespaces()).stderr_has(limit);
        ready(env).no_user_namespaces().run().fails_with(125).stderr_has(limit);
    });
}

#[test]
fn a_landlock_that_fails_stops_everything() {
    each!(|env| {
        for call in [
            libc::SYS_landlock_create_ruleset,
            libc::SYS_landlock_add_rule,
            libc::SYS_landlock_restrict_self,
        ] {
            refused(env, run(env).denied(call, libc::EPERM)).stderr_has("Landlock");
        }
        let asked = ready(env).denied(libc::SYS_landlock_create_ruleset, libc::EPERM).run();
        asked.fails_with(125).prints("").stderr_has("Landlock");
    });
}

#[test]
fn a_refused_filter_stops_everything() {
    each!(|env| {
        for errno in [libc::EPERM, libc::ENOSYS, libc::EINVAL] {
            refused(env, run(env).denied(libc::SYS_seccomp, errno)).stderr_has("seccomp");
            let ready = ready(env).denied(libc::SYS_seccomp, errno).run().fails_with(125);
            ready.prints("").stderr_has("seccomp");
        }
    });
}

#[test]
fn keys_that_cant_be_left_stop_everything() {
    each!(|env| {
        refused(env, run(env).denied(libc::SYS_keyctl, libc::EPERM)).stderr_has("keyring");
        // A kernel without keys has none to leave.
        run(env).denied(libc::SYS_keyctl, libc::ENOSYS).run().ok().prints("ran\n");
    });
}

/// A kernel without Landlock.
fn without_landlock(call: Call) -> Call {
    [
        libc::SYS_landlock_create_ruleset,
        libc::SYS_landlock_add_rule,
        libc::SYS_landlock_restrict_self,
    ]
    .into_iter()
    .fold(call, |call, number| call.denied(number, libc::ENOSYS))
}

#[test]
fn without_landlock_the_mounts_hold_every_grant() {
    each!(|env| {
        env.write("read/file", "r");
        env.write("write/file", "w");
        env.write("write/hidden/file", "h");
        env.write("closed/file", "c");
        env.folder("write/.git");
        let tries = "cat read/file write/file; echo new > write/new && echo written; \
            for closed in read/file read/new write/.git/config /etc/new /proc/sys/kernel/hostname; \
            do (echo x >> $closed) 2> /dev/null && echo opened $closed; done; \
            cat closed/file write/hidden/file 2> /dev/null; echo; echo end";
        without_landlock(in_folders(env, tries)).run().ok().prints("rwwritten\n\nend\n");
        let ready = without_landlock(ready(env)).run().ok();
        ready.stdout_has("can run here").stdout_has("Landlock isn't in this kernel");
    });
}

/// A run in the project's folders, from one of them.
fn in_folders(env: &TestEnv, script: &str) -> Call {
    let folder = |name: &str| env.project().join(name).display().to_string();
    let mut words: Vec<String> = ["sandbox", "run", "--read"].map(String::from).into();
    words.extend([folder("read"), "--write".into(), folder("write")]);
    words.extend(["--hide".into(), folder("write/hidden")]);
    words.extend(["--", "sh", "-c"].map(String::from));
    words.push(format!("cd ..; {script}"));
    env.lnk(words).cwd("write")
}

#[test]
fn a_kernel_without_the_joiners_calls_is_served_by_bubblewrap() {
    each!(|env| {
        let old = |call: Call| call.denied(libc::SYS_fsopen, libc::ENOSYS);
        let words = ["sandbox", "run", "--read", ".", "--", "echo", "ran"];
        old(env.lnk(words)).env_remove("LNK_SANDBOX_MOUNTS").run().ok().prints("ran\n").quiet();
        let forced = old(env.lnk(words)).run();
        match env.mounts {
            Mounts::Bwrap => forced.ok().prints("ran\n"),
            Mounts::Joiner => forced.fails_with(125).prints("").stderr_has("lnk sandbox ready"),
        };
    });
}

/// A run without bubblewrap, where `apt-get` is a script that does this.
fn run_with_apt(env: &TestEnv, does: &str) -> Call {
    let apt = env.outside().join("fake-apt-get");
    std::fs::write(&apt, format!("#!/bin/sh\necho apt-get called: $*\n{does}\n"))
        .expect("own folder");
    std::fs::set_permissions(&apt, PermissionsExt::from_mode(0o755)).expect("own file");
    run(env).removed(BWRAP).replaced("/usr/bin/apt-get", apt)
}

fn installs_here(env: &TestEnv) -> bool {
    let apt = std::path::Path::new("/usr/bin/apt-get").exists();
    env.user.is_root() && User::current().is_root() && apt
}

#[test]
fn asked_on_a_terminal_bubblewrap_is_installed_and_the_program_runs() {
    each!(|env| {
        if !installs_here(env) {
            return;
        }
        let saved = env.outside().join("saved-bwrap");
        std::fs::copy(BWRAP, &saved).expect("bubblewrap is installed");
        let install = format!("cp {} {BWRAP}", saved.display());
        let mut terminal = run_with_apt(env, &install).terminal(24, 100);
        terminal.shows("apt-get install -y bubblewrap").shows("Run it now? [y/N]").line("y");
        assert_eq!(terminal.wait_exit(), 0, "{}", terminal.screen());
        terminal.shows("apt-get called: install -y bubblewrap").shows("\nran");
    });
}

#[test]
fn without_a_yes_nothing_is_installed() {
    each!(|env| {
        if !installs_here(env) {
            return;
        }
        for answer in ["", "n", "what"] {
            let mut terminal = run_with_apt(env, "").terminal(24, 100);
            terminal.shows("Run it now? [y/N]").line(answer);
            assert_eq!(terminal.wait_exit(), 125, "{}", terminal.screen());
            assert!(!terminal.screen().contains("called"), "{}", terminal.screen());
        }
        // A command that fails is no reason to go on.
        let mut terminal = run_with_apt(env, "exit 100").terminal(24, 100);
        terminal.shows("Run it now? [y/N]").line("yes");
        assert_eq!(terminal.wait_exit(), 125, "{}", terminal.screen());
        terminal.shows("failed");
        // Nobody to ask: the command is printed.
        refused(env, run_with_apt(env, ""))
            .stderr_has("apt-get install -y bubblewrap")
            .has_not("y/N");
    });
}

#[test]
fn a_question_can_be_left_by_the_terminals_key() {
    each!(|env| {
        if !installs_here(env) {
            return;
        }
        let mut terminal = run_with_apt(env, "").terminal(24, 100);
        terminal.shows("Run it now? [y/N]").send("\x03");
        assert_eq!(terminal.wait_exit(), 130, "{}", terminal.screen());
    });
}
