//! The sandbox's DNS: the names of its endpoints, and no others.
//!
//! A name of an endpoint has an address that stands for it, whatever its own are: the
//! call is judged when that address is dialled. SRV and TXT of such a name, which lead
//! to other endpoints, are looked up outside. No other name is known, and of none
//! does a packet go out.

pub mod message;
mod outside;

use std::io;
use std::rc::Rc;
use std::time::Duration;

use lnk_spec::host::{Host, HostName};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::{spawn_local, yield_now};
use tokio::time::{sleep, timeout};

use self::message::{A, AAAA, Answer, IN, Question, Rcode, Record, SRV, TXT};
use crate::calls::{Calls, Open};
use crate::gate::unless;
use crate::log::{Call, Verb};
use crate::policy::Target;
use crate::room::{Buffer, Room};

/// Bytes of a question at most: more than any needs.
const MAX_QUESTION: usize = 4096;
/// Bytes of its length, where it comes by TCP (RFC 1035, 4.2.2).
const LENGTH: usize = 2;
/// Bytes that are read at once of it.
const PART: usize = 512;
/// How long a connection may be silent, or leave an answer unread.
const SILENT: Duration = Duration::from_secs(10);
/// How long receiving rests after an error.
const REST: Duration = Duration::from_millis(100);
/// Seconds that an address may be kept. It stands for its name for all of the run.
const TTL: u32 = 60;

/// Closed services that are named at most, of those that one name leads to.
const MAX_NAMED: usize = 8;

/// What a question is answered with.
type Answered = (Rcode, Vec<Record>);

/// Answers questions that come by UDP until the wire stops.
pub(crate) async fn serve_by_udp(socket: UdpSocket, calls: Rc<Calls>) {
    let socket = Rc::new(socket);
    let mut received = vec![0; MAX_QUESTION];
    loop {
        // Others have their turn between two, however fast they come.
        yield_now().await;
        let Ok((length, from)) = socket.recv_from(&mut received).await else {
            sleep(REST).await;
            continue;
        };
        // An answer that isn't taken at once is lost, as any datagram may be.
        let question = match read(&received[..length], &calls) {
            Ok(question) => question,
            Err(answer) => {
                let _ = answer.map(|answer| socket.try_send_to(&answer, from));
                continue;
            }
        };
        match judge(&question, &calls) {
            Judged::Answered(answered) => {
                let _ = socket.try_send_to(&by_udp(&question, &answered), from);
            }
            Judged::Outside => {
                let (socket, calls) = (Rc::clone(&socket), Rc::clone(&calls));
                spawn_local(async move {
                    let answered = look_up(&question, &calls).await;
                    let _ = socket.try_send_to(&by_udp(&question, &answered), from);
                });
            }
        }
    }
}

fn by_udp(question: &Question, (rcode, records): &Answered) -> Vec<u8> {
    question.answer(*rcode, records, question.takes_by_udp())
}

/// Answers questions that come by TCP, one after the other.
pub(crate) async fn serve_by_tcp(mut client: TcpStream, calls: &Calls, room: &Rc<Room>) {
    let mut buffer = Buffer::new(room);
    while let Ok(Ok(length)) = timeout(SILENT, whole_question(&mut client, &mut buffer)).await {
        let end = LENGTH + length;
        // One that is too long ends before it's there.
        let asked = buffer.get(LENGTH..end).unwrap_or_default();
        let (answer, goes_on) = match read(asked, calls) {
            Ok(question) => {
                let (rcode, records) = match judge(&question, calls) {
                    Judged::Answered(answered) => answered,
                    Judged::Outside => look_up(&question, calls).await,
                };
                (Some(question.answer(rcode, &records, message::MAX_MESSAGE)), true)
            }
            Err(answer) => (answer, false),
        };
        let Some(answer) = answer.map(|answer| outside::with_length(&answer)) else { return };
        let sent = timeout(SILENT, client.write_all(&answer)).await;
        if !goes_on || !matches!(sent, Ok(Ok(()))) {
            return;
        }
        buffer.advance(end);
        // Others have their turn between two, however many came at once.
        yield_now().await;
    }
}

/// Waits for a whole question: its length. One that is longer than any is isn't waited
/// for, nor one for which there is no room beside what is unfinished.
async fn whole_question(client: &mut TcpStream, buffer: &mut Buffer) -> io::Result<usize> {
    let (mut stream, _) = client.split();
    loop {
        if let [high, low, question @ ..] = &buffer[..] {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            if question.len() >= length || length > MAX_QUESTION {
                return Ok(length);
            }
        }
        if buffer.is_too_much() || buffer.read_head(&mut stream, PART).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Reads a question. What is none is a refused call: what is answered to it, if anything.
fn read(received: &[u8], calls: &Calls) -> Result<Question, Option<Vec<u8>>> {
    let answer = match message::Asked::read(received) {
        message::Asked::Question(question) => return Ok(question),
        message::Asked::Wrong(answer) => Some(answer),
        message::Asked::Nothing => None,
    };
    let call = calls.log.event(Verb::Dns);
    if calls.refuse_closed(&call).is_ok() {
        calls.turned_away(&call, "no question that is answered here", false);
    }
    Err(answer)
}

/// What becomes of a question.
enum Judged {
    /// It is answered here.
    Answered(Answered),
    /// It is looked up outside.
    Outside,
}

fn judge(question: &Question, calls: &Calls) -> Judged {
    let name = name_of(question).filter(|_| question.class == IN);
    match name.filter(|name| calls.endpoints.have(name)) {
        Some(_) if matches!(question.kind, SRV | TXT) => Judged::Outside,
        Some(name) => Judged::Answered(stand_in(question, &name, calls)),
        None => {
            let reason = match name_of(question) {
                Some(name) => calls.endpoints.no_name(&name),
                None => "no endpoint has such a name".to_owned(),
            };
            match question.kind {
                // The look-up's question for an A counts.
                AAAA => calls.log.turned_away_with_another(&call(question, calls), &reason),
                _ => calls.turned_away(&call(question, calls), &reason, false),
            }
            Judged::Answered((Rcode::NxDomain, Vec::new()))
        }
    }
}

/// The name whose endpoints a question is about. A service's is that of the host that
/// has it: `_postgresql._tcp.db.example.com` (RFC 2782).
fn name_of(question: &Question) -> Option<HostName> {
    let labels: Vec<&[u8]> = question.labels().collect();
    let host = match labels.as_slice() {
        [service, protocol, host @ ..]
            if question.kind == SRV
                && message::is_service(service)
                && protocol.eq_ignore_ascii_case(b"_tcp") =>
        {
            host
        }
        host => host,
    };
    message::host_name(host.iter().copied())
}

/// The address that stands for an endpoint's name, which has nothing else.
fn stand_in(question: &Question, name: &HostName, calls: &Calls) -> Answered {
    if calls.refuse_closed(&call(question, calls)).is_err() {
        return (Rcode::Refused, Vec::new());
    }
    let Some(address) = calls.endpoints.address(name) else {
        let reason = "so many names were looked up that no address is left";
        calls.log.turned_away(&call(question, calls), reason);
        return (Rcode::ServFail, Vec::new());
    };
    if calls.endpoints.is_news(name) {
        let call = call(question, calls);
        if calls.log.allowed(&call).is_err() {
            return (Rcode::ServFail, Vec::new());
        }
        calls.log.ended(&call, 0, 0);
    }
    let record = Record { kind: A, ttl: TTL, data: address.octets().to_vec() };
    (Rcode::NoError, if question.kind == A { vec![record] } else { Vec::new() })
}

/// Looks SRV or TXT up outside: a call like any other, let through and logged.
async fn look_up(question: &Question, calls: &Calls) -> Answered {
    let call = call(question, calls);
    let none = |rcode| (rcode, Vec::new());
    if !calls.endpoints.are_looked_up() {
        let reason = "the upstream looks names up, but not their SRV and TXT; with socks5:// they \
                      are looked up here";
        calls.log.turned_away(&call, reason);
        return none(Rcode::Refused);
    }
    let Ok(_place) = calls.endpoints.lookups.try_acquire() else {
        calls.log.turned_away(&call, "too many names are being looked up");
        return none(Rcode::ServFail);
    };
    let closing = calls.gate.closings().next();
    let Ok(call) = calls.begin(call) else { return none(Rcode::Refused) };
    let Ok(open) = call.open() else { return none(Rcode::ServFail) };
    // In lower case: which letters are capital ones is nobody's to hear. A label's length
    // is below any letter.
    let name = question.name().to_ascii_lowercase();
    open.sent(name.len() as u64);
    let looking = outside::look_up(&calls.gate.connections, &name, question.kind);
    // The wire was closed: who asks hears no more than any other then.
    let Some(answer) = unless(closing, looking).await else { return none(Rcode::Refused) };
    match answer {
        Answer::Records(records) => {
            open.received(records.iter().map(|record| record.data.len() as u64).sum());
            let is_srv = question.kind == SRV;
            (Rcode::NoError, if is_srv { open_services(records, &open, calls) } else { records })
        }
        Answer::NoSuchName => none(Rcode::NxDomain),
        Answer::Truncated | Answer::Failed => {
            open.failed("no name server of this machine answers");
            none(Rcode::ServFail)
        }
    }
}

/// The services among them that are endpoints. The log names the others.
fn open_services(records: Vec<Record>, open: &Open<'_>, calls: &Calls) -> Vec<Record> {
    let mut closed: Vec<Target> = Vec::new();
    let is_open = |record: &Record| {
        let Some((name, port)) = record.service() else { return false };
        let target = Target { host: Host::Name(name), port };
        let is_open = calls.endpoints.is_open(&target);
        if !is_open && !closed.contains(&target) {
            closed.push(target);
        }
        is_open
    };
    let services = records.into_iter().filter(is_open).collect();
    if !closed.is_empty() {
        open.failed(&leads_to(&closed, calls));
    }
    services
}

/// The line for closed services: what opens all of them, and as many names as fit.
fn leads_to(closed: &[Target], calls: &Calls) -> String {
    let (named, more) = closed.split_at(closed.len().min(MAX_NAMED));
    let named: Vec<String> = named.iter().map(ToString::to_string).collect();
    let more = match more.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let are = if closed.len() == 1 { "isn't" } else { "aren't" };
    let hint = calls.endpoints.hint(closed);
    format!("it leads to {}{more}, which {are} open: {hint}", named.join(", "))
}

fn call(question: &Question, calls: &Calls) -> Call {
    calls.log.call(Verb::Dns, question.shown_name(), None)
}
