//! Tables that fit the terminal.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::ui;

/// Columns that a cell pushes the next ones by, at most: one that is wider makes
/// its own line longer and no other.
const WIDEST: usize = 32;
/// Before the lines that go on with a row.
const INDENT: &str = "    ";
/// Narrower terminals get lines of this width.
const NARROWEST: usize = 20;

/// Lays rows out below each other. Columns are as wide as their widest cell so far.
pub struct Table<const N: usize> {
    widths: [usize; N],
    /// Columns of the terminal, if there is one.
    room: Option<usize>,
    /// Columns that a cell pushes the next ones by, at most.
    widest: usize,
}

impl<const N: usize> Table<N> {
    /// For stdout, as wide as it is now.
    pub fn new() -> Self {
        Table { widths: [0; N], room: ui::width(), widest: WIDEST }
    }

    /// One whose columns stand below each other however wide a cell is: of a few rows,
    /// known all at once.
    pub fn whole() -> Self {
        Table { widest: usize::MAX, ..Table::new() }
    }

    /// The rows as lines: whole, and folded where the terminal is narrower.
    pub fn rows(&mut self, rows: &[[String; N]]) -> String {
        self.each(rows).concat()
    }

    /// Each row as its lines.
    pub fn each(&mut self, rows: &[[String; N]]) -> Vec<String> {
        for row in rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width().min(self.widest));
            }
        }
        rows.iter().map(|row| self.row(row)).collect()
    }

    fn row(&self, cells: &[String; N]) -> String {
        let room = self.room.map(|room| room.max(NARROWEST));
        let whole: usize = self.widths.iter().map(|width| width + 2).sum::<usize>() - 2;
        let mut line = String::new();
        for (at, (cell, width)) in cells.iter().zip(self.widths).enumerate() {
            // All rows have their last cell at the same place: beside, or below.
            if at + 1 == N && room.is_some_and(|room| whole > room) {
                let room = room.expect("it's narrower");
                let below = folded((INDENT.to_owned() + cell).trim_end(), room);
                return folded(line.trim_end(), room) + &below;
            }
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.width()) + 2));
        }
        match room {
            Some(room) => folded(line.trim_end(), room),
            None => line.trim_end().to_owned() + "\n",
        }
    }
}

/// A line as lines of this width at most, broken between words where that can be.
fn folded(line: &str, width: usize) -> String {
    let (mut lines, mut rest, mut indent) = (String::new(), line, "");
    while indent.len() + rest.width() > width {
        let (head, tail) = rest.split_at(fitting(rest, width - indent.len()));
        lines += &format!("{indent}{}\n", head.trim_end());
        (rest, indent) = (tail.trim_start(), INDENT);
    }
    lines + indent + rest + "\n"
}

/// The bytes of what fits of a text that doesn't fit whole: one character at least.
fn fitting(text: &str, width: usize) -> usize {
    let mut used = 0;
    let too_wide = text.char_indices().find(|(_, character)| {
        used += character.width().unwrap_or(0);
        used > width
    });
    let end = too_wide.map_or(text.len(), |(end, _)| end);
    let between_words = text[..end].rfind(' ').filter(|at| !text[..*at].trim().is_empty());
    match between_words {
        _ if text[end..].starts_with(' ') => end,
        Some(at) => at,
        None => end.max(text.chars().next().map_or(1, char::len_utf8)),
    }
}

/// Bytes as a person reads them.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64 / 1000.0;
    let mut units = UNITS.into_iter();
    let mut unit = units.next().expect("there are units");
    // What would be rounded to 1000 is 1 of the next.
    while amount >= 999.5 {
        amount /= 1000.0;
        unit = units.next().expect("a number of 64 bits ends with exabytes");
    }
    if amount < 9.95 { format!("{amount:.1} {unit}") } else { format!("{amount:.0} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_short() {
        for (bytes, shown) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (1250, "1.2 kB"),
            (9_940, "9.9 kB"),
            (9_960, "10 kB"),
            (999_499, "999 kB"),
            (999_500, "1.0 MB"),
            (8_388_608, "8.4 MB"),
            (u64::MAX, "18 EB"),
        ] {
            assert_eq!(size(bytes), shown);
        }
    }

    #[test]
    fn nothing_is_wider_than_the_room_and_no_word_is_lost() {
        let line = "2026-01-01 run-1  connect  a.b:443  refused: 日本 isn't what it may reach";
        for width in NARROWEST..90 {
            let lines = folded(line, width);
            assert!(lines.lines().all(|line| line.width() <= width), "{lines}");
            let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(words(&lines), words(line));
        }
        assert_eq!(
            folded(&"x".repeat(45), 20),
            format!("{0}\n    {1}\n    {2}\n", "x".repeat(20), "x".repeat(16), "x".repeat(9))
        );
        assert_eq!(folded("a b", 3), "a b\n");
    }

    #[test]
    fn columns_stand_below_each_other() {
        let mut table = Table { room: None, ..Table::new() };
        let row = |a: &str, b: &str| [a.to_owned(), b.to_owned()];
        assert_eq!(table.rows(&[row("A", "B"), row("aaa", "b")]), "A    B\naaa  b\n");
        assert_eq!(table.rows(&[row("日", "b")]), "日   b\n");
        let mut narrow = Table { room: Some(NARROWEST), ..Table::new() };
        let rows = [row("A", "B"), row("0123456789", "0123456789"), row("a", &"b ".repeat(12))];
        assert_eq!(
            narrow.rows(&rows),
            "A\n    B\n0123456789\n    0123456789\na\n    b b b b b b b b\n    b b b b\n"
        );
        let wide = "w".repeat(WIDEST + 9);
        assert_eq!(table.rows(&[row(&wide, "b")]), format!("{wide}  b\n"));
        let mut whole = Table { room: None, ..Table::whole() };
        let short = "a".to_owned() + &" ".repeat(WIDEST + 10) + "b\n";
        assert_eq!(whole.rows(&[row(&wide, "b"), row("a", "b")]), format!("{wide}  b\n{short}"));
    }
}
