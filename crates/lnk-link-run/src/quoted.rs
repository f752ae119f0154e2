//! Words of a client, as the messages to it show them.

use lnk_sandbox::shown::escaped;

/// Characters of a word that a message shows at most.
const MOST_SHOWN: usize = 80;

/// A word of a client's in quotes, as JSON has it, and cut where it is long. What could
/// do more than be read is escaped.
#[must_use]
pub fn quoted(word: &str) -> String {
    quoted_to(word, MOST_SHOWN)
}

/// As [`quoted`], with so many characters at most.
#[must_use]
pub fn quoted_to(word: &str, most: usize) -> String {
    let mut shown = String::from("\"");
    for character in cut_to(word, most).chars() {
        let mut utf8 = [0; 4];
        let plain = character.encode_utf8(&mut utf8);
        match character {
            '"' | '\\' => shown.extend(['\\', character]),
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            '\r' => shown.push_str("\\r"),
            _ if *plain == *escaped(plain.as_bytes()) => shown.push(character),
            _ => {
                let mut units = [0; 2];
                let units = character.encode_utf16(&mut units).iter();
                shown.extend(units.map(|unit| format!("\\u{unit:04x}")));
            }
        }
    }
    shown + "\""
}

/// A word, cut where it is long.
#[must_use]
pub fn cut(word: &str) -> String {
    cut_to(word, MOST_SHOWN)
}

fn cut_to(word: &str, most: usize) -> String {
    match word.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &word[..end]),
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_shown_as_json_has_it() {
        for word in ["ls", "a b", "a\"\\\n\t\r\0\u{1b}", "€\u{202e}\u{e0001}"] {
            let shown = quoted(word);
            assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), word);
            assert!(shown.chars().all(|it| !it.is_control() && it != '\u{202e}'), "{shown}");
        }
        assert_eq!(quoted(&"€".repeat(9_999)).chars().count(), MOST_SHOWN + 3);
    }
}
