//! Programs that are listed run, and no others: `--command`, `[commands] allow`.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use testkit::{Call, Run, TestEnv, User, each};

/// `lnk sandbox run` with these flags, separated by spaces, and a program. It
/// reads the project, where nothing else is said of it.
fn run<const N: usize>(env: &TestEnv, flags: &str, program: [&str; N]) -> Call {
    let opens = flags.contains("--write .") || flags.contains("--spec");
    let words = if opens { vec![] } else { vec!["--read", "."] };
    let words = ["sandbox", "run"].into_iter().chain(words).chain(flags.split_whitespace());
    env.lnk(words.chain(["--"]).chain(program))
}

/// The project as a write folder, and these programs.
fn sh(env: &TestEnv, programs: &str, script: &str) -> Run {
    let flags: String = programs.split_whitespace().map(|it| format!(" --command {it}")).collect();
    run(env, &format!("--write . --command sh{flags}"), ["sh", "-c", script]).run()
}

/// Runs a script in the sandbox of a spec with this list.
fn by_spec(env: &TestEnv, allow: &str, script: &str) -> Run {
    env.write("app.toml", format!("[files]\nread = [\".\"]\n[commands]\nallow = [{allow}]\n"));
    run(env, "--spec app.toml --yes", ["sh", "-c", script]).run()
}

fn refused(path: impl AsRef<Path>) -> String {
    format!("lnk sandbox: refused {}", path.as_ref().display())
}

/// A program in C, made by the machine's own compiler.
fn compiled(env: &TestEnv, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let code = env.write(format!("{name}.c"), source);
    let to = env.folder("../made").join(name);
    let words = [OsStr::new("-o"), to.as_ref(), code.as_ref()];
    env.program("gcc", words.into_iter().chain(flags.iter().map(OsStr::new))).run().ok();
    to
}

#[test]
fn the_list_is_what_runs() {
    each!(|env| {
        env.git(["init", "-q"]);
        sh(env, "git", "git status --short; uname")
            .fails_with(126)
            .stderr_has("Permission denied")
            .stderr_has(&format!("{}: add it to [commands] allow", refused("/usr/bin/uname")))
            .has_not("Linux");
        sh(env, "git uname", "git status --short && uname").ok().stdout_has("Linux").quiet();
        run(env, "--command *", ["uname"]).run().ok().prints("Linux\n");
        run(env, "--command sh --command *", ["uname"]).run().ok().prints("Linux\n");
    });
}

#[test]
fn the_given_program_has_to_be_on_it() {
    each!(|env| {
        run(env, "--command sh", ["uname"]).run().fails_with(126).prints("").stderr_has(
            "lnk sandbox: uname isn't one of the programs that may run: add --command uname",
        );
        by_spec(env, "'ls'", ":").fails_with(126).prints("").stderr_has(
            "lnk sandbox: sh isn't one of the programs that may run: add \"sh\" to [commands] allow",
        );
        let script = env.write_program("script", "#!/usr/bin/env sh\necho ran\n");
        let script = script.to_str().unwrap();
        run(env, "--read .", ["./script"]).run().ok().prints("ran\n");
        let listed = format!("--read . --command {script}");
        run(env, &listed, ["./script"])
            .run()
            .fails_with(126)
            .stderr_has("./script starts with /usr/bin/env, which may not run: add --command env");
        run(env, &format!("{listed} --command env"), ["./script"])
            .run()
            .fails_with(126)
            .stderr_has(&refused("/usr/bin/sh"));
        let all = format!("{listed} --command env --command sh");
        run(env, &all, ["./script"]).run().ok().prints("ran\n").quiet();
        run(env, "--write . --command sh", ["./script"])
            .run()
            .fails_with(126)
            .stderr_has("./script may not run and can't be listed: it is in");
        run(env, "--command sh", ["no-such-program"]).run().fails_with(127);
    });
}

#[test]
fn files_move_between_folders() {
    each!(|env| {
        env.write("a/f", "x\n");
        env.folder("b");
        let moved = "ln a/f b/g && mkdir n && python3 -c \
                     'import os; os.rename(\"a/f\", \"n/f\"); os.rename(\"n\", \"b/n\")' && cat b/n/f";
        sh(env, "ln mkdir python3 cat", moved).ok().prints("x\n").quiet();
    });
}

#[test]
fn scripts_links_and_files_of_many_names() {
    each!(|env| {
        let script = env.write_program("ro/t", "#!/usr/bin/env python3\nprint(1)\n");
        let flags = format!(
            "--read ro --read . --command {} --command env --command python3",
            script.display()
        );
        run(env, &flags, ["ro/t"]).run().ok().prints("1\n");
        run(env, "--command awk", ["awk", "BEGIN{print 1}"]).run().ok().prints("1\n");
        run(env, "--command sh", ["sh", "-c", "ls"])
            .run()
            .fails_with(126)
            .stderr_has(&refused("/usr/bin/ls"));

        let busybox =
            ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|it| Path::new(it).exists());
        let Some(busybox) = busybox else { return testkit::missing("the program busybox") };
        let tools = env.folder("../tools");
        fs::copy(busybox, tools.join("busybox")).unwrap();
        env.link("busybox", tools.join("cat"));
        env.link("busybox", tools.join("wc"));
        let flags = format!("--read {0} --command {0}/cat", tools.display());
        let wc = tools.join("wc");
        run(env, &flags, [wc.to_str().unwrap(), "-c"]).stdin("four").run().ok().prints("4\n");
        let mut terminal = run(env, &flags, [wc.to_str().unwrap(), "--help"]).terminal(24, 200);
        terminal.shows("all of whose programs may run then");
        terminal.wait_exit();
    });
}

#[test]
fn no_copy_of_a_program_runs() {
    each!(|env| {
        for script in [
            "cp /bin/true t && ./t",
            "cp /bin/true /tmp/t && /tmp/t",
            "cp /bin/true ~/t && ~/t",
            "cp /bin/true /dev/shm/t && /dev/shm/t",
            "cp /bin/true t && ln t u && ./u",
            "cp /bin/true t && ln -s t u && ./u",
            "printf '#!/bin/sh\\necho ran\\n' > s && chmod +x s && ./s",
            "printf '#!/bin/true\\n' > s && chmod +x s && ./s",
            "exec 9</bin/uname && /proc/self/fd/9",
            "/lib64/ld-linux-x86-64.so.2 /bin/uname",
            "cp /bin/uname u && /lib64/ld-linux-x86-64.so.2 ./u",
            "mv /bin/cp here",
            "ln /bin/uname here && ./here",
            "cp /bin/uname /bin/sh",
        ] {
            let run = sh(env, "cp ln mv chmod", script);
            assert!([126, 127, 1].contains(&run.code()), "{script}: {run:?}");
            run.has_not("ran").has_not("Linux");
        }
    });
}

const ATTACKS: &str = r"
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
bytes = open('/bin/true', 'rb').read()
def code(f):
    pid = os.fork()
    if pid == 0:
        try:
            f()
        except OSError as e:
            os._exit(e.errno)
        os._exit(0)
    return errno.errorcode.get(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 'RAN')
def call(number, *arguments):
    if libc.syscall(ctypes.c_long(number), *arguments) == -1:
        raise OSError(ctypes.get_errno(), '')
def memfd(flags=0):
    fd = os.memfd_create('m', flags)
    os.write(fd, bytes)
    return fd
def by_fd(fd):
    os.execve(fd, ['m'], {})
def by_link(fd):
    os.execve(f'/proc/self/fd/{fd}', ['m'], {})
def unnamed():
    fd = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o755)
    os.write(fd, bytes)
    return os.open(f'/proc/self/fd/{fd}', os.O_RDONLY), os.close(fd)
EXECVEAT, EMPTY_PATH = 322, 0x1000
print(code(lambda: by_fd(memfd())))
print(code(lambda: by_fd(memfd(os.MFD_ALLOW_SEALING))))
print(code(lambda: by_link(memfd())))
print(code(lambda: call(EXECVEAT, memfd(), b'', None, None, EMPTY_PATH)))
print(code(lambda: os.memfd_create('m', 0x10)))
print(code(lambda: os.memfd_create('m', 0x4)))
print(code(lambda: os.fchmod(memfd(), 0o755)))
print(code(lambda: by_fd(unnamed()[0])))
print(code(lambda: by_link(unnamed()[0])))
print(code(lambda: by_fd(os.open('/bin/true', os.O_RDONLY))))
print(code(lambda: os.execv('/lib64/ld-linux-x86-64.so.2', ['ld', '/bin/true'])))
print(code(lambda: os.execv('/bin/true', ['true'])))
print(code(lambda: os.execv('/bin/sh', ['sh', '-c', ':'])))
";

#[test]
fn nothing_in_memory_runs() {
    each!(|env| {
        let flags = "--write . --command python3 --command sh";
        run(env, flags, ["python3", "-c", ATTACKS]).run().ok().prints(
            "EACCES\nEACCES\nEACCES\nEACCES\nEACCES\nEPERM\nEPERM\nEACCES\nEACCES\nEACCES\nENOENT\nEACCES\nRAN\n",
        );
    });
}

const EXECUTE: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv) {
    char *none[] = {argv[2], 0};
    if (!strcmp(argv[1], "execve")) syscall(SYS_execve, argv[2], none, none + 1);
    if (!strcmp(argv[1], "at")) syscall(SYS_execveat, open("/usr", O_PATH), argv[2] + 5, none, none + 1, 0);
    if (!strcmp(argv[1], "empty")) syscall(SYS_execveat, open(argv[2], O_PATH), "", none, none + 1, AT_EMPTY_PATH);
    if (!strcmp(argv[1], "wrong")) syscall(SYS_execve, (void *)8, none, none + 1);
    printf("%s\n", strerrorname_np(errno));
    return 0;
}
"#;

#[test]
fn whoever_starts_a_program_it_is_named() {
    each!(|env| {
        let uname = refused("/usr/bin/uname");
        let named = |run: Run| {
            assert_eq!(run.stderr.matches(&uname).count(), 1, "{run:?}");
            run.has_not("Linux");
        };
        let python = "import subprocess\ntry: subprocess.run(['uname'])\nexcept PermissionError: print('no')";
        named(run(env, "--command python3", ["python3", "-c", python]).run().ok().prints("no\n"));
        let node = "require('child_process').spawn('uname').on('error', e => console.log(e.code))";
        named(run(env, "--command node", ["node", "-e", node]).run().ok().prints("EACCES\n"));
        env.git(["init", "-q"]);
        let alias = ["git", "-c", "alias.kernel=!uname", "kernel"];
        named(run(env, "--read . --command git --command sh", alias).run());
        env.write("Makefile", "kernel:\n\tuname\n");
        named(run(env, "--read . --command make --command sh", ["make", "kernel"]).run());

        let made = compiled(env, "execute", EXECUTE, &["-static"]);
        let flags = format!("--read ../made --read . --command {}", made.display());
        let made = made.to_str().unwrap();
        for how in ["execve", "at", "empty"] {
            named(run(env, &flags, [made, how, "/usr/bin/uname"]).run().ok().prints("EACCES\n"));
        }
        run(env, &flags, [made, "wrong", "x"]).run().ok().prints("EFAULT\n").quiet();
        run(env, &flags, [made, "execve", "/usr/bin/none"]).run().ok().prints("ENOENT\n").quiet();
    });
}

#[test]
fn each_program_is_named_once_and_twenty_at_most() {
    each!(|env| {
        let once = sh(env, "", "uname; uname; /bin/uname; no-such; ./no; :");
        assert_eq!(once.stderr.matches("refused").count(), 1, "{once:?}");
        for n in 0..30 {
            env.write_program(format!("ro/p{n:02}"), "#!/bin/sh\n");
        }
        let flags = "--read . --command sh";
        let all = run_all(env, flags);
        assert_eq!(all.stderr.matches("lnk sandbox: refused ").count(), 21, "{all:?}");
        all.stderr_has("lnk sandbox: refused 10 more programs\n");
        // Names are shown as what they are, and can't be anything else.
        env.write_program("ro/.\u{1b}[2J\n", "#!/bin/sh\n");
        run(env, flags, ["sh", "-c", "2>&- ro/.*J*"]).run().stderr_has("/ro/.\\x1b[2J\\n'");
    });
}

fn run_all(env: &TestEnv, flags: &str) -> Run {
    run(env, flags, ["sh", "-c", "for p in ro/*; do $p; done; :"]).run().ok()
}

#[test]
fn a_terminal_gets_them_together_at_the_end() {
    each!(|env| {
        let script = "ls; uname; true";
        let mut terminal = run(env, "--command sh", ["sh", "-c", script]).terminal(24, 120);
        terminal.shows("to let these run, add --command ls --command uname");
        terminal.wait_exit();
    });
}

#[test]
fn what_could_be_replaced_is_never_listed() {
    each!(|env| {
        let program = env.write_program("tool", "#!/bin/sh\necho ran\n");
        let at = program.display().to_string();
        by_spec(env, &format!("'sh', '{at}'"), "./tool").ok().prints("ran\n");
        let wrong = |spec: &str, why: &str| {
            env.write("app.toml", spec);
            run(env, "--spec app.toml --yes", ["sh", "-c", "echo ran"])
                .run()
                .fails_with(125)
                .prints("")
                .stderr_has(why)
                .stderr_has("^");
        };
        let writes = "[files]\nwrite = [\".\"]\n[commands]\nallow = ";
        wrong(&format!("{writes}['sh', './tool']"), "which the sandbox may write");
        wrong(&format!("{writes}['sh', './']"), "which the sandbox may write");
        wrong(&format!("{writes}['sh', '../']"), "which the sandbox may write");
        wrong("[commands]\nallow = ['sh', '/tmp/tool']", "is in /tmp");
        wrong(&format!("{writes}['sh', './none']"), "which the sandbox may write");
        wrong("[commands]\nallow = ['sh', '/']", "'*' lets any program run");
        wrong("[commands]\nallow = ['sh', '/usr']", "a slash at its end lists the programs");
        wrong("[commands]\nallow = ['sh', '/bin/sh/']", "without the slash at its end");
        wrong("[commands]\nallow = ['sh', '/etc/passwd']", "chmod +x makes a file executable");
        wrong("[commands]\nallow = ['sh', '/lib64/ld-linux-x86-64.so.2']", "it is a loader");
        let reads = "[files]\nread = ['.']\n[commands]\nallow = ['sh', './tool']";
        fs::set_permissions(&program, Permissions::from_mode(0o777)).unwrap();
        wrong(reads, "everybody may write");
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(env.project(), Permissions::from_mode(0o777)).unwrap();
        wrong(reads, "everybody may write");
        fs::set_permissions(env.project(), Permissions::from_mode(0o755)).unwrap();
        // By flags the same, in one line.
        run(env, "--write . --command sh --command ./tool", ["sh"])
            .run()
            .fails_with(125)
            .stderr_has("lnk sandbox: --command ./tool: it is in");
    });
}

/// A program that isn't listed, by a link that the sandbox or another may change.
#[test]
fn where_root_isnt_known_the_systems_programs_are_still_roots() {
    each!(|env| {
        let lnk = env.lnk_path().into_os_string().into_string().unwrap();
        let mapped = |words: &[&str]| {
            env.program("unshare", [&["--user", "--map-root-user"], words].concat())
        };
        if !mapped(&["true"]).run().status.success() {
            return testkit::missing(&format!("a user namespace for {}", env.user.name));
        }
        let start = [&*lnk, "sandbox", "run", "--read", ".", "--command"];
        mapped(&[&start[..], &["true", "--", "true"]].concat()).run().ok();

        let refused = |program: &Path, why: &str| {
            let program = program.to_str().unwrap();
            let run = mapped(&[&start[..], &[program, "--", program]].concat()).run();
            run.fails_with(125).stderr_has(why);
        };
        let own = env.write_program("own", "#!/bin/sh\n");
        fs::set_permissions(&own, Permissions::from_mode(0o777)).unwrap();
        refused(&own, "everybody may write");
        if User::current().is_root() {
            // Seen from there its owner is root's; its group could be any.
            let theirs = env.outside().join("bin/theirs");
            fs::copy("/bin/true", &theirs).unwrap();
            std::os::unix::fs::chown(&theirs, Some(0), Some(12_345)).unwrap();
            fs::set_permissions(&theirs, Permissions::from_mode(0o775)).unwrap();
            refused(&theirs, "others of its group may write");
        }
    });
}

#[test]
fn a_link_that_others_change_lists_nothing() {
    each!(|env| {
        let (tools, home) = (env.folder("../tools"), env.home().to_path_buf());
        env.link("/usr/bin/true", "tool");
        env.link(env.project().join("tool"), tools.join("helper"));
        for listed in ["./tool", "../tools/helper"] {
            let flags = format!("--write . --read ../tools --command sh --command {listed}");
            run(env, &flags, ["sh", "-c", ":"])
                .run()
                .fails_with(125)
                .stderr_has("the link ")
                .stderr_has("tool on the way: it is in ");
        }
        let path = format!("{}:/usr/bin:/bin", tools.display());
        let flags = "--write . --read ../tools --command sh --command helper";
        let call = run(env, flags, ["sh", "-c", ":"]).env("PATH", path);
        call.run().fails_with(125).stderr_has("the link ");
        // In a listed folder such a link lists nothing.
        let flags = "--write . --read ../tools --command sh --command ../tools/";
        let helper = tools.join("helper");
        let helper = helper.to_str().unwrap();
        run(env, flags, ["sh", "-c", helper]).run().fails_with(126).stderr_has("refused ");
        // Nor is it offered.
        let learn = |path: &str| {
            let words = ["sandbox", "learn", "--write", ".", "--read", "../tools", "--"];
            env.lnk(words.into_iter().chain([path])).run().ok()
        };
        learn("./tool").prints("[commands]\nallow = [\n    \"true\",\n]\n");
        env.link("/usr/lib/git-core/git-remote-http", "odd");
        learn("/usr//bin/../bin/true").prints("[commands]\nallow = [\n    \"true\",\n]\n");
        // Another user's, in a folder that anybody may change.
        let open = env.folder("../open");
        env.link("/usr/bin/true", open.join("theirs"));
        fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        run(env, "--read ../open --command ../open/theirs", ["sh"])
            .run()
            .fails_with(125)
            .stderr_has(&format!("everybody may write {}", home.join("open").display()));
    });
}

#[test]
fn a_folders_links_are_shown_and_agreed_to() {
    each!(|env| {
        let tools = env.folder("../tools");
        env.link("/usr/bin/true", tools.join("helper"));
        env.write(
            "app.toml",
            "[files]\nread = ['.', '../tools']\n[commands]\nallow = ['sh', '../tools/']\n",
        );
        let mut terminal =
            run(env, "--spec app.toml", ["sh", "-c", "../tools/helper"]).terminal(24, 160);
        terminal.shows("and by links /usr/bin/true").shows("Run it?");
        terminal.line("y");
        assert_eq!(terminal.wait_exit(), 0);
        run(env, "--spec app.toml", ["sh", "-c", "../tools/helper"]).run().ok();
        fs::remove_file(tools.join("helper")).unwrap();
        env.link("/usr/bin/python3", tools.join("helper"));
        let again = run(env, "--spec app.toml", ["sh", "-c", "../tools/helper -c 'print(1)'"]);
        again.run().fails_with(125).prints("").stderr_has("opens more than you agreed to");
    });
}

#[test]
fn a_listed_folder_holds_no_file_of_the_sandboxs() {
    each!(|env| {
        let tools = env.folder("../tools");
        let tool = env.write_program(tools.join("tool"), "#!/bin/sh\n:\n");
        let flags = "--write . --read ../tools --command sh --command ../tools/";
        let runs = |why: &str| {
            run(env, flags, ["sh", "-c", ":"]).run().fails_with(125).stderr_has(why);
        };
        run(env, flags, ["sh", "-c", "../tools/tool"]).run().ok();
        // By a hard link, executable or not yet.
        let link = env.project().join("link");
        fs::hard_link(&tool, &link).unwrap();
        runs("another name (a hard link)");
        fs::set_permissions(&tool, Permissions::from_mode(0o644)).unwrap();
        runs("another name (a hard link)");
        fs::remove_file(&link).unwrap();
        fs::set_permissions(&tool, Permissions::from_mode(0o755)).unwrap();
        // A folder that can't be looked through may hold one.
        if !env.user.is_root() {
            let closed = env.folder("closed");
            fs::hard_link(&tool, closed.join("link")).unwrap();
            fs::set_permissions(&closed, Permissions::from_mode(0o000)).unwrap();
            runs("can't be looked through");
            fs::set_permissions(&closed, Permissions::from_mode(0o755)).unwrap();
            fs::remove_dir_all(&closed).unwrap();
            let closed = env.folder(tools.join("closed"));
            fs::set_permissions(&closed, Permissions::from_mode(0o311)).unwrap();
            runs("can't be looked through");
            fs::set_permissions(&closed, Permissions::from_mode(0o755)).unwrap();
        }
        // The empty home, which is the sandbox's own, neither.
        let home = env.folder("../tools/home");
        let words =
            "--write . --read ../tools --hide ../tools/home --command sh --command ../tools/";
        run(env, words, ["sh", "-c", ":"])
            .env("HOME", &home)
            .run()
            .fails_with(125)
            .stderr_has("which the sandbox may write");
    });
}

#[test]
fn a_loader_seen_twice_is_closed_twice() {
    each!(|env| {
        if !env.user.is_root() {
            return;
        }
        env.folder("../twice");
        let script = "mount --bind /usr ../twice && exec lnk sandbox run --write . --read ../twice \
             --command /usr/lib/x86_64-linux-gnu/ --command sh -- sh -c \
             '../twice/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 /usr/bin/uname'";
        env.program("unshare", ["-m", "sh", "-c", script])
            .run()
            .fails_with(127)
            .prints("")
            .stderr_has("a loader would run any program");
    });
}

#[test]
fn no_stream_lets_a_program_run() {
    each!(|env| {
        let tools = env.folder("../tools");
        env.write_program(tools.join("tool"), "#!/bin/sh\n:\n");
        let lnk = "lnk sandbox run --read . --read ../tools --command sh --command";
        for (script, why) in [
            // The loader as the machine has it, which the copy doesn't cover.
            (
                format!(
                    "{lnk} /usr/lib/x86_64-linux-gnu/ -- sh -c '/proc/self/fd/0 /bin/uname' \
                         < /lib64/ld-linux-x86-64.so.2"
                ),
                "standard input is in a listed folder",
            ),
            // A program of the next run's.
            (
                format!("{lnk} ../tools/ -- sh -c : > ../tools/log"),
                "standard output is in a listed",
            ),
            (
                format!("{lnk} ../tools/tool -- sh -c : >> ../tools/tool"),
                "standard output is a listed program",
            ),
        ] {
            env.sh(&script).run().fails_with(125).prints("").stderr_has(why);
        }
        env.sh(&format!("{lnk} ../tools/tool -- sh -c 'cat' < ../tools/tool"))
            .run()
            .fails_with(126);
    });
}

#[test]
fn odd_loaders_load_nothing() {
    each!(|env| {
        let made = |name: &str, loader: &Path| {
            let flag = format!("-Wl,--dynamic-linker={}", loader.display());
            compiled(env, name, "int main(void) { return 0; }", &[&flag])
        };
        let flags = "--read . --read ../made --command sh --command";
        let fifo = env.home().join("made/fifo");
        let program = made("waits", &fifo);
        env.program("mkfifo", [&fifo]).run().ok();
        let path = program.to_str().unwrap();
        run(env, &format!("{flags} {path}"), [path]).run().fails_with(126);
        let program = made("relative", Path::new("loader"));
        run(env, &format!("{flags} {}", program.display()), ["sh"])
            .run()
            .fails_with(125)
            .stderr_has("from wherever the program is started");
        // By another name in a listed folder it is the same loader.
        fs::remove_file(&program).unwrap();
        let real = fs::canonicalize("/lib64/ld-linux-x86-64.so.2").unwrap();
        let tools = env.folder("../tools");
        fs::copy(&real, tools.join("ld-linux-x86-64.so.2")).unwrap();
        fs::hard_link(tools.join("ld-linux-x86-64.so.2"), tools.join("other")).unwrap();
        let words = "--read . --read ../tools --command sh --command ../tools/";
        let script = "../tools/ld-linux-x86-64.so.2 /bin/uname; ../tools/other /bin/uname";
        run(env, words, ["sh", "-c", script]).run().fails_with(127).prints("");
    });
}

#[test]
fn flags_beside_a_spec_are_part_of_where_its_programs_are() {
    each!(|env| {
        env.write_program("../local/uname", "#!/bin/sh\necho mine\n");
        env.write("app.toml", "[files]\nread = ['.']\n[commands]\nallow = ['uname', 'sh']\n");
        let path = format!("{}:/usr/bin:/bin", env.home().join("local").display());
        let spec = |flags: &str| {
            run(env, &format!("--spec app.toml {flags}"), ["uname"])
                .env("PATH", path.as_str())
                .run()
        };
        spec("--yes").ok().prints("Linux\n");
        spec("").ok().prints("Linux\n");
        spec("--read . --read ../local")
            .fails_with(125)
            .stderr_has("opens more than you agreed to");
        spec("--read . --read ../local --yes").ok().prints("mine\n");
        spec("--read . --read ../local").ok().prints("mine\n");
    });
}

#[test]
fn nothing_of_lnk_runs_inside_unlisted() {
    each!(|env| {
        run(env, "--command sh", ["/run/lnk/lnk", "--version"]).run().fails().has_not("lnk 0");
    });
}

#[test]
fn names_by_proc_are_told() {
    each!(|env| {
        let exec = |path: &str| {
            format!(
                "import os\ntry: os.execv('{path}', ['x'])\nexcept OSError as e: print(e.strerror)"
            )
        };
        let cases =
            ["/proc/self/root/usr/bin/uname", "/proc/self/cwd/prog", "/proc/thread-self/cwd/prog"];
        env.write_program("prog", "#!/bin/sh\necho ran\n");
        for path in cases {
            let told = if path.contains("cwd") {
                env.project().join("prog")
            } else {
                "/usr/bin/uname".into()
            };
            run(env, "--command python3", ["python3", "-c", &exec(path)])
                .run()
                .ok()
                .prints("Permission denied\n")
                .stderr_has(&refused(told));
        }
    });
}

#[test]
fn a_program_called_star_is_no_star() {
    each!(|env| {
        env.write_program("../bin/*", "#!/bin/sh\necho ran\n");
        let path = format!("{}:/usr/bin:/bin", env.home().join("bin").display());
        let star = env.home().join("bin/*");
        let call = run(env, "--read ../bin --command sh", ["sh", "-c", "'*'"]).env("PATH", path);
        call.run().fails_with(126).stderr_has(&format!("(--command '{}')", star.display()));
    });
}

#[test]
fn a_hard_link_in_a_write_folder_is_found() {
    each!(|env| {
        let tool = env.write_program("../tools/tool", "#!/bin/sh\necho ran\n");
        let flags = format!("--write . --read ../tools --command sh --command {}", tool.display());
        let program = ["sh", "-c", "../tools/tool"];
        run(env, &flags, program).run().ok().prints("ran\n");
        fs::hard_link(&tool, tool.with_file_name("beside")).unwrap();
        run(env, &flags, program).run().ok().prints("ran\n");
        fs::hard_link(&tool, env.folder("deep/in").join("link")).unwrap();
        run(env, &flags, program).run().fails_with(125).stderr_has("another name (a hard link)");
    });
}

#[test]
fn path_is_searched_where_nobody_else_puts_programs() {
    each!(|env| {
        env.write_program("bin/tool", "#!/bin/sh\necho the sandbox\'s\n");
        env.write_program("../bin/tool", "#!/bin/sh\necho mine\n");
        let outer = env.home().join("bin");
        let flags = "--read . --read ../bin --command sh --command tool";
        for first in ["bin", "", ".", "/tmp", "../project/bin"] {
            let path = format!("{first}:{}:/usr/bin:/bin", outer.display());
            let script = format!("{}/tool && bin/tool", outer.display());
            let call = run(env, flags, ["sh", "-c", &script]).env("PATH", path);
            call.run().fails_with(126).prints("mine\n");
        }
        let mut terminal =
            run(env, "--command sh --command pythom3", ["sh", "-c", ":"]).terminal(24, 120);
        terminal.shows("did you mean python3?");
        terminal.wait_exit();
    });
}

#[test]
fn a_folder_lists_all_its_programs() {
    each!(|env| {
        for n in 0..2000 {
            env.write_program(format!("../many/p{n:04}"), "#!/bin/sh\necho ran\n");
        }
        env.write_program("../elsewhere/linked", "#!/bin/sh\necho linked\n");
        env.link("../elsewhere/linked", "../many/linked");
        env.write_program("../many/deep/er", "#!/bin/sh\necho deeper\n");
        let read = "--write . --read ../many --read ../elsewhere --command sh";
        let script = "../many/p0000 && ../many/p1999 && ../many/linked && ../many/deep/er";
        run(env, &format!("{read} --command ../many/"), ["sh", "-c", script])
            .run()
            .ok()
            .prints("ran\nran\nlinked\ndeeper\n");
        run(env, &format!("{read} --command ../many/p0000"), ["sh", "-c", script])
            .run()
            .fails_with(126)
            .prints("ran\n");
        let deeper = env.home().join("many/deep");
        fs::set_permissions(&deeper, Permissions::from_mode(0o1777)).unwrap();
        run(env, &format!("{read} --command ../many/"), ["sh"])
            .run()
            .fails_with(125)
            .stderr_has("everybody may write");
        let loader = "/lib64/ld-linux-x86-64.so.2 /usr/bin/uname; /usr/bin/uname";
        run(env, "--command sh --command /usr/bin/", ["sh", "-c", loader])
            .run()
            .ok()
            .prints("Linux\n");
    });
}

#[test]
fn three_hundred_entries() {
    each!(|env| {
        let programs: Vec<String> = (0..300)
            .map(|n| {
                let path = env.write_program(format!("../many/p{n:03}"), "#!/bin/sh\necho $0\n");
                format!("'{}'", path.display())
            })
            .collect();
        let list = format!("'sh', {}", programs.join(", "));
        env.write(
            "app.toml",
            format!("[files]\nread = ['.', '../many']\n[commands]\nallow = [{list}]\n"),
        );
        let script = "../many/p000; ../many/p299; uname";
        run(env, "--spec app.toml --yes", ["sh", "-c", script])
            .run()
            .fails_with(126)
            .prints("../many/p000\n../many/p299\n");
    });
}

#[test]
fn without_landlock_a_list_is_refused() {
    each!(|env| {
        let call = run(env, "--command uname", ["uname"]);
        call.denied(libc::SYS_landlock_create_ruleset, libc::ENOSYS)
            .run()
            .fails_with(125)
            .prints("")
            .stderr_has("Landlock");
        let call = run(env, "", ["uname"]);
        call.denied(libc::SYS_landlock_create_ruleset, libc::ENOSYS).run().ok().prints("Linux\n");
    });
}

#[test]
fn the_loader_in_place_of_the_real_one_loads_programs() {
    each!(|env| {
        let python = "import ssl, sqlite3, ctypes; print(1)";
        run(env, "--command python3", ["python3", "-c", python]).run().ok().prints("1\n");
        run(env, "--command perl", ["perl", "-e", "print 2"]).run().ok().prints("2");
        run(env, "--command node", ["node", "-p", "3"]).run().ok().prints("3\n");
        run(env, "--command git", ["git", "--version"]).run().ok().stdout_has("git version");
    });
}

#[test]
fn a_program_in_memory_is_no_stream() {
    let body = "import os, subprocess, sys\n\
                fd = os.memfd_create('m')\n\
                os.fchmod(fd, 0o600)\n\
                sys.exit(subprocess.run(sys.argv[1:], stdin=fd).returncode)";
    each!(|env| {
        let lnk = env.lnk_path();
        let words = ["-c", body, lnk.to_str().unwrap(), "sandbox", "run", "--read", "."];
        let with = |rest: &[&'static str]| env.program("python3", words.iter().chain(rest)).run();
        with(&["--command", "true", "--", "true"])
            .fails_with(125)
            .stderr_has("standard input is a file in memory that could be run");
        with(&["--", "true"]).ok();
    });
}
