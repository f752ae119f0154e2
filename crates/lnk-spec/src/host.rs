//! Hosts, in the one form that is matched, resolved, dialled and logged.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};

use crate::invalid::Invalid;
use crate::number::Port;
use crate::text::stored_as_text;

/// Characters of a name at most, without the last dot (RFC 1035, 2.3.4).
const MAX_NAME: usize = 253;
/// Characters of one label at most (RFC 1035, 2.3.4).
const MAX_LABEL: usize = 63;
/// Domains that no public zone has: RFC 6762, ICANN's resolution 2024.07.29.06,
/// RFC 8375.
const LOCAL: [&str; 3] = ["local", "internal", "home.arpa"];

/// A host in canonical form: equal hosts are equal text.
///
/// A name is lower case, without a last dot, and in ASCII as UTS #46 turns it;
/// an address that hides an IPv4 one in IPv6 (`::ffff:192.0.2.1`) is that IPv4
/// address. Short, octal and hexadecimal spellings of IPv4 (`127.1`,
/// `0x7f000001`) are no hosts, because readers differ in what they take them for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A name.
    Name(HostName),
    /// An address.
    Address(IpAddr),
}

/// A canonical name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

impl HostName {
    /// The name, lower-case ASCII without a last dot.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it stands under a domain, and isn't that domain itself.
    #[must_use]
    pub fn is_under(&self, domain: &HostName) -> bool {
        self.0.strip_suffix(&domain.0).is_some_and(|front| front.len() > 1 && front.ends_with('.'))
    }

    /// Whether it is a domain, given in canonical form, or stands under it.
    #[must_use]
    pub fn is_within(&self, domain: &str) -> bool {
        let front = self.0.strip_suffix(domain);
        front.is_some_and(|front| front.is_empty() || front.ends_with('.'))
    }

    /// Whether only a network of its own can know it: a single label, or a name under
    /// `local`, `internal` or `home.arpa`.
    #[must_use]
    pub fn is_local(&self) -> bool {
        !self.0.contains('.') || LOCAL.iter().any(|domain| self.is_within(domain))
    }
}

impl FromStr for Host {
    type Err = Invalid;

    fn from_str(typed: &str) -> Result<Self, Invalid> {
        if typed.contains(['/', '@', '?', '#', '\\']) {
            return Err(Invalid::HostIsUrl(typed.into(), host_of_url(typed)));
        }
        if is_several(typed) {
            return Err(Invalid::SeveralHosts(typed.into()));
        }
        if typed.contains('*') {
            return Err(Invalid::Wildcard(typed.into()));
        }
        let bracketed = typed.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Some(address) = bracketed.or_else(|| typed.contains(':').then_some(typed)) {
            return match address.parse::<Ipv6Addr>() {
                Ok(address) => Ok(Host::Address(IpAddr::V6(address).to_canonical())),
                Err(_) if bracketed.is_none() && has_port(typed) => {
                    Err(Invalid::HostHasPort(typed.into()))
                }
                Err(_) => Err(Invalid::Host(typed.into())),
            };
        }
        name_or_ipv4(typed)
    }
}

fn has_port(typed: &str) -> bool {
    typed.split_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// The host in the address of a page, if it is a plain one.
fn host_of_url(typed: &str) -> Option<String> {
    let rest = typed.split_once("://").map_or(typed, |(_, rest)| rest);
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let authority = rest[..end].rsplit('@').next()?;
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    Some(host.parse::<HostPattern>().ok()?.to_string())
}

/// Whether it is a list of words with commas or spaces between.
pub(crate) fn is_several(typed: &str) -> bool {
    let mut words = typed.split([',', ' ']).filter(|word| !word.is_empty());
    words.next().is_some_and(|first| first != typed.trim()) && words.next().is_some()
}

fn name_or_ipv4(typed: &str) -> Result<Host, Invalid> {
    let invalid = || Invalid::Host(typed.into());
    let ascii = Uts46::new()
        .to_ascii(typed.as_bytes(), AsciiDenyList::URL, Hyphens::Allow, DnsLength::Ignore)
        .map_err(|_| invalid())?;
    let name = ascii.strip_suffix('.').unwrap_or(&ascii);
    if let Ok(address) = name.parse::<Ipv4Addr>() {
        return Ok(Host::Address(address.into()));
    }
    if name.len() > MAX_NAME || !name.split('.').all(is_label) {
        return Err(invalid());
    }
    if name.rsplit('.').next().is_some_and(is_number) || is_nearly_ipv4(name) {
        return Err(Invalid::Ipv4Spelling(typed.into()));
    }
    Ok(Host::Name(HostName(name.to_owned())))
}

/// Letters, digits and inner hyphens (RFC 1123, 2.1), and the underscore that
/// real names have.
fn is_label(label: &str) -> bool {
    (1..=MAX_LABEL).contains(&label.len())
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'))
}

/// Whether a last label makes readers take the whole for an IPv4 address (the
/// URL standard's "ends in a number").
fn is_number(label: &str) -> bool {
    let hexadecimal = label.strip_prefix("0x");
    label.bytes().all(|byte| byte.is_ascii_digit())
        || hexadecimal.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Whether it is numbers and a last label that begins with a digit, as in
/// `192.168.1.1-20`: no name of the internet ends so (RFC 3696, 2).
fn is_nearly_ipv4(name: &str) -> bool {
    let Some((numbers, last)) = name.rsplit_once('.') else { return false };
    last.starts_with(|first: char| first.is_ascii_digit())
        && numbers.split('.').all(|label| label.bytes().all(|byte| byte.is_ascii_digit()))
}

impl fmt::Display for Host {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => to.write_str(&name.0),
            Host::Address(address) => address.fmt(to),
        }
    }
}

/// Which hosts an entry means.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostPattern {
    /// `*`: any.
    Any,
    /// `*.x`: the names under x, not x itself.
    Under(HostName),
    /// One host.
    One(Host),
}

impl HostPattern {
    /// Whether a host is meant.
    #[must_use]
    pub fn matches(&self, host: &Host) -> bool {
        match (self, host) {
            (HostPattern::Any, _) => true,
            (HostPattern::Under(domain), Host::Name(name)) => name.is_under(domain),
            (HostPattern::Under(_), Host::Address(_)) => false,
            (HostPattern::One(one), host) => one == host,
        }
    }

    /// Whether every host that `other` means is meant.
    #[must_use]
    pub fn covers(&self, other: &HostPattern) -> bool {
        match (self, other) {
            (HostPattern::Any, _) => true,
            (_, HostPattern::One(host)) => self.matches(host),
            (HostPattern::Under(wide), HostPattern::Under(narrow)) => {
                wide == narrow || narrow.is_under(wide)
            }
            _ => false,
        }
    }
}

impl FromStr for HostPattern {
    type Err = Invalid;

    fn from_str(typed: &str) -> Result<Self, Invalid> {
        if typed == "*" {
            return Ok(HostPattern::Any);
        }
        if typed.strip_prefix("*:").is_some_and(|port| port.parse::<Port>().is_ok()) {
            return Err(Invalid::HostHasPort(typed.into()));
        }
        let Some(domain) = typed.strip_prefix("*.") else {
            return match typed.strip_prefix('.').map(str::parse) {
                Some(Ok(Host::Name(name))) => Err(Invalid::LeadingDot(typed.into(), name.0)),
                _ => typed.parse().map(HostPattern::One),
            };
        };
        match domain.parse() {
            Ok(Host::Name(name)) => Ok(HostPattern::Under(name)),
            Ok(Host::Address(_)) => Err(Invalid::Wildcard(typed.into())),
            Err(Invalid::HostIsUrl(..)) => {
                Err(Invalid::HostIsUrl(typed.into(), host_of_url(typed)))
            }
            Err(Invalid::SeveralHosts(_)) => Err(Invalid::SeveralHosts(typed.into())),
            Err(Invalid::HostHasPort(_)) => Err(Invalid::HostHasPort(typed.into())),
            Err(Invalid::Wildcard(_)) => Err(Invalid::Wildcard(typed.into())),
            Err(_) => Err(Invalid::Host(typed.into())),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostPattern::Any => to.write_str("*"),
            HostPattern::Under(domain) => write!(to, "*.{}", domain.0),
            HostPattern::One(host) => host.fmt(to),
        }
    }
}

stored_as_text!(Host, HostPattern);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canonical(typed: &str) -> Option<String> {
        typed.parse::<Host>().ok().map(|host| host.to_string())
    }

    #[test]
    fn one_host_has_one_form() {
        for (typed, form) in [
            ("Example.COM", "example.com"),
            ("example.com.", "example.com"),
            ("MÜNCHEN.example", "xn--mnchen-3ya.example"),
            ("xn--mnchen-3ya.example", "xn--mnchen-3ya.example"),
            ("例え。テスト", "xn--r8jz45g.xn--zckzah"),
            ("r3---sn-x.googlevideo.com", "r3---sn-x.googlevideo.com"),
            ("_mongodb._tcp.a.example", "_mongodb._tcp.a.example"),
            ("nas.local", "nas.local"),
            ("163.com", "163.com"),
            ("1.2.3.4.in-addr.arpa", "1.2.3.4.in-addr.arpa"),
            ("nas.3d", "nas.3d"),
            ("192.0.2.1", "192.0.2.1"),
            ("１９２.0.2.1", "192.0.2.1"),
            ("[2001:DB8::1]", "2001:db8::1"),
            ("2001:db8:0:0::1", "2001:db8::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
        ] {
            assert_eq!(canonical(typed).as_deref(), Some(form), "{typed}");
        }
    }

    #[test]
    fn what_readers_differ_on_is_no_host() {
        for typed in [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "a b",
            "a\0.b",
            "a\n",
            "-a.b",
            "a-.b",
            "user@a",
            "a/b",
            "a:443",
            "https://a",
            "a%2eb",
            "127.1",
            "2130706433",
            "0x7f.1",
            "0177.0.0.1",
            "1.2.3",
            "1.2.3.4.5",
            "a.0x7f",
            "192.168.1.1-20",
            "192.168.1.1a",
            "a b.c",
            "256.0.0.1",
            "fe80::1%eth0",
            "[::1",
            "[a]",
            "[1.2.3.4]",
            "::1]",
            "*",
            "a.*",
            "a,b",
            "a$b",
            "a\u{202e}b",
            "xn--\u{fe}",
            "a\u{ff0f}b",
        ] {
            assert_eq!(canonical(typed), None, "{typed}");
        }
        assert_eq!(canonical(&format!("{}.a", "x".repeat(64))), None);
        assert_eq!(canonical(&vec!["x".repeat(50); 6].join(".")), None);
    }

    #[test]
    fn a_star_means_the_names_under_and_not_the_name() {
        let meant = |pattern: &str, host: &str| {
            pattern.parse::<HostPattern>().unwrap().matches(&host.parse().unwrap())
        };
        assert!(meant("*.telegram.org", "api.Telegram.org."));
        assert!(meant("*.telegram.org", "a.b.telegram.org"));
        assert!(!meant("*.telegram.org", "telegram.org"));
        assert!(!meant("*.telegram.org", "eviltelegram.org"));
        assert!(!meant("*.telegram.org", "telegram.org.evil.com"));
        assert!(!meant("*.telegram.org", "192.0.2.1"));
        assert!(meant("*", "192.0.2.1") && meant("*", "a.b"));
        assert!(meant("a.b", "A.b") && !meant("a.b", "x.a.b"));
    }

    #[test]
    fn covering_is_meaning_no_fewer() {
        let covers = |wide: &str, narrow: &str| {
            wide.parse::<HostPattern>().unwrap().covers(&narrow.parse().unwrap())
        };
        assert!(covers("*", "*") && covers("*", "*.a") && covers("*", "192.0.2.1"));
        assert!(covers("*.a.b", "*.a.b") && covers("*.a.b", "*.x.a.b") && covers("*.a.b", "x.a.b"));
        assert!(!covers("*.a.b", "a.b") && !covers("*.a.b", "*.b") && !covers("*.a.b", "*"));
        assert!(covers("a.b", "a.b") && !covers("a.b", "*.a.b") && !covers("a.b", "*"));
    }

    #[test]
    fn what_was_meant_is_said() {
        for (typed, said) in [
            (
                "https://me@A.b:443/x?y",
                "'https://me@A.b:443/x?y' is more than a host: write a.b alone",
            ),
            ("*.a.b/", "'*.a.b/' is more than a host: write *.a.b alone"),
            (
                "https://a b/",
                "'https://a b/' is more than a host: write the name alone, such as example.com",
            ),
            ("a.b:443", "'a.b:443' has a port: leave :443 out"),
            ("*:80", "'*:80' has a port: leave :80 out"),
            ("*.a.b:1", "'*.a.b:1' has a port: leave :1 out"),
            (".a.b", "'.a.b' isn't a host: write *.a.b for every name under a.b"),
            ("a.b,c.d", "'a.b,c.d' is several hosts: write each by itself"),
            ("a.b, c.d", "'a.b, c.d' is several hosts: write each by itself"),
            ("*.a.b c.d", "'*.a.b c.d' is several hosts: write each by itself"),
            (" a", "'\\x20a' isn't a host: write a name such as example.com, or an address"),
            ("..a", "'..a' isn't a host: write a name such as example.com, or an address"),
        ] {
            assert_eq!(typed.parse::<HostPattern>().unwrap_err().to_string(), said);
        }
    }

    #[test]
    fn stars_elsewhere_are_refused() {
        for typed in
            ["**", "*.", "*a.b", "a.*.b", "*.*.b", "*.192.0.2.1", "*.[::1]", "*:80", "*.a:1"]
        {
            assert!(typed.parse::<HostPattern>().is_err(), "{typed}");
        }
    }

    proptest! {
        #[test]
        fn the_form_is_its_own_form(typed in "\\PC{0,30}|[a-zA-Z0-9.:\\[\\]*_-]{0,30}") {
            if let Ok(pattern) = typed.parse::<HostPattern>() {
                let shown = pattern.to_string();
                prop_assert!(shown.is_ascii());
                prop_assert_eq!(shown.parse(), Ok(pattern));
            }
        }
    }
}
