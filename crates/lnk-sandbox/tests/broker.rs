//! The broker with a sandbox of its own: bubblewrap's namespaces, a filter that
//! holds connect(2) and nothing else.
//!
//! Each test runs this file's program again inside, where `inside` goes on with
//! the case of the same name, and serves its connects until it ends.

// Helpers of tests, which Clippy doesn't know for tests.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use lnk_sandbox::linux::broker::{self, Broker, Inside};
use lnk_sys::notify::Notification;
use lnk_sys::seccomp::Instruction;
use lnk_sys::{socket, thread_signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

const CASE: &str = "BROKER_TEST_CASE";
const FOLDERS: &str = "BROKER_TEST_FOLDERS";
/// Far more than anything here takes; only a hang meets it.
const PATIENCE: Duration = Duration::from_secs(20);

// ---- outside ----

/// What a sandbox finds of the host's: a folder it may write and one it may only
/// read, in each a socket that the host listens on.
struct Host {
    folders: tempfile::TempDir,
    listeners: Vec<UnixListener>,
}

impl Host {
    fn new() -> Self {
        // A tmpfs on every machine, whose inode numbers are trusted.
        let folders = tempfile::tempdir_in("/dev/shm").unwrap();
        let listeners = ["granted", "readable"]
            .map(|folder| {
                fs::create_dir(folders.path().join(folder)).unwrap();
                let path = folders.path().join(folder).join("host.sock");
                let listener = UnixListener::bind(path).unwrap();
                listener.set_nonblocking(true).unwrap();
                listener
            })
            .into();
        Self { folders, listeners }
    }

    /// Runs the case and tells which paths were refused.
    fn run(&self, case: &str) -> Vec<Vec<u8>> {
        self.run_with(case, |_| {})
    }

    fn run_with(&self, case: &str, before: impl FnOnce(&OwnedFd)) -> Vec<Vec<u8>> {
        let (ours, theirs) = seqpacket_pair();
        let mut child = self.command(case, theirs).spawn().expect("bubblewrap is installed");
        let (mut broker, control) = start(ours);
        before(&control);
        send(&control, b"go", &[]);
        if !serve(&mut broker, &control) {
            child.kill().unwrap();
        }
        let status = child.wait().unwrap();
        assert!(status.success(), "the case failed inside: {status}");
        for listener in &self.listeners {
            let nobody = listener.accept().expect_err("a host's socket was connected");
            assert_eq!(nobody.kind(), ErrorKind::WouldBlock);
        }
        let refused = broker.refused();
        let ending = Instant::now();
        drop(broker);
        assert!(ending.elapsed() < Duration::from_secs(1), "a worker outlived its caller");
        refused
    }

    fn command(&self, case: &str, control: OwnedFd) -> Command {
        let granted = self.folders.path().join("granted");
        let readable = self.folders.path().join("readable");
        let mut command = Command::new("bwrap");
        command
            .args(["--unshare-user", "--unshare-net", "--unshare-pid", "--unshare-ipc"])
            .args(["--cap-drop", "ALL", "--die-with-parent"])
            .args(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"])
            .arg("--ro-bind")
            .args([std::env::current_exe().unwrap(), "/tmp/program".into()])
            .arg("--bind")
            .args([&granted, &granted])
            .arg("--ro-bind")
            .args([&readable, &readable])
            .args(["--chdir", "/tmp", "/tmp/program", "--ignored", "--exact", "inside"])
            .args(["--nocapture", "--test-threads=1"])
            .env(CASE, case)
            .env(FOLDERS, self.folders.path())
            .stdin(Stdio::from(control))
            .stdout(Stdio::null());
        command
    }
}

/// Takes what the sandbox sends once its filter stands.
fn start(control: OwnedFd) -> (Broker, OwnedFd) {
    let (_, descriptors) = receive(&control);
    let [listener, root, diag]: [OwnedFd; 3] = descriptors.try_into().expect("three descriptors");
    let tmp = rustix::fs::openat(&root, "tmp", OFlags::PATH, Mode::empty()).unwrap();
    let private = vec![rustix::fs::fstat(tmp).unwrap().st_dev];
    let netns_cookie = socket::netns_cookie(&diag).unwrap();
    let inside = Inside { root, private, diag: Some(diag), netns_cookie, unheard: None };
    let others = |_: BorrowedFd<'_>, _: &Notification| broker::Answer::Result(Err(Errno::DOM));
    (Broker::new(listener, inside, Some(Box::new(others))), control)
}

/// Serves until the sandbox is gone, or for too long: `false`. The sandbox's
/// message `idle?` is answered when no connect is under way, `busy?` when one is.
fn serve(broker: &mut Broker, control: &OwnedFd) -> bool {
    let deadline = Instant::now() + PATIENCE;
    let mut asked = None;
    while Instant::now() < deadline {
        let mut fds = vec![PollFd::new(control, PollFlags::IN)];
        fds.extend(broker.fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let wait = if asked.is_some() { 10 } else { 1000 };
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: wait * 999_999 })).unwrap();
        let message = fds[0].revents().contains(PollFlags::IN);
        if fds.get(1).is_some_and(|listener| listener.revents().contains(PollFlags::IN)) {
            broker.start().unwrap();
        }
        if message {
            match receive(control).0.as_slice() {
                b"idle?" => asked = Some(false),
                b"busy?" => asked = Some(true),
                _ => return true,
            }
        }
        if asked == Some(broker.is_busy()) {
            send(control, b"yes", &[]);
            asked = None;
        }
    }
    false
}

fn seqpacket_pair() -> (OwnedFd, OwnedFd) {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .unwrap()
}

fn send(control: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = rustix::net::SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(rustix::net::SendAncillaryMessage::ScmRights(descriptors));
    }
    let bytes = [std::io::IoSlice::new(bytes)];
    rustix::net::sendmsg(control, &bytes, &mut ancillary, rustix::net::SendFlags::empty()).unwrap();
}

fn receive(control: impl AsFd) -> (Vec<u8>, Vec<OwnedFd>) {
    let mut bytes = [0; 64];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = rustix::net::RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        control,
        &mut [std::io::IoSliceMut::new(&mut bytes)],
        &mut ancillary,
        rustix::net::RecvFlags::CMSG_CLOEXEC,
    );
    let length = received.map_or(0, |received| received.bytes);
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let rustix::net::RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    (bytes[..length].to_vec(), descriptors)
}

/// Everything here again as an ordinary user, where root runs the tests.
#[test]
fn as_an_ordinary_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let status = Command::new("setpriv")
        .args(["--reuid", "1001", "--regid", "1001", "--clear-groups"])
        .arg(std::env::current_exe().unwrap())
        .env("TMPDIR", "/dev/shm")
        .status()
        .expect("util-linux is installed");
    assert!(status.success());
}

// ---- inside ----

/// Not a test: what runs in the sandbox.
#[test]
#[ignore = "runs inside the sandbox that the other tests make"]
fn inside() {
    let case = std::env::var(CASE).expect("set by the test");
    enter();
    match case.as_str() {
        "tcp" => tcp(),
        "private_unix" => private_unix(),
        "spellings" => spellings(),
        "host_sockets" => host_sockets(),
        "granted_own" => granted_own(),
        "swapped_path" => swapped_path(),
        "swapped_descriptor" => swapped_descriptor(),
        "full_backlog" => full_backlog(),
        "killed" => killed(),
        "block_for_ever" => block_for_ever(),
        "signal" => signal(),
        "too_many" => too_many(),
        "abstract_names" => abstract_names(),
        "garbage" => garbage(),
        "foreign_sockets" => foreign_sockets(),
        "permissions" => permissions(),
        other => panic!("no case {other}"),
    }
}

fn control() -> BorrowedFd<'static> {
    rustix::stdio::stdin()
}

/// Puts the filter on, hands the listener out and waits for the broker; a
/// program started inside has the filter already.
fn enter() {
    if std::env::var_os("BROKER_TEST_ENTERED").is_some() {
        return;
    }
    let root = rustix::fs::open("/", OFlags::PATH, Mode::empty()).unwrap();
    let diag = broker::diag_socket().unwrap();
    rustix::thread::set_no_new_privs(true).unwrap();
    let listener = lnk_sys::seccomp::install_with_listener(&hold_connect()).unwrap();
    send(control(), b"ready", &[listener.as_fd(), root.as_fd(), diag.as_fd()]);
    if std::env::var(CASE).as_deref() != Ok("foreign_sockets") {
        assert_eq!(receive(control()).0, b"go");
    }
}

/// Holds connect(2), and getsid(2) as a call that isn't the broker's.
fn hold_connect() -> Vec<Instruction> {
    let plain = |code: u32, k: u32| Instruction { code: code as u16, jt: 0, jf: 0, k };
    let unless = |jf, call| Instruction {
        jf,
        ..plain(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32)
    };
    vec![
        plain(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        Instruction { jt: 1, ..unless(0, libc::SYS_connect) },
        unless(1, libc::SYS_getsid),
        plain(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_USER_NOTIF),
        plain(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ]
}

fn folder(name: &str) -> PathBuf {
    Path::new(&std::env::var_os(FOLDERS).expect("set by the test")).join(name)
}

fn errno<T>(result: std::io::Result<T>) -> Result<T, Errno> {
    result.map_err(|error| Errno::from_io_error(&error).expect("the kernel's error"))
}

/// Connects to the path of a Unix socket.
fn unix(path: impl AsRef<Path>) -> Result<UnixStream, Errno> {
    errno(UnixStream::connect(path))
}

fn refused(path: impl AsRef<Path>) {
    let path = path.as_ref();
    assert_eq!(unix(path).map(drop), Err(Errno::ACCESS), "{}", path.display());
}

fn new_socket(family: AddressFamily, kind: SocketType, flags: SocketFlags) -> OwnedFd {
    rustix::net::socket_with(family, kind, flags | SocketFlags::CLOEXEC, None).unwrap()
}

fn unix_address(path: &Path) -> Vec<u8> {
    [&1_u16.to_ne_bytes()[..], path.as_os_str().as_encoded_bytes()].concat()
}

fn inet_address(port: u16) -> Vec<u8> {
    [&2_u16.to_ne_bytes()[..], &port.to_be_bytes(), &[127, 0, 0, 1], &[0; 8]].concat()
}

#[test]
fn tcp_stays_in_the_sandboxs_network() {
    let outside = TcpListener::bind("127.0.0.1:0").unwrap();
    outside.set_nonblocking(true).unwrap();
    let port = outside.local_addr().unwrap().port();
    let host = Host::new();
    fs::write(host.folders.path().join("granted/port"), port.to_string()).unwrap();
    assert!(host.run("tcp").is_empty());
    assert_eq!(outside.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

fn tcp() {
    let outside: u16 = fs::read_to_string(folder("granted/port")).unwrap().parse().unwrap();
    let of_host = TcpStream::connect((Ipv4Addr::LOCALHOST, outside));
    assert_eq!(errno(of_host).map(drop), Err(Errno::CONNREFUSED));
    let far = TcpStream::connect(("10.0.0.1", 80));
    assert_eq!(errno(far).map(drop), Err(Errno::NETUNREACH));

    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let (mut accepted, peer) = listener.accept().unwrap();
        assert_eq!(stream.local_addr().unwrap(), peer);
        stream.write_all(b"x").unwrap();
        accepted.read_exact(&mut [0]).unwrap();
        // The broker keeps no duplicate: closing here ends the connection.
        drop(stream);
        assert_eq!(accepted.read(&mut [0]).unwrap(), 0);
        drop(listener);
        assert_eq!(errno(TcpStream::connect(address)).map(drop), Err(Errno::CONNREFUSED));
    }

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = inet_address(listener.local_addr().unwrap().port());
    let waiting = new_socket(AddressFamily::INET, SocketType::STREAM, SocketFlags::NONBLOCK);
    assert_eq!(errno(socket::connect(&waiting, &address)), Err(Errno::INPROGRESS));
    poll(&mut [PollFd::new(&waiting, PollFlags::OUT)], None).unwrap();
    assert_eq!(rustix::net::sockopt::socket_error(&waiting).unwrap(), Ok(()));
    assert_eq!(errno(socket::connect(&waiting, &address)), Ok(()));
    assert_eq!(errno(socket::connect(&waiting, &address)), Err(Errno::ISCONN));

    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(datagrams.local_addr().unwrap()).unwrap();
    sender.send(b"x").unwrap();
    assert_eq!(datagrams.recv_from(&mut [0]).unwrap().1, sender.local_addr().unwrap());
    let unspecified = [0; 16];
    assert_eq!(errno(socket::connect(&sender, &unspecified)), Ok(()));
    assert_eq!(errno(sender.peer_addr()), Err(Errno::NOTCONN));
}

#[test]
fn sockets_on_a_private_tmpfs_are_connected() {
    assert!(Host::new().run("private_unix").is_empty());
}

fn private_unix() {
    let listener = UnixListener::bind("/tmp/own.sock").unwrap();
    let mut stream = unix("/tmp/own.sock").unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    stream.write_all(b"x").unwrap();
    accepted.read_exact(&mut [0]).unwrap();

    let packets = new_socket(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::empty());
    let wrong = errno(socket::connect(&packets, &unix_address(Path::new("/tmp/own.sock"))));
    assert_eq!(wrong, Err(Errno::PROTOTYPE));
    drop(listener);
    assert_eq!(unix("/tmp/own.sock").map(drop), Err(Errno::CONNREFUSED));
    fs::write("/tmp/file", "").unwrap();
    assert_eq!(unix("/tmp/file").map(drop), Err(Errno::CONNREFUSED));
    assert_eq!(unix("/tmp/missing").map(drop), Err(Errno::NOENT));
    assert_eq!(unix("/tmp/file/below").map(drop), Err(Errno::NOTDIR));
}

#[test]
fn every_spelling_of_a_path_is_found() {
    assert!(Host::new().run("spellings").is_empty());
}

fn spellings() {
    let deep = format!("/tmp/{}/{}", "d".repeat(100), "e".repeat(100));
    fs::create_dir_all(&deep).unwrap();
    let folder = File::open(&deep).unwrap();
    let long = format!("/proc/self/fd/{}/own.sock", folder.as_raw_fd());
    let _listener = UnixListener::bind(&long).unwrap();
    unix(&long).unwrap();
    unix(format!("/dev/fd/{}/../{}/own.sock", folder.as_raw_fd(), "e".repeat(60))).unwrap_err();

    std::env::set_current_dir(&deep).unwrap();
    unix("own.sock").unwrap();
    unix("./../../x/../own.sock").unwrap_err();
    std::env::set_current_dir("..").unwrap();
    unix(format!("{}/own.sock", &"e".repeat(100)[..90])).unwrap_err();
    fs::rename("e".repeat(100), "short").unwrap();
    unix("short/own.sock").unwrap();
    unix("short/../short//./own.sock").unwrap();

    symlink("short/own.sock", "link").unwrap();
    symlink(format!("/tmp/{}/link", "d".repeat(100)), "/tmp/absolute").unwrap();
    unix("link").unwrap();
    unix("/tmp/absolute").unwrap();
    unix("../absolute").unwrap();
    unix("/../../tmp/absolute").unwrap();
    symlink("loop", "/tmp/loop").unwrap();
    assert_eq!(unix("/tmp/loop").map(drop), Err(Errno::LOOP));

    let itself =
        File::options().read(true).custom_flags(libc::O_PATH).open("short/own.sock").unwrap();
    unix(format!("/proc/self/fd/{}", itself.as_raw_fd())).unwrap();
    assert_eq!(unix("/proc/self/fd/987").map(drop), Err(Errno::NOENT));

    fs::create_dir("/tmp/gone").unwrap();
    std::env::set_current_dir("/tmp/gone").unwrap();
    fs::remove_dir("/tmp/gone").unwrap();
    unix("../absolute").unwrap_err();
}

#[test]
fn the_hosts_sockets_are_refused_by_every_way() {
    let host = Host::new();
    let refused = host.run("host_sockets");
    let expected = ["readable/host.sock", "granted/host.sock"]
        .map(|path| host.folders.path().join(path).into_os_string().into_encoded_bytes());
    assert_eq!(refused[..2], expected, "in their order");
    let once = refused.iter().filter(|path| **path == expected[1]).count();
    assert_eq!(once, 1, "{refused:?}");
}

fn host_sockets() {
    refused(folder("readable/host.sock"));
    let path = folder("granted/host.sock");
    refused(&path);
    refused(&path);
    let waiting = new_socket(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK);
    assert_eq!(errno(socket::connect(&waiting, &unix_address(&path))), Err(Errno::ACCESS));

    std::env::set_current_dir(folder("granted")).unwrap();
    refused("host.sock");
    refused("./host.sock");
    symlink(&path, "/tmp/link").unwrap();
    refused("/tmp/link");
    fs::hard_link("host.sock", "hard.sock").unwrap();
    refused("hard.sock");
    fs::rename("hard.sock", "renamed.sock").unwrap();
    refused("renamed.sock");
    let open = |path| File::options().read(true).custom_flags(libc::O_PATH).open(path).unwrap();
    let (itself, here) = (open("host.sock"), open("."));
    refused(format!("/proc/self/fd/{}", itself.as_raw_fd()));
    refused(format!("/proc/self/fd/{}/host.sock", here.as_raw_fd()));
    // A way that the broker doesn't know is closed as well.
    unix(format!("/proc/{}/fd/{}", std::process::id(), itself.as_raw_fd())).unwrap_err();
    unix("/proc/self/cwd/host.sock").unwrap_err();
    unix("/proc/thread-self/root/tmp/link").unwrap_err();
}

#[test]
fn a_socket_bound_inside_is_connected_in_a_granted_folder() {
    let host = Host::new();
    let stale = host.folders.path().join("granted/stale.sock");
    drop(UnixListener::bind(&stale).unwrap());
    let stale = stale.into_os_string().into_encoded_bytes();
    assert_eq!(host.run("granted_own"), [stale]);
}

fn granted_own() {
    let path = folder("granted/own.sock");
    let listener = UnixListener::bind(&path).unwrap();
    unix(&path).unwrap();
    listener.accept().unwrap();
    fs::rename(&path, folder("granted/moved.sock")).unwrap();
    unix(folder("granted/moved.sock")).unwrap();
    // Nobody's any more: it can't be told from a host's.
    refused(folder("granted/stale.sock"));
    assert_eq!(unix(&path).map(drop), Err(Errno::NOENT));
}

#[test]
fn a_path_swapped_between_look_and_connect_gains_nothing() {
    Host::new().run("swapped_path");
}

fn swapped_path() {
    let (own, host) = (folder("granted/own.sock"), folder("granted/host.sock"));
    let listener = UnixListener::bind(&own).unwrap();
    listener.set_nonblocking(true).unwrap();
    let (done, swaps) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (mut connected, mut denied) = (0, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(CWD, &own, CWD, &host, RenameFlags::EXCHANGE).unwrap();
                swaps.fetch_add(1, Ordering::Relaxed);
            }
        });
        while connected + denied < 3000 || connected == 0 || denied == 0 {
            match unix(&own) {
                Ok(_) => {
                    // Each connection arrives here, so none went to the host.
                    listener.accept().expect("connected elsewhere");
                    connected += 1;
                }
                Err(error) => {
                    assert_eq!(error, Errno::ACCESS);
                    denied += 1;
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(swaps.into_inner() > 100);
}

#[test]
fn a_descriptor_swapped_between_look_and_connect_gains_nothing() {
    Host::new().run("swapped_descriptor");
}

fn swapped_descriptor() {
    let host = unix_address(&folder("granted/host.sock"));
    let closed = inet_address(1);
    // The standard input is the one descriptor that is swapped without unsafe code.
    let swapped = rustix::stdio::stdin();
    let unix = new_socket(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty());
    // The test serves until this end of its socket is closed.
    let _control = rustix::io::dup(control()).unwrap();
    rustix::stdio::dup2_stdin(&unix).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let flags = SocketFlags::empty();
                let inet = new_socket(AddressFamily::INET, SocketType::STREAM, flags);
                rustix::stdio::dup2_stdin(&inet).unwrap();
                rustix::stdio::dup2_stdin(&unix).unwrap();
            }
        });
        let mut outcomes = Vec::new();
        while outcomes.len() < 6000 {
            for address in [&host, &closed] {
                let error = errno(socket::connect(swapped, address)).unwrap_err();
                outcomes.push(error.raw_os_error());
            }
        }
        done.store(true, Ordering::Relaxed);
        // Both kinds of socket were met with both addresses.
        for met in [Errno::ACCESS, Errno::CONNREFUSED, Errno::AFNOSUPPORT, Errno::INVAL] {
            assert!(outcomes.contains(&met.raw_os_error()), "{met}");
        }
    });
}

#[test]
fn blocked_connects_delay_no_other() {
    Host::new().run("full_backlog");
}

/// A listener with a full backlog.
fn full(path: &str) -> OwnedFd {
    let listener = new_socket(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty());
    rustix::net::bind(&listener, &rustix::net::SocketAddrUnix::new(path).unwrap()).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    unix(path).unwrap();
    let waiting = new_socket(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK);
    let address = unix_address(Path::new(path));
    assert_eq!(errno(socket::connect(waiting, &address)), Err(Errno::AGAIN));
    listener
}

fn full_backlog() {
    let listener = full("/tmp/full.sock");
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..2 {
            let tell = tell.clone();
            scope.spawn(move || {
                tell.send("going").unwrap();
                unix("/tmp/full.sock").unwrap();
                tell.send("connected").unwrap();
            });
            assert_eq!(told.recv(), Ok("going"));
        }
        for _ in 0..200 {
            TcpStream::connect(other.local_addr().unwrap()).unwrap();
            other.accept().unwrap();
        }
        assert_eq!(rustix::process::getsid(None), Err(Errno::DOM));
        assert_eq!(told.try_recv(), Err(mpsc::TryRecvError::Empty), "still blocked");
        for _ in 0..3 {
            rustix::net::accept(&listener).unwrap();
        }
        assert_eq!((told.recv(), told.recv()), (Ok("connected"), Ok("connected")));
    });
}

#[test]
fn a_killed_program_leaves_no_worker() {
    Host::new().run("killed");
}

fn killed() {
    let _listener = full("/tmp/full.sock");
    let mut child = Command::new("/proc/self/exe")
        .args(["--ignored", "--exact", "inside", "--nocapture"])
        .env(CASE, "block_for_ever")
        .env("BROKER_TEST_ENTERED", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_until(b"busy?");
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until(b"idle?");
}

fn block_for_ever() {
    unix("/tmp/full.sock").unwrap();
}

/// Waits until the broker is `idle?` or `busy?`.
fn wait_until(state: &[u8]) {
    send(control(), state, &[]);
    assert_eq!(receive(control()).0, b"yes");
}

#[test]
fn a_signal_ends_a_blocked_connect() {
    Host::new().run("signal");
}

fn signal() {
    let _listener = full("/tmp/full.sock");
    let (tell, told) = mpsc::channel();
    let thread = thread_signal::spawn_interruptible(thread::Builder::new(), move || {
        tell.send(rustix::thread::gettid()).unwrap();
        assert_eq!(unix_once("/tmp/full.sock"), Err(Errno::INTR));
    })
    .unwrap();
    let id = told.recv().unwrap();
    while !thread.is_finished() {
        let _gone = thread_signal::interrupt(id);
        thread::sleep(Duration::from_millis(1));
    }
    thread.join().unwrap();
    wait_until(b"idle?");
}

/// The standard library goes on after a signal.
fn unix_once(path: &str) -> Result<(), Errno> {
    let socket = new_socket(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty());
    errno(socket::connect(&socket, &unix_address(Path::new(path))))
}

#[test]
fn more_blocked_connects_than_workers_are_told_to_try_again() {
    Host::new().run("too_many");
}

fn too_many() {
    let _listener = full("/tmp/full.sock");
    for _ in 0..64 {
        // The last place may be taken by a connect of the loop below for a moment.
        thread::spawn(|| while unix_once("/tmp/full.sock") == Err(Errno::AGAIN) {});
    }
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let started = Instant::now();
    while let Ok(_stream) = TcpStream::connect(other.local_addr().unwrap()) {
        other.accept().unwrap();
        assert!(started.elapsed() < PATIENCE, "never refused");
    }
    let error = TcpStream::connect(other.local_addr().unwrap());
    assert_eq!(errno(error).map(drop), Err(Errno::AGAIN));
    assert_eq!(rustix::process::getsid(None), Err(Errno::DOM));
}

#[test]
fn abstract_names_are_the_sandboxs_own() {
    let name = format!("broker-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let outside = UnixListener::bind_addr(&address).unwrap();
    outside.set_nonblocking(true).unwrap();
    let host = Host::new();
    fs::write(host.folders.path().join("granted/name"), name).unwrap();
    host.run("abstract_names");
    assert_eq!(outside.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

fn abstract_names() {
    let name = fs::read_to_string(folder("granted/name")).unwrap();
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let connect = || errno(UnixStream::connect_addr(&address)).map(drop);
    assert_eq!(connect(), Err(Errno::CONNREFUSED));
    let listener = UnixListener::bind_addr(&address).unwrap();
    assert_eq!(connect(), Ok(()));
    listener.accept().unwrap();
}

#[test]
fn addresses_that_make_no_sense_fail_as_without_the_broker() {
    let host = Host::new();
    fs::write(host.folders.path().join("granted/outcomes"), outcomes().join("\n")).unwrap();
    host.run("garbage");
}

fn garbage() {
    let kernels = fs::read_to_string(folder("granted/outcomes")).unwrap();
    let outcomes = outcomes();
    assert_eq!(outcomes.len(), kernels.lines().count());
    for (outcome, kernels) in outcomes.iter().zip(kernels.lines()) {
        assert_eq!(outcome, kernels);
    }
    let netlink = new_socket(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::empty());
    let to_kernel = [&16_u16.to_ne_bytes()[..], &[0; 10]].concat();
    assert_eq!(errno(socket::connect(&netlink, &to_kernel)), Err(Errno::ACCESS));
}

/// What connecting to senseless addresses fails with.
fn outcomes() -> Vec<String> {
    let mut addresses = Vec::new();
    for family in [0_u16, 1, 2, 10, 16, 255] {
        for length in [0, 1, 2, 3, 8, 15, 16, 27, 28, 110, 111, 128, 129, 4096] {
            let mut bytes = vec![b'x'; length];
            for (byte, family) in bytes.iter_mut().zip(family.to_ne_bytes()) {
                *byte = family;
            }
            // A port and an address that nobody has.
            for (byte, inet) in bytes.iter_mut().skip(2).zip([0, 1, 127, 0, 0, 1]) {
                *byte = if family == 1 { b'x' } else { inet };
            }
            addresses.push((family, bytes));
        }
    }
    let file = OwnedFd::from(File::open("/dev/null").unwrap());
    let mut outcomes = Vec::new();
    for (family, bytes) in addresses {
        let flags = SocketFlags::empty();
        let descriptors = [
            new_socket(AddressFamily::UNIX, SocketType::STREAM, flags),
            new_socket(AddressFamily::INET, SocketType::STREAM, flags),
            new_socket(AddressFamily::INET, SocketType::DGRAM, flags),
            file.try_clone().unwrap(),
        ];
        for (number, descriptor) in descriptors.iter().enumerate() {
            let outcome = errno(socket::connect(descriptor, &bytes));
            let length = bytes.len();
            outcomes.push(format!("{number}: family {family}, {length} bytes: {outcome:?}"));
        }
    }
    outcomes
}

#[test]
fn sockets_of_another_network_are_refused() {
    let outside = TcpListener::bind("127.0.0.1:0").unwrap();
    outside.set_nonblocking(true).unwrap();
    let port = outside.local_addr().unwrap().port();
    let host = Host::new();
    fs::write(host.folders.path().join("granted/port"), port.to_string()).unwrap();
    host.run_with("foreign_sockets", |control| {
        let inet = new_socket(AddressFamily::INET, SocketType::STREAM, SocketFlags::empty());
        let unix = new_socket(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty());
        send(control, b"sockets", &[inet.as_fd(), unix.as_fd()]);
    });
    assert_eq!(outside.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

fn foreign_sockets() {
    let (_, sockets) = receive(control());
    assert_eq!(receive(control()).0, b"go");
    let [inet, unix] = &sockets[..] else { panic!("two sockets") };
    let port = fs::read_to_string(folder("granted/port")).unwrap().parse().unwrap();
    let refused = Err(Errno::ACCESS);
    assert_eq!(errno(socket::connect(inet, &inet_address(port))), refused);
    let _listener = UnixListener::bind("/tmp/own.sock").unwrap();
    let own = unix_address(Path::new("/tmp/own.sock"));
    assert_eq!(errno(socket::connect(unix, &own)), refused);
    assert_eq!(errno(socket::connect(unix, &unix_address(Path::new("\0name")))), refused);
}

#[test]
fn permissions_of_a_socket_hold_for_root_too() {
    Host::new().run("permissions");
}

fn permissions() {
    fs::create_dir("/tmp/folder").unwrap();
    let path = Path::new("/tmp/folder/own.sock");
    let _listener = UnixListener::bind(path).unwrap();
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    unix(path).unwrap();
    mode(path, 0o577);
    refused(path);
    mode(path, 0o200);
    unix(path).unwrap();
    mode(Path::new("/tmp/folder"), 0o600);
    refused(path);
}
