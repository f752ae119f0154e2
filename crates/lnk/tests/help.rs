//! The help, whole: its text is the users' reference.

use std::process::Command;

fn help(words: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_lnk"))
        .args(words.split_whitespace())
        .output()
        .expect("lnk is built");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(output.stderr, b"");
    String::from_utf8(output.stdout).expect("help is UTF-8")
}

#[test]
fn lnk() {
    insta::assert_snapshot!(help("-h"), @r#"
    Run any program so that it changes only the folders you give it

    Usage: lnk <COMMAND>

    Commands:
      sandbox  Run a program in the sandbox, and what belongs to it

    Options:
      -h, --help     Print help
      -V, --version  Print version
    "#);
    assert_eq!(help("--help"), help("-h"));
}

#[test]
fn lnk_sandbox() {
    insta::assert_snapshot!(help("sandbox -h"), @r#"
    Run a program in the sandbox, and what belongs to it

    Usage: lnk sandbox <COMMAND>

    Commands:
      run    Run a program in the sandbox
      ready  Tell whether the sandbox can run on this machine, and offer what it needs

    Options:
      -h, --help  Print help (see more with '--help')

    Try: lnk sandbox ready
         lnk sandbox run --write . -- bash
    "#);
    insta::assert_snapshot!(help("sandbox --help"), @r#"
    Run a program in the sandbox, and what belongs to it

    A program in the sandbox changes only the folders you give it, reads only
    what you open, and has no network.

    Usage: lnk sandbox <COMMAND>

    Commands:
      run    Run a program in the sandbox
      ready  Tell whether the sandbox can run on this machine, and offer what it needs

    Options:
      -h, --help
              Print help (see a summary with '-h')

    Try: lnk sandbox ready
         lnk sandbox run --write . -- bash
    "#);
}

#[test]
fn lnk_sandbox_run_short() {
    insta::assert_snapshot!(help("sandbox run -h"), @r#"
    Run a program in the sandbox

    Usage: lnk sandbox run [FLAGS] -- PROGRAM [ARGUMENTS]...

    Arguments:
      <PROGRAM>...  The program and its arguments

    Run a program in the sandbox:
          --read <PATH>   A folder or file it may only read; '~' is your whole home folder
          --write <PATH>  A folder or file it may read and write
          --hide <PATH>   A folder or file it may never touch, even inside an open one

    Let it commit:
          --write-dot-files <PATH>  A --write folder whose .git, .envrc and the like it may change too

    Help:
      -h, --help  Show this help: in short with -h, whole with --help
    "#);
}

#[test]
fn lnk_sandbox_run_long() {
    insta::assert_snapshot!(help("sandbox run --help"), @r#"
    Run a program in the sandbox

    The program reads the system's programs and libraries, and nothing else
    unless you open it. It has no network. Its environment is cleared but for
    PATH, HOME, TERM, COLORTERM, TZ, the locale and who you are. It gets an
    empty home folder, an empty /run and a private /tmp, and sees only its own
    processes.

    Everything after the program's name is the program's, flags too.

    run exits with the program's status: 128 and the signal's number where one
    ended it, 126 where it can't be run, 127 where it isn't found. 125 says that
    the sandbox failed and nothing ran.

    Usage: lnk sandbox run [FLAGS] -- PROGRAM [ARGUMENTS]...

    Arguments:
      <PROGRAM>...
              The program and its arguments

    Run a program in the sandbox:
          --read <PATH>
              A folder or file it may only read; '~' is your whole home folder

              '~' is your home folder but for Link's settings and agents' folders.
              Repeat it for more.

          --write <PATH>
              A folder or file it may read and write

              Dot files at the top of the folder that would run outside the sandbox,
              such as .git and .envrc, stay read-only. Repeat it for more.

          --hide <PATH>
              A folder or file it may never touch, even inside an open one

              But for the --read and --write folders inside it. Repeat it for more.

    Let it commit:
          --write-dot-files <PATH>
              A --write folder whose .git, .envrc and the like it may change too

              What is written there runs as you, outside the sandbox, the next time you
              run git, cd into the folder or open it in your editor. Repeat it for more.

    Help:
      -h, --help
              Show this help: in short with -h, whole with --help

    Examples:
      A shell that can change only this folder:
        lnk sandbox run --write . -- bash
      A build, in another folder:
        lnk sandbox run --write ~/Projects/site -- npm run build
      One folder to read, one to write:
        lnk sandbox run --read ~/Documents/reports --write . -- python3 summarize.py
      Your whole home folder to read, but Link's settings:
        lnk sandbox run --read '~' -- ./tool
      Look at a repository, then commit to it:
        lnk sandbox run --write . -- git status
        lnk sandbox run --write . --write-dot-files . -- git commit -qam fix
    "#);
}

#[test]
fn lnk_sandbox_ready() {
    insta::assert_snapshot!(help("sandbox ready -h"), @r#"
    Tell whether the sandbox can run on this machine, and offer what it needs

    Usage: lnk sandbox ready

    Options:
      -h, --help  Print help (see more with '--help')
    "#);
    insta::assert_snapshot!(help("sandbox ready --help"), @r#"
    Tell whether the sandbox can run on this machine, and offer what it needs

    It builds a sandbox to see. Where that fails, it says why in a sentence, and
    what helps. On a terminal it offers to install bubblewrap, or to add an
    AppArmor profile where Ubuntu needs one; it shows each command before it
    asks, and runs none without your yes. Without a terminal it prints them.

    It exits with 0 where the sandbox can run, and with 125 where it can't.

    Usage: lnk sandbox ready

    Options:
      -h, --help
              Print help (see a summary with '-h')
    "#);
}

#[test]
fn every_line_fits_a_terminal() {
    for page in ["-h", "sandbox --help", "sandbox run --help", "sandbox ready --help"] {
        for line in help(page).lines() {
            assert!(line.chars().count() <= 90, "{page}: {line}");
            assert_eq!(line.trim_end(), line, "{page}");
        }
    }
}
