//! An index never panics the scanner, and what it finds is within its limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lnk_spec::git::index::{Hash, MAX_GITLINKS, MAX_PATH, scan};

fuzz_target!(|file: &[u8]| {
    for hash in [Hash::Sha1, Hash::Sha256] {
        if let Ok(found) = scan(file, hash) {
            assert!(found.gitlinks.len() <= MAX_GITLINKS);
            assert!(
                found
                    .gitlinks
                    .iter()
                    .all(|p| !p.is_empty() && p.len() <= MAX_PATH)
            );
        }
    }
});
