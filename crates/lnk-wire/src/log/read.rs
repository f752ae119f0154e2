//! Reading the log.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use lnk_spec::shown::escaped;
use rustix::fs::OFlags;

use super::write::{NEXT, kept};
use super::{FILE, FULL, KEPT, Line, MAX_LINE, Sandbox, What, bounded_path};

/// Bytes of one file that are read at most, its last ones. Files are no longer
/// unless none could be renamed for long.
const MAX_READ: u64 = 8 * FULL;
/// What every line begins with, and no text in one holds, as quotes are escaped.
const BEGINNING: &[u8] = b"{\"time\":";

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// As it stands in the file, without its newline.
    pub text: String,
    /// What it says.
    pub line: Line,
}

/// Which lines are meant.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Those of a sandbox, or of a spec, with this name.
    pub sandbox: Option<String>,
    /// Those of the spec at this real path.
    pub spec_path: Option<PathBuf>,
    /// Only what was refused.
    pub refused: bool,
}

impl Filter {
    fn matches(&self, line: &Line) -> bool {
        let named =
            |name: &String| line.sandbox.name == *name || line.sandbox.spec.as_ref() == Some(name);
        let at = |path: &PathBuf| {
            let path = bounded_path(&escaped(path.as_os_str().as_bytes()));
            line.sandbox.spec_path.as_ref() == Some(&path)
        };
        self.sandbox.as_ref().is_none_or(named)
            && self.spec_path.as_ref().is_none_or(at)
            && (!self.refused || matches!(line.what, What::Refused { .. }))
    }
}

/// The latest `most` lines that the filter means, the oldest of them first. None
/// where there is no log.
///
/// # Errors
/// A file of the log can't be read.
pub fn read_last(folder: &Path, most: usize, filter: &Filter) -> io::Result<Vec<Record>> {
    Follow::open(folder, most, filter.clone()).map(|(latest, _)| latest)
}

/// The names of all sandboxes and specs in the log, each once, those of the latest
/// calls first.
///
/// # Errors
/// A file of the log can't be read.
pub fn sandboxes(folder: &Path) -> io::Result<Vec<String>> {
    let (mut names, mut seen) = (Vec::new(), BTreeSet::new());
    for (mut file, _) in newest_first(folder)? {
        let bytes = read_all(&mut file)?;
        for record in bytes.rsplit(|byte| *byte == b'\n').filter_map(record) {
            let Sandbox { name, spec, .. } = record.line.sandbox;
            for name in [Some(name), spec].into_iter().flatten() {
                if seen.insert(name.clone()) {
                    names.push(name);
                }
            }
        }
    }
    Ok(names)
}

/// The whole lines of a file's bytes. What isn't a line is passed over: half a one,
/// left by a wire that was killed, and nothing but it.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Record> {
    bytes.split(|byte| *byte == b'\n').filter_map(record)
}

fn record(text: &[u8]) -> Option<Record> {
    // A whole line may stand behind half of another.
    let text = &text[text.len().saturating_sub(MAX_LINE)..];
    let beginning = text.windows(BEGINNING.len()).rposition(|part| part == BEGINNING)?;
    let text = &text[beginning..];
    let line = Line::parse(text)?;
    Some(Record { text: String::from_utf8(text.to_vec()).ok()?, line })
}

/// The log's lines from now on.
#[derive(Debug)]
pub struct Follow {
    folder: PathBuf,
    filter: Filter,
    /// The file that is read, and which it is.
    file: Option<(File, Id)>,
    /// A line whose end isn't written yet.
    begun: Vec<u8>,
}

type Id = (u64, u64);

impl Follow {
    /// The latest `most` lines that the filter means, the oldest of them first, and
    /// what follows on them. None where there is no log.
    ///
    /// # Errors
    /// A file of the log can't be read.
    pub fn open(folder: &Path, most: usize, filter: Filter) -> io::Result<(Vec<Record>, Follow)> {
        let mut files = newest_first(folder)?.into_iter();
        let folder = folder.to_path_buf();
        let mut follow = Follow { folder, filter, file: files.next(), begun: Vec::new() };
        if let Some((file, _)) = &mut follow.file {
            seek_to_last(file)?;
        }
        let mut latest = VecDeque::new();
        let mut of_file = follow.read_on()?;
        loop {
            of_file.retain(|record| follow.filter.matches(&record.line));
            let left = of_file.into_iter().rev().take(most - latest.len());
            left.for_each(|record| latest.push_front(record));
            match files.next() {
                Some((mut file, _)) if latest.len() < most => {
                    of_file = records(&read_all(&mut file)?).collect();
                }
                _ => return Ok((latest.into(), follow)),
            }
        }
    }

    /// The lines that were written since, at once: none where there are none.
    ///
    /// # Errors
    /// The log can't be read.
    pub fn read(&mut self) -> io::Result<Vec<Record>> {
        let files = newest_first(&self.folder)?;
        let mut found = self.read_on()?;
        let current = self.file.as_ref().map(|(_, id)| *id);
        let newer: Vec<_> = files.into_iter().take_while(|(_, id)| Some(*id) != current).collect();
        if !newer.is_empty() {
            // Once more: what was written before its name was given to another.
            found.extend(self.read_on()?);
        }
        for file in newer.into_iter().rev() {
            self.begun.clear();
            self.file = Some(file);
            found.extend(self.read_on()?);
        }
        found.retain(|record| self.filter.matches(&record.line));
        Ok(found)
    }

    fn read_on(&mut self) -> io::Result<Vec<Record>> {
        let Some((file, _)) = &mut self.file else {
            return Ok(Vec::new());
        };
        file.take(MAX_READ).read_to_end(&mut self.begun)?;
        let end = self.begun.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let found = records(&self.begun[..end]).collect();
        self.begun.drain(..end);
        if self.begun.len() > MAX_LINE {
            self.begun.clear();
        }
        Ok(found)
    }
}

/// The log's files that there are, each once: one that is renamed meanwhile is
/// met again under its next name.
fn newest_first(folder: &Path) -> io::Result<Vec<(File, Id)>> {
    let mut files: Vec<(File, Id)> = Vec::new();
    // A full file goes by the next one's name for a moment.
    let newest = [FILE, NEXT].map(str::to_owned);
    for name in newest.into_iter().chain((1..=KEPT).map(kept)) {
        let Some(file) = open(&folder.join(&name))? else {
            continue;
        };
        let metadata = file.metadata()?;
        let id = (metadata.dev(), metadata.ino());
        if name == NEXT && metadata.len() == 0 {
            continue;
        }
        if metadata.is_file() && files.iter().all(|(_, other)| *other != id) {
            files.push((file, id));
        }
    }
    Ok(files)
}

fn open(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = flags.bits().cast_signed();
    match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn read_all(file: &mut File) -> io::Result<Vec<u8>> {
    seek_to_last(file)?;
    let mut bytes = Vec::new();
    file.take(MAX_READ).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn seek_to_last(file: &mut File) -> io::Result<u64> {
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_READ)))
}
