//! What is kept of a stream: its start and its end, at character boundaries.

use std::collections::VecDeque;
use std::io;

use tokio::net::unix::pipe;

/// Bytes read at once. A pipe holds 64 KB unless it is made larger, pipe(7).
const AT_ONCE: usize = 64 << 10;

/// The most that a pipe can hold, in bytes: /proc/sys/fs/pipe-max-size as it comes.
const MOST_IN_PIPE: usize = 1 << 20;

/// A stream, of which no more than so many bytes are kept.
#[derive(Clone, Debug)]
pub struct Kept {
    start: Vec<u8>,
    end: VecDeque<u8>,
    total: u64,
    most_at_start: usize,
    most_at_end: usize,
}

impl Kept {
    /// Nothing yet of a stream of which `most` bytes are kept, half of them its start.
    #[must_use]
    pub fn new(most: usize) -> Kept {
        let most_at_start = most / 2;
        Kept {
            start: Vec::new(),
            end: VecDeque::new(),
            total: 0,
            most_at_start,
            most_at_end: most - most_at_start,
        }
    }

    /// Adds what comes next.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = self.most_at_start - self.start.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.start.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(self.most_at_end)..];
        let over = (self.end.len() + rest.len()).saturating_sub(self.most_at_end);
        self.end.drain(..over);
        self.end.extend(rest);
    }

    /// Reads until the stream's end.
    pub async fn read(&mut self, pipe: &pipe::Receiver) {
        let mut buffer = vec![0; AT_ONCE];
        loop {
            if pipe.readable().await.is_err() {
                return;
            }
            match pipe.try_read(&mut buffer) {
                Ok(0) => return,
                Ok(length) => self.push(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }

    /// Reads what is there, and waits for nothing.
    pub fn drain(&mut self, pipe: &pipe::Receiver) {
        let mut buffer = vec![0; AT_ONCE];
        for _ in 0..MOST_IN_PIPE / AT_ONCE + 1 {
            match pipe.try_read(&mut buffer) {
                Ok(length @ 1..) => self.push(&buffer[..length]),
                Ok(0) | Err(_) => return,
            }
        }
    }

    /// Whether nothing came.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// What is kept, as text: bytes that aren't UTF-8 replaced, and the gap marked with
    /// its size.
    #[must_use]
    pub fn text(&self) -> String {
        let end: Vec<u8> = self.end.iter().copied().collect();
        if self.total == (self.start.len() + end.len()) as u64 {
            return String::from_utf8_lossy(&[self.start.as_slice(), &end].concat()).into_owned();
        }
        let start = without_cut_end(&self.start);
        let end = without_cut_start(&end);
        let gap = self.total - (start.len() + end.len()) as u64;
        format!(
            "{}\n… {} bytes left out …\n{}",
            String::from_utf8_lossy(start),
            with_commas(gap),
            String::from_utf8_lossy(end)
        )
    }
}

/// Without the beginning of a character whose rest is missing.
fn without_cut_end(bytes: &[u8]) -> &[u8] {
    let tail = bytes.len().saturating_sub(3)..bytes.len();
    let Some(lead) = tail.rev().find(|&at| !is_continuation(bytes[at])) else { return bytes };
    let needs = match bytes[lead] {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => 1,
    };
    if bytes.len() - lead < needs { &bytes[..lead] } else { bytes }
}

/// Without the rest of a character whose beginning is missing.
fn without_cut_start(bytes: &[u8]) -> &[u8] {
    let rest = bytes.iter().take(3).take_while(|byte| is_continuation(**byte)).count();
    &bytes[rest..]
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// A number with commas, as English has it.
#[must_use]
pub fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kept(most: usize, bytes: &[u8]) -> String {
        let mut kept = Kept::new(most);
        kept.push(bytes);
        kept.text()
    }

    #[test]
    fn what_fits_is_kept_as_it_is() {
        assert_eq!(kept(8, b""), "");
        assert_eq!(kept(8, b"12345678"), "12345678");
        // Across the place where it would be cut.
        assert_eq!(kept(7, "ab€cd".as_bytes()), "ab€cd");
        assert_eq!(kept(8, b"a\xffb\xe2\x82"), "a\u{fffd}b\u{fffd}");
    }

    #[test]
    fn the_gap_is_marked_with_its_size() {
        assert_eq!(kept(8, b"123456789"), "1234\n… 1 bytes left out …\n6789");
        let long = [b"start".as_slice(), &[b'x'; 1_234_567], b"end"].concat();
        let text = kept(8, &long);
        assert_eq!(text, "star\n… 1,234,567 bytes left out …\nxend");
    }

    #[test]
    fn a_character_is_never_cut() {
        for before in 0..3 {
            let text = "x".repeat(before) + &"€".repeat(20);
            let shown = kept(16, text.as_bytes());
            assert!(!shown.contains('\u{fffd}'), "{shown}");
            assert!(shown.starts_with(&"x".repeat(before)) && shown.ends_with('€'));
        }
        let shown = kept(16, "😀".repeat(9).as_bytes());
        assert_eq!(shown, "😀😀\n… 20 bytes left out …\n😀😀");
    }

    proptest! {
        #[test]
        fn however_it_comes_it_is_the_same(text in "\\PC{0,60}", most in 0_usize..40, cut in 0_usize..60) {
            let bytes = text.as_bytes();
            let mut two = Kept::new(most);
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            two.push(first);
            two.push(second);
            prop_assert_eq!(two.text(), kept(most, bytes));
            prop_assert!(two.start.len() + two.end.len() <= most);
            if bytes.len() <= most {
                prop_assert_eq!(two.text(), text);
            } else {
                let is_cut = |text: &str| text.contains(char::REPLACEMENT_CHARACTER);
                prop_assert!(!is_cut(&two.text()) || is_cut(&text));
            }
        }

        #[test]
        fn any_bytes_are_text(bytes in proptest::collection::vec(any::<u8>(), 0..64), most in 0_usize..64) {
            kept(most, &bytes);
        }
    }
}
