//! What arrives from the stage inside is a message or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lnk_sandbox::linux::message::{FromInner, FromJoiner, decode};

fuzz_target!(|bytes: &[u8]| {
    let _ = decode::<FromInner>(bytes);
    let _ = decode::<FromJoiner>(bytes);
});
