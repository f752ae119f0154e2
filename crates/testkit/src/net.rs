//! Other machines: a network of namespaces that nothing leads out of.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::User;

/// The machine that `lnk` runs on, and another one behind a cable. Addresses of the
/// public kind are nobody's here: the namespaces have no other cable.
#[derive(Debug)]
pub struct Net {
    machine: Namespace,
    hosts: Namespace,
    programs: Vec<Child>,
}

/// A network namespace, kept by a process that waits in it.
#[derive(Debug)]
struct Namespace(Child);

/// The machine's own addresses: what it sends to either network comes from the first
/// there, unless a program asks for the other.
pub const MACHINE: [&str; 4] = ["11.0.0.1/32", "11.0.0.9/32", "10.77.0.1/24", "12.0.0.1/24"];
/// The other machine's, of the public kind.
pub const PUBLIC: [&str; 3] = ["11.0.0.2", "11.0.0.3", "11.0.0.4"];
/// The other machine's in networks of the public kind that both are in: by a route that
/// the kernel made, and by one that a DHCP client did.
pub const NEIGHBOURS: [&str; 2] = ["12.0.0.2", "13.0.0.2"];
/// The other machine's, in a private network.
pub const PRIVATE: [&str; 2] = ["10.77.0.2", "10.77.0.3"];

/// An address of the private network at which nobody says anything, not even that there
/// is nobody.
pub const SILENT: &str = "10.77.0.77";

impl Net {
    /// Makes it; only root can.
    ///
    /// # Panics
    /// When it can't be made: on CI also where this isn't root.
    pub fn new() -> Option<Net> {
        if !User::current().is_root() {
            crate::missing("root, who makes networks");
            return None;
        }
        let (machine, hosts) = (Namespace::new(), Namespace::new());
        let other = hosts.pid();
        machine.ip(&[
            "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", &other,
        ]);
        for (space, addresses) in [
            (&machine, MACHINE.map(String::from).to_vec()),
            (
                &hosts,
                PUBLIC
                    .iter()
                    .chain(&PRIVATE)
                    .chain(&NEIGHBOURS)
                    .map(|it| format!("{it}/24"))
                    .collect(),
            ),
        ] {
            space.ip(&["link", "set", "lo", "up"]);
            for address in addresses {
                space.ip(&["address", "add", &address, "dev", "cable"]);
            }
            space.ip(&["link", "set", "cable", "up"]);
        }
        machine.ip(&["address", "add", "13.0.0.1/24", "dev", "cable", "noprefixroute"]);
        machine.ip(&["route", "add", "13.0.0.0/24", "dev", "cable", "proto", "dhcp"]);
        machine.ip(&["neighbour", "add", SILENT, "lladdr", "02:00:00:00:00:77", "dev", "cable"]);
        // The internet is behind a router.
        machine.ip(&["route", "add", "11.0.0.0/24", "via", PRIVATE[0], "src", "11.0.0.1"]);
        Some(Net { machine, hosts, programs: Vec::new() })
    }

    /// Starts a server on the other machine, as root, and waits until it says
    /// that it serves, by a line on standard output.
    ///
    /// # Panics
    /// When it ends first.
    pub fn serve<'a>(&mut self, argv: impl AsRef<[&'a str]>) -> &mut Self {
        let argv = argv.as_ref();
        let child = self.hosts.command(argv).stdout(Stdio::piped()).spawn().expect("nsenter");
        self.keep(child, argv)
    }

    /// [`serve`](Self::serve) on the machine that `lnk` runs on.
    ///
    /// # Panics
    /// When it ends first.
    pub fn serve_here<'a>(&mut self, argv: impl AsRef<[&'a str]>) -> &mut Self {
        let argv = argv.as_ref();
        let child = self.machine.command(argv).stdout(Stdio::piped()).spawn().expect("nsenter");
        self.keep(child, argv)
    }

    fn keep(&mut self, mut server: Child, argv: &[&str]) -> &mut Self {
        let mut line = String::new();
        let out = server.stdout.as_mut().expect("piped");
        BufReader::new(out).read_line(&mut line).expect("a line");
        assert!(!line.is_empty(), "{argv:?} serves nothing");
        self.programs.push(server);
        self
    }

    /// Writes an `/etc/hosts` in which these names lead to these addresses. One that
    /// says so already stays as it is, for whoever reads it.
    ///
    /// # Panics
    /// When it can't be written.
    pub fn names(&self, file: &Path, names: &[(&str, &str)]) {
        let lines = names.iter().map(|(name, address)| {
            let address: IpAddr = address.parse().expect("an address");
            format!("{address} {name}\n")
        });
        let own = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
        let hosts: String = std::iter::once(own).chain(lines).collect();
        if fs::read_to_string(file).ok().as_ref() != Some(&hosts) {
            fs::write(file, hosts).expect("hosts");
        }
    }

    /// The words that start a program in the machine's network.
    #[must_use]
    pub fn words(&self) -> Vec<OsString> {
        self.machine.words()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for program in &mut self.programs {
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

impl Namespace {
    fn new() -> Namespace {
        let mut unshare = Command::new("unshare");
        unshare.args(["--net", "sh", "-c", "echo; exec cat"]);
        let mut child =
            unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("unshare");
        let out = child.stdout.as_mut().expect("piped");
        BufReader::new(out).read_line(&mut String::new()).expect("a line");
        Namespace(child)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    fn words(&self) -> Vec<OsString> {
        let net = format!("--net=/proc/{}/ns/net", self.pid());
        ["nsenter", &net, "--"].map(OsString::from).into()
    }

    fn command(&self, argv: &[&str]) -> Command {
        let words = self.words();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(argv);
        command
    }

    fn ip(&self, arguments: &[&str]) {
        let words = self.words();
        let status = Command::new(&words[0]).args(&words[1..]).arg("ip").args(arguments).status();
        assert!(status.expect("nsenter").success(), "ip {arguments:?}");
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
