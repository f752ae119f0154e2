//! Any mount table is read, and every path keeps its own name.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use lnk_sandbox::mountinfo::Mounts;

fuzz_target!(|table: &[u8]| {
    let path = Path::new("/home/u/.config/lnk");
    assert_eq!(Mounts::parse(table).names_of(path)[0], path);
});
