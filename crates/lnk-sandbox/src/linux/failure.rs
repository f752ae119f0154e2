//! Why a launch failed.

use crate::error::{Error, reason};

/// Why a launch failed before the program ran.
#[derive(Debug)]
pub enum LaunchError {
    /// The joiner can't work here; bubblewrap can make the mounts instead.
    JoinerUnsupported(String),
    /// bubblewrap failed, with what it wrote.
    Bwrap(String),
    /// Anything else.
    Other(Error),
}

impl From<Error> for LaunchError {
    fn from(error: Error) -> Self {
        LaunchError::Other(error)
    }
}

/// A call that the kernel lacks, or a filter around `lnk` refuses, before
/// anything ran is the machine's state, which `ready` looks at.
#[must_use]
pub fn name_ready(error: LaunchError) -> LaunchError {
    match error {
        LaunchError::Other(Error::Io { what, source })
            if matches!(source.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) =>
        {
            LaunchError::Other(Error::NotReady(format!("{what}: {}", reason(&source))))
        }
        other => other,
    }
}
