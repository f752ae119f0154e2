//! A closed copy of a loader in the loader's place: every program works, and
//! the loader by itself runs none.

#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use lnk_sandbox::programs::loader::{MISSING, closed_copy, is_loader};
use lnk_sandbox::programs::start::{Start, of_bytes, of_file};
use tempfile::TempDir;

/// A thread of Node's.
const THREAD: &str = "
    const { Worker } = require('worker_threads')
    new Worker('1', { eval: true }).on('exit', console.log)
";

/// A loader, and a folder with what the test makes, such as its closed copy.
struct Loader {
    path: PathBuf,
    folder: TempDir,
}

impl Loader {
    /// The one that a program starts with.
    fn of(program: &Path) -> Self {
        let start = of_file(&File::open(program).unwrap()).unwrap();
        let path = start.needs().expect("a dynamic program").canonicalize().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert!(is_loader(&path, &bytes), "{path:?}");
        let copy = closed_copy(&bytes).unwrap();
        assert_eq!(of_bytes(&copy), Start::Elf { loader: Some(MISSING.into()) });
        let loader = Self { path, folder: tempfile::tempdir().unwrap() };
        std::fs::write(loader.copy(), copy).unwrap();
        std::fs::set_permissions(loader.copy(), PermissionsExt::from_mode(0o755)).unwrap();
        loader
    }

    fn copy(&self) -> PathBuf {
        self.folder.path().join("copy")
    }

    /// Runs a program as it is.
    fn open(&self, arguments: &[&OsStr]) -> Output {
        output(Command::new(arguments[0]).args(&arguments[1..]))
    }

    /// Runs a program where the closed copy is in the loader's place.
    fn closed(&self, arguments: &[&OsStr]) -> Output {
        let mut bwrap = Command::new("bwrap");
        bwrap.args(["--dev-bind", "/", "/", "--ro-bind"]).arg(self.copy()).arg(&self.path);
        output(bwrap.arg("--").args(arguments))
    }

    /// The program works as ever, and the loader doesn't run it.
    fn runs(&self, arguments: &[&str]) {
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        let outside = self.open(&arguments);
        assert!(outside.status.success(), "{arguments:?}: {outside:?}");
        assert_eq!(outside, self.closed(&arguments), "{arguments:?}");
        let by_loader = [&[self.path.as_os_str()], &arguments[..]].concat();
        assert!(self.open(&by_loader).status.success(), "{by_loader:?}");
        self.refuses(&by_loader);
    }

    fn refuses(&self, arguments: &[&OsStr]) {
        let inside = self.closed(arguments);
        let said = String::from_utf8_lossy(&inside.stderr);
        assert!(!inside.status.success(), "{arguments:?}: {inside:?}");
        assert!(said.ends_with("No such file or directory\n"), "{arguments:?}: {inside:?}");
    }
}

fn output(command: &mut Command) -> Output {
    command.env("LC_ALL", "C").output().expect("it starts")
}

#[test]
fn programs_work_and_the_loader_runs_none() {
    let loader = Loader::of(Path::new("/bin/bash"));
    for arguments in [
        &["/bin/bash", "-c", "echo a | tr a b; exec /bin/sh -c 'echo c'"][..],
        &["/usr/bin/python3", "-c", "import ctypes, sqlite3, ssl; print(ssl.OPENSSL_VERSION)"],
        &["/usr/bin/perl", "-MPOSIX", "-e", "print POSIX::floor(1.5)"],
        &["/usr/bin/git", "--version"],
        &["/usr/bin/node", "-e", THREAD],
    ] {
        match Path::new(arguments[0]).exists() {
            true => loader.runs(arguments),
            false => testkit::missing(arguments[0]),
        }
    }
}

#[test]
fn the_loader_runs_no_copy_either() {
    let loader = Loader::of(Path::new("/bin/bash"));
    let program = loader.folder.path().join("program");
    std::fs::copy("/bin/true", &program).unwrap();
    loader.runs(&[program.to_str().unwrap()]);
    // Without a program, by a name of its own, and as the copy itself.
    loader.refuses(&[loader.path.as_os_str()]);
    let link = loader.folder.path().join("link");
    std::os::unix::fs::symlink(&loader.path, &link).unwrap();
    loader.refuses(&[link.as_os_str(), program.as_os_str()]);
    loader.refuses(&[loader.copy().as_os_str(), program.as_os_str()]);
}

#[test]
fn the_kernel_says_enoent() {
    let loader = Loader::of(Path::new("/bin/bash"));
    let error = Command::new(loader.copy()).arg("/bin/true").output().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    std::fs::copy(&loader.path, loader.copy()).unwrap();
    assert!(Command::new(loader.copy()).arg("/bin/true").status().unwrap().success());
}

#[test]
fn programs_of_musl_work_and_its_loader_runs_none() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("program.c");
    let program = folder.path().join("program");
    std::fs::write(
        &source,
        r#"
        #include <dlfcn.h>
        #include <pthread.h>
        #include <stdio.h>
        static void *thread(void *a) { puts("thread"); return a; }
        int main(void) {
            pthread_t t;
            if (pthread_create(&t, 0, thread, 0) || pthread_join(t, 0)) return 1;
            return printf("%s\n", dlopen(0, RTLD_NOW) ? "dlopen" : dlerror()) < 0;
        }
        "#,
    )
    .unwrap();
    let mut compiler = Command::new("musl-gcc");
    match compiler.arg("-o").args([&program, &source]).status() {
        Err(error) if error.kind() == ErrorKind::NotFound => return testkit::missing("musl-gcc"),
        built => assert!(built.unwrap().success()),
    }
    let loader = Loader::of(&program);
    assert!(loader.path.to_str().unwrap().contains("musl"), "{:?}", loader.path);
    loader.runs(&[program.to_str().unwrap()]);
}
