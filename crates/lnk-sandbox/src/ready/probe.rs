//! Running bubblewrap to see whether it can build a sandbox.

use std::io::{self, PipeReader, Read as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

use crate::linux::bwrap::Arguments;
use crate::plan::OWN_BINARY;

/// How long bubblewrap may take. A sandbox takes milliseconds; ten seconds
/// leave room on a machine under load, and nobody waits for ever.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// The most of its output that is kept, in bytes: bubblewrap's
/// messages are one line.
const OUTPUT_KEPT: usize = 16 * 1024;

/// A probe that didn't end with success.
#[derive(Debug)]
pub struct ProbeFailure {
    /// What bubblewrap said, the first 16 KiB.
    pub stderr: Vec<u8>,
    /// How it ended.
    pub ended: Ended,
}

/// How a failed probe ended.
#[derive(Debug)]
pub enum Ended {
    /// By itself, with this status.
    Status(ExitStatus),
    /// Killed, after [`DEADLINE`].
    TooLate,
    /// It couldn't be started or watched.
    NotRun(io::Error),
}

/// Lets bubblewrap build a sandbox, with the flags of every run that a machine
/// can refuse, and run `program --version` in it, `program` being a file that runs
/// anywhere, such as this static binary.
///
/// # Errors
/// [`ProbeFailure`] where that doesn't end with success within [`DEADLINE`].
pub fn sandbox(bwrap: &Path, program: &Path) -> Result<(), ProbeFailure> {
    let mut command = Command::new(bwrap);
    command
        .args(Arguments::least(program).list())
        .args(["--", OWN_BINARY, "--version"])
        .env_clear();
    watch(command, DEADLINE).map(drop)
}

/// Runs a command without input and kills it at the deadline. Gives what it
/// wrote to stdout and stderr, the first 16 KiB.
///
/// # Errors
/// [`ProbeFailure`] where it doesn't end with success by then.
pub fn watch(command: Command, deadline: Duration) -> Result<Vec<u8>, ProbeFailure> {
    let mut output = Vec::new();
    let ended =
        match start(command).and_then(|(child, pipe)| end_of(child, pipe, deadline, &mut output)) {
            Ok(Some(status)) if status.success() => return Ok(output),
            Ok(Some(status)) => Ended::Status(status),
            Ok(None) => Ended::TooLate,
            Err(error) => Ended::NotRun(error),
        };
    Err(ProbeFailure { stderr: output, ended })
}

fn start(mut command: Command) -> io::Result<(Child, PipeReader)> {
    let (pipe, writer) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    // The command goes with its ends of the pipe, or the pipe would never end.
    Ok((command.spawn()?, pipe))
}

/// The child's status, or `None` where it had to be killed.
fn end_of(
    mut child: Child,
    pipe: PipeReader,
    deadline: Duration,
    output: &mut Vec<u8>,
) -> io::Result<Option<ExitStatus>> {
    let in_time = wait_for_end(&child, pipe, deadline, output);
    if !matches!(in_time, Ok(true)) {
        // Before their parent: bubblewrap's first process may wait for it for
        // ever.
        children_of(&child).into_iter().for_each(kill);
        child.kill()?;
    }
    let status = child.wait()?;
    Ok(in_time?.then_some(status))
}

/// While the child isn't waited for, none of these numbers is another's: those
/// of its own that end stay until it takes note, and it hangs.
fn children_of(child: &Child) -> Vec<Pid> {
    let pid = child.id();
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let list = list.unwrap_or_default();
    list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

fn kill(pid: Pid) {
    let _ = rustix::process::kill_process(pid, Signal::KILL);
}

/// Reads what the child says until it ends: its pipe may stay open longer, held
/// by what it left behind.
fn wait_for_end(
    child: &Child,
    mut pipe: PipeReader,
    deadline: Duration,
    output: &mut Vec<u8>,
) -> io::Result<bool> {
    let end = Instant::now() + deadline;
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    rustix::io::ioctl_fionbio(&pipe, true)?;
    let mut open = true;
    loop {
        let mut watched = vec![PollFd::new(&pidfd, PollFlags::IN)];
        if open {
            watched.push(PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN));
        }
        let left = end.saturating_duration_since(Instant::now());
        match poll(&mut watched, Some(&timespec(left))) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let ended = !watched[0].revents().is_empty();
        open = open && read_what_is_there(&mut pipe, output)?;
        if ended {
            return Ok(true);
        }
    }
}

/// Whether there may be more to come.
fn read_what_is_there(pipe: &mut PipeReader, output: &mut Vec<u8>) -> io::Result<bool> {
    let mut buffer = [0; 4096];
    loop {
        match pipe.read(&mut buffer) {
            Ok(0) => return Ok(false),
            Ok(n) => {
                let room = OUTPUT_KEPT.saturating_sub(output.len());
                output.extend_from_slice(&buffer[..n.min(room)]);
                // One chunk past what is kept, back to the deadline: a child
                // that never stops talking mustn't hold this loop.
                if room == 0 {
                    return Ok(true);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec::try_from(duration).expect("at most the deadline, which is seconds")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, deadline: Duration) -> Result<Vec<u8>, ProbeFailure> {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(script);
        watch(command, deadline)
    }

    #[test]
    fn success_is_success() {
        assert_eq!(sh("echo out; echo err >&2", DEADLINE).unwrap(), b"out\nerr\n");
    }

    #[test]
    fn a_failure_keeps_status_and_words() {
        let failure = sh("echo why >&2; exit 3", DEADLINE).unwrap_err();
        assert_eq!(failure.stderr, b"why\n");
        assert!(matches!(failure.ended, Ended::Status(status) if status.code() == Some(3)));
    }

    #[test]
    fn one_that_hangs_is_killed() {
        let failure = sh("exec sleep 1000", Duration::from_millis(50)).unwrap_err();
        assert!(matches!(failure.ended, Ended::TooLate));
    }

    #[test]
    fn what_one_that_hangs_has_started_is_killed_too() {
        let script = "sleep 1000 & echo $!; sleep 1000 & echo $!; wait";
        let failure = sh(script, Duration::from_millis(200)).unwrap_err();
        assert!(matches!(failure.ended, Ended::TooLate));
        let pids = String::from_utf8(failure.stderr).unwrap();
        assert_eq!(pids.lines().count(), 2);
        for pid in pids.lines().filter_map(|pid| Pid::from_raw(pid.parse().unwrap())) {
            // What can't be opened is gone.
            let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
            let mut ended = [PollFd::new(&process, PollFlags::IN)];
            assert_eq!(poll(&mut ended, Some(&timespec(DEADLINE))), Ok(1), "{pid:?} is left");
        }
    }

    #[test]
    fn one_that_never_stops_talking_is_killed_and_cut_short() {
        let failure = sh("exec yes >&2", Duration::from_millis(200)).unwrap_err();
        assert!(matches!(failure.ended, Ended::TooLate));
        assert_eq!(failure.stderr.len(), OUTPUT_KEPT);
    }

    #[test]
    fn a_pipe_left_open_holds_nobody_up() {
        let failure = sh("sleep 5 & exit 4", DEADLINE).unwrap_err();
        assert!(matches!(failure.ended, Ended::Status(status) if status.code() == Some(4)));
    }

    #[test]
    fn what_isnt_there_isnt_run() {
        let failure = watch(Command::new("/no/such/bwrap"), DEADLINE).unwrap_err();
        assert!(matches!(failure.ended, Ended::NotRun(_)));
    }
}
