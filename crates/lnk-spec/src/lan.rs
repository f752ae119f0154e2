//! Machines of the user's own network.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::address::{Class, class_of};
use crate::host::{Host, is_several};
use crate::invalid::Invalid;
use crate::text::stored_as_text;

/// The private ranges (RFC 1918, RFC 4193).
pub const PRIVATE: [IpNet; 4] = [
    IpNet::V4(Ipv4Net::new_assert(std::net::Ipv4Addr::new(10, 0, 0, 0), 8)),
    IpNet::V4(Ipv4Net::new_assert(std::net::Ipv4Addr::new(172, 16, 0, 0), 12)),
    IpNet::V4(Ipv4Net::new_assert(std::net::Ipv4Addr::new(192, 168, 0, 0), 16)),
    IpNet::V6(Ipv6Net::new_assert(std::net::Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7)),
];

/// An entry of `[lan] hosts`. Addresses and ranges are private ones; no name is
/// this machine's or a metadata service's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LanHost {
    /// `*`: the private ranges.
    Any,
    /// A range of addresses.
    Range(IpNet),
    /// A name or an address.
    One(Host),
}

impl LanHost {
    /// Whether every machine that `other` means is meant. A name is covered by
    /// itself alone: what it resolves to isn't known here.
    #[must_use]
    pub fn covers(&self, other: &LanHost) -> bool {
        match (self, other) {
            (LanHost::Any, other) => !matches!(other, LanHost::One(Host::Name(_))),
            (LanHost::Range(wide), LanHost::Range(narrow)) => wide.contains(narrow),
            (LanHost::Range(range), LanHost::One(Host::Address(address))) => {
                range.contains(address)
            }
            (one, other) => one == other,
        }
    }
}

impl FromStr for LanHost {
    type Err = Invalid;

    fn from_str(typed: &str) -> Result<Self, Invalid> {
        if typed == "*" {
            return Ok(LanHost::Any);
        }
        if is_several(typed) && !typed.contains("://") {
            return Err(Invalid::SeveralHosts(typed.into()));
        }
        if let Some((address, length)) = typed.split_once('/')
            && let (Ok(_), Ok(_)) = (address.parse::<IpAddr>(), length.parse::<u8>())
        {
            return range(typed);
        }
        match typed.parse() {
            Ok(host) => match class_of(&host) {
                None | Some(Class::Private) => Ok(LanHost::One(host)),
                Some(Class::Public) => Err(Invalid::NotPrivate(typed.into())),
                Some(class) => Err(Invalid::Elsewhere(typed.into(), class)),
            },
            Err(Invalid::HostHasPort(_)) => Err(Invalid::LanHostHasPort(typed.into())),
            Err(Invalid::HostIsUrl(..)) if starts_like_range(typed) => {
                Err(Invalid::LanHost(typed.into()))
            }
            Err(Invalid::HostIsUrl(_, host)) => Err(Invalid::LanHostIsUrl(typed.into(), host)),
            Err(Invalid::Wildcard(_) | Invalid::Host(_) | Invalid::Ipv4Spelling(_)) => {
                Err(Invalid::LanHost(typed.into()))
            }
            Err(other) => Err(other),
        }
    }
}

fn range(typed: &str) -> Result<LanHost, Invalid> {
    let range: IpNet = typed.parse().map_err(|_| Invalid::LanHost(typed.into()))?;
    if !is_private(range) {
        return Err(Invalid::NotPrivate(typed.into()));
    }
    if range.trunc() != range {
        return Err(Invalid::RangeStart(typed.into(), range.trunc().to_string()));
    }
    Ok(LanHost::Range(range))
}

/// Whether what stands before a slash is no name, but an address or part of one.
fn starts_like_range(typed: &str) -> bool {
    typed.split_once('/').is_some_and(|(front, _)| {
        !front.is_empty() && front.bytes().all(|b| b.is_ascii_hexdigit() || b".:".contains(&b))
    })
}

fn is_private(range: IpNet) -> bool {
    PRIVATE.iter().any(|private| private.contains(&range))
}

impl fmt::Display for LanHost {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LanHost::Any => to.write_str("*"),
            LanHost::Range(range) => range.fmt(to),
            LanHost::One(host) => host.fmt(to),
        }
    }
}

stored_as_text!(LanHost);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_private_addresses_and_ranges() {
        for typed in [
            "*",
            "nas.local",
            "nas",
            "192.168.1.7",
            "fd12::1",
            "192.168.1.0/24",
            "10.0.0.0/8",
            "fc00::/7",
        ] {
            assert_eq!(typed.parse::<LanHost>().unwrap().to_string(), typed);
        }
        for typed in [
            "8.8.8.8",
            "127.0.0.1",
            "169.254.169.254",
            "0.0.0.0/0",
            "10.0.0.0/7",
            "fe80::1",
            "::/0",
            "192.168.1.7/24",
            "192.168.1.0/33",
            "*.local",
            "nas.local:80",
            "http://nas.local",
            "",
            "192.168.1/24",
            "::ffff:8.8.8.8",
        ] {
            assert!(typed.parse::<LanHost>().is_err(), "{typed}");
        }
    }

    #[test]
    fn what_was_meant_is_said() {
        let no_host = "isn't a host of your network: write a name, an address, a range such as \
                       192.168.1.0/24, or *";
        let no_range = "isn't private: your network's addresses are in 10.0.0.0/8, 172.16.0.0/12, \
                        192.168.0.0/16 and fc00::/7";
        for (typed, said) in [
            ("192.168.1.1-20", no_host),
            ("192.168.1.*", no_host),
            ("192.168.1", no_host),
            ("192.168.1.0/", no_host),
            ("192.168.1/24", no_host),
            ("10.0.0.0/4", no_range),
            ("8.8.8.8/24", no_range),
            ("192.168.1.7/24", "starts in the middle of the range 192.168.1.0/24: write that"),
            ("nas.local:5000", "has a port: leave :5000 out, every port of it is open"),
            ("192.168.1.7:80", "has a port: leave :80 out, every port of it is open"),
            ("http://nas.local", "is more than a host: write nas.local alone"),
            ("http://a b/", "is more than a host: write the name alone, such as nas.local"),
            ("192.168.1.0/24,10.0.0.0/8", "is several hosts: write each by itself"),
        ] {
            let error = typed.parse::<LanHost>().unwrap_err().to_string();
            assert_eq!(error, format!("'{typed}' {said}"));
        }
    }

    #[test]
    fn covering_is_by_addresses() {
        let covers = |wide: &str, narrow: &str| {
            wide.parse::<LanHost>().unwrap().covers(&narrow.parse().unwrap())
        };
        assert!(covers("*", "10.0.0.1") && covers("*", "10.0.0.0/8") && !covers("*", "nas.local"));
        assert!(covers("10.0.0.0/8", "10.1.0.0/16") && !covers("10.1.0.0/16", "10.0.0.0/8"));
        assert!(covers("10.0.0.0/8", "10.0.0.1") && !covers("10.0.0.0/8", "192.168.0.1"));
        assert!(covers("nas", "nas") && !covers("nas", "*") && !covers("10.0.0.0/8", "*"));
    }
}
