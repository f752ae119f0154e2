//! Sandboxes written down: `run --spec`, and `lnk sandbox spec`.

use std::path::Path;

use testkit::{Call, Run, TestEnv, each};

/// The example of the documentation.
const EXAMPLE: &str = "\
name = \"app\"
version = 1

[files]
write = [\"~/code/app\"]

[internet]
hosts = [\"registry.example.org\", \"api.openai.com\"]

[commands]
allow = [\"sh\", \"node\", \"npm\"]
";

const ANY: &str = "\n[commands]\nallow = [\"*\"]\n";

fn lnk(env: &TestEnv, words: &[&str]) -> Call {
    env.lnk(["sandbox"].iter().chain(words))
}

/// Writes `app.toml` with these keys of `[files]`, and any program.
fn files(env: &TestEnv, keys: &str) {
    env.write("app.toml", format!("[files]\n{keys}{ANY}"));
}

/// Runs a script in the sandbox of `app.toml`, with these flags beside.
fn sh(env: &TestEnv, flags: &[&str], script: &str) -> Run {
    let words = ["run", "--spec", "app.toml", "--yes"];
    lnk(env, &[&words, flags, &["--", "sh", "-c", script]].concat()).run()
}

#[track_caller]
fn refused(env: &TestEnv, spec: &str, why: &str) -> Run {
    env.write("app.toml", spec);
    sh(env, &[], "echo ran").fails_with(125).prints("").stderr_has(why)
}

/// A program would choose by it what the next run opens, which nobody is asked about
/// where `--yes` is given.
#[test]
fn no_path_goes_through_a_link_that_a_program_may_move() {
    each!(|env| {
        env.sh("mkdir -p own/data own/deep; ln -s data own/link; ln -s own/data fixed; mkdir -p far/in").run().ok();
        env.write("own/data/f", "in data");
        env.sh("ln -s ../../own/data own/deep/far").run().ok();
        for (keys, link) in [
            ("write = ['own']\nread = ['own/link']", "own/link"),
            ("write = ['own']\nread = ['own/link/f']", "own/link"),
            ("write = ['own', 'own/link']", "own/link"),
            ("write = ['own']\nread = ['own/deep/far']", "own/deep/far"),
            ("write = ['own']\nhide = ['own/link']", "own/link"),
            ("write = ['own', 'own/data']\nwrite_dot_files = ['own/link']", "own/link"),
        ] {
            files(env, keys);
            let link = env.project().join(link);
            let why = format!("the link {} on its way is in a folder", link.display());
            sh(env, &[], "echo ran").fails_with(125).prints("").stderr_has(&why);
            sh(env, &[], "echo ran").stderr_has("own/data");
        }
        // Flags write as well.
        files(env, "read = ['.', 'own/link']");
        sh(env, &[], "cat own/data/f").ok().prints("in data");
        let by_flag = sh(env, &["--write", "own"], "echo ran");
        by_flag.fails_with(125).prints("").stderr_has("name that instead");
        // A link that nothing inside may move is followed, and so is what it leads to.
        for keys in [
            "write = ['own']\nread = ['.', 'fixed']",
            "write = ['own']\nread = ['.', 'own/deep', 'own/deep/far']",
            "write = ['own/deep']\nread = ['.', 'own/link']",
        ] {
            files(env, keys);
            sh(env, &[], "cat own/data/f").ok().prints("in data");
        }
        // A plain folder on the way is one no more where a program made it a link.
        files(env, "write = ['own']\nread = ['.', 'own/data/..']");
        sh(env, &[], "mv own/data own/was; ln -s ../far/in own/data").ok();
        sh(env, &[], "echo ran").fails_with(125).prints("").stderr_has("name that instead");
    });
}

#[test]
fn flags_print_a_spec_to_start_from() {
    each!(|env| {
        let app = env.home().join("code/app");
        let script =
            "lnk sandbox spec --write ~/code/app --internet-host '*' --command node > app.toml";
        env.sh(script).run().ok().quiet();
        let printed = std::fs::read_to_string(env.project().join("app.toml")).expect("printed");
        for line in
            [&format!("write = [\"{}\"]", app.display()), "hosts = [\"*\"]", "allow = [\"node\"]"]
        {
            assert!(printed.lines().any(|it| it == line), "{line} in\n{printed}");
        }
        lnk(env, &["spec", "--spec", "app.toml"]).run().ok().prints(&printed);
        // It is the same read from anywhere.
        env.write("deep/in/copy.toml", &printed);
        lnk(env, &["spec", "--spec", "deep/in/copy.toml"]).cwd("/").run().fails();
        let copy = env.project().join("deep/in/copy.toml").display().to_string();
        lnk(env, &["spec", "--spec", &copy]).cwd("/").run().ok().prints(&printed);
    });
}

#[test]
fn a_spec_is_printed_with_absolute_paths_and_the_flags_in_place_of_its_keys() {
    each!(|env| {
        env.write(
            "specs/app.toml",
            EXAMPLE.replace("[files]\n", "[files]\nhide = ['h']\nread = ['r']\n"),
        );
        let flags = ["--read", "mine", "--hide", "too", "--per-minute", "5"];
        let run =
            lnk(env, &[&["spec", "--spec", "specs/app.toml"], &flags[..]].concat()).run().ok();
        let (home, project) = (env.home().display(), env.project().display());
        run.stdout_has("\nname = \"app\"\n")
            .stdout_has(&format!("\nwrite = [\"{home}/code/app\"]\n"))
            .stdout_has(&format!("\nread = [\"{project}/mine\"]\n"))
            .stdout_has(&format!("\n    \"{project}/specs/h\",\n    \"{project}/too\",\n"))
            .stdout_has("\nper_minute = 5\n")
            .stdout_has("\nallow = [\"sh\", \"node\", \"npm\"]\n")
            .quiet();
    });
}

#[test]
fn a_spec_that_cant_be_printed_says_why() {
    each!(|env| {
        lnk(env, &["spec", "--tcp", "github.com:22"])
            .run()
            .fails_with(125)
            .prints("")
            .stderr_has("--tcp github.com:22: its host isn't one that it may reach; add --internet-host github.com");
        env.sh("lnk sandbox spec --write $'a\\xff'")
            .run()
            .fails_with(125)
            .prints("")
            .stderr_has("isn't UTF-8");
        env.sh("unset HOME; lnk sandbox spec --spec none.toml")
            .run()
            .fails_with(125)
            .stderr_has("no such file");
    });
}

#[test]
fn every_endpoint_of_another_host_is_shown_at_its_place() {
    each!(|env| {
        env.write(
            "app.toml",
            "[internet]\nhosts = [\"a.example\"]\ntcp = [\n  \"DB.example:5432\", \"a.example:1\",\n\
             \x20 \"*.b.example:2\", \"nas.local:3\",\n]\n[commands]\nallow = [\"*\"]\n[files]\nread = [\".\"]\n",
        );
        let shown = "lnk sandbox: [internet] tcp db.example:5432: its host isn't one that it may \
                     reach; add \"db.example\" to hosts in [internet]\n --> app.toml:4:3\n  |\n\
                     4 |   \"DB.example:5432\", \"a.example:1\",\n  |   ^^^^^^^^^^^^^^^^^\n\n\
                     [internet] tcp *.b.example:2: its host isn't one that it may reach; add \
                     \"*.b.example\" to hosts in [internet]\n --> app.toml:5:3\n  |\n\
                     5 |   \"*.b.example:2\", \"nas.local:3\",\n  |   ^^^^^^^^^^^^^^^\n\n\
                     [internet] tcp nas.local:3: its host isn't one that it may reach; add \
                     \"nas.local\" to hosts in [lan]\n --> app.toml:5:20\n";
        let run = |flags: &[&str]| {
            let words = ["run", "--spec", "app.toml", "--yes"].iter().chain(flags);
            lnk(env, &words.chain(&["--", "true"]).copied().collect::<Vec<_>>()).run()
        };
        run(&[]).fails_with(125).stderr_has(shown);
        lnk(env, &["spec", "--spec", "app.toml"]).run().fails_with(125).stderr_has(shown);
        run(&["--lan-host", "other"]).fails_with(125).stderr_has(
            "it may reach; add --lan-host nas.local: flags take the place of hosts in [lan]\n --> app",
        );
        run(&["--internet-host", "*", "--lan-host", "nas.local"]).ok().quiet();
        run(&["--tcp", "a.example:1"]).ok().quiet();
    });
}

#[test]
fn the_example_of_the_documentation_runs() {
    each!(|env| {
        let app = env.folder(env.home().join("code/app"));
        env.write(app.join("app.js"), "console.log('ran', process.env.https_proxy)");
        env.write("app.toml", EXAMPLE);
        let spec = env.project().join("app.toml");
        let words = ["sandbox", "run", "--yes", "--spec", spec.to_str().unwrap(), "--"];
        let run = |program: &[&'static str]| env.lnk(words.iter().chain(program)).cwd(&app).run();
        run(&["node", "app.js"]).ok().prints("ran http://127.0.0.1:40781\n");
        run(&["sh", "-c", "echo x > made; ls"])
            .fails_with(126)
            .prints("")
            .stderr_has("refused /usr/bin/ls: add it to [commands] allow");
        assert!(app.join("made").exists());
        sh(env, &["--read", "."], "echo x > made").fails();
    });
}

#[test]
fn each_part_that_isnt_built_is_refused_by_name() {
    each!(|env| {
        for (flag, value, section, key, toml) in [
            ("--model", "11434", "localhost", "models", "[11434]"),
            ("--tool", "gh", "tools", "allow", "['gh']"),
            ("--browser-host", "github.com", "browser", "hosts", "['github.com']"),
        ] {
            let run = lnk(env, &["run", flag, value, "--read", ".", "--", "true"]).run();
            run.fails_with(125).stderr_has(flag).stderr_has("built yet in this version");
            let spec = format!("[{section}]\n{key} = {toml}\n{ANY}");
            refused(env, &spec, "built yet in this version").stderr_has("--> app.toml:2:");
            lnk(env, &["spec", flag, value]).run().ok().quiet();
            lnk(env, &["spec", "--spec", "app.toml"]).run().ok().quiet();
        }
        files(env, "read = ['.']");
        sh(env, &["--port", "40781"], "true")
            .fails_with(125)
            .stderr_has("one of the sandbox's own");
        let spec = format!("[localhost]\nports = [5432, 40781]\n{ANY}");
        refused(env, &spec, "[localhost] ports: 40781 is one of the sandbox's own")
            .stderr_has("--> app.toml:2:16");
        files(env, "read = ['.']");
        sh(env, &["--proxy"], "echo $http_proxy").ok().prints("http://127.0.0.1:40781\n");
        lnk(env, &["run", "--command", "*", "--read", ".", "--", "true"]).run().ok().quiet();
    });
}

#[test]
fn a_way_out_or_a_limit_without_a_host_is_said_to_have_no_effect() {
    each!(|env| {
        let upstream = "upstream = 'socks5://127.0.0.1:1'\nper_minute = 5";
        let spec = format!("[internet]\n{upstream}\n{ANY}[files]\nread = ['.']\n");
        env.write("app.toml", spec);
        let run =
            |words: &[&str]| lnk(env, &[&["run"], words, &["--", "true"]].concat()).run().ok();
        let both =
            ["the upstream socks5://127.0.0.1:1 has no effect", "5 calls a minute has no effect"];
        let by_flags = ["--upstream", "socks5://127.0.0.1:1", "--per-minute", "5", "--read", "."];
        for words in [&["--spec", "app.toml", "--yes"][..], &by_flags] {
            run(words).stderr_has(both[0]).stderr_has(both[1]);
        }
        run(&[&by_flags[..], &["--internet-host", "a.b"]].concat()).quiet();
        run(&["--upstream", "direct", "--per-minute", "5", "--port", "1", "--read", "."]).quiet();
        run(&["--upstream", "direct", "--read", "."]).quiet();
    });
}

#[test]
fn a_spec_that_lists_no_program_runs_none() {
    each!(|env| {
        for spec in ["", "[files]\nread = ['.']\n", "[commands]\n", "[commands]\nallow = []\n"] {
            refused(
                env,
                spec,
                "app.toml lists no program, so nothing may run: add to [commands] allow what it starts",
            );
        }
        env.write("app.toml", "[files]\nread = ['.']\n");
        sh(env, &["--command", "*"], "echo ran").ok().prints("ran\n");
    });
}

#[test]
fn a_spec_opens_what_its_files_say_and_no_more() {
    each!(|env| {
        for file in ["w/f", "r/f", "r/h/f", "other/f"] {
            env.write(Path::new("data").join(file), "x\n");
        }
        files(env, "write = ['data/w']\nread = ['data/r']\nhide = ['data/r/h']\n");
        let call = |script: &str| {
            let words = ["run", "--spec", "../../app.toml", "--yes"];
            let words = [&words[..], &["--", "sh", "-c", script]].concat();
            // From another folder: the spec's paths start at its own.
            lnk(env, &words).cwd("data/w").run()
        };
        call("cat f ../r/f; echo y > f; cat f").ok().prints("x\nx\ny\n");
        call("echo y > ../r/f").fails().stderr_has("Read-only file system");
        call("cat ../r/h/f").fails().prints("");
        call("cat ../other/f").fails().prints("");
        call("cat ../../app.toml").fails().prints("");
    });
}

#[test]
fn a_flag_replaces_its_key_and_hide_adds() {
    each!(|env| {
        for folder in ["a", "b", "ha", "hb"] {
            env.write(Path::new(folder).join("f"), "x\n");
        }
        files(env, "read = ['.']\nwrite = ['a']\nhide = ['ha']\n");
        sh(env, &[], "echo y > a/f; cat hb/f").ok().prints("x\n");
        sh(env, &["--write", "b"], "echo y > b/f").ok();
        sh(env, &["--write", "b"], "echo z > a/f").fails().stderr_has("Read-only file system");
        sh(env, &["--hide", "hb"], "cat b/f; cat ha/f || cat hb/f").fails().prints("y\n");
        // A path that flags replace need not be there.
        files(env, "read = ['.']\nwrite = ['none']\n");
        sh(env, &[], "true").fails_with(125).stderr_has("[files] write none: no such file");
        sh(env, &["--write", "b"], "echo y > b/f").ok();
    });
}

#[test]
fn the_keys_of_this_system_replace_those_for_all() {
    each!(|env| {
        env.write("l/f", "linux\n");
        env.write("a/f", "all\n");
        env.write(
            "app.toml",
            format!("[files]\nread = ['a']\n[files.linux]\nread = ['l']\n[files.macos]\nread = ['~/none']{ANY}"),
        );
        let run = lnk(env, &["run", "--spec", "../app.toml", "--yes", "--", "cat", "f", "../a/f"]);
        run.cwd("l").run().fails().prints("linux\n");
    });
}

#[test]
fn names_in_a_spec_are_literal() {
    each!(|env| {
        let names = [
            "app[slug]",
            "proj*1",
            "adv..lock",
            "~Top",
            "-dash",
            "a:b",
            "a,b",
            "$HOME",
            "{x}",
            "n\nl",
        ];
        for name in names {
            env.folder(name);
            env.write("app.toml", format!("[files]\nwrite = [{:?}]\nread = ['.']{ANY}", name));
            let words =
                ["run", "--spec", "app.toml", "--yes", "--", "sh", "-c", "touch \"./$1/ok\"", "_"];
            lnk(env, &[&words[..], &[name]].concat()).run().ok();
            assert!(env.project().join(name).join("ok").exists(), "{name}");
        }
        env.folder("projX1");
        files(env, "write = ['proj*1']\nread = ['.']");
        sh(env, &[], "touch projX1/no").fails().stderr_has("Read-only file system");
        refused(env, "[files]\nwrite = [\"a\\u0000b\"]\n", "NUL");
    });
}

#[test]
fn a_mistake_is_shown_at_its_place_with_the_right_name() {
    each!(|env| {
        let run = refused(
            env,
            "name = \"app\"\nversion = 1\n\n[files]\nwirte = [\"~/code/app\"]\n",
            "lnk sandbox: [files] has no key wirte: did you mean write?\n --> app.toml:5:1\n  |\n5 | wirte = [\"~/code/app\"]\n  | ^^^^^\n",
        );
        let seen = run.stderr;
        lnk(env, &["spec", "--spec", "app.toml"])
            .run()
            .fails_with(125)
            .prints("")
            .stderr_has(&seen);
        refused(env, "[flies]\nread = []\n", "did you mean [files]?");
        refused(env, "[comands]\nallow = ['*']\n", "did you mean [commands]?");
        refused(env, "[files]\nread = []\nread = []\n", "given twice");
        refused(env, "version = 2\n", "version 1");
        refused(env, "[tool.run]\nmemory = 1\n", "no section [tool]");
        refused(env, "\u{1b}[2J\n", "app.toml:1:1").has_not("\u{1b}");
    });
}

#[test]
fn what_is_never_opened_isnt_by_a_spec() {
    each!(|env| {
        env.folder(env.home().join(".config/lnk/sandbox"));
        env.folder(env.home().join(".ssh"));
        env.folder(env.home().join("Link/Agents/main"));
        env.link("../.config/lnk", "settings");
        for (key, path, why) in [
            ("read", "~/.config/lnk", "Link's settings are never opened"),
            ("read", "settings/sandbox", "Link's settings are never opened"),
            ("read", "~/.config/../.config/lnk", "Link's settings are never opened"),
            ("read", "~/Link/Agents/main", "agents' folders are never opened"),
            ("read", "/", "the whole machine can't be opened"),
            ("read", "/proc/self", "nothing of /proc can be opened"),
            ("write", "~", "it is a home folder"),
            ("write", "..", "it is a home folder"),
            ("write", "~/.ssh", "runs or unlocks things outside"),
            ("write", "/usr/local", "belongs to the system"),
        ] {
            let spec = format!("[files]\n{key} = [\n  '{path}']{ANY}");
            refused(env, &spec, why).stderr_has("--> app.toml:3:3");
            // Nor where a flag takes its place: it was shown to be agreed to.
            let flag = if key == "read" { "--read" } else { "--write" };
            sh(env, &[flag, "."], "true").fails_with(125).stderr_has(why);
        }
        files(env, "read = ['~']");
        sh(env, &[], "ls ~/.ssh && ! ls ~/.config/lnk/sandbox").ok();
    });
}

#[test]
fn dot_files_of_a_home_are_opened_to_write_by_a_flag_and_by_no_spec() {
    each!(|env| {
        let home = env.home();
        for folder in [
            ".claude/x",
            ".cache/pip",
            "dotfiles/vim",
            ".npm/_cacache",
            ".gradle/caches",
            ".gradle/init.d",
            ".m2/repository",
        ] {
            env.folder(home.join(folder));
        }
        env.link("dotfiles/vim", home.join(".vim"));
        for path in [
            ".claude",
            ".claude/x",
            ".vim",
            "dotfiles",
            "dotfiles/vim",
            ".npm",
            ".gradle",
            ".gradle/init.d",
            ".m2",
        ] {
            files(env, &format!("read = ['.']\nwrite = ['~/{path}']"));
            sh(env, &[], "true")
                .fails_with(125)
                .stderr_has("no spec opens them")
                .stderr_has("app.toml:3:10");
            files(env, "read = ['.']");
            sh(env, &["--write", &format!("~/{path}")], &format!("touch ~/{path}/made")).ok();
        }
        for path in [".cache", ".cache/pip", ".npm/_cacache", ".gradle/caches", ".m2/repository"] {
            files(env, &format!("read = ['.']\nwrite = ['~/{path}']"));
            sh(env, &[], &format!("touch ~/{path}/made")).ok();
        }
        // To read is another thing.
        files(env, "read = ['.', '~/.claude']");
        sh(env, &[], "ls ~/.claude && ! touch ~/.claude/no").ok();
    });
}

fn mounted(env: &TestEnv, source: &Path, options: &str, flags: &str) -> Run {
    sh_mounted(env, source, options, flags, "echo ran")
}

/// Runs a script by `lnk sandbox run` with these flags where a folder or file is
/// mounted as well, as `data/m`.
fn sh_mounted(env: &TestEnv, source: &Path, options: &str, flags: &str, script: &str) -> Run {
    let unshare = if env.user.is_root() { "-m" } else { "-Urm" };
    let script = format!(
        "mount --bind '{}' data/m && {{ test -z '{options}' || mount -o remount,bind,{options} \
         data/m; }} && exec lnk sandbox run {flags} --read . -- sh -c '{script}'",
        source.display()
    );
    env.program("unshare", [unshare, "sh", "-c", &script]).run()
}

#[test]
fn a_spec_opens_no_dot_files_through_a_mount() {
    each!(|env| {
        let home = env.home();
        for folder in [".claude/x", ".cache/pip", "plain", "elsewhere/vim", ".config/lnk"] {
            env.folder(home.join(folder));
        }
        env.link("elsewhere/vim", home.join(".vim"));
        env.folder("data/m");
        let run = |key: &str, path: &str, source: &str| {
            env.write("app.toml", format!("[files]\n{key} = ['{path}']{ANY}"));
            mounted(env, &home.join(source), "", "--spec app.toml --yes")
        };
        for (key, path) in [("read", "data"), ("write", "data"), ("read", "data/m")] {
            for source in [".claude", ".claude/x"] {
                run(key, path, source)
                    .fails_with(125)
                    .prints("")
                    .stderr_has(&format!("{} is mounted ", home.join(source).display()))
                    .stderr_has("no spec opens them through a mount")
                    .stderr_has("app.toml:2:");
            }
            let linked = run(key, path, "elsewhere/vim").fails_with(125).prints("");
            linked.stderr_has("no spec opens them").stderr_has("app.toml:2:");
            for source in ["plain", ".cache/pip"] {
                run(key, path, source).ok().prints("ran\n");
            }
        }
        for key in ["read", "write"] {
            let settings = run(key, "data", ".config/lnk");
            settings.fails_with(125).prints("").stderr_has("Link's settings are never opened");
        }
        // What is shown by its own name when the spec asks is another thing, and
        // what somebody types.
        run("read", "~", ".claude").ok().prints("ran\n");
        env.write("app.toml", &ANY[1..]);
        for flags in ["--read data", "--write data"] {
            mounted(env, &home.join(".claude"), "", flags).ok().prints("ran\n");
            let flags = format!("{flags} --spec app.toml --yes");
            mounted(env, &home.join(".claude"), "", &flags).ok().prints("ran\n");
        }
    });
}

#[test]
fn a_mount_in_a_folder_is_judged_with_it() {
    each!(|env| {
        env.folder("data/m");
        env.write("app.toml", format!("[files]\nwrite = ['data']{ANY}"));
        let share = Path::new("/usr/share");
        for flags in ["--write data", "--spec app.toml --yes"] {
            mounted(env, share, "", flags)
                .fails_with(125)
                .prints("")
                .stderr_has("/usr/share is mounted in it, as ")
                .stderr_has("/usr belongs to the system");
            mounted(env, share, "ro", flags).ok().prints("ran\n");
        }
        for flags in ["--read data/m", "--write data/m"] {
            let run = mounted(env, Path::new("/run/lock"), "", flags).fails_with(125).prints("");
            run.stderr_has("nothing of /run can be opened");
        }
        // Below a folder that somebody typed they are hidden.
        let list = "ls -d data/m && ! ls data/m";
        for flags in ["--read data", "--write data"] {
            sh_mounted(env, Path::new("/run/lock"), "", flags, list).ok().prints("data/m\n");
        }
    });
}

#[test]
fn a_spec_in_a_write_folder_cant_be_changed_from_inside() {
    each!(|env| {
        env.write("conf/app.toml", format!("[files]\nwrite = ['..']{ANY}"));
        env.link("conf/app.toml", "link.toml");
        env.write("conf/else", "");
        let before = std::fs::read(env.project().join("conf/app.toml")).expect("just written");
        for spec in ["conf/app.toml", "link.toml"] {
            let sh = |script: &str| {
                lnk(env, &["run", "--spec", spec, "--yes", "--", "sh", "-c", script]).run()
            };
            sh("echo x > conf/else; touch conf/new; rm conf/new").ok();
            for change in [
                "echo x >> conf/app.toml",
                "rm -f conf/app.toml",
                "mv conf/else conf/app.toml",
                "mv conf/app.toml gone",
                "mv conf gone",
                "chmod 777 conf/app.toml",
                "ln conf/app.toml other && echo x >> other",
            ] {
                sh(change).fails();
            }
            sh("cat conf/app.toml").ok().prints(&String::from_utf8_lossy(&before));
        }
        let link = |script: &str| {
            lnk(env, &["run", "--spec", "link.toml", "--yes", "--", "sh", "-c", script]).run()
        };
        for change in ["rm -f link.toml", "ln -sfn conf/else link.toml", "mv conf/else link.toml"] {
            link(change).fails();
        }
        assert_eq!(std::fs::read(env.project().join("link.toml")).expect("a link still"), before);
        let target = std::fs::read_link(env.project().join("link.toml")).expect("a link still");
        assert_eq!(target, Path::new("conf/app.toml"));
    });
}

#[test]
fn a_spec_doesnt_open_itself() {
    each!(|env| {
        files(env, "read = ['.']\nwrite = ['app.toml']");
        sh(env, &[], "true")
            .fails_with(125)
            .stderr_has("[files] write app.toml: it is the spec itself")
            .stderr_has("--> app.toml:3:10\n")
            .stderr_has("^^^^^^^^^^");
        files(env, "read = ['.']");
        sh(env, &["--write", "app.toml"], "true")
            .fails_with(125)
            .stderr_has("it is the spec itself");
        sh(env, &[], "grep -c read app.toml").ok().prints("1\n");
    });
}

#[test]
fn dot_files_to_write_are_of_a_folder_to_write() {
    each!(|env| {
        for folder in ["w", "v/.vscode"] {
            env.folder(folder);
        }
        let why = "[files] write_dot_files v: not one of the ";
        for write in ["", "write = ['w']"] {
            files(env, &format!("read = ['.']\n{write}\nwrite_dot_files = ['v']"));
            for run in [sh(env, &[], "true"), sh(env, &["--write", "w"], "true")] {
                run.fails_with(125).prints("").stderr_has(why).stderr_has("--> app.toml:4:20\n");
            }
            // Before it is asked about.
            lnk(env, &["run", "--spec", "app.toml", "--", "true"]).run().stderr_has(why);
            sh(env, &["--write", "v/../v"], "touch v/.vscode/made").ok();
            let flags = ["--write", "w", "--write-dot-files", "w"];
            sh(env, &flags, "touch w/.envrc && ! touch v/no").ok();
        }
        files(env, "read = ['.']\nwrite = ['w', './v']\nwrite_dot_files = ['v']");
        sh(env, &[], "touch v/.vscode/made && ! mkdir w/.git").ok();
    });
}

#[test]
fn a_folder_that_cant_be_written_is_refused_at_its_place() {
    each!(|env| {
        env.folder("data/m");
        env.folder("source");
        files(env, "read = ['.']\nwrite = ['data/m']");
        let source = env.project().join("source");
        mounted(env, &source, "", "--spec app.toml --yes").ok().prints("ran\n");
        mounted(env, &source, "ro", "--spec app.toml --yes")
            .fails_with(125)
            .stderr_has("read-only mount; use [files] read data/m, or mount it writable")
            .stderr_has("--> app.toml:3:10\n");
        mounted(env, &source, "ro", "--spec app.toml --yes --write source").ok().prints("ran\n");
    });
}

#[test]
fn a_message_names_the_key_or_the_flag_that_asked() {
    each!(|env| {
        env.write("w/.git", "no link\n");
        files(env, "read = ['.']\nwrite = ['w']");
        sh(env, &[], "true").fails_with(125).stderr_has("sandbox: [files] write /");
        sh(env, &["--write", "w"], "true").fails_with(125).stderr_has("sandbox: --write w: ");
    });
}

#[test]
fn a_spec_that_doesnt_stay_is_refused() {
    each!(|env| {
        files(env, "read = ['.']");
        let run = |spec: &str, redirected: &str| {
            env.sh(&format!("lnk sandbox run --yes --spec {spec} -- echo ran {redirected}")).run()
        };
        for (spec, redirected) in [("<(cat app.toml)", ""), ("/dev/stdin", "< <(cat app.toml)")] {
            run(spec, redirected)
                .fails_with(125)
                .prints("")
                .stderr_has("it is a pipe, or a file that is gone: a spec has to stay");
        }
        run("/dev/stdin", "< app.toml").ok().prints("ran\n");
    });
}

#[test]
fn what_is_no_spec_is_refused() {
    each!(|env| {
        let refused = |file: &str, why: &str| {
            let run = lnk(env, &["run", "--spec", file, "--yes", "--", "true"]).run();
            run.fails_with(125).prints("").stderr_has(why);
            lnk(env, &["spec", "--spec", file]).run().fails_with(125).prints("").stderr_has(why);
        };
        refused("none.toml", "--spec none.toml: no such file");
        refused(".", "--spec .: it isn't a plain file");
        refused("/dev/null", "it isn't a plain file");
        refused("/dev/tty", "/dev/tty");
        env.sh("mkfifo pipe").run().ok();
        refused("pipe", "it isn't a plain file");
        env.link("loop.toml", "loop.toml");
        refused("loop.toml", "--spec loop.toml: ");
        env.write("large.toml", " ".repeat(256 * 1024 + 1));
        refused("large.toml", "at most 262144 bytes: this is no spec\n --> large.toml\n");
        env.write("bytes.toml", b"name = '\xff'");
        refused("bytes.toml", "UTF-8");
        let run = lnk(env, &["run", "--yes", "--read", ".", "--", "true"]).run();
        run.fails_with(125).stderr_has("--yes agrees to what a spec opens, and no spec is given");
    });
}

#[test]
fn without_a_home_a_tilde_is_refused_at_its_place() {
    each!(|env| {
        files(env, "read = ['.', '~/x']");
        let words = ["run", "--spec", "app.toml", "--yes", "--", "true"];
        let run = lnk(env, &words).env("HOME", "/proc").run();
        // The password file may name a home of this user's.
        run.fails_with(125).stderr_has("app.toml:2:14");
    });
}
