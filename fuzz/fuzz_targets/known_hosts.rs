//! What a sandbox left where its ssh writes host keys is never taken for more than it is:
//! what is read of it is written so that it reads the same, a key a line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lnk_sandbox::ssh::known_hosts::{parse, parse_foreign, text};

fuzz_target!(|bytes: &[u8]| {
    let keys = parse_foreign(bytes);
    let written = text(&keys);
    assert_eq!(written.lines().count(), keys.len());
    assert_eq!(parse(written.as_bytes()), Some(keys));
});
