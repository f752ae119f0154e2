//! What the command line answers before any sandbox is built.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::process::{Command, Output};

fn lnk() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lnk"));
    command.env_remove("LNK_SANDBOX_MOUNTS");
    command
}

fn run<S: AsRef<OsStr>>(words: &[S]) -> Output {
    lnk().args(words).output().expect("lnk is built")
}

/// The one line on stderr of a command line that can't be read.
fn refusal<S: AsRef<OsStr>>(words: &[S]) -> String {
    one_line(&run(words))
}

fn one_line(output: &Output) -> String {
    let stderr = String::from_utf8(output.stderr.clone()).expect("what is shown is UTF-8");
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert_eq!(output.stdout, b"");
    let line = stderr.strip_suffix('\n').expect("a line ends");
    assert!(!line.contains('\n'), "more than a line: {stderr}");
    line.strip_prefix("lnk sandbox: ").expect("the line says whose it is").to_owned()
}

/// The refusal of `lnk sandbox run` with these words.
fn run_refusal(words: &str) -> String {
    refusal(&["sandbox", "run"].into_iter().chain(words.split_whitespace()).collect::<Vec<_>>())
}

#[test]
fn no_program_is_told_how_to_write_one() {
    insta::assert_snapshot!(run_refusal(""), @"no program to run: write it after --, as in 'lnk sandbox run --write . -- bash'");
    assert_eq!(run_refusal("--"), run_refusal(""));
    assert_eq!(run_refusal("--write . --"), run_refusal(""));
}

#[test]
fn a_flag_without_its_value_is_named() {
    insta::assert_snapshot!(run_refusal("--write"), @"--write needs a path: --write PATH");
    insta::assert_snapshot!(run_refusal("--read -- true"), @"--read needs a path: --read PATH");
    insta::assert_snapshot!(run_refusal("--hide --write . -- true"), @"--hide needs a path: --hide PATH");
    insta::assert_snapshot!(run_refusal("--write-dot-files= -- true"), @"--write-dot-files needs a path: --write-dot-files PATH");
    insta::assert_snapshot!(run_refusal("--allow"), @"--allow needs a name: --allow NAME");
}

#[test]
fn a_mistyped_flag_gets_the_right_one() {
    insta::assert_snapshot!(run_refusal("--wirte . -- true"), @"unknown flag --wirte: did you mean --write?");
    insta::assert_snapshot!(run_refusal("--write-dotfiles . -- true"), @"unknown flag --write-dotfiles: did you mean --write-dot-files?");
    insta::assert_snapshot!(run_refusal("--red=. -- true"), @"unknown flag --red: did you mean --read?");
}

#[test]
fn an_unknown_flag_gets_no_wrong_one() {
    insta::assert_snapshot!(run_refusal("--env A=b -- true"), @"unknown flag --env: 'lnk sandbox run -h' lists the flags");
    for flag in ["--memory", "-w", "--name", "--in", "--ro-bind"] {
        let line = run_refusal(&format!("{flag} x -- true"));
        assert_eq!(line, format!("unknown flag {flag}: 'lnk sandbox run -h' lists the flags"));
    }
}

#[test]
fn a_flag_by_another_name_or_cut_short_gets_its_own() {
    for (typed, meant) in [
        ("--host", "--internet-host or --lan-host"),
        ("--hosts", "--internet-host or --lan-host"),
        ("--network", "--internet-host or --lan-host"),
        ("--net", "--internet-host or --lan-host"),
        ("--allow-network", "--internet-host or --lan-host"),
        ("--internet", "--internet-host"),
        ("--lan", "--lan-host"),
        ("--per-min", "--per-minute"),
        ("--wri", "--write or --write-dot-files"),
    ] {
        let line = run_refusal(&format!("{typed} x -- true"));
        assert_eq!(line, format!("unknown flag {typed}: did you mean {meant}?"));
    }
    for (typed, meant) in [("-f", "--follow"), ("--lines", "-n"), ("--fol", "--follow")] {
        let line = refusal(&["sandbox", "log", typed]);
        assert_eq!(line, format!("unknown flag {typed}: did you mean {meant}?"));
    }
}

#[test]
fn a_value_that_is_missing_is_named() {
    for (flag, needs) in [
        ("--upstream", "an upstream: --upstream UPSTREAM"),
        ("--per-minute", "a number of calls: --per-minute CALLS"),
        ("--tcp", "a host:port: --tcp HOST:PORT"),
    ] {
        assert_eq!(refusal(&["sandbox", "run", flag]), format!("{flag} needs {needs}"));
    }
    insta::assert_snapshot!(refusal(&["sandbox", "log", "-n"]), @"-n needs a number of lines: -n LINES");
    insta::assert_snapshot!(refusal(&["sandbox", "log", "--sandbox="]), @"--sandbox needs a name: --sandbox NAME");
}

#[test]
fn a_number_of_lines_is_a_whole_one() {
    for typed in ["abc", "1.5", "0", "-1", "+5", "1000001", "99999999999999999999"] {
        let line = refusal(&["sandbox".into(), "log".into(), format!("-n{typed}")]);
        let why = format!("-n: '{typed}' isn't a number of lines: it can be 1 to 1000000");
        assert_eq!(line, why);
    }
}

#[test]
fn the_proxy_for_any_host_leaves_no_place_for_one() {
    insta::assert_snapshot!(run_refusal("--proxy --internet-host example.org -- true"), @"--internet-host example.org and --proxy contradict each other: the latter is any host; leave one out");
}

#[test]
fn help_is_a_flag() {
    insta::assert_snapshot!(refusal(&["sandbox", "help", "log"]), @"unknown command 'help': did you mean 'lnk sandbox log --help'?");
    insta::assert_snapshot!(refusal(&["help", "sandbox", "log"]), @"unknown command 'help': did you mean 'lnk sandbox log --help'?");
    insta::assert_snapshot!(refusal(&["help"]), @"unknown command 'help': did you mean 'lnk --help'?");
    insta::assert_snapshot!(refusal(&["sandbox", "help", "me"]), @"unknown command 'help': did you mean 'lnk sandbox --help'?");
}

#[test]
fn a_value_that_isnt_possible_is_named_with_its_flag() {
    insta::assert_snapshot!(run_refusal("--port 70000 -- true"), @"--port: '70000' isn't a port: ports are 1 to 65535");
    insta::assert_snapshot!(run_refusal("--tcp github.com -- true"), @"--tcp: 'github.com' isn't an endpoint: write host:port, such as github.com:22");
    insta::assert_snapshot!(run_refusal("--internet-host localhost -- true"), @"--internet-host: 'localhost' is an address of this machine: --port PORT, or ports in [localhost], opens a port of it");
    insta::assert_snapshot!(run_refusal("--internet-host [fd00::1] -- true"), @"--internet-host: '[fd00::1]' is an address of your network: --lan-host [fd00::1], or hosts in [lan], opens it");
    insta::assert_snapshot!(run_refusal("--tcp 127.0.0.1:5432 -- true"), @"--tcp: '127.0.0.1' is an address of this machine: --port PORT, or ports in [localhost], opens a port of it");
    insta::assert_snapshot!(run_refusal("--lan-host 169.254.169.254 -- true"), @"--lan-host: '169.254.169.254' is a cloud's metadata service: no grant opens it");
    insta::assert_snapshot!(run_refusal("--internet-host https://a.b/ -- true"), @"--internet-host: 'https://a.b/' is more than a host: write a.b alone");
    insta::assert_snapshot!(refusal(&["sandbox", "run", "--write", "", "--", "true"]), @"--write needs a path: --write PATH");
    insta::assert_snapshot!(run_refusal("--yes -- true"), @"--yes agrees to what a spec opens, and no spec is given: add --spec FILE, or leave it out");
    insta::assert_snapshot!(run_refusal("--yes=1 -- true"), @"--yes takes no value: write it alone");
    insta::assert_snapshot!(refusal(&[OsStr::new("sandbox"), "run".as_ref(), "--tool".as_ref(), OsStr::from_bytes(b"\xff")]), @"a flag's value isn't UTF-8 text: only a path or a program may be other bytes");
}

#[test]
fn a_flag_that_is_given_twice_is_named() {
    insta::assert_snapshot!(run_refusal("--spec a --spec b -- true"), @"--spec is given twice: keep one of them");
    insta::assert_snapshot!(run_refusal("--yes --yes --spec a -- true"), @"--yes is given twice: keep one of them");
    insta::assert_snapshot!(run_refusal("--upstream direct --upstream direct -- true"), @"--upstream is given twice: keep one of them");
    insta::assert_snapshot!(refusal(&["sandbox", "spec", "--spec", "a", "--spec=b"]), @"--spec is given twice: keep one of them");
}

#[test]
fn an_unknown_command_gets_the_nearest() {
    insta::assert_snapshot!(refusal(&["sandbox", "rnu"]), @"unknown command 'rnu': did you mean 'lnk sandbox run'?");
    insta::assert_snapshot!(refusal(&["sandbox", "reday"]), @"unknown command 'reday': did you mean 'lnk sandbox ready'?");
    insta::assert_snapshot!(refusal(&["snadbox"]), @"unknown command 'snadbox': did you mean 'lnk sandbox'?");
    insta::assert_snapshot!(refusal(&["run", "true"]), @"unknown command 'run': did you mean 'lnk sandbox run'?");
    for (typed, meant) in [
        ("unpause", "'lnk sandbox resume'"),
        ("continue", "'lnk sandbox resume'"),
        ("unstop", "'lnk sandbox stop --off'"),
        ("start", "'lnk sandbox run' or 'lnk sandbox stop --off'"),
    ] {
        let line = format!("unknown command '{typed}': did you mean {meant}?");
        assert_eq!(refusal(&["sandbox", typed, "app"]), line);
        assert_eq!(refusal(&[typed]), line);
    }
    insta::assert_snapshot!(refusal(&["sandbox", "frobnicate"]), @"unknown command 'frobnicate': 'lnk sandbox -h' lists the commands");
    insta::assert_snapshot!(refusal(&["frobnicate"]), @"unknown command 'frobnicate': 'lnk -h' lists the commands");
}

#[test]
fn no_command_is_told_where_they_are() {
    insta::assert_snapshot!(refusal::<&str>(&[]), @"no command given: 'lnk -h' lists the commands");
    insta::assert_snapshot!(refusal(&["sandbox"]), @"no command given: 'lnk sandbox -h' lists the commands");
}

#[test]
fn a_word_too_many_is_named() {
    insta::assert_snapshot!(refusal(&["sandbox", "ready", "now"]), @"'now' is one word too many: see 'lnk sandbox ready -h'");
    insta::assert_snapshot!(refusal(&["sandbox", "ready", "--now"]), @"unknown flag --now: 'lnk sandbox ready -h' lists the flags");
}

#[test]
fn a_permission_that_isnt_there_is_refused() {
    for name in ["open", "localhost", "developer-tools"] {
        let line = run_refusal(&format!("--allow {name} -- true"));
        assert_eq!(line, format!("--allow {name} isn't built yet in this version; leave it out"));
    }
    insta::assert_snapshot!(run_refusal("--allow netwrok -- true"), @"--allow knows no permission 'netwrok': did you mean network?");
    insta::assert_snapshot!(run_refusal("--allow read-hoem -- true"), @"--allow knows no permission 'read-hoem': did you mean read-home?");
    insta::assert_snapshot!(run_refusal("--allow everything -- true"), @"--allow knows no permission 'everything': use --read and --write to open folders, --internet-host and --lan-host to open hosts");
    for name in ["net", "internet", "lan", "all"] {
        let line = run_refusal(&format!("--allow {name} -- true"));
        let words = "use --internet-host and --lan-host to open hosts, or --allow network for all \
                     that this machine reaches";
        assert_eq!(line, format!("--allow knows no permission '{name}': {words}"));
    }
}

#[test]
fn the_mounts_are_only_forced_by_a_right_name() {
    let forced = lnk()
        .env("LNK_SANDBOX_MOUNTS", "overlay")
        .args(["sandbox", "run", "--", "true"])
        .output()
        .unwrap();
    insta::assert_snapshot!(one_line(&forced), @"LNK_SANDBOX_MOUNTS can only be bwrap or joiner: unset it, or set one of them");
}

#[test]
fn a_working_folder_that_is_gone_is_told() {
    let gone = tempfile::tempdir().unwrap();
    // The shell goes there, and only then the folder goes.
    let script =
        format!("rmdir \"$PWD\"; exec '{}' sandbox run -- true", env!("CARGO_BIN_EXE_lnk"));
    let output =
        Command::new("sh").args(["-c", &script]).current_dir(gone.path()).output().unwrap();
    insta::assert_snapshot!(one_line(&output), @"the working folder can't be found (no such file or directory): cd to one");
}

#[test]
fn what_was_typed_cant_act_on_the_terminal() {
    let strange = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let words = [strange(b"a\x1b[31m\xff\xe2\x80\xae\nlnk sandbox: all is well")];
    insta::assert_snapshot!(refusal(&words), @r#"unknown command 'a\x1b[31m�\u{202e}\nlnk sandbox: all is well': 'lnk -h' lists the commands"#);
    let flag = ["sandbox".into(), "run".into(), strange(b"--\x1b[2J\x07"), "true".into()];
    insta::assert_snapshot!(refusal(&flag), @r#"unknown flag --\x1b[2J\x07: 'lnk sandbox run -h' lists the flags"#);
    let name =
        ["sandbox".into(), "run".into(), "--allow".into(), strange(b"\x1b]0;x\x07"), "true".into()];
    insta::assert_snapshot!(refusal(&name), @r#"--allow knows no permission '\x1b]0;x\x07': use --read and --write to open folders, --internet-host and --lan-host to open hosts"#);
}

#[test]
fn the_version_is_the_packages() {
    let output = run(&["--version"]);
    assert_eq!(output.stdout, format!("lnk {}\n", env!("CARGO_PKG_VERSION")).as_bytes());
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(run(&["-V"]).stdout, output.stdout);
}

#[test]
fn a_reader_that_had_enough_is_no_failure_and_a_full_disk_is() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = lnk().arg("-h").stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));

    let full = File::create("/dev/full").unwrap();
    let output = lnk().arg("-h").stdout(full).output().unwrap();
    insta::assert_snapshot!(one_line(&output), @"can't write to stdout: no space left on device");
}

#[test]
fn completions_are_made_for_each_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = String::from_utf8(run(&["completions", shell]).stdout).unwrap();
        assert!(script.contains("write-dot-files"), "{shell}: {script}");
        assert!(script.contains("learn"), "{shell}: {script}");
    }
    insta::assert_snapshot!(refusal(&["completions", "tcsh"]), @"'tcsh' is no value for <SHELL>: it is one of bash, elvish, fish, powershell, zsh");
    insta::assert_snapshot!(refusal(&["completions"]), @"<SHELL> is missing: see 'lnk completions -h'");
}

#[test]
fn man_pages_are_made_for_each_command_shown() {
    let folder = tempfile::tempdir().unwrap();
    let output = lnk().arg("man").arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut pages: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|page| page.unwrap().file_name()).collect();
    pages.sort();
    let names = [
        "-sandbox-check",
        "-sandbox-key",
        "-sandbox-learn",
        "-sandbox-log",
        "-sandbox-pause",
        "-sandbox-paused",
        "-sandbox-permissions",
        "-sandbox-ready",
        "-sandbox-resume",
        "-sandbox-run",
        "-sandbox-spec",
        "-sandbox-stop",
        "-sandbox-traffic",
        "-sandbox",
        "",
    ];
    assert_eq!(pages, names.map(|name| OsString::from(format!("lnk{name}.1"))));
    let run = fs::read_to_string(folder.path().join("lnk-sandbox-run.1")).unwrap();
    assert!(run.contains("write\\-dot\\-files") && run.contains("npm run build"), "{run}");
    assert!(!run.contains("\\-\\-allow"), "hidden flags stay hidden: {run}");

    insta::assert_snapshot!(refusal(&["man", "/no/such/folder"]), @"can't write man pages into /no/such/folder: no such file or directory");
}
