//! Fences left out on purpose, which `lnk sandbox check` must see. Only a build
//! with the feature `faults` can leave one out.

use serde_json::Value;
use testkit::{Mounts, TestEnv, each};

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
    holds_without(env, &[fence], flags, row, &[missing]);
}

fn holds_without(env: &TestEnv, fences: &[&str], flags: &[&str], row: &str, missing: &[&str]) {
    let lines = without(env, fences, flags);
    let line = line(&lines, row);
    assert_eq!(line["result"], "blocked", "without {fences:?}: {line:#}");
    let layers = line["layers"].as_array().expect("layers");
    assert!(layers.len() > missing.len(), "{line:#}");
    for name in missing {
        assert!(layers.iter().any(|layer| layer["name"] == *name), "{name} in {line:#}");
    }
    for layer in layers.iter().filter(|layer| layer["name"] != "kernel setting") {
        let is_missing = missing.iter().any(|name| layer["name"] == *name);
        assert_eq!(layer["there"], !is_missing, "{line:#}");
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
        leaks(env, &["proc-sys", "landlock"], &[], &[row]);
        holds(env, "proc-sys", &[], row, "mounts");
        holds(env, "landlock", &[], row, "landlock");
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
fn the_keyring_has_two_layers() {
    each!(|env| {
        let row = "find a key in your session keyring";
        leaks(env, &["keyring", "seccomp"], &[], &[row]);
        holds(env, "keyring", &[], row, "keyring");
        holds(env, "seccomp", &[], row, "seccomp");
    });
}

#[test]
fn without_the_process_namespace_processes_leak() {
    each!(|env| {
        leaks(env, &["processes"], &[], &["see a process outside in /proc"]);
        let row = "signal a process outside";
        leaks(env, &["processes", "landlock"], &[], &[row]);
        holds(env, "processes", &[], row, "process namespace");
        holds(env, "landlock", &[], row, "landlock");
    });
}

#[test]
fn a_process_outside_is_kept_from_being_traced_by_three_layers() {
    each!(|env| {
        let row = "trace a process outside (ptrace)";
        let missing = ["process namespace", "landlock"];
        holds_without(env, &["processes", "landlock"], &[], row, &missing);
        holds(env, "processes", &[], row, "process namespace");
        // Nobody but root has a sandbox without a user namespace.
        if env.user.is_root() {
            leaks(env, &["processes", "landlock", "users", "capabilities"], &[], &[row]);
        }
    });
}

#[test]
fn what_outlives_its_run_is_ended_by_two_layers() {
    each!(|env| {
        let row = "outlive its run";
        leaks(env, &["processes", "leftovers"], &[], &[row]);
        holds(env, "processes", &[], row, "process namespace");
        let lines = without(env, &["leftovers"], &[]);
        assert_eq!(line(&lines, row)["result"], "blocked");
    });
}

#[test]
fn new_namespaces_have_two_layers() {
    each!(|env| {
        let rows = ["make a user namespace", "make a mount namespace", "make a network namespace"];
        leaks(env, &["seccomp", "namespace-limit"], &[], &rows);
        holds(env, "seccomp", &[], rows[0], "seccomp");
        holds(env, "namespace-limit", &[], rows[0], "namespace limit");
    });
}

#[test]
fn mounts_have_their_layers() {
    each!(|env| {
        let rows = [
            "mount a file system (mount)",
            "mount a file system (fsopen)",
            "copy a mount (open_tree)",
        ];
        // bubblewrap limits namespaces by putting one into another, as it must for
        // an ordinary user's terminals.
        let all = ["seccomp", "capabilities", "landlock", "namespace-limit"];
        if env.user.is_root() || env.mounts == Mounts::Joiner {
            leaks(env, &all, &[], &rows);
        } else {
            holds_without(env, &all, &[], rows[0], &all[..3]);
        }
        for layer in ["seccomp", "capabilities", "landlock"] {
            holds(env, layer, &[], rows[0], layer);
        }
        holds(env, "seccomp", &[], rows[2], "seccomp");
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
fn abstract_sockets_of_a_shared_network_have_two_layers() {
    each!(|env| {
        let (flags, row) =
            (["--allow", "network"], "connect to an abstract Unix socket of this machine");
        leaks(env, &["broker", "landlock"], &flags, &[row]);
        holds(env, "broker", &flags, row, "broker");
        holds(env, "landlock", &flags, row, "landlock");
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

#[test]
fn without_the_fences_of_a_list_programs_leak() {
    each!(|env| {
        let flags = ["--write", ".", "--command", "sh"];
        let unlisted = "run a program that isn't listed";
        let copy = format!("run a copy of a listed program in {}", env.project().display());
        let loader = "run a program by the loader /usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";
        let memory = "run a program in memory (memfd_create)";
        let rows = [unlisted, &copy, "run a copy of a listed program in /tmp", loader, memory];
        let lines = without(env, &[], &flags);
        for row in rows {
            assert_eq!(line(&lines, row)["result"], "blocked", "{lines:#?}");
        }
        leaks(env, &["programs"], &flags, &rows[..3]);
        leaks(env, &["loader"], &flags, &[loader]);
        leaks(env, &["memory"], &flags, &[memory]);
    });
}
