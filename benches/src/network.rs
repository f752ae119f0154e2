//! The network that the wire is measured in: this machine as one namespace, the
//! origin in another behind a veth(4) pair, as nothing of a machine's own is ever
//! reached through a wire.

use std::ffi::OsString;
use std::net::IpAddr;
use std::process::Command;

use testkit::Net;
use testkit::net::PRIVATE;

use crate::Result;
use crate::options::User;

/// The namespaces, with the origin serving.
pub struct Network(Net);

impl Network {
    /// Makes it. `None` where the caller isn't root, who alone can.
    pub fn make() -> Result<Option<Network>> {
        if !rustix::process::getuid().is_root() {
            return Ok(None);
        }
        let mut net = Net::new().ok_or("no network of namespaces can be made")?;
        let own = std::env::current_exe()?.into_os_string().into_string();
        let own = own.map_err(|_| "the path of this program isn't text")?;
        net.serve([&own, "--origin", PRIVATE[0]]);
        let network = Network(net);
        network.reuse_ports()?;
        Ok(Some(network))
    }

    /// Where the origin is.
    pub fn origin() -> IpAddr {
        PRIVATE[0].parse().expect("an address")
    }

    /// The words that start a program in it as a user.
    pub fn words(&self, user: &User) -> Vec<OsString> {
        let mut words = self.0.words();
        let (uid, gid) = (format!("--reuid={}", user.uid), format!("--regid={}", user.gid));
        words.extend(["setpriv", &uid, &gid, "--clear-groups", "--"].map(OsString::from));
        words
    }

    /// Ports of closed connections are used again after a second, as the loopback's
    /// are by default: some thousand tunnels a second use all up before a minute is
    /// over.
    fn reuse_ports(&self) -> Result<()> {
        let words = self.0.words();
        let script = "echo 1 > /proc/sys/net/ipv4/tcp_tw_reuse";
        let status =
            Command::new(&words[0]).args(&words[1..]).args(["sh", "-c", script]).status()?;
        match status.success() {
            true => Ok(()),
            false => Err("tcp_tw_reuse can't be set".into()),
        }
    }
}
