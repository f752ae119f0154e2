//! A run that failed without a word to its proxy: a program, perhaps, that doesn't know
//! it, and looked a name up that nobody inside tells.

use std::ffi::OsString;

use lnk_spec::endpoint::Endpoint;

use crate::linux::launch::Ended;
use crate::network::Network;

/// Signals, by which a shell's statuses count on: see signal(7).
const SIGNALS: std::ops::RangeInclusive<u8> = 129..=192;

/// Programs that connect to a host, the first word after their flags, and the flag that
/// says the port.
const SSH: [(&str, &str); 3] = [("ssh", "-p"), ("sftp", "-P"), ("$GIT_SSH_COMMAND", "-p")];
/// Flags of theirs that have a value (ssh(1), sftp(1)).
const WITH_VALUE: &str = "BbcDEeFIiJLlmOoPpQRSsWwX";
/// Ports of addresses that begin so, where they name none.
const SCHEMES: [(&str, u16); 8] = [
    ("ssh", 22),
    ("git+ssh", 22),
    ("git", 9418),
    ("postgres", 5432),
    ("postgresql", 5432),
    ("mysql", 3306),
    ("redis", 6379),
    ("mongodb", 27017),
];
/// The port of a server that is asked for by `host=` (libpq, 'Connection Strings').
const POSTGRESQL: u16 = 5432;

/// The line for such a run, which failed, with the endpoint that its words name.
pub fn line(ended: &Ended, network: &Network, program: &[OsString]) -> Option<String> {
    let carried = ended.carried.filter(|_| network.has_proxy() && !network.has_names())?;
    let is_own_end = ended.not_executed.is_none() && !SIGNALS.contains(&ended.status);
    if !is_own_end || carried.allowed + carried.refused + carried.failed > 0 {
        return None;
    }
    let unasked = "nothing was asked of the proxy: what ignores HTTPS_PROXY has no network";
    Some(match endpoint(program) {
        Some(endpoint) => {
            let closed = !network.internet.reaches(&network.lan, endpoint.host());
            let host = closed.then(|| endpoint.host_opened_by().to_string() + " ");
            let flag = endpoint.flag();
            format!("{unasked}; {}{flag} opens it by its own name", host.unwrap_or_default())
        }
        None => format!(
            "{unasked}; --tcp HOST:PORT opens a host by its own name (git over SSH: --tcp \
             github.com:22)"
        ),
    })
}

/// The first endpoint that words seem to mean, those in quotes too.
fn endpoint(program: &[OsString]) -> Option<Endpoint> {
    let text = program.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let between = |it: char| it.is_whitespace() || "'\"();|&<>".contains(it);
    let words: Vec<&str> = text.split(between).filter(|word| !word.is_empty()).collect();
    let at = |at: usize| {
        let words = &words[at..];
        of_address(words[0]).or_else(|| of_libpq(words)).or_else(|| of_ssh(words))
    };
    (0..words.len()).find_map(at)
}

/// `ssh://git@host:22/path`, or `git@host:path` as git and scp have it.
fn of_address(word: &str) -> Option<Endpoint> {
    if let Some((scheme, rest)) = word.split_once("://") {
        let port = SCHEMES.iter().find(|(its, _)| *its == scheme)?.1;
        let authority = rest.split(['/', '?', ',']).next()?;
        let authority = authority.rsplit('@').next()?;
        return authority.parse().ok().or_else(|| on(authority, port));
    }
    let (user, rest) = word.split_once('@')?;
    let (host, _) = rest.split_once(':')?;
    on(host, 22).filter(|_| !user.is_empty())
}

/// `host=db.example.com port=5433`, in whichever order.
fn of_libpq(words: &[&str]) -> Option<Endpoint> {
    let host = words[0].strip_prefix("host=")?;
    let port = words.iter().find_map(|word| word.strip_prefix("port=")?.parse().ok());
    on(host, port.unwrap_or(POSTGRESQL))
}

/// `ssh -p 2222 user@host`.
fn of_ssh(words: &[&str]) -> Option<Endpoint> {
    let name = words[0].rsplit('/').next()?;
    let (_, port_flag) = SSH.iter().find(|(its, _)| *its == name)?;
    let (mut port, mut words) = (22, words[1..].iter());
    while let Some(&word) = words.next() {
        let Some(flags) = word.strip_prefix('-') else {
            return on(word.rsplit('@').next()?, port);
        };
        // The last of its letters may have the next word as its value, or any the rest.
        let Some(at) = flags.find(|flag| WITH_VALUE.contains(flag)) else { continue };
        let (flag, value) = (&flags[at..=at], &flags[at + 1..]);
        let value = if value.is_empty() { words.next().copied()? } else { value };
        if port_flag.strip_prefix('-') == Some(flag) {
            port = value.parse().ok()?;
        }
    }
    None
}

fn on(host: &str, port: u16) -> Option<Endpoint> {
    format!("{host}:{port}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn meant(words: &[&str]) -> Option<String> {
        endpoint(&words.iter().map(OsString::from).collect::<Vec<_>>()).map(|it| it.to_string())
    }

    #[test]
    fn the_endpoint_of_a_command_is_named() {
        for (words, endpoint) in [
            (&["git", "clone", "git@github.com:me/repo.git"][..], "github.com:22"),
            (&["git", "clone", "ssh://git@forge.example:2222/x"], "forge.example:2222"),
            (&["git", "clone", "ssh://git@forge.example/x"], "forge.example:22"),
            (&["git", "clone", "git://forge.example/x"], "forge.example:9418"),
            (&["ssh", "-p", "2222", "root@a.example", "ls"], "a.example:2222"),
            (&["/usr/bin/ssh", "-vp2222", "-o", "X=y", "a.example"], "a.example:2222"),
            (&["sftp", "-P", "23", "a.example"], "a.example:23"),
            (&["sh", "-c", "cd x && $GIT_SSH_COMMAND root@a.example ls"], "a.example:22"),
            (&["psql", "host=db.example.com user=me"], "db.example.com:5432"),
            (&["sh", "-c", "psql \"host=db.example.com port=5433\""], "db.example.com:5433"),
            (&["psql", "postgresql://me:x@db.example.com/x"], "db.example.com:5432"),
            (&["psql", "postgresql://me@db.example.com:6432/x"], "db.example.com:6432"),
            (&["scp", "x", "me@10.0.0.1:x"], "10.0.0.1:22"),
        ] {
            assert_eq!(meant(words).as_deref(), Some(endpoint), "{words:?}");
        }
        for words in [
            &["true"][..],
            &["git", "fetch"],
            &["curl", "https://example.com"],
            &["psql", "host=/run/postgresql"],
            &["ssh", "localhost"],
            &["ssh", "-p"],
            &["echo", "me@example.com"],
            &["a@b@c:d"],
            &["ssh"],
            &[],
        ] {
            assert_eq!(meant(words), None, "{words:?}");
        }
    }

    proptest! {
        #[test]
        fn any_words_are_read(words in proptest::collection::vec("(ssh|host=|-p|://|@|:|[a-z.]|\\PC){0,9}", 0..5)) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            meant(&words);
        }
    }
}
