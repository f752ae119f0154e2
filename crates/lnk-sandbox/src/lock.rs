//! A lock on a file, waited for, but not for ever: a process may be stopped with it.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};

/// How often it's tried meanwhile.
const TRY: Duration = Duration::from_millis(5);

/// Locks the file at a path, which is made for its owner alone where it isn't there, until
/// what this gives is dropped (flock(2)). No link is followed.
///
/// # Errors
/// `TimedOut` where another process holds it for longer than `patience`; those of open(2).
pub fn take(path: &Path, patience: Duration) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::RUSR | Mode::WUSR)?);
    let give_up = Instant::now() + patience;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() > give_up => {
                let seconds = patience.as_secs();
                let why = format!("another process has held it for {seconds} seconds");
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            Err(TryLockError::WouldBlock) => thread::sleep(TRY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_at_a_time_and_another_not_for_ever_waits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let held = take(&path, Duration::ZERO).unwrap();
        assert_eq!(take(&path, Duration::ZERO).unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(held);
        take(&path, Duration::ZERO).unwrap();
        std::os::unix::fs::symlink(&path, folder.path().join("link")).unwrap();
        assert!(take(&folder.path().join("link"), Duration::ZERO).is_err());
    }
}
