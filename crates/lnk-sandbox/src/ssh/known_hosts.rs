//! Host keys that a sandbox's ssh knows, as sshd(8) writes them down: those that known
//! forges publish, and those that servers showed the sandbox.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::BorrowedFd;

use lnk_spec::host::Host;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use ssh_key::{Algorithm, HashAlg, PublicKey};

/// The port that has no brackets.
const PORT: u16 = 22;
/// Bytes of a file at most; a line has a few hundred.
pub const MAX_BYTES: usize = 256 * 1024;
/// Bytes of a line at most: an RSA key of 16,384 bits has 2,800.
const MAX_LINE: usize = 4096;

/// What forges publish, and its SHA-256 fingerprint as they publish that.
const PUBLISHED: [(&str, &str, &str); 4] = [
    (
        "github.com",
        "AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl",
        "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU",
    ),
    (
        "gitlab.com",
        "AAAAC3NzaC1lZDI1NTE5AAAAIAfuCHKVTjquxvt6CM6tdG4SLp1Btn/nOeHHE5UOzRdf",
        "SHA256:eUXGGm1YGsMAS7vkcx6JOJdOGHPem5gQp4taiCfCLB8",
    ),
    (
        "bitbucket.org",
        "AAAAC3NzaC1lZDI1NTE5AAAAIIazEu89wgQZ4bqs3d63QSMzYVa0MuJ2e2gKTKqu+UUO",
        "SHA256:ybgmFkzwOSotHTHLJgHO0QN8L0xErw6vd0VhFA9m3SM",
    ),
    (
        "codeberg.org",
        "AAAAC3NzaC1lZDI1NTE5AAAAIIVIC02vnjFyL+I4RHfvIGNtOgJMe769VTF1VR4EB3ZB",
        "SHA256:mIlxA9k46MmM6qdJOdMnAQpzGxF4WIVVL+fj+wZbw0g",
    ),
];

/// A server's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostKey {
    /// The server's host, as ssh was given it.
    pub host: Host,
    /// Its port.
    pub port: u16,
    key: PublicKey,
}

impl HostKey {
    /// What a person compares: `SHA256:` and the hash.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        self.key.fingerprint(HashAlg::Sha256).to_string()
    }

    /// Whether it is the same server's.
    #[must_use]
    pub fn is_of(&self, other: &HostKey) -> bool {
        (&self.host, self.port) == (&other.host, other.port)
    }

    /// One plain host, the kind of key and the key: no pattern, no hash, no marker and no
    /// comment, which this ssh writes none of.
    fn parse(line: &str) -> Option<HostKey> {
        let mut words = line.split(' ');
        let (place, kind, key) = (words.next()?, words.next()?, words.next()?);
        if words.next().is_some() || line.len() > MAX_LINE {
            return None;
        }
        let (host, port) = match place.strip_prefix('[') {
            None => (place, PORT),
            Some(rest) => {
                let (host, port) = rest.split_once("]:")?;
                (host, port.parse().ok().filter(|port| *port != 0)?)
            }
        };
        let parsed = PublicKey::from_openssh(&format!("{kind} {key}")).ok()?;
        let known = matches!(
            parsed.algorithm(),
            Algorithm::Ed25519 | Algorithm::Ecdsa { .. } | Algorithm::Rsa { .. }
        );
        let host_key = HostKey { host: host.parse().ok()?, port, key: parsed };
        // Whatever else the line could be read as, it isn't.
        (known && host_key.to_string() == line).then_some(host_key)
    }
}

impl fmt::Display for HostKey {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key.to_openssh().map_err(|_| fmt::Error)?;
        match (&self.host, self.port) {
            (host, PORT) => write!(to, "{host} {key}"),
            (host, port) => write!(to, "[{host}]:{port} {key}"),
        }
    }
}

/// The keys that forges publish.
#[must_use]
pub fn published() -> Vec<HostKey> {
    let keys = PUBLISHED.iter().filter_map(|(host, key, fingerprint)| {
        let found = HostKey::parse(&format!("{host} ssh-ed25519 {key}"))?;
        (found.fingerprint() == *fingerprint).then_some(found)
    });
    keys.collect()
}

/// The keys of a file that only Link writes; `None` where it isn't what Link wrote.
#[must_use]
pub fn parse(bytes: &[u8]) -> Option<Vec<HostKey>> {
    std::str::from_utf8(bytes).ok()?.split_terminator('\n').map(HostKey::parse).collect()
}

/// The keys of a file that the sandbox wrote, which may be anything: lines that are no
/// host key say nothing.
#[must_use]
pub fn parse_foreign(bytes: &[u8]) -> Vec<HostKey> {
    let lines = bytes.split(|byte| *byte == b'\n');
    lines.filter_map(|line| HostKey::parse(std::str::from_utf8(line).ok()?)).collect()
}

/// The lines of a file.
#[must_use]
pub fn text(keys: &[HostKey]) -> String {
    keys.iter().map(|key| format!("{key}\n")).collect()
}

/// What is in a file that the sandbox wrote, in a folder of it: nothing where it isn't a
/// plain file, as long as one can be at most.
#[must_use]
pub fn read_foreign(folder: BorrowedFd<'_>, name: &str) -> Vec<u8> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let mut bytes = Vec::new();
    let opened = openat2(folder, name, flags | OFlags::CLOEXEC, Mode::empty(), resolve);
    let plain = opened.ok().filter(|file| {
        fstat(file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
    });
    if let Some(file) = plain {
        // What was read before an error counts.
        let _ = File::from(file).take(MAX_BYTES as u64).read_to_end(&mut bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";

    #[test]
    fn every_published_key_has_its_published_fingerprint() {
        assert_eq!(published().len(), PUBLISHED.len());
    }

    #[test]
    fn a_line_is_a_host_and_a_key() {
        for place in
            ["a.example", "[a.example]:2222", "1.2.3.4", "2606:4700::1", "[2606:4700::1]:2222"]
        {
            let line = format!("{place} {KEY}");
            let key = HostKey::parse(&line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(key.to_string(), line);
        }
        let ecdsa = "a.example ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBEmKSENjQEezOmxkZMy7opKgwFB9nkt5YRrYMjNuG5N87uRgg6CLrbo5wAdT/y6v0mKV0U2w0WZ2YB/++Tpockg=";
        assert!(HostKey::parse(ecdsa).is_some());
    }

    #[test]
    fn anything_else_is_none() {
        let hashed = "|1|F1E1KeoE/eEWhi10WpGv4OdiO6Y=|3988QV0VE8wmZL7suNrYQLITLCg=";
        for line in [
            String::new(),
            KEY.to_owned(),
            format!("# a.example {KEY}"),
            format!("*.example {KEY}"),
            format!("* {KEY}"),
            format!("!a.example {KEY}"),
            format!("a.example,b.example {KEY}"),
            format!("{hashed} {KEY}"),
            format!("@cert-authority a.example {KEY}"),
            format!("@revoked a.example {KEY}"),
            format!("A.example {KEY}"),
            format!("a.example. {KEY}"),
            format!("[a.example]:22 {KEY}"),
            format!("[a.example]:0 {KEY}"),
            format!("[a.example]:02222 {KEY}"),
            format!("[a.example]:70000 {KEY}"),
            format!("[a.example {KEY}"),
            format!("a.example  {KEY}"),
            format!("a.example\t{KEY}"),
            format!("a.example {KEY} comment"),
            format!("a.example {KEY}\r"),
            format!("a.example {KEY} "),
            format!("a.example {KEY}A"),
            format!("a.example {}", KEY.replace("ssh-ed25519 ", "ssh-rsa ")),
            format!("a.example\u{202e} {KEY}"),
            format!("{}.example {KEY}", "a".repeat(MAX_LINE)),
        ] {
            assert_eq!(HostKey::parse(&line), None, "{line:?}");
            let both = format!("{line}\nb.example {KEY}\n");
            assert_eq!(parse(both.as_bytes()), None, "{line:?}");
            assert_eq!(parse_foreign(both.as_bytes()).len(), 1, "{line:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_the_same(bytes in any::<Vec<u8>>(), line in r"[\[\]:a-z0-9.* ]{0,20}") {
            let mixed = [format!("{line} {KEY}\n").as_bytes(), &bytes].concat();
            let keys = parse_foreign(&mixed);
            prop_assert_eq!(parse(text(&keys).as_bytes()), Some(keys));
        }
    }
}
