//! How a command fails: one line on stderr, and status 125.

use lnk_sandbox::Error;

use crate::ui;

/// The status of every failure of `lnk` itself, usage too. A program's own
/// statuses, 126 and 127 among them, are never this one's business.
pub const FAILED: u8 = 125;

/// What a command returns.
pub type Result<T, E = CommandError> = std::result::Result<T, E>;

/// A command that failed.
#[derive(Debug)]
pub enum CommandError {
    /// With this line to show.
    Because(String),
    /// With everything shown already.
    Told,
}

impl CommandError {
    /// Shows the line.
    pub fn tell(&self) {
        match self {
            Self::Because(line) => ui::failure(line),
            Self::Told => {}
        }
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        let hint = match &error {
            Error::NotReady(_) => ": 'lnk sandbox ready' tells what is missing",
            _ => "",
        };
        Self::Because(format!("{error}{hint}"))
    }
}
