//! A message's body from one connection to another, its framing read strictly and
//! written anew.

use std::io;

use httparse::{EMPTY_HEADER, Status};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use crate::head::{Framing, is_trailer};
use crate::room::Buffer;

/// Bytes that are read at once of a head.
const HEAD: usize = 4096;
/// Bytes that are read at once of a body: at first, and of a body that turns out long.
const SHORT: usize = 16 * 1024;
const LONG: usize = 64 * 1024;
/// Bytes after which a body is long.
const MUCH: u64 = 100 * 1024;
/// Bytes of a chunk's first line at most, extensions too.
const MAX_LINE: usize = 4096;
/// Bytes of trailers at most, and how many.
const MAX_TRAILERS: usize = 16 * 1024;
const TRAILERS: usize = 32;

/// What a head or body is read from: bytes that came already, then the connection.
pub(crate) struct Source<'s, 'h> {
    pub stream: &'s mut ReadHalf<'h>,
    pub buffer: &'s mut Buffer,
    /// Told of bytes that came.
    pub count: &'s dyn Fn(u64),
}

impl Source<'_, '_> {
    /// Waits for more of a head; 0 at the end.
    pub async fn fill_head(&mut self) -> io::Result<usize> {
        let read = self.buffer.read_head(self.stream, HEAD).await?;
        (self.count)(read as u64);
        Ok(read)
    }

    async fn fill(&mut self, size: usize) -> io::Result<usize> {
        let read = self.buffer.read_body(self.stream, size).await?;
        (self.count)(read as u64);
        Ok(read)
    }
}

/// Where a body goes.
pub(crate) struct Sink<'s, 'h> {
    pub stream: &'s mut WriteHalf<'h>,
    /// Told of bytes that went.
    pub count: &'s dyn Fn(u64),
}

impl Sink<'_, '_> {
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        (self.count)(bytes.len() as u64);
        Ok(())
    }
}

/// Why a body didn't come through.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It ended early, is malformed or can't be read.
    Source(&'static str),
    /// Nobody takes it.
    Sink,
}

const EARLY: Fault = Fault::Source("the body ended early");

/// Passes a body on: read as `framing` says, written as `encoding` does.
pub(crate) async fn pass(
    mut from: Source<'_, '_>,
    framing: Framing,
    mut to: Sink<'_, '_>,
    encoding: Framing,
) -> Result<(), Fault> {
    let to = &mut Encoder { sink: &mut to, chunked: encoding == Framing::Chunked };
    match framing {
        Framing::Length(0) => {}
        Framing::Length(length) => pass_length(&mut from, Some(length), to).await?,
        Framing::Close => pass_length(&mut from, None, to).await?,
        Framing::Chunked => return pass_chunks(&mut from, to).await,
    }
    to.end(&[]).await
}

async fn pass_length(
    from: &mut Source<'_, '_>,
    length: Option<u64>,
    to: &mut Encoder<'_, '_, '_>,
) -> Result<(), Fault> {
    let mut passed = 0;
    loop {
        let left = length.map_or(u64::MAX, |length| length - passed);
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(from.buffer.len());
        to.data(&from.buffer[..part]).await?;
        from.buffer.advance(part);
        passed += part as u64;
        if length == Some(passed) {
            return Ok(());
        }
        if !more(from, passed).await? {
            return if length.is_none() { Ok(()) } else { Err(EARLY) };
        }
    }
}

async fn pass_chunks(from: &mut Source<'_, '_>, to: &mut Encoder<'_, '_, '_>) -> Result<(), Fault> {
    let mut chunks = Chunks::default();
    let mut passed = 0;
    loop {
        match chunks.next(from.buffer).map_err(Fault::Source)? {
            Step::NeedMore => {
                if !more(from, passed).await? {
                    return Err(EARLY);
                }
            }
            Step::Skip(length) => from.buffer.advance(length),
            Step::Data(length) => {
                to.data(&from.buffer[..length]).await?;
                from.buffer.advance(length);
                passed += length as u64;
            }
            Step::End { length, trailers } => {
                from.buffer.advance(length);
                return to.end(&trailers).await;
            }
        }
    }
}

async fn more(from: &mut Source<'_, '_>, passed: u64) -> Result<bool, Fault> {
    let size = if passed < MUCH { SHORT } else { LONG };
    match from.fill(size).await {
        Ok(read) => Ok(read > 0),
        Err(_) => Err(Fault::Source("the connection broke")),
    }
}

struct Encoder<'e, 's, 'h> {
    sink: &'e mut Sink<'s, 'h>,
    chunked: bool,
}

impl Encoder<'_, '_, '_> {
    async fn data(&mut self, data: &[u8]) -> Result<(), Fault> {
        if data.is_empty() {
            return Ok(());
        }
        let sent = if self.chunked {
            let chunk = [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat();
            self.sink.write(&chunk).await
        } else {
            self.sink.write(data).await
        };
        sent.map_err(|_| Fault::Sink)
    }

    async fn end(&mut self, trailers: &[u8]) -> Result<(), Fault> {
        if !self.chunked {
            return Ok(());
        }
        let end = [b"0\r\n", trailers, b"\r\n"].concat();
        self.sink.write(&end).await.map_err(|_| Fault::Sink)
    }
}

/// Reads a chunked body (RFC 9112, 7.1).
#[derive(Debug, Default)]
pub struct Chunks {
    state: State,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Size,
    Data(u64),
    DataEnd,
    Trailers,
}

/// What the bytes at hand begin with.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Too little to tell.
    NeedMore,
    /// So many bytes of framing.
    Skip(usize),
    /// So many bytes of the body.
    Data(usize),
    /// The end.
    End {
        /// Its bytes.
        length: usize,
        /// The trailer lines that are passed on, each with its line end.
        trailers: Vec<u8>,
    },
}

impl Chunks {
    /// Reads on; what it names is to be taken off the front before the next time.
    ///
    /// # Errors
    /// The framing is malformed: why, in one line.
    pub fn next(&mut self, bytes: &[u8]) -> Result<Step, &'static str> {
        match self.state {
            State::Size => self.size(bytes),
            State::Data(_) if bytes.is_empty() => Ok(Step::NeedMore),
            State::Data(left) => {
                let part = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                let left = left - part as u64;
                self.state = if left == 0 { State::DataEnd } else { State::Data(left) };
                Ok(Step::Data(part))
            }
            State::DataEnd => match bytes {
                [b'\r', b'\n', ..] => {
                    self.state = State::Size;
                    Ok(Step::Skip(2))
                }
                [] | [b'\r'] => Ok(Step::NeedMore),
                _ => Err("a chunk is longer than its size"),
            },
            State::Trailers => trailers(bytes),
        }
    }

    fn size(&mut self, bytes: &[u8]) -> Result<Step, &'static str> {
        let Some(end) = bytes.iter().take(MAX_LINE).position(|byte| *byte == b'\n') else {
            return if bytes.len() < MAX_LINE { Ok(Step::NeedMore) } else { Err(CHUNK_SIZE) };
        };
        let line = bytes[..end].strip_suffix(b"\r").ok_or(CHUNK_SIZE)?;
        self.state = match chunk_size(line).ok_or(CHUNK_SIZE)? {
            0 => State::Trailers,
            size => State::Data(size),
        };
        Ok(Step::Skip(end + 1))
    }
}

const CHUNK_SIZE: &str = "a chunk's size isn't valid";

/// A size in hexadecimal. What an extension says is for nobody here.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?;
    let blank = if digits.len() < line.len() { digits.trim_ascii_end() } else { digits };
    let plain = !blank.is_empty() && blank.iter().all(u8::is_ascii_hexdigit);
    let visible = line.iter().all(|byte| !byte.is_ascii_control() || *byte == b'\t');
    (plain && visible).then(|| u64::from_str_radix(str::from_utf8(blank).ok()?, 16).ok())?
}

fn trailers(bytes: &[u8]) -> Result<Step, &'static str> {
    const TRAILER: &str = "the body's trailers aren't valid";
    let mut headers = [EMPTY_HEADER; TRAILERS];
    match httparse::parse_headers(bytes, &mut headers) {
        Ok(Status::Complete((length, headers))) => {
            let mut trailers = Vec::new();
            for header in headers.iter().filter(|header| is_trailer(header.name)) {
                trailers.extend_from_slice(header.name.as_bytes());
                trailers.extend_from_slice(b": ");
                trailers.extend_from_slice(header.value);
                trailers.extend_from_slice(b"\r\n");
            }
            Ok(Step::End { length, trailers })
        }
        Ok(Status::Partial) if bytes.len() < MAX_TRAILERS => Ok(Step::NeedMore),
        _ => Err(TRAILER),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Whole = (Vec<u8>, Vec<u8>);

    /// The body and trailers of what comes in pieces of a size.
    fn read(bytes: &[u8], piece: usize) -> Result<Option<Whole>, &'static str> {
        let (mut chunks, mut body, mut buffer) = (Chunks::default(), Vec::new(), Vec::new());
        let mut coming = bytes.chunks(piece);
        loop {
            match chunks.next(&buffer)? {
                Step::NeedMore => match coming.next() {
                    Some(more) => buffer.extend_from_slice(more),
                    None => return Ok(None),
                },
                Step::Skip(length) => drop(buffer.drain(..length)),
                Step::Data(length) => body.extend(buffer.drain(..length)),
                Step::End { trailers, .. } => return Ok(Some((body, trailers))),
            }
        }
    }

    #[test]
    fn chunks_are_read_however_they_come() {
        let bytes =
            b"5;a=\"b\"\r\nhello\r\n01 ;x\r\n \r\nA\r\n0123456789\r\n000\r\nX: 1\r\nTE: 2\r\n\r\n";
        for piece in [1, 2, 7, 100] {
            let expected = (b"hello 0123456789".to_vec(), b"X: 1\r\n".to_vec());
            assert_eq!(read(bytes, piece), Ok(Some(expected)));
            assert_eq!(read(&bytes[..bytes.len() - 1], piece), Ok(None));
        }
    }

    #[test]
    fn sizes_are_plain() {
        for size in
            ["", " 1", "1 ", "0x1", "-1", "+1", "1_0", "g", "1\0", "1;a\0", "1;a\rb", "\u{661}"]
        {
            assert!(read(format!("{size}\r\na\r\n0\r\n\r\n").as_bytes(), 9).is_err(), "{size:?}");
        }
        assert!(read(b"1\na\r\n0\r\n\r\n", 9).is_err());
        assert!(read(b"1\r\nab\r\n0\r\n\r\n", 9).is_err());
        assert!(read(&[b'0'; MAX_LINE], 99).is_err());
        assert!(read(b"0\r\nX : 1\r\n\r\n", 9).is_err());
        assert!(read(&[b"0\r\nX: ", &[b'a'; MAX_TRAILERS][..]].concat(), 999).is_err());
    }

    proptest! {
        #[test]
        fn how_it_is_cut_doesnt_matter(
            bytes in prop::collection::vec(prop::sample::select(b"01a;\r\nX: ".to_vec()), 0..40),
            piece in 1..9usize,
        ) {
            prop_assert_eq!(read(&bytes, piece), read(&bytes, 99));
        }
    }
}
