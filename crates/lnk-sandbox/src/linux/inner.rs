//! The stage inside: process 1 of the sandbox. It finishes the fences that must
//! be built by the process they hold, starts the program, and reaps.

use std::ffi::{OsStr, OsString};
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use lnk_sys::process::{CStrings, Forked, exec, exit_now, fork_single_threaded};
use lnk_sys::signal;
use rustix::process::{Resource, Rlimit, WaitOptions, WaitStatus};
use serde::{Deserialize, Serialize};

use crate::faults::{Fault, Faults};
use crate::linux::judged::{Bytes, Executable, Expected, Place, expect};
use crate::linux::message::{self, FromInner};
use crate::linux::seccomp::Watch;
use crate::programs::start::starts_as_text;

/// Exit status of a program that exists and can't be executed, as a shell has it.
const CANNOT_EXECUTE: i32 = 126;
/// Exit status of a program that doesn't exist.
const NOT_FOUND: i32 = 127;
/// Exit status when a fence failed; the supervisor says which.
const FENCE_FAILED: i32 = 125;

/// What the inner stage is told.
#[derive(Debug, Serialize, Deserialize)]
pub struct Orders {
    /// The program and its arguments.
    pub program: Vec<Bytes>,
    /// Its environment, `NAME=value`.
    pub env: Vec<Bytes>,
    /// Its working folder.
    pub cwd: Place,
    /// Folders and files that may be written.
    pub writable: Vec<Place>,
    /// Private file systems in memory.
    pub private: Vec<Place>,
    /// What alone may be executed; anything where there is no list.
    pub programs: Option<Vec<Executable>>,
    /// Whether each start of a program is told.
    pub tells_programs: bool,
    /// Whether it is in the machine's network, whose abstract sockets Landlock holds.
    pub shares_network: bool,
    /// The most processes of its user, where that limit holds.
    pub processes: Option<NonZeroU32>,
    /// What must be where before anything runs; for mounts made by path.
    pub expected: Vec<Expected>,
    /// Signals that the caller had ignored on purpose, as nohup(1) does.
    pub ignored: Vec<i32>,
    /// Fences left out on purpose.
    pub faults: Faults,
}

/// Runs the inner stage: `lnk __inner CONTROL ORDERS STDERR`, the arguments
/// being numbers of inherited descriptors.
pub fn main_inner(arguments: impl Iterator<Item = OsString>) -> ! {
    let numbers: Vec<RawFd> =
        arguments.filter_map(|number| number.to_str()?.parse().ok()).collect();
    let [control, orders, stderr] = numbers[..] else { exit_now(FENCE_FAILED) };
    let mut own = [control, orders, stderr].map(inherited).into_iter().flatten();
    let (Some(control), Some(orders), Some(stderr)) = (own.next(), own.next(), own.next()) else {
        exit_now(FENCE_FAILED)
    };
    match build_and_start(&control, orders, stderr) {
        Ok(program) => reap_until_end_of(program, &control),
        Err(what) => {
            let _ = message::send(control.as_fd(), &FromInner::Failed { what }, &[]);
            exit_now(FENCE_FAILED)
        }
    }
}

/// An inherited descriptor, closed from the program.
fn inherited(number: RawFd) -> Option<OwnedFd> {
    lnk_sys::fd::take(number).ok()
}

fn build_and_start(control: &OwnedFd, orders: OwnedFd, stderr: OwnedFd) -> Result<i32, String> {
    let orders = read_orders(orders)?;
    if !orders.faults.has(Fault::Descriptors) {
        // bubblewrap holds pipes of the set-up, and hands on whatever it has.
        lnk_sys::fd::close_all_but(&[control.as_fd(), stderr.as_fd()])
            .and_then(|()| lnk_sys::fd::close_inherited_on_exec())
            .map_err(|error| format!("close_range: {error}"))?;
    }
    rustix::stdio::dup2_stderr(&stderr).map_err(|error| format!("standard error: {error}"))?;
    drop(stderr);
    if !orders.faults.has(Fault::Keyring) {
        lnk_sys::keyring::join_anonymous_session()
            .map_err(|error| format!("a session keyring of its own: {error}"))?;
    }
    orders.expected.iter().try_for_each(expect)?;
    rustix::process::chdir(orders.cwd.as_ref()).map_err(|error| {
        format!("the working folder {}: {error}", lnk_spec::shown::word(orders.cwd.as_ref()))
    })?;
    let diag =
        super::broker::diag_socket().map_err(|error| format!("a UNIX_DIAG socket: {error}"))?;
    rustix::thread::set_no_new_privs(true).map_err(|error| format!("no_new_privs: {error}"))?;
    if !orders.faults.has(Fault::Landlock) {
        let listed = !orders.faults.has(Fault::Programs);
        let programs = orders.programs.as_deref().filter(|_| listed);
        let Orders { writable, private, shares_network, .. } = &orders;
        super::landlock::restrict(writable, private, programs, *shares_network)
            .map_err(|error| format!("Landlock: {error}"))?;
    }
    let watch = match orders.programs {
        Some(_) if !orders.faults.has(Fault::Memory) => Watch::ExecsAndMemfds,
        Some(_) => Watch::Execs,
        None if orders.tells_programs => Watch::Execs,
        None => Watch::Nothing,
    };
    let filter = super::seccomp::filter_but_for(&orders.faults, watch);
    let listener = lnk_sys::seccomp::install_with_listener(&filter)
        .map_err(|error| format!("seccomp: {error}"))?;
    message::send(control.as_fd(), &FromInner::Ready, &[listener.as_fd(), diag.as_fd()])
        .map_err(|error| format!("the supervisor: {error}"))?;
    drop((listener, diag));
    wait_for_go(control);
    if let Some(most) = orders.processes {
        let most = Some(most.get().into());
        rustix::process::setrlimit(Resource::Nproc, Rlimit { current: most, maximum: most })
            .map_err(|error| format!("RLIMIT_NPROC: {error}"))?;
    }
    // From here on the program is there, and must not look into this process.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .map_err(|error| format!("not dumpable: {error}"))?;
    match fork_single_threaded().map_err(|error| format!("a process for the program: {error}"))? {
        Forked::Parent(program) => Ok(program),
        Forked::Child => become_program(&orders, control),
    }
}

fn read_orders(orders: OwnedFd) -> Result<Orders, String> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut std::fs::File::from(orders), &mut bytes)
        .map_err(|error| format!("orders: {error}"))?;
    postcard::from_bytes(&bytes).map_err(|error| format!("orders: {error}"))
}

/// The supervisor answers `Ready` with one byte. If it closes instead, the run
/// is over.
fn wait_for_go(control: &OwnedFd) {
    let mut byte = [0u8];
    loop {
        match rustix::io::read(control, &mut byte) {
            Ok(1..) => return,
            Err(rustix::io::Errno::INTR) => {}
            Ok(0) | Err(_) => exit_now(FENCE_FAILED),
        }
    }
}

/// In the new process: becomes the program, or reports why not and ends with
/// the status a shell would give.
fn become_program(orders: &Orders, control: &OwnedFd) -> ! {
    signal::reset_all();
    orders.ignored.iter().for_each(|signal| signal::ignore(*signal));
    let _ = message::send(control.as_fd(), &FromInner::Program, &[]);
    let (errno, path) = exec_by_name(orders);
    let failed = FromInner::ExecFailed { errno, path: path.into_os_string().into_vec() };
    let _ = message::send(control.as_fd(), &failed, &[]);
    exit_now(if errno == libc::ENOENT { NOT_FOUND } else { CANNOT_EXECUTE })
}

/// Executes the program as execvp(3) would: a name with a slash is a path, any
/// other is looked for on `PATH`. Returns the error that counts and the path
/// it belongs to.
fn exec_by_name(orders: &Orders) -> (i32, PathBuf) {
    let name = orders.program.first().map(|name| OsStr::from_bytes(name)).unwrap_or_default();
    let strings = |list: &[Bytes]| {
        CStrings::new(list.iter().map(|bytes| OsStr::from_bytes(bytes).to_owned()))
    };
    let (Ok(arguments), Ok(env)) = (strings(&orders.program), strings(&orders.env)) else {
        return (libc::EINVAL, name.into());
    };
    let try_path = |path: &Path| {
        let errno = exec(path.as_os_str(), &arguments, &env).raw_os_error().unwrap_or(libc::EIO);
        if errno == libc::ENOEXEC { exec_by_shell(path, orders, &env) } else { errno }
    };
    if name.is_empty() {
        return (libc::ENOENT, name.into());
    }
    if name.as_bytes().contains(&b'/') {
        return (try_path(Path::new(name)), name.into());
    }
    let search =
        orders.env.iter().find_map(|entry| entry.strip_prefix(b"PATH=")).unwrap_or_default();
    let mut found = (libc::ENOENT, PathBuf::from(name));
    for folder in std::env::split_paths(OsStr::from_bytes(search)) {
        let path = folder.join(name);
        let errno = try_path(&path);
        let missing =
            matches!(errno, libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG | libc::ELOOP);
        if !missing {
            found = (errno, path);
            if errno != libc::EACCES {
                break;
            }
        } else if found.0 == libc::ENOENT && rustix::fs::stat(&path).is_ok() {
            // The file is there: what it starts with isn't.
            found = (errno, path);
        }
    }
    found
}

/// A script without `#!` is the shell's, as POSIX has it. Another machine's
/// program isn't.
fn exec_by_shell(script: &Path, orders: &Orders, env: &CStrings) -> i32 {
    if !starts_as_text(script) {
        return libc::ENOEXEC;
    }
    let rest = orders.program.iter().skip(1).map(|bytes| OsStr::from_bytes(bytes).to_owned());
    let arguments = [OsString::from("sh"), script.into()].into_iter().chain(rest);
    match CStrings::new(arguments) {
        Ok(arguments) => {
            exec(OsStr::new("/bin/sh"), &arguments, env).raw_os_error().unwrap_or(libc::EIO)
        }
        Err(_) => libc::EINVAL,
    }
}

/// Process 1's work: waits for every child, tells when the program is stopped,
/// and ends, with all the rest, when the program ends.
fn reap_until_end_of(program: i32, control: &OwnedFd) -> ! {
    loop {
        let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::UNTRACED) else {
            continue;
        };
        if pid.as_raw_nonzero().get() != program {
            continue;
        }
        if status.stopped() {
            let _ = message::send(control.as_fd(), &FromInner::Stopped, &[]);
            continue;
        }
        exit_now(exit_status(status));
    }
}

/// The program's own status, or 128 and the signal that ended it.
fn exit_status(status: WaitStatus) -> i32 {
    let status = status
        .exit_status()
        .unwrap_or_else(|| 128 + status.terminating_signal().unwrap_or(libc::SIGKILL));
    status & 0xff
}
