//! Endpoints: a host and a port.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use crate::address::{Class, class_of};
use crate::host::{Host, HostName, HostPattern};
use crate::internet::InternetHost;
use crate::invalid::Invalid;
use crate::number::Port;
use crate::shown::word;
use crate::text::stored_as_text;

/// The ports the sandbox itself listens on inside: its DNS and its proxy.
const OWN_PORTS: [(u16, &str); 2] = [(53, "names"), (40781, "its proxy")];

/// Domains whose names belong to different customers though the public suffix
/// list has no entry for it. With them, how many labels in front make a domain
/// one customer's; none where no such number holds for all.
const SHARED: [(&str, Option<usize>); 22] = [
    ("mongodb.net", Some(1)),
    ("amazonaws.com", None),
    ("windows.net", None),
    ("azure.com", None),
    ("cloudapp.net", None),
    ("googleapis.com", None),
    ("ondigitalocean.com", None),
    ("supabase.com", None),
    ("supabase.co", Some(1)),
    ("neon.tech", None),
    ("psdb.cloud", None),
    ("cockroachlabs.cloud", None),
    ("aivencloud.com", None),
    ("upstash.io", Some(1)),
    ("redis-cloud.com", None),
    ("redislabs.com", None),
    ("render.com", None),
    ("railway.app", None),
    ("rlwy.net", None),
    ("confluent.cloud", None),
    ("elastic-cloud.com", None),
    ("snowflakecomputing.com", None),
];

/// A host, or the names under one domain, and a port: `github.com:22`,
/// `*.abc.mongodb.net:27017`, `[2606:4700::1]:5432`. Of the internet, as
/// [`InternetHost`] is, or of the user's network.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    host: HostPattern,
    port: Port,
}

impl Endpoint {
    /// The host, or the names under one domain; never any host.
    #[must_use]
    pub fn host(&self) -> &HostPattern {
        &self.host
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> Port {
        self.port
    }

    /// What opens its host.
    #[must_use]
    pub fn host_opened_by(&self) -> Opener {
        let (is_local, entry) = match &self.host {
            HostPattern::One(host @ Host::Address(_)) => {
                (class_of(host) == Some(Class::Private), host.to_string())
            }
            HostPattern::One(Host::Name(name)) => (name.is_local(), name.as_str().to_owned()),
            // A part of the user's network has no entry of its own.
            HostPattern::Under(name) if name.is_local() => (true, "*".to_owned()),
            pattern => (false, pattern.to_string()),
        };
        let (flag, section) =
            if is_local { ("--lan-host", "lan") } else { ("--internet-host", "internet") };
        Opener { flag, section, entry }
    }

    /// The flag that opens it, where its host is open.
    #[must_use]
    pub fn flag(&self) -> String {
        format!("--tcp {}", word(self.to_string()))
    }

    /// Whether every endpoint that `other` means is meant.
    #[must_use]
    pub fn covers(&self, other: &Endpoint) -> bool {
        self.port == other.port && self.host.covers(&other.host)
    }
}

/// What opens a host: a flag, or an entry of `hosts`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Opener {
    flag: &'static str,
    /// The section that has the `hosts`.
    pub section: &'static str,
    /// The entry, as the flag has it too.
    pub entry: String,
}

/// The flag and its value, as a shell takes them.
impl fmt::Display for Opener {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {}", self.flag, word(&self.entry))
    }
}

impl FromStr for Endpoint {
    type Err = Invalid;

    fn from_str(typed: &str) -> Result<Self, Invalid> {
        let invalid = || Invalid::Endpoint(typed.into());
        let (host, port) = typed.rsplit_once(':').ok_or_else(invalid)?;
        // Without brackets it can't be told where the address ends.
        if host.parse::<Ipv6Addr>().is_ok() {
            return Err(Invalid::EndpointBrackets(typed.into(), format!("[{host}]:{port}")));
        }
        if host.is_empty() || (host.contains(':') && !host.starts_with('[')) {
            return Err(invalid());
        }
        let host = match host.parse::<InternetHost>() {
            Ok(host) => host.pattern().clone(),
            // `[lan]` may open it.
            Err(Invalid::Elsewhere(_, Class::Private)) => host.parse()?,
            Err(error) => return Err(error),
        };
        let port: Port = port.parse()?;
        if let Some((_, what)) = OWN_PORTS.iter().find(|(own, _)| *own == port.get()) {
            return Err(Invalid::OwnPort(typed.into(), port.get(), what));
        }
        match &host {
            HostPattern::Any => Err(Invalid::AnyEndpoint(typed.into())),
            HostPattern::Under(domain) if is_shared(domain) => {
                Err(Invalid::SharedDomain(typed.into(), domain.as_str().into()))
            }
            _ => Ok(Endpoint { host, port }),
        }
    }
}

/// Whether names under a domain belong to different people.
fn is_shared(domain: &HostName) -> bool {
    let name = domain.as_str();
    // A name under it shows the list's rules of the kind `*.domain` too.
    let below = format!("x.{name}");
    let is_suffix = |name: &str| psl::suffix_str(name) == Some(name);
    is_suffix(name)
        || is_suffix(&below)
        || SHARED.iter().any(|(shared, own)| {
            let labels = if name == *shared {
                Some(0)
            } else {
                let front = name.strip_suffix(shared).and_then(|front| front.strip_suffix('.'));
                front.map(|front| front.split('.').count())
            };
            labels.is_some_and(|labels| own.is_none_or(|own| labels < own))
        })
}

impl fmt::Display for Endpoint {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            HostPattern::One(Host::Address(address)) if address.is_ipv6() => {
                write!(to, "[{address}]:{}", self.port)
            }
            host => write!(to, "{host}:{}", self.port),
        }
    }
}

stored_as_text!(Endpoint);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_and_a_port() {
        for (typed, form) in [
            ("GitHub.com.:22", "github.com:22"),
            ("1.1.1.1:5432", "1.1.1.1:5432"),
            ("[2606:4700:0::1]:5432", "[2606:4700::1]:5432"),
            ("*.abc.mongodb.net:27017", "*.abc.mongodb.net:27017"),
            ("*.example.co.uk:1", "*.example.co.uk:1"),
            ("example.com:443", "example.com:443"),
            ("10.0.0.1:22", "10.0.0.1:22"),
            ("[FD00::5]:22", "[fd00::5]:22"),
        ] {
            let endpoint: Endpoint = typed.parse().unwrap();
            assert_eq!(endpoint.to_string(), form);
            assert_eq!(form.parse(), Ok(endpoint));
        }
        for typed in [
            "",
            "a",
            "a:",
            ":22",
            "a:0",
            "a:65536",
            "a:+1",
            "a:022",
            "a:ssh",
            "::1:22",
            "a:b:22",
            "https://a:22",
            "*:22",
            "a.b:53",
            "a.b:40781",
            "*.a:22:22",
            "user@a:22",
            "localhost:22",
            "[::1]:22",
            "127.0.0.1:22",
            "169.254.169.254:80",
            "10.0.0.0/8:22",
        ] {
            assert!(typed.parse::<Endpoint>().is_err(), "{typed}");
        }
        assert_eq!(
            "2606:4700::1:5432".parse::<Endpoint>().unwrap_err().to_string(),
            "'2606:4700::1:5432': it can't be told where the address ends; write \
             [2606:4700::1]:5432, if that is meant"
        );
    }

    #[test]
    fn what_opens_its_host_is_a_flag_to_paste() {
        for (typed, flag) in [
            ("github.com:22", "--internet-host github.com"),
            ("*.abc.mongodb.net:1", "--internet-host '*.abc.mongodb.net'"),
            ("1.1.1.1:22", "--internet-host 1.1.1.1"),
            ("nas.local:22", "--lan-host nas.local"),
            ("*.nas.local:22", "--lan-host '*'"),
            ("10.0.0.1:22", "--lan-host 10.0.0.1"),
            ("[fd00::5]:22", "--lan-host fd00::5"),
        ] {
            let endpoint: Endpoint = typed.parse().unwrap();
            assert_eq!(endpoint.host_opened_by().to_string(), flag);
        }
    }

    #[test]
    fn shared_domains_are_nobodys() {
        for typed in [
            "*.com:1",
            "*.co.uk:1",
            "*.github.io:1",
            "*.mongodb.net:1",
            "*.example:1",
            "*.ck:1",
            "*.kawasaki.jp:1",
            "*.amazonaws.com:1",
            "*.us-east-1.rds.amazonaws.com:1",
            "*.compute.amazonaws.com:1",
            "*.MongoDB.net.:1",
            "*.database.windows.net:1",
        ] {
            assert!(matches!(typed.parse::<Endpoint>(), Err(Invalid::SharedDomain(..))), "{typed}");
        }
    }
}
