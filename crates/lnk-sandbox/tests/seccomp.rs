//! The filter on the real kernel: Python makes the calls, once without it and
//! once under it, and says what each came to.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;

use lnk_sandbox::linux::seccomp::{Watch, program_filter};
use lnk_sys::{notify, seccomp};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// What every script begins with. `tried(f)` prints the error's name, or `ok`.
const PRELUDE: &str = r#"
import ctypes, errno, fcntl, mmap, os, socket, struct, subprocess, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in arguments])
    if result == -1 and ctypes.get_errno():
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def tried(f):
    try:
        f()
        print('ok')
    except OSError as e:
        print(errno.errorcode[e.errno])
"#;

/// Runs `script` in `folder`, as it is.
fn freely(folder: &Path, script: &str) -> Output {
    python(folder, script).output().expect("python3 runs")
}

/// Runs `script` in `folder` under the filter; each of its connects is answered
/// by `answer`.
fn filtered(
    folder: &Path,
    script: &str,
    answer: impl Fn(&notify::Notification) -> Result<i64, Errno>,
) -> Output {
    let mut command = python(folder, script);
    let (send, listener) = mpsc::channel();
    // A filter is its thread's, and what that thread starts has it too.
    let program = thread::spawn(move || {
        rustix::thread::set_no_new_privs(true)?;
        let filter = program_filter(Watch::Nothing);
        send.send(seccomp::install_with_listener(&filter)?).expect("the test waits");
        command.output()
    });
    let listener = listener.recv().expect("the filter is put on");
    serve(&listener, answer).expect("the listener works");
    program.join().expect("the thread doesn't panic").expect("python3 runs")
}

fn python(folder: &Path, script: &str) -> Command {
    // The system's, not one that a PATH finds: a wrapper in a shell makes
    // connects of its own. A shell without HOME, too, asks the name service.
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", &format!("{PRELUDE}{script}")]).current_dir(folder).stdin(Stdio::null());
    command.env_clear().env("HOME", folder).env("PATH", "/usr/bin:/bin");
    command
}

/// Until nothing with the filter is left.
fn serve(
    listener: &OwnedFd,
    answer: impl Fn(&notify::Notification) -> Result<i64, Errno>,
) -> io::Result<()> {
    let listener = listener.as_fd();
    loop {
        let mut ready = [PollFd::new(&listener, PollFlags::IN)];
        poll(&mut ready, None)?;
        if !ready[0].revents().contains(PollFlags::IN) {
            return Ok(());
        }
        let call = notify::receive(listener)?;
        notify::respond(listener, call.id, answer(&call))?;
    }
}

fn no_connects(call: &notify::Notification) -> Result<i64, Errno> {
    panic!("nothing but the connects of a test is asked about: {call:?}")
}

#[track_caller]
fn expect(output: &Output, lines: &[&str]) {
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(printed.lines().collect::<Vec<_>>(), lines, "{errors}");
    assert!(output.status.success(), "{errors}");
}

/// Both ways, so that a refusal is the filter's.
#[track_caller]
fn differs(script: &str, freely_expected: &[&str], filtered_expected: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    expect(&freely(folder.path(), script), freely_expected);
    let folder = tempfile::tempdir().expect("a folder");
    expect(&filtered(folder.path(), script, no_connects), filtered_expected);
}

#[test]
fn a_file_can_not_be_made_set_user_id() {
    differs(
        r#"
open('f', 'w').close()
tried(lambda: os.chmod('f', 0o755))
tried(lambda: os.chmod('f', 0o4755))
tried(lambda: os.chmod('f', 0o2755))
tried(lambda: os.fchmod(os.open('f', os.O_RDONLY), 0o4755))
tried(lambda: os.open('g', os.O_CREAT | os.O_WRONLY, 0o4755))
tried(lambda: os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o4755))
tried(lambda: os.mknod('h', 0o104755))
tried(lambda: os.mknod('i', 0o100755))
print(oct(os.stat('f').st_mode & 0o6000), os.path.exists('g'), os.path.exists('h'))
"#,
        &["ok", "ok", "ok", "ok", "ok", "ok", "ok", "ok", "0o4000 True True"],
        &["ok", "EPERM", "EPERM", "EPERM", "EPERM", "EPERM", "EPERM", "ok", "0o0 False False"],
    );
}

#[test]
fn the_terminal_can_not_be_typed_into() {
    // TIOCGWINSZ works; TIOCSTI on a terminal that isn't the caller's own is
    // EIO, EPERM or taken, by the kernel's settings and the caller's rights:
    // only under the filter does it say EPERM for what isn't a terminal too.
    let script = r"
import termios
master, terminal = os.openpty()
tried(lambda: fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(8)))
tried(lambda: fcntl.ioctl(os.open('/dev/null', os.O_RDWR), termios.TIOCSTI, b'x'))
libc.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p]
def garbage_above():
    if libc.ioctl(os.open('/dev/null', os.O_RDWR), (1 << 32) | termios.TIOCSTI, b'x'):
        raise OSError(ctypes.get_errno(), '')
tried(garbage_above)
";
    differs(script, &["ok", "ENOTTY", "ENOTTY"], &["ok", "EPERM", "EPERM"]);
}

#[test]
fn sockets_of_other_families_can_not_be_made() {
    let script = r"
for family, kind, protocol in [
    (socket.AF_UNIX, socket.SOCK_STREAM, 0), (socket.AF_INET, socket.SOCK_DGRAM, 0),
    (socket.AF_NETLINK, socket.SOCK_RAW, 0), (socket.AF_NETLINK, socket.SOCK_RAW, 4),
    (socket.AF_UNIX, socket.SOCK_DGRAM, 0), (socket.AF_UNIX, socket.SOCK_RAW, 0),
]:
    tried(lambda: socket.socket(family, kind, protocol).close())
for kind in [socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM, socket.SOCK_RAW]:
    tried(lambda: socket.socketpair(socket.AF_UNIX, kind))
";
    differs(
        script,
        &["ok"; 10],
        &["ok", "ok", "ok", "EAFNOSUPPORT", "EACCES", "EACCES", "ok", "ok", "EACCES", "EACCES"],
    );
}

#[test]
fn vsock_and_kernel_crypto_can_not_be_reached() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = r"
tried(lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM))
tried(lambda: socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET))
";
    let output = filtered(folder.path(), script, no_connects);
    expect(&output, &["EAFNOSUPPORT", "EAFNOSUPPORT"]);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn keyrings_namespaces_and_io_uring_are_closed() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = r"
KEYCTL_GET_KEYRING_ID, SESSION = 0, -3
tried(lambda: call(250, KEYCTL_GET_KEYRING_ID, SESSION, 0))
tried(lambda: call(425, 1, 0))       # io_uring_setup
tried(lambda: call(435, 0, 0))       # clone3
tried(lambda: call(437, -100, 0, 0, 0))  # openat2
tried(lambda: call(272, 0x10000000)) # unshare(CLONE_NEWUSER)
tried(lambda: call(272, 0x80))       # unshare(CLONE_NEWTIME)
tried(lambda: call(272, 0x200))      # unshare(CLONE_FS)
tried(lambda: call(308, 0, 0))       # setns
tried(lambda: call(323, 1))          # userfaultfd(UFFD_USER_MODE_ONLY)
tried(lambda: call(428, -100, 0, 0)) # open_tree
tried(lambda: call(2000))
";
    let output = filtered(folder.path(), script, no_connects);
    expect(
        &output,
        &[
            "EPERM", "ENOSYS", "ENOSYS", "ENOSYS", "EPERM", "EPERM", "ok", "EPERM", "EPERM",
            "EPERM", "ENOSYS",
        ],
    );
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_32_bit_table_and_x32_are_closed() {
    let folder = tempfile::tempdir().expect("a folder");
    // mov eax, 20 (getpid of the 32-bit table); int 0x80; ret
    let script = r"
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex('b814000000cd80c3'))
start = ctypes.addressof(ctypes.c_char.from_buffer(code))
result = ctypes.CFUNCTYPE(ctypes.c_int)(start)()
print('ENOSYS' if result == -errno.ENOSYS else 'ok')
tried(lambda: call(0x40000000 | 39))
";
    let output = filtered(folder.path(), script, no_connects);
    expect(&output, &["ENOSYS", "ENOSYS"]);
}

#[test]
fn connects_go_to_the_listener_and_have_its_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = r"
server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
server.bind('s')
server.listen()
client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
print(os.getpid(), client.fileno(), flush=True)
tried(lambda: client.connect('s'))
tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).connect(('127.0.0.1', 1)))
";
    let asked = std::sync::Mutex::new(Vec::new());
    let output = filtered(folder.path(), script, |call| {
        let mut asked = asked.lock().expect("nobody panics");
        asked.push((i64::from(call.nr), call.pid, call.args[0]));
        if asked.len() == 1 { Err(Errno::ACCESS) } else { Ok(0) }
    });
    let asked = asked.into_inner().expect("nobody panics");
    let [(first, pid, descriptor), (second, ..)] = asked[..] else {
        panic!("two connects: {asked:?}")
    };
    assert_eq!([first, second], [libc::SYS_connect; 2]);
    expect(&output, &[&format!("{pid} {descriptor}"), "EACCES", "ok"]);
}

#[test]
fn ordinary_work_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = r"
os.mkdir('d'); os.rename('d', 'e'); os.symlink('e', 'l')
open('e/f', 'w').write('text')
thread = threading.Thread(target=lambda: print(open('l/f').read()))
thread.start(); thread.join()
print(subprocess.run(['sh', '-c', 'echo a | tr a b'], capture_output=True, text=True).stdout, end='')
memory = mmap.mmap(-1, 4096)
ours, theirs = socket.socketpair()
ours.send(b'sent'); print(theirs.recv(9).decode())
print(len(socket.if_nameindex()) > 0)
";
    let output = filtered(folder.path(), script, no_connects);
    expect(&output, &["text", "b", "sent", "True"]);
}
