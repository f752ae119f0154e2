//! The `.git` file of a linked work tree or a submodule
//! (gitrepository-layout(5)): one line, `gitdir: <path>`.

/// The longest file that is read, in bytes: a path of `PATH_MAX` and some.
pub const MAX_LEN: usize = 8192;

/// Why a `.git` file can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GitFileError {
    /// It is longer than [`MAX_LEN`].
    #[error("a .git file longer than {MAX_LEN} bytes")]
    TooLong,
    /// It doesn't start with `gitdir: `.
    #[error("a .git file without 'gitdir: '")]
    NoPrefix,
    /// There is no path after `gitdir: `.
    #[error("a .git file that names no folder")]
    Empty,
    /// The path holds a NUL byte, where git would cut it short.
    #[error("a .git file with a NUL byte")]
    Nul,
}

/// The path that a `.git` file names, as it stands there: absolute, or relative
/// to the folder that holds the file.
///
/// As git reads it: line ends at the end of the file are dropped, all else is
/// the path, spaces and inner line ends too.
///
/// # Errors
/// A file that git would refuse as well, and one with a NUL byte.
pub fn parse(file: &[u8]) -> Result<&[u8], GitFileError> {
    if file.len() > MAX_LEN {
        return Err(GitFileError::TooLong);
    }
    if file.contains(&0) {
        return Err(GitFileError::Nul);
    }
    let path = file.strip_prefix(b"gitdir: ").ok_or(GitFileError::NoPrefix)?;
    match trim_line_ends(path) {
        [] => Err(GitFileError::Empty),
        path => Ok(path),
    }
}

/// `bytes` without the line feeds and carriage returns at its end. The
/// `commondir` and `gitdir` files of a git folder end so too.
#[must_use]
pub fn trim_line_ends(mut bytes: &[u8]) -> &[u8] {
    while let [rest @ .., b'\n' | b'\r'] = bytes {
        bytes = rest;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn takes_what_git_takes() {
        assert_eq!(parse(b"gitdir: ../x/.git\n"), Ok(&b"../x/.git"[..]));
        assert_eq!(parse(b"gitdir: /a b\xff\r\n\n"), Ok(&b"/a b\xff"[..]));
        assert_eq!(parse(b"gitdir: a\nb"), Ok(&b"a\nb"[..]));
    }

    #[test]
    fn refuses_what_git_refuses() {
        assert_eq!(parse(b""), Err(GitFileError::NoPrefix));
        assert_eq!(parse(b"gitdir:x"), Err(GitFileError::NoPrefix));
        assert_eq!(parse(b" gitdir: x"), Err(GitFileError::NoPrefix));
        assert_eq!(parse(b"gitdir: \n"), Err(GitFileError::Empty));
        assert_eq!(parse(b"gitdir: a\0b"), Err(GitFileError::Nul));
        assert_eq!(parse(&[b'x'; MAX_LEN + 1]), Err(GitFileError::TooLong));
    }

    proptest! {
        #[test]
        fn any_path_comes_back(path in "[^\0\r\n]{1,200}") {
            let file = format!("gitdir: {path}\n");
            prop_assert_eq!(parse(file.as_bytes()), Ok(path.as_bytes()));
        }

        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
        }
    }
}
