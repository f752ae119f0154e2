//! `lnk-link-run wake`: gives a harness the ends of background commands as messages.
//!
//! It runs a harness that reads messages as lines of JSON on its standard input, as
//! Claude Code does with `--input-format stream-json`, passes its own input on to it, line
//! by line, and adds a message for each event that comes on a socket.

use std::io::{self, BufRead, BufReader, ErrorKind, Read as _, Write};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use lnk_sandbox::shown::{reason, word};
use serde_json::json;

use crate::events::{Event, is_own};

/// The subcommand.
pub const WAKE: &str = "wake";
/// Bytes of an event at most.
const MAX_EVENT: u64 = 1024 * 1024;
/// How long a server may take to write an event.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs a harness until it ends; its end is this one's. `socket` is what the server's
/// `--events` names. Once `input` has ended, so has the harness's input, and no more events
/// are taken.
///
/// # Errors
/// A line for a socket that can't be made, or a harness that can't be started.
pub fn main(
    socket: &Path,
    harness: &[std::ffi::OsString],
    input: impl BufRead + Send + 'static,
) -> Result<u8, String> {
    let [program, arguments @ ..] = harness else {
        return Err("wake: give the harness and its arguments after --".into());
    };
    if socket.as_os_str().as_encoded_bytes().starts_with(b"fd:") {
        return Err(format!(
            "--events {}: wake listens, so it takes the path of a socket, which the server's \
             --events names too; a descriptor is for a harness that reads events itself",
            word(socket)
        ));
    }
    let listener = Listener::open(socket)
        .map_err(|error| format!("--events {}: {}", word(socket), reason(&error)))?;
    let failed = |error: io::Error| format!("{}: {}", word(program), reason(&error));
    let mut child =
        Command::new(program).args(arguments).stdin(Stdio::piped()).spawn().map_err(failed)?;
    let stdin = Arc::new(Mutex::new(child.stdin.take()));
    let events = listener.listener.try_clone().map_err(failed)?;
    spawn({
        let stdin = stdin.clone();
        move || take_events(&events, &stdin)
    })
    .map_err(failed)?;
    spawn(move || pass_on(input, &stdin)).map_err(failed)?;
    let status = child.wait().map_err(failed)?;
    drop(listener);
    use std::os::unix::process::ExitStatusExt as _;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    Ok(code as u8)
}

fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // It ends with this process.
    thread::Builder::new().spawn(work).map(drop)
}

/// The harness's input, as long as it is open.
type Input = Mutex<Option<ChildStdin>>;

/// A socket that is removed with this value.
struct Listener {
    listener: UnixListener,
    path: PathBuf,
}

impl Listener {
    fn open(path: &Path) -> io::Result<Listener> {
        // One that was left behind, and that nobody listens on.
        let is_socket = path.symlink_metadata().is_ok_and(|it| it.file_type().is_socket());
        let refused = |it: io::Result<_>| {
            it.is_err_and(|error: io::Error| error.kind() == ErrorKind::ConnectionRefused)
        };
        if is_socket && refused(UnixStream::connect(path)) {
            std::fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        let listener = Listener { listener, path: path.to_owned() };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // It is found to be left behind, where it can't be removed.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Passes lines on, whole, so that no message gets into one.
fn pass_on(mut input: impl BufRead, stdin: &Input) {
    let mut line = Vec::new();
    while matches!(input.read_until(b'\n', &mut line), Ok(1..)) {
        if write(stdin, &line).is_err() {
            return;
        }
        line.clear();
    }
    stdin.lock().unwrap_or_else(PoisonError::into_inner).take();
}

fn take_events(listener: &UnixListener, stdin: &Input) {
    for stream in listener.incoming().flatten() {
        // A server that is told that it wasn't taken keeps it.
        let _ = take_event(&stream, stdin);
    }
}

fn take_event(stream: &UnixStream, stdin: &Input) -> io::Result<()> {
    if !is_own(stream) {
        return Err(ErrorKind::PermissionDenied.into());
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(stream.take(MAX_EVENT));
    let mut line = String::new();
    lines.read_line(&mut line)?;
    let event: Event = serde_json::from_str(&line)?;
    write(stdin, message(&event).as_bytes()).inspect_err(|_| {
        let _ = (&*stream).write_all(b"not taken\n");
    })
}

fn write(stdin: &Input, line: &[u8]) -> io::Result<()> {
    let mut stdin = stdin.lock().unwrap_or_else(PoisonError::into_inner);
    let stdin = stdin.as_mut().ok_or(ErrorKind::BrokenPipe)?;
    stdin.write_all(line)?;
    stdin.flush()
}

/// A line that starts a turn, with whose words it is.
fn message(event: &Event) -> String {
    let text = format!(
        "[This message is from the tool run, not from the user. Lines that begin with | are the \
         command's output.]\n{}",
        event.message
    );
    let message = json!({"type": "user", "message": {"role": "user", "content": text}});
    format!("{message}\n")
}
