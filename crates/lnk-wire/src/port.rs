//! A port of this machine's loopback, at the same port inside the sandbox.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use lnk_spec::shown::reason;
use tokio::net::TcpStream;

use crate::calls::Calls;
use crate::connections::{Connection, Connections};
use crate::log::Verb;
use crate::relay;
use crate::room::Room;

/// Serves a connection to it.
pub(crate) async fn serve(mut client: TcpStream, port: u16, calls: &Calls, room: &Rc<Room>) {
    // A service that isn't there, or may not be asked now, doesn't look as if it had
    // nothing to say.
    let reset = |client: TcpStream| drop(client.set_zero_linger());
    let Ok(call) = calls.begin(calls.log.call(Verb::Port, "localhost", port)) else {
        return reset(client);
    };
    let mut service = match dial(&calls.gate.connections, port).await {
        Ok(service) => service,
        Err(error) => {
            call.failed(&format!("nothing answers on it: {}", reason(&error)));
            return reset(client);
        }
    };
    let _ = service.set_nodelay(true);
    let Ok(open) = call.open() else { return reset(client) };
    relay::run(&mut client, &mut service, &[], &[], &open, room).await;
}

/// Whichever family the service listens on, the first first.
async fn dial(by: &Arc<Connections>, port: u16) -> std::io::Result<Connection> {
    let first = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let second = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
    match connect(by, first).await {
        Ok(service) => Ok(service),
        Err(error) => connect(by, second).await.map_err(|_| error),
    }
}

/// Connects to a port of this machine. Where nobody listens on one of those that
/// clients get, a connection may come to be with itself (RFC 9293, 3.5), and would
/// keep the port from its service.
pub(crate) async fn connect(by: &Arc<Connections>, to: SocketAddr) -> std::io::Result<Connection> {
    let service = by.connect(to).await?;
    if service.local_addr()? == service.peer_addr()? {
        return Err(std::io::ErrorKind::ConnectionRefused.into());
    }
    Ok(service)
}
