//! What a sandbox may reach: `[internet]`, `[lan]`, judged before any name is
//! looked up.

use lnk_spec::host::Host;
use lnk_spec::spec::{Internet, Lan};

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

/// What a target may be reached by. At least one of them holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Public addresses, through the upstream.
    pub internet: bool,
    /// Private addresses, directly; never through the upstream.
    pub lan: bool,
    /// CONNECT must begin with a TLS hello whose server name is the host: port 443
    /// of a host of `[internet] hosts`, where no `tcp` endpoint names it and the LAN
    /// doesn't open it.
    pub tls_only: bool,
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
