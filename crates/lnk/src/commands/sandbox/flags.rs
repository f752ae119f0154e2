//! The flags that say the same as a spec's keys, for every command that takes
//! grants.

use std::ffi::{OsStr, OsString};

use clap::builder::{OsStringValueParser, TypedValueParser};
use lnk_sandbox::nearest::nearest;
use lnk_sandbox::spec::Spec;
use lnk_sandbox::spec::endpoint::Endpoint;
use lnk_sandbox::spec::host::HostPattern;
use lnk_sandbox::spec::internet::InternetHost;
use lnk_sandbox::spec::lan::LanHost;
use lnk_sandbox::spec::name::ToolName;
use lnk_sandbox::spec::number::{Port, Rate};
use lnk_sandbox::spec::path::SpecPath;
use lnk_sandbox::spec::program::Program;
use lnk_sandbox::spec::upstream::Upstream;

use crate::error::{CommandError, Result};

const RUN_A_PROGRAM: &str = "Run a program in the sandbox";
/// The heading of the flags that are about a spec's file.
pub const A_SPEC: &str = "Describe a sandbox in a file";
const LET_IT_COMMIT: &str = "Let it commit";
const PROGRAMS: &str = "Choose the programs it may run";
const INTERNET: &str = "Give it the internet through Link's proxy";
const NETWORK: &str = "Reach your network";
const MODELS: &str = "Let it use a model";
const TOOLS: &str = "Call a tool that runs outside";
const BROWSER: &str = "Open a page in your browser";

/// What `--allow` gives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Permission {
    /// The home folder to read, as `--read '~'` does.
    ReadHome,
    /// This machine's own network, without a wire. No spec says it.
    Network,
}

/// What `--allow` takes; nothing where this version doesn't have it.
const PERMISSIONS: [(&str, Option<Permission>); 5] = [
    ("read-home", Some(Permission::ReadHome)),
    ("network", Some(Permission::Network)),
    ("open", None),
    ("localhost", None),
    ("developer-tools", None),
];

/// What others call a network.
const NETWORKS: [&str; 5] = ["net", "internet", "lan", "web", "all"];

// No doc comment: it would take the place of the command's.
#[derive(clap::Args, Default)]
pub struct Flags {
    /// A folder or file it may only read; '~' is your whole home folder
    ///
    /// '~' is your home folder but for Link's settings and agents' folders.
    /// Repeat it for more.
    #[arg(long, value_name = "PATH", value_parser = path(), help_heading = RUN_A_PROGRAM, verbatim_doc_comment)]
    read: Vec<SpecPath>,

    /// A folder or file it may read and write
    ///
    /// Dot files at the top of the folder that would run outside the sandbox,
    /// such as .git and .envrc, stay read-only. Repeat it for more.
    #[arg(long, value_name = "PATH", value_parser = path(), help_heading = RUN_A_PROGRAM, verbatim_doc_comment)]
    write: Vec<SpecPath>,

    /// A folder or file it may never touch, even inside an open one
    ///
    /// But for the --read and --write folders inside it. Repeat it for more.
    #[arg(long, value_name = "PATH", value_parser = path(), help_heading = RUN_A_PROGRAM, verbatim_doc_comment)]
    hide: Vec<SpecPath>,

    /// A port of this machine's loopback that it may connect to
    #[arg(long, value_name = "PORT", help_heading = RUN_A_PROGRAM)]
    port: Vec<Port>,

    /// A --write folder whose .git, .envrc and the like it may change too
    ///
    /// What is written there runs as you, outside the sandbox, the next time you
    /// run git, cd into the folder or open it in your editor. Repeat it for more.
    #[arg(long, value_name = "PATH", value_parser = path(), help_heading = LET_IT_COMMIT, verbatim_doc_comment)]
    write_dot_files: Vec<SpecPath>,

    /// A program it may run: a name, a path, a folder ending in /, or '*'
    ///
    /// With one, no other program runs. Repeat it for more.
    #[arg(long, value_name = "PROGRAM", value_parser = program(), help_heading = PROGRAMS, verbatim_doc_comment)]
    command: Vec<Program>,

    /// A host it may reach; '*.x' for every name under x, '*' for any host
    #[arg(long, value_name = "HOST", help_heading = INTERNET)]
    internet_host: Vec<InternetHost>,

    /// An endpoint of its hosts beyond HTTPS on 443 and HTTP on 80
    ///
    /// Such as github.com:22, or '*.abc.mongodb.net:27017' for every name under
    /// one domain. Its host must be one that --internet-host or --lan-host opens.
    /// Programs reach it by its own name and port. Repeat it for more.
    #[arg(long, value_name = "HOST:PORT", help_heading = INTERNET, verbatim_doc_comment)]
    tcp: Vec<Endpoint>,

    /// Where connections leave from: direct, or socks5://127.0.0.1:PORT
    ///
    /// With socks5h:// the proxy gets names and resolves them, unseen here.
    #[arg(long, value_name = "UPSTREAM", help_heading = INTERNET, verbatim_doc_comment)]
    upstream: Option<Upstream>,

    /// The most calls it may make within a minute
    #[arg(long, value_name = "CALLS", help_heading = INTERNET)]
    per_minute: Option<Rate>,

    /// A machine of your network: a name, an address, a range, or '*'
    #[arg(long, value_name = "HOST", help_heading = NETWORK)]
    lan_host: Vec<LanHost>,

    /// A port of a local model runtime, for inference only
    #[arg(long, value_name = "PORT", help_heading = MODELS)]
    model: Vec<Port>,

    /// A tool it may call, by the name it was added under
    #[arg(long, value_name = "NAME", help_heading = TOOLS)]
    tool: Vec<ToolName>,

    /// A host whose https:// pages it may ask to open; '*' for any
    #[arg(long, value_name = "HOST", help_heading = BROWSER)]
    browser_host: Vec<HostPattern>,

    /// A permission by name
    #[arg(long, value_name = "NAME", hide = true)]
    allow: Vec<OsString>,

    /// The internet, any host
    #[arg(long, hide = true)]
    proxy: bool,
}

fn path() -> impl TypedValueParser<Value = SpecPath> {
    OsStringValueParser::new().try_map(|typed| SpecPath::try_from(typed.as_os_str()))
}

fn program() -> impl TypedValueParser<Value = Program> {
    OsStringValueParser::new().try_map(|typed| Program::try_from(typed.as_os_str()))
}

impl Flags {
    /// Whether they give this machine's own network, which no spec says.
    pub fn share_network(&self) -> Result<bool> {
        if !self.has(Permission::Network)? {
            return Ok(false);
        }
        match self.limits_network() {
            Some(flag) => Err(CommandError::Because(format!(
                "{flag} and --allow network contradict each other: the latter is this machine's \
                 whole network, without a proxy; leave one out"
            ))),
            None => Ok(true),
        }
    }

    /// A flag that names a part of the network.
    fn limits_network(&self) -> Option<&'static str> {
        let flags = [
            ("--internet-host", !self.internet_host.is_empty()),
            ("--proxy", self.proxy),
            ("--tcp", !self.tcp.is_empty()),
            ("--upstream", self.upstream.is_some()),
            ("--per-minute", self.per_minute.is_some()),
            ("--lan-host", !self.lan_host.is_empty()),
            ("--port", !self.port.is_empty()),
            ("--model", !self.model.is_empty()),
        ];
        flags.into_iter().find_map(|(flag, given)| given.then_some(flag))
    }

    /// A host that is named where any is meant.
    fn narrower_than_proxy(&self) -> Option<&InternetHost> {
        let any = self.internet_host.contains(&InternetHost::ANY);
        self.internet_host.first().filter(|_| self.proxy && !any)
    }

    fn has(&self, permission: Permission) -> Result<bool> {
        let given = self.allow.iter().map(|name| named(name));
        let given = given.collect::<Result<Vec<Permission>>>()?;
        Ok(given.contains(&permission))
    }

    /// The flags as a spec, paths as typed; but for what [`Flags::share_network`] says.
    pub fn spec(self) -> Result<Spec> {
        let mut spec = Spec::default();
        if let Some(host) = self.narrower_than_proxy() {
            return Err(CommandError::Because(format!(
                "--internet-host {host} and --proxy contradict each other: the latter is any host; \
                 leave one out"
            )));
        }
        let reads_home = self.has(Permission::ReadHome)?;
        spec.files.read = self.read;
        if reads_home {
            spec.files.read.push("~".parse().expect("neither empty nor with a NUL"));
        }
        spec.files.write = self.write;
        spec.files.write_dot_files = self.write_dot_files;
        spec.files.hide = self.hide;
        spec.internet.hosts = self.internet_host;
        if self.proxy && spec.internet.hosts.is_empty() {
            spec.internet.hosts.push(InternetHost::ANY);
        }
        spec.internet.tcp = self.tcp;
        spec.internet.upstream = self.upstream;
        spec.internet.per_minute = self.per_minute;
        spec.lan.hosts = self.lan_host;
        spec.localhost.ports = self.port;
        spec.localhost.models = self.model;
        spec.tools.allow = self.tool;
        spec.browser.hosts = self.browser_host;
        spec.commands.allow = self.command;
        Ok(spec)
    }
}

/// The permission by a name.
fn named(name: &OsStr) -> Result<Permission> {
    let because = |line| Err(CommandError::Because(line));
    let typed = name.to_string_lossy();
    match PERMISSIONS.iter().find(|(known, _)| *known == typed) {
        Some((_, Some(permission))) => Ok(*permission),
        Some((_, None)) => {
            because(format!("--allow {typed} isn't built yet in this version; leave it out"))
        }
        None => match nearest(&typed, PERMISSIONS.map(|(known, _)| known)) {
            Some(meant) => {
                because(format!("--allow knows no permission '{typed}': did you mean {meant}?"))
            }
            None => because(format!(
                "--allow knows no permission '{typed}': {}",
                if NETWORKS.contains(&&*typed) {
                    "use --internet-host and --lan-host to open hosts, or --allow network for all \
                     that this machine reaches"
                } else {
                    "use --read and --write to open folders, --internet-host and --lan-host to open \
                     hosts"
                }
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory as _, Parser};
    use lnk_sandbox::spec::section::SECTIONS;
    use std::os::unix::ffi::OsStringExt as _;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: Flags,
    }

    fn parse(words: &[&str]) -> Spec {
        let line = Line::try_parse_from(std::iter::once(&"x").chain(words)).unwrap();
        line.flags.spec().unwrap()
    }

    #[test]
    fn each_key_has_its_flag_and_each_flag_its_key() {
        let command = Line::command();
        let keys = || SECTIONS.iter().flat_map(|section| section.keys);
        for key in keys() {
            let flag = key.flag.unwrap();
            let argument = command.get_arguments().find(|arg| arg.get_long() == flag.name.get(2..));
            let names = argument.unwrap_or_else(|| panic!("{}", flag.name)).get_value_names();
            assert_eq!(names.unwrap(), [flag.value], "{}", flag.name);
        }
        let shown =
            command.get_arguments().filter(|arg| !arg.is_hide_set() && arg.get_id() != "help");
        assert_eq!(shown.count(), keys().count());
    }

    #[test]
    fn each_flag_says_its_key() {
        for (section, key) in SECTIONS.iter().flat_map(|s| s.keys.iter().map(move |key| (s, key))) {
            let values = key.example.trim_matches(['[', ']']).split(", ");
            let values = values.map(|value| value.trim_matches('"'));
            let flag = key.flag.unwrap().name;
            let words: Vec<&str> = values.flat_map(|value| [flag, value]).collect();
            let toml = format!("[{}]\n{} = {}", section.name, key.name, key.example);
            let spec = Spec::parse(toml.as_bytes(), lnk_sandbox::spec::Os::Linux).unwrap();
            assert_eq!(parse(&words), spec, "{words:?}");
        }
    }

    #[test]
    fn paths_and_programs_are_bytes() {
        let strange = OsString::from_vec(b"/\xff\n x".to_vec());
        let words = ["x", "--write", "", "--command", ""].map(OsString::from);
        let words =
            words.into_iter().map(|word| if word.is_empty() { strange.clone() } else { word });
        let spec = Line::try_parse_from(words).unwrap().flags.spec().unwrap();
        assert_eq!(spec.files.write[0].as_path().as_os_str(), strange);
        assert_eq!(spec.commands.allow[0].written().as_os_str(), strange);
    }

    #[test]
    fn the_hidden_flags_are_others_by_another_name() {
        assert_eq!(parse(&["--allow", "read-home"]), parse(&["--read", "~"]));
        assert_eq!(parse(&["--proxy"]), parse(&["--internet-host", "*"]));
        assert_eq!(parse(&["--proxy", "--internet-host", "*"]), parse(&["--proxy"]));
    }
}
