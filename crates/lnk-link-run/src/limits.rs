//! `[tool.run]` of an agent's spec, `Config/agent.toml`: how much a command may use.
//!
//! The file holds other tables, which are others' to read. docs/run-limits.md has the
//! table below for users; a test compares them.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use lnk_sandbox::nearest::nearest;
use lnk_sandbox::shown::{escaped, escaped_name, reason, word};
use rustix::fs::{CWD, Mode, OFlags};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Bytes of the file at most.
const MAX_BYTES: usize = 256 * 1024;
/// The section's name, as it stands in the file.
const SECTION: &str = "[tool.run]";

const SECOND: u64 = 1;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// Units of time, the largest first.
const TIMES: [(&str, u64); 4] = [("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND)];

const KB: u64 = 1024;
const MB: u64 = 1024 * KB;
const GB: u64 = 1024 * MB;
/// Units of size, the largest first.
const SIZES: [(&str, u64); 4] = [("GB", GB), ("MB", MB), ("KB", KB), ("B", 1)];

/// How much commands may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long `command` runs.
    pub timeout: Duration,
    /// Bytes kept of each of its output and errors; of `read`'s answer too.
    pub output: usize,
    /// Background commands at once; with none the four tools aren't offered.
    pub background: usize,
    /// How long one runs.
    pub background_timeout: Duration,
    /// Bytes kept of its output, the last ones.
    pub background_output: u64,
    /// How long record and output of an ended one stay once the agent was told.
    pub background_keep: Duration,
    /// How many start within 24 hours.
    pub background_per_day: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let mut limits = Limits {
            timeout: Duration::ZERO,
            output: 0,
            background: 0,
            background_timeout: Duration::ZERO,
            background_output: 0,
            background_keep: Duration::ZERO,
            background_per_day: 0,
        };
        for key in &KEYS {
            (key.set)(&mut limits, key.default);
        }
        limits
    }
}

/// What a value is, and how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Seconds.
    Time,
    /// Bytes.
    Size,
    Number,
}

/// A key of the section. Its values are in seconds, bytes, or a number.
struct Key {
    name: &'static str,
    kind: Kind,
    default: u64,
    range: RangeInclusive<u64>,
    set: fn(&mut Limits, u64),
}

/// Every key. A value in its range fits a `usize` of 32 bits.
const KEYS: [Key; 7] = [
    Key {
        name: "timeout",
        kind: Kind::Time,
        default: 2 * MINUTE,
        range: SECOND..=DAY,
        set: |limits, seconds| limits.timeout = Duration::from_secs(seconds),
    },
    Key {
        name: "output",
        kind: Kind::Size,
        default: 16 * KB,
        range: KB..=MB,
        set: |limits, bytes| limits.output = bytes as usize,
    },
    Key {
        name: "background",
        kind: Kind::Number,
        default: 4,
        range: 0..=64,
        set: |limits, number| limits.background = number as usize,
    },
    Key {
        name: "background_timeout",
        kind: Kind::Time,
        default: HOUR,
        range: SECOND..=7 * DAY,
        set: |limits, seconds| limits.background_timeout = Duration::from_secs(seconds),
    },
    Key {
        name: "background_output",
        kind: Kind::Size,
        default: 16 * MB,
        range: 64 * KB..=256 * MB,
        set: |limits, bytes| limits.background_output = bytes,
    },
    Key {
        name: "background_keep",
        kind: Kind::Time,
        default: DAY,
        range: MINUTE..=30 * DAY,
        set: |limits, seconds| limits.background_keep = Duration::from_secs(seconds),
    },
    Key {
        name: "background_per_day",
        kind: Kind::Number,
        default: 100,
        range: 1..=10_000,
        set: |limits, number| limits.background_per_day = number as usize,
    },
];

/// Why the limits couldn't be read: one line for each problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LimitsError(String);

impl Limits {
    /// Reads an agent's spec; the defaults where there is none.
    ///
    /// # Errors
    /// The file can't be read, or everything that is wrong with its section, a line
    /// each.
    pub fn of(file: &Path) -> Result<Limits, LimitsError> {
        let shown = word(file);
        match read(file) {
            Ok(bytes) => Limits::parse(&bytes, &shown),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Limits::default()),
            Err(error) => {
                Err(LimitsError(format!("{shown} can't be read: {}; mend it", reason(&error))))
            }
        }
    }

    /// Reads the bytes of a file that is shown as `shown`.
    ///
    /// # Errors
    /// As for [`Limits::of`].
    pub fn parse(bytes: &[u8], shown: &str) -> Result<Limits, LimitsError> {
        if bytes.len() > MAX_BYTES {
            return Err(LimitsError(format!("{shown} has more than {MAX_BYTES} bytes")));
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|_| LimitsError(format!("{shown} isn't UTF-8 text")))?;
        let document = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            LimitsError(format!(
                "{shown}:{}: this isn't valid TOML: {}",
                line_of(text, at),
                escaped(error.message().as_bytes())
            ))
        })?;
        let mut limits = Limits::default();
        let mut problems: Vec<(usize, String)> = Vec::new();
        match section(document.get_ref()) {
            Ok(None) => problems.extend(mistyped_section(document.get_ref())),
            Err(place) => {
                problems.push((place, format!("{SECTION} is a section: write a line {SECTION}")));
            }
            Ok(Some(section)) => {
                for (name, value) in section {
                    if let Err(problem) = set(&mut limits, name.get_ref(), value) {
                        problems.push((name.span().start, problem));
                    }
                }
            }
        }
        if problems.is_empty() {
            return Ok(limits);
        }
        problems.sort();
        let lines: Vec<_> = problems
            .into_iter()
            .map(|(at, problem)| format!("{shown}:{}: {problem}", line_of(text, at)))
            .collect();
        Err(LimitsError(lines.join("\n")))
    }
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    // A pipe in its place would be waited for.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::openat(CWD, file, flags, Mode::empty())?);
    let mut bytes = Vec::new();
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The line of a byte, from 1.
fn line_of(text: &str, at: usize) -> usize {
    text[..text.floor_char_boundary(at)].matches('\n').count() + 1
}

/// The section, where there is one; where something else stands in its place, the byte
/// of that.
fn section<'t, 'i>(document: &'t DeTable<'i>) -> Result<Option<&'t DeTable<'i>>, usize> {
    let mut table = document;
    for name in ["tool", "run"] {
        let Some(value) = table.get(name) else { return Ok(None) };
        table = value.get_ref().as_table().ok_or(value.span().start)?;
    }
    Ok(Some(table))
}

/// A section that was meant to be this one, by its byte.
fn mistyped_section(document: &DeTable<'_>) -> Option<(usize, String)> {
    document.iter().find_map(|(name, value)| {
        let is_tool = name.get_ref() == "tool" || nearest(name.get_ref(), ["tool"]).is_some();
        let table = value.get_ref().as_table().filter(|_| is_tool)?;
        let is_run =
            |name: &str| name == "run" || name == "runs" || nearest(name, ["run"]).is_some();
        let (run, _) = table.iter().find(|(name, _)| is_run(name.get_ref()))?;
        let shown = escaped_name(format!("[{}.{}]", name.get_ref(), run.get_ref()).as_bytes());
        Some((run.span().start, format!("{shown} is no section of it: did you mean {SECTION}?")))
    })
}

fn set(limits: &mut Limits, name: &str, value: &Spanned<DeValue<'_>>) -> Result<(), String> {
    let key = KEYS.iter().find(|key| key.name == name).ok_or_else(|| unknown(name))?;
    (key.set)(limits, key.read(value.get_ref())?);
    Ok(())
}

fn unknown(name: &str) -> String {
    let names = || KEYS.iter().map(|key| key.name);
    let right = match nearest(name, names()) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("its keys are {}", names().collect::<Vec<_>>().join(", ")),
    };
    format!("{SECTION} has no key {}: {right}", escaped_name(name.as_bytes()))
}

impl Key {
    fn read(&self, value: &DeValue<'_>) -> Result<u64, String> {
        let (name, range) = (self.name, &self.range);
        let found = match (self.kind, value) {
            (Kind::Number, DeValue::Integer(number)) => {
                i128::from_str_radix(number.as_str(), number.radix()).ok()
            }
            (Kind::Time, DeValue::String(text)) => of_units(text, &TIMES).map(i128::from),
            (Kind::Size, DeValue::String(text)) => one_of_units(text, &SIZES).map(i128::from),
            _ => None,
        };
        let in_range = |found| u64::try_from(found).ok().filter(|found| range.contains(found));
        let Some(found) = found else {
            let is = match self.kind {
                Kind::Time => "a time",
                Kind::Size => "a size",
                Kind::Number => "a whole number",
            };
            return Err(format!(
                "{SECTION} {name} is {is}: write it like {name} = {}",
                self.example()
            ));
        };
        in_range(found).ok_or_else(|| {
            format!(
                "{SECTION} {name} can be {} to {}",
                self.shown(*range.start()),
                self.shown(*range.end())
            )
        })
    }

    /// The default, as it stands in a file.
    fn example(&self) -> String {
        match self.kind {
            Kind::Number => self.shown(self.default),
            _ => format!("\"{}\"", self.shown(self.default)),
        }
    }

    fn shown(&self, value: u64) -> String {
        match self.kind {
            Kind::Time => Time(Duration::from_secs(value)).to_string(),
            Kind::Size => Size(value).to_string(),
            Kind::Number => value.to_string(),
        }
    }
}

/// The sum of whole numbers with units, each unit once at most and the larger before:
/// `1h30m`. Spaces may stand between.
fn of_units(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (mut sum, mut rest, mut from) = (0u64, text.trim(), 0);
    while !rest.is_empty() {
        let (number, after) = number(rest)?;
        let at = (from..units.len()).find(|at| after.starts_with(units[*at].0))?;
        sum = sum.checked_add(number.checked_mul(units[at].1)?)?;
        rest = after[units[at].0.len()..].trim_start();
        from = at + 1;
    }
    (from > 0).then_some(sum)
}

/// A whole number with one unit, in any case: `16 KB`.
fn one_of_units(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) = number(text.trim())?;
    let (_, bytes) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    number.checked_mul(*bytes)
}

/// The whole number that a text begins with, and what follows.
fn number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim_start()))
}

/// A time in the words that a file has it in: `1h 30m`. Parts of a second are left out.
#[derive(Clone, Copy, Debug)]
pub struct Time(pub Duration);

impl fmt::Display for Time {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_secs();
        let mut parts = Vec::new();
        for (unit, seconds) in TIMES {
            if rest >= seconds {
                parts.push(format!("{}{unit}", rest / seconds));
                rest %= seconds;
            }
        }
        if parts.is_empty() { out.write_str("0s") } else { out.write_str(&parts.join(" ")) }
    }
}

/// Bytes in the words that a file has them in, in the largest unit that they are a whole
/// number of: `16 KB`.
#[derive(Clone, Copy, Debug)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |(_, bytes): &&(&str, u64)| self.0 >= *bytes && self.0.is_multiple_of(*bytes);
        let (unit, bytes) = SIZES.iter().find(whole).unwrap_or(&("B", 1));
        write!(out, "{} {unit}", self.0 / bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Limits, String> {
        Limits::parse(text.as_bytes(), "agent.toml").map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_without_the_section_means_the_defaults() {
        let seed = Limits {
            timeout: Duration::from_secs(120),
            output: 16 * 1024,
            background: 4,
            background_timeout: Duration::from_secs(3600),
            background_output: 16 * 1024 * 1024,
            background_keep: Duration::from_secs(24 * 3600),
            background_per_day: 100,
        };
        for text in ["", "[tool]\n", "[tool.run]\n", "name = \"x\"\n[tool.other]\ntimeout = 7\n"] {
            assert_eq!(parse(text).unwrap(), seed, "{text}");
        }
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Limits::of(&folder.path().join("none")).unwrap(), seed);
        let error = Limits::of(folder.path()).unwrap_err().to_string();
        assert!(error.contains("can't be read"), "{error}");
    }

    #[test]
    fn every_key_is_read() {
        let limits = parse(
            "[tool.run]\ntimeout = \"1h30m\"\noutput = \"32 KB\"\nbackground = 0\n\
             background_timeout = \"90s\"\nbackground_output = \"1mb\"\n\
             background_keep = \"1d 2h\"\nbackground_per_day = 7\n",
        );
        let expected = Limits {
            timeout: Duration::from_secs(5400),
            output: 32 * 1024,
            background: 0,
            background_timeout: Duration::from_secs(90),
            background_output: 1024 * 1024,
            background_keep: Duration::from_secs(26 * 3600),
            background_per_day: 7,
        };
        assert_eq!(limits.unwrap(), expected);
    }

    #[test]
    fn what_is_wrong_is_named_with_key_line_and_the_nearest_name() {
        for (line, said) in [
            ("timout = \"2m\"", "[tool.run] has no key timout: did you mean timeout?"),
            ("background_outptu = \"1 MB\"", "did you mean background_output?"),
            ("speed = 1", "its keys are timeout, output, background, background_timeout"),
            ("timeout = 120", "[tool.run] timeout is a time: write it like timeout = \"2m\""),
            ("timeout = \"2\"", "timeout is a time"),
            ("timeout = \"2m1h\"", "timeout is a time"),
            ("timeout = \"1m1m\"", "timeout is a time"),
            ("timeout = \"-1s\"", "timeout is a time"),
            ("timeout = \"\"", "timeout is a time"),
            ("timeout = \"99999999999999999999d\"", "timeout is a time"),
            ("timeout = \"0s\"", "[tool.run] timeout can be 1s to 1d"),
            ("timeout = \"1d1s\"", "[tool.run] timeout can be 1s to 1d"),
            ("output = \"16\"", "[tool.run] output is a size: write it like output = \"16 KB\""),
            ("output = \"1 TB\"", "output is a size"),
            ("output = \"1023 B\"", "[tool.run] output can be 1 KB to 1 MB"),
            ("background = \"4\"", "background is a whole number: write it like background = 4"),
            ("background = -1", "[tool.run] background can be 0 to 64"),
            ("background = 65", "[tool.run] background can be 0 to 64"),
            ("background_per_day = 0", "background_per_day can be 1 to 10000"),
            ("\"a\\u001b[2J\" = 1", "has no key a\\x1b[2J"),
        ] {
            let error = parse(&format!("# mine\n[tool.run]\n{line}\n")).unwrap_err();
            assert!(error.starts_with("agent.toml:3: ") && error.contains(said), "{error}");
        }
        let both = parse("[tool.run]\nb = 1\ntimeout = 2\n").unwrap_err();
        assert_eq!(both.lines().count(), 2, "{both}");
        assert!(parse("[tool]\nrun = 1\n").unwrap_err().contains("agent.toml:2: [tool.run] is a"));
        assert!(parse("tool = 1\n").is_err());
        for wrong in ["tools.run", "tool.runs", "tol.run", "tool.rum"] {
            let error = parse(&format!("# mine\n[{wrong}]\ntimeout = \"1m\"\n")).unwrap_err();
            assert!(
                error.starts_with(&format!("agent.toml:2: [{wrong}] is no section")),
                "{error}"
            );
        }
        assert!(parse("[tools.web]\n[tool.browse]\n[other.run]\n").is_ok());
        assert!(parse("\n[tool.run\n").unwrap_err().starts_with("agent.toml:2: this isn't"));
        assert!(Limits::parse(b"\xff", "a").is_err());
    }

    #[test]
    fn the_page_has_the_table() {
        let page = include_str!("../../../docs/run-limits.md");
        let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| `")).collect();
        assert_eq!(rows.len(), KEYS.len());
        for (row, key) in rows.iter().zip(&KEYS) {
            let range = (key.shown(*key.range.start()), key.shown(*key.range.end()));
            let begins =
                format!("| `{}` | `{}` | {} to {} | ", key.name, key.example(), range.0, range.1);
            assert!(row.starts_with(&begins), "{row}\nisn't\n{begins}");
        }
        let start = page.find("```toml\n").unwrap() + "```toml\n".len();
        let example = &page[start..start + page[start..].find("```").unwrap()];
        assert!(parse(example).is_ok());
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_the_same(seconds in 0u64..100 * DAY, bytes in 0..=GB) {
            let time = Time(Duration::from_secs(seconds)).to_string();
            prop_assert_eq!(of_units(&time, &TIMES), Some(seconds));
            prop_assert_eq!(one_of_units(&Size(bytes).to_string(), &SIZES), Some(bytes));
        }

        #[test]
        fn no_text_panics(value in "\\PC{0,20}", text in "(\\[tool\\.run\\]\n)?[a-z_]{0,8} ?= ?[\"0-9a-zA-Z \\-]{0,9}") {
            let _ = (of_units(&value, &TIMES), one_of_units(&value, &SIZES), parse(&text));
        }
    }
}
