//! How a command fails: one line on stderr, and status 125.

use lnk_sandbox::Error;

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
    /// With this text, whose lines are escaped already: the first as
    /// [`Self::Because`], the others as they are.
    At(String),
    /// With everything shown already.
    Told,
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        if let Error::Spec(text) = error {
            return Self::At(text);
        }
        let hint = match &error {
            Error::NotReady(_) => ": 'lnk sandbox ready' tells what is missing",
            _ => "",
        };
        Self::Because(format!("{error}{hint}"))
    }
}
