//! Fences left out on purpose, which `lnk sandbox check` must see. Only a build
//! with the feature `faults` can leave one out.

use serde_json::Value;
use testkit::{TestEnv, each};

/// What `check` says of a sandbox without some fences; its status must fit.
fn without(env: &TestEnv, fences: &[&str], flags: &[&str]) -> Vec<Value> {
    let faults = fences.iter().map(|fence| format!("--fault={fence}"));
    let flags = flags.iter().map(|flag| (*flag).to_owned());
    let words = ["sandbox", "check", "--json"].map(str::to_owned).into_iter().chain(flags);
    let run = env.lnk(words.chain(faults)).run();
    let report: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{run}"));
    let lines = report["lines"].as_array().expect("a table").clone();
    let bad = |line: &Value| line["result"] == "LEAK" || line["result"] == "not tried";
    assert_eq!(run.code(), i32::from(lines.iter().any(bad)), "{run}");
    lines
}

fn line<'a>(lines: &'a [Value], tried: &str) -> &'a Value {
    let found = lines.iter().find(|line| line["tried"] == tried);
    found.unwrap_or_else(|| panic!("{tried} is no row of {lines:#?}"))
}

fn leaks(env: &TestEnv, fences: &[&str], flags: &[&str], rows: &[&str]) {
    let lines = without(env, fences, flags);
    for row in rows {
        assert_eq!(line(&lines, row)["result"], "LEAK", "without {fences:?}: {lines:#?}");
    }
}

/// Blocked all the same, by what is left, and the missing layer named.
fn holds(env: &TestEnv, fence: &str, flags: &[&str], row: &str, missing: &str) {
    let lines = without(env, &[fence], flags);
    let line = line(&lines, row);
    assert_eq!(line["result"], "blocked", "without {fence}: {line:#}");
    let layers = line["layers"].as_array().expect("layers");
    let layer = layers.iter().find(|layer| layer["name"] == missing).expect("a layer of the row");
    assert_eq!(layer["there"], false, "{line:#}");
    let others = layers.iter().filter(|layer| layer["name"] != missing);
    assert!(others.clone().count() > 0, "{line:#}");
    for other in others.filter(|layer| layer["name"] != "kernel setting") {
        assert_eq!(other["there"], true, "{line:#}");
    }
}

#[test]
fn with_every_fence_nothing_leaks() {
    each!(|env| {
        let lines = without(env, &[], &["--write", "."]);
        assert!(lines.iter().all(|line| line["result"] != "LEAK"));
    });
}

#[test]
fn without_the_masks_dot_files_leak() {
    each!(|env| {
        env.git(["init", "-q"]);
        env.write(".envrc", "");
        let rows = [
            "write .git in .",
            "rename .git in .",
            "write .envrc in .",
            "write .vscode in ., which doesn't exist",
            "rename .vscode in ., which doesn't exist",
        ];
        leaks(env, &["masks"], &["--write", "."], &rows);
        assert!(env.project().join(".git/HEAD").exists());
    });
}

#[test]
fn without_the_hides_settings_agents_and_hidden_folders_leak() {
    each!(|env| {
        let hidden = env.folder("hidden");
        let row = format!("read in --hide {}", hidden.display());
        let rows = [
            "read Link's settings",
            "read Link's settings, by a link",
            "read Link's settings, by its process's root",
            "read Link's settings, by its parent",
            "read Link's settings, from the open home folder",
            "read an agent's folder",
            &row,
        ];
        leaks(env, &["hides"], &["--read", "~", "--hide", "hidden"], &rows);
    });
}

#[test]
fn a_folder_that_is_only_read_has_two_layers() {
    each!(|env| {
        let (flags, row) = (["--read", "~"], "write to your home folder");
        leaks(env, &["read-only", "landlock"], &flags, &[row]);
        holds(env, "read-only", &flags, row, "mounts");
        holds(env, "landlock", &flags, row, "landlock");
        // In an empty home that may be written, Landlock can't tell it apart.
        leaks(env, &["read-only"], &["--read", "."], &["write to ."]);
    });
}

#[test]
fn the_kernels_settings_have_two_layers() {
    each!(|env| {
        let row = "change the kernel's settings in /proc/sys";
        holds(env, "landlock", &[], row, "landlock");
        // Others than root may not write them anyway, which then proves nothing.
        if env.user.is_root() {
            leaks(env, &["proc-sys", "landlock"], &[], &[row]);
            holds(env, "proc-sys", &[], row, "mounts");
        } else {
            let lines = without(env, &["proc-sys", "landlock"], &[]);
            assert_eq!(line(&lines, row)["result"], "not tried");
        }
    });
}

#[test]
fn without_the_filter_its_entries_leak() {
    each!(|env| {
        let rows = [
            "type into a terminal of its own (TIOCSTI)",
            "make a set-user-ID file in /tmp",
            "make a set-user-ID file in .",
            "send to a Unix datagram socket of this machine in .",
            "use io_uring",
        ];
        leaks(env, &["seccomp"], &["--write", "."], &rows);
    });
}

#[test]
fn what_the_filter_repeats_stays_blocked_without_it() {
    each!(|env| {
        holds(env, "seccomp", &[], "find a key in your session keyring", "seccomp");
        for row in ["mount a file system (mount)", "copy a mount (open_tree)"] {
            holds(env, "seccomp", &[], row, "seccomp");
        }
        holds(env, "seccomp", &[], "make a user namespace", "seccomp");
    });
}

#[test]
fn the_keyring_has_two_layers() {
    each!(|env| {
        let row = "find a key in your session keyring";
        leaks(env, &["keyring", "seccomp"], &[], &[row]);
        let lines = without(env, &["keyring"], &[]);
        assert_eq!(line(&lines, row)["result"], "blocked");
    });
}

#[test]
fn without_the_broker_sockets_in_a_granted_folder_leak() {
    each!(|env| {
        for flag in ["--read", "--write"] {
            let row = "connect to a Unix socket of this machine in .";
            leaks(env, &["broker"], &[flag, "."], &[row]);
        }
    });
}

#[test]
fn without_the_network_namespace_the_network_leaks() {
    each!(|env| {
        let rows = [
            "connect to a server on another port of this machine's loopback",
            "send by UDP to another port of this machine's loopback",
        ];
        leaks(env, &["network"], &[], &rows);
    });
}

#[test]
fn an_inherited_descriptor_leaks() {
    each!(|env| leaks(env, &["descriptors"], &[], &["use a file that was open outside"]));
}

#[test]
fn the_environment_leaks() {
    each!(|env| leaks(env, &["environment"], &[], &["read a variable of your environment"]));
}
