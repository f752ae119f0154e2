//! Messages of the domain name system (RFC 1035), as much of them as the sandbox's
//! names need: one question read, its answer written, a name server's answer read.
//!
//! Everything is read from what a sandbox or a name server sent. A name is kept as it
//! is in a message: each label behind its length, an empty one at the end.

use lnk_spec::host::{Host, HostName};

/// Bytes of a message at most, by TCP (RFC 1035, 4.2.2).
pub const MAX_MESSAGE: usize = u16::MAX as usize;
/// Bytes of an answer by UDP where the question doesn't say (RFC 1035, 4.2.1).
const UDP: usize = 512;
/// Bytes of an answer by UDP at most, and what we say that we take.
const MAX_UDP: usize = 1232;

const HEADER: usize = 12;
/// Bytes of a name at most (RFC 1035, 2.3.4).
const MAX_NAME: usize = 255;
/// Bytes of a service's name at most (RFC 6335, 5.1).
const MAX_SERVICE: usize = 15;
/// Names that lead to each other, followed at most.
const MAX_CHAIN: usize = 8;
/// Pointers of one name, followed at most: a name server writes one.
const MAX_POINTERS: usize = 16;
/// Records of a question, read at most: its OPT is one, and what signs it another.
const MAX_ASKED: usize = 4;
/// Records of a name server's answer, read at most.
const MAX_ANSWERED: u16 = 256;

/// A.
pub const A: u16 = 1;
/// CNAME.
pub const CNAME: u16 = 5;
/// TXT.
pub const TXT: u16 = 16;
/// AAAA (RFC 3596).
pub const AAAA: u16 = 28;
/// SRV (RFC 2782).
pub const SRV: u16 = 33;
/// OPT (RFC 6891).
const OPT: u16 = 41;
/// The internet's class.
pub const IN: u16 = 1;

// The header's flags (RFC 1035, 4.1.1).
const RESPONSE: u16 = 0x8000;
const OPCODE: u16 = 0x7800;
const TRUNCATED: u16 = 0x0200;
const RECURSION_DESIRED: u16 = 0x0100;
const RECURSION_AVAILABLE: u16 = 0x0080;
const RCODE: u16 = 0x000f;

/// How a question was answered (RFC 1035, 4.1.1; RFC 6891, 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Rcode {
    /// With what there is.
    NoError = 0,
    /// It can't be read.
    FormErr = 1,
    /// No answer could be had.
    ServFail = 2,
    /// There is no such name.
    NxDomain = 3,
    /// Only questions are answered.
    NotImp = 4,
    /// It isn't to be answered.
    Refused = 5,
    /// A version of EDNS that isn't known.
    BadVers = 16,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    id: u16,
    flags: u16,
    /// In the case in which it was asked.
    name: Vec<u8>,
    /// What of the name.
    pub kind: u16,
    /// The class.
    pub class: u16,
    /// Bytes of an answer by UDP that the asker takes; none where it doesn't know EDNS.
    takes: Option<u16>,
}

/// A record that answers a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its type.
    pub kind: u16,
    /// Seconds that it may be kept.
    pub ttl: u32,
    /// What it says, with no name in it shortened.
    pub data: Vec<u8>,
}

/// What arrived from somebody who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A question.
    Question(Question),
    /// What is answered at once, by this.
    Wrong(Vec<u8>),
    /// Nothing that is answered.
    Nothing,
}

/// What a name server said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The records of the name, or of what it leads to.
    Records(Vec<Record>),
    /// There is no such name.
    NoSuchName,
    /// It doesn't fit a datagram.
    Truncated,
    /// It can't tell, or what it says can't be read.
    Failed,
}

impl Asked {
    /// Reads a message.
    #[must_use]
    pub fn read(message: &[u8]) -> Asked {
        let Some((id, flags)) = u16_at(message, 0).zip(u16_at(message, 2)) else {
            return Asked::Nothing;
        };
        if message.len() < HEADER || flags & RESPONSE != 0 {
            return Asked::Nothing;
        }
        let wrong = |rcode: Rcode| {
            let mut answer = Vec::with_capacity(HEADER);
            let flags = RESPONSE | flags & (OPCODE | RECURSION_DESIRED) | rcode as u16;
            put(&mut answer, &[id, flags, 0, 0, 0, 0]);
            Asked::Wrong(answer)
        };
        if flags & OPCODE != 0 {
            return wrong(Rcode::NotImp);
        }
        match question(message, id, flags) {
            Some((question, Some(0) | None)) => Asked::Question(question),
            Some((question, Some(_))) => Asked::Wrong(question.answer(Rcode::BadVers, &[], UDP)),
            None => wrong(Rcode::FormErr),
        }
    }
}

/// The one question of a message, and its version of EDNS.
fn question(message: &[u8], id: u16, flags: u16) -> Option<(Question, Option<u8>)> {
    if u16_at(message, 4)? != 1 {
        return None;
    }
    let (name, at) = read_name(message, HEADER)?;
    // Nothing stands before it that it could point to.
    if at != HEADER + name.len() {
        return None;
    }
    let (kind, class) = (u16_at(message, at)?, u16_at(message, at + 2)?);
    let records = [6, 8, 10].map(|at| u16_at(message, at).map(usize::from));
    let records = records.into_iter().sum::<Option<usize>>()?;
    if records > MAX_ASKED {
        return None;
    }
    let (mut takes, mut version) = (None, None);
    let mut at = at + 4;
    for _ in 0..records {
        // Whose it is doesn't matter.
        let record = RawRecord::of(Vec::new(), message, skip_name(message, at)?)?;
        if record.kind == OPT && takes.is_none() {
            takes = Some(record.class);
            version = Some(record.ttl.to_be_bytes()[1]);
        }
        at = record.end;
    }
    Some((Question { id, flags, name, kind, class, takes }, version))
}

impl Question {
    /// A question of our own.
    #[must_use]
    pub fn new(id: u16, name: &[u8], kind: u16) -> Question {
        let flags = RECURSION_DESIRED;
        Question { id, flags, name: name.to_vec(), kind, class: IN, takes: None }
    }

    /// As it is sent.
    #[must_use]
    pub fn written(&self) -> Vec<u8> {
        let mut message = Vec::with_capacity(HEADER + self.name.len() + 4);
        put(&mut message, &[self.id, self.flags, 1, 0, 0, 0]);
        self.put_question(&mut message);
        message
    }

    /// The name as it is in a message.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The name's labels, without the empty one at the end.
    pub fn labels(&self) -> impl Iterator<Item = &[u8]> {
        labels(&self.name)
    }

    /// The name as text, in lower case, each one's its own: in a label what isn't a letter,
    /// a digit, a hyphen or an underscore is escaped (RFC 4343, 2.1).
    #[must_use]
    pub fn shown_name(&self) -> String {
        let labels: Vec<String> = self.labels().map(shown_label).collect();
        if labels.is_empty() { ".".to_owned() } else { labels.join(".") }
    }

    /// The answer, of so many bytes at most: it has no records where they don't fit,
    /// and says so.
    #[must_use]
    pub fn answer(&self, rcode: Rcode, records: &[Record], most: usize) -> Vec<u8> {
        let answer = self.written_answer(rcode, records, 0);
        if answer.len() <= most {
            return answer;
        }
        self.written_answer(rcode, &[], TRUNCATED)
    }

    /// Bytes of an answer by UDP at most.
    #[must_use]
    pub fn takes_by_udp(&self) -> usize {
        self.takes.map_or(UDP, |takes| usize::from(takes).clamp(UDP, MAX_UDP))
    }

    fn written_answer(&self, rcode: Rcode, records: &[Record], flags: u16) -> Vec<u8> {
        let rcode = rcode as u16;
        let flags = flags | RESPONSE | RECURSION_AVAILABLE | self.flags & RECURSION_DESIRED;
        let mut answer = Vec::new();
        let count = u16::try_from(records.len()).expect("they came in one message");
        let additional = u16::from(self.takes.is_some());
        put(&mut answer, &[self.id, flags | rcode & RCODE, 1, count, 0, additional]);
        self.put_question(&mut answer);
        for record in records {
            // The question's name, at its place (RFC 1035, 4.1.4).
            put(&mut answer, &[0xc000 | HEADER as u16, record.kind, IN]);
            answer.extend(record.ttl.to_be_bytes());
            put(&mut answer, &[u16::try_from(record.data.len()).expect("it came in a message")]);
            answer.extend(&record.data);
        }
        if additional == 1 {
            answer.push(0);
            put(&mut answer, &[OPT, MAX_UDP as u16, rcode >> 4 << 8, 0, 0]);
        }
        answer
    }

    fn put_question(&self, to: &mut Vec<u8>) {
        to.extend(&self.name);
        put(to, &[self.kind, self.class]);
    }

    /// Reads a name server's answer; none where it isn't one to this question.
    #[must_use]
    pub fn read_answer(&self, message: &[u8]) -> Option<Answer> {
        let flags = u16_at(message, 2)?;
        if u16_at(message, 0)? != self.id || flags & RESPONSE == 0 || flags & OPCODE != 0 {
            return None;
        }
        let (name, at) = read_name(message, HEADER)?;
        let same = u16_at(message, 4)? == 1
            && name.eq_ignore_ascii_case(&self.name)
            && u16_at(message, at)? == self.kind
            && u16_at(message, at + 2)? == self.class;
        if !same {
            return None;
        }
        if flags & TRUNCATED != 0 {
            return Some(Answer::Truncated);
        }
        Some(match flags & RCODE {
            0 => self.records(message, at + 4).map_or(Answer::Failed, Answer::Records),
            3 => Answer::NoSuchName,
            _ => Answer::Failed,
        })
    }

    /// The records of the question's type: of its name, or of that which it leads to.
    fn records(&self, message: &[u8], mut at: usize) -> Option<Vec<Record>> {
        let count = u16_at(message, 6).filter(|count| *count <= MAX_ANSWERED)?;
        let mut all = Vec::new();
        for _ in 0..count {
            let record = RawRecord::read(message, at)?;
            at = record.end;
            if record.class == IN {
                all.push(record);
            }
        }
        let mut name = self.name.clone();
        for _ in 0..MAX_CHAIN {
            let of = |record: &&RawRecord| record.name.eq_ignore_ascii_case(&name);
            let leads = all.iter().filter(of).find(|record| record.kind == CNAME);
            match leads {
                Some(leads) => name = read_name(message, leads.data)?.0,
                None => break,
            }
        }
        let of = |record: &&RawRecord| {
            record.kind == self.kind && record.name.eq_ignore_ascii_case(&name)
        };
        all.iter().filter(of).map(|record| record.unpacked(message)).collect()
    }
}

impl Record {
    /// The host and port that an SRV record names; none for another record, and where
    /// it says that there is no such service.
    #[must_use]
    pub fn service(&self) -> Option<(HostName, u16)> {
        if self.kind != SRV {
            return None;
        }
        let (name, _) = read_name(&self.data, 6)?;
        Some((host_name(labels(&name))?, u16_at(&self.data, 4)?))
    }
}

fn shown_label(label: &[u8]) -> String {
    let shown = label.iter().map(|byte| match byte {
        _ if is_plain(byte) => char::from(byte.to_ascii_lowercase()).to_string(),
        b'.' | b'\\' => format!("\\{}", char::from(*byte)),
        _ => format!("\\{byte:03}"),
    });
    shown.collect()
}

fn is_plain(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_".contains(byte)
}

/// Whether a label is a service's: an underscore, and 1 to 15 letters, digits, hyphens or
/// underscores (RFC 2782; RFC 6335, 5.1). Whatever else it could hold, a name server
/// would hear it.
#[must_use]
pub fn is_service(label: &[u8]) -> bool {
    let name = label.strip_prefix(b"_");
    name.is_some_and(|name| (1..=MAX_SERVICE).contains(&name.len()) && name.iter().all(is_plain))
}

/// A host's name of labels; none where they are of anything else.
#[must_use]
pub fn host_name<'l>(labels: impl Iterator<Item = &'l [u8]>) -> Option<HostName> {
    let mut text = String::new();
    for label in labels {
        if !label.iter().all(is_plain) {
            return None;
        }
        text.extend(label.iter().map(|byte| char::from(*byte)));
        text.push('.');
    }
    match text.parse() {
        Ok(Host::Name(name)) => Some(name),
        _ => None,
    }
}

fn labels(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = name;
    std::iter::from_fn(move || {
        let (length, after) = rest.split_first().filter(|(length, _)| **length > 0)?;
        let (label, after) = after.split_at(usize::from(*length));
        rest = after;
        Some(label)
    })
}

/// A record at its place in a message.
struct RawRecord {
    name: Vec<u8>,
    kind: u16,
    class: u16,
    ttl: u32,
    /// Where what it says begins.
    data: usize,
    /// Where it ends.
    end: usize,
}

impl RawRecord {
    fn read(message: &[u8], at: usize) -> Option<RawRecord> {
        let (name, at) = read_name(message, at)?;
        RawRecord::of(name, message, at)
    }

    /// One whose name ends before `at`.
    fn of(name: Vec<u8>, message: &[u8], at: usize) -> Option<RawRecord> {
        let (kind, class) = (u16_at(message, at)?, u16_at(message, at + 2)?);
        let ttl = u32::from_be_bytes(message.get(at + 4..at + 8)?.try_into().ok()?);
        let data = at + 10;
        let end = data + usize::from(u16_at(message, at + 8)?);
        (end <= message.len()).then_some(RawRecord { name, kind, class, ttl, data, end })
    }

    /// As it is in any message. Of the types that are asked for, SRV alone holds a name.
    fn unpacked(&self, message: &[u8]) -> Option<Record> {
        let mut data = message.get(self.data..self.end)?.to_vec();
        if self.kind == SRV {
            let (target, end) = read_name(message, self.data + 6)?;
            if end != self.end {
                return None;
            }
            data.truncate(6);
            data.extend(target);
        }
        Some(Record { kind: self.kind, ttl: self.ttl, data })
    }
}

/// A name of a message, whole, and where what follows it begins. It may end in a
/// pointer to another (RFC 1035, 4.1.4), and that in one more.
fn read_name(message: &[u8], from: usize) -> Option<(Vec<u8>, usize)> {
    let mut name = Vec::new();
    let (mut at, mut pointers, mut end) = (from, 0, None);
    loop {
        let length = usize::from(*message.get(at)?);
        match length {
            0 => {
                name.push(0);
                return Some((name, end.unwrap_or(at + 1)));
            }
            1..64 => {
                name.extend(message.get(at..=at + length)?);
                at += 1 + length;
                if name.len() >= MAX_NAME {
                    return None;
                }
            }
            0xc0.. if pointers < MAX_POINTERS => {
                end = end.or(Some(at + 2));
                at = usize::from(u16_at(message, at)? & 0x3fff);
                pointers += 1;
            }
            _ => return None,
        }
    }
}

/// Where what follows a name begins.
fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match usize::from(*message.get(at)?) {
            0 => return Some(at + 1),
            length @ 1..64 => at += 1 + length,
            0xc0.. => return Some(at + 2),
            _ => return None,
        }
    }
}

fn u16_at(message: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?))
}

fn put(to: &mut Vec<u8>, numbers: &[u16]) {
    to.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A name as it is in a message.
    fn wire(name: &str) -> Vec<u8> {
        let labels = name.split('.').filter(|label| !label.is_empty());
        let labels = labels.flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
        labels.chain([0]).collect()
    }

    fn asked(name: &str, kind: u16) -> Question {
        Question::new(0xbeef, &wire(name), kind)
    }

    fn read(message: &[u8]) -> Question {
        match Asked::read(message) {
            Asked::Question(question) => question,
            other => panic!("{other:?}"),
        }
    }

    /// With an OPT record: of so many bytes, and this version.
    fn with_edns(question: &Question, takes: u16, version: u8) -> Vec<u8> {
        let mut message = question.written();
        message[11] = 1;
        message.push(0);
        put(&mut message, &[OPT, takes, u16::from(version), 0, 0]);
        message
    }

    fn records(answer: &Answer) -> &[Record] {
        match answer {
            Answer::Records(records) => records,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn no_two_names_are_shown_alike() {
        let shown = |labels: &[&[u8]]| {
            let labels = labels.iter().flat_map(|label| [&[label.len() as u8], *label].concat());
            Question::new(1, &labels.chain([0]).collect::<Vec<_>>(), A).shown_name()
        };
        assert_eq!(shown(&[b"_X", b"Db-1", b"example"]), "_x.db-1.example");
        assert_eq!(shown(&[b"a.b:443 allowed.com"]), "a\\.b\\058443\\032allowed\\.com");
        assert_eq!(shown(&[b"a\\", b"\x1b\xff\n"]), "a\\\\.\\027\\255\\010");
        assert_eq!(shown(&[]), ".");
    }

    #[test]
    fn a_service_is_short_and_plain() {
        for label in ["_mongodb", "_x", "_etcd-server-ssl", "_XMPP-client", "_a_b"] {
            assert!(is_service(label.as_bytes()), "{label}");
        }
        for label in
            ["", "_", "x", "_a.b", "_a b", "_a\u{e9}", "_a:1", "_sixteen-letters-", "_\x07"]
        {
            assert!(!is_service(label.as_bytes()), "{label}");
        }
    }

    proptest! {
        #[test]
        fn a_shown_name_is_words_of_plain_text(label in proptest::collection::vec(any::<u8>(), 1..63)) {
            let name = [&[label.len() as u8], &label[..], &[0]].concat();
            let shown = Question::new(1, &name, A).shown_name();
            let is_word = |byte: u8| byte.is_ascii_graphic() && byte != b':';
            prop_assert!(shown.bytes().all(is_word), "{}", shown);
            prop_assert_eq!(shown.replace("\\.", "").matches('.').count(), 0);
        }
    }

    #[test]
    fn a_question_is_read_as_it_was_written() {
        let question = asked("Db.Example.com", SRV);
        let read = read(&question.written());
        assert_eq!(read, question);
        let labels: Vec<_> = read.labels().collect();
        assert_eq!(labels, [&b"Db"[..], b"Example", b"com"]);
        assert_eq!(host_name(read.labels()).unwrap().as_str(), "db.example.com");
        assert_eq!(asked("", A).labels().count(), 0);
    }

    #[test]
    fn names_that_no_host_has_are_none() {
        for name in ["", "a b", "a\u{e9}.example", "-a.example", "a/b", "1.2.3.4", "0x7f.1"] {
            assert_eq!(host_name(asked(name, A).labels()), None, "{name}");
        }
        assert_eq!(host_name([&b"a.b"[..], b"example"].into_iter()), None);
        assert_eq!(host_name([&b"*"[..], b"example"].into_iter()), None);
        assert_eq!(host_name(asked("_x._tcp.a", A).labels()).unwrap().as_str(), "_x._tcp.a");
    }

    #[test]
    fn what_an_answer_says_is_read_back() {
        let question = asked("a.example", SRV);
        let data = [&[0, 1, 0, 2, 0x69, 0x89][..], &wire("db.x.example")].concat();
        let records = vec![Record { kind: SRV, ttl: 7, data }; 3];
        let answer = question.answer(Rcode::NoError, &records, MAX_MESSAGE);
        assert_eq!(question.read_answer(&answer), Some(Answer::Records(records.clone())));
        assert_eq!(records[0].service().map(|(_, port)| port), Some(27017));
        let none = |rcode| question.read_answer(&question.answer(rcode, &[], MAX_MESSAGE));
        assert_eq!(none(Rcode::NxDomain), Some(Answer::NoSuchName));
        assert_eq!(none(Rcode::ServFail), Some(Answer::Failed));
        assert_eq!(
            question.read_answer(&question.answer(Rcode::NoError, &records, 60)),
            Some(Answer::Truncated)
        );
        // Of another question: its number, its name, its type.
        for other in [
            Question::new(1, &wire("a.example"), SRV),
            asked("b.example", SRV),
            asked("a.example", TXT),
        ] {
            assert_eq!(other.read_answer(&answer), None);
        }
        assert_eq!(question.read_answer(&question.written()), None);
    }

    #[test]
    fn shortened_names_and_those_that_lead_on_are_followed() {
        let question = asked("_x._tcp.a.example", SRV);
        let mut answer = question.written();
        answer[2] |= 0x80;
        answer[7] = 3;
        let example = (HEADER + "\x02_x\x04_tcp\x01a".len()) as u16;
        let alias = answer.len() as u16 + 12;
        // It is an alias of `alias`.example, which a record of another's name is beside.
        put(&mut answer, &[0xc000 | HEADER as u16, CNAME, IN, 0, 9, 8]);
        answer.extend(b"\x05alias");
        put(&mut answer, &[0xc000 | example]);
        for (owner, port) in [(HEADER as u16, 1), (alias, 2)] {
            put(&mut answer, &[0xc000 | owner, SRV, IN, 0, 9, 11, 0, 0, port]);
            answer.extend(b"\x02db");
            put(&mut answer, &[0xc000 | example]);
        }
        let read = question.read_answer(&answer).unwrap();
        let services: Vec<_> = records(&read).iter().map(|it| it.service().unwrap()).collect();
        assert_eq!(services.len(), 1);
        assert_eq!((services[0].0.as_str(), services[0].1), ("db.example", 2));
    }

    #[test]
    fn what_cant_be_read_is_said_or_left() {
        let good = asked("a.example", A).written();
        let with = |at: usize, byte| {
            let mut message = good.clone();
            message[at] = byte;
            Asked::read(&message)
        };
        assert_eq!(with(2, 0x81), Asked::Nothing);
        assert_eq!(Asked::read(&good[..11]), Asked::Nothing);
        for (asked, rcode) in [
            (with(2, 0x28), Rcode::NotImp),
            (with(5, 2), Rcode::FormErr),
            (with(5, 0), Rcode::FormErr),
            (with(11, 1), Rcode::FormErr),
            (with(12, 0x40), Rcode::FormErr),
            (Asked::read(&good[..good.len() - 1]), Rcode::FormErr),
        ] {
            let Asked::Wrong(answer) = asked else { panic!("{asked:?}") };
            assert_eq!((answer.len(), &answer[..2]), (HEADER, &[0xbe, 0xef][..]));
            assert_eq!(u16::from(answer[3]) & RCODE, rcode as u16);
        }
        // A name that is itself, and one of 256 bytes.
        let mut itself = good[..HEADER].to_vec();
        put(&mut itself, &[0xc000 | HEADER as u16, A, IN]);
        let long = Question::new(1, &wire(&["a".repeat(63).as_str(); 4].join(".")), A);
        for message in [itself, long.written()] {
            assert!(matches!(Asked::read(&message), Asked::Wrong(_)));
        }
    }

    #[test]
    fn no_message_takes_long_to_read() {
        // A name of 126 labels, pointers that lead to each other, and as many records as
        // fit that point there.
        let mut message = asked(&"a.".repeat(126), A).written();
        let mut last = HEADER as u16;
        while message.len() < MAX_MESSAGE - 13 {
            let at = message.len() as u16;
            put(&mut message, &[0xc000 | last, TXT, IN, 0, 0, 0]);
            last = if at < 0x3fff { at } else { last };
        }
        let records = u16::try_from((message.len() - HEADER) / 12).unwrap();
        message[6..8].copy_from_slice(&records.to_be_bytes());
        let begun = std::time::Instant::now();
        for _ in 0..200 {
            assert!(matches!(Asked::read(&message), Asked::Wrong(_)));
        }
        let question = asked(&"a.".repeat(126), A);
        message[2] |= 0x80;
        for _ in 0..200 {
            assert_eq!(question.read_answer(&message), Some(Answer::Failed));
        }
        assert!(begun.elapsed() < std::time::Duration::from_millis(500), "{:?}", begun.elapsed());
        // What a question may have beside its OPT.
        let mut signed = with_edns(&asked("a.example", A), 1232, 0);
        signed[11] = 2;
        signed.push(0);
        put(&mut signed, &[250, 255, 0, 0, 0]);
        assert_eq!(read(&signed).takes, Some(1232));
        signed[11] = 5;
        signed.extend([0; 33]);
        assert!(matches!(Asked::read(&signed), Asked::Wrong(_)));
    }

    #[test]
    fn edns_says_how_much_is_taken() {
        let question = asked("a.example", A);
        for (takes, most) in [(0, 512), (600, 600), (4096, 1232)] {
            let read = read(&with_edns(&question, takes, 0));
            assert_eq!(read.takes_by_udp(), most);
            let answer = read.answer(Rcode::NoError, &[], most);
            assert_eq!((answer[11], answer.len()), (1, question.written().len() + 11));
        }
        let Asked::Wrong(answer) = Asked::read(&with_edns(&question, 1232, 1)) else { panic!() };
        // BADVERS is 16: of its bits the upper ones are in the record.
        assert_eq!((answer[3] & 15, answer[answer.len() - 6]), (0, 1));
        let many = vec![Record { kind: TXT, ttl: 1, data: vec![0; 40] }; 20];
        let answer = question.answer(Rcode::NoError, &many, question.takes_by_udp());
        assert_eq!((answer[2] & 2, answer[7], answer.len()), (2, 0, question.written().len()));
    }

    proptest! {
        #[test]
        fn no_message_panics(message: Vec<u8>, start in 0usize..3) {
            let question = asked("a.example", SRV);
            let good = [question.written(), with_edns(&question, 1232, 0), {
                let data = [&[0; 6][..], &wire("b.example")].concat();
                question.answer(Rcode::NoError, &[Record { kind: SRV, ttl: 1, data }], 512)
            }];
            let mut message = [good[start].clone(), message].concat();
            for _ in 0..2 {
                if let Asked::Question(question) = Asked::read(&message) {
                    let answer = question.answer(Rcode::NoError, &[], question.takes_by_udp());
                    prop_assert!(answer.len() <= 512);
                }
                if let Some(Answer::Records(records)) = question.read_answer(&message) {
                    for record in &records {
                        let _ = record.service();
                    }
                    let answer = question.answer(Rcode::NoError, &records, MAX_MESSAGE);
                    prop_assert_eq!(question.read_answer(&answer), Some(Answer::Records(records)));
                }
                message.reverse();
            }
        }
    }
}
