//! Nothing that is shown can drive a terminal.
#![no_main]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use libfuzzer_sys::fuzz_target;
use lnk_spec::shown::{escaped, word};

fuzz_target!(|bytes: &[u8]| {
    assert!(!escaped(bytes).chars().any(char::is_control));
    assert!(!word(OsStr::from_bytes(bytes)).chars().any(char::is_control));
});
