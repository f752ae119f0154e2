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
      run          Run a program in the sandbox
      learn        Find the programs that a command starts, to list them
      spec         Print a spec: a sandbox written down
      permissions  List what a sandbox can be given: each section, its keys and their flags
      ready        Tell whether the sandbox can run on this machine, and offer what it needs
      check        Try from inside what the sandbox shouldn't allow
      key          Print a sandbox's own SSH key, the public half
      log          Show every call on the sandboxes' proxies
      traffic      Show what each running sandbox sent and received
      stop         Close every sandbox's wire
      pause        Close one sandbox's wire
      resume       Open a sandbox's wire again
      paused       Show which wires are closed, since when, and why

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
      run          Run a program in the sandbox
      learn        Find the programs that a command starts, to list them
      spec         Print a spec: a sandbox written down
      permissions  List what a sandbox can be given: each section, its keys and their flags
      ready        Tell whether the sandbox can run on this machine, and offer what it needs
      check        Try from inside what the sandbox shouldn't allow
      key          Print a sandbox's own SSH key, the public half
      log          Show every call on the sandboxes' proxies
      traffic      Show what each running sandbox sent and received
      stop         Close every sandbox's wire
      pause        Close one sandbox's wire
      resume       Open a sandbox's wire again
      paused       Show which wires are closed, since when, and why

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
          --port <PORT>   A port of this machine's loopback that it may connect to

    Let it commit:
          --write-dot-files <PATH>  A --write folder whose .git, .envrc and the like it may change too

    Choose the programs it may run:
          --command <PROGRAM>  A program it may run: a name, a path, a folder ending in /, or '*'

    Give it the internet through Link's proxy:
          --internet-host <HOST>  A host it may reach; '*.x' for every name under x, '*' for any host
          --tcp <HOST:PORT>       An endpoint of its hosts beyond HTTPS on 443 and HTTP on 80
          --upstream <UPSTREAM>   Where connections leave from: direct, or socks5://127.0.0.1:PORT
          --per-minute <CALLS>    The most calls it may make within a minute

    Reach your network:
          --lan-host <HOST>  A machine of your network: a name, an address, a range, or '*'

    Let it use a model:
          --model <PORT>  A port of a local model runtime, for inference only

    Call a tool that runs outside:
          --tool <NAME>  A tool it may call, by the name it was added under

    Open a page in your browser:
          --browser-host <HOST>  A host whose https:// pages it may ask to open; '*' for any

    Describe a sandbox in a file:
          --spec <FILE>  A spec, the file that says what the sandbox may do
          --yes          Agree to what the spec opens without being asked

    Help:
      -h, --help  Show this help: in short with -h, whole with --help

    Not built yet, so a run with one of them is refused: --model, --tool,
    --browser-host.
    "#);
}

#[test]
fn lnk_sandbox_run_long() {
    insta::assert_snapshot!(help("sandbox run --help"), @r#"
    Run a program in the sandbox

    The program reads the system's programs and libraries, and nothing else
    unless you open it. It has no network but Link's proxy, to the hosts that you
    name. Its environment is cleared but for PATH, HOME, TERM, COLORTERM, TZ, the
    locale, the proxy and who you are. It gets an empty home folder, an empty
    /run and a private /tmp, and sees only its own processes.

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

          --port <PORT>
              A port of this machine's loopback that it may connect to

    Let it commit:
          --write-dot-files <PATH>
              A --write folder whose .git, .envrc and the like it may change too

              What is written there runs as you, outside the sandbox, the next time you
              run git, cd into the folder or open it in your editor. Repeat it for more.

    Choose the programs it may run:
          --command <PROGRAM>
              A program it may run: a name, a path, a folder ending in /, or '*'

              With one, no other program runs. Repeat it for more.

    Give it the internet through Link's proxy:
          --internet-host <HOST>
              A host it may reach; '*.x' for every name under x, '*' for any host

          --tcp <HOST:PORT>
              An endpoint of its hosts beyond HTTPS on 443 and HTTP on 80

              Such as github.com:22, or '*.abc.mongodb.net:27017' for every name under
              one domain. Its host must be one that --internet-host or --lan-host opens.
              Programs reach it by its own name and port. Repeat it for more.

          --upstream <UPSTREAM>
              Where connections leave from: direct, or socks5://127.0.0.1:PORT

              With socks5h:// the proxy gets names and resolves them, unseen here.

          --per-minute <CALLS>
              The most calls it may make within a minute

    Reach your network:
          --lan-host <HOST>
              A machine of your network: a name, an address, a range, or '*'

    Let it use a model:
          --model <PORT>
              A port of a local model runtime, for inference only

    Call a tool that runs outside:
          --tool <NAME>
              A tool it may call, by the name it was added under

    Open a page in your browser:
          --browser-host <HOST>
              A host whose https:// pages it may ask to open; '*' for any

    Describe a sandbox in a file:
          --spec <FILE>
              A spec, the file that says what the sandbox may do

              A flag beside it replaces that key of the file, but --hide, which adds to
              it. A spec that hasn't run here, or opens something else now, is shown and
              asked about first.

          --yes
              Agree to what the spec opens without being asked

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
      Your whole home folder to read, and a local database:
        lnk sandbox run --read '~' --port 5432 -- ./tool
      The internet, and nothing of this machine or its network:
        lnk sandbox run --internet-host '*' -- curl -sI https://example.com
      Two machines, one of them in your network:
        lnk sandbox run --internet-host api.example.com --lan-host nas.local -- ./sync
      A database by its name:
        lnk sandbox run --internet-host db.example.com --tcp db.example.com:5432 -- ./report
      Look at a repository, then commit to it:
        lnk sandbox run --write . -- git status
        lnk sandbox run --write . --write-dot-files . -- git commit -qam fix
      Only programs that you name:
        lnk sandbox run --write . --command sh --command git -- sh -c 'git status'
      A sandbox written down:
        lnk sandbox run --spec app.toml -- node app.js

    Not built yet, so a run with one of them is refused: --model, --tool,
    --browser-host.
    "#);
}

/// Its flags are those of `run`.
#[test]
fn lnk_sandbox_learn() {
    const FLAGS: &str = "\nRun a program in the sandbox:\n";
    let help_of_run = help("sandbox run --help");
    let help = help("sandbox learn --help");
    let (own, flags) = help.split_once(FLAGS).unwrap();
    let (flags, examples) = flags.split_once("\nExamples:\n").unwrap();
    let flags_of_run = help_of_run.split_once(FLAGS).unwrap().1;
    assert_eq!(flags, flags_of_run.split_once("\nExamples:\n").unwrap().0);
    insta::assert_snapshot!(own, @r#"
    Find the programs that a command starts, to list them

    It runs the command once, with the grants that you give and every program
    open, and prints the entries to add to [commands] allow: a name where PATH
    finds it, a path otherwise. Nothing is written: paste them into a spec. What
    the command prints goes to stderr.

    Of a list that there is already, in the spec or by --command, only what it
    lacks is printed. A program in a folder that the sandbox may write, or in
    /tmp, is never offered: what is left out is told on stderr. A program that
    this run didn't start isn't found. An interpreter is marked: it runs any code
    it is given.

    It exits with the command's status, and with 125 where the sandbox itself
    failed.

    Usage: lnk sandbox learn [FLAGS] -- PROGRAM [ARGUMENTS]...

    Arguments:
      <PROGRAM>...
              The command: a program and its arguments

    Options:
          --json
              Print one JSON object
    "#);
    insta::assert_snapshot!(examples, @r#"
      Every program that the tests start, to add to app.toml:
        lnk sandbox learn --spec app.toml -- npm test
      With grants from flags:
        lnk sandbox learn --write . -- make

    Not built yet, so a run with one of them is refused: --model, --tool,
    --browser-host.
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
fn lnk_sandbox_spec() {
    insta::assert_snapshot!(help("sandbox spec --help"), @r#"
    Print a spec: a sandbox written down

    With flags, a spec to start from: what they open, and every other key as a
    comment. With --spec, that spec, its paths absolute and the flags in place of
    its keys.

    Usage: lnk sandbox spec [OPTIONS]

    Options:
      -h, --help
              Print help (see a summary with '-h')

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

          --port <PORT>
              A port of this machine's loopback that it may connect to

    Let it commit:
          --write-dot-files <PATH>
              A --write folder whose .git, .envrc and the like it may change too

              What is written there runs as you, outside the sandbox, the next time you
              run git, cd into the folder or open it in your editor. Repeat it for more.

    Choose the programs it may run:
          --command <PROGRAM>
              A program it may run: a name, a path, a folder ending in /, or '*'

              With one, no other program runs. Repeat it for more.

    Give it the internet through Link's proxy:
          --internet-host <HOST>
              A host it may reach; '*.x' for every name under x, '*' for any host

          --tcp <HOST:PORT>
              An endpoint of its hosts beyond HTTPS on 443 and HTTP on 80

              Such as github.com:22, or '*.abc.mongodb.net:27017' for every name under
              one domain. Its host must be one that --internet-host or --lan-host opens.
              Programs reach it by its own name and port. Repeat it for more.

          --upstream <UPSTREAM>
              Where connections leave from: direct, or socks5://127.0.0.1:PORT

              With socks5h:// the proxy gets names and resolves them, unseen here.

          --per-minute <CALLS>
              The most calls it may make within a minute

    Reach your network:
          --lan-host <HOST>
              A machine of your network: a name, an address, a range, or '*'

    Let it use a model:
          --model <PORT>
              A port of a local model runtime, for inference only

    Call a tool that runs outside:
          --tool <NAME>
              A tool it may call, by the name it was added under

    Open a page in your browser:
          --browser-host <HOST>
              A host whose https:// pages it may ask to open; '*' for any

    Describe a sandbox in a file:
          --spec <FILE>
              A spec to print, with its paths absolute

    Examples:
      A spec to start from:
        lnk sandbox spec --write ~/code/app --internet-host '*' --command node > app.toml
      What a spec says, with its paths absolute:
        lnk sandbox spec --spec app.toml
    "#);
}

#[test]
fn lnk_sandbox_permissions() {
    insta::assert_snapshot!(help("sandbox permissions --help"), @r#"
    List what a sandbox can be given: each section, its keys and their flags

    Usage: lnk sandbox permissions [OPTIONS]

    Options:
          --json  As JSON: an array with an object for each key
      -h, --help  Print help
    "#);
}

#[test]
fn lnk_sandbox_check() {
    insta::assert_snapshot!(help("sandbox check --help"), @r#"
    Try from inside what the sandbox shouldn't allow

    It plants bait (secrets in your home folder, in Link's settings and in each
    --hide folder, a server on another port, and more), tries to reach each from
    inside, then removes it. Give it the flags that you give run. Nothing is sent
    to another machine. Each try is:

      blocked    the sandbox stopped it
      allowed    a flag that you gave lets it through
      open       a known gap, which docs/security.md explains
      LEAK       something nothing allows got through; please report it
      not tried  it can't be said, because the same try fails outside too

    It exits with 1 where something leaked or wasn't tried, and with 125 where
    the sandbox couldn't be run.

    Usage: lnk sandbox check [OPTIONS]

    Options:
          --json
              Print the table as one JSON object

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

          --port <PORT>
              A port of this machine's loopback that it may connect to

    Let it commit:
          --write-dot-files <PATH>
              A --write folder whose .git, .envrc and the like it may change too

              What is written there runs as you, outside the sandbox, the next time you
              run git, cd into the folder or open it in your editor. Repeat it for more.

    Choose the programs it may run:
          --command <PROGRAM>
              A program it may run: a name, a path, a folder ending in /, or '*'

              With one, no other program runs. Repeat it for more.

    Give it the internet through Link's proxy:
          --internet-host <HOST>
              A host it may reach; '*.x' for every name under x, '*' for any host

          --tcp <HOST:PORT>
              An endpoint of its hosts beyond HTTPS on 443 and HTTP on 80

              Such as github.com:22, or '*.abc.mongodb.net:27017' for every name under
              one domain. Its host must be one that --internet-host or --lan-host opens.
              Programs reach it by its own name and port. Repeat it for more.

          --upstream <UPSTREAM>
              Where connections leave from: direct, or socks5://127.0.0.1:PORT

              With socks5h:// the proxy gets names and resolves them, unseen here.

          --per-minute <CALLS>
              The most calls it may make within a minute

    Reach your network:
          --lan-host <HOST>
              A machine of your network: a name, an address, a range, or '*'

    Let it use a model:
          --model <PORT>
              A port of a local model runtime, for inference only

    Call a tool that runs outside:
          --tool <NAME>
              A tool it may call, by the name it was added under

    Open a page in your browser:
          --browser-host <HOST>
              A host whose https:// pages it may ask to open; '*' for any

    Describe a sandbox in a file:
          --spec <FILE>
              A spec, the file that says what the sandbox may do

              A flag beside it replaces that key of the file, but --hide, which adds to
              it. A spec that hasn't run here, or opens something else now, is shown and
              asked about first.

          --yes
              Agree to what the spec opens without being asked

    Help:
      -h, --help
              Show this help: in short with -h, whole with --help

    Not built yet, so a run with one of them is refused: --model, --tool,
    --browser-host.
    "#);
}

#[test]
fn lnk_sandbox_log() {
    insta::assert_snapshot!(help("sandbox log -h"), @r#"
    Show every call on the sandboxes' proxies

    Usage: lnk sandbox log [OPTIONS]

    Options:
      -n <LINES>            How many lines, the latest [default: 40]
          --sandbox <NAME>  Only the sandbox with this name, or all of the spec with it or this path
          --refused         Only what was refused
          --json            One JSON object per line, as the log has it
          --follow          Go on with what is logged from now on
      -h, --help            Print help (see more with '--help')
    "#);
    insta::assert_snapshot!(help("sandbox log --help"), @r#"
    Show every call on the sandboxes' proxies

    Each line is a call on a sandbox's proxy: when (UTC), which sandbox, the
    verb, where to, and what happened. A sandbox is named run-PID, or check-PID
    where check tried it; the name of its spec stands beside it. The log never
    holds a request's path, headers or body.

    Verbs: connect (HTTPS), tcp (another port), http, port (this machine's), dns
    (a name looked up), pause, unknown (a target that can't be read).

    What happened: allowed, then ended with the bytes each way; or refused; or
    failed, when it was allowed but nothing answered.

    log exits with 0, also where there is no call, and with 125 where no sandbox has
    the name or the log can't be read.

    Usage: lnk sandbox log [OPTIONS]

    Options:
      -n <LINES>
              How many lines, the latest

              [default: 40]

          --sandbox <NAME>
              Only the sandbox with this name, or all of the spec with it or this path

          --refused
              Only what was refused

          --json
              One JSON object per line, as the log has it

          --follow
              Go on with what is logged from now on

      -h, --help
              Print help (see a summary with '-h')
    "#);
}

#[test]
fn lnk_sandbox_traffic() {
    insta::assert_snapshot!(help("sandbox traffic --help"), @r#"
    Show what each running sandbox sent and received

    What each running sandbox's proxy has carried since it started, every call it
    let through: up, from the sandbox, and down, to it.

    Usage: lnk sandbox traffic [OPTIONS]

    Options:
          --json
              As JSON: an array with an object for each sandbox

      -h, --help
              Print help (see a summary with '-h')
    "#);
}

#[test]
fn lnk_sandbox_stop() {
    insta::assert_snapshot!(help("sandbox stop --help"), @r#"
    Close every sandbox's wire

    Within a second every open call ends and new ones are refused, whatever the
    programs do; they keep running. Runs that start meanwhile have their wires
    closed too. The log stays.

    Every sandbox is this user's, by the home folder: root's command stops those of
    root. Another user's are stopped by: sudo -u USER -H lnk sandbox stop

    A sandbox without a wire, such as one with --allow network, stops only when
    its program does.

    stop exits with 0; with 1 where it is done, but a wire didn't answer, which
    closes when its lnk goes on, or it couldn't be printed; with 125 where it isn't.

    Usage: lnk sandbox stop [OPTIONS]

    Options:
          --off
              Open the wires again, but those that are paused

      -h, --help
              Print help (see a summary with '-h')
    "#);
}

#[test]
fn lnk_sandbox_pause() {
    insta::assert_snapshot!(help("sandbox pause --help"), @r#"
    Close one sandbox's wire

    Within a second its open calls end and new ones are refused; its program keeps
    running. A spec's pause is for all its runs, those to come too, until resume.
    That of a run without a spec ends with the run. An agent's is for all its commands.

    A sandbox also pauses itself, and says so: when 30 of its calls are refused
    within a minute, calls to 20 different targets within 10 minutes, or any call
    to a cloud's metadata service.

    pause exits with 0; with 1 where it is done, but a wire didn't answer, which
    closes when its lnk goes on, or it couldn't be printed; with 125 where it isn't.

    Usage: lnk sandbox pause <NAME>

    Arguments:
      <NAME>
              run-PID, a spec's name, a spec's path, or an agent's, such as main-run

    Options:
      -h, --help
              Print help (see a summary with '-h')
    "#);
}

#[test]
fn lnk_sandbox_resume() {
    insta::assert_snapshot!(help("sandbox resume --help"), @r#"
    Open a sandbox's wire again

    Of a sandbox that was paused, by hand or by itself. What it was refused before
    no longer counts.

    resume exits with 0, also where it wasn't paused; with 1 where it is done, but a
    wire didn't answer, which opens when its lnk goes on, or it couldn't be printed;
    with 125 where it isn't.

    Usage: lnk sandbox resume <NAME>

    Arguments:
      <NAME>
              Its name, as 'lnk sandbox paused' shows it, or its spec's path

    Options:
      -h, --help
              Print help (see a summary with '-h')
    "#);
}

#[test]
fn lnk_sandbox_paused() {
    insta::assert_snapshot!(help("sandbox paused --help"), @r#"
    Show which wires are closed, since when, and why

    '(every sandbox)' stands for all of them, where they are stopped. A spec is
    shown with its path, which names it too, a run without one while it runs.

    paused exits with 0, whether any is closed or not, and with 125 where that
    can't be told.

    Usage: lnk sandbox paused [OPTIONS]

    Options:
          --json
              As JSON: an object that says whether all are stopped, and which are paused

      -h, --help
              Print help (see a summary with '-h')
    "#);
}

#[test]
fn every_line_fits_a_terminal() {
    for page in [
        "-h",
        "sandbox --help",
        "sandbox run --help",
        "sandbox learn --help",
        "sandbox spec --help",
        "sandbox permissions --help",
        "sandbox ready --help",
        "sandbox check --help",
        "sandbox log --help",
        "sandbox traffic --help",
        "sandbox stop --help",
        "sandbox pause --help",
        "sandbox resume --help",
        "sandbox paused --help",
    ] {
        for line in help(page).lines() {
            assert!(line.chars().count() <= 90, "{page}: {line}");
            assert_eq!(line.trim_end(), line, "{page}");
        }
    }
}

#[test]
fn lnk_sandbox_key() {
    insta::assert_snapshot!(help("sandbox key --help"), @r#"
    Print a sandbox's own SSH key, the public half

    A sandbox with an endpoint on port 22 has an SSH key of its own in its ~/.ssh:
    never one of yours. It is known by its spec, or by its first --write folder where
    there is none; an agent's by its name. The key is made here if there is none yet; a
    sandbox whose SSH server is at another port has it from then on. A spec has one
    once you agreed to what it opens.

    With --forget it forgets the host key of a server instead, which was changed.

    key exits with 0, and with 125 where there is no key.

    Usage: lnk sandbox key [OPTIONS] <--spec <FILE>|--write <PATH>|--name <NAME>>

    Options:
          --write <PATH>
              The folder that it is run with, without a spec

          --name <NAME>
              The agent's sandbox, such as main-run

      -h, --help
              Print help (see a summary with '-h')

    Describe a sandbox in a file:
          --spec <FILE>
              The spec that the sandbox is run with

    Forget a server:
          --forget <HOST>
              A server whose host key it is to forget; '*.x' for every name under x

    Examples:
      lnk sandbox key --write ~/code/app
      lnk sandbox key --forget forge.example.com --write ~/code/app
    "#);
}
