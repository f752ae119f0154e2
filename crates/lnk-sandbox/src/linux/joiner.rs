//! The joiner: makes a sandbox's mounts from within bubblewrap's namespaces
//! while bubblewrap stands still.
//!
//! bubblewrap is told to copy a pipe of ours into a file (`--file`). It does so
//! at a moment when the machine's tree is at `/oldroot` and the sandbox's at
//! `/newroot`, and reads until the pipe is closed. The joiner, a forked process
//! that enters the new user and mount namespaces, prepares copies of every
//! mount while bubblewrap works, waits until the pipe is read, attaches them,
//! and closes it. `lnk` itself, which bubblewrap then starts, is attached last:
//! if the joiner dies at any moment before, there is nothing to start.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lnk_spec::shown;
use lnk_sys::mount::{Attributes, set_attributes};
use lnk_sys::process::exit_now;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::thread::ThreadNameSpaceType;

use crate::error::reason;
use crate::faults::Fault;
use crate::linux::begun::PIPE_SIZE;
use crate::linux::listeners;
use crate::linux::message::{self, FromJoiner};
use crate::linux::processes::limit_namespace;
use crate::linux::{guard, tree};
use crate::paths::Identity;
use crate::plan::{Mount, OWN_BINARY, Plan};

/// How long to wait for the new user namespace's map, in steps of
/// [`MAP_WAIT`].
const MAP_TRIES: u32 = 50_000;
/// One step of that wait.
const MAP_WAIT: Duration = Duration::from_micros(20);

/// What a joiner works with. The descriptors are its own.
#[derive(Debug)]
pub struct Joiner<'a> {
    /// The sandbox to build.
    pub plan: &'a Plan,
    /// Where bubblewrap says which process it made (`--info-fd`).
    pub info: OwnedFd,
    /// The pipe that bubblewrap reads (`--file`), of [`PIPE_SIZE`], not blocking.
    pub sync: OwnedFd,
    /// To the supervisor.
    pub supervisor: OwnedFd,
    /// The supervisor's pidfd: when it ends early, what bubblewrap left is ended.
    pub supervisor_process: OwnedFd,
    /// The machine's `/`.
    pub host_root: Identity,
    /// The machine's `/proc`, to find what bubblewrap left.
    pub host_proc: OwnedFd,
    /// The caller's terminal, for `/dev/console`.
    pub terminal: Option<PathBuf>,
}

/// How often what is left of a sandbox is looked for. Each look finds all that
/// were there before it.
const LOOKS: usize = 1000;
/// How long a killed process has to let go.
const LOOK_WAIT: Duration = Duration::from_millis(1);

/// Why the joiner stopped.
enum Stop {
    /// Not on this kernel, or not with this bubblewrap.
    Unsupported(String),
    /// bubblewrap failed.
    Bwrap(&'static str),
    /// Something failed, or isn't what it was.
    Failed(String),
    /// The supervisor is gone.
    Orphaned,
}

fn unsupported<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Stop {
    move |error| Stop::Unsupported(format!("{what}: {}", reason(&error.into())))
}

fn failed<E: Into<io::Error>>(what: impl AsRef<Path>) -> impl FnOnce(E) -> Stop {
    move |error| {
        let error = error.into();
        let why = format!("{}: {}", shown::word(what.as_ref()), reason(&error));
        if is_refused_call(&error) { Stop::Unsupported(why) } else { Stop::Failed(why) }
    }
}

/// Whether the kernel lacks a call, or a filter around `lnk` refuses it.
fn is_refused_call(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM))
}

impl Joiner<'_> {
    /// The forked process's whole life: joins, builds, and guards if there is
    /// anything to guard.
    pub fn run(self) -> ! {
        match self.build() {
            Ok(root) => {
                let guarded = !self.plan.watched.is_empty();
                if message::send(self.supervisor.as_fd(), &FromJoiner::Done, &[]).is_err() {
                    self.end_what_is_left();
                }
                let Joiner { plan, sync, supervisor, .. } = self;
                drop(sync);
                if guarded {
                    guard::watch(&root, &plan.watched, &supervisor);
                }
                exit_now(0)
            }
            Err(Stop::Orphaned) => self.end_what_is_left(),
            Err(Stop::Unsupported(why)) => self.give_up(&FromJoiner::Unsupported(why)),
            Err(Stop::Bwrap(why)) => self.give_up(&FromJoiner::Bwrap(why.into())),
            Err(Stop::Failed(why)) => self.give_up(&FromJoiner::Failed(why)),
        }
    }

    fn give_up(&self, why: &FromJoiner) -> ! {
        if message::send(self.supervisor.as_fd(), why, &[]).is_err() {
            self.end_what_is_left();
        }
        exit_now(1)
    }

    /// Builds the whole tree and returns its root.
    fn build(&self) -> Result<OwnedFd, Stop> {
        let nested = Nested::of(&self.plan.mounts);
        let child = self.wait_for_child()?;
        let child = pidfd_open(child, PidfdFlags::empty()).map_err(unsupported("pidfd_open"))?;
        let mut spaces = ThreadNameSpaceType::MOUNT;
        if !self.plan.faults.has(Fault::Users) {
            spaces |= ThreadNameSpaceType::USER;
        }
        if !self.plan.listens.is_empty() {
            spaces |= ThreadNameSpaceType::NETWORK;
        }
        if self.plan.limits_namespace().is_some() {
            spaces |= ThreadNameSpaceType::PROCESS_ID;
        }
        rustix::thread::move_into_thread_name_spaces(child.as_fd(), spaces)
            .map_err(unsupported("setns"))?;
        rustix::process::umask(Mode::empty());
        let host = self.host_tree()?;
        let copied = (0..self.plan.mounts.len()).map(|index| Prepared {
            copy: self.copy_of(index, &nested, &host).and_then(Result::ok),
            place: None,
        });
        let mut prepared: Vec<Prepared> = copied.collect();
        self.wait_for_map()?;
        if let Some(most) = self.plan.limits_namespace() {
            limit_namespace(most, self.host_proc.as_fd())
                .map_err(unsupported("kernel.pid_max of the sandbox"))?;
        }
        for (index, mount) in self.plan.mounts.iter().enumerate() {
            if let Mount::Tmpfs { mode, .. } = mount {
                prepared[index].copy = Some(tree::tmpfs(*mode).map_err(unsupported("tmpfs"))?);
            }
            if let Some((memory, path)) = self.in_memory_around(index, &nested, &prepared) {
                prepared[index].place = Some(make(memory, path, mount)?);
            }
        }
        let devices = Devices::prepare(&host, self.terminal.as_deref())?;
        self.wait_until_read()?;
        // While bubblewrap prepared, its own mounts covered part of the
        // machine's tree; now they don't.
        for (index, prepared) in prepared.iter_mut().enumerate() {
            if prepared.copy.is_none()
                && let Some(copy) = self.copy_of(index, &nested, &host)
            {
                prepared.copy = Some(copy.map_err(changed(self.plan.mounts[index].target()))?);
            }
        }
        let root = rustix::fs::open(
            "/newroot",
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(unsupported("/newroot"))?;
        self.attach(&root, &prepared, &nested, devices)?;
        // bubblewrap has brought the loopback up by now.
        let Plan { listens, addresses, .. } = self.plan;
        listeners::open_and_send(listens, addresses, &self.supervisor).map_err(Stop::Failed)?;
        self.attach_own_binary(&host, &root)?;
        Ok(root)
    }

    /// Reads `"child-pid": N` from bubblewrap.
    fn wait_for_child(&self) -> Result<Pid, Stop> {
        let mut text = Vec::new();
        loop {
            self.wait_for(self.info.as_fd(), PollFlags::IN)?;
            let mut chunk = [0u8; 512];
            let read = rustix::io::read(&self.info, &mut chunk)
                .map_err(unsupported("bubblewrap's --info-fd"))?;
            text.extend_from_slice(&chunk[..read]);
            if let Some(pid) = child_pid(&text) {
                return Ok(pid);
            }
            if read == 0 || text.len() > PIPE_SIZE {
                return Err(Stop::Bwrap("bubblewrap ended before it made a process"));
            }
        }
    }

    /// Waits for `events`, or the supervisor's end.
    fn wait_for(&self, fd: BorrowedFd<'_>, events: PollFlags) -> Result<(), Stop> {
        loop {
            let mut fds = [
                PollFd::from_borrowed_fd(fd, events),
                PollFd::new(&self.supervisor_process, PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Err(Errno::INTR) => continue,
                polled => polled.map_err(unsupported("poll"))?,
            };
            if !fds[1].revents().is_empty() {
                return Err(Stop::Orphaned);
            }
            if !fds[0].revents().is_empty() {
                return Ok(());
            }
        }
    }

    /// The machine's tree, as bubblewrap's namespace shows it: at `/`, or, once
    /// bubblewrap has moved it, at `/oldroot`.
    fn host_tree(&self) -> Result<OwnedFd, Stop> {
        for path in ["/", "/oldroot"] {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let Ok(root) = rustix::fs::open(path, flags, Mode::empty()) else { continue };
            let stat = rustix::fs::fstat(&root).map_err(unsupported("stat"))?;
            if Identity::from(&stat) == self.host_root {
                return Ok(root);
            }
        }
        Err(Stop::Unsupported("the machine's tree isn't where bubblewrap keeps it".into()))
    }

    /// A copy of what is bound, with its attributes, if it still is what was
    /// judged. What lies in a read-only place in memory has them with that place,
    /// in one call for all.
    fn copy_of(
        &self,
        index: usize,
        nested: &Nested,
        host: &OwnedFd,
    ) -> Option<io::Result<OwnedFd>> {
        let Mount::Bind { source, identity, write, .. } = &self.plan.mounts[index] else {
            return None;
        };
        let place = open_if_same(host, source, *identity);
        let with_its_place =
            nested.around[index].is_some_and(|around| nested.read_only_whole[around]);
        Some(place.and_then(|place| match with_its_place {
            true => tree::bare_copy_of(place.as_fd()),
            false => tree::copy_of(place.as_fd(), tree::bound(*write)),
        }))
    }

    /// The file system in memory in which a mount's target lies, and where in
    /// it, if that is what decides there: its folders can be made before it is
    /// attached.
    fn in_memory_around<'p>(
        &self,
        index: usize,
        nested: &Nested,
        prepared: &'p [Prepared],
    ) -> Option<(BorrowedFd<'p>, &Path)> {
        let mounts = &self.plan.mounts;
        let target = mounts[index].target();
        let around = nested.around[index]?;
        let Mount::Tmpfs { target: top, .. } = &mounts[around] else { return None };
        let inside = target.strip_prefix(top).ok().filter(|path| *path != Path::new(""))?;
        Some((prepared[around].copy.as_ref()?.as_fd(), inside))
    }

    /// Whether a folder of the machine's is what is mounted around a target.
    fn is_in_a_folder(&self, index: usize, nested: &Nested) -> bool {
        let around = nested.around[index].map(|around| &self.plan.mounts[around]);
        matches!(around, Some(Mount::Bind { .. }))
    }

    /// Waits until the user namespace has its map, without which what is made
    /// in memory would have no owner. bubblewrap writes the groups' last. A look
    /// at the map costs less than a file system made too early: taking that down
    /// waits for every processor.
    fn wait_for_map(&self) -> Result<(), Stop> {
        for _ in 0..MAP_TRIES {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let map = rustix::fs::openat(&self.host_proc, "self/gid_map", flags, Mode::empty());
            let map = map.map_err(unsupported("/proc/self/gid_map"))?;
            let read = rustix::io::read(&map, &mut [0u8; 64]);
            if read.map_err(unsupported("/proc/self/gid_map"))? > 0 {
                return Ok(());
            }
            self.still_supervised()?;
            std::thread::sleep(MAP_WAIT);
        }
        Err(Stop::Bwrap("bubblewrap never mapped its user"))
    }

    fn still_supervised(&self) -> Result<(), Stop> {
        let mut fds = [PollFd::new(&self.supervisor_process, PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut fds, Some(&now)) {
            Ok(0) => Ok(()),
            _ => Err(Stop::Orphaned),
        }
    }

    /// Fills the pipe and writes one byte more: done exactly when bubblewrap
    /// reads, with everything of its own in place.
    fn wait_until_read(&self) -> Result<(), Stop> {
        let bytes = [b'\n'; PIPE_SIZE + 1];
        let mut left = &bytes[..];
        while !left.is_empty() {
            match rustix::io::write(&self.sync, left) {
                Ok(written) => left = &left[written..],
                Err(Errno::AGAIN) => self.wait_for(self.sync.as_fd(), PollFlags::OUT)?,
                Err(Errno::INTR) => {}
                Err(Errno::PIPE) => {
                    return Err(Stop::Bwrap("bubblewrap ended while it was set up"));
                }
                Err(error) => return Err(unsupported("the pipe to bubblewrap")(error)),
            }
        }
        Ok(())
    }

    fn attach(
        &self,
        root: &OwnedFd,
        prepared: &[Prepared],
        nested: &Nested,
        devices: Devices,
    ) -> Result<(), Stop> {
        let root = root.as_fd();
        let mut frozen = Vec::new();
        devices.attach(root)?;
        for (index, Prepared { copy, place }) in prepared.iter().enumerate() {
            let mount = &self.plan.mounts[index];
            let target = mount.target();
            if let Mount::Cover { from, over, .. } = mount {
                tree::cover(root, target, from, *over).map_err(changed(target))?;
                continue;
            }
            let made = match (place, over(mount)) {
                (Some(_), _) => None,
                // In a folder of the machine's nothing is made: what was judged
                // is there, or the run ends.
                (None, Some(identity)) if self.is_in_a_folder(index, nested) => Some(Some(
                    tree::place_if_same(root, target, identity).map_err(changed(target))?,
                )),
                (None, _) => Some(make(root, target, mount)?),
            };
            let place = place.as_ref().or(made.as_ref()).and_then(Option::as_ref);
            if let (Some(copy), Some(place)) = (copy, place) {
                tree::attach(copy.as_fd(), place.as_fd()).map_err(failed(target))?;
            }
            if matches!(mount, Mount::Tmpfs { frozen: true, .. }) {
                frozen.extend(copy.as_ref().map(|copy| (copy, nested.read_only_whole[index])));
            }
        }
        let own = tree::file(root, Path::new(OWN_BINARY)).map_err(failed(OWN_BINARY))?;
        drop(own);
        if !self.plan.faults.has(Fault::ProcSys) {
            self.close_kernel_settings(root)?;
        }
        for (mount, whole) in frozen {
            set_attributes(mount.as_fd(), tree::bound(false), whole)
                .map_err(unsupported("mount_setattr"))?;
        }
        set_attributes(root, tree::bound(false), false).map_err(failed("/"))
    }

    /// `/proc/sys` asks who you are, not what you may: root without any
    /// capability could write it.
    fn close_kernel_settings(&self, root: BorrowedFd<'_>) -> Result<(), Stop> {
        let path = Path::new("/proc/sys");
        let place = tree::open_below(root, path).map_err(failed(path))?;
        let copy = tree::copy_of(place.as_fd(), tree::bound(false)).map_err(failed(path))?;
        tree::attach(copy.as_fd(), place.as_fd()).map_err(failed(path))?;
        // The modes of what is in /proc are the machine's too.
        let path = Path::new("/proc");
        let proc = tree::open_below(root, path).map_err(failed(path))?;
        set_attributes(proc.as_fd(), tree::bound(false), false).map_err(failed(path))
    }

    fn attach_own_binary(&self, host: &OwnedFd, root: &OwnedFd) -> Result<(), Stop> {
        let (source, identity) = &self.plan.own_binary;
        let copy = open_if_same(host, source, *identity)
            .and_then(|file| tree::copy_of(file.as_fd(), tree::bound(false)))
            .map_err(changed(source))?;
        let place =
            tree::open_below(root.as_fd(), Path::new(OWN_BINARY)).map_err(failed(OWN_BINARY))?;
        tree::attach(copy.as_fd(), place.as_fd()).map_err(failed(OWN_BINARY))
    }

    /// The supervisor died while bubblewrap set up. bubblewrap's own process
    /// ends with it, but the one it just made may wait for it for ever: it is
    /// found by the pipe that it holds, and ended. One that is being made while
    /// the others are looked through is found the next time, so it is looked until
    /// nobody holds the pipe.
    fn end_what_is_left(&self) -> ! {
        if let Ok(stat) = rustix::fs::fstat(&self.sync) {
            let pipe = format!("pipe:[{}]", stat.st_ino);
            let own = rustix::process::getpid();
            for _ in 0..LOOKS {
                let holding = |pid: &Pid| *pid != own && holds(&self.host_proc, *pid, &pipe);
                let left: Vec<Pid> =
                    processes(&self.host_proc).into_iter().filter(holding).collect();
                if left.is_empty() {
                    break;
                }
                left.into_iter().for_each(|pid| end_if_it_still_holds(&self.host_proc, pid, &pipe));
                std::thread::sleep(LOOK_WAIT);
            }
        }
        exit_now(1)
    }
}

/// How mounts lie in each other, by their index.
struct Nested {
    /// The mount in which the target lies; an earlier one at the same target
    /// counts.
    around: Vec<Option<usize>>,
    /// Whether it is a place in memory that becomes read-only with all that is
    /// mounted in it.
    read_only_whole: Vec<bool>,
}

impl Nested {
    fn of(mounts: &[Mount]) -> Nested {
        let mut last_at: HashMap<&Path, usize> = HashMap::new();
        let mut around: Vec<Option<usize>> = Vec::with_capacity(mounts.len());
        let mut read_only_whole = Vec::with_capacity(mounts.len());
        for (index, mount) in mounts.iter().enumerate() {
            let target = mount.target();
            around.push(target.ancestors().find_map(|path| last_at.get(path).copied()));
            read_only_whole.push(matches!(mount, Mount::Tmpfs { frozen: true, .. }));
            if matches!(mount, Mount::Tmpfs { .. } | Mount::Bind { .. }) {
                last_at.insert(target, index);
            }
            if matches!(mount, Mount::Tmpfs { frozen: false, .. } | Mount::Bind { write: true, .. })
            {
                let mut holding = around[index];
                while let Some(outer) = holding {
                    read_only_whole[outer] = false;
                    holding = around[outer];
                }
            }
        }
        Nested { around, read_only_whole }
    }
}

/// What could be done for one mount before bubblewrap stood still.
struct Prepared {
    /// The copy or file system to attach.
    copy: Option<OwnedFd>,
    /// Set where the target was made: for a mount, what it is attached to.
    place: Option<Option<OwnedFd>>,
}

/// Makes a mount's target, at `path` below `root`: for a generated file or link
/// the thing itself, for others what they are attached to, which is returned.
fn make(root: BorrowedFd<'_>, path: &Path, mount: &Mount) -> Result<Option<OwnedFd>, Stop> {
    let made = match mount {
        Mount::Tmpfs { .. } | Mount::Bind { folder: true, .. } => {
            tree::folder(root, path, 0o755).map(Some)
        }
        Mount::Bind { folder: false, .. } => tree::file(root, path).map(Some),
        Mount::File { content, mode, .. } => {
            tree::write_file(root, path, content, *mode).map(|()| None)
        }
        Mount::Link { to, .. } => tree::link(root, path, to).map(|()| None),
        // Its place may be a file of another mount's: looked up at the end.
        Mount::Cover { .. } => Ok(None),
    };
    made.map_err(failed(mount.target()))
}

/// A file or folder of the machine's, if it still is what was judged.
fn open_if_same(host: &OwnedFd, source: &Path, identity: Identity) -> io::Result<OwnedFd> {
    let relative = source.strip_prefix("/").unwrap_or(source);
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let place = loop {
        match openat2(host, relative, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => break opened?,
        }
    };
    if Identity::from(&rustix::fs::fstat(&place)?) != identity {
        return Err(io::Error::from_raw_os_error(libc::ESTALE));
    }
    Ok(place)
}

fn changed(source: &Path) -> impl FnOnce(io::Error) -> Stop {
    move |error| match error.raw_os_error() {
        Some(libc::ESTALE | libc::ELOOP | libc::ENOENT) => {
            Stop::Failed(format!("{} changed while the sandbox was built", shown::word(source)))
        }
        _ => failed(source)(error),
    }
}

/// What a mount must find at its target, where that is in a folder of the
/// machine's.
fn over(mount: &Mount) -> Option<Identity> {
    match mount {
        Mount::Bind { source, target, identity, .. } if source == target => Some(*identity),
        Mount::Tmpfs { over, .. } | Mount::Cover { over, .. } => *over,
        _ => None,
    }
}

/// A sandbox's own `/dev`, whole but for what is mounted in it.
struct Devices {
    folder: OwnedFd,
    /// What is mounted in it, and where.
    mounts: Vec<(OwnedFd, OwnedFd)>,
}

impl Devices {
    fn prepare(host: &OwnedFd, terminal: Option<&Path>) -> Result<Self, Stop> {
        const LINKS: [(&str, &str); 5] = [
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
            ("ptmx", "pts/ptmx"),
        ];
        let node = |path: &Path| -> io::Result<OwnedFd> {
            let relative = path.strip_prefix("/").unwrap_or(path);
            let place = openat2(
                host,
                relative,
                OFlags::PATH | OFlags::CLOEXEC,
                Mode::empty(),
                ResolveFlags::IN_ROOT,
            )?;
            tree::copy_of(place.as_fd(), tree::DEVICE)
        };
        let folder = tree::tmpfs(0o755).map_err(unsupported("tmpfs"))?;
        let mut mounts = vec![
            (tree::tmpfs(0o1777).map_err(unsupported("tmpfs"))?, in_dev(&folder, "shm")?),
            (tree::devpts().map_err(unsupported("devpts"))?, in_dev(&folder, "pts")?),
        ];
        let nodes = tree::DEVICES.map(|name| (name, Path::new("/dev").join(name)));
        let console = terminal.map(|terminal| ("console", terminal.to_path_buf()));
        for (name, path) in nodes.into_iter().chain(console) {
            let place = tree::file(folder.as_fd(), Path::new(name)).map_err(failed(&path))?;
            mounts.push((node(&path).map_err(changed(&path))?, place));
        }
        for (name, to) in LINKS {
            tree::link(folder.as_fd(), Path::new(name), Path::new(to)).map_err(failed(name))?;
        }
        Ok(Devices { folder, mounts })
    }

    fn attach(self, root: BorrowedFd<'_>) -> Result<(), Stop> {
        let dev = Path::new("/dev");
        let place = tree::folder(root, dev, 0o755).map_err(failed(dev))?;
        tree::attach(self.folder.as_fd(), place.as_fd()).map_err(failed(dev))?;
        for (mount, place) in &self.mounts {
            tree::attach(mount.as_fd(), place.as_fd()).map_err(failed(dev))?;
        }
        let attributes = Attributes { read_only: true, no_devices: true, no_exec: true };
        set_attributes(self.folder.as_fd(), attributes, false).map_err(failed(dev))
    }
}

fn in_dev(folder: &OwnedFd, name: &str) -> Result<OwnedFd, Stop> {
    tree::folder(folder.as_fd(), Path::new(name), 0o755).map_err(failed(name))
}

/// The number after `"child-pid":`, once it is complete.
fn child_pid(text: &[u8]) -> Option<Pid> {
    const KEY: &[u8] = b"\"child-pid\":";
    let at = text.windows(KEY.len()).position(|window| window == KEY)?;
    let rest = text[at + KEY.len()..].trim_ascii_start();
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    // bubblewrap writes a comma or a line's end behind the number.
    if digits == 0 || digits == rest.len() {
        return None;
    }
    Pid::from_raw(std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?)
}

fn processes(proc: &OwnedFd) -> Vec<Pid> {
    let Ok(folder) = rustix::fs::Dir::read_from(proc) else { return Vec::new() };
    let names = folder.flatten().filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok());
    names.filter_map(Pid::from_raw).collect()
}

fn holds(proc: &OwnedFd, pid: Pid, pipe: &str) -> bool {
    let path = format!("{}/fd", pid.as_raw_nonzero());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(fds) = rustix::fs::openat(proc, path, flags, Mode::empty()) else { return false };
    let Ok(entries) = rustix::fs::Dir::read_from(&fds) else { return false };
    entries.flatten().any(|entry| {
        rustix::fs::readlinkat(&fds, entry.file_name(), Vec::new())
            .is_ok_and(|link| link.to_bytes() == pipe.as_bytes())
    })
}

/// Between look and kill the number may pass to another process: the pidfd is
/// taken first and the look repeated.
fn end_if_it_still_holds(proc: &OwnedFd, pid: Pid, pipe: &str) {
    if let Ok(process) = pidfd_open(pid, PidfdFlags::empty())
        && holds(proc, pid, pipe)
    {
        let _ = pidfd_send_signal(&process, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_child_is_read_once_its_number_is_complete() {
        assert_eq!(child_pid(b"{\n    \"child-pid\": 123"), None);
        assert_eq!(
            child_pid(b"{\n    \"child-pid\": 123,\n").map(|pid| pid.as_raw_nonzero().get()),
            Some(123)
        );
        assert_eq!(child_pid(b"{}"), None);
    }
}
