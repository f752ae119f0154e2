//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;

/// A configuration of each client, ready to paste.
const CLIENTS: &str = "\
A client's configuration, with a folder of yours in place of ~/Files:

  Claude Code:
    claude mcp add run -- lnk-link-run --folder ~/Files

  Codex, in ~/.codex/config.toml:
    [mcp_servers.run]
    command = \"lnk-link-run\"
    args = [\"--folder\", \"~/Files\"]

  opencode, in opencode.json:
    {\"mcp\": {\"run\": {\"type\": \"local\", \"command\": [\"lnk-link-run\", \"--folder\", \"~/Files\"]}}}

  Gemini CLI, in ~/.gemini/settings.json:
    {\"mcpServers\": {\"run\": {\"command\": \"lnk-link-run\", \"args\": [\"--folder\", \"~/Files\"]}}}";

/// Run an agent's programs, each in a sandbox of its own
///
/// An MCP server over standard input and output. Its tool command runs a program in
/// the files folder, in a sandbox that is made for the call and ends with it.
/// Programs read the files folder and write in its folder work; what else they
/// reach, and which of them may run, says the sandbox's spec. Without one the usual
/// programs run, and reach nothing else.
#[derive(Parser)]
#[command(
    name = "lnk-link-run",
    version,
    verbatim_doc_comment,
    after_help = CLIENTS,
    override_usage = "lnk-link-run --folder DIR [--spec FILE [--yes]]\n       lnk-link-run --agent NAME\n       lnk-link-run --print-spec\n       lnk-link-run wake --events SOCKET -- HARNESS"
)]
pub struct Args {
    /// The agent whose programs these are, with the folders of ~/Link/Agents/NAME
    #[arg(long, value_name = "NAME", conflicts_with_all = ["folder", "spec"])]
    pub agent: Option<String>,

    /// The files folder; work and background are made in it
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,

    /// The sandbox's spec, the file that says what its programs may do
    #[arg(long, value_name = "FILE", requires = "folder")]
    pub spec: Option<PathBuf>,

    /// Print what runs without a spec, as one, and end
    #[arg(long, exclusive = true)]
    pub print_spec: bool,

    /// Agree to what the spec opens
    #[arg(long, requires = "spec")]
    pub yes: bool,

    /// The conversation that this server is for; each server is one without it
    #[arg(long, value_name = "ID")]
    pub conversation: Option<String>,

    /// Where the ends of background commands are told, as JSON lines: fd:N or a socket's path
    #[arg(long, value_name = "WHERE")]
    pub events: Option<String>,
}

/// Run a harness and give it the ends of background commands as messages
///
/// For a harness that reads messages as lines of JSON on its standard input, as Claude
/// Code does. Lines of standard input are passed on to it, and one is added when a
/// background command has ended. Its lnk-link-run is started with the same --events.
#[derive(Parser)]
#[command(
    name = "lnk-link-run wake",
    verbatim_doc_comment,
    override_usage = "lnk-link-run wake --events SOCKET -- HARNESS [ARGUMENTS]",
    after_help = "\
With a folder of yours in place of ~/Files, and mcp.json the configuration of run with
--events /tmp/me/events among its args, /tmp/me being a folder that only you enter:

  lnk-link-run wake --events /tmp/me/events -- claude -p --verbose --mcp-config mcp.json \\
    --input-format stream-json --output-format stream-json"
)]
pub struct WakeArgs {
    /// The socket to listen on, in a folder that only you enter
    #[arg(long, value_name = "SOCKET")]
    pub events: PathBuf,

    /// The harness and its arguments
    #[arg(required = true, last = true)]
    pub harness: Vec<OsString>,
}

/// The words of the hidden `call`, which a server writes and nobody else.
#[derive(Parser)]
#[command(name = "lnk-link-run call", disable_help_flag = true)]
pub struct CallArgs {
    #[arg(long)]
    pub report: u32,
    #[arg(long)]
    pub server: u32,
    #[arg(long, required_unless_present = "folder", conflicts_with = "folder")]
    pub agent: Option<String>,
    #[arg(long)]
    pub folder: Option<PathBuf>,
    #[arg(long)]
    pub spec: Option<PathBuf>,
    #[arg(long, value_delimiter = ',')]
    pub usual: Vec<String>,
    #[arg(required = true, last = true)]
    pub program: Vec<OsString>,
}
