//! What the kernel does with a file that it executes.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::elf::{HEAD, Header};

/// `PATH_MAX`, in bytes, with the NUL that ends the path.
const PATH_MAX: u64 = 4096;

/// How a file starts when it's executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// A script: another program reads it, the one that its `#!` names.
    Script {
        /// As it's written; from the working folder when it's relative.
        interpreter: PathBuf,
    },
    /// A program of the machine, or of another one.
    Elf {
        /// What loads it (`PT_INTERP`), as it's written; a static program has none.
        loader: Option<PathBuf>,
    },
    /// Nothing that the kernel executes by itself. What binfmt_misc has been
    /// taught isn't looked at: whoever taught it is root.
    Other,
}

impl Start {
    /// The program that is executed in the file's place, or with it.
    #[must_use]
    pub fn needs(&self) -> Option<&Path> {
        match self {
            Self::Script { interpreter } => Some(interpreter),
            Self::Elf { loader } => loader.as_deref(),
            Self::Other => None,
        }
    }
}

/// How an open file starts. At most 70 KiB of it are read, by position; anything
/// but a regular file is [`Start::Other`] and isn't read, so nothing is waited for.
///
/// # Errors
///
/// When the file can't be looked at or read.
pub fn of_file(file: &File) -> io::Result<Start> {
    if !file.metadata()?.is_file() {
        return Ok(Start::Other);
    }
    start(|offset, buffer| {
        let mut filled = 0;
        while filled < buffer.len() {
            match file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    })
}

/// How a file of these bytes starts.
#[must_use]
pub fn of_bytes(file: &[u8]) -> Start {
    let read = |offset, buffer: &mut [u8]| {
        let rest = usize::try_from(offset).ok().and_then(|offset| file.get(offset..));
        let rest = rest.unwrap_or_default();
        let filled = rest.len().min(buffer.len());
        buffer[..filled].copy_from_slice(&rest[..filled]);
        Ok(filled)
    };
    start(read).unwrap_or(Start::Other)
}

/// `read` fills the buffer with what is at the offset, as far as there is, and
/// says how much that was.
fn start(read: impl Fn(u64, &mut [u8]) -> io::Result<usize>) -> io::Result<Start> {
    let mut head = [0; HEAD];
    read(0, &mut head)?;
    if head.starts_with(b"#!") {
        return Ok(interpreter(&head)
            .map_or(Start::Other, |interpreter| Start::Script { interpreter: path(interpreter) }));
    }
    let Some(header) = Header::parse(&head) else {
        return Ok(Start::Other);
    };
    let Some(table) = read_all(&read, header.table, header.table_size)? else {
        return Ok(Start::Other);
    };
    let Some(named) = header.segments(&table).find(|segment| segment.kind == libc::PT_INTERP)
    else {
        return Ok(Start::Elf { loader: None });
    };
    // `load_elf_binary`, the same since Linux 2.6.
    let size = match named.size {
        2..=PATH_MAX => named.size as usize,
        _ => return Ok(Start::Other),
    };
    let name = read_all(&read, named.offset, size)?.unwrap_or_default();
    Ok(match name.iter().position(|byte| *byte == 0) {
        Some(end @ 1..) if name.ends_with(b"\0") => Start::Elf { loader: Some(path(&name[..end])) },
        _ => Start::Other,
    })
}

/// What a script's `#!` names: `load_script` of fs/binfmt_script.c, since Linux
/// 5.1. Spaces and tabs before the name are skipped; a space, a tab, a NUL or the
/// line's end ends it. A name that nothing ends may have lost a part: it isn't run.
fn interpreter(head: &[u8; HEAD]) -> Option<&[u8]> {
    let line = &head[2..];
    let begin = line.iter().position(|byte| !b" \t".contains(byte))?;
    let name = &line[begin..];
    let end = name.iter().position(|byte| b" \t\n\0".contains(byte))?;
    (end > 0).then(|| &name[..end])
}

/// `None` when the file hasn't all of it, or can't have: offsets are signed.
fn read_all(
    read: impl Fn(u64, &mut [u8]) -> io::Result<usize>,
    offset: u64,
    size: usize,
) -> io::Result<Option<Vec<u8>>> {
    if offset.checked_add(size as u64).is_none_or(|end| i64::try_from(end).is_err()) {
        return Ok(None);
    }
    let mut bytes = vec![0; size];
    Ok((read(offset, &mut bytes)? == size).then_some(bytes))
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// What shells ask before they read a file as a script: no NUL in the first
/// line.
#[must_use]
pub fn starts_as_text(file: &Path) -> bool {
    const LOOKED_AT: u64 = 256;
    let mut start = Vec::new();
    let read = File::open(file)
        .and_then(|file| io::Read::read_to_end(&mut io::Read::take(file, LOOKED_AT), &mut start));
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    read.is_ok() && !line.contains(&0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::programs::elf::tests::{File as Elf, real_loader};

    const PT_INTERP: u32 = libc::PT_INTERP;

    fn script(bytes: impl AsRef<[u8]>) -> Option<String> {
        match of_bytes(bytes.as_ref()) {
            Start::Script { interpreter } => {
                Some(interpreter.into_os_string().into_string().unwrap())
            }
            Start::Other => None,
            Start::Elf { .. } => panic!("no ELF file"),
        }
    }

    #[test]
    fn a_scripts_first_line() {
        let is = |line: &str, interpreter: &str| {
            assert_eq!(script(line).as_deref(), Some(interpreter), "{line:?}");
        };
        is("#!/bin/sh\n", "/bin/sh");
        is("#!/bin/sh", "/bin/sh");
        is("#! \t/usr/bin/env\tnode -x\nrest", "/usr/bin/env");
        is("#!sh -e", "sh");
        is("#!/bin/sh\r\n", "/bin/sh\r");
        is("#!\r\n", "\r");
        is("#!/bin/a\0b\n", "/bin/a");
        for nothing in ["", "#", "#!", "#!\n", "#! \t\n/bin/sh\n", "#!\0/bin/sh\n", " #!/bin/sh\n"]
        {
            assert_eq!(script(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn a_name_that_may_have_lost_a_part_isnt_run() {
        let line = |length: usize| format!("#!{}", "a".repeat(length));
        // 255 bytes and the end of the file, or of the line, are within 256.
        assert_eq!(script(line(253)), Some("a".repeat(253)));
        assert_eq!(script(line(254)), None);
        assert_eq!(script(line(253) + "\n"), Some("a".repeat(253)));
        assert_eq!(script(line(254) + "\n"), None);
        assert_eq!(script(line(253) + " argument"), Some("a".repeat(253)));
        assert_eq!(script(format!("#!/bin/sh {}", "a".repeat(999))), Some("/bin/sh".into()));
        assert_eq!(script(format!("#!{}/bin/sh\n", " ".repeat(999))), None);
    }

    #[test]
    fn the_first_loader_counts() {
        for wide in [true, false] {
            let mut elf = Elf { wide, ..Elf::shared(&[1, PT_INTERP, PT_INTERP]) };
            elf.segments[1].1 = b"/lib/first\0trail\0".to_vec();
            assert_eq!(of_bytes(&elf.bytes()), Start::Elf { loader: Some("/lib/first".into()) });
            elf.segments.drain(1..);
            assert_eq!(of_bytes(&elf.bytes()), Start::Elf { loader: None });
            elf.kind = 1;
            assert_eq!(of_bytes(&elf.bytes()), Start::Other);
        }
    }

    #[test]
    fn a_loaders_name_has_bounds() {
        let named = |name: Vec<u8>| {
            of_bytes(&Elf { segments: vec![(PT_INTERP, name)], ..Elf::shared(&[]) }.bytes())
        };
        let long = |length: usize| [vec![b'a'; length], vec![0]].concat();
        let loader = |name: Vec<u8>| Start::Elf { loader: Some(path(&name[..name.len() - 1])) };
        assert_eq!(named(long(1)), loader(long(1)));
        assert_eq!(named(long(4095)), loader(long(4095)));
        for broken in [long(4096), long(0), vec![], b"/lib/ld.so".to_vec(), b"\0\0".to_vec()] {
            assert_eq!(named(broken.clone()), Start::Other, "{} bytes", broken.len());
        }
    }

    #[test]
    fn a_file_that_ends_early_is_nothing() {
        let bytes = Elf::shared(&[PT_INTERP]).bytes();
        assert_ne!(of_bytes(&bytes), Start::Other);
        for length in 0..bytes.len() {
            assert_eq!(of_bytes(&bytes[..length]), Start::Other, "{length} bytes");
        }
    }

    #[test]
    fn only_regular_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        let fifo = folder.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
        let both = File::options().read(true).write(true).open(&fifo).unwrap();
        assert_eq!(of_file(&both).unwrap(), Start::Other);
        assert_eq!(of_file(&File::open(folder.path()).unwrap()).unwrap(), Start::Other);
        assert_eq!(
            of_file(&File::open(&file).unwrap()).unwrap(),
            Start::Script { interpreter: "/bin/sh".into() }
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_something(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = of_bytes(&bytes);
        }

        #[test]
        fn a_broken_program_is_something(
            changes in prop::collection::vec((0..800_usize, any::<u8>()), 1..8),
            length in 0..2000_usize,
        ) {
            let mut bytes = real_loader().1;
            bytes.truncate(length.max(800));
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            let _ = of_bytes(&bytes);
        }

        #[test]
        fn a_file_reads_as_its_bytes(
            name in prop::collection::vec(any::<u8>(), 0..40), wide: bool, cut in 0..30_usize,
        ) {
            let elf = Elf { wide, segments: vec![(1, vec![]), (PT_INTERP, name)], ..Elf::shared(&[]) };
            let mut bytes = elf.bytes();
            bytes.truncate(bytes.len() - cut);
            let mut file = tempfile::tempfile().unwrap();
            io::Write::write_all(&mut file, &bytes).unwrap();
            prop_assert_eq!(of_file(&file).unwrap(), of_bytes(&bytes));
        }
    }
}
