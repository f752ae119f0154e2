//! Why a value can't be what it is meant to be.

use crate::address::Class;
use crate::shown::escaped_name;

/// Why a text or a number isn't a valid value. The sentence names the value,
/// escaped, and what would be right; spec and flags share it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// A spec's name that isn't plain.
    #[error("'{}' can't be a name: names are 1 to 32 of a-z, 0-9 and -", text(.0))]
    Name(String),
    /// A name with a `-` at one of its ends.
    #[error("'{}' can't be a name: begin and end it with a letter or a number", text(.0))]
    OuterDash(String),
    /// A spec's name that one of Link's own sandboxes could have.
    #[error("'{}' is how Link names its own sandboxes: choose another name", text(.0))]
    NameTaken(String),
    /// A version other than 1.
    #[error("{} isn't known: this version of lnk reads version 1", text(.0))]
    Version(String),
    /// An empty path.
    #[error("a path can't be empty: write . for the folder itself")]
    EmptyPath,
    /// A path with a NUL byte, which ends a path for the kernel.
    #[error("'{}' holds a NUL character, which no path can", text(.0))]
    NulInPath(String),
    /// A host that isn't plain and valid.
    #[error("'{}' isn't a host: write a name such as example.com, or an address", text(.0))]
    Host(String),
    /// The address of a page.
    #[error("'{}' is more than a host: write {}", text(.0), alone(.1, "example.com"))]
    HostIsUrl(String, Option<String>),
    /// Several hosts in one text.
    #[error("'{}' is several hosts: write each by itself", text(.0))]
    SeveralHosts(String),
    /// A host with a port.
    #[error("'{}' has a port: leave {} out", text(.0), port(.0))]
    HostHasPort(String),
    /// An endpoint in place of a host of the internet.
    #[error(
        "'{}' has a port: leave {} out, and open the endpoint with --tcp {}, or tcp in \
         [internet]",
        text(.0), port(.0), text(.0)
    )]
    HostIsEndpoint(String),
    /// The domain of hosts, with a dot before it, in place of a star and a dot.
    #[error("'{}' isn't a host: write *.{} for every name under {}", text(.0), .1, .1)]
    LeadingDot(String, String),
    /// A range where only hosts can stand.
    #[error("'{}' is a range: only those of your network open, with --lan-host, or hosts in [lan]", text(.0))]
    RangeElsewhere(String),
    /// An IPv4 address that isn't four plain numbers.
    #[error("'{}' isn't an IPv4 address: write four numbers, such as 192.0.2.1", text(.0))]
    Ipv4Spelling(String),
    /// A star in another place.
    #[error("'{}': a * stands alone for any host, or as *. before a name", text(.0))]
    Wildcard(String),
    /// An endpoint without host or port.
    #[error("'{}' isn't an endpoint: write host:port, such as github.com:22", text(.0))]
    Endpoint(String),
    /// An endpoint whose IPv6 address has no brackets, and how it may be meant.
    #[error(
        "'{}': it can't be told where the address ends; write {}, if that is meant",
        text(.0), text(.1)
    )]
    EndpointBrackets(String, String),
    /// A port that the sandbox needs for itself.
    #[error("'{}': port {} is the sandbox's own, for {}", text(.0), .1, .2)]
    OwnPort(String, u16, &'static str),
    /// Every host.
    #[error("'{}': an endpoint is of one host, or of the names under one domain", text(.0))]
    AnyEndpoint(String),
    /// A wildcard over a domain whose names belong to different people.
    #[error(
        "'{}': names under {} belong to different people; put your own in front of it",
        text(.0), text(.1)
    )]
    SharedDomain(String, String),
    /// A number that isn't a port.
    #[error("{} isn't a port: ports are 1 to 65535", text(.0))]
    Port(String),
    /// A number of calls that isn't possible.
    #[error("{} isn't a number of calls: it can be 1 to 1000000", text(.0))]
    Rate(String),
    /// A way out that isn't known.
    #[error(
        "'{}' isn't an upstream: it is direct, socks5://127.0.0.1:PORT, or socks5h://127.0.0.1:PORT \
         for a proxy that gets names",
        text(.0)
    )]
    Upstream(String),
    /// A proxy on this machine by a name.
    #[error("'{}' has a name: write the address, {}", text(.0), .1)]
    UpstreamByName(String, String),
    /// A proxy on another machine.
    #[error("'{}': the proxy must be on this machine: socks5://127.0.0.1:PORT", text(.0))]
    UpstreamElsewhere(String),
    /// A host of the network that is neither name, address nor range.
    #[error(
        "'{}' isn't a host of your network: write a name, an address, a range such as \
         192.168.1.0/24, or *",
        text(.0)
    )]
    LanHost(String),
    /// The address of a page in the network.
    #[error("'{}' is more than a host: write {}", text(.0), alone(.1, "nas.local"))]
    LanHostIsUrl(String, Option<String>),
    /// A host of the network with a port.
    #[error("'{}' has a port: leave {} out, every port of it is open", text(.0), port(.0))]
    LanHostHasPort(String),
    /// A range whose address isn't its first.
    #[error("'{}' starts in the middle of the range {}: write that", text(.0), text(.1))]
    RangeStart(String, String),
    /// An address or range outside the private ones.
    #[error(
        "'{}' isn't private: your network's addresses are in 10.0.0.0/8, 172.16.0.0/12, \
         192.168.0.0/16 and fc00::/7",
        text(.0)
    )]
    NotPrivate(String),
    /// A host that is known to be of another kind than its key opens.
    #[error("'{}' is {}: {}", text(.0), .1.in_words(), instead(.0, *.1))]
    Elsewhere(String, Class),
    /// A tool's name that isn't plain.
    #[error("'{}' can't be a tool: names are 1 to 32 of a-z, 0-9 and -", text(.0))]
    Tool(String),
    /// An entry that names no program.
    #[error("'{}' isn't a program: write a name, a path, a folder ending in /, or *", text(.0))]
    Program(String),
}

/// What opens a host of a kind in place of the key that doesn't.
fn instead(host: &str, class: Class) -> String {
    match class {
        Class::Private => format!("--lan-host {}, or hosts in [lan], opens it", text(host)),
        Class::Loopback => "--port PORT, or ports in [localhost], opens a port of it".into(),
        _ => "no grant opens it".into(),
    }
}

/// What to write in place of a page's address.
fn alone(host: &Option<String>, example: &str) -> String {
    match host {
        Some(host) => format!("{} alone", text(host)),
        None => format!("the name alone, such as {example}"),
    }
}

/// The port of a text that ends with one, and its colon.
fn port(typed: &str) -> String {
    text(&typed[typed.rfind(':').unwrap_or(0)..])
}

fn text(untrusted: &str) -> String {
    const MOST: usize = 100;
    let mut shown = escaped_name(untrusted.as_bytes());
    if let Some((end, _)) = shown.char_indices().nth(MOST) {
        shown.truncate(end);
        shown.push('…');
    }
    shown
}
