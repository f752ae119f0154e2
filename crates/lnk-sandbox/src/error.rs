//! Why a run didn't start, as the sentence that its user reads.

pub use lnk_spec::shown::reason;

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

/// For `map_err`: says what was done, and on what, when a system call failed.
pub fn failed<E: Into<std::io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Error {
    let what = what.into();
    move |error| Error::Io { what, source: error.into() }
}
