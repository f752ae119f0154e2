//! Loaders of programs (ld.so(8)), which run any program they are given.
//!
//! A listed program needs its loader, so the loader has to be executable inside;
//! but `ld.so ./anything` would execute what isn't listed, for a loader only maps
//! files. In its place inside there is a copy that the kernel doesn't execute by
//! itself: it has a loader of its own to start with, which is missing. As the
//! loader of another program it works as ever, for there the kernel doesn't look
//! at that header (`load_elf_binary`, fs/binfmt_elf.c), and the loader neither.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libc::{PT_GNU_EH_FRAME, PT_INTERP, PT_NOTE};

use super::elf::{HEAD, Header, Segment};
use super::start::{self, Start};

/// What a closed copy starts with: nothing, in a folder where the sandbox can't
/// write, so that executing it fails with `ENOENT`.
pub const MISSING: &str = "/run/lnk/the loader runs no program";

/// Not in libc; `include/uapi/linux/elf.h`, Linux 5.8.
const PT_GNU_PROPERTY: u32 = 0x6474_e553;

/// Headers that a loader does without, the least missed first: the properties of
/// an ARM loader turn on a protection (BTI), and its frames are for exceptions.
/// Never `PT_GNU_STACK`, which says that the stack isn't executable.
const SPARE: [u32; 3] = [PT_NOTE, PT_GNU_PROPERTY, PT_GNU_EH_FRAME];

/// Why there is no closed copy of a loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unpatchable {
    /// Nothing that the kernel would take for a loader.
    #[error("it's no shared object")]
    NotShared,
    /// A program, or a library that can be run, such as glibc's libc.so.6.
    #[error("it has a loader itself")]
    HasLoader,
    /// Every program header of it is needed.
    #[error("it has no spare program header")]
    NoSpareHeader,
}

/// A copy of a loader that works as the loader of programs, and that the kernel
/// doesn't execute: execve(2) says `ENOENT`. It's some bytes longer; besides, a
/// single program header differs.
///
/// # Errors
///
/// When the file isn't a loader, or there is no way to make one of it.
pub fn closed_copy(loader: &[u8]) -> Result<Vec<u8>, Unpatchable> {
    let (header, range) = table(loader).ok_or(Unpatchable::NotShared)?;
    let kinds: Vec<_> =
        header.segments(&loader[range.clone()]).map(|segment| segment.kind).collect();
    if kinds.contains(&PT_INTERP) {
        return Err(Unpatchable::HasLoader);
    }
    let spare = SPARE
        .iter()
        .find_map(|spare| kinds.iter().position(|kind| kind == spare))
        .ok_or(Unpatchable::NoSpareHeader)?;

    let name = [MISSING.as_bytes(), b"\0"].concat();
    let named = Segment { kind: PT_INTERP, offset: loader.len() as u64, size: name.len() as u64 };
    let mut copy = [loader, &name].concat();
    header.replace(&mut copy[range], spare, &named).ok_or(Unpatchable::NotShared)?;
    // What this is for, as the kernel will read it: in a broken file the headers
    // may lie over one another.
    let closed = Start::Elf { loader: Some(MISSING.into()) };
    (start::of_bytes(&copy) == closed).then_some(copy).ok_or(Unpatchable::NotShared)
}

/// Whether an executable file is a loader: by its name, and by `head`, its first
/// bytes (4 KiB hold every program header of those there are). A closed copy
/// isn't one: it has a loader.
#[must_use]
pub fn is_loader(path: &Path, head: &[u8]) -> bool {
    path.file_name().is_some_and(is_loaders_name)
        && Header::parse(&padded(head)).is_some_and(|header| {
            let table = usize::try_from(header.table).ok().and_then(|table| head.get(table..));
            let table = table.unwrap_or_default();
            let table = &table[..table.len().min(header.table_size)];
            header.shared && header.segments(table).all(|segment| segment.kind != PT_INTERP)
        })
}

/// `ld-linux-x86-64.so.2`, `ld-2.31.so`, `ld64.so.2`, `ld.so`, and musl's
/// `ld-musl-x86_64.so.1`, `libc.so` and `libc.musl-x86_64.so.1`.
fn is_loaders_name(name: &OsStr) -> bool {
    let name = name.as_bytes();
    if name == b"libc.so" {
        return true;
    }
    let after = |prefix: &[u8]| name.strip_prefix(prefix);
    after(b"ld.so").or_else(|| after(b"ld64.so")).is_some()
        || [&b"ld-"[..], b"ld64-", b"libc.musl-"]
            .iter()
            .filter_map(|prefix| after(prefix))
            .any(|rest| rest.windows(3).any(|part| part == b".so"))
}

/// The header of a shared object, and where in it its program headers are.
fn table(file: &[u8]) -> Option<(Header, Range<usize>)> {
    let header = Header::parse(&padded(file)).filter(|header| header.shared)?;
    let begin = usize::try_from(header.table).ok()?;
    let range = begin..begin.checked_add(header.table_size)?;
    file.get(range.clone())?;
    Some((header, range))
}

fn padded(file: &[u8]) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    let known = file.len().min(HEAD);
    head[..known].copy_from_slice(&file[..known]);
    head
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::programs::elf::tests::{File, real_loader};

    const PT_GNU_STACK: u32 = libc::PT_GNU_STACK;

    #[test]
    fn one_header_becomes_the_missing_loader() {
        for wide in [true, false] {
            for (kinds, spare) in [
                (vec![1, PT_GNU_EH_FRAME, PT_GNU_PROPERTY, PT_NOTE, PT_NOTE], 3),
                (vec![PT_GNU_EH_FRAME, PT_GNU_PROPERTY], 1),
                (vec![PT_GNU_STACK, 1, PT_GNU_EH_FRAME], 2),
            ] {
                let file = File { wide, ..File::shared(&kinds) };
                let bytes = file.bytes();
                let copy = closed_copy(&bytes).unwrap();
                assert_eq!(start::of_bytes(&bytes), Start::Elf { loader: None });
                assert_eq!(start::of_bytes(&copy), Start::Elf { loader: Some(MISSING.into()) });

                let header = file.header_size()..bytes.len();
                let changed: Vec<usize> =
                    (0..bytes.len()).filter(|at| bytes[*at] != copy[*at]).collect();
                let entry = header.start + spare * file.entry_size();
                assert!(changed.iter().all(|at| (entry..entry + file.entry_size()).contains(at)));
                assert_eq!(copy.len(), bytes.len() + MISSING.len() + 1);
            }
        }
    }

    #[test]
    fn what_cant_be_closed_says_why() {
        let whole = File::shared(&[1, PT_NOTE]);
        let program = File { kind: 2, ..whole.clone() };
        let stack = File::shared(&[1, PT_GNU_STACK]);
        let starts = File::shared(&[1, PT_INTERP, PT_NOTE]);
        assert!(closed_copy(&whole.bytes()).is_ok());
        assert_eq!(closed_copy(&program.bytes()), Err(Unpatchable::NotShared));
        assert_eq!(closed_copy(&stack.bytes()), Err(Unpatchable::NoSpareHeader));
        assert_eq!(closed_copy(&starts.bytes()), Err(Unpatchable::HasLoader));
        assert_eq!(closed_copy(b"#!/bin/sh\n"), Err(Unpatchable::NotShared));
        assert_eq!(closed_copy(b""), Err(Unpatchable::NotShared));
        let headers = whole.header_size() + 2 * whole.entry_size();
        assert!(closed_copy(&whole.bytes()[..headers]).is_ok());
        assert_eq!(closed_copy(&whole.bytes()[..headers - 1]), Err(Unpatchable::NotShared));
        let again = closed_copy(&whole.bytes()).unwrap();
        assert_eq!(closed_copy(&again), Err(Unpatchable::HasLoader));
    }

    #[test]
    fn headers_over_the_files_own_header_are_refused() {
        let mut bytes = File::shared(&[PT_NOTE]).bytes();
        // The only program header lies over where the program headers are said to be.
        bytes[20..24].copy_from_slice(&PT_NOTE.to_le_bytes());
        bytes[32] = 20;
        assert_eq!(start::of_bytes(&bytes), Start::Elf { loader: None });
        assert_eq!(closed_copy(&bytes), Err(Unpatchable::NotShared));
    }

    #[test]
    fn a_loader_is_known_by_name_and_content() {
        let loader = File::shared(&[1, PT_NOTE]).bytes();
        let library = File::shared(&[1, PT_INTERP]).bytes();
        let program = File { kind: 2, ..File::shared(&[1]) }.bytes();
        for name in [
            "ld-linux-x86-64.so.2",
            "ld-linux-aarch64.so.1",
            "ld-2.31.so",
            "ld.so",
            "ld.so.1",
            "ld64.so.2",
            "ld64-uClibc.so.1",
            "ld-musl-x86_64.so.1",
            "libc.so",
            "libc.musl-x86_64.so.1",
        ] {
            let path = Path::new("/lib").join(name);
            assert!(is_loader(&path, &loader), "{name}");
            assert!(!is_loader(&path, &library), "{name}, with a loader");
            assert!(!is_loader(&path, &program), "{name}, a program");
            assert!(!is_loader(&path, b"/* GNU ld script */"), "{name}, a text");
            assert!(!is_loader(&path, &closed_copy(&loader).unwrap()), "{name}, closed");
        }
        for name in ["ld", "ld.gold", "ldd", "ld-tool", "libc.so.6", "libc.so.bak", "lld.so", "sh"]
        {
            assert!(!is_loader(&Path::new("/usr/bin").join(name), &loader), "{name}");
        }
    }

    #[test]
    fn this_systems_loader_is_one_and_can_be_closed() {
        let (path, bytes) = real_loader();
        assert!(is_loader(&path, &bytes[..4096]));
        assert_eq!(
            start::of_bytes(&closed_copy(&bytes).unwrap()),
            Start::Elf { loader: Some(MISSING.into()) }
        );
    }

    fn closes_or_says_why(bytes: &[u8]) {
        let _ = is_loader(Path::new("ld.so"), bytes);
        if let Ok(copy) = closed_copy(bytes) {
            assert_eq!(start::of_bytes(bytes), Start::Elf { loader: None });
            assert_eq!(start::of_bytes(&copy), Start::Elf { loader: Some(MISSING.into()) });
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_closed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            closes_or_says_why(&bytes);
        }

        #[test]
        fn a_broken_loader_is_closed_or_refused(
            changes in prop::collection::vec((0..800_usize, any::<u8>()), 1..8),
            length in 0..2000_usize,
        ) {
            let mut bytes = real_loader().1;
            bytes.truncate(length.max(800));
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            closes_or_says_why(&bytes);
        }

        #[test]
        fn any_headers_are_closed_or_refused(
            kinds in prop::collection::vec(prop::sample::select(
                &[1, PT_INTERP, PT_NOTE, PT_GNU_PROPERTY, PT_GNU_EH_FRAME, PT_GNU_STACK][..]), 1..6),
            wide: bool,
        ) {
            let bytes = File { wide, ..File::shared(&kinds) }.bytes();
            closes_or_says_why(&bytes);
            let closed = closed_copy(&bytes);
            if kinds.contains(&PT_INTERP) {
                prop_assert_eq!(closed, Err(Unpatchable::HasLoader));
            } else {
                prop_assert_eq!(closed.is_ok(), kinds.iter().any(|kind| SPARE.contains(kind)));
            }
        }
    }
}
