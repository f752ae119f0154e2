//! A spec never panics the reader; what is wrong with it is shown without
//! anything that drives a terminal; what it says, printed, comes back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lnk_spec::{Os, Spec};

fuzz_target!(|file: &[u8]| {
    for os in [Os::Linux, Os::Macos] {
        match Spec::parse(file, os) {
            Ok(spec) => {
                let printed = spec.printed().expect("what was read from text is text");
                assert_eq!(Spec::parse(printed.as_bytes(), os).as_ref(), Ok(&spec));
                let mut merged = spec.clone();
                merged.merge(spec.clone());
                assert_eq!(merged, spec);
            }
            Err(errors) => {
                assert!(!errors.errors.is_empty());
                let shown = errors.shown("spec.toml");
                assert!(!shown.chars().any(|c| c.is_control() && c != '\n'));
            }
        }
    }
});
