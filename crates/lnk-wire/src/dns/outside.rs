//! The machine's name servers, asked for what getent(1) doesn't look up: SRV and TXT.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::message::{Answer, Question};
use crate::connections::Connections;

/// resolv.conf(5).
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// Bytes read of it.
const MAX_RESOLV_CONF: u64 = 64 * 1024;
/// Servers that are asked (resolv.conf(5), `MAXNS`).
const MAX_SERVERS: usize = 3;
const PORT: u16 = 53;
/// A server is given up after this, and the next asked.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Bytes of an answer by UDP: more than any to a question without EDNS.
const MAX_DATAGRAM: usize = 4096;

/// Asks the servers of resolv.conf, one after the other, within 4.5 s. Nobody is asked
/// while connections are closed.
pub(super) async fn look_up(by: &Arc<Connections>, name: &[u8], kind: u16) -> Answer {
    for server in servers(&resolv_conf()) {
        match timeout(PATIENCE, ask(by, server, name, kind)).await {
            Ok(Ok(Answer::Failed) | Err(_)) | Err(_) => {}
            Ok(Ok(answer)) => return answer,
        }
    }
    Answer::Failed
}

/// By UDP, and by TCP what doesn't fit.
async fn ask(
    by: &Arc<Connections>,
    server: SocketAddr,
    name: &[u8],
    kind: u16,
) -> io::Result<Answer> {
    // The number and the port are hard to guess for whoever doesn't see the question
    // (RFC 5452).
    let mut id = [0; 2];
    rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())?;
    let question = Question::new(u16::from_be_bytes(id), name, kind);
    match by_udp(by, server, &question).await? {
        Answer::Truncated => by_tcp(by, server, &question).await,
        answer => Ok(answer),
    }
}

async fn by_udp(by: &Connections, server: SocketAddr, question: &Question) -> io::Result<Answer> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = std::net::UdpSocket::bind((any, 0))?;
    socket.set_nonblocking(true)?;
    // From nobody else anything is received then.
    socket.connect(server)?;
    by.unless_closed(|| socket.send(&question.written()))?;
    let socket = UdpSocket::from_std(socket)?;
    let mut answer = vec![0; MAX_DATAGRAM];
    loop {
        let length = socket.recv(&mut answer).await?;
        if let Some(answer) = question.read_answer(&answer[..length]) {
            return Ok(answer);
        }
    }
}

async fn by_tcp(
    by: &Arc<Connections>,
    server: SocketAddr,
    question: &Question,
) -> io::Result<Answer> {
    let mut stream = by.connect(server).await?;
    stream.write_all(&with_length(&question.written())).await?;
    let mut answer = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut answer).await?;
    match question.read_answer(&answer) {
        Some(Answer::Truncated) | None => Ok(Answer::Failed),
        Some(answer) => Ok(answer),
    }
}

/// A message as it goes by TCP: behind its length (RFC 1035, 4.2.2).
pub(super) fn with_length(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).expect("no message is longer");
    [&length.to_be_bytes(), message].concat()
}

/// The file as it is now, for a machine's network changes. One that can't be read names
/// no server.
fn resolv_conf() -> String {
    let mut text = Vec::new();
    if let Ok(file) = File::open(RESOLV_CONF) {
        let _ = file.take(MAX_RESOLV_CONF).read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// The name servers of a resolv.conf(5); this machine's own where it names none.
fn servers(resolv_conf: &str) -> Vec<SocketAddr> {
    let lines = resolv_conf.lines().map(str::split_whitespace);
    let named = lines.filter_map(|mut words| match (words.next(), words.next()) {
        (Some("nameserver"), Some(address)) => server(address),
        _ => None,
    });
    let servers: Vec<_> = named.take(MAX_SERVERS).collect();
    if servers.is_empty() { vec![(Ipv4Addr::LOCALHOST, PORT).into()] } else { servers }
}

fn server(address: &str) -> Option<SocketAddr> {
    let Some((address, link)) = address.split_once('%') else {
        return Some((address.parse::<IpAddr>().ok()?, PORT).into());
    };
    let link = link.parse().ok().or_else(|| link_number(link))?;
    Some(SocketAddrV6::new(address.parse().ok()?, PORT, 0, link).into())
}

/// The number of a network interface (netdevice(7)).
fn link_number(link: &str) -> Option<u32> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};
    let (family, flags) = (AddressFamily::INET6, SocketFlags::CLOEXEC);
    let socket = socket_with(family, SocketType::DGRAM, flags, None).ok()?;
    netdevice::name_to_index(&socket, link).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_of_resolv_conf() {
        let file = "# nameserver 1.1.1.1\nsearch a.example\nnameserver 10.0.0.1\n\
                    \tnameserver  2001:db8::1 # here\nnameserver x\nnameserver fe80::1%lo\n\
                    nameserver 10.0.0.2\n";
        let shown: Vec<_> = servers(file).iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["10.0.0.1:53", "[2001:db8::1]:53", "[fe80::1%1]:53"]);
        assert_eq!(servers("nameserver fe80::1%nothing\n"), [([127, 0, 0, 1], 53).into()]);
    }
}
