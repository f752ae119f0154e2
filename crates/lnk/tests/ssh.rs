//! SSH from inside: the sandbox's own key, the host keys that it knows, and the way there.

mod network;

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use network::run_with_names;
use tempfile::TempDir;
use testkit::{Call, Net, Run, TestEnv, each};

/// sshd as a plain process: with a user `git`, whose key is in a file of the test's, and a
/// `/run` of its own. It says by a line that it serves.
const SSHD: &str = r#"
set -e
mount -t tmpfs none /run
mkdir /run/sshd
printf 'git:*:0:0::%s:/bin/sh\n' "$1" | cat /etc/passwd - > /run/passwd
mount --bind /run/passwd /etc/passwd
exec /usr/sbin/sshd -D -e -f "$1/$2.conf" 2>&1
"#;

/// Answers once the other side has said all: how many bytes that were.
const COUNT: &str = r"
import socket, sys
listener = socket.create_server((sys.argv[1], 7000))
print('serving', flush=True)
while True:
    client, _ = listener.accept()
    with client:
        length = 0
        while data := client.recv(65536): length += len(data)
        client.sendall(f'{length}\n'.encode() * 1000)
";

/// Three servers that let in the same keys: one has an Ed25519 key, another has another,
/// the third an ECDSA key.
struct Forge {
    net: Net,
    folder: TempDir,
}

const HOST: &str = "forge.test.example";
const SERVERS: [(&str, &str, &str); 3] = [
    ("first", "11.0.0.2", "ed25519"),
    ("second", "11.0.0.3", "ed25519"),
    ("third", "11.0.0.4", "ecdsa"),
];
const GRANT: &str = "--write . --internet-host forge.test.example --tcp forge.test.example:22";

impl Forge {
    fn new() -> Option<Forge> {
        if !Path::new("/usr/sbin/sshd").exists() {
            testkit::missing("/usr/sbin/sshd");
            return None;
        }
        let folder = tempfile::tempdir_in("/var/tmp").expect("a folder");
        let mut net = Net::new()?;
        let at = folder.path().to_str().expect("UTF-8");
        for (name, address, kind) in SERVERS {
            let key = format!("{at}/{name}");
            let made =
                Command::new("ssh-keygen").args(["-q", "-N", "", "-t", kind, "-f", &key]).status();
            assert!(made.expect("ssh-keygen").success());
            let conf = format!(
                "ListenAddress {address}\nHostKey {key}\nAuthorizedKeysFile {at}/authorized\n\
                 StrictModes no\nUsePAM no\nPasswordAuthentication no\nPidFile none\n\
                 KbdInteractiveAuthentication no\nPermitRootLogin yes\nMaxStartups 100\n"
            );
            fs::write(format!("{key}.conf"), conf).expect("own file");
            net.serve(["unshare", "--mount", "sh", "-c", SSHD, "sh", at, name]);
        }
        net.serve(["/usr/bin/python3", "-c", COUNT, "11.0.0.2"]);
        Some(Forge { net, folder })
    }

    /// Lets in the holders of these keys alone.
    fn let_in(&self, keys: &str) {
        fs::write(self.folder.path().join("authorized"), keys).expect("own file");
    }

    /// A new repository with a commit in it.
    fn repository(&self) -> PathBuf {
        let path = self.folder.path().join("repo.git");
        if path.exists() {
            fs::remove_dir_all(&path).expect("own folder");
        }
        let script = "git init -q --bare -b main \"$1\" && git init -q -b main \"$1/x\" && cd \"$1/x\" \
                      && echo hello > file && git add file \
                      && git -c user.name=a -c user.email=a@b commit -qm first \
                      && git push -q \"$1\" main && rm -rf \"$1/x\"";
        let made = Command::new("sh").args(["-c", script, "sh"]).arg(&path).status();
        assert!(made.expect("git").success());
        path
    }

    fn fingerprint(&self, server: &str) -> String {
        let told = Command::new("ssh-keygen")
            .args(["-l", "-f"])
            .arg(self.folder.path().join(format!("{server}.pub")))
            .output();
        let told = String::from_utf8(told.expect("ssh-keygen").stdout).expect("UTF-8");
        told.split(' ').nth(1).expect("the fingerprint").to_owned()
    }

    /// A script where the name leads to this one of the servers.
    fn at(&self, env: &TestEnv, server: &str, flags: &str, script: &str) -> Call {
        let address = SERVERS.iter().find(|(name, ..)| *name == server).expect("one").1;
        run_with_names(env, &self.net, &[(HOST, address)], flags, ["bash", "-c", script])
    }

    /// The same where it leads to the first.
    fn call(&self, env: &TestEnv, flags: &str, script: &str) -> Call {
        self.at(env, "first", flags, script)
    }
}

/// Asks the server for a line by ssh.
const HELLO: &str = "$GIT_SSH_COMMAND git@forge.test.example echo hello";

fn key(env: &TestEnv, words: &str) -> String {
    let words = format!("sandbox key {words}");
    env.lnk(words.split_whitespace()).run().ok().quiet().stdout
}

fn hello(run: Run) -> Run {
    run.ok().prints("hello\n")
}

#[test]
fn git_clones_and_pushes_with_the_sandboxs_own_key() {
    let Some(forge) = Forge::new() else { return };
    each!(|env| {
        let path = forge.repository();
        let path = path.display();
        let script = format!(
            "git clone -q git@{HOST}:{path} clone && cat clone/file && cd clone && echo more >> file \
             && git commit -qam more && git push -q && git fetch -q && git log --format=%s origin/main"
        );
        forge.let_in("");
        let made = forge.call(env, GRANT, &script).run().fails().stderr_has("Permission denied");
        let made = made.stderr_has("made an SSH key for this sandbox");
        let key = key(env, "--write .");
        assert!(made.stderr.contains(key.trim_end()), "{made}");
        forge.let_in(&key);
        let run = forge.call(env, GRANT, &script).run().ok().prints("hello\nmore\nfirst\n");
        assert!(run.stderr.is_empty(), "{run}");
        for grant in ["--write .", "--write . --internet-host forge.test.example"] {
            forge.call(env, grant, &format!("rm -rf clone; {script}")).run().fails();
        }
        hello(forge.call(env, GRANT, "ssh git@forge.test.example echo hello").run());
        // Of programs, git needs the shell only for its own words.
        let listed = format!("{GRANT} --command bash --command sh --command git --command ssh");
        let script = format!("git clone -q git@{HOST}:{path} again && {HELLO}");
        hello(forge.call(env, &listed, &script).run());
    });
}

#[test]
fn a_host_key_is_accepted_once_and_a_changed_one_is_refused() {
    let Some(forge) = Forge::new() else { return };
    each!(|env| {
        forge.let_in(&key(env, "--write ."));
        let line = format!(
            "the sandbox says that {HOST}, port 22, showed the SSH host key {}; this sandbox takes \
             no other from now on\n",
            forge.fingerprint("first")
        );
        hello(forge.call(env, GRANT, HELLO).run()).stderr_has(&line);
        hello(forge.call(env, GRANT, HELLO).run()).quiet();
        // Another key, and a key of another kind.
        for server in ["second", "third"] {
            let run = forge.at(env, server, GRANT, HELLO).run().fails_with(255).prints("");
            run.stderr_has("Host key verification failed").has_not("showed the SSH host key");
        }
        let pins = |server: &str| {
            let public = forge.folder.path().join(format!("{server}.pub"));
            let public = fs::read_to_string(public).expect("own file");
            let words: Vec<&str> = public.split(' ').take(2).collect();
            format!("echo {HOST} {} > /run/accepted_known_hosts", words.join(" "))
        };
        // What a program wrote itself is of no use to the next run.
        forge.at(env, "second", GRANT, &pins("second")).run().ok().quiet();
        forge.at(env, "second", GRANT, HELLO).run().fails_with(255);
        for odd in [
            "mkfifo /run/accepted_known_hosts",
            "mkdir /run/accepted_known_hosts",
            "ln -s /etc/passwd /run/accepted_known_hosts",
            "head -c 100000000 /dev/zero > /run/accepted_known_hosts",
            "chmod 0 /run/accepted_known_hosts 2> /run/x; true",
        ] {
            forge.call(env, GRANT, odd).run().ok().quiet();
        }
        hello(forge.call(env, GRANT, HELLO).run()).quiet();
        // One that was really changed.
        let forget =
            |host: &str| env.lnk(["sandbox", "key", "--forget", host, "--write", "."]).run();
        let forgotten = format!(
            "forgot that {HOST}, port 22, showed the SSH host key {}\n",
            forge.fingerprint("first")
        );
        forget(HOST).ok().prints(&forgotten).quiet();
        hello(forge.at(env, "second", GRANT, HELLO).run()).stderr_has(&forge.fingerprint("second"));
        forge.call(env, GRANT, HELLO).run().fails_with(255);
        forget("*.test.example").ok().stdout_has(&forge.fingerprint("second"));
        forget(HOST).fails_with(125).stderr_has(&format!("no host key of {HOST} is kept"));
        forget("github.com").fails_with(125).stderr_has("publishes always holds");
    });
}

#[test]
fn a_run_that_is_refused_makes_no_key() {
    let Some(forge) = Forge::new() else { return };
    each!(|env| {
        let keys = env.home().join(".config/lnk/sandbox/keys");
        let made = || {
            let folders = fs::read_dir(&keys).ok().into_iter().flatten().flatten();
            folders.filter(|folder| folder.path().join("id_ed25519").exists()).count()
        };
        let listed = format!("{GRANT} --command ls");
        let run = forge.call(env, &listed, "true").run().fails_with(126);
        run.stderr_has("isn't one of the programs").has_not("made an SSH key");
        assert_eq!(made(), 0);
        forge.call(env, GRANT, "true").run().ok().stderr_has("made an SSH key");
        assert_eq!(made(), 1);
    });
}

#[test]
fn the_key_is_the_specs_by_its_path_or_the_write_folders() {
    let Some(forge) = Forge::new() else { return };
    each!(|env| {
        let text = "name = 'same'\n[files]\nwrite = ['.']\n[internet]\nhosts = ['forge.test.example']\n\
                    tcp = ['forge.test.example:22']\n[commands]\nallow = ['*']\n";
        env.write("one.toml", text);
        env.write("two.toml", text);
        env.folder("sub");
        env.link("one.toml", "link.toml");
        for spec in ["one.toml", "two.toml"] {
            let refused = env.lnk(["sandbox", "key", "--spec", spec]).run().fails_with(125);
            refused.prints("").stderr_has("hasn't run here before, so it has no SSH key: ");
            env.lnk(["sandbox", "run", "--spec", spec, "--yes", "--", "true"]).run().ok();
        }
        let keys = ["--write .", "--write sub", "--spec one.toml", "--spec two.toml"];
        let keys = keys.map(|words| key(env, words));
        for (number, one) in keys.iter().enumerate() {
            assert!(keys[number + 1..].iter().all(|other| other != one), "{keys:?}");
        }
        assert_eq!(key(env, "--spec link.toml"), keys[2]);
        assert_eq!(key(env, "--write sub/.."), keys[0]);
        for (flags, key) in [
            ("--spec one.toml --yes", &keys[2]),
            ("--spec two.toml --yes", &keys[3]),
            ("--spec link.toml", &keys[2]),
            (GRANT, &keys[0]),
        ] {
            forge.let_in(key);
            let words = ["sandbox", "run"].into_iter().chain(flags.split_whitespace());
            let call = env.lnk(words.chain(["--", "bash", "-c", HELLO]));
            let hosts = env.home().join("hosts");
            forge.net.names(&hosts, &[(HOST, "11.0.0.2")]);
            hello(call.within(&forge.net).replaced("/etc/hosts", hosts).run());
        }
        env.lnk(["sandbox", "key"]).run().fails_with(125).stderr_has("--spec");
        env.lnk(["sandbox", "key", "--write", "none"]).run().fails_with(125);
        env.lnk(["sandbox", "key", "--write", "one.toml"])
            .run()
            .fails_with(125)
            .stderr_has("isn't a folder");
    });
}

#[test]
fn a_folder_that_no_grant_opens_has_no_key() {
    each!(|env| {
        env.lnk(["sandbox", "key", "--write", "."]).run().ok();
        let settings = env.home().join(".config/lnk");
        let home = env.home().to_owned();
        for folder in ["/".as_ref(), "/etc".as_ref(), home.as_path(), settings.as_path()] {
            let words =
                |command| ["sandbox".as_ref(), command, "--write".as_ref(), folder.as_os_str()];
            let refused = env.lnk(words("key".as_ref())).run().fails_with(125).prints("");
            let run = words("run".as_ref()).into_iter().chain(["true".as_ref()]);
            assert_eq!(refused.stderr, env.lnk(run).run().fails_with(125).stderr);
        }
        let keys = std::fs::read_dir(settings.join("sandbox/keys")).expect("one was made");
        assert_eq!(keys.count(), 1);
    });
}

#[test]
fn a_key_of_a_folder_with_a_space_is_named_without_quotes_in_quotes() {
    each!(|env| {
        env.folder("a b");
        let words =
            ["sandbox", "run", "--write", "a b", "--read", ".", "--internet-host", "a.example"];
        let words = words.into_iter().chain(["--tcp", "a.example:22", "--", "true"]);
        let line =
            format!("(lnk sandbox key --write '{}/a b' prints it again)", env.project().display());
        env.lnk(words).run().ok().stderr_has(&line);
    });
}

#[test]
fn your_own_keys_and_agent_never_cross() {
    let Some(forge) = Forge::new() else { return };
    each!(|env| {
        let own = env.folder(env.home().join(".ssh"));
        env.program(
            "ssh-keygen",
            ["-q", "-N", "", "-t", "ed25519", "-f"]
                .iter()
                .map(Path::new)
                .chain([own.join("id_ed25519").as_path()]),
        )
        .run()
        .ok();
        env.write(own.join("config"), "Host *\nIdentityFile ~/.ssh/id_ed25519\n");
        forge.let_in(&fs::read_to_string(own.join("id_ed25519.pub")).expect("own file"));
        let socket = env.home().join("agent");
        let _agent = UnixListener::bind(&socket).expect("a socket");
        let with_agent = |flags: &str, script: &str| {
            forge.call(env, flags, script).env("SSH_AUTH_SOCK", &socket).env("SSH_AGENT_PID", "1")
        };
        for flags in [GRANT.to_owned(), format!("{GRANT} --read ~")] {
            with_agent(&flags, "env").run().ok().has_not("SSH_A");
            with_agent(&flags, HELLO)
                .run()
                .fails_with(255)
                .stderr_has("Permission denied (publickey)");
            with_agent(&flags, &format!("SSH_AUTH_SOCK={} {HELLO}", socket.display()))
                .run()
                .fails_with(255);
        }
        with_agent(GRANT, "grep -c . ~/.ssh/id_ed25519 && cat ~/.ssh/id_ed25519.pub")
            .run()
            .ok()
            .has_not(fs::read_to_string(own.join("id_ed25519.pub")).expect("own file").trim_end());
        with_agent(GRANT, "cat ~/.config/lnk/sandbox/keys/*/id_ed25519").run().fails();
        for write in [
            "> ~/.ssh/id_ed25519",
            "> ~/.ssh/known_hosts",
            "> ~/.ssh/config",
            "rm /run/lnk/ssh/config",
            "touch ~/.ssh/new",
        ] {
            with_agent(GRANT, write).run().fails();
        }
        forge.let_in(&key(env, "--write ."));
        for flags in [GRANT.to_owned(), format!("{GRANT} --read ~")] {
            hello(with_agent(&flags, HELLO).run());
        }
    });
}

#[test]
fn a_sandbox_without_ssh_has_no_key() {
    let Some(forge) = Forge::new() else { return };
    each!(|env| {
        let seen =
            "ls -A ~; echo \"<$GIT_SSH_COMMAND>\"; test ! -e ~/.ssh && test ! -e /run/lnk/ssh";
        let other = "--write . --internet-host forge.test.example --tcp forge.test.example:7000";
        for flags in ["--write .", "--write . --internet-host *", other] {
            let run = forge.call(env, flags, seen).run().ok().quiet();
            assert!(run.stdout.ends_with("<>\n"), "{run}");
        }
        // Made by hand, another port has it too.
        let key = key(env, "--write .");
        forge.call(env, other, "cat ~/.ssh/id_ed25519.pub").run().ok().prints(&key).quiet();
        // Nothing that it would be known by: no key, and host keys are forgotten.
        let nobodys = "--internet-host forge.test.example --tcp forge.test.example:22";
        forge.let_in(&key);
        for _ in 0..2 {
            let run =
                forge.call(env, nobodys, &format!("test ! -e ~/.ssh/id_ed25519; {HELLO}")).run();
            let run = run.fails_with(255).stderr_has("it is forgotten now");
            let run = run.stderr_has("Permission denied");
            assert_eq!(run.stderr.matches("this sandbox has no SSH key").count(), 1, "{run}");
        }
    });
}

#[test]
fn a_program_that_knows_no_name_connects_through_the_proxy_with_neither_nc_nor_socat() {
    let Some(forge) = Forge::new() else { return };
    each!(|env| {
        forge.let_in(&key(env, "--write ."));
        let by_command = "ssh -F ~/.ssh/config -o 'ProxyCommand=/run/lnk/lnk sandbox connect %h %p' \
                          git@forge.test.example echo hello";
        hello(forge.call(env, GRANT, by_command).run());
        // Nothing else runs here.
        let listed = format!("{GRANT} --command bash --command ssh");
        hello(forge.call(env, &listed, by_command).run()).quiet();
        forge.call(env, &listed, "nc -h || socat -V").run().fails();
        let closed = "--write . --internet-host forge.test.example --command bash";
        forge
            .call(env, closed, "/run/lnk/lnk sandbox connect forge.test.example 443")
            .run()
            .fails_with(126)
            .stderr_has(
                "refused /run/lnk/lnk: it connects to endpoints, and none is named: add --tcp",
            );
    });
}

#[test]
fn connect_hands_on_both_directions_and_their_ends() {
    let Some(forge) = Forge::new() else { return };
    each!(|env| {
        let flags = "--internet-host forge.test.example --tcp forge.test.example:7000";
        let script = "head -c 3000000 /dev/zero | /run/lnk/lnk sandbox connect forge.test.example 7000 > /tmp/out \
                      && sort -u /tmp/out && wc -l < /tmp/out";
        forge.call(env, flags, script).run().ok().prints("3000000\n1000\n").quiet();
        let script = "/run/lnk/lnk sandbox connect forge.test.example 7000 < /dev/null | head -n 1";
        forge.call(env, flags, script).run().ok().prints("0\n").quiet();
    });
}

#[test]
fn connect_reaches_nothing_else_and_nothing_else_of_lnk_runs_inside() {
    let Some(forge) = Forge::new() else { return };
    each!(|env| {
        for to in [
            "forge.test.example 23",
            "other.test.example 22",
            "127.0.0.1 22",
            "localhost 22",
            "10.77.0.2 22",
            "::1 22",
            "169.254.169.254 22",
        ] {
            let script = format!("/run/lnk/lnk sandbox connect {to} < /dev/null");
            let run = forge.call(env, GRANT, &script).run().fails_with(125).prints("");
            assert!(run.stderr.contains("lnk sandbox: "), "{run}");
        }
        for odd in [
            "$'forge.test.example:22 HTTP/1.1\\r\\nX: y' 22",
            "forge.test.example 0",
            "forge.test.example 70000",
            "'' 22",
            "forge.test.example",
            "-- -x 22",
        ] {
            let script = format!("/run/lnk/lnk sandbox connect {odd} < /dev/null");
            forge.call(env, GRANT, &script).run().fails_with(125).prints("");
        }
        for command in [
            "run -- true",
            "key --write .",
            "log",
            "traffic",
            "check",
            "ready",
            "permissions",
            "spec --write .",
        ] {
            let script = format!("/run/lnk/lnk sandbox {command}");
            forge
                .call(env, GRANT, &script)
                .run()
                .fails_with(125)
                .prints("")
                .stderr_has("inside a sandbox");
        }
        env.lnk(["sandbox", "connect", "127.0.0.1", "22"])
            .run()
            .fails_with(125)
            .stderr_has("inside a sandbox");
    });
}

#[test]
fn the_key_is_shown_where_a_spec_is_agreed_to() {
    each!(|env| {
        let shown = |port: u16| {
            let spec = format!(
                "[internet]\nhosts = ['a.example']\ntcp = ['a.example:{port}']\n[commands]\nallow = ['*']\n"
            );
            env.write("app.toml", spec);
            let mut terminal =
                env.lnk(["sandbox", "run", "--spec", "app.toml", "--", "true"]).terminal(40, 160);
            terminal.shows("Run it? [y/N]").line("n");
            assert_eq!(terminal.wait_exit(), 125);
            terminal.screen().contains("its own SSH key, not one of yours")
        };
        assert!(shown(22));
        assert!(!shown(2222));
    });
}
