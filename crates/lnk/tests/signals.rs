//! Signals that reach `lnk` while a program runs, and those it starts with.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::{Call, TestEnv, each};

fn sh(env: &TestEnv, script: &str) -> Call {
    env.lnk(["sandbox", "run", "--read", ".", "--", "sh", "-c", script])
}

/// Python, whose handlers run at once: a shell's wait for its child's end.
fn python(env: &TestEnv, script: &str) -> Call {
    env.lnk(["sandbox", "run", "--read", ".", "--", "python3", "-c", script])
}

/// Handles a signal by taking its time, and ends with 9.
fn handles(signal: &str) -> String {
    // Python runs a handler between two of its own steps: a signal that comes as a sleep
    // is about to begin waits for its end.
    format!(
        "import os, signal, sys, time\n\
         def end(*_): time.sleep(0.3); os.write(1, b'cleaned up\\n'); sys.exit(9)\n\
         signal.signal(signal.{signal}, end)\n\
         os.write(1, b'ready\\n')\n\
         while True: time.sleep(0.05)"
    )
}

#[test]
fn signals_start_neither_ignored_nor_blocked() {
    each!(|env| {
        let status = "grep -E 'Sig(Blk|Ign)' /proc/self/status";
        let none = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n";
        sh(env, status).run().ok().prints(none).quiet();
        let ignoring = "import os, signal\n\
            for s in (signal.SIGPIPE, signal.SIGUSR1, signal.SIGCHLD, signal.SIGTSTP):\n\
            \tsignal.signal(s, signal.SIG_IGN)\n\
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGTERM, signal.SIGCHLD])\n\
            os.execvp('lnk', ['lnk', 'sandbox', 'run', '--read', '.', '--', 'sh', '-c', \"STATUS\"])";
        let ignoring = ignoring.replace("STATUS", status);
        env.program("python3", ["-c", &ignoring]).run().ok().prints(none).quiet();
    });
}

#[test]
fn a_pipe_whose_reader_ends_ends_its_writer() {
    each!(|env| {
        sh(env, "yes | head -1").run().ok().prints("y\n").quiet();
        let ignored = "trap '' PIPE; lnk sandbox run --read . -- sh -c 'yes | head -1'";
        env.sh(ignored).run().ok().prints("y\n").quiet();
    });
}

#[test]
fn term_and_hup_are_passed_on_and_the_programs_end_is_ours() {
    each!(|env| {
        for (name, signal) in [("SIGTERM", Signal::TERM), ("SIGHUP", Signal::HUP)] {
            let mut running = python(env, &handles(name)).spawn();
            running.wait_for_stdout("ready").signal(signal);
            running.wait().fails_with(9).prints("ready\ncleaned up\n").quiet();
        }
        // Without a handler it ends as by the signal.
        for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
            let mut running = sh(env, "echo ready; exec sleep 600").spawn();
            running.wait_for_stdout("ready").signal(signal);
            running.wait().fails_with(code).quiet();
        }
    });
}

#[test]
fn int_and_quit_sent_to_lnk_alone_reach_the_program() {
    each!(|env| {
        for (name, signal) in [("SIGINT", Signal::INT), ("SIGQUIT", Signal::QUIT)] {
            let mut running = python(env, &handles(name)).spawn();
            running.wait_for_stdout("ready").signal(signal);
            running.wait().fails_with(9).prints("ready\ncleaned up\n").quiet();
        }
    });
}

#[test]
fn the_terminals_keys_leave_the_program_to_finish() {
    each!(|env| {
        for (name, key) in [("SIGINT", "\x03"), ("SIGQUIT", "\x1c")] {
            let mut terminal = python(env, &handles(name)).terminal(24, 80);
            terminal.shows("ready").send(key);
            assert_eq!(terminal.wait_exit(), 9, "{}", terminal.screen());
            terminal.shows("cleaned up");
        }
        for (key, code) in [("\x03", 130), ("\x1c", 131)] {
            let mut terminal = sh(env, "echo ready; exec sleep 600").terminal(24, 80);
            terminal.shows("ready").send(key);
            assert_eq!(terminal.wait_exit(), code, "{}", terminal.screen());
        }
    });
}

#[test]
fn a_key_comes_to_the_program_once() {
    each!(|env| {
        let counts = "import os, signal, time\n\
            count = 0\n\
            def one(*_):\n\
            \tglobal count\n\
            \tcount += 1\n\
            signal.signal(signal.SIGINT, one)\n\
            os.write(1, b'ready\\n')\n\
            while not count: time.sleep(0.05)\n\
            time.sleep(0.5)\n\
            os.write(1, b'came %d\\n' % count)";
        let mut terminal = python(env, counts).terminal(24, 80);
        terminal.shows("ready").send("\x03").shows("came 1");
        assert_eq!(terminal.wait_exit(), 0);
    });
}

#[test]
fn a_program_that_ignores_term_is_killed_after_five_seconds() {
    each!(|env| {
        let mut running =
            sh(env, "trap '' TERM HUP; echo ready; while :; do sleep 1; done").spawn();
        running.wait_for_stdout("ready").signal(Signal::TERM);
        let sent = Instant::now();
        running.wait().fails_with(137);
        let took = sent.elapsed();
        let (least, most) = (Duration::from_millis(4_500), Duration::from_secs(20));
        assert!(least < took && took < most, "killed after {took:?}");
    });
}

#[test]
fn a_terminal_that_hangs_up_ends_the_program() {
    each!(|env| {
        // The program's own word, in a file: the terminal is gone by then.
        let script =
            "trap 'echo hung up > word; exit 3' HUP; echo ready; while :; do sleep 0.1; done";
        let mut terminal =
            env.lnk(["sandbox", "run", "--write", ".", "--", "sh", "-c", script]).terminal(24, 80);
        terminal.shows("ready").signal(Signal::HUP);
        assert_eq!(terminal.wait_exit(), 3, "{}", terminal.screen());
        env.program("cat", ["word"]).run().ok().prints("hung up\n");
    });
}

#[test]
fn what_the_caller_ignores_on_purpose_stays_ignored() {
    each!(|env| {
        // As nohup(1) does; the program has five seconds from a hangup otherwise.
        let script = "import os, signal\n\
            signal.signal(signal.SIGHUP, signal.SIG_IGN)\n\
            os.execvp('lnk', ['lnk', 'sandbox', 'run', '--read', '.', '--', 'sh', '-c',\n\
            \t'echo ready; sleep 7; echo went on; exit 3'])";
        let mut running = env.program("python3", ["-c", script]).spawn();
        running.wait_for_stdout("ready").signal(Signal::HUP);
        running.wait().fails_with(3).prints("ready\nwent on\n");
    });
}
