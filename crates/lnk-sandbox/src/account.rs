//! Who the caller is by name: passwd(5) and group(5).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Where names come from when `/etc/passwd` doesn't know the caller (LDAP, a
/// container's user).
const GETENT: &str = "/usr/bin/getent";

/// A line of passwd(5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Login name.
    pub name: OsString,
    /// User id.
    pub uid: u32,
    /// Primary group's id.
    pub gid: u32,
    /// Home folder.
    pub home: PathBuf,
}

/// The accounts that matter to a run.
#[derive(Clone, Debug)]
pub struct Accounts {
    /// The caller's; its name is the number where nobody knows one.
    pub own: Account,
    /// The name of the caller's group.
    pub group: OsString,
    /// Home folders in which people log in: the caller's, and everyone's for root.
    pub homes: Vec<PathBuf>,
}

impl Accounts {
    /// Looks the caller up. Never fails: a user whom nobody knows is named by
    /// number and has no home.
    #[must_use]
    pub fn of(uid: u32, gid: u32) -> Self {
        let passwd = std::fs::read("/etc/passwd").unwrap_or_default();
        let known: Vec<Account> = accounts(&passwd).collect();
        let own = known.iter().find(|account| account.uid == uid).cloned();
        let own =
            own.or_else(|| accounts(&getent("passwd", uid)).find(|account| account.uid == uid));
        let own = own.unwrap_or_else(|| Account {
            name: uid.to_string().into(),
            uid,
            gid,
            home: PathBuf::new(),
        });
        let mut homes = vec![own.home.clone()];
        if uid == 0 {
            homes.extend(
                known
                    .iter()
                    .filter(|account| is_person(account.uid))
                    .map(|account| account.home.clone()),
            );
        }
        homes.retain(|home| home.is_absolute() && home.as_os_str() != "/");
        homes.sort();
        homes.dedup();
        Accounts { group: group_name(gid), own, homes }
    }
}

/// Root, and the range in which distributions number people (login.defs(5)).
fn is_person(uid: u32) -> bool {
    uid == 0 || (1000..65534).contains(&uid)
}

/// The lines of a passwd(5).
pub(crate) fn accounts(passwd: &[u8]) -> impl Iterator<Item = Account> + '_ {
    passwd.split(|byte| *byte == b'\n').filter_map(|line| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
        let [name, _, uid, gid, _, home, ..] = fields[..] else { return None };
        Some(Account {
            name: OsStr::from_bytes(name).to_owned(),
            uid: number(uid)?,
            gid: number(gid)?,
            home: PathBuf::from(OsStr::from_bytes(home)),
        })
    })
}

/// Who a group(5) says is in a group, besides those whose own group it is;
/// `None` for a group that it doesn't know.
pub(crate) fn members(group: &[u8], gid: u32) -> Option<Vec<OsString>> {
    group.split(|byte| *byte == b'\n').find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
        let [_, _, id, members, ..] = fields[..] else { return None };
        let names = members.split(|byte| *byte == b',').filter(|name| !name.is_empty());
        (number(id) == Some(gid))
            .then(|| names.map(|name| OsStr::from_bytes(name).into()).collect())
    })
}

fn group_name(gid: u32) -> OsString {
    let find = |table: &[u8]| {
        table.split(|byte| *byte == b'\n').find_map(|line| {
            let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
            let [name, _, id, ..] = fields[..] else { return None };
            (number(id) == Some(gid)).then(|| OsStr::from_bytes(name).to_owned())
        })
    };
    find(&std::fs::read("/etc/group").unwrap_or_default())
        .or_else(|| find(&getent("group", gid)))
        .unwrap_or_else(|| gid.to_string().into())
}

fn number(field: &[u8]) -> Option<u32> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// What the system's own lookup prints, empty if it knows nothing.
fn getent(database: &str, id: u32) -> Vec<u8> {
    let mut command = Command::new(GETENT);
    command
        .env_clear()
        .arg(database)
        .arg(id.to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    command.output().map(|output| output.stdout).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_by_name() {
        let accounts = Accounts::of(0, 0);
        assert_eq!(accounts.own.name, "root");
        assert_eq!(accounts.group, "root");
    }

    #[test]
    fn nobody_knows_this_user_and_it_still_has_a_name() {
        let accounts = Accounts::of(3_999_999_999, 3_999_999_999);
        assert_eq!(accounts.own.name, "3999999999");
        assert!(accounts.homes.is_empty());
    }

    #[test]
    fn a_broken_line_is_left_out() {
        assert_eq!(accounts(b"a:b\n\nu:x:1:2:g:/h:/s\nv:x:n:2:g:/h:/s").count(), 1);
    }
}
