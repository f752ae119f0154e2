//! What a program inherits of its caller: environment, umask, keys.

use testkit::{Call, TestEnv, each};

fn run(env: &TestEnv, words: &[&str]) -> Call {
    env.lnk(["sandbox", "run", "--read", ".", "--"].iter().chain(words))
}

/// What must not cross: secrets, and what makes programs load other code.
const CLOSED: [&str; 34] = [
    "AWS_SECRET_ACCESS_KEY",
    "GITHUB_TOKEN",
    "OPENAI_API_KEY",
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "GPG_AGENT_INFO",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "DOCKER_HOST",
    "KUBECONFIG",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "BASH_ENV",
    "ENV",
    "BASH_FUNC_ls%%",
    "PROMPT_COMMAND",
    "NODE_OPTIONS",
    "PYTHONSTARTUP",
    "PYTHONPATH",
    "PERL5OPT",
    "RUBYOPT",
    "GIT_DIR",
    "GIT_SSH_COMMAND",
    "GIT_CONFIG_GLOBAL",
    "EDITOR",
    "PAGER",
    "http_proxy",
    "LNK_SANDBOX_MOUNTS",
    "LNK_ANYTHING",
    "TMPDIR_OTHER",
];

#[test]
fn the_environment_is_exactly_the_short_list() {
    each!(|env| {
        let mut call = run(env, &["/usr/bin/env"]);
        for (name, value) in [
            ("PATH", "/usr/bin:/no/such"),
            ("TERM", "xterm"),
            ("COLORTERM", "truecolor"),
            ("TZ", "Europe/Vienna"),
            ("LANG", "C.UTF-8"),
            ("LANGUAGE", "en"),
            ("LC_ALL", "C"),
            ("LC_PAPER", "C"),
            ("TMPDIR", "/var/tmp"),
            ("SHELL", "/bin/other"),
        ] {
            call = call.env(name, value);
        }
        for name in CLOSED.into_iter().filter(|name| *name != "LNK_SANDBOX_MOUNTS") {
            call = call.env(name, "/closed");
        }
        let home = env.home().display();
        let name = &env.user.name;
        let mut expected = vec![
            "COLORTERM=truecolor".into(),
            format!("HOME={home}"),
            "LANG=C.UTF-8".into(),
            "LANGUAGE=en".into(),
            "LC_ALL=C".into(),
            "LC_PAPER=C".into(),
            format!("LOGNAME={name}"),
            "PATH=/usr/bin:/no/such".into(),
            "SHELL=/bin/bash".into(),
            "TERM=xterm".into(),
            "TMPDIR=/tmp".into(),
            "TZ=Europe/Vienna".into(),
            format!("USER={name}"),
        ];
        if env.user.is_root() {
            expected.push("TAR_OPTIONS=--no-same-owner".into());
        }
        expected.sort();
        let run = call.run().ok();
        let mut found: Vec<&str> = run.stdout.lines().collect();
        found.sort_unstable();
        assert_eq!(found, expected);
    });
}

#[test]
fn a_caller_without_an_environment_has_a_path_and_a_home_inside() {
    each!(|env| {
        let mut call = run(env, &["sh", "-c", "echo $HOME; command -v ls"]);
        for name in ["PATH", "USER", "LOGNAME", "LANG"] {
            call = call.env_remove(name);
        }
        call.run().ok().prints(&format!("{}\n/usr/bin/ls\n", env.home().display()));
    });
}

#[test]
fn certificates_named_by_a_variable_cross_where_they_can_be_read() {
    each!(|env| {
        let own = env.write(env.home().join("own.pem"), "certificate\n");
        let print = ["sh", "-c", "echo $SSL_CERT_FILE"];
        let system = "/etc/ssl/certs/ca-certificates.crt";
        run(env, &print).env("SSL_CERT_FILE", system).run().ok().prints(&format!("{system}\n"));
        run(env, &print).env("SSL_CERT_FILE", &own).run().ok().prints("\n");
        let open = ["sandbox", "run", "--read", ".", "--read"].map(String::from);
        let words = open.into_iter().chain([own.display().to_string(), "--".into()]);
        let call = env.lnk(words.chain(print.map(String::from)));
        call.env("SSL_CERT_FILE", &own).run().ok().prints(&format!("{}\n", own.display()));
    });
}

#[test]
fn nothing_a_shell_would_run_at_its_start_is_run() {
    each!(|env| {
        let start = env.write("start", "echo started\n");
        for (program, variable) in [("bash", "BASH_ENV"), ("python3", "PYTHONSTARTUP")] {
            run(env, &[program, "-c", ""]).env(variable, &start).run().ok().prints("");
        }
        let function = "ls() { echo mine; }; export -f ls; lnk sandbox run --read . -- bash -c ls";
        env.sh(function).run().ok().has_not("mine");
    });
}

#[test]
fn a_library_to_preload_reaches_neither_lnk_nor_the_program() {
    each!(|env| {
        env.write("mark.c", "#include <fcntl.h>\n\
            __attribute__((constructor)) void mark(void) { open(\"loaded\", O_CREAT | O_WRONLY, 0600); }\n");
        env.program("cc", ["-shared", "-fPIC", "-o", "mark.so", "mark.c"]).run().ok();
        let library = env.project().join("mark.so");
        let is_loaded = || {
            let marked = env.project().join("loaded");
            std::fs::remove_file(marked).is_ok()
        };
        env.program("true", [""; 0]).env("LD_PRELOAD", &library).run().ok();
        assert!(is_loaded(), "the library works");
        for variable in ["LD_PRELOAD", "LD_AUDIT"] {
            let words = ["sandbox", "run", "--write", ".", "--", "sh", "-c", "echo $LD_PRELOAD"];
            env.lnk(words).env(variable, &library).run().ok().prints("\n").quiet();
            assert!(!is_loaded());
        }
    });
}

#[test]
fn the_umask_is_the_callers() {
    each!(|env| {
        for mask in ["0027", "0002", "0077"] {
            let inside =
                "umask; touch file; mkdir folder; stat -c %a file folder; rm -r file folder";
            let script = format!("umask {mask}; lnk sandbox run --write . -- sh -c '{inside}'");
            let mask = u32::from_str_radix(mask, 8).expect("octal");
            let expected = format!("{mask:04o}\n{:o}\n{:o}\n", 0o666 & !mask, 0o777 & !mask);
            env.sh(&script).run().ok().prints(&expected);
        }
    });
}

/// Keeps a secret in a session keyring of its own and in the user's, shows that
/// it can be read, and tries the same inside (keyctl(2), request_key(2)).
const KEYS: &str = r#"
import ctypes, os, platform, sys
libc = ctypes.CDLL(None, use_errno=True)
add_key, request_key, keyctl = {"x86_64": (248, 249, 250)}.get(platform.machine(), (217, 218, 219))
JOIN, LINK, READ, SESSION, USER = 1, 8, 11, -3, -4
def read(key):
    buffer = ctypes.create_string_buffer(64)
    size = libc.syscall(keyctl, READ, ctypes.c_long(key), buffer, ctypes.c_long(64))
    return buffer.raw[:size].decode() if size >= 0 else "closed"
def found(name):
    return libc.syscall(request_key, b"user", name, None, ctypes.c_long(0)) >= 0
if len(sys.argv) > 1:
    for key in sys.argv[1:]:
        print(read(int(key)))
    print(found(b"lnk-session"), found(b"lnk-user"))
    print(libc.syscall(add_key, b"user", b"planted", b"x", ctypes.c_long(1), ctypes.c_long(SESSION)) >= 0)
    sys.exit()
assert libc.syscall(keyctl, JOIN, None) >= 0
assert libc.syscall(keyctl, LINK, ctypes.c_long(USER), ctypes.c_long(SESSION)) >= 0
keys = [libc.syscall(add_key, b"user", name, b"secret", ctypes.c_long(6), ctypes.c_long(ring))
        for name, ring in ((b"lnk-session", SESSION), (b"lnk-user", USER))]
assert [read(key) for key in keys] == ["secret", "secret"] and found(b"lnk-session")
os.execvp("lnk", ["lnk", "sandbox", "run", "--read", ".", "--", "/usr/bin/python3", "keys.py", *map(str, keys)])
"#;

#[test]
fn the_callers_keys_are_out_of_reach() {
    each!(|env| {
        env.write("keys.py", KEYS);
        let run = env.program("/usr/bin/python3", ["keys.py"]).run();
        run.ok().prints("closed\nclosed\nFalse False\nFalse\n");
    });
}
