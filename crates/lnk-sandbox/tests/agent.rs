//! An agent's own folders, its name and its limits, in sandboxes of its own.
//!
//! No flag names these: so this file's program is the one that asks for the sandbox,
//! and it has no other's `main`, as a run is started by a process's first thread.

// Helpers of tests, which Clippy doesn't know for tests.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use lnk_sandbox::linux::{INNER, inner::main_inner};
use lnk_sandbox::wire::control::{self, Change};
use lnk_sandbox::wire::paused::{Lasting, State};
use lnk_sandbox::{Caller, Inner, Renderer, Request};
use rustix::process::Signal;
use testkit::{Call, TestEnv};

/// The first argument of what asks for a sandbox.
const CALL: &str = "call";
/// The first argument of what asks the wires of a name.
const WIRES: &str = "wires";

type Test = fn(&TestEnv);

/// The tests by their names.
const TESTS: [(&str, Test); 10] = [
    ("own_folders_are_seen_and_only_work_is_written", own_folders),
    ("the_rest_of_agents_folders_is_hidden_where_the_home_is_read", the_rest_is_hidden),
    ("what_is_kept_is_read_only_whatever_is_granted", kept),
    ("no_link_leads_to_an_own_folder", no_link),
    ("dot_files_of_work_are_protected", dot_files),
    ("no_spec_or_flag_names_them", not_by_flag),
    ("the_home_is_the_agents_and_commits_are_the_users", home),
    ("all_calls_of_a_name_are_one_sandbox", name),
    ("a_program_that_ignores_term_has_its_grace", grace),
    ("a_fork_bomb_ends_with_its_call", fork_bomb),
];

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next().unwrap_or_default();
    if first == INNER {
        main_inner(arguments);
    } else if first == CALL {
        return call(arguments);
    } else if first == WIRES {
        return wires();
    }
    test(&std::env::args().skip(1).collect::<Vec<_>>())
}

/// What cargo and nextest ask of a test's program.
fn test(arguments: &[String]) -> ExitCode {
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let name =
        arguments.iter().find(|argument| !argument.starts_with("--") && *argument != "terse");
    for (test, body) in TESTS.iter().filter(|_| !has("--ignored")) {
        if has("--list") {
            println!("{test}: test");
        } else if name.is_none_or(|name| {
            if has("--exact") { name == test } else { test.contains(name.as_str()) }
        }) {
            println!("test {test}");
            testkit::each(std::env::current_exe().unwrap(), body);
        }
    }
    ExitCode::SUCCESS
}

// ---- what asks for a sandbox: `call KEY=VALUE … -- PROGRAM …`

fn call(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let (mut inner, mut request) = (Inner::default(), Request::default());
    let mut arguments = arguments.map(|argument| argument.into_string().unwrap());
    for argument in arguments.by_ref().take_while(|argument| argument != "--") {
        let (key, value) = argument.split_once('=').unwrap();
        match key {
            "name" => inner.name = value.into(),
            "read" => inner.read.push(value.into()),
            "write" => inner.write.push(value.into()),
            "keep" => inner.keep.push(value.into()),
            "home" => inner.home = Some(value.into()),
            "flag-read" => request.read.push(value.into()),
            "flag-write" => request.write.push(value.into()),
            "host" => request.network.internet.hosts.push(value.parse().unwrap()),
            "tcp" => request.network.internet.tcp.push(value.parse().unwrap()),
            "grace" => request.grace = Duration::from_millis(value.parse().unwrap()),
            "processes" => request.processes = Some(value.parse().unwrap()),
            _ => panic!("{key}"),
        }
    }
    request.program = arguments.map(OsString::from).collect();
    request.inner = (!inner.name.is_empty()).then_some(inner);
    request.renderer = match std::env::var("LNK_SANDBOX_MOUNTS").unwrap().as_str() {
        "bwrap" => Renderer::Bwrap,
        _ => Renderer::Joiner,
    };
    match lnk_sandbox::run(&request, &caller(), &|notice| eprintln!("{notice:?}")) {
        Ok(outcome) => {
            eprintln!("{:?}", outcome.message);
            outcome.status.into()
        }
        Err(error) => {
            eprintln!("{error}");
            125.into()
        }
    }
}

fn caller() -> Caller {
    Caller {
        env: std::env::vars_os().collect(),
        cwd: std::env::current_dir().unwrap(),
        own_binary: std::env::current_exe().unwrap(),
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
    }
}

/// Pauses `main-run`, and says which wires that closed, and whose they say they are.
fn wires() -> ExitCode {
    let settings = lnk_sandbox::state::sandbox(&caller()).unwrap();
    let of = Lasting::Name("main-run".into());
    State::open(&settings).unwrap().pause(&of, None, "x").unwrap();
    let change = Change::Pause { of, why: "x".into() };
    for (name, looked) in control::tell(&settings, &change).unwrap().wires {
        println!("{name} closed: {}", looked.closed);
    }
    for wire in control::list(&settings).unwrap().wires {
        println!("{} is of {:?}", wire.name, wire.lasting.unwrap());
    }
    ExitCode::SUCCESS
}

// ---- the tests

/// An agent with its folders, and another one.
struct Agent<'a> {
    env: &'a TestEnv,
    folder: PathBuf,
}

impl<'a> Agent<'a> {
    fn new(env: &'a TestEnv) -> Agent<'a> {
        let folder = env.folder(env.home().join("Link/Agents/main"));
        for its in ["Agent/chats", "Files/work", "Files/background", "Home"] {
            env.folder(folder.join(its));
        }
        for (file, content) in [
            ("Config/sandbox.toml", "secret"),
            ("Agent/skill", "skill"),
            ("Agent/chats/1", "chat"),
            ("Files/note", "note"),
            ("Files/background/1.out", "output"),
            ("Home/settings", "settings"),
            ("../other/Files/note", "other's"),
        ] {
            env.write(folder.join(file), content);
        }
        Agent { env, folder }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.join(path)
    }

    /// A call with more words, from the files folder.
    fn call(&self, more: &[String], program: &[&str]) -> Call {
        let word = |key: &str, path: &str| format!("{key}={}", self.at(path).display());
        let mut words = vec![CALL.to_owned(), "name=main-run".to_owned()];
        words.extend(["Files", "Home", "Agent"].map(|path| word("read", path)));
        words.extend([word("write", "Files/work"), word("home", "Home")]);
        words.extend(["Agent/chats", "Files/background"].map(|path| word("keep", path)));
        words.extend(more.iter().cloned());
        words.push("--".to_owned());
        words.extend(program.iter().map(|word| (*word).to_owned()));
        self.env.lnk(words).cwd(self.at("Files"))
    }

    fn sh(&self, more: &[String], script: &str) -> Call {
        self.call(more, &["sh", "-c", script])
    }
}

fn word(key: &str, path: &Path) -> String {
    format!("{key}={}", path.display())
}

fn own_folders(env: &TestEnv) {
    let agent = Agent::new(env);
    let script = "cat note ../Agent/skill ../Agent/chats/1 background/1.out ../Home/settings";
    agent.sh(&[], script).run().ok().prints("noteskillchatoutputsettings");
    agent.sh(&[], "echo new > work/new && cat work/new").run().ok().prints("new\n");
    assert_eq!(fs::read_to_string(agent.at("Files/work/new")).unwrap(), "new\n");
    for file in ["Files/new", "Agent/new", "Agent/chats/1", "Files/background/1.out", "Home/new"] {
        agent.sh(&[], &format!("echo x > ../{file}")).run().fails().stderr_has("Read-only");
    }
    for moved in ["work elsewhere", "note work/note", "background/1.out work/1"] {
        agent.sh(&[], &format!("mv {moved}")).run().fails();
    }
    agent.sh(&[], "ln background/1.out work/1").run().fails();
    agent.sh(&[], "rm -rf work; ln -s /etc work; ls -d work").run().ok().prints("work\n");
    assert!(agent.at("Files/work").symlink_metadata().unwrap().is_dir());
    for closed in ["Config", "../other", "../other/Files/note"] {
        agent.sh(&[], &format!("ls ../{closed}")).run().fails();
    }
}

fn the_rest_is_hidden(env: &TestEnv) {
    let agent = Agent::new(env);
    env.write(env.home().join("plain"), "plain");
    let home = [word("flag-read", env.home())];
    agent
        .sh(&home, &format!("cat {}/plain note", env.home().display()))
        .run()
        .ok()
        .prints("plainnote");
    agent.sh(&home, "echo x > work/x && cat work/x").run().ok().prints("x\n");
    agent.sh(&home, "ls -A ..").run().ok().prints("Agent\nFiles\nHome\n");
    for closed in ["..", "../main/Config", "../main/Config/sandbox.toml", "../other/Files/note"] {
        agent.sh(&home, &format!("ls ../{closed}")).run().fails();
    }
    for written in ["../note", "../../Link/x", "background/1.out", "../Agent/chats/1"] {
        agent.sh(&home, &format!("echo x > {written}")).run().fails();
    }
}

/// As with a folder that isn't an agent's, which its spec opens to write.
fn kept(env: &TestEnv) {
    let folder = env.folder("files");
    for its in ["work", "background/deep"] {
        env.folder(folder.join(its));
    }
    env.write(folder.join("background/1.out"), "output");
    let words = |written: &Path| {
        let keep = word("keep", &folder.join("background"));
        let read = word("read", &folder);
        [CALL.into(), "name=run-1".into(), read, keep, word("flag-write", written), "--".into()]
    };
    let sh = |written: &Path, script: &str| {
        let program = ["sh", "-c", script].map(str::to_owned);
        env.lnk([&words(written)[..], &program].concat()).cwd(&folder)
    };
    for written in [&folder, &env.project().join("files/../files")] {
        sh(written, "echo x > new && cat new background/1.out").run().ok().prints("x\noutput");
        for script in [
            "echo x > background/1.out",
            "rm background/1.out",
            "mv background elsewhere",
            "rmdir background/deep",
            "ln background/1.out linked",
        ] {
            sh(written, script).run().fails();
        }
    }
    let deep = folder.join("background/deep");
    sh(&deep, "echo x > background/deep/x").run().fails().stderr_has("Read-only");
    sh(&folder.join("background"), "echo x > background/x").run().fails().stderr_has("Read-only");
    assert_eq!(fs::read_to_string(folder.join("background/1.out")).unwrap(), "output");
}

fn no_link(env: &TestEnv) {
    let script = "cat ../Files/work/key ../Home/key; echo x > ../Files/work/x";
    let secret = env.folder(env.home().join("secret"));
    env.write(secret.join("key"), "key");
    for (path, is_in) in [
        ("Files/work", "Files/work"),
        ("Files/background", "Files/background"),
        ("Home", "Home"),
        ("Files", "Files/work"),
    ] {
        let agent = Agent::new(env);
        agent.sh(&[], "true").run().ok();
        fs::rename(agent.at(path), agent.at("moved")).unwrap();
        symlink(&secret, agent.at(path)).unwrap();
        env.folder(secret.join("work"));
        let run = agent.sh(&[], script).cwd(agent.at("Agent")).run();
        run.fails_with(125).stderr_has("a link is in its way").stderr_has(is_in).has_not("key\n");
        fs::remove_file(agent.at(path)).unwrap();
        fs::rename(agent.at("moved"), agent.at(path)).unwrap();
    }
    assert!(!secret.join("work/x").exists() && !secret.join("x").exists());
    // A link that was made inside leads nowhere that isn't open.
    let agent = Agent::new(env);
    let link = format!("ln -sfn {} work/link; cat work/link/key", secret.display());
    agent.sh(&[], &link).run().fails().stderr_has("No such file");
    agent.sh(&[], "ls").cwd(agent.at("Files/work/link")).run().fails_with(125);
    let missing = agent.at("Files/background");
    fs::rename(&missing, agent.at("moved")).unwrap();
    agent.sh(&[], "true").run().fails_with(125).stderr_has("no such file or folder");
    fs::write(&missing, "").unwrap();
    agent.sh(&[], "true").run().fails_with(125).stderr_has("isn't a folder");
}

fn dot_files(env: &TestEnv) {
    let agent = Agent::new(env);
    agent.sh(&[], "mkdir work/src && echo x > work/.plain").run().ok();
    for script in ["mkdir work/.git/hooks", "echo x > work/.envrc", "echo x > work/.vscode/x"] {
        agent.sh(&[], script).run().fails();
    }
    let left: Vec<_> = fs::read_dir(agent.at("Files/work")).unwrap().flatten().collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

fn not_by_flag(env: &TestEnv) {
    let agent = Agent::new(env);
    for folder in ["Files", "Files/work", "Config", "../other/Files"] {
        for key in ["flag-read", "flag-write"] {
            let more = [word(key, &agent.at(folder))];
            agent.sh(&more, "true").run().fails_with(125).stderr_has("agents' folders");
        }
    }
    let own = [word("read", &env.home().join(".config/lnk"))];
    env.folder(env.home().join(".config/lnk"));
    agent.sh(&own, "true").run().fails_with(125).stderr_has("settings are never opened");
}

fn home(env: &TestEnv) {
    let agent = Agent::new(env);
    let at_home = agent.at("Home").display().to_string();
    for more in [vec![], vec![word("flag-read", env.home())]] {
        let said = agent.sh(&more, "echo $HOME; cd; pwd; cat settings; getent passwd $USER").run();
        let said = said.ok().stdout_has(&format!("{at_home}\n{at_home}\nsettings"));
        said.stdout_has(&format!(":{at_home}:"));
        agent.sh(&more, "echo x > ~/x").run().fails();
        agent.sh(&more, "git config user.name").run().ok().prints("Test Person\n");
    }
    agent.sh(&[], "echo x > $OLDHOME/x").env("OLDHOME", env.home()).run().fails();
    env.write(agent.at("Home/.gitconfig"), "[user]\nname = Agent\n");
    agent.sh(&[], "git config user.name; git config user.email").run().prints("Agent\n");
    let not_read = [word("home", env.home())];
    agent.sh(&not_read, "true").run().fails_with(125).stderr_has("a home has to be read");
    // The key is where git and its ssh look for it, and stays the agent's.
    let tcp = ["host=git.example", "tcp=git.example:22"].map(str::to_owned);
    let script = "echo $GIT_SSH_COMMAND; cat /run/lnk/ssh/id_ed25519.pub";
    let first = agent.sh(&tcp, script).run().ok().stderr_has("--name main-run");
    assert!(
        first.stdout.starts_with("ssh -F /run/lnk/ssh/config\nssh-ed25519 "),
        "{}",
        first.stdout
    );
    agent.sh(&tcp, script).run().ok().prints(&first.stdout);
}

fn name(env: &TestEnv) {
    let agent = Agent::new(env);
    let host = ["host=any.example".to_owned()];
    let waits = || {
        let mut run = agent.sh(&host, "echo ready; exec sleep 1000").spawn();
        run.wait_for_stdout("ready");
        run
    };
    let runs = [waits(), waits()];
    let closed = "main-run closed: true\n".repeat(2);
    let listed = "main-run is of Name(\"main-run\")\n".repeat(2);
    env.lnk([WIRES]).run().ok().prints(&(closed + &listed));
    for run in runs {
        run.signal(Signal::TERM);
        run.wait()
            .fails_with(143)
            .stderr_has("the wire of main-run is closed".replace("closed", "paused").as_str());
    }
    // It lasts.
    agent.sh(&host, "true").run().ok().stderr_has("lnk sandbox resume main-run");
}

fn grace(env: &TestEnv) {
    let agent = Agent::new(env);
    let ends = |grace: u64| {
        let script = "trap '' TERM; echo ready; sleep 1000 & wait; wait; wait";
        let mut run = agent.sh(&[format!("grace={grace}")], script).spawn();
        run.wait_for_stdout("ready");
        let began = Instant::now();
        run.signal(Signal::TERM);
        run.wait().fails_with(137);
        began.elapsed()
    };
    let (short, long) = (ends(100), ends(2500));
    assert!(
        short >= Duration::from_millis(100) && short < Duration::from_millis(2400),
        "{short:?}"
    );
    assert!(long >= Duration::from_millis(2500), "{long:?}");
}

fn fork_bomb(env: &TestEnv) {
    const BOMB: &str = "
import os, signal
for n in range(700):
    try:
        if os.fork() == 0:
            signal.pause()
    except BlockingIOError:
        break
else:
    n = 'all'
print(n, flush=True)
os._exit(0)
";
    let agent = Agent::new(env);
    let bomb = |more: &[String]| agent.call(more, &["python3", "-c", BOMB]).run().ok();
    bomb(&[]).prints("all\n");
    let max = || fs::read_to_string("/proc/sys/kernel/pid_max").unwrap();
    let before = max();
    let limited = bomb(&["processes=50".to_owned()]);
    if limited.stderr.contains("nothing limits") {
        testkit::skip("a limit of processes for this user: the kernel is too old");
        return;
    }
    let limited: u32 = limited.stdout.trim_end().parse().unwrap();
    assert!((40..=350).contains(&limited), "{limited}");
    assert_eq!(max(), before, "the machine's own is untouched");
    let raise = "echo 4000000 > /proc/sys/kernel/pid_max";
    agent.sh(&["processes=50".to_owned()], raise).run().fails().stderr_has("Read-only");
    // Room for what a run needs itself, at the least.
    agent.sh(&["processes=1".to_owned()], "echo hi | cat").run().ok().prints("hi\n");
}
