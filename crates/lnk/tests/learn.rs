//! The list that a command needs: `lnk sandbox learn`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Call, Mounts, Run, TestEnv, each};

/// `lnk sandbox learn` with these flags, separated by spaces, and a command.
fn learn<const N: usize>(env: &TestEnv, flags: &str, command: [&str; N]) -> Call {
    let words = ["sandbox", "learn"].into_iter().chain(flags.split_whitespace());
    env.lnk(words.chain(["--"]).chain(command))
}

const INTERPRETER: &str = "  # an interpreter: runs any code it is given";

/// What is printed for these entries, each with its comment.
fn list(entries: &[&str]) -> String {
    let lines: String = entries.iter().map(|entry| format!("    {entry}\n")).collect();
    format!("[commands]\nallow = [\n{lines}]\n")
}

/// What is printed of them where there is a list already.
fn added(entries: &[&str]) -> String {
    entries.iter().map(|entry| format!("    {entry}\n")).collect()
}

fn sh() -> String {
    format!("\"sh\",{INTERPRETER}")
}

#[test]
fn the_list_is_exact_and_the_status_is_the_commands() {
    each!(|env| {
        let tool = env.write_program("tool", "#!/usr/bin/env sh\nuname\n");
        let tool = format!("{:?},", tool.display());
        let script = "/bin/ls > /dev/null; ls > /dev/null; ./tool; no-such-program; exit 3";
        learn(env, "--read .", ["sh", "-c", script]).run().fails_with(3).prints(&list(&[
            &tool,
            "\"env\",",
            "\"ls\",",
            &sh(),
            "\"uname\",",
        ]));
        let made_by = format!("\"awk\",{INTERPRETER}");
        learn(env, "--read .", ["awk", "BEGIN{exit 4}"])
            .run()
            .fails_with(4)
            .stderr_has("ended with status 4: only what it started until then is here\n")
            .prints(&list(&[&made_by]));
        learn(env, "--read .", ["sh", "-c", "kill -TERM $$"])
            .run()
            .fails_with(143)
            .prints(&list(&[&sh()]));
        learn(env, "--read .", ["no-such-program"])
            .run()
            .fails_with(127)
            .prints("")
            .stderr_has("lnk sandbox: no-such-program: not found")
            .stderr_has("lnk sandbox: no program to list\n");
    });
}

#[test]
fn what_the_command_prints_is_on_stderr() {
    each!(|env| {
        let run = learn(env, "--read .", ["sh", "-c", "echo out; echo err >&2; cat"])
            .stdin("in\n")
            .run()
            .ok()
            .prints(&list(&["\"cat\",", &sh()]));
        assert_eq!(run.stderr, "out\nerr\nin\n");
        // Where there is no stderr, it has none either.
        env.sh("lnk sandbox learn --read . -- sh -c 'echo out' 2>&-").run().ok().has_not("out");
    });
}

#[test]
fn a_name_is_offered_where_path_finds_that_file_by_it() {
    each!(|env| {
        let first = env.write_program(env.home().join("first/tool"), "#!/bin/sh\n:\n");
        let second = env.write_program(env.home().join("second/tool"), "#!/bin/sh\n:\n");
        let (first, second) = (first.display(), second.display());
        let script = format!("{first}; {second}");
        let folders = ["first", "second"].map(|it| env.home().join(it).display().to_string());
        let path = |folders: &str| format!("{folders}:/usr/bin:/bin");
        let learnt = |path: String| {
            let flags = "--read . --read ../first --read ../second";
            learn(env, flags, ["sh", "-c", &script]).env("PATH", path).run().ok().quiet()
        };
        let whole = |it: &dyn std::fmt::Display| format!("\"{it}\",");
        learnt(path(&folders[0])).prints(&list(&[&whole(&second), &sh(), "\"tool\","]));
        learnt(path(&folders.join(":"))).prints(&list(&[&whole(&second), &sh(), "\"tool\","]));
        learnt(path(&folders[1])).prints(&list(&[&whole(&first), &sh(), "\"tool\","]));
        learnt("/usr/bin:/bin".into()).prints(&list(&[&whole(&first), &whole(&second), &sh()]));
        learnt(path("/tmp:.")).prints(&list(&[&whole(&first), &whole(&second), &sh()]));
    });
}

#[test]
fn files_of_many_names_are_said() {
    each!(|env| {
        let busybox = ["/usr/bin/busybox", "/bin/busybox"].into_iter().find(|it| is_program(it));
        let Some(busybox) = busybox else { return testkit::missing("the program busybox") };
        let tools = env.folder(env.home().join("tools"));
        fs::copy(busybox, tools.join("busybox")).unwrap();
        let wc = env.link("busybox", tools.join("wc"));
        let wc = wc.to_str().unwrap();
        learn(env, "--read . --read ../tools", [wc, "-c"]).stdin("four").run().ok().prints(&list(
            &[&format!(
                "\"{wc}\",{INTERPRETER}; every program in {}",
                tools.join("busybox").display()
            )],
        ));
    });
}

#[test]
fn nothing_that_can_be_replaced_is_offered_and_each_is_told_once() {
    each!(|env| {
        fs::write(env.folder("../odd").join("open"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(env.home().join("odd/open"), Permissions::from_mode(0o777)).unwrap();
        let script =
            "for to in ./t ./t2 ~/t /tmp/t /dev/shm/t; do cp /bin/true $to && $to && $to; done
            ln -s t link; ./link
            ../odd/open
            printf '#!/bin/sh\\n:\\n' > ./'esc\u{1b}[2J' && chmod +x esc* && ./esc*
            cp /bin/sh s && ./s -c 'rm s; exec /proc/self/exe -c :'
            :";
        let run = learn(env, "--write . --read ../odd", ["sh", "-c", script]).run().ok();
        let run = run.prints(&list(&["\"chmod\",", "\"cp\",", "\"ln\",", "\"rm\",", &sh()]));
        let here = env.project().display();
        let home = env.home().display();
        let writes = "which the sandbox may write";
        for (left_out, why) in [
            (format!("{here}/t"), format!("it is in {here}, {writes}")),
            (format!("{here}/t2"), format!("it is in {here}, {writes}")),
            (format!("{here}/esc\\x1b[2J"), format!("it is in {here}, {writes}")),
            (format!("{here}/s"), format!("it is in {here}, {writes}")),
            (format!("{home}/t"), format!("it is in {home}, {writes}")),
            ("/tmp/t".into(), format!("it is in /tmp, {writes}")),
            ("/dev/shm/t".into(), format!("it is in /dev/shm, {writes}")),
            (format!("{here}/../odd/open"), format!("everybody may write {home}/odd/open")),
        ] {
            let line = format!("lnk sandbox: left out {left_out}: {why}");
            assert_eq!(run.stderr.matches(&line).count(), 1, "{line}: {run}");
        }
        assert_eq!(run.stderr.matches("left out").count(), 8, "{run}");
    });
}

#[test]
fn a_program_in_memory_is_left_out() {
    each!(|env| {
        let body = "import os\n\
            fd = os.memfd_create('m')\n\
            os.write(fd, open('/bin/true', 'rb').read())\n\
            os.execve(fd, ['m'], {})";
        learn(env, "--read .", ["python3", "-c", body])
            .run()
            .ok()
            .prints(&list(&[&format!("\"python3\",{INTERPRETER}")]))
            .stderr_has("it is in memory or was removed: only files can be listed");
    });
}

#[test]
fn what_is_listed_isnt_offered_again() {
    each!(|env| {
        env.write("app.toml", "[files]\nread = [\".\"]\n[commands]\nallow = [\"sh\", \"cat\"]\n");
        let script = ["sh", "-c", "cat app.toml > /dev/null; uname > /dev/null"];
        let more = added(&["\"uname\","]);
        let run = learn(env, "--spec app.toml --yes", script).run().ok().prints(&more);
        assert_eq!(run.stderr, "lnk sandbox: to add to the list that you have:\n");
        let flags = "--read . --command sh --command cat";
        learn(env, flags, script).run().ok().prints(&more);
        // A flag takes the key's place.
        learn(env, "--spec app.toml --yes --command uname", script)
            .run()
            .ok()
            .prints(&added(&["\"cat\",", &sh()]));
        let run = learn(env, &format!("{flags} --command uname"), script).run().ok().prints("");
        assert_eq!(run.stderr, "lnk sandbox: nothing to add: the list has them all\n");
        // Every program is no list: this run's would take its place.
        learn(env, "--read . --command *", script).run().ok().prints(&list(&[
            "\"cat\",",
            &sh(),
            "\"uname\",",
        ]));
    });
}

#[test]
fn a_spec_is_agreed_to_as_for_a_run() {
    each!(|env| {
        // One without [commands], which runs nothing, is what learning starts from.
        env.write("app.toml", "[files]\nread = [\".\"]\n");
        let words = ["sandbox", "run", "--spec", "app.toml", "--yes", "--", "true"];
        env.lnk(words).run().fails_with(125).stderr_has("[commands]");
        let command = ["sh", "-c", "echo ran"];
        learn(env, "--spec app.toml", command)
            .run()
            .fails_with(125)
            .prints("")
            .has_not("ran")
            .stderr_has("--yes");
        learn(env, "--spec app.toml --yes", command).run().ok().prints(&list(&[&sh()]));
        learn(env, "--spec app.toml", command).run().ok().prints(&list(&[&sh()]));
        env.write("app.toml", "[files]\nwrite = [\".\"]\n");
        learn(env, "--spec app.toml", command).run().fails_with(125).has_not("ran");
    });
}

#[test]
fn the_other_grants_hold_and_nothing_is_written() {
    each!(|env| {
        env.write("../secret", "secret\n");
        env.write("app.toml", "[files]\nwrite = [\"own\"]\nread = [\".\"]\n");
        env.folder("own");
        let before = tree(env);
        let script = "cat ../secret; echo x > ../new; echo x > new; echo x > own/new; rm own/new
            echo > /dev/tcp/127.0.0.1/9; true";
        for flags in ["--spec app.toml --yes", "--write own --read ."] {
            let run = learn(env, flags, ["bash", "-c", script]).run().ok();
            let run = run.has_not("secret\n").stderr_has("Connection refused");
            run.stderr_has("../secret: No such file").stderr_has("new: Read-only file system");
        }
        assert_eq!(tree(env), before);
    });
}

/// The home's files, but for lnk's own record of what was agreed to.
fn tree(env: &TestEnv) -> String {
    let found = env.sh("find ~ -path ~/.config/lnk -prune -o -print | grep -v '/.config$' | sort");
    found.run().ok().stdout
}

#[test]
fn json() {
    each!(|env| {
        let script = "cp /bin/true /tmp/t; /tmp/t; echo said; exit 5";
        let run = learn(env, "--read . --json --command cp", ["sh", "-c", script]);
        let run = run.run().fails_with(5).stderr_has("said\n");
        let value: Value = serde_json::from_str(&run.stdout).unwrap();
        let dash = fs::canonicalize("/bin/sh").unwrap();
        assert_eq!(
            value,
            json!({
                "status": 5,
                "allow": [{"entry": "sh", "path": dash, "interpreter": true, "many_names": false}],
                "left_out": [{"path": "/tmp/t", "why": "it is in /tmp, which the sandbox may write"}],
                "has_list": true,
                "listed": 1,
                "unheard": 0,
            })
        );
        assert_eq!(run.stdout.lines().count(), 1);
        assert_eq!(run.stderr, "said\n");
        let run = learn(env, "--read . --json", ["no-such-program"]).run().fails_with(127);
        let value: Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(value["allow"], json!([]));
    });
}

/// Learns a command's list, puts it into a spec with `files`, and runs the
/// command by that. `again` brings the project back to where it was.
fn there_and_back(env: &TestEnv, files: &str, command: &str, again: &str) -> Run {
    let deadline = Duration::from_secs(300);
    env.write("../app.toml", files);
    let words: Vec<&str> = command.split(' ').collect();
    let with = |verb: &str| {
        let to = ["sandbox", verb, "--spec", "../app.toml", "--yes", "--"];
        with_rust(env, env.lnk(to.iter().chain(&words)).deadline(deadline))
    };
    let learnt = with("learn").run().ok().has_not("left out");
    env.write("../app.toml", format!("{files}{}", learnt.stdout));
    env.sh(again).run().ok();
    with("run").run().ok().has_not("refused")
}

/// The programs tried below start others: without one of them nothing is shown.
fn one_less_is_refused(env: &TestEnv, command: &str, entry: &str) {
    let app = fs::read_to_string(env.home().join("app.toml")).expect("written before");
    let less: String = app
        .lines()
        .filter(|line| !line.contains(entry))
        .fold(String::new(), |text, line| text + line + "\n");
    assert!(less.len() < app.len(), "{entry} isn't in {app}");
    env.write("../app.toml", less);
    let words = ["sandbox", "run", "--spec", "../app.toml", "--yes", "--"];
    let run = with_rust(env, env.lnk(words.into_iter().chain(command.split(' ')))).run().fails();
    assert!(run.stderr.contains("add "), "{run}");
}

/// With the toolchain of the home, where it has one, first on PATH.
fn with_rust(env: &TestEnv, call: Call) -> Call {
    let bin = env.home().join(RUST).join("bin");
    call.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display()))
}

fn is_program(path: &str) -> bool {
    Path::new(path).is_file()
}

/// Whether this machine has a program that `scripts/test` installs.
fn has(program: &str) -> bool {
    let there = ["/usr/local/bin", "/usr/bin", "/bin"]
        .iter()
        .any(|folder| Path::new(folder).join(program).exists());
    if !there {
        testkit::missing(&format!("the program {program}"));
    }
    there
}

const RUST: &str = ".rustup/toolchains/stable";
const WRITES: &str = "[files]\nwrite = [\"~/project\"]\n";
const PACKAGE: &str = r#"{"name":"p","version":"1.0.0","scripts":{"test":"node t.js"}}"#;

#[test]
fn git_clone_by_its_list() {
    each!(|env| {
        env.git(["init", "-q", "origin"]);
        env.git(["-C", "origin", "commit", "-q", "--allow-empty", "-m", "first"]);
        let clone = "git clone --no-local origin made";
        there_and_back(env, WRITES, clone, "rm -r made");
        assert_eq!(env.git(["-C", "made", "log", "--format=%s"]), "first");
        env.sh("rm -rf made").run().ok();
        one_less_is_refused(env, clone, "\"sh\"");
    });
}

#[test]
fn npm_test_by_its_list() {
    if !has("npm") || !has("node") {
        return;
    }
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        env.write("package.json", PACKAGE);
        env.write("t.js", "console.log('passed', require('child_process').execSync('uname') + '')");
        there_and_back(env, WRITES, "npm test", "").stdout_has("passed Linux");
        one_less_is_refused(env, "npm test", "\"uname\"");
    });
}

#[test]
fn make_and_gcc_by_their_list() {
    if !has("make") || !has("gcc") {
        return;
    }
    each!(|env| {
        env.write("Makefile", "prog: prog.c\n\tgcc -O1 -o $@ $<\n");
        env.write("prog.c", "#include <stdio.h>\nint main(void) { puts(\"made\"); }\n");
        there_and_back(env, WRITES, "make", "rm prog");
        env.program(env.project().join("prog"), [""; 0]).run().ok().prints("made\n");
        env.sh("rm prog").run().ok();
        one_less_is_refused(env, "make", "cc1");
    });
}

#[test]
fn pytest_by_its_list() {
    if !has("pytest") {
        return;
    }
    each!(|env| {
        let test = "import subprocess\n\
            def test_kernel(): assert subprocess.check_output(['uname']) == b'Linux\\n'\n";
        env.write("test_it.py", test);
        there_and_back(env, WRITES, "/usr/bin/python3 -m pytest -q", "").stdout_has("1 passed");
        one_less_is_refused(env, "/usr/bin/python3 -m pytest -q", "\"uname\"");
    });
}

#[test]
fn cargo_build_by_its_list() {
    let Some(toolchain) = sysroot() else { return testkit::missing("a Rust toolchain") };
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        // A copy: of a file with other names, nobody knows where they are.
        let own = env.folder(env.home().join(RUST));
        let parts = ["bin", "lib"].map(|part| toolchain.join(part));
        let mut copy = Command::new("cp");
        let copied = copy.args(["-a", "--reflink=auto", "--"]).args(parts).arg(&own).status();
        assert!(copied.unwrap().success(), "copy {}", toolchain.display());
        let owner = format!("{}:{}", env.user.uid, env.user.gid);
        let owned = Command::new("chown").args(["-R", &owner]).arg(&own).status();
        assert!(owned.unwrap().success(), "chown {}", own.display());
        env.write(
            "Cargo.toml",
            "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
        );
        env.write("src/main.rs", "fn main() { println!(\"built\"); }\n");
        let files = "[files]\nread = [\"~/.rustup\"]\nwrite = [\"~/project\"]\n";
        let build = "cargo build --offline";
        there_and_back(env, files, build, "rm -r target");
        env.program(env.project().join("target/debug/small"), [""; 0]).run().ok().prints("built\n");
        env.sh("rm -r target").run().ok();
        one_less_is_refused(env, build, "\"rustc\"");
    });
}

fn sysroot() -> Option<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = Command::new(rustc).args(["--print", "sysroot"]).output().ok()?;
    let path = PathBuf::from(String::from_utf8(said.stdout).ok()?.trim_end());
    path.join("bin/cargo").exists().then_some(path)
}

const APP: &str = r#"name = "app"
version = 1

[files]
write = ["~/code/app"]

[commands]
allow = ["sh", "node", "npm"]
"#;

/// From a spec that has a list, to one that has all of it. The npm of most
/// systems starts with `#!/usr/bin/env node`.
#[test]
fn a_spec_that_lacks_what_a_script_starts_with() {
    if !has("npm") || !has("node") {
        return;
    }
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        let app = env.folder("../code/app");
        let in_app = |command: &str| env.sh(command).cwd(&app).run();
        env.write(app.join("package.json"), PACKAGE);
        env.write(app.join("t.js"), "console.log('passed')");
        let spec = env.write(app.join("app.toml"), APP);
        let run = "lnk sandbox run --spec app.toml --yes -- npm test";
        in_app(run).fails_with(126).has_not("passed").stderr_has(
            "npm starts with /usr/bin/env, which may not run: add \"env\" to [commands] allow",
        );
        in_app("lnk sandbox learn --spec app.toml -- npm test")
            .ok()
            .prints(&added(&["\"env\","]))
            .stderr_has("passed\n");
        env.write(&spec, APP.replace("\"sh\",", "\"env\", \"sh\","));
        in_app(run).ok().stdout_has("passed\n").quiet();
        env.git(["-C", app.to_str().unwrap(), "init", "-q"]);
        in_app("lnk sandbox run --write . --command sh --command git -- sh -c 'git status'")
            .ok()
            .stdout_has("package.json")
            .quiet();
        in_app("lnk sandbox run --write . --command sh -- sh -c 'git status'")
            .fails_with(126)
            .stderr_has("/git: add it to [commands] allow");
    });
}
