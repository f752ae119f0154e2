//! Any file starts somehow, and a loader that can be closed starts with nothing
//! that exists.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use lnk_sandbox::programs::loader::{MISSING, closed_copy, is_loader};
use lnk_sandbox::programs::start::{Start, of_bytes};

fuzz_target!(|file: &[u8]| {
    let start = of_bytes(file);
    if let Some(needed) = start.needs() {
        assert!(!needed.as_os_str().is_empty());
    }
    let path = Path::new("/lib/ld.so");
    if let Ok(copy) = closed_copy(file) {
        assert_eq!(start, Start::Elf { loader: None });
        assert!(is_loader(path, file));
        assert_eq!(
            of_bytes(&copy),
            Start::Elf {
                loader: Some(MISSING.into())
            }
        );
        assert!(!is_loader(path, &copy));
    }
});
