//! Everything that `lnk` prints, and what it asks.
//!
//! Nothing reaches a terminal but through [`escaped`], so a path or another
//! program's words can't move the cursor or write a line that isn't theirs.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal as _, Read as _, Write};
use std::os::fd::OwnedFd;
use std::time::Duration;

use lnk_sandbox::error::reason;
use lnk_sandbox::shown::escaped;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::termios::{QueueSelector, tcflush, tcgetpgrp, tcgetwinsize};

use crate::error::{CommandError, Result};

/// How long a question waits. No answer is no.
const PATIENCE: Duration = Duration::from_secs(120);

/// A line on stderr of what failed or is worth knowing.
pub fn failure(line: &str) {
    explain(&format!("lnk sandbox: {line}"));
}

/// A line on stderr that belongs to the one before.
pub fn explain(line: &str) {
    // Where stderr is gone there is nowhere left to say so.
    // In one piece, as the sandboxed program writes there too.
    let _ = io::stderr().write_all((escaped(line.as_bytes()) + "\n").as_bytes());
}

/// Whether somebody may be reading stderr as it is written.
pub fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Whether a program reads stderr's terminal key by key, as one does that draws
/// on all of it.
pub fn is_drawn_on() -> bool {
    use rustix::termios::{LocalModes, tcgetattr};
    let modes = tcgetattr(io::stderr()).map(|terminal| terminal.local_modes);
    modes.is_ok_and(|modes| !modes.contains(LocalModes::ICANON))
}

/// Text of our own on stdout, such as help.
pub fn page(text: &str) -> Result<()> {
    more(text).map(|_| ())
}

/// As [`page`], where more follows: whether somebody still reads.
pub fn more(text: &str) -> Result<bool> {
    let lines = text.lines().map(|line| escaped(line.trim_end().as_bytes()) + "\n");
    write_out(lines.collect::<String>().as_bytes())
}

/// A colour of text on a terminal.
#[derive(Clone, Copy)]
pub enum Colour {
    /// What was refused.
    Red,
    /// What failed.
    Yellow,
}

/// As [`more`], in colours where stdout is a terminal and NO_COLOR isn't set
/// (no-color.org).
pub fn coloured(texts: &[(Option<Colour>, String)]) -> Result<bool> {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let wanted = io::stdout().is_terminal() && !no_color;
    let mut shown = String::new();
    for (colour, text) in texts {
        for line in text.lines() {
            let line = escaped(line.trim_end().as_bytes());
            shown += &match colour.filter(|_| wanted) {
                Some(Colour::Red) => format!("\x1b[31m{line}\x1b[m\n"),
                Some(Colour::Yellow) => format!("\x1b[33m{line}\x1b[m\n"),
                None => line + "\n",
            };
        }
    }
    write_out(shown.as_bytes())
}

/// Generated text on stdout, as it is: nothing in it comes from anyone but us.
pub fn generated(text: &[u8]) -> Result<()> {
    write_out(text).map(|_| ())
}

fn write_out(text: &[u8]) -> Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        // Whoever read this has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => {
            Err(CommandError::Because(format!("can't write to stdout: {}", reason(&error))))
        }
        Ok(()) => Ok(true),
    }
}

/// The columns of the terminal that stdout is, if it is one.
pub fn width() -> Option<usize> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}

/// Stdout, while a program has stderr in its place.
pub struct Stdout(OwnedFd);

/// Lets what is started now write to stderr as its stdout.
pub fn give_stderr_for_stdout() -> Result<Stdout> {
    let failed = |error| CommandError::Because(format!("stdout: {}", reason(&error)));
    let own =
        rustix::io::fcntl_dupfd_cloexec(io::stdout(), 3).map_err(|error| failed(error.into()))?;
    rustix::stdio::dup2_stdout(io::stderr()).map_err(|error| failed(error.into()))?;
    Ok(Stdout(own))
}

impl Stdout {
    /// Has it again.
    pub fn restore(self) -> Result<()> {
        rustix::stdio::dup2_stdout(&self.0)
            .map_err(|error| CommandError::Because(format!("stdout: {}", reason(&error.into()))))
    }
}

/// The terminal that `lnk` was started from, whatever its stdin is.
pub struct Terminal(File);

impl Terminal {
    /// The terminal, where there is one that can be asked on: a job in the
    /// background would be stopped by reading it.
    pub fn open() -> Option<Self> {
        let tty = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        (tcgetpgrp(&tty).ok()? == getpgrp()).then_some(Self(tty))
    }

    /// Shows the lines that a question is about, here even where stderr is a
    /// file, and asks it. `y` or `yes` affirms. Keys pressed before it was shown
    /// don't count, and neither does silence of two minutes.
    pub fn ask(&mut self, about: &[String], question: &str) -> bool {
        let answer = self.answer(about, question).unwrap_or_default();
        matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
    }

    fn answer(&mut self, about: &[String], question: &str) -> io::Result<String> {
        for line in about {
            writeln!(self.0, "{}", escaped(line.as_bytes()))?;
        }
        tcflush(&self.0, QueueSelector::IFlush)?;
        write!(self.0, "{} [y/N] ", escaped(question.as_bytes()))?;
        if !self.wait()? {
            writeln!(self.0)?;
            return Ok(String::new());
        }
        let mut line = [0; 256];
        let length = self.0.read(&mut line)?;
        Ok(String::from_utf8_lossy(&line[..length]).into_owned())
    }

    /// Whether a line was typed in time.
    fn wait(&self) -> io::Result<bool> {
        let patience = Timespec::try_from(PATIENCE).expect("two minutes fit");
        let mut typed = [PollFd::new(&self.0, PollFlags::IN)];
        Ok(poll(&mut typed, Some(&patience))? > 0)
    }
}

/// Shows why a command failed.
pub fn tell(error: &CommandError) {
    match error {
        CommandError::Because(line) => failure(line),
        CommandError::At(text) => {
            let mut lines = text.lines();
            lines.next().into_iter().for_each(failure);
            lines.for_each(explain);
        }
        CommandError::Told => {}
    }
}
