//! What a spec opens is agreed to before it runs.

use std::fs;
use std::path::PathBuf;

use testkit::{Call, Run, Terminal, TestEnv, each};

fn write(env: &TestEnv, files: &str) {
    env.write("app.toml", format!("[files]\n{files}\n[commands]\nallow = [\"*\"]\n"));
}

fn call(env: &TestEnv, flags: &[&str]) -> Call {
    let words = ["sandbox", "run", "--spec", "app.toml"];
    env.lnk([&words[..], flags, &["--", "echo", "it", "ran"]].concat())
}

fn agreed(env: &TestEnv) -> Run {
    call(env, &["--yes"]).run().ok().prints("it ran\n").quiet()
}

/// Nothing asks: it runs without a terminal.
#[track_caller]
fn known(env: &TestEnv) {
    call(env, &[]).run().ok().prints("it ran\n").quiet();
}

#[track_caller]
fn unknown(env: &TestEnv, why: &str) {
    let run = call(env, &[]).run().fails_with(125).prints("");
    run.stderr_has(why).stderr_has("there is no terminal to ask on").stderr_has("--yes");
}

fn asked(env: &TestEnv) -> Terminal {
    let mut terminal = call(env, &[]).terminal(40, 160);
    terminal.shows("Run it? [y/N]");
    terminal
}

#[track_caller]
fn refused(mut terminal: Terminal) -> String {
    assert_eq!(terminal.wait_exit(), 125, "{}", terminal.screen());
    let screen = terminal.screen();
    assert!(screen.contains("nothing ran") && !screen.contains("it ran"), "{screen}");
    screen
}

fn remembered(env: &TestEnv) -> PathBuf {
    env.home().join(".config/lnk/specs/sandbox.toml")
}

#[test]
fn without_a_terminal_a_new_spec_is_refused_at_once_and_the_input_stays() {
    each!(|env| {
        write(env, "read = ['.']");
        unknown(env, "app.toml hasn't run here before");
        // A pipe on which nobody writes isn't waited for.
        let (reader, writer) = std::io::pipe().expect("pipes are left");
        call(env, &[]).stdin_file(reader).run().fails_with(125).stderr_has("--yes");
        drop(writer);
        let script = "printf 'a\\nb\\n' | { lnk sandbox run --spec app.toml -- cat; cat; }";
        env.sh(script).run().ok().prints("a\nb\n");
        assert!(!remembered(env).exists());
    });
}

#[test]
fn yes_runs_it_and_is_remembered() {
    each!(|env| {
        write(env, "read = ['.', '~/']\nwrite = ['out']\nwrite_dot_files = ['out']");
        env.folder("out");
        let mut terminal = asked(env);
        let screen = terminal.screen();
        let (home, project) = (env.home().display(), env.project().display());
        for line in [
            format!("lnk sandbox: app.toml hasn't run here before ({project}/app.toml). It opens:"),
            "  [files]".into(),
            format!("    write_dot_files: out ({project}/out)"),
            format!("    write: out ({project}/out)"),
            format!("    read: ~/ ({home})"),
            format!("    read: . ({project})"),
            "  [commands]".into(),
            "    allow: * (any program)".into(),
        ] {
            assert!(screen.lines().any(|it| it.trim_end() == line), "{line}\nin\n{screen}");
        }
        // The widest come first.
        let places = ["write_dot_files:", "write: out", "read: ~/", "read: .", "allow:"];
        let places = places.map(|line| screen.find(line).expect("shown"));
        assert!(places.is_sorted(), "{screen}");
        terminal.line("y").shows("it ran");
        assert_eq!(terminal.wait_exit(), 0);
        known(env);
    });
}

#[test]
fn only_yes_is_yes() {
    each!(|env| {
        write(env, "read = ['.']");
        for answer in ["n", "", "yesno", "j", "\x04"] {
            let mut terminal = asked(env);
            terminal.line(answer);
            refused(terminal);
        }
        let mut terminal = asked(env);
        terminal.send("\x03");
        assert_eq!(terminal.wait_exit(), 130);
        assert!(!terminal.screen().contains("it ran"));
        unknown(env, "hasn't run here before");
        let mut terminal = asked(env);
        terminal.line("YES").shows("it ran");
        known(env);
    });
}

#[test]
fn a_spec_in_a_background_job_is_refused_at_once() {
    each!(|env| {
        write(env, "read = ['.']");
        let script = "set -m; lnk sandbox run --spec app.toml -- true & wait $!; echo was $?";
        let mut terminal = env.program("bash", ["-c", script]).terminal(24, 160);
        terminal.shows("--yes").shows("was 125");
    });
}

#[test]
fn the_question_is_on_the_terminal_whatever_is_piped() {
    each!(|env| {
        write(env, "read = ['.']");
        let script = "echo y | lnk sandbox run --spec app.toml -- cat 2> err > out; echo was $?";
        let mut terminal = env.sh(script).terminal(24, 160);
        terminal.shows("Run it? [y/N]").line("y").shows("was 0");
        assert_eq!(fs::read_to_string(env.project().join("out")).expect("made"), "y\n");
        assert_eq!(fs::read_to_string(env.project().join("err")).expect("made"), "");
    });
}

#[test]
fn a_link_that_leads_elsewhere_asks_again_and_shows_where() {
    each!(|env| {
        let (a, b) = (env.folder("a"), env.folder("b"));
        env.link("a", "link");
        write(env, "read = ['.']\nwrite = ['link']");
        agreed(env);
        known(env);
        fs::remove_file(env.project().join("link")).expect("own link");
        env.link("b", "link");
        unknown(env, "app.toml opens more than you agreed to");
        let mut terminal = asked(env);
        let moved = format!("write: link now is {}, it was {}", b.display(), a.display());
        let screen = terminal.screen();
        assert!(screen.contains(&moved) && !screen.contains("allow"), "{screen}");
        terminal.line("n");
        refused(terminal);
        unknown(env, "app.toml opens more than you agreed to");
        agreed(env);
        known(env);
    });
}

#[test]
fn what_changes_while_it_is_asked_isnt_run() {
    each!(|env| {
        env.folder("a");
        env.folder("b");
        for (keys, change, why) in [
            (
                "read = ['.']\nwrite = ['link']",
                "ln -sfn b link",
                "it leads elsewhere now than when it was looked at",
            ),
            ("write = ['.']", "cp app.toml new; mv new app.toml", "app.toml changed meanwhile"),
        ] {
            env.sh("ln -sfn a link").run().ok();
            write(env, keys);
            let mut terminal = asked(env);
            env.sh(change).run().ok();
            terminal.line("y").shows(why);
            assert_eq!(terminal.wait_exit(), 125);
            assert!(!terminal.screen().contains("it ran"), "{}", terminal.screen());
            fs::remove_file(remembered(env)).expect("remembered");
        }
    });
}

#[test]
fn what_is_wider_asks_and_what_is_narrower_doesnt() {
    each!(|env| {
        for folder in ["a", "b", "h"] {
            env.folder(folder);
        }
        write(env, "read = ['.']\nwrite = ['a', 'b']\nhide = ['h']");
        agreed(env);
        for narrower in [
            "read = ['.']\nwrite = ['a']\nhide = ['h']",
            "read = ['.', 'a']\nwrite = ['./a']\nhide = ['h', 'b']",
            "# words\nread = [\"./\"]\nhide = ['h']",
        ] {
            write(env, narrower);
            known(env);
        }
        for (wider, shown) in [
            ("read = ['.']\nwrite = ['a', 'b']", "hide: h "),
            ("read = ['.']\nwrite = ['.']\nhide = ['h']", "write: . "),
            ("read = ['.', '..']\nhide = ['h']", "read: .. "),
            (
                "read = ['.']\nwrite = ['a']\nwrite_dot_files = ['a']\nhide = ['h']",
                "write_dot_files: a ",
            ),
        ] {
            write(env, wider);
            unknown(env, "app.toml opens more than you agreed to");
            let mut terminal = asked(env);
            terminal.shows(shown).line("n");
            refused(terminal);
        }
        let spec = "[files]\nread = ['.']\nhide = ['h']\n[internet]\nhosts = ['*']\n[commands]\nallow = ['*']";
        env.write("app.toml", spec);
        unknown(env, "app.toml opens more than you agreed to");
        let mut terminal = asked(env);
        terminal.shows("[internet]").shows("hosts: * (any host)").line("y");
        assert_eq!(terminal.wait_exit(), 0);
    });
}

#[test]
fn each_spec_is_agreed_to_by_itself_and_flags_arent_remembered() {
    each!(|env| {
        env.folder("flagged");
        write(env, "read = ['.']");
        call(env, &["--yes", "--write", "flagged"]).run().ok().prints("it ran\n");
        known(env);
        call(env, &["--write", "flagged", "--read", "."]).run().ok().prints("it ran\n");
        let kept = fs::read_to_string(remembered(env)).expect("remembered");
        assert!(!kept.contains("flagged"), "{kept}");
        // The same file elsewhere opens another folder.
        env.sh("mkdir sub; cp app.toml sub; cp app.toml copy.toml").run().ok();
        for copy in ["sub/app.toml", "copy.toml"] {
            let run = env.lnk(["sandbox", "run", "--spec", copy, "--", "true"]).run();
            run.fails_with(125).stderr_has("hasn't run here before");
        }
        // By another name it is the same.
        env.link("app.toml", "name.toml");
        env.lnk(["sandbox", "run", "--spec", "name.toml", "--", "true"]).run().ok();
    });
}

#[test]
fn a_damaged_memory_is_kept_aside_and_everything_asks_again() {
    each!(|env| {
        write(env, "read = ['.']");
        agreed(env);
        let file = remembered(env);
        for (number, damage) in [(1, "[[spec]]\npath = 7\n"), (2, "\0"), (3, "surplus = 1\n")] {
            fs::write(&file, damage).expect("own file");
            let aside = format!("sandbox.toml.damaged-{number}");
            let run = call(env, &[]).run().fails_with(125).prints("");
            run.stderr_has("sandbox.toml is damaged").stderr_has(&aside).stderr_has("--yes");
            assert_eq!(fs::read_to_string(file.with_file_name(&aside)).expect("kept"), damage);
            agreed(env);
            known(env);
        }
    });
}

#[test]
fn of_two_at_once_both_are_remembered() {
    each!(|env| {
        let names = ["a.toml", "b.toml", "c.toml", "d.toml"];
        let words = |name| ["sandbox", "run", "--spec", name, "--yes", "--", "true"];
        let running = names.map(|name| {
            env.write(name, "[files]\nread = ['.']\n[commands]\nallow = ['*']\n");
            env.lnk(words(name)).spawn()
        });
        for run in running {
            run.wait().ok().quiet();
        }
        for name in names {
            env.lnk(["sandbox", "run", "--spec", name, "--", "true"]).run().ok();
        }
        let folder = remembered(env).with_file_name("");
        let files = fs::read_dir(folder).expect("it is there").count();
        assert_eq!(files, 2, "the file and its lock, nothing else");
    });
}

#[test]
fn what_is_shown_cant_act_on_the_terminal() {
    each!(|env| {
        let name = "x\u{1b}[2J\u{202e}\nlnk sandbox: all is well";
        env.folder(name);
        write(env, "read = ['.', \"x\\u001b[2J\\u202e\\nlnk sandbox: all is well\"]");
        let mut terminal = asked(env);
        let screen = terminal.screen();
        assert!(screen.contains("$'x\\x1b[2J\\u{202e}\\nlnk sandbox: all is well'"), "{screen}");
        assert!(screen.contains("hasn't run here before"), "nothing was cleared: {screen}");
        terminal.line("n");
        refused(terminal);
    });
}

#[test]
fn spaces_dont_push_what_is_shown_out_of_sight() {
    each!(|env| {
        let name = format!("docs {} read: /none", " ".repeat(120));
        env.folder(&name);
        env.folder(" a b");
        write(env, &format!("write = ['{name}', ' a b', '.']"));
        let mut terminal = asked(env);
        let screen = terminal.screen();
        assert!(screen.contains("write: $'docs\\x20\\x20"), "{screen}");
        assert!(screen.contains("write: $'\\x20a b' ("), "{screen}");
        terminal.line("n");
        refused(terminal);
        let gaps = |printed: &str| printed.lines().any(|line| line.trim().contains("  "));
        let run = env.lnk(["sandbox", "spec", "--spec", "app.toml"]).run().ok();
        assert!(!gaps(&run.stdout), "{}", run.stdout);
    });
}

#[test]
fn the_memory_isnt_seen_inside() {
    each!(|env| {
        write(env, "read = ['~']");
        agreed(env);
        let words = ["sandbox", "run", "--spec", "app.toml", "--", "cat"];
        let file = remembered(env).display().to_string();
        env.lnk(words.iter().copied().chain([file.as_str()])).run().fails().prints("");
        fs::read(remembered(env)).expect("it is there");
    });
}
