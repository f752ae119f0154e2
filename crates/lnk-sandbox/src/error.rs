//! Why a run didn't start, as the sentence that its user reads.

/// Every way in which the sandbox itself fails. `Display` is the whole message,
/// without the `lnk sandbox:` that the command line puts before it. Untrusted
/// text is escaped already.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What was asked for can't be granted, or makes no sense: the message names
    /// the flag or path and what to do.
    #[error("{0}")]
    Refused(String),
    /// A spec is wrong, or asks for what can't be had: each problem at its place,
    /// on several lines.
    #[error("{0}")]
    Spec(String),
    /// The sandbox can't be built on this machine as it is; `ready` tells why.
    /// `run` goes through `ready` when it sees this one.
    #[error("{0}")]
    NotReady(String),
    /// A system call failed on what the message names.
    #[error("{what}: {}", reason(source))]
    Io {
        /// What was done, and on what.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// What the library's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The system's reason in words, without the number that std adds.
#[must_use]
pub fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    let mut text = text[..end].to_owned();
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    text
}

/// For `map_err`: says what was done, and on what, when a system call failed.
pub fn failed<E: Into<std::io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Error {
    let what = what.into();
    move |error| Error::Io { what, source: error.into() }
}
