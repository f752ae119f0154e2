//! A browser in a sandbox: it loads pages through the wire, and what it calls by itself
//! doesn't pause it.

mod network;

use std::path::Path;

use network::{NAMES, SERVE, logged, run_with_names};
use testkit::{Mounts, Net, each};

const SPEC: &str = "[internet]\nhosts = ['origin.test.example']\n[commands]\nallow = ['*']\n";

/// The command line of docs/troubleshooting.md, with the pages after it.
fn chromium() -> String {
    let docs = include_str!("../../../docs/troubleshooting.md");
    let start = docs.find("chromium --headless").expect("an example");
    let end = start + docs[start..].find(" https://").expect("its page");
    docs[start..end].replace("\\\n", " ")
}

#[test]
fn chromium_loads_pages_and_its_own_calls_dont_pause_it() {
    if !Path::new("/usr/bin/chromium").exists() {
        // Ubuntu's is a snap, which starts by a daemon of this machine's.
        testkit::skip("/usr/bin/chromium");
        return;
    }
    let Some(mut net) = Net::new() else { return };
    net.serve([&SERVE[..], &["http", "11.0.0.2", "80"]].concat());
    // Eight times anew within a minute.
    let load = |host: &str| {
        let page = format!("{} http://{host}/page", chromium());
        format!("for n in 1 2 3 4 5 6 7 8; do rm -rf /tmp/chromium; {page} 2> /dev/null; done")
    };
    each!(|env| {
        if env.mounts == Mounts::Bwrap {
            return;
        }
        env.write("app.toml", SPEC);
        let run = |host: &str| {
            let script = load(host);
            run_with_names(env, &net, &NAMES, "--spec app.toml --yes", ["sh", "-c", &script]).run()
        };
        let said = run("origin.test.example").ok().quiet().stdout;
        assert_eq!(said.matches("11.0.0.2 /page origin.test.example").count(), 8, "{said}");
        let log = logged(env);
        let loaded = |line: &&String| line.starts_with("http origin.test.example:80 allowed");
        assert!(log.iter().filter(loaded).count() >= 8, "{log:#?}");
        env.lnk(["sandbox", "paused"]).run().ok().prints("");
        // Another host's page is the wire's.
        let said = run("other.test.example").ok().stdout;
        assert_eq!(said.matches("other.test.example:80 isn't open").count(), 8, "{said}");
    });
}
