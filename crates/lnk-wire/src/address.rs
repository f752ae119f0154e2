//! What kind of address it is.
//!
//! The tables are the IANA special-purpose registries for IPv4 and IPv6 (RFC 6890,
//! RFC 8190, and the RFC named beside each range), IANA's list of IPv6 unicast
//! space, and the metadata addresses that clouds document. A range that isn't
//! known to be public isn't: of IPv6 only 2000::/3, all that has ever been given
//! out, and of that not what the registry takes away again.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

/// The kind of an address. Only [`Class::Public`] and [`Class::Private`] can be
/// opened by a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Of the internet.
    Public,
    /// Of the user's network: RFC 1918 and RFC 4193.
    Private,
    /// This machine: loopback, and the unspecified address, which connect(2) takes
    /// for it. Addresses of the machine's interfaces are known only when dialled.
    Loopback,
    /// Of one link only.
    LinkLocal,
    /// A service that tells a cloud's machine its secrets.
    Metadata,
    /// Shared behind a carrier's translator (RFC 6598).
    Shared,
    /// A group of machines.
    Multicast,
    /// An IPv6 address that hides a public or private IPv4 one. One that hides any
    /// other has the class of what it hides.
    Embedded,
    /// Kept for documentation, tests, protocols or the future.
    Reserved,
}

impl Class {
    /// The kind in words, after 'is' or 'resolves to'.
    #[must_use]
    pub fn in_words(self) -> &'static str {
        match self {
            Class::Public => "an address of the internet",
            Class::Private => "an address of your network",
            Class::Loopback => "an address of this machine",
            Class::LinkLocal => "a link-local address",
            Class::Metadata => "a cloud's metadata service",
            Class::Shared => "an address of a carrier's shared range",
            Class::Multicast => "a multicast address",
            Class::Embedded => "an IPv4 address hidden in an IPv6 one",
            Class::Reserved => "a reserved address",
        }
    }
}

/// The kind of an address.
#[must_use]
pub fn classify(address: IpAddr) -> Class {
    match address {
        IpAddr::V4(address) => classify_v4(address),
        IpAddr::V6(address) => classify_v6(address),
    }
}

fn classify_v4(address: Ipv4Addr) -> Class {
    let found = V4.iter().find(|(range, _)| range.contains(&address));
    found.map_or(Class::Public, |(_, class)| *class)
}

fn classify_v6(address: Ipv6Addr) -> Class {
    let found = V6.iter().find(|(range, _)| range.contains(&address));
    match found {
        Some((_, Kind::Is(class))) => *class,
        Some((_, Kind::Hides(hidden))) => match classify_v4(hidden(address)) {
            Class::Public | Class::Private => Class::Embedded,
            class => class,
        },
        None if UNICAST.contains(&address) => Class::Public,
        None => Class::Reserved,
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length)
}

/// The first range that holds an address decides.
#[rustfmt::skip]
const V4: [(Ipv4Net, Class); 28] = [
    // Every cloud's; AWS: EC2 user guide, 'Access instance metadata'.
    (v4(169, 254, 169, 254, 32), Class::Metadata),
    // AWS, credentials of a container: ECS developer guide, 'Task IAM role'; EKS
    // user guide, 'Pod Identity'.
    (v4(169, 254, 170, 2, 32), Class::Metadata),
    (v4(169, 254, 170, 23, 32), Class::Metadata),
    // Scaleway: 'Instance metadata'. Tencent Cloud: 'Querying instance metadata'.
    (v4(169, 254, 42, 42, 32), Class::Metadata),
    (v4(169, 254, 0, 23, 32), Class::Metadata),
    // Alibaba Cloud: ECS user guide, 'Obtain instance metadata'.
    (v4(100, 100, 100, 200, 32), Class::Metadata),
    // Azure's host: 'What is IP address 168.63.129.16?'.
    (v4(168, 63, 129, 16, 32), Class::Metadata),
    // Oracle Cloud's older one, as cloud-init's and Go's metadata readers know it.
    (v4(192, 0, 0, 192, 32), Class::Metadata),

    (v4(0, 0, 0, 0, 32), Class::Loopback),        // 'this host'; to connect(2) it's loopback
    (v4(0, 0, 0, 0, 8), Class::Reserved),         // RFC 791, 'this network'
    (v4(10, 0, 0, 0, 8), Class::Private),         // RFC 1918
    (v4(100, 64, 0, 0, 10), Class::Shared),       // RFC 6598
    (v4(127, 0, 0, 0, 8), Class::Loopback),       // RFC 1122
    (v4(169, 254, 0, 0, 16), Class::LinkLocal),   // RFC 3927
    (v4(172, 16, 0, 0, 12), Class::Private),      // RFC 1918
    (v4(192, 0, 0, 0, 24), Class::Reserved),      // RFC 6890, protocols
    (v4(192, 0, 2, 0, 24), Class::Reserved),      // RFC 5737, documentation
    (v4(192, 31, 196, 0, 24), Class::Reserved),   // RFC 7535, AS112
    (v4(192, 52, 193, 0, 24), Class::Reserved),   // RFC 7450, multicast tunnels
    (v4(192, 88, 99, 0, 24), Class::Reserved),    // RFC 7526, 6to4 relays
    (v4(192, 168, 0, 0, 16), Class::Private),     // RFC 1918
    (v4(192, 175, 48, 0, 24), Class::Reserved),   // RFC 7534, AS112
    (v4(198, 18, 0, 0, 15), Class::Reserved),     // RFC 2544, benchmarking
    (v4(198, 51, 100, 0, 24), Class::Reserved),   // RFC 5737, documentation
    (v4(203, 0, 113, 0, 24), Class::Reserved),    // RFC 5737, documentation
    (v4(224, 0, 0, 0, 4), Class::Multicast),      // RFC 5771
    (v4(255, 255, 255, 255, 32), Class::Reserved), // RFC 8190, broadcast
    (v4(240, 0, 0, 0, 4), Class::Reserved),       // RFC 1112
];

/// What a range of IPv6 is.
enum Kind {
    /// One class.
    Is(Class),
    /// IPv4 addresses, and how to find one.
    Hides(fn(Ipv6Addr) -> Ipv4Addr),
}

const fn v6(segments: [u16; 8], length: u8) -> Ipv6Net {
    let [a, b, c, d, e, f, g, h] = segments;
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), length)
}

/// RFC 4291, 2.4 and IANA's list of IPv6 unicast space.
const UNICAST: Ipv6Net = v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// The first range that holds an address decides.
#[rustfmt::skip]
const V6: [(Ipv6Net, Kind); 26] = [
    // AWS: EC2 user guide, 'Access instance metadata'; EKS user guide, 'Pod Identity'.
    (v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128), Kind::Is(Class::Metadata)),
    (v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23], 128), Kind::Is(Class::Metadata)),
    // Google Cloud: 'About VM metadata', for machines with IPv6 alone.
    (v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128), Kind::Is(Class::Metadata)),
    // Scaleway: 'Instance metadata'. OpenStack: Nova's metadata service over IPv6.
    (v6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128), Kind::Is(Class::Metadata)),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128), Kind::Is(Class::Metadata)),

    (v6([0; 8], 128), Kind::Is(Class::Loopback)),                   // 'unspecified'; to connect(2) it's loopback
    (v6([0, 0, 0, 0, 0, 0, 0, 1], 128), Kind::Is(Class::Loopback)), // RFC 4291
    (v6([0; 8], 96), Kind::Hides(last)),                            // RFC 4291, compatible
    (v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96), Kind::Hides(last)),     // RFC 4291, mapped
    (v6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96), Kind::Hides(last)),     // RFC 2765, translated
    (v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96), Kind::Hides(last)),  // RFC 6052, NAT64
    // RFC 8215, NAT64 of one network: read as its usual /96 holds it, which matters
    // for the words of a refusal alone.
    (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), Kind::Hides(last)),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), Kind::Hides(teredo)),   // RFC 4380
    (v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), Kind::Hides(six_to_four)), // RFC 3056
    (v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64), Kind::Is(Class::Reserved)), // RFC 6666, discard
    (v6([0x100, 0, 0, 1, 0, 0, 0, 0], 64), Kind::Is(Class::Reserved)), // RFC 9780, dummy
    // RFC 2928: protocols, benchmarking (RFC 5180), ORCHID (RFC 7343), AMT, AS112.
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), Kind::Is(Class::Reserved)),
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), Kind::Is(Class::Reserved)), // RFC 3849, documentation
    (v6([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0], 48), Kind::Is(Class::Reserved)), // RFC 7534, AS112
    (v6([0x3ffe, 0, 0, 0, 0, 0, 0, 0], 16), Kind::Is(Class::Reserved)), // RFC 3701, 6bone
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), Kind::Is(Class::Reserved)), // RFC 9637, documentation
    (v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16), Kind::Is(Class::Reserved)), // RFC 9602, segments
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), Kind::Is(Class::Private)),  // RFC 4193
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), Kind::Is(Class::LinkLocal)), // RFC 4291
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), Kind::Is(Class::Reserved)), // RFC 3879, site-local
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), Kind::Is(Class::Multicast)), // RFC 4291
];

/// The last 32 bits.
fn last(address: Ipv6Addr) -> Ipv4Addr {
    let [.., a, b, c, d] = address.octets();
    Ipv4Addr::new(a, b, c, d)
}

/// The client: the last 32 bits, inverted (RFC 4380, 4).
fn teredo(address: Ipv6Addr) -> Ipv4Addr {
    Ipv4Addr::from_bits(!last(address).to_bits())
}

/// The 32 bits after the prefix (RFC 3056, 2).
fn six_to_four(address: Ipv6Addr) -> Ipv4Addr {
    let [_, _, a, b, c, d, ..] = address.octets();
    Ipv4Addr::new(a, b, c, d)
}
