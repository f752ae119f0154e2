//! The Model Context Protocol over standard input and output, the only place that
//! sees its library.
//!
//! Both eras are served: sessions that begin with `initialize`, up to 2025-11-25, and
//! the requests of 2026-07-28 that each say what they need. The library knows them;
//! what is added here is a transport that answers every line, whatever is on it.

use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::{self, Arc, PoisonError};
use std::time::Duration;

use lnk_sandbox::nearest::nearest;
use lnk_sandbox::shown::escaped_name;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientJsonRpcMessage,
    ClientNotification, ClientRequest, ContentBlock, GetMeta as _, Implementation, JsonRpcMessage,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ProtocolVersion, RequestId,
    ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
#[expect(deprecated, reason = "the protocol's log messages go with the era that has them")]
use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam, SetLevelRequestParams};
use rmcp::service::{RequestContext, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval_at};

use crate::background::{Background, Telling, tools};
use crate::command::{self, Answer, Arguments, AtOnce};
use crate::events::{Event, Sink};
use crate::limits::{Limits, Size};
use crate::opens::Opens;
use crate::place::Place;
use crate::programs::Programs;
use crate::quoted::cut;

/// The most bytes of one line. What is longer is answered with an error, unread.
pub const MOST_IN_LINE: usize = 16 << 20;

/// How often a client hears that a call goes on, where it asked to.
const PROGRESS: Duration = Duration::from_secs(10);

/// What a client that joins server and tool by two underscores calls a tool.
const PREFIX: &str = "run__";

/// The methods of the protocol that the library reads into a type of their own. One
/// that it couldn't read has wrong parameters.
const METHODS: [&str; 16] = [
    "ping",
    "initialize",
    "server/discover",
    "completion/complete",
    "logging/setLevel",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "subscriptions/listen",
    "tools/call",
    "tools/list",
    "tasks/get",
];

/// What a server serves.
pub struct Run {
    /// Where commands run.
    pub place: Place,
    /// How long, and how much is kept.
    pub limits: Limits,
    /// What may run.
    pub programs: Programs,
    /// What the spec opens.
    pub opens: Opens,
    /// Commands that run on after a call, where they may.
    pub background: Option<Rc<Background>>,
    /// Where their ends are told, besides here.
    pub events: Option<Sink>,
}

/// Serves a client until it closes standard input, or can't be written to. Every call
/// ends with that. Runs on a `LocalSet`.
pub async fn serve(run: Run) {
    let (read, write) = rmcp::transport::io::stdio_pipes();
    serve_on(read, write, run).await;
}

/// As [`serve`], of a client at these ends.
pub async fn serve_on<R, W>(read: R, write: W, run: Run)
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (gone, is_gone) = watch::channel(false);
    let run = Rc::new(run);
    let (ended, ends) = mpsc::unbounded_channel();
    if let Some(background) = &run.background {
        tokio::task::spawn_local(background.clone().tell(run.events.clone(), ended));
    }
    let wants_log = Rc::new(Cell::new(true));
    let awaited = Awaited::default();
    let lines = Lines::new(read, write, gone, awaited.clone());
    let server = Server {
        run,
        gone: is_gone,
        wants_log: wants_log.clone(),
        awaited,
        running: AtOnce::default(),
    };
    // It fails only where the client is gone before it said anything.
    if let Ok(running) = server.serve(lines).await {
        tokio::task::spawn_local(log(running.peer().clone(), ends, wants_log));
        let _ = running.waiting().await;
    }
}

/// Tells a client of ends as log messages: those that began with `initialize`, as later
/// ones are told nothing that they didn't ask for.
#[expect(deprecated, reason = "the protocol's log messages go with the era that has them")]
async fn log(
    peer: rmcp::Peer<RoleServer>,
    mut ends: mpsc::UnboundedReceiver<Event>,
    wants_log: Rc<Cell<bool>>,
) {
    while let Some(event) = ends.recv().await {
        if !wants_log.get() || peer.peer_info().is_none() {
            continue;
        }
        let data = serde_json::to_value(&event).unwrap_or_default();
        let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, data);
        // Whoever doesn't hear it sees it at the next call.
        let _ = peer.notify_logging_message(message.with_logger("run")).await;
    }
}

struct Server {
    run: Rc<Run>,
    gone: watch::Receiver<bool>,
    /// Whether the client wants log messages that are no warnings.
    wants_log: Rc<Cell<bool>>,
    awaited: Awaited,
    running: AtOnce,
}

/// Who hears that the answer to a request was written out.
type Awaited = Arc<sync::Mutex<HashMap<RequestId, oneshot::Sender<()>>>>;

fn lock(awaited: &Awaited) -> sync::MutexGuard<'_, HashMap<RequestId, oneshot::Sender<()>>> {
    awaited.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ServerHandler for Server {
    #[expect(deprecated, reason = "the protocol's log messages go with the era that has them")]
    fn get_info(&self) -> ServerConfig {
        let capabilities = match self.run.background {
            Some(_) => ServerCapabilities::builder().enable_tools().enable_logging().build(),
            None => ServerCapabilities::builder().enable_tools().build(),
        };
        ServerConfig::new(capabilities)
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
            .with_server_info(
                Implementation::new("run", env!("CARGO_PKG_VERSION")).with_title("Link Run"),
            )
            .with_instructions(self.run.instructions())
    }

    #[expect(deprecated, reason = "the protocol's log messages go with the era that has them")]
    async fn set_level(
        &self,
        params: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.wants_log.set(matches!(params.level, LoggingLevel::Debug | LoggingLevel::Info));
        Ok(())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.run.tools()))
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.run.refuse_unknown(&params.name)?;
        let arguments = params.arguments.unwrap_or_default();
        let mut gone = self.gone.clone();
        let cancelled = async {
            tokio::select! {
                () = context.ct.cancelled() => {}
                _ = gone.wait_for(|gone| *gone) => {}
            }
        };
        let answer = tokio::select! {
            answer = self.run.call(&params.name, &arguments, &self.running, cancelled) => answer,
            never = tell_progress(&context) => never,
        };
        // Whoever gave the call up doesn't read what stands before its answer.
        let is_heard = !context.ct.is_cancelled() && !*self.gone.borrow();
        let background = self.run.background.as_ref();
        let mut telling = background.map(|background| background.telling(answer.stopped));
        let news = telling.as_mut().filter(|_| is_heard).and_then(Telling::news);
        if let Some(telling) = telling.filter(|telling| is_heard && !telling.is_empty()) {
            self.told_once_written(&context, telling);
        }
        let text = match news {
            Some(news) => format!("{news}\n\n--- the answer to this call ---\n{}", answer.text),
            None => answer.text,
        };
        let content = vec![ContentBlock::text(text)];
        let result = match answer.is_error {
            true => CallToolResult::error(content),
            false => CallToolResult::success(content),
        };
        Ok(result.into())
    }
}

impl Server {
    /// Waits for the answer to be written out, with which it has told. An answer that
    /// the library drops, as its request was given up, never is.
    fn told_once_written(&self, context: &RequestContext<RoleServer>, telling: Telling) {
        let (written, is_written) = oneshot::channel();
        let (id, given_up_or_sent) = (context.id.clone(), context.ct.clone());
        let awaited = self.awaited.clone();
        lock(&awaited).insert(id.clone(), written);
        tokio::task::spawn_local(async move {
            // In the same breath the answer is handed to the transport, or dropped.
            given_up_or_sent.cancelled().await;
            drop(lock(&awaited).remove(&id));
            if is_written.await.is_ok() {
                telling.is_told();
            }
        });
    }
}

/// Says every ten seconds that a call goes on, to a client that asked to be told.
async fn tell_progress(context: &RequestContext<RoleServer>) -> Answer {
    let Some(token) = context.meta.get_progress_token() else {
        return std::future::pending().await;
    };
    let started = Instant::now();
    let mut ticks = interval_at(started + PROGRESS, PROGRESS);
    loop {
        ticks.tick().await;
        let seconds = started.elapsed().as_secs();
        #[allow(clippy::cast_precision_loss, reason = "a call's seconds are few")]
        let progress = ProgressNotificationParam::new(token.clone(), seconds as f64)
            .with_message(format!("running for {seconds} s"));
        // Whoever doesn't hear it misses nothing.
        let _ = context.peer.notify_progress(progress).await;
    }
}

impl Run {
    fn instructions(&self) -> String {
        let files = lnk_sandbox::shown::word(&self.place.files);
        let runs = match self.programs.why_none() {
            None => format!(
                "Runs programs in the files folder, {files}, each call in a sandbox of its own \
                 that ends with it."
            ),
            Some(why) => format!("Runs no program: {why}."),
        };
        format!(
            "{runs} What they may read, write and reach is the user's to say: what is refused is \
             named with what would allow it."
        )
    }

    /// The tools, always in this order.
    fn tools(&self) -> Vec<Tool> {
        if !self.programs.any() {
            return Vec::new();
        }
        let annotations = ToolAnnotations::with_title("Run a program")
            .read_only(false)
            .destructive(true)
            .idempotent(false)
            .open_world(true);
        let command = Tool::new("command", self.command_described(), Arc::new(command::schema()))
            .with_annotations(annotations);
        let described = self
            .background
            .iter()
            .flat_map(|_| tools::described(&self.limits, self.events.is_some()));
        let background = described.map(|its| {
            let annotations = ToolAnnotations::with_title(its.title)
                .read_only(its.is_read_only)
                .destructive(!its.is_read_only)
                .idempotent(its.is_read_only)
                .open_world(its.name == "start");
            Tool::new(its.name, its.description, Arc::new(its.schema)).with_annotations(annotations)
        });
        [command].into_iter().chain(background).collect()
    }

    fn command_described(&self) -> String {
        let Limits { timeout, output, .. } = &self.limits;
        format!(
            "Runs a program in the files folder, in a sandbox of its own, and answers with its \
             exit status and what it printed. Nothing it starts outlives the call. It reads the \
             files folder. {} A repository goes into a folder of its own in work: names such as \
             .git and HEAD are kept from it in work itself. It may take {}; {} are kept of each of \
             its output and its errors, their start and their end. It may run: {}.",
            self.opens.described(),
            command::time(*timeout),
            Size(*output as u64),
            self.programs.described()
        )
    }

    fn refuse_unknown(&self, name: &str) -> Result<(), ErrorData> {
        let tools = self.tools();
        let names = || tools.iter().map(|tool| &*tool.name);
        let plain = name.strip_prefix(PREFIX).unwrap_or(name);
        if names().any(|its| its == plain) {
            return Ok(());
        }
        let shown = escaped_name(cut(name).as_bytes());
        let why = match (self.programs.why_none(), nearest(plain, names())) {
            (Some(why), _) => format!("{shown}: there is no tool, as there is no program: {why}"),
            (None, Some(meant)) => format!("there is no tool {shown}: did you mean {meant}?"),
            (None, None) => format!(
                "there is no tool {shown}: there is {}",
                names().collect::<Vec<_>>().join(", ")
            ),
        };
        Err(ErrorData::invalid_params(why, None))
    }

    /// Calls a tool that there is.
    async fn call(
        &self,
        name: &str,
        arguments: &Arguments,
        running: &AtOnce,
        cancelled: impl Future<Output = ()>,
    ) -> Answer {
        let name = name.strip_prefix(PREFIX).unwrap_or(name);
        if let Some(background) = &self.background
            && let Some(answer) = background.call(name, arguments).await
        {
            return answer;
        }
        command::command(arguments, &self.place, &self.limits, running, cancelled).await
    }
}

/// What a line is.
#[derive(Debug)]
pub enum Line {
    /// A message for the library.
    Message(Box<ClientJsonRpcMessage>),
    /// What is answered at once: a JSON-RPC error.
    Answer(Value),
    /// Nothing to do.
    Nothing,
}

/// Reads a line, without its end. Whatever is on it, a request that has an id gets an
/// answer with it.
#[must_use]
pub fn read_line(line: &[u8]) -> Line {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line).trim_ascii();
    if line.is_empty() {
        return Line::Nothing;
    }
    let Ok(json) = serde_json::from_slice::<Value>(line) else {
        return answer(&Value::Null, -32700, "the line isn't JSON in UTF-8");
    };
    let Some(object) = json.as_object() else {
        let why = "a line has to be one message; batches aren't served";
        return answer(&Value::Null, -32600, why);
    };
    let id = object.get("id").cloned();
    let method = object.get("method").map(|method| method.as_str().map(str::to_owned));
    match (method, id) {
        // An answer, and nothing was asked.
        (None, _) if object.contains_key("result") || object.contains_key("error") => Line::Nothing,
        (Some(Some(method)), Some(id @ (Value::String(_) | Value::Number(_)))) => {
            request(json, &method, &id)
        }
        (Some(Some(_)), None) => notification(json),
        (_, id) => {
            let why = "a message has a method, and a request an id that is text or a number";
            let id = id.filter(|id| id.is_string() || id.is_number());
            answer(&id.unwrap_or_default(), -32600, why)
        }
    }
}

fn request(json: Value, method: &str, id: &Value) -> Line {
    if json["jsonrpc"] != "2.0" {
        return answer(id, -32600, "jsonrpc has to be \"2.0\"");
    }
    let is_read = |message: &ClientJsonRpcMessage| match message {
        JsonRpcMessage::Request(request) => {
            !matches!(request.request, ClientRequest::CustomRequest(_))
        }
        _ => false,
    };
    let missing = missing(&json, method);
    if !missing.is_empty() {
        return answer(id, -32602, &format!("{method}: {} is missing", missing.join(", ")));
    }
    match serde_json::from_value(json) {
        Ok(message) if is_read(&message) => Line::Message(Box::new(message)),
        _ if METHODS.contains(&method) => {
            answer(id, -32602, &format!("the parameters of {method} can't be read"))
        }
        _ => answer(
            id,
            -32601,
            &format!("there is no method {}", escaped_name(cut(method).as_bytes())),
        ),
    }
}

/// The parameters that a request lacks, by their paths.
fn missing(json: &Value, method: &str) -> Vec<&'static str> {
    let needed: &[(&str, &str)] = match method {
        "initialize" => &[
            ("/params/protocolVersion", "params.protocolVersion"),
            ("/params/capabilities", "params.capabilities"),
            ("/params/clientInfo", "params.clientInfo"),
        ],
        "server/discover" => &[
            (
                "/params/_meta/io.modelcontextprotocol~1protocolVersion",
                "params._meta[\"io.modelcontextprotocol/protocolVersion\"]",
            ),
            (
                "/params/_meta/io.modelcontextprotocol~1clientCapabilities",
                "params._meta[\"io.modelcontextprotocol/clientCapabilities\"]",
            ),
        ],
        "tools/call" => &[("/params/name", "params.name")],
        "logging/setLevel" => &[("/params/level", "params.level")],
        _ => &[],
    };
    let lacks = |path: &str| json.pointer(path).is_none_or(Value::is_null);
    needed.iter().filter(|(path, _)| lacks(path)).map(|(_, name)| *name).collect()
}

/// The id in the beginning of a request that is longer than a line may be; null where it
/// isn't in it.
fn id_in_beginning(line: &[u8]) -> Value {
    let (mut depth, mut at) = (0_u32, 0);
    while let Some(byte) = line.get(at) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let Some(end) = end_of_string(line, at) else { return Value::Null };
                let after = line[end..].trim_ascii_start();
                if depth == 1
                    && &line[at..end] == b"\"id\""
                    && let Some(value) = after.strip_prefix(b":")
                {
                    return id_at_start(value);
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    Value::Null
}

/// Behind the quote that ends the string which begins at a byte.
fn end_of_string(line: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match line.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// The id that some bytes begin with, whole.
fn id_at_start(bytes: &[u8]) -> Value {
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<Value>();
    let Some(Ok(id @ (Value::String(_) | Value::Number(_)))) = values.next() else {
        return Value::Null;
    };
    // A number that was cut off would be another.
    if values.byte_offset() < bytes.len() { id } else { Value::Null }
}

/// Of what a client may notify of, only that it gives a request up matters here.
fn notification(json: Value) -> Line {
    match serde_json::from_value(json) {
        Ok(message @ JsonRpcMessage::Notification(_)) => match &message {
            JsonRpcMessage::Notification(its)
                if matches!(its.notification, ClientNotification::CancelledNotification(_)) =>
            {
                Line::Message(Box::new(message))
            }
            _ => Line::Nothing,
        },
        _ => Line::Nothing,
    }
}

fn answer(id: &Value, code: i32, message: &str) -> Line {
    Line::Answer(json!({
        "jsonrpc": "2.0",
        "id": id,
        "error": { "code": code, "message": message },
    }))
}

/// Messages as lines.
struct Lines<R, W> {
    read: BufReader<R>,
    /// What came of the next line, or of one that is too long its beginning.
    line: Vec<u8>,
    is_too_long: bool,
    write: Arc<Out<W>>,
    awaited: Awaited,
    /// An answer of our own that is being written.
    answering: Option<JoinHandle<()>>,
    /// Whether the library serves requests: before, a notification would end it.
    is_open: bool,
}

/// The client's end to write to.
struct Out<W> {
    write: Mutex<W>,
    /// What waits to be written, by [`cost`].
    waiting: watch::Sender<usize>,
    /// Whether the client is gone: it has closed its end, or can't be written to.
    gone: watch::Sender<bool>,
}

/// The most that may wait to be written, in bytes; then nothing more is read.
const MOST_WAITING: usize = 8 << 20;

/// What a line takes while it waits: its bytes, and what the library keeps of it.
fn cost(line: &[u8]) -> usize {
    line.len() + 1024
}

impl<R, W> Lines<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    fn new(read: R, write: W, gone: watch::Sender<bool>, awaited: Awaited) -> Self {
        let (write, waiting) = (Mutex::new(write), watch::Sender::new(0));
        Lines {
            read: BufReader::with_capacity(64 << 10, read),
            line: Vec::new(),
            is_too_long: false,
            write: Arc::new(Out { write, waiting, gone }),
            awaited,
            answering: None,
            is_open: false,
        }
    }

    /// Waits for a whole line. May be dropped and asked again. `false` at the end.
    async fn next_line(&mut self) -> bool {
        loop {
            let Ok(some) = self.read.fill_buf().await else { return false };
            if some.is_empty() {
                // The last line may lack its end.
                return !self.line.is_empty();
            }
            let end = some.iter().position(|byte| *byte == b'\n');
            let length = end.map_or(some.len(), |end| end + 1);
            let room = MOST_IN_LINE - self.line.len();
            self.is_too_long |= length > room;
            self.line.extend_from_slice(&some[..length.min(room)]);
            self.read.consume(length);
            if end.is_some() {
                return true;
            }
        }
    }

    /// As [`next_line`](Self::next_line), as soon as a client that writes has read enough
    /// of what it was answered. `false` as well once it can't be written to.
    async fn wait_for_line(&mut self) -> bool {
        let (mut waiting, mut gone) = (self.write.waiting.subscribe(), self.write.gone.subscribe());
        tokio::select! {
            biased;
            _ = gone.wait_for(|gone| *gone) => false,
            line = async {
                // Its sender is held here.
                let _ = waiting.wait_for(|waiting| *waiting <= MOST_WAITING).await;
                self.next_line().await
            } => line,
        }
    }

    fn take_line(&mut self) -> Line {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.is_too_long) {
            let why = format!("the line is longer than {} MB", MOST_IN_LINE >> 20);
            return answer(&id_in_beginning(&line), -32600, &why);
        }
        read_line(&line)
    }

    /// Whether the library may have a message now.
    fn opens(&mut self, message: &ClientJsonRpcMessage) -> bool {
        let JsonRpcMessage::Request(request) = message else { return self.is_open };
        self.is_open |= match &request.request {
            ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_) => false,
            ClientRequest::InitializeRequest(_) => true,
            other => {
                let meta = other.get_meta();
                meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty()
                    && meta
                        .protocol_version()
                        .is_some_and(|version| ProtocolVersion::KNOWN_VERSIONS.contains(&version))
            }
        };
        true
    }
}

impl<R, W> Transport<RoleServer> for Lines<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let written = match &item {
            JsonRpcMessage::Response(answer) => lock(&self.awaited).remove(&answer.id),
            _ => None,
        };
        let line = serde_json::to_vec(&item).map(|line| self.write.clone().line(line));
        async move {
            line?.await?;
            // Nobody waits where the server is ending.
            written.map(|written| written.send(()));
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            // So that a client that only writes isn't answered without end.
            if let Some(answering) = &mut self.answering {
                let _ = answering.await;
                self.answering = None;
            }
            if !self.wait_for_line().await {
                self.write.gone.send_replace(true);
                return None;
            }
            match self.take_line() {
                Line::Message(message) if self.opens(&message) => return Some(*message),
                Line::Message(_) | Line::Nothing => {}
                Line::Answer(json) => {
                    let line = serde_json::to_vec(&json).expect("JSON is text");
                    let line = self.write.clone().line(line);
                    // A client that can't be written to is gone, which ends all.
                    self.answering = Some(tokio::spawn(async { drop(line.await) }));
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.write.gone.send_replace(true);
        self.write.write.lock().await.shutdown().await
    }
}

impl<W: AsyncWrite + Unpin> Out<W> {
    /// Writes a line, which waits from now on.
    fn line(self: Arc<Self>, mut line: Vec<u8>) -> impl Future<Output = io::Result<()>> {
        line.push(b'\n');
        let waits = Waits::new(self, cost(&line));
        async move {
            let written = waits.out.write(&line).await;
            if written.is_err() {
                waits.out.gone.send_replace(true);
            }
            written
        }
    }

    async fn write(&self, line: &[u8]) -> io::Result<()> {
        let mut write = self.write.lock().await;
        write.write_all(line).await?;
        write.flush().await
    }
}

/// A line that waits to be written, until it is dropped.
struct Waits<W> {
    out: Arc<Out<W>>,
    cost: usize,
}

impl<W> Waits<W> {
    fn new(out: Arc<Out<W>>, cost: usize) -> Self {
        out.waiting.send_modify(|waiting| *waiting += cost);
        Waits { out, cost }
    }
}

impl<W> Drop for Waits<W> {
    fn drop(&mut self) {
        self.out.waiting.send_modify(|waiting| *waiting -= self.cost);
    }
}
