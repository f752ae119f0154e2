//! A hello never panics its reader, and more bytes never undo a verdict.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lnk_wire::hello::{MAX_HELLO, Verdict, read};

fuzz_target!(|bytes: &[u8]| {
    let verdict = read(bytes);
    if let Verdict::Hello { server_name: Some(name) } = &verdict {
        assert!(!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic()));
    }
    assert!(verdict != Verdict::NeedMore || bytes.len() < MAX_HELLO);
    for end in [bytes.len() / 2, bytes.len().saturating_sub(1)] {
        let early = read(&bytes[..end]);
        assert!(early == Verdict::NeedMore || early == verdict);
    }
});
