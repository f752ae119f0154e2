//! The sandbox's DNS: the names of its endpoints, and no others.
//!
//! A name of an endpoint has an address that stands for it, whatever its own are: the
//! call is judged when that address is dialled. SRV and TXT of such a name, which lead
//! to other endpoints, are looked up outside. No other name is known, and of none
//! does a packet go out.

pub mod message;
mod outside;

use std::rc::Rc;
use std::time::Duration;

use lnk_spec::host::{Host, HostName};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use self::message::{A, AAAA, Answer, IN, Question, Rcode, Record, SRV, TXT};
use crate::calls::{Calls, Open};
use crate::log::{Call, Verb};
use crate::policy::Target;

/// Bytes of a question that is read by UDP: more than any needs.
const MAX_QUESTION: usize = 4096;
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
        let Ok((length, from)) = socket.recv_from(&mut received).await else {
            sleep(REST).await;
            continue;
        };
        // An answer that isn't taken at once is lost, as any datagram may be.
        let question = match message::Asked::read(&received[..length]) {
            message::Asked::Question(question) => question,
            message::Asked::Wrong(answer) => {
                let _ = socket.try_send_to(&answer, from);
                continue;
            }
            message::Asked::Nothing => continue,
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
pub(crate) async fn serve_by_tcp(mut client: TcpStream, calls: &Calls) {
    while let Ok(Ok(received)) = timeout(SILENT, outside::read_message(&mut client)).await {
        let answer = match message::Asked::read(&received) {
            message::Asked::Question(question) => {
                let (rcode, records) = match judge(&question, calls) {
                    Judged::Answered(answered) => answered,
                    Judged::Outside => look_up(&question, calls).await,
                };
                question.answer(rcode, &records, message::MAX_MESSAGE)
            }
            message::Asked::Wrong(answer) => answer,
            message::Asked::Nothing => return,
        };
        let answer = outside::with_length(&answer);
        if !matches!(timeout(SILENT, client.write_all(&answer)).await, Ok(Ok(()))) {
            return;
        }
    }
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
    let Ok(call) = calls.begin(call) else { return none(Rcode::Refused) };
    let Ok(open) = call.open() else { return none(Rcode::ServFail) };
    // In lower case: which letters are capital ones is nobody's to hear. A label's length
    // is below any letter.
    let name = question.name().to_ascii_lowercase();
    open.sent(name.len() as u64);
    match outside::look_up(&name, question.kind).await {
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
