//! The right name for one that was mistyped.

/// Characters of the longest name that is compared: nobody mistypes a longer one, and
/// comparing takes as much room as both are long.
const MOST: usize = 64;

/// The candidate that is at most two slips from `typed`, and for short names
/// one: fewer letters right than that, and a suggestion would mislead.
#[must_use]
pub fn nearest<'a>(typed: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let is_short = |name: &str| name.chars().nth(MOST).is_none();
    if !is_short(typed) {
        return None;
    }
    let slips = (typed.chars().filter(|c| *c != '-').count() / 3).min(2);
    candidates
        .into_iter()
        .filter(|candidate| is_short(candidate))
        .map(|candidate| (distance(typed, candidate), candidate))
        .filter(|(distance, _)| *distance <= slips)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How many letters are wrong, missing, too many or swapped with their
/// neighbour (the optimal string alignment distance).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let wrong = usize::from(a[i - 1] != b[j - 1]);
                let plain =
                    (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + wrong);
                let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                if swapped { plain.min(rows[i - 2][j - 2] + 1) } else { plain }
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: [&str; 5] = ["--read", "--write", "--write-dot-files", "--hide", "--help"];

    #[test]
    fn slips_are_seen_through() {
        for (typed, meant) in [
            ("--wirte", "--write"),
            ("--writ", "--write"),
            ("--writes", "--write"),
            ("--red", "--read"),
            ("--raed", "--read"),
            ("--hid", "--hide"),
            ("--write-dotfiles", "--write-dot-files"),
            ("--write_dot_files", "--write-dot-files"),
            ("-write", "--write"),
        ] {
            assert_eq!(nearest(typed, FLAGS), Some(meant), "{typed}");
        }
    }

    #[test]
    fn other_names_arent_bent_into_one() {
        for typed in [
            "--port",
            "--tcp",
            "--tool",
            "--model",
            "--spec",
            "--yes",
            "--proxy",
            "--command",
            "--internet-host",
            "--lan-host",
            "--browser-host",
            "--upstream",
            "--per-minute",
            "-x",
            "",
            "-",
            "--",
            "--ro-bind",
            "--env",
        ] {
            assert_eq!(nearest(typed, FLAGS), None, "{typed}");
        }
    }

    #[test]
    fn what_no_name_is_as_long_as_isnt_compared() {
        let name = "n".repeat(MOST);
        assert_eq!(nearest(&name[1..], [name.as_str()]), Some(name.as_str()));
        let long = "n".repeat(MOST + 1);
        assert_eq!(nearest(&long, [name.as_str()]), None);
        assert_eq!(nearest(&name, [long.as_str()]), None);
    }

    #[test]
    fn a_slip_is_one_letter() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
        assert_eq!(distance("abc", "acb"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
