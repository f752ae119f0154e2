//! The names by which `pause`, `resume`, `paused`, `log` and `stop` know sandboxes.

mod network;

use std::fs;

use network::{SERVE, run};
use rustix::process::Signal;
use serde_json::Value;
use testkit::{Net, Run, Running, TestEnv, each};

/// A spec's text, but for its name.
const SPEC: &str =
    "[internet]\nhosts = ['a.example']\n[files]\nread = ['.']\n[commands]\nallow = ['*']\n";
/// Says so once it runs, and when its call was refused.
const ASK: &str = "echo runs; read; \
                   curl -sS http://a.example/ | grep -q 'paused (by hand)' && echo closed";

fn lnk(env: &TestEnv, words: &str) -> Run {
    env.lnk(["sandbox"].into_iter().chain(words.split_whitespace())).run()
}

/// A spec of this name, or of none, which nobody agreed to.
fn write(env: &TestEnv, file: &str, name: &str) -> String {
    let name = if name.is_empty() { String::new() } else { format!("name = '{name}'\n") };
    env.write(file, name + SPEC).display().to_string()
}

/// The same, agreed to: it ran.
fn spec(env: &TestEnv, file: &str, name: &str) -> String {
    let path = write(env, file, name);
    env.lnk(["sandbox", "run", "--spec", file, "--yes", "--", "true"]).run().ok();
    path
}

fn paused(env: &TestEnv) -> Value {
    let said = lnk(env, "paused --json").ok().stdout;
    serde_json::from_str::<Value>(&said).expect("JSON")["paused"].clone()
}

#[test]
fn an_idle_spec_is_known_by_its_name() {
    each!(|env| {
        write(env, "cmd.toml", "cmd");
        lnk(env, "pause cmd").fails_with(125).stderr_has("cmd: no sandbox is called this");
        let path = spec(env, "cmd.toml", "cmd");
        lnk(env, "resume cmd").ok().prints(&format!("cmd ({path}) isn't paused.\n"));
        lnk(env, "pause cmd")
            .ok()
            .prints(&format!("cmd ({path}) is paused: when it runs its wire is closed.\n"));
        // As it was called when it was paused, whatever its file says now.
        write(env, "cmd.toml", "other");
        lnk(env, "pause other").ok().stdout_has("was paused already.");
        env.write("cmd.toml", "nonsense");
        assert_eq!(paused(env)[0]["name"], "other");
        lnk(env, "resume other").ok().stdout_has("is resumed: 0 wires opened.");
        lnk(env, "pause other").fails_with(125).stderr_has(&format!("there are {path}\n"));
        lnk(env, "pause cmd.toml").ok().stdout_has("is paused");
        fs::remove_file(&path).expect("own file");
        lnk(env, "resume cmd.toml").ok().stdout_has("is resumed");
        lnk(env, "resume cmd.toml").fails_with(125).stderr_has("and none is known");
    });
}

#[test]
fn two_of_one_name_are_told_apart_by_their_paths() {
    each!(|env| {
        let one = spec(env, "one.toml", "app");
        let two = spec(env, "two's.toml", "app").replace('\'', "'\\''");
        let nameless = spec(env, "none.toml", "");
        for command in ["pause app", "resume app"] {
            lnk(env, command).fails_with(125).prints("").stderr_has(&format!(
                "app: several sandboxes are called this: give the path of one, '{two}' or {one}\n"
            ));
        }
        lnk(env, "pause nobody")
            .fails_with(125)
            .stderr_has(&format!("there are '{two}', {nameless}, {one}\n"));
        for (file, shown) in [("two's.toml", format!("'{two}'")), ("none.toml", nameless)] {
            env.lnk(["sandbox", "pause", file]).run().ok();
            let run = env.lnk(["sandbox", "run", "--spec", file, "--", "true"]).run().ok();
            let (log, resume) = (
                format!("lnk sandbox log --sandbox {shown}"),
                format!("lnk sandbox resume {shown}"),
            );
            let quoted = |command: &str| match command.contains('\'') {
                true => command.to_owned(),
                false => format!("'{command}'"),
            };
            run.stderr_has(&format!(
                "the wire of {shown} is paused: by hand; {} shows its calls, {} opens it\n",
                quoted(&log),
                quoted(&resume)
            ));
            env.sh(&resume.replacen("lnk", &env.lnk_path().display().to_string(), 1))
                .run()
                .ok()
                .stdout_has("is resumed");
        }
    });
}

#[test]
fn a_name_that_looks_like_a_flag_is_refused() {
    each!(|env| {
        write(env, "x.toml", "-x");
        env.lnk(["sandbox", "run", "--spec", "x.toml", "--yes", "--", "true"])
            .run()
            .fails_with(125)
            .stderr_has("'-x' can't be a name: begin and end it with a letter or a number");
    });
}

#[test]
fn what_is_no_spec_isnt_paused() {
    each!(|env| {
        env.write("notes.toml", "not a spec");
        for (file, why) in [
            ("/etc/passwd", "isn't a valid spec, nor one that was agreed to"),
            ("./notes.toml", "isn't a valid spec, nor one that was agreed to"),
            ("/etc", "plain file"),
            ("/none/x.toml", "no sandbox is called this"),
        ] {
            lnk(env, &format!("pause {file}")).fails_with(125).prints("").stderr_has(why);
            lnk(env, &format!("resume {file}")).fails_with(125).prints("").stderr_has(why);
        }
        env.lnk(["sandbox", "pause", ""]).run().fails_with(125).stderr_has("'' is no name: ");
        lnk(env, "resume run-1").fails_with(125).stderr_has(
            "run-1 doesn't run: a pause of its own ended with it; that of a spec stays",
        );
        assert_eq!(paused(env).as_array().map(Vec::len), Some(0));
        // One that nobody ran yet may be.
        write(env, "new.toml", "new");
        lnk(env, "pause ./new.toml").ok();
        assert_eq!(paused(env)[0]["name"], "new");
    });
}

fn net() -> Option<Net> {
    let mut net = Net::new()?;
    let [python, flag, script] = SERVE;
    net.serve([python, flag, script, "http", "11.0.0.2", "80"]);
    Some(net)
}

fn stopped(env: &TestEnv, net: &Net, flags: &str) -> (Running, String) {
    let mut sandbox = run(env, net, flags, ["bash", "-c", ASK]).stdin("\n").spawn();
    sandbox.wait_for_stdout("runs\n");
    sandbox.signal(Signal::STOP);
    let name = format!("run-{}", sandbox.pid());
    (sandbox, name)
}

#[test]
fn a_run_whose_lnk_is_stopped_is_paused_all_the_same() {
    let Some(net) = net() else { return };
    each!(|env| {
        let path = write(env, "app.toml", "app");
        for (flags, shown) in [
            ("--spec app.toml --yes", Some(format!("app ({path})"))),
            ("--internet-host a.example", None),
        ] {
            let (mut sandbox, name) = stopped(env, &net, flags);
            let shown = shown.unwrap_or_else(|| name.clone());
            lnk(env, &format!("pause {name}")).fails_with(1).quiet().prints(&format!(
                "{shown} is paused: 0 wires closed, 0 calls ended; {name} closes once its lnk, \
                 which is stopped or busy, goes on.\n"
            ));
            let all = paused(env);
            let mut all = all.as_array().expect("a list").iter();
            assert!(all.any(|it| it["running"][0] == *name), "{name}");
            sandbox.signal(Signal::CONT);
            sandbox.wait_for_stderr("is paused: by hand");
            sandbox.signal(Signal::TERM);
            sandbox.wait();
        }
        lnk(env, "resume app").ok();
    });
}

#[test]
fn paused_shows_names_as_they_are() {
    each!(|env| {
        let path = spec(env, "it's.toml", "every");
        let nameless = spec(env, "a  b.toml", "");
        for file in ["it's.toml", "a  b.toml"] {
            env.lnk(["sandbox", "pause", file]).run().ok();
        }
        lnk(env, "stop").ok();
        let all = paused(env);
        let find = |path: &str| {
            let all = all.as_array().expect("a list").iter();
            all.clone().find(|it| it["spec"] == *path).expect("it is paused")
        };
        assert_eq!(find(&path)["name"], "every");
        assert_eq!(find(&path)["reason"], "by hand");
        assert_eq!(find(&nameless)["name"], Value::Null);
        let table = lnk(env, "paused").ok().quiet().stdout;
        let lines: Vec<&str> = table.lines().collect();
        let at = |line: &str, text: &str| line.find(text).unwrap_or_else(|| panic!("{table}"));
        assert!(lines[1].starts_with("(every sandbox)  20"), "{table}");
        assert!(table.contains("\nevery            20"), "{table}");
        let why = at(lines[0], "WHY");
        assert!(lines[2..].iter().all(|line| at(line, "by hand") == why), "{table}");
        let spec = at(lines[0], "SPEC");
        assert!(
            lines[2..]
                .iter()
                .all(|line| [" '/", " $'/"].map(|it| line.find(it)).contains(&Some(spec - 1))),
            "{table}"
        );
    });
}

#[test]
fn the_log_is_asked_for_by_a_specs_path_and_its_lines_have_it() {
    let Some(net) = net() else { return };
    each!(|env| {
        let call = |file: &str| {
            let flags = format!("--spec {file} --yes");
            let words = ["curl", "-sS", "-o", "/dev/null", "http://origin.test.example/"];
            run(env, &net, &flags, words).run().ok()
        };
        let (one, two) = (write(env, "one.toml", "app"), write(env, "two.toml", "app"));
        call("one.toml");
        call("two.toml");
        call("two.toml");
        let calls = |whose: &str| {
            let said = env.lnk(["sandbox", "log", "--json", "--sandbox", whose]).run().ok();
            let lines = said.stdout.lines().map(|line| {
                let line: Value = serde_json::from_str(line).expect("JSON");
                line["spec_path"].as_str().expect("its path").to_owned()
            });
            (lines.collect::<Vec<_>>(), said.stderr)
        };
        assert_eq!(calls("./one.toml"), (vec![one.clone()], String::new()));
        assert_eq!(calls(&two), (vec![two.clone(), two.clone()], String::new()));
        let (all, told) = calls("app");
        assert_eq!(all.len(), 3);
        assert_eq!(
            told,
            format!(
                "Several specs are called app, and these are the calls of all; --sandbox {one} or \
                 {two} shows one's.\n"
            )
        );
        let idle = spec(env, "idle.toml", "idle");
        for whose in ["idle", &idle] {
            let none = env.lnk(["sandbox", "log", "--sandbox", whose]).run().ok();
            none.prints("").stderr_has("No call was made.\n");
        }
        let log = |whose| env.lnk(["sandbox", "log", "--sandbox", whose]).run().fails_with(125);
        log("/etc/passwd").stderr_has("isn't a valid spec");
        log("idel").stderr_has("did you mean idle?");
        log("").stderr_has("--sandbox needs a name");
    });
}

#[test]
fn what_is_done_and_cant_be_told_is_done() {
    each!(|env| {
        spec(env, "app.toml", "app");
        let lnk_path = env.lnk_path();
        let full = |words: &str| {
            let script = format!("{} sandbox {words} >/dev/full", lnk_path.display());
            env.sh(&script).run().fails_with(1).stderr_has(
                "can't write to stdout: no space left on device; what was asked for is done all the \
                 same\n",
            );
        };
        full("stop");
        lnk(env, "paused").ok().stdout_has("(every sandbox)");
        full("stop --off");
        lnk(env, "paused").ok().prints("");
        full("pause app");
        assert_eq!(paused(env)[0]["name"], "app");
        full("resume app");
        assert_eq!(paused(env).as_array().map(Vec::len), Some(0));
    });
}

#[test]
fn roots_stop_says_whose_it_is() {
    each!(|env| {
        let stop = |words: &str, user: &str| {
            let words = ["sandbox"].into_iter().chain(words.split_whitespace());
            env.lnk(words).env("SUDO_USER", user).run().ok()
        };
        let is_root = env.program("id", ["-u"]).run().ok().stdout == "0\n";
        if is_root {
            stop("stop", "al ice").stdout_has("Stopped: 0 wires of root closed, ").stderr_has(
                "Those of al ice are as they were: sudo -u 'al ice' -H lnk sandbox stop",
            );
            stop("stop --off", "alice").prints("0 wires of root opened.\n").stderr_has(
                "Those of alice are as they were: 'sudo -u alice -H lnk sandbox stop --off' opens \
                 them.\n",
            );
        } else {
            stop("stop", "alice").stdout_has("Stopped: 0 wires closed, ").quiet();
        }
    });
}
