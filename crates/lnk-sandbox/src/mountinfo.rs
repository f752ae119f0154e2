//! `/proc/self/mountinfo`, proc_pid_mountinfo(5).

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// `major:minor` of the file system.
    pub device: String,
    /// Which part of the file system is mounted.
    pub root: PathBuf,
    /// Where it is mounted.
    pub point: PathBuf,
    /// The kind of file system.
    pub kind: String,
    /// Whether nothing can be written through it.
    pub read_only: bool,
    /// Whether mounts made elsewhere appear below it, or the other way round.
    pub propagates: bool,
}

/// Every mount of a namespace, in the order they were made.
#[derive(Clone, Debug, Default)]
pub struct Mounts {
    list: Vec<Mount>,
    /// Whether a file system is mounted in two places: elsewhere nothing has a
    /// second name.
    doubled: bool,
}

impl Mounts {
    /// Reads the table; a line that isn't one is left out.
    #[must_use]
    pub fn parse(table: &[u8]) -> Self {
        let list: Vec<Mount> = table.split(|byte| *byte == b'\n').filter_map(parse_line).collect();
        let mut devices = HashSet::new();
        let doubled = !list.iter().all(|mount| devices.insert(mount.device.as_str()));
        Mounts { list, doubled }
    }

    /// Every path under which the caller sees what is at `real`, itself among
    /// them: the same part of the same file system may be mounted elsewhere too.
    #[must_use]
    pub fn names_of(&self, real: &Path) -> Vec<PathBuf> {
        let mut names = vec![real.to_path_buf()];
        if !self.doubled {
            return names;
        }
        let Some(home) = self.mount_of(real) else { return names };
        let Ok(below) = real.strip_prefix(&home.point) else { return names };
        let inside = home.root.join(below);
        for mount in self.list.iter().filter(|mount| mount.device == home.device) {
            if let Ok(rest) = inside.strip_prefix(&mount.root) {
                let name = if rest.as_os_str().is_empty() {
                    mount.point.clone()
                } else {
                    mount.point.join(rest)
                };
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        names
    }

    /// [`names_of`](Self::names_of) `real`, and every path under which a part of
    /// it is mounted.
    #[must_use]
    pub fn names_of_all_of(&self, real: &Path) -> Vec<PathBuf> {
        let mut names = self.names_of(real);
        if !self.doubled {
            return names;
        }
        let Some(home) = self.mount_of(real) else { return names };
        let Ok(below) = real.strip_prefix(&home.point) else { return names };
        let inside = home.root.join(below);
        let parts = self.list.iter().filter(|mount| {
            mount.device == home.device && mount.root != inside && mount.root.starts_with(&inside)
        });
        for part in parts {
            if !names.contains(&part.point) {
                names.push(part.point.clone());
            }
        }
        names
    }

    /// What is mounted below `real`, each with the other names that it has outside
    /// of it. A mount that another one covers is left out.
    pub fn other_names_below(&self, real: &Path) -> impl Iterator<Item = (&Mount, PathBuf)> {
        let is_seen = move |mount: &&Mount| {
            mount.point.starts_with(real)
                && mount.point != real
                && self.mount_of(&mount.point).is_some_and(|top| std::ptr::eq(top, *mount))
        };
        let below = self.list.iter().filter(move |mount| self.doubled && is_seen(mount));
        below.flat_map(move |mount| {
            let names = self.names_of(&mount.point).into_iter();
            names.filter(move |name| !name.starts_with(real)).map(move |name| (mount, name))
        })
    }

    /// Whether a file system is mounted anywhere, by its `st_dev`. Those that the
    /// kernel keeps for itself, such as that of memfd_create(2), aren't.
    #[must_use]
    pub fn has_device(&self, device: u64) -> bool {
        let numbers = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        self.list.iter().any(|mount| mount.device == numbers)
    }

    /// The mounts, in the order they were made.
    pub fn iter(&self) -> impl Iterator<Item = &Mount> {
        self.list.iter()
    }

    /// The mount points below `real` with a file system that is a window on the
    /// kernel or on devices.
    #[must_use]
    pub fn kernel_windows_below(&self, real: &Path) -> Vec<PathBuf> {
        self.list
            .iter()
            .filter(|mount| {
                mount.point.starts_with(real)
                    && mount.point != real
                    && is_kernel_window(&mount.kind)
            })
            .map(|mount| mount.point.clone())
            .collect()
    }

    /// Whether `real` itself lies on a window on the kernel.
    #[must_use]
    pub fn is_kernel_window(&self, real: &Path) -> bool {
        self.mount_of(real).is_some_and(|mount| is_kernel_window(&mount.kind))
    }

    /// The last mount made at the deepest point that holds `real`.
    fn mount_of(&self, real: &Path) -> Option<&Mount> {
        let holding = self.list.iter().filter(|mount| real.starts_with(&mount.point));
        holding.max_by_key(|mount| mount.point.components().count())
    }
}

fn is_kernel_window(kind: &str) -> bool {
    matches!(
        kind,
        "proc"
            | "sysfs"
            | "devtmpfs"
            | "devpts"
            | "cgroup"
            | "cgroup2"
            | "securityfs"
            | "debugfs"
            | "tracefs"
            | "bpf"
            | "configfs"
            | "efivarfs"
            | "pstore"
            | "mqueue"
            | "fusectl"
            | "binfmt_misc"
            | "rpc_pipefs"
            | "selinuxfs"
            | "nsfs"
            | "functionfs"
    )
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = String::from_utf8(fields.nth(2)?.to_vec()).ok()?;
    let root = unescaped(fields.next()?);
    let point = unescaped(fields.next()?);
    let read_only = fields.next()?.split(|byte| *byte == b',').any(|option| option == b"ro");
    let is_peer = |tag: &[u8]| tag.starts_with(b"shared:") || tag.starts_with(b"master:");
    let tags: Vec<&[u8]> = fields.by_ref().take_while(|field| *field != b"-").collect();
    let kind = String::from_utf8(fields.next()?.to_vec()).ok()?;
    let propagates = tags.into_iter().any(is_peer);
    Some(Mount { device, root, point, kind, read_only, propagates })
}

/// Undoes the kernel's `\ooo` for space, tab, newline and backslash.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        let octal =
            after.get(..3).filter(|digits| digits.iter().all(|digit| (b'0'..b'8').contains(digit)));
        match (byte, octal) {
            (b'\\', Some(digits)) => {
                let value =
                    digits.iter().fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0'));
                bytes.push(value as u8);
                rest = &after[3..];
            }
            _ => bytes.push(*byte),
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TABLE: &[u8] = b"\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 0:5 / /proc rw - proc proc rw
30 21 8:1 /home/u /mnt/a\\040b rw - ext4 /dev/sda1 rw
31 21 8:2 / /home/u/.config rw - ext4 /dev/sda2 rw
32 21 8:2 /lnk /srv/x rw - ext4 /dev/sda2 rw
33 21 0:9 / /srv/jail/proc rw master:1 propagate_from:2 - proc proc rw
";

    #[test]
    fn a_folder_mounted_elsewhere_has_every_name() {
        let mounts = Mounts::parse(TABLE);
        let names = mounts.names_of(Path::new("/home/u/.config/lnk/sandbox"));
        assert_eq!(names, [Path::new("/home/u/.config/lnk/sandbox"), Path::new("/srv/x/sandbox")]);
        let names = mounts.names_of(Path::new("/home/u/Link"));
        assert_eq!(names, [Path::new("/home/u/Link"), Path::new("/mnt/a b/Link")]);
    }

    #[test]
    fn a_part_mounted_elsewhere_counts() {
        let mounts = Mounts::parse(TABLE);
        let names = mounts.names_of_all_of(Path::new("/home"));
        assert_eq!(names, [Path::new("/home"), Path::new("/mnt/a b")]);
        let names = mounts.names_of_all_of(Path::new("/home/u/.config"));
        assert_eq!(names, [Path::new("/home/u/.config"), Path::new("/srv/x")]);
        assert_eq!(mounts.names_of(Path::new("/home")), [Path::new("/home")]);
    }

    #[test]
    fn what_is_mounted_below_has_its_names_elsewhere() {
        const MORE: &[u8] = b"\
34 21 8:1 /usr/lib /srv/jail/lib ro,nosuid - ext4 /dev/sda1 rw
35 21 8:1 /home/u/.ssh /srv/covered rw - ext4 /dev/sda1 rw
36 35 0:40 / /srv/covered rw - tmpfs none rw
";
        let mounts = Mounts::parse(&[TABLE, MORE].concat());
        let below = |real: &str| -> Vec<(PathBuf, PathBuf, bool)> {
            let below = mounts.other_names_below(Path::new(real));
            below.map(|(mount, name)| (mount.point.clone(), name, mount.read_only)).collect()
        };
        let lib = ("/srv/jail/lib".into(), "/usr/lib".into(), true);
        let settings = ("/srv/x".into(), "/home/u/.config/lnk".into(), false);
        assert_eq!(below("/srv/jail"), std::slice::from_ref(&lib));
        assert_eq!(below("/srv"), [settings, lib]);
        assert_eq!(below("/srv/x"), []);
    }

    #[test]
    fn a_process_table_below_is_found() {
        let mounts = Mounts::parse(TABLE);
        assert_eq!(mounts.kernel_windows_below(Path::new("/srv")), [Path::new("/srv/jail/proc")]);
        assert!(mounts.is_kernel_window(Path::new("/proc/self")));
        assert!(!mounts.is_kernel_window(Path::new("/home")));
    }

    proptest! {
        #[test]
        fn any_table_is_read(table: Vec<u8>) {
            let _ = Mounts::parse(&table).names_of(Path::new("/a"));
        }
    }
}
