//! What a run's exit status and message say of how its program ended.

use testkit::{TestEnv, each};

fn run(env: &TestEnv, words: &[&str]) -> testkit::Run {
    env.lnk(["sandbox", "run", "--read", ".", "--"].iter().chain(words)).run()
}

fn message(run: &testkit::Run) -> &str {
    let line = run.stderr.strip_prefix("lnk sandbox: ").unwrap_or_else(|| panic!("no line\n{run}"));
    let line = line.strip_suffix('\n').expect("a line ends");
    assert!(!line.contains('\n'), "more than a line\n{run}");
    line
}

#[test]
fn the_programs_own_status_comes_back() {
    each!(|env| {
        for code in [0, 1, 7, 125, 255] {
            run(env, &["sh", "-c", &format!("exit {code}")]).fails_with(code).quiet();
        }
    });
}

#[test]
fn a_program_ended_by_a_signal_gives_128_and_its_number() {
    each!(|env| {
        for (signal, code) in
            [("HUP", 129), ("INT", 130), ("ABRT", 134), ("KILL", 137), ("SEGV", 139), ("TERM", 143)]
        {
            run(env, &["sh", "-c", &format!("kill -{signal} $$")]).fails_with(code);
        }
    });
}

#[test]
fn a_program_that_isnt_anywhere_is_127() {
    each!(|env| {
        let run = |name| run(env, &[name]).fails_with(127);
        assert_eq!(message(&run("no-such-program")), "no-such-program: not found");
        assert_eq!(message(&run("/no/such/program")), "/no/such/program: not found");
        // A name that would move the cursor is shown harmlessly.
        assert!(!run("no\x1b[2Jsuch").stderr.contains('\x1b'));
    });
}

#[test]
fn a_program_that_cant_be_executed_is_126() {
    each!(|env| {
        let passwd = run(env, &["/etc/passwd"]).fails_with(126);
        assert!(message(&passwd).starts_with("/etc/passwd: not executable"), "{passwd}");
        let folder = run(env, &["/usr/bin"]).fails_with(126);
        assert_eq!(message(&folder), "/usr/bin: is a folder, not a program");

        let program = env.write_program("other-machines", b"\x7fELF\x02\x01\x01\0other");
        let open = ["sandbox", "run", "--read", ".", "--"];
        let program = program.to_str().expect("a test's path is UTF-8");
        let run = env.lnk(open.iter().chain(&[program])).run().fails_with(126);
        assert!(message(&run).contains("not a program for this machine"), "{run}");
    });
}

#[test]
fn lnks_own_failure_is_125_and_nothing_runs() {
    each!(|env| {
        let script = "sandbox run --read . --write /no/such -- sh -c 'echo ran'";
        let run = env.sh(&format!("lnk {script}")).run().fails_with(125).prints("");
        assert!(message(&run).contains("/no/such"), "{run}");
    });
}

#[test]
fn a_program_in_a_closed_folder_is_named_with_the_flag_that_opens_it() {
    each!(|env| {
        let bin = env.home().join(".cargo/bin");
        env.write_program(bin.join("cargo"), "#!/bin/sh\necho built\n");
        let path = format!("{}:/usr/bin:/bin", bin.display());

        let closed =
            env.lnk(["sandbox", "run", "--read", ".", "--", "cargo"]).env("PATH", &path).run();
        assert_eq!(message(&closed.fails_with(127)), "cargo is in ~/.cargo: add --read ~/.cargo");
        let cargo = env.home().join(".cargo");
        let words = [
            "sandbox",
            "run",
            "--read",
            ".",
            "--read",
            cargo.to_str().expect("UTF-8"),
            "--",
            "cargo",
        ];
        env.lnk(words).env("PATH", &path).run().ok().prints("built\n");
    });
}

#[test]
fn a_script_whose_interpreter_is_missing_names_it() {
    each!(|env| {
        env.write_program("script", "#!/no/such/interpreter -x\n");
        let run = env.sh("lnk sandbox run --read . -- ./script").run().fails_with(127);
        assert!(message(&run).contains("/no/such/interpreter"), "{run}");

        let closed = env.write_program(env.home().join("tools/shell"), "#!/bin/sh\n");
        env.write_program("script", format!("#!{}\n", closed.display()));
        let run = env.sh("lnk sandbox run --read . -- ./script").run().fails_with(127);
        assert!(message(&run).contains("--read ~/tools"), "{run}");
    });
}

#[test]
fn a_script_without_an_interpreter_is_the_shells() {
    each!(|env| {
        env.write_program("script", "echo \"$0: $1, $#\"; exit 4\n");
        let run = env.sh("lnk sandbox run --read . -- ./script 'a b' c").run();
        run.fails_with(4).prints("./script: a b, 2\n");
        let run = env.sh("PATH=$PWD:$PATH; lnk sandbox run --read . -- script 'a b' c").run();
        run.fails_with(4).stdout_has("/script: a b, 2\n");
    });
}

#[test]
fn a_name_is_looked_for_as_a_shell_would() {
    each!(|env| {
        // The first of the name on PATH may not be executed: the next one is.
        env.write("bin/tool", "#!/bin/sh\necho first\n");
        env.write_program("bin2/tool", "#!/bin/sh\necho second\n");
        let script = "PATH=$PWD/bin:$PWD/bin2:$PATH; lnk sandbox run --read . -- tool";
        env.sh(script).run().ok().prints("second\n");
    });
}
