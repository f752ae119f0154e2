//! What is written down of one background command.

use std::fmt;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

use crate::call::End;
use crate::command::status_line;
use crate::limits::Time;
use crate::quoted::quoted_to;

/// Letters of ids: 32, none like another.
const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// Letters of an id: 60 bits.
const ID: usize = 12;
/// Characters of a command's line that are kept at most.
const MAX_COMMAND: usize = 200;
/// Notices that are kept of a command, and characters of each, at most.
const MAX_NOTICES: usize = 10;
const MAX_NOTICE: usize = 300;

/// A new id, which nobody guesses.
///
/// # Errors
/// Those of getrandom(2).
pub fn new_id() -> io::Result<String> {
    let mut bytes = [0u8; ID];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty())?;
    if filled != ID {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect())
}

/// Whether a text can be an id, and so part of a file's name.
#[must_use]
pub fn is_id(text: &str) -> bool {
    text.len() == ID && text.bytes().all(|byte| LETTERS.contains(&byte))
}

/// Milliseconds since 1970.
#[must_use]
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Whose a command is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conversation {
    /// That with this name, which may come back.
    Named(String),
    /// That of the server with this id, which ends with it.
    Server(String),
}

/// One background command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub conversation: Conversation,
    /// The server that runs it.
    pub server: String,
    /// Program and arguments, as shown.
    pub command: String,
    /// When it started, in milliseconds since 1970.
    pub started: u64,
    /// How it ended; none while it runs.
    pub end: Option<Ended>,
    /// When the agent was told of its end, in milliseconds since 1970.
    pub told: Option<u64>,
    /// Bytes of its output before the first that is kept.
    pub dropped: u64,
    /// Bytes of its output after the last that could be kept.
    pub unkept: u64,
    /// Why they couldn't.
    pub why_unkept: Option<String>,
}

/// The end of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// When, in milliseconds since 1970; of a lost one when that was seen.
    pub at: u64,
    /// How long it ran, in milliseconds; not known of a lost one.
    pub ran: Option<u64>,
    /// How.
    pub how: How,
    /// What was refused meanwhile, or is worth knowing.
    pub notices: Vec<String>,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// By itself, with this status.
    Exited(u8),
    /// It never ran, for this reason.
    Failed(String),
    /// Its time was over.
    TimedOut,
    /// By `stop`.
    Stopped,
    /// Its supervisor was killed.
    Killed,
    /// Its server ended.
    Lost,
}

impl How {
    /// That of a call that ended by itself.
    #[must_use]
    pub fn of(end: &End) -> How {
        match (&end.failed, end.status) {
            (Some(why), _) => How::Failed(why.clone()),
            (None, Some(status)) => How::Exited(status),
            (None, None) => How::Killed,
        }
    }

    /// One word for it, for programs.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            How::Exited(_) => "exited",
            How::Failed(_) => "failed",
            How::TimedOut => "timed_out",
            How::Stopped => "stopped",
            How::Killed => "killed",
            How::Lost => "lost",
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            How::Exited(status) => out.write_str(&status_line(*status)),
            How::Failed(why) => write!(out, "it couldn't run: {why}"),
            How::TimedOut => out.write_str("timed out, so it was ended"),
            How::Stopped => out.write_str("stopped"),
            How::Killed => out.write_str("killed from outside"),
            How::Lost => out.write_str("lost: the server that ran it ended, and it with that"),
        }
    }
}

impl Ended {
    /// An end that is now, of a command that ran for `ran`.
    #[must_use]
    pub fn now(how: How, ran: Duration, mut notices: Vec<String>) -> Ended {
        notices.truncate(MAX_NOTICES);
        for notice in &mut notices {
            clip(notice, MAX_NOTICE);
        }
        let ran = u64::try_from(ran.as_millis()).unwrap_or(u64::MAX);
        Ended { at: now(), ran: Some(ran), how, notices }
    }

    /// The end of one whose server is gone.
    #[must_use]
    pub fn lost() -> Ended {
        Ended { at: now(), ran: None, how: How::Lost, notices: Vec::new() }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.how)?;
        match self.ran {
            Some(ran) => write!(out, ", after {}", Time(Duration::from_millis(ran))),
            None => Ok(()),
        }
    }
}

/// A program and its arguments in one line, cut where that is long.
#[must_use]
pub fn command_line(program: &str, args: &[String]) -> String {
    let words = [program].into_iter().chain(args.iter().map(String::as_str));
    let mut line = String::new();
    for word in words {
        if !line.is_empty() {
            line.push(' ');
        }
        match lnk_sandbox::shown::word(word) {
            plain if plain == word => line += &plain,
            _ => line += &quoted_to(word, MAX_COMMAND),
        }
        if line.len() > MAX_COMMAND * 4 {
            break;
        }
    }
    clip(&mut line, MAX_COMMAND);
    line
}

/// Cuts a text to so many characters.
fn clip(text: &mut String, most: usize) {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_ids_and_nothing_else_is() {
        let id = new_id().unwrap();
        assert!(is_id(&id) && id != new_id().unwrap(), "{id}");
        for text in ["", "../../../etc", "abcdefghijk", "abcdefghijklm", "ABCDEFGHIJKM"] {
            assert!(!is_id(text), "{text}");
        }
    }

    #[test]
    fn a_long_line_is_cut() {
        assert_eq!(command_line("sh", &["-c".into(), "a b\n".into()]), r#"sh -c "a b\n""#);
        let line = command_line("echo", &vec!["€€€€".to_owned(); 10_000]);
        assert_eq!(line.chars().count(), MAX_COMMAND + 1);
    }
}
