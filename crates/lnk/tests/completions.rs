//! Names of sandboxes, completed by shells.

use testkit::{TestEnv, each};

/// A spec agreed to, of this name.
fn spec(env: &TestEnv, file: &str, name: &str) -> String {
    let text = format!(
        "name = '{name}'\n[internet]\nhosts = ['a.example']\n[files]\nread = ['.']\n\
         [commands]\nallow = ['*']\n"
    );
    let path = env.write(file, text).display().to_string();
    env.lnk(["sandbox", "run", "--spec", file, "--yes", "--", "true"]).run().ok();
    path
}

fn pause(env: &TestEnv, name: &str) {
    env.lnk(["sandbox", "pause", name]).run().ok();
}

/// Three of which one is paused, two have one name and one of these a path that a shell
/// would read as more than a word. Their words, but for that one.
fn specs(env: &TestEnv) -> [String; 3] {
    spec(env, "app.toml", "app");
    spec(env, "b.toml", "apricot");
    let twice = spec(env, "c.toml", "twice");
    spec(env, "$(touch made) '.toml", "twice");
    pause(env, "apricot");
    ["app".into(), "apricot".into(), twice]
}

/// The script of a shell, and `lnk` on PATH.
fn prepared(env: &TestEnv, shell: &str) -> (String, std::ffi::OsString) {
    let script = env.lnk(["completions", shell]).run().ok().stdout;
    let file = env.write(format!("completions.{shell}"), script);
    let mut path = env.lnk_path().parent().expect("a folder").as_os_str().to_owned();
    path.push(":/usr/bin:/bin");
    (file.display().to_string(), path)
}

fn has(shell: &str) -> bool {
    let found = std::path::Path::new("/usr/bin").join(shell).exists();
    if !found {
        testkit::skip(&format!("no {shell}"));
    }
    found
}

#[test]
fn bash_completes_names() {
    each!(|env| {
        let [app, apricot, twice] = specs(env);
        let (script, path) = prepared(env, "bash");
        // As readline has it: the words, which of them, and what the function leaves.
        let complete = |words: &str| {
            let bash = format!(
                "source '{script}'; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
                 by=$(complete -p lnk); by=${{by#*-F }}; ${{by% lnk}} lnk \"${{COMP_WORDS[-1]}}\" \
                 \"${{COMP_WORDS[-2]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\""
            );
            let run = env.program("bash", ["-c", &bash]).env("PATH", &path).run().ok().quiet();
            run.stdout.lines().collect::<Vec<_>>().join(" ")
        };
        let all = format!("{twice} {app} {apricot}");
        assert_eq!(complete("lnk sandbox pause ''"), all);
        assert_eq!(complete("lnk sandbox pause apr"), apricot);
        assert_eq!(complete("lnk sandbox resume ''"), apricot);
        assert_eq!(complete("lnk sandbox log --sandbox ap"), "app apricot");
        assert_eq!(complete("lnk sandbox log --sandbox = ap"), "app apricot");
        assert_eq!(complete("lnk sandbox log --sandbox ="), all);
        assert_eq!(complete("lnk sandbox pause none"), "");
        assert_eq!(complete("lnk sandbox pause --h"), "--help");
        assert_eq!(complete("lnk sandbox pau"), "pause paused");
        assert!(!env.project().join("made").exists());
    });
}

#[test]
fn fish_completes_names() {
    if !has("fish") {
        return;
    }
    each!(|env| {
        let [app, apricot, twice] = specs(env);
        let (script, path) = prepared(env, "fish");
        let complete = |line: &str| {
            let fish = format!("source '{script}'; complete -C '{line}'");
            let run = env.program("fish", ["-N", "-c", &fish]).env("PATH", &path).run().ok();
            run.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let all = complete("lnk sandbox pause ");
        assert!([&app, &apricot, &twice].iter().all(|name| all.contains(name)), "{all:?}");
        assert!(complete("lnk sandbox resume ap").contains(&apricot));
        assert!(!complete("lnk sandbox resume ap").contains(&app));
        assert!(complete("lnk sandbox log --sandbox ap").contains(&app));
        assert!(!complete("lnk sandbox paused ").contains(&app));
        assert!(!env.project().join("made").exists());
    });
}

#[test]
fn zsh_completes_names() {
    if !has("zsh") {
        return;
    }
    each!(|env| {
        specs(env);
        let (script, path) = prepared(env, "zsh");
        let start = format!("autoload -U compinit; compinit -D -u; source {script}; echo rea''dy");
        let mut zsh =
            env.program("zsh", ["-f", "-i"]).env("PATH", &path).env("PS1", "> ").terminal(24, 200);
        zsh.shows("> ").line(&start).shows("ready");
        zsh.send("lnk sandbox resume \t").shows("> lnk sandbox resume apricot");
        zsh.send("\x15lnk sandbox pause apr\t").shows("> lnk sandbox pause apricot");
        zsh.send("\x15lnk sandbox log --sandbox apr\t").shows("log --sandbox apricot");
        zsh.send("\x15lnk sandbox pause ap\t\t").shows("apricot");
        zsh.send("\x15exit\n");
        zsh.wait_exit();
        assert!(!env.project().join("made").exists());
    });
}
