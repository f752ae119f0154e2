//! What the probe tries. Each try is a small function that either gets through
//! or is refused by an errno, and leaves nothing behind.

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lnk_sys::process::{Forked, exit_now, fork_single_threaded};
use lnk_wire::address::Class;
use lnk_wire::dns::message::{Answer as DnsAnswer, Question};
use rustix::fs::{Access, Mode, OFlags, RenameFlags, StatVfsMountFlags};
use rustix::mount::{FsOpenFlags, MountFlags, OpenTreeFlags};
use rustix::net::{AddressFamily, SocketType, ipproto};
use rustix::process::{Pid, WaitOptions};
use serde::{Deserialize, Serialize};

use crate::linux::judged::Place;
use crate::network::{NAMES_PORT, PROXY_PORT};
use crate::paths::Identity;

/// How long a connection or a name may take before it counts as unanswered. The
/// sandbox's own refusals take milliseconds, and on a machine under load, where
/// network namespaces wait for each other, seconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long getent waits for a name server, resolv.conf(5): longer than
/// [`PATIENCE`], so that whoever asked one in vain is told from who couldn't.
const ASKED: &str = "timeout:15 attempts:1";

/// What looks names up as every program does.
pub const GETENT: &str = "/usr/bin/getent";

/// One try.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Try {
    /// Reads a file that holds the secret.
    Read { path: Place },
    /// Reads it through a link made for that.
    ReadByLink { path: Place, link: Place },
    /// Reads it from a folder above that is held open.
    ReadBelow { folder: Place, rest: Place },
    /// Opens a file or folder for reading.
    Open { path: Place },
    /// Makes a file, and leaves it to be seen from outside.
    Create { path: Place },
    /// Asks whether a folder may be written.
    MayWrite { path: Place },
    /// Changes a dot file, in whichever way it can be, and changes it back.
    Change { path: Place, name: String },
    /// Renames something, and back.
    Move { path: Place, to: Place },
    /// Opens a file for writing, and writes nothing.
    Write { path: Place },
    /// Sets a file's mode to what it is.
    ChangeMode { path: Place },
    /// Finds a process by a word on its command line.
    SeeProcess { token: String },
    /// Asks whether a process can be signalled.
    Signal { pid: i32, token: String },
    /// Traces a process.
    Trace { pid: i32, token: String },
    /// Finds a key in the session keyring.
    FindKey { name: String },
    /// Connects to a Unix socket by its path.
    ConnectUnix { path: Place },
    /// Sends to a Unix datagram socket by its path.
    SendUnix { path: Place },
    /// Connects to a Unix socket by its abstract name.
    ConnectAbstract { name: String },
    /// Connects by TCP: to this machine's own addresses only.
    ConnectTcp { to: SocketAddr },
    /// Asks the sandbox's proxy for a connection: to what it must refuse only.
    Proxied { to: SocketAddr },
    /// Connects to an address that stands for an endpoint, and hears whether it stays
    /// open: to one that stands for none only.
    Endpoint { to: SocketAddr },
    /// Asks the sandbox's DNS for a record: of a name that it must not know only.
    LookUp { name: String, kind: u16, by: Protocol },
    /// Sends a word by UDP: to this machine's own addresses only.
    SendUdp { to: SocketAddr, word: String },
    /// Connects a UDP socket, which looks up a route and sends nothing.
    Route { to: SocketAddr },
    /// Connects a socket for echo requests, and sends none.
    Ping { to: IpAddr },
    /// Looks a name up as programs do.
    Resolve { name: String },
    /// Opens the terminal.
    OpenTerminal,
    /// Types into the terminal: a NUL, which does nothing in a shell.
    TypeIntoTerminal,
    /// Types into a terminal of its own.
    TypeIntoOwnTerminal,
    /// Makes a set-user-ID file.
    SetId { folder: Place, name: String },
    /// Makes new namespaces.
    NewNamespaces { flags: i32 },
    /// Mounts, in new namespaces first where `own` says so.
    Mount { by: MountCall, own: bool },
    /// Makes an io_uring.
    IoUring,
    /// Runs a program, which ends by itself.
    Execute { program: Place, argument: Place },
    /// Runs a copy of a program, made for that.
    ExecuteCopy { of: Place, to: Place },
    /// Runs a copy of a program in memory.
    ExecuteInMemory { of: Place },
    /// Finds a variable in its environment.
    Variable { name: String },
    /// Finds a file among its open descriptors.
    Descriptor { identity: Identity },
    /// Leaves a process behind that holds standard output open until standard
    /// input ends.
    LeaveBehind,
    /// Another try, without the capabilities that root has outside only.
    WithoutCapabilities(Box<Try>),
}

/// A call that makes or copies mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountCall {
    /// mount(2).
    Mount,
    /// fsopen(2).
    FsOpen,
    /// open_tree(2).
    OpenTree,
}

/// How DNS is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// By a datagram.
    Udp,
    /// By a connection.
    Tcp,
}

/// How a try ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It did what it tried.
    Through,
    /// It was refused by this errno.
    Refused(i32),
    /// It did it in a place of the sandbox's own, and nothing reached outside.
    Elsewhere,
}

impl Try {
    /// Tries it.
    #[must_use]
    pub fn make(&self, secret: &[u8]) -> Answer {
        match self.attempt(secret) {
            Ok(()) => Answer::Through,
            Err(error) => Answer::Refused(error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }

    fn attempt(&self, secret: &[u8]) -> io::Result<()> {
        match self {
            Try::Read { path } => holds(&fs::read(path)?, secret),
            Try::ReadByLink { path, link } => read_by_link(path.as_ref(), link.as_ref(), secret),
            Try::ReadBelow { folder, rest } => read_below(folder.as_ref(), rest.as_ref(), secret),
            Try::Open { path } => fs::File::open(path).map(drop),
            Try::Create { path } => create(path.as_ref()),
            Try::MayWrite { path } => Ok(rustix::fs::access(path.as_ref(), Access::WRITE_OK)?),
            Try::Change { path, name } => change(path.as_ref(), name),
            Try::Move { path, to } => move_and_back(path.as_ref(), to.as_ref()),
            Try::Write { path } => open_to_write(path.as_ref()),
            Try::ChangeMode { path } => {
                let mode = fs::symlink_metadata(path)?.permissions().mode();
                fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7777))
            }
            Try::SeeProcess { token } => see_process(token),
            Try::Signal { pid, token } => {
                Ok(rustix::process::test_kill_process(process(*pid, token)?)?)
            }
            Try::Trace { pid, token } => {
                let pid = process(*pid, token)?;
                in_child(|| lnk_sys::attempt::trace(pid.as_raw_nonzero().get()))
            }
            Try::FindKey { name } => lnk_sys::keyring::find_in_session(&CString::new(&**name)?),
            Try::ConnectUnix { path } => UnixStream::connect(path).map(drop),
            Try::SendUnix { path } => UnixDatagram::unbound()?.send_to(b"x", path).map(drop),
            Try::ConnectAbstract { name } => {
                let to = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
                UnixStream::connect_addr(&to).map(drop)
            }
            Try::ConnectTcp { to } => TcpStream::connect_timeout(to, PATIENCE).map(drop),
            Try::Proxied { to } => proxied(to),
            Try::Endpoint { to } => endpoint(to),
            Try::LookUp { name, kind, by } => look_up(name, *kind, *by),
            Try::SendUdp { to, word } => udp(to)?.send_to(word.as_bytes(), to).map(drop),
            Try::Route { to } => udp(to)?.connect(to),
            Try::Ping { to } => ping(*to),
            Try::Resolve { name } => resolve(name),
            Try::OpenTerminal => {
                OpenOptions::new().read(true).write(true).open("/dev/tty").map(drop)
            }
            Try::TypeIntoTerminal => {
                let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty")?;
                lnk_sys::terminal::type_into(terminal.as_fd(), 0)
            }
            Try::TypeIntoOwnTerminal => in_child(type_into_own_terminal),
            Try::SetId { folder, name } => set_id(&folder.as_ref().join(name)),
            Try::NewNamespaces { flags } => in_child(|| lnk_sys::attempt::new_namespaces(*flags)),
            Try::Mount { by, own } => in_child(|| mount(*by, *own)),
            Try::IoUring => lnk_sys::attempt::io_uring().map(drop),
            Try::Execute { program, argument } => execute(program.as_ref(), argument.as_ref()),
            Try::ExecuteCopy { of, to } => execute_copy(of.as_ref(), to.as_ref()),
            Try::ExecuteInMemory { of } => execute_in_memory(of.as_ref()),
            Try::Variable { name } => variable(name),
            Try::Descriptor { identity } => descriptor(*identity),
            Try::LeaveBehind => leave_behind(),
            Try::WithoutCapabilities(attempt) => in_child(|| {
                drop_capabilities()?;
                attempt.attempt(secret)
            }),
        }
    }
}

fn failed(errno: i32) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(errno))
}

fn holds(content: &[u8], secret: &[u8]) -> io::Result<()> {
    if content == secret { Ok(()) } else { failed(libc::ENODATA) }
}

fn read_by_link(path: &Path, link: &Path, secret: &[u8]) -> io::Result<()> {
    symlink(path, link)?;
    let content = fs::read(link);
    fs::remove_file(link)?;
    holds(&content?, secret)
}

fn read_below(folder: &Path, rest: &Path, secret: &[u8]) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = fs::File::from(rustix::fs::openat(&folder, rest, flags, Mode::empty())?);
    holds(&io::read_to_string(file)?.into_bytes(), secret)
}

fn create(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop)
}

fn open_to_write(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path).map(drop)
}

fn change(path: &Path, name: &str) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir(path)?;
            fs::remove_dir(path)
        }
        Err(error) => Err(error),
        Ok(meta) if meta.is_dir() => {
            let inside = path.join(name);
            create(&inside)?;
            fs::remove_file(inside)
        }
        Ok(meta) if meta.is_symlink() => move_and_back(path, &path.with_file_name(name)),
        Ok(_) => open_to_write(path),
    }
}

fn move_and_back(path: &Path, to: &Path) -> io::Result<()> {
    let rename = |from: &Path, to: &Path| {
        rustix::fs::renameat_with(
            rustix::fs::CWD,
            from,
            rustix::fs::CWD,
            to,
            RenameFlags::NOREPLACE,
        )
    };
    rename(path, to)?;
    Ok(rename(to, path)?)
}

fn see_process(token: &str) -> io::Result<()> {
    let seen = fs::read_dir("/proc")?.flatten().any(|entry| {
        fs::read(entry.path().join("cmdline")).is_ok_and(|line| contains(&line, token))
    });
    if seen { Ok(()) } else { failed(libc::ENOENT) }
}

/// Whether a word is in a text.
#[must_use]
pub fn contains(text: &[u8], word: &str) -> bool {
    text.windows(word.len()).any(|part| part == word.as_bytes())
}

/// The process meant: by the same number there may be another in here.
fn process(pid: i32, token: &str) -> io::Result<Pid> {
    let other = fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !contains(&line, token));
    let pid = Pid::from_raw(pid).filter(|_| !other);
    pid.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
}

fn proxied(to: &SocketAddr) -> io::Result<()> {
    use std::io::{BufRead, Write};
    let proxy = SocketAddr::from((Ipv4Addr::LOCALHOST, PROXY_PORT));
    let mut stream = TcpStream::connect_timeout(&proxy, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n")?;
    let mut answer = io::BufReader::new(stream);
    let mut status = String::new();
    answer.read_line(&mut status)?;
    let mut rest = String::new();
    match status.split(' ').nth(1) {
        Some("200") => return Ok(()),
        Some("403") => io::Read::read_to_string(&mut answer, &mut rest)?,
        _ => return failed(libc::EPROTO),
    };
    // For what it is, and not for a port that isn't open.
    let kinds = [Class::Loopback, Class::Private, Class::Metadata, Class::Neighbour];
    let is_kind = kinds.iter().any(|kind| rest.contains(kind.in_words()));
    failed(if is_kind { libc::EACCES } else { libc::EPROTO })
}

fn endpoint(to: &SocketAddr) -> io::Result<()> {
    use std::io::Read;
    let mut stream = TcpStream::connect_timeout(to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    match stream.read(&mut [0]) {
        Ok(0) => failed(libc::ECONNRESET),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        // Somebody spoke, or waits for what is said.
        _ => Ok(()),
    }
}

fn look_up(name: &str, kind: u16, by: Protocol) -> io::Result<()> {
    use std::io::{Read, Write};
    let labels = name.split('.').flat_map(|label| {
        let length = u8::try_from(label.len()).expect("a label of a try's is short");
        std::iter::once(length).chain(label.bytes())
    });
    let wire: Vec<u8> = labels.chain([0]).collect();
    let question = Question::new(kind, &wire, kind);
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, NAMES_PORT));
    let mut answer = vec![0; 65_535];
    let length = match by {
        Protocol::Udp => {
            let socket = udp(&server)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.connect(server)?;
            socket.send(&question.written())?;
            socket.recv(&mut answer)?
        }
        Protocol::Tcp => {
            let mut stream = TcpStream::connect_timeout(&server, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let message = question.written();
            let length = u16::try_from(message.len()).expect("a name is short");
            stream.write_all(&[&length.to_be_bytes(), message.as_slice()].concat())?;
            let mut length = [0; 2];
            stream.read_exact(&mut length)?;
            let length = usize::from(u16::from_be_bytes(length));
            stream.read_exact(&mut answer[..length])?;
            length
        }
    };
    match question.read_answer(&answer[..length]) {
        Some(DnsAnswer::NoSuchName) => failed(libc::ENOENT),
        Some(DnsAnswer::Records(_)) => Ok(()),
        _ => failed(libc::EPROTO),
    }
}

fn udp(to: &SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    UdpSocket::bind((any, 0))
}

fn ping(to: IpAddr) -> io::Result<()> {
    let (family, protocol) = match to {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
    };
    let open = |kind| rustix::net::socket(family, kind, Some(protocol));
    let socket = open(SocketType::DGRAM).or_else(|_| open(SocketType::RAW))?;
    Ok(rustix::net::connect(&socket, &SocketAddr::new(to, 0))?)
}

fn resolve(name: &str) -> io::Result<()> {
    let began = Instant::now();
    let mut getent = Command::new(GETENT);
    getent.args(["ahosts", name]).env("RES_OPTIONS", ASKED);
    getent.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = getent.status()?;
    match (status.success(), began.elapsed() < PATIENCE) {
        (true, _) => Ok(()),
        (false, true) => failed(libc::ENOENT),
        (false, false) => failed(libc::ETIMEDOUT),
    }
}

fn type_into_own_terminal() -> io::Result<()> {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    rustix::process::setsid()?;
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    // The first that the leader of a session opens becomes its terminal.
    let terminal = rustix::fs::open(name, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    lnk_sys::terminal::type_into(terminal.as_fd(), b' ')
}

fn execute(program: &Path, argument: &Path) -> io::Result<()> {
    let mut command = Command::new(program);
    command.arg(argument).env_clear();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if command.status()?.success() { Ok(()) } else { failed(libc::ECHILD) }
}

/// What every copy of `lnk` is run with: it says which it is, and ends.
const ENDS: &str = "--version";

fn execute_copy(of: &Path, to: &Path) -> io::Result<()> {
    let mut copy = OpenOptions::new().write(true).create_new(true).mode(0o700).open(to)?;
    io::copy(&mut fs::File::open(of)?, &mut copy)?;
    drop(copy);
    let executed = execute(to, Path::new(ENDS));
    fs::remove_file(to)?;
    executed
}

fn execute_in_memory(of: &Path) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let memory = rustix::fs::memfd_create("lnk-check", rustix::fs::MemfdFlags::empty())?;
    let mut memory = fs::File::from(memory);
    io::copy(&mut fs::File::open(of)?, &mut memory)?;
    // The kernel executes nothing that is open for writing.
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    let read = fs::File::open(&path)?;
    drop(memory);
    rustix::io::fcntl_setfd(&read, rustix::io::FdFlags::empty())?;
    execute(Path::new(&format!("/proc/self/fd/{}", read.as_raw_fd())), Path::new(ENDS))
}

fn set_id(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let set = file.set_permissions(fs::Permissions::from_mode(0o4600));
    let mode = file.metadata().map(|meta| meta.mode());
    fs::remove_file(path)?;
    set?;
    if mode? & 0o4000 != 0 { Ok(()) } else { failed(libc::EPERM) }
}

fn mount(by: MountCall, own: bool) -> io::Result<()> {
    if own {
        lnk_sys::attempt::new_namespaces(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)?;
    }
    match by {
        MountCall::Mount => {
            Ok(rustix::mount::mount("none", "/tmp", "tmpfs", MountFlags::empty(), None)?)
        }
        MountCall::FsOpen => {
            Ok(rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).map(drop)?)
        }
        MountCall::OpenTree => {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            Ok(rustix::mount::open_tree(rustix::fs::CWD, "/tmp", flags).map(drop)?)
        }
    }
}

fn variable(name: &str) -> io::Result<()> {
    let start = format!("{name}=");
    let environment = fs::read("/proc/self/environ")?;
    let there =
        environment.split(|byte| *byte == 0).any(|entry| entry.starts_with(start.as_bytes()));
    if there { Ok(()) } else { failed(libc::ENOENT) }
}

fn descriptor(identity: Identity) -> io::Result<()> {
    let there = fs::read_dir("/proc/self/fd")?.flatten().any(|entry| {
        rustix::fs::stat(entry.path()).is_ok_and(|stat| Identity::from(&stat) == identity)
    });
    if there { Ok(()) } else { failed(libc::EBADF) }
}

fn leave_behind() -> io::Result<()> {
    if let Forked::Child = fork_single_threaded()? {
        let _ = rustix::process::setsid();
        let mut byte = [0u8];
        while rustix::io::read(rustix::stdio::stdin(), &mut byte).is_ok_and(|read| read > 0) {}
        exit_now(0);
    }
    Ok(())
}

fn drop_capabilities() -> io::Result<()> {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    Ok(set_capabilities(None, none)?)
}

/// Does it in a process of its own, which whatever it changes ends with.
fn in_child(attempt: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    match count_in_child(|| match attempt() {
        Ok(()) => 0,
        Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
    })? {
        0 => Ok(()),
        errno => failed(errno),
    }
}

/// A number up to 255, found out in a process of its own.
fn count_in_child(count: impl FnOnce() -> i32) -> io::Result<i32> {
    let pid = match fork_single_threaded()? {
        Forked::Child => exit_now(count()),
        Forked::Parent(pid) => Pid::from_raw(pid),
    };
    loop {
        match rustix::process::waitpid(pid, WaitOptions::empty()) {
            Err(rustix::io::Errno::INTR) | Ok(None) => {}
            Err(error) => return Err(error.into()),
            Ok(Some((_, status))) => {
                let died = || io::Error::from_raw_os_error(libc::ECHILD);
                return status.exit_status().ok_or_else(died);
            }
        }
    }
}

/// Something to see from inside that tells whether a layer is there, whether or
/// not another answers before it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Evidence {
    /// What is mounted at a path can't be written.
    ReadOnly { path: Place },
    /// One Landlock ruleset more than outside.
    Landlock { outside: u32 },
    /// Another namespace than outside, by what `/proc/self/ns` says of it there.
    Namespace { kind: String, outside: Place },
    /// unshare(2) is filtered.
    UnshareFilter,
    /// mount(2) is filtered.
    MountFilter,
    /// `TIOCSTI` is filtered.
    TypeFilter,
    /// The kernel refuses `TIOCSTI` to everyone.
    TypingIsOff,
    /// keyctl(2) is filtered.
    KeyFilter,
    /// An abstract name that is nobody's is refused, before it is looked up.
    NoAbstract,
    /// No capability, and none to be had.
    NoCapabilities,
    /// The mount namespace belongs to a user namespace around this one, where
    /// capabilities of this one are of no use.
    MountsOfAnother,
}

impl Evidence {
    /// Whether the layer is there; `None` where that can't be told.
    #[must_use]
    pub fn look(&self) -> Option<bool> {
        let errno = |result: io::Result<()>| result.err().and_then(|error| error.raw_os_error());
        match self {
            Evidence::ReadOnly { path } => match rustix::fs::statvfs(path.as_ref()) {
                Ok(fs) => Some(fs.f_flag.contains(StatVfsMountFlags::RDONLY)),
                Err(_) => Some(true),
            },
            Evidence::Landlock { outside } => landlock_layers().map(|inside| inside > *outside),
            Evidence::Namespace { kind, outside } => {
                let inside = fs::read_link(format!("/proc/self/ns/{kind}")).ok()?;
                Some(inside != outside.as_ref())
            }
            Evidence::UnshareFilter => Some(lnk_sys::attempt::unshare_is_filtered()),
            // Without a filter a place without a name is looked for first.
            Evidence::MountFilter => {
                let mounted = rustix::mount::mount("none", "", "tmpfs", MountFlags::empty(), None);
                Some(mounted == Err(rustix::io::Errno::PERM))
            }
            // Without a filter a pipe is no terminal.
            Evidence::TypeFilter => {
                let (pipe, _other) = rustix::pipe::pipe().ok()?;
                Some(errno(lnk_sys::terminal::type_into(pipe.as_fd(), 0)) == Some(libc::EPERM))
            }
            Evidence::TypingIsOff => {
                let setting = fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti").ok();
                Some(setting.is_some_and(|value| value.trim() == "0"))
            }
            Evidence::KeyFilter => {
                Some(errno(lnk_sys::keyring::find_in_session(c"none")) == Some(libc::EPERM))
            }
            Evidence::NoAbstract => {
                let nobodys = Try::ConnectAbstract { name: "lnk-check-nobodys".into() };
                Some(nobodys.make(&[]) == Answer::Refused(libc::EACCES))
            }
            Evidence::MountsOfAnother => mounts_are_of_another(),
            Evidence::NoCapabilities => {
                let status = fs::read_to_string("/proc/self/status").ok()?;
                let none = |set: &str| {
                    let line = status.lines().find_map(|line| line.strip_prefix(set));
                    line.is_some_and(|value| value.trim().bytes().all(|digit| digit == b'0'))
                };
                Some(none("CapEff:") && none("CapPrm:") && none("CapBnd:"))
            }
        }
    }
}

fn mounts_are_of_another() -> Option<bool> {
    let mounts = fs::File::open("/proc/self/ns/mnt").ok()?;
    match lnk_sys::mount::owning_user_namespace(mounts.as_fd()) {
        Ok(owner) => {
            let (owner, own) =
                (rustix::fs::fstat(&owner).ok()?, fs::metadata("/proc/self/ns/user"));
            Some(owner.st_ino != own.ok()?.ino())
        }
        // It lies around this one, NS_GET_USERNS of ioctl_ns(2).
        Err(error) => (error.raw_os_error() == Some(libc::EPERM)).then_some(true),
    }
}

/// Whether nobody in a user namespace can make another in it, tried from here:
/// inside the filter answers first. `None` where that can't be told.
#[must_use]
pub fn namespaces_are_limited(users: &Path) -> Option<bool> {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    let in_it = fs::read_dir("/proc").ok()?.flatten().find_map(|process| {
        let link = process.path().join("ns/user");
        (fs::read_link(&link).ok()? == users).then_some(link)
    });
    let namespace = fs::File::open(in_it?).ok()?;
    let made = in_child(|| {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::User))?;
        lnk_sys::attempt::new_namespaces(libc::CLONE_NEWUSER)
    });
    match made.map_err(|error| error.raw_os_error()) {
        Ok(()) => Some(false),
        Err(Some(libc::ENOSPC)) => Some(true),
        Err(_) => None,
    }
}

/// How many Landlock rulesets hold this process: the kernel takes 16 in all, so
/// a process of its own adds what it can. `None` where that fails.
#[must_use]
pub fn landlock_layers() -> Option<u32> {
    use landlock::{AccessFs, Ruleset, RulesetAttr};
    /// `LANDLOCK_MAX_NUM_LAYERS`, security/landlock/limits.h.
    const MOST: u32 = 16;
    if lnk_sys::landlock_abi::version().ok()?.is_none() {
        return Some(0);
    }
    let add = || {
        let ruleset = Ruleset::default().handle_access(AccessFs::MakeSym).ok()?.create().ok()?;
        ruleset.restrict_self().ok()
    };
    let added = count_in_child(|| (0..=MOST).take_while(|_| add().is_some()).count() as i32);
    Some(MOST.saturating_sub(u32::try_from(added.ok()?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &Path) -> Place {
        Place::from(&path.to_path_buf())
    }

    #[test]
    fn a_read_counts_only_with_the_secret() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "secret").unwrap();
        let read = Try::Read { path: place(&file) };
        assert_eq!(read.make(b"secret"), Answer::Through);
        assert_eq!(read.make(b"other"), Answer::Refused(libc::ENODATA));
        let below = Try::ReadBelow { folder: place(folder.path()), rest: place(Path::new("file")) };
        assert_eq!(below.make(b"secret"), Answer::Through);
        let link = folder.path().join("link");
        let by_link = Try::ReadByLink { path: place(&file), link: place(&link) };
        assert_eq!(by_link.make(b"secret"), Answer::Through);
        assert!(!link.is_symlink());
    }

    #[test]
    fn a_dot_file_is_as_it_was_after_a_try() {
        let folder = tempfile::tempdir().unwrap();
        let name = "lnk-check-0".to_owned();
        for (dot, make) in [("missing", None), ("folder", Some(true)), ("file", Some(false))] {
            let path = folder.path().join(dot);
            match make {
                Some(true) => fs::create_dir(&path).unwrap(),
                Some(false) => fs::write(&path, "kept").unwrap(),
                None => {}
            }
            let change = Try::Change { path: place(&path), name: name.clone() };
            assert_eq!(change.make(b""), Answer::Through, "{dot}");
            assert_eq!(path.exists(), make.is_some());
            let there = Try::Move { path: place(&path), to: place(&folder.path().join(&name)) };
            let moved =
                if make.is_some() { Answer::Through } else { Answer::Refused(libc::ENOENT) };
            assert_eq!(there.make(b""), moved);
        }
        assert_eq!(fs::read(folder.path().join("file")).unwrap(), b"kept");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_process_by_the_same_number_is_not_the_one_meant() {
        let own = i32::try_from(std::process::id()).unwrap();
        let other = Try::Signal { pid: own, token: "nobody has this word".into() };
        assert_eq!(other.make(b""), Answer::Refused(libc::ESRCH));
    }

    #[test]
    fn a_file_among_the_descriptors_is_found() {
        let file = tempfile::tempfile().unwrap();
        let identity = Identity::from(&rustix::fs::fstat(&file).unwrap());
        assert_eq!(Try::Descriptor { identity }.make(b""), Answer::Through);
        drop(file);
        assert_eq!(Try::Descriptor { identity }.make(b""), Answer::Refused(libc::EBADF));
    }
}
