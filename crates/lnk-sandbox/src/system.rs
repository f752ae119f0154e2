//! What every sandbox reads of the system, and the files made for it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode};

use crate::account::Accounts;
use crate::names::Names;
use crate::paths::{Identity, real_or_written};

/// Folders of programs and libraries, read whole where they exist.
const PROGRAMS: [&str; 5] = ["/usr", "/opt", "/nix/store", "/snap", "/home/linuxbrew/.linuxbrew"];
/// Names at the root that lead into `/usr`, or are folders of their own on
/// systems without a merged `/usr`.
const ROOT_NAMES: [&str; 7] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec"];
/// What programs look up in `/etc`, by measure: nothing here tells of accounts,
/// keys or networks. Files that only their owner reads are left out besides.
const ETC: [&str; 39] = [
    "protocols",
    "services",
    "ld.so.cache",
    "ld-musl-x86_64.path",
    "localtime",
    "timezone",
    "ssl/certs",
    "ssl/openssl.cnf",
    "ssl/cert.pem",
    "crypto-policies",
    "ca-certificates",
    "pki/tls/certs",
    "pki/tls/cert.pem",
    "pki/tls/openssl.cnf",
    "pki/ca-trust/extracted",
    "alternatives",
    "mime.types",
    "locale.alias",
    "locale.conf",
    "default/locale",
    "terminfo",
    "inputrc",
    "bash.bashrc",
    "profile",
    "profile.d",
    "gitconfig",
    "os-release",
    "redhat-release",
    "magic",
    "python3",
    "perl",
    "java",
    "fonts",
    "xdg",
    "vim",
    "less",
    "ImageMagick-6",
    "chromium",
    "chromium.d",
];
/// More of `/etc`, by how a name begins: one folder a version.
const ETC_BY_PREFIX: [&str; 4] = ["python3.", "java-", "lsb-", "ImageMagick-"];

/// How one of the system's names appears inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A symbolic link that says `to`.
    Link {
        /// Where it is.
        at: PathBuf,
        /// What it says.
        to: PathBuf,
    },
    /// A file or folder bound read-only.
    Bound {
        /// Its real path outside.
        source: PathBuf,
        /// Where it appears.
        at: PathBuf,
        /// What it is, to be found again when it is mounted.
        identity: Identity,
        /// Whether it is a folder.
        folder: bool,
    },
}

/// Programs and libraries: `/usr`, what leads into it, and where other package
/// managers keep theirs.
#[must_use]
pub fn programs() -> Vec<Entry> {
    let mut entries: Vec<Entry> =
        PROGRAMS.iter().filter_map(|folder| bound(Path::new(folder))).collect();
    for name in ROOT_NAMES {
        let at = Path::new("/").join(name);
        match std::fs::read_link(&at) {
            Ok(to) => entries.push(Entry::Link { at, to }),
            Err(_) => entries.extend(bound(&at)),
        }
    }
    entries
}

/// Whether a real path is among the programs and libraries that every sandbox
/// reads.
#[must_use]
pub fn holds(real: &Path) -> bool {
    let names = ROOT_NAMES.iter().map(|name| Path::new("/").join(name));
    PROGRAMS.iter().any(|folder| real.starts_with(folder))
        || names.into_iter().any(|folder| real.starts_with(folder))
}

/// The parts of `/etc` that programs need and everyone may read.
#[must_use]
pub fn etc() -> Vec<Entry> {
    let etc = Path::new("/etc");
    let mut entries: Vec<Entry> =
        ETC.iter().filter_map(|name| readable_by_all(&etc.join(name))).collect();
    let names =
        std::fs::read_dir(etc).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let more = names.filter(|name| {
        ETC_BY_PREFIX.iter().any(|prefix| name.as_bytes().starts_with(prefix.as_bytes()))
    });
    entries.extend(more.filter_map(|name| readable_by_all(&etc.join(name))));
    entries
}

fn bound(at: &Path) -> Option<Entry> {
    let source = real_or_written(at);
    let stat = rustix::fs::stat(&source).ok()?;
    let folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    Some(Entry::Bound { source, at: at.to_path_buf(), identity: Identity::from(&stat), folder })
}

fn readable_by_all(at: &Path) -> Option<Entry> {
    let stat = rustix::fs::lstat(at).ok()?;
    let (source, stat) = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => {
            let source = real_or_written(at);
            let stat = rustix::fs::lstat(&source).ok()?;
            (source, stat)
        }
        _ => (at.to_path_buf(), stat),
    };
    let mode = Mode::from_raw_mode(stat.st_mode);
    let folder = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => true,
        FileType::RegularFile => false,
        _ => return None,
    };
    let open = mode.contains(Mode::ROTH) && (!folder || mode.contains(Mode::XOTH));
    open.then(|| Entry::Bound {
        source,
        at: at.to_path_buf(),
        identity: Identity::from(&stat),
        folder,
    })
}

/// The files of `/etc` that are made for the sandbox: who lives there, and how names
/// are looked up.
#[must_use]
pub fn generated_etc(
    accounts: &Accounts,
    home: &Path,
    names: Names,
) -> Vec<(&'static str, Vec<u8>)> {
    let own = &accounts.own;
    let home = home.as_os_str().as_bytes();
    let mut passwd = Vec::new();
    let mut group = Vec::new();
    passwd_line(&mut passwd, own.name.as_bytes(), own.uid, own.gid, home, b"/bin/bash");
    group_line(&mut group, accounts.group.as_bytes(), own.gid);
    if own.uid != 0 {
        passwd_line(&mut passwd, b"root", 0, 0, b"/root", b"/usr/sbin/nologin");
    }
    if own.gid != 0 {
        group_line(&mut group, b"root", 0);
    }
    passwd_line(&mut passwd, b"nobody", 65534, 65534, b"/nonexistent", b"/usr/sbin/nologin");
    group_line(&mut group, b"nogroup", 65534);
    vec![
        ("passwd", passwd),
        ("group", group),
        ("hosts", names.hosts),
        ("hostname", b"lnk\n".to_vec()),
        ("resolv.conf", names.resolv_conf),
        ("nsswitch.conf", format!("passwd: files\ngroup: files\nshadow: files\nhosts: {}\nnetworks: files\nprotocols: files\nservices: files\n", names.by).into_bytes()),
        ("machine-id", Vec::new()),
    ]
}

/// A field that could end its line or itself early is left out: names come from
/// directories that others fill.
fn plain(field: &[u8]) -> Vec<u8> {
    field.iter().copied().filter(|byte| !matches!(byte, b':' | b'\n' | 0)).collect()
}

fn passwd_line(table: &mut Vec<u8>, name: &[u8], uid: u32, gid: u32, home: &[u8], shell: &[u8]) {
    table.extend(plain(name));
    table.extend(format!(":x:{uid}:{gid}::").bytes());
    table.extend(plain(home));
    table.push(b':');
    table.extend(shell);
    table.push(b'\n');
}

fn group_line(table: &mut Vec<u8>, name: &[u8], gid: u32) {
    table.extend(plain(name));
    table.extend(format!(":x:{gid}:\n").bytes());
}

/// Kernel files that show or change things of the whole machine, each with
/// whether it is a folder. Closed for everyone: the keyrings, whose list names
/// the caller's keys in every namespace. For root also what it could open by
/// owning it.
#[must_use]
pub fn kernel_files(root: bool) -> Vec<(PathBuf, bool)> {
    const KEYS: [&str; 2] = ["keys", "key-users"];
    const FILES: [&str; 11] = [
        "kpagecount",
        "kpageflags",
        "kpagecgroup",
        "timer_list",
        "sched_debug",
        "latency_stats",
        "vmallocinfo",
        "slabinfo",
        "mtrr",
        "kcore",
        "sysrq-trigger",
    ];
    const FOLDERS: [&str; 3] = ["acpi", "scsi", "dynamic_debug"];
    let (files, folders): (&[_], &[_]) = if root { (&FILES, &FOLDERS) } else { (&[], &[]) };
    let below = |names: &'static [&'static str], folder: bool| {
        names.iter().map(move |name| (Path::new("/proc").join(OsStr::new(name)), folder))
    };
    below(&KEYS, false)
        .chain(below(files, false))
        .chain(below(folders, true))
        .filter(|(path, _)| rustix::fs::lstat(path).is_ok())
        .collect()
}
