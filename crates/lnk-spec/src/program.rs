//! Programs that may run.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::invalid::Invalid;
use crate::path::SpecPath;

/// An entry of `[commands] allow`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Program {
    /// `*`: any program.
    Any,
    /// A name, found on PATH.
    Name(String),
    /// A path.
    Path(SpecPath),
    /// A folder, written with a slash at its end: every program in it.
    Folder(SpecPath),
}

impl Program {
    /// The entry with its path, if it has one, made absolute as by
    /// [`SpecPath::absolute`].
    #[must_use]
    pub fn made_absolute(&self, home: &Path, folder: &Path) -> Program {
        match self {
            Program::Any | Program::Name(_) => self.clone(),
            Program::Path(path) => Program::Path(path.made_absolute(home, folder)),
            Program::Folder(path) => Program::Folder(path.made_absolute(home, folder)),
        }
    }

    /// The entry as it is written.
    #[must_use]
    pub fn written(&self) -> PathBuf {
        match self {
            Program::Any => "*".into(),
            Program::Name(name) => name.into(),
            Program::Path(path) => path.as_path().into(),
            // Joining nothing leaves the slash that makes it a folder.
            Program::Folder(path) => path.as_path().join(""),
        }
    }
}

impl TryFrom<&OsStr> for Program {
    type Error = Invalid;

    fn try_from(typed: &OsStr) -> Result<Self, Invalid> {
        let bytes = typed.as_bytes();
        let invalid = || Invalid::Program(typed.to_string_lossy().into_owned());
        if bytes == b"*" {
            return Ok(Program::Any);
        }
        if bytes.ends_with(b"/") {
            return typed.try_into().map(Program::Folder);
        }
        if bytes.contains(&b'/') {
            return typed.try_into().map(Program::Path);
        }
        match typed.to_str() {
            Some("" | "." | ".." | "~") | None => Err(invalid()),
            Some(name) if name.contains('\0') => Err(invalid()),
            Some(name) => Ok(Program::Name(name.into())),
        }
    }
}

impl FromStr for Program {
    type Err = Invalid;

    fn from_str(typed: &str) -> Result<Self, Invalid> {
        OsStr::new(typed).try_into()
    }
}

impl serde::Serialize for Program {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        crate::path::stored::serialize(&self.written(), to)
    }
}

impl<'de> serde::Deserialize<'de> for Program {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let written = crate::path::stored::deserialize(from)?;
        Program::try_from(written.as_os_str()).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_name_a_path_a_folder_or_any() {
        let path = |typed: &str| typed.parse::<SpecPath>().unwrap();
        for (typed, program) in [
            ("*", Program::Any),
            ("node", Program::Name("node".into())),
            ("~tool", Program::Name("~tool".into())),
            ("./run.sh", Program::Path(path("./run.sh"))),
            ("~/bin/x", Program::Path(path("~/bin/x"))),
            ("/usr/bin/", Program::Folder(path("/usr/bin"))),
            ("/", Program::Folder(path("/"))),
        ] {
            let parsed: Program = typed.parse().unwrap();
            assert_eq!(parsed, program);
            assert_eq!(parsed.written().as_os_str(), typed);
        }
        for typed in ["", ".", "..", "~", "a\0", "/a\0"] {
            assert!(typed.parse::<Program>().is_err(), "{typed}");
        }
    }
}
