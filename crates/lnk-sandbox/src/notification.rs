//! A desktop notification, where there is a desktop.

use std::fs::symlink_metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::caller::Caller;

/// notify-send(1), which libnotify has.
const PROGRAM: &str = "notify-send";
/// Where it is, if anywhere.
const FOLDERS: [&str; 3] = ["/usr/bin", "/bin", "/usr/local/bin"];
/// What leads to the caller's desktop.
const VARIABLES: [&str; 4] =
    ["DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "DISPLAY", "WAYLAND_DISPLAY"];
/// How long it may take to be started.
const PATIENCE: Duration = Duration::from_secs(1);

/// Shows a notification, where that can be; else there is none. It never waits for
/// whoever shows it.
pub fn show(title: &str, body: &str, caller: &Caller) {
    let variables: Vec<_> =
        VARIABLES.iter().filter_map(|name| Some((*name, caller.var(name)?))).collect();
    let Some(program) = find().filter(|_| !variables.is_empty()) else { return };
    let mut command = Command::new(program);
    command
        .args(["--app-name=Link", "--urgency=critical", "--", title, &escaped(body)])
        .env_clear()
        .envs(variables)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let (started, starts) = mpsc::channel();
    // It stays the child of a thread of its own, so that the end of a run, which ends
    // what is left of the sandbox, leaves it alone.
    let wait = move || {
        let child = command.spawn();
        let _ = started.send(());
        let _ = child.and_then(|mut child| child.wait());
    };
    if thread::Builder::new().name("notification".to_owned()).spawn(wait).is_ok() {
        let _ = starts.recv_timeout(PATIENCE);
    }
}

/// The program, if nobody but root could have put it there.
fn find() -> Option<PathBuf> {
    let is_roots = |path: &Path| {
        let found = symlink_metadata(path);
        found.is_ok_and(|it| it.uid() == 0 && (it.is_symlink() || it.mode() & 0o022 == 0))
    };
    let found = |folder: &&str| {
        let real = Path::new(folder).join(PROGRAM).canonicalize().ok()?;
        (real.is_file() && real.ancestors().all(is_roots)).then_some(real)
    };
    FOLDERS.iter().find_map(found)
}

/// As text of a body, which may have markup (Desktop Notifications 1.3).
fn escaped(body: &str) -> String {
    body.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_markup() {
        assert_eq!(escaped("<b>a & b</b>"), "&lt;b&gt;a &amp; b&lt;/b&gt;");
    }
}
