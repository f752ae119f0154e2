//! A scan of git's index (gitformat-index(5), versions 2 to 4) for the paths
//! of submodules.

use std::borrow::Cow;

/// The longest index that is read, in bytes: some half a million files.
pub const MAX_LEN: usize = 64 << 20;

/// The longest path in an index that is read, in bytes (`PATH_MAX`).
pub const MAX_PATH: usize = 4096;

/// The most submodules that are read from one index.
pub const MAX_GITLINKS: usize = 1024;

/// The mode of an entry that stands for a submodule.
const GITLINK: u32 = 0o160_000;

/// How long an object's name is in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// 20 bytes, git's default.
    Sha1,
    /// 32 bytes, `extensions.objectFormat = sha256`.
    Sha256,
}

impl Hash {
    fn len(self) -> usize {
        match self {
            Hash::Sha1 => 20,
            Hash::Sha256 => 32,
        }
    }
}

/// What a scan finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// The paths of the submodules, relative to the top of the work tree, in
    /// the order of the index. A hostile index may hold `..` and absolute ones.
    pub gitlinks: Vec<Vec<u8>>,
    /// In a split index, the hexadecimal name of the shared one, which holds
    /// the rest of the entries: `sharedindex.<name>` in the same git folder.
    pub shared: Option<String>,
}

/// Why an index can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// It is longer than [`MAX_LEN`].
    #[error("a git index longer than {MAX_LEN} bytes")]
    TooLong,
    /// It doesn't start with `DIRC`.
    #[error("not a git index")]
    NotAnIndex,
    /// Its version isn't 2, 3 or 4.
    #[error("a git index of version {0}, which isn't known")]
    Version(u32),
    /// It ends in the middle of an entry or an extension.
    #[error("a git index that is cut short")]
    Truncated,
    /// An entry's path can't be right.
    #[error("a git index with a bad path")]
    Path,
    /// It holds more than [`MAX_GITLINKS`] submodules.
    #[error("a git index with more than {MAX_GITLINKS} submodules")]
    TooManyGitlinks,
}

/// Finds the submodules in an index. Its checksum isn't looked at: what matters
/// is what git could read from it.
///
/// # Errors
/// Anything that isn't a whole index of a known version within the limits.
pub fn scan(file: &[u8], hash: Hash) -> Result<Scan, IndexError> {
    if file.len() > MAX_LEN {
        return Err(IndexError::TooLong);
    }
    let mut reader = Reader { rest: file };
    if reader.take(4).map_err(|_| IndexError::NotAnIndex)? != b"DIRC" {
        return Err(IndexError::NotAnIndex);
    }
    let version = reader.u32()?;
    if !(2..=4).contains(&version) {
        return Err(IndexError::Version(version));
    }
    let count = reader.u32()?;
    let mut gitlinks = Vec::new();
    let mut unnamed = false;
    let mut path = Cow::Borrowed(&b""[..]);
    for _ in 0..count {
        let mode = reader.entry(version, hash, &mut path)?;
        unnamed |= path.is_empty();
        if mode & 0o170_000 == GITLINK && !path.is_empty() {
            if gitlinks.len() == MAX_GITLINKS {
                return Err(IndexError::TooManyGitlinks);
            }
            gitlinks.push(path.to_vec());
        }
    }
    let shared = reader.shared(hash)?;
    // An entry without a path changes one of the shared index, where it has its
    // path, and makes no sense elsewhere.
    if unnamed && shared.is_none() {
        return Err(IndexError::Path);
    }
    Ok(Scan { gitlinks, shared })
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], IndexError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(IndexError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, IndexError> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Result<u16, IndexError> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self) -> Result<u32, IndexError> {
        let bytes = self.take(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Reads one entry, leaves its path in `path`, which holds the one before,
    /// and gives its mode.
    fn entry(
        &mut self,
        version: u32,
        hash: Hash,
        path: &mut Cow<'a, [u8]>,
    ) -> Result<u32, IndexError> {
        let start = self.rest.len();
        self.take(24)?; // two times, device, inode
        let mode = self.u32()?;
        self.take(12 + hash.len())?; // owner, group, size, object
        let flags = self.u16()?;
        if flags & 0x4000 != 0 {
            if version < 3 {
                return Err(IndexError::Path);
            }
            self.u16()?;
        }
        if version == 4 {
            self.compressed_path(path)?;
        } else {
            *path = Cow::Borrowed(self.plain_path(flags)?);
            let len = start - self.rest.len();
            // One to eight NULs end the path and fill the entry up.
            self.take(8 - len % 8)?;
        }
        if path.len() > MAX_PATH || path.contains(&0) {
            return Err(IndexError::Path);
        }
        Ok(mode)
    }

    fn plain_path(&mut self, flags: u16) -> Result<&'a [u8], IndexError> {
        let mut len = usize::from(flags & 0xfff);
        if len == 0xfff {
            len = self.until_nul()?;
        }
        self.take(len)
    }

    /// Version 4: how many bytes to drop from the end of the path before, and
    /// what to add, up to a NUL.
    fn compressed_path(&mut self, path: &mut Cow<'a, [u8]>) -> Result<(), IndexError> {
        let drop = self.varint()?;
        let kept = path.len().checked_sub(drop).ok_or(IndexError::Path)?;
        let len = self.until_nul()?;
        let added = self.take(len)?;
        self.take(1)?;
        let path = path.to_mut();
        path.truncate(kept);
        path.extend(added);
        Ok(())
    }

    /// How many bytes come before the next NUL; none for far too many.
    fn until_nul(&self) -> Result<usize, IndexError> {
        let window = &self.rest[..self.rest.len().min(MAX_PATH + 1)];
        match window.iter().position(|&b| b == 0) {
            Some(len) => Ok(len),
            None if window.len() > MAX_PATH => Err(IndexError::Path),
            None => Err(IndexError::Truncated),
        }
    }

    /// Git's offset encoding (gitformat-pack(5)): each further byte adds one,
    /// so that a number has one spelling.
    fn varint(&mut self) -> Result<usize, IndexError> {
        let mut byte = self.byte()?;
        let mut value = usize::from(byte & 0x7f);
        while byte & 0x80 != 0 {
            byte = self.byte()?;
            value =
                value.checked_add(1).filter(|v| *v <= usize::MAX >> 7).ok_or(IndexError::Path)?;
            value = (value << 7) | usize::from(byte & 0x7f);
        }
        Ok(value)
    }

    /// Walks the extensions, up to the checksum, for a split index's `link`.
    fn shared(&mut self, hash: Hash) -> Result<Option<String>, IndexError> {
        let mut shared = None;
        while self.rest.len() > hash.len() {
            let signature = self.take(4)?;
            let len = self.u32()?;
            let data = self.take(usize::try_from(len).map_err(|_| IndexError::Truncated)?)?;
            if signature == b"link" {
                let name = data.get(..hash.len()).ok_or(IndexError::Truncated)?;
                // All zeros: split, but with nothing in a shared index yet.
                shared = name
                    .iter()
                    .any(|&b| b != 0)
                    .then(|| name.iter().map(|b| format!("{b:02x}")).collect());
            }
        }
        if self.rest.len() < hash.len() {
            return Err(IndexError::Truncated);
        }
        Ok(shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;
    use std::process::Command;

    fn git(folder: &Path, args: &[&str]) -> Vec<u8> {
        let out = Command::new("git")
            .current_dir(folder)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .args(args)
            .output()
            .unwrap();
        assert!(out.status.success(), "git {args:?}: {}", out.stderr.escape_ascii());
        out.stdout
    }

    fn listed_by_git(folder: &Path) -> Vec<Vec<u8>> {
        git(folder, &["ls-files", "-s", "-z"])
            .split(|&b| b == 0)
            .filter(|line| line.starts_with(b"160000 "))
            .map(|line| line[line.iter().position(|&b| b == b'\t').unwrap() + 1..].to_vec())
            .collect()
    }

    /// A repository with files and submodules, some with long and odd names.
    fn repository(format: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        git(folder.path(), &["init", "-q", &format!("--object-format={format}")]);
        let hex = "1".repeat(if format == "sha1" { 40 } else { 64 });
        let long = "d/".repeat(100) + "sub";
        for path in ["a", "lib/one", "lib/one-more", "lib/two\nlines", "z", &long] {
            let info = format!("160000,{hex},{path}");
            git(folder.path(), &["update-index", "--add", "--cacheinfo", &info]);
        }
        for path in ["b", "lib/aaa", "lib/x/y", "zz"] {
            let full = folder.path().join(path);
            std::fs::create_dir_all(full.parent().unwrap()).unwrap();
            std::fs::write(full, path).unwrap();
            git(folder.path(), &["add", path]);
        }
        folder
    }

    #[test]
    fn finds_what_git_lists_in_every_version_and_hash() {
        for (format, hash) in [("sha1", Hash::Sha1), ("sha256", Hash::Sha256)] {
            let folder = repository(format);
            let expected = listed_by_git(folder.path());
            assert_eq!(expected.len(), 6);
            for version in ["2", "3", "4"] {
                git(folder.path(), &["update-index", "--index-version", version]);
                if version == "3" {
                    // Version 3 is written only where an entry needs it.
                    git(folder.path(), &["update-index", "--skip-worktree", "b"]);
                }
                let file = std::fs::read(folder.path().join(".git/index")).unwrap();
                assert_eq!(file[7], version.as_bytes()[0] - b'0');
                let found = scan(&file, hash).unwrap();
                assert_eq!(found, Scan { gitlinks: expected.clone(), shared: None });
            }
        }
    }

    #[test]
    fn a_split_index_names_the_shared_one() {
        let folder = repository("sha1");
        let expected = listed_by_git(folder.path());
        git(folder.path(), &["update-index", "--split-index"]);
        let info = format!("160000,{},new", "2".repeat(40));
        git(folder.path(), &["update-index", "--add", "--cacheinfo", &info]);
        let info = format!("160000,{},a", "3".repeat(40));
        git(folder.path(), &["update-index", "--add", "--cacheinfo", &info]);
        let dir = folder.path().join(".git");
        let top = scan(&std::fs::read(dir.join("index")).unwrap(), Hash::Sha1).unwrap();
        let shared = dir.join(format!("sharedindex.{}", top.shared.unwrap()));
        let below = scan(&std::fs::read(shared).unwrap(), Hash::Sha1).unwrap();
        assert!(top.gitlinks.contains(&b"new".to_vec()));
        assert_eq!(below.gitlinks, expected);
    }

    #[test]
    fn refuses_garbage() {
        assert_eq!(scan(b"", Hash::Sha1), Err(IndexError::NotAnIndex));
        assert_eq!(scan(b"DIRX\0\0\0\x02\0\0\0\0", Hash::Sha1), Err(IndexError::NotAnIndex));
        assert_eq!(scan(b"DIRC\0\0\0\x05\0\0\0\0", Hash::Sha1), Err(IndexError::Version(5)));
        assert_eq!(scan(b"DIRC\0\0\0\x02\0\0\0\x01", Hash::Sha1), Err(IndexError::Truncated));
        assert_eq!(scan(b"DIRC\0\0\0\x02\0\0\0\0", Hash::Sha1), Err(IndexError::Truncated));
        assert_eq!(scan(&vec![0; MAX_LEN + 1], Hash::Sha1), Err(IndexError::TooLong));
    }

    #[test]
    fn every_cut_of_a_real_index_is_refused() {
        let folder = repository("sha1");
        let file = std::fs::read(folder.path().join(".git/index")).unwrap();
        let entries = scan(&file, Hash::Sha1).unwrap().gitlinks;
        assert_eq!(entries.len(), 6);
        for len in 0..file.len() - 20 {
            assert!(scan(&file[..len], Hash::Sha1).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn more_submodules_than_the_limit_are_refused() {
        let paths: Vec<_> = (0..=MAX_GITLINKS).map(|i| (true, format!("{i:06}").into())).collect();
        assert!(scan(&write(4, &paths[1..]), Hash::Sha1).is_ok());
        assert_eq!(scan(&write(4, &paths), Hash::Sha1), Err(IndexError::TooManyGitlinks));
    }

    fn varint(mut value: usize) -> Vec<u8> {
        let mut bytes = vec![(value & 0x7f) as u8];
        while value >> 7 != 0 {
            value = (value >> 7) - 1;
            bytes.insert(0, 0x80 | (value & 0x7f) as u8);
        }
        bytes
    }

    fn write(version: u8, entries: &[(bool, Vec<u8>)]) -> Vec<u8> {
        let mut file = b"DIRC\0\0\0".to_vec();
        file.push(version);
        file.extend((entries.len() as u32).to_be_bytes());
        let mut before: &[u8] = b"";
        for (gitlink, path) in entries {
            let start = file.len();
            file.extend([7; 24]);
            file.extend(if *gitlink { 0o160_000u32 } else { 0o100_644 }.to_be_bytes());
            file.extend([7; 32]);
            let extended = version == 3 && path.len() % 2 == 0;
            let flags = path.len().min(0xfff) as u16 | if extended { 0x4000 } else { 0 };
            file.extend(flags.to_be_bytes());
            if extended {
                file.extend([0, 0]);
            }
            if version == 4 {
                let common = before.iter().zip(path).take_while(|(a, b)| a == b).count();
                file.extend(varint(before.len() - common));
                file.extend(&path[common..]);
                file.push(0);
                before = path;
            } else {
                file.extend(path);
                let len = file.len() - start;
                file.extend(vec![0; 8 - len % 8]);
            }
        }
        file.extend(b"TREE\0\0\0\x03abc");
        file.extend([9; 20]);
        file
    }

    proptest! {
        #[test]
        fn every_submodule_comes_back(
            version in 2u8..=4,
            entries in proptest::collection::vec(
                (any::<bool>(), prop_oneof![
                    proptest::collection::vec(1u8.., 1..40),
                    proptest::collection::vec(1u8..3, 4090..=MAX_PATH),
                ]),
                0..20,
            ),
        ) {
            let expected: Vec<_> =
                entries.iter().filter(|e| e.0).map(|e| e.1.clone()).collect();
            let found = scan(&write(version, &entries), Hash::Sha1).unwrap();
            prop_assert_eq!(found.gitlinks, expected);
        }

        #[test]
        fn never_panics(
            version in 0u8..6,
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
        ) {
            let mut file = b"DIRC\0\0\0".to_vec();
            file.push(version);
            file.extend([0, 0, 0, 3]);
            file.extend(&bytes);
            let _ = scan(&file, Hash::Sha1);
            let _ = scan(&file, Hash::Sha256);
            let _ = scan(&bytes, Hash::Sha1);
        }
    }
}
