//! What of the network a sandbox is given: a way out through its wire and ports of
//! this machine's loopback, or this machine's own network.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use lnk_spec::endpoint::Endpoint;
use lnk_spec::host::{Host, HostPattern};
use lnk_spec::number::Port;
use lnk_spec::spec::{Internet, Lan};
use lnk_spec::upstream::Upstream;
use lnk_wire::policy::Policy as WirePolicy;
use lnk_wire::wire::Serves;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, failed};
use crate::faults::{Fault, Faults};
use crate::linux::landlock;

/// Where the proxy listens inside.
pub const PROXY_PORT: u16 = 40781;
/// Where names are asked for inside, at 127.0.0.1.
pub const NAMES_PORT: u16 = 53;
/// Ports of the sandbox's loopback that are its own.
const OWN_PORTS: [u16; 2] = [PROXY_PORT, NAMES_PORT];

/// A socket that is made in the sandbox's network namespace and served from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listens {
    /// Where it is bound.
    pub at: SocketAddr,
    /// What answers there.
    pub serves: Serves,
}

/// Why one of them can't be this machine's.
pub(crate) const OWN: &str = "one of the sandbox's own; another service's can be opened";

/// With none but 127.0.0.1, which it doesn't count, getaddrinfo(3) has no IPv4 for who
/// asks for it by `AI_ADDRCONFIG`.
const THAT_COUNTS: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 0);

/// What is wrong with an endpoint of another host.
pub(crate) const NOT_REACHED: &str = "its host isn't one that it may reach";

/// The network of one sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Whether it is this machine's own, which has no wire: then nothing of the rest is
    /// given.
    pub shared: bool,
    /// `[internet]`.
    pub internet: Internet,
    /// `[lan]`.
    pub lan: Lan,
    /// Ports of this machine's loopback that it may connect to.
    pub ports: Vec<Port>,
}

impl Network {
    /// This machine's own.
    #[must_use]
    pub fn shared() -> Network {
        Network { shared: true, ..Network::default() }
    }

    /// Refuses what no sandbox can have.
    ///
    /// # Errors
    /// [`Error::Refused`] naming the port, or what the kernel lacks.
    pub fn check(&self) -> Result<()> {
        if self.shared && !landlock::has_scopes().map_err(failed("Landlock"))? {
            return Err(Error::Refused(
                "--allow network: abstract Unix sockets of this machine are in its network too, \
                 and this kernel can't hold the program from them (Landlock's scopes, Linux \
                 6.12); name hosts instead, with --internet-host and --lan-host"
                    .into(),
            ));
        }
        if let Some(port) = Network::own_port(&self.ports) {
            return Err(Error::Refused(format!("--port {port}: it is {OWN}")));
        }
        refuse_unreachable(&self.internet, &self.lan)
    }

    /// A port of these that is the sandbox's own.
    pub(crate) fn own_port(ports: &[Port]) -> Option<Port> {
        ports.iter().copied().find(|port| OWN_PORTS.contains(&port.get()))
    }

    /// A line for what opens more than it seems to.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        if self.shared {
            let line = "--allow network: the program is in this machine's own network; it reaches \
                        every service of this machine and your network, and no log shows it";
            return Some(line.into());
        }
        let by_name = self.internet.upstream.filter(|its| matches!(its, Upstream::Socks5Name(_)));
        by_name.filter(|_| self.has_proxy()).map(|upstream| {
            format!(
                "--upstream {upstream}: that proxy resolves names unseen, also to this machine and \
                 your network; socks5:// has them judged here"
            )
        })
    }

    /// Lines for what has no effect beside the rest.
    #[must_use]
    pub fn mistakes(&self) -> Vec<String> {
        let upstream = self.internet.upstream.filter(|upstream| *upstream != Upstream::Direct);
        let upstream = upstream.filter(|_| self.internet.hosts.is_empty()).map(|upstream| {
            format!(
                "the upstream {upstream} has no effect: no host of the internet is open; add \
                 --internet-host, or hosts in [internet]"
            )
        });
        let rate = self.internet.per_minute.filter(|_| !self.is_served()).map(|rate| {
            format!(
                "the limit of {rate} calls a minute has no effect: nothing is open to call; add \
                 --internet-host, or hosts in [internet]"
            )
        });
        upstream.into_iter().chain(rate).collect()
    }

    /// Whether it has a proxy.
    #[must_use]
    pub fn has_proxy(&self) -> bool {
        !self.internet.hosts.is_empty() || !self.lan.hosts.is_empty()
    }

    /// Whether anything of it is served from outside.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.has_proxy() || !self.ports.is_empty()
    }

    /// Whether names are looked up inside: those of endpoints.
    #[must_use]
    pub fn has_names(&self) -> bool {
        !self.shared && self.named().next().is_some()
    }

    /// The port of an endpoint that is reached by name, where there is one.
    #[must_use]
    pub fn named_port(&self) -> Option<u16> {
        self.named().next().map(|endpoint| endpoint.port().get())
    }

    /// The endpoints that are reached by name.
    fn named(&self) -> impl Iterator<Item = &Endpoint> {
        self.internet.tcp.iter().filter(|endpoint| address_of(endpoint).is_none())
    }

    /// The further addresses that its loopback has: those of endpoints that are given by
    /// address, which so are reached at it, and one that counts where there are names.
    #[must_use]
    pub fn addresses(&self, faults: &Faults) -> Vec<IpAddr> {
        if self.shared || faults.has(Fault::Network) {
            return Vec::new();
        }
        let counts = self.has_names().then_some(THAT_COUNTS.into());
        let given: BTreeSet<IpAddr> = self.internet.tcp.iter().filter_map(address_of).collect();
        counts.into_iter().chain(given).collect()
    }

    /// The sockets that are made inside. None where the sandbox is in the machine's
    /// network: they would be the machine's.
    #[must_use]
    pub fn listens(&self, faults: &Faults) -> Vec<Listens> {
        if self.shared || faults.has(Fault::Network) {
            return Vec::new();
        }
        let (v4, v6) = (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
        let at = |ip: IpAddr, port, serves| Listens { at: (ip, port).into(), serves };
        let mut all = Vec::new();
        if self.has_proxy() {
            all.push(at(v4.into(), PROXY_PORT, Serves::Proxy));
            all.push(at(v6.into(), PROXY_PORT, Serves::Proxy));
        }
        if self.has_names() {
            all.push(at(v4.into(), NAMES_PORT, Serves::NamesByUdp));
            all.push(at(v4.into(), NAMES_PORT, Serves::NamesByTcp));
        }
        let own: BTreeSet<u16> = self.ports.iter().map(|port| port.get()).collect();
        // Which addresses of 127/8 stand for names isn't known before they are asked for,
        // so that it is all of them.
        for (any, loopback) in [
            (IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from(v4)),
            (Ipv6Addr::UNSPECIFIED.into(), v6.into()),
        ] {
            let is_its = |endpoint: &&Endpoint| match address_of(endpoint) {
                Some(address) => address.is_ipv4() == any.is_ipv4(),
                None => any.is_ipv4(),
            };
            let endpoints = self.internet.tcp.iter().filter(is_its);
            let endpoints: BTreeSet<u16> = endpoints.map(|it| it.port().get()).collect();
            for &port in &endpoints {
                all.push(at(any, port, Serves::Endpoints { port, own: own.contains(&port) }));
            }
            for &port in own.difference(&endpoints) {
                all.push(at(loopback, port, Serves::Port(port)));
            }
        }
        all
    }

    /// What the wire is to let through.
    #[must_use]
    pub fn policy(&self) -> WirePolicy {
        WirePolicy { internet: self.internet.clone(), lan: self.lan.clone() }
    }
}

/// The address that an endpoint is given by.
fn address_of(endpoint: &Endpoint) -> Option<IpAddr> {
    match endpoint.host() {
        HostPattern::One(Host::Address(address)) => Some(*address),
        _ => None,
    }
}

/// Refuses an endpoint whose host isn't one that is reached.
///
/// # Errors
/// [`Error::Refused`] naming it and the flag that opens its host.
pub fn refuse_unreachable(internet: &Internet, lan: &Lan) -> Result<()> {
    let Some(endpoint) = internet.unreachable(lan).next() else { return Ok(()) };
    let opener = endpoint.host_opened_by();
    let entry = if opener.entry == "*" { "\"*\"" } else { "it" };
    Err(Error::Refused(format!(
        "{}: {NOT_REACHED}; add {opener}, or {entry} to hosts in [{}]",
        endpoint.flag(),
        opener.section
    )))
}
