//! From a judged target to a connection: resolved once, every address classified,
//! and what was classified dialled.
//!
//! A target may have addresses of both kinds. Without an upstream all of them are
//! tried as RFC 8305 says. With one, those of the LAN are dialled from here, and
//! only a target that has none goes through the upstream, whatever becomes of
//! the dialling.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use lnk_spec::host::Host;
use lnk_spec::shown::reason;
use lnk_spec::upstream::Upstream;
use rustix::io::Errno;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::address::{Class, classify};
use crate::connections::{Connection, Connections};
use crate::policy::{Reach, Refusal, Target, refused_address};
use crate::resolve::{ResolveError, Resolver};
use crate::route::{Routes, Way};
use crate::upstream::{self, UpstreamError};

/// A target is reached within this, names, upstream and all.
const LIMIT: Duration = Duration::from_secs(20);
/// The next address is tried after this (RFC 8305, 5 and 8).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// The upstream gets the next address after this; the last has what is left of
/// [`LIMIT`], which a slow network such as Tor may need.
const UPSTREAM_ATTEMPT: Duration = Duration::from_secs(6);

/// What connects a wire to the world.
#[derive(Debug)]
pub struct Dialer {
    upstream: Upstream,
    resolver: Resolver,
    routes: Routes,
    connections: Arc<Connections>,
}

/// A connection to a target.
#[derive(Debug)]
pub struct Connected {
    /// The connection, without Nagle's delay.
    pub stream: Connection,
    /// The address that was judged; none where the upstream got the name.
    pub address: Option<IpAddr>,
    /// Whether it goes through the upstream.
    pub upstream: bool,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// No address may be dialled.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The name has no address.
    #[error("the name isn't found")]
    NotFound,
    /// Not within 20 seconds, of which the lookup may take five.
    #[error("no connection within {} s", LIMIT.as_secs())]
    TimedOut,
    /// What the last address said.
    #[error("no connection: {}", reason(.0))]
    Unreachable(#[source] io::Error),
    /// This process, or the system, has no descriptor left.
    #[error("too many connections are open")]
    TooManyFiles,
    /// No answer to the name within five seconds.
    #[error("the name server doesn't answer")]
    NoAnswer,
    /// 256 lookups wait already.
    #[error("too many names are being looked up")]
    Busy,
    /// Names can't be looked up on this machine.
    #[error("{0}")]
    NoResolver(#[source] ResolveError),
    /// The upstream gives no connection. Nothing was dialled directly instead.
    #[error("{0}")]
    Upstream(#[source] UpstreamError),
}

impl Dialer {
    /// A dialer whose connections to the internet leave by `upstream`. All that it makes
    /// are among `connections`.
    #[must_use]
    pub fn new(upstream: Upstream, connections: Arc<Connections>) -> Self {
        let (resolver, routes) = (Resolver::new(), Routes::default());
        Dialer { upstream, resolver, routes, connections }
    }

    /// Connects to what a target may be reached by.
    ///
    /// # Errors
    /// As [`DialError`] says.
    pub async fn connect(&self, target: &Target, reach: &Reach) -> Result<Connected, DialError> {
        timeout(LIMIT, self.reach(target, reach)).await.unwrap_or(Err(DialError::TimedOut))
    }

    /// The refusal of a target, or another where it is an address of this machine's
    /// own network cards: that opens in another way than its class says.
    pub(crate) fn retold(&self, target: &Target, refusal: Refusal) -> Refusal {
        match target.host {
            Host::Address(address)
                if is_far(classify(address))
                    && self.routes.way_to(address).is_ok_and(|way| way == Way::Own) =>
            {
                refused_address(target, "is", Class::Loopback)
            }
            _ => refusal,
        }
    }

    async fn reach(&self, target: &Target, reach: &Reach) -> Result<Connected, DialError> {
        let (port, by) = (target.port, &self.connections);
        match self.upstream {
            Upstream::Direct => direct(by, &self.addresses(target, reach).await?, port).await,
            Upstream::Socks5(proxy) => {
                let addresses = self.addresses(target, reach).await?;
                match of_lan(&addresses) {
                    lan if lan.is_empty() => through(by, proxy, &addresses, port).await,
                    lan => direct(by, &lan, port).await,
                }
            }
            Upstream::Socks5Name(proxy) => {
                let lan = self.lan_beside_upstream(target, reach).await?;
                match lan.is_empty() {
                    true => by_name(by, proxy, target).await,
                    false => direct(by, &lan, port).await,
                }
            }
        }
    }

    /// The addresses that an upstream that gets names isn't asked for. Only a name
    /// that the LAN opens is looked up here.
    async fn lan_beside_upstream(
        &self,
        target: &Target,
        reach: &Reach,
    ) -> Result<Vec<IpAddr>, DialError> {
        if reach.lan.is_empty() && matches!(target.host, Host::Name(_)) {
            return Ok(vec![]);
        }
        match self.addresses(target, reach).await {
            Ok(addresses) => Ok(of_lan(&addresses)),
            Err(DialError::NotFound) if reach.internet => Ok(vec![]),
            Err(error) => Err(error),
        }
    }

    /// The addresses of a target that may be dialled: at least one.
    async fn addresses(&self, target: &Target, reach: &Reach) -> Result<Vec<IpAddr>, DialError> {
        let found = match &target.host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => self.resolver.lookup(name).await?,
        };
        let mut allowed = Vec::new();
        let mut dropped = Vec::new();
        for address in found {
            let class = classify(address);
            if !is_far(class) {
                dropped.push((class, address));
                continue;
            }
            match self.routes.way_to(address).map_err(unreachable)? {
                Way::Own => dropped.push((Class::Loopback, address)),
                _ if !reach.allows(address) => dropped.push((class, address)),
                Way::Neighbour if class == Class::Public => {
                    dropped.push((Class::Neighbour, address));
                }
                Way::Neighbour | Way::Far => allowed.push(address),
            }
        }
        if allowed.is_empty() {
            return Err(refused(target, &dropped).into());
        }
        Ok(allowed)
    }
}

/// The refusal of a target none of whose addresses may be dialled.
fn refused(target: &Target, dropped: &[(Class, IpAddr)]) -> Refusal {
    let of = |telling| dropped.iter().find(|(class, _)| *class == telling);
    let telling = of(Class::Metadata).or(of(Class::Loopback)).or(dropped.first());
    let (class, address) = *telling.expect("a target has an address");
    if matches!(target.host, Host::Address(_)) {
        return refused_address(target, "is", class);
    }
    // Where its names lead in the user's own networks isn't told inside.
    match class {
        Class::Private | Class::Loopback | Class::Neighbour => {
            refused_address(target, "resolves to", class)
        }
        _ => refused_address(target, &format!("resolves to {address},"), class),
    }
}

/// Whether any address of a class may be dialled: none but those of this machine's own
/// network cards are this machine.
fn is_far(class: Class) -> bool {
    matches!(class, Class::Public | Class::Private)
}

fn of_lan(addresses: &[IpAddr]) -> Vec<IpAddr> {
    addresses.iter().copied().filter(|address| classify(*address) == Class::Private).collect()
}

async fn direct(
    by: &Arc<Connections>,
    addresses: &[IpAddr],
    port: u16,
) -> Result<Connected, DialError> {
    let (address, stream) = match addresses {
        [only] => dial(Arc::clone(by), *only, port).await,
        several => race(by, interleaved(several), port).await,
    }
    .map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;
    Ok(Connected { stream, address: Some(address), upstream: false })
}

/// The addresses with their families taking turns, the system's first choice
/// first (RFC 8305, 4).
fn interleaved(addresses: &[IpAddr]) -> Vec<IpAddr> {
    let Some(first) = addresses.first() else { return vec![] };
    let (mut preferred, mut other): (VecDeque<IpAddr>, VecDeque<IpAddr>) =
        addresses.iter().partition(|address| address.is_ipv4() == first.is_ipv4());
    let mut turns = Vec::with_capacity(addresses.len());
    while !(preferred.is_empty() && other.is_empty()) {
        turns.extend(preferred.pop_front());
        turns.extend(other.pop_front());
    }
    turns
}

/// The first connection that stands; the others are given up.
async fn race(
    by: &Arc<Connections>,
    addresses: Vec<IpAddr>,
    port: u16,
) -> io::Result<(IpAddr, Connection)> {
    let mut waiting = addresses.into_iter();
    let mut attempts = JoinSet::new();
    let mut last_error = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        let ended = match waiting.next() {
            Some(address) => {
                attempts.spawn(dial(Arc::clone(by), address, port));
                timeout(ATTEMPT_DELAY, attempts.join_next()).await
            }
            None => Ok(attempts.join_next().await),
        };
        match ended {
            Ok(Some(Ok(Ok(connected)))) => return Ok(connected),
            Ok(Some(Ok(Err(error)))) if is_too_many_files(&error) => return Err(error),
            Ok(Some(Ok(Err(error)))) => last_error = error,
            Ok(Some(Err(failed))) => last_error = failed.into(),
            Ok(None) => return Err(last_error),
            Err(_delay_over) => {}
        }
    }
}

async fn dial(
    by: Arc<Connections>,
    address: IpAddr,
    port: u16,
) -> io::Result<(IpAddr, Connection)> {
    let judged = SocketAddr::new(address, port);
    let stream = by.connect(judged).await?;
    if stream.peer_addr()? != judged {
        return Err(io::ErrorKind::AddrNotAvailable.into());
    }
    Ok((address, stream))
}

/// Through the upstream, by judged addresses, one after the other.
async fn through(
    by: &Arc<Connections>,
    proxy: SocketAddr,
    addresses: &[IpAddr],
    port: u16,
) -> Result<Connected, DialError> {
    let mut last_error = DialError::TimedOut;
    for (following, address) in (0..addresses.len()).rev().zip(addresses) {
        let host = Host::Address(*address);
        let limit = if following == 0 { LIMIT } else { UPSTREAM_ATTEMPT };
        match timeout(limit, upstream::connect(by, proxy, &host, port)).await {
            Ok(Ok(stream)) => {
                return Ok(Connected { stream, address: Some(*address), upstream: true });
            }
            Ok(Err(error @ UpstreamError::Replied(_))) => last_error = error.into(),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => last_error = DialError::TimedOut,
        }
    }
    Err(last_error)
}

async fn by_name(
    by: &Arc<Connections>,
    proxy: SocketAddr,
    target: &Target,
) -> Result<Connected, DialError> {
    let address = match &target.host {
        Host::Address(address) => Some(*address),
        Host::Name(_) => None,
    };
    let stream = upstream::connect(by, proxy, &target.host, target.port).await?;
    Ok(Connected { stream, address, upstream: true })
}

impl From<ResolveError> for DialError {
    fn from(error: ResolveError) -> Self {
        match error {
            ResolveError::NotFound => DialError::NotFound,
            ResolveError::TimedOut => DialError::NoAnswer,
            ResolveError::Busy => DialError::Busy,
            ResolveError::NoResolver(error) if is_too_many_files(&error) => DialError::TooManyFiles,
            error => DialError::NoResolver(error),
        }
    }
}

impl From<UpstreamError> for DialError {
    fn from(error: UpstreamError) -> Self {
        match error {
            UpstreamError::Down(_, error) if is_too_many_files(&error) => DialError::TooManyFiles,
            error => DialError::Upstream(error),
        }
    }
}

fn unreachable(error: io::Error) -> DialError {
    match error {
        error if is_too_many_files(&error) => DialError::TooManyFiles,
        error => DialError::Unreachable(error),
    }
}

fn is_too_many_files(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::mpsc;
    use std::thread;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(future)
    }

    fn addresses(list: &str) -> Vec<IpAddr> {
        list.split_whitespace().map(|address| address.parse().unwrap()).collect()
    }

    fn target(host: &str) -> Target {
        Target { host: host.parse().unwrap(), port: 443 }
    }

    const INTERNET: Reach = Reach { internet: true, lan: vec![], tls_only: true };

    #[test]
    fn a_failure_is_told_in_words_alone() {
        let refused = || io::Error::from_raw_os_error(Errno::CONNREFUSED.raw_os_error());
        for (error, said) in [
            (ResolveError::TimedOut.into(), "the name server doesn't answer"),
            (ResolveError::NotFound.into(), "the name isn't found"),
            (unreachable(refused()), "no connection: connection refused"),
            (DialError::TimedOut, "no connection within 20 s"),
            (
                UpstreamError::Closed(refused()).into(),
                "the upstream proxy closed the connection: connection refused",
            ),
        ] {
            assert_eq!(DialError::to_string(&error), said);
        }
    }

    #[test]
    fn families_take_turns() {
        for (found, turns) in [
            ("::a ::b 1.0.0.1 1.0.0.2 1.0.0.3", "::a 1.0.0.1 ::b 1.0.0.2 1.0.0.3"),
            ("1.0.0.1 1.0.0.2 ::a", "1.0.0.1 ::a 1.0.0.2"),
            ("1.0.0.1", "1.0.0.1"),
            ("", ""),
        ] {
            assert_eq!(interleaved(&addresses(found)), addresses(turns));
        }
    }

    #[test]
    fn the_next_address_follows_a_failure_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (address, stream) =
            block_on(race(&Arc::default(), addresses("::1 127.0.0.2 127.0.0.1"), port)).unwrap();
        assert_eq!(address, addresses("127.0.0.1")[0]);
        assert_eq!(stream.peer_addr().unwrap(), listener.local_addr().unwrap());
    }

    #[test]
    fn the_last_error_is_told_when_none_answers() {
        // Nobody has had port 1 (tcpmux) for decades.
        let error =
            block_on(race(&Arc::default(), addresses("127.0.0.1 127.0.0.2"), 1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn what_is_not_allowed_is_not_dialled_by_whatever_reach() {
        let all = Reach {
            internet: true,
            lan: vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()],
            tls_only: false,
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let dialer = Dialer::new(Upstream::Direct, Arc::default());
        for host in ["127.0.0.1", "0.0.0.0", "::1", "localhost", "2002:7f00:1::"] {
            let target = Target { host: host.parse().unwrap(), port };
            let error = block_on(dialer.connect(&target, &all)).unwrap_err();
            let DialError::Refused(refusal) = error else { panic!("{host}: {error}") };
            assert!(refusal.reason.contains("an address of this machine"), "{refusal}");
        }
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    }

    #[test]
    fn the_most_telling_class_is_told() {
        let told = |host, classes: &[Class]| {
            let at = |class: &Class| (*class, [198, 18, 0, 5].into());
            refused(&target(host), &classes.iter().map(at).collect::<Vec<_>>())
        };
        assert_eq!(
            told("a.example", &[Class::Reserved]).reason,
            "a.example resolves to 198.18.0.5, a reserved address: no grant opens it"
        );
        let metadata = told("a.example", &[Class::Private, Class::Loopback, Class::Metadata]);
        assert_eq!(
            metadata.reason,
            "a.example resolves to 198.18.0.5, a cloud's metadata service: no grant opens it"
        );
        assert!(metadata.metadata);
        let lan = told("a.example", &[Class::Private, Class::LinkLocal]);
        assert_eq!(
            lan.reason,
            "a.example resolves to an address of your network: \
             add --lan-host a.example, or it to hosts in [lan]"
        );
        assert!(!lan.metadata);
        let public = told("nas.example", &[Class::Public]).reason;
        assert!(public.ends_with("add --internet-host nas.example, or it to hosts in [internet]"));
    }

    /// A SOCKS5 proxy that answers requests with these replies, one connection
    /// each, and tells the requests from the kind of address on.
    fn proxy(replies: &'static [u8]) -> (SocketAddr, mpsc::Receiver<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, requests) = mpsc::channel();
        thread::spawn(move || {
            for reply in replies {
                let (mut stream, _) = listener.accept().unwrap();
                stream.read_exact(&mut [0; 3]).unwrap();
                stream.write_all(b"\x05\x00").unwrap();
                let mut request = [0; 300];
                let length = stream.read(&mut request).unwrap();
                tell.send(request[3..length].to_vec()).unwrap();
                stream.write_all(&[5, *reply, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
                // Who was refused may have hung up.
                if *reply == 0 {
                    stream.write_all(b"hello").unwrap();
                }
            }
        });
        (address, requests)
    }

    #[test]
    fn an_upstream_gets_the_judged_address() {
        let (proxy, requests) = proxy(&[0]);
        let dialer = Dialer::new(Upstream::Socks5(proxy), Arc::default());
        let connected = block_on(dialer.connect(&target("8.8.8.8"), &INTERNET)).unwrap();
        assert_eq!(requests.recv().unwrap(), b"\x01\x08\x08\x08\x08\x01\xbb");
        assert!(connected.upstream && connected.address == Some([8, 8, 8, 8].into()));
    }

    #[test]
    fn an_upstream_gets_every_judged_address_in_turn() {
        let (proxy, requests) = proxy(&[4, 5, 0]);
        let found = addresses("8.8.8.8 2606:4700::1 8.8.4.4");
        let connected = block_on(through(&Arc::default(), proxy, &found, 443)).unwrap();
        assert_eq!(connected.address, Some(found[2]));
        assert_eq!(requests.iter().map(|request| request[0]).collect::<Vec<_>>(), [1, 4, 1]);
    }

    #[test]
    fn an_upstream_that_gets_names_gets_no_other_thing() {
        let (proxy, requests) = proxy(&[0]);
        let dialer = Dialer::new(Upstream::Socks5Name(proxy), Arc::default());
        let connected = block_on(dialer.connect(&target("no-such.example"), &INTERNET)).unwrap();
        assert_eq!(requests.recv().unwrap(), b"\x03\x0fno-such.example\x01\xbb");
        assert!(connected.upstream && connected.address.is_none());
        for host in ["127.0.0.1", "169.254.169.254", "10.0.0.1"] {
            let error = block_on(dialer.connect(&target(host), &INTERNET)).unwrap_err();
            assert!(matches!(error, DialError::Refused(_)), "{host}: {error}");
        }
    }

    #[test]
    fn an_upstream_that_says_no_or_is_down_is_a_failure() {
        let (proxy, _requests) = proxy(&[2]);
        let dialer = Dialer::new(Upstream::Socks5(proxy), Arc::default());
        let error = block_on(dialer.connect(&target("8.8.8.8"), &INTERNET)).unwrap_err();
        assert!(matches!(error, DialError::Upstream(UpstreamError::Replied(2))), "{error}");
        let error = loop {
            // Its listener is gone once its thread has ended.
            match block_on(dialer.connect(&target("8.8.8.8"), &INTERNET)) {
                Err(DialError::Upstream(error @ UpstreamError::Down(..))) => break error,
                other => assert!(matches!(other, Err(DialError::Upstream(_))), "{other:?}"),
            }
        };
        let said = format!("nothing answers at the upstream {proxy}: connection refused; start it");
        assert_eq!(error.to_string(), said);
    }
}
