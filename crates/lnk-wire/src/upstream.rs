//! The way through a SOCKS5 proxy on this machine's loopback (RFC 1928).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use lnk_spec::host::Host;
use lnk_spec::shown::reason;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::connections::{Connection, Connections};

const VERSION: u8 = 5;
const NO_PASSWORD: u8 = 0;
const CONNECT: u8 = 1;
const RESERVED: u8 = 0;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;
const SUCCEEDED: u8 = 0;

/// Why the proxy gives no connection.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// Nothing answers at its address.
    #[error("nothing answers at the upstream {}: {}; start it", .0, reason(.1))]
    Down(SocketAddr, #[source] io::Error),
    /// It closed the connection before its answer was whole.
    #[error("the upstream proxy closed the connection: {}", reason(.0))]
    Closed(#[source] io::Error),
    /// It doesn't speak SOCKS5.
    #[error("the upstream proxy doesn't speak SOCKS5")]
    NotSocks5,
    /// It wants a password.
    #[error("the upstream proxy asks for a password")]
    Password,
    /// It speaks, and answers no (RFC 1928, 6).
    #[error("the upstream proxy answers: {}", reply_in_words(*.0))]
    Replied(u8),
}

fn reply_in_words(reply: u8) -> &'static str {
    match reply {
        1 => "general failure",
        2 => "not allowed by its rules",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "time to live expired",
        7 => "command not supported",
        8 => "kind of address not supported",
        _ => "a failure without a name",
    }
}

/// A connection through the proxy to a host, which the proxy resolves where it's
/// a name. It is among `connections`.
///
/// # Errors
/// As [`UpstreamError`] says.
pub async fn connect(
    connections: &Arc<Connections>,
    proxy: SocketAddr,
    host: &Host,
    port: u16,
) -> Result<Connection, UpstreamError> {
    let down = |error| UpstreamError::Down(proxy, error);
    let mut stream = crate::port::connect(connections, proxy).await.map_err(down)?;
    // Its three small messages must not wait for each other's acknowledgement.
    stream.set_nodelay(true).map_err(down)?;
    ask(&mut *stream, host, port).await?;
    Ok(stream)
}

/// Reads no byte more than the proxy's answers: the next one is the host's.
async fn ask<S>(stream: &mut S, host: &Host, port: u16) -> Result<(), UpstreamError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    send(stream, &[VERSION, 1, NO_PASSWORD]).await?;
    match receive(stream).await? {
        [VERSION, NO_PASSWORD] => {}
        [VERSION, _] => return Err(UpstreamError::Password),
        _ => return Err(UpstreamError::NotSocks5),
    }
    send(stream, &request(host, port)).await?;
    let [version, reply, _, kind] = receive(stream).await?;
    match (version, reply) {
        (VERSION, SUCCEEDED) => skip_bound(stream, kind).await,
        (VERSION, reply) => Err(UpstreamError::Replied(reply)),
        _ => Err(UpstreamError::NotSocks5),
    }
}

fn request(host: &Host, port: u16) -> Vec<u8> {
    let mut request = vec![VERSION, CONNECT, RESERVED];
    match host {
        Host::Address(IpAddr::V4(address)) => {
            request.push(IPV4);
            request.extend(address.octets());
        }
        Host::Address(IpAddr::V6(address)) => {
            request.push(IPV6);
            request.extend(address.octets());
        }
        Host::Name(name) => {
            let length = u8::try_from(name.as_str().len()).expect("a name has at most 253 bytes");
            request.extend([NAME, length]);
            request.extend(name.as_str().as_bytes());
        }
    }
    request.extend(port.to_be_bytes());
    request
}

/// Reads past the address and port the proxy connects from.
async fn skip_bound<S>(stream: &mut S, kind: u8) -> Result<(), UpstreamError>
where
    S: AsyncRead + Unpin,
{
    let address = match kind {
        IPV4 => 4,
        IPV6 => 16,
        NAME => {
            let [length] = receive(stream).await?;
            usize::from(length)
        }
        _ => return Err(UpstreamError::NotSocks5),
    };
    let mut bound = vec![0; address + 2];
    stream.read_exact(&mut bound).await.map_err(UpstreamError::Closed)?;
    Ok(())
}

async fn send<S: AsyncWrite + Unpin>(stream: &mut S, bytes: &[u8]) -> Result<(), UpstreamError> {
    stream.write_all(bytes).await.map_err(UpstreamError::Closed)
}

async fn receive<S: AsyncRead + Unpin, const N: usize>(
    stream: &mut S,
) -> Result<[u8; N], UpstreamError> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await.map_err(UpstreamError::Closed)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokio::io::duplex;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(future)
    }

    /// What becomes of an ask that is answered so, what was sent, and the bytes of
    /// the answer that are left.
    fn asked(host: &str, answer: &[u8]) -> (Result<(), UpstreamError>, Vec<u8>, Vec<u8>) {
        block_on(async {
            let (mut ours, mut theirs) = duplex(4096);
            theirs.write_all(answer).await.unwrap();
            let (mut requests, closing) = tokio::io::split(theirs);
            let mut closing = closing;
            closing.shutdown().await.unwrap();
            let result = ask(&mut ours, &host.parse().unwrap(), 443).await;
            let mut left = Vec::new();
            ours.read_to_end(&mut left).await.unwrap();
            drop(ours);
            let mut sent = Vec::new();
            requests.read_to_end(&mut sent).await.unwrap();
            (result, sent, left)
        })
    }

    #[test]
    fn addresses_and_names_are_sent_as_they_are() {
        let yes = b"\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00";
        for (host, request) in [
            ("8.8.4.4", b"\x05\x01\x00\x05\x01\x00\x01\x08\x08\x04\x04\x01\xbb".to_vec()),
            (
                "2606:4700::1",
                b"\x05\x01\x00\x05\x01\x00\x04\x26\x06\x47\x00\0\0\0\0\0\0\0\0\0\0\0\x01\x01\xbb"
                    .to_vec(),
            ),
            ("a.example", b"\x05\x01\x00\x05\x01\x00\x03\x09a.example\x01\xbb".to_vec()),
        ] {
            let (result, sent, _) = asked(host, yes);
            assert!(result.is_ok(), "{result:?}");
            assert_eq!(sent, request);
        }
    }

    #[test]
    fn bytes_behind_the_answer_are_the_hosts() {
        for bound in [
            &b"\x01\x00\x00\x00\x00\x00\x00"[..],
            b"\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x00\x00",
            b"\x03\x04name\x00\x00",
            b"\x03\x00\x00\x00",
        ] {
            let answer = [b"\x05\x00\x05\x00\x00", bound, b"SSH-2.0"].concat();
            let (result, _, left) = asked("a.example", &answer);
            assert!(result.is_ok(), "{result:?}");
            assert_eq!(left, b"SSH-2.0");
        }
    }

    #[test]
    fn a_no_is_told_by_its_reason() {
        for (answer, says) in [
            (&b"\x05\xff"[..], "asks for a password"),
            (b"\x05\x02", "asks for a password"),
            (b"HTTP/1.1 400", "doesn't speak SOCKS5"),
            (b"\x04\x5b", "doesn't speak SOCKS5"),
            (b"\x05\x00\x04\x00\x00\x01", "doesn't speak SOCKS5"),
            (b"\x05\x00\x05\x00\x00\x09", "doesn't speak SOCKS5"),
            (b"\x05\x00\x05\x02\x00\x01", "not allowed by its rules"),
            (b"\x05\x00\x05\x05\x00\x01", "connection refused"),
            (b"\x05\x00\x05\xee\x00\x01", "a failure without a name"),
            (b"", "closed the connection"),
            (b"\x05\x00\x05\x00", "closed the connection"),
            (b"\x05\x00\x05\x00\x00\x01\x00", "closed the connection"),
            (b"\x05\x00\x05\x00\x00\x03\xff", "closed the connection"),
        ] {
            let error = asked("a.example", answer).0.unwrap_err();
            assert!(error.to_string().contains(says), "{answer:?}: {error}");
        }
    }

    #[test]
    fn a_proxy_that_is_down_is_told() {
        // Nobody has had port 1 (tcpmux) for decades.
        let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
        let result = block_on(connect(&Arc::default(), nobody, &"a.example".parse().unwrap(), 443));
        assert!(matches!(result, Err(UpstreamError::Down(..))), "{result:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_answer_panics(answer: Vec<u8>, late: Vec<u8>) {
            let _ = asked("a.example", &answer);
            let _ = asked("a.example", &[b"\x05\x00", &answer[..]].concat());
            let _ = asked("a.example", &[b"\x05\x00\x05\x00\x00\x03", &late[..]].concat());
        }
    }
}
