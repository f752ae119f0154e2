//! The heads of HTTP/1 messages: read strictly, written anew (RFC 9110, RFC 9112).
//!
//! Pure: bytes to values and back. Where two readers could take a request for
//! different ones, it is no request.

use std::fmt::Write as _;
use std::net::IpAddr;

use httparse::{EMPTY_HEADER, Header, ParserConfig, Status};
use lnk_spec::host::Host;

use crate::policy::Target;

/// Bytes of a head at most.
pub const MAX_HEAD: usize = 64 * 1024;
/// Header lines of a head at most.
const MAX_HEADERS: usize = 128;

/// The port of a URI without one.
const HTTP_PORT: u16 = 80;

/// Why bytes are no request that is answered otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Bad {
    /// The answer's status.
    pub status: u16,
    /// One line in ASCII: what is wrong, and what would be right.
    pub reason: String,
    /// What was asked for, as it came; empty where it can't be told.
    pub target: Vec<u8>,
}

fn bad(status: u16, reason: impl Into<String>) -> Bad {
    Bad { status, reason: reason.into(), target: Vec::new() }
}

/// The end of a body, as the head tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// After so many bytes.
    Length(u64),
    /// After the chunk of size 0 and its trailers.
    Chunked,
    /// With the connection. A response's alone.
    Close,
}

impl Framing {
    /// No body.
    pub const NONE: Framing = Framing::Length(0);
}

/// A request's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The method, as it came: methods are case-sensitive.
    pub method: String,
    /// Where to.
    pub target: Target,
    /// How it asks.
    pub form: Form,
    /// The header lines that are passed on: none that is about the connection or
    /// the body's framing, nor `Host`.
    headers: Vec<(String, Vec<u8>)>,
    /// Where the body ends.
    pub framing: Framing,
    /// HTTP/1.1, not 1.0.
    pub is_1_1: bool,
    /// Another request may follow on this connection.
    pub keep_alive: bool,
    /// It asks for a WebSocket.
    pub websocket: bool,
    /// It takes trailers.
    takes_trailers: bool,
}

/// How a request asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// CONNECT, with the host and port alone.
    Authority,
    /// Any other method with a whole URI; of it path and query, as they came.
    Absolute(String),
}

impl Request {
    /// Reads a request's head, if all of it is there, and how long it is.
    ///
    /// # Errors
    /// It is no request that can be judged.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, Bad> {
        let start = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n'));
        let Some(start) = start else { return too_long_or_partial(bytes) };
        refuse_other_protocols(&bytes[start..])?;
        let mut headers = [EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match ParserConfig::default().parse_request(&mut request, bytes) {
            Ok(Status::Complete(length)) if length > MAX_HEAD => Err(too_long()),
            Ok(Status::Complete(length)) => read(&request).map(|read| Some((read, length))),
            Ok(Status::Partial) => too_long_or_partial(bytes),
            Err(httparse::Error::TooManyHeaders) => Err(too_long()),
            Err(httparse::Error::Version) => {
                Err(bad(505, "this proxy speaks HTTP/1.1 and HTTP/1.0 only"))
            }
            Err(_) => Err(bad(400, "the request isn't valid HTTP/1.1")),
        }
    }

    /// The head as the origin gets it: in origin form, for this one exchange.
    #[must_use]
    pub fn written(&self) -> Vec<u8> {
        let mut head = Vec::with_capacity(512);
        let Form::Absolute(path) = &self.form else { return head };
        put(&mut head, &[&self.method, " ", path, " HTTP/1.1\r\nHost: ", &self.host(), "\r\n"]);
        put_headers(&mut head, &self.headers);
        match (self.websocket, self.takes_trailers) {
            (true, _) => put(&mut head, &["Connection: Upgrade\r\nUpgrade: websocket\r\n"]),
            (false, true) => put(&mut head, &["Connection: close, TE\r\nTE: trailers\r\n"]),
            (false, false) => put(&mut head, &["Connection: close\r\n"]),
        }
        put_framing(&mut head, self.framing, self.sends_length());
        put(&mut head, &["\r\n"]);
        head
    }

    /// As [`Request::written`]; of header lines and path nothing stays.
    pub(crate) fn take_written(&mut self) -> Vec<u8> {
        let written = self.written();
        (self.headers, self.form) = (Vec::new(), Form::Absolute(String::new()));
        written
    }

    /// Where to, and nothing else of it.
    #[must_use]
    pub fn into_target(self) -> Target {
        self.target
    }

    fn host(&self) -> String {
        match (&self.target.host, self.target.port) {
            (host, HTTP_PORT) => bracketed(host),
            (host, port) => format!("{}:{port}", bracketed(host)),
        }
    }

    /// Whether a length of 0 is told: methods that mean a body do (RFC 9110, 8.6).
    fn sends_length(&self) -> bool {
        matches!(self.method.as_str(), "POST" | "PUT" | "PATCH")
    }
}

fn bracketed(host: &Host) -> String {
    match host {
        Host::Address(IpAddr::V6(address)) => format!("[{address}]"),
        host => host.to_string(),
    }
}

fn too_long() -> Bad {
    bad(431, "the request's head is too long: 64 KB and 128 header lines at most")
}

fn too_long_or_partial<T>(bytes: &[u8]) -> Result<Option<T>, Bad> {
    if bytes.len() >= MAX_HEAD { Err(too_long()) } else { Ok(None) }
}

fn refuse_other_protocols(bytes: &[u8]) -> Result<(), Bad> {
    if bytes.starts_with(b"PRI * HTTP/2") {
        return Err(bad(505, "this proxy speaks HTTP/1.1, not HTTP/2"));
    }
    match bytes[0] {
        0x16 => Err(bad(400, "this proxy is reached by http://, not https://")),
        byte if !byte.is_ascii_alphabetic() => Err(bad(400, "the request isn't valid HTTP/1.1")),
        _ => Ok(()),
    }
}

fn read(request: &httparse::Request<'_, '_>) -> Result<Request, Bad> {
    let asked = request.path.expect("a complete request has a target");
    read_asked(request, asked).map_err(|bad| Bad { target: asked.as_bytes().to_vec(), ..bad })
}

fn read_asked(request: &httparse::Request<'_, '_>, asked: &str) -> Result<Request, Bad> {
    let method = request.method.expect("a complete request has a method").to_owned();
    let is_1_1 = request.version == Some(1);
    let connects = method == "CONNECT";
    let (target, form) = match connects {
        true => (authority(asked, None)?, Form::Authority),
        false => absolute(&method, asked)?,
    };
    check_host(request.headers, &target, is_1_1, connects)?;
    let framing = request_framing(request.headers, is_1_1)?;
    if connects && framing != Framing::NONE {
        return Err(bad(400, "CONNECT has no body"));
    }
    let connection = Connection::read(request.headers);
    Ok(Request {
        websocket: is_1_1
            && framing == Framing::NONE
            && connection.has("upgrade")
            && has_token(request.headers, "upgrade", "websocket"),
        takes_trailers: is_1_1 && has_token(request.headers, "te", "trailers"),
        keep_alive: is_1_1 && !connection.has("close"),
        headers: passed_on(request.headers, &connection),
        method,
        target,
        form,
        framing,
        is_1_1,
    })
}

/// Reads a request's target in absolute form: where to, and the path.
fn absolute(method: &str, asked: &str) -> Result<(Target, Form), Bad> {
    if !asked.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(bad(400, "the request's URI isn't in ASCII: percent-encode it"));
    }
    let Some((scheme, rest)) = asked.split_once("://") else {
        return Err(bad(400, "this is a proxy: ask for a whole URI, such as http://example.com/"));
    };
    if scheme.eq_ignore_ascii_case("https") {
        return Err(bad(400, "https:// is reached by CONNECT: use this proxy as an HTTPS proxy"));
    }
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(bad(400, "only http:// URIs are asked for here"));
    }
    if rest.contains('#') {
        return Err(bad(400, "a request's URI has no fragment"));
    }
    let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let path = match (path, method) {
        ("", "OPTIONS") => "*".to_owned(),
        (path, _) if path.starts_with('/') => path.to_owned(),
        (query, _) => format!("/{query}"),
    };
    Ok((authority(host, Some(HTTP_PORT))?, Form::Absolute(path)))
}

/// Reads a host and its port: plain digits, or left out where there is one that
/// the scheme implies.
///
/// # Errors
/// It isn't plain and valid, or in no canonical form.
fn authority(asked: &str, implied: Option<u16>) -> Result<Target, Bad> {
    if asked.contains('@') {
        return Err(bad(400, "a name and password don't belong into a request's URI"));
    }
    let (host, port) = match asked.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (asked, None),
    };
    if host.contains(':') && !host.starts_with('[') {
        return Err(bad(400, "an IPv6 address stands in brackets"));
    }
    let port = match (port, implied) {
        (Some(digits), _) => plain_port(digits).ok_or_else(|| bad(400, "that isn't a port"))?,
        (None, Some(implied)) => implied,
        (None, None) => return Err(bad(400, "CONNECT asks for host:port")),
    };
    let host = host.parse().map_err(|_| bad(400, "that isn't a valid host"))?;
    Ok(Target { host, port })
}

/// 1 to 65535, in the one way to write it.
fn plain_port(digits: &str) -> Option<u16> {
    let port: u16 = digits.parse().ok()?;
    (port > 0 && port.to_string() == digits).then_some(port)
}

/// `Host` must say what the request line says: readers differ in which they follow.
fn check_host(
    headers: &[Header<'_>],
    target: &Target,
    is_1_1: bool,
    connects: bool,
) -> Result<(), Bad> {
    let mut hosts = named(headers, "host");
    let host = match (hosts.next(), hosts.next()) {
        (None, _) if is_1_1 && !connects => return Err(bad(400, "the request has no Host header")),
        (None, _) => return Ok(()),
        (Some(_), Some(_)) => return Err(bad(400, "the request has two Host headers")),
        (Some(host), None) => host,
    };
    // Clients leave the port out where it is the scheme's, which CONNECT doesn't say.
    let implied = if connects { target.port } else { HTTP_PORT };
    let said = std::str::from_utf8(host).ok().and_then(|host| authority(host, Some(implied)).ok());
    match said {
        Some(said) if said == *target => Ok(()),
        _ => Err(bad(400, "the Host header isn't the host of the request line")),
    }
}

fn request_framing(headers: &[Header<'_>], is_1_1: bool) -> Result<Framing, Bad> {
    let ambiguous = |what: &str| Err(bad(400, format!("where the request's body ends: {what}")));
    let mut lengths = named(headers, "content-length");
    let mut codings = named(headers, "transfer-encoding");
    match (lengths.next(), lengths.next(), codings.next(), codings.next()) {
        (None, _, None, _) => Ok(Framing::NONE),
        (Some(length), None, None, _) => match plain_length(length) {
            Some(length) => Ok(Framing::Length(length)),
            None => ambiguous("Content-Length isn't a number"),
        },
        (_, Some(_), _, _) => ambiguous("there are two Content-Length headers"),
        (Some(_), _, Some(_), _) => ambiguous("both Content-Length and Transfer-Encoding say"),
        (None, None, Some(coding), None) if is_1_1 && coding.eq_ignore_ascii_case(b"chunked") => {
            Ok(Framing::Chunked)
        }
        (None, None, Some(_), _) => ambiguous("a Transfer-Encoding other than chunked"),
    }
}

fn plain_length(digits: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok()?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

const NO_RESPONSE: &str = "the origin's response isn't valid HTTP/1.1";

/// A response's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// 100 to 999.
    pub status: u16,
    reason: String,
    headers: Vec<(String, Vec<u8>)>,
    /// Where the body ends, if the request's method allows one.
    framing: Framing,
    /// The length it tells, which the answer to HEAD has too.
    length: Option<u64>,
    /// It changes to a WebSocket.
    pub websocket: bool,
}

impl Response {
    /// Reads a response's head, if all of it is there, and how long it is.
    ///
    /// # Errors
    /// It is no response, or where its body ends is ambiguous: why, in one line.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Response, usize)>, &'static str> {
        const LONG: &str = "the origin's response has too long a head";
        let mut headers = [EMPTY_HEADER; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let mut lenient = ParserConfig::default();
        lenient
            .allow_spaces_after_header_name_in_responses(true)
            .allow_obsolete_multiline_headers_in_responses(true)
            .allow_multiple_spaces_in_response_status_delimiters(true);
        match lenient.parse_response(&mut response, bytes) {
            Ok(Status::Complete(length)) if length <= MAX_HEAD => {
                read_response(&response).map(|read| Some((read, length)))
            }
            Ok(Status::Partial) if bytes.len() < MAX_HEAD => Ok(None),
            Ok(_) | Err(httparse::Error::TooManyHeaders) => Err(LONG),
            Err(_) => Err(NO_RESPONSE),
        }
    }

    /// An answer before the final one, such as 100.
    #[must_use]
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && self.status != 101
    }

    /// Where the body ends, as the answer to a method.
    #[must_use]
    pub fn framing(&self, method: &str) -> Framing {
        match self.status {
            100..200 | 204 | 304 => Framing::NONE,
            _ if method == "HEAD" => Framing::NONE,
            _ => self.framing,
        }
    }

    /// The head as the client gets it. `body` is how the body comes to it, if the
    /// head may speak of one.
    #[must_use]
    pub fn written(&self, body: Framing, closes: bool) -> Vec<u8> {
        let mut head = Vec::with_capacity(512);
        put(&mut head, &["HTTP/1.1 ", &self.status.to_string(), " ", &self.reason, "\r\n"]);
        put_headers(&mut head, &self.headers);
        if self.websocket {
            put(&mut head, &["Connection: Upgrade\r\nUpgrade: websocket\r\n"]);
        } else if closes {
            put(&mut head, &["Connection: close\r\n"]);
        }
        match (self.status, body) {
            (100..200 | 204, _) => {}
            // To HEAD, and 304: the length that there would be.
            (_, Framing::NONE) => {
                if let Some(length) = self.length {
                    put_framing(&mut head, Framing::Length(length), true);
                }
            }
            (_, body) => put_framing(&mut head, body, true),
        }
        put(&mut head, &["\r\n"]);
        head
    }
}

fn read_response(response: &httparse::Response<'_, '_>) -> Result<Response, &'static str> {
    let headers: &[Header<'_>] = response.headers;
    let connection = Connection::read(headers);
    let (framing, length) = response_framing(headers)?;
    let status = response.code.expect("a complete response has a status");
    if status < 100 {
        return Err(NO_RESPONSE);
    }
    Ok(Response {
        status,
        reason: response.reason.unwrap_or_default().to_owned(),
        headers: passed_on(headers, &connection),
        framing,
        length,
        websocket: status == 101 && has_token(headers, "upgrade", "websocket"),
    })
}

fn response_framing(headers: &[Header<'_>]) -> Result<(Framing, Option<u64>), &'static str> {
    const AMBIGUOUS: &str = "where the origin's response ends is ambiguous";
    let mut lengths = named(headers, "content-length");
    let mut codings = named(headers, "transfer-encoding");
    let length = match lengths.next() {
        None => None,
        // The same length twice is what some servers' own proxies make.
        Some(first) if lengths.all(|other| other == first) => {
            Some(plain_length(first).ok_or(AMBIGUOUS)?)
        }
        Some(_) => return Err(AMBIGUOUS),
    };
    match (length, codings.next(), codings.next()) {
        (Some(length), None, _) => Ok((Framing::Length(length), Some(length))),
        (None, None, _) => Ok((Framing::Close, None)),
        (None, Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => {
            Ok((Framing::Chunked, None))
        }
        _ => Err(AMBIGUOUS),
    }
}

/// The options of all `Connection` headers: each names a header that isn't passed
/// on (RFC 9110, 7.6.1).
struct Connection(Vec<String>);

impl Connection {
    fn read(headers: &[Header<'_>]) -> Connection {
        let both = named(headers, "connection").chain(named(headers, "proxy-connection"));
        Connection(both.flat_map(tokens).collect())
    }

    fn has(&self, option: &str) -> bool {
        self.0.iter().any(|named| named == option)
    }
}

/// The members of a list, in lower case.
fn tokens(list: &[u8]) -> impl Iterator<Item = String> {
    list.split(|byte| *byte == b',')
        .map(|member| String::from_utf8_lossy(member.trim_ascii()).to_ascii_lowercase())
}

fn has_token(headers: &[Header<'_>], name: &'static str, token: &str) -> bool {
    named(headers, name).flat_map(tokens).any(|member| member == token)
}

fn named<'h>(headers: &'h [Header<'h>], name: &'static str) -> impl Iterator<Item = &'h [u8]> {
    headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name)).map(|h| h.value)
}

/// Whether a header is about this connection, this proxy or the body's framing,
/// which are told anew.
fn is_ours(name: &str) -> bool {
    const OURS: [&str; 8] = [
        "connection",
        "keep-alive",
        "te",
        "transfer-encoding",
        "upgrade",
        "content-length",
        "host",
        "http2-settings",
    ];
    OURS.iter().any(|ours| name.eq_ignore_ascii_case(ours))
        || name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("proxy-"))
}

/// Whether a field may stand behind a body: none that frames, routes or is about
/// this connection (RFC 9110, 6.5.1).
pub(crate) fn is_trailer(name: &str) -> bool {
    !is_ours(name) && !name.eq_ignore_ascii_case("trailer")
}

fn passed_on(headers: &[Header<'_>], connection: &Connection) -> Vec<(String, Vec<u8>)> {
    headers
        .iter()
        .filter(|header| !is_ours(header.name))
        .filter(|header| !connection.has(&header.name.to_ascii_lowercase()))
        .map(|header| (header.name.to_owned(), unfolded(header.value)))
        .collect()
}

/// A value on one line (RFC 9112, 5.2).
fn unfolded(value: &[u8]) -> Vec<u8> {
    value.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect()
}

fn put(head: &mut Vec<u8>, parts: &[&str]) {
    parts.iter().for_each(|part| head.extend_from_slice(part.as_bytes()));
}

fn put_headers(head: &mut Vec<u8>, headers: &[(String, Vec<u8>)]) {
    for (name, value) in headers {
        put(head, &[name, ": "]);
        head.extend_from_slice(value);
        put(head, &["\r\n"]);
    }
}

fn put_framing(head: &mut Vec<u8>, framing: Framing, tells_zero: bool) {
    match framing {
        Framing::Length(0) if !tells_zero => {}
        Framing::Length(length) => put(head, &["Content-Length: ", &length.to_string(), "\r\n"]),
        Framing::Chunked => put(head, &["Transfer-Encoding: chunked\r\n"]),
        Framing::Close => {}
    }
}

/// An answer of the proxy's own, after which the connection ends: a one-line body
/// that `X-Link-Reason` repeats, and the status line too, which is all that many
/// clients show of an answer to CONNECT.
#[must_use]
pub fn answer(status: u16, reason: &str, retry_after: Option<u64>) -> Vec<u8> {
    let reason: String =
        reason.chars().map(|c| if c == ' ' || c.is_ascii_graphic() { c } else { '?' }).collect();
    let mut head = format!("HTTP/1.1 {status} {reason}\r\n");
    if let Some(seconds) = retry_after {
        let _ = write!(head, "Retry-After: {seconds}\r\n");
    }
    let _ = write!(
        head,
        "X-Link-Reason: {reason}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{reason}\n",
        reason.len() + 1
    );
    head.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(head: &str) -> Option<String> {
        let (request, length) = Request::parse(head.as_bytes()).ok()??;
        assert_eq!(length, head.len());
        Some(String::from_utf8(request.written()).unwrap())
    }

    #[test]
    fn a_head_is_read_only_whole() {
        let head = "\r\nGET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n";
        assert!(written(head).is_some());
        for end in 0..head.len() {
            assert_eq!(Request::parse(&head.as_bytes()[..end]), Ok(None), "{end}");
        }
        assert_eq!(Request::parse(&vec![b'\n'; MAX_HEAD]).unwrap_err().status, 431);
        assert_eq!(Request::parse(&vec![b'a'; MAX_HEAD]).unwrap_err().status, 431);
    }

    #[test]
    fn what_connection_names_stays_behind_in_any_case_and_line() {
        let head = "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nx-one: 1\r\nConnection: X-ONE ,\
                    close\r\nKept: 1\r\nconnection:\tx-two\r\nX-Two: 2\r\nPROXY-X: 3\r\n\r\n";
        let expected = "GET / HTTP/1.1\r\nHost: a.test\r\nKept: 1\r\nConnection: close\r\n\r\n";
        assert_eq!(written(head).as_deref(), Some(expected));
        assert!(!Request::parse(head.as_bytes()).unwrap().unwrap().0.keep_alive);
    }

    #[test]
    fn a_length_of_zero_is_told_where_a_body_is_expected() {
        let head = |method| format!("{method} http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n");
        assert!(written(&head("POST")).unwrap().contains("\r\nContent-Length: 0\r\n"));
        assert!(!written(&head("GET")).unwrap().contains("Content-Length"));
    }

    #[test]
    fn a_responses_folded_line_becomes_one() {
        let head =
            b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n";
        let (response, _) = Response::parse(head).unwrap().unwrap();
        let written = String::from_utf8(response.written(Framing::Length(1), false)).unwrap();
        assert_eq!(written, "HTTP/1.1 200 OK\r\nA: b   c\r\nContent-Length: 1\r\n\r\n");
    }

    #[test]
    fn an_answers_reason_stays_on_its_line() {
        let answer = String::from_utf8(answer(403, "a\r\nb: c\u{202e}", Some(7))).unwrap();
        let head = "HTTP/1.1 403 a??b: c?\r\nRetry-After: 7\r\nX-Link-Reason: a??b: c?\r\n";
        assert!(answer.starts_with(head), "{answer}");
    }

    proptest! {
        #[test]
        fn an_authority_is_canonical_or_nothing(asked in "\\PC{0,30}|[a-z0-9.:\\[\\]@+-]{0,30}") {
            if let Ok(target) = authority(&asked, None) {
                prop_assert_eq!(authority(&target.to_string(), None), Ok(target));
            }
        }

        #[test]
        fn what_is_accepted_is_accepted_as_written(
            start in "(GET|POST|CONNECT|[A-Za-z]{1,5}) (http://)?[a-z.:0-9@/?#\\[\\]]{0,20} HTTP/1\\.[01]\r\n",
            lines in "((Host: a.test|Content-Length: [0-9]{0,3}|Transfer-Encoding: (chunked|gzip)|Connection: [a-z, -]{0,9}|X:[ -~]{0,9})\r\n){0,4}",
        ) {
            if let Ok(Some((request, _))) = Request::parse(format!("{start}{lines}\r\n").as_bytes())
                && let Form::Absolute(path) = &request.form
                && path != "*"
            {
                let origin = String::from_utf8(request.written()).unwrap();
                let whole = format!("http://{}{path}", request.target);
                let again = origin.replacen(path, &whole, 1);
                let (read, _) = Request::parse(again.as_bytes()).unwrap().unwrap();
                prop_assert_eq!((read.target, read.framing), (request.target, request.framing));
            }
        }
    }
}
