//! No message of the domain name system panics its reader; what is answered by UDP fits,
//! and what was read of an answer is what is passed on.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lnk_wire::dns::message::{Answer, Asked, MAX_MESSAGE, Question, Rcode, SRV, host_name};

fuzz_target!(|bytes: &[u8]| {
    match Asked::read(bytes) {
        Asked::Question(question) => {
            assert!(question.labels().count() < 128);
            if let Some(name) = host_name(question.labels()) {
                assert!(name.as_str().len() <= 253);
            }
            let most = question.takes_by_udp();
            assert!(question.answer(Rcode::NxDomain, &[], most).len() <= most);
            assert_eq!(
                question.read_answer(&question.answer(Rcode::NxDomain, &[], most)),
                Some(Answer::NoSuchName)
            );
        }
        Asked::Wrong(answer) => assert!(answer.len() <= 512),
        Asked::Nothing => {}
    }
    // As if it answered what it says it asks.
    let number = |at: usize| bytes.get(at..at + 2).map(|it| u16::from_be_bytes([it[0], it[1]]));
    let Some(id) = number(0) else { return };
    for kind in [SRV, 16] {
        let question = Question::new(id, b"\x01a\x07example\0", kind);
        if let Some(Answer::Records(records)) = question.read_answer(bytes) {
            for record in &records {
                let _ = record.service();
            }
            let answer = question.answer(Rcode::NoError, &records, MAX_MESSAGE);
            let again = question.read_answer(&answer);
            assert!(again == Some(Answer::Records(records)) || again == Some(Answer::Truncated));
        }
    }
});
