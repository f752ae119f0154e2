//! A client's connection to the proxy: its requests one after another, each judged
//! anew and sent over a connection of its own.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::WriteHalf;
use tokio::time::timeout;

use crate::body::{self, Fault, Sink, Source};
use crate::calls::{Answer, Calls, Open, Reached};
use crate::connect;
use crate::head::{self, Bad, Form, Framing, Request, Response};
use crate::policy::Asked;
use crate::relay;
use crate::room::{Buffer, Held, Room};

/// How long a client may take for a request's head, and be idle between two.
const HEAD: Duration = Duration::from_secs(30);
/// How long a client is listened to after a last answer, so that what it was
/// sending doesn't make the kernel take the answer back.
const LINGER: Duration = Duration::from_secs(2);
/// What a client hears whose request there is no room for.
const NO_ROOM: &str = "too much is unfinished at a time: 16 MB of requests at most";

/// Serves a connection until it ends.
pub(crate) async fn serve(mut client: TcpStream, calls: &Calls, room: &Rc<Room>) {
    let mut buffer = Buffer::new(room);
    loop {
        let (request, held) = match timeout(HEAD, read_request(&mut client, &mut buffer)).await {
            Ok(Ok(Some(read))) => read,
            Ok(Err(Unread::NoRoom)) => {
                drop(buffer);
                room.say(&calls.log, NO_ROOM);
                let answer = Answer::new(503, NO_ROOM);
                return self::answer(client, &answer).await;
            }
            Ok(Err(Unread::Bad(bad))) => return refuse_unread(client, bad, calls).await,
            Ok(Ok(None)) => return,
            Err(_) if buffer.is_empty() => return,
            Err(_) => {
                let reason = "the request's head took longer than 30 seconds".to_owned();
                let slow = Bad { status: 408, reason, target: Vec::new() };
                return refuse_unread(client, slow, calls).await;
            }
        };
        if request.form == Form::Authority {
            drop(held);
            return connect::serve(client, buffer, request.into_target(), calls).await;
        }
        match exchange(&mut client, &mut buffer, request, held, calls).await {
            Next::Request => {}
            Next::End => return,
            Next::Linger => return linger(client).await,
            Next::Answer(answer) => return self::answer(client, &answer).await,
            Next::Reset => {
                let _ = client.set_zero_linger();
                return;
            }
        }
    }
}

/// Why there is no request.
enum Unread {
    Bad(Bad),
    /// Others are being read, and take all the room.
    NoRoom,
}

impl From<Bad> for Unread {
    fn from(bad: Bad) -> Unread {
        Unread::Bad(bad)
    }
}

/// The next request and the room for it, or `None` where the client has no more.
async fn read_request(
    client: &mut TcpStream,
    buffer: &mut Buffer,
) -> Result<Option<(Request, Held)>, Unread> {
    let (mut stream, _) = client.split();
    let mut from = Source { stream: &mut stream, buffer, count: &|_| {} };
    let mut seen = 0;
    loop {
        // A head is parsed once its end may be there, not at every byte.
        if seen == 0 || has_blank_line(from.buffer, seen) {
            if let Some((request, length)) = Request::parse(from.buffer)? {
                from.buffer.advance(length);
                let held = from.buffer.room().new_head(length).ok_or(Unread::NoRoom)?;
                return Ok(Some((request, held)));
            }
        } else if from.buffer.len() >= head::MAX_HEAD {
            Request::parse(from.buffer)?;
        }
        if from.buffer.is_too_much() {
            return Err(Unread::NoRoom);
        }
        seen = from.buffer.len();
        match from.fill_head().await {
            Ok(read) if read > 0 => {}
            _ => return Ok(None),
        }
    }
}

/// Whether an empty line ends in what came after `seen` bytes.
fn has_blank_line(bytes: &[u8], seen: usize) -> bool {
    let news = &bytes[seen.saturating_sub(3)..];
    news.windows(2).any(|two| two == b"\n\n") || news.windows(3).any(|three| three == b"\n\r\n")
}

async fn refuse_unread(client: TcpStream, bad: Bad, calls: &Calls) {
    let call = calls.log.unknown_call(&bad.target);
    if let Err(closed) = calls.refuse_closed(&call) {
        return answer(client, &closed).await;
    }
    calls.turned_away(&call, &bad.reason, false);
    answer(client, &Answer::new(bad.status, bad.reason)).await;
}

/// Answers in place of whoever was asked for, and ends the connection.
pub(crate) async fn answer(mut client: TcpStream, answer: &Answer) {
    let bytes = head::answer(answer.status, &answer.reason, answer.retry_after);
    if client.write_all(&bytes).await.is_ok() {
        linger(client).await;
    }
}

async fn linger(mut client: TcpStream) {
    if client.shutdown().await.is_err() {
        return;
    }
    let _ = timeout(LINGER, async {
        loop {
            client.readable().await?;
            match ignore(&client) {
                Ok(0) => return Ok(()),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => tokio::task::coop::consume_budget().await,
            }
        }
    })
    .await;
}

/// Reads without a buffer that would wait with the connection.
fn ignore(client: &TcpStream) -> io::Result<usize> {
    client.try_read(&mut [0; 4096])
}

/// What becomes of the client's connection after an exchange.
enum Next {
    /// Another request may come.
    Request,
    /// It's over.
    End,
    /// It ends once the client has heard the answer.
    Linger,
    /// It ends with an answer of the proxy's own.
    Answer(Answer),
    /// It breaks, as the origin's did in the middle of an answer.
    Reset,
}

fn own_answer(status: u16, reason: &str) -> Next {
    Next::Answer(Answer::new(status, reason))
}

async fn exchange(
    client: &mut TcpStream,
    buffer: &mut Buffer,
    mut request: Request,
    held: Held,
    calls: &Calls,
) -> Next {
    let Reached { call, mut origin, .. } = match calls.reach(&request.target, Asked::Http).await {
        Ok(reached) => reached,
        Err(answer) => return Next::Answer(answer),
    };
    let open = match call.open() {
        Ok(open) => open,
        Err(answer) => return Next::Answer(answer),
    };
    let mut origin_buffer = Buffer::new(buffer.room());
    let head = Head { written: request.take_written(), _held: held };
    let passed =
        pass_both(client, buffer, &mut origin, &mut origin_buffer, &request, head, &open).await;
    if !matches!(passed, Passed::Whole { keep_alive: true } | Passed::Switched) {
        // The kernel keeps nothing of a request for an origin that doesn't read it.
        let _ = origin.set_zero_linger();
    }
    match passed {
        Passed::Whole { keep_alive: true } if request.keep_alive => Next::Request,
        Passed::Whole { .. } => Next::Linger,
        Passed::Switched => {
            let room = Rc::clone(buffer.room());
            relay::run(client, &mut origin, buffer, &origin_buffer, &open, &room).await;
            Next::End
        }
        Passed::BadRequest(reason) => own_answer(400, &format!("the request's body: {reason}")),
        Passed::NoAnswer(reason) => {
            open.failed(reason);
            own_answer(502, reason)
        }
        Passed::Broken => Next::Reset,
    }
}

/// What came of a request and its response.
enum Passed {
    /// The response came through.
    Whole {
        /// The client's connection is as it was before.
        keep_alive: bool,
    },
    /// Both sides go on in another protocol.
    Switched,
    /// The request's body can't be read, and nothing was answered yet.
    BadRequest(&'static str),
    /// The origin didn't answer in HTTP.
    NoAnswer(&'static str),
    /// One side broke in the middle of the response.
    Broken,
}

/// Passes the request and the response on at the same time: an origin may answer
/// before it read the request, and a client may wait for the origin's word (100)
/// before it sends the body.
async fn pass_both(
    client: &mut TcpStream,
    buffer: &mut Buffer,
    origin: &mut TcpStream,
    origin_buffer: &mut Buffer,
    request: &Request,
    head: Head,
    open: &Open<'_>,
) -> Passed {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_origin, mut to_origin) = origin.split();
    let sent = |bytes| open.sent(bytes);
    let received = |bytes| open.received(bytes);
    let from = Source { stream: &mut from_client, buffer, count: &|_| {} };
    let to = Sink { stream: &mut to_origin, count: &sent };
    let back = Source { stream: &mut from_origin, buffer: origin_buffer, count: &received };
    let answering = Cell::new(false);
    let up = send(head, request.framing, from, to);
    let down = respond(request, back, &mut to_client, &answering);
    let (mut up, mut down) = (pin!(up), pin!(down));
    let mut uploaded = None;
    poll_fn(|cx| {
        // First the request: an answer to all of it leaves the connection as it was.
        if uploaded.is_none()
            && let Poll::Ready(result) = up.as_mut().poll(cx)
        {
            match result {
                Err(Fault::Source(_)) if answering.get() => return Poll::Ready(Passed::Broken),
                Err(Fault::Source(reason)) => return Poll::Ready(Passed::BadRequest(reason)),
                // An origin that takes no more may have answered.
                other => uploaded = Some(other.is_ok()),
            }
        }
        down.as_mut().poll(cx).map(|response| match response {
            Ok(Answered::Whole) => Passed::Whole { keep_alive: uploaded == Some(true) },
            Ok(Answered::Switched) => Passed::Switched,
            Err(_) if answering.get() => Passed::Broken,
            Err(Fault::Source(reason)) => Passed::NoAnswer(reason),
            Err(Fault::Sink) => Passed::Broken,
        })
    })
    .await
}

/// A head on its way, and the room that it takes meanwhile.
struct Head {
    written: Vec<u8>,
    _held: Held,
}

impl Head {
    fn of(response: Response, body: Framing, closes: bool, room: &Rc<Room>) -> Head {
        let written = response.written(body, closes);
        let held = room.whole_head(written.len());
        Head { written, _held: held }
    }

    async fn send(self, to: &mut Sink<'_, '_>) -> Result<(), Fault> {
        to.write(&self.written).await.map_err(|_| Fault::Sink)
    }
}

async fn send(
    head: Head,
    framing: Framing,
    from: Source<'_, '_>,
    mut to: Sink<'_, '_>,
) -> Result<(), Fault> {
    head.send(&mut to).await?;
    body::pass(from, framing, to, framing).await
}

enum Answered {
    Whole,
    Switched,
}

/// Passes on interim responses, then the final one.
async fn respond(
    request: &Request,
    mut from: Source<'_, '_>,
    to: &mut WriteHalf<'_>,
    answering: &Cell<bool>,
) -> Result<Answered, Fault> {
    let mut to = Sink { stream: to, count: &|_| {} };
    let response = loop {
        let response = read_response(&mut from).await.map_err(Fault::Source)?;
        if !response.is_interim() {
            break response;
        }
        // HTTP/1.0 knows none (RFC 9110, 15.2).
        if request.is_1_1 {
            Head::of(response, Framing::NONE, false, from.buffer.room()).send(&mut to).await?;
        }
    };
    let switched = response.status == 101;
    if switched && !(request.websocket && response.websocket) {
        return Err(Fault::Source("the origin changed to a protocol that wasn't asked for"));
    }
    answering.set(true);
    let framing = response.framing(&request.method);
    let encoding = match framing {
        Framing::Length(length) => Framing::Length(length),
        _ if request.is_1_1 => Framing::Chunked,
        _ => Framing::Close,
    };
    Head::of(response, encoding, !request.keep_alive, from.buffer.room()).send(&mut to).await?;
    if switched {
        return Ok(Answered::Switched);
    }
    body::pass(from, framing, to, encoding).await?;
    Ok(Answered::Whole)
}

async fn read_response(from: &mut Source<'_, '_>) -> Result<Response, &'static str> {
    loop {
        if let Some((response, length)) = Response::parse(from.buffer)? {
            from.buffer.advance(length);
            return Ok(response);
        }
        if from.buffer.is_too_much() {
            return Err("there is no room for the origin's response beside what is unfinished");
        }
        match from.fill_head().await {
            Ok(0) => return Err("the origin closed the connection without an answer"),
            Ok(_) => {}
            Err(_) => return Err("the origin broke the connection without an answer"),
        }
    }
}
