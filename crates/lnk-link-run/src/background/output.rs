//! The output of background commands: `background/<id>.out`, its last bytes.
//!
//! A byte is counted from the first that the command printed, whether that is kept or
//! not. When a file is half as large again as what is kept, its end is moved to its
//! beginning, in place: that needs no room on a disk that may have none.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use lnk_sandbox::shown::reason;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, openat, unlinkat};
use rustix::io::Errno;

/// Bytes moved at once.
const MOVED: usize = 256 * 1024;
/// Bytes of a character in UTF-8 at most.
const LONGEST: usize = 4;

/// The folder `background/` of the files folder. No link in it is followed, and none
/// may stand in its own place.
pub struct Folder(OwnedFd);

impl Folder {
    /// Opens it.
    ///
    /// # Errors
    /// Those of open(2), `ENOTDIR` and `ELOOP` for what isn't a folder too.
    pub fn open(path: &Path) -> io::Result<Folder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Folder(openat(CWD, path, flags, Mode::empty())?))
    }

    /// Makes a command's file.
    ///
    /// # Errors
    /// Those of open(2), `EEXIST` where anything has its name.
    pub fn create(&self, id: &str) -> io::Result<File> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.0, name(id), flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Opens a command's file to be read.
    ///
    /// # Errors
    /// Those of open(2), and `InvalidInput` for what isn't a plain file.
    pub fn file(&self, id: &str) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.0, name(id), flags, Mode::empty())?;
        match FileType::from_raw_mode(fstat(&file)?.st_mode) {
            FileType::RegularFile => Ok(file.into()),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Removes a command's file, if it is there.
    ///
    /// # Errors
    /// Those of unlink(2).
    pub fn remove(&self, id: &str) -> io::Result<()> {
        match unlinkat(&self.0, name(id), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn name(id: &str) -> String {
    format!("{id}.out")
}

/// The file of a command that runs.
pub struct Output {
    file: File,
    /// Bytes kept.
    most: u64,
    /// Bytes that stood before the file's first.
    dropped: u64,
    len: u64,
    unkept: u64,
    why_unkept: Option<String>,
}

impl Output {
    /// A new file, of which the last `most` bytes are kept.
    #[must_use]
    pub fn new(file: File, most: u64) -> Output {
        Output { file, most, dropped: 0, len: 0, unkept: 0, why_unkept: None }
    }

    /// Adds bytes. Once they can't be written, because the disk is full say, no more are
    /// kept, and the command goes on. Answers whether earlier ones were dropped.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while self.why_unkept.is_none() && !rest.is_empty() {
            match self.file.write_at(rest, self.len) {
                Ok(written) => {
                    self.len += written as u64;
                    rest = &rest[written..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.why_unkept = Some(reason(&error)),
            }
        }
        self.unkept += rest.len() as u64;
        self.len > self.most + self.most / 2 && self.cut()
    }

    /// Leaves no more than is kept, at the command's end.
    pub fn finish(&mut self) {
        if self.len > self.most {
            self.cut();
        }
    }

    /// Moves the end to the beginning.
    fn cut(&mut self) -> bool {
        let gone = self.len - self.most;
        let moved = self.move_down(gone).and_then(|()| self.file.set_len(self.most));
        match moved {
            Ok(()) => {
                self.dropped += gone;
                self.len = self.most;
                true
            }
            Err(error) => {
                self.why_unkept.get_or_insert(reason(&error));
                false
            }
        }
    }

    fn move_down(&self, gone: u64) -> io::Result<()> {
        let mut some = vec![0; MOVED];
        let mut to = 0;
        while to < self.most {
            let length = some.len().min((self.most - to) as usize);
            self.file.read_exact_at(&mut some[..length], to + gone)?;
            self.file.write_all_at(&some[..length], to)?;
            to += length as u64;
        }
        Ok(())
    }

    /// What is where.
    #[must_use]
    pub fn extent(&self) -> Extent {
        Extent { dropped: self.dropped, len: self.len, unkept: self.unkept, most: self.most }
    }

    /// Why no more is kept, if that is so.
    #[must_use]
    pub fn why_unkept(&self) -> Option<&str> {
        self.why_unkept.as_deref()
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// Which of a command's bytes are in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes before the file's first.
    pub dropped: u64,
    /// The file's bytes.
    pub len: u64,
    /// Bytes after the file's last, which couldn't be kept.
    pub unkept: u64,
    /// Bytes that are kept; the file may have more of them for a while.
    pub most: u64,
}

impl Extent {
    /// All bytes that the command printed.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.end() + self.unkept
    }

    /// The first byte that can be read.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.end().saturating_sub(self.most).max(self.dropped)
    }

    /// The byte after the last that can be read.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.dropped + self.len
    }
}

/// A part of a command's output as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// What isn't UTF-8 is shown replaced.
    pub text: String,
    /// Its first byte.
    pub from: u64,
    /// Where the next part begins.
    pub next: u64,
    /// Whether the first byte is one within a character.
    pub starts_inside: bool,
}

/// Reads `most` bytes from a byte of the output, or its last ones. A character that the
/// end would cut is left to the next part, if `goes_on` or there is more.
///
/// # Errors
/// Those of read(2).
pub fn read(
    file: &File,
    extent: &Extent,
    from: Option<u64>,
    most: usize,
    goes_on: bool,
) -> io::Result<Piece> {
    let (start, end) = (extent.start(), extent.end());
    let first = from.unwrap_or(end.saturating_sub(most as u64)).clamp(start, end);
    let back = (first - extent.dropped).min(LONGEST as u64 - 1) as usize;
    let length = (end - first).min(most as u64) as usize;
    let mut bytes = vec![0; back + length];
    let read = read_up_to(file, &mut bytes, first - extent.dropped - back as u64)?;
    bytes.truncate(read);
    // Shorter than it was: somebody outside has cut it.
    let (before, bytes) = bytes.split_at(back.min(read));
    let within = rest_of_character(before, bytes);
    // A part that may begin anywhere begins with a whole character.
    let skipped = if from.is_none() { within } else { 0 };
    let ends = first + bytes.len() as u64;
    let cut = if goes_on || ends < end { begun_at_end(bytes) } else { 0 };
    let shown = &bytes[skipped..(bytes.len() - cut).max(skipped)];
    Ok(Piece {
        text: String::from_utf8_lossy(shown).into_owned(),
        from: first + skipped as u64,
        next: first + (skipped + shown.len()) as u64,
        starts_inside: skipped == 0 && within > 0,
    })
}

fn read_up_to(file: &File, bytes: &mut [u8], from: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], from + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// How many of the bytes belong to a character that began before them.
fn rest_of_character(before: &[u8], bytes: &[u8]) -> usize {
    let begun = begun_at_end(before);
    if begun == 0 {
        return 0;
    }
    let lacking = width(before[before.len() - begun]) - begun;
    bytes.iter().take(lacking).take_while(|byte| is_within(**byte)).count()
}

/// How many bytes at the end are the beginning of a character that isn't whole.
fn begun_at_end(bytes: &[u8]) -> usize {
    let lead = bytes.iter().rev().take(LONGEST - 1).position(|byte| !is_within(*byte));
    let Some(back) = lead.map(|at| at + 1) else { return 0 };
    if width(bytes[bytes.len() - back]) > back { back } else { 0 }
}

/// Bytes of a character, by its first (RFC 3629, 3).
fn width(lead: u8) -> usize {
    match lead {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    }
}

fn is_within(byte: u8) -> bool {
    matches!(byte, 0x80..=0xbf)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn output(most: u64) -> Output {
        Output::new(tempfile::tempfile().unwrap(), most)
    }

    fn piece(output: &Output, from: Option<u64>, most: usize, goes_on: bool) -> Piece {
        read(output.file(), &output.extent(), from, most, goes_on).unwrap()
    }

    #[test]
    fn the_last_bytes_are_kept_and_bytes_keep_their_numbers() {
        let mut output = output(100);
        for number in 0..1000u64 {
            output.push(format!("{number:09}\n").as_bytes());
            let extent = output.extent();
            assert!(extent.len <= 150, "{extent:?}");
            assert_eq!(extent.total(), (number + 1) * 10);
            assert_eq!(extent.start(), extent.end().saturating_sub(100));
        }
        assert_eq!(piece(&output, Some(9950), 10, false).text, "000000995\n");
        assert_eq!(piece(&output, Some(0), 10, false).from, 9900);
        output.finish();
        assert_eq!(output.file().metadata().unwrap().len(), 100);
        let end = piece(&output, None, 20, false);
        assert_eq!((end.text.as_str(), end.next), ("000000998\n000000999\n", 10_000));
        assert_eq!(piece(&output, Some(99_999), 20, false).from, 10_000);
    }

    #[test]
    fn what_a_full_disk_doesnt_take_is_counted() {
        // Every write to it fails with ENOSPC, full(4).
        let full = File::options().read(true).write(true).open("/dev/full").unwrap();
        let mut output = Output::new(full, 100);
        output.push(b"abc");
        output.push(b"de");
        assert_eq!(output.extent().total(), 5);
        assert_eq!(output.extent().end(), 0);
        assert!(output.why_unkept().unwrap().contains("space"), "{:?}", output.why_unkept());
    }

    #[test]
    fn characters_are_whole_where_they_can_be() {
        let mut output = output(1000);
        output.push("a€b€".as_bytes());
        let whole = |piece: Piece| (piece.text, piece.next, piece.starts_inside);
        assert_eq!(whole(piece(&output, Some(0), 3, false)), ("a".into(), 1, false));
        assert_eq!(whole(piece(&output, Some(1), 3, false)), ("€".into(), 4, false));
        assert_eq!(whole(piece(&output, Some(2), 3, false)), ("\u{fffd}\u{fffd}b".into(), 5, true));
        assert_eq!(whole(piece(&output, Some(3), 3, false)), ("\u{fffd}b".into(), 5, true));
        assert_eq!(whole(piece(&output, None, 3, false)), ("€".into(), 8, false));
        assert_eq!(whole(piece(&output, None, 2, false)), (String::new(), 8, false));
        assert_eq!(whole(piece(&output, Some(8), 9, false)), (String::new(), 8, false));
        output.push(&"€".as_bytes()[..2]);
        assert_eq!(whole(piece(&output, Some(8), 9, true)), (String::new(), 8, false));
        assert_eq!(whole(piece(&output, Some(8), 9, false)), ("\u{fffd}".into(), 10, false));
    }

    #[test]
    fn no_link_is_followed() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("background");
        std::fs::create_dir(&path).unwrap();
        std::os::unix::fs::symlink(&path, root.path().join("link")).unwrap();
        assert!(Folder::open(&root.path().join("link")).is_err());
        let folder = Folder::open(&path).unwrap();
        folder.create("a").unwrap();
        assert!(folder.file("a").is_ok() && folder.create("a").is_err());
        std::os::unix::fs::symlink("/etc/passwd", path.join("b.out")).unwrap();
        assert!(folder.file("b").is_err() && folder.create("b").is_err());
        std::fs::create_dir(path.join("c.out")).unwrap();
        assert!(folder.file("c").is_err());
        folder.remove("b").unwrap();
        folder.remove("none").unwrap();
        assert!(!path.join("b.out").is_symlink() && Path::new("/etc/passwd").exists());
    }

    proptest! {
        #[test]
        fn parts_join_up(text in "[a€😀é\n]{0,60}", cuts in 4usize..9) {
            let mut output = output(1000);
            output.push(text.as_bytes());
            let (mut joined, mut next) = (String::new(), 0);
            while next < text.len() as u64 {
                let piece = piece(&output, Some(next), cuts, false);
                prop_assert!(piece.next > next && !piece.starts_inside);
                joined += &piece.text;
                next = piece.next;
            }
            prop_assert_eq!(joined, text);
        }

        #[test]
        fn any_bytes_at_any_place_are_text(bytes: Vec<u8>, from: Option<u16>, most in 1usize..50, goes_on: bool) {
            let mut output = output(64);
            output.push(&bytes);
            let piece = piece(&output, from.map(u64::from), most, goes_on);
            prop_assert!(piece.next >= piece.from && piece.next <= bytes.len() as u64);
        }
    }
}
