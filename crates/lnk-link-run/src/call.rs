//! One call: a program in a sandbox of its own, whose supervisor is this program
//! again, as a process of its own.
//!
//! The supervisor's standard streams are the program's. What Link has to say of the
//! call comes as JSON lines through one more descriptor, so that nothing of it gets
//! among the program's output. The end of a call is the supervisor's end, never the
//! end of its pipes: with it everything is gone that the program started.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lnk_sandbox::error::reason;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::place::Place;
use crate::quoted::quoted;

/// The hidden subcommand that is a call's supervisor.
pub const CALL: &str = "call";

/// How long the program may go on after TERM.
pub const GRACE: Duration = Duration::from_secs(1);

/// When a supervisor that was asked to end is killed.
const KILLED_AFTER: Duration = Duration::from_millis(1_900);

/// The most that is read of what a supervisor reports, in bytes: a program can
/// have any number of refusals written, each of which is one line.
const MOST_REPORTED: usize = 256 << 10;

/// A program to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its name or path.
    pub program: String,
    /// Its arguments, as they are.
    pub args: Vec<String>,
    /// What it reads on its standard input.
    pub input: String,
    /// The folder it runs in, by [`Place::folder`].
    pub folder: PathBuf,
}

/// How the program's output comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// Standard output and standard error, each by itself.
    Apart,
    /// Both as one, in the order they were written.
    Merged,
}

/// A line of a supervisor's report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Said {
    /// A line that its reader should see, such as for a refused program.
    Notice(String),
    /// The program ended, or couldn't be started.
    Ended {
        /// Its status: its own, 128 and the signal, 126 or 127.
        status: u8,
        /// Why it wasn't started.
        message: Option<String>,
        /// What happened besides.
        notices: Vec<String>,
    },
    /// No program ran, for this reason.
    Failed(String),
}

/// How a call ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// The program's status: its own, 128 and the signal's number, 126 or 127. `None`
    /// where it was ended from here, or never ran.
    pub status: Option<u8>,
    /// Why it couldn't be started, if that is so.
    pub failed: Option<String>,
    /// Lines of what was refused or is worth knowing. Their untrusted parts are
    /// escaped.
    pub notices: Vec<String>,
}

/// A call that goes on. Dropped, it is killed.
pub struct Running {
    /// What the program prints. With [`Streams::Merged`] its errors, too.
    pub stdout: pipe::Receiver,
    /// Its errors.
    pub stderr: Option<pipe::Receiver>,
    /// What ends it and tells how it ended.
    pub supervisor: Supervisor,
}

/// The process that has a call's sandbox.
pub struct Supervisor {
    child: Child,
    pidfd: AsyncFd<OwnedFd>,
    report: pipe::Receiver,
    reported: Vec<u8>,
    feeder: Option<JoinHandle<()>>,
    is_reaped: bool,
}

impl Call {
    /// Starts it in a sandbox of this place.
    ///
    /// # Errors
    /// A line for why it can't be: a NUL in an argument, arguments too long, no
    /// process or descriptor left.
    pub fn start(&self, place: &Place, streams: Streams) -> Result<Running, String> {
        self.refuse_nul()?;
        let failed = |error: io::Error| match error.raw_os_error() {
            Some(code) if code == rustix::io::Errno::TOOBIG.raw_os_error() => {
                "the arguments are too long for this system: pass it as input instead".to_owned()
            }
            _ => format!("the call can't be started: {}", reason(&error)),
        };
        self.spawn(place, streams).map_err(failed)
    }

    fn refuse_nul(&self) -> Result<(), String> {
        if self.program.is_empty() {
            return Err("program is empty: name the program to run, such as sh".into());
        }
        match [&self.program].into_iter().chain(&self.args).find(|word| word.contains('\0')) {
            None => Ok(()),
            Some(word) => Err(format!(
                "{}: no argument can have a NUL byte in it; pass it as input instead",
                quoted(word)
            )),
        }
    }

    fn spawn(&self, place: &Place, streams: Streams) -> io::Result<Running> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from);
        let (report, report_end) = pipe()?;
        let (stdout, stdout_end) = pipe()?;
        let (stderr, stderr_end) = match streams {
            Streams::Apart => pipe().map(|(read, write)| (Some(read), write))?,
            Streams::Merged => (None, stdout_end.try_clone()?),
        };
        let (input, stdin) = match self.input.as_str() {
            "" => (None, Stdio::null()),
            _ => pipe().map(|(read, write)| (Some(write), Stdio::from(read)))?,
        };
        // Before anything is started: what fails later would leave a process.
        let (report, stdout) = (receiver(report)?, receiver(stdout)?);
        let stderr = stderr.map(receiver).transpose()?;
        let input = input.map(pipe::Sender::from_owned_fd).transpose()?;

        let mut command = Command::new("/proc/self/exe");
        command.arg0("lnk-link-run").arg(CALL);
        command.arg(format!("--report={}", report_end.as_raw_fd()));
        command.arg(format!("--server={}", std::process::id()));
        command.args(place.words()).arg("--").arg(&self.program).args(&self.args);
        command.current_dir(&self.folder);
        command.stdin(stdin).stdout(stdout_end).stderr(stderr_end);
        // This process starts others from one thread only, so no other inherits it.
        fcntl_setfd(&report_end, FdFlags::empty())?;
        let mut child = command.spawn()?;
        drop(report_end);
        let pidfd = pidfd_of(&child).inspect_err(|_| {
            // It has the descriptors it needs to run on, so nobody else would end it.
            let _ = child.kill().and_then(|()| child.wait());
        })?;
        let feeder = input.map(|input| tokio::task::spawn_local(feed(input, self.input.clone())));
        let reported = Vec::new();
        let supervisor = Supervisor { child, pidfd, report, reported, feeder, is_reaped: false };
        Ok(Running { stdout, stderr, supervisor })
    }
}

fn receiver(read: OwnedFd) -> io::Result<pipe::Receiver> {
    pipe::Receiver::from_owned_fd(read)
}

#[expect(deprecated, reason = "the safe one; a descriptor that is owned stays open as it asks")]
fn pidfd_of(child: &Child) -> io::Result<AsyncFd<OwnedFd>> {
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::NONBLOCK)?;
    AsyncFd::new(pidfd)
}

/// Writes the input, as far as anybody reads it.
async fn feed(mut pipe: pipe::Sender, input: String) {
    // Who doesn't read it all has its reasons.
    let _ = pipe.write_all(input.as_bytes()).await;
}

impl Supervisor {
    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the call's end. May be dropped and asked again. The output has to be
    /// read meanwhile, and what is in its pipes then is all of it.
    pub async fn ended(&mut self) -> End {
        loop {
            tokio::select! {
                // Else a report that is full would keep it from ending.
                more = read_some(&self.report, &mut self.reported, MOST_REPORTED) => {
                    if !more {
                        let _ = self.pidfd.readable().await;
                        break;
                    }
                }
                _ = self.pidfd.readable() => break,
            }
        }
        self.reap();
        drain(&self.report, &mut self.reported, MOST_REPORTED);
        End::told(&self.reported)
    }

    /// Ends it, with everything it started: TERM, and KILL 1.9 seconds later. The
    /// output has to be read meanwhile.
    pub async fn end(&mut self) -> End {
        let killed = Instant::now() + KILLED_AFTER;
        self.signal(Signal::TERM);
        let mut end = match timeout_at(killed, self.ended()).await {
            Ok(end) => end,
            Err(_) => {
                self.signal(Signal::KILL);
                self.ended().await
            }
        };
        // The status is that of our own signal.
        end.status = None;
        end
    }

    fn signal(&self, signal: Signal) {
        // One that has ended needs none.
        let _ = pidfd_send_signal(self.pidfd.get_ref(), signal);
    }

    fn reap(&mut self) {
        if let Some(feeder) = self.feeder.take() {
            feeder.abort();
        }
        // It has ended, so this doesn't wait.
        let _ = self.child.wait();
        self.is_reaped = true;
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if !self.is_reaped {
            self.signal(Signal::KILL);
            self.reap();
        }
    }
}

/// Reads what comes next, keeping up to `most` bytes of it all. `false` at the end.
async fn read_some(pipe: &pipe::Receiver, kept: &mut Vec<u8>, most: usize) -> bool {
    loop {
        if pipe.readable().await.is_err() {
            return false;
        }
        let mut some = [0; 4096];
        match pipe.try_read(&mut some) {
            Ok(0) => return false,
            Ok(length) => {
                kept.extend(some[..length].iter().take(most.saturating_sub(kept.len())));
                return true;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
    }
}

/// Reads what is there.
fn drain(pipe: &pipe::Receiver, kept: &mut Vec<u8>, most: usize) {
    let mut some = [0; 4096];
    while let Ok(length @ 1..) = pipe.try_read(&mut some) {
        kept.extend(some[..length].iter().take(most.saturating_sub(kept.len())));
    }
}

impl End {
    /// What a supervisor reported. Without its last word it was killed.
    fn told(report: &[u8]) -> End {
        let mut end = End::default();
        for line in report.split(|byte| *byte == b'\n') {
            match serde_json::from_slice(line) {
                Ok(Said::Notice(notice)) => end.notices.push(notice),
                Ok(Said::Ended { status, message: None, notices }) => {
                    end.status = Some(status);
                    end.notices.extend(notices);
                }
                Ok(Said::Ended { message: Some(message), notices, .. }) => {
                    end.failed = Some(message);
                    end.notices.extend(notices);
                }
                Ok(Said::Failed(why)) => end.failed = Some(why),
                // Cut off, or empty.
                Err(_) => {}
            }
        }
        end
    }
}
