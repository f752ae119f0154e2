//! Which programs are offered, and which run.

mod session;

use serde_json::json;
use session::{Client, each};

fn described(client: &mut Client) -> String {
    client.tools()[0]["description"].as_str().expect("it has one").to_owned()
}

#[test]
fn without_a_spec_the_usual_programs_run() {
    each(|env| {
        let mut client = Client::of_project(env);
        let described = described(&mut client);
        for program in ["sh", "bash", "python3", "git", "curl", "cat", "grep", "sed"] {
            assert!(described.contains(&format!(" {program},")), "{program}: {described}");
        }
        client.command(json!({ "program": "git", "args": ["--version"] })).ok();
        for shut in ["mount", "su"] {
            assert!(!described.contains(&format!(" {shut},")), "{described}");
            client
                .command(json!({ "program": shut }))
                .refused()
                .has(&format!("add \"{shut}\" to [commands] allow"));
        }
    });
}

#[test]
fn what_the_usual_programs_start_runs_too() {
    each(|env| {
        let mut client = Client::of_project(env);
        let described = described(&mut client);
        let has = |program: &str| described.contains(&format!(" {program},"));
        client
            .sh("git ls-remote https://localhost:1/none 2>&1")
            .has("localhost")
            .has_not("the sandbox")
            .has_not("remote-https' is not a git command");
        if has("cc") {
            client
                .sh("cd work && echo 'int main(void) { return 0; }' > a.c && cc a.c && test -s a.out")
                .ok()
                .has_not("the sandbox");
        }
        if has("go") {
            let program = "package main\nfunc main() {}\n";
            env.write("work/go/go.mod", "module own\n");
            env.write("work/go/own.go", program);
            let build =
                "cd work/go && GOTOOLCHAIN=local go build -buildvcs=false -o own && test -s own";
            client.sh(build).ok().has_not("the sandbox");
        }
        if has("rustc") {
            env.write("work/own.rs", "fn main() {}\n");
            client.sh("cd work && rustc own.rs && test -s own").ok().has_not("the sandbox");
        }
    });
}

#[test]
fn what_runs_without_a_spec_is_printed_as_one() {
    each(|env| {
        let printed = env.lnk(["--print-spec"]).run().ok().stdout;
        assert!(printed.contains("[commands]") && printed.contains("\"sh\""), "{printed}");
        env.write("own.toml", &printed);
        let mut client = Client::with(env, ["--folder", ".", "--spec", "own.toml", "--yes"]);
        client.sh("git --version").ok();
        client.command(json!({ "program": "mount" })).refused().has_not("--print-spec");
        drop(client);
        let mut client = Client::of_project(env);
        client
            .command(json!({ "program": "mount" }))
            .refused()
            .has("start the server with --spec FILE")
            .has("--print-spec");
        client.sh("/bin/mount").has("start the server with --spec FILE");
        client.sh("true").ok().has_not("--spec");
    });
}

#[test]
fn what_isnt_there_is_told_with_what_is() {
    each(|env| {
        let mut client = Client::of_project(env);
        let mut told = |call, text| drop(client.command(call).refused().has(text));
        told(
            json!({ "program": "ls -la", "args": ["work"] }),
            "no program \"ls -la\": program is its name, args its arguments: program \"ls\", \
             args [\"-la\", \"work\"]",
        );
        told(json!({ "program": "pythn3" }), "did you mean python3?");
        told(json!({ "program": "qqqqqq" }), "use one that may run");
        told(json!({ "program": "a\n\u{202e}b" }), "no program \"a\\n\\u202eb\"");
        told(json!({ "program": "q".repeat(9_999) }), "qqq…\"");
        told(json!({ "program": "work/none" }), "it runs in");
    });
}

#[test]
fn what_is_built_in_work_runs_with_any_program_alone() {
    each(|env| {
        let built = "cp /bin/true work/own && work/own";
        Client::of_project(env).sh(built).has("only \"*\" in [commands] allow");
        let call = json!({ "program": "work/own" });
        Client::of_project(env).command(call.clone()).refused().has("only \"*\" in");
        let mut client = Client::of_agent(env, Some("[commands]\nallow = ['*']\n"), "");
        client.sh(built).ok();
        client.command(call).ok();
    });
}

#[test]
fn the_tool_says_what_it_writes_and_reaches() {
    each(|env| {
        let mut client = Client::of_project(env);
        let told = described(&mut client);
        assert!(told.contains("It writes in the folder work. It reaches no network."), "{told}");
        client
            .command(json!({ "program": "git", "args": ["init"], "folder": "work" }))
            .has("write_dot_files in [files]")
            .has("start the server with --spec FILE")
            .has_not("--write-dot");
        client.sh("cd work && git init -q own && test -d own/.git").ok();
        env.folder(env.home().join("more"));
        let spec = "[files]\nwrite = ['~/more']\n[internet]\nhosts = ['example.com']\n\
                    [commands]\nallow = ['sh']\n";
        let told = described(&mut Client::of_agent(env, Some(spec), ""));
        assert!(told.contains("work, and in "), "{told}");
        assert!(told.contains("It reaches example.com."), "{told}");
    });
}

#[test]
fn the_page_says_how_an_agent_is_set_up() {
    let page = include_str!("../../../docs/link-run.md");
    let line = page.lines().find(|line| line.starts_with("mkdir ")).expect("it has one");
    let folder = line.strip_prefix("mkdir -p ~/").expect("one folder");
    each(|env| {
        env.folder(env.home().join(folder));
        Client::with(env, ["--agent", "main"]).sh("touch ~/x work/x; test -e work/x").ok();
    });
}

#[test]
fn only_what_is_there_is_offered() {
    each(|env| {
        let spec = "[commands]\nallow = ['sh', 'no-such-program', '/no/such/file', 'python3']\n";
        let mut client = Client::of_agent(env, Some(spec), "");
        let described = described(&mut client);
        assert!(described.ends_with("It may run: sh, python3."), "{described}");
        client.sh("echo hi").ok();
        client.command(json!({ "program": "no-such-program" })).refused();
        let args = ["--agent", "main"];
        env.lnk(args).run().ok().stderr_has("not there: no-such-program, /no/such/file");
        let mut client = Client::of_agent(env, Some("[commands]\nallow = ['nosuch']\n"), "");
        assert_eq!(client.tools(), json!([]));
        let call = json!({ "name": "command", "arguments": { "program": "true" } });
        let answer = client.request("tools/call", call);
        let told = answer["error"]["message"].as_str().unwrap();
        assert!(told.contains("is there: nosuch"), "{told}");
    });
}

#[test]
fn a_refused_program_is_named_with_what_lets_it_run() {
    each(|env| {
        let mut client = Client::of_agent(env, Some("[commands]\nallow = ['sh']\n"), "");
        client
            .command(json!({ "program": "cat" }))
            .refused()
            .has("add \"cat\" to [commands] allow");
        let answer = client.sh("cat /etc/hostname || echo went on");
        assert!(!answer.is_error);
        answer.has("went on").has("--- the sandbox ---\nrefused /").has("to [commands] allow");
        client.sh("echo allowed").ok().has("allowed").has_not("the sandbox");
    });
}

#[test]
fn any_program_runs_where_any_is_allowed() {
    each(|env| {
        let mut client = Client::of_agent(env, Some("[commands]\nallow = ['*']\n"), "");
        let described = described(&mut client);
        assert!(
            described.ends_with("It may run: any program that is on this computer."),
            "{described}"
        );
        client.command(json!({ "program": "id", "args": ["-u"] })).ok();
    });
}

#[test]
fn a_spec_that_lists_none_offers_no_tool() {
    each(|env| {
        for spec in ["", "[files]\nread = ['/usr']\n", "[commands]\nallow = []\n", "[commands]\n"] {
            let mut client = Client::of_agent(env, Some(spec), "");
            assert_eq!(client.tools(), json!([]), "{spec:?}");
            let answer = client.request(
                "tools/call",
                json!({ "name": "command", "arguments": { "program": "true" } }),
            );
            assert_eq!(answer["error"]["code"], -32602, "{answer}");
            assert!(answer["error"]["message"].as_str().unwrap().contains("[commands]"));
        }
    });
}

#[test]
fn a_program_of_the_clients_path_isnt_found() {
    each(|env| {
        let program = env.write_program("bin/mine", "#!/bin/sh\necho mine\n");
        let spec = format!("[commands]\nallow = ['sh', {:?}]\n", program.to_str().unwrap());
        env.write("own.toml", "[files]\nread = ['.']\n".to_owned() + &spec);
        let mut client = Client::with(env, ["--folder", ".", "--spec", "own.toml", "--yes"]);
        client.command(json!({ "program": "mine" })).refused();
        let answer = client.command(json!({ "program": program }));
        assert_eq!(answer.ok().stdout(), "mine\n");
    });
}

#[test]
fn a_spec_opens_more_once_it_was_agreed_to() {
    each(|env| {
        env.folder(env.home().join("more"));
        env.write("app.toml", "[files]\nwrite = ['~/more']\n[commands]\nallow = ['sh', 'touch']\n");
        let args = ["--folder", ".", "--spec", "app.toml"];
        env.lnk(args).run().fails_with(125).stderr_has("--yes").prints("");
        let mut client = Client::with(env, [args.as_slice(), &["--yes"]].concat());
        client.sh("touch ~/more/new 2>/dev/null || touch \"$OLDPWD/x\"");
        client.command(json!({ "program": "touch", "args": [env.home().join("more/new")] })).ok();
        drop(client);
        // Now it is known.
        Client::with(env, args).sh("true").ok();
        // It is asked about again where it opens more.
        env.write("app.toml", "[files]\nwrite = ['~/more']\n[commands]\nallow = ['sh', 'cat']\n");
        env.lnk(args).run().fails_with(125).stderr_has("--yes");
    });
}

#[test]
fn a_spec_that_opens_more_while_its_served_runs_nothing() {
    each(|env| {
        let spec = |programs: &str| {
            env.write("app.toml", format!("[commands]\nallow = [{programs}]\n"));
        };
        spec("'sh', 'cat'");
        let mut client = Client::with(env, ["--folder", ".", "--spec", "app.toml", "--yes"]);
        client.sh("true").ok();
        spec("'sh', 'cat', 'touch'");
        client.sh("true").refused().has("--yes");
        spec("'sh'");
        client.sh("true").ok();
        spec("'sh'\n'");
        client.sh("true").refused().has("app.toml");
    });
}

#[test]
fn what_it_is_started_with_is_checked() {
    each(|env| {
        for (args, told) in [
            (vec![], "--folder DIR"),
            (vec![], "--agent NAME"),
            (vec!["--folder", "none"], "make it first: mkdir -p"),
            (vec!["--folder", ".", "--agent", "main"], "--agent"),
            (vec!["--agent", "../other"], "an agent's name"),
            (vec!["--agent", "main", "--spec", "x"], "--spec"),
            (vec!["--agent", "nobody"], "make its folder first: mkdir -p"),
            (vec!["--folder", ".", "--spec", "none.toml"], "none.toml"),
            (vec!["--folder", ".", "--yes"], "--spec"),
            (vec!["--foldr", "."], "did you mean --folder?"),
        ] {
            env.lnk(&args).run().fails_with(125).stderr_has(told).prints("");
        }
        for (name, told) in [("", "HOME isn't set"), ("x/y", "HOME is x/y")] {
            for args in [["--folder", "~/x"], ["--agent", "main"]] {
                env.lnk(args).env("HOME", name).run().fails_with(125).stderr_has(told);
            }
        }
        env.lnk(["--help"]).run().ok().stdout_has("claude mcp add run -- lnk-link-run --folder");
    });
}

#[test]
fn a_spec_that_goes_while_its_served_opens_nothing() {
    each(|env| {
        let mut client = Client::of_agent(env, Some("[commands]\nallow = ['sh', 'id']\n"), "");
        client.sh("id").ok();
        let spec = env.home().join("Link/Agents/main/Config/sandbox.toml");
        std::fs::remove_file(&spec).unwrap();
        client.sh("true").refused().has("sandbox file is gone");
        // A link that leads nowhere is no missing file.
        env.link("/nowhere", &spec);
        client.sh("true").refused().has("sandbox.toml");
        env.lnk(["--agent", "main"]).run().fails_with(125).stderr_has("sandbox.toml");
    });
}

#[test]
fn a_folder_that_is_never_opened_isnt_served() {
    each(|env| {
        let home = env.home();
        for (folder, told) in [
            (home.join(".config/lnk/own"), "Link's settings"),
            (home.join("Link/Agents/main"), "agents' folders"),
            (home.join("Link/Agents/main/Files"), "agents' folders"),
            (home.join(".ssh"), ".ssh"),
        ] {
            env.folder(&folder);
            let args = ["--folder", folder.to_str().unwrap()];
            env.lnk(args).run().fails_with(125).stderr_has(told).prints("");
        }
        for (folder, told) in [("~", "home folder"), ("/etc", "/etc"), ("/", "/")] {
            let refused = env.lnk(["--folder", folder]).run().fails_with(125).prints("");
            refused.stderr_has("--folder").stderr_has(told);
        }
        for made in ["", ".ssh", "Link/Agents/main", ".config/lnk/own"] {
            assert!(!home.join(made).join("work").exists(), "{made}: nothing is made before");
        }
        env.folder(home.join("mine"));
        let mut client = Client::with(env, ["--folder", "~/mine"]);
        client.sh("touch note work/new").has_not("exit status 0");
        client.sh("touch work/new").ok();
    });
}
