//! The endpoints of a sandbox, reached by their names: each name has an address of its
//! own in 127/8, which the sandbox's DNS tells, and each of their ports a listener, so
//! that the address dialled says which one is meant. One that is given by address is
//! reached at that address, which the sandbox's loopback has too.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use lnk_spec::endpoint::Endpoint;
use lnk_spec::host::{Host, HostName, HostPattern};
use lnk_spec::upstream::Upstream;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::calls::{Calls, Reached};
use crate::log::Verb;
use crate::policy::{Asked, Policy, Target};
use crate::room::Room;
use crate::{port, relay};

/// The address of the first name.
const FIRST: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 1);
/// Names that have an address at most.
const MAX_NAMES: usize = 1024;
/// SRV and TXT looked up at a time.
const LOOKUPS: usize = 16;
/// That a name was looked up is logged so often at most, where it has its answer here.
const TOLD: Duration = Duration::from_secs(60);

/// The endpoints of `[internet] tcp`, and the addresses that stand for their names.
#[derive(Debug)]
pub(crate) struct Endpoints {
    policy: Policy,
    names: RefCell<Names>,
    /// Places for SRV and TXT to be looked up.
    pub lookups: Semaphore,
}

#[derive(Debug, Default)]
struct Names {
    numbers: HashMap<HostName, usize>,
    /// By their number.
    names: Vec<Name>,
}

#[derive(Debug)]
struct Name {
    name: HostName,
    /// When it was last logged that it was looked up.
    told: Option<Instant>,
}

impl Endpoints {
    /// Those of a policy. A name that stands there has its address for certain, however
    /// many there are under the domains.
    pub fn new(policy: Policy) -> Endpoints {
        let lookups = Semaphore::new(LOOKUPS);
        let endpoints = Endpoints { policy, names: RefCell::default(), lookups };
        for endpoint in &endpoints.policy.internet.tcp {
            if let HostPattern::One(Host::Name(name)) = endpoint.host() {
                endpoints.address(name);
            }
        }
        endpoints
    }

    /// Whether one of them is this target.
    pub fn name(&self, target: &Target) -> bool {
        self.policy.names_in_tcp(target)
    }

    /// Whether a target is one of them, and may be reached.
    pub fn is_open(&self, target: &Target) -> bool {
        self.policy.judge(target, Asked::Endpoint).is_ok()
    }

    /// Whether one of them has this name, and may be reached.
    pub fn have(&self, name: &HostName) -> bool {
        let host = Host::Name(name.clone());
        let of_host = self.policy.internet.tcp.iter().filter(|it| it.host().matches(&host));
        let target = |it: &Endpoint| Target { host: host.clone(), port: it.port().get() };
        of_host.map(target).any(|target| self.is_open(&target))
    }

    /// Why a name is none of theirs, and what would make it one.
    pub fn no_name(&self, name: &HostName) -> String {
        self.policy.no_name(name)
    }

    /// What opens these, which aren't endpoints.
    pub fn hint(&self, closed: &[Target]) -> String {
        self.policy.endpoint_hint(closed)
    }

    /// Whether names are looked up here, and not at the upstream.
    pub fn are_looked_up(&self) -> bool {
        !matches!(self.policy.internet.way_out(), Upstream::Socks5Name(_))
    }

    /// The address that stands for a name; none where as many names have one as may.
    pub fn address(&self, name: &HostName) -> Option<Ipv4Addr> {
        let mut names = self.names.borrow_mut();
        let number = match names.numbers.get(name) {
            Some(number) => *number,
            None if names.names.len() < MAX_NAMES => {
                let number = names.names.len();
                names.names.push(Name { name: name.clone(), told: None });
                names.numbers.insert(name.clone(), number);
                number
            }
            None => return None,
        };
        let number = u32::try_from(number).expect("below the most");
        Some(Ipv4Addr::from_bits(FIRST.to_bits() + number))
    }

    /// The host that an address inside stands for: a name, or itself.
    fn host_at(&self, address: IpAddr) -> Option<Host> {
        let IpAddr::V4(v4) = address else {
            return (!address.is_loopback()).then_some(Host::Address(address));
        };
        if !v4.is_loopback() {
            return Some(Host::Address(address));
        }
        let number = v4.to_bits().checked_sub(FIRST.to_bits())?;
        let names = self.names.borrow();
        names.names.get(usize::try_from(number).ok()?).map(|it| Host::Name(it.name.clone()))
    }

    /// Whether it's to be logged that a name with an address was looked up: not again
    /// within a minute, and it counts as logged from now on.
    pub fn is_news(&self, name: &HostName) -> bool {
        let mut names = self.names.borrow_mut();
        let Some(number) = names.numbers.get(name).copied() else { return true };
        let told = &mut names.names[number].told;
        let is_news = told.is_none_or(|told| told.elapsed() >= TOLD);
        if is_news {
            *told = Some(Instant::now());
        }
        is_news
    }
}

/// Serves a connection to a port of theirs. At 127.0.0.1 it may be one of this
/// machine's loopback as well.
pub(crate) async fn serve(
    mut client: TcpStream,
    port: u16,
    own: bool,
    calls: &Calls,
    room: &Rc<Room>,
) {
    let to = client.local_addr().map_or(Ipv4Addr::UNSPECIFIED.into(), |to| to.ip());
    if is_localhost(to) && own {
        return port::serve(client, port, calls, room).await;
    }
    let Some(host) = calls.endpoints.host_at(to) else {
        refuse(to, port, calls);
        let _ = client.set_zero_linger();
        return;
    };
    let target = Target { host, port };
    let opened = match calls.reach(&target, Asked::Endpoint).await {
        Ok(Reached { call, origin, .. }) => call.open().map(|open| (open, origin)),
        Err(answer) => Err(answer),
    };
    let Ok((open, mut origin)) = opened else {
        // A server that isn't there doesn't look as if it had nothing to say.
        let _ = client.set_zero_linger();
        return;
    };
    relay::run(&mut client, &mut origin, &[], &[], &open, room).await;
}

/// Refuses what the sandbox's loopback was asked for where nobody listens, if it stands
/// for a host.
pub(crate) fn refuse_unheard(to: SocketAddr, calls: &Calls) {
    let Some(host) = calls.endpoints.host_at(to.ip().to_canonical()) else { return };
    let target = Target { host, port: to.port() };
    let call = calls.log.call(Verb::Tcp, &target.host, target.port);
    if calls.refuse_closed(&call).is_err() {
        return;
    }
    if let Err(answer) = (calls.judge)(&target, Asked::Endpoint) {
        calls.turned_away(&call, &answer.reason, answer.metadata);
    }
}

/// Whether it's the address that ports of this machine have inside.
fn is_localhost(address: IpAddr) -> bool {
    [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()].contains(&address)
}

fn refuse(to: IpAddr, port: u16, calls: &Calls) {
    let (call, reason) = if is_localhost(to) {
        let reason =
            format!("this port isn't open: add --port {port}, or it to ports in [localhost]");
        (calls.log.call(Verb::Port, "localhost", port), reason)
    } else {
        let reason = "this address stands for no name of an endpoint".to_owned();
        (calls.log.call(Verb::Unknown, to, port), reason)
    };
    calls.turned_away(&call, &reason, false);
}
