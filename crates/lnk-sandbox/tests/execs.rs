//! Programs are named as they are executed: real processes under the filter, and
//! the broker that answers them. Nothing is refused here, as there is no Landlock;
//! what is looked at is what is told, and files in memory.

// Helpers of tests, which Clippy doesn't know for tests.
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use lnk_sandbox::linux::broker::{Broker, Inside};
use lnk_sandbox::linux::execs::{Execs, Executed, How, Mode};
use lnk_sandbox::linux::seccomp::{Watch, program_filter};
use lnk_sandbox::paths::Identity;
use lnk_sandbox::programs::ProgramList;
use lnk_sandbox::programs::start::{self, Start};
use lnk_sys::{seccomp, socket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::net::{AddressFamily, SocketType};

const SH: &str = "/bin/sh";
const PYTHON: &str = "/usr/bin/python3";
const ID: &str = "/usr/bin/id";

/// What every script in Python begins with. `forked(f)` runs it in a child and
/// prints the error's name, if it comes back.
fn prelude() -> String {
    format!(
        r#"
import ctypes, errno, fcntl, mmap, os, subprocess, sys, threading
EXECVE, EXECVEAT, MEMFD, HERE, EMPTY, NOFOLLOW = {}, {}, {}, -100, 0x1000, 0x100
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *[
        ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_long(a) for a in arguments])
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
argv = (ctypes.c_char_p * 2)(b'program', None)
env = (ctypes.c_char_p * 1)(None)
def execve(path):
    call(EXECVE, path, ctypes.addressof(argv), ctypes.addressof(env))
def execveat(folder, path, flags):
    call(EXECVEAT, folder, path, ctypes.addressof(argv), ctypes.addressof(env), flags)
def forked(f, *arguments):
    child = os.fork()
    if child == 0:
        try:
            f(*arguments)
        except OSError as e:
            print(errno.errorcode[e.errno], flush=True)
        os._exit(9)
    os.waitpid(child, 0)
"#,
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_memfd_create
    )
}

/// A folder for what a test executes.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(name)
    }

    /// A program that does nothing, not the same file as any other.
    fn program(&self, name: &str) -> PathBuf {
        fs::copy("/bin/true", self.path(name)).unwrap();
        self.path(name)
    }

    fn script(&self, name: &str, interpreter: &Path) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, format!("#!{}\n", interpreter.display())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn python(&self, script: &str) -> Command {
        let mut command = Command::new(PYTHON);
        command.args(["-u", "-c", &(prelude() + script)]).current_dir(self.0.path());
        command
    }
}

/// What came of a command.
struct Ran {
    stdout: String,
    told: Vec<Executed>,
    left_out: u64,
}

impl Ran {
    /// What was told, as the path asked for, the real one and how.
    fn told(&self) -> Vec<(&[u8], &Path, How)> {
        let told = self.told.iter();
        told.map(|each| (&*each.asked, &*each.real, each.how.clone())).collect()
    }

    #[track_caller]
    fn refused(&self, paths: &[&Path]) {
        let refused = |path: &&Path| (path.as_os_str().as_bytes().to_vec(), How::Refused);
        let told: Vec<_> =
            self.told.iter().map(|each| (each.asked.clone(), each.how.clone())).collect();
        assert_eq!(told, paths.iter().map(refused).collect::<Vec<_>>());
    }
}

/// Runs a command under the filter, and everything it executes is heard of.
fn run(mut command: Command, watch: Watch, mode: Mode, writable: &[&Path]) -> Ran {
    command.env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    let execs = Execs::new(root(), mode, writable.iter().map(PathBuf::from).collect()).unwrap();
    assert!(!is_ready(&execs));
    let (send, listener) = mpsc::channel();
    // A filter is its thread's, and what that thread starts has it too.
    let program = thread::spawn(move || {
        rustix::thread::set_no_new_privs(true).unwrap();
        send.send(seccomp::install_with_listener(&program_filter(watch)).unwrap()).unwrap();
        command.output()
    });
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let netns_cookie = socket::netns_cookie(&socket).unwrap();
    let inside = Inside { root: root(), private: vec![], diag: None, netns_cookie, unheard: None };
    let mut broker = Broker::new(listener.recv().unwrap(), inside, Some(execs.answers()));
    broker.start().unwrap();
    let output = program.join().unwrap().expect("the command starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.is_empty(), "{stderr}");
    let mut told = Vec::new();
    while is_ready(&execs) {
        told.push(execs.next().expect("it was said to be ready"));
    }
    assert_eq!(execs.next(), None);
    let stdout = String::from_utf8(output.stdout).unwrap();
    Ran { stdout, told, left_out: execs.left_out() }
}

fn root() -> OwnedFd {
    rustix::fs::open("/", OFlags::PATH, rustix::fs::Mode::empty()).unwrap()
}

fn is_ready(execs: &Execs) -> bool {
    let mut fd = [PollFd::from_borrowed_fd(execs.fd(), PollFlags::IN)];
    poll(&mut fd, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
}

/// A list of these programs and their loaders.
fn list(programs: &[&Path]) -> ProgramList {
    let mut list = ProgramList::default();
    for program in programs {
        let real = program.canonicalize().unwrap();
        if let Start::Elf { loader: Some(loader) } =
            start::of_file(&File::open(&real).unwrap()).unwrap()
        {
            list.loaders.push(loader.canonicalize().unwrap());
        }
        list.files.push((real.clone(), Identity::from(&rustix::fs::stat(&real).unwrap())));
    }
    list
}

fn listed(command: Command, programs: &[&Path]) -> Ran {
    run(command, Watch::ExecsAndMemfds, Mode::List(list(programs)), &[])
}

/// Lists Python alone.
fn from_python(folder: &Folder, script: &str) -> Ran {
    listed(folder.python(script), &[Path::new(PYTHON)])
}

fn sh(script: &str) -> Command {
    let mut command = Command::new(SH);
    command.args(["-c", script]);
    command
}

/// Everything here again as an ordinary user, where root runs the tests.
#[test]
fn as_an_ordinary_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let status = Command::new("setpriv")
        .args(["--reuid", "1001", "--regid", "1001", "--clear-groups"])
        .arg(std::env::current_exe().unwrap())
        .env("TMPDIR", "/tmp")
        .status()
        .expect("util-linux is installed");
    assert!(status.success());
}

#[test]
fn a_program_that_isnt_listed_is_named_once() {
    let ran = listed(sh("/usr/bin/id; id; /bin/id; exec id -u"), &[Path::new(SH)]);
    assert!(!ran.stdout.is_empty());
    ran.refused(&[Path::new(ID)]);
    assert_eq!(ran.told[0].real, Path::new(ID));
    assert_eq!(ran.told[0].identity, Identity::from(&rustix::fs::stat(ID).unwrap()));

    let ran = listed(sh("/usr/bin/id; exec id -u"), &[SH, ID].map(Path::new));
    assert!(!ran.stdout.is_empty());
    ran.refused(&[]);
}

#[test]
fn a_folder_of_programs_is_listed() {
    let folder = Folder::new();
    let inside = folder.program("inside");
    let mut allowed = list(&[Path::new(SH)]);
    allowed.folders.push((folder.path(""), Identity { device: 0, inode: 0 }));
    let script = sh(&format!("{}; /usr/bin/id", inside.display()));
    run(script, Watch::Execs, Mode::List(allowed), &[]).refused(&[Path::new(ID)]);
}

#[test]
fn a_search_names_only_what_could_be_executed() {
    let folder = Folder::new();
    fs::create_dir(folder.path("plain")).unwrap();
    fs::write(folder.path("plain/id"), "no program").unwrap();
    fs::create_dir_all(folder.path("folder/id")).unwrap();
    let search = "os.environ['PATH'] = '/nowhere:{}/plain:{}/folder:/usr/bin'\n\
                  subprocess.run(['id'], stdout=subprocess.DEVNULL)\n\
                  os.system('id > /dev/null')\n";
    let here = folder.path("");
    let search = search.replace("{}", here.to_str().unwrap().trim_end_matches('/'));
    let ran = listed(folder.python(&search), &[PYTHON, SH].map(Path::new));
    ran.refused(&[Path::new(ID)]);
}

#[test]
fn every_way_to_ask_is_named() {
    let folder = Folder::new();
    fs::create_dir(folder.path("sub")).unwrap();
    let names = ["cwd", "sub/chdir", "sub/dirfd", "empty", "own", "thread", "dev", "process"];
    let programs = names.map(|name| folder.program(name));
    symlink("linked", folder.path("link")).unwrap();
    folder.program("linked");
    let ran = from_python(
        &folder,
        r#"
forked(execve, b'./cwd')
forked(lambda: (os.chdir('sub'), execve(b'../sub/chdir')))
sub = os.open('sub', os.O_PATH)
forked(execveat, sub, b'dirfd', 0)
descriptors = {n: os.open(n, os.O_RDONLY) for n in ['empty', 'own', 'thread', 'dev', 'process']}
forked(execveat, descriptors['empty'], b'', EMPTY)
forked(execve, b'/proc/self/fd/%d' % descriptors['own'])
forked(execve, b'/proc/thread-self/fd/%d' % descriptors['thread'])
forked(execve, b'/dev/fd/%d' % descriptors['dev'])
parent = os.getpid()
forked(execve, b'/proc/%d/fd/%d' % (parent, descriptors['process']))
forked(execveat, HERE, b'link', NOFOLLOW)
forked(execveat, HERE, b'link', 0)
"#,
    );
    let mut expected: Vec<PathBuf> = programs.to_vec();
    // As asked, with the folder in front.
    expected[1] = folder.path("sub/../sub/chdir");
    expected.push(folder.path("link"));
    ran.refused(&expected.iter().map(|path| &**path).collect::<Vec<_>>());
    let real: Vec<PathBuf> = ran.told.iter().map(|told| told.real.clone()).collect();
    let reals = programs.into_iter().chain([folder.path("linked")]);
    assert_eq!(real, reals.collect::<Vec<_>>());
    assert_eq!(ran.stdout, "ELOOP\n");
}

#[test]
fn a_program_that_runs_itself_again_is_named() {
    let folder = Folder::new();
    let script = "import os; os.execv('/proc/self/exe', ['python3', '-c', 'pass'])";
    let mut command = Command::new(PYTHON);
    command.args(["-c", script]).current_dir(folder.path(""));
    let real = Path::new(PYTHON).canonicalize().unwrap();
    let ran = run(command, Watch::Execs, Mode::List(ProgramList::default()), &[]);
    assert_eq!(ran.told().len(), 1, "once, by its file: {:?}", ran.told());
    assert_eq!(ran.told[0].real, real);
}

#[test]
fn what_can_not_be_read_goes_on_without_a_name() {
    let folder = Folder::new();
    folder.program("end");
    let ran = from_python(
        &folder,
        r#"
pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
at = ctypes.addressof(ctypes.c_char.from_buffer(pages))
libc.mprotect(ctypes.c_void_p(at + mmap.PAGESIZE), ctypes.c_size_t(mmap.PAGESIZE), 0)
unterminated = b'./end!!'
ctypes.memmove(at + mmap.PAGESIZE - len(unterminated), unterminated, len(unterminated))
forked(execve, at + mmap.PAGESIZE - len(unterminated))
forked(execve, 8)
forked(execve, -3)
forked(execve, b'')
forked(execve, b'/' + b'x' * 5000)
forked(execve, b'/usr')
forked(execveat, 77, b'end', 0)
forked(execveat, 77, b'', EMPTY)
forked(execveat, 77, b'', 0)
forked(execve, b'/proc/self/fd/77')
ending = b'./end\0'
ctypes.memmove(at + mmap.PAGESIZE - len(ending), ending, len(ending))
forked(execve, at + mmap.PAGESIZE - len(ending))
"#,
    );
    let errors = "EFAULT EFAULT EFAULT ENOENT ENAMETOOLONG EACCES EBADF EBADF ENOENT ENOENT";
    assert_eq!(ran.stdout.split_whitespace().collect::<Vec<_>>().join(" "), errors);
    ran.refused(&[&folder.path("end")]);
}

#[test]
fn a_script_needs_its_interpreters() {
    let folder = Folder::new();
    let interpreter = folder.program("interpreter");
    let relative = folder.program("relative");
    let script = folder.script("script", &interpreter);
    let of_script = folder.script("of_script", &script);
    let of_relative = folder.script("of_relative", Path::new("relative"));
    let run = "[forked(execve, p) for p in [b'./of_script', b'./of_relative']]";
    let python = Path::new(PYTHON);

    let ran = listed(folder.python(run), &[python, &script, &of_script, &of_relative]);
    assert_eq!(
        ran.told(),
        [
            (interpreter.as_os_str().as_bytes(), &*interpreter, How::InterpreterOf(script.clone())),
            (relative.as_os_str().as_bytes(), &*relative, How::InterpreterOf(of_relative.clone())),
        ]
    );
    // One that is refused starts nothing.
    let ran = listed(folder.python(run), &[python, &of_script, &of_relative, &relative]);
    assert_eq!(
        ran.told(),
        [(script.as_os_str().as_bytes(), &*script, How::InterpreterOf(of_script.clone()))]
    );
    let all = [python, &script, &of_script, &of_relative, &relative, &interpreter];
    listed(folder.python(run), &all).refused(&[]);
}

#[test]
fn interpreters_are_followed_as_far_as_the_kernel_does() {
    let folder = Folder::new();
    let mut last = folder.path("0");
    symlink("0", &last).unwrap();
    for number in 1..10 {
        last = folder.script(&number.to_string(), &last);
    }
    let all: Vec<PathBuf> = (1..10).map(|number| folder.path(&number.to_string())).collect();
    let command = folder.python("forked(execve, b'./9')");
    let ran = run(command, Watch::Execs, Mode::Learn, &[]);
    assert_eq!(ran.stdout, "ELOOP\n");
    let told: Vec<_> = ran.told.iter().map(|told| told.real.clone()).skip(1).collect();
    assert_eq!(told, all.into_iter().rev().take(6).collect::<Vec<_>>());
}

#[test]
fn loaders_are_told_from_programs() {
    let Start::Elf { loader: Some(loader) } = start::of_file(&File::open(SH).unwrap()).unwrap()
    else {
        return;
    };
    let real = loader.canonicalize().unwrap();
    let mut without_loaders = list(&[Path::new(SH)]);
    without_loaders.loaders.clear();
    let ran = run(sh(":"), Watch::Execs, Mode::List(without_loaders), &[]);
    let sh_real = Path::new(SH).canonicalize().unwrap();
    let loader_of = How::LoaderOf(sh_real);
    assert_eq!(ran.told(), [(loader.as_os_str().as_bytes(), &*real, loader_of)]);

    let direct = sh(&format!("{} /usr/bin/id", loader.display()));
    let ran = listed(direct, &[Path::new(SH)]);
    assert_eq!(ran.told(), [(loader.as_os_str().as_bytes(), &*real, How::Loader)]);
}

#[test]
fn what_has_no_path_is_told_as_such() {
    let folder = Folder::new();
    let (removed, replaced) = (folder.program("removed"), folder.program("replaced"));
    let script = r#"
program = open('/bin/true', 'rb').read()
memory = call(MEMFD, b'in\nmemory', 0)
os.write(memory, program)
forked(execveat, memory, b'', EMPTY)
forked(execve, b'/proc/self/fd/%d' % memory)
removed, replaced = [os.open(n, os.O_RDONLY) for n in ['removed', 'replaced']]
os.unlink('removed')
forked(execveat, removed, b'', EMPTY)
os.link('replaced', 'kept')
os.rename('other', 'replaced')
forked(execveat, replaced, b'', EMPTY)
forked(execve, b'./removed (deleted)')
"#;
    folder.program("other");
    let named = folder.program("removed (deleted)");
    let mode = Mode::List(list(&[Path::new(PYTHON)]));
    // The files in memory aren't watched, so one can be executed.
    let ran = run(folder.python(script), Watch::Execs, mode, &[]);
    assert_eq!(ran.stdout, "");
    let gone = |path: &Path| PathBuf::from(format!("{} (deleted)", path.display()));
    let real: Vec<_> = ran.told.iter().map(|told| (told.real.clone(), told.how.clone())).collect();
    assert_eq!(
        real,
        [
            (PathBuf::from("/memfd:in\nmemory (deleted)"), How::Nameless),
            (gone(&removed), How::Nameless),
            (gone(&replaced), How::Nameless),
            (named, How::Refused),
        ]
    );
}

#[test]
fn what_the_sandbox_can_change_is_looked_at_anew() {
    let folder = Folder::new();
    folder.program("one");
    folder.program("two");
    let script = "
os.symlink('one', 'link')
path = os.getcwd().encode() + b'/link'
for _ in range(3): forked(execve, path)
os.unlink('link')
os.symlink('two', 'link')
forked(execve, path)
";
    let ran = |writable: &[&Path]| {
        let _ = fs::remove_file(folder.path("link"));
        let mode = Mode::List(list(&[Path::new(PYTHON), &folder.path("one")]));
        run(folder.python(script), Watch::Execs, mode, writable)
    };
    ran(&[&folder.path("")]).refused(&[&folder.path("link")]);
    // What nothing inside can change is looked at once.
    ran(&[]).refused(&[]);
}

#[test]
fn a_fixed_link_to_what_the_sandbox_can_change_is_looked_at_anew() {
    let folder = Folder::new();
    fs::create_dir(folder.path("work")).unwrap();
    let now = folder.program("work/now");
    folder.program("work/next");
    let link = folder.path("link");
    symlink("work/now", &link).unwrap();
    let script = "
path = os.getcwd().encode() + b'/link'
for _ in range(3): forked(execve, path)
os.rename('work/next', 'work/now')
forked(execve, path)
";
    let mode = Mode::List(list(&[Path::new(PYTHON), &now]));
    let ran = run(folder.python(script), Watch::Execs, mode, &[&folder.path("work")]);
    ran.refused(&[&link]);
}

#[test]
fn all_that_is_started_is_learnt_once() {
    let folder = Folder::new();
    let script = folder.script("script", Path::new(SH));
    let mut command = sh("./script; ./script; id; command -v nothing-of-this-name || :");
    command.current_dir(folder.path(""));
    let ran = run(command, Watch::Execs, Mode::Learn, &[]);
    let sh_real = Path::new(SH).canonicalize().unwrap();
    assert_eq!(
        ran.told(),
        [
            (SH.as_bytes(), &*sh_real, How::Run),
            (script.as_os_str().as_bytes(), &*script, How::Run),
            (ID.as_bytes(), Path::new(ID), How::Run),
        ]
    );

    let interpreter = folder.program("interpreter");
    let other = folder.script("other", &interpreter);
    let mut command = sh("./other");
    command.current_dir(folder.path(""));
    let ran = run(command, Watch::Execs, Mode::Learn, &[]);
    let as_interpreter = How::InterpreterOf(other.clone());
    assert_eq!(ran.told()[2], (interpreter.as_os_str().as_bytes(), &*interpreter, as_interpreter));
}

#[test]
fn a_program_that_may_not_be_executed_is_not_named() {
    let folder = Folder::new();
    let closed = folder.program("closed");
    let unread = folder.program("unread");
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(&closed, 0o644);
    mode(&unread, 0o111);
    let script = "forked(execve, b'./closed'); forked(execve, b'./unread')";
    let ran = from_python(&folder, script);
    assert_eq!(ran.stdout, "EACCES\n");
    ran.refused(&[&unread]);
}

#[test]
fn files_in_memory_work_but_for_execution() {
    let script = r#"
def says(f, *arguments):
    try:
        print(f(*arguments))
    except OSError as e:
        print(errno.errorcode[e.errno])
def seals(memory):
    # Whether it can't be executed isn't compared.
    return fcntl.fcntl(memory, fcntl.F_GET_SEALS) & ~0x20
memory = os.memfd_create('some name', os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
os.write(memory, b'contents')
print(os.pread(memory, 99, 0), os.readlink('/proc/self/fd/%d' % memory), seals(memory))
print(fcntl.fcntl(memory, fcntl.F_GETFD), fcntl.fcntl(memory, fcntl.F_GETFL))
print(mmap.mmap(memory, 8)[:])
mmap.mmap(memory, 8, prot=mmap.PROT_READ | mmap.PROT_EXEC).close()
fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
says(os.write, memory, b'more')
print(seals(memory))
plain = os.memfd_create('', 0)
print(fcntl.fcntl(plain, fcntl.F_GETFD), seals(plain), os.fstat(plain).st_nlink)
says(fcntl.fcntl, plain, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
print(len(os.readlink('/proc/self/fd/%d' % os.memfd_create('x' * 249))))
says(os.memfd_create, 'x' * 250)
says(call, MEMFD, b'a', 0x20)
says(call, MEMFD, b'a', 0x18)
says(call, MEMFD, 8, 0)
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (os.dup(0), 100))
says(os.memfd_create, 'one too many')
"#;
    let folder = Folder::new();
    let freely = folder.python(script).output().unwrap();
    let freely = String::from_utf8(freely.stdout).unwrap();
    assert!(freely.ends_with("EFAULT\nEMFILE\n"), "{freely}");
    let ran = from_python(&folder, script);
    assert_eq!(ran.stdout, freely);
    ran.refused(&[]);
}

#[test]
fn files_in_memory_can_not_be_executed() {
    let script = r#"
memory = os.memfd_create('program', os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
os.write(memory, open('/bin/true', 'rb').read())
forked(execveat, memory, b'', EMPTY)
forked(execve, b'/proc/self/fd/%d' % memory)
forked(lambda: os.execve(memory, ['x'], {}))
for mode in [0o777, 0o111]:
    try: os.fchmod(memory, mode)
    except OSError as e: print(errno.errorcode[e.errno])
forked(lambda: print(call(MEMFD, b'executable', 0x10)))
"#;
    let folder = Folder::new();
    let ran = from_python(&folder, script);
    assert_eq!(ran.stdout, "EACCES\nEACCES\nEACCES\nEPERM\nEPERM\nEACCES\n");
    ran.refused(&[]);

    // Unwatched it is executed: what fails above is this fence.
    let ran = run(folder.python(script), Watch::Execs, Mode::Learn, &[]);
    assert!(!ran.stdout.starts_with("EACCES"), "{}", ran.stdout);
    assert!(ran.told.iter().any(|told| told.how == How::Nameless));
}

#[test]
fn eight_threads_at_once_are_all_heard() {
    let folder = Folder::new();
    for thread in 0..8 {
        for program in 0..20 {
            folder.program(&format!("{thread}-{program}"));
        }
    }
    let script = "
def start(thread):
    for program in range(20):
        subprocess.run([f'./{thread}-{program}'], check=True)
        os.close(os.memfd_create('a'))
threads = [threading.Thread(target=start, args=(n,)) for n in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
";
    let ran = from_python(&folder, script);
    assert_eq!(ran.told.len(), 160);
    assert!(ran.told.iter().all(|told| told.how == How::Refused));
    assert_eq!(ran.left_out, 0);
}

/// In a process of its own: descriptors are the whole process's.
#[test]
fn a_thousand_execs_leave_no_descriptor() {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "execute_a_thousand_times"])
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
#[ignore = "run by a_thousand_execs_leave_no_descriptor"]
fn execute_a_thousand_times() {
    let folder = Folder::new();
    let script = folder.script("script", Path::new("/bin/true"));
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    let program = "
for number in range(250):
    memory = os.memfd_create('a')
    descriptor = os.open('script', os.O_RDONLY)
    forked(execve, b'./script')
    forked(execve, b'/usr/bin/true')
    forked(execveat, descriptor, b'', EMPTY)
    forked(execve, b'/proc/self/fd/%d' % memory)
    os.close(descriptor)
    os.close(memory)
";
    let run = |program: &str| listed(folder.python(program), &[Path::new(PYTHON), &script]);
    // What is opened once and kept isn't counted.
    run(&program.replace("250", "1"));
    let before = open();
    run(program);
    // The broker's threads let go of theirs a moment after it has ended, those of
    // the first run too.
    let deadline = Instant::now() + Duration::from_secs(10);
    while open() > before && Instant::now() < deadline {
        thread::yield_now();
    }
    assert!(open() <= before, "{} and {before}", open());
}
