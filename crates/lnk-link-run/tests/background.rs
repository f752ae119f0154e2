//! Background commands, by the server's tools.

#![allow(clippy::unwrap_used, reason = "a panic is a test's failure")]

mod client;
mod session;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::{Client, command, eventually, processes_with, within};
use serde_json::{Value, json};
use session::{agent, each};
use testkit::{TestEnv, User};

/// Goes on until the file `work/go` is there.
const WAITS: &str = "until test -e work/go; do sleep 0.02; done";

/// Leaves two processes behind, one in a session of its own.
fn leaves_two(mark: &str) -> String {
    format!(
        "python3 -c \"import os; os.setsid(); os.execlp('sleep', 'sleep', '{mark}')\" & \
         (sleep {mark} &);"
    )
}

/// How many processes sleep so long.
fn sleepers(mark: &str) -> usize {
    processes_with(&format!("sleep\0{mark}\0")).len()
}

/// The only folder with records in a home.
fn records(env: &TestEnv) -> PathBuf {
    let run = env.home().join(".config/lnk/run");
    let mut found = fs::read_dir(run).unwrap().map(|entry| entry.unwrap().path());
    let folder = found.next().expect("a folder of records");
    assert!(found.next().is_none());
    folder
}

fn files_in(folder: &Path, extension: &str) -> usize {
    let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|its| its == extension)).count()
}

#[test]
fn a_command_runs_on_and_its_end_is_told_once() {
    each(|env| {
        let mut client = Client::folder(env, &[]);
        let started = Instant::now();
        let id = client.started("echo one; cat; sleep 1; echo two >&2; exit 3");
        assert!(started.elapsed() < Duration::from_secs(1), "it answers at once");
        let list = client.call("list", json!({})).ok();
        assert!(list.starts_with(&format!("{id}: running for 0s, ")), "{list}");
        let event = client.note();
        assert_eq!(event["event"], "background_ended");
        assert_eq!((&event["id"], &event["status"]), (&json!(id), &json!(3)));
        assert_eq!((&event["state"], &event["bytes"]), (&json!("exited"), &json!(8)));
        let told = event["message"].as_str().unwrap();
        assert!(told.contains("exit status 3") && told.contains("| one\n| two"), "{told}");
        let next = client.sh("true").ok();
        assert!(next.starts_with(told) && next.ends_with("exit status 0"), "{next}");
        assert!(!client.sh("true").ok().contains(&id));
        let list = client.call("list", json!({})).ok();
        assert!(
            list.starts_with(&format!("{id}: ended: exit status 3, after 1s, 8 bytes")),
            "{list}"
        );
        assert_eq!(
            fs::read(env.project().join(format!("background/{id}.out"))).unwrap(),
            b"one\ntwo\n"
        );
    });
}

#[test]
fn a_command_gets_what_command_gets_and_is_refused_what_it_is() {
    each(|env| {
        env.folder("sub");
        let mut client = Client::folder(env, &[]);
        let arguments =
            json!({"program": "sh", "args": ["-c", "pwd; cat"], "input": "in", "folder": "sub"});
        client.call("start", arguments).ok();
        let message = client.note()["message"].as_str().unwrap().to_owned();
        assert!(message.contains("/sub\n| in"), "{message}");
        let out = client.call("start", json!({"program": "sh", "folder": "/etc"})).error();
        assert!(out.contains("files folder"), "{out}");
        client.call("start", json!({"program": "sh", "arg": []})).error();
        let outs = env.project().join("background");
        for (program, told) in [("no-such-program", "not found"), ("mount", "[commands] allow")] {
            // On a machine that is busy it may come too late for the answer.
            eventually(|| {
                let _ = client.call("list", json!({}));
                let starts = || fs::read_to_string(records(env).join("starts")).unwrap();
                let before = (starts(), files_in(&outs, "out"));
                let answer = client.call("start", json!({"program": program}));
                if !answer.is_error {
                    client.note();
                    return false;
                }
                let out = answer.error();
                assert!(out.contains("not run: ") && out.contains(program), "{out}");
                assert!(out.contains(told), "{out}");
                assert_eq!((starts(), files_in(&outs, "out")), before, "it leaves nothing");
                true
            });
        }
    });
}

#[test]
fn output_is_read_by_bytes_and_never_cut_in_a_character() {
    each(|env| {
        let mut client = Client::folder(env, &[]);
        let id = client.started(&format!(
            "printf 'a\u{20ac}b\u{20ac}'; printf '\\342\\202'; {WAITS}; printf '\\254'"
        ));
        client.wait_for_output(&id, "of 10;");
        let mut read = |from: Value| client.call("read", json!({"id": id, "from": from})).ok();
        let text = read(json!(1));
        assert!(text.ends_with("\n\u{20ac}b\u{20ac}") && text.contains("begins at 8]"), "{text}");
        for (from, inside) in [(2, "\u{fffd}\u{fffd}b\u{20ac}"), (3, "\u{fffd}b\u{20ac}")] {
            let text = read(json!(from));
            assert!(text.ends_with(inside) && text.contains("is inside a character"), "{text}");
        }
        assert!(read(json!(8)).ends_with("the next read begins at 8]\n"));
        assert!(read(json!(99)).contains("none from 99 on"));
        env.write("work/go", "");
        client.note();
        let mut read = |from: Value| client.call("read", json!({"id": id, "from": from}));
        let text = read(json!(8)).ok();
        assert!(text.ends_with("\n\u{20ac}") && text.contains("bytes 8 to 11 of 11"), "{text}");
        assert!(read(json!(u64::MAX)).ok().contains("none from"));
        for wrong in [json!(-1), json!("1"), json!(1.5)] {
            read(wrong).error();
        }
    });
}

#[test]
fn only_the_end_of_much_output_is_kept() {
    each(|env| {
        let mut client =
            Client::agent(env, "background_output = \"64 KB\"\noutput = \"1 KB\"", &[]);
        let id = client.started("seq -w 1 200000");
        assert_eq!(client.note()["bytes"], 1_400_000);
        let file = agent(env).join(format!("Files/background/{id}.out"));
        assert_eq!(fs::metadata(&file).unwrap().len(), 64 * 1024);
        assert!(fs::read_to_string(&file).unwrap().ends_with("199999\n200000\n"));
        let text = client.call("read", json!({"id": id, "from": 0})).ok();
        let start = 1_400_000 - 64 * 1024;
        assert!(text.contains(&format!("those before {start} aren't kept any more")), "{text}");
        let text = client.call("read", json!({"id": id, "from": 1_399_993})).ok();
        assert!(text.ends_with("1400000]\n200000\n"), "{text}");
        let text = client.call("read", json!({"id": id})).ok();
        assert!(text.ends_with("200000\n") && text.len() < 1200, "{text}");
    });
}

#[test]
fn the_agent_reads_outputs_and_changes_none() {
    each(|env| {
        let mut client = Client::folder(env, &[]);
        let id = client.started("echo mine");
        client.note();
        let _ = client.call("list", json!({}));
        let mut tries = |script: &str| client.sh(&script.replace("ID", &id)).ok();
        assert!(tries("cat background/ID.out").contains("mine"));
        for script in [
            "echo x >> background/ID.out",
            "rm -f background/ID.out",
            "mv background work/b",
            "ln -s /etc/passwd background/x.out",
            "chmod 777 background/ID.out",
            "touch background/new",
        ] {
            let text = tries(script);
            assert!(!text.contains("exit status 0"), "{script}: {text}");
        }
        assert_eq!(
            fs::read(env.project().join(format!("background/{id}.out"))).unwrap(),
            b"mine\n"
        );
    });
}

#[test]
fn no_link_in_place_of_an_output_is_followed() {
    each(|env| {
        let mut client = Client::folder(env, &[]);
        let id = client.started("echo mine");
        client.note();
        let _ = client.call("list", json!({}));
        let out = env.project().join(format!("background/{id}.out"));
        let secret = env.write(env.home().join("secret"), "secret\n");
        fs::remove_file(&out).unwrap();
        env.link(&secret, &out);
        let text = client.call("read", json!({"id": id})).error();
        assert!(text.contains("can't be read") && !text.contains("secret"), "{text}");
        fs::remove_file(&out).unwrap();
        let text = client.call("read", json!({"id": id})).error();
        assert!(text.contains("was removed"), "{text}");
        assert!(client.call("list", json!({})).ok().contains("was removed"));
    });
}

#[test]
fn stop_ends_it_with_everything_it_started() {
    each(|env| {
        let mark = format!("31.4{}", std::process::id());
        let mut client = Client::folder(env, &[]);
        let id = client.started(&format!(
            "trap '' TERM; {} echo up; while :; do sleep {mark}; done",
            leaves_two(&mark)
        ));
        client.wait_for_output(&id, "up");
        eventually(|| sleepers(&mark) == 3);
        let asked = Instant::now();
        let text = client.call("stop", json!({"id": id})).ok();
        assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
        assert!(text.contains("stopped") && text.contains("| up"), "{text}");
        assert_eq!(processes_with(&mark), Vec::<PathBuf>::new());
        // The answer has told it.
        assert!(!client.sh("true").ok().contains(&id));
        assert!(client.call("stop", json!({"id": id})).ok().contains("stopped"));
    });
}

#[test]
fn another_conversations_command_is_none() {
    each(|env| {
        let mut own = Client::folder(env, &["--conversation", "own"]);
        let mut other = Client::folder(env, &["--conversation", "other"]);
        let mut nameless = Client::folder(env, &[]);
        let id = own.started(WAITS);
        let ended = own.started("echo ended");
        own.note();
        for client in [&mut other, &mut nameless] {
            for tool in ["read", "stop"] {
                let unknown = client.call(tool, json!({"id": "aaaaaaaaaaaa"})).error();
                for id in [&id, &ended] {
                    let text = client.call(tool, json!({"id": id})).error();
                    assert_eq!(text, unknown.replace("aaaaaaaaaaaa", id));
                }
            }
            let list = client.call("list", json!({})).ok();
            assert!(!list.contains(&id) && !list.contains(&ended), "{list}");
        }
        assert!(own.call("list", json!({})).ok().contains(&format!("{id}: running")));
        env.write("work/go", "");
        own.note();
        own.close();
        let mut own = Client::folder(env, &["--conversation", "own"]);
        assert!(own.call("read", json!({"id": ended})).ok().contains("\nended\n"));
        assert!(
            own.call("read", json!({"id": "../../../x"})).error().starts_with("../../../x: no ")
        );
    });
}

#[test]
fn a_killed_server_leaves_nothing_and_each_is_told_as_lost_once() {
    each(|env| {
        let mark = format!("27.1{}", std::process::id());
        let mut client = Client::folder(env, &[]);
        let mut other = Client::folder(env, &[]);
        let script = format!("{} echo up; sleep {mark}", leaves_two(&mark));
        let lost: Vec<_> = (0..3).map(|_| client.started(&script)).collect();
        let kept = other.started(WAITS);
        for id in &lost {
            client.wait_for_output(id, "up");
        }
        eventually(|| sleepers(&mark) == 9);
        client.kill();
        within(Duration::from_secs(1), || processes_with(&mark).is_empty());

        let mut client = Client::folder(env, &[]);
        let mut noted: Vec<_> = lost.iter().map(|_| client.note()).collect();
        noted.retain(|event| event["state"] == "lost");
        assert_eq!(noted.len(), 3);
        let text = client.sh("true").ok();
        for id in &lost {
            assert_eq!(text.matches(&format!("command {id} ended: lost")).count(), 1, "{text}");
        }
        assert!(text.contains("| up") && !text.contains(&kept), "{text}");
        assert!(!client.sh("true").ok().contains("lost"));
        assert_eq!(client.call("list", json!({})).ok().matches("ended: lost").count(), 3);
        client.close();
        let mut client = Client::folder(env, &[]);
        assert!(!client.sh("true").ok().contains("lost"));
        assert!(other.call("list", json!({})).ok().contains(&format!("{kept}: running")));
        env.write("work/go", "");
        assert_eq!(other.note()["state"], "exited");
    });
}

#[test]
fn four_of_a_killed_server_are_gone_in_a_second() {
    each(|env| {
        let mark = format!("16.1{}", std::process::id());
        let mut client = Client::agent(env, "", &["--conversation", "c"]);
        let ids: Vec<_> = (0..4)
            .map(|_| client.started(&format!("{} sleep {mark}", leaves_two(&mark))))
            .collect();
        assert!(client.start_sh("true").error().starts_with("4 background commands run already"));
        eventually(|| sleepers(&mark) == 12);
        client.kill();
        within(Duration::from_secs(1), || processes_with(&mark).is_empty());
        // Another conversation isn't told.
        let mut other = Client::agent(env, "", &["--conversation", "other"]);
        assert!(!other.sh("true").ok().contains("lost"));
        let mut client = Client::agent(env, "", &["--conversation", "c"]);
        let text = client.sh("true").ok();
        assert!(ids.iter().all(|id| text.contains(&format!("{id} ended: lost"))), "{text}");
        assert!(!client.sh("true").ok().contains("lost"));
    });
}

#[test]
fn a_closed_server_ends_its_commands() {
    each(|env| {
        let mark = format!("14.1{}", std::process::id());
        let mut client = Client::folder(env, &[]);
        client.started(&format!("{} sleep {mark}", leaves_two(&mark)));
        eventually(|| sleepers(&mark) == 3);
        client.close();
        within(Duration::from_secs(2), || processes_with(&mark).is_empty());
        let mut client = Client::folder(env, &[]);
        assert!(client.sh("true").ok().contains("ended: lost"));
    });
}

#[test]
fn servers_of_one_agent_share_its_limits() {
    each(|env| {
        let limits = "background = 2\nbackground_per_day = 3";
        let mut one = Client::agent(env, limits, &["--conversation", "one"]);
        let mut other = Client::agent(env, limits, &["--conversation", "other"]);
        let first = one.started(WAITS);
        other.started(WAITS);
        for client in [&mut one, &mut other] {
            let text = client.start_sh("true").error();
            assert!(text.starts_with("2 background commands run already"), "{text}");
        }
        one.call("stop", json!({"id": first})).ok();
        // What never starts counts nowhere.
        one.call("start", json!({"program": "sh", "args": ["a\0"]})).error();
        let third = other.started(WAITS);
        other.call("stop", json!({"id": third})).ok();
        for client in [&mut one, &mut other] {
            let text = client.start_sh("true").error();
            assert!(
                text.starts_with("3 background commands have started within 24 hours"),
                "{text}"
            );
        }
        // Nor do those of yesterday.
        let starts = records(env).join("starts");
        let yesterday: Vec<u64> = serde_json::from_slice(&fs::read(&starts).unwrap()).unwrap();
        let yesterday: Vec<_> = yesterday.iter().map(|start| start - 24 * 3600 * 1000).collect();
        fs::write(&starts, serde_json::to_vec(&yesterday).unwrap()).unwrap();
        one.started("true");
    });
}

#[test]
fn its_time_ends_it() {
    each(|env| {
        let mut client = Client::agent(env, "background_timeout = \"1s\"", &[]);
        client.started("echo up; sleep 300");
        let event = client.note();
        assert_eq!(event["state"], "timed_out");
        let ran = event["ran_ms"].as_u64().unwrap();
        assert!((1000..3000).contains(&ran), "{ran}");
        assert!(event["message"].as_str().unwrap().contains("| up"));
    });
}

#[test]
fn with_none_at_once_the_tools_arent_offered() {
    each(|env| {
        for (limits, tools) in [("background = 0", 1), ("background = 1", 5)] {
            let mut client = Client::agent(env, limits, &[]);
            assert_eq!(client.tools().as_array().unwrap().len(), tools);
        }
    });
}

#[test]
fn what_was_told_long_ago_is_removed() {
    each(|env| {
        let mut client = Client::folder(env, &["--conversation", "c"]);
        let told = client.started("true");
        client.note();
        client.sh("true").ok();
        let untold = client.started("true");
        client.note();
        client.close();
        let day = 24 * 3600 * 1000;
        let set = |id: &str, change: &dyn Fn(&mut Value)| {
            let path = records(env).join(format!("{id}.json"));
            let mut record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            change(&mut record);
            fs::write(&path, record.to_string()).unwrap();
        };
        let output = |id: &str| env.project().join(format!("background/{id}.out")).exists();
        let ago = |value: &mut Value, ago: u64| *value = json!(value.as_u64().unwrap() - ago);
        set(&told, &|record| ago(&mut record["told"], day - 60_000));
        set(&untold, &|record| ago(&mut record["end"]["at"], 29 * day));
        Client::folder(env, &["--conversation", "other"]).close();
        assert!(output(&told) && output(&untold));
        set(&told, &|record| ago(&mut record["told"], 60_000));
        let mut client = Client::folder(env, &["--conversation", "c"]);
        assert!(!output(&told) && output(&untold));
        let list = client.call("list", json!({})).ok();
        assert!(
            !list.contains(&format!("{told}:")) && list.contains(&format!("{untold}:")),
            "{list}"
        );
        assert_eq!(files_in(&records(env), "json"), 1);
        assert_eq!(files_in(&records(env), "spare"), 1);
    });
}

/// A mount namespace with small file systems at two folders, which only root makes.
struct Small {
    holder: Child,
}

impl Small {
    fn new(env: &TestEnv, folders: &[(&Path, &str)]) -> Small {
        let mut script = String::from("set -e; mount --make-rprivate /\n");
        for (folder, size) in folders {
            script += &format!(
                "mount -t tmpfs -o size={size},uid={},gid={},mode=700 none '{}'\n",
                env.user.uid,
                env.user.gid,
                folder.display()
            );
        }
        script += "echo up; exec sleep 300";
        let mut holder = Command::new("unshare")
            .args(["--mount", "--", "sh", "-c", &script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut up = [0; 3];
        std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut up).expect("mounted");
        Small { holder }
    }

    fn client(&self, env: &TestEnv, args: &[&str]) -> Client {
        let prefix = [
            "nsenter".into(),
            format!("--mount=/proc/{}/ns/mnt", self.holder.id()),
            "--".into(),
            "setpriv".into(),
            format!("--reuid={}", env.user.uid),
            format!("--regid={}", env.user.gid),
            "--clear-groups".into(),
            "--".into(),
        ];
        let project = env.project().to_str().unwrap();
        Client::of(command(env, &prefix, &[&["--folder", project], args].concat()))
    }

    /// Where a path is in it, seen from outside.
    fn path(&self, path: &Path) -> PathBuf {
        let root = format!("/proc/{}/root", self.holder.id());
        Path::new(&root).join(path.strip_prefix("/").unwrap())
    }

    /// Fills the disk that a folder is on; answers the file that does.
    fn fill(&self, folder: &Path) -> PathBuf {
        let path = self.path(folder).join("fill");
        let mut file = fs::File::create(&path).unwrap();
        while std::io::Write::write(&mut file, &[0; 4096]).is_ok_and(|written| written > 0) {}
        path
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

#[test]
fn a_full_disk_loses_no_record() {
    if !User::current().is_root() {
        return testkit::skip("only root mounts a small disk");
    }
    each(|env| {
        let run = env.folder(env.home().join(".config/lnk/run"));
        let config = env.home().join(".config");
        for folder in [&config, &config.join("lnk"), &run] {
            fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o700))
                .unwrap();
        }
        let small = Small::new(env, &[(&run, "256k")]);
        let mut client = small.client(env, &["--conversation", "c"]);
        let id = client.started(WAITS);
        let filler = small.fill(&run);
        let text = client.start_sh("touch work/started").error();
        assert!(text.starts_with("nothing was started") && text.contains("space"), "{text}");
        env.write("work/go", "");
        assert_eq!(client.note()["status"], 0);
        client.kill();
        // It has ended, and isn't lost, though the disk is full still.
        let mut client = small.client(env, &["--conversation", "c"]);
        let list = client.call("list", json!({})).ok();
        assert!(list.contains(&format!("{id} ended: exit status 0")), "{list}");
        assert!(list.lines().any(|line| line.starts_with(&format!("{id}: ended: exit status 0"))));
        assert!(!env.project().join("work/started").exists());
        client.start_sh("true").error();
        fs::remove_file(filler).unwrap();
        client.started("true");
        assert_eq!(client.note()["status"], 0);
    });
}

#[test]
fn a_full_disk_ends_no_command_and_is_told() {
    if !User::current().is_root() {
        return testkit::skip("only root mounts a small disk");
    }
    each(|env| {
        let folder = env.folder("background");
        let small = Small::new(env, &[(&folder, "64k")]);
        let mut client = small.client(env, &[]);
        let id = client.started("seq -w 1 20000; exit 7");
        let event = client.note();
        assert_eq!((&event["status"], &event["bytes"]), (&json!(7), &json!(120_000)));
        let text = client.call("read", json!({"id": id, "from": 0})).ok();
        assert!(text.contains("couldn't be kept: no space left on device"), "{text}");
        assert!(text.contains("\n00001\n00002\n"), "{text}");
    });
}

#[test]
fn records_and_outputs_are_the_users_alone() {
    each(|env| {
        let mut client = Client::folder(env, &[]);
        let id = client.started("true");
        client.note();
        let out = env.project().join(format!("background/{id}.out"));
        for path in [records(env).join(format!("{id}.json")), out] {
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600, "{}", path.display());
        }
        assert_eq!(fs::metadata(records(env)).unwrap().mode() & 0o777, 0o700);
    });
}
