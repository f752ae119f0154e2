//! A `.git` file never panics the reader, and its path is part of the file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lnk_spec::git::gitfile;

fuzz_target!(|file: &[u8]| {
    if let Ok(path) = gitfile::parse(file) {
        assert!(!path.is_empty() && file["gitdir: ".len()..].starts_with(path));
    }
});
