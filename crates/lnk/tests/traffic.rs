//! `lnk sandbox traffic`.

use rustix::process::Signal;
use testkit::{Running, TestEnv, each};

/// A wire, as far as its control socket shows: it answers one line by another.
const WIRE: &str = r#"
import json, os, socket, sys
name, up, down = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
folder = os.path.expanduser('~/.config/lnk/sandbox/run')
os.makedirs(folder, 0o700, exist_ok=True)
listener = socket.socket(socket.AF_UNIX)
os.chdir(folder)
listener.bind(name + '.sock')
listener.listen()
print('listens', flush=True)
while True:
    asking, _ = listener.accept()
    question = asking.makefile().readline()
    assert json.loads(question) == {'ask': 'status'}, question
    status = {'answer': 'status', 'name': name, 'pid': os.getpid(), 'spec': sys.argv[4] or None,
              'since': '2026-05-04T03:02:01.000Z', 'up': up, 'down': down,
              'allowed': 3, 'refused': 2, 'failed': 1}
    asking.sendall(json.dumps(status).encode() + b'\n')
    asking.close()
"#;

fn wire(env: &TestEnv, args: [&str; 4]) -> Running {
    env.write("wire.py", WIRE);
    let words = ["wire.py"].into_iter().chain(args);
    let mut wire = env.program("python3", words).spawn();
    wire.wait_for_stdout("listens");
    wire
}

#[test]
fn each_running_wires_bytes_are_shown() {
    each!(|env| {
        let wires =
            [wire(env, ["run-7", "517", "41000000", "app"]), wire(env, ["run-12", "0", "12", ""])];
        env.lnk(["sandbox", "traffic"]).run().ok().quiet().prints(
            "SANDBOX      UP     DOWN   SINCE (UTC)\n\
             run-12       0 B    12 B   2026-05-04 03:02:01\n\
             run-7 (app)  517 B  41 MB  2026-05-04 03:02:01\n",
        );
        let [seven, twelve] = wires.each_ref().map(Running::pid);
        let rest = r#""since":"2026-05-04T03:02:01.000Z","up":"#;
        env.lnk(["sandbox", "traffic", "--json"]).run().ok().quiet().prints(&format!(
            "[{{\"name\":\"run-12\",\"pid\":{twelve},\"spec\":null,{rest}0,\"down\":12,\"allowed\":3,\"refused\":2,\"failed\":1,\"unlogged\":0}},\
             {{\"name\":\"run-7\",\"pid\":{seven},\"spec\":\"app\",{rest}517,\"down\":41000000,\"allowed\":3,\"refused\":2,\"failed\":1,\"unlogged\":0}}]\n"
        ));
    });
}

#[test]
fn without_a_wire_it_says_so() {
    each!(|env| {
        let none = || env.lnk(["sandbox", "traffic"]).run().ok();
        none().prints("").stderr_has("No sandbox with a wire is running.\n");
        env.lnk(["sandbox", "traffic", "--json"]).run().ok().quiet().prints("[]\n");
        // A killed one's socket is no wire, and is taken away.
        let socket = env.home().join(".config/lnk/sandbox/run/run-7.sock");
        drop(wire(env, ["run-7", "1", "2", ""]));
        assert!(socket.exists());
        none().prints("").stderr_has("No sandbox with a wire is running.\n");
        assert!(!socket.exists());
    });
}

#[test]
fn a_wire_that_hangs_is_named_beside_the_others() {
    each!(|env| {
        let hanging = wire(env, ["run-7", "1", "2", ""]);
        hanging.signal(Signal::STOP);
        let _other = wire(env, ["run-12", "0", "12", ""]);
        env.lnk(["sandbox", "traffic"])
            .run()
            .ok()
            .stdout_has("run-12   0 B  12 B")
            .has_not("No sandbox")
            .stderr_has("lnk sandbox: run-7 doesn't answer: its lnk is stopped or busy\n");
    });
}
