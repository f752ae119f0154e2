//! A log never panics the reader, its lines are lines, and what one says, written
//! again, is short and comes back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lnk_wire::log::{Line, MAX_LINE, records};

fuzz_target!(|file: &[u8]| {
    for record in records(file) {
        assert!(record.text.len() < MAX_LINE && !record.text.contains('\n'));
        let written = record.line.written();
        assert!(written.len() <= MAX_LINE);
        let (end, line) = written.split_last().expect("a line ends");
        assert!(*end == b'\n' && !line.iter().any(u8::is_ascii_control));
        let again = Line::parse(line).expect("what was written is read");
        assert_eq!(again.written(), written);
    }
});
