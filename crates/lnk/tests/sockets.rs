//! Unix sockets of the host are out of reach, by every way to them; sockets of
//! the sandbox's own work as anywhere.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;

use testkit::{Call, Run, Running, TestEnv};

/// What the scripts start with. `connect(path)` prints the outcome of one
/// connect, `served` answers one connection to a listening socket on a thread.
const PYTHON: &str = "\
import array, errno, os, select, socket, subprocess, sys, threading
def outcome(action):
    try: return action() or 'ok'
    except OSError as error: return errno.errorcode[error.errno]
def connect(address, kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_UNIX, kind) as s:
        print(address if isinstance(address, str) else address.decode(errors='replace').strip('\\0'),
              outcome(lambda: s.connect(address)), flush=True)
def listener(address, kind=socket.SOCK_STREAM):
    s = socket.socket(socket.AF_UNIX, kind)
    s.bind(address)
    s.listen(5)
    return s
def served(s, answer=b'hello'):
    def serve():
        peer, _ = s.accept()
        peer.sendall(answer)
        peer.close()
    threading.Thread(target=serve, daemon=True).start()
def says(address, kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_UNIX, kind) as s:
        s.connect(address)
        return s.recv(100).decode()
";

/// `lnk sandbox run GRANTS -- python3`, with this script.
fn inside(env: &TestEnv, grants: &[&str], script: &str) -> Call {
    let script = env.write(env.outside().join("scripts/try.py"), format!("{PYTHON}{script}"));
    let mut words = vec!["sandbox", "run"];
    words.extend(grants);
    let scripts = script.parent().expect("a file has a folder").to_str().expect("is UTF-8");
    words.extend(["--read", scripts, "--", "/usr/bin/python3", script.to_str().expect("is UTF-8")]);
    env.lnk(words)
}

/// A socket of the host's that notices who gets through.
struct Bait(UnixListener);

impl Bait {
    /// Anyone may connect to it; the folders are the user's.
    fn at(env: &TestEnv, path: impl AsRef<Path>) -> Bait {
        let path = env.project().join(path);
        env.folder(path.parent().expect("a socket has a folder"));
        let socket = UnixListener::bind(&path).expect("the path is free and short enough");
        let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(&path, everyone).expect("own socket");
        // Only its owner may give it further names (fs.protected_hardlinks).
        std::os::unix::fs::chown(&path, Some(env.user.uid), Some(env.user.gid))
            .expect("only root makes files for others");
        socket.set_nonblocking(true).expect("own socket");
        Bait(socket)
    }

    #[track_caller]
    fn untouched(&self) {
        assert!(self.0.accept().is_err(), "a program in the sandbox got through");
    }
}

/// A project with a listener of the host's, `host`, that a program outside does
/// reach.
fn with_bait(env: &TestEnv) -> Bait {
    let bait = Bait::at(env, "host");
    env.write("control.py", format!("{PYTHON}connect('host')"));
    env.program("/usr/bin/python3", ["control.py"]).run().ok().prints("host ok\n");
    bait.0.accept().expect("the control came through");
    bait
}

#[test]
fn the_hosts_sockets_by_every_path() {
    testkit::each!(|env| {
        let bait = with_bait(env);
        env.folder("sub");
        env.link("host", "link");
        env.link("link", "link2");
        env.link(env.project().join("host"), "absolute");
        env.link("..", "sub/up");
        fs::hard_link(env.project().join("host"), env.project().join("sub/hard"))
            .expect("one file system");
        let script = "
whole = os.getcwd()
connect('host')
connect(whole + '/host')
connect('./sub/../host')
connect('//' + whole + '///host')
connect('link')
connect('link2')
connect('absolute')
connect('sub/up/host')
connect('sub/hard')
connect('/proc/self/cwd/host')
connect('/proc/self/root' + whole + '/host')
connect(b'host')
connect(b'host\\0junk')
connect('host', socket.SOCK_SEQPACKET)
folder = os.open('.', os.O_RDONLY)
connect(f'/proc/self/fd/{folder}/host')
connect(f'/dev/fd/{folder}/sub/hard')
held = os.open('host', os.O_PATH)
connect(f'/proc/self/fd/{held}')
connect(f'/proc/{os.getpid()}/fd/{held}')
os.chdir('sub')
connect('../host')
connect('hard')
try:
    os.link('../host', 'again'); connect('again')
    os.rename('hard', 'renamed'); connect('renamed')
    os.symlink(whole + '/host', '/tmp/l'); connect('/tmp/l')
except OSError as error: assert error.errno == errno.EROFS, error
if os.fork() == 0:
    os.chdir('/')
    connect(whole[1:] + '/host')
    os._exit(0)
os.wait()
";
        for grant in ["--read", "--write"] {
            // Names of hard links and renames of one run aren't the next one's.
            let run = inside(env, &[grant, "."], script).run().ok();
            bait.untouched();
            let tried = run.stdout.lines().count();
            assert!(tried == if grant == "--read" { 21 } else { 24 }, "{run}");
            assert!(run.stdout.matches(" EACCES\n").count() >= tried - 3, "{run}");
            for line in run.stdout.lines() {
                // The links of /proc lead nowhere, but for the caller's descriptors.
                let refused = ["EACCES", "ELOOP", "ENOENT"].iter().any(|how| line.ends_with(how));
                assert!(refused, "{line}\n{run}");
            }
        }
    });
}

#[test]
fn a_socket_of_the_hosts_below_a_bind_mount() {
    testkit::each!(|env| {
        let bait = Bait::at(env, "real/host");
        let bound = env.folder("bound");
        let file = env.write("file", "");
        inside(env, &["--write", "."], "connect('bound/host')\nconnect('file')")
            .replaced(bound, env.project().join("real"))
            .replaced(file, env.project().join("real/host"))
            .run()
            .ok()
            .prints("bound/host EACCES\nfile EACCES\n");
        bait.untouched();
    });
}

/// The sockets that others' tools leave in a home: whoever reaches one of them
/// has an agent's keys, or the machine.
#[test]
fn agents_and_engines_in_the_home() {
    testkit::each!(|env| {
        let names = [
            ".docker/run/docker.sock",
            ".gnupg/S.gpg-agent",
            ".ssh/agent/s.1",
            ".1password/agent.sock",
            ".colima/default/docker.sock",
            ".local/share/containers/podman.sock",
            "code/vscode-ipc.sock",
        ];
        let baits: Vec<Bait> =
            names.iter().map(|name| Bait::at(env, env.home().join(name))).collect();
        let script = format!("for name in {names:?}: connect(os.path.expanduser('~/' + name))");
        let run = inside(env, &["--read", "~"], &script).run().ok();
        baits.iter().for_each(Bait::untouched);
        let refused = run
            .stdout
            .lines()
            .filter(|line| ["EACCES", "ENOENT"].iter().any(|how| line.ends_with(how)));
        assert!(refused.count() == names.len(), "{run}");
        run.stdout_has("docker.sock EACCES\n");
    });
}

#[test]
fn a_refused_socket_is_named_at_the_end_on_a_terminal_only() {
    testkit::each!(|env| {
        let bait = with_bait(env);
        let script = "connect('host')\nconnect('host')\nprint('d' + 'one')";
        inside(env, &["--read", "."], script).run().ok().quiet();
        let mut terminal = inside(env, &["--read", "."], script).terminal(24, 200);
        terminal.shows("done").shows("refused the socket");
        assert_eq!(terminal.wait_exit(), 0);
        let screen = terminal.screen();
        let footer: Vec<&str> = screen.lines().filter(|line| line.contains("refused")).collect();
        assert_eq!(footer.len(), 1, "{screen}");
        let path = env.project().join("host");
        assert!(footer[0].contains(path.to_str().expect("is UTF-8")), "{screen}");
        bait.untouched();
    });
}

#[test]
fn a_refused_sockets_name_doesnt_drive_the_terminal() {
    testkit::each!(|env| {
        let bait = Bait::at(env, "a\u{1b}[2J\u{1b}]0;x\u{7}\nlnk sandbox: all is well");
        let script = "connect([n for n in os.listdir() if 'all is' in n][0]) or print('d' + 'one')";
        let mut terminal = inside(env, &["--read", "."], script).terminal(24, 240);
        terminal.shows("refused the socket");
        assert_eq!(terminal.wait_exit(), 0);
        let screen = terminal.screen();
        assert!(screen.contains("\\x1b[2J") || screen.contains("\\u{1b}"), "{screen}");
        // Only the program itself printed the line break.
        let ours = screen.lines().filter(|line| line.starts_with("lnk sandbox:")).count();
        assert!(ours <= 2, "{screen}");
        bait.untouched();
    });
}

#[test]
fn sockets_made_inside() {
    testkit::each!(|env| {
        let run = inside(
            env,
            &["--write", "."],
            "
os.mkdir('deep')
places = ['./own', '/tmp/own', os.path.expanduser('~/own'), '/dev/shm/own', '/run/own', 'deep/own']
for place in places:
    for kind, name in ((socket.SOCK_STREAM, 'stream'), (socket.SOCK_SEQPACKET, 'seqpacket')):
        s = listener(place + name, kind)
        served(s)
        print(name, says(place + name, kind), flush=True)
        s.close()
        # Nobody listens any more: whether a file of the host's is bound can't be told.
        gone = outcome(lambda: says(place + name, kind))
        assert gone in ('ECONNREFUSED', 'EACCES'), gone
        os.unlink(place + name)
        assert outcome(lambda: says(place + name, kind)) == 'ENOENT'
s = listener('moved'); os.rename('moved', 'deep/there'); os.symlink('deep/there', 'by')
served(s); print('renamed', says('deep/there')); served(s); print('linked', says('by'))
s = listener(b'\\0abstract'); served(s); print('abstract', says(b'\\0abstract'))
# A child that another socket was handed to.
s = listener('child')
if os.fork() == 0:
    peer, _ = s.accept(); peer.sendall(b'from a child'); os._exit(0)
print(says('child')); os.wait()
",
        )
        .run()
        .ok();
        let six = "stream hello\nseqpacket hello\n".repeat(6);
        run.prints(&format!("{six}renamed hello\nlinked hello\nabstract hello\nfrom a child\n"));
    });
}

#[test]
fn datagrams_are_refused_at_the_socket() {
    testkit::each!(|env| {
        let bait = std::os::unix::net::UnixDatagram::bind(env.project().join("log"))
            .expect("the path is free");
        bait.set_nonblocking(true).expect("own socket");
        inside(
            env,
            &["--write", "."],
            "
print(outcome(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)))
print(outcome(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)))
# A stream socket takes no address in a send.
s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
print(outcome(lambda: s.sendto(b'x', 'log')))
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
print(outcome(lambda: a.sendto(b'x', 'log')))
",
        )
        .run()
        .ok()
        .stdout_has("EACCES\nEACCES\n")
        .has_not("Traceback");
        assert!(bait.recv(&mut [0; 8]).is_err(), "a datagram got through");
    });
}

#[test]
fn abstract_sockets_of_the_host() {
    use std::os::linux::net::SocketAddrExt as _;
    testkit::each!(|env| {
        let name = format!("lnk-test-{}", env.outside().display());
        let address =
            std::os::unix::net::SocketAddr::from_abstract_name(&name).expect("short enough");
        let bait = Bait(UnixListener::bind_addr(&address).expect("the name is free"));
        bait.0.set_nonblocking(true).expect("own socket");
        let script = format!("{PYTHON}connect(b'\\0{name}')");
        env.program("/usr/bin/python3", ["-c", &script]).run().ok().prints(&format!("{name} ok\n"));
        bait.0.accept().expect("the control came through");
        inside(
            env,
            &["--read", "."],
            &format!("connect(b'\\0{name}')\nprint(open('/proc/net/unix').read())"),
        )
        .run()
        .ok()
        .stdout_has(&format!("{name} ECONNREFUSED\n"));
        bait.untouched();
    });
}

#[test]
fn tcp_of_the_sandbox_and_of_the_host() {
    testkit::each!(|env| {
        let bait = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback is there");
        let bait6 = std::net::TcpListener::bind("[::1]:0").ok();
        bait.set_nonblocking(true).expect("own socket");
        let port = bait.local_addr().expect("is bound").port();
        let port6 = bait6.as_ref().map_or(1, |bait| bait.local_addr().expect("is bound").port());
        inside(
            env,
            &["--read", "."],
            &format!(
                "
def tcp(address, port):
    print(address, outcome(lambda: socket.create_connection((address, port), 5) and None), flush=True)
for address in ('127.0.0.1', 'localhost', '127.1', '0.0.0.0'): tcp(address, {port})
tcp('::1', {port6}); tcp('::ffff:127.0.0.1', {port})
print(outcome(lambda: socket.create_connection(('1.1.1.1', 443), 5)))
print(outcome(lambda: socket.create_connection(('2606:4700::1111', 443), 5)))
print(outcome(lambda: socket.create_connection(('169.254.169.254', 80), 5)))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print('udp', outcome(lambda: u.sendto(b'x', ('9.9.9.9', 53)) and None))
s = socket.create_server(('127.0.0.1', 0)); served(s)
print(socket.create_connection(s.getsockname()).recv(9))
s = socket.create_server(('::1', 0), family=socket.AF_INET6); served(s)
print(socket.create_connection(s.getsockname()[:2]).recv(9))
print(sorted(name for _, name in socket.if_nameindex() if name != 'lo'))
"
            ),
        )
        .run()
        .ok()
        .prints(
            "127.0.0.1 ECONNREFUSED\nlocalhost ECONNREFUSED\n127.1 ECONNREFUSED\n\
             0.0.0.0 ECONNREFUSED\n::1 ECONNREFUSED\n::ffff:127.0.0.1 ECONNREFUSED\n\
             ENETUNREACH\nENETUNREACH\nENETUNREACH\nudp ENETUNREACH\n\
             b'hello'\nb'hello'\n[]\n",
        );
        assert!(bait.accept().is_err(), "the host's loopback was reached");
    });
}

#[test]
fn errors_of_connect() {
    testkit::each!(|env| {
        let not_listening = inside(
            env,
            &["--write", "."],
            "
def on(s, address): return outcome(lambda: s.connect(address))
tcp = lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM)
unix = lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
print('refused', on(tcp(), ('127.0.0.1', 9)))
s = tcp(); s.setblocking(False)
print('non-blocking', on(s, ('127.0.0.1', 9)))
select.select([], [s], [], 5)
print('later', errno.errorcode[s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)])
server = socket.create_server(('127.0.0.1', 0)); s = tcp()
print('first', on(s, server.getsockname())); print('again', on(s, server.getsockname()))
print('missing', on(unix(), '/tmp/missing'))
print('no folder', on(unix(), '/tmp/missing/x'))
open('/tmp/file', 'w').close()
print('a file', on(unix(), '/tmp/file'))
print('under a file', on(unix(), '/tmp/file/x'))
print('a folder', on(unix(), '/tmp'))
b = unix(); b.bind('/tmp/unheard')
print('bound only', on(unix(), '/tmp/unheard'))
l = listener('/tmp/closed'); os.chmod('/tmp/closed', 0)
print('no permission', on(unix(), '/tmp/closed'))
l = listener('/tmp/kind')
print('other kind', on(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET), '/tmp/kind'))
l = listener('/tmp/full'); l.listen(0); first = unix(); first.connect('/tmp/full')
s = unix(); s.setblocking(False); print('full', on(s, '/tmp/full'))
print('not a socket', outcome(lambda: socket.socket(fileno=os.open('/tmp/file', 0), family=1, type=1).connect('/tmp/full')))
s = unix(); s.settimeout(0.2)
try: s.connect('/tmp/full')
except OSError as error: print('timeout', type(error).__name__)
",
        )
        .run()
        .ok();
        not_listening.prints(
            "refused ECONNREFUSED\nnon-blocking EINPROGRESS\nlater ECONNREFUSED\nfirst ok\n\
             again EISCONN\nmissing ENOENT\nno folder ENOENT\na file ECONNREFUSED\n\
             under a file ENOTDIR\na folder ECONNREFUSED\nbound only ECONNREFUSED\n\
             no permission EACCES\nother kind EPROTOTYPE\nfull EAGAIN\nnot a socket ENOTSOCK\n\
             timeout BlockingIOError\n",
        );
    });
}

#[test]
fn descriptors_are_passed_inside() {
    testkit::each!(|env| {
        inside(
            env,
            &["--write", "."],
            "
l = listener('own')
if os.fork() == 0:
    peer, _ = l.accept()
    inner = listener('/tmp/inner'); served(inner, b'through a passed descriptor')
    client = socket.socket(socket.AF_UNIX); client.connect('/tmp/inner')
    open('note', 'w').write('a file')
    socket.send_fds(peer, [b'x'], [client.fileno(), os.open('note', os.O_RDONLY)])
    peer.recv(1); os._exit(0)
s = socket.socket(socket.AF_UNIX); s.connect('own')
_, fds, _, _ = socket.recv_fds(s, 1, 2)
print(socket.socket(fileno=fds[0]).recv(99).decode()); print(os.read(fds[1], 99).decode())
s.send(b'.'); os.wait()
",
        )
        .run()
        .ok()
        .prints("through a passed descriptor\na file\n");
    });
}

/// A sandbox that listens in the folder both write, until its input closes.
fn listening(env: &TestEnv) -> Running {
    let script = "
l = listener('shared/one'); served(l)
a = listener(b'\\0one'); t = socket.create_server(('127.0.0.1', 40000))
print(says('shared/one'), 'listens', flush=True)
served(l)
while not os.path.exists('shared/end'): select.select([], [], [], 0.02)
print('end')
";
    let mut one = inside(env, &["--write", "."], script).spawn();
    one.wait_for_stdout("hello listens");
    one
}

#[test]
fn two_sandboxes_with_one_write_folder() {
    testkit::each!(|env| {
        env.folder("shared");
        let one = listening(env);
        let two: Run = inside(
            env,
            &["--write", "."],
            "
connect('shared/one')
os.rename('shared/one', 'shared/two'); connect('shared/two'); os.link('shared/two', 'three'); connect('three')
connect(b'\\0one')
print(outcome(lambda: socket.create_connection(('127.0.0.1', 40000)) and None))
open('shared/end', 'w').close()
",
        )
        .run()
        .ok();
        one.wait().ok().stdout_has("end\n");
        two.prints(
            "shared/one EACCES\nshared/two EACCES\nthree EACCES\none ECONNREFUSED\nECONNREFUSED\n",
        );
    });
}

#[test]
fn an_inherited_socket_is_no_way_out() {
    testkit::each!(|env| {
        let bait = with_bait(env);
        let tried = "print(sorted(int(fd) for fd in os.listdir('/proc/self/fd') if int(fd) > 3))";
        env.write("in.py", format!("{PYTHON}{tried}\nconnect('host')"));
        let handing_down = |streams: &str| {
            let script = format!(
                "
import socket, subprocess
s = socket.socket(socket.AF_UNIX); t = socket.socket(socket.AF_INET)
s.set_inheritable(True); t.set_inheritable(True)
exit(subprocess.run(['lnk', 'sandbox', 'run', '--read', '.', '--', '/usr/bin/python3', 'in.py'],
                    close_fds=False{streams}).returncode)
"
            );
            env.program("/usr/bin/python3", ["-c", &script]).run()
        };
        handing_down("").ok().prints("[]\nhost EACCES\n");
        handing_down(", stdin=s")
            .fails_with(125)
            .prints("")
            .stderr_has("standard input is a socket");
        handing_down(", stdin=t")
            .fails_with(125)
            .prints("")
            .stderr_has("standard input is a socket");
        handing_down(", stderr=s").fails_with(125).prints("");
        bait.untouched();
    });
}

#[test]
fn programs_that_talk_over_sockets() {
    testkit::each!(|env| {
        let node = "
const net = require('net');
const talk = at => new Promise(done => {
  const server = net.createServer(c => c.end('hi')).listen(at, () => {
    const to = typeof at === 'number' ? [server.address().port, '127.0.0.1'] : [at];
    net.connect(...to).on('data', d => { console.log(String(d)); server.close(done); });
  });
});
talk(0).then(() => talk('/tmp/node')).then(() => talk(process.cwd() + '/node')).then(() => talk('\\0node'))
  .then(() => net.connect('missing').on('error', e => console.log(e.code)));
";
        env.lnk(["sandbox", "run", "--write", ".", "--", "node", "-e", node])
            .run()
            .ok()
            .prints("hi\nhi\nhi\nhi\nENOENT\n");
        env.write(
            "manager.py",
            "
import multiprocessing
if __name__ == '__main__':
    multiprocessing.set_start_method('spawn')
    with multiprocessing.Manager() as manager:
        shared = manager.dict(); shared['a'] = 1
        with multiprocessing.Pool(2) as pool: print(pool.map(abs, [-1, -2]), dict(shared))
",
        );
        env.lnk(["sandbox", "run", "--write", ".", "--", "/usr/bin/python3", "manager.py"])
            .run()
            .ok()
            .prints("[1, 2] {'a': 1}\n");
        let agent = "eval $(ssh-agent) > /dev/null && ssh-keygen -q -t ed25519 -N '' -C made -f ~/k && \
                     ssh-add -q ~/k && ssh-add -l | grep -o made; ssh-agent -k > /dev/null";
        env.lnk(["sandbox", "run", "--read", ".", "--", "sh", "-c", agent])
            .run()
            .ok()
            .prints("made\n");
    });
}

/// A path too long for an address is bound and connected from its folder, or
/// through a descriptor of it.
#[test]
fn long_paths() {
    testkit::each!(|env| {
        let longest = "a".repeat(120);
        let script = format!(
            "
os.makedirs('{longest}')
fd = os.open('{longest}', os.O_PATH)
l = listener(f'/proc/self/fd/{{fd}}/.s.PGSQL.5432'); served(l)
print(says(f'/proc/self/fd/{{fd}}/.s.PGSQL.5432'))
os.chdir('{longest}'); served(l); print(says('.s.PGSQL.5432'))
whole = '/tmp/' + 'y' * (107 - 5)
l = listener(whole); served(l); print(says(whole))
"
        );
        let run = inside(env, &["--write", "."], &script).run().ok();
        run.prints("hello\nhello\nhello\n");
    });
}
