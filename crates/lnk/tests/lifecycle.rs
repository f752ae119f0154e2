//! Runs that end badly, many at once, and in a row: what is left of them.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use testkit::{Mounts, Running, TestEnv, each};

/// `often` with LNK_LONG=1, else `seldom`.
fn times(seldom: usize, often: usize) -> usize {
    if std::env::var_os("LNK_LONG").is_some_and(|long| long == "1") { often } else { seldom }
}

/// A moment in a run's first `most`, another one at each call.
fn moment(most: Duration) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").subsec_nanos();
    most.mul_f64(f64::from(now.wrapping_mul(2_654_435_761) >> 8) / f64::from(1 << 24))
}

/// What a folder shows, one name a line.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("own folder").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Processes that `fits` by the bytes of one of their files in `/proc`.
fn processes(file: &str, fits: impl Fn(&[u8]) -> bool) -> Vec<Pid> {
    let all = fs::read_dir("/proc").expect("/proc is there").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| fs::read(format!("/proc/{pid}/{file}")).is_ok_and(|bytes| fits(&bytes)))
        .filter_map(Pid::from_raw)
        .collect()
}

/// Processes with this word on their command line.
fn with_word(word: &str) -> Vec<Pid> {
    processes("cmdline", |line| line.split(|byte| *byte == 0).any(|arg| arg == word.as_bytes()))
}

/// Processes that run this test's own `lnk` outside a sandbox.
fn of_lnk(env: &TestEnv) -> Vec<Pid> {
    let own = env.lnk_path();
    let exe = |pid: &Pid| fs::read_link(format!("/proc/{}/exe", pid.as_raw_nonzero()));
    processes("stat", |_| true)
        .into_iter()
        .filter(|pid| exe(pid).is_ok_and(|exe| exe == own))
        .collect()
}

/// Waits until `left` is empty, for a second, and as long again on a machine
/// under load.
#[track_caller]
fn all_end(what: &str, left: impl Fn() -> Vec<Pid>) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while !left().is_empty() {
        assert!(Instant::now() < deadline, "{what}: left {:?}", left());
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn nothing_outlives_a_killed_supervisor_and_the_next_run_cleans_up() {
    each!(|env| {
        let before = names(env.project());
        for round in 0..times(12, 100) {
            // A word that marks every process of this run.
            let word = format!("7{}{round}", std::process::id());
            let script = format!("setsid sleep {word} & sleep {word} & echo ready; sleep {word}");
            let words = ["sandbox", "run", "--write", ".", "--", "sh", "-c", &script, &word];
            let mut running = env.lnk(words).spawn();
            if round % 4 == 0 {
                running.wait_for_stdout("ready");
            } else {
                sleep(moment(Duration::from_millis(40)));
            }
            running.signal(Signal::KILL);
            // Its output ends with the last process that holds it.
            running.wait();
            all_end("a killed supervisor", || [with_word(&word), of_lnk(env)].concat());
        }
        env.lnk(["sandbox", "run", "--write", ".", "--", "true"]).run().ok().quiet();
        assert_eq!(names(env.project()), before);
    });
}

/// A run that sees the home and is in its program.
fn seeing_home(env: &TestEnv) -> Running {
    let words = ["sandbox", "run", "--read", "~", "--", "sh", "-c", "echo in; exec sleep 600"];
    let mut running = env.lnk(words).spawn();
    running.wait_for_stdout("in\n");
    running
}

#[test]
fn the_last_of_two_runs_takes_agents_folders_of_both_away() {
    each!(|env| {
        let (link, agents) = (env.home().join("Link"), env.home().join("Link/Agents"));
        for first_ends_first in [true, false] {
            for by in [Signal::TERM, Signal::KILL] {
                // One makes the first folder, the other the one in it.
                let first = seeing_home(env);
                assert!(link.is_dir() && !agents.exists());
                let second = seeing_home(env);
                assert!(agents.is_dir());
                let (ends, stays) =
                    if first_ends_first { (first, second) } else { (second, first) };
                ends.signal(by);
                ends.wait().fails();
                assert!(link.is_dir());
                // A killed one leaves its own to the next that has some of its own.
                stays.signal(Signal::TERM);
                stays.wait().fails_with(128 + 15);
                if by == Signal::KILL {
                    env.lnk(["sandbox", "run", "--write", ".", "--", "true"]).run().ok();
                }
                assert!(!link.exists(), "{first_ends_first} {by:?}");
            }
        }
    });
}

#[test]
fn an_agents_folder_made_outside_is_hidden_after_the_run_that_made_its_parent_ended() {
    each!(|env| {
        let memory = env.home().join("Link/Agents/main/memory.md");
        let first = seeing_home(env);
        let second = seeing_home(env);
        let look = "echo in; read go; ls ~/Link/Agents/main; cat ~/Link/Agents/main/memory.md";
        let words = ["sandbox", "run", "--read", "~", "--", "sh", "-c", look];
        let (go_read, go) = std::io::pipe().expect("pipes can be made");
        let mut third = env.lnk(words).stdin_file(go_read).spawn();
        third.wait_for_stdout("in\n");
        for running in [second, first] {
            running.signal(Signal::TERM);
            running.wait().fails_with(128 + 15);
        }
        env.write(&memory, "secret");
        drop(go);
        third.wait().fails().prints("in\n");
        assert_eq!(fs::read(memory).expect("it stays"), b"secret");
    });
}

/// Runs that see the home and checks, starting and ending at any moment.
#[test]
fn runs_and_checks_at_once_leave_no_agents_folder() {
    each!(|env| {
        let run = ["sandbox", "run", "--read", "~", "--", "true"];
        let check = ["sandbox", "check", "--read", "~"];
        for _ in 0..times(2, 30) {
            let runs = (0..12).map(|_| env.lnk(run).spawn());
            let checks = (0..2).map(|_| env.lnk(check).spawn());
            let all: Vec<_> = checks.chain(runs).collect();
            all.into_iter().for_each(|running| drop(running.wait().ok()));
            assert!(!env.home().join("Link").exists());
        }
    });
}

#[test]
fn a_daemon_ends_with_the_run() {
    each!(|env| {
        let word = format!("8{}", std::process::id());
        let daemon =
            format!("setsid sh -c 'sleep {word} & sleep {word}' > /dev/null 2>&1 < /dev/null &");
        let script =
            format!("{daemon} while ! pgrep -fx 'sleep {word}' > /dev/null; do :; done; echo up");
        let words = ["sandbox", "run", "--read", ".", "--", "sh", "-c", &script];
        env.lnk(words).run().ok().prints("up\n");
        assert_eq!(with_word(&word), []);
    });
}

/// Counts what the plan opened, and tries what it closed.
const LOOK: &str = "\
n=0; for i in $(seq 30); do test -e part$i/file && n=$((n+1)); done
test -e /etc/passwd && test -e /dev/null && test -d /tmp && n=$((n+1))
for closed in part1/file w/.git/x w/.envrc hidden/file /proc/sys/kernel/hostname /x ~/.ssh/key; do
(echo x >> $closed) 2> /dev/null && echo open: $closed
done
test -s hidden/file && echo read: hidden/file
echo saw $n";

#[test]
fn a_killed_joiner_never_leaves_a_sandbox_with_less() {
    each!(|env| {
        if env.mounts != Mounts::Joiner {
            return;
        }
        let mut words: Vec<String> = ["sandbox", "run"].map(String::from).into();
        for part in 1..=30 {
            env.write(format!("part{part}/file"), "x");
            words.extend(["--read".into(), format!("part{part}")]);
        }
        env.write("hidden/file", "x");
        env.folder("w/.git");
        env.folder(env.home().join(".ssh"));
        let rest = ["--read", ".", "--write", "w", "--hide", "hidden", "--", "sh", "-c", LOOK];
        words.extend(rest.map(String::from));
        env.lnk(&words).run().ok().prints("saw 31\n");

        let mut ended_early = 0;
        for _ in 0..times(40, 400) {
            let running = env.lnk(&words).spawn();
            let lnk = running.pid();
            // The supervisor's child that is no bwrap.
            let joiner = loop {
                let children = fs::read_to_string(format!("/proc/{lnk}/task/{lnk}/children"));
                let children = children.unwrap_or_default();
                let mut pids = children.split_whitespace();
                let own = env.lnk_path();
                let joiner = pids.find(|pid| {
                    fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == own)
                });
                // The first child is bwrap, which is lnk still before its execve.
                if children.split_whitespace().count() > 1 && joiner.is_some() {
                    break joiner.and_then(|pid| Pid::from_raw(pid.parse().ok()?));
                }
                if children.is_empty() && of_lnk(env).is_empty() {
                    break None;
                }
            };
            sleep(moment(Duration::from_millis(8)));
            if let Some(joiner) = joiner.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) {
                // It may have ended by itself.
                let _ = pidfd_send_signal(&joiner, Signal::KILL);
            }
            let run = running.wait();
            let whole = run.stdout == "saw 31\n";
            assert!(whole || run.stdout.is_empty(), "a sandbox with less\n{run}");
            if run.code() != 0 {
                ended_early += 1;
                run.fails_with(125).stderr_has("lnk sandbox: ");
            }
            all_end("a killed joiner", || of_lnk(env));
        }
        assert!(ended_early > 0, "no joiner was killed in time");
    });
}

/// Runs `lnk` many times, at once or in a row, as whom all orphans come to, and
/// looks for what is left.
const MANY: &str = r#"
import ctypes, os, subprocess, sys
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
at_once, rounds = map(int, sys.argv[1:])
run = ["lnk", "sandbox", "run", "--write", ".", "--", "sh", "-c", "echo $$ x >> log; echo ok"]
def batch(count):
    started = [subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(count)]
    for one in started:
        out, err = one.communicate(timeout=300)
        assert (one.returncode, out, err) == (0, b"ok\n", b""), (one.returncode, out, err)
def files():
    return sorted(os.path.join(at, name) for at, folders, names in os.walk(os.path.expanduser("~"))
                  for name in folders + names)
batch(1)
mounts, before = open("/proc/self/mountinfo").read(), files()
for _ in range(rounds):
    batch(at_once)
assert open("/proc/self/mountinfo").read() == mounts, "mounts are left"
assert files() == before, set(files()) ^ set(before)
assert len(open("log").readlines()) == 1 + at_once * rounds
try:
    print("left:", os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    print("nothing left")
"#;

fn many(env: &TestEnv, at_once: usize, rounds: usize) {
    let script = env.write(env.home().join("many.py"), MANY);
    let script = script.to_str().expect("a test's path is UTF-8");
    let words = ["-B", script, &at_once.to_string(), &rounds.to_string()];
    let deadline = Duration::from_secs(600);
    let run = env.program("/usr/bin/python3", words).deadline(deadline).run();
    run.ok().prints("nothing left\n").quiet();
    assert_eq!(of_lnk(env), []);
}

#[test]
fn many_at_once_leave_nothing() {
    each!(|env| many(env, 200, 1));
}

#[test]
fn many_in_a_row_leave_nothing() {
    each!(|env| many(env, 1, times(200, 1_000)));
}
