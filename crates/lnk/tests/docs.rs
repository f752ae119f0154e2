//! Every console block of the documentation does what it shows.
//!
//! A block is run in a project of its own, by one bash, `lnk` on PATH:
//!
//! ```console
//! $ echo a > file
//! $ cat file /none   # exit 1
//! a
//! cat: /none: ...
//! $ for i in 1 2; do
//! >   echo $i
//! > done
//! 1
//! 2
//! ```
//!
//! `$ ` begins a command and `> ` goes on with it; what follows is all that it
//! prints, standard error too. `...` stands for any text, and alone on a line
//! for any lines. `# exit N` at the end of a command is its status, else 0. What
//! `lnk` says comes before or after the program's own lines.

use std::fs;
use std::path::{Path, PathBuf};

use testkit::TestEnv;

/// One console block.
#[derive(Debug, PartialEq)]
struct Block {
    /// Where it stands: file and line.
    place: String,
    examples: Vec<Example>,
}

#[derive(Debug, PartialEq)]
struct Example {
    command: String,
    status: i32,
    output: String,
}

#[test]
fn every_console_block_does_what_it_shows() {
    let blocks: Vec<Block> = pages().iter().flat_map(|page| read_blocks(page)).collect();
    for block in &blocks {
        testkit::each!(|env| run(block, env));
    }
}

/// README.md and the pages of docs/, the folders in it too.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.expect("docs can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.retain(|page| page.exists());
    pages.sort();
    pages
}

fn read_blocks(page: &Path) -> Vec<Block> {
    let text = fs::read_to_string(page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
    parse(&page.file_name().expect("a page is a file").display().to_string(), &text)
}

fn parse(page: &str, text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if line.trim_start() != "```console" {
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        let place = format!("{page}:{}", number + 1);
        let body = lines.by_ref().map(|(_, line)| line.get(indent..).unwrap_or(""));
        let examples = parse_examples(&place, body.take_while(|line| !line.starts_with("```")));
        blocks.push(Block { place, examples });
    }
    blocks
}

fn parse_examples<'a>(place: &str, lines: impl Iterator<Item = &'a str>) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    for line in lines {
        if let Some(command) = line.strip_prefix("$ ") {
            examples.push(Example {
                status: expected_status(command),
                command: command.to_owned(),
                output: String::new(),
            });
            continue;
        }
        let last = examples.last_mut().unwrap_or_else(|| panic!("{place} begins with no command"));
        match line.strip_prefix("> ") {
            Some(more) if last.output.is_empty() => {
                last.command.push('\n');
                last.command.push_str(more);
                last.status = expected_status(more);
            }
            _ => {
                last.output.push_str(line);
                last.output.push('\n');
            }
        }
    }
    examples
}

fn expected_status(command: &str) -> i32 {
    let status = command.rsplit_once("# exit ").map(|(_, status)| status.trim());
    status.and_then(|status| status.parse().ok()).unwrap_or(0)
}

/// What no example prints: it parts their outputs.
const MARK: &str = "\u{1}status ";

fn run(block: &Block, env: &TestEnv) {
    let mut script = String::from("exec 2>&1\n");
    for example in &block.examples {
        script.push_str(&example.command);
        script.push_str(&format!("\nprintf '\\n{MARK}%s\\n' $?\n"));
    }
    let run = env.sh(&script).run();
    let mut rest = run.stdout.as_str();
    for example in &block.examples {
        let end = format!("\n{MARK}");
        let ended = rest.split_once(&end).and_then(|(output, rest)| {
            let (status, rest) = rest.split_once('\n')?;
            Some((output, status, rest))
        });
        let Some((output, status, after)) = ended else {
            panic!("{}: bash ended in: {}\n{run}", block.place, example.command);
        };
        let shown = example.output.as_str();
        let shows = matches(shown, output) || matches(&parted(shown), &parted(output));
        let right = status == example.status.to_string() && shows;
        assert!(
            right,
            "{}: $ {}\n--- shown, status {}\n{}--- was, status {status}\n{output}",
            block.place, example.command, example.status, example.output
        );
        rest = after;
    }
}

/// The lines of `lnk`, then the others: two processes write at the same time.
fn parted(text: &str) -> String {
    let (own, others): (Vec<_>, Vec<_>) =
        text.lines().partition(|line| line.starts_with("lnk sandbox: "));
    [own, others].concat().join("\n")
}

/// Whether `text` is as `shown`, where `...` stands for any text. Space at the
/// very end doesn't count.
fn matches(shown: &str, text: &str) -> bool {
    let text = text.trim_end();
    let Some((first, others)) = shown.trim_end().split_once("...") else {
        return shown.trim_end() == text;
    };
    let (middle, last) = others.rsplit_once("...").unwrap_or(("", others));
    let between = text.strip_prefix(first).and_then(|rest| rest.strip_suffix(last));
    let Some(mut rest) = between else {
        return false;
    };
    // Each at its first place leaves the most for those after it.
    for piece in middle.split("...") {
        let Some(at) = rest.find(piece) else {
            return false;
        };
        rest = &rest[at + piece.len()..];
    }
    true
}

#[test]
fn blocks_are_read_as_written() {
    let page =
        "a\n```console\n$ cat a # exit 3\nx\n$ for a; do\n> b\n> done\n```\n```sh\n$ no\n```\n";
    let example = |command: &str, status, output: &str| Example {
        command: command.into(),
        status,
        output: output.into(),
    };
    let examples = vec![example("cat a # exit 3", 3, "x\n"), example("for a; do\nb\ndone", 0, "")];
    assert_eq!(parse("p.md", page), [Block { place: "p.md:2".into(), examples }]);
}

#[test]
fn dots_stand_for_any_text_and_nothing_else_does() {
    for (shown, text) in [
        ("a\n", "a\n"),
        ("", ""),
        ("a ... c\n", "a b c\n"),
        ("...\n", ""),
        ("a\n...\nd\n", "a\nb\nc\nd\n"),
        ("a...b...c", "a b b c"),
    ] {
        assert!(matches(shown, text), "{shown:?} is {text:?}");
    }
    for (shown, text) in
        [("a", "ab"), ("", "a"), ("a...c", "b c"), ("a...c", "a b"), ("b...b", "b")]
    {
        assert!(!matches(shown, text), "{shown:?} is not {text:?}");
    }
}

#[test]
fn a_block_that_shows_something_else_fails() {
    testkit::each!(|env| {
        let right = "```console\n$ cd /; x=1\n$ echo $x; pwd >&2; false # exit 1\n1\n/\n```\n";
        let fails = |page: &str| {
            let block = &parse("p.md", page)[0];
            let run = || run(block, env);
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err()
        };
        assert!(!fails(right));
        assert!(fails(&right.replace("\n1\n", "\n2\n")));
        assert!(fails(&right.replace("exit 1", "exit 0")));
        assert!(fails("```console\n$ exit 0\n```\n"));
        let two =
            "```console\n$ echo 'lnk sandbox: a'; echo b; echo c\nb\nc\nlnk sandbox: a\n```\n";
        assert!(!fails(two));
        assert!(fails(&two.replace("\nb\nc\n", "\nc\nb\n")));
    });
}
