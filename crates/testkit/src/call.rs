//! Programs, run outside as a test's user, with a deadline.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};

use crate::fence::Fences;
use crate::{Terminal, User};

/// How long a program may take unless a test says otherwise.
const DEADLINE: Duration = Duration::from_secs(60);

/// A program about to be run: its environment holds nothing of this process's,
/// its standard input is empty and its working folder is the project.
#[must_use = "nothing runs before run(), spawn() or terminal()"]
pub struct Call {
    argv: Vec<OsString>,
    user: User,
    cwd: PathBuf,
    vars: Vec<(OsString, OsString)>,
    stdin: Input,
    deadline: Duration,
    fences: Fences,
}

enum Input {
    Nothing,
    Bytes(Vec<u8>),
    File(OwnedFd),
}

impl Call {
    pub(crate) fn new(
        argv: Vec<OsString>,
        user: User,
        cwd: PathBuf,
        vars: Vec<(OsString, OsString)>,
    ) -> Call {
        let (stdin, deadline, fences) = (Input::Nothing, DEADLINE, Fences::default());
        Call { argv, user, cwd, vars, stdin, deadline, fences }
    }

    /// Starts on the machine of another network. Names lead nowhere there, but
    /// through a replaced `/etc/hosts`.
    pub fn within(mut self, net: &crate::Net) -> Call {
        self.fences.network = net.words();
        self
    }

    /// Starts in this folder; a relative one is the project's.
    pub fn cwd(mut self, folder: impl AsRef<Path>) -> Call {
        self.cwd = self.cwd.join(folder);
        self
    }

    /// Sets a variable of the caller's environment.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Call {
        let name = name.into();
        self.vars.retain(|(other, _)| *other != name);
        self.vars.push((name, value.into()));
        self
    }

    /// Takes a variable out of the caller's environment.
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Call {
        self.vars.retain(|(other, _)| other != name.as_ref());
        self
    }

    /// Standard input is a pipe with these bytes.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Call {
        self.stdin = Input::Bytes(bytes.into());
        self
    }

    /// Standard input is this open file.
    pub fn stdin_file(mut self, file: impl Into<OwnedFd>) -> Call {
        self.stdin = Input::File(file.into());
        self
    }

    /// Gives the program this long in place of 60 s.
    pub fn deadline(mut self, deadline: Duration) -> Call {
        self.deadline = deadline;
        self
    }

    /// Runs where `path`, an existing file, has `by`'s content, in a mount
    /// namespace of its own. Owner and mode are `by`'s: one in
    /// [`TestEnv::outside`](crate::TestEnv::outside) is root's in root's tests.
    pub fn replaced(mut self, path: impl AsRef<Path>, by: impl AsRef<Path>) -> Call {
        self.fences.replaced.push((path.as_ref().to_owned(), by.as_ref().to_owned()));
        self
    }

    /// Runs where the file `path` doesn't exist, in a mount namespace of its
    /// own, which has an empty `/mnt`. Once for a call.
    pub fn removed(mut self, path: impl AsRef<Path>) -> Call {
        self.fences.removed = Some(path.as_ref().to_owned());
        self
    }

    /// Runs where no user namespace can be made any more: in one whose limit is
    /// used up (user_namespaces(7)), root too.
    pub fn no_user_namespaces(mut self) -> Call {
        self.fences.no_user_namespaces = true;
        self
    }

    /// Runs where the kernel answers a system call, a `libc::SYS_…` number, by
    /// an errno.
    pub fn denied(mut self, call: libc::c_long, errno: i32) -> Call {
        self.fences.denied.push((call, errno));
        self
    }

    /// Runs the program to its end.
    ///
    /// # Panics
    /// When it can't be started, or its deadline passes.
    pub fn run(self) -> Run {
        self.spawn().wait()
    }

    /// Starts the program.
    ///
    /// # Panics
    /// When it can't be started.
    pub fn spawn(mut self) -> Running {
        let shown = self.shown();
        let deadline = Instant::now() + self.deadline;
        let bytes = match &mut self.stdin {
            Input::Bytes(bytes) => Some(std::mem::take(bytes)),
            _ => None,
        };
        let mut child = self.start(&[], |command, stdin| {
            command
                .stdin(match stdin {
                    Input::Nothing => Stdio::null(),
                    Input::Bytes(_) => Stdio::piped(),
                    Input::File(file) => file.into(),
                })
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
        });
        if let (Some(bytes), Some(mut stdin)) = (bytes, child.stdin.take()) {
            // A program that doesn't read its input is no failure of the test.
            thread::spawn(move || drop(stdin.write_all(&bytes)));
        }
        Running {
            out: child.stdout.take(),
            err: child.stderr.take(),
            stdout: Vec::new(),
            stderr: Vec::new(),
            process: Process::new(child),
            deadline,
            shown,
        }
    }

    /// Starts the program as the leader of a session whose controlling terminal
    /// is a new one of this size, with `TERM=xterm-256color`.
    ///
    /// # Panics
    /// When it can't be started.
    pub fn terminal(self, rows: u16, cols: u16) -> Terminal {
        let deadline = self.deadline;
        let call = self.env("TERM", "xterm-256color");
        let shown = call.shown();
        Terminal::open(call.user.uid, rows, cols, deadline, shown, |tty| {
            let leader = ["setsid", "--ctty", "--"].map(OsString::from);
            call.start(&leader, |command, _| {
                let copy = || tty.try_clone().expect("descriptors are left");
                command.stdin(copy()).stdout(copy()).stderr(copy());
            })
        })
    }

    /// Builds the command, the words of `before` first, lets `set` lay its
    /// standard streams, and starts it.
    fn start(self, before: &[OsString], set: impl FnOnce(&mut Command, Input)) -> Child {
        let Call { argv, user, cwd, vars, stdin, fences, .. } = self;
        let (wrapped, switches_user) = fences.wrap(argv, &user);
        let words: Vec<&OsString> = before.iter().chain(&wrapped).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(cwd).env_clear().envs(vars);
        if !switches_user && user != User::current() {
            // From root, std drops the supplementary groups with this too.
            command.uid(user.uid).gid(user.gid);
        }
        set(&mut command, stdin);
        command.spawn().unwrap_or_else(|e| panic!("start {}: {e}", words[0].display()))
    }

    fn shown(&self) -> String {
        let words: Vec<String> =
            self.argv.iter().map(|word| format!("{}", word.display())).collect();
        words.join(" ")
    }
}

/// A started program, killed when dropped.
pub struct Running {
    process: Process,
    out: Option<ChildStdout>,
    err: Option<ChildStderr>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    deadline: Instant,
    shown: String,
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Sends it a signal, SIGKILL too. By SIGSTOP it is stopped, with all its threads,
    /// once this returns.
    ///
    /// # Panics
    /// When it has been waited for.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
        if signal == Signal::STOP {
            let pid = Pid::from_raw(self.pid().cast_signed());
            let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(pid.expect("a process")), stopped).expect("a child");
        }
    }

    /// Reads on until `text` has stood on standard output.
    ///
    /// # Panics
    /// When the output ends or the deadline passes without it.
    pub fn wait_for_stdout(&mut self, text: &str) -> &mut Running {
        while !String::from_utf8_lossy(&self.stdout).contains(text) {
            if self.out.is_none() {
                self.fail(&format!("ended without printing {text:?}"));
            }
            self.read_some();
        }
        self
    }

    /// [`wait_for_stdout`](Self::wait_for_stdout) for standard error.
    ///
    /// # Panics
    /// When the output ends or the deadline passes without it.
    pub fn wait_for_stderr(&mut self, text: &str) -> &mut Running {
        while !String::from_utf8_lossy(&self.stderr).contains(text) {
            if self.err.is_none() {
                self.fail(&format!("ended without printing {text:?}"));
            }
            self.read_some();
        }
        self
    }

    /// Waits for its end and that of its output: a descendant that keeps the
    /// output open is waited for as well.
    ///
    /// # Panics
    /// When the deadline passes first.
    pub fn wait(mut self) -> Run {
        while !(self.out.is_none() && self.err.is_none() && self.process.status.is_some()) {
            self.read_some();
        }
        let status = self.process.status.expect("the loop ends with a status");
        self.report(Some(status))
    }

    /// Waits for something to read, or the end, and takes it.
    fn read_some(&mut self) {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let (mut out, mut err, mut end) = (false, false, false);
        let mut fds = Vec::new();
        if let Some(pipe) = &self.out {
            fds.push((PollFd::new(pipe, PollFlags::IN), &mut out));
        }
        if let Some(pipe) = &self.err {
            fds.push((PollFd::new(pipe, PollFlags::IN), &mut err));
        }
        if self.process.status.is_none() {
            fds.push((PollFd::new(&self.process.pidfd, PollFlags::IN), &mut end));
        }
        let late = !wait_readable(&mut fds, left);
        drop(fds);
        if late {
            self.fail("didn't end in time");
        }
        if out {
            take(&mut self.out, &mut self.stdout);
        }
        if err {
            take(&mut self.err, &mut self.stderr);
        }
        if end {
            self.process.reap();
        }
    }

    fn fail(&mut self, why: &str) -> ! {
        let run = self.report(self.process.status);
        panic!("{why}\n{run}")
    }

    fn report(&mut self, status: Option<ExitStatus>) -> Run {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Run {
            shown: std::mem::take(&mut self.shown),
            status: status.unwrap_or_default(),
            stdout: text(&self.stdout),
            stderr: text(&self.stderr),
        }
    }
}

/// Whether one of `fds` became readable, or closed, in time; marks which.
pub(crate) fn wait_readable(fds: &mut [(PollFd<'_>, &mut bool)], left: Duration) -> bool {
    let mut polled: Vec<PollFd<'_>> = fds.iter().map(|(fd, _)| fd.clone()).collect();
    let left = Timespec::try_from(left).expect("deadlines are short");
    let ready = poll(&mut polled, Some(&left)).expect("poll of open descriptors");
    for (fd, (_, marked)) in polled.iter().zip(fds) {
        **marked = !fd.revents().is_empty();
    }
    ready > 0
}

/// Appends what a readable pipe has; at its end, drops it.
fn take(pipe: &mut Option<impl Read>, bytes: &mut Vec<u8>) {
    let mut buffer = [0; 64 * 1024];
    let read = pipe.as_mut().map(|pipe| pipe.read(&mut buffer).expect("a pipe can be read"));
    match read {
        Some(0) | None => *pipe = None,
        Some(read) => bytes.extend_from_slice(&buffer[..read]),
    }
}

/// A child that is killed when dropped, so that a failed test leaves nothing.
pub(crate) struct Process {
    child: Child,
    pub(crate) pidfd: OwnedFd,
    pub(crate) status: Option<ExitStatus>,
}

impl Process {
    pub(crate) fn new(child: Child) -> Process {
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())
            .expect("a child that isn't reaped has a pidfd");
        Process { child, pidfd, status: None }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        pidfd_send_signal(&self.pidfd, signal).expect("the program still runs");
    }

    /// Takes the status of a child whose pidfd is readable.
    pub(crate) fn reap(&mut self) -> ExitStatus {
        let status = self.child.wait().expect("waits for its own child");
        self.status = Some(status);
        status
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.status.is_none() {
            // It may have ended by itself; then there is nothing to kill.
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

/// How a program ended and what it printed; bytes that aren't UTF-8 are
/// replaced by U+FFFD.
#[derive(Clone, Debug)]
pub struct Run {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    shown: String,
}

impl Run {
    /// The exit status as a shell gives it: 128 + signal when killed by one.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// Expects status 0.
    ///
    /// # Panics
    /// On any other.
    #[track_caller]
    pub fn ok(self) -> Run {
        self.fails_with(0)
    }

    /// Expects this status, as [`code`](Self::code) gives it.
    ///
    /// # Panics
    /// On any other.
    #[track_caller]
    pub fn fails_with(self, code: i32) -> Run {
        assert!(self.code() == code, "expected status {code}\n{self}");
        self
    }

    /// Expects any status but 0.
    ///
    /// # Panics
    /// On 0.
    #[track_caller]
    pub fn fails(self) -> Run {
        assert!(self.code() != 0, "expected a failure\n{self}");
        self
    }

    /// Expects exactly this on standard output.
    ///
    /// # Panics
    /// On anything else.
    #[track_caller]
    pub fn prints(self, text: &str) -> Run {
        assert!(self.stdout == text, "expected stdout {text:?}\n{self}");
        self
    }

    /// Expects this somewhere on standard output.
    ///
    /// # Panics
    /// When it isn't there.
    #[track_caller]
    pub fn stdout_has(self, text: &str) -> Run {
        assert!(self.stdout.contains(text), "expected on stdout {text:?}\n{self}");
        self
    }

    /// Expects this nowhere on standard output or standard error.
    ///
    /// # Panics
    /// When it is there.
    #[track_caller]
    pub fn has_not(self, text: &str) -> Run {
        let there = self.stdout.contains(text) || self.stderr.contains(text);
        assert!(!there, "expected nowhere {text:?}\n{self}");
        self
    }

    /// Expects this somewhere on standard error.
    ///
    /// # Panics
    /// When it isn't there.
    #[track_caller]
    pub fn stderr_has(self, text: &str) -> Run {
        assert!(self.stderr.contains(text), "expected on stderr {text:?}\n{self}");
        self
    }

    /// Expects an empty standard error.
    ///
    /// # Panics
    /// When it isn't.
    #[track_caller]
    pub fn quiet(self) -> Run {
        assert!(self.stderr.is_empty(), "expected nothing on stderr\n{self}");
        self
    }
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::new();
        writeln!(text, "$ {}", self.shown)?;
        writeln!(text, "status {} ({})", self.code(), self.status)?;
        writeln!(text, "--- stdout\n{}", self.stdout)?;
        write!(text, "--- stderr\n{}", self.stderr)?;
        f.write_str(&text)
    }
}
