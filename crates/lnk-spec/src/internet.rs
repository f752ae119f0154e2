//! Hosts of the internet.

use std::fmt;
use std::str::FromStr;

use ipnet::IpNet;

use crate::address::{Class, class_of};
use crate::endpoint::Endpoint;
use crate::host::{Host, HostPattern};
use crate::invalid::Invalid;
use crate::number::Port;
use crate::text::stored_as_text;

/// An entry of `[internet] hosts`: never a host that is known to be elsewhere, as
/// this machine, a private address or a metadata service is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InternetHost(HostPattern);

impl InternetHost {
    /// `*`: any.
    pub const ANY: InternetHost = InternetHost(HostPattern::Any);

    /// Which hosts it means.
    #[must_use]
    pub fn pattern(&self) -> &HostPattern {
        &self.0
    }

    /// Whether a host is meant.
    #[must_use]
    pub fn matches(&self, host: &Host) -> bool {
        self.0.matches(host)
    }

    /// Whether every host that `other` means is meant.
    #[must_use]
    pub fn covers(&self, other: &InternetHost) -> bool {
        self.0.covers(&other.0)
    }
}

impl FromStr for InternetHost {
    type Err = Invalid;

    fn from_str(typed: &str) -> Result<Self, Invalid> {
        let pattern: HostPattern = typed.parse().map_err(|error| match error {
            Invalid::HostIsUrl(..) if typed.parse::<IpNet>().is_ok() => {
                Invalid::RangeElsewhere(typed.into())
            }
            Invalid::HostHasPort(_) if is_further_endpoint(typed) => {
                Invalid::HostIsEndpoint(typed.into())
            }
            error => error,
        })?;
        let class = match &pattern {
            HostPattern::Any => None,
            HostPattern::Under(domain) => class_of(&Host::Name(domain.clone())),
            HostPattern::One(host) => class_of(host),
        };
        match class {
            None | Some(Class::Public) => Ok(InternetHost(pattern)),
            Some(class) => Err(Invalid::Elsewhere(typed.into(), class)),
        }
    }
}

/// Whether it is an endpoint that a host alone doesn't open.
fn is_further_endpoint(typed: &str) -> bool {
    let open = |port: Port| [443, 80].contains(&port.get());
    typed.parse::<Endpoint>().is_ok_and(|endpoint| !open(endpoint.port()))
}

impl fmt::Display for InternetHost {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

stored_as_text!(InternetHost);

#[cfg(test)]
mod tests {
    use super::*;

    fn error(typed: &str) -> String {
        typed.parse::<InternetHost>().unwrap_err().to_string()
    }

    #[test]
    fn names_and_public_addresses_are_of_the_internet() {
        for typed in ["*", "*.a.b", "a.b", "nas.local", "nas", "1.1.1.1", "2606:4700::1"] {
            assert_eq!(typed.parse::<InternetHost>().unwrap().to_string(), typed);
        }
        for typed in ["localhost.a.b", "mylocalhost", "metadata.google.internal.a.b"] {
            assert!(typed.parse::<InternetHost>().is_ok(), "{typed}");
        }
    }

    #[test]
    fn a_port_or_a_range_says_where_it_belongs() {
        for typed in ["a.b:443", "a.b:80", "*:443"] {
            let port = &typed[typed.find(':').unwrap()..];
            assert_eq!(error(typed), format!("'{typed}' has a port: leave {port} out"));
        }
        for typed in ["a.b:22", "*.a.b.c:8443"] {
            let port = &typed[typed.find(':').unwrap()..];
            assert_eq!(
                error(typed),
                format!(
                    "'{typed}' has a port: leave {port} out, and open the endpoint with --tcp \
                     {typed}, or tcp in [internet]"
                )
            );
        }
        for typed in ["93.184.215.0/24", "10.0.0.0/8", "fc00::/7"] {
            assert_eq!(
                error(typed),
                format!(
                    "'{typed}' is a range: only those of your network open, with --lan-host, or \
                     hosts in [lan]"
                )
            );
        }
    }

    #[test]
    fn what_is_elsewhere_says_which_grant_opens_it() {
        for typed in
            ["127.0.0.1", "127.9.9.9", "0.0.0.0", "[::1]", "::", "::ffff:127.0.0.1", "LocalHost."]
        {
            assert_eq!(
                error(typed),
                format!(
                    "'{typed}' is an address of this machine: --port PORT, or ports in \
                     [localhost], opens a port of it"
                )
            );
        }
        for typed in ["a.localhost", "*.localhost"] {
            assert!(error(typed).contains("this machine"), "{typed}");
        }
        for typed in ["10.0.0.5", "192.168.1.1", "172.31.0.1", "fd00::5", "::ffff:10.0.0.1"] {
            assert_eq!(
                error(typed),
                format!(
                    "'{typed}' is an address of your network: --lan-host {typed}, or hosts in \
                     [lan], opens it"
                )
            );
        }
        for (typed, what) in [
            ("169.254.169.254", "a cloud's metadata service"),
            ("metadata.google.internal", "a cloud's metadata service"),
            ("fd00:ec2::254", "a cloud's metadata service"),
            ("169.254.1.1", "a link-local address"),
            ("fe80::1", "a link-local address"),
            ("100.64.0.1", "an address of a carrier's shared range"),
            ("224.0.0.1", "a multicast address"),
            ("192.0.2.1", "a reserved address"),
            ("64:ff9b::808:808", "an IPv4 address hidden in an IPv6 one"),
        ] {
            assert_eq!(error(typed), format!("'{typed}' is {what}: no grant opens it"));
        }
    }
}
