//! Where things stand in an ELF file, elf(5), as Linux reads one that it
//! executes (`fs/binfmt_elf.c`): little endian, and 64 or 32 bits by the machine
//! and the size of a program header; the class that the file claims isn't looked at.

use std::mem::{offset_of, size_of};

use libc::{Elf32_Ehdr, Elf32_Phdr, Elf64_Ehdr, Elf64_Phdr};

/// How much of a file the kernel looks at to tell what it is:
/// `BINPRM_BUF_SIZE`, since Linux 5.1.
pub const HEAD: usize = 256;

/// What the kernel reads of program headers at most, in bytes. Linux before 6.0
/// reads a page.
const MAX_TABLE: usize = 65_536;

const ET_EXEC: u64 = 2;
const ET_DYN: u64 = 3;
const EM_386: u64 = 3;
const EM_ARM: u64 = 40;

/// Offsets of the fields in use, in bytes.
struct Layout {
    table: usize,
    entry_size: usize,
    entries: usize,
    entry: Entry,
}

#[derive(Clone, Copy)]
struct Entry {
    size: usize,
    offset: usize,
    address: [usize; 2],
    file_size: usize,
    memory_size: usize,
    align: usize,
    /// Bytes of an offset, an address or a size.
    word: usize,
}

const ELF64: Layout = Layout {
    table: offset_of!(Elf64_Ehdr, e_phoff),
    entry_size: offset_of!(Elf64_Ehdr, e_phentsize),
    entries: offset_of!(Elf64_Ehdr, e_phnum),
    entry: Entry {
        size: size_of::<Elf64_Phdr>(),
        offset: offset_of!(Elf64_Phdr, p_offset),
        address: [offset_of!(Elf64_Phdr, p_vaddr), offset_of!(Elf64_Phdr, p_paddr)],
        file_size: offset_of!(Elf64_Phdr, p_filesz),
        memory_size: offset_of!(Elf64_Phdr, p_memsz),
        align: offset_of!(Elf64_Phdr, p_align),
        word: 8,
    },
};

const ELF32: Layout = Layout {
    table: offset_of!(Elf32_Ehdr, e_phoff),
    entry_size: offset_of!(Elf32_Ehdr, e_phentsize),
    entries: offset_of!(Elf32_Ehdr, e_phnum),
    entry: Entry {
        size: size_of::<Elf32_Phdr>(),
        offset: offset_of!(Elf32_Phdr, p_offset),
        address: [offset_of!(Elf32_Phdr, p_vaddr), offset_of!(Elf32_Phdr, p_paddr)],
        file_size: offset_of!(Elf32_Phdr, p_filesz),
        memory_size: offset_of!(Elf32_Phdr, p_memsz),
        align: offset_of!(Elf32_Phdr, p_align),
        word: 4,
    },
};

/// An ELF file that the kernel would load: where its program headers are.
pub struct Header {
    /// Whether it may be put anywhere in memory (`ET_DYN`): a library, a loader,
    /// and most programs.
    pub shared: bool,
    /// Where the program headers begin, in bytes.
    pub table: u64,
    /// How long they are, in bytes: never nothing, at most 64 KiB.
    pub table_size: usize,
    entry: Entry,
}

/// One program header.
pub struct Segment {
    /// `PT_INTERP` and the like.
    pub kind: u32,
    /// Where its content begins in the file, in bytes.
    pub offset: u64,
    /// How much the file has of it, in bytes.
    pub size: u64,
}

impl Header {
    /// Reads the first [`HEAD`] bytes of a file; a shorter file's are followed by zeros.
    pub fn parse(head: &[u8; HEAD]) -> Option<Self> {
        let kind = uint(head, offset_of!(Elf64_Ehdr, e_type), 2)?;
        if !head.starts_with(b"\x7fELF") || ![ET_EXEC, ET_DYN].contains(&kind) {
            return None;
        }
        let layout = layout(head)?;
        let entries = usize::try_from(uint(head, layout.entries, 2)?).ok()?;
        let table_size = entries * layout.entry.size;
        (1..=MAX_TABLE).contains(&table_size).then_some(Self {
            shared: kind == ET_DYN,
            table: uint(head, layout.table, layout.entry.word)?,
            table_size,
            entry: layout.entry,
        })
    }

    /// The program headers, from the bytes that are [there](Self::table).
    pub fn segments(&self, table: &[u8]) -> impl Iterator<Item = Segment> {
        let entry = self.entry;
        table.chunks_exact(entry.size).filter_map(move |bytes| {
            Some(Segment {
                kind: u32::try_from(uint(bytes, offset_of!(Elf64_Phdr, p_type), 4)?).ok()?,
                offset: uint(bytes, entry.offset, entry.word)?,
                size: uint(bytes, entry.file_size, entry.word)?,
            })
        })
    }

    /// Writes `segment` over the program header of this index; it is for the
    /// kernel alone, and loaded nowhere. `None` when the table has no such
    /// header, or a number doesn't fit into one of 32 bits.
    pub fn replace(&self, table: &mut [u8], index: usize, segment: &Segment) -> Option<()> {
        let entry = self.entry;
        let bytes = table.chunks_exact_mut(entry.size).nth(index)?;
        put(bytes, offset_of!(Elf64_Phdr, p_type), 4, segment.kind.into())?;
        put(bytes, entry.offset, entry.word, segment.offset)?;
        for address in entry.address {
            put(bytes, address, entry.word, 0)?;
        }
        put(bytes, entry.file_size, entry.word, segment.size)?;
        put(bytes, entry.memory_size, entry.word, segment.size)?;
        put(bytes, entry.align, entry.word, 1)
    }
}

/// A 64-bit kernel gives a file to the reader of its own class first, which goes
/// by the machine, and by the size of a program header: x32 has the small one.
fn layout(head: &[u8]) -> Option<Layout> {
    let machine = uint(head, offset_of!(Elf64_Ehdr, e_machine), 2)?;
    let fits = |layout: &Layout| {
        uint(head, layout.entry_size, 2).is_some_and(|size| size == layout.entry.size as u64)
    };
    let wide = Some(ELF64).filter(|_| ![EM_386, EM_ARM].contains(&machine));
    wide.filter(fits).or(Some(ELF32).filter(fits))
}

fn uint(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let mut number = [0; 8];
    number.get_mut(..size)?.copy_from_slice(bytes.get(at..)?.get(..size)?);
    Some(u64::from_le_bytes(number))
}

fn put(bytes: &mut [u8], at: usize, size: usize, number: u64) -> Option<()> {
    let number = number.to_le_bytes();
    let (number, rest) = number.split_at_checked(size)?;
    if rest.iter().any(|byte| *byte != 0) {
        return None;
    }
    bytes.get_mut(at..)?.get_mut(..size)?.copy_from_slice(number);
    Some(())
}

/// Small files for the tests of what reads them.
#[cfg(test)]
pub mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A file of a header, program headers and content.
    #[derive(Clone)]
    pub struct File {
        pub wide: bool,
        pub kind: u16,
        pub machine: u16,
        /// `p_type` of each program header, and what it refers to.
        pub segments: Vec<(u32, Vec<u8>)>,
    }

    impl File {
        pub fn shared(kinds: &[u32]) -> Self {
            let segments = kinds.iter().map(|kind| (*kind, b"/lib/ld.so\0".to_vec())).collect();
            Self { wide: true, kind: ET_DYN as u16, machine: 62, segments }
        }

        pub fn header_size(&self) -> usize {
            if self.wide { size_of::<Elf64_Ehdr>() } else { size_of::<Elf32_Ehdr>() }
        }

        pub fn entry_size(&self) -> usize {
            self.layout().entry.size
        }

        fn layout(&self) -> Layout {
            if self.wide { ELF64 } else { ELF32 }
        }

        pub fn bytes(&self) -> Vec<u8> {
            let layout = self.layout();
            let mut bytes = vec![0; self.header_size() + self.segments.len() * layout.entry.size];
            bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
            let mut set =
                |at, size, number: usize| put(&mut bytes, at, size, number as u64).unwrap();
            set(offset_of!(Elf64_Ehdr, e_type), 2, self.kind.into());
            set(offset_of!(Elf64_Ehdr, e_machine), 2, self.machine.into());
            set(layout.table, layout.entry.word, self.header_size());
            set(layout.entry_size, 2, layout.entry.size);
            set(layout.entries, 2, self.segments.len());
            let mut content = Vec::new();
            for (index, (kind, its)) in self.segments.iter().enumerate() {
                let at = self.header_size() + index * layout.entry.size;
                let offset =
                    self.header_size() + self.segments.len() * layout.entry.size + content.len();
                set(at, 4, *kind as usize);
                set(at + layout.entry.offset, layout.entry.word, offset);
                set(at + layout.entry.file_size, layout.entry.word, its.len());
                content.extend_from_slice(its);
            }
            bytes.extend(content);
            bytes
        }
    }

    /// The loader of this system's programs.
    pub fn real_loader() -> (PathBuf, Vec<u8>) {
        let shell = std::fs::File::open("/bin/sh").unwrap();
        let start = crate::programs::start::of_file(&shell).unwrap();
        let path = start.needs().expect("/bin/sh is dynamic").canonicalize().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        (path, bytes)
    }
}
