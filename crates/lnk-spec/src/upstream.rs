//! Where connections to the internet leave from.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use crate::host::Host;
use crate::invalid::Invalid;
use crate::number::Port;
use crate::text::stored_as_text;

/// The way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Upstream {
    /// From here.
    Direct,
    /// Through a SOCKS5 proxy on this machine's loopback. It gets an address
    /// that was resolved and judged here.
    Socks5(SocketAddr),
    /// The same, but the proxy gets the name and resolves it (`socks5h`), so that
    /// nothing here sees which address it becomes.
    Socks5Name(SocketAddr),
}

impl FromStr for Upstream {
    type Err = Invalid;

    fn from_str(typed: &str) -> Result<Self, Invalid> {
        if typed == "direct" {
            return Ok(Upstream::Direct);
        }
        if let Some(proxy) = typed.strip_prefix("socks5://") {
            return loopback(typed, proxy).map(Upstream::Socks5);
        }
        if let Some(proxy) = typed.strip_prefix("socks5h://") {
            return loopback(typed, proxy).map(Upstream::Socks5Name);
        }
        Err(Invalid::Upstream(typed.into()))
    }
}

fn loopback(typed: &str, proxy: &str) -> Result<SocketAddr, Invalid> {
    let invalid = || Invalid::Upstream(typed.into());
    let (host, port) = proxy.rsplit_once(':').ok_or_else(invalid)?;
    let port: Port = port.parse().map_err(|_| invalid())?;
    match host.parse() {
        Ok(Host::Address(address)) if is_plain_loopback(host, address) => {
            Ok(SocketAddr::new(address, port.get()))
        }
        Ok(Host::Name(name)) if name.as_str() == "localhost" => {
            let scheme = &typed[..typed.len() - proxy.len()];
            Err(Invalid::UpstreamByName(typed.into(), format!("{scheme}127.0.0.1:{port}")))
        }
        Ok(_) => Err(Invalid::UpstreamElsewhere(typed.into())),
        Err(_) => Err(invalid()),
    }
}

/// IPv6 only in brackets, because of the port behind it.
fn is_plain_loopback(host: &str, address: IpAddr) -> bool {
    address.is_loopback() && (address.is_ipv4() || host.starts_with('['))
}

impl fmt::Display for Upstream {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Upstream::Direct => to.write_str("direct"),
            Upstream::Socks5(proxy) => write!(to, "socks5://{proxy}"),
            Upstream::Socks5Name(proxy) => write!(to, "socks5h://{proxy}"),
        }
    }
}

stored_as_text!(Upstream);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxy_is_on_this_machines_loopback() {
        for typed in
            ["direct", "socks5://127.0.0.1:1080", "socks5h://127.0.0.1:9050", "socks5://[::1]:1"]
        {
            assert_eq!(typed.parse::<Upstream>().unwrap().to_string(), typed);
        }
        for typed in [
            "socks5://192.168.1.1:1080",
            "socks5://example.com:1080",
            "socks5h://[::]:1",
            "socks5://0.0.0.0:1",
        ] {
            assert_eq!(typed.parse::<Upstream>(), Err(Invalid::UpstreamElsewhere(typed.into())));
        }
        for scheme in ["socks5", "socks5h"] {
            assert_eq!(
                format!("{scheme}://LocalHost:1080").parse::<Upstream>().unwrap_err().to_string(),
                format!(
                    "'{scheme}://LocalHost:1080' has a name: write the address, \
                     {scheme}://127.0.0.1:1080"
                )
            );
        }
        for typed in [
            "",
            "Direct",
            "http://127.0.0.1:1",
            "socks5://127.0.0.1",
            "socks5://127.0.0.1:0",
            "socks5://u:p@127.0.0.1:1",
            "socks5://127.0.0.1:1/",
            "socks5://127.1:1",
            "socks4://127.0.0.1:1",
        ] {
            assert_eq!(typed.parse::<Upstream>(), Err(Invalid::Upstream(typed.into())));
        }
    }
}
