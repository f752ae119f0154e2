//! What a sandbox may reach: `[internet]`, `[lan]`, judged before any name is
//! looked up.
//!
//! A name may stand in both. It's looked up when either opens it; each address it
//! resolves to is then dialled only if its class fits: a public one needs the name
//! in `[internet]`, a private one the name, or a range that holds the address, in
//! `[lan]`. Names that no public zone has (`nas`, `.local`, `.internal`,
//! `.home.arpa`) are the LAN's alone; `*` of `[lan]` opens them, and no other name:
//! those it would have to look up on the internet.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use lnk_spec::endpoint::{Endpoint, Opener};
use lnk_spec::host::{Host, HostName, HostPattern};
use lnk_spec::lan::{LanHost, PRIVATE};
use lnk_spec::spec::{Internet, Lan};
use lnk_spec::upstream::Upstream;

use crate::address::{Class, class_of, classify};

/// Domains of the names that addresses have (RFC 1035, 3.5; RFC 3596, 2.5).
const REVERSE: [&str; 2] = ["in-addr.arpa", "ip6.arpa"];

/// The grants of one wire.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// `[internet]`.
    pub internet: Internet,
    /// `[lan]`.
    pub lan: Lan,
}

/// Where a call wants to go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The host, canonical.
    pub host: Host,
    /// The port, 1 to 65535.
    pub port: u16,
}

/// How a call asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// CONNECT.
    Connect,
    /// A plain HTTP request in absolute form.
    Http,
    /// A connection to the address that stands for an endpoint's name.
    Endpoint,
}

/// What a target may be reached by: the internet, the LAN, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Public addresses, through the upstream.
    pub internet: bool,
    /// Private addresses in one of these ranges, directly; never through the
    /// upstream.
    pub lan: Vec<IpNet>,
    /// CONNECT must begin with a TLS hello whose server name is the host: port 443
    /// of a host of `[internet] hosts`, where no `tcp` endpoint names it and the LAN
    /// doesn't open it by name.
    pub tls_only: bool,
}

impl Reach {
    /// Whether an address may be dialled, as far as its class tells.
    #[must_use]
    pub fn allows(&self, address: IpAddr) -> bool {
        match classify(address) {
            Class::Public => self.internet,
            Class::Private => self.lan.iter().any(|range| range.contains(&address)),
            _ => false,
        }
    }
}

/// Why a call is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    /// One line in ASCII: what was refused and which flag or key would allow it;
    /// never more. It is the body and the `X-Link-Reason` of a 403.
    pub reason: String,
    /// A metadata service was asked for, which pauses a wire.
    pub metadata: bool,
}

/// `host:port`, with brackets round an IPv6 address.
impl fmt::Display for Target {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(IpAddr::V6(address)) => write!(to, "[{address}]:{}", self.port),
            host => write!(to, "{host}:{}", self.port),
        }
    }
}

impl Policy {
    /// What a target may be reached by. Nothing is looked up: of a name, only the
    /// name is judged here, of an address its class.
    ///
    /// # Errors
    /// No grant opens it.
    pub fn judge(&self, target: &Target, asked: Asked) -> Result<Reach, Refusal> {
        if asked == Asked::Endpoint && !self.names_in_tcp(target) {
            return Err(refusal(format!("{target} isn't open: {}", tcp_hint(target))));
        }
        match &target.host {
            Host::Address(address) => self.judge_address(target, *address, asked),
            Host::Name(name) => self.judge_name(target, name, asked),
        }
    }

    fn judge_address(
        &self,
        target: &Target,
        address: IpAddr,
        asked: Asked,
    ) -> Result<Reach, Refusal> {
        match classify(address) {
            Class::Public => {
                self.judge_internet(target, asked)?;
                Ok(Reach { internet: true, lan: vec![], tls_only: self.tls_only(target, asked) })
            }
            Class::Private if self.names_in_lan(&target.host) => {
                Ok(Reach { internet: false, lan: vec![address.into()], tls_only: false })
            }
            class => Err(refused_address(target, "is", class)),
        }
    }

    fn judge_name(&self, target: &Target, name: &HostName, asked: Asked) -> Result<Reach, Refusal> {
        if let Some(class) = class_of(&target.host) {
            return Err(refused_address(target, "is", class));
        }
        if self.names_in_lan(&target.host) {
            let internet = !name.is_local() && self.judge_internet(target, asked).is_ok();
            return Ok(Reach { internet, lan: PRIVATE.to_vec(), tls_only: false });
        }
        if name.is_local() {
            if self.lan.hosts.contains(&LanHost::Any) {
                return Ok(Reach { internet: false, lan: PRIVATE.to_vec(), tls_only: false });
            }
            let hint = lan_hint(target);
            return Err(refusal(format!(
                "{name} is a name of your network: {hint}",
                name = name.as_str()
            )));
        }
        self.judge_internet(target, asked)?;
        Ok(Reach { internet: true, lan: self.lan_ranges(), tls_only: self.tls_only(target, asked) })
    }

    /// Whether `[internet]` opens a host, at this port, asked for in this way.
    fn judge_internet(&self, target: &Target, asked: Asked) -> Result<(), Refusal> {
        if !self.internet.hosts.iter().any(|pattern| pattern.matches(&target.host)) {
            return Err(refusal(format!("{target} isn't open: {}", internet_hint(target, asked))));
        }
        match asked {
            Asked::Connect | Asked::Endpoint if target.port == 443 || self.names_in_tcp(target) => {
                Ok(())
            }
            // An endpoint takes whatever a program says.
            Asked::Http if target.port == 80 || self.names_in_tcp(target) => Ok(()),
            Asked::Http if target.port == 443 => {
                Err(refusal(format!("{target} isn't open to plain HTTP: write https://")))
            }
            _ => Err(refusal(format!("{target} isn't open: {}", tcp_hint(target)))),
        }
    }

    fn tls_only(&self, target: &Target, asked: Asked) -> bool {
        asked == Asked::Connect && target.port == 443 && !self.names_in_tcp(target)
    }

    /// Whether `[internet] tcp` names it.
    pub(crate) fn names_in_tcp(&self, target: &Target) -> bool {
        let meant = |endpoint: &Endpoint| {
            endpoint.port().get() == target.port && endpoint.host().matches(&target.host)
        };
        self.internet.tcp.iter().any(meant)
    }

    /// Why no endpoint has a name, and what would open one: its port isn't known.
    pub(crate) fn no_name(&self, name: &HostName) -> String {
        let host = Host::Name(name.clone());
        let text = name.as_str();
        match class_of(&host) {
            Some(Class::Loopback) => {
                return "it is this machine: add --port PORT, or it to ports in [localhost], and \
                        ask for it at 127.0.0.1:PORT"
                    .into();
            }
            Some(class) => return format!("{text} is {}: no grant opens it", class.in_words()),
            None => {}
        }
        if REVERSE.iter().any(|domain| name.is_within(domain)) {
            return "no address has a name in here, and no grant gives it one".into();
        }
        let endpoint = match format!("{text}:1").parse::<Endpoint>() {
            Ok(endpoint) if !text.starts_with('_') => endpoint,
            // Of a service, or otherwise nothing to connect to.
            _ => return "no endpoint has this name, nor a service that is looked up".into(),
        };
        let openers = self.openers(std::iter::once(&endpoint));
        let flags = vec![format!("--tcp {text}:PORT")];
        format!("no endpoint has this name: {}", adding(openers, flags))
    }

    /// What opens closed endpoints: all of them by one flag, where they are a domain's.
    pub(crate) fn endpoint_hint(&self, closed: &[Target]) -> String {
        let mut endpoints: Vec<Endpoint> = Vec::new();
        for endpoint in closed.iter().filter_map(|target| target.to_string().parse().ok()) {
            if !endpoints.contains(&endpoint) {
                endpoints.push(endpoint);
            }
        }
        if let Some(domain) = domain_of(&endpoints) {
            endpoints = vec![domain];
        }
        if endpoints.is_empty() {
            return "no grant opens that".into();
        }
        let flags = endpoints.iter().map(Endpoint::flag).collect();
        adding(self.openers(endpoints.iter()), flags)
    }

    /// What opens the hosts of endpoints that aren't open, each once.
    fn openers<'e>(&self, endpoints: impl Iterator<Item = &'e Endpoint>) -> Vec<Opener> {
        let closed = endpoints.filter(|it| !self.internet.reaches(&self.lan, it.host()));
        closed.map(Endpoint::host_opened_by).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Whether an entry of `[lan]` is this name, or holds this address.
    fn names_in_lan(&self, host: &Host) -> bool {
        let asked = LanHost::One(host.clone());
        self.lan.hosts.iter().any(|entry| entry.covers(&asked))
    }

    /// The ranges of `[lan]`, for a name that `[internet]` opens; none where the
    /// upstream resolves names, for then nothing is looked up here.
    fn lan_ranges(&self) -> Vec<IpNet> {
        if matches!(self.internet.way_out(), Upstream::Socks5Name(_)) {
            return vec![];
        }
        let ranges = self.lan.hosts.iter().map(|entry| match entry {
            LanHost::Any => PRIVATE.to_vec(),
            LanHost::Range(range) => vec![*range],
            LanHost::One(Host::Address(address)) => vec![(*address).into()],
            LanHost::One(Host::Name(_)) => vec![],
        });
        ranges.flatten().collect()
    }
}

/// The refusal of a target that `is`, or `resolves to`, an address of such a class.
pub(crate) fn refused_address(target: &Target, is: &str, class: Class) -> Refusal {
    let Target { host, port } = target;
    let hint = match class {
        Class::Public => format!("add --internet-host {host}, or it to hosts in [internet]"),
        Class::Private => lan_hint(target),
        Class::Loopback => {
            format!(
                "add --port {port}, or it to ports in [localhost], and ask for it at 127.0.0.1:{port}"
            )
        }
        _ => "no grant opens it".into(),
    };
    let reason = format!("{host} {is} {}: {hint}", class.in_words());
    Refusal { reason, metadata: class == Class::Metadata }
}

fn refusal(reason: String) -> Refusal {
    Refusal { reason, metadata: false }
}

fn lan_hint(target: &Target) -> String {
    format!("add --lan-host {}, or it to hosts in [lan]", target.host)
}

fn internet_hint(target: &Target, asked: Asked) -> String {
    let host = &target.host;
    match (asked, target.port) {
        (Asked::Connect, 443) | (Asked::Http, 80) => {
            format!("add --internet-host {host}, or it to hosts in [internet]")
        }
        _ if !may_be_endpoint(target) => "no grant opens that port".into(),
        _ => format!(
            "add --internet-host {host} and --tcp {target}, or them to hosts and tcp in [internet]"
        ),
    }
}

fn tcp_hint(target: &Target) -> String {
    if may_be_endpoint(target) {
        format!("add --tcp {target}, or it to tcp in [internet]")
    } else {
        "no grant opens that port".into()
    }
}

/// The domain that several endpoints of one port are under, where it may be an endpoint.
fn domain_of(endpoints: &[Endpoint]) -> Option<Endpoint> {
    let [first, _, ..] = endpoints else { return None };
    let HostPattern::One(Host::Name(name)) = first.host() else { return None };
    let (_, domain) = name.as_str().split_once('.')?;
    let domain: Endpoint = format!("*.{domain}:{}", first.port()).parse().ok()?;
    endpoints.iter().all(|endpoint| domain.covers(endpoint)).then_some(domain)
}

/// What to add for endpoints: flags to paste, or entries.
fn adding(openers: Vec<Opener>, tcp: Vec<String>) -> String {
    let sections: BTreeSet<&str> = openers.iter().map(|opener| opener.section).collect();
    let keys = match sections.into_iter().collect::<Vec<_>>().as_slice() {
        [] => "tcp in [internet]",
        ["lan"] => "hosts in [lan] and tcp in [internet]",
        ["internet"] => "hosts and tcp in [internet]",
        _ => "hosts in [internet] and [lan] and tcp in [internet]",
    };
    let it = if openers.len() + tcp.len() == 1 { "it" } else { "them" };
    let flags: Vec<String> = openers.iter().map(Opener::to_string).chain(tcp).collect();
    format!("add {}, or {it} to {keys}", flags.join(" "))
}

/// Whether `--tcp` takes it: not the sandbox's own ports.
fn may_be_endpoint(target: &Target) -> bool {
    target.to_string().parse::<Endpoint>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `--internet-host`, `--tcp`, `--lan-host`, each a list with spaces.
    fn policy(hosts: &str, tcp: &str, lan: &str) -> Policy {
        let internet = Internet {
            hosts: hosts.split_whitespace().map(|host| host.parse().unwrap()).collect(),
            tcp: tcp.split_whitespace().map(|endpoint| endpoint.parse().unwrap()).collect(),
            ..Internet::default()
        };
        let lan = Lan { hosts: lan.split_whitespace().map(|host| host.parse().unwrap()).collect() };
        Policy { internet, lan }
    }

    fn target(endpoint: &str) -> Target {
        let (host, port) = endpoint.rsplit_once(':').unwrap();
        Target { host: host.parse().unwrap(), port: port.parse().unwrap() }
    }

    fn reason(policy: &Policy, endpoint: &str, asked: Asked) -> String {
        policy.judge(&target(endpoint), asked).unwrap_err().reason
    }

    #[test]
    fn the_internet_is_443_by_connect_and_80_by_http() {
        let policy = policy("example.com *.telegram.org", "", "");
        let open = |endpoint, asked| policy.judge(&target(endpoint), asked);
        let reach = |tls_only| Ok(Reach { internet: true, lan: vec![], tls_only });
        assert_eq!(open("example.com:443", Asked::Connect), reach(true));
        assert_eq!(open("example.com:80", Asked::Http), reach(false));
        assert_eq!(open("api.telegram.org:443", Asked::Connect), reach(true));
        for (endpoint, asked, why) in [
            (
                "example.com:22",
                Asked::Connect,
                "example.com:22 isn't open: add --tcp example.com:22, or it to tcp in [internet]",
            ),
            (
                "example.com:80",
                Asked::Connect,
                "example.com:80 isn't open: add --tcp example.com:80, or it to tcp in [internet]",
            ),
            (
                "example.com:443",
                Asked::Http,
                "example.com:443 isn't open to plain HTTP: write https://",
            ),
            (
                "example.com:8080",
                Asked::Http,
                "example.com:8080 isn't open: add --tcp example.com:8080, or it to tcp in [internet]",
            ),
            (
                "example.com:53",
                Asked::Connect,
                "example.com:53 isn't open: no grant opens that port",
            ),
            (
                "telegram.org:443",
                Asked::Connect,
                "telegram.org:443 isn't open: add --internet-host telegram.org, or it to hosts in [internet]",
            ),
            (
                "evilexample.com:80",
                Asked::Http,
                "evilexample.com:80 isn't open: \
                 add --internet-host evilexample.com, or it to hosts in [internet]",
            ),
            (
                "github.com:22",
                Asked::Connect,
                "github.com:22 isn't open: add --internet-host github.com and --tcp github.com:22, \
                 or them to hosts and tcp in [internet]",
            ),
            (
                "[2606:4700::1]:443",
                Asked::Connect,
                "[2606:4700::1]:443 isn't open: \
                 add --internet-host 2606:4700::1, or it to hosts in [internet]",
            ),
        ] {
            assert_eq!(reason(&policy, endpoint, asked), why);
        }
    }

    #[test]
    fn an_endpoint_is_its_port_by_connect_and_plain_http() {
        let policy = policy("*", "github.com:22 *.abc.mongodb.net:27017 plain.example:443", "");
        let open = |endpoint, asked| policy.judge(&target(endpoint), asked).is_ok();
        assert!(open("github.com:22", Asked::Connect) && open("github.com:443", Asked::Connect));
        assert!(open("x.abc.mongodb.net:27017", Asked::Connect));
        assert!(open("github.com:22", Asked::Http) && open("plain.example:443", Asked::Http));
        assert!(!open("github.com:23", Asked::Http) && !open("other.example:443", Asked::Http));
        assert!(!open("github.com:23", Asked::Connect));
        assert!(!open("other.com:22", Asked::Connect));
        assert!(!open("abc.mongodb.net:27017", Asked::Connect));
        let named = policy.judge(&target("plain.example:443"), Asked::Connect).unwrap();
        assert!(!named.tls_only);
        assert!(policy.judge(&target("other.example:443"), Asked::Connect).unwrap().tls_only);
    }

    #[test]
    fn the_address_of_an_endpoints_name_is_its_ports_alone() {
        let policy = policy("*", "a.example:5432 b.example:443", "nas.local c.example 10.0.0.0/8");
        let open = |endpoint| policy.judge(&target(endpoint), Asked::Endpoint);
        assert!(!open("b.example:443").unwrap().tls_only);
        let reach = open("a.example:5432").unwrap();
        assert!(reach.internet && reach.allows("10.0.0.1".parse().unwrap()));
        for closed in
            ["a.example:443", "a.example:80", "b.example:5432", "nas.local:5432", "c.example:1"]
        {
            let reason = open(closed).unwrap_err().reason;
            let hint =
                format!("{closed} isn't open: add --tcp {closed}, or it to tcp in [internet]");
            assert_eq!(reason, hint);
        }
    }

    #[test]
    fn what_opens_a_name_is_told_and_never_what_cant_be_opened() {
        let policy = policy("a.example", "a.example:1", "nas.local");
        for (name, said) in [
            (
                "b.example",
                "no endpoint has this name: add --internet-host b.example --tcp b.example:PORT, or \
                 them to hosts and tcp in [internet]",
            ),
            (
                "a.example",
                "no endpoint has this name: add --tcp a.example:PORT, or it to tcp in [internet]",
            ),
            (
                "nas.local",
                "no endpoint has this name: add --tcp nas.local:PORT, or it to tcp in [internet]",
            ),
            (
                "nas",
                "no endpoint has this name: add --lan-host nas --tcp nas:PORT, or them to hosts in \
                 [lan] and tcp in [internet]",
            ),
            (
                "metadata.google.internal",
                "metadata.google.internal is a cloud's metadata service: no grant opens it",
            ),
            (
                "x.localhost",
                "it is this machine: add --port PORT, or it to ports in [localhost], and ask for \
                 it at 127.0.0.1:PORT",
            ),
            ("_x._udp.a.example", "no endpoint has this name, nor a service that is looked up"),
            ("1.0.77.127.in-addr.arpa", "no address has a name in here, and no grant gives it one"),
        ] {
            let Ok(Host::Name(name)) = name.parse() else { panic!("{name}") };
            assert_eq!(policy.no_name(&name), said);
        }
    }

    #[test]
    fn all_closed_endpoints_are_opened_at_once() {
        let hint = |hosts, closed: &str| {
            let closed: Vec<_> = closed.split(' ').map(target).collect();
            policy(hosts, "", "").endpoint_hint(&closed)
        };
        let both = "a.abc.mongodb.net:27017 b.abc.mongodb.net:27017 a.abc.mongodb.net:27017";
        assert_eq!(
            hint("c.abc.mongodb.net", both),
            "add --internet-host '*.abc.mongodb.net' --tcp '*.abc.mongodb.net:27017', or them to \
             hosts and tcp in [internet]"
        );
        assert_eq!(
            hint("*", both),
            "add --tcp '*.abc.mongodb.net:27017', or it to tcp in [internet]"
        );
        // Of no one domain, of one that isn't one customer's, and of several ports.
        assert_eq!(
            hint("a.example", "a.example:1 b.example:1"),
            "add --internet-host b.example --tcp a.example:1 --tcp b.example:1, or them to hosts \
             and tcp in [internet]"
        );
        assert_eq!(
            hint("*", "a.b.example:1 a.b.example:2"),
            "add --tcp a.b.example:1 --tcp a.b.example:2, or them to tcp in [internet]"
        );
        assert_eq!(
            hint("*", "nas.local:1 a.b.example:1"),
            "add --lan-host nas.local --tcp nas.local:1 --tcp a.b.example:1, or them to hosts in \
             [lan] and tcp in [internet]"
        );
        assert_eq!(hint("*", "localhost:1 metadata.google.internal:80"), "no grant opens that");
    }

    #[test]
    fn an_endpoint_of_no_open_host_is_closed() {
        let policy = policy("example.com", "github.com:22", "");
        for asked in [Asked::Connect, Asked::Endpoint, Asked::Http] {
            assert!(policy.judge(&target("github.com:22"), asked).is_err());
        }
    }

    #[test]
    fn any_host_is_never_this_machine_the_lan_or_metadata() {
        let policy = policy("* nas.local", "", "");
        for (host, why) in [
            (
                "192.168.1.5",
                "192.168.1.5 is an address of your network: add --lan-host 192.168.1.5",
            ),
            ("::ffff:10.0.0.1", "10.0.0.1 is an address of your network: add --lan-host 10.0.0.1"),
            ("fd00::5", "fd00::5 is an address of your network: add --lan-host fd00::5"),
            ("127.0.0.1", "127.0.0.1 is an address of this machine: add --port 443"),
            ("0.0.0.0", "0.0.0.0 is an address of this machine: add --port 443"),
            ("localhost", "localhost is an address of this machine: add --port 443"),
            ("a.localhost", "a.localhost is an address of this machine: add --port 443"),
            ("fe80::1", "fe80::1 is a link-local address: no grant opens it"),
            ("64:ff9b::808:808", "64:ff9b::808:808 is an IPv4 address hidden in an IPv6 one"),
            ("nas", "nas is a name of your network: add --lan-host nas, or it to hosts in [lan]"),
            ("nas.local", "nas.local is a name of your network: add --lan-host nas.local"),
            ("x.internal", "x.internal is a name of your network: add --lan-host x.internal"),
            ("x.home.arpa", "x.home.arpa is a name of your network"),
            ("home.arpa", "home.arpa is a name of your network"),
            ("169.254.169.254", "169.254.169.254 is a cloud's metadata service: no grant opens it"),
            ("metadata.google.internal", "metadata.google.internal is a cloud's metadata service"),
        ] {
            let refusal = policy
                .judge(&Target { host: host.parse().unwrap(), port: 443 }, Asked::Connect)
                .unwrap_err();
            assert!(refusal.reason.starts_with(why), "{}", refusal.reason);
            assert_eq!(refusal.metadata, why.contains("metadata service"), "{host}");
        }
        for host in ["1.1.1.1:443", "x.locals:443", "mylocal.com:443", "[2606:4700::1]:443"] {
            assert!(policy.judge(&target(host), Asked::Connect).is_ok(), "{host}");
        }
    }

    #[test]
    fn the_lan_is_any_port_both_ways() {
        let policy = policy("", "", "nas.local fritz.box 192.168.1.0/24 10.0.0.7");
        for asked in [Asked::Connect, Asked::Http] {
            for (endpoint, lan) in [
                ("192.168.1.5:5000", vec!["192.168.1.5/32".parse().unwrap()]),
                ("10.0.0.7:443", vec!["10.0.0.7/32".parse().unwrap()]),
                ("nas.local:22", PRIVATE.to_vec()),
                ("fritz.box:443", PRIVATE.to_vec()),
            ] {
                let reach = policy.judge(&target(endpoint), asked).unwrap();
                assert_eq!(reach, Reach { internet: false, lan, tls_only: false });
            }
            for endpoint in ["192.168.2.5:80", "10.0.0.8:80", "other.local:80", "example.com:80"] {
                assert!(policy.judge(&target(endpoint), asked).is_err(), "{endpoint}");
            }
        }
    }

    #[test]
    fn any_of_the_lan_is_private_addresses_and_local_names() {
        let policy = policy("", "", "*");
        let open = |endpoint| policy.judge(&target(endpoint), Asked::Http).is_ok();
        assert!(open("10.1.2.3:80") && open("[fd12::1]:80") && open("172.16.0.1:9"));
        assert!(open("nas:80") && open("nas.local:80") && open("nas.home.arpa:80"));
        assert!(!open("example.com:80") && !open("8.8.8.8:80") && !open("127.0.0.1:80"));
        assert!(!open("localhost:80") && !open("169.254.169.254:80") && !open("[fe80::1]:80"));
        assert!(!open("100.64.0.1:80") && !open("[fd00:ec2::254]:80"));
        assert!(!open("metadata.google.internal:80"));
    }

    #[test]
    fn a_name_in_both_may_have_addresses_of_both() {
        let public = "8.8.8.8".parse().unwrap();
        let near = "192.168.1.5".parse().unwrap();
        let far = "10.0.0.1".parse().unwrap();
        let loopback = "127.0.0.1".parse().unwrap();
        let allows = |policy: &Policy, endpoint| {
            let reach = policy.judge(&target(endpoint), Asked::Connect).unwrap();
            [public, near, far, loopback].map(|address| reach.allows(address))
        };
        let named = policy("*", "", "nas.example");
        assert_eq!(allows(&named, "nas.example:443"), [true, true, true, false]);
        assert_eq!(allows(&named, "nas.example:5000"), [false, true, true, false]);
        assert_eq!(allows(&named, "example.com:443"), [true, false, false, false]);
        let range = policy("*", "", "192.168.1.0/24");
        assert_eq!(allows(&range, "example.com:443"), [true, true, false, false]);
        assert!(range.judge(&target("example.com:5000"), Asked::Connect).is_err());
        let local = policy("*", "", "nas.local");
        assert_eq!(allows(&local, "nas.local:443"), [false, true, true, false]);
    }

    #[test]
    fn an_upstream_that_gets_names_leaves_ranges_out() {
        let mut policy = policy("*", "", "192.168.1.0/24 nas.example");
        policy.internet.upstream = Some("socks5h://127.0.0.1:9050".parse().unwrap());
        let lan = |endpoint| policy.judge(&target(endpoint), Asked::Connect).unwrap().lan;
        assert_eq!(lan("example.com:443"), []);
        assert_eq!(lan("nas.example:443"), PRIVATE);
        assert_eq!(lan("192.168.1.5:1").len(), 1);
    }

    #[test]
    fn an_endpoint_of_the_lan_is_reached_at_its_address() {
        let policy = policy("", "10.0.0.7:22 10.1.0.1:22 1.1.1.1:22", "10.0.0.0/24");
        for asked in [Asked::Connect, Asked::Endpoint] {
            let open = |endpoint| policy.judge(&target(endpoint), asked);
            assert_eq!(open("10.0.0.7:22").unwrap().lan, ["10.0.0.7/32".parse().unwrap()]);
            assert!(open("10.1.0.1:22").is_err() && open("1.1.1.1:22").is_err());
        }
        assert!(policy.judge(&target("10.0.0.7:23"), Asked::Endpoint).is_err());
    }

    #[test]
    fn nothing_is_open_without_grants() {
        let policy = Policy::default();
        for endpoint in ["example.com:443", "1.1.1.1:443", "nas:1", "10.0.0.1:1", "[::1]:1"] {
            assert!(policy.judge(&target(endpoint), Asked::Connect).is_err());
            assert!(policy.judge(&target(endpoint), Asked::Http).is_err());
        }
    }

    proptest! {
        #[test]
        fn a_reason_is_one_line_of_ascii(
            host in "[a-zA-Z0-9.:*_-]{1,40}|\\PC{1,20}|[0-9]{1,3}(\\.[0-9]{1,3}){3}",
            port in 1u16..,
            any: bool,
        ) {
            let policy = if any { policy("*", "", "*") } else { Policy::default() };
            if let Ok(host) = host.parse::<Host>() {
                for asked in [Asked::Connect, Asked::Http] {
                    if let Err(Refusal { reason, .. }) =
                        policy.judge(&Target { host: host.clone(), port }, asked)
                    {
                        prop_assert!(reason.bytes().all(|b| (b' '..=b'~').contains(&b)), "{reason}");
                    }
                }
            }
        }

        #[test]
        fn all_grants_together_open_no_address_but_public_and_private(bits: u32, bits6: u128) {
            let policy = policy("*", "", "* 10.0.0.0/8 fc00::/7");
            for address in [IpAddr::from(bits.to_be_bytes()), IpAddr::from(bits6.to_be_bytes())] {
                let target = Target { host: Host::Address(address), port: 443 };
                let open = policy.judge(&target, Asked::Connect);
                let class = classify(address);
                prop_assert_eq!(open.is_ok(), matches!(class, Class::Public | Class::Private));
                if let Ok(reach) = open {
                    prop_assert!(reach.allows(address));
                    prop_assert_eq!(reach.internet, class == Class::Public);
                }
            }
        }
    }
}
