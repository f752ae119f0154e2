//! The environment a program finds inside.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::account::Accounts;
use crate::caller::Caller;

/// What crosses from the caller as it is.
const KEPT: [&str; 6] = ["PATH", "TERM", "COLORTERM", "TZ", "LANG", "LANGUAGE"];
/// Variables that name certificates: they cross only where the file they name
/// can be read inside.
const CERTIFICATES: [&str; 10] = [
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "NPM_CONFIG_CAFILE",
    "npm_config_cafile",
];
/// Where programs are looked for when the caller has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A program's whole environment.
pub type Environment = Vec<(OsString, OsString)>;

/// The short list: where programs are, the terminal, the locale, the time zone
/// and who the caller is. Nothing else of the caller's crosses.
/// `readable_inside` tells whether a path can be read in the sandbox.
#[must_use]
pub fn inside(
    caller: &Caller,
    accounts: &Accounts,
    home: &Path,
    readable_inside: impl Fn(&Path) -> bool,
) -> Environment {
    let mut env: Environment = Vec::new();
    let kept = caller.env.iter().filter(|(name, _)| is_kept(name));
    for (name, value) in kept {
        if !env.iter().any(|(seen, _)| seen == name) {
            env.push((name.clone(), value.clone()));
        }
    }
    // Most often all of them name one file.
    let mut judged: Vec<(&OsStr, bool)> = Vec::new();
    for name in CERTIFICATES {
        let Some(file) = caller.var(name) else { continue };
        let known = judged.iter().find(|(its, _)| *its == file).map(|(_, readable)| *readable);
        let readable = known.unwrap_or_else(|| readable_inside(Path::new(file)));
        judged.push((file, readable));
        if readable {
            env.push((name.into(), file.to_owned()));
        }
    }
    if caller.var("PATH").is_none() {
        env.push(("PATH".into(), DEFAULT_PATH.into()));
    }
    env.push(("HOME".into(), home.into()));
    env.push(("USER".into(), accounts.own.name.clone()));
    env.push(("LOGNAME".into(), accounts.own.name.clone()));
    env.push(("SHELL".into(), "/bin/bash".into()));
    env.push(("TMPDIR".into(), "/tmp".into()));
    if caller.uid == 0 {
        // Unpacked as root, an archive's owners would be set: not possible
        // where only one user exists.
        env.push(("TAR_OPTIONS".into(), "--no-same-owner".into()));
    }
    env
}

/// The variables by which programs find the proxy at this port, in both
/// spellings: curl reads `http_proxy` in lower case only, others upper case only.
#[must_use]
pub fn proxy(port: u16) -> Environment {
    let proxy = format!("http://127.0.0.1:{port}");
    // Not `[::1]`, by which Python's urllib would know it: httpx 0.28 ends with an error
    // at that.
    let own = "localhost,127.0.0.1,::1";
    let named = [("http_proxy", proxy.as_str()), ("https_proxy", &proxy), ("no_proxy", own)];
    let mut env: Environment = Vec::new();
    for (name, value) in named {
        env.push((name.into(), value.into()));
        env.push((name.to_uppercase().into(), value.into()));
    }
    // Node's own fetch and https follow the variables only when told to (Node 24).
    env.push(("NODE_USE_ENV_PROXY".into(), "1".into()));
    env
}

fn is_kept(name: &OsStr) -> bool {
    KEPT.iter().any(|kept| name == *kept) || name.as_encoded_bytes().starts_with(b"LC_")
}
