//! bubblewrap's arguments, bwrap(1).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::MemfdFlags;

use crate::faults::{Fault, Faults};
use crate::plan::{Mount, OWN_BINARY, Plan};

/// bubblewrap refuses more arguments, its command's among them (`MAX_ARGS` in
/// its source).
const MAX_ARGUMENTS: usize = 9000;

/// A list of arguments, and the descriptors it names.
#[derive(Debug, Default)]
pub struct Arguments {
    list: Vec<OsString>,
    /// Descriptors that bubblewrap reads, to be inherited.
    pub inherited: Vec<OwnedFd>,
}

impl Arguments {
    /// What both renderers share: new namespaces of every kind, but of the network where
    /// the plan shares the machine's, no capability, no further user namespace, and the
    /// end with the parent's.
    #[must_use]
    pub fn base(plan: &Plan) -> Self {
        let mut arguments = Self::namespaces(&plan.faults, plan.shares_network);
        arguments.extend(["--die-with-parent"]);
        arguments
    }

    fn namespaces(faults: &Faults, shares_network: bool) -> Self {
        let mut arguments = Arguments::default();
        let flags = [
            "--unshare-user",
            "--unshare-ipc",
            "--unshare-pid",
            "--unshare-net",
            "--unshare-uts",
            "--unshare-cgroup-try",
            "--disable-userns",
            "--as-pid-1",
        ];
        let left_out = |flag: &str| match flag {
            "--unshare-net" => shares_network || faults.has(Fault::Network),
            "--unshare-pid" | "--as-pid-1" => faults.has(Fault::Processes),
            "--unshare-user" => faults.has(Fault::Users),
            "--disable-userns" => faults.has(Fault::Users) || faults.has(Fault::NamespaceLimit),
            _ => false,
        };
        arguments.extend(flags.into_iter().filter(|flag| !left_out(flag)));
        let capabilities = if faults.has(Fault::Capabilities) { "--cap-add" } else { "--cap-drop" };
        arguments.extend([capabilities, "ALL"]);
        arguments.extend(["--hostname", "lnk"]);
        if faults.has(Fault::Processes) {
            arguments.extend(["--bind", "/proc", "/proc"]);
        } else {
            arguments.extend(["--proc", "/proc"]);
        }
        arguments
    }

    /// Adds arguments.
    pub fn extend<S: Into<OsString>>(&mut self, arguments: impl IntoIterator<Item = S>) {
        self.list.extend(arguments.into_iter().map(Into::into));
    }

    fn content(&mut self, content: &[u8]) -> io::Result<OsString> {
        let fd = memory_file(content)?;
        let number = fd.as_raw_fd().to_string().into();
        self.inherited.push(fd);
        Ok(number)
    }

    /// The least sandbox: no folder of the machine's, and `program`, a static one,
    /// at [`OWN_BINARY`]. Every kind of namespace and mount that can be refused
    /// to a run is in it. When its parent is killed it goes on, and its command
    /// ends it: between the clone(2) of its first process and the word that lets
    /// that go on, `--die-with-parent` would leave it waiting for ever.
    #[must_use]
    pub fn least(program: &Path) -> Self {
        let faults = Faults::default();
        let mut arguments = Self::namespaces(&faults, false);
        arguments.kernels_mounts(&faults);
        arguments.own_binary(program);
        arguments.extend(["--remount-ro", "/proc", "--remount-ro", "/"]);
        arguments
    }

    fn kernels_mounts(&mut self, faults: &Faults) {
        self.extend(["--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm"]);
        self.extend(["--remount-ro", "/dev"]);
        if !faults.has(Fault::ProcSys) {
            self.extend(["--ro-bind", "/proc/sys", "/proc/sys"]);
        }
    }

    fn own_binary(&mut self, program: &Path) {
        self.extend([OsStr::new("--ro-bind"), program.as_os_str(), OsStr::new(OWN_BINARY)]);
    }

    /// Every mount of a plan, made by bubblewrap itself.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM` for the files it reads.
    pub fn mounts(&mut self, plan: &Plan) -> io::Result<()> {
        self.kernels_mounts(&plan.faults);
        let mut frozen: Vec<PathBuf> = Vec::new();
        for mount in plan.mounts.iter() {
            match mount {
                Mount::Tmpfs { target, mode, frozen: freeze, .. } => {
                    self.extend([OsStr::new("--perms"), format!("{mode:04o}").as_ref()]);
                    self.extend([OsStr::new("--tmpfs"), target.as_os_str()]);
                    if *freeze {
                        frozen.push(target.clone());
                    }
                }
                Mount::File { target, content, mode } => {
                    let fd = self.content(content)?;
                    self.extend([OsStr::new("--perms"), format!("{mode:04o}").as_ref()]);
                    self.extend([OsStr::new("--file"), &fd, target.as_os_str()]);
                }
                Mount::Link { target, to } => {
                    self.extend([OsStr::new("--symlink"), to.as_os_str(), target.as_os_str()]);
                }
                Mount::Bind { source, target, write, .. } => {
                    let flag = if *write { "--bind" } else { "--ro-bind" };
                    self.extend([OsStr::new(flag), source.as_os_str(), target.as_os_str()]);
                }
                Mount::Cover { target, from, on_link: false, .. } => {
                    let Some((content, mode)) = plan.generated(from) else { continue };
                    let fd = self.content(content)?;
                    self.extend([OsStr::new("--perms"), format!("{mode:04o}").as_ref()]);
                    self.extend([OsStr::new("--ro-bind-data"), &fd, target.as_os_str()]);
                }
                // bubblewrap follows links; the guard places these before the
                // program starts.
                Mount::Cover { on_link: true, .. } => {}
            }
        }
        self.own_binary(&plan.own_binary.0);
        if !plan.faults.has(Fault::ProcSys) {
            self.extend(["--remount-ro", "/proc"]);
        }
        for target in frozen.iter().rev() {
            self.extend([OsStr::new("--remount-ro"), target.as_os_str()]);
        }
        self.extend(["--remount-ro", "/"]);
        Ok(())
    }

    /// The list as `--args` reads it, so that neither its length nor a path in it
    /// shows in a process list, and the files it names. `command` counts how many
    /// arguments follow on the command line.
    ///
    /// # Errors
    /// `E2BIG` when bubblewrap wouldn't take as many.
    pub fn into_bytes(self, command: usize) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        if self.list.len() + command + 3 > MAX_ARGUMENTS {
            return Err(io::Error::from_raw_os_error(libc::E2BIG));
        }
        let mut bytes = Vec::new();
        for argument in &self.list {
            bytes.extend_from_slice(argument.as_bytes());
            bytes.push(0);
        }
        Ok((bytes, self.inherited))
    }

    /// The arguments, for a snapshot.
    #[must_use]
    pub fn list(&self) -> &[OsString] {
        &self.list
    }
}

/// A sealed file in memory, read from its start.
///
/// # Errors
/// `EMFILE`, `ENFILE`, `ENOMEM` of memfd_create(2).
fn memory_file(content: &[u8]) -> io::Result<OwnedFd> {
    use rustix::fs::{SealFlags, fcntl_add_seals, memfd_create, seek};
    let fd = memfd_create("lnk", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut left = content;
    while !left.is_empty() {
        let written = rustix::io::write(&fd, left)?;
        left = &left[written..];
    }
    seek(&fd, rustix::fs::SeekFrom::Start(0))?;
    fcntl_add_seals(&fd, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}
