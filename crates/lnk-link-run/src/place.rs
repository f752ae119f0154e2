//! Where commands run: the folders of an agent, or a folder of any other client's.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::quoted::quoted;
use lnk_sandbox::error::reason;
use lnk_sandbox::{Caller, Inner, Request, shown};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use sha2::{Digest as _, Sha256};

/// What a server was started for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// An agent, by its name.
    Agent(String),
    /// Any other client, with a folder and perhaps a spec.
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The spec.
        spec: Option<PathBuf>,
        /// The process id of the server, after which its sandboxes are called.
        server: u32,
    },
}

/// The folders of one server's commands. Paths are real.
#[derive(Clone, Debug)]
pub struct Place {
    /// What the server was started for.
    pub whose: Whose,
    /// The files folder. Programs read it and run in it.
    pub files: PathBuf,
    /// The spec's file, where there is one.
    pub spec: Option<PathBuf>,
    /// The programs that may run where there is no spec.
    pub usual: Vec<String>,
    /// An agent's own folder, with its instructions and `chats/`.
    own: Option<PathBuf>,
    /// An agent's home.
    home: Option<PathBuf>,
    /// An agent's `Config/`, which no sandbox sees.
    config: Option<PathBuf>,
}

impl Place {
    /// Finds the folders. Those that a server makes are made by [`Place::make`].
    ///
    /// # Errors
    /// A line that names the folder which isn't there, or the agent's name if it is
    /// none.
    pub fn find(whose: Whose, caller: &Caller) -> Result<Place, String> {
        match &whose {
            Whose::Agent(name) => Place::of_agent(name.clone(), caller),
            Whose::Folder { folder, spec, .. } => {
                let files = real_folder("--folder", &caller.cwd.join(folder))?;
                let spec = spec.as_ref().map(|spec| caller.cwd.join(spec));
                Ok(Place::of_folder(whose, files, spec))
            }
        }
    }

    /// The place of a client with a folder, a real path, and perhaps a spec.
    #[must_use]
    pub fn of_folder(whose: Whose, files: PathBuf, spec: Option<PathBuf>) -> Place {
        Place { whose, files, spec, usual: Vec::new(), own: None, home: None, config: None }
    }

    fn of_agent(name: String, caller: &Caller) -> Result<Place, String> {
        refuse_other_than_name(&name)?;
        let agent = agents_folder(&name, caller)?;
        let own = |part: &str| real_folder("--agent", &agent.join(part));
        let config = agent.join("Config");
        let spec = config.join("sandbox.toml");
        // One that can't be read is an error later, not none.
        let is_missing =
            fs::symlink_metadata(&spec).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        let spec = (!is_missing).then_some(spec);
        Ok(Place {
            files: own("Files")?,
            own: Some(own("Agent")?),
            home: Some(own("Home")?),
            spec,
            config: Some(config),
            usual: Vec::new(),
            whose: Whose::Agent(name),
        })
    }

    /// Makes what is missing of an agent's folders, and `work/` and `background/` in
    /// the files folder.
    ///
    /// # Errors
    /// A line that names the folder which can't be made.
    pub fn make(whose: &Whose, caller: &Caller) -> Result<(), String> {
        if let Whose::Agent(name) = whose {
            refuse_other_than_name(name)?;
            let agent = agents_folder(name, caller)?;
            for part in ["Agent/chats", "Files", "Home"] {
                make_folders(&agent, part)?;
            }
        }
        let place = Place::find(whose.clone(), caller)?;
        let made = make_folders(&place.files, "work")
            .and_then(|()| make_folders(&place.files, "background"));
        made.map_err(|why| match whose {
            Whose::Agent(_) => why,
            Whose::Folder { .. } => format!("--folder {}: {why}", shown::word(&place.files)),
        })
    }

    /// Where programs write unless a spec lets them write elsewhere.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.files.join("work")
    }

    /// Where the output of background commands is, read only inside.
    #[must_use]
    pub fn background(&self) -> PathBuf {
        self.files.join("background")
    }

    /// Whether the spec is the agent's own, in `Config/`, where its user put it and no
    /// sandbox writes: it runs unasked.
    #[must_use]
    pub fn is_agents(&self) -> bool {
        self.config.is_some()
    }

    /// The agent's spec, `Config/agent.toml`, which may not be there.
    #[must_use]
    pub fn agent_toml(&self) -> Option<PathBuf> {
        self.config.as_ref().map(|config| config.join("agent.toml"))
    }

    /// The name of the folder in which Link keeps what belongs to this place: the
    /// agent's name, or a hash of the folder's real path.
    #[must_use]
    pub fn id(&self) -> String {
        match &self.whose {
            Whose::Agent(name) => name.clone(),
            Whose::Folder { .. } => {
                let hash = Sha256::digest(self.files.as_os_str().as_encoded_bytes());
                // Not a name that an agent can have.
                format!(
                    "folder_{}",
                    hash[..16].iter().map(|b| format!("{b:02x}")).collect::<String>()
                )
            }
        }
    }

    /// The name of its sandboxes.
    #[must_use]
    pub fn sandbox(&self) -> String {
        match &self.whose {
            Whose::Agent(name) => format!("{name}-run"),
            Whose::Folder { server, .. } => format!("run-{server}"),
        }
    }

    /// What a request for one of its sandboxes has besides what the spec says. An
    /// agent's folders are its own; any other client's is opened as by flags, so that it
    /// can't be one which no flag opens.
    #[must_use]
    pub fn opened_in(&self, request: Request) -> Request {
        let name = self.sandbox();
        let keep = self.own.iter().map(|own| own.join("chats")).chain([self.background()]);
        let inner = Inner { name, keep: keep.collect(), ..Inner::default() };
        let (files, work) = (self.files.clone(), self.work());
        let folders = [&self.own, &self.home].into_iter().flatten().cloned();
        if let Whose::Folder { .. } = self.whose {
            let read = [request.read, vec![files]].concat();
            let write = [request.write, vec![work]].concat();
            return Request { read, write, inner: Some(inner), ..request };
        }
        let read = folders.chain([files]).collect();
        let inner = Inner { read, write: vec![work], home: self.home.clone(), ..inner };
        Request { inner: Some(inner), ..request }
    }

    /// The words that tell a supervisor the same place.
    #[must_use]
    pub fn words(&self) -> Vec<OsString> {
        let word = |flag: &str, path: &Path| {
            let mut word = OsString::from(flag);
            word.push(path);
            word
        };
        let mut words = match &self.whose {
            Whose::Agent(name) => vec![format!("--agent={name}").into()],
            Whose::Folder { .. } => vec![word("--folder=", &self.files)],
        };
        if !self.is_agents() {
            words.extend(self.spec.iter().map(|spec| word("--spec=", spec)));
        }
        if !self.usual.is_empty() {
            words.push(format!("--usual={}", self.usual.join(",")).into());
        }
        words
    }

    /// The real path of the folder that a command is to run in: the files folder where
    /// none is given, else one in it.
    ///
    /// # Errors
    /// A line for one that leaves the files folder, by `..`, a link or an absolute
    /// path, or isn't there.
    pub fn folder(&self, given: Option<&str>) -> Result<PathBuf, String> {
        let given = given.unwrap_or(".");
        if given.contains('\0') {
            return Err("folder: it has a NUL byte in it, which no path can have".into());
        }
        let typed = Path::new(given);
        // From its own absolute path it is the same folder.
        let below = typed.strip_prefix(&self.files).unwrap_or(typed);
        let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        let refused = |error: rustix::io::Errno| {
            let why = match error {
                rustix::io::Errno::XDEV | rustix::io::Errno::LOOP => format!(
                    "it leads out of the files folder: give one in {}, such as work",
                    shown::word(&self.files)
                ),
                rustix::io::Errno::NOTDIR => "it isn't a folder".into(),
                rustix::io::Errno::NOENT => "there is no such folder in the files folder".into(),
                other => reason(&other.into()),
            };
            format!("folder {}: {why}", quoted(given))
        };
        let files = open_folder(&self.files).map_err(refused)?;
        let folder = openat2(
            &files,
            below,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
        )
        .map_err(refused)?;
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&folder));
        fs::read_link(link).map_err(|error| format!("folder {}: {}", quoted(given), reason(&error)))
    }
}

fn open_folder(path: &Path) -> Result<std::os::fd::OwnedFd, rustix::io::Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
}

/// An agent's name is one folder's name, and part of its sandboxes'.
fn refuse_other_than_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=32).contains(&name.len()) && name.bytes().all(plain) {
        return Ok(());
    }
    Err(format!(
        "--agent {}: an agent's name has 1 to 32 of a-z, 0-9 and -",
        shown::word(Path::new(name))
    ))
}

/// The caller's home folder.
///
/// # Errors
/// The rest of a line for one that isn't set, or not to a path from `/`.
pub fn home(caller: &Caller) -> Result<PathBuf, String> {
    let home = caller.var("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    let home = home.ok_or("HOME isn't set, so you have no home folder: set it to yours")?;
    match home.is_absolute() {
        true => Ok(home),
        false => Err(format!("HOME is {}: set it to a path from /", shown::word(&home))),
    }
}

fn agents_folder(name: &str, caller: &Caller) -> Result<PathBuf, String> {
    let agent = home(caller)
        .map_err(|why| format!("--agent {name}: {why}"))?
        .join("Link/Agents")
        .join(name);
    if fs::metadata(&agent).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Err(format!(
            "--agent {name}: there is no such agent; make its folder first: mkdir -p {}",
            shown::word(agent.join("Config"))
        ));
    }
    real_folder("--agent", &agent)
}

/// The real path of what is a folder.
pub(crate) fn real_folder(flag: &str, path: &Path) -> Result<PathBuf, String> {
    let failed = |error: io::Error| {
        let shown = shown::word(path);
        match error.kind() {
            io::ErrorKind::NotFound => {
                format!("{flag} {shown}: there is no such folder; make it first: mkdir -p {shown}")
            }
            _ => format!("{flag} {shown}: {}", reason(&error)),
        }
    };
    let real = fs::canonicalize(path).map_err(failed)?;
    if !real.is_dir() {
        return Err(format!("{flag} {}: it isn't a folder", shown::word(path)));
    }
    Ok(real)
}

/// Makes the folders of a path below one, where they are missing. Links on the way
/// are refused: a program could have put them there.
fn make_folders(below: &Path, path: &str) -> Result<(), String> {
    let mut folder = below.to_path_buf();
    for part in Path::new(path).components() {
        folder.push(part);
        match fs::DirBuilder::new().mode(0o755).create(&folder) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(format!(
                    "{} can't be made: {}; give a folder that you may write, or make it yourself",
                    shown::word(&folder),
                    reason(&error)
                ));
            }
        }
        let is_folder = fs::symlink_metadata(&folder).is_ok_and(|it| it.is_dir());
        if !is_folder {
            return Err(format!(
                "{} has to be a folder, not a link or a file: move it away",
                shown::word(&folder)
            ));
        }
    }
    Ok(())
}
