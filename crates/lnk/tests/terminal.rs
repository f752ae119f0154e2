//! Programs on a terminal inside the sandbox, driven as a person would.

use testkit::{Call, Terminal, TestEnv, each};

/// A shell outside, with `lnk` on PATH and a prompt that is easy to await.
fn outer_shell(env: &TestEnv) -> Terminal {
    let mut shell = env.program("bash", ["--norc", "-i"]).env("PS1", "OUT> ").terminal(24, 80);
    shell.shows("OUT> ");
    shell
}

fn run(env: &TestEnv, words: &[&str]) -> Call {
    env.lnk(["sandbox", "run", "--write", ".", "--"].iter().chain(words))
}

/// Waits until a prompt is the last on the screen, as after a command's end.
fn prompt(terminal: &mut Terminal, prompt: &str) {
    terminal.wait_for(|screen| screen.contents().trim_end().ends_with(prompt));
}

/// Says when it may be stopped, and when it goes on.
const JOB: &str = "\
import os, signal, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(signal.SIGCONT, lambda *_: os.write(1, b'back\\n'))
os.write(1, b'ready\\n')
while True:
    time.sleep(0.05)
";

#[test]
fn a_shell_inside_has_job_control() {
    each!(|env| {
        env.write("job", JOB);
        let mut shell = run(env, &["env", "PS1=IN> ", "bash", "--norc", "-i"]).terminal(24, 80);
        prompt(&mut shell, "IN>");
        shell.line("python3 job").shows("ready").send("\x1a").shows("Stopped");
        prompt(&mut shell, "IN>");
        shell.line("jobs").shows("[1]+  Stopped").line("fg").shows("back").send("\x03").shows("^C");
        prompt(&mut shell, "IN>");
        shell.line("echo was $?").shows("was 130");
        shell.line("sleep 0.1 & wait; echo don''e").shows("done").line("exit 7");
        assert_eq!(shell.wait_exit(), 7, "{}", shell.screen());
        let screen = shell.screen();
        assert!(!screen.contains("no job control") && !screen.contains("cannot set"), "{screen}");
    });
}

#[test]
fn the_whole_sandbox_is_a_job_of_the_outer_shell() {
    each!(|env| {
        env.write("job", JOB);
        let mut shell = outer_shell(env);
        shell.line("lnk sandbox run --read . -- python3 job").shows("ready");
        shell.send("\x1a").shows("Stopped");
        prompt(&mut shell, "OUT>");
        shell.line("fg").shows("back").send("\x1a");
        prompt(&mut shell, "OUT>");
        shell
            .line("clear; jobs; echo list''ed")
            .shows("listed")
            .shows("[1]+  Stopped")
            .line("fg")
            .shows("back")
            .send("\x03");
        prompt(&mut shell, "OUT>");
        shell.line("echo was $?").shows("was 130").line("exit");
        assert_eq!(shell.wait_exit(), 0, "{}", shell.screen());
    });
}

#[test]
fn a_sandbox_in_the_background_is_stopped_when_it_reads_and_goes_on_in_front() {
    each!(|env| {
        let mut shell = outer_shell(env);
        let reads = "import signal, sys, os\n\
            signal.signal(signal.SIGCONT, lambda *_: os.write(1, b'back\\n'))\n\
            print('got', sys.stdin.readline())";
        env.write("reads", reads);
        shell.line("lnk sandbox run --read . -- python3 reads &");
        shell.line("clear; until jobs | grep Stopped; do sleep 0.1; done; echo list''ed");
        shell.shows("listed").shows("Stopped");
        prompt(&mut shell, "OUT>");
        shell.line("fg").shows("back").line("this").shows("got this");
        prompt(&mut shell, "OUT>");
    });
}

#[test]
fn a_program_that_stops_itself_gives_the_terminal_back() {
    each!(|env| {
        let stops = "import os, signal; os.write(1, b'stops\\n'); \
            os.kill(os.getpid(), signal.SIGTSTP); os.write(1, b'back\\n'); os._exit(6)";
        env.write("stops", stops);
        let mut shell = outer_shell(env);
        shell.line("lnk sandbox run --read . -- python3 stops").shows("Stopped");
        prompt(&mut shell, "OUT>");
        shell.line("fg").shows("back");
        prompt(&mut shell, "OUT>");
        shell.line("echo was $?").shows("was 6");
    });
}

#[test]
fn vim_writes_is_suspended_and_comes_back() {
    each!(|env| {
        env.write("note", "first\n");
        let mut shell = outer_shell(env);
        shell.line("lnk sandbox run --write . -- vim -u NONE -N -i NONE note").shows("\"note\" 1L");
        shell.send("osecond\x1b").shows("second").send("\x1a").shows("Stopped");
        prompt(&mut shell, "OUT>");
        shell.line("clear; echo out''side").shows("outside").line("fg").shows("second");
        shell.send(":wq\r");
        prompt(&mut shell, "OUT>");
        shell.line("clear; cat note; echo status $?").shows("first\nsecond\nstatus 0");
    });
}

#[test]
fn less_pages() {
    each!(|env| {
        let lines: String = (1..=100).map(|line| format!("line {line}\n")).collect();
        env.write("long", lines);
        let mut less = run(env, &["less", "long"]).terminal(10, 40);
        less.shows("line 9").send("G").shows("line 100").send("?line 50\r").shows("line 50\n");
        less.send("q");
        assert_eq!(less.wait_exit(), 0);
    });
}

#[test]
fn htop_sees_the_sandbox_alone() {
    each!(|env| {
        let mut htop = run(env, &["htop"]).terminal(24, 100);
        htop.shows("PID").shows("htop");
        // Two processes: Link's own first one and htop.
        htop.wait_for(|screen| {
            let screen = screen.contents();
            screen.contains("Tasks: 1") || screen.contains("Tasks: 2")
        });
        htop.send("q");
        assert_eq!(htop.wait_exit(), 0, "{}", htop.screen());
    });
}

#[test]
fn tmux_splits_and_ends() {
    each!(|env| {
        // Keys that come as fast as a test types them aren't a paste.
        env.write("tmux.conf", "set -g assume-paste-time 0\n");
        let mut tmux = run(env, &["tmux", "-f", "tmux.conf", "new", "sh"]).terminal(24, 80);
        tmux.shows("[0]").line("echo in$((1+1))side").shows("in2side");
        tmux.send("\x02\"").wait_for(|screen| screen.contents().contains('─'));
        tmux.line("echo lower$((1+2))").shows("lower3").line("exit");
        tmux.wait_for(|screen| !screen.contents().contains('─')).line("exit");
        assert_eq!(tmux.wait_exit(), 0, "{}", tmux.screen());
    });
}

#[test]
fn script_records_a_session_inside() {
    each!(|env| {
        let mut script = run(env, &["script", "-q", "typed"]).terminal(24, 80);
        script.line("echo rec$((1+1))orded").shows("rec2orded").line("exit");
        assert_eq!(script.wait_exit(), 0, "{}", script.screen());
        env.program("cat", ["typed"]).run().ok().stdout_has("rec2orded");
    });
}

#[test]
fn a_new_size_reaches_the_program() {
    each!(|env| {
        let waits = "import os, signal, time\n\
            def sized(*_):\n\
            \tos.write(1, b'now %d %d\\n' % os.get_terminal_size(0))\n\
            \tos._exit(0)\n\
            signal.signal(signal.SIGWINCH, sized)\n\
            os.write(1, b'ready\\n')\n\
            while True: time.sleep(0.05)";
        let mut terminal = run(env, &["python3", "-c", waits]).terminal(24, 80);
        terminal.shows("ready").resize(10, 40).shows("now 40 10");
        assert_eq!(terminal.wait_exit(), 0);
    });
}

/// Tries to type into the shell that started the sandbox (ioctl_tty(2),
/// ioctl_console(2)); the kernel reads the low 32 bits of a request.
const INJECT: &str = "\
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
ioctl = {'x86_64': 16}.get(os.uname().machine, 29)
for name in ('/dev/stdin', '/dev/tty', '/dev/console', '/dev/pts/ptmx'):
    try:
        fd = os.open(name, os.O_RDWR | os.O_NOCTTY)
    except OSError:
        print(name, 'closed')
        continue
    for request in (0x5412, 0x100005412, 0xffffffff00005412, 0x541c, 0x10000541c):
        for byte in b'\\necho PWN\"\"ED\\n':
            done = libc.syscall(ioctl, fd, ctypes.c_ulong(request), bytes([byte, 0]))
            if done != -1 and name != '/dev/pts/ptmx':
                print('typed by', hex(request))
print('tr' + 'ied')
";

#[test]
fn nothing_is_typed_into_the_callers_shell() {
    each!(|env| {
        env.write("inject", INJECT);
        let mut shell = outer_shell(env);
        shell.line("lnk sandbox run --read . -- python3 inject").shows("tried");
        prompt(&mut shell, "OUT>");
        shell.line("echo en''d").shows("\nend");
        let screen = shell.screen();
        assert!(!screen.contains("PWNED") && !screen.contains("typed by"), "{screen}");
    });
}

#[test]
fn the_terminal_opens_by_its_names() {
    each!(|env| {
        // A name that it has inside, as ttyname(3) gives it, leads to it.
        let script = "tty && echo one > $(tty) && echo two > /dev/tty && \
            echo three > /dev/console && stty size < /dev/tty && test -t 0 && python3 -c \
            'import os; print(os.isatty(0), os.path.exists(os.ttyname(0)))'";
        let mut terminal = run(env, &["sh", "-c", script]).terminal(24, 80);
        assert_eq!(terminal.wait_exit(), 0, "{}", terminal.screen());
        terminal.shows("one\ntwo\nthree\n24 80\nTrue True");
    });
}

#[test]
fn a_password_prompt_reads_from_the_terminal_past_a_pipe() {
    each!(|env| {
        let asks = "lnk sandbox run --read . -- sh -c 'stty -echo < /dev/tty; echo ask > /dev/tty; \
            read word < /dev/tty; stty echo < /dev/tty; echo got $word' < /dev/null | cat";
        let mut terminal = env.sh(asks).terminal(24, 80);
        terminal.shows("ask").line("secret").shows("got secret");
        assert_eq!(terminal.wait_exit(), 0);
    });
}
