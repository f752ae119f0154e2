//! `lnk sandbox check`.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use lnk_sandbox::check::gaps::GAPS;
use rustix::process::Signal;
use serde_json::Value;
use testkit::{Mounts, Run, TestEnv, User, each};

fn check(env: &TestEnv, flags: &[&str]) -> Run {
    env.lnk(["sandbox", "check"].iter().chain(flags)).run()
}

/// The rows of `--json`, and how each came out.
fn rows(env: &TestEnv, flags: &[&str]) -> Vec<(String, String)> {
    let run = check(env, &[&["--json"], flags].concat());
    let report: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{run}"));
    let text = |line: &Value, key: &str| line[key].as_str().expect("text").to_owned();
    let lines = report["lines"].as_array().expect("a table");
    lines.iter().map(|line| (text(line, "tried"), text(line, "result"))).collect()
}

fn result<'a>(rows: &'a [(String, String)], tried: &str) -> &'a str {
    let row = rows.iter().find(|(row, _)| row == tried);
    row.map(|(_, result)| result.as_str()).unwrap_or_else(|| panic!("{tried} in {rows:#?}"))
}

/// Every name below a folder.
fn names(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        names.push(entry.path().display().to_string());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.extend(self::names(&entry.path()));
        }
    }
    names.sort();
    names
}

/// Bait, and the folders that it may be in.
fn bait(env: &TestEnv) -> Vec<String> {
    let tops = ["/usr", "/etc"].into_iter().flat_map(|place| fs::read_dir(place).into_iter());
    let tops = tops.flatten().flatten().map(|entry| entry.path().display().to_string());
    tops.chain(names(env.home()))
        .filter(|name| name.contains("lnk-check-") || name.ends_with(".record"))
        .collect()
}

#[test]
fn nothing_leaks() {
    each!(|env| {
        env.git(["init", "-q"]);
        env.write(".envrc", "");
        env.write(".vscode/settings.json", "{}");
        env.folder("hidden");
        let before = names(env.project());
        for flags in [
            &[][..],
            &["--write", "."],
            &["--read", "."],
            &["--read", "~", "--write", "."],
            &["--write", ".", "--write-dot-files", ".", "--hide", "hidden"],
        ] {
            let run = check(env, flags).ok().has_not("LEAK").has_not("not tried").quiet();
            assert!(run.stdout.contains("The sandbox holds: "), "{run}");
        }
        assert_eq!(names(env.project()), before);
        assert_eq!(bait(env), Vec::<String>::new());
        assert!(!env.home().join("Link").exists());
    });
}

#[test]
fn allowed_is_only_what_a_flag_opens() {
    each!(|env| {
        env.git(["init", "-q"]);
        let bare = rows(env, &[]);
        assert!(bare.iter().all(|(_, result)| result == "blocked" || result == "open"));

        let rows = rows(env, &["--read", "~", "--write", ".", "--write-dot-files", "."]);
        let allowed = |row: &str| assert_eq!(result(&rows, row), "allowed", "{row}");
        allowed("read a secret in your home folder");
        allowed("write to .");
        allowed("write .git in .");
        let blocked = |row: &str| assert_eq!(result(&rows, row), "blocked", "{row}");
        blocked("write to your home folder");
        blocked("read Link's settings");
        blocked("read an agent's folder");
        blocked("connect to a Unix socket of this machine in .");
    });
}

#[test]
fn the_json_tells_each_layer_and_what_was_left_out() {
    each!(|env| {
        let run = check(env, &["--json", "--read", "~"]).ok().quiet();
        assert_eq!(run.stdout.lines().count(), 1);
        let report: Value = serde_json::from_str(&run.stdout).expect("JSON");
        let name = report["sandbox"].as_str().expect("a name");
        let pid = name.strip_prefix("check-").expect("check's own name");
        assert!(pid.parse().is_ok_and(|pid: u32| pid > 0), "{name}");
        let lines = report["lines"].as_array().expect("a table");
        let line = |tried: &str| lines.iter().find(|line| line["tried"] == tried).expect("a row");
        assert_eq!(
            *line("write to your home folder"),
            serde_json::json!({
                "tried": "write to your home folder",
                "result": "blocked",
                "by": "read-only file system",
                "layers": [{"name": "mounts", "there": true}, {"name": "landlock", "there": true}],
            })
        );
        assert_eq!(
            *line("read a secret in your home folder"),
            serde_json::json!({
                "tried": "read a secret in your home folder",
                "result": "allowed",
                "by": "--read ~",
                "layers": [{"name": "mounts", "there": null}],
            })
        );
        let left_out = report["left_out"].as_array().expect("a list");
        let terminal = left_out.iter().find(|row| row["why"] == "there is no terminal");
        assert_eq!(
            terminal.expect("no terminal here")["tried"],
            "type into your terminal (TIOCSTI)"
        );
    });
}

#[test]
fn your_terminal_is_tried_where_there_is_one() {
    each!(|env| {
        let mut terminal = env.lnk(["sandbox", "check"]).terminal(200, 120);
        terminal.shows("blocked    type into your terminal (TIOCSTI)").shows("The sandbox holds: ");
        assert_eq!(terminal.wait_exit(), 0);
    });
}

#[test]
fn a_spec_is_checked_as_it_would_run() {
    each!(|env| {
        env.write("app.toml", "[files]\nwrite = [\".\"]\n[commands]\nallow = [\"*\"]\n");
        check(env, &["--spec", "app.toml"]).fails_with(125).prints("").stderr_has("--yes");
        assert_eq!(bait(env), Vec::<String>::new());
        let rows = rows(env, &["--spec", "app.toml", "--yes", "--hide", "app.toml"]);
        assert!(
            rows.iter().any(|(row, result)| row.starts_with("write to /") && result == "allowed")
        );
        assert_eq!(result(&rows, "write to the spec"), "blocked");
        check(env, &["--spec", "app.toml"]).ok().has_not("not tried");
    });
}

#[test]
fn what_is_hidden_is_tried_by_a_secret_in_it() {
    each!(|env| {
        let hidden = env.folder("hidden");
        let rows = rows(env, &["--read", ".", "--hide", "hidden"]);
        let row = format!("read in --hide {}", hidden.display());
        assert_eq!(result(&rows, &row), "blocked");
        assert_eq!(result(&rows, "read a file in ."), "allowed");
    });
}

#[test]
fn a_file_that_is_only_read_is_tried_too() {
    each!(|env| {
        env.write("read", "");
        env.write("written", "");
        let rows = rows(env, &["--read", ".", "--read", "read", "--write", "written"]);
        assert_eq!(result(&rows, "write to read"), "blocked");
        assert_eq!(result(&rows, "write to written"), "allowed");
    });
}

#[test]
fn a_try_that_fails_outside_too_proves_nothing() {
    each!(|env| {
        if env.user.is_root() {
            return;
        }
        // No bait goes into a home that can't be written.
        env.folder(env.home().join(".config/lnk"));
        env.program("chmod", ["555", ".."]).run().ok();
        let run = check(env, &[]).fails_with(1);
        env.program("chmod", ["755", ".."]).run().ok();
        for row in ["read a secret in your home folder", "read an agent's folder"] {
            let line = format!("not tried  {row} (permission denied)\n");
            assert!(run.stdout.contains(&line), "{run}");
        }
        assert!(run.stdout.contains("\nNothing leaked, but 2 of "), "{run}");
    });
}

#[test]
fn a_name_that_is_refused_slowly_counts_as_refused() {
    let env = TestEnv::new(env!("CARGO_BIN_EXE_lnk").as_ref(), &User::current(), Mounts::Joiner);
    // As getent is on a machine under load, and where nobody answers.
    let row = "look a name of the internet up";
    for (takes, line) in [(3, "blocked    "), (11, "not tried  ")] {
        let script = format!("#!/bin/sh\n[ \"$2\" = localhost ] || {{ sleep {takes}; exit 2; }}\n");
        let getent = env.write_program("getent", script);
        let run = env.lnk(["sandbox", "check"]).replaced("/usr/bin/getent", getent).run();
        run.stdout_has(&format!("{line}{row}"));
    }
}

#[test]
fn a_folder_of_another_users_is_left_out_where_its_permissions_close_it() {
    each!(|env| {
        // Nobody else can be given such a folder: no empty ones can be made in it.
        if !env.user.is_root() {
            return;
        }
        let folder = env.folder("theirs");
        env.folder("theirs/.vscode");
        chown(&folder, Some(12345), Some(12345)).expect("root gives folders away");
        let run = check(env, &["--json", "--write", "theirs"]).ok().quiet();
        let report: Value = serde_json::from_str(&run.stdout).expect("JSON");
        let left_out = |tried: &str| {
            let rows = report["left_out"].as_array().expect("a list");
            rows.iter().find(|row| row["tried"] == tried).map(|row| row["why"].clone())
        };
        let closed = Some("its permissions close it to you".into());
        assert_eq!(left_out("write to theirs"), closed);
        assert_eq!(left_out("rename .envrc in theirs, which doesn't exist"), closed);
        let set_id = left_out("make a set-user-ID file in theirs");
        assert_eq!(set_id, Some("you can't make one outside either".into()));
        // What can be tried all the same is.
        let line = |tried: &str| {
            let lines = report["lines"].as_array().expect("a table");
            lines.iter().find(|line| line["tried"] == tried).map(|line| line["result"].clone())
        };
        assert_eq!(line("write .vscode in theirs"), Some("blocked".into()));
        assert_eq!(line("write .envrc in theirs, which doesn't exist"), Some("blocked".into()));
    });
}

#[test]
fn without_home_it_is_the_one_in_passwd_and_a_missing_one_is_named() {
    each!(|env| {
        let (user, home) = (&env.user, env.home().display());
        let account = format!("{}:x:{}:{}::{home}:/bin/sh\n", user.name, user.uid, user.gid);
        let passwd = env.write("passwd", account);
        let check = || env.lnk(["sandbox", "check", "--write", "."]);
        let run = check().env_remove("HOME").replaced("/etc/passwd", passwd).run();
        run.ok().quiet().stdout_has("The sandbox holds: ");
        assert!(env.home().join(".config/lnk/sandbox/check").exists());

        let missing = env.outside().join("none");
        let line = format!("your home folder {} doesn't exist: make it, or", missing.display());
        let run = check().env("HOME", &missing).run().fails_with(125).prints("");
        assert_eq!(run.stderr.lines().count(), 1, "{run}");
        run.stderr_has(&line);
    });
}

#[test]
fn what_a_killed_check_left_the_next_one_clears() {
    each!(|env| {
        // Killed with more and more bait in place.
        for planted in [1, 2, 4, 7] {
            let before = bait(env);
            let running = env.lnk(["sandbox", "check", "--read", "~", "--write", "."]).spawn();
            while bait(env).iter().filter(|name| !before.contains(name)).count() < planted {
                std::thread::yield_now();
            }
            running.signal(Signal::KILL);
            let run = running.wait();
            assert_ne!(
                bait(env),
                Vec::<String>::new(),
                "{planted} planted, before {before:?}: {run}"
            );
        }
        check(env, &["--write", "."]).ok();
        assert_eq!(bait(env), Vec::<String>::new());
        // The last killed one's sandbox may be ending still.
        let deadline = Instant::now() + Duration::from_secs(10);
        while env.home().join("Link").exists() {
            assert!(Instant::now() < deadline, "an agents' folder is left");
            std::thread::yield_now();
        }
    });
}

#[test]
fn an_interrupted_check_clears_up() {
    each!(|env| {
        let running = env.lnk(["sandbox", "check", "--write", "."]).spawn();
        while bait(env).is_empty() {
            std::thread::yield_now();
        }
        running.signal(Signal::TERM);
        let run = running.wait();
        assert_eq!(run.code(), 128 + 15, "{run}");
        assert_eq!(bait(env), Vec::<String>::new());
    });
}

#[test]
fn two_at_once_dont_take_each_others_bait() {
    each!(|env| {
        let other = env.lnk(["sandbox", "check", "--read", "~", "--write", "."]).spawn();
        check(env, &["--read", "~", "--write", "."]).ok();
        other.wait().ok();
        assert_eq!(bait(env), Vec::<String>::new());
        assert!(!env.home().join("Link").exists());
    });
}

#[test]
fn what_belongs_to_you_stays() {
    each!(|env| {
        env.folder(env.home().join("Link/Agents/one"));
        env.write(env.home().join("Link/Agents/one/notes"), "mine");
        let _socket = UnixListener::bind(env.project().join("socket")).expect("own folder");
        let before = names(env.home());
        check(env, &["--read", "~", "--write", "."]).ok();
        let after: Vec<_> =
            names(env.home()).into_iter().filter(|name| !name.contains("/.config")).collect();
        assert_eq!(after, before);
    });
}

#[test]
fn a_grant_that_is_refused_plants_nothing() {
    each!(|env| {
        let run = check(env, &["--write", "~"]);
        run.fails_with(125).prints("").stderr_has("--write ~ ");
        check(env, &["--read", "none"]).fails_with(125).stderr_has("no such file");
        assert_eq!(bait(env), Vec::<String>::new());
    });
}

#[test]
fn the_probe_alone_is_no_command() {
    each!(|env| {
        env.lnk(["__probe"]).run().fails_with(1).prints("").quiet();
        env.lnk(["__probe"]).stdin([0xff; 64]).run().fails_with(1).prints("");
    });
}

/// The bold names of docs/security.md's list.
#[test]
fn each_known_gap_is_a_row_and_no_other() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let page = fs::read_to_string(page).expect("the page");
    let list = page.split("\n## Known gaps\n").nth(1).and_then(|rest| rest.split("\n## ").next());
    let names = list.expect("the list").lines().filter_map(|line| {
        Some(line.strip_prefix("- **")?.split("**").next()?.trim_end_matches(['.', ':']).to_owned())
    });
    let rows: Vec<_> = GAPS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(rows, names.collect::<Vec<_>>());
    let unnamed = list.expect("the list").lines().filter(|line| line.starts_with("- "));
    assert_eq!(unnamed.count(), rows.len(), "each gap has a bold name");

    each!(|env| {
        let shown = self::rows(env, &[]);
        for (_, what) in GAPS {
            assert_eq!(result(&shown, what), "open");
        }
        assert_eq!(shown.iter().filter(|(_, result)| result == "open").count(), GAPS.len());
    });
}
