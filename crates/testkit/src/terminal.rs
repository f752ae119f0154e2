//! A program on a terminal, driven as a person would.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::call::{Process, wait_readable};

/// A pseudo terminal, what it shows, and the program that leads its session.
/// The program is killed when dropped.
pub struct Terminal {
    process: Process,
    keyboard: File,
    parser: vt100::Parser,
    /// Whether every descriptor of the program's side is closed.
    hung_up: bool,
    deadline: Duration,
    shown: String,
}

impl Terminal {
    /// `start` gets the program's side, which belongs to the user.
    pub(crate) fn open(
        uid: u32,
        rows: u16,
        cols: u16,
        deadline: Duration,
        shown: String,
        start: impl FnOnce(OwnedFd) -> Child,
    ) -> Terminal {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).expect("a pseudo terminal is left");
        grantpt(&ours).expect("own terminal");
        unlockpt(&ours).expect("own terminal");
        tcsetwinsize(&ours, size(rows, cols)).expect("own terminal");
        let theirs = open_other_side(&ours, uid);
        Terminal {
            process: Process::new(start(theirs)),
            keyboard: File::from(ours),
            parser: vt100::Parser::new(rows, cols, 0),
            hung_up: false,
            deadline,
            shown,
        }
    }

    /// Process id of the session's leader.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Types these bytes.
    ///
    /// # Panics
    /// When the program has gone.
    pub fn send(&mut self, keys: impl AsRef<[u8]>) -> &mut Terminal {
        self.keyboard.write_all(keys.as_ref()).expect("the terminal takes keys");
        self
    }

    /// Types a line and the return key.
    ///
    /// # Panics
    /// When the program has gone.
    pub fn line(&mut self, text: &str) -> &mut Terminal {
        self.send(format!("{text}\r"))
    }

    /// Gives the terminal another size; the program gets SIGWINCH.
    pub fn resize(&mut self, rows: u16, cols: u16) -> &mut Terminal {
        tcsetwinsize(&self.keyboard, size(rows, cols)).expect("own terminal");
        self.parser.screen_mut().set_size(rows, cols);
        self
    }

    /// Sends the session's leader a signal.
    ///
    /// # Panics
    /// When it has been waited for.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// What the terminal shows now, line by line.
    pub fn screen(&self) -> String {
        self.parser.screen().contents()
    }

    /// Waits until the screen is as wanted.
    ///
    /// # Panics
    /// When it isn't before the call's deadline, or the program ends first.
    #[track_caller]
    pub fn wait_for(&mut self, wanted: impl Fn(&vt100::Screen) -> bool) -> &mut Terminal {
        let deadline = Instant::now() + self.deadline;
        while !wanted(self.parser.screen()) {
            assert!(!self.hung_up, "the program ended first\n{}", self.describe());
            let read = self.read_some(deadline);
            assert!(read, "the screen never was as wanted\n{}", self.describe());
        }
        self
    }

    /// Waits until this text is on the screen. What was typed is on it as soon
    /// as it's echoed: await something that only the program's answer holds,
    /// and a shell's prompt before typing to it again after a job ends.
    ///
    /// # Panics
    /// As [`wait_for`](Self::wait_for).
    #[track_caller]
    pub fn shows(&mut self, text: &str) -> &mut Terminal {
        let deadline = Instant::now() + self.deadline;
        while !self.screen().contains(text) {
            assert!(!self.hung_up, "ended without showing {text:?}\n{}", self.describe());
            let read = self.read_some(deadline);
            assert!(read, "never showed {text:?}\n{}", self.describe());
        }
        self
    }

    /// Waits for the program's end and answers its exit status, 128 + signal
    /// when killed by one.
    ///
    /// # Panics
    /// When it doesn't end before the call's deadline.
    #[track_caller]
    pub fn wait_exit(&mut self) -> i32 {
        let deadline = Instant::now() + self.deadline;
        while self.process.status.is_none() {
            let read = self.read_some(deadline);
            assert!(read, "the program didn't end\n{}", self.describe());
        }
        // What it wrote last is still in the terminal.
        while !self.hung_up && self.read_some(Instant::now()) {}
        let status = self.process.status.expect("the loop ends with a status");
        status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
    }

    /// Waits for output or the end and takes it; whether there was any in time.
    fn read_some(&mut self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let (mut output, mut end) = (false, false);
        let mut fds = Vec::new();
        if !self.hung_up {
            fds.push((PollFd::new(&self.keyboard, PollFlags::IN), &mut output));
        }
        if self.process.status.is_none() {
            fds.push((PollFd::new(&self.process.pidfd, PollFlags::IN), &mut end));
        }
        let in_time = wait_readable(&mut fds, left);
        drop(fds);
        if end {
            self.process.reap();
        }
        if output {
            let mut buffer = [0; 16 * 1024];
            // EIO: the other side is closed (ioctl_tty(2), pty(7)).
            match self.keyboard.read(&mut buffer) {
                Ok(read) if read > 0 => self.parser.process(&buffer[..read]),
                _ => self.hung_up = true,
            }
        }
        in_time
    }

    fn describe(&self) -> String {
        format!("$ {}\n--- screen\n{}", self.shown, self.screen())
    }
}

/// The program's side of a terminal, owned as a login would leave it: programs
/// open their terminal by its name.
fn open_other_side(ours: &OwnedFd, uid: u32) -> OwnedFd {
    let name = ptsname(ours, Vec::new()).expect("own terminal");
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(name, flags, Mode::empty()).expect("own terminal");
    rustix::fs::fchown(&theirs, Some(Uid::from_raw(uid)), None::<Gid>).expect("own terminal");
    theirs
}

fn size(rows: u16, cols: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 }
}
