//! The kit itself, with programs that every machine has in place of `lnk`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use testkit::{TestEnv, User};

const PROGRAM: &str = "/bin/true";

fn each(body: impl Fn(&TestEnv)) {
    testkit::each(PROGRAM, body);
}

#[test]
fn a_program_runs_as_the_user_with_nothing_of_this_process() {
    each(|env| {
        let id = format!("{} {} {}\n", env.user.uid, env.user.gid, env.user.gid);
        let run = env.sh("echo $(id -u) $(id -g) $(id -G)").run().ok();
        // root's own groups stay root's: only for another user are they dropped.
        if env.user != User::current() {
            run.prints(&id);
        }
        let names = env.sh("env | cut -d= -f1 | sort | tr '\\n' ' '").run().ok();
        names.prints(
            "GIT_CONFIG_NOSYSTEM HOME LANG LNK_SANDBOX_MOUNTS LOGNAME PATH PWD SHLVL USER _ ",
        );
    });
}

#[test]
fn the_home_is_the_users_and_gone_afterwards() {
    let mut homes = Vec::new();
    for user in User::all() {
        let env = TestEnv::new(PROGRAM.as_ref(), &user, testkit::Mounts::Bwrap);
        let home = fs::metadata(env.home()).expect("the home is there");
        assert_eq!((home.uid(), home.mode() & 0o777), (user.uid, 0o700));
        let file = env.write("a/b", "x");
        assert_eq!(fs::metadata(&file).expect("just written").uid(), user.uid);
        env.sh("touch a/c && pwd").run().ok().prints(&format!("{}\n", env.project().display()));
        homes.push(env.home().to_owned());
    }
    assert!(homes.iter().all(|home| !home.exists()));
}

#[test]
fn lnk_is_on_path_and_runs() {
    each(|env| {
        env.lnk(["x"]).run().ok();
        env.sh("command -v lnk").run().ok().prints(&format!("{}\n", env.lnk_path().display()));
    });
}

#[test]
fn a_wrong_expectation_fails() {
    let env = TestEnv::new(PROGRAM.as_ref(), &User::current(), testkit::Mounts::Bwrap);
    let run = env.sh("echo out; echo err >&2; exit 3").run().fails_with(3).fails();
    let panics = |f: &dyn Fn()| catch_unwind(AssertUnwindSafe(f)).is_err();
    assert!(panics(&|| drop(run.clone().ok())));
    assert!(panics(&|| drop(run.clone().prints("out"))));
    assert!(panics(&|| drop(run.clone().stdout_has("err"))));
    assert!(panics(&|| drop(run.clone().stderr_has("out"))));
    assert!(panics(&|| drop(run.clone().has_not("err"))));
    assert!(panics(&|| drop(run.clone().quiet())));
    run.prints("out\n").stderr_has("err");
}

#[test]
fn a_program_that_hangs_is_ended_at_its_deadline() {
    let env = TestEnv::new(PROGRAM.as_ref(), &User::current(), testkit::Mounts::Bwrap);
    let short = Duration::from_millis(100);
    let hangs = || drop(env.program("sleep", ["600"]).deadline(short).run());
    assert!(catch_unwind(AssertUnwindSafe(hangs)).is_err());
}

#[test]
fn standard_input_is_empty_or_what_the_test_gives() {
    each(|env| {
        env.program("cat", [""; 0]).run().ok().prints("");
        env.program("cat", [""; 0]).stdin("some\n").run().ok().prints("some\n");
    });
}

#[test]
fn output_and_death_of_a_running_program_are_awaited() {
    each(|env| {
        let mut running = env.program("sh", ["-c", "echo ready; exec sleep 600"]).spawn();
        running.wait_for_stdout("ready");
        running.signal(rustix::process::Signal::TERM);
        running.wait().fails_with(143).prints("ready\n");
    });
}

#[test]
fn git_commits_as_the_test_person() {
    each(|env| {
        env.git(["init", "-q"]);
        env.git(["commit", "-q", "--allow-empty", "-m", "first"]);
        assert_eq!(env.git(["log", "--format=%an %s"]), "Test Person first");
    });
}

/// Says when it may be stopped and when it goes on. A shell's loop would do, had
/// it no vfork(2): a child stopped there keeps its parent from being stopped.
const JOB: &str = "\
import os, signal, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(signal.SIGCONT, lambda *_: os.write(1, b'back\\n'))
os.write(1, b'ready\\n')
while True:
    time.sleep(0.05)
";

#[test]
fn a_terminal_has_job_control_and_sizes() {
    each(|env| {
        env.write("job", JOB);
        let bash = env.program("bash", ["--norc", "-i"]).env("PS1", "> ");
        let mut terminal = bash.terminal(24, 80);
        terminal.line("stty size").shows("24 80");
        terminal.line("python3 job").shows("ready").send("\x1a").shows("Stopped");
        terminal
            .line("fg")
            .shows("back")
            .send("\x03")
            .shows("^C\n> ")
            .line("echo was $?")
            .shows("was 130");
        terminal.resize(10, 40).line("stty size").shows("10 40").line("exit 7");
        assert_eq!(terminal.wait_exit(), 7);
        assert!(!terminal.screen().contains("no job control"));
    });
}

#[test]
fn a_terminals_program_hears_of_a_new_size() {
    each(|env| {
        let waits = "trap 'stty size; exit 3' WINCH; echo ready; sleep 600 & wait";
        let mut terminal = env.sh(waits).terminal(24, 80);
        terminal.shows("ready").resize(10, 40).shows("10 40");
        assert_eq!(terminal.wait_exit(), 3);
    });
}

#[test]
fn a_terminal_opens_by_its_name() {
    each(|env| {
        let mut terminal = env.sh("echo by name > $(tty)").terminal(24, 80);
        assert_eq!(terminal.wait_exit(), 0);
        terminal.shows("by name");
    });
}

#[test]
fn a_file_is_replaced_for_one_program_only() {
    each(|env| {
        let fake = env.write_program("fake", "#!/bin/sh\necho fake; id -u\n");
        let fakes = format!("fake\n{}\n", env.user.uid);
        env.program("/usr/bin/env", [""; 0])
            .replaced("/usr/bin/env", &fake)
            .run()
            .ok()
            .prints(&fakes);
        env.program("/usr/bin/env", ["true"]).run().ok().prints("");
    });
}

#[test]
fn a_file_is_removed_for_one_program_only() {
    each(|env| {
        let there = "test -e /usr/bin/env && echo there || echo gone; id -u";
        let uid = env.user.uid;
        env.sh(there).removed("/usr/bin/env").run().ok().prints(&format!("gone\n{uid}\n"));
        env.sh(there).run().ok().prints(&format!("there\n{uid}\n"));
    });
}

#[test]
fn user_namespaces_are_used_up_for_one_program_only() {
    each(|env| {
        let make = "unshare --user true && echo made; id -u";
        let uid = env.user.uid;
        env.sh(make).no_user_namespaces().run().ok().prints(&format!("{uid}\n"));
        env.sh(make).run().ok().prints(&format!("made\n{uid}\n"));
    });
}

#[test]
fn a_system_call_is_denied_for_one_program_only() {
    each(|env| {
        let make = "mkdir made; ls -d made; id -u";
        let uid = env.user.uid;
        let run = env.sh(make).denied(libc::SYS_mkdir, libc::EXDEV).run().ok();
        run.stderr_has("cross-device").prints(&format!("{uid}\n"));
        env.sh(make).run().ok().prints(&format!("made\n{uid}\n"));
    });
}

#[test]
fn fences_go_together() {
    each(|env| {
        let fake = env.write_program("fake", "#!/bin/sh\necho fake\n");
        let run = env
            .sh("env; unshare --user true || mkdir made; id -u")
            .replaced("/usr/bin/env", fake)
            .no_user_namespaces()
            .denied(libc::SYS_mkdir, libc::EXDEV)
            .run();
        run.ok().prints(&format!("fake\n{}\n", env.user.uid)).stderr_has("cross-device");
    });
}

#[test]
fn a_program_of_the_users_has_mode_0755() {
    let env = TestEnv::new(PROGRAM.as_ref(), &User::current(), testkit::Mounts::Joiner);
    let program = env.write_program("run", "#!/bin/sh\n");
    assert_eq!(fs::metadata(program).expect("just written").permissions().mode() & 0o777, 0o755);
}
