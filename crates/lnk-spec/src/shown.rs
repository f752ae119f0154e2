//! How untrusted text is shown to a person.
//!
//! A path, a program's name or its output may hold escape sequences that drive
//! a terminal, or bidirectional marks that make a line read as another one.
//! Everything that isn't plain text is shown as an escape.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

/// Text with every byte and character that could do more than be read shown as
/// `\xNN` or `\u{…}`: control characters, bytes that aren't UTF-8, marks that
/// change direction or can't be seen.
#[must_use]
pub fn escaped(text: &[u8]) -> String {
    let mut shown = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            push_escaped(&mut shown, character);
        }
        for byte in chunk.invalid() {
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

/// A system's error in words, without the number that std adds, to stand behind a
/// colon.
#[must_use]
pub fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    let mut text = text[..end].to_owned();
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    text
}

/// As [`escaped`], for what is one name in a line of others: its spaces that could
/// push the rest out of sight or look like the line's own are shown as escapes too.
#[must_use]
pub fn escaped_name(name: &[u8]) -> String {
    let mut shown = String::with_capacity(name.len());
    let mut rest = 0;
    for at in (0..name.len()).filter(|at| is_deceptive_space(name, *at)) {
        shown += &escaped(&name[rest..at]);
        shown.push_str("\\x20");
        rest = at + 1;
    }
    shown + &escaped(&name[rest..])
}

/// Whether the byte is a space beside another one, or the first or last of all.
pub(crate) fn is_deceptive_space(text: &[u8], at: usize) -> bool {
    let is_space = |at: usize| text.get(at).is_none_or(|byte| *byte == b' ');
    text[at] == b' ' && (at == 0 || is_space(at - 1) || is_space(at + 1))
}

fn push_escaped(shown: &mut String, character: char) {
    match character {
        '\n' => shown.push_str("\\n"),
        '\t' => shown.push_str("\\t"),
        '\r' => shown.push_str("\\r"),
        _ if character.is_ascii_control() => {
            let _ = write!(shown, "\\x{:02x}", u32::from(character));
        }
        _ if character.is_control() || is_deceptive(character) => {
            let _ = write!(shown, "\\u{{{:x}}}", u32::from(character));
        }
        _ => shown.push(character),
    }
}

/// Characters that take no room, look like a space or reorder what stands around
/// them: format characters, spaces other than the common one, blank letters, line
/// separators, private use (UAX #9, UTS #39, `Default_Ignorable_Code_Point`).
pub(crate) fn is_deceptive(character: char) -> bool {
    matches!(u32::from(character),
        0xa0 | 0xad | 0x34f | 0x61c | 0x115f | 0x1160 | 0x1680 | 0x17b4 | 0x17b5 | 0x180b..=0x180f
        | 0x2000..=0x200f | 0x2028..=0x202f | 0x205f..=0x206f | 0x2800 | 0x3000 | 0x3164
        | 0xe000..=0xf8ff | 0xfe00..=0xfe0f | 0xfeff | 0xffa0 | 0xfff0..=0xfffb
        | 0x13430..=0x13442 | 0x16fe4 | 0x1bca0..=0x1bca3 | 0x1d159 | 0x1d173..=0x1d17a
        | 0xe0000..=0xe0fff | 0xf0000..=0x10_ffff)
}

/// A path as one word of a command that a person can paste into a shell: bare
/// where that is safe, else between single quotes; what [`escaped_name`] escapes
/// is shown in `$'…'`.
#[must_use]
pub fn word(path: impl AsRef<OsStr>) -> String {
    let bytes = path.as_ref().as_bytes();
    let shown = escaped_name(bytes);
    if shown.as_bytes() != bytes {
        let quoted = bytes.iter().fold(Vec::new(), |mut quoted, byte| {
            if matches!(byte, b'\\' | b'\'') {
                quoted.push(b'\\');
            }
            quoted.push(*byte);
            quoted
        });
        return format!("$'{}'", escaped_name(&quoted));
    }
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+,:@%=~".contains(&byte) || byte >= 0x80;
    let tilde_is_home = shown == "~" || shown.starts_with("~/");
    if !shown.is_empty()
        && bytes.iter().all(|byte| plain(*byte))
        && (!shown.starts_with('~') || tilde_is_home)
    {
        return shown;
    }
    format!("'{}'", shown.replace('\'', "'\\''"))
}

/// A command in a line of text: between quotes, where it has none of its own, so that
/// nobody pastes half of it.
#[must_use]
pub fn command(words: &str) -> String {
    if words.contains('\'') { words.to_owned() } else { format!("'{words}'") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escape_sequences_and_direction_marks_are_shown() {
        assert_eq!(escaped(b"a\x1b[2Jb\n\xff"), "a\\x1b[2Jb\\n\\xff");
        assert_eq!(escaped("x\u{202e}y".as_bytes()), "x\\u{202e}y");
        assert_eq!(escaped("x\u{2800}\u{a0}y".as_bytes()), "x\\u{2800}\\u{a0}y");
        assert_eq!(escaped("Grüße 日本".as_bytes()), "Grüße 日本");
    }

    #[test]
    fn spaces_of_a_name_that_could_mislead_are_shown() {
        assert_eq!(escaped_name(b"a b"), "a b");
        assert_eq!(escaped_name(b"a  b c   d"), "a\\x20\\x20b c\\x20\\x20\\x20d");
        assert_eq!(escaped_name(b" a "), "\\x20a\\x20");
        assert_eq!(escaped_name(b" "), "\\x20");
        assert_eq!(escaped_name("\u{34f} \u{a0}".as_bytes()), "\\u{34f} \\u{a0}");
        assert_eq!(word("a  b"), "$'a\\x20\\x20b'");
        assert_eq!(word(" it's"), "$'\\x20it\\'s'");
    }

    #[test]
    fn a_word_is_quoted_where_a_shell_would_split_it() {
        assert_eq!(word("/usr/bin"), "/usr/bin");
        assert_eq!(word("a b"), "'a b'");
        assert_eq!(word("it's"), "'it'\\''s'");
        assert_eq!(word("~Top"), "'~Top'");
        assert_eq!(word("a\nb'"), "$'a\\nb\\''");
        assert_eq!(word(""), "''");
    }

    #[test]
    fn quotes_dont_nest() {
        assert_eq!(command(&format!("lnk x {}", word("/a"))), "'lnk x /a'");
        assert_eq!(command(&format!("lnk x {}", word("/a b"))), "lnk x '/a b'");
    }

    proptest! {
        #[test]
        fn nothing_shown_drives_a_terminal(bytes: Vec<u8>) {
            let shown = word(OsStr::from_bytes(&bytes));
            prop_assert!(!shown.chars().any(|c| c.is_control() || is_deceptive(c)));
        }

        #[test]
        fn no_name_holds_a_gap(name in "[ a\u{301}\\\\'\n]{0,9}") {
            let shown = word(&name);
            prop_assert!(!shown.contains("  ") && shown.trim() == shown, "{shown}");
        }
    }
}
