//! A host, a pattern of hosts, an endpoint, an entry of the LAN and an upstream never
//! panic their reader; what is read is canonical, and means the same when it's read
//! again.
#![no_main]

use std::fmt::{Debug, Display};
use std::str::FromStr;

use libfuzzer_sys::fuzz_target;
use lnk_spec::endpoint::Endpoint;
use lnk_spec::host::{Host, HostPattern};
use lnk_spec::lan::LanHost;
use lnk_spec::upstream::Upstream;

fuzz_target!(|typed: &str| {
    let host = read::<Host>(typed);
    let pattern = read::<HostPattern>(typed);
    if let Some(host) = host {
        assert_eq!(pattern, Some(HostPattern::One(host.clone())));
        assert_plain(&host);
        // A name under it is under it and isn't it; an address has none.
        if let (Host::Name(name), Ok(under)) = (&host, format!("a.{host}").parse::<Host>()) {
            let below = format!("*.{name}", name = name.as_str()).parse::<HostPattern>();
            let below = below.expect("a name has names under it");
            assert!(below.matches(&under) && !below.matches(&host));
        }
    }
    if let Some(endpoint) = read::<Endpoint>(typed) {
        assert_ne!(*endpoint.host(), HostPattern::Any);
        assert!(endpoint.covers(&endpoint));
    }
    if let Some(lan) = read::<LanHost>(typed) {
        assert!(lan.covers(&lan));
    }
    if let Some(Upstream::Socks5(proxy) | Upstream::Socks5Name(proxy)) = read(typed) {
        assert!(proxy.ip().is_loopback());
    }
});

/// What is read, shown and read again, is the same.
fn read<T: FromStr + Display + Debug + PartialEq>(typed: &str) -> Option<T> {
    let read: T = typed.parse().ok()?;
    let again = read.to_string().parse::<T>().ok().expect("what is shown is read");
    assert_eq!(again, read);
    assert_eq!(again.to_string(), read.to_string());
    Some(read)
}

/// Nothing in a host can be taken for another part of a line or a URL.
fn assert_plain(host: &Host) {
    let shown = host.to_string();
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.:".contains(&byte);
    assert!(!shown.is_empty() && shown.bytes().all(plain));
    assert!(matches!(host, Host::Address(_)) || !shown.contains(':'));
}
