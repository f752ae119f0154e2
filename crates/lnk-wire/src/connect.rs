//! CONNECT: a tunnel to one host and port.

use std::rc::Rc;
use std::time::Duration;

use lnk_spec::host::Host;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::body::Source;
use crate::calls::{Calls, Reached};
use crate::hello::{self, Verdict};
use crate::http;
use crate::policy::{Asked, Target};
use crate::relay;
use crate::room::Buffer;

/// How long a client may take for its TLS hello.
const HELLO: Duration = Duration::from_secs(10);

/// Serves a CONNECT; `early` came behind it.
pub(crate) async fn serve(mut client: TcpStream, mut early: Buffer, target: Target, calls: &Calls) {
    let Reached { call, tls_only, mut origin } = match calls.reach(&target, Asked::Connect).await {
        Ok(reached) => reached,
        Err(answer) => return http::answer(client, &answer).await,
    };
    let established = client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await;
    // A client speaks only after this, so the origin is connected to before, and
    // hears nothing until the verdict.
    if established.is_ok() && tls_only {
        let hello = timeout(HELLO, judge_hello(&mut client, &mut early, &target.host)).await;
        let reason = match hello {
            Ok(verdict) => verdict.err(),
            Err(_) if early.is_empty() => None,
            Err(_) => Some("no whole TLS hello came within 10 seconds".to_owned()),
        };
        if let Some(reason) = reason {
            return call.refused_for(&reason, false);
        }
        if early.is_empty() {
            // Opened in advance, and not used.
            drop(call.open());
            return;
        }
    }
    let Ok(open) = call.open() else {
        // The answer is given already. An end doesn't look as if the host had made it.
        let _ = client.set_zero_linger();
        return;
    };
    // Sent here, since the tunnel would keep it for all of its life. An origin that
    // takes no more may have said something all the same.
    if origin.write_all(&early).await.is_ok() {
        open.sent(early.len() as u64);
    }
    let room = Rc::clone(early.room());
    drop(early);
    relay::run(&mut client, &mut origin, &[], &[], &open, &room).await;
}

/// Reads on until what was sent is a hello for the host, or the client leaves
/// without a word.
async fn judge_hello(
    client: &mut TcpStream,
    early: &mut Buffer,
    host: &Host,
) -> Result<(), String> {
    let (mut stream, _) = client.split();
    let mut from = Source { stream: &mut stream, buffer: early, count: &|_| {} };
    loop {
        match hello::read(from.buffer) {
            Verdict::Hello { server_name } => return judge_name(server_name.as_deref(), host),
            Verdict::NotTls(reason) => {
                return Err(format!("the tunnel must begin with a TLS hello: {reason}"));
            }
            Verdict::NeedMore if from.buffer.is_too_much() => {
                return Err(
                    "there is no room for its TLS hello beside what is unfinished".to_owned()
                );
            }
            Verdict::NeedMore => {}
        }
        match from.fill_head().await {
            Ok(read) if read > 0 => {}
            _ if from.buffer.is_empty() => return Ok(()),
            _ => return Err("the tunnel ended within its TLS hello".to_owned()),
        }
    }
}

/// Only an address may go unnamed: TLS has no name for it (RFC 6066, 3).
fn judge_name(server_name: Option<&str>, host: &Host) -> Result<(), String> {
    match (server_name, host) {
        (None, Host::Address(_)) => Ok(()),
        (None, Host::Name(_)) => Err("the TLS hello names no server".to_owned()),
        (Some(name), host) if name.parse().as_ref() == Ok(host) => Ok(()),
        (Some(_), _) => Err("the TLS hello names another server than CONNECT".to_owned()),
    }
}
