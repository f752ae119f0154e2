//! A sandbox's own SSH key, kept outside under Link's settings.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ed25519_dalek::SigningKey;
use lnk_spec::shown;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest as _, Sha256};
use ssh_key::private::{Ed25519Keypair, Ed25519PrivateKey, KeypairData};
use ssh_key::public::Ed25519PublicKey;
use ssh_key::{Algorithm, LineEnding, PrivateKey};

use crate::error::{Error, Result, failed};
use crate::lock;
use crate::spec_file::read_plain;
use crate::state::Settings;

/// The private half's name, in the folder kept outside and inside alike.
pub const PRIVATE: &str = "id_ed25519";
/// Bytes of a key's file at most: an Ed25519 key has some four hundred.
const MAX_BYTES: usize = 16 * 1024;
/// How long another run may hold the lock, which takes it milliseconds.
const LOCK: Duration = Duration::from_secs(10);

/// Whose a key is: what a sandbox is known by. Never a name that a spec gives itself,
/// which any spec could give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A spec, by its real path.
    Spec(PathBuf),
    /// A write folder, by its real path, where flags alone say what is open.
    Folder(PathBuf),
    /// An agent's sandbox, by its lasting name.
    Name(String),
}

impl Owner {
    /// The flag that names it.
    #[must_use]
    pub fn flag(&self) -> String {
        match self {
            Owner::Spec(path) => format!("--spec {}", shown::word(path)),
            Owner::Folder(path) => format!("--write {}", shown::word(path)),
            Owner::Name(name) => format!("--name {}", shown::word(name)),
        }
    }

    /// A file name for it, as long for every path and no other's.
    pub(super) fn id(&self) -> String {
        let (kind, its) = match self {
            Owner::Spec(path) => ("spec", path.as_os_str()),
            Owner::Folder(path) => ("write", path.as_os_str()),
            Owner::Name(name) => ("name", OsStr::new(name)),
        };
        let hash = Sha256::new().chain_update(kind).chain_update([0]);
        let hash = hash.chain_update(its.as_bytes()).finalize();
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A sandbox's key.
#[derive(Debug)]
pub struct Key {
    key: PrivateKey,
    /// Where it is to be kept, while it isn't.
    unkept: RefCell<Option<Unkept>>,
}

/// A new key's place.
#[derive(Debug)]
struct Unkept {
    folder: PathBuf,
    owner: Owner,
    /// Until it is kept, another run makes none.
    _lock: File,
}

impl Key {
    /// The owner's key; `None` where it has none yet.
    ///
    /// # Errors
    /// Naming the file, if it can't be read or is no such key, or the folder that is
    /// somebody else's.
    pub fn find(settings: &Settings, owner: &Owner) -> Result<Option<Key>> {
        read(&settings.key_folder(&owner.id())?)
    }

    /// The owner's key; where it has none yet a new one, which [`Key::keep`] keeps. Until
    /// then, or until this is dropped, others who ask for it wait, ten seconds at most.
    ///
    /// # Errors
    /// As for [`Key::find`], and where it can't be made.
    pub fn find_or_new(settings: &Settings, owner: &Owner) -> Result<Key> {
        let folder = settings.make_key_folder(&owner.id())?;
        if let Some(key) = read(&folder)? {
            return Ok(key);
        }
        let lock = lock(&folder).map_err(failed(what(&folder)))?;
        // Another run's, made meanwhile.
        if let Some(key) = read(&folder)? {
            return Ok(key);
        }
        let key =
            new(&format!("lnk-sandbox-{}", &owner.id()[..8])).map_err(failed(what(&folder)))?;
        let unkept = Unkept { folder, owner: owner.clone(), _lock: lock };
        Ok(Key { key, unkept: RefCell::new(Some(unkept)) })
    }

    /// Keeps a new one; whether it is new.
    ///
    /// # Errors
    /// Naming the folder that it can't be written in.
    pub fn keep(&self) -> Result<bool> {
        let Some(Unkept { folder, owner, _lock }) = self.unkept.take() else { return Ok(false) };
        let what = || failed::<io::Error>(what(&folder));
        // For whoever looks which of the folders is whose.
        write(&folder, "of", (owner.flag() + "\n").as_bytes()).map_err(what())?;
        let text = self.key.to_openssh(LineEnding::LF).map_err(other).map_err(what())?;
        write(&folder, PRIVATE, text.as_bytes()).map_err(what())?;
        Ok(true)
    }

    /// The private half, as OpenSSH reads it.
    ///
    /// # Errors
    /// What ssh-key says.
    pub fn private(&self) -> io::Result<Vec<u8>> {
        let text = self.key.to_openssh(LineEnding::LF).map_err(other)?;
        Ok(text.as_bytes().to_vec())
    }

    /// The public half, one line as authorized_keys has it, without its end.
    ///
    /// # Errors
    /// What ssh-key says.
    pub fn public(&self) -> io::Result<String> {
        self.key.public_key().to_openssh().map_err(other)
    }
}

fn what(folder: &Path) -> String {
    format!("an SSH key in {}", shown::word(folder))
}

pub(super) fn other(error: ssh_key::Error) -> io::Error {
    io::Error::other(error.to_string())
}

fn new(comment: &str) -> io::Result<PrivateKey> {
    let mut seed = [0; 32];
    // Never short at this length, getrandom(2).
    while getrandom(&mut seed, GetRandomFlags::empty())? != seed.len() {}
    let public = SigningKey::from_bytes(&seed).verifying_key().to_bytes();
    let pair = Ed25519Keypair {
        public: Ed25519PublicKey(public),
        private: Ed25519PrivateKey::from_bytes(&seed),
    };
    PrivateKey::new(KeypairData::Ed25519(pair), comment).map_err(other)
}

fn read(folder: &Path) -> Result<Option<Key>> {
    let path = folder.join(PRIVATE);
    let bytes = match read_plain(&path, MAX_BYTES + 1) {
        Ok((bytes, _)) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(shown::word(&path))(error)),
    };
    let parsed = PrivateKey::from_openssh(bytes).ok();
    match parsed.filter(|key| key.algorithm() == Algorithm::Ed25519 && !key.is_encrypted()) {
        Some(key) => Ok(Some(Key { key, unkept: RefCell::default() })),
        None => Err(Error::Refused(format!(
            "{} isn't the sandbox's SSH key: remove it, and another is made",
            shown::word(&path)
        ))),
    }
}

/// Makes a file anew that only its owner reads, whole or not at all. Needs the lock.
pub(super) fn write(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = folder.join(format!("{name}.new"));
    // Whoever left one behind was killed: this one has the lock.
    match fs::unlink(&new) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = File::from(fs::open(&new, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, folder.join(name))?;
    File::open(folder)?.sync_all()
}

/// Keeps other runs from writing in the folder, until it is dropped.
pub(super) fn lock(folder: &Path) -> io::Result<File> {
    lock::take(&folder.join("lock"), LOCK)
}
