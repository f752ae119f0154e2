//! Programs that fetch from the internet, through the wire and over TLS.

mod network;

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use network::{SERVE, counted, run};
use tempfile::TempDir;
use testkit::{Call, Mounts, Net, Run, TestEnv, each};

const SITE: &str = include_str!("network/site.py");

/// A site of the internet, and who it is trusted by.
struct Site {
    net: Net,
    /// What it serves; removed after it ended.
    folder: TempDir,
}

impl Site {
    fn new() -> Option<Site> {
        let folder = tempfile::tempdir().expect("a folder");
        let mut net = Net::new()?;
        let path = folder.path().to_str().expect("UTF-8");
        net.serve(["/usr/bin/python3", "-c", SITE, path, "11.0.0.2"]);
        Some(Site { net, folder })
    }

    /// A bash script in a sandbox that may write the project, where the caller trusts
    /// the site's authority in every way that the programs know.
    fn call(&self, env: &TestEnv, flags: &str, script: &str) -> Call {
        let authority = fs::read(self.folder.path().join("ca.pem")).expect("it is made");
        let authority = env.write("ca.pem", authority);
        let flags = format!("--write . {flags}");
        let mut call = run(env, &self.net, &flags, ["bash", "-c", script]);
        for name in AUTHORITIES {
            call = call.env(name, &authority);
        }
        call
    }

    /// The script reaches the site where a sandbox may, and fails at once where it may
    /// not.
    fn reached_only_by_grant(&self, env: &TestEnv, script: &str) {
        self.reached_only_by_grant_beside("", env, script);
    }

    /// [`reached_only_by_grant`](Site::reached_only_by_grant) of a sandbox with these
    /// flags besides.
    fn reached_only_by_grant_beside(&self, flags: &str, env: &TestEnv, script: &str) {
        let call = |grant: &str| self.call(env, &format!("{flags} {grant}"), script);
        let begin = Instant::now();
        call(GRANT).run().ok().stdout_has("hello from the origin\n");
        let at_once = at_once(begin);
        for grant in ["", "--internet-host other.test.example"] {
            let refused = call(grant).deadline(at_once).run().fails();
            refused.has_not("hello from the origin");
        }
    }
}

/// How long a program may take that is refused at once, from what it takes otherwise: a
/// few seconds, or more where the machine is that busy.
fn at_once(begin: Instant) -> Duration {
    Duration::from_secs(5) + 4 * begin.elapsed()
}

const GRANT: &str = "--internet-host origin.test.example";

/// Variables that name who is trusted.
const AUTHORITIES: [&str; 9] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "NPM_CONFIG_CAFILE",
    "npm_config_cafile",
];

/// Whether something is there; `scripts/test` installs it.
fn has(path: &str) -> bool {
    let there = Path::new(path).exists();
    if !there {
        testkit::missing(path);
    }
    there
}

/// Whether a program of the system is there.
fn has_program(name: &str) -> bool {
    let there = ["/usr/local/bin", "/usr/bin"].iter().any(|it| Path::new(it).join(name).exists());
    if !there {
        testkit::missing(&format!("the program {name}"));
    }
    there
}

#[test]
fn downloaders() {
    let Some(site) = Site::new() else { return };
    each!(|env| {
        for script in [
            "curl -sS https://origin.test.example/hello",
            "wget -q -t 1 --ca-certificate ca.pem -O - https://origin.test.example/hello",
            "rm -rf clone && git clone -q https://origin.test.example/repo.git clone && cat clone/hello",
        ] {
            site.reached_only_by_grant(env, script);
        }
    });
}

#[test]
fn python() {
    let Some(site) = Site::new() else { return };
    let url = "'https://origin.test.example/hello'";
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        let python = |code: &str| {
            site.reached_only_by_grant(env, &format!("/usr/bin/python3 -c \"{code}\""));
        };
        python(&format!(
            "import urllib.request as r; print(r.urlopen({url}).read().decode(), end='')"
        ));
        for package in ["requests", "httpx"] {
            if has(&format!("/usr/lib/python3/dist-packages/{package}")) {
                python(&format!("import {package}; print({package}.get({url}).text, end='')"));
            }
        }
    });
}

/// Both ways that Node's own library has, in one program each.
const NODE_FETCHES: [&str; 2] = [
    "fetch('https://origin.test.example/hello').then(it => it.text())
        .then(it => process.stdout.write(it))",
    "require('https').get('https://origin.test.example/hello', it => it.pipe(process.stdout))
        .on('error', it => { throw it })",
];

/// Node's major version.
fn version(env: &TestEnv, node: impl AsRef<OsStr>) -> u32 {
    let version = env.program(node, ["-p", "process.versions.node.split('.')[0]"]).run().ok();
    version.stdout.trim().parse().expect("a number")
}

#[test]
fn node() {
    let Some(site) = Site::new() else { return };
    // Where `scripts/test` puts it: the tools are beside the builds.
    let builds = Path::new(env!("CARGO_BIN_EXE_lnk")).ancestors();
    let mut nodes = builds.map(|it| it.join("tools/node/bin/node"));
    let Some(node) = nodes.find(|it| it.exists()) else {
        return testkit::missing("Node 24 in the build folder's tools/node");
    };
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        let node = env.give_program(&node);
        assert!(version(env, &node) >= 24);
        let flags = format!("--read {}", env.outside().join("bin").display());
        for fetch in NODE_FETCHES {
            let script = format!("{} -e \"{fetch}\"", node.display());
            site.reached_only_by_grant_beside(&flags, env, &script);
            // Only this variable names the authority to it.
            let call = site.call(env, &format!("{flags} {GRANT}"), &script);
            let untrusting = call.env_remove("NODE_EXTRA_CA_CERTS").run().fails();
            untrusting.has_not("hello from the origin").stderr_has("certificate");
        }
    });
}

#[test]
fn older_nodes_know_no_proxy() {
    let Some(site) = Site::new() else { return };
    if !has_program("node") {
        return;
    }
    each!(|env| {
        if env.mounts == Mounts::Bwrap || version(env, "node") >= 24 {
            return;
        }
        let begin = Instant::now();
        site.call(env, GRANT, "node -e 0").run().ok();
        let at_once = at_once(begin);
        for fetch in NODE_FETCHES {
            let call = site.call(env, GRANT, &format!("node -e \"{fetch}\"")).deadline(at_once);
            call.run().fails().has_not("hello from the origin");
        }
    });
}

#[test]
fn go() {
    let Some(site) = Site::new() else { return };
    if !has("/usr/bin/go") {
        return;
    }
    // A program without libraries, made once.
    let folder = site.folder.path();
    fs::write(folder.join("fetch.go"), FETCH).expect("own folder");
    let built = Command::new("/usr/bin/go")
        .args(["build", "-o", "fetch", "fetch.go"])
        .current_dir(folder)
        .envs([("GOCACHE", folder.join("cache")), ("HOME", folder.to_owned())])
        .env("CGO_ENABLED", "0")
        .output()
        .expect("go is there");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let fetch = fs::read(folder.join("fetch")).expect("it was built");
    each!(|env| {
        if env.mounts == Mounts::Joiner {
            env.write_program("fetch", &fetch);
            site.reached_only_by_grant(env, "./fetch");
        }
    });
}

const FETCH: &str = r#"
package main

import ("io"; "log"; "net/http"; "os")

func main() {
    answer, err := http.Get("https://origin.test.example/hello")
    if err != nil {
        log.Fatal(err)
    }
    io.Copy(os.Stdout, answer.Body)
}
"#;

#[test]
fn pip() {
    let Some(site) = Site::new() else { return };
    if !has("/usr/bin/pip3") {
        return;
    }
    let script = "rm -rf out && /usr/bin/python3 -m pip install -q --target out --no-cache-dir \
        --retries 0 --disable-pip-version-check \
        --index-url https://origin.test.example/simple/ small && \
        PYTHONPATH=out /usr/bin/python3 -c 'import small; print(small.hello())'";
    each!(|env| {
        if env.mounts == Mounts::Joiner {
            site.reached_only_by_grant(env, script);
        }
    });
}

#[test]
fn npm() {
    let Some(site) = Site::new() else { return };
    if !has_program("npm") {
        return;
    }
    // npm waits ten seconds before it tries again.
    let script = "rm -rf node_modules && npm install --silent --no-audit --no-update-notifier \
        --fetch-retries 0 --registry https://origin.test.example/npm/ small && \
        node -p 'require(\"small\")'";
    each!(|env| {
        if env.mounts == Mounts::Joiner {
            env.write("package.json", r#"{"name":"p","version":"1.0.0"}"#);
            site.reached_only_by_grant(env, script);
        }
    });
}

#[test]
fn cargo() {
    let Some(site) = Site::new() else { return };
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        if !env.give_rust() {
            return testkit::missing("a Rust toolchain");
        }
        env.write(
            ".cargo/config.toml",
            "[net]\nretry = 0\n\
             [registries.t]\nindex = \"sparse+https://origin.test.example/index/\"\n",
        );
        env.write(
            "Cargo.toml",
            "[package]\nname = \"p\"\nversion = \"1.0.0\"\nedition = \"2021\"\n\
             [dependencies]\nsmall = { version = \"1\", registry = \"t\" }\n",
        );
        env.write("src/lib.rs", "");
        let script = "rm -f Cargo.lock && PATH=$HOME/.rustup/toolchains/stable/bin:$PATH \
            cargo fetch && ls ~/.cargo/registry/src/*/small-1.0.0/Cargo.toml && \
            echo hello from the origin";
        site.reached_only_by_grant_beside("--read ~/.rustup", env, script);
    });
}

/// `openssl s_client` through the proxy, to a host, with these words on its name.
fn hello(env: &TestEnv, net: &Net, to: &str, named: &str) -> Run {
    let script = format!("openssl s_client -proxy 127.0.0.1:40781 -connect {to}:443 {named}");
    run(env, net, "--internet-host *", ["bash", "-c", &script]).run()
}

#[test]
fn a_tls_hello_names_the_host_or_none_of_it_arrives() {
    let Some(mut net) = Net::new() else { return };
    let [python, flag, script] = SERVE;
    net.serve([python, flag, script, "counter", "11.0.0.4:9", "11.0.0.4:443"]);
    each!(|env| {
        let host = "counter.test.example";
        for (named, arrives) in [
            ("-servername counter.test.example", true),
            ("-servername COUNTER.test.example", true),
            ("-servername other.test.example", false),
            ("-servername test.example", false),
            ("-noservername", false),
        ] {
            hello(env, &net, host, named).fails();
            let [_, up, _] = counted(env, &net, "11.0.0.4:9");
            assert_eq!(up > 0, arrives, "{named}: {up} bytes");
        }
        // TLS has no name for an address.
        hello(env, &net, "11.0.0.4", "-noservername").fails();
        assert!(counted(env, &net, "11.0.0.4:9")[1] > 0);
        // What isn't TLS.
        let plain = "exec 3<>/dev/tcp/127.0.0.1/40781; printf 'CONNECT counter.test.example:443 \
            HTTP/1.1\\r\\n\\r\\nGET / HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3";
        let flags = "--internet-host *";
        // It ends while more comes, which breaks it.
        run(env, &net, flags, ["bash", "-c", plain]).run().stdout_has(" 200 ");
        assert_eq!(counted(env, &net, "11.0.0.4:9")[1], 0);
    });
}
