//! Dot files at the top of a write folder: read-only inside, and what a program
//! writes there never runs outside.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use rustix::process::Signal;
use testkit::{Call, Run, Running, TestEnv, each};

/// `lnk sandbox run` with these flags, of a shell script.
fn inside<F: AsRef<OsStr>>(env: &TestEnv, flags: &[F], script: &str) -> Call {
    let words = ["sandbox", "run"].map(OsStr::new).into_iter();
    let flags = flags.iter().map(AsRef::as_ref);
    env.lnk(words.chain(flags).chain(["--", "sh", "-c", script].map(OsStr::new)))
}

/// In the project, which is written.
fn run(env: &TestEnv, script: &str) -> Run {
    inside(env, &["--write", "."], script).run()
}

/// Each of these fails.
#[track_caller]
fn all_fail(env: &TestEnv, scripts: &[&str]) {
    for script in scripts {
        run(env, script).fails();
    }
}

/// A program that says it is ready after `script`, and waits until [`go`].
fn held(env: &TestEnv, go: &str, script: &str) -> Running {
    let pipe = env.project().join(go);
    if !pipe.exists() {
        env.program("mkfifo", [&pipe]).run().ok();
    }
    let script = format!("{script}\necho ready; read go < {go}");
    let mut held = inside(env, &["--write", "."], &script).spawn();
    held.wait_for_stdout("ready");
    held
}

/// Lets a held program go on.
fn go(env: &TestEnv, go: &str) {
    fs::write(env.project().join(go), "\n").expect("the program reads it");
}

/// The names in a folder but the tests' pipes.
fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).expect("a folder of the test's");
    let names = names.map(|entry| entry.expect("a folder of the test's").file_name());
    let mut names: Vec<String> = names
        .map(|name| name.into_string().expect("the test names in UTF-8"))
        .filter(|name| !name.starts_with("go"))
        .collect();
    names.sort();
    names
}

/// Nothing in the folder has content but what is in these names.
#[track_caller]
fn only_empty_folders_but(folder: &Path, known: &[&str]) {
    for name in names(folder).iter().filter(|name| !known.contains(&name.as_str())) {
        let path = folder.join(name);
        assert!(path.is_dir() && names(&path).is_empty(), "{}", path.display());
    }
}

/// Git commands that run what a repository's configuration says, outside.
#[track_caller]
fn nothing_runs_outside(env: &TestEnv, folder: &str) {
    let script = "git status; git diff; git log; git add -A; git commit -qm x --allow-empty; \
                  git checkout -q -b other; git stash; true";
    let run = env.sh(script).cwd(folder).run();
    assert!(!env.home().join("ran").exists(), "{run}");
}

/// A command that shows itself outside, for a configuration.
fn evil(env: &TestEnv) -> String {
    env.write_program(
        env.home().join("evil"),
        format!("#!/bin/sh\n: > {}/ran\n", env.home().display()),
    );
    env.home().join("evil").display().to_string()
}

// --- stub files -------------------------------------------------------------------------

const WRITE_THEM: &str = "\
for name in .envrc .vscode .idea .husky .claude .cursor .zed .devcontainer .githooks; do \
    (echo x > $name) 2> /dev/null && echo wrote $name; \
    (mkdir -p $name && echo x > $name/tasks.json) 2> /dev/null && echo wrote in $name; \
    rmdir $name 2> /dev/null && echo removed $name; \
    mv $name other 2> /dev/null && echo moved $name; \
    ln -sfn /tmp $name 2> /dev/null && test -L $name && echo linked $name; \
done; true";

#[test]
fn missing_names_cant_be_made_and_leave_no_trace() {
    each!(|env| {
        env.git(["init", "-q"]);
        let held = held(env, "go", &format!("{WRITE_THEM}; git status -s -uall; touch made"));
        // What git and a watcher see meanwhile: empty folders only.
        assert_eq!(env.git(["status", "-s", "-uall"]), "?? made");
        only_empty_folders_but(env.project(), &[".git", "made"]);
        go(env, "go");
        held.wait().ok().prints("ready\n");
        assert_eq!(names(env.project()), [".git", "made"]);

        // The same, and the supervisor is killed.
        let held = self::held(env, "go", WRITE_THEM);
        held.signal(Signal::KILL);
        held.wait().fails_with(137);
        assert_eq!(env.git(["status", "-s", "-uall"]), "?? made");
        only_empty_folders_but(env.project(), &[".git", "made"]);
        run(env, "true").ok();
        assert_eq!(names(env.project()), [".git", "made"]);
    });
}

/// What the user makes of a placeholder meanwhile stays.
#[test]
fn what_the_user_makes_meanwhile_stays() {
    each!(|env| {
        let held = held(env, "go", "true");
        env.write(".vscode/settings.json", "mine");
        go(env, "go");
        held.wait().ok();
        assert_eq!(names(env.project()), [".vscode"]);
        assert_eq!(fs::read(env.project().join(".vscode/settings.json")).unwrap(), b"mine");
        all_fail(env, &["echo x > .vscode/settings.json", "echo x > .vscode/tasks.json"]);
        run(env, "cat .vscode/settings.json").ok().prints("mine");
    });
}

#[test]
fn of_two_runs_the_one_that_stays_is_protected_still() {
    each!(|env| {
        let first = held(env, "go1", "true");
        let second_pipe = env.project().join("go2");
        env.program("mkfifo", [&second_pipe]).run().ok();
        let script = format!("echo ready; read go < go2; {WRITE_THEM}; git init 2>&1 | tail -1");
        let mut second = inside(env, &["--write", "."], &script).spawn();
        second.wait_for_stdout("ready");
        go(env, "go1");
        first.wait().ok();
        only_empty_folders_but(env.project(), &[]);
        assert!(names(env.project()).contains(&".envrc".to_owned()));
        go(env, "go2");
        second.wait().has_not("wrote").has_not("removed").has_not("moved").has_not("linked");
        assert_eq!(names(env.project()), Vec::<String>::new());
    });
}

/// Each keeps its records in a home of its own.
#[test]
fn of_two_runs_with_different_homes_the_one_that_stays_is_protected_still() {
    each!(|env| {
        env.folder("../other");
        env.folder(".idea");
        for first_ends_first in [true, false] {
            let first = held(env, "go1", "true");
            let second_pipe = env.project().join("go2");
            if !second_pipe.exists() {
                env.program("mkfifo", [&second_pipe]).run().ok();
            }
            let script = "echo ready; read go < go2";
            let mut second = inside(env, &["--write", "."], script)
                .env("HOME", env.home().join("other"))
                .spawn();
            second.wait_for_stdout("ready");
            let during = names(env.project());
            assert!(during.contains(&".envrc".to_owned()));
            let mut runs = [("go1", first), ("go2", second)];
            if !first_ends_first {
                runs.reverse();
            }
            for (pipe, run) in runs {
                assert_eq!(names(env.project()), during);
                go(env, pipe);
                run.wait().ok();
            }
            // The user's own empty folder is nobody's placeholder.
            assert_eq!(names(env.project()), [".idea"]);
        }
    });
}

#[test]
fn existing_names_are_read_and_not_written() {
    each!(|env| {
        for file in
            [".envrc", ".mcp.json", ".exrc", ".nvim.lua", "mise.toml", ".pre-commit-config.yaml"]
        {
            env.write(file, "mine\n");
            run(env, &format!("cat {file}")).ok().prints("mine\n");
            for change in
                ["echo x >>", "rm", "mv /etc/hosts", "touch /tmp/n; mv -f /tmp/n", "ln -sf /tmp"]
            {
                run(env, &format!("{change} {file}"));
                assert_eq!(fs::read(env.project().join(file)).unwrap(), b"mine\n", "{change}");
            }
            run(env, &format!("echo x > {file}")).fails();
            run(env, &format!("mv {file} away")).fails();
            run(env, &format!("ln {file} hard")).fails();
            inside(env, &["--write", ".", "--write-dot-files", "."], &format!("echo x > {file}"))
                .run()
                .ok();
            assert_eq!(fs::read(env.project().join(file)).unwrap(), b"x\n");
        }
        for folder in [".vscode", ".idea", ".husky", ".claude"] {
            env.write(format!("{folder}/sub/f"), "mine\n");
            run(env, &format!("cat {folder}/sub/f")).ok().prints("mine\n");
            for change in
                ["echo x > D/sub/f", "echo x > D/new", "mv D away", "rm -r D", "mv D/sub D/t"]
            {
                run(env, &change.replace('D', folder)).fails();
            }
            assert_eq!(fs::read(env.project().join(folder).join("sub/f")).unwrap(), b"mine\n");
        }
        // The same names deeper are the program's own, and so are other dot files.
        run(env, "mkdir sub && echo x > sub/.envrc && mkdir sub/.vscode && echo x > .env && git init -q sub")
            .ok();
    });
}

/// The file is a link into the folder: neither the link nor its target changes.
#[test]
fn a_linked_name_is_kept_with_its_target() {
    each!(|env| {
        env.write("conf/envrc", "mine\n");
        env.link("conf/envrc", ".envrc");
        env.folder("conf/code");
        env.link("conf/code", ".vscode");
        all_fail(
            env,
            &[
                "echo x > .envrc",
                "echo x > conf/envrc",
                "rm .envrc",
                "mv .envrc x",
                "mv conf x",
                "ln -sfn /tmp/x .envrc",
                "mv conf/envrc x",
                "rm conf/envrc",
                "echo x > conf/code/t",
                "ln -sfn /tmp .vscode",
                "rm .vscode",
                "rm -r conf",
            ],
        );
        run(env, "touch conf/other; cat conf/envrc").ok().prints("mine\n");
        assert_eq!(fs::read_link(env.project().join(".envrc")).unwrap(), Path::new("conf/envrc"));
        assert_eq!(fs::read(env.project().join("conf/envrc")).unwrap(), b"mine\n");
        // One that leads nowhere yet, into the folder.
        fs::remove_file(env.project().join(".envrc")).unwrap();
        env.link("later", ".envrc");
        all_fail(env, &["echo x > later", "echo x > .envrc", "rm .envrc"]);
        assert!(!env.project().join("later").exists());
    });
}

// --- git ----------------------------------------------------------------------------------

/// A repository in a folder of the project's, with one commit.
fn repository(env: &TestEnv, folder: &str) {
    env.write(format!("{folder}/file"), "one\n");
    env.sh("git init -q && git add file && git commit -qm first").cwd(folder).run().ok();
}

/// A program in a folder that is written, with these flags besides.
fn at(env: &TestEnv, folder: &str, flags: &[&str], script: &str) -> Run {
    let flags = [&["--write", "."][..], flags].concat();
    inside(env, &flags, script).cwd(folder).run()
}

const READS: &str =
    "git status -s && git diff --stat && git log --format=%s && git show -s --format=%an";

#[test]
fn a_repository_is_read_and_not_changed() {
    each!(|env| {
        repository(env, ".");
        env.write("file", "two\n");
        run(env, READS).ok().stdout_has(" M file").stdout_has("first\nTest Person\n");
        let head = env.git(["rev-parse", "HEAD"]);
        all_fail(
            env,
            &[
                "git commit -qam fix",
                "git config a.b c",
                "echo x > .git/hooks/pre-commit",
                "echo x > h; mv h .git/hooks/pre-commit",
                "mv .git old",
                "rm -rf .git",
                "mv .git old; mkdir .git",
                "echo '[core]' >> .git/config",
                "git init -q .",
                "ln .git/config c",
                "git add file",
                "git branch x",
                "git stash",
                "echo x > .git/config.worktree",
                "echo x > .git/info/attributes",
                "mkdir .git/worktrees",
            ],
        );
        assert_eq!(env.git(["rev-parse", "HEAD"]), head);
        // A folder above can't be renamed, and a mount point can't be removed.
        all_fail(env, &["mv ../project ../x", "rmdir .git"]);
        at(env, ".", &["--write-dot-files", "."], "git commit -qam fix && git config a.b c").ok();
        assert_eq!(env.git(["log", "--format=%s"]), "fix\nfirst");
    });
}

/// The caller's name and address and nothing else of their settings.
#[test]
fn a_commit_is_the_callers_by_name() {
    each!(|env| {
        repository(env, ".");
        let settings = format!(
            "[user]\n\tname = Somebody Else\n\temail = some@example.org\n[alias]\n\tevil = !true\n\
             [core]\n\thooksPath = {0}\n[credential]\n\thelper = {0}\n[user]\n\tsigningkey = x\n",
            evil(env)
        );
        let file = env.write(env.home().join(".gitconfig"), &settings);
        env.write("file", "two\n");
        let flags = ["--write-dot-files", "."];
        at(env, ".", &flags, "git commit -qam fix; git evil; git config --list --show-origin")
            .ok()
            .has_not("helper")
            .has_not("alias")
            .has_not("hookspath")
            .has_not("signingkey")
            .stdout_has("user.name=Somebody Else");
        assert_eq!(
            env.git(["log", "-1", "--format=%an <%ae> %cn"]),
            "Somebody Else <some@example.org> Somebody Else"
        );
        // The repository's own setting wins, and the user's file stays as it is.
        env.git(["config", "user.name", "Of This Project"]);
        env.write("file", "three\n");
        at(env, ".", &flags, "git commit -qam more; git config --global user.name x; true").ok();
        assert_eq!(env.git(["log", "-1", "--format=%an"]), "Of This Project");
        assert_eq!(fs::read(file).unwrap(), settings.as_bytes());
        // With no name anywhere git says so, and nothing is made up.
        fs::remove_file(env.home().join(".gitconfig")).unwrap();
        env.git(["config", "--unset", "user.name"]);
        env.write("file", "four\n");
        at(env, ".", &flags, "git commit -qam none").fails();
    });
}

#[test]
fn a_linked_work_tree_works_and_is_kept() {
    each!(|env| {
        repository(env, "main");
        env.git(["-C", "main", "config", "user.name", "Own"]);
        env.git(["-C", "main", "worktree", "add", "-q", "../wt"]);
        env.write("wt/f", "");
        at(env, "wt", &[], "true").ok();
        at(env, "wt", &[], READS).ok().stdout_has("?? f").stdout_has("first");
        at(env, "wt", &["--read", "../main"], "git status -s").ok().prints("?? f\n");
        let both = ["--write-dot-files", ".", "--write", "../main", "--write-dot-files", "../main"];
        at(env, "wt", &both, "git add f && git commit -qm x").ok();
        assert_eq!(env.git(["-C", "wt", "log", "-1", "--format=%s %an"]), "x Own");
        let link = fs::read(env.project().join("wt/.git")).unwrap();
        for script in [
            "echo 'gitdir: /tmp/evil' > .git",
            "rm .git",
            "mv .git x",
            "echo x > f; mv -f f .git",
            "ln -sf /tmp .git",
            "git commit -qm no --allow-empty",
            "git config a.b c",
        ] {
            for flags in [&[][..], &["--read", "../main"], &["--write", "../main"]] {
                at(env, "wt", flags, script).fails();
            }
        }
        assert_eq!(fs::read(env.project().join("wt/.git")).unwrap(), link);
        // The repository's own hooks and configuration, with both folders written.
        for script in [
            "echo x > ../main/.git/config",
            "echo x > ../main/.git/hooks/post-commit",
            "echo x > ../main/.git/worktrees/wt/config.worktree",
            "echo x > ../main/.git/worktrees/wt/commondir",
        ] {
            at(env, "wt", &["--write", "../main"], script).fails();
        }
        // A work tree whose `.git` points elsewhere opens nothing there.
        env.write("secret/HEAD", "ref: refs/heads/main\n");
        env.write("secret/key", "never\n");
        env.folder("secret/objects");
        env.folder("secret/refs");
        env.write("wt/.git", "gitdir: ../secret\n");
        at(env, "wt", &[], "cat ../secret/key").fails().has_not("never");
    });
}

#[test]
fn a_work_tree_of_a_bare_repository_works() {
    each!(|env| {
        repository(env, "seed");
        env.git(["clone", "-q", "--bare", "seed", "b.git"]);
        env.git(["-C", "b.git", "worktree", "add", "-q", "../wt"]);
        env.write("wt/f", "");
        at(env, "wt", &[], READS).ok().stdout_has("?? f").stdout_has("first");
        at(env, "wt", &[], "git commit -qm x --allow-empty").fails();
        let both =
            ["--write-dot-files", ".", "--write", "../b.git", "--write-dot-files", "../b.git"];
        at(env, "wt", &both, "git add f && git commit -qm x").ok();
        assert_eq!(env.git(["-C", "b.git", "log", "-1", "--format=%s", "wt"]), "x");
        // The bare repository itself: data may be written, what runs may not.
        let evil = evil(env);
        for script in [
            "echo x > hooks/post-update",
            "git config core.fsmonitor x",
            "mv hooks h",
            "mv config c",
            "echo /tmp > commondir",
            "echo x > info/attributes",
        ] {
            at(env, "b.git", &[], script).fails();
        }
        at(env, "b.git", &[], &format!("cp {evil} hooks/post-checkout; cp {evil} x; true")).ok();
        nothing_runs_outside(env, "wt");
    });
}

/// A folder that holds repositories and is none itself: they are their own.
#[test]
fn repositories_below_the_top_are_their_own() {
    each!(|env| {
        repository(env, "a");
        repository(env, "b");
        run(env, "cd a && echo two > file && git commit -qam second && cd ../b && git status -s")
            .ok();
        assert_eq!(env.git(["-C", "a", "log", "-1", "--format=%s"]), "second");
        all_fail(env, &["git init -q .", "mkdir .git/x", "echo x > HEAD"]);
        assert_eq!(names(env.project()), ["a", "b"]);
        // Named by itself, it is kept.
        inside(env, &["--write", ".", "--write", "a"], "cd a && git commit -qm x --allow-empty")
            .run()
            .fails();
    });
}

#[test]
fn a_git_folder_behind_a_link_is_kept() {
    each!(|env| {
        repository(env, ".");
        env.folder("store");
        fs::rename(env.project().join(".git"), env.project().join("store/git")).unwrap();
        env.link("store/git", ".git");
        run(env, READS).ok().stdout_has("first");
        all_fail(
            env,
            &[
                "rm .git",
                "ln -sfn /tmp .git",
                "mv .git x",
                "mv store x",
                "mv store/git x",
                "echo x > store/git/config",
                "echo x > store/git/hooks/pre-commit",
                "git commit -qm x --allow-empty",
                "rm -rf store",
            ],
        );
        run(env, "touch store/other").ok();
        assert_eq!(fs::read_link(env.project().join(".git")).unwrap(), Path::new("store/git"));
    });
}

#[test]
fn a_git_folder_named_by_a_file_is_kept() {
    each!(|env| {
        repository(env, ".");
        env.folder("foo");
        fs::rename(env.project().join(".git"), env.project().join("foo/rg")).unwrap();
        env.write(".git", "gitdir: foo/rg\n");
        run(env, READS).ok().stdout_has("first");
        all_fail(
            env,
            &[
                "mv foo bar && mkdir -p foo/rg",
                "mv foo/rg foo/x",
                "echo x > foo/rg/config",
                "rm .git",
                "echo 'gitdir: bar' > .git",
                "rm -rf foo",
                "git commit -qm x --allow-empty",
            ],
        );
        run(env, "touch foo/other").ok();
    });
}

#[test]
fn submodules_are_kept() {
    each!(|env| {
        repository(env, "dep");
        repository(env, "top");
        env.sh(
            "git -c protocol.file.allow=always submodule --quiet add ../dep sub && git commit -qm sub",
        )
        .cwd("top")
        .run()
        .ok();
        at(env, "top", &[], READS).ok().stdout_has("sub");
        at(env, "top", &[], "git submodule status && cd sub && git log --format=%s")
            .ok()
            .stdout_has("first");
        let evil = evil(env);
        for script in [
            "rm sub/.git",
            "echo 'gitdir: /tmp' > sub/.git",
            "mv sub x",
            "rm -rf sub; git init -q sub",
            "echo x > .git/modules/sub/config",
            "echo x > .git/modules/sub/hooks/post-checkout",
        ] {
            at(env, "top", &[], script).fails();
        }
        let trick = format!(
            "mv sub old; mkdir sub; rm -f sub/.git; cd sub; git init -q .; \
             git config core.fsmonitor {evil}; true"
        );
        at(env, "top", &[], &trick);
        nothing_runs_outside(env, "top");
        at(env, "top", &[], "echo new > sub/file && touch sub/other").ok();
        // The submodule by itself: git reads, through the folder above.
        at(env, "top/sub", &[], "git log --format=%s").ok().prints("first\n");
        at(env, "top/sub", &[], "rm .git").fails();
    });
}

#[test]
fn hooks_and_included_files_in_the_tree_are_kept() {
    each!(|env| {
        repository(env, ".");
        env.write_program("scripts/hooks/pre-commit", "#!/bin/sh\ntrue\n");
        env.write("etc/extra.cfg", "[alias]\n\tst = status\n");
        env.git(["config", "core.hooksPath", "scripts/hooks"]);
        env.git(["config", "include.path", "../etc/extra.cfg"]);
        run(env, "git st -s").ok();
        all_fail(
            env,
            &[
                "echo x > scripts/hooks/pre-commit",
                "echo x > scripts/hooks/post-commit",
                "mv scripts x",
                "mv scripts/hooks x",
                "rm -rf scripts",
                "echo x > etc/extra.cfg",
                "mv etc x",
                "rm etc/extra.cfg",
            ],
        );
        run(env, "touch scripts/other etc/other").ok();
        // A folder of hooks that doesn't exist yet.
        env.git(["config", "core.hooksPath", "later/hooks"]);
        all_fail(env, &["mkdir -p later/hooks && echo x > later/hooks/pre-commit"]);
        assert!(!env.project().join("later").exists());
        // An included file that doesn't.
        env.git(["config", "includeIf.gitdir:/.path", "../etc/absent.cfg"]);
        all_fail(env, &["echo x > etc/absent.cfg", "ln -s extra.cfg etc/absent.cfg"]);
        assert!(!env.project().join("etc/absent.cfg").exists());
    });
}

/// `HEAD`, `objects`, `refs` and `config` make any folder a repository.
#[test]
fn a_folder_cant_be_made_a_repository() {
    each!(|env| {
        let evil = evil(env);
        let trick = format!(
            "mkdir -p objects refs/heads; printf '[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\t\
             worktree = .\\n\\tfsmonitor = {evil}\\n' > config; echo 'ref: refs/heads/main' > HEAD; \
             cp -r . .git; ln -s . .git; git init -q; git config core.fsmonitor {evil}; true"
        );
        run(env, &trick).ok();
        assert!(env.project().join("config").exists());
        assert!(!env.project().join("HEAD").exists() && !env.project().join(".git").exists());
        nothing_runs_outside(env, ".");
        // It is the missing HEAD that holds it: with one, the command runs.
        env.write("HEAD", "ref: refs/heads/main\n");
        env.sh("git status").run();
        assert!(env.home().join("ran").exists(), "the trick is a real one");
    });
}

#[test]
fn tricks_on_a_repository_run_nothing_outside() {
    each!(|env| {
        repository(env, ".");
        let evil = evil(env);
        let trick = format!(
            "git config core.fsmonitor {evil}; git config core.hooksPath .; cp {evil} pre-commit; \
             cp {evil} .git/hooks/pre-commit; cp {evil} .git/hooks/post-checkout; \
             echo '* filter=x' > .gitattributes; git config filter.x.clean {evil}; \
             mv .git old; mkdir -p e/hooks; git init -q --separate-git-dir=e; \
             cp {evil} e/hooks/pre-commit; echo 'gitdir: e' > .git; mkdir -p .husky; true"
        );
        run(env, &trick).ok();
        nothing_runs_outside(env, ".");
    });
}

/// What a write folder `sub` holds that git runs from elsewhere is replaced by
/// what shows itself, by any way there is.
fn trick_in_sub(env: &TestEnv) -> String {
    let ran = env.home().join("ran").display().to_string();
    format!(
        "hook() {{ printf '#!/bin/sh\\n: > {ran}\\n' > $1 && chmod +x $1; }}; \
         config() {{ printf '[core]\\n\\tfsmonitor = : > {ran}; false\\n' > $1; }}; \
         all() {{ for name in pre-commit post-commit post-checkout; do hook hooks/$name; done; \
         hook check; config cfg/shared; mkdir later && config later/cfg; }}; \
         all; mv hooks h; mv cfg c; mv check x; mkdir hooks cfg; all; true"
    )
}

/// The trick fails inside, with these flags, and is one that works outside.
#[track_caller]
fn nothing_of_the_trick_runs(env: &TestEnv) {
    let trick = trick_in_sub(env);
    at(env, "sub", &[], &trick).ok();
    nothing_runs_outside(env, ".");
    nothing_runs_outside(env, "sub");
    at(env, "sub", &[], "touch other && rm other").ok();

    env.sh(&trick).cwd("sub").run().ok();
    env.sh("git status; git commit -qm x --allow-empty").run();
    assert!(env.home().join("ran").exists(), "the trick is a real one");
    fs::remove_file(env.home().join("ran")).expect("git ran something");
}

/// The write folder is below the top of the repository that governs it.
#[test]
fn what_the_repository_around_runs_is_kept() {
    for setting in [
        "git config core.hooksPath sub/hooks",
        "git config include.path ../sub/cfg/shared",
        "git config include.path ../sub/later/cfg",
        "ln -s ../../sub/check .git/hooks/pre-commit",
        "rm -r .git/hooks && ln -s ../sub/hooks .git/hooks",
    ] {
        each!(|env| {
            repository(env, ".");
            env.write_program("sub/hooks/pre-commit", "#!/bin/sh\n");
            env.write_program("sub/check", "#!/bin/sh\n");
            env.write("sub/cfg/shared", "[alias]\n\tst = status\n");
            env.sh(setting).run().ok();
            nothing_of_the_trick_runs(env);
        });
    }
}

#[test]
fn what_the_users_git_configuration_names_is_kept() {
    for file in [".gitconfig", ".config/git/config"] {
        for setting in ["[core]\n\thooksPath = @/hooks\n", "[include]\n\tpath = @/cfg/shared\n"] {
            each!(|env| {
                repository(env, ".");
                env.write_program("sub/hooks/pre-commit", "#!/bin/sh\n");
                env.write("sub/cfg/shared", "[alias]\n\tst = status\n");
                env.write("sub/check", "");
                let sub = env.project().join("sub").display().to_string();
                let user = "[user]\n\tname = Test Person\n\temail = t@example.org\n";
                fs::remove_file(env.home().join(".gitconfig")).unwrap();
                env.write(env.home().join(file), format!("{user}{}", setting.replace("@", &sub)));
                nothing_of_the_trick_runs(env);
            });
        }
    }
}

// --- opening them ---------------------------------------------------------------------------

#[test]
fn dot_files_are_opened_only_for_a_write_folder() {
    each!(|env| {
        env.folder("a/b");
        env.folder("r");
        for (flags, named) in [
            (&["--write", ".", "--write-dot-files", "a"][..], "a"),
            (&["--read", ".", "--write", "a", "--write-dot-files", "a/b"], "a/b"),
            (&["--read", ".", "--write-dot-files", "."], "."),
            (&["--read", ".", "--read", "r", "--write-dot-files", "r"], "r"),
        ] {
            inside(env, flags, "echo ran").run().fails_with(125).prints("").stderr_has(&format!(
                "--write-dot-files {named}: not one of the --write folders; add --write {named}"
            ));
        }
        inside(env, &["--write", ".", "--write-dot-files", "none"], "echo ran")
            .run()
            .fails_with(125)
            .prints("")
            .stderr_has("none");
        // By another spelling it is one of them, and opens that one alone.
        let flags = ["--write", ".", "--write", "a", "--write-dot-files", "../project/./a"];
        inside(env, &flags, "echo x > a/.envrc && mkdir a/.vscode").run().ok();
        inside(env, &flags, "echo x > .envrc").run().fails();
        assert_eq!(names(&env.project().join("a")), [".envrc", ".vscode", "b"]);
    });
}

#[test]
fn a_protected_name_that_is_granted_is_written() {
    each!(|env| {
        repository(env, ".");
        env.folder(".vscode");
        env.write(".envrc", "");
        let flags = ["--write", ".", "--write", ".vscode", "--write", ".envrc"];
        inside(env, &flags, "echo x > .vscode/t && echo x > .envrc").run().ok();
        inside(env, &flags, "git commit -qm x --allow-empty").run().fails();
        inside(env, &flags, "mkdir .idea/x").run().fails();
        // `.git` by itself is a write folder like any other: what git runs from it
        // is kept until its dot files are opened too.
        let flags = ["--write", ".", "--write", ".git"];
        inside(env, &flags, "touch .git/objects/x && rm .git/objects/x").run().ok();
        inside(env, &flags, "echo x >> .git/config").run().fails();
        inside(env, &flags, "echo x > .git/hooks/pre-commit").run().fails();
        let flags = [&flags[..], &["--write-dot-files", ".git"]].concat();
        inside(env, &flags, "git commit -qm x --allow-empty").run().ok();
        inside(env, &flags, "echo x > .envrc").run().fails();
        inside(env, &["--write", ".", "--hide", ".git"], "ls .git").run().fails();
        inside(env, &["--write", ".", "--read", ".git"], "git log --format=%s")
            .run()
            .ok()
            .prints("x\nfirst\n");
    });
}

// --- replaced from outside -------------------------------------------------------------------

/// Waits, by the kernel's notice of changed mounts, until `.envrc` is covered
/// again after its cover went; then tries to change it.
const AWAIT_COVER: &str = r#"
import os, select, sys
mounts = open('/proc/self/mountinfo')
watch = select.poll()
watch.register(mounts, select.POLLPRI)
path = os.path.join(os.getcwd(), '.envrc')
print('ready', flush=True)
while True:
    watch.poll(20000) or sys.exit('never covered again')
    mounts.seek(0)
    if f' {path} ' in mounts.read(): break
for name, change in {
    'append': lambda: open(path, 'a'),
    'unlink': lambda: os.unlink(path),
    'rmdir': lambda: os.rmdir(path),
    'rename': lambda: os.rename(path, 'away'),
    'replace': lambda: (open('own', 'w').close(), os.rename('own', path)),
    'inside': lambda: open(path + '/x', 'w'),
}.items():
    try: change(); print(name, 'DONE')
    except OSError as error: print(name, 'refused')
"#;

const ALL_REFUSED: &str = "ready\nappend refused\nunlink refused\nrmdir refused\nrename refused\nreplace refused\ninside refused\n";

fn watching(env: &TestEnv) -> Running {
    env.write("await.py", AWAIT_COVER);
    let mut running = inside(env, &["--write", "."], "/usr/bin/python3 await.py").spawn();
    running.wait_for_stdout("ready");
    running
}

#[test]
fn a_file_that_an_editor_replaces_is_covered_again() {
    each!(|env| {
        env.write(".envrc", "one\n");
        let running = watching(env);
        env.write("../new", "two\n");
        fs::rename(env.home().join("new"), env.project().join(".envrc")).unwrap();
        running.wait().ok().prints(ALL_REFUSED);
        assert_eq!(fs::read(env.project().join(".envrc")).unwrap(), b"two\n");
    });
}

#[test]
fn a_name_that_is_deleted_outside_cant_be_made_inside() {
    each!(|env| {
        env.write(".envrc", "one\n");
        let running = watching(env);
        fs::remove_file(env.project().join(".envrc")).unwrap();
        running.wait().ok().prints(ALL_REFUSED);
        assert!(!env.project().join(".envrc").exists());
        // And so for a placeholder.
        let running = watching(env);
        fs::remove_dir(env.project().join(".envrc")).unwrap();
        running.wait().ok().prints(ALL_REFUSED);
        assert!(!env.project().join(".envrc").exists());
        // A link put there by the user is covered as well.
        env.write(".envrc", "one\n");
        env.write("target", "mine\n");
        let running = watching(env);
        env.link("target", "link");
        fs::rename(env.project().join("link"), env.project().join(".envrc")).unwrap();
        running.wait().ok().prints(ALL_REFUSED);
        assert_eq!(fs::read_link(env.project().join(".envrc")).unwrap(), Path::new("target"));
    });
}

/// Waits for a line, then until every placeholder is covered, by the kernel's
/// notice of changed mounts; then tries to make them.
const AWAIT_ALL: &str = r#"
import os, select, sys
names = '.envrc .vscode .idea .husky .claude .cursor .zed .devcontainer .githooks'.split()
mounts = open('/proc/self/mountinfo')
watch = select.poll()
watch.register(mounts, select.POLLPRI)
print('ready', flush=True)
open('go').readline()
while True:
    mounts.seek(0)
    text = mounts.read()
    if all(f' {os.getcwd()}/{name} ' in text for name in names): break
    watch.poll(20000) or sys.exit('never covered again')
for name in names:
    for change in [lambda: open(name, 'w'), lambda: os.rmdir(name), lambda: open(name + '/x', 'w')]:
        try: print(name, 'CHANGED', change())
        except OSError: pass
"#;

/// It takes empty folders away.
#[test]
fn git_clean_outside_opens_nothing() {
    each!(|env| {
        repository(env, ".");
        env.write(".git/info/exclude", "go\nawait.py\n");
        env.write("await.py", AWAIT_ALL);
        env.program("mkfifo", ["go"]).run().ok();
        let mut running = inside(env, &["--write", "."], "/usr/bin/python3 await.py").spawn();
        running.wait_for_stdout("ready");
        env.git(["clean", "-fdq"]);
        go(env, "go");
        running.wait().ok().prints("ready\n");
        assert_eq!(names(env.project()), [".git", "await.py", "file"]);
    });
}
