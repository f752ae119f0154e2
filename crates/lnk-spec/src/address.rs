//! What kind of address it is: the one rule, by which grants are read and calls
//! are judged.
//!
//! The tables are the IANA special-purpose registries for IPv4 and IPv6 (RFC 6890,
//! RFC 8190, and the RFC named beside each range), IANA's list of IPv6 unicast
//! space, and the metadata addresses that clouds document. A range that isn't
//! known to be public isn't: of IPv6 only 2000::/3, all that has ever been given
//! out, and of that not what the registry takes away again.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

use crate::host::Host;

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
    /// Of the public kind, and in a network that this machine is in, which is known
    /// only when it is dialled.
    Neighbour,
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
            Class::Neighbour => "a public address in a network of yours",
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
/// This machine's name, and the domain of more of them (RFC 6761, 6.3).
const LOCALHOST: &str = "localhost";

/// The kind of a host, as far as it is known without a look-up: that of an address,
/// and of the names of this machine and of metadata services.
#[must_use]
pub fn class_of(host: &Host) -> Option<Class> {
    match host {
        Host::Address(address) => Some(classify(*address)),
        Host::Name(name) if METADATA.contains(&name.as_str()) => Some(Class::Metadata),
        Host::Name(name) if name.is_within(LOCALHOST) => Some(Class::Loopback),
        Host::Name(_) => None,
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
const V6: [(Ipv6Net, Kind); 29] = [
    // AWS: EC2 user guide, 'Access instance metadata'; EKS user guide, 'Pod Identity'.
    (v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128), Kind::Is(Class::Metadata)),
    (v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23], 128), Kind::Is(Class::Metadata)),
    // Oracle, Akamai (Linode) and Alibaba.
    (v6([0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128), Kind::Is(Class::Metadata)),
    (v6([0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1], 128), Kind::Is(Class::Metadata)),
    (v6([0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200], 128), Kind::Is(Class::Metadata)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn class(address: &str) -> Class {
        classify(address.parse().unwrap())
    }

    #[test]
    fn every_range_begins_and_ends_where_the_registry_says() {
        use Class::{Embedded, LinkLocal, Loopback, Multicast, Private, Public, Reserved, Shared};
        // Before, first, last, behind.
        for (addresses, [before, within, behind]) in [
            (["", "0.0.0.1", "0.255.255.255", "1.0.0.0"], [Reserved, Reserved, Public]),
            (
                ["9.255.255.255", "10.0.0.0", "10.255.255.255", "11.0.0.0"],
                [Public, Private, Public],
            ),
            (
                ["100.63.255.255", "100.64.0.0", "100.127.255.255", "100.128.0.0"],
                [Public, Shared, Public],
            ),
            (
                ["126.255.255.255", "127.0.0.0", "127.255.255.255", "128.0.0.0"],
                [Public, Loopback, Public],
            ),
            (
                ["169.253.255.255", "169.254.0.0", "169.254.255.255", "169.255.0.0"],
                [Public, LinkLocal, Public],
            ),
            (
                ["172.15.255.255", "172.16.0.0", "172.31.255.255", "172.32.0.0"],
                [Public, Private, Public],
            ),
            (
                ["191.255.255.255", "192.0.0.0", "192.0.0.255", "192.0.1.0"],
                [Public, Reserved, Public],
            ),
            (["192.0.1.255", "192.0.2.0", "192.0.2.255", "192.0.3.0"], [Public, Reserved, Public]),
            (
                ["192.31.195.255", "192.31.196.0", "192.31.196.255", "192.31.197.0"],
                [Public, Reserved, Public],
            ),
            (
                ["192.52.192.255", "192.52.193.0", "192.52.193.255", "192.52.194.0"],
                [Public, Reserved, Public],
            ),
            (
                ["192.88.98.255", "192.88.99.0", "192.88.99.255", "192.88.100.0"],
                [Public, Reserved, Public],
            ),
            (
                ["192.167.255.255", "192.168.0.0", "192.168.255.255", "192.169.0.0"],
                [Public, Private, Public],
            ),
            (
                ["192.175.47.255", "192.175.48.0", "192.175.48.255", "192.175.49.0"],
                [Public, Reserved, Public],
            ),
            (
                ["198.17.255.255", "198.18.0.0", "198.19.255.255", "198.20.0.0"],
                [Public, Reserved, Public],
            ),
            (
                ["198.51.99.255", "198.51.100.0", "198.51.100.255", "198.51.101.0"],
                [Public, Reserved, Public],
            ),
            (
                ["203.0.112.255", "203.0.113.0", "203.0.113.255", "203.0.114.0"],
                [Public, Reserved, Public],
            ),
            (
                ["223.255.255.255", "224.0.0.0", "239.255.255.255", "240.0.0.0"],
                [Public, Multicast, Reserved],
            ),
            (["", "240.0.0.0", "255.255.255.255", ""], [Reserved, Reserved, Reserved]),
            (["", "::1", "::1", "::2"], [Loopback, Loopback, Reserved]),
            (
                ["::fffe:ffff:ffff", "::ffff:8.0.0.0", "::ffff:8.255.255.255", "::1:0:0:0"],
                [Reserved, Embedded, Reserved],
            ),
            (
                ["64:ff9a:ffff::", "64:ff9b::808:808", "64:ff9b::dfff:ffff", "64:ff9b::1:0:0"],
                [Reserved, Embedded, Reserved],
            ),
            (
                [
                    "64:ff9b:0:ffff::",
                    "64:ff9b:1::808:808",
                    "64:ff9b:1:ffff::808:808",
                    "64:ff9b:2::",
                ],
                [Reserved, Embedded, Reserved],
            ),
            (["ff:ffff::", "100::", "100::ffff:ffff:ffff:ffff", "100:0:0:2::"], [Reserved; 3]),
            (
                ["1fff:ffff::", "2001:2::", "2001:1ff:ffff::", "2001:200::"],
                [Reserved, Reserved, Public],
            ),
            (
                ["2000:ffff::", "2001:0:ffff::f7f7:f7f7", "2001::f7f7:f7f7", "2001:1::"],
                [Public, Embedded, Reserved],
            ),
            (
                ["2001:db7:ffff::", "2001:db8::", "2001:db8:ffff::", "2001:db9::"],
                [Public, Reserved, Public],
            ),
            (
                ["2001:ffff::", "2002:100::", "2002:dfff:ffff::", "2003::"],
                [Public, Embedded, Public],
            ),
            (
                ["2620:4f:7fff::", "2620:4f:8000::", "2620:4f:8000:ffff::", "2620:4f:8001::"],
                [Public, Reserved, Public],
            ),
            (["3ffd:ffff::", "3ffe::", "3ffe:ffff::", ""], [Public, Reserved, Reserved]),
            (["", "3fff::", "3fff:fff:ffff::", "3fff:1000::"], [Reserved, Reserved, Public]),
            (["3fff:ffff::", "4000::", "5f00::", "6000::"], [Public, Reserved, Reserved]),
            (["fbff:ffff::", "fc00::", "fdff:ffff::", "fe00::"], [Reserved, Private, Reserved]),
            (["fe7f:ffff::", "fe80::", "febf:ffff::", "fec0::"], [Reserved, LinkLocal, Reserved]),
            (["", "fec0::", "feff:ffff::", "ff00::"], [Reserved, Reserved, Multicast]),
            (["", "ff00::", "ffff:ffff::", ""], [Multicast, Multicast, Multicast]),
        ] {
            for (address, expected) in addresses.into_iter().zip([before, within, within, behind]) {
                if !address.is_empty() {
                    assert_eq!(class(address), expected, "{address}");
                }
            }
        }
    }

    #[test]
    fn metadata_services_are_known_in_every_disguise() {
        for address in [
            "169.254.169.254",
            "169.254.170.2",
            "169.254.170.23",
            "169.254.42.42",
            "169.254.0.23",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd00:c1::a9fe:a9fe",
            "fd00:a9fe:a9fe::1",
            "fd00:100::100:200",
            "fd20:ce::254",
            "fd00:42::42",
            "fe80::a9fe:a9fe",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "::ffff:0:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "2001::5601:5601",
        ] {
            assert_eq!(class(address), Class::Metadata, "{address}");
        }
        assert_eq!(class("168.63.129.15"), Class::Public);
        assert_eq!(class("168.63.129.17"), Class::Public);
        assert_eq!(class("fd00:ec2::253"), Class::Private);
    }

    #[test]
    fn this_machine_is_known_in_every_disguise() {
        for address in [
            "0.0.0.0",
            "127.0.0.1",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001:0:4136:e378:8000:63bf:80ff:fffe",
        ] {
            assert_eq!(class(address), Class::Loopback, "{address}");
        }
    }

    fn hiding(address: Ipv4Addr) -> impl Iterator<Item = Ipv6Addr> {
        let [a, b, c, d] = address.octets().map(u16::from);
        let (high, low) = (a << 8 | b, c << 8 | d);
        [
            Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low),
            Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, high, low),
            Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
            Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
            Ipv6Addr::new(0x64, 0xff9b, 1, 9, 0, 0, high, low),
            Ipv6Addr::new(0x2001, 0, 1, 2, 3, 4, !high, !low),
            Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 9),
        ]
        .into_iter()
    }

    proptest! {
        #[test]
        fn what_hides_ipv4_is_never_open(bits: u32) {
            let address = Ipv4Addr::from_bits(bits);
            for hiding in hiding(address) {
                let class = classify(hiding.into());
                prop_assert!(!matches!(class, Class::Public | Class::Private), "{hiding}");
                let hidden = classify(address.into());
                // :: and ::1 are themselves.
                if !matches!(hidden, Class::Public | Class::Private) && bits > 1 {
                    prop_assert_eq!(class, hidden, "{}", hiding);
                }
            }
        }

        #[test]
        fn public_is_what_the_standard_library_finds_nothing_special_in(bits: u32, bits6: u128) {
            let four = Ipv4Addr::from_bits(bits);
            if classify(four.into()) == Class::Public {
                prop_assert!(!(four.is_private()
                    || four.is_loopback()
                    || four.is_link_local()
                    || four.is_broadcast()
                    || four.is_documentation()
                    || four.is_multicast()
                    || four.is_unspecified()));
            }
            for six in [bits6, bits6 >> 3 | 1 << 125, bits6 >> 9 | 0xfe << 120] {
                let six = Ipv6Addr::from_bits(six);
                match classify(six.into()) {
                    Class::Public => prop_assert_eq!(six.segments()[0] >> 13, 1),
                    Class::Private => prop_assert!(six.is_unique_local()),
                    _ => {}
                }
            }
        }
    }
}
