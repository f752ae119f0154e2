//! Paths as a spec or a flag names them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::invalid::Invalid;

/// A path as it is written: absolute, `~`, `~/…`, or relative to the spec file's
/// folder (a flag's: to the working folder).
///
/// Every character stands for itself: nothing is a pattern or a variable, and
/// `~name` is a file of that name. Never empty, never with a NUL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpecPath(PathBuf);

impl SpecPath {
    /// As it is written.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// The absolute path, by text alone: links aren't followed and `..` stays.
    /// `folder` and `home` are absolute.
    #[must_use]
    pub fn absolute(&self, home: &Path, folder: &Path) -> PathBuf {
        let joined = match self.0.strip_prefix("~") {
            Ok(below) => home.join(below),
            Err(_) => folder.join(&self.0),
        };
        // Leaves out each `.` in the middle and the slash at the end.
        joined.components().collect()
    }

    /// The same as a path of a spec.
    #[must_use]
    pub fn made_absolute(&self, home: &Path, folder: &Path) -> SpecPath {
        SpecPath(self.absolute(home, folder))
    }
}

impl TryFrom<&OsStr> for SpecPath {
    type Error = Invalid;

    fn try_from(typed: &OsStr) -> Result<Self, Invalid> {
        if typed.is_empty() {
            return Err(Invalid::EmptyPath);
        }
        if typed.as_bytes().contains(&0) {
            return Err(Invalid::NulInPath(typed.to_string_lossy().into_owned()));
        }
        Ok(SpecPath(typed.into()))
    }
}

impl FromStr for SpecPath {
    type Err = Invalid;

    fn from_str(typed: &str) -> Result<Self, Invalid> {
        OsStr::new(typed).try_into()
    }
}

/// Stores a path as its text, or as its bytes where it is no text, for serde's
/// `with`.
pub mod stored {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Stored {
        Text(String),
        Bytes(Vec<u8>),
    }

    /// Writes a path.
    ///
    /// # Errors
    /// Those of the format.
    pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        match path.to_str() {
            Some(text) => Stored::Text(text.to_owned()),
            None => Stored::Bytes(path.as_os_str().as_bytes().to_vec()),
        }
        .serialize(to)
    }

    /// Reads a path.
    ///
    /// # Errors
    /// Those of the format, and where it holds neither text nor bytes.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Ok(match Stored::deserialize(from)? {
            Stored::Text(text) => text.into(),
            Stored::Bytes(bytes) => OsString::from_vec(bytes).into(),
        })
    }
}

impl serde::Serialize for SpecPath {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        stored::serialize(&self.0, to)
    }
}

impl<'de> serde::Deserialize<'de> for SpecPath {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let path = stored::deserialize(from)?;
        SpecPath::try_from(path.as_os_str()).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_literal_but_for_a_leading_tilde() {
        for (typed, absolute) in [
            ("~", "/home/u"),
            ("~/code", "/home/u/code"),
            ("~Top", "/specs/~Top"),
            ("./~", "/specs/~"),
            (".", "/specs"),
            ("a/./b/", "/specs/a/b"),
            ("../x", "/specs/../x"),
            ("/etc", "/etc"),
            ("app[slug]", "/specs/app[slug]"),
            ("proj*1", "/specs/proj*1"),
            ("adv..lock", "/specs/adv..lock"),
            ("-dash", "/specs/-dash"),
            ("a:b,c", "/specs/a:b,c"),
            ("$HOME/{x}", "/specs/$HOME/{x}"),
        ] {
            let path: SpecPath = typed.parse().unwrap();
            assert_eq!(
                path.absolute(Path::new("/home/u"), Path::new("/specs")),
                Path::new(absolute)
            );
        }
    }

    #[test]
    fn nothing_and_nul_are_no_paths() {
        assert_eq!("".parse::<SpecPath>(), Err(Invalid::EmptyPath));
        assert!(matches!("a\0b".parse::<SpecPath>(), Err(Invalid::NulInPath(_))));
    }
}
