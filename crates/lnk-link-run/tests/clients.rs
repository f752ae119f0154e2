//! Clients that others wrote: the official SDKs, the Inspector's command line and the
//! protocol's conformance suite. `scripts/test` gets them into the build folder's `tools`.

mod session;

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testkit::{Mounts, TestEnv, User};

/// How long a client may take, in seconds.
const DEADLINE: &str = "180";

/// The generic ones; the others want a server that has tools made for them.
const SCENARIOS: [(&str, &str); 5] = [
    ("2025-11-25", "server-initialize"),
    ("2025-11-25", "ping"),
    ("2025-11-25", "tools-list"),
    ("2025-11-25", "logging-set-level"),
    ("2026-07-28", "tools-list"),
];

/// Where `scripts/test` put something: the tools are beside the builds.
fn tool(path: &str) -> Option<PathBuf> {
    let builds = Path::new(env!("CARGO_BIN_EXE_lnk-link-run")).ancestors();
    let found = builds.map(|it| it.join("tools").join(path)).find(|it| it.exists());
    if found.is_none() {
        testkit::missing(&format!("{path} in the build folder's tools"));
    }
    found
}

/// Runs a test for every user. Who makes the mounts is nothing that a client sees.
fn each(body: impl Fn(&TestEnv)) {
    session::each(|env| match env.mounts {
        Mounts::Joiner => body(env),
        Mounts::Bwrap => {}
    });
}

/// The words that start an agent's server as the test's user. Clients run as this
/// process: what they are made of may be in a home that only its owner enters.
fn server(env: &TestEnv) -> Vec<String> {
    let agent = session::agent(env);
    env.write(agent.join("Config/agent.toml"), "[tool.run]\ntimeout = \"12s\"\n");
    let User { uid, gid, .. } = &env.user;
    let switch = format!("setpriv --reuid={uid} --regid={gid} --clear-groups");
    let switch = match env.user == User::current() {
        true => Vec::new(),
        false => switch.split(' ').map(str::to_owned).collect(),
    };
    let lnk = env.lnk_path().to_str().expect("a plain path").to_owned();
    [switch, vec![lnk, "--agent".into(), "main".into()]].concat()
}

fn client<S: AsRef<OsStr>>(
    env: &TestEnv,
    program: impl AsRef<OsStr>,
    args: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = Command::new("timeout");
    command.arg(DEADLINE).arg(program).args(args);
    command.env_clear().env("HOME", env.home()).env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command.env("LNK_SANDBOX_MOUNTS", env.mounts.name()).current_dir(env.outside());
    command.stdin(Stdio::null());
    command
}

/// What a client prints that ends well.
#[track_caller]
fn printed(mut command: Command) -> String {
    let output = command.output().expect("it starts");
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    assert!(output.status.success(), "{command:?}: {}\n{stdout}\n{stderr}", output.status);
    stdout.into_owned()
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

#[test]
fn the_python_sdk_in_both_eras() {
    let Some(packages) = tool("mcp-python/mcp") else { return };
    each(|env| {
        let mut command = client(env, "python3", ["-W", "ignore"]);
        command.arg(script("python_sdk.py")).arg(env.outside().join("log")).args(server(env));
        command.env("PYTHONPATH", packages.with_file_name(""));
        printed(command);
    });
}

fn typescript_sdk(version: &str) {
    let Some(node) = tool("node/bin/node") else { return };
    let Some(packages) = tool("mcp-typescript/node_modules") else { return };
    each(|env| {
        let mut command = client(env, &node, [script("typescript_sdk.mjs")]);
        command.arg(&packages).arg(version).args(server(env));
        printed(command);
    });
}

#[test]
fn the_typescript_sdk() {
    typescript_sdk("v1");
}

#[test]
fn the_typescript_sdk_of_its_second_version() {
    typescript_sdk("v2");
}

#[test]
fn the_inspectors_command_line() {
    let Some(node) = tool("node/bin/node") else { return };
    let launcher = "@modelcontextprotocol/inspector/clients/launcher/build/index.js";
    let Some(launcher) = tool(&format!("mcp-inspector/node_modules/{launcher}")) else { return };
    each(|env| {
        let inspector = |method: &str, more: &[&str]| {
            let mut command = client(env, &node, [launcher.as_os_str(), "--cli".as_ref()]);
            command.args(server(env)).args(["--method", method]).args(more);
            command
        };
        let json = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        let tools = json(&printed(inspector("tools/list", &[])));
        let tools = tools["tools"].as_array().expect("a list");
        let names = tools.iter().map(|tool| &tool["name"]).collect::<Vec<_>>();
        assert_eq!(names, ["command", "start", "list", "read", "stop"]);

        let arguments =
            ["--tool-arg", "program=python3", "--tool-arg", "args=[\"-c\",\"print(2**100)\"]"];
        let call = [&["--tool-name", "command"], &arguments[..]].concat();
        let answer = json(&printed(inspector("tools/call", &call)));
        let text = "exit status 0\n--- stdout ---\n1267650600228229401496703205376\n";
        assert_eq!(answer["content"], json!([{ "type": "text", "text": text }]));

        let call = ["--tool-name", "command", "--tool-arg", "program=mount"];
        let output = inspector("tools/call", &call).output().expect("it starts");
        assert!(!output.status.success());
        let answer = json(&String::from_utf8_lossy(&output.stdout));
        assert_eq!(answer["isError"], true);
        assert!(answer["content"][0]["text"].as_str().expect("text").contains("[commands] allow"));
    });
}

#[test]
fn the_conformance_suite() {
    let Some(node) = tool("node/bin/node") else { return };
    let suite = "mcp-conformance/node_modules/@modelcontextprotocol/conformance/dist/index.js";
    let Some(suite) = tool(suite) else { return };
    each(|env| {
        let mut bridge = client(env, "python3", [script("http_bridge.py")]);
        bridge.args(server(env)).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut bridge = bridge.spawn().expect("Python starts");
        let mut url = String::new();
        let stdout = bridge.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut url).expect("its address");
        for (version, scenario) in SCENARIOS {
            let mut command = client(env, &node, [suite.as_os_str(), "server".as_ref()]);
            command.args(["--url", url.trim_end(), "--spec-version", version]);
            command.args(["--scenario", scenario]);
            let said = printed(command);
            assert!(said.contains(", 0 failed, 0 warnings"), "{version}, {scenario}: {said}");
        }
        drop(bridge.stdin.take());
        assert!(bridge.wait().expect("own child").success());
    });
}
