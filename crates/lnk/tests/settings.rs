//! Link's settings are the caller's own, wherever others have links lead.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use testkit::{Call, TestEnv, User, each};

/// Somebody else, whom passwd needn't know.
const OTHER: u32 = 4242;

/// Runs a test where files can be given to others.
fn each_with_others(body: impl Fn(&TestEnv)) {
    if !User::current().is_root() {
        return testkit::missing("root, who gives files away");
    }
    each!(|env| {
        env.write("app.toml", "[files]\nwrite = ['.']\n[commands]\nallow = ['*']\n");
        body(env);
    });
}

/// Everything from a path down, links themselves.
fn give(path: &Path, uid: u32) {
    lchown(path, Some(uid), Some(uid)).expect("root gives files away");
    if path.is_dir() && !path.is_symlink() {
        for entry in fs::read_dir(path).expect("root reads folders") {
            give(&entry.expect("root reads folders").path(), uid);
        }
    }
}

/// Somebody else's home, that anybody may write.
fn theirs(env: &TestEnv) -> PathBuf {
    let home = env.folder(env.outside().join("theirs"));
    fs::set_permissions(&home, Permissions::from_mode(0o777)).expect("own folder");
    give(&home, OTHER);
    home
}

/// A run of the spec whose caller's home in passwd is the test's, and which HOME
/// says is another.
fn run(env: &TestEnv, home: &Path, flags: &[&str]) -> Call {
    let (User { uid, gid, .. }, own) = (&env.user, env.home().display());
    let root = if *uid == 0 { "" } else { "root:x:0:0::/root:/bin/sh\n" };
    let passwd = format!("{root}me:x:{uid}:{gid}::{own}:/bin/sh\n");
    let passwd = env.write(env.home().join("passwd"), passwd);
    let words = ["sandbox", "run", "--spec", "app.toml"];
    let words = [&words[..], flags, &["--", "echo", "ran"]].concat();
    env.lnk(words).env("HOME", home).replaced("/etc/passwd", passwd)
}

#[test]
fn in_somebody_elses_home_nothing_is_made_and_no_link_followed() {
    each_with_others(|env| {
        let elsewhere = env.folder(env.outside().join("elsewhere"));
        let theirs = theirs(env);
        run(env, &theirs, &["--yes"]).run().ok().prints("ran\n");
        assert_eq!(fs::read_dir(&theirs).unwrap().count(), 0);
        let own = env.home().join(".config/lnk");
        assert!(own.join("sandbox/placeholders").exists() && own.join("specs").exists());

        fs::create_dir_all(theirs.join(".config/lnk")).unwrap();
        for name in ["sandbox", "specs"] {
            symlink(&elsewhere, theirs.join(".config/lnk").join(name)).unwrap();
        }
        give(&theirs, OTHER);
        fs::remove_dir_all(&own).unwrap();
        run(env, &theirs, &["--yes"]).run().ok().prints("ran\n");
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        assert!(own.join("sandbox/placeholders").exists() && own.join("specs").exists());
    });
}

#[test]
fn what_somebody_else_says_was_agreed_to_was_not() {
    each_with_others(|env| {
        run(env, env.home(), &["--yes"]).run().ok();
        run(env, env.home(), &[]).run().ok().prints("ran\n");
        let theirs = theirs(env);
        fs::create_dir_all(theirs.join(".config/lnk")).unwrap();
        fs::rename(env.home().join(".config/lnk/specs"), theirs.join(".config/lnk/specs")).unwrap();
        give(&theirs, OTHER);
        let asked = |home: &Path| {
            run(env, home, &[]).run().fails_with(125).stderr_has("app.toml hasn't run here before");
        };
        asked(&theirs);
        // Nor by a home that leads through theirs.
        let inner = theirs.join("inner");
        symlink(env.outside().join("agreed"), &inner).unwrap();
        fs::rename(
            theirs.join(".config"),
            env.folder(env.outside().join("agreed")).join(".config"),
        )
        .unwrap();
        give(&env.outside().join("agreed"), env.user.uid);
        run(env, &env.outside().join("agreed"), &[]).run().ok().prints("ran\n");
        give(&theirs, OTHER);
        asked(&inner);
    });
}

#[test]
fn what_is_somebody_elses_on_the_way_is_refused_and_ones_own_link_followed() {
    each_with_others(|env| {
        let (config, dots) = (env.home().join(".config"), env.folder(env.home().join("dots")));
        env.link(&dots, &config);
        run(env, env.home(), &["--yes"]).run().ok().prints("ran\n");
        assert!(dots.join("lnk/specs/sandbox.toml").exists());

        let refused = |call: Call, what: &Path| {
            let why = format!("{} belongs to another user, who could replace it", what.display());
            call.run().fails_with(125).prints("").stderr_has(&why);
        };
        let log = || env.lnk(["sandbox", "log"]);
        for place in [&config, &config.join("lnk"), &config.join("lnk/sandbox")] {
            log().run().ok();
            lchown(place, Some(OTHER), None).unwrap();
            refused(run(env, env.home(), &["--yes"]), place);
            log().run().fails_with(125).prints("").stderr_has("belongs to another user");
            lchown(place, Some(env.user.uid), None).unwrap();
        }
        // A link's target, a folder on its way, and what others may write.
        let mode = |place: &Path, mode| {
            fs::set_permissions(place, Permissions::from_mode(mode)).unwrap();
        };
        let everybodys = |call: Call, place: &Path| {
            let why = format!("everybody may write {}", place.display());
            call.run().fails_with(125).prints("").stderr_has(&why).stderr_has("HOME");
        };
        let own = config.join("lnk/sandbox");
        let moved = env.folder(dots.join("moved"));
        fs::rename(&own, moved.join("sandbox")).unwrap();
        symlink(moved.join("sandbox"), &own).unwrap();
        lchown(&own, Some(env.user.uid), None).unwrap();
        log().run().ok();
        for (place, told) in [(moved.join("sandbox"), own.clone()), (moved.clone(), moved.clone())]
        {
            mode(&place, 0o777);
            everybodys(run(env, env.home(), &["--yes"]), &told);
            everybodys(log(), &told);
            mode(&place, 0o755);
        }
        fs::remove_file(&own).unwrap();
        fs::rename(moved.join("sandbox"), &own).unwrap();
        run(env, env.home(), &["--yes"]).run().ok().prints("ran\n");
        let placeholders = config.join("lnk/sandbox/placeholders");
        fs::remove_dir_all(&placeholders).unwrap();
        symlink(&dots, &placeholders).unwrap();
        lchown(&placeholders, Some(OTHER), None).unwrap();
        refused(run(env, env.home(), &["--yes"]), &placeholders);
        lchown(&placeholders, Some(env.user.uid), None).unwrap();
        run(env, env.home(), &["--yes"]).run().ok().prints("ran\n");
    });
}
