//! What of the network a sandbox is given: a way out through its wire and ports of
//! this machine's loopback, or this machine's own network.

use lnk_spec::number::Port;
use lnk_spec::spec::{Internet, Lan};
use lnk_spec::upstream::Upstream;
use lnk_wire::policy::Policy as WirePolicy;

use crate::error::{Error, Result, failed};
use crate::faults::{Fault, Faults};
use crate::linux::landlock;

/// Where the proxy listens inside.
pub const PROXY_PORT: u16 = 40781;
/// Ports of the sandbox's loopback that are its own: the proxy's, and DNS.
const OWN_PORTS: [u16; 2] = [PROXY_PORT, 53];

/// Why one of them can't be this machine's.
pub(crate) const OWN: &str = "one of the sandbox's own; another service's can be opened";

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
        match Network::own_port(&self.ports) {
            Some(port) => Err(Error::Refused(format!("--port {port}: it is {OWN}"))),
            None => Ok(()),
        }
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

    /// The ports that are listened on inside. None where the sandbox is in the
    /// machine's network: they would be the machine's.
    #[must_use]
    pub fn listens(&self, faults: &Faults) -> Vec<u16> {
        if self.shared || faults.has(Fault::Network) {
            return Vec::new();
        }
        let proxy = self.has_proxy().then_some(PROXY_PORT);
        proxy.into_iter().chain(self.ports.iter().map(|port| port.get())).collect()
    }

    /// What the wire is to let through.
    #[must_use]
    pub fn policy(&self) -> WirePolicy {
        WirePolicy { internet: self.internet.clone(), lan: self.lan.clone() }
    }
}
