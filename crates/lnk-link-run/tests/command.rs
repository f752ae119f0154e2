//! The `command` tool: what goes in, and what comes out.

mod session;

use std::time::{Duration, Instant};

use serde_json::json;
use session::{Client, agent, each};

#[test]
fn a_calculation_in_python() {
    each(|env| {
        let mut client = Client::of_project(env);
        let answer =
            client.command(json!({ "program": "python3", "args": ["-c", "print(2**100)"] }));
        assert_eq!(answer.text, "exit status 0\n--- stdout ---\n1267650600228229401496703205376\n");
        assert!(!answer.is_error);
    });
}

#[test]
fn arguments_and_input_arrive_as_they_are() {
    each(|env| {
        let mut client = Client::of_project(env);
        let args = ["%s|", "a b", "", "$HOME", "\"'\\", "line\nbreak", "ü€😀", "--", "-n"];
        let answer = client.command(json!({ "program": "printf", "args": args }));
        assert_eq!(answer.ok().stdout(), "a b||$HOME|\"'\\|line\nbreak|ü€😀|--|-n|");
        let input = "first\n\u{0}zero\r\nü";
        let answer = client.command(json!({ "program": "cat", "input": input }));
        assert_eq!(answer.ok().stdout(), input);
        let answer = client.sh("printf 'b\\na\\n' | sort | tr a-z A-Z");
        assert_eq!(answer.ok().stdout(), "A\nB\n");
    });
}

#[test]
fn a_program_without_input_finds_its_end() {
    each(|env| {
        let mut client = Client::of_project(env);
        let calls = [
            json!({ "program": "cat" }),
            json!({ "program": "python3", "args": ["-c", "input()"] }),
            json!({ "program": "sh", "args": ["-c", "read x; echo [$x]"] }),
        ];
        for call in calls {
            // In one write: nothing of the ping is the program's.
            let line = |id: u64, method, params| {
                json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
                    .to_string()
                    + "\n"
            };
            let params = json!({ "name": "command", "arguments": call });
            let both = line(901, "tools/call", params) + &line(902, "ping", json!({}));
            client.write(both.as_bytes());
            client.answer(902);
            let answer = client.ended(901);
            match call["program"].as_str().unwrap() {
                "cat" => assert_eq!(answer.text, "exit status 0"),
                "python3" => drop(answer.has("exit status 1").has("EOFError")),
                _ => assert_eq!(answer.ok().stdout(), "[]\n"),
            }
        }
    });
}

#[test]
fn input_that_isnt_read_holds_nothing_up() {
    each(|env| {
        let mut client = Client::of_project(env);
        let input = "x".repeat(4 << 20);
        client.command(json!({ "program": "true", "input": input })).ok();
        let answer = client.command(json!({ "program": "wc", "args": ["-c"], "input": input }));
        assert_eq!(answer.ok().stdout(), "4194304\n");
    });
}

#[test]
fn a_status_other_than_0_is_an_answer_like_any() {
    each(|env| {
        let mut client = Client::of_project(env);
        let answer = client.sh("echo out; echo err >&2; exit 3");
        assert!(!answer.is_error);
        assert_eq!(answer.text, "exit status 3\n--- stdout ---\nout\n--- stderr ---\nerr\n");
        let answer = client.sh("printf out; kill -9 $$");
        assert!(!answer.is_error);
        assert_eq!(answer.text, "exit status 137 (often: ended by signal 9)\n--- stdout ---\nout");
    });
}

#[test]
fn long_output_keeps_its_start_and_end_at_characters() {
    each(|env| {
        let mut client = Client::of_project(env);
        for stream in ["stdout", "stderr"] {
            for before in ["", "a", "ab"] {
                let script = format!(
                    "import sys; print({before:?} + '€' * 20000 + 'end', file=sys.{stream})"
                );
                let answer =
                    client.command(json!({ "program": "python3", "args": ["-c", script] }));
                let answer = answer.ok().has("bytes left out …").has_not("\u{fffd}");
                let answer = answer.has(&format!("--- {stream} ---\n{before}€€")).has("€end\n");
                let (start, rest) = answer.text.split_once("\n… ").unwrap();
                let (gap, end) = rest.split_once(" bytes left out …\n").unwrap();
                let start = start.split_once(" ---\n").unwrap().1;
                let gap: usize = gap.replace(',', "").parse().unwrap();
                assert_eq!(start.len() + gap + end.len(), before.len() + 60_000 + 4);
                assert!(start.len() + end.len() <= 16 << 10);
                assert!(start.len() + end.len() > (16 << 10) - 8);
            }
        }
        let whole = client.sh("head -c 16384 /dev/zero | tr '\\0' x").ok();
        assert_eq!(whole.stdout(), "x".repeat(16_384));
    });
}

#[test]
fn bytes_that_arent_text_are_replaced() {
    each(|env| {
        let answer = Client::of_project(env)
            .command(json!({ "program": "printf", "args": ["a\\377b\\303\\n\\033[2J"] }));
        assert_eq!(answer.ok().stdout(), "a\u{fffd}b\u{fffd}\n\u{1b}[2J");
    });
}

#[test]
fn a_gigabyte_of_output_takes_little_memory() {
    each(|env| {
        let mut client = Client::of_project(env);
        client
            .sh("head -c 1000000000 /dev/zero; echo end >&2")
            .ok()
            .has("… 999,983,616 bytes left out …")
            .has("--- stderr ---\nend");
        let status = std::fs::read_to_string(format!("/proc/{}/status", client.pid())).unwrap();
        let peak = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        let kilobytes: u64 = peak.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(kilobytes < 64 << 10, "{peak}");
    });
}

#[test]
fn a_program_that_closes_its_streams_goes_on() {
    each(|env| {
        let mut client = Client::of_project(env);
        let answer = client.sh("exec >&- 2>&- <&-; sleep 1; echo done > work/note; exit 4");
        assert_eq!(answer.text, "exit status 4");
        assert_eq!(std::fs::read_to_string(env.project().join("work/note")).unwrap(), "done\n");
    });
}

#[test]
fn arguments_that_are_wrong_are_named() {
    each(|env| {
        let mut client = Client::of_project(env);
        for (arguments, told) in [
            (json!({}), "program is missing"),
            (json!({ "program": "" }), "program is empty"),
            (json!({ "program": 3 }), "program has to be a string"),
            (json!({ "progam": "true" }), "did you mean program?"),
            (json!({ "program": "true", "arg": ["x"] }), "did you mean args?"),
            (json!({ "program": "true", "env": {} }), "it takes program, args, input, folder"),
            (json!({ "program": "true", "args": "x" }), "args has to be a list of strings"),
            (json!({ "program": "true", "args": [1] }), "each of args has to be a string"),
            (json!({ "program": "true", "args": ["a\u{0}b"] }), "NUL"),
            (json!({ "program": "tr\u{0}ue" }), "NUL"),
            (json!({ "program": "true", "args": ["x".repeat(200_000)] }), "too long"),
            (json!({ "program": "true", "folder": "no\u{0}" }), "NUL"),
            (json!({ "program": "nothing-like-it" }), "not found"),
            (json!({ "program": "work/nothing" }), "work/nothing"),
        ] {
            client.command(arguments).refused().has(told);
        }
        client.command(json!({ "program": "true", "args": null, "input": null })).ok();
    });
}

#[test]
fn the_folder_is_one_in_the_files_folder() {
    each(|env| {
        let outside = env.folder(env.home().join("other"));
        env.folder("work/deep");
        env.link(&outside, "work/out");
        env.link("deep", "work/in");
        env.write("work/file", "");
        let project = env.project().to_str().unwrap().to_owned();
        let mut client = Client::of_project(env);
        let mut pwd = |folder: &str| client.command(json!({ "program": "pwd", "folder": folder }));
        for (folder, below) in [
            ("", ""),
            (".", ""),
            ("work", "/work"),
            ("work/deep/..", "/work"),
            ("work/in", "/work/deep"),
            (&project, ""),
            (&format!("{project}/work"), "/work"),
        ] {
            assert_eq!(pwd(folder).ok().stdout(), format!("{project}{below}\n"), "{folder}");
        }
        for folder in [
            "..",
            "work/../..",
            "/",
            "/etc",
            "/proc/self/cwd",
            "work/out",
            outside.to_str().unwrap(),
            &format!("{project}/.."),
            &format!("{project}-other"),
        ] {
            pwd(folder).refused().has("leads out of the files folder");
        }
        pwd("work/file").refused().has("isn't a folder");
        pwd("work/none").refused().has("there is no such folder");
    });
}

#[test]
fn programs_read_the_files_and_write_in_work_alone() {
    each(|env| {
        env.write("note", "hello\n");
        env.write(env.home().join("secret"), "hidden\n");
        let mut client = Client::of_project(env);
        assert_eq!(
            client.sh("cat note; echo hi > work/new; cat work/new").ok().stdout(),
            "hello\nhi\n"
        );
        assert!(env.project().join("work/new").exists());
        client.sh("touch new").has("Read-only file system").has_not("exit status 0");
        client.sh("touch background/x").has_not("exit status 0");
        client.sh("cat ../secret").has_not("hidden").has_not("exit status 0");
        client.sh("ls -A ~").ok().has_not("secret");
        assert_eq!(
            client.sh("echo $PATH").ok().stdout().trim(),
            lnk_link_run::programs::SYSTEM_PATH
        );
        // No network is there.
        client.sh("curl -sS -m 5 http://127.0.0.1:1/ || exit 9").has("exit status 9");
    });
}

#[test]
fn an_agents_folders_are_its_programs() {
    each(|env| {
        let agent = agent(env);
        env.write(agent.join("Agent/chats/one"), "said\n");
        env.write(agent.join("Agent/AGENT.md"), "be kind\n");
        env.write(agent.join("Home/.profile"), "mine\n");
        env.write(env.home().join("Link/Agents/other/Files/x"), "theirs\n");
        let mut client = Client::of_agent(env, None, "");
        let files = agent.join("Files");
        assert_eq!(client.sh("pwd").ok().stdout(), format!("{}\n", files.display()));
        assert_eq!(
            client.sh("cat ~/.profile; echo $HOME").ok().stdout(),
            format!("mine\n{}\n", agent.join("Home").display())
        );
        assert_eq!(
            client.sh("cat ../Agent/AGENT.md ../Agent/chats/one").ok().stdout(),
            "be kind\nsaid\n"
        );
        client.sh("ls ../Config || cat ../Config/agent.toml").has_not("exit status 0");
        client.sh("cat ../../other/Files/x").has_not("theirs").has_not("exit status 0");
        for place in ["../Agent/chats/new", "../Agent/new", "~/new", "new", "background/new"] {
            client.sh(&format!("touch {place}")).has_not("exit status 0");
        }
        client.sh("touch work/new").ok();
    });
}

#[test]
fn calls_begin_afresh() {
    each(|env| {
        let mut client = Client::of_project(env);
        client.sh("echo x > /tmp/left; cd work; export A=1").ok();
        assert_eq!(client.sh("ls /tmp; echo $A; pwd").ok().stdout().lines().next(), Some(""));
    });
}

#[test]
fn twenty_at_once_all_answer() {
    each(|env| {
        let mut client = Client::of_project(env);
        let started = Instant::now();
        let ids: Vec<u64> = (0..20)
            .map(|n| {
                client.start_command(
                    json!({ "program": "sh", "args": ["-c", format!("sleep 2; echo {n}")] }),
                )
            })
            .collect();
        for (n, id) in ids.into_iter().enumerate() {
            assert_eq!(client.ended(id).ok().stdout(), format!("{n}\n"));
        }
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    });
}

#[test]
fn what_a_program_leaves_keeps_no_later_call_from_running() {
    each(|env| {
        let mut client = Client::of_project(env);
        for (leaves, aside) in [
            ("python3 -c 'import os; os.mkfifo(\"work/.exrc\")'", "work/.exrc was set aside"),
            ("ln -s . work/.nvimrc", "work/.nvimrc was set aside"),
            ("ln -s loop work/mise.toml; ln -s loop work/loop", "work/mise.toml was set aside"),
            ("mkdir work/.mise.toml; ln -s x work/.mise.toml/x", "work/.mise.toml was set aside"),
        ] {
            client.sh(leaves).ok();
            client.sh("true").ok().has(aside);
            client.sh("true").ok().has_not("set aside");
        }
        client.sh("chmod 0 work").ok();
        client.sh("echo x > work/f").ok();
    });
}
