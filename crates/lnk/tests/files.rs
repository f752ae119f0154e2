//! What a program sees of the files outside, and what no grant opens.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use testkit::{Call, Mounts, Run, TestEnv, each};

const SETTINGS: &str = ".config/lnk/sandbox/settings.toml";
const AGENT: &str = "Link/Agents/main/memory.md";
const SECRET: &str = "never to be seen\n";

/// `lnk sandbox run` with these flags, of a shell script.
fn inside<F: AsRef<OsStr>>(env: &TestEnv, flags: &[F], script: &str) -> Call {
    let mut words: Vec<OsString> = vec!["sandbox".into(), "run".into()];
    words.extend(flags.iter().map(|flag| flag.as_ref().to_owned()));
    words.extend(["--", "sh", "-c", script].map(OsString::from));
    env.lnk(words)
}

fn run<F: AsRef<OsStr>>(env: &TestEnv, flags: &[F], script: &str) -> Run {
    inside(env, flags, script).run()
}

/// These flags are refused, in one line that has `why` in it, and nothing runs.
#[track_caller]
fn refused<F: AsRef<OsStr>>(env: &TestEnv, flags: &[F], why: &str) {
    refused_call(inside(env, flags, "echo it ran"), why);
}

#[track_caller]
fn refused_call(call: Call, why: &str) {
    let run = call.run().fails_with(125).prints("").stderr_has(why);
    assert!(run.stderr.starts_with("lnk sandbox: ") && run.stderr.lines().count() == 1, "{run}");
}

/// Link's settings and an agent's folder, with something in each.
fn settings_and_agents(env: &TestEnv) {
    for file in [SETTINGS, AGENT] {
        env.write(env.home().join(file), SECRET);
    }
}

/// A shell script, outside, where root's part of a mount namespace of its own
/// can be changed.
fn in_own_mounts(env: &TestEnv, script: &str) -> Call {
    let unshare = if env.user.is_root() { "-m" } else { "-Urm" };
    env.program("unshare", [unshare, "sh", "-c", script])
}

// --- grants -------------------------------------------------------------------

#[test]
fn a_read_folder_is_read_and_a_write_folder_written() {
    each!(|env| {
        env.write("read/in", "read\n");
        env.write("write/in", "write\n");
        env.write("other/in", SECRET);
        let script =
            "cat ../read/in in; echo new > new; mv in moved; rm moved; ls -d [a-z]*; ls -A ..";
        let cwd = env.project().join("write");
        let flags = ["--read", "../read", "--write", "."];
        // Nothing else of the folder that holds both is there.
        inside(env, &flags, script)
            .cwd(&cwd)
            .run()
            .ok()
            .quiet()
            .prints("read\nwrite\nnew\nread\nwrite\n");
        assert_eq!(fs::read(cwd.join("new")).unwrap(), b"new\n");
        assert!(!cwd.join("in").exists());
        for change in
            ["echo x > ../read/in", "echo x > ../read/new", "rm ../read/in", "mkdir ../read/d"]
        {
            inside(env, &flags, change).cwd(&cwd).run().fails();
        }
        inside(env, &flags, "cat ../other/in").cwd(&cwd).run().fails().has_not(SECRET);
        assert_eq!(fs::read(env.project().join("read/in")).unwrap(), b"read\n");
        assert!(!env.project().join("read/new").exists());
    });
}

#[test]
fn a_single_file_is_granted() {
    each!(|env| {
        for name in ["r", "w", "o"] {
            env.write(format!("f/{name}"), name);
        }
        let f = env.project().join("f").display().to_string();
        let flags = ["--read".into(), format!("{f}/r"), "--write".into(), format!("{f}/w")];
        let at = |script: &str| inside(env, &flags, script).cwd("/").run();
        at(&format!("cat {f}/r {f}/w; echo -n new > {f}/w; ls {f}")).ok().prints("rwr\nw\n");
        assert_eq!(fs::read(env.project().join("f/w")).unwrap(), b"new");
        at(&format!("echo x > {f}/r")).fails();
        at(&format!("cat {f}/o")).fails().has_not("o\n");
        at(&format!("echo x > {f}/new"));
        assert!(!env.project().join("f/new").exists());
    });
}

/// The program writes only what is granted, nothing of the home is there, and
/// what it writes there is gone.
#[test]
fn the_home_is_empty_and_private() {
    each!(|env| {
        env.write(env.home().join(".ssh/id"), SECRET);
        env.write(env.home().join("x"), "before");
        run(env, &["--write", "."], "echo hi > a; cat a; ls -A ~; echo x > ~/x; cat ~/x")
            .ok()
            .prints("hi\n.gitconfig\nproject\nx\n");
        assert_eq!(fs::read(env.project().join("a")).unwrap(), b"hi\n");
        assert_eq!(fs::read(env.home().join("x")).unwrap(), b"before");
        for secret in ["~/.ssh", "~/.ssh/id", "/etc/shadow", "/etc/gshadow", "/root/.bashrc"] {
            run(env, &["--write", "."], &format!("ls {secret}")).fails();
        }
    });
}

#[test]
fn of_nested_grants_and_hides_the_most_specific_wins() {
    each!(|env| {
        let levels = ["a", "a/b", "a/b/c", "a/b/c/d", "a/b/c/d/e", "a/b/c/d/e/f"];
        for level in levels {
            env.write(format!("{level}/file"), level);
        }
        let grants = [
            ("--read", "a"),
            ("--write", "a/b"),
            ("--hide", "a/b/c"),
            ("--read", "a/b/c/d"),
            ("--write", "a/b/c/d/e"),
            ("--hide", "a/b/c/d/e/f"),
        ];
        let mut orders = vec![grants.to_vec()];
        orders.push(grants.iter().rev().copied().collect());
        orders.push([3, 0, 5, 1, 4, 2].map(|index| grants[index]).to_vec());
        let script = "for l in a a/b a/b/c a/b/c/d a/b/c/d/e a/b/c/d/e/f; do \
            r=-; w=-; cat $l/file > /dev/null 2>&1 && r=r; (: >> $l/file) 2> /dev/null && w=w; \
            echo $l $r$w; done; ls a/b/c 2>&1 || true";
        for order in orders {
            let mut flags = vec!["--read", "."];
            flags.extend(order.iter().flat_map(|(flag, path)| [*flag, path]));
            run(env, &flags, script).ok().prints(
                "a r-\na/b rw\na/b/c --\na/b/c/d r-\na/b/c/d/e rw\na/b/c/d/e/f --\n\
                 ls: cannot open directory 'a/b/c': Permission denied\n",
            );
            // The way to what is open inside a hidden folder isn't writable.
            run(env, &flags, "echo x > a/b/c/new").fails();
            run(env, &flags, "mv a/b a/x || mv a/b/c a/b/x || rmdir a/b/c").fails();
        }
        for level in levels {
            assert_eq!(fs::read(env.project().join(level).join("file")).unwrap(), level.as_bytes());
        }
    });
}

#[test]
fn the_same_path_to_read_and_write_is_written_and_hiding_it_wins() {
    each!(|env| {
        env.write("d/f", SECRET);
        env.write("one", SECRET);
        for flags in [["--read", "d", "--write", "d"], ["--write", "d", "--read", "d"]] {
            let flags = [&["--read", "."][..], &flags[..]].concat();
            run(env, &flags, "cat d/f; echo x > d/g").ok().prints(SECRET);
            let hidden = [&flags[..], &["--hide", "./d/../d", "--hide", "one"][..]].concat();
            run(env, &hidden, "cat d/f").fails().has_not(SECRET);
            run(env, &hidden, "echo x > d/h").fails();
            run(env, &hidden, "cat one").fails().has_not(SECRET);
            run(env, &hidden, "chmod 777 one || chmod 777 d || mv one two || rm one").fails();
        }
        refused(env, &["--write", ".", "--hide", "."], "the working folder");
    });
}

#[test]
fn what_is_hidden_stays_hidden_by_its_other_names() {
    each!(|env| {
        env.write("d/f", SECRET);
        env.folder("alias");
        env.link("d", "link");
        let flags = ["--write", ".", "--hide", "link"];
        run(env, &flags, "cat d/f || cat link/f").fails().has_not(SECRET);
        let bound = |flags: &[&str], script: &str| {
            inside(env, flags, script)
                .replaced(env.project().join("alias"), env.project().join("d"))
        };
        bound(&["--write", "."], "cat alias/f").run().ok().prints(SECRET);
        for hide in ["d", "alias"] {
            let flags = ["--write", ".", "--hide", hide];
            bound(&flags, "cat alias/f || cat d/f").run().fails().has_not(SECRET);
        }
        // Part of it is bound: hidden as well.
        env.write("d/deep/f", SECRET);
        inside(env, &["--write", ".", "--hide", "d"], "cat alias/f")
            .replaced(env.project().join("alias"), env.project().join("d/deep"))
            .run()
            .fails()
            .has_not(SECRET);
    });
}

/// A file that an editor saves anew, and a folder made anew, while a program
/// runs. By the kernel's notice of changed mounts it looks when each is covered.
#[test]
fn what_is_hidden_stays_hidden_when_it_is_replaced_outside() {
    const LOOK: &str = "\
import os, select
mounts = open('/proc/self/mountinfo')
watch = select.poll()
watch.register(mounts, select.POLLPRI)
print('ready', flush=True)
while True:
    assert watch.poll(20000), 'never covered again'
    mounts.seek(0)
    if f' {os.getcwd()}/w/hidden ' in mounts.read(): break
os.system('cat w/hidden w/hidden/f')
";
    each!(|env| {
        env.write("look.py", LOOK);
        for folder in [false, true] {
            let name = if folder { "w/hidden/f" } else { "w/hidden" };
            env.write(name, "before\n");
            env.write(format!("../{name}"), SECRET);
            for flag in ["--read", "--write"] {
                let flags = [flag, ".", "--hide", "w/hidden"];
                let mut run = inside(env, &flags, "/usr/bin/python3 look.py").spawn();
                run.wait_for_stdout("ready");
                let here = env.project().join("w");
                fs::rename(here.join("hidden"), here.join("old")).unwrap();
                if folder {
                    fs::remove_dir_all(here.join("old")).unwrap();
                }
                fs::rename(env.home().join("w/hidden"), here.join("hidden")).unwrap();
                if !folder {
                    fs::remove_file(here.join("old")).unwrap();
                }
                run.wait().has_not(SECRET).stderr_has("Permission denied");
                env.write(format!("../{name}"), SECRET);
            }
            fs::remove_dir_all(env.home().join("w")).unwrap();
            fs::remove_dir_all(env.project().join("w")).unwrap();
        }
    });
}

#[test]
fn the_systems_own_files_can_be_hidden() {
    each!(|env| {
        let at = |flags: &[&str], script: &str| inside(env, flags, script).cwd("/").run();
        for hide in ["/etc", "/etc/ssl", "/usr/share", "/etc/alternatives", "/opt"] {
            if fs::read_dir(hide).is_ok_and(|folder| folder.count() > 0) {
                at(&[], &format!("ls -A {hide} | grep -q .")).ok();
                at(&["--hide", hide], &format!("ls -A {hide} | grep -q .")).fails();
            }
        }
        let flags = ["--hide", "/etc", "--read", "/etc/hosts"];
        at(&flags, "cat /etc/hosts > /dev/null && ls /etc").ok().prints("hosts\n");
    });
}

#[test]
fn a_path_that_isnt_there_is_named() {
    each!(|env| {
        env.write("file", "");
        env.link("nowhere", "dangling");
        env.link("loop", "loop");
        for flag in ["--read", "--write", "--hide"] {
            for path in ["none", "none/deeper", "dangling"] {
                refused(env, &[flag, path], &format!("{flag} {path}: no such file or folder"));
            }
            refused(env, &[flag, "file/x"], &format!("{flag} file/x: "));
            refused(env, &[flag, "loop"], &format!("{flag} loop: "));
        }
        assert!(!env.project().join("none").exists());
    });
}

#[test]
fn a_write_folder_on_a_read_only_mount_is_refused() {
    each!(|env| {
        env.write("ro/f", "f\n");
        let script = |flag: &str| {
            in_own_mounts(
                env,
                &format!(
                    "mount --bind ro ro && mount -o remount,bind,ro ro && cd ro && \
                     exec lnk sandbox run {flag} . -- cat f"
                ),
            )
        };
        script("--read").run().ok().prints("f\n");
        refused_call(script("--write"), "--write .: it is on a read-only mount; use --read .");
    });
}

#[test]
fn any_bytes_are_a_name() {
    let names: [&[u8]; 7] =
        [b"a b", b" ", b"line\nbreak", b"\xff\xfe", b"quote'\"\\", b"tab\t$(x)`y`", b"\x1b[31m"];
    each!(|env| {
        for name in names.map(OsStr::from_bytes) {
            env.write(Path::new(name).join("f"), "there\n");
            let path = env.project().join(name);
            let write = [OsStr::new("--read"), OsStr::new("."), OsStr::new("--write"), name];
            run(env, &write, "cd * && cat f && echo new > g").ok().prints("there\n");
            assert_eq!(fs::read(path.join("g")).unwrap(), b"new\n");
            let read = [OsStr::new("--read"), path.as_os_str()];
            inside(env, &read, "cat f && echo new > h")
                .cwd(&path)
                .run()
                .fails()
                .stdout_has("there");
            let hide = [OsStr::new("--write"), OsStr::new("."), OsStr::new("--hide"), name];
            run(env, &hide, "cat */f").fails().has_not("there");
            fs::remove_dir_all(path).unwrap();
        }
        // What can't be shown as it is, isn't.
        let strange = OsStr::from_bytes(b"none\x1b[2J\n\xff");
        let run = run(env, &[OsStr::new("--read"), strange], "true").fails_with(125);
        assert!(!run.stderr.contains('\x1b') && run.stderr.lines().count() == 1, "{run}");
    });
}

#[test]
fn names_that_look_like_patterns_are_names() {
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
        "~",
        "...",
        "--",
        "a=b",
        "%s",
        "-",
    ];
    each!(|env| {
        for name in names {
            let path = env.folder(name);
            let flags = ["--read", ".", "--write", &format!("./{name}")];
            run(env, &flags, &format!("cd './{name}' && touch ok")).ok().quiet();
            assert!(path.join("ok").exists(), "{name}");
            inside(env, &["--write", "."], "touch ok2").cwd(&path).run().ok().quiet();
            assert!(path.join("ok2").exists(), "{name}");
        }
        env.folder("projX1");
        run(env, &["--read", ".", "--write", "./proj*1"], "touch 'proj*1/yes' && touch projX1/no")
            .fails();
        assert!(env.project().join("proj*1/yes").exists());
        assert!(!env.project().join("projX1/no").exists());
        // Only ~ and ~/… are the home.
        run(env, &["--read", ".", "--write", "~Top"], "touch '~Top/x'").ok();
        assert!(env.project().join("~Top/x").exists());
        env.write("~/f", "the project's\n");
        run(env, &["--read", ".", "--hide", "~/project/~"], "cat './~/f'").fails().prints("");
        run(env, &["--write=-dash", "--read", "."], "touch ./-dash/y").ok();
    });
}

// --- settings and agents --------------------------------------------------------

/// Every way to show what is behind `flags` to a program fails.
#[track_caller]
fn hides_settings<F: AsRef<OsStr>>(env: &TestEnv, flags: &[F], names: &[PathBuf]) {
    for name in names {
        let name = name.display();
        inside(env, flags, &format!("cat {name}/{SETTINGS} || cat {name}/{AGENT}"))
            .run()
            .fails()
            .has_not(SECRET);
        inside(env, flags, &format!("ls {name}/.config/lnk || ls {name}/Link/Agents"))
            .run()
            .fails()
            .prints("");
    }
}

#[test]
fn settings_and_agents_are_closed_by_every_spelling() {
    each!(|env| {
        settings_and_agents(env);
        let home = env.home();
        env.write(home.join(".config/other/f"), "other\n");
        env.write(home.join("Link/Guests/f"), "guest\n");
        env.link(home.join(".config/lnk"), "to-settings");
        env.link("to-settings/sandbox", "to-to");
        env.link(home.join("Link"), "to-link");
        env.link(home.parent().unwrap(), "to-above");
        fs::hard_link(home.join(SETTINGS), env.project().join("hard")).unwrap();
        let real = home.display();
        for flag in ["--read", "--write"] {
            for path in [
                "~/.config/lnk",
                "~/.config/lnk/sandbox/settings.toml",
                "~/.config/lnk/",
                "~/.config/../.config/./lnk//sandbox",
                "../.config/lnk",
                "to-settings",
                "to-settings/sandbox",
                "to-to",
                "to-to/settings.toml",
                "to-above/home/.config/lnk",
                "hard",
            ] {
                refused(env, &[flag, path], "Link's settings");
            }
            for path in ["~/Link/Agents", "~/Link/Agents/main", "to-link/Agents", "../Link/Agents"]
            {
                refused(env, &[flag, path], "agents' folders are never opened");
            }
            refused(env, &[flag, &format!("{real}/.config/lnk")], "Link's settings");
            refused(env, &[flag, "/"], "the whole machine can't be opened");
            refused(env, &[flag, "/../.."], "the whole machine can't be opened");
        }
        // What holds them opens without them, by either name.
        let whole = home.to_path_buf();
        for flags in [
            vec!["--read", "~"],
            vec!["--read", "to-above"],
            vec!["--allow", "read-home"],
            vec!["--read", "~/.config", "--read", "to-link"],
            vec!["--read", "..", "--read", "../.."],
            vec!["--read", "~", "--write", "~/Link"],
            vec!["--read", "~", "--read", "~/.config"],
        ] {
            let flags = [&["--read", "."], &flags[..]].concat();
            hides_settings(env, &flags, std::slice::from_ref(&whole));
            run(env, &flags, "cat ~/.config/other/f ~/Link/Guests/f").ok().prints("other\nguest\n");
        }
        run(env, &["--read", "~"], "ls ~ && cat to-to/settings.toml").fails().stdout_has("project");
        run(env, &["--write", "~/Link", "--read", "."], "mkdir -p ~/Link/Agents/new").fails();
        run(env, &["--write", "~/Link", "--read", "."], "mv ~/Link/Agents ~/Link/x").fails();
        // Nor is XDG_CONFIG_HOME a way round it.
        let moved =
            |path: &str| inside(env, &["--read", path], "ls").env("XDG_CONFIG_HOME", "/tmp");
        refused_call(moved("~/.config/lnk"), "Link's settings");
        inside(env, &["--read", "~"], &format!("cat ~/{SETTINGS}"))
            .env("XDG_CONFIG_HOME", env.home().join("project"))
            .run()
            .fails()
            .has_not(SECRET);
        assert_eq!(fs::read(home.join(SETTINGS)).unwrap(), SECRET.as_bytes());
    });
}

#[test]
fn settings_bound_elsewhere_are_closed_there() {
    each!(|env| {
        settings_and_agents(env);
        env.folder("alias/in");
        env.write("file", "");
        let home = env.home();
        for (what, shown, why) in [
            (".config/lnk", "alias/sandbox/settings.toml", "Link's settings"),
            (".config/lnk/sandbox", "alias/settings.toml", "Link's settings"),
            (".config", "alias/lnk/sandbox/settings.toml", ""),
            ("Link/Agents", "alias/main/memory.md", "agents' folders"),
            ("Link/Agents/main", "alias/memory.md", "agents' folders"),
            ("Link", "alias/Agents/main/memory.md", ""),
        ] {
            let bound = |flags: &[&str]| {
                let script = format!("cat {shown}");
                inside(env, flags, &script).replaced(env.project().join("alias"), home.join(what))
            };
            for flags in [vec!["--read", "."], vec!["--write", "."], vec!["--read", "~"]] {
                bound(&flags).run().fails().has_not(SECRET).has_not("125");
            }
            if !why.is_empty() {
                refused_call(bound(&["--read", "alias"]), why);
                refused_call(bound(&["--write", "alias"]), why);
            } else {
                bound(&["--read", ".", "--read", "alias"]).run().fails_with(1).has_not(SECRET);
            }
        }
        let file = |flags: &[&str]| {
            let name = env.project().join("file");
            inside(env, flags, "cat file").replaced(name, home.join(SETTINGS))
        };
        file(&["--read", "."]).run().fails().has_not(SECRET);
        refused_call(file(&["--read", "file"]), "Link's settings");
    });
}

/// The home of passwd counts, whatever HOME says; for root, everyone's.
#[test]
fn a_changed_home_opens_nothing() {
    each!(|env| {
        settings_and_agents(env);
        let (uid, gid) = (env.user.uid, env.user.gid);
        let home = env.home().display();
        let user = if env.user.is_root() { 4242 } else { uid };
        let passwd = format!("root:x:0:0::/root:/bin/sh\nme:x:{user}:{gid}::{home}:/bin/sh\n");
        let passwd = env.write("passwd", passwd);
        let other = env.folder("other");
        env.write("other/.bashrc", "");
        let call = |flags: &[&str], script: &str| {
            inside(env, flags, script).env("HOME", &other).replaced("/etc/passwd", &passwd)
        };
        let (settings, agents) = (format!("{home}/.config/lnk"), format!("{home}/Link/Agents"));
        let home = home.to_string();
        refused_call(call(&["--read", &settings], "ls"), "Link's settings");
        refused_call(call(&["--read", &agents], "ls"), "agents' folders");
        refused_call(call(&["--write", &home], "ls"), "it is a home folder");
        refused_call(call(&["--write", "~"], "ls"), "it is a home folder");
        refused_call(call(&["--write", "~/.bashrc"], "ls"), "runs or unlocks things");
        let look = format!("cat {home}/{SETTINGS} || cat {home}/{AGENT}");
        call(&["--read", &home], &look).run().fails().has_not(SECRET);
        call(&["--read", &home], "ls \"$1\"; echo $HOME").run().ok();
        // With no HOME at all the one of passwd is meant.
        if !env.user.is_root() {
            let bare = |script: &str| call(&["--read", "~"], script).env_remove("HOME").run();
            bare("echo $HOME").ok().prints(&format!("{home}\n"));
            bare(&look).fails().has_not(SECRET);
        }
    });
}

/// Homes behind links: HOME keeps its spelling, both spellings work, and
/// what is closed is closed by both.
#[test]
fn a_home_behind_a_link_works_by_both_names() {
    each!(|env| {
        let data = env.home().join("data");
        env.write(data.join("u/proj/f"), "f\n");
        for file in [SETTINGS, AGENT] {
            env.write(data.join("u").join(file), SECRET);
        }
        // The home is a link; a link leads to where all homes are.
        env.link(data.join("u"), env.home().join("link"));
        env.link(&data, env.home().join("homes"));
        for home in ["link", "homes/u"].map(|name| env.home().join(name)) {
            let call = |flags: &[&str], script: &str| {
                inside(env, flags, script).env("HOME", &home).cwd(home.join("proj"))
            };
            let (typed, real) = (home.display(), data.display());
            let script = format!(
                "echo $HOME; cd ~/proj && touch a && touch {real}/u/proj/b && cat {typed}/proj/f"
            );
            call(&["--write", "~/proj"], &script)
                .run()
                .ok()
                .quiet()
                .prints(&format!("{typed}\nf\n"));
            for name in ["a", "b"] {
                fs::remove_file(data.join("u/proj").join(name)).unwrap();
            }
            let names = [home.clone(), data.join("u")];
            for name in &names {
                let name = name.display();
                for file in [SETTINGS, AGENT] {
                    call(&["--read", "~"], &format!("cat {name}/proj/f && cat {name}/{file}"))
                        .run()
                        .fails()
                        .prints("f\n");
                    refused_call(
                        call(&["--read", &format!("{name}/{file}")], "true"),
                        "never opened",
                    );
                }
            }
            call(&["--read", "~"], "ls ~/Link/Agents || ls ~/.config/lnk").run().fails().prints("");
            call(&["--read", "~/proj"], "ls -A ~; echo x > ~/new").run().ok();
            assert!(!data.join("u/new").exists());
        }
    });
}

/// `~/.config` is a link into a folder of dot files.
#[test]
fn settings_behind_a_link_are_closed_where_they_really_are() {
    each!(|env| {
        env.write(env.home().join("dots/config/lnk/sandbox/settings.toml"), SECRET);
        env.write(env.home().join("dots/config/f"), "f\n");
        env.link("dots/config", env.home().join(".config"));
        let home = env.home().display();
        for path in ["~/.config/lnk", "~/dots/config/lnk", "~/dots/config/lnk/sandbox"] {
            refused(env, &["--read", path], "Link's settings");
        }
        refused(env, &["--write", "~/dots"], "so nothing may write it");
        refused(env, &["--write", "~/dots/config"], "so nothing may write it");
        for flags in [["--read", "~"], ["--read", "~/dots"], ["--read", "~/.config"]] {
            for name in [".config", "dots/config"] {
                let script =
                    format!("cat {home}/{name}/f; cat {home}/{name}/lnk/sandbox/settings.toml");
                inside(env, &flags, &script).cwd("/").run().fails().has_not(SECRET);
            }
        }
        inside(env, &["--read", "~/.config"], "cat ~/.config/f ~/dots/config/f")
            .cwd("/")
            .run()
            .ok()
            .prints("f\nf\n");
    });
}

/// The first agent is made while a program that reads the home runs.
#[test]
fn agents_made_later_are_hidden_too() {
    each!(|env| {
        let run = inside(env, &["--read", "~"], "ls ~; echo ready; read go < go; ls ~/Link/Agents");
        env.program("mkfifo", ["go"]).run().ok();
        let mut run = run.spawn();
        run.wait_for_stdout("ready");
        env.write(env.home().join(AGENT), SECRET);
        fs::write(env.project().join("go"), "\n").unwrap();
        run.wait().fails().has_not("main");
        fs::remove_dir_all(env.home().join("Link")).unwrap();
        inside(env, &["--read", "~"], "ls ~").run().ok();
        assert!(!env.home().join("Link").exists(), "nothing is left");
    });
}

// --- never opened -----------------------------------------------------------------

#[test]
fn kernel_folders_and_sockets_are_never_opened() {
    each!(|env| {
        env.link("/proc", "to-proc");
        env.link("/dev/shm", "to-shm");
        let socket = env.project().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        let pipe = env.project().join("pipe");
        env.program("mkfifo", [&pipe]).run().ok();
        for flag in ["--read", "--write"] {
            for path in [
                "/proc",
                "/proc/1",
                "/proc/self",
                "/proc/sys",
                "/sys",
                "/sys/kernel",
                "/dev",
                "/dev/null",
                "/dev/shm",
                "/run",
                "/run/.",
                "//run",
                "/usr/../run",
                "to-proc",
                "to-proc/self/root",
                "to-shm",
            ] {
                refused(env, &[flag, path], "");
            }
            refused(env, &[flag, "socket"], "a socket of this machine is never opened");
            refused(env, &[flag, "pipe"], "only a folder or a plain file can be opened");
        }
    });
}

#[test]
fn a_window_on_the_kernel_below_a_grant_is_closed() {
    each!(|env| {
        env.folder("jail/proc");
        env.folder("jail/sys");
        env.write("jail/f", "f\n");
        for (name, probe) in [("proc", "cmdline"), ("sys", "kernel/uevent_seqnum")] {
            let bound = |flags: &[&str], script: &str| {
                inside(env, flags, script)
                    .replaced(env.project().join("jail").join(name), Path::new("/").join(name))
            };
            for flags in [["--read", "."], ["--write", "."]] {
                bound(&flags, "cat jail/f").run().ok().prints("f\n");
                bound(&flags, &format!("cat jail/{name}/{probe}")).run().fails().prints("");
                bound(&flags, &format!("ls jail/{name}")).run().fails().prints("");
            }
            refused_call(bound(&["--read", &format!("jail/{name}")], "ls"), "window on the kernel");
            refused_call(
                bound(&["--read", &format!("jail/{name}/{probe}")], "ls"),
                "window on the kernel",
            );
        }
    });
}

#[test]
fn what_runs_outside_is_never_written() {
    each!(|env| {
        let files = [
            ".bashrc",
            ".profile",
            ".bash_profile",
            ".zshrc",
            ".zshenv",
            ".gitconfig",
            ".xprofile",
            ".inputrc",
            ".pam_environment",
            ".rhosts",
        ];
        let folders = [
            ".ssh",
            ".gnupg",
            ".config/autostart",
            ".config/systemd",
            ".config/systemd/user",
            ".config/environment.d",
            ".config/git",
            ".config/fish",
            ".local/bin",
            "bin",
            "Library",
            "Library/LaunchAgents",
            ".ssh/sub",
        ];
        for file in files {
            env.write(env.home().join(file), "");
        }
        for folder in folders {
            env.folder(env.home().join(folder));
        }
        let write = |path: &str| ["--write".to_owned(), path.to_owned()];
        for name in files.iter().chain(&folders) {
            let path = format!("~/{name}");
            refused(env, &write(&path), "so nothing may write it");
            // Reading it is another matter.
            inside(env, &["--read", &path], "true").cwd("/").run().ok();
        }
        for holder in ["~", "..", "../..", "/var", "/var/tmp"] {
            refused(env, &write(holder), "it is a home folder, or holds one");
        }
        refused(env, &write("~/.config"), "--write ~/.config");
        refused(env, &write("~/.local"), ".local/bin runs or unlocks");
        env.link(env.home().join(".ssh"), "harmless");
        refused(env, &write("harmless"), "runs or unlocks things");
        env.link("project/real", env.home().join(".zsh"));
        env.folder("real/sub");
        refused(env, &write("real"), "runs or unlocks things");
        refused(env, &write("."), "runs or unlocks things");
        fs::remove_file(env.home().join(".zsh")).unwrap();

        let system = ["/etc", "/usr", "/opt", "/boot", "/usr/local", "/etc/profile.d", "/bin"];
        for folder in system.into_iter().filter(|folder| Path::new(folder).is_dir()) {
            refused(env, &write(folder), "to the system");
        }
        if Path::new("/var/spool/cron").is_dir() && env.user.is_root() {
            refused(env, &write("/var/spool/cron"), "belongs to the system");
        }

        // Beside them, programs' own folders are.
        for folder in [".config/app", ".local/share", ".cache", "Documents", ".ssh2", "binaries"] {
            let path = env.folder(env.home().join(folder));
            inside(env, &write("."), "touch written").cwd(&path).run().ok();
            assert!(path.join("written").exists());
        }
    });
}

#[test]
fn a_folder_of_programs_is_never_written() {
    each!(|env| {
        let tools = env.folder("tools/bin");
        env.folder("tools/share");
        env.link("tools/bin", "to-bin");
        let path = format!("/usr/bin:{}", tools.display());
        let call = |flags: &[&str]| inside(env, flags, "true").env("PATH", &path);
        for folder in ["tools", "tools/bin", "to-bin", "."] {
            refused_call(call(&["--write", folder]), "is on your PATH");
        }
        call(&["--read", ".", "--write", "tools/share"]).run().ok();
        call(&["--read", "."]).run().ok();
        // By a link, and relative to where one is.
        let linked = |path: &str| inside(env, &["--write", "tools"], "true").env("PATH", path);
        let by_link = format!("/usr/bin:{}", env.project().join("to-bin").display());
        refused_call(linked(&by_link), "is on your PATH");
        refused_call(linked("/usr/bin:tools/bin"), "is on your PATH");

        // Where lnk is.
        let bin = env.folder("own/bin");
        // Not copied by this process, whose forks would hold it open for writing.
        env.program("cp", [env.lnk_path(), bin.join("lnk")]).run().ok();
        let own = |folder: &str| {
            env.program(bin.join("lnk"), ["sandbox", "run", "--write", folder, "--", "true"])
        };
        refused_call(own("own"), "it holds lnk itself");
        refused_call(own("own/bin"), "it holds lnk itself");
    });
}

#[test]
fn what_is_never_written_isnt_by_a_bind_mount_either() {
    each!(|env| {
        env.folder("alias");
        env.folder(env.home().join(".ssh/sub"));
        let tools = env.folder("tools/bin");
        let bound = |what: &Path, flags: &[&str]| {
            inside(env, flags, "true").replaced(env.project().join("alias"), what)
        };
        for what in [".ssh", ".ssh/sub"].map(|name| env.home().join(name)) {
            refused_call(bound(&what, &["--write", "alias"]), "so nothing may write it");
        }
        refused_call(bound(&env.home().join(".ssh"), &["--write", "."]), "so nothing may write it");
        refused_call(bound(env.home(), &["--write", "alias"]), "it is a home folder");
        refused_call(bound(Path::new("/etc"), &["--write", "alias"]), "belongs to the system");
        refused_call(bound(Path::new("/usr/bin"), &["--write", "alias"]), "");
        let path = format!("/usr/bin:{}", tools.display());
        refused_call(bound(&tools, &["--write", "alias"]).env("PATH", path), "is on your PATH");
        bound(&tools, &["--read", ".", "--write", "alias"]).run().ok();
    });
}

// --- the working folder --------------------------------------------------------------

#[test]
fn the_working_folder_is_kept_or_the_run_refused() {
    each!(|env| {
        env.folder("a/b");
        env.link("a", "link");
        let pwd = |flags: &[&str], cwd: &Path| inside(env, flags, "pwd -P").cwd(cwd);
        let project = env.project().display().to_string();
        pwd(&["--read", "."], env.project()).run().ok().prints(&format!("{project}\n"));
        pwd(&["--read", "~"], &env.project().join("a/b"))
            .run()
            .ok()
            .prints(&format!("{project}/a/b\n"));
        pwd(&["--write", "."], &env.project().join("link"))
            .run()
            .ok()
            .prints(&format!("{project}/a\n"));
        for cwd in ["/", "/usr/bin", "/tmp"] {
            pwd(&[], Path::new(cwd)).run().ok().prints(&format!("{cwd}\n"));
        }
        let closed = "isn't open inside: add --read . or --write .";
        for cwd in [env.project(), Path::new("/var"), Path::new("/proc"), Path::new("/sys")] {
            let a = format!("{project}/a");
            refused_call(pwd(&["--read", &a], cwd), closed);
        }
        let hidden = "which is hidden: start from another";
        refused_call(pwd(&["--read", ".", "--hide", "."], &env.project().join("a/b")), hidden);
        refused_call(pwd(&["--read", "..", "--hide", ".."], &env.project().join("a/b")), hidden);
        let gone = "mkdir gone; cd gone; rmdir ../gone; exec lnk sandbox run --read .. -- pwd";
        refused_call(env.sh(gone), "the working folder");
        // The program can't be started from a hidden place inside an open one.
        let flags = ["--read", "~", "--hide", "~/project"];
        refused_call(pwd(&flags, env.project()), hidden);
        pwd(&flags, env.home()).run().ok();
    });
}

// --- the system's files -----------------------------------------------------------------

#[test]
fn of_the_system_only_programs_and_a_list_of_etc_are_there() {
    each!(|env| {
        let at = |script: &str| inside::<&str>(env, &[], script).cwd("/").run();
        at("ls /usr/bin > /dev/null && cat /etc/passwd /etc/hosts > /dev/null").ok().quiet();
        for path in [
            "/etc/shadow",
            "/etc/gshadow",
            "/etc/sudoers",
            "/etc/ssh",
            "/etc/crontab",
            "/etc/fstab",
            "/etc/ssl/private",
            "/sys",
            "/home",
            "/root",
            "/var/log",
            "/var/lib",
            "/var/tmp/x",
            "/boot",
            "/srv",
            "/mnt",
            "/media",
            "/run/systemd",
            "/run/user",
            "/run/dbus",
        ] {
            at(&format!("ls -d {path}")).fails();
        }
        let me = &env.user.name;
        at("cut -d: -f1 /etc/passwd | sort | xargs").ok().prints(&format!(
            "{}\n",
            if env.user.is_root() { "nobody root".to_owned() } else { format!("{me} nobody root") }
        ));
        at("id -un").ok().prints(&format!("{me}\n"));
        for file in ["/usr/new", "/etc/new", "/etc/hosts", "/new", "/dev/new", "/bin/new"] {
            at(&format!("echo x > {file}")).fails();
        }
        at("echo x > /tmp/t && cat /tmp/t && ls -A /tmp /run").ok().stdout_has("x\n");
        assert!(!Path::new("/tmp/t").exists());
        // Granted by name, what is not for everyone is read as far as its mode lets.
        if env.user.is_root() {
            inside(env, &["--read", "/etc/shadow"], "head -c1 /etc/shadow").cwd("/").run().ok();
            at("head -c1 /etc/shadow").fails().prints("");
        }
    });
}

#[test]
fn the_kernels_settings_are_read_only() {
    each!(|env| {
        let at = |script: &str| inside::<&str>(env, &[], script).cwd("/").run();
        at("cat /proc/sys/kernel/ostype").ok().prints("Linux\n");
        for setting in
            ["kernel/hostname", "vm/swappiness", "net/ipv4/ip_forward", "kernel/core_pattern"]
        {
            let value = format!("/proc/sys/{setting}");
            at(&format!("cat {value} > /tmp/v; cat /tmp/v > {value}")).fails();
        }
        at("grep ' /proc/sys ro' /proc/self/mountinfo > /dev/null").ok();
        for file in ["/proc/sysrq-trigger", "/proc/kcore", "/proc/irq/default_smp_affinity"] {
            at(&format!("echo 0 > {file}")).fails();
        }
        at("head -c1 /proc/kcore").fails().prints("");
        if env.user.is_root() {
            at("head -c1 /proc/keys").fails().prints("");
        }
    });
}

// --- ways out ------------------------------------------------------------------------------

#[test]
fn a_link_out_of_a_write_folder_leads_nowhere() {
    each!(|env| {
        let secret = env.write(env.home().join(".ssh/authorized_keys"), SECRET);
        env.write("w/in", "in\n");
        env.link(&secret, "w/before");
        env.link("../../.ssh", "w/up");
        let flags = ["--write", "."];
        let call = |script: &str| inside(env, &flags, script).cwd("w").run();
        call("ln -s in x; echo more >> x; cat in").ok().prints("in\nmore\n");
        for script in [
            "ln -s ~/.ssh/authorized_keys y && echo k >> y",
            "echo k >> before",
            "cat before",
            "echo k >> up/authorized_keys",
            "ls up/",
            "ln -s /proc/1/root/etc/shadow s; cat s",
        ] {
            call(script).fails().has_not(SECRET);
        }
        assert_eq!(fs::read(&secret).unwrap(), SECRET.as_bytes());
    });
}

#[test]
fn a_hard_link_crosses_no_grant() {
    each!(|env| {
        env.write("r/secret", SECRET);
        env.write("w/in", "in\n");
        let flags = ["--read", ".", "--write", "w"];
        run(env, &flags, "ln w/in w/also && cat w/also && mkdir w/d && ln w/in w/d/x")
            .ok()
            .prints("in\n");
        for target in ["r/secret", "/etc/hosts", "/usr/bin/env", "/bin/sh"] {
            run(env, &flags, &format!("ln {target} w/hard")).fails();
            let rename = format!("import os; os.rename('{target}', 'w/hard')");
            run(env, &flags, &format!("/usr/bin/python3 -c \"{rename}\"")).fails();
        }
        assert!(!env.project().join("w/hard").exists());
        assert_eq!(fs::read(env.project().join("r/secret")).unwrap(), SECRET.as_bytes());
    });
}

#[test]
fn a_granted_path_swapped_by_a_run_opens_nothing_in_the_next() {
    each!(|env| {
        settings_and_agents(env);
        env.folder("w/sub");
        let swap = |to: &str| {
            run(env, &["--write", "."], &format!("rm -rf w/sub && ln -s {to} w/sub")).ok();
        };
        run(env, &["--read", ".", "--write", "w/sub"], "touch w/sub/ok").ok();
        for (to, why) in [
            ("~/.config/lnk", "Link's settings"),
            ("~/Link/Agents", "agents' folders"),
            ("~/.config", "so nothing may write it"),
            ("/etc", "belongs to the system"),
            ("/proc/self/fd", "nothing of /proc"),
            ("~", "a home folder"),
        ] {
            swap(to);
            refused(env, &["--read", ".", "--write", "w/sub"], why);
        }
    });
}

/// Each call by number or name is tried from Python; what it answers is printed.
const MOUNT_CALLS: &str = r#"
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def tried(name, *args):
    ctypes.set_errno(0)
    done = libc.syscall(*args)
    print(name, 'DONE' if done != -1 else errno.errorcode[ctypes.get_errno()])
path, empty = b'hidden', ctypes.c_char_p(b'')
tried('mount', 165, b'none', path, b'tmpfs', 0, None)
tried('bind', 165, b'hidden', b'open', None, 4096, None)
tried('remount', 165, None, b'ro', None, 32 | 4096, None)
tried('umount', 166, path, 0)
tried('detach', 166, path, 2)
tried('open_tree', 428, -100, b'.', 1)
tried('open_tree_ro', 428, -100, b'ro', 1 | 0x8000)
tried('move_mount', 429, -100, b'open', -100, b'ro', 0)
tried('mount_setattr', 442, -100, b'ro', 0, b'\0' * 32, 32)
tried('fsopen', 430, b'tmpfs', 0)
tried('pivot_root', 155, b'.', b'.')
tried('chroot', 161, b'.')
tried('unshare_user', 272, 0x10000000)
tried('unshare_mounts', 272, 0x20000)
tried('clone_user', 56, 0x10000000 | 17, 0, 0, 0, 0)
tried('clone3', 435, b'\0' * 88, 88)
tried('setns', 308, os.open('/proc/self/ns/mnt', os.O_RDONLY), 0)
tried('open_by_handle_at', 304, -100, b'\0' * 128, 0)
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn mounts_cant_be_changed_from_inside() {
    each!(|env| {
        env.write("hidden/f", SECRET);
        env.write("ro/f", "ro\n");
        env.folder("open");
        env.write("calls.py", MOUNT_CALLS);
        let flags = ["--write", ".", "--hide", "hidden", "--read", "ro"];
        let tried = run(env, &flags, "/usr/bin/python3 calls.py").ok();
        assert_eq!(tried.stdout.lines().count(), 18, "{tried}");
        for line in tried.stdout.lines() {
            let refused = ["EPERM", "EACCES", "ENOSYS"].iter().any(|error| line.ends_with(error));
            assert!(refused, "{line}\n{tried}");
        }
        for script in [
            "umount hidden",
            "umount -l hidden",
            "mount -o remount,rw ro && echo x > ro/f",
            "unshare -Urm sh -c 'umount hidden; cat hidden/f'",
            "unshare -Ur true",
            "unshare -m true",
            "mount --bind ro open",
            "bwrap --bind / / --dev /dev true",
            "bwrap --unshare-user --bind / / cat hidden/f",
        ] {
            run(env, &flags, &format!("{script} && cat hidden/f")).fails().has_not(SECRET);
        }
        run(env, &flags, "cat ro/f; echo x > open/x; cat open/x").ok().prints("ro\nx\n");
        assert_eq!(fs::read(env.project().join("ro/f")).unwrap(), b"ro\n");
    });
}

#[test]
fn the_process_table_is_no_way_out() {
    each!(|env| {
        let secret = env.write("../secret", SECRET);
        let secret = secret.canonicalize().unwrap();
        let secret = secret.display();
        let flags = ["--write", "."];
        // Only its own processes, two: process 1 and itself.
        run(env, &flags, "set -- /proc/[0-9]*; echo $#").ok().prints("2\n");
        run(env, &flags, "cat /proc/self/root/usr/lib/os-release > /dev/null").ok();
        for script in [
            format!("cat /proc/1/root{secret}"),
            format!("cat /proc/self/root{secret}"),
            format!("cat /proc/$$/root{secret} || cat /proc/1/cwd{secret}"),
            "cat /proc/1/environ".into(),
            "head -c1 /proc/1/mem".into(),
            "readlink /proc/1/fd/0 /proc/1/fd/1 /proc/1/cwd /proc/1/root".into(),
            "readlink /proc/1/exe".into(),
            "cat /proc/1/fd/*".into(),
            "echo x > /proc/1/oom_score_adj".into(),
            "kill -9 1; kill -0 2; ls /proc/1/map_files/".into(),
            "ls /proc/2/root/proc/3/x /proc/$PPID/cwd/".into(),
        ] {
            run(env, &flags, &script).fails().has_not(SECRET).prints("");
        }
        let trace = "import ctypes, os, sys; c = ctypes.CDLL(None, use_errno=True)\n\
                     sys.exit(c.ptrace(16, 1, 0, 0) != -1 or ctypes.get_errno() not in (1, 3))";
        env.write("trace.py", trace);
        run(env, &flags, "/usr/bin/python3 trace.py").ok();
    });
}

#[test]
fn descriptors_that_the_caller_has_open_dont_cross() {
    each!(|env| {
        env.write("../secret", SECRET);
        env.write("f", "f\n");
        let script = "exec 5< ../secret 7< .. 9< f; exec lnk sandbox run --read . -- sh -c \
                      'ls /proc/self/fd | xargs; cat <&5 || cat /proc/self/fd/5 || ls /proc/self/fd/7/'";
        env.sh(script).run().fails().has_not(SECRET).prints("0 1 2 3\n");
        // A folder as standard input is a way out of every other.
        let call = inside(env, &["--read", "."], "ls /proc/self/fd/0/")
            .stdin_file(File::open("/").unwrap());
        refused_call(call, "");
    });
}

// --- sizes, users, real work ------------------------------------------------------------------

#[test]
fn many_and_long_arguments_reach_the_program() {
    each!(|env| {
        env.sh("lnk sandbox run --write . -- sh -c 'echo $# ${20000}' sh $(seq 1 20000)")
            .run()
            .ok()
            .prints("20000 20000\n");
        let long = "x".repeat(127 * 1024);
        let words = ["sandbox", "run", "--read", ".", "--", "sh", "-c", "echo ${#1}", "sh", &long];
        env.lnk(words).run().ok().prints(&format!("{}\n", long.len()));
    });
}

#[test]
fn three_thousand_folders_are_read() {
    each!(|env| {
        let many = env.project().join("many");
        let mut flags: Vec<OsString> = Vec::new();
        for number in 0..3000 {
            env.write(format!("many/{number}/f"), format!("{number}\n"));
            flags.extend(["--read".into(), many.join(number.to_string()).into_os_string()]);
        }
        let script = format!("cd {} && ls | wc -l && cat 0/f 2999/f", many.display());
        let call = inside(env, &flags, &script).cwd("/");
        match env.mounts {
            Mounts::Joiner => drop(call.run().ok().prints("3000\n0\n2999\n")),
            // bubblewrap itself takes 9,000 words; that is said, and nothing runs.
            Mounts::Bwrap => refused_call(call, "too many folders for bubblewrap"),
        }
    });
}

#[test]
fn a_user_whom_nobody_knows_has_a_name() {
    each!(|env| {
        if !env.user.is_root() {
            return;
        }
        let home = env.outside().join("nobody-knows");
        let project = home.join("project");
        fs::create_dir_all(&project).unwrap();
        for folder in [&home, &project] {
            std::os::unix::fs::chown(folder, Some(54321), Some(54321)).unwrap();
        }
        let as_unknown = |script: &str| {
            let words =
                ["--reuid=54321", "--regid=54321", "--clear-groups", "--", "lnk", "sandbox"];
            let rest = ["run", "--write", ".", "--", "sh", "-c", script];
            env.program("setpriv", words.into_iter().chain(rest)).env("HOME", &home).cwd(&project)
        };
        as_unknown("id -un; id -gn; echo $USER; whoami; touch f")
            .run()
            .ok()
            .quiet()
            .prints("54321\n54321\n54321\n54321\n");
        as_unknown("/usr/bin/python3 -c 'import getpass, pwd, os; print(pwd.getpwuid(os.getuid()).pw_dir)'")
            .run()
            .ok()
            .prints(&format!("{}\n", home.display()));
        if Path::new("/usr/bin/node").exists() {
            as_unknown("node -p 'os.userInfo().username'").run().ok().prints("54321\n");
        }
        assert!(project.join("f").exists());
    });
}

#[test]
fn unpacking_installing_and_cloning_work() {
    each!(|env| {
        // An archive of somebody else's files.
        let archive = "mkdir pack && echo hi > pack/f && \
            tar --owner=12345 --group=23456 --numeric-owner -cf pack.tar pack && rm -r pack";
        env.sh(archive).run().ok();
        run(env, &["--write", "."], "tar xf pack.tar && cat pack/f").ok().quiet().prints("hi\n");

        env.sh("git init -q repo && cd repo && echo hi > f && git add f && git commit -qm one")
            .run()
            .ok();
        run(
            env,
            &["--write", "."],
            "git clone -q repo copy && git -C copy log --format=%s && cat copy/f",
        )
        .ok()
        .prints("one\nhi\n");
        run(env, &["--read", "."], "git clone -q repo copy2").fails();

        if !Path::new("/usr/bin/npm").exists() {
            testkit::skip("npm isn't installed");
            return;
        }
        env.write("dep/package.json", r#"{"name":"dep","version":"1.0.0","main":"index.js"}"#);
        env.write("dep/index.js", "module.exports = 42\n");
        env.write("app/package.json", r#"{"name":"app","version":"1.0.0"}"#);
        run(
            env,
            &["--write", "."],
            "cd dep && npm pack --silent >&2 && cd ../app && \
             npm install --silent --offline --no-audit --no-fund ../dep/dep-1.0.0.tgz >&2 && \
             node -p 'require(\"dep\")'",
        )
        .ok()
        .prints("42\n");
    });
}
