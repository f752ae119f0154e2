//! Whether another user of this machine could put something else in the place of a
//! listed program, or of Link's settings: the owners and modes of the file or folder and
//! of every folder above it.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::OnceLock;

use lnk_spec::shown;
use rustix::fs::{FileType, Mode, Stat};
use rustix::io::Errno;

use crate::account;

/// Where an access list is kept, acl(5). A file that has one shows, as its
/// group's rights, the most that any user of the list has.
const ACCESS_LIST: &str = "system.posix_acl_access";

/// Who is trusted with what a run depends on: root and the caller.
#[derive(Clone, Debug)]
pub struct Trusted {
    uid: u32,
    /// Whom root's files seem to belong to, where that isn't root.
    as_root: Option<u32>,
    /// passwd(5) and group(5), read where a group's members count.
    tables: OnceLock<(Vec<u8>, Vec<u8>)>,
}

impl Trusted {
    /// Trusts root and the user with this number.
    #[must_use]
    pub fn of(uid: u32) -> Self {
        Trusted { uid, as_root: None, tables: OnceLock::new() }
    }

    /// Trusts also whom root's own files seem to belong to, in a user namespace without
    /// root.
    #[must_use]
    pub fn and(self, as_root: Option<u32>) -> Self {
        Trusted { as_root, ..self }
    }

    /// Why another user could replace what is at a real path; `None` when none
    /// could.
    ///
    /// # Errors
    /// Those of lstat(2).
    pub fn replaced_by_others(&self, real: &Path) -> io::Result<Option<String>> {
        let mut below: Option<Stat> = None;
        for place in real.ancestors() {
            let stat = rustix::fs::lstat(place)?;
            if let Some(why) = self.changed_by_others(place, &stat, below.as_ref()) {
                return Ok(Some(why));
            }
            below = Some(stat);
        }
        Ok(None)
    }

    /// Why another user could change a file or folder. `below` is what a folder
    /// holds on the way to the program: in one with the sticky bit only its owner
    /// can rename or remove it, inode(7).
    #[must_use]
    pub fn changed_by_others(
        &self,
        place: &Path,
        stat: &Stat,
        below: Option<&Stat>,
    ) -> Option<String> {
        let shown = shown::word(place);
        if !self.trusts_user(stat.st_uid) {
            return Some(format!("{shown} belongs to another user, who could replace it"));
        }
        let kind = FileType::from_raw_mode(stat.st_mode);
        // A link's own mode means nothing, symlink(7).
        if kind == FileType::Symlink {
            return None;
        }
        let mode = Mode::from_raw_mode(stat.st_mode);
        let keeps = mode.contains(Mode::SVTX) && kind == FileType::Directory && below.is_some();
        if keeps {
            return None;
        }
        if mode.contains(Mode::WOTH) {
            return Some(format!("everybody may write {shown}; chmod o-w closes it"));
        }
        if mode.contains(Mode::WGRP) && !self.trusts_group(stat.st_gid) {
            return Some(format!("others of its group may write {shown}; chmod g-w closes it"));
        }
        if mode.contains(Mode::WGRP) && has_access_list(place) {
            return Some(format!("{shown} has an access list that lets others write it"));
        }
        None
    }

    fn trusts_user(&self, uid: u32) -> bool {
        uid == 0 || uid == self.uid || Some(uid) == self.as_root
    }

    /// A group of the caller's own, as many systems make one for each user, or
    /// one that nobody else is in. One that this machine's files don't know may
    /// have anybody in it.
    fn trusts_group(&self, gid: u32) -> bool {
        let read = |path| std::fs::read(path).unwrap_or_default();
        let tables = || (read("/etc/passwd"), read("/etc/group"));
        let (passwd, group) = self.tables.get_or_init(tables);
        let Some(members) = account::members(group, gid) else { return false };
        let accounts = || account::accounts(passwd);
        let is_trusted = |name: &OsString| {
            accounts().find(|it| it.name == *name).is_some_and(|it| self.trusts_user(it.uid))
        };
        members.iter().all(is_trusted)
            && accounts().filter(|it| it.gid == gid).all(|it| self.trusts_user(it.uid))
    }
}

/// One that can't be looked for may be there, but for file systems without any.
fn has_access_list(place: &Path) -> bool {
    let found = rustix::fs::lgetxattr(place, ACCESS_LIST, &mut [] as &mut [u8]);
    !matches!(found, Err(Errno::NODATA | Errno::OPNOTSUPP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    const PASSWD: &[u8] = b"root:x:0:0::/root:/bin/sh\nme:x:1000:1000::/home/me:/bin/sh\n\
        other:x:1001:1001::/home/other:/bin/sh\nalso:x:1002:50::/home/also:/bin/sh\n";
    const GROUP: &[u8] =
        b"root:x:0:\nme:x:1000:\nother:x:1001:me\nstaff:x:20:\nteam:x:30:me,other\n\
        mine:x:40:me,root\nprimary:x:50:\nghosts:x:60:gone\n";

    fn me() -> Trusted {
        Trusted {
            uid: 1000,
            as_root: None,
            tables: OnceLock::from((PASSWD.to_vec(), GROUP.to_vec())),
        }
    }

    #[test]
    fn a_group_is_trusted_that_nobody_else_is_in() {
        for (gid, trusted) in [
            (0, true),
            (1000, true),
            (1001, false),
            (20, true),
            (30, false),
            (40, true),
            (50, false),
            (60, false),
            (70, false),
        ] {
            assert_eq!(me().trusts_group(gid), trusted, "{gid}");
        }
    }

    #[test]
    fn the_systems_programs_are_nobodys_to_replace() {
        let trusted = Trusted::of(rustix::process::getuid().as_raw());
        assert_eq!(trusted.replaced_by_others(Path::new("/usr/bin/env")).unwrap(), None);
        assert!(trusted.replaced_by_others(Path::new("/usr/bin/no such")).is_err());
    }

    #[test]
    fn what_others_may_write_is_told() {
        let uid = rustix::process::getuid().as_raw();
        let trusted = Trusted { uid, ..me() };
        // Below a folder with the sticky bit, such as /tmp, in which it is held.
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        let program = inner.join("program");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(&program, "").unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        let why = |trusted: &Trusted| trusted.replaced_by_others(&program).unwrap();
        mode(&inner, 0o755);
        mode(&program, 0o755);
        assert_eq!(why(&trusted), None);
        mode(&program, 0o757);
        assert!(why(&trusted).unwrap().starts_with("everybody may write"), "{:?}", why(&trusted));
        mode(&program, 0o755);
        mode(&inner, 0o777);
        assert!(why(&trusted).unwrap().contains("inner; chmod o-w"));
        mode(&inner, 0o1777);
        assert_eq!(why(&trusted), None);
        mode(&inner, 0o775);
        let known = trusted.trusts_group(rustix::process::getgid().as_raw());
        assert_eq!(why(&trusted).is_none(), known);
        let stranger = Trusted { uid: 4_000_000, ..me() };
        let owner_is_root = uid == 0;
        mode(&inner, 0o755);
        assert_eq!(why(&stranger).is_none(), owner_is_root);
    }
}
