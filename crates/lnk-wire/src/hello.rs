//! The TLS ClientHello: as much of it as a verdict needs (RFC 8446, RFC 6066).
//!
//! Strict: what a TLS server could read in two ways is no hello.

/// Bytes of records that a hello may take.
pub const MAX_HELLO: usize = 64 * 1024;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
/// Bytes of a record's content at most (RFC 8446, 5.1).
const MAX_RECORD: usize = 1 << 14;

/// What the first bytes of a connection are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The beginning of a hello.
    NeedMore,
    /// A whole hello. More bytes may follow it, in records of their own.
    Hello {
        /// The server's name, as it is sent.
        server_name: Option<String>,
    },
    /// Something else: why, in a few words.
    NotTls(&'static str),
}

/// Reads what a client sent first.
#[must_use]
pub fn read(bytes: &[u8]) -> Verdict {
    match message(bytes) {
        Err(reason) => Verdict::NotTls(reason),
        Ok(None) if bytes.len() >= MAX_HELLO => Verdict::NotTls("the hello is too long"),
        Ok(None) => Verdict::NeedMore,
        Ok(Some(hello)) => match server_name(&hello) {
            Some(Ok(server_name)) => Verdict::Hello { server_name },
            Some(Err(reason)) => Verdict::NotTls(reason),
            None => Verdict::NotTls("the hello is malformed"),
        },
    }
}

/// The hello's body out of its records, once all of it is there.
fn message(bytes: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    let mut handshake = Vec::new();
    let mut rest = bytes;
    loop {
        if let Some(length) = message_length(&handshake)? {
            match handshake.len().cmp(&length) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => return Ok(Some(handshake.split_off(4))),
                std::cmp::Ordering::Greater => return Err("more than a hello in its records"),
            }
        }
        match record(rest)? {
            Some(record) => {
                handshake.extend_from_slice(record.content);
                rest = record.rest;
            }
            None => return Ok(None),
        }
    }
}

/// The length of the handshake message with its header, once that is there.
fn message_length(handshake: &[u8]) -> Result<Option<usize>, &'static str> {
    match handshake {
        [kind, ..] if *kind != CLIENT_HELLO => Err("a TLS message other than a hello"),
        [_, a, b, c, ..] => {
            let length = 4 + u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if length > MAX_HELLO { Err("the hello is too long") } else { Ok(Some(length)) }
        }
        _ => Ok(None),
    }
}

struct Record<'b> {
    content: &'b [u8],
    /// What follows it.
    rest: &'b [u8],
}

/// The first record, once all of it is there.
fn record(bytes: &[u8]) -> Result<Option<Record<'_>>, &'static str> {
    let expected = [HANDSHAKE, 3];
    if bytes.iter().zip(expected).any(|(byte, expected)| *byte != expected) {
        return Err("not TLS");
    }
    let [_, _, _, high, low, rest @ ..] = bytes else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    if length == 0 || length > MAX_RECORD {
        return Err("a TLS record of an impossible length");
    }
    let split = rest.split_at_checked(length);
    Ok(split.map(|(content, rest)| Record { content, rest }))
}

/// The server's name in a hello's body; `None` where the body is malformed.
fn server_name(body: &[u8]) -> Option<Result<Option<String>, &'static str>> {
    let mut body = Fields(body);
    body.take(2 + 32)?;
    body.vector8()?;
    body.vector16()?;
    body.vector8()?;
    if body.0.is_empty() {
        return Some(Ok(None));
    }
    let mut extensions = Fields(body.vector16()?);
    if !body.0.is_empty() {
        return None;
    }
    let mut name = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number16()?;
        let content = extensions.vector16()?;
        if kind == SERVER_NAME && name.replace(host_name(content)?).is_some() {
            return Some(Err("a hello with two server names"));
        }
    }
    Some(Ok(name))
}

/// The one name of the extension's list.
fn host_name(extension: &[u8]) -> Option<String> {
    let mut extension = Fields(extension);
    let mut list = Fields(extension.vector16()?);
    let kind = list.number8()?;
    let name = list.vector16()?;
    let alone = extension.0.is_empty() && list.0.is_empty() && kind == HOST_NAME;
    let plain = !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
    (alone && plain).then(|| String::from_utf8_lossy(name).into_owned())
}

/// Reads fields from the front (RFC 8446, 3).
struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn number8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn number16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn vector8(&mut self) -> Option<&'b [u8]> {
        let length = self.number8()?;
        self.take(length.into())
    }

    fn vector16(&mut self) -> Option<&'b [u8]> {
        let length = self.number16()?;
        self.take(length.into())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn vector16(content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap();
        [&length.to_be_bytes(), content].concat()
    }

    fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
        [kind.to_be_bytes().to_vec(), vector16(content)].concat()
    }

    fn named(name: &[u8]) -> Vec<u8> {
        extension(0, &vector16(&[vec![0], vector16(name)].concat()))
    }

    fn records(message: &[u8], pieces: usize) -> Vec<u8> {
        let size = message.len().div_ceil(pieces);
        let record = |content: &[u8]| [vec![22, 3, 1], vector16(content)].concat();
        message.chunks(size).flat_map(record).collect()
    }

    fn with_extensions(extensions: &[u8], pieces: usize) -> Vec<u8> {
        let head = [&[3, 3][..], &[9; 32], &[0], &vector16(&[0x13, 1]), &[1, 0]].concat();
        let body = [head, vector16(extensions)].concat();
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        records(&[&[1], &length[1..], &body].concat(), pieces)
    }

    /// A hello in so many records.
    pub(crate) fn hello(name: Option<&str>, pieces: usize) -> Vec<u8> {
        let names = name.map(|name| named(name.as_bytes())).unwrap_or_default();
        with_extensions(&[extension(10, &[1]), names, extension(43, &[2, 3, 4])].concat(), pieces)
    }

    fn is(name: Option<&str>) -> Verdict {
        Verdict::Hello { server_name: name.map(str::to_owned) }
    }

    #[test]
    fn the_name_is_read_from_however_many_records() {
        for pieces in [1, 2, 3, 50] {
            assert_eq!(read(&hello(Some("a.test"), pieces)), is(Some("a.test")));
            assert_eq!(read(&hello(None, pieces)), is(None));
        }
        let early_data = [hello(Some("a.test"), 1), vec![23, 3, 3, 0, 1, 9]].concat();
        assert_eq!(read(&early_data), is(Some("a.test")));
    }

    #[test]
    fn hellos_of_real_clients_are_read() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/tls_hello");
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let unnamed = path.ends_with("openssl_unnamed");
            let name = (!unnamed).then_some("example.com");
            assert_eq!(read(&std::fs::read(&path).unwrap()), is(name), "{}", path.display());
        }
    }

    #[test]
    fn every_beginning_needs_more() {
        let whole = hello(Some("a.test"), 3);
        for end in 0..whole.len() {
            assert_eq!(read(&whole[..end]), Verdict::NeedMore, "{end}");
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_no_hello() {
        let a = named(b"a.test");
        let two_in_a_list = [vec![0], vector16(b"a"), vec![0], vector16(b"b")].concat();
        let another_kind = [vec![1], vector16(b"a")].concat();
        let longer = |bytes: &[u8]| [vector16(bytes), vec![0]].concat();
        let one = [vec![0], vector16(b"a")].concat();
        for extensions in [
            [a.clone(), named(b"b.test")].concat(),
            [a.clone(), a.clone()].concat(),
            extension(0, &vector16(&two_in_a_list)),
            extension(0, &vector16(&another_kind)),
            extension(0, &longer(&one)),
            extension(0, &vector16(&[])),
            extension(0, &[]),
            named(b""),
            named(b"a\0b"),
            named(b"a b"),
            named("ü".as_bytes()),
            [a.clone(), vec![0]].concat(),
            a[..a.len() - 1].to_vec(),
        ] {
            let verdict = read(&with_extensions(&extensions, 1));
            assert!(matches!(verdict, Verdict::NotTls(_)), "{extensions:?}: {verdict:?}");
        }
        let coalesced = records(&[&hello(Some("a"), 1)[5..], &[1, 0, 0, 0]].concat(), 1);
        for bytes in [
            &coalesced[..],
            b"GET /",
            b"\x17",
            b"\x16\x02",
            b"\x16\x03\x01\x00\x00",
            b"\x16\x03\x01\x40\x01",
            b"\x16\x03\x01\x00\x01\x02",
            b"\x16\x03\x01\x00\x04\x01\x01\x00\x00",
            b"\x80\x2e\x01\x03\x01",
        ] {
            assert!(matches!(read(bytes), Verdict::NotTls(_)), "{bytes:?}");
        }
    }

    #[test]
    fn a_hello_has_a_size() {
        let drip = b"\x16\x03\x01\x00\x01\x01".repeat(2);
        assert!(matches!(read(&drip), Verdict::NeedMore | Verdict::NotTls(_)));
        let mut long = records(&[&[1, 0, 0xff, 0xf0][..], &[7; 0xfff0]].concat(), 5);
        long.truncate(MAX_HELLO);
        assert_eq!(read(&long), Verdict::NotTls("the hello is too long"));
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic_or_change_its_mind(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            pieces in 1..9usize,
        ) {
            let _ = read(&bytes);
            let mut hello = hello(Some("a.test"), pieces);
            for (at, byte) in flips {
                let at = at.index(hello.len());
                hello[at] = byte;
            }
            let verdict = read(&hello);
            for end in 0..hello.len() {
                let early = read(&hello[..end]);
                // More bytes never undo a verdict.
                prop_assert!(early == Verdict::NeedMore || early == verdict, "{:?}", early);
            }
        }
    }
}
