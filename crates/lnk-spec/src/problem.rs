//! What is wrong with a spec, shown at its place.

use std::ops::Range;

use unicode_width::UnicodeWidthStr;

use crate::invalid::Invalid;
use crate::shown::{escaped, escaped_name};

/// Problems shown of one spec at most.
const MAX_SHOWN: usize = 10;
/// Characters of a line shown before and after where the problem starts, at most.
const MAX_BEFORE: usize = 60;
const MAX_AFTER: usize = 100;

/// A kind of problem, with its own sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// More bytes than a spec can have.
    #[error("a spec has at most {0} bytes: this is no spec")]
    TooLarge(usize),
    /// Bytes that aren't UTF-8.
    #[error("a spec is UTF-8 text: these bytes aren't")]
    NotUtf8,
    /// Text that isn't TOML.
    #[error("this isn't valid TOML: {0}")]
    Syntax(String),
    /// A key or section that was there before.
    #[error("{0} is given twice: keep one of them")]
    Twice(String),
    /// No such section, nor a key above the sections.
    #[error("there is no section [{typed}]: {}", did_you_mean(.meant, "the sections are [files], \
        [internet], [lan], [localhost], [tools], [browser] and [commands]"))]
    UnknownSection {
        /// As typed, escaped.
        typed: String,
        /// The nearest right one.
        meant: Option<String>,
    },
    /// A value above the sections that isn't a key there.
    #[error("{typed} isn't a key above the sections: {}", did_you_mean(.meant, "name and version are"))]
    UnknownTopKey {
        /// As typed, escaped.
        typed: String,
        /// What it seems to mean.
        meant: Option<String>,
    },
    /// A key that the section doesn't have.
    #[error("[{section}] has no key {typed}: {}", did_you_mean(.meant, .keys))]
    UnknownKey {
        /// The section.
        section: String,
        /// As typed, escaped.
        typed: String,
        /// What it seems to mean.
        meant: Option<String>,
        /// A sentence naming the right keys.
        keys: String,
    },
    /// Something else under a section's name.
    #[error("[{name}] is a section, not {got}: write a line [{name}], and its keys under it")]
    NotASection {
        /// The section.
        name: String,
        /// What stands there.
        got: &'static str,
    },
    /// A value of another type.
    #[error("{key} is {wants}, not {got}: write it like {example}")]
    WrongType {
        /// The key, with its section.
        key: String,
        /// The right type.
        wants: &'static str,
        /// What stands there.
        got: &'static str,
        /// A right value.
        example: String,
    },
    /// A list that is too long.
    #[error("{key} has {count} entries: {most} are the most")]
    TooMany {
        /// The key, with its section.
        key: String,
        /// Its entries.
        count: usize,
        /// The most there can be.
        most: usize,
    },
    /// A value that isn't possible.
    #[error("{key}: {why}")]
    Invalid {
        /// The key, with its section.
        key: String,
        /// Why not.
        why: Invalid,
    },
    /// Something valid that can't be granted where the spec is used.
    #[error("{0}")]
    Refused(String),
}

fn did_you_mean(meant: &Option<String>, otherwise: &str) -> String {
    meant.as_ref().map_or(otherwise.into(), |meant| format!("did you mean {meant}?"))
}

/// A problem and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// What is wrong.
    pub problem: Problem,
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
    /// The line's text around it, escaped.
    excerpt: String,
    /// Where the carets go: columns of the excerpt before them, and their number.
    carets: (usize, usize),
}

impl SpecError {
    fn new(problem: Problem, text: &str, place: Range<usize>) -> Self {
        let at = text.floor_char_boundary(place.start);
        let line_start = text[..at].rfind('\n').map_or(0, |end| end + 1);
        let line = text[line_start..].lines().next().unwrap_or_default();
        let in_line = |byte: usize| line.floor_char_boundary(byte.saturating_sub(line_start));
        let (start, end) = (in_line(place.start), in_line(place.end.max(place.start)));
        let (before, marked, rest) = (&line[..start], &line[start..end], &line[end..]);

        let marked = first(marked, MAX_AFTER);
        let rest = first(rest, MAX_AFTER - marked.chars().count());
        let lead = last(before, MAX_BEFORE);
        let [lead, marked, rest] = [lead, marked, rest].map(|part| escaped(part.as_bytes()));
        SpecError {
            problem,
            line: text[..line_start].matches('\n').count() + 1,
            column: before.chars().count() + 1,
            carets: (lead.width(), marked.width().max(1)),
            excerpt: format!("{lead}{marked}{rest}"),
        }
    }

    /// The sentence, then the line with carets under it, as compilers show it.
    /// Of a spec that wasn't read no line is shown. `file` names the spec and is
    /// escaped here.
    #[must_use]
    pub fn shown(&self, file: &str) -> String {
        let SpecError { problem, line, column, excerpt, carets: (before, count) } = self;
        let file = escaped_name(file.as_bytes());
        if let Problem::TooLarge(_) = problem {
            return format!("{problem}\n --> {file}");
        }
        let gutter = " ".repeat(line.to_string().len());
        let (space, carets) = (" ".repeat(*before), "^".repeat(*count));
        format!(
            "{problem}\n{gutter}--> {file}:{line}:{column}\n{gutter} |\n{line} | {excerpt}\n\
             {gutter} | {space}{carets}"
        )
    }
}

fn first(text: &str, count: usize) -> &str {
    text.char_indices().nth(count).map_or(text, |(end, _)| &text[..end])
}

fn last(text: &str, count: usize) -> &str {
    let mut starts = text.char_indices().rev();
    match count.checked_sub(1).and_then(|before| starts.nth(before)) {
        Some((start, _)) => &text[start..],
        None => text,
    }
}

/// Everything that is wrong with a spec, by position; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecErrors {
    /// The first of them, ten at most.
    pub errors: Vec<SpecError>,
    /// How many more there are.
    pub more: usize,
}

impl SpecErrors {
    pub(crate) fn new(mut found: Vec<(Problem, Range<usize>)>, text: &str) -> Self {
        found.sort_by_key(|(_, place)| (place.start, place.end));
        let more = found.len().saturating_sub(MAX_SHOWN);
        found.truncate(MAX_SHOWN);
        let errors = found
            .into_iter()
            .map(|(problem, place)| SpecError::new(problem, text, place))
            .collect();
        SpecErrors { errors, more }
    }

    /// All of them as [`SpecError::shown`] shows each, with a blank line between.
    #[must_use]
    pub fn shown(&self, file: &str) -> String {
        let mut parts: Vec<_> = self.errors.iter().map(|error| error.shown(file)).collect();
        match self.more {
            0 => {}
            1 => parts.push("One more is wrong.".into()),
            more => parts.push(format!("{more} more are wrong.")),
        }
        parts.join("\n\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_line_is_cut_around_its_place() {
        let text = format!("{}X{}", "a".repeat(500), "b".repeat(500));
        let shown = SpecError::new(Problem::NotUtf8, &text, 500..501).shown("f");
        assert!(shown.contains(&format!("{}X{}\n", "a".repeat(60), "b".repeat(99))), "{shown}");
        assert!(shown.ends_with(&format!("| {}^", " ".repeat(60))), "{shown}");
    }

    #[test]
    fn of_what_is_too_large_no_line_is_shown() {
        let errors = SpecErrors::new(vec![(Problem::TooLarge(9), 0..0)], "");
        assert_eq!(
            errors.shown("f  g"),
            "a spec has at most 9 bytes: this is no spec\n --> f\\x20\\x20g"
        );
    }

    proptest! {
        #[test]
        fn any_place_of_any_text_is_shown_in_five_lines(text in "[\\PC\\n\\r\\t\u{202e}]{0,200}", a in 0usize..300, b in 0usize..300) {
            let shown = SpecError::new(Problem::NotUtf8, &text, a.min(b)..a.max(b)).shown("f\n");
            prop_assert_eq!(shown.lines().count(), 5);
            let drives = shown.contains(['\r', '\t', '\u{202e}']);
            prop_assert!(!drives);
        }
    }
}
