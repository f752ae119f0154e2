//! Names to addresses, by the system's own resolver.
//!
//! A static program can't load the modules that nsswitch.conf(5) names, so that
//! getent(1) is asked, in a child: the hosts file, mDNS and a VPN's split DNS come
//! with it. Nothing is kept from one lookup to the next.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lnk_spec::host::HostName;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

/// Addresses kept of a name at most.
pub const MAX_ADDRESSES: usize = 16;

const GETENT: &str = "/usr/bin/getent";
/// Children at once.
const RUNNING: usize = 4;
/// Bytes of a stack that starts one.
const STACK: usize = 256 * 1024;
/// Lookups at once, running and waiting.
const PLACES: usize = 256;
/// A lookup ends after this, waiting included.
const LIMIT: Duration = Duration::from_secs(5);
/// Bytes read of an answer: 16 addresses take three lines of at most 300 bytes each.
const MAX_ANSWER: u64 = 64 * 1024;

/// The system's resolver, asked by at most four children at once.
#[derive(Debug)]
pub struct Resolver {
    running: Semaphore,
    places: Semaphore,
}

/// Why a name has no addresses.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The resolver knows none, or couldn't ask.
    #[error("the name isn't found")]
    NotFound,
    /// No answer within five seconds.
    #[error("no answer from the resolver within 5 s")]
    TimedOut,
    /// 256 lookups wait already.
    #[error("too many names are being looked up")]
    Busy,
    /// getent can't be started, or answers something else.
    #[error("{GETENT} can't look names up: {}", lnk_spec::shown::reason(.0))]
    NoResolver(#[source] io::Error),
}

impl Default for Resolver {
    fn default() -> Self {
        Self::new()
    }
}

impl Resolver {
    /// A resolver of its own limits.
    #[must_use]
    pub fn new() -> Self {
        Resolver { running: Semaphore::new(RUNNING), places: Semaphore::new(PLACES) }
    }

    /// The addresses of a name, in the order the system prefers (RFC 6724), each
    /// once, [`MAX_ADDRESSES`] at most. Dropping the future kills the child.
    ///
    /// # Errors
    /// As [`ResolveError`] says.
    pub async fn lookup(&self, name: &HostName) -> Result<Vec<IpAddr>, ResolveError> {
        let _place = self.places.try_acquire().map_err(|_| ResolveError::Busy)?;
        let answer = timeout(LIMIT, async {
            let _turn = self.running.acquire().await.expect("it is never closed");
            answer(GETENT, name.as_str()).await
        });
        let answer = answer.await.map_err(|_| ResolveError::TimedOut)?;
        let answer = answer.map_err(ResolveError::NoResolver)?;
        match parse(&answer) {
            Some(addresses) if addresses.is_empty() => Err(ResolveError::NotFound),
            Some(addresses) => Ok(addresses),
            None => Err(ResolveError::NoResolver(io::ErrorKind::InvalidData.into())),
        }
    }
}

/// What getent prints. Its status says no more: 2 for every name without
/// addresses, whatever the cause. A name never begins with '-', and getent takes
/// no option after the database.
///
/// To start and to reap a process is to wait until it's scheduled, milliseconds on
/// a busy machine: on a thread of its own, so that no connection of this one waits too.
/// It ends with the lookup; where there can't be one, the lookup fails.
async fn answer(getent: &'static str, name: &str) -> io::Result<Vec<u8>> {
    let name = name.to_owned();
    let (started, start) = oneshot::channel();
    let (_looking, looked) = mpsc::channel::<()>();
    thread::Builder::new().name("lnk-name".to_owned()).stack_size(STACK).spawn(move || {
        let (asked, stdout) = match Asked::start(getent, &name) {
            Ok((asked, stdout)) => (Some(asked), Ok(stdout)),
            Err(error) => (None, Err(error)),
        };
        // Nothing is ever sent: the other end is dropped, with the lookup.
        if started.send(stdout).is_ok() {
            let _ = looked.recv();
        }
        drop(asked);
    })?;
    let stdout = start.await.map_err(io::Error::other)??;
    let mut stdout = pipe::Receiver::from_owned_fd(stdout.into())?.take(MAX_ANSWER);
    let mut answer = Vec::new();
    stdout.read_to_end(&mut answer).await?;
    Ok(answer)
}

/// A running getent, killed when dropped.
struct Asked {
    child: Child,
    /// Whoever has this process for a child may be reaped by others; a descriptor
    /// then names no other process, as its number might.
    process: OwnedFd,
}

impl Asked {
    fn start(getent: &str, name: &str) -> io::Result<(Asked, ChildStdout)> {
        let mut command = Command::new(getent);
        command.args(["ahosts", name]).env_clear().current_dir("/");
        // What was granted is this name, and not it in the machine's own domain
        // (resolv.conf(5), search); a single label is looked for there as ever.
        if name.contains('.') {
            command.env("LOCALDOMAIN", "");
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().expect("it is piped");
        match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(process) => Ok((Asked { child, process }, stdout)),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error.into())
            }
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
        let _ = self.child.wait();
    }
}

/// The addresses of `getent ahosts`: lines of an address, a socket type and, on
/// the first, the canonical name. None where a line is anything else.
fn parse(answer: &[u8]) -> Option<Vec<IpAddr>> {
    let mut addresses = Vec::new();
    for line in std::str::from_utf8(answer).ok()?.lines() {
        let mut fields = line.split_ascii_whitespace();
        let address = address(fields.next()?)?;
        let kind = fields.next()?;
        if !matches!(kind, "STREAM" | "DGRAM" | "RAW") || fields.nth(1).is_some() {
            return None;
        }
        if addresses.len() < MAX_ADDRESSES && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Some(addresses)
}

/// An address; a link-local one of IPv6 without its link (RFC 4007, 11), for it is
/// never dialled.
fn address(text: &str) -> Option<IpAddr> {
    match text.split_once('%') {
        None => text.parse().ok(),
        Some((address, _link)) => {
            let address: Ipv6Addr = address.parse().ok()?;
            address.is_unicast_link_local().then_some(address.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lnk_spec::host::Host;
    use proptest::prelude::*;
    use rustix::io::Errno;
    use rustix::process::test_kill_process;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(future)
    }

    fn name(text: &str) -> HostName {
        match text.parse().unwrap() {
            Host::Name(name) => name,
            Host::Address(_) => panic!("{text} is an address"),
        }
    }

    #[test]
    fn the_systems_names_are_found_and_others_not() {
        block_on(async {
            let resolver = Resolver::new();
            let found = resolver.lookup(&name("localhost")).await.unwrap();
            assert!(!found.is_empty() && found.iter().all(IpAddr::is_loopback), "{found:?}");
        });
    }

    #[test]
    fn a_machine_without_getent_says_so() {
        let error = block_on(answer("/nonexistent/getent", "localhost")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn lookups_beyond_the_places_are_turned_away() {
        block_on(async {
            let resolver = Resolver::new();
            let all = resolver.places.try_acquire_many(PLACES as u32).unwrap();
            let turned_away = resolver.lookup(&name("localhost")).await;
            assert!(matches!(turned_away, Err(ResolveError::Busy)));
            drop(all);
            resolver.lookup(&name("localhost")).await.unwrap();
        });
    }

    #[test]
    fn a_lookup_given_up_leaves_no_process() {
        let folder = tempfile::tempdir().unwrap();
        let slow = folder.path().join("getent");
        fs::write(&slow, "#!/bin/sh\nexec sleep 60\n").unwrap();
        fs::set_permissions(&slow, fs::Permissions::from_mode(0o755)).unwrap();
        let (asked, _stdout) = Asked::start(slow.to_str().unwrap(), "example.com").unwrap();
        let pid = Pid::from_child(&asked.child);
        assert_eq!(test_kill_process(pid), Ok(()));
        drop(asked);
        assert_eq!(test_kill_process(pid), Err(Errno::SRCH));
    }

    #[test]
    fn an_answer_is_addresses_in_order_each_once() {
        let answer = b"2606:4700::1    STREAM example.com\n2606:4700::1    DGRAM  \n\
                       2606:4700::1    RAW    \n192.0.2.7       STREAM \nfe80::1%eth0 STREAM\n";
        let addresses = ["2606:4700::1", "192.0.2.7", "fe80::1"].map(|text| text.parse().unwrap());
        assert_eq!(parse(answer), Some(addresses.to_vec()));
        assert_eq!(parse(b""), Some(vec![]));
    }

    #[test]
    fn an_answer_of_another_form_is_none() {
        for answer in [
            "example.com STREAM\n",
            "192.0.2.7\n",
            "192.0.2.7 STREAM a b\n",
            "192.0.2.7 OTHER\n",
            "127.1 STREAM\n",
            "2606:4700::1%eth0 STREAM\n",
            "192.0.2.7%eth0 STREAM\n",
            "\n",
            "192.0.2.7 STREAM\n192.0.2.8 STR",
        ] {
            assert_eq!(parse(answer.as_bytes()), None, "{answer}");
        }
        assert_eq!(parse(b"192.0.2.7 STREAM \xff\n"), None);
    }

    #[test]
    fn sixteen_addresses_are_kept() {
        let answer: String = (0..99).map(|last| format!("192.0.2.{last} STREAM\n")).collect();
        let addresses = parse(answer.as_bytes()).unwrap();
        assert_eq!(addresses.len(), MAX_ADDRESSES);
        assert_eq!(addresses[15], IpAddr::from([192, 0, 2, 15]));
    }

    proptest! {
        #[test]
        fn no_answer_panics(answer: Vec<u8>, text in "([0-9a-f.:%]{1,9} (STREAM|RAW) ?[a-z]?\n){0,9}") {
            let _ = parse(&answer);
            if let Some(addresses) = parse(text.as_bytes()) {
                prop_assert!(addresses.len() <= MAX_ADDRESSES);
            }
        }

        #[test]
        fn what_getent_prints_is_read_back(addresses: Vec<IpAddr>) {
            let answer: String =
                addresses.iter().map(|address| format!("{address:<15} STREAM \n")).collect();
            let read = parse(answer.as_bytes()).unwrap();
            let mut once: Vec<IpAddr> = Vec::new();
            for address in addresses {
                if !once.contains(&address) && once.len() < MAX_ADDRESSES {
                    once.push(address);
                }
            }
            prop_assert_eq!(read, once);
        }
    }
}
