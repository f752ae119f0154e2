//! A configuration never panics the reader, and what it reads, quoted, comes back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lnk_spec::git::config::{Config, quote};

fuzz_target!(|file: &[u8]| {
    let Ok(config) = Config::parse(file) else {
        return;
    };
    for value in config
        .entries()
        .iter()
        .filter_map(|entry| entry.value.as_deref())
    {
        let mut again = b"[user]name=".to_vec();
        again.extend(quote(value));
        let again = Config::parse(&again).expect("a quoted value is a valid line");
        assert_eq!(again.user_name(), Some(value));
    }
});
