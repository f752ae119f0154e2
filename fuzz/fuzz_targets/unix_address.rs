//! Any bytes given to connect(2) are an address or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lnk_sandbox::linux::broker::address::{Unix, start, unix};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Unix::Path(path)) = unix(bytes) {
        assert!(!path.is_empty() && !path.contains(&0));
        let _ = start(path);
    }
});
