//! What a sandbox may reach: `[internet]`, `[lan]`, judged before any name is
//! looked up.
//!
//! A name may stand in both. It's looked up when either opens it; each address it
//! resolves to is then dialled only if its class fits: a public one needs the name
//! in `[internet]`, a private one the name, or a range that holds the address, in
//! `[lan]`. Names that no public zone has (`nas`, `.local`, `.internal`,
//! `.home.arpa`) are the LAN's alone; `*` of `[lan]` opens them, and no other name:
//! those it would have to look up on the internet.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use lnk_spec::endpoint::Endpoint;
use lnk_spec::host::{Host, HostName};
use lnk_spec::lan::{LanHost, PRIVATE};
use lnk_spec::spec::{Internet, Lan};
use lnk_spec::upstream::Upstream;

use crate::address::{Class, classify};

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

/// Names of metadata services that resolve only in their cloud. Google Cloud:
/// 'About VM metadata'; AWS: EC2's DNS; Tencent Cloud: 'Querying instance metadata'.
const METADATA: [&str; 4] = [
    "metadata.google.internal",
    "metadata.goog",
    "instance-data.ec2.internal",
    "metadata.tencentyun.com",
];

/// Domains that no public zone has: RFC 6762, ICANN's resolution 2024.07.29.06,
/// RFC 8375.
const LOCAL: [&str; 3] = ["local", "internal", "home.arpa"];

impl Policy {
    /// What a target may be reached by. Nothing is looked up: of a name, only the
    /// name is judged here, of an address its class.
    ///
    /// # Errors
    /// No grant opens it.
    pub fn judge(&self, target: &Target, asked: Asked) -> Result<Reach, Refusal> {
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
        if METADATA.contains(&name.as_str()) {
            return Err(refused_address(target, "is", Class::Metadata));
        }
        if is_within(name, "localhost") {
            return Err(refused_address(target, "is", Class::Loopback));
        }
        if self.names_in_lan(&target.host) {
            let internet = !is_local(name) && self.judge_internet(target, asked).is_ok();
            return Ok(Reach { internet, lan: PRIVATE.to_vec(), tls_only: false });
        }
        if is_local(name) {
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
        let by_connect = target.port == 443 || self.names_in_tcp(target);
        match asked {
            Asked::Connect if by_connect => Ok(()),
            Asked::Http if target.port == 80 => Ok(()),
            Asked::Http if by_connect => {
                Err(refusal(format!("{target} isn't open to plain HTTP: ask for it by CONNECT")))
            }
            Asked::Connect => {
                Err(refusal(format!("{target} isn't open to CONNECT: {}", tcp_hint(target))))
            }
            Asked::Http => Err(refusal(format!(
                "{target} isn't open to plain HTTP, and to CONNECT by a grant: {}",
                tcp_hint(target)
            ))),
        }
    }

    fn tls_only(&self, target: &Target, asked: Asked) -> bool {
        asked == Asked::Connect && target.port == 443 && !self.names_in_tcp(target)
    }

    fn names_in_tcp(&self, target: &Target) -> bool {
        let meant = |endpoint: &Endpoint| {
            endpoint.port().get() == target.port && endpoint.host().matches(&target.host)
        };
        self.internet.tcp.iter().any(meant)
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

/// Whether only the user's network can know a name.
fn is_local(name: &HostName) -> bool {
    !name.as_str().contains('.') || LOCAL.iter().any(|domain| is_within(name, domain))
}

/// Whether a name is a domain or under it.
fn is_within(name: &HostName, domain: &str) -> bool {
    let front = name.as_str().strip_suffix(domain);
    front.is_some_and(|front| front.is_empty() || front.ends_with('.'))
}

/// The refusal of a target that `is`, or `resolves to`, an address of such a class.
pub(crate) fn refused_address(target: &Target, is: &str, class: Class) -> Refusal {
    let Target { host, port } = target;
    let hint = match class {
        Class::Public => format!("--internet-host {host}, or hosts in [internet]"),
        Class::Private => lan_hint(target),
        Class::Loopback => {
            format!("--port {port}, or ports in [localhost], opens that port of it at 127.0.0.1")
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
    format!("--lan-host {}, or hosts in [lan]", target.host)
}

fn internet_hint(target: &Target, asked: Asked) -> String {
    let host = &target.host;
    match (asked, target.port) {
        (Asked::Connect, 443) | (Asked::Http, 80) => {
            format!("--internet-host {host}, or hosts in [internet]")
        }
        _ if !may_be_endpoint(target) => "no grant opens that port".into(),
        _ => format!("--internet-host {host} with --tcp {target}, or hosts and tcp in [internet]"),
    }
}

fn tcp_hint(target: &Target) -> String {
    if may_be_endpoint(target) {
        format!("--tcp {target}, or tcp in [internet]")
    } else {
        "no grant opens that port".into()
    }
}

/// Whether `--tcp` takes it: not the sandbox's own ports.
fn may_be_endpoint(target: &Target) -> bool {
    target.to_string().parse::<Endpoint>().is_ok()
}
