//! The bare relay that the wire is held against: CONNECT and tokio's own copying
//! with its buffers of 8 KB, on one thread, with no policy and no log.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::task::{LocalSet, spawn_local};

use crate::Result;

/// Serves until this process is killed.
pub fn serve(address: SocketAddr) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    LocalSet::new().block_on(&runtime, async {
        let listener = TcpListener::bind(address).await?;
        loop {
            let (client, _) = listener.accept().await?;
            // A client that has left is nothing to the others.
            spawn_local(async { tunnel(client).await.ok() });
        }
    })
}

async fn tunnel(mut client: TcpStream) -> Result<()> {
    let mut head = Vec::with_capacity(1024);
    while !head.ends_with(b"\r\n\r\n") {
        if client.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let head = String::from_utf8(head)?;
    let target: SocketAddr = head.split(' ').nth(1).ok_or("no CONNECT")?.parse()?;
    let mut origin = TcpStream::connect(target).await?;
    client.set_nodelay(true)?;
    origin.set_nodelay(true)?;
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    copy_bidirectional(&mut client, &mut origin).await?;
    Ok(())
}
