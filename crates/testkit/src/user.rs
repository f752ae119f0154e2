//! The users that tests run as.

use std::fs;

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Login name.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
}

/// The ordinary user that root's tests run as too; `scripts/test` makes it.
const ORDINARY: &str = "lnk-test";

impl User {
    /// The users that this process can run tests as: root and an ordinary one
    /// for root, otherwise only the present one.
    ///
    /// # Panics
    /// On CI, when the ordinary user doesn't exist.
    pub fn all() -> Vec<User> {
        let current = User::current();
        if !current.is_root() {
            return vec![current];
        }
        match User::find(|user| user.name == ORDINARY) {
            Some(ordinary) => vec![current, ordinary],
            None => {
                crate::missing(&format!("the user {ORDINARY}: useradd -m {ORDINARY}"));
                vec![current]
            }
        }
    }

    /// The user of this process.
    pub fn current() -> User {
        let uid = rustix::process::getuid().as_raw();
        let gid = rustix::process::getgid().as_raw();
        User::find(|user| user.uid == uid).unwrap_or(User { name: uid.to_string(), uid, gid })
    }

    /// Whether this is uid 0.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// The first line of `/etc/passwd` (passwd(5)) that fits.
    fn find(fits: impl Fn(&User) -> bool) -> Option<User> {
        let passwd = fs::read_to_string("/etc/passwd").expect("/etc/passwd is readable");
        passwd.lines().filter_map(parse).find(fits)
    }
}

fn parse(line: &str) -> Option<User> {
    let mut fields = line.split(':');
    let name = fields.next()?.to_owned();
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    Some(User { name, uid, gid })
}
