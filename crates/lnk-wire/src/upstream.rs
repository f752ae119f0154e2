//! The way through a SOCKS5 proxy on this machine's loopback (RFC 1928).

use std::io;
use std::net::{IpAddr, SocketAddr};

use lnk_spec::host::Host;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

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
    #[error("the upstream proxy can't be reached: {0}")]
    Down(#[source] io::Error),
    /// It closed the connection before its answer was whole.
    #[error("the upstream proxy closed the connection: {0}")]
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
/// a name.
///
/// # Errors
/// As [`UpstreamError`] says.
pub async fn connect(
    proxy: SocketAddr,
    host: &Host,
    port: u16,
) -> Result<TcpStream, UpstreamError> {
    let mut stream = TcpStream::connect(proxy).await.map_err(UpstreamError::Down)?;
    // Its three small messages must not wait for each other's acknowledgement.
    stream.set_nodelay(true).map_err(UpstreamError::Down)?;
    ask(&mut stream, host, port).await?;
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
