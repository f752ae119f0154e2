//! How a program starts, as the kernel sees it: Python executes each file.

#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use lnk_sandbox::programs::start::{Start, of_bytes};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// Executes `file` in each folder below this one, and prints the error's name or
/// the exit code, a line each.
const EXECUTE: &str = r"
import errno, os, sys
for folder in sorted(os.listdir(sys.argv[1])):
    os.chdir(os.path.join(sys.argv[1], folder))
    try:
        print(os.waitpid(os.posix_spawn('./file', ['./file'], {}), 0)[1])
    except OSError as e:
        print(errno.errorcode[e.errno])
";

/// What the kernel makes of each file; in its folder a name leads to a program.
fn executed(files: &[(Vec<u8>, Option<PathBuf>)]) -> Vec<String> {
    let all = tempfile::tempdir().unwrap();
    for (number, (file, program)) in files.iter().enumerate() {
        let folder = all.path().join(format!("{number:05}"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("file"), file).unwrap();
        std::fs::set_permissions(folder.join("file"), PermissionsExt::from_mode(0o755)).unwrap();
        if let Some(name) = program {
            symlink("/bin/true", folder.join(name)).unwrap();
        }
    }
    let mut python = Command::new("/usr/bin/python3");
    let output = python.args(["-c", EXECUTE]).arg(all.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Lines of the bytes that matter, of about the length that does.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop::sample::select(&b"aaaa  \t\n\0\r"[..]);
    let padding = (prop::sample::select(&b"a \0"[..]), prop_oneof![Just(0), 235..260_usize]);
    (vec(byte.clone(), 0..6), padding, vec(byte, 0..12)).prop_map(|(begin, (with, length), end)| {
        [b"#!".to_vec(), begin, vec![with; length], end].concat()
    })
}

/// Whether a NUL, or the file's end, comes where the name would begin.
fn is_empty_name(line: &[u8]) -> bool {
    let mut head = [line, &[0; 256]].concat();
    head.truncate(256);
    head[2..].iter().find(|byte| !b" \t".contains(byte)) == Some(&0)
}

#[test]
fn the_kernel_starts_the_interpreter_that_is_read() {
    let mut random = TestRunner::deterministic();
    let files: Vec<_> = (0..300)
        .map(|_| line().new_tree(&mut random).unwrap().current())
        .map(|file| match of_bytes(&file) {
            Start::Script { interpreter } => (file, Some(interpreter)),
            Start::Other => (file, None),
            Start::Elf { .. } => panic!("a script"),
        })
        .collect();
    let mut run = 0;
    for ((file, interpreter), result) in files.iter().zip(executed(&files)) {
        let line = file.escape_ascii();
        run += usize::from(interpreter.is_some());
        match interpreter {
            Some(_) => assert_eq!(result, "0", "{line}"),
            // An empty name is the working folder's.
            None if is_empty_name(file) => assert_eq!(result, "EACCES", "{line}"),
            None => assert_eq!(result, "ENOEXEC", "{line}"),
        }
    }
    assert!((50..250).contains(&run), "{run} of 300 were run");
}

#[test]
fn the_kernel_looks_for_the_loader_that_is_read() {
    let program = std::fs::read("/bin/true").unwrap();
    let Start::Elf { loader: Some(loader) } = of_bytes(&program) else {
        panic!("/bin/true is dynamic");
    };
    let loader = loader.as_os_str().as_bytes();
    let at = program.windows(loader.len()).position(|bytes| bytes == loader).unwrap();
    let change = |changes: &[(usize, &[u8])]| {
        let mut file = program.clone();
        for (at, bytes) in changes {
            file[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        file
    };
    // Fields of Elf64_Ehdr, and of the Elf64_Phdr that is PT_INTERP.
    let entry = (64..).step_by(56).find(|at| program[*at..*at + 4] == [3, 0, 0, 0]).unwrap();
    let size = |size: u64| change(&[(at, b"none\0"), (entry + 32, &size.to_le_bytes())]);
    let second = change(&[(at, b"none\0"), (entry + 56, &[3])]);
    let files = [
        ("as it is", program.clone(), "0"),
        ("missing", change(&[(at, b"none\0")]), "ENOENT"),
        ("two of them", second, "ENOENT"),
        ("not ended", change(&[(at + loader.len(), b"x")]), "ENOEXEC"),
        ("too short", size(1), "ENOEXEC"),
        ("too long", size(4097), "ENOEXEC"),
        ("no ELF class", change(&[(at, b"none\0"), (4, &[0])]), "ENOENT"),
        ("32 bits said", change(&[(at, b"none\0"), (4, &[1])]), "ENOENT"),
        ("big endian said", change(&[(at, b"none\0"), (5, &[2])]), "ENOENT"),
        ("no headers", change(&[(56, &[0, 0])]), "ENOEXEC"),
        ("too many headers", change(&[(56, &1171_u16.to_le_bytes())]), "ENOEXEC"),
        ("headers of another size", change(&[(54, &[55])]), "ENOEXEC"),
        ("an object file", change(&[(16, &[1])]), "ENOEXEC"),
        ("no ELF", change(&[(0, b"x")]), "ENOEXEC"),
    ];
    let plain: Vec<_> = files.iter().map(|(_, file, _)| (file.clone(), None)).collect();
    for ((what, file, expected), result) in files.iter().zip(executed(&plain)) {
        assert_eq!(result, *expected, "{what}");
        let read = match of_bytes(file) {
            Start::Elf { loader: Some(read) } if read == Path::new(OsStr::from_bytes(loader)) => {
                "0"
            }
            Start::Elf { loader: Some(read) } if read == Path::new("none") => "ENOENT",
            Start::Other => "ENOEXEC",
            other => panic!("{what}: {other:?}"),
        };
        assert_eq!(read, *expected, "{what}");
    }
}
