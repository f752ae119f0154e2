//! Programs that open more than their name says.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Programs that run code they are given, by how their name begins. A version may
/// follow: `python3.11`, `lua5.4`, `perl5.36-x86_64-linux-gnu`.
const INTERPRETERS: [&str; 44] = [
    "sh",
    "ash",
    "bash",
    "rbash",
    "dash",
    "zsh",
    "ksh",
    "mksh",
    "fish",
    "csh",
    "tcsh",
    "pwsh",
    "python",
    "pypy",
    "ipython",
    "node",
    "nodejs",
    "deno",
    "bun",
    "perl",
    "ruby",
    "irb",
    "php",
    "lua",
    "luajit",
    "tclsh",
    "wish",
    "expect",
    "awk",
    "gawk",
    "mawk",
    "nawk",
    "java",
    "jshell",
    "Rscript",
    "guile",
    "racket",
    "sbcl",
    "erl",
    "elixir",
    "julia",
    "osascript",
    "busybox",
    "toybox",
];

/// Files with many names, of which each is another program: whoever may run one
/// of them may run them all.
const MANY_NAMES: [&str; 7] =
    ["busybox", "toybox", "coreutils", "uutils", "sbase-box", "ubase-box", "rustup"];

/// Whether a program runs whatever code it is given.
#[must_use]
pub fn is_interpreter(program: &Path) -> bool {
    is_one_of(&INTERPRETERS, program)
}

/// Whether the file is many programs in one, by its real name.
#[must_use]
pub fn has_many_names(real: &Path) -> bool {
    is_one_of(&MANY_NAMES, real)
}

fn is_one_of(names: &[&str], program: &Path) -> bool {
    let name = program.file_name().map(OsStr::as_bytes).unwrap_or_default();
    names.iter().any(|known| name.strip_prefix(known.as_bytes()).is_some_and(is_version))
}

/// Nothing, or what tells one version of a program from another.
fn is_version(rest: &[u8]) -> bool {
    rest.first().is_none_or(|first| first.is_ascii_digit() || b".-".contains(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_the_same_program_and_other_names_arent() {
        for name in ["sh", "/usr/bin/python3.11", "perl5.36-x86_64-linux-gnu", "lua5.4", "dash"] {
            assert!(is_interpreter(Path::new(name)), "{name}");
        }
        for name in ["", "/", "ssh", "show", "nodemon", "git", "phpize", "bashful"] {
            assert!(!is_interpreter(Path::new(name)), "{name}");
        }
        assert!(has_many_names(Path::new("/opt/busybox")));
        assert!(has_many_names(Path::new("/bin/busybox.static")));
        assert!(!has_many_names(Path::new("/usr/bin/git")));
    }
}
