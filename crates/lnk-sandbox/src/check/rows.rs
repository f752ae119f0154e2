//! The table: what is tried, by which control it is known to work, and what may
//! refuse it.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use lnk_spec::host::{Host, HostPattern};
use lnk_spec::upstream::Upstream;
use lnk_spec::{protected, shown};

use super::bait::Bait;
use super::probe::Answers;
use super::tries::{Answer, Evidence, GETENT, MountCall, Protocol, Try};
use crate::error::{Result, reason};
use crate::linux::judged::Place;
use crate::paths::{Identity, real_or_written};
use crate::plan::OWN_BINARY;
use crate::policy::Policy;
use crate::programs::ProgramList;
use crate::programs::judge::{identity_of, start_of};
use crate::programs::start::Start;

/// Addresses for documentation (RFC 5737, RFC 3849): routed like any other of
/// the internet's, and nobody's.
const INTERNET: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];
/// Where clouds tell their machines' secrets.
const METADATA: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254));

/// Programs that do nothing, or say a little, and end.
const HARMLESS: [&str; 4] = ["/usr/bin/true", "/usr/bin/env", "/usr/bin/id", "/usr/bin/pwd"];

/// What closed files and folders answer.
const CLOSED: &[i32] = &[libc::ENOENT, libc::EACCES];
/// What read-only mounts and Landlock answer.
const READ_ONLY: &[i32] = &[libc::EROFS, libc::EACCES];
/// Why what is granted isn't tried where the grant doesn't help.
const CLOSED_TO_YOU: &str = "its permissions close it to you";
/// What the proxy's refusal counts as.
const REFUSED_BY_PROXY: &[i32] = &[libc::EACCES];
/// The flag that gives this machine's own network.
const SHARED: &str = "--allow network";
/// Types of records that a name is asked for.
const KINDS: [(&str, u16); 9] = [
    ("A", 1),
    ("AAAA", 28),
    ("CNAME", 5),
    ("MX", 15),
    ("PTR", 12),
    ("SRV", 33),
    ("TXT", 16),
    ("HTTPS", 65),
    ("ANY", 255),
];
/// An address of 127/8 behind all that may stand for a name.
const NOBODYS: Ipv4Addr = Ipv4Addr::new(127, 77, 255, 254);
/// What a network namespace without a route answers.
const NO_ROUTE: &[i32] = &[libc::ENETUNREACH];

/// One line of the table.
#[derive(Debug)]
pub struct Row {
    /// What is tried.
    pub what: String,
    /// The try.
    pub attempt: Try,
    /// The try from outside that shows it would work.
    pub control: Try,
    /// What the control may answer as well: then the same answer from inside
    /// says nothing.
    pub control_too: &'static [i32],
    /// Where a machine may well refuse it to everyone: why, and the row is left
    /// out then.
    pub optional: Option<&'static str>,
    /// The errnos that are the sandbox's.
    pub blocked: &'static [i32],
    /// The layers behind it.
    pub layers: Vec<(&'static str, Seen)>,
    /// The flag that opens it.
    pub allowed: Option<String>,
    /// Where it shows outside when it got through.
    pub shows: Shows,
}

/// How it is seen whether a layer is there.
#[derive(Debug)]
pub enum Seen {
    /// By something that is looked at from inside.
    By(Evidence),
    /// By the row's own answer, since nothing else can refuse it.
    Answer,
    /// By the row's answer where every other layer is missing.
    Alone,
    /// By trying from outside, in the sandbox's user namespace.
    NamespacesLimited,
    /// By what `/proc/keys` shows to another run; where nothing, as [`Seen::Alone`].
    OtherSession,
}

/// How it is seen from outside whether a try that worked reached there.
#[derive(Debug)]
pub enum Shows {
    /// By the try itself.
    Inside,
    /// By a file.
    File(PathBuf),
    /// By a word that arrived.
    Word(UdpSocket, String),
    /// By a process that is left.
    Process,
}

/// What can't be tried, and why.
#[derive(Debug)]
pub struct Missing {
    /// The row.
    pub what: String,
    /// The reason.
    pub why: String,
}

/// What a flag opens.
#[derive(Debug)]
pub struct Opened {
    /// The row.
    pub what: String,
    /// The flag.
    pub flag: String,
}

/// The rows, and what must be held open for them.
#[derive(Debug)]
pub struct Table<'a> {
    policy: &'a Policy,
    root: bool,
    bait: &'a mut Bait,
    secret: Vec<u8>,
    /// What is tried.
    pub rows: Vec<Row>,
    /// What this machine has nothing for.
    pub left_out: Vec<Missing>,
    /// What should have been tried.
    pub not_tried: Vec<Missing>,
    /// What flags open beyond this machine, which isn't tried.
    pub opened: Vec<Opened>,
    /// What flags open that nothing here can hold.
    pub gaps: Vec<Opened>,
    /// Listeners.
    held: Vec<OwnedFd>,
}

/// What the caller holds for rows.
#[derive(Debug)]
pub struct Held<'a> {
    /// Link's settings' own folder for bait, a real path.
    pub settings: &'a Path,
    /// The records of placeholders.
    pub placeholders: &'a Path,
    /// The process to be found, and the word on its command line.
    pub process: (i32, &'a str),
    /// The name of the key in the session keyring, if there is one.
    pub key: Result<&'a str, String>,
    /// The variable that is set for the run.
    pub variable: &'a str,
    /// The file that is open for the run.
    pub descriptor: Identity,
    /// `lnk` itself, as it is outside.
    pub own_binary: &'a Path,
    /// The file in the settings that holds the secret.
    pub secret_file: &'a Path,
    /// The spec that the sandbox is described by.
    pub spec: Option<&'a Path>,
}

impl<'a> Table<'a> {
    /// Plants bait for every row.
    ///
    /// # Errors
    /// What can't be planted at all.
    pub fn plant(
        policy: &'a Policy,
        root: bool,
        bait: &'a mut Bait,
        secret: &[u8],
        held: &Held<'_>,
    ) -> Result<Table<'a>> {
        let mut table = Table {
            policy,
            root,
            bait,
            secret: secret.to_vec(),
            rows: Vec::new(),
            left_out: Vec::new(),
            not_tried: Vec::new(),
            opened: Vec::new(),
            gaps: Vec::new(),
            held: Vec::new(),
        };
        table.secrets();
        table.settings(held)?;
        table.hidden(held.placeholders);
        table.writes();
        table.dot_files()?;
        table.spec(held.spec);
        table.processes(held.process);
        table.keyring(&held.key);
        table.unix_sockets()?;
        table.own_addresses()?;
        table.routes();
        table.named();
        table.proxied();
        table.terminal();
        table.set_id()?;
        table.kernel();
        table.programs(held.own_binary)?;
        table.inherited(held);
        Ok(table)
    }

    /// Evidence that needs to be told what is so outside.
    pub fn know_outside(&mut self, outside: &Answers) {
        let layers = outside.landlock_layers.unwrap_or(0);
        for (_, evidence) in self.rows.iter_mut().flat_map(|row| &mut row.layers) {
            if let Seen::By(Evidence::Landlock { outside }) = evidence {
                *outside = layers;
            }
        }
    }

    // --- how a row is put together -------------------------------------------

    fn add(&mut self, what: impl Into<String>, attempt: Try, blocked: &'static [i32]) -> &mut Row {
        self.rows.push(Row {
            what: what.into(),
            control: attempt.clone(),
            attempt,
            control_too: &[],
            optional: None,
            blocked,
            layers: Vec::new(),
            allowed: None,
            shows: Shows::Inside,
        });
        self.rows.last_mut().expect("just pushed")
    }

    /// A row of what the network namespace holds, or this machine's network opens.
    fn add_way_out(
        &mut self,
        what: impl Into<String>,
        attempt: Try,
        blocked: &'static [i32],
    ) -> &mut Row {
        let shared = self.policy.network.shared;
        let row = self.add(what, attempt, blocked);
        if shared {
            row.allowed = Some(SHARED.into());
        } else {
            row.layers = vec![("network namespace", namespace("net"))];
        }
        row
    }

    fn cannot(&mut self, what: impl Into<String>, why: &io::Error) {
        self.not_tried.push(Missing { what: what.into(), why: reason(why) });
    }

    fn leave_out(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.left_out.push(Missing { what: what.into(), why: why.into() });
    }

    /// The flag that opens a path, to read or to write: the deepest that holds
    /// it, unless a hide is deeper.
    fn opened(&self, path: &Path, write: bool) -> Option<String> {
        let length = |path: &Path| path.as_os_str().len();
        let grants = self.policy.grants.iter().filter(|grant| path.starts_with(&grant.held.real));
        let grant = grants.max_by_key(|grant| length(&grant.held.real))?;
        let hides = self.policy.hides.iter().filter(|hide| path.starts_with(&hide.path));
        let hidden = hides.map(|hide| length(&hide.path)).max().unwrap_or(0);
        let open = hidden < length(&grant.held.real) && (grant.write || !write);
        let flag = if grant.write { "--write" } else { "--read" };
        open.then(|| format!("{flag} {}", shown::word(&grant.held.typed)))
    }

    // --- files ---------------------------------------------------------------

    fn secrets(&mut self) {
        let home = self.policy.home_real.clone();
        let what = "read a secret in your home folder";
        match self.bait.file(&home, &self.secret) {
            Ok(path) => {
                let allowed = self.opened(&path, false);
                let row = self.add(what, Try::Read { path: (&path).into() }, CLOSED);
                row.layers = vec![("mounts", Seen::Answer)];
                row.allowed = allowed;
            }
            Err(error) => self.cannot(what, &error.into()),
        }
        for (index, path) in self.folders(false) {
            let typed = shown::word(&self.policy.grants[index].held.typed);
            if let Ok(secret) = self.bait.file(&path, &self.secret) {
                let allowed = self.opened(&secret, false);
                let what = format!("read a file in {typed}");
                self.add(what, Try::Read { path: (&secret).into() }, CLOSED).allowed = allowed;
            }
        }
    }

    /// The folders granted, to write or only to read, by their index.
    fn folders(&self, write: bool) -> Vec<(usize, PathBuf)> {
        let grants = self.policy.grants.iter().enumerate();
        let folders = grants.filter(|(_, grant)| {
            grant.write == write && grant.held.file_type() == rustix::fs::FileType::Directory
        });
        folders.map(|(index, grant)| (index, grant.held.real.clone())).collect()
    }

    fn settings(&mut self, held: &Held<'_>) -> Result<()> {
        let path = held.secret_file.to_path_buf();
        let mut tries = vec![
            ("".to_owned(), Try::Read { path: (&path).into() }),
            (", by a link".to_owned(), {
                let link = Path::new("/tmp").join(Bait::name()?);
                Try::ReadByLink { path: (&path).into(), link: (&link).into() }
            }),
            (", by its process's root".to_owned(), {
                let root = Path::new("/proc/self/root");
                let path = root.join(path.strip_prefix("/").unwrap_or(&path));
                Try::Read { path: (&path).into() }
            }),
        ];
        let home = &self.policy.home_real;
        if let Ok(rest) = path.strip_prefix(home) {
            let up = home.join(".config").join("..").join(rest);
            tries.push((", by its parent".to_owned(), Try::Read { path: (&up).into() }));
            let below = Try::ReadBelow { folder: home.into(), rest: (&rest.to_path_buf()).into() };
            tries.push((", from the open home folder".to_owned(), below));
        }
        let names = self.policy.mounts.names_of_all_of(held.settings);
        for name in names.iter().filter(|name| *name != held.settings) {
            let path = name.join(path.file_name().unwrap_or_default());
            let by = format!(", by the mount {}", shown::word(name));
            tries.push((by, Try::Read { path: (&path).into() }));
        }
        for (by, attempt) in tries {
            let row = self.add(format!("read Link's settings{by}"), attempt, CLOSED);
            row.layers = vec![("mounts", Seen::Answer)];
        }
        Ok(())
    }

    /// Agents' folders, and what `--hide` names.
    fn hidden(&mut self, placeholders: &Path) {
        let what = "read an agent's folder";
        let agents = self.bait.agents(placeholders, &self.policy.home_real);
        let planted = agents.and_then(|agents| Ok(self.bait.file(&agents, &self.secret)?));
        match planted {
            Ok(path) => {
                let row = self.add(what, Try::Read { path: (&path).into() }, CLOSED);
                row.layers = vec![("mounts", Seen::Answer)];
            }
            Err(error) => self.cannot(what, &error),
        }
        let policy = self.policy;
        for hide in policy.hides.iter().filter(|hide| hide.asked) {
            let bait =
                if hide.folder { self.bait.file(&hide.path, &self.secret).ok() } else { None };
            let attempt = match &bait {
                Some(path) => Try::Read { path: path.into() },
                None => Try::Open { path: (&hide.path).into() },
            };
            let what = format!("read in --hide {}", shown::word(&hide.path));
            let row = self.add(what, attempt, CLOSED);
            row.layers = vec![("mounts", Seen::Answer)];
            row.optional = Some("it can't be read outside either");
        }
    }

    fn writes(&mut self) {
        let home = self.policy.home_real.clone();
        let places = [
            ("write to /usr".to_owned(), PathBuf::from("/usr")),
            ("write to /etc".to_owned(), PathBuf::from("/etc")),
            ("write to your home folder".to_owned(), home),
        ];
        let named = |(index, path): (usize, PathBuf)| {
            let typed = shown::word(&self.policy.grants[index].held.typed);
            (format!("write to {typed}"), path)
        };
        let reads: Vec<_> = self.folders(false).into_iter().map(named).collect();
        let writes: Vec<_> = self.folders(true).into_iter().map(named).collect();
        let mut seen = Vec::new();
        for (what, folder) in places.into_iter().chain(reads).chain(writes) {
            if !seen.contains(&folder) {
                self.write(what, &folder);
                seen.push(folder);
            }
        }
        for grant in &self.policy.grants {
            if grant.held.file_type() == rustix::fs::FileType::RegularFile {
                let what = format!("write to {}", shown::word(&grant.held.typed));
                self.write_file(what, &grant.held.real);
            }
        }
        self.proc_sys();
    }

    fn write_file(&mut self, what: String, file: &Path) {
        let allowed = self.opened(file, true);
        let row = self.add(what, Try::Write { path: file.into() }, READ_ONLY);
        row.control = may_write(file);
        row.optional = Some("you may not write it outside either");
        row.layers = vec![("mounts", Seen::Answer)];
        row.allowed = allowed;
    }

    fn write(&mut self, what: String, folder: &Path) {
        let Ok(path) = self.bait.expect(folder) else {
            return self.leave_out(what, "it isn't here");
        };
        let allowed = self.opened(&path, true);
        let only_read = allowed.is_none() && self.opened(&path, false).is_some();
        let landlock = allowed.is_none() && !self.is_in_a_private_place(folder);
        let folder = folder.to_path_buf();
        let row = self.add(what, Try::Create { path: (&path).into() }, READ_ONLY);
        row.control = may_write(&folder);
        // Whose permission is missing outside meets the read-only mount first.
        row.control_too = &[libc::EACCES];
        row.optional = Some(match allowed {
            None => "it is read-only for everyone here",
            Some(_) => CLOSED_TO_YOU,
        });
        row.layers = if landlock {
            vec![
                ("mounts", Seen::By(Evidence::ReadOnly { path: (&folder).into() })),
                ("landlock", Seen::By(Evidence::Landlock { outside: 0 })),
            ]
        } else if only_read {
            vec![("mounts", Seen::By(Evidence::ReadOnly { path: (&folder).into() }))]
        } else {
            vec![("mounts", Seen::Answer)]
        };
        row.allowed = allowed;
        row.shows = Shows::File(path);
    }

    /// Whether a folder lies in the empty home or in `/tmp`: what is mounted there
    /// Landlock can't tell from the rest, which may be written.
    fn is_in_a_private_place(&self, folder: &Path) -> bool {
        let private = [self.policy.home_real.as_path(), Path::new("/tmp")];
        private.into_iter().any(|place| {
            let grants = &self.policy.grants;
            let granted = grants.iter().any(|grant| place.starts_with(&grant.held.real));
            folder.starts_with(place) && !granted
        })
    }

    /// Root may write most of it; others may ask to change a mode, which meets
    /// the read-only mount before it is refused.
    fn proc_sys(&mut self) {
        let path = PathBuf::from("/proc/sys/kernel/core_pattern");
        let root = self.root;
        let attempt = if root {
            Try::Write { path: (&path).into() }
        } else {
            Try::ChangeMode { path: (&path).into() }
        };
        let row = self.add("change the kernel's settings in /proc/sys", attempt, READ_ONLY);
        row.control_too = if root { &[] } else { &[libc::EPERM] };
        row.optional = Some("it is read-only for everyone here");
        row.layers = vec![
            ("mounts", Seen::By(Evidence::ReadOnly { path: (&path).into() })),
            ("landlock", Seen::By(Evidence::Landlock { outside: 0 })),
        ];
    }

    fn dot_files(&mut self) -> Result<()> {
        for (index, folder) in self.folders(true) {
            let grant = &self.policy.grants[index];
            let (typed, opened) = (shown::word(&grant.held.typed), grant.dot_files);
            for name in dot_names(&folder) {
                let path = folder.join(name);
                let decided = self.policy.grants.iter().any(|grant| grant.held.real == path)
                    || self.policy.hides.iter().any(|hide| hide.path == path);
                if decided || (opened && !path.exists()) {
                    continue;
                }
                let there = if path.exists() { "" } else { ", which doesn't exist" };
                let change = Try::Change { path: (&path).into(), name: Bait::name()? };
                let to = folder.join(Bait::name()?);
                let what = format!("write {name} in {typed}{there}");
                let row = self.add(what, change, READ_ONLY);
                row.control = may_write(&folder);
                row.control_too = &[libc::EACCES];
                row.optional = Some(CLOSED_TO_YOU);
                row.layers = vec![("mounts", Seen::Answer)];
                if opened {
                    row.allowed = Some(format!("--write-dot-files {typed}"));
                    continue;
                }
                let attempt = Try::Move { path: (&path).into(), to: (&to).into() };
                let row = self.add(
                    format!("rename {name} in {typed}{there}"),
                    attempt,
                    &[libc::EBUSY, libc::EXDEV, libc::EROFS],
                );
                row.control = may_write(&folder);
                row.control_too = &[libc::EACCES];
                row.optional = Some(CLOSED_TO_YOU);
                row.layers = vec![("mounts", Seen::Answer)];
            }
        }
        Ok(())
    }

    /// The spec itself: what it says could be more the next time.
    fn spec(&mut self, spec: Option<&Path>) {
        if let Some(spec) = spec {
            let refused = &[libc::EROFS, libc::EACCES, libc::ENOENT];
            let row = self.add("write to the spec", Try::Write { path: spec.into() }, refused);
            row.control = may_write(spec);
            row.optional = Some("you may not write it outside either");
            row.layers = vec![("mounts", Seen::Answer)];
        }
    }

    // --- processes, keys, sockets --------------------------------------------

    fn processes(&mut self, (pid, token): (i32, &str)) {
        let token = || token.to_owned();
        let namespace = || vec![("process namespace", namespace("pid"))];
        let see = Try::SeeProcess { token: token() };
        self.add("see a process outside in /proc", see, &[libc::ENOENT]).layers = namespace();
        let signal = Try::Signal { pid, token: token() };
        let row = self.add("signal a process outside", signal, &[libc::ESRCH, libc::EPERM]);
        row.layers = namespace();
        row.layers.push(("landlock", Seen::By(Evidence::Landlock { outside: 0 })));
        let trace = Try::Trace { pid, token: token() };
        let row = self.add("trace a process outside (ptrace)", trace, &[libc::ESRCH, libc::EPERM]);
        row.layers = namespace();
        row.layers.push(("landlock", Seen::By(Evidence::Landlock { outside: 0 })));
        row.layers.push(("user namespace", self::namespace("user")));
        row.optional = Some("this machine lets nobody trace");
    }

    fn keyring(&mut self, key: &Result<&str, String>) {
        let what = "find a key in your session keyring";
        match key {
            Ok(name) => {
                let find = Try::FindKey { name: (*name).to_owned() };
                let row = self.add(what, find, &[libc::EPERM, libc::ENOKEY]);
                row.layers = vec![
                    ("seccomp", Seen::By(Evidence::KeyFilter)),
                    ("keyring", Seen::OtherSession),
                ];
            }
            Err(why) => self.leave_out(what, why.clone()),
        }
    }

    fn unix_sockets(&mut self) -> Result<()> {
        let name = Bait::name()?;
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name);
        let what = "connect to an abstract Unix socket of this machine";
        match address.and_then(|address| UnixListener::bind_addr(&address)) {
            Ok(listener) => {
                self.held.push(listener.into());
                let connect = Try::ConnectAbstract { name };
                let shared = self.policy.network.shared;
                let refused = &[libc::ECONNREFUSED, libc::EACCES, libc::EPERM];
                let row = self.add(what, connect, refused);
                row.layers = match shared {
                    false => vec![("network namespace", namespace("net"))],
                    true => vec![
                        ("broker", Seen::By(Evidence::NoAbstract)),
                        ("landlock", Seen::By(Evidence::Landlock { outside: 0 })),
                    ],
                };
            }
            Err(error) => self.leave_out(what, reason(&error)),
        }
        let mut folders = vec![("your home folder".to_owned(), self.policy.home_real.clone())];
        for (index, path) in [self.folders(false), self.folders(true)].concat() {
            folders.push((shown::word(&self.policy.grants[index].held.typed), path));
        }
        folders.sort_by(|one, other| one.1.cmp(&other.1));
        folders.dedup_by(|one, other| one.1 == other.1);
        for (name, folder) in folders {
            self.unix_sockets_in(&name, &folder);
        }
        Ok(())
    }

    fn unix_sockets_in(&mut self, name: &str, folder: &Path) {
        let what = format!("connect to a Unix socket of this machine in {name}");
        let seen = self.opened(folder, false).is_some();
        match self.bait.listener(folder) {
            Ok((listener, path)) if fits(&path) => {
                self.held.push(listener.into());
                let connect = Try::ConnectUnix { path: (&path).into() };
                let row = self.add(what, connect, CLOSED);
                row.layers = vec![(if seen { "broker" } else { "mounts" }, Seen::Answer)];
            }
            Ok(_) => self.leave_out(what, "its path is too long for a socket"),
            Err(error) => self.leave_out(what, reason(&error.into())),
        }
        let what = format!("send to a Unix datagram socket of this machine in {name}");
        match self.bait.datagram(folder) {
            Ok((socket, path)) if fits(&path) => {
                self.held.push(socket.into());
                let send = Try::SendUnix { path: (&path).into() };
                self.add(what, send, CLOSED).layers = vec![("seccomp", Seen::Answer)];
            }
            Ok(_) => self.leave_out(what, "its path is too long for a socket"),
            Err(error) => self.leave_out(what, reason(&error.into())),
        }
    }

    // --- the network ---------------------------------------------------------

    /// Servers on this machine's own addresses: nothing leaves it.
    fn own_addresses(&mut self) -> Result<()> {
        let own = INTERNET.iter().filter_map(|to| own_address(*to));
        let own: Vec<(String, IpAddr)> =
            own.map(|ip| (format!("this machine's address {ip}"), ip)).collect();
        let loopback =
            ("another port of this machine's loopback".to_owned(), Ipv4Addr::LOCALHOST.into());
        let loopback6 = (
            "another port of this machine's loopback, IPv6".to_owned(),
            Ipv6Addr::LOCALHOST.into(),
        );
        for (name, ip) in [loopback, loopback6].into_iter().chain(own) {
            let what = format!("connect to a server on {name}");
            let refused = &[libc::ECONNREFUSED, libc::ENETUNREACH, libc::EADDRNOTAVAIL];
            match TcpListener::bind((ip, 0)).and_then(|server| Ok((server.local_addr()?, server))) {
                Ok((to, server)) => {
                    self.held.push(server.into());
                    self.add_way_out(what, Try::ConnectTcp { to }, refused);
                }
                Err(error) => self.leave_out(what, reason(&error)),
            }
            let what = format!("send by UDP to {name}");
            let bound = UdpSocket::bind((ip, 0)).and_then(|server| {
                server.set_nonblocking(true)?;
                Ok((server.local_addr()?, server))
            });
            match bound {
                Ok((to, server)) => {
                    let word = Bait::name()?;
                    let send = Try::SendUdp { to, word: word.clone() };
                    let row = self.add_way_out(what, send, refused);
                    row.control = Try::SendUdp { to, word: Bait::name()? };
                    row.shows = Shows::Word(server, word);
                }
                Err(error) => self.leave_out(what, reason(&error)),
            }
        }
        Ok(())
    }

    /// Where only routes are looked at.
    fn routes(&mut self) {
        let mut routes = Vec::new();
        for to in INTERNET {
            let version = if to.is_ipv4() { "IPv4" } else { "IPv6" };
            if let Some(neighbour) = own_address(to).map(neighbour_of) {
                routes.push((
                    format!("reach a neighbour in this machine's network, {version}"),
                    neighbour,
                    80,
                ));
            }
            routes.push((format!("reach the internet by address, {version}"), to, 443));
        }
        routes.push(("reach a cloud's metadata service".to_owned(), METADATA, 80));
        for server in name_servers() {
            if !server.is_loopback() {
                routes.push((format!("reach the name server {server}"), server, 53));
            }
        }
        const NO_ROUTE_OUTSIDE: &str = "this machine has no route there";
        for (what, ip, port) in routes {
            let route = Try::Route { to: SocketAddr::new(ip, port) };
            self.add_way_out(what, route, NO_ROUTE).optional = Some(NO_ROUTE_OUTSIDE);
        }
        for to in INTERNET {
            let version = if to.is_ipv4() { "IPv4" } else { "IPv6" };
            let refused = &[libc::ENETUNREACH, libc::EACCES, libc::EPERM, libc::EPROTONOSUPPORT];
            let what = format!("ping the internet, {version}");
            let row = self.add_way_out(what, Try::Ping { to }, refused);
            row.optional = Some("this machine lets you ping nobody");
        }
        let what = "look a name of the internet up";
        if self.policy.network.shared {
            // It would ask this machine's name server.
            self.opened.push(Opened { what: what.into(), flag: SHARED.into() });
            let what = "take a port or an abstract name that programs outside look for";
            self.gaps.push(Opened { what: what.into(), flag: SHARED.into() });
            return;
        }
        // A name that is nobody's (RFC 6761). Outside only this machine's own is
        // looked up, which shows that looking up works, and asks nobody.
        let resolve = Try::Resolve { name: "lnk-check.invalid".into() };
        let row = self.add_way_out(what, resolve, &[libc::ENOENT]);
        row.control = Try::Resolve { name: "localhost".into() };
        row.optional = Some("this machine has no getent");
        if let Some(list) = self.policy.programs.list() {
            let getent = real_or_written(Path::new(GETENT));
            if !identity_of(&getent).is_some_and(|identity| list.allows(&getent, identity)) {
                let row = self.rows.pop().expect("just added");
                self.leave_out(row.what, "getent, which looks names up, isn't listed");
            }
        }
    }

    /// Where the sandbox has a proxy: what that must never reach. What it does reach
    /// is said, and not tried: it is beyond this machine.
    fn proxied(&mut self) {
        let network = &self.policy.network;
        for host in &network.internet.hosts {
            let what = format!("reach {host} on the internet by the proxy");
            self.opened.push(Opened { what, flag: format!("--internet-host {host}") });
        }
        for host in &network.lan.hosts {
            let what = format!("reach {host} in this machine's network by the proxy");
            self.opened.push(Opened { what, flag: format!("--lan-host {host}") });
        }
        for endpoint in &network.internet.tcp {
            let by_name = match endpoint.host() {
                HostPattern::One(Host::Address(_)) => "at its address, and by the proxy",
                _ => "by its name, and by the proxy",
            };
            let what = format!("reach {endpoint} {by_name}");
            self.opened.push(Opened { what, flag: format!("--tcp {endpoint}") });
        }
        for port in &network.ports {
            let what = format!("connect to port {port} of this machine's loopback");
            self.opened.push(Opened { what, flag: format!("--port {port}") });
        }
        if let Some(upstream @ Upstream::Socks5Name(_)) = network.internet.upstream {
            let what = "reach what names lead to at the upstream, this machine among it";
            self.gaps.push(Opened { what: what.into(), flag: format!("--upstream {upstream}") });
        }
        if !network.has_proxy() {
            return;
        }
        let lan_is_open = !network.lan.hosts.is_empty();
        let loopback = ("this machine's loopback".to_owned(), Ipv4Addr::LOCALHOST.into());
        let own = INTERNET.iter().filter_map(|to| own_address(*to));
        let own = own.map(|ip| (format!("this machine's address {ip}"), ip));
        let mut routes: Vec<(String, IpAddr)> = std::iter::once(loopback).chain(own).collect();
        routes.push(("a cloud's metadata service".to_owned(), METADATA));
        if !lan_is_open {
            let neighbours = INTERNET.iter().filter_map(|to| own_address(*to)).map(neighbour_of);
            routes.extend(neighbours.map(|ip| (format!("a neighbour, {ip},"), ip)));
        }
        for (name, ip) in routes {
            // The port that a host of the internet is reached on by CONNECT.
            let to = SocketAddr::new(ip, 443);
            let what = format!("reach {name} by the proxy");
            let row = self.add(what, Try::Proxied { to }, REFUSED_BY_PROXY);
            row.control = Try::Route { to };
            row.layers = vec![("wire", Seen::Answer)];
            row.optional = Some("this machine has no route there");
        }
    }

    /// Where endpoints are reached by name: what no name of theirs leads to.
    fn named(&mut self) {
        let network = &self.policy.network;
        let Some(port) = network.named_port().filter(|_| network.has_names()) else { return };
        let by_udp = KINDS.iter().map(|kind| (*kind, Protocol::Udp));
        for ((kind, number), by) in by_udp.chain([(KINDS[0], Protocol::Tcp)]) {
            let protocol = if by == Protocol::Udp { "UDP" } else { "TCP" };
            let what = format!("look up {kind} of a name that no endpoint has, by {protocol}");
            // A name that is nobody's (RFC 6761).
            let name = "lnk-check.invalid".into();
            let row = self.add(what, Try::LookUp { name, kind: number, by }, &[libc::ENOENT]);
            // Asks nobody, and shows that this machine looks names up.
            row.control = Try::Resolve { name: "localhost".into() };
            row.layers = vec![("wire", Seen::Answer)];
            row.optional = Some("this machine has no getent");
        }
        let to = SocketAddr::from((NOBODYS, port));
        let what = format!("reach {to}, which stands for no endpoint");
        let row = self.add(what, Try::Endpoint { to }, &[libc::ECONNRESET]);
        row.control = Try::Route { to };
        row.layers = vec![("wire", Seen::Answer)];
    }

    // --- the kernel ----------------------------------------------------------

    fn terminal(&mut self) {
        let layers = || {
            vec![
                ("seccomp", Seen::By(Evidence::TypeFilter)),
                ("kernel setting", Seen::By(Evidence::TypingIsOff)),
            ]
        };
        let refused = &[libc::EPERM, libc::EIO];
        let row = self.add("type into your terminal (TIOCSTI)", Try::TypeIntoTerminal, refused);
        row.control = Try::OpenTerminal;
        row.optional = Some("there is no terminal");
        row.layers = layers();
        let row = self.add(
            "type into a terminal of its own (TIOCSTI)",
            Try::TypeIntoOwnTerminal,
            refused,
        );
        row.control_too = &[libc::EIO];
        row.layers = layers();
    }

    fn set_id(&mut self) -> Result<()> {
        let mut folders = vec![("/tmp".to_owned(), PathBuf::from("/tmp"))];
        for (index, path) in self.folders(true) {
            folders.push((shown::word(&self.policy.grants[index].held.typed), path));
        }
        for (name, folder) in folders {
            let attempt = Try::SetId { folder: (&folder).into(), name: Bait::name()? };
            let row =
                self.add(format!("make a set-user-ID file in {name}"), attempt, &[libc::EPERM]);
            row.control = Try::WithoutCapabilities(Box::new(row.attempt.clone()));
            row.layers = vec![("seccomp", Seen::Answer)];
            row.optional = Some("you can't make one outside either");
        }
        Ok(())
    }

    fn kernel(&mut self) {
        let spaces = [
            ("a user namespace", libc::CLONE_NEWUSER),
            ("a mount namespace", libc::CLONE_NEWUSER | libc::CLONE_NEWNS),
            ("a network namespace", libc::CLONE_NEWUSER | libc::CLONE_NEWNET),
        ];
        for (name, flags) in spaces {
            let attempt = Try::NewNamespaces { flags };
            let row = self.add(format!("make {name}"), attempt, &[libc::EPERM, libc::ENOSPC]);
            row.layers = vec![
                ("seccomp", Seen::By(Evidence::UnshareFilter)),
                ("namespace limit", Seen::NamespacesLimited),
            ];
            row.optional = Some("this machine lets you make none");
        }
        let mounts = [
            ("mount a file system (mount)", MountCall::Mount),
            ("mount a file system (fsopen)", MountCall::FsOpen),
            ("copy a mount (open_tree)", MountCall::OpenTree),
        ];
        for (what, by) in mounts {
            let row = self.add(what, Try::Mount { by, own: false }, &[libc::EPERM]);
            row.control = Try::Mount { by, own: true };
            row.layers = vec![
                ("seccomp", Seen::By(Evidence::MountFilter)),
                ("capabilities", Seen::By(Evidence::NoCapabilities)),
                ("owner of the mounts", Seen::By(Evidence::MountsOfAnother)),
            ];
            if by == MountCall::Mount {
                row.layers.push(("landlock", Seen::By(Evidence::Landlock { outside: 0 })));
            }
            row.optional = Some("this machine lets you mount nothing");
        }
        let row = self.add("use io_uring", Try::IoUring, &[libc::ENOSYS]);
        row.layers = vec![("seccomp", Seen::Answer)];
        row.optional = Some("this machine lets you use none");
    }

    // --- programs -------------------------------------------------------------

    /// Where programs are listed: one that isn't, and the ways round the list.
    fn programs(&mut self, own: &Path) -> Result<()> {
        let Some(list) = self.policy.programs.list() else { return Ok(()) };
        const NOT_HERE: &str = "it doesn't run outside either";
        let unlisted = HARMLESS.iter().map(Path::new).find(|path| {
            let real = real_or_written(path);
            identity_of(&real).is_some_and(|identity| !list.allows(&real, identity))
        });
        let (program, nothing) = (unlisted.unwrap_or(Path::new(HARMLESS[0])), Path::new(""));
        let what = "run a program that isn't listed";
        if unlisted.is_some() {
            let execute = Try::Execute { program: program.into(), argument: nothing.into() };
            let row = self.add(what, execute, &[libc::EACCES]);
            row.layers = vec![("landlock", Seen::Answer)];
            row.optional = Some(NOT_HERE);
        } else {
            self.leave_out(what, "the list has every program that this would be tried with");
        }
        let folders = self.folders(true).into_iter().map(|(_, path)| path);
        for folder in folders.chain(["/tmp".into()]) {
            let what = format!("run a copy of a listed program in {}", shown::word(&folder));
            let Ok(to) = self.bait.expect(&folder) else { continue };
            let copy = |of: &Path| Try::ExecuteCopy { of: of.into(), to: (&to).into() };
            let row = self.add(what, copy(Path::new(OWN_BINARY)), &[libc::EACCES]);
            row.control = copy(own);
            row.layers = vec![("landlock", Seen::Answer)];
            row.optional = Some(CLOSED_TO_YOU);
        }
        for loader in loaders(list) {
            let what = format!("run a program by the loader {}", shown::word(&loader));
            let execute = Try::Execute { program: (&loader).into(), argument: program.into() };
            let row = self.add(what, execute, &[libc::ENOENT, libc::EACCES]);
            row.layers = vec![("loader's copy", Seen::Answer)];
            row.optional = Some(NOT_HERE);
        }
        let what = "run a program in memory (memfd_create)";
        let memory = |of: &Path| Try::ExecuteInMemory { of: of.into() };
        let row = self.add(what, memory(Path::new(OWN_BINARY)), &[libc::EACCES, libc::EPERM]);
        row.control = memory(own);
        row.layers = vec![("sealed memory", Seen::Answer)];
        row.optional = Some("this machine lets nobody run one");
        Ok(())
    }

    // --- what the caller has -------------------------------------------------

    fn inherited(&mut self, held: &Held<'_>) {
        let variable = Try::Variable { name: held.variable.to_owned() };
        let row = self.add("read a variable of your environment", variable, &[libc::ENOENT]);
        row.layers = vec![("environment", Seen::Answer)];
        let descriptor = Try::Descriptor { identity: held.descriptor };
        let row = self.add("use a file that was open outside", descriptor, &[libc::EBADF]);
        row.layers = vec![("descriptors", Seen::Answer)];
        // The last: what it leaves is looked for at the probe's end.
        let row = self.add("outlive its run", Try::LeaveBehind, &[]);
        row.layers = vec![("process namespace", namespace("pid")), ("supervisor", Seen::Alone)];
        row.shows = Shows::Process;
    }
}

/// The loaders of listed programs, and the one of the system's own.
fn loaders(list: &ProgramList) -> BTreeSet<PathBuf> {
    let systems = match start_of(&real_or_written(Path::new("/bin/sh"))) {
        Start::Elf { loader } => loader.map(|loader| real_or_written(&loader)),
        Start::Script { .. } | Start::Other => None,
    };
    list.loaders.iter().cloned().chain(systems).collect()
}

/// The protected names that a write folder has, or that stand-ins keep it from
/// having.
fn dot_names(folder: &Path) -> Vec<&'static str> {
    let names = protected::NAMES.iter().filter(|name| {
        name.if_missing == protected::IfMissing::Placeholder || folder.join(name.name).exists()
    });
    std::iter::once(protected::GIT).chain(names.map(|name| name.name)).collect()
}

/// Whether what a sandbox runs as may write it, by its permissions: root has no
/// capability inside.
fn may_write(path: &Path) -> Try {
    Try::WithoutCapabilities(Box::new(Try::MayWrite { path: path.into() }))
}

/// Whether a path fits into the address of a Unix socket, unix(7).
fn fits(path: &Path) -> bool {
    const ROOM: usize = 107;
    path.as_os_str().len() <= ROOM
}

fn namespace(kind: &str) -> Seen {
    match std::fs::read_link(format!("/proc/self/ns/{kind}")) {
        Ok(outside) => {
            let outside = Place::from(&outside);
            Seen::By(Evidence::Namespace { kind: kind.to_owned(), outside })
        }
        Err(_) => Seen::Answer,
    }
}

/// This machine's address on the way to another.
fn own_address(to: IpAddr) -> Option<IpAddr> {
    let any: IpAddr =
        if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((to, 443)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// The address beside it, in all likelihood of the same network.
fn neighbour_of(own: IpAddr) -> IpAddr {
    match own {
        IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits() ^ 1).into(),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() ^ 1).into(),
    }
}

/// Those in resolv.conf(5).
fn name_servers() -> Vec<IpAddr> {
    let file = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let servers = file.lines().filter_map(|line| line.strip_prefix("nameserver"));
    servers.filter_map(|server| server.trim().parse().ok()).collect()
}

impl Shows {
    /// Whether a try that worked inside reached outside.
    pub fn reached(&self, inside: &Answers) -> bool {
        match self {
            Shows::Inside => true,
            Shows::File(path) => super::bait::exists(path),
            Shows::Word(server, word) => {
                let mut buffer = [0u8; 256];
                std::iter::from_fn(|| server.recv(&mut buffer).ok().map(|n| buffer[..n].to_vec()))
                    .any(|received| received == word.as_bytes())
            }
            Shows::Process => inside.left_behind,
        }
    }

    /// As [`reached`](Self::reached), for the control.
    pub fn control_reached(&self, outside: &Answers) -> bool {
        match self {
            Shows::Process => outside.left_behind,
            Shows::Inside | Shows::File(_) | Shows::Word(..) => true,
        }
    }
}

impl Row {
    /// What a refusal by the control means.
    pub fn control_worked(&self, control: Answer) -> bool {
        match control {
            Answer::Through => true,
            Answer::Refused(errno) => self.control_too.contains(&errno),
            Answer::Elsewhere => false,
        }
    }
}
