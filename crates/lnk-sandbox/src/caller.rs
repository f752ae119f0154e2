//! Who runs the sandbox, and from where.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// What a run needs to know of the process that asked for it. The command line
/// gathers it once; the library reads neither environment nor working folder.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The caller's environment, in its order.
    pub env: Vec<(OsString, OsString)>,
    /// The caller's working folder, absolute, as `getcwd(2)` or `$PWD` gives it.
    pub cwd: PathBuf,
    /// Path of the running `lnk` binary, started again inside the sandbox.
    pub own_binary: PathBuf,
    /// Real user id.
    pub uid: u32,
    /// Real group id.
    pub gid: u32,
}

impl Caller {
    /// The value of a variable of the caller's environment; of two with one
    /// name the first counts, as with `getenv(3)`.
    pub fn var(&self, name: &str) -> Option<&OsStr> {
        self.env.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str())
    }
}
