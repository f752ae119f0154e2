//! What is done, and looked at, where bubblewrap made the mounts: it makes them
//! by path, and can't say all that they must be.

use std::collections::HashSet;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use lnk_sys::mount::set_attributes;
use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;

use crate::error::{Error, Result, failed, reason};
use crate::faults::{Fault, Faults};
use crate::linux::judged::Expected;
use crate::linux::processes::limit_namespace;
use crate::linux::tree;
use crate::mountinfo::Mounts;
use crate::plan::{Mount, OWN_BINARY};

/// What the inner stage checks where bubblewrap mounted by path.
#[must_use]
pub fn expected(mounts: &[Mount]) -> Vec<Expected> {
    let deciding = mounts.iter().enumerate().filter(|(index, _)| decides(mounts, *index));
    let expectation = |mount: &Mount| match mount {
        Mount::Bind { target, identity, write, .. } => {
            Some(Expected::Bound { at: target.into(), identity: *identity, write: *write })
        }
        Mount::Tmpfs { target, mode, .. } => {
            Some(Expected::InMemory { at: target.into(), mode: *mode })
        }
        Mount::File { .. } | Mount::Link { .. } | Mount::Cover { .. } => None,
    };
    deciding.filter_map(|(_, mount)| expectation(mount)).collect()
}

/// Whether a mount in the list decides what is at its own target, or another
/// mount at the same target comes later.
fn decides(mounts: &[Mount], index: usize) -> bool {
    let target: &Path = mounts[index].target();
    !mounts[index + 1..].iter().any(|later| later.target() == target)
}

/// Looks through what is mounted for the process `inner` before anything runs.
/// Nothing else than the plan's may be mounted, and nothing may appear later.
///
/// # Errors
/// [`Error::Refused`] naming the place where something else is.
pub fn verify(inner: Pid, mounts: &[Mount], host: &Mounts) -> Result<()> {
    let table = std::fs::read(format!("/proc/{}/mountinfo", inner.as_raw_nonzero()));
    let table = Mounts::parse(&table.map_err(failed("the sandbox's mounts"))?);
    let expected = expected_points(mounts, host);
    for mount in table.iter() {
        let own = ["/proc", "/dev"].iter().any(|folder| mount.point.starts_with(folder));
        if mount.propagates || !(own || expected.contains(mount.point.as_path())) {
            let point = lnk_spec::shown::word(&mount.point);
            return Err(Error::Refused(format!(
                "{point} changed while the sandbox was built; run it again"
            )));
        }
    }
    Ok(())
}

/// Every place where something is mounted: what the plan says, and what was
/// mounted below its folders on the machine.
fn expected_points(mounts: &[Mount], host: &Mounts) -> HashSet<PathBuf> {
    let mut points: HashSet<PathBuf> = ["/", OWN_BINARY].map(PathBuf::from).into();
    points.extend(mounts.iter().map(|mount| mount.target().to_path_buf()));
    for mount in mounts {
        if let Mount::Bind { source, target, folder: true, .. } = mount {
            let below = host.iter().filter_map(|mount| mount.point.strip_prefix(source).ok());
            points
                .extend(below.filter(|path| *path != Path::new("")).map(|path| target.join(path)));
        }
    }
    points
}

/// What bubblewrap's arguments can't say: mounts that nothing reaches from the
/// machine later, and device nodes whose modes, which are the machine's, stay.
///
/// # Errors
/// What failed, and on what.
pub fn finish(root: &OwnedFd) -> Result<(), String> {
    let failed = |what: &Path| {
        let what = lnk_spec::shown::word(what);
        move |error: io::Error| format!("{what}: {}", reason(&error))
    };
    lnk_sys::mount::make_private(root.as_fd()).map_err(failed(Path::new("/")))?;
    for name in tree::DEVICES.into_iter().chain(["console"]) {
        let path = Path::new("/dev").join(name);
        match tree::open_below(root.as_fd(), &path) {
            Ok(node) => set_attributes(node.as_fd(), tree::DEVICE, false).map_err(failed(&path))?,
            Err(error) if name == "console" && error.raw_os_error() == Some(libc::ENOENT) => {}
            Err(error) => return Err(failed(&path)(error)),
        }
    }
    Ok(())
}

/// Sets how many processes a sandbox may have, in whose process namespace from then on
/// the children of this process are. `proc` is the machine's.
///
/// # Errors
/// What failed.
pub fn limit_processes(most: NonZeroU32, space: &OwnedFd, proc: &OwnedFd) -> Result<(), String> {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::ProcessID))
        .map_err(|error| format!("setns: {}", reason(&error.into())))?;
    limit_namespace(most, proc.as_fd())
        .map_err(|error| format!("kernel.pid_max of the sandbox: {}", reason(&error)))
}

/// Enters the network namespace of a sandbox whose others were entered.
///
/// # Errors
/// What failed.
pub fn join_network(network: &OwnedFd) -> Result<(), String> {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|error| format!("setns: {}", reason(&error.into())))
}

/// Enters the namespaces of a sandbox that is ready.
///
/// # Errors
/// What failed.
pub fn join(mounts: &OwnedFd, users: &OwnedFd, faults: &Faults) -> Result<OwnedFd, String> {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    if !faults.has(Fault::Users) {
        move_into_link_name_space(users.as_fd(), Some(LinkNameSpaceType::User))
            .map_err(|error| format!("setns: {}", reason(&error.into())))?;
    }
    move_into_link_name_space(mounts.as_fd(), Some(LinkNameSpaceType::Mount))
        .map_err(|error| format!("setns: {}", reason(&error.into())))?;
    rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| format!("/: {}", reason(&error.into())))
}
