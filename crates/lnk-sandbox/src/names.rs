//! How names are looked up inside.

use std::path::Path;

use crate::paths::real_or_written;
use crate::policy::Policy;
use crate::spec_file::read_plain;

/// The machine's name servers, resolv.conf(5); often a link into `/run`.
pub const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The machine's names, hosts(5).
const HOSTS: &str = "/etc/hosts";
/// What nsswitch.conf(5) says of hosts where there is a name server.
const BY_DNS: &str = "files dns";
/// The sandbox's own names.
const OWN: &[u8] = b"127.0.0.1 localhost lnk\n::1 localhost ip6-localhost\n";
/// The sandbox's name beside the machine's.
const OWN_NAME: &[u8] = b"127.0.0.1 lnk\n";
/// Where its names are asked for. One is answered at once; what is looked up outside
/// takes less than 5 s (`dns` of the wire).
const OWN_SERVER: &[u8] = b"nameserver 127.0.0.1\noptions timeout:5 attempts:1\n";
/// The longest file that is taken, in bytes: lists of hosts not to be reached have
/// some million.
const MAX: usize = 16 << 20;

/// The files by which names are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// hosts(5).
    pub hosts: Vec<u8>,
    /// resolv.conf(5).
    pub resolv_conf: Vec<u8>,
    /// What nsswitch.conf(5) says of hosts.
    pub by: &'static str,
}

impl Names {
    /// Those of a sandbox: in a network of its own none but its own, with its endpoints'
    /// where it has some, in the machine's what the machine's files say. The other modules of nsswitch ask by sockets of the
    /// machine's, which nothing inside reaches. A file that was hidden says nothing.
    #[must_use]
    pub fn inside(policy: &Policy) -> Names {
        if !policy.network.shared {
            let (resolv_conf, by) = match policy.network.has_names() {
                true => (OWN_SERVER.to_vec(), BY_DNS),
                // Else a look-up would wait for servers that nothing reaches.
                false => (Vec::new(), "files"),
            };
            return Names { hosts: OWN.to_vec(), resolv_conf, by };
        }
        let is_hidden = |real: &Path| {
            policy.hides.iter().any(|hide| hide.asked && real.starts_with(&hide.path))
        };
        let read = |path: &str| {
            let real = real_or_written(Path::new(path));
            read(&real).filter(|_| !is_hidden(&real) && !is_hidden(Path::new(path)))
        };
        Names {
            hosts: read(HOSTS).map_or_else(|| OWN.to_vec(), with_own_name),
            resolv_conf: read(RESOLV_CONF).unwrap_or_default(),
            by: BY_DNS,
        }
    }
}

/// What a plain file at a real path holds; none where it can't be read or is longer
/// than any.
#[must_use]
pub fn read(real: &Path) -> Option<Vec<u8>> {
    let (content, _) = read_plain(real, MAX + 1).ok()?;
    (content.len() <= MAX).then_some(content)
}

fn with_own_name(mut hosts: Vec<u8>) -> Vec<u8> {
    if !hosts.is_empty() && !hosts.ends_with(b"\n") {
        hosts.push(b'\n');
    }
    hosts.extend_from_slice(OWN_NAME);
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sandboxs_name_has_a_line_of_its_own() {
        let with = |hosts: &str| String::from_utf8(with_own_name(hosts.into())).unwrap();
        assert_eq!(with(""), "127.0.0.1 lnk\n");
        assert_eq!(with("::1 a"), "::1 a\n127.0.0.1 lnk\n");
        assert_eq!(with("::1 a\n"), "::1 a\n127.0.0.1 lnk\n");
    }
}
