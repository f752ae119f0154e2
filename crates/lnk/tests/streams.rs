//! Standard input, output and error, and other descriptors of the caller's.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

use testkit::{Call, TestEnv, each};

fn run(env: &TestEnv, words: &[&str]) -> Call {
    env.lnk(["sandbox", "run", "--read", ".", "--"].iter().chain(words))
}

fn refused(env: &TestEnv, stdin: impl Into<OwnedFd>, why: &str) {
    let run = run(env, &["sh", "-c", "echo ran"]).stdin_file(stdin).run();
    run.fails_with(125).prints("").stderr_has("lnk sandbox: standard input ").stderr_has(why);
}

#[test]
fn a_folder_isnt_taken() {
    each!(|env| {
        refused(env, File::open("/").expect("/ can be opened"), "is a folder");
        let script = "lnk sandbox run --read . -- sh -c 'ls /proc/self/fd/1/.. >&2' 1<.";
        env.sh(script).run().fails_with(125).stderr_has("standard output is a folder");
    });
}

#[test]
fn a_socket_of_the_machines_network_isnt_taken() {
    each!(|env| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("it is bound");
        let connected = TcpStream::connect(address).expect("it listens");
        refused(env, connected, "is a socket of this machine's network");
        refused(env, listener, "is a socket of this machine's network");
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback");
        refused(env, udp, "is a socket of this machine's network");
    });
}

#[test]
fn a_unix_socket_is_taken_only_where_it_leads_to_one_place() {
    each!(|env| {
        let (ours, theirs) = UnixDatagram::pair().expect("a pair");
        refused(env, theirs, "could be connected to others");
        drop(ours);
        let path = env.outside().join("socket");
        let listener = UnixListener::bind(&path).expect("own folder");
        refused(env, listener, "could be connected to others");
        std::fs::remove_file(path).expect("own file");

        let (ours, theirs) = UnixStream::pair().expect("a pair");
        std::io::Write::write_all(&mut &ours, b"through a pair\n").expect("it is open");
        drop(ours);
        run(env, &["cat"]).stdin_file(theirs).run().ok().prints("through a pair\n");
    });
}

#[test]
fn a_file_given_to_read_is_never_written() {
    each!(|env| {
        let path = env.write(env.home().join("closed/input"), "content\n");
        let given = || File::open(&path).expect("the test may read it");
        run(env, &["cat"]).stdin_file(given()).run().ok().prints("content\n");
        for name in ["/dev/stdin", "/proc/self/fd/0", "/dev/fd/0"] {
            run(env, &["cat", name]).stdin_file(given()).run().ok().prints("content\n");
            for open in [">", ">>", "<>"] {
                let write = format!("echo broken 3{open}{name} >&3");
                run(env, &["bash", "-c", &write]).stdin_file(given()).run().fails_with(1);
            }
        }
        let change = "import os\n\
            for change in (lambda: os.ftruncate(0, 0), lambda: os.write(0, b'broken'),\n\
            \tlambda: os.truncate('/proc/self/fd/0', 0)):\n\
            \ttry: change()\n\
            \texcept OSError: continue\n\
            \tprint('changed')";
        run(env, &["python3", "-c", change]).stdin_file(given()).run().ok().prints("");
        assert_eq!(std::fs::read_to_string(&path).expect("just written"), "content\n");
    });
}

#[test]
fn output_opens_by_its_name_to_a_file_and_a_pipe() {
    each!(|env| {
        for name in ["/dev/stdout", "/proc/self/fd/1"] {
            let echo = format!("echo by name >> {name}");
            // The pipe is made by the user: others may not open it by name.
            let pipe = format!("lnk sandbox run --read . -- sh -c '{echo}' | cat");
            env.sh(&pipe).run().ok().prints("by name\n").quiet();
            env.sh(&format!("lnk sandbox run --read . -- sh -c '{echo}' > out")).run().ok().quiet();
            env.program("cat", ["out"]).run().ok().prints("by name\n");
        }
        let both = "lnk sandbox run --read . -- sh -c 'echo err > /dev/stderr' 2>&1 > out | cat";
        env.sh(both).run().ok().prints("err\n").quiet();
        // What may be written so is the stream's file, and no other there.
        let beside = "lnk sandbox run --read . -- sh -c 'echo x > other' > out";
        env.sh(beside).run().fails();
    });
}

#[test]
fn closed_streams_are_no_reason_to_fail() {
    each!(|env| {
        let run = |streams: &str, script: &str| {
            env.sh(&format!("lnk sandbox run --read . -- sh -c '{script}' {streams}")).run()
        };
        run("<&-", "cat; echo hi").ok().prints("hi\n").quiet();
        run("2>&-", "echo hi; exit 3").fails_with(3).prints("hi\n");
        run(">&-", "exit 4").fails_with(4).quiet();
        run("<&- >&- 2>&-", "exit 5").fails_with(5).prints("").quiet();
        // None of Link's own descriptors takes a closed one's place.
        run("<&- 2>&-", "readlink /proc/self/fd/0 /proc/self/fd/2")
            .ok()
            .prints("/dev/null\n/dev/null\n");
    });
}

#[test]
fn no_other_descriptor_crosses() {
    each!(|env| {
        env.write(env.home().join("secret"), "secret\n");
        let open = "exec 3<~/secret 7<~ 9<>~/secret 250<~/secret;";
        let list = "import os; print(sorted(os.listdir('/proc/self/fd')))";
        let listed = env.sh(&format!("{open} lnk sandbox run --read . -- python3 -c \"{list}\""));
        // 3 is the folder that is listed.
        listed.run().ok().prints("['0', '1', '2', '3']\n");
        for fd in [3, 7, 9, 250] {
            let script = format!("{open} lnk sandbox run --read . -- bash -c 'cat <&{fd}'");
            env.sh(&script).run().fails().prints("");
        }
    });
}
