//! Each wire's control socket, in Link's settings, and who asks there.
//!
//! A question is one line of JSON, and so is its answer. Several wires may run under one
//! name, so a socket has its process in its own: `NAME~PID.sock`. Sockets of runs that
//! were killed stay behind; whoever lists removes them.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, chmodat, fstat, mkdirat, openat, readlinkat, statat, symlinkat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::getuid;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::paused::Lasting;
use crate::traffic::Carried;

/// The folder of the sockets, in the sandbox's settings.
pub(crate) const FOLDER: &str = "run";
/// Held while a socket is made or a dead one removed.
const LOCK: &str = "lock";
const SOCKET: &str = ".sock";
/// Stands between a sandbox's name and its process.
const OF_PROCESS: char = '~';
/// What ends the name of the link beside a socket that says which spec the sandbox has:
/// to be known also of one that doesn't answer. It leads nowhere; it says `name:path`, an
/// agent's, whose name is its own, no path.
const SPEC: &str = ".spec";
/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often the lock is tried meanwhile.
const TRY: Duration = Duration::from_millis(2);
/// Bytes of a sandbox's name at most: `/proc/self/fd/N/NAME~PID.sock` fits the 107
/// bytes that a socket's path may have (unix(7)).
const MAX_NAME: usize = 64;
/// Bytes of a question or answer at most, its newline too.
const MAX_MESSAGE: usize = 64 * 1024;
/// Questions that wait to be accepted, at most.
const BACKLOG: i32 = 128;

/// What a wire can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase")]
pub enum Request {
    /// How it is: answered by [`Answer::Status`].
    Status,
    /// To read again whether it's closed: answered by [`Answer::Looked`].
    Look {
        /// What was changed, which holds before it's read, and where it couldn't be kept.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        told: Option<Change>,
    },
}

/// What somebody changes about wires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Every one is stopped.
    Stop,
    /// None is any more.
    Start,
    /// Those of a lasting name are paused.
    Pause {
        /// The name.
        of: Lasting,
        /// Why, in one line of ASCII.
        why: String,
    },
    /// They aren't any more.
    Resume {
        /// The name.
        of: Lasting,
    },
}

/// What a wire answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// To [`Request::Status`].
    Status(Status),
    /// To [`Request::Look`].
    Looked(Looked),
    /// To what this version doesn't know.
    NotUnderstood,
}

/// A running wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its sandbox's name.
    pub name: String,
    /// The process that serves it.
    pub pid: u32,
    /// The spec's name.
    pub spec: Option<String>,
    /// What its pauses belong to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasting: Option<Lasting>,
    /// Why it lets nothing through, if it doesn't.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
    /// What it has carried, and since when.
    #[serde(flatten)]
    pub traffic: Carried,
}

/// What a wire found when it looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looked {
    /// Whether it lets nothing through now.
    pub closed: bool,
    /// Whether that is otherwise than before.
    pub changed: bool,
    /// Open calls that ended by it.
    pub ended: u64,
}

/// What came of telling every running wire of a change.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// What those found that answered, by name.
    pub wires: Vec<(String, Looked)>,
    /// The names of those that didn't within a second.
    pub silent: Vec<String>,
}

/// A running sandbox with a wire, by what stands beside its socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    /// Its name.
    pub name: String,
    /// What its pauses belong to.
    pub lasting: Lasting,
    /// The name that its spec had when it began.
    pub spec: Option<String>,
}

/// The wires that run.
#[derive(Clone, Debug, Default)]
pub struct Running {
    /// Those that answered, by name.
    pub wires: Vec<Status>,
    /// The names of those that didn't within a second.
    pub silent: Vec<String>,
}

/// A wire's control socket. It is gone from its folder with this value.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    folder: OwnedFd,
    /// `NAME~PID`.
    stem: String,
    id: (u64, u64),
}

impl Listener {
    /// Makes the socket of the sandbox `name` in `settings`, the folder
    /// `~/.config/lnk/sandbox`.
    ///
    /// # Errors
    /// `AddrInUse`: a wire with this name and this process's number runs, in another
    /// container, say. Else the folder can't be used.
    pub fn bind(settings: &Path, name: &str) -> io::Result<Listener> {
        if !is_name(name) {
            return Err(Errno::INVAL.into());
        }
        let folder = make_folder(settings)?;
        let _lock = lock(&folder, LOCK, PATIENCE)?;
        let stem = format!("{name}{OF_PROCESS}{}", std::process::id());
        let file = format!("{stem}{SOCKET}");
        match connect(&folder, &file) {
            Err(Errno::NOENT) => {}
            Err(Errno::CONNREFUSED) => unlinkat(&folder, &file, AtFlags::empty())?,
            _ => return Err(Errno::ADDRINUSE.into()),
        }
        // Left by an earlier one of the name.
        remove(&folder, &spec_link(&stem))?;
        let socket = new_socket()?;
        rustix::net::bind(&socket, &address(&folder, &file)?)?;
        chmodat(&folder, &file, Mode::RUSR | Mode::WUSR, AtFlags::empty())?;
        rustix::net::listen(&socket, BACKLOG)?;
        let id = id(&folder, &file)?;
        Ok(Listener { socket, folder, stem, id })
    }

    /// Says whose the sandbox is, for whoever doesn't ask the wire.
    ///
    /// # Errors
    /// The folder can't be written.
    pub fn belongs_to(&self, lasting: &Lasting, spec: Option<&str>) -> io::Result<()> {
        let path = match lasting {
            Lasting::Spec(path) => path.as_os_str(),
            // It's the sandbox's own.
            Lasting::Name(_) => OsStr::new(""),
            Lasting::Run(_) => return Ok(()),
        };
        let mut says = format!("{}:", spec.unwrap_or_default()).into_bytes();
        says.extend(path.as_bytes());
        Ok(symlinkat(OsStr::from_bytes(&says), &self.folder, spec_link(&self.stem))?)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Where that fails, whoever lists removes it.
        let file = format!("{}{SOCKET}", self.stem);
        if id(&self.folder, &file) == Ok(self.id) {
            let _ = remove(&self.folder, &spec_link(&self.stem));
            let _ = unlinkat(&self.folder, &file, AtFlags::empty());
        }
    }
}

/// Answers whoever asks at the socket, until it is dropped: on a runtime whose tasks
/// are local. Only this user's processes are answered, each within a second.
///
/// # Errors
/// The socket can't be served.
pub async fn serve(
    listener: Listener,
    answer: impl Fn(Request) -> Answer + 'static,
) -> io::Result<()> {
    let socket = std::os::unix::net::UnixListener::from(listener.socket.try_clone()?);
    let socket = tokio::net::UnixListener::from_std(socket)?;
    let answer = Rc::new(answer);
    loop {
        let Ok((stream, _)) = socket.accept().await else {
            // No descriptor is left, say: others may end meanwhile.
            tokio::time::sleep(PATIENCE).await;
            continue;
        };
        let answer = Rc::clone(&answer);
        tokio::task::spawn_local(async move {
            // One that hangs or goes away has itself to thank.
            let _ = tokio::time::timeout(PATIENCE, serve_one(stream, &*answer)).await;
        });
    }
}

async fn serve_one(
    mut stream: tokio::net::UnixStream,
    answer: &impl Fn(Request) -> Answer,
) -> io::Result<()> {
    if stream.peer_cred()?.uid() != getuid().as_raw() {
        return Ok(());
    }
    let mut question = Vec::new();
    while !question.ends_with(b"\n") && question.len() < MAX_MESSAGE {
        if stream.read_buf(&mut question).await? == 0 {
            return Ok(());
        }
    }
    let answer = match serde_json::from_slice(&question) {
        Ok(question) => answer(question),
        Err(_) => Answer::NotUnderstood,
    };
    stream.write_all(&message(&answer)).await
}

/// The wires that run, by their sockets in `settings`, the folder
/// `~/.config/lnk/sandbox`. Sockets of runs that are dead are removed.
///
/// # Errors
/// The folder can't be read.
pub fn list(settings: &Path) -> io::Result<Running> {
    let (answers, mut silent) = ask_all(settings, &Request::Status)?;
    let mut wires = Vec::new();
    for (name, answer) in answers {
        match answer {
            Answer::Status(status) => wires.push(status),
            _ => silent.push(name),
        }
    }
    wires.sort_by(|a, b| a.name.cmp(&b.name));
    silent.sort();
    silent.dedup();
    Ok(Running { wires, silent })
}

/// The sandboxes whose wires run, without asking any: also those that don't answer.
/// Sockets of runs that are dead are removed.
///
/// # Errors
/// The folder can't be read.
pub fn present(settings: &Path) -> io::Result<Vec<Present>> {
    let Some(folder) = open_folder(settings)? else { return Ok(Vec::new()) };
    let (mut present, mut any_dead) = (Vec::new(), false);
    for socket in sockets(&folder)? {
        match connect(&folder, &socket.file()) {
            Err(Errno::CONNREFUSED) => any_dead = true,
            // It ended just now.
            Err(Errno::NOENT) => {}
            Ok(_) | Err(_) => present.push(Present::read(&folder, socket)?),
        }
    }
    if any_dead {
        remove_dead(&folder)?;
    }
    present.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(present)
}

impl Present {
    fn read(folder: &OwnedFd, Socket { name, stem }: Socket) -> io::Result<Present> {
        let says = match readlinkat(folder, spec_link(&stem), Vec::new()) {
            Ok(says) => says.into_bytes(),
            Err(Errno::NOENT) => {
                return Ok(Present { lasting: Lasting::Run(name.clone()), name, spec: None });
            }
            Err(error) => return Err(error.into()),
        };
        let colon = says.iter().position(|byte| *byte == b':').ok_or(Errno::INVAL)?;
        let path = PathBuf::from(OsStr::from_bytes(&says[colon + 1..]));
        let spec = Some(String::from_utf8_lossy(&says[..colon]).into_owned());
        let spec = spec.filter(|spec| !spec.is_empty());
        let is_own = path.as_os_str().is_empty();
        let lasting = if is_own { Lasting::Name(name.clone()) } else { Lasting::Spec(path) };
        Ok(Present { name, lasting, spec })
    }
}

/// Tells every running wire of a change, and to read again whether it's closed. One that
/// is told of a closing keeps to it, whether or not that is on disk too, until it's told
/// otherwise; one that doesn't answer does as it's told once it goes on.
///
/// # Errors
/// The folder can't be read.
pub fn tell(settings: &Path, change: &Change) -> io::Result<Told> {
    let told = Some(change.clone());
    let (answers, mut silent) = ask_all(settings, &Request::Look { told })?;
    let mut wires = Vec::new();
    for (name, answer) in answers {
        match answer {
            Answer::Looked(looked) => wires.push((name, looked)),
            _ => silent.push(name),
        }
    }
    wires.sort_by(|a, b| a.0.cmp(&b.0));
    silent.sort();
    silent.dedup();
    Ok(Told { wires, silent })
}

/// What wires answered, by name, and those that didn't.
type Answers = (Vec<(String, Answer)>, Vec<String>);

/// What each wire answers within a second, and those that don't, by their sockets.
/// Sockets of runs that are dead are removed.
fn ask_all(settings: &Path, question: &Request) -> io::Result<Answers> {
    let Some(folder) = open_folder(settings)? else {
        return Ok((Vec::new(), Vec::new()));
    };
    let (mut asked, mut answers, mut silent) = (Vec::new(), Vec::new(), Vec::new());
    let mut any_dead = false;
    for socket in sockets(&folder)? {
        let file = socket.file();
        let name = socket.name;
        match ask(&folder, &file, question) {
            Ok(stream) => asked.push((name, stream)),
            Err(Errno::CONNREFUSED) => any_dead = true,
            // It ended just now.
            Err(Errno::NOENT | Errno::PIPE | Errno::CONNRESET) => {}
            Err(_) => silent.push(name),
        }
    }
    let deadline = Instant::now() + PATIENCE;
    for (name, stream) in asked {
        match answer(stream, deadline) {
            Ok(Some(answer)) => answers.push((name, answer)),
            Ok(None) => {}
            Err(_) => silent.push(name),
        }
    }
    if any_dead {
        // Where that fails, the next one does it.
        let _ = remove_dead(&folder);
    }
    Ok((answers, silent))
}

/// Sends the question, without waiting for anything.
fn ask(folder: &OwnedFd, file: &str, question: &Request) -> Result<UnixStream, Errno> {
    let stream = UnixStream::from(connect(folder, file)?);
    if socket_peercred(&stream)?.uid != getuid() {
        return Err(Errno::PERM);
    }
    match (&stream).write_all(&message(question)) {
        Ok(()) => Ok(stream),
        Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
    }
}

/// The answer, or `None` where the other side ended without one.
fn answer(mut stream: UnixStream, deadline: Instant) -> io::Result<Option<Answer>> {
    stream.set_nonblocking(false)?;
    let mut text = Vec::new();
    while !text.ends_with(b"\n") {
        // At least a moment: it may have answered while another one was waited for.
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left))?;
        let mut part = [0; 4096];
        match stream.read(&mut part) {
            Ok(0) => return Ok(None),
            Ok(read) => text.extend_from_slice(&part[..read]),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(error),
        }
        let late = !text.ends_with(b"\n") && Instant::now() > deadline;
        if late || text.len() > MAX_MESSAGE {
            return Err(Errno::TIMEDOUT.into());
        }
    }
    Ok(serde_json::from_slice(&text).map(Some)?)
}

fn message(content: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(content).expect("text and numbers are JSON");
    line.push(b'\n');
    line
}

/// Removes the sockets that nobody listens at. Under the lock nobody makes one.
fn remove_dead(folder: &OwnedFd) -> io::Result<()> {
    let _lock = lock(folder, LOCK, PATIENCE)?;
    for socket in sockets(folder)? {
        let file = socket.file();
        if connect(folder, &file).is_err_and(|error| error == Errno::CONNREFUSED) {
            remove(folder, &spec_link(&socket.stem))?;
            unlinkat(folder, &file, AtFlags::empty())?;
        }
    }
    Ok(())
}

fn spec_link(stem: &str) -> String {
    format!("{stem}{SPEC}")
}

/// Removes a file that may not be there.
fn remove(folder: &OwnedFd, file: &str) -> Result<(), Errno> {
    match unlinkat(folder, file, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// A socket in the folder.
struct Socket {
    /// Its sandbox's name.
    name: String,
    /// Its file's name without its end: `NAME~PID`.
    stem: String,
}

fn sockets(folder: &OwnedFd) -> io::Result<Vec<Socket>> {
    let mut sockets = Vec::new();
    for entry in std::fs::read_dir(through(folder))? {
        let file = entry?.file_name();
        sockets.extend(file.to_str().and_then(Socket::of));
    }
    Ok(sockets)
}

impl Socket {
    /// The socket that a file is by its name; one without a process is an earlier
    /// version's.
    fn of(file: &str) -> Option<Socket> {
        let stem = file.strip_suffix(SOCKET)?;
        let (name, process) = stem.split_once(OF_PROCESS).unwrap_or((stem, "0"));
        let is_one = is_name(name) && process.parse::<u32>().is_ok();
        is_one.then(|| Socket { name: name.to_owned(), stem: stem.to_owned() })
    }

    fn file(&self) -> String {
        format!("{}{SOCKET}", self.stem)
    }
}

fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && !name.starts_with('.')
}

/// Connects without waiting: `EAGAIN` where too many wait already.
fn connect(folder: &OwnedFd, file: &str) -> Result<OwnedFd, Errno> {
    let socket = new_socket()?;
    rustix::net::connect(&socket, &address(folder, file)?)?;
    Ok(socket)
}

fn new_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// The socket's address through the folder's descriptor, as its own path may be
/// longer than an address can be.
fn address(folder: &OwnedFd, file: &str) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new(through(folder).join(file))
}

fn through(folder: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()))
}

fn make_folder(settings: &Path) -> io::Result<OwnedFd> {
    match mkdirat(CWD, settings.join(FOLDER), Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    open_folder(settings)?.ok_or_else(|| Errno::NOENT.into())
}

/// The folder of the sockets, this user's and closed to all others; `None` where
/// there is none.
fn open_folder(settings: &Path) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = match openat(CWD, settings.join(FOLDER), flags, Mode::empty()) {
        Ok(folder) => folder,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if fstat(&folder)?.st_uid != getuid().as_raw() {
        return Err(Errno::PERM.into());
    }
    rustix::fs::fchmod(&folder, Mode::RWXU)?;
    Ok(Some(folder))
}

fn id(folder: impl AsFd, file: &str) -> Result<(u64, u64), Errno> {
    let stat = statat(folder, file, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Waits for a lock in a folder, which nobody holds for more than a moment, but not for
/// ever: a process may have been stopped with it.
pub(crate) fn lock(folder: &OwnedFd, name: &str, patience: Duration) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let lock = File::from(openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?);
    let deadline = Instant::now() + patience;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(TRY),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;

    use crate::traffic::Traffic;
    use tokio::task::LocalSet;

    const LOOKED: Looked = Looked { closed: true, changed: true, ended: 3 };

    /// Serves a wire's socket on a thread of its own as long as `during` runs.
    fn served<T>(listener: Listener, name: &str, during: impl FnOnce() -> T) -> T {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let name = name.to_owned();
        thread::scope(|scope| {
            scope.spawn(move || {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                LocalSet::new().block_on(&runtime, async move {
                    let answer = move |request| match request {
                        Request::Status => Answer::Status(status(&name)),
                        Request::Look { told } => {
                            assert_eq!(told, Some(Change::Stop));
                            Answer::Looked(LOOKED)
                        }
                    };
                    tokio::task::spawn_local(serve(listener, answer));
                    let _ = stopped.await;
                });
            });
            let result = during();
            stop.send(()).unwrap();
            result
        })
    }

    fn socket_of(settings: &Path, name: &str) -> PathBuf {
        settings.join(format!("run/{name}~{}.sock", std::process::id()))
    }

    fn status(name: &str) -> Status {
        let traffic = Traffic::start();
        traffic.sent(5);
        let traffic = Carried { since: jiff::Timestamp::UNIX_EPOCH, ..traffic.carried() };
        Status {
            name: name.into(),
            pid: 7,
            spec: Some("app".into()),
            lasting: Some(Lasting::Spec("/app.toml".into())),
            closed: None,
            traffic,
        }
    }

    #[test]
    fn a_running_wire_is_listed_whatever_the_folders_length() {
        let root = tempfile::tempdir().unwrap();
        let settings = root.path().join("a".repeat(120));
        fs::create_dir(&settings).unwrap();
        assert!(list(&settings).unwrap().wires.is_empty());
        let name = "n".repeat(MAX_NAME);
        let (one, two) = (
            Listener::bind(&settings, &name).unwrap(),
            Listener::bind(&settings, "run-2").unwrap(),
        );
        let socket = socket_of(&settings, "run-2");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&settings.join("run")), mode(&socket)), (0o700, 0o600));
        let running = served(one, &name, || served(two, "run-2", || list(&settings).unwrap()));
        assert_eq!(running.wires, [status(&name), status("run-2")]);
        assert!(running.silent.is_empty());
        assert!(!socket.exists(), "the socket goes with its wire");
        assert!(list(&settings).unwrap().wires.is_empty());
    }

    #[test]
    fn sockets_of_dead_runs_are_removed_and_their_names_free() {
        let settings = tempfile::tempdir().unwrap();
        let live = Listener::bind(settings.path(), "run-1").unwrap();
        let folder = settings.path().join("run");
        for dead in ["run-2", "run-3"] {
            drop(UnixListener::bind(socket_of(settings.path(), dead)).unwrap());
        }
        drop(Listener::bind(settings.path(), "run-3").unwrap());
        let earlier = folder.join("run-4.sock");
        drop(UnixListener::bind(&earlier).unwrap());
        let is_there = |name| socket_of(settings.path(), name).exists();
        assert!(is_there("run-2") && !is_there("run-3"));
        let running = served(live, "run-1", || {
            let again = Listener::bind(settings.path(), "run-1").unwrap_err();
            assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
            list(settings.path()).unwrap()
        });
        assert_eq!(running.wires.len(), 1);
        assert!(!is_there("run-2") && !earlier.exists());
    }

    #[test]
    fn one_that_hangs_is_named_and_keeps_no_other_waiting() {
        let settings = tempfile::tempdir().unwrap();
        let live = Listener::bind(settings.path(), "run-5").unwrap();
        let hanging: Vec<_> =
            (1..4).map(|n| Listener::bind(settings.path(), &format!("run-{n}")).unwrap()).collect();
        let full = UnixListener::bind(socket_of(settings.path(), "run-4")).unwrap();
        rustix::net::listen(&full, 0).unwrap();
        let _waiting = UnixStream::connect(socket_of(settings.path(), "run-4")).unwrap();
        let started = Instant::now();
        let running = served(live, "run-5", || list(settings.path()).unwrap());
        assert_eq!(running.silent, ["run-1", "run-2", "run-3", "run-4"]);
        assert_eq!(running.wires.len(), 1);
        assert!(started.elapsed() < 2 * PATIENCE);
        drop(hanging);
    }

    #[test]
    fn whose_a_sandbox_is_is_known_of_one_that_doesnt_answer() {
        let settings = tempfile::tempdir().unwrap();
        let folder = settings.path().join("run");
        let lasting = Lasting::Spec(OsStr::from_bytes(b"/a:\xff/app.toml").into());
        let named = Listener::bind(settings.path(), "run-1").unwrap();
        named.belongs_to(&lasting, Some("app")).unwrap();
        let nameless = Listener::bind(settings.path(), "run-2").unwrap();
        nameless.belongs_to(&lasting, None).unwrap();
        let bare = Listener::bind(settings.path(), "run-3").unwrap();
        bare.belongs_to(&Lasting::Run("run-3".into()), None).unwrap();
        let is = |name: &str, lasting: &Lasting, spec: Option<&str>| Present {
            name: name.into(),
            lasting: lasting.clone(),
            spec: spec.map(str::to_owned),
        };
        let third = is("run-3", &Lasting::Run("run-3".into()), None);
        let first = is("run-1", &lasting, Some("app"));
        let all = [first, is("run-2", &lasting, None), third.clone()];
        assert_eq!(present(settings.path()).unwrap(), all);
        drop((named, nameless));
        assert_eq!(present(settings.path()).unwrap(), [third]);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "the lock, and run-3's socket");
        // Of one that was killed nothing stays, nor is it the next one's.
        for name in ["run-4", "run-5"] {
            drop(UnixListener::bind(folder.join(format!("{name}.sock"))).unwrap());
            std::os::unix::fs::symlink("app:/app.toml", folder.join(format!("{name}.spec")))
                .unwrap();
        }
        let _next = Listener::bind(settings.path(), "run-5").unwrap();
        let names: Vec<_> = present(settings.path()).unwrap();
        assert_eq!(names[1], is("run-5", &Lasting::Run("run-5".into()), None));
        assert_eq!((names.len(), folder.join("run-4.spec").is_symlink()), (2, false));
    }

    #[test]
    fn every_wire_is_told_to_look() {
        let settings = tempfile::tempdir().unwrap();
        let live = Listener::bind(settings.path(), "run-1").unwrap();
        let _hanging = Listener::bind(settings.path(), "run-2").unwrap();
        let told = served(live, "run-1", || tell(settings.path(), &Change::Stop).unwrap());
        assert_eq!(told.wires, [("run-1".to_owned(), LOOKED)]);
        assert_eq!(told.silent, ["run-2"]);
    }

    /// Another process's of the same name is a file with the other's number.
    #[test]
    fn all_wires_of_one_name_are_told_and_listed() {
        let settings = tempfile::tempdir().unwrap();
        let folder = settings.path().join("run");
        let other = Listener::bind(settings.path(), "main-run").unwrap();
        let own = socket_of(settings.path(), "main-run");
        fs::rename(&own, folder.join("main-run~1.sock")).unwrap();
        let live = Listener::bind(settings.path(), "main-run").unwrap();
        let hanging = UnixListener::bind(folder.join("main-run~2.sock")).unwrap();
        for odd in ["main-run~.sock", "main-run~x.sock", "main-run~1~2.sock", "~1.sock"] {
            drop(UnixListener::bind(folder.join(odd)).unwrap());
        }
        let (told, running) = served(live, "main-run", || {
            served(other, "main-run", || {
                (tell(settings.path(), &Change::Stop).unwrap(), list(settings.path()).unwrap())
            })
        });
        assert_eq!(told.wires, vec![("main-run".to_owned(), LOOKED); 2]);
        assert_eq!(running.wires, [status("main-run"), status("main-run")]);
        assert_eq!(
            (told.silent, running.silent),
            (vec!["main-run".to_owned()], vec!["main-run".to_owned()])
        );
        drop(hanging);
    }

    #[test]
    fn a_question_of_another_version_is_answered() {
        let settings = tempfile::tempdir().unwrap();
        let live = Listener::bind(settings.path(), "run-1").unwrap();
        let said = served(live, "run-1", || {
            let hanging = UnixStream::connect(socket_of(settings.path(), "run-1")).unwrap();
            let mut asking = UnixStream::connect(socket_of(settings.path(), "run-1")).unwrap();
            asking.write_all(b"{\"ask\":\"what\"}\n").unwrap();
            let mut said = String::new();
            asking.read_to_string(&mut said).unwrap();
            drop(hanging);
            said
        });
        assert_eq!(said, "{\"answer\":\"not-understood\"}\n");
    }

    #[test]
    fn a_name_stays_in_the_folder() {
        let settings = tempfile::tempdir().unwrap();
        for name in ["", ".", "..", "../x", "a/b", "a b", "a\0", &"n".repeat(MAX_NAME + 1)] {
            assert!(Listener::bind(settings.path(), name).is_err(), "{name}");
        }
        assert!(Listener::bind(settings.path(), "main-link").is_ok());
    }

    #[test]
    fn a_folder_of_somebody_elses_choosing_isnt_used() {
        let settings = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), settings.path().join("run")).unwrap();
        assert!(Listener::bind(settings.path(), "run-1").is_err());
        assert!(list(settings.path()).is_err());
    }
}
