//! Programs that people run, doing in the sandbox what they do outside.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::{Call, Run, TestEnv};

/// `lnk sandbox run --write . -- …`
fn writing<const N: usize>(env: &TestEnv, argv: [&str; N]) -> Call {
    env.lnk(["sandbox", "run", "--write", ".", "--"].into_iter().chain(argv))
}

/// How long what makes thousands of files may take on a machine under load.
const MANY_FILES: Duration = Duration::from_secs(300);

fn bash(env: &TestEnv, script: &str) -> Run {
    writing(env, ["bash", "-c", script]).run()
}

/// What `scripts/test` installs; other programs are run where they are.
const INSTALLED: [&str; 7] = ["busybox", "gcc", "make", "node", "npm", "script", "strace"];

/// Whether this machine has a program; says so when it doesn't.
fn has(program: &str) -> bool {
    let path = "/usr/local/bin:/usr/bin:/bin".split(':');
    let there = path.into_iter().any(|folder| Path::new(folder).join(program).exists());
    match (there, INSTALLED.contains(&program)) {
        (true, _) => {}
        (false, true) => testkit::missing(&format!("the program {program}")),
        (false, false) => testkit::skip(&format!("the program {program}")),
    }
    there
}

#[test]
fn rust() {
    testkit::each!(|env| {
        if !env.give_rust() {
            return testkit::missing("a Rust toolchain");
        }
        env.write(
            "Cargo.toml",
            "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
        );
        env.write("src/main.rs", "fn main() { println!(\"built {}\", small::two()); }\n");
        env.write(
            "src/lib.rs",
            "pub fn two() -> u32 { 2 }\n#[test]\nfn is_two() { assert_eq!(two(), 2); }\n",
        );
        env.write("build.rs", "fn main() { println!(\"cargo:rerun-if-changed=build.rs\"); }\n");
        let script = "export PATH=$HOME/.rustup/toolchains/stable/bin:$PATH\n\
                      cargo build --offline && cargo test --offline -q && target/debug/small";
        let words = ["sandbox", "run", "--read", "~/.rustup", "--write", ".", "--", "bash", "-c"];
        env.lnk(words.into_iter().chain([script]))
            .deadline(Duration::from_secs(300))
            .run()
            .ok()
            .stdout_has("built 2\n");
        assert!(env.project().join("target/debug/small").exists());
        // What is only read stays as it is.
        let words = ["sandbox", "run", "--read", "~/.rustup", "--write", ".", "--", "touch"];
        let here = env.home().join(".rustup/new");
        env.lnk(words.into_iter().chain(here.to_str())).run().fails();
    });
}

#[test]
fn npm_and_node() {
    if !has("npm") || !has("node") {
        return;
    }
    testkit::each!(|env| {
        env.write(
            "package.json",
            r#"{"name":"p","version":"1.0.0","scripts":{"build":"node build.js"}}"#,
        );
        env.write(
            "build.js",
            "const fs = require('fs'), os = require('os'), { execSync } = require('child_process');
fs.mkdirSync('dist'); fs.writeFileSync('dist/a', execSync('echo from a child').toString());
console.log('built for', os.userInfo().username, os.cpus().length > 0);",
        );
        let built = format!("built for {} true\n", env.user.name);
        writing(env, ["npm", "run", "build"]).run().ok().stdout_has(&built);
        assert_eq!(fs::read_to_string(env.project().join("dist/a")).unwrap(), "from a child\n");
        writing(env, ["node", "-e", "console.log(1 + 1)"]).run().ok().prints("2\n").quiet();
        env.write(
            "worker.js",
            "const { Worker, isMainThread, parentPort } = require('worker_threads');
if (isMainThread) new Worker(__filename).on('message', m => console.log(m));
else parentPort.postMessage('from a worker');",
        );
        writing(env, ["node", "worker.js"]).run().ok().prints("from a worker\n").quiet();
        // A package of the project's own, by name and by its binary's link.
        env.write("dep/package.json", r#"{"name":"dep","version":"1.0.0","bin":"./run.js"}"#);
        env.write_program("dep/run.js", "#!/usr/bin/env node\nconsole.log('ran dep')\n");
        writing(env, ["npm", "install", "--offline", "--no-audit", "--no-fund", "./dep"])
            .run()
            .ok();
        writing(env, ["npx", "--offline", "dep"]).run().ok().prints("ran dep\n");
    });
}

#[test]
fn python() {
    testkit::each!(|env| {
        let venv = writing(env, ["/usr/bin/python3", "-m", "venv", "v"]);
        let out = venv.deadline(MANY_FILES).run();
        if out.stderr.contains("ensurepip") || out.stdout.contains("ensurepip") {
            return testkit::missing("python3-venv");
        }
        out.ok();
        let prefix = format!("{}\n", env.project().join("v").display());
        writing(env, ["v/bin/python", "-c", "import sys, pip; print(sys.prefix)"])
            .run()
            .ok()
            .prints(&prefix);
        bash(env, ". v/bin/activate && pip --version && python -c 'import venv'").ok();
        env.write(
            "work.py",
            "
import asyncio, concurrent.futures, multiprocessing, sqlite3, ssl, subprocess, tempfile, zoneinfo
if __name__ == '__main__':
    for method in ('fork', 'spawn', 'forkserver'):
        with multiprocessing.get_context(method).Pool(2) as pool: print(pool.map(abs, [-1, -2]))
    with concurrent.futures.ProcessPoolExecutor(2) as pool: print(list(pool.map(abs, [-3])))
    print(len(ssl.create_default_context().get_ca_certs()) > 0)
    base = sqlite3.connect('base.db'); base.execute('pragma journal_mode=wal')
    base.execute('create table t(a)'); base.execute('insert into t values(7)'); base.commit()
    print(base.execute('select a from t').fetchall())
    async def echo(): 
        p = await asyncio.create_subprocess_exec('cat', stdin=-1, stdout=-1)
        return (await p.communicate(b'async'))[0]
    print(asyncio.run(echo()))
    with tempfile.NamedTemporaryFile() as f: print(f.name.startswith('/tmp/'))
    print(zoneinfo.ZoneInfo('Europe/Berlin'))
",
        );
        writing(env, ["/usr/bin/python3", "work.py"])
            .run()
            .ok()
            .quiet()
            .prints("[1, 2]\n[1, 2]\n[1, 2]\n[3]\nTrue\n[(7,)]\nb'async'\nTrue\nEurope/Berlin\n");
    });
}

#[test]
fn git_clones_a_local_repository() {
    testkit::each!(|env| {
        env.git(["init", "-q", "origin"]);
        env.write("origin/file", "one\n");
        env.git(["-C", "origin", "add", "file"]);
        env.git(["-C", "origin", "commit", "-qm", "first"]);
        let origin = env.project().join("origin");
        let work = env.folder(env.home().join("work"));
        let words = ["sandbox", "run", "--read", &origin.to_string_lossy(), "--write", "."]
            .map(str::to_owned);
        let run = |script: &str| {
            let argv = ["--", "bash", "-ec", script].map(str::to_owned);
            env.lnk(words.iter().cloned().chain(argv)).cwd(&work).run()
        };
        let clone = "git clone -q ../project/origin made && cd made && git log --format=%s && \
                     git config user.name N && git config user.email e@example.org && \
                     echo two >> file && git commit -qam second && git log --format=%s -1 && \
                     git gc -q && git fsck && git worktree add -q ../other && git -C ../other status -s";
        run(clone).ok().prints("first\nsecond\n");
        run("git clone -q --no-local ../project/origin again && git clone -q --bare made bare && cat again/file")
            .ok()
            .prints("one\n");
        run("cd ../project/origin && git commit -q --allow-empty -m x").fails();
        assert_eq!(env.git(["-C", "origin", "log", "--format=%s"]), "first");
    });
}

#[test]
fn make_and_a_compiler() {
    if !has("make") || !has("gcc") {
        return;
    }
    testkit::each!(|env| {
        env.write(
            "Makefile",
            "prog: a.o b.o\n\tgcc -o $@ $^\n%.o: %.c\n\tgcc -c -o $@ $<\ncheck: prog\n\t./prog\n",
        );
        env.write("a.c", "#include <stdio.h>\nint two(void);\nint main(void) { printf(\"%d\\n\", two()); return 0; }\n");
        env.write("b.c", "int two(void) { return 2; }\n");
        writing(env, ["make", "-s", "-j2", "check"]).run().ok().prints("2\n").quiet();
        assert!(env.project().join("prog").exists());
    });
}

#[test]
fn shells() {
    testkit::each!(|env| {
        bash(env, "cat <(echo a) - <<< b; diff <(echo a) <(echo a) && echo same; cat <<X\nc $((1+1))\nX\n")
            .ok()
            .prints("a\nb\nsame\nc 2\n")
            .quiet();
        bash(env, "echo a | tee >(cat > t) > /dev/null; wait; mapfile -t l < <(printf '1\\n2\\n'); echo ${#l[@]}")
            .ok()
            .prints("2\n");
        bash(
            env,
            "coproc cat; echo x >&\"${COPROC[1]}\"; read -r l <&\"${COPROC[0]}\"; echo $l; kill %1",
        )
        .ok()
        .prints("x\n");
        bash(env, "ulimit -c 0; (exit 7); echo $?; exec 5> five; echo v >&5; cat five")
            .ok()
            .prints("7\nv\n");
        bash(env, "sleep 60 & kill $!; wait $!; echo $?; trap 'echo bye' EXIT")
            .ok()
            .prints("143\nbye\n");
        // A pipe of the user's own, opened again by name.
        env.sh("lnk sandbox run --write . -- bash -c 'echo e > /dev/stderr' 2>&1 | cat")
            .run()
            .ok()
            .prints("e\n");
        bash(env, "echo p > /dev/tcp/127.0.0.1/9").fails().stderr_has("Connection refused");
    });
}

#[test]
fn archives_and_copies() {
    testkit::each!(|env| {
        env.write("d/one", "1");
        env.write_program("d/run", "#!/bin/sh\necho ran\n");
        env.link("one", "d/link");
        // Whose owner isn't the user, as in most archives of others.
        env.sh("tar --owner=4242 --group=4242 -cf theirs.tar d").run().ok();
        bash(
            env,
            "tar czf own.tgz d && mkdir x y && tar xzf own.tgz -C x && tar xf theirs.tar -C y && \
                   x/d/run && y/d/run && cat y/d/link && cp -a d z && readlink z/link",
        )
        .ok()
        .quiet()
        .prints("ran\nran\n1one\n");
        bash(env, "mkdir a b; echo x > a/f; ln a/f b/g && mkdir n && \
                   python3 -c \"import os; os.rename('a/f', 'n/f'); os.rename('n', 'b/n')\" && cat b/n/f && \
                   ln d/one /tmp/l 2>&1 | grep -o cross-device")
            .ok()
            .prints("x\ncross-device\n");
    });
}

#[test]
fn terminals_and_tracers() {
    testkit::each!(|env| {
        if has("script") {
            writing(env, ["script", "-qec", "test -t 1 && tty", "/dev/null"])
                .run()
                .ok()
                .stdout_has("/dev/pts/");
        }
        if has("strace") {
            bash(env, "strace -f -e trace=execve -o log sh -c '/bin/true; /bin/true' && grep -c execve log")
                .ok()
                .prints("3\n");
        }
        if has("gdb") && has("gcc") {
            env.write(
                "p.c",
                "int twice(int a) { return 2 * a; }\nint main(void) { return twice(21) - 42; }\n",
            );
            bash(env, "gcc -g -o p p.c && gdb -q -nx -batch -ex 'break twice' -ex run -ex 'print a' -ex 'set var a = 20' \
                       -ex continue ./p")
                .ok()
                .stdout_has("$1 = 21")
                .stdout_has("exited with code 0376");
        }
    });
}

#[test]
fn other_programs() {
    testkit::each!(|env| {
        let tried: [(&str, &[&str], &str); 8] = [
            ("perl", &["perl", "-MPOSIX", "-e", "print((getpwuid($<))[0])"], &env.user.name),
            ("psql", &["psql", "--version"], "psql"),
            ("ssh", &["sh", "-c", "ssh -V 2>&1"], "OpenSSH"),
            ("busybox", &["busybox", "sh", "-c", "busybox seq 3 | busybox tail -n 1"], "3"),
            ("awk", &["awk", "BEGIN{print 1}"], "1"),
            (
                "sqlite3",
                &["sqlite3", "s.db", "create table t(a); insert into t values(3); select * from t"],
                "3",
            ),
            ("openssl", &["openssl", "rand", "-hex", "2"], ""),
            ("id", &["id", "-un"], &env.user.name),
        ];
        for (program, argv, expected) in tried {
            if has(program) {
                env.lnk(["sandbox", "run", "--write", ".", "--"].iter().chain(argv))
                    .run()
                    .ok()
                    .quiet()
                    .stdout_has(expected);
            }
        }
    });
}

#[test]
fn servers_and_their_clients() {
    testkit::each!(|env| {
        if has("curl") {
            let http = "python3 -m http.server 8000 --bind 127.0.0.1 2> log & \
                        until curl -s -o /dev/null http://localhost:8000/; do kill -0 $! || exit; done; \
                        curl -s -o /dev/null -w '%{http_code}' http://localhost:8000/; kill $!";
            bash(env, http).ok().prints("200");
            bash(env, "curl -sS https://example.com").fails_with(6);
        }
        if has("gpg") {
            let key = "gpg -q --batch --passphrase '' --quick-gen-key a ed25519 && \
                       echo hi | gpg -q --clearsign | gpg -q --decrypt";
            bash(env, key).ok().stdout_has("hi\n");
        }
        if has("dbus-run-session") {
            let list = "dbus-send --session --print-reply --dest=org.freedesktop.DBus / \
                        org.freedesktop.DBus.ListNames";
            writing(env, ["dbus-run-session", "--", "sh", "-c", list])
                .run()
                .ok()
                .stdout_has("org.freedesktop.DBus");
        }
        if has("java") {
            env.write(
                "A.java",
                "public class A { public static void main(String[] a) throws Exception {
                   try { java.net.InetAddress.getByName(\"nope.test\"); }
                   catch (java.net.UnknownHostException e) { System.out.println(\"unknown\"); } } }",
            );
            writing(env, ["java", "A.java"]).run().ok().prints("unknown\n");
        }
    });
}

/// A database of its own in the project, reached over its socket (where the
/// server looks up who connects) and over TCP.
#[test]
fn postgres() {
    let Some(bin) = postgres_programs() else {
        return testkit::skip("no PostgreSQL server here");
    };
    testkit::each!(|env| {
        // Its server runs as no root.
        if env.user.is_root() {
            return;
        }
        let script = format!(
            "PATH=$PATH:{}; initdb -D db --auth-local=peer --auth-host=trust > /dev/null && \
             pg_ctl -D db -o \"-k $PWD\" -l log -w start > /dev/null && \
             psql -h \"$PWD\" postgres -Atc 'select 1 + 1' && psql -h 127.0.0.1 postgres -Atc 'select 3'; \
             pg_ctl -D db -m fast stop > /dev/null",
            bin.display()
        );
        bash(env, &script).ok().prints("2\n3\n");
    });
}

fn postgres_programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    versions
        .flatten()
        .map(|version| version.path().join("bin"))
        .find(|bin| bin.join("initdb").exists())
}

/// Programs whose names are links, links to links, and one file's many names.
#[test]
fn scripts_and_links_to_programs() {
    testkit::each!(|env| {
        let ro = env.folder(env.home().join("ro"));
        env.write_program(ro.join("t"), "#!/usr/bin/env python3\nprint(1)\n");
        env.write_program(ro.join("chain"), format!("#!{}\n", ro.join("t").display()));
        env.write_program(ro.join("noline"), "echo by sh\n");
        env.link("t", ro.join("one"));
        env.link("one", ro.join("two"));
        let reading = |program: &str| {
            env.lnk(["sandbox", "run", "--read", ".", "--read", "../ro", "--", program]).run()
        };
        for program in ["../ro/t", "../ro/chain", "../ro/two"] {
            reading(program).ok().prints("1\n").quiet();
        }
        reading("../ro/noline").ok().prints("by sh\n").quiet();
        if has("busybox") {
            let busybox = fs::read(Path::new("/bin/busybox").canonicalize().unwrap()).unwrap();
            env.write_program(ro.join("busybox"), busybox);
            env.link("busybox", ro.join("seq"));
            env.link(ro.join("seq"), ro.join("basename"));
            env.lnk(["sandbox", "run", "--read", ".", "--read", "../ro", "--", "../ro/seq", "2"])
                .run()
                .ok()
                .prints("1\n2\n");
            env.lnk([
                "sandbox",
                "run",
                "--read",
                ".",
                "--read",
                "../ro",
                "--",
                "../ro/basename",
                "/a/b",
            ])
            .run()
            .ok()
            .prints("b\n");
        }
        env.lnk(["sandbox", "run", "--read", ".", "--", "../ro/t"])
            .run()
            .fails()
            .stderr_has("--read");
    });
}

/// A look-up fails at once, wherever resolv.conf leads outside.
#[test]
fn names_without_a_network() {
    testkit::each!(|env| {
        let run = |change: &dyn Fn(Call) -> Call, argv: &[&str]| {
            let words = ["sandbox", "run", "--read", ".", "--"];
            change(env.lnk(words.iter().chain(argv))).run()
        };
        let fails_at_once = |change: &dyn Fn(Call) -> Call| {
            run(change, &["true"]).ok().quiet();
            let before = Instant::now();
            run(change, &["getent", "hosts", "nope.test"]).fails_with(2).prints("");
            // A resolver that doesn't answer is given up after 10 s.
            assert!(before.elapsed() < Duration::from_secs(8), "{:?}", before.elapsed());
            run(change, &["cat", "/etc/resolv.conf"]).ok().prints("");
            run(change, &["getent", "hosts", "localhost"]).ok().stdout_has("localhost");
        };
        let stub = env.outside().join("run");
        env.write(stub.join("systemd/resolve/stub-resolv.conf"), "nameserver 127.0.0.53\n");
        let systemd = etc_with_link(env, "systemd", "../run/systemd/resolve/stub-resolv.conf");
        let dangling = etc_with_link(env, "dangling", "/mnt/wsl/resolv.conf");
        fails_at_once(&|call| call);
        fails_at_once(&|call| call.replaced("/etc", &systemd).replaced("/run", &stub));
        fails_at_once(&|call| call.replaced("/etc", &systemd));
        fails_at_once(&|call| call.replaced("/etc", &dangling));
        fails_at_once(&|call| call.removed("/etc/resolv.conf"));
    });
}

/// A copy of `/etc` whose resolv.conf is a link.
fn etc_with_link(env: &TestEnv, name: &str, target: &str) -> PathBuf {
    let etc = env.outside().join(name);
    // What an ordinary user can't read isn't shown inside either.
    Command::new("cp").args(["-a", "/etc"]).arg(&etc).output().expect("cp is there");
    let _none = fs::remove_file(etc.join("resolv.conf"));
    std::os::unix::fs::symlink(target, etc.join("resolv.conf")).expect("just made");
    etc
}
