//! Whatever lines a client writes, a session goes on: the ping behind them is answered,
//! and nothing but whole messages comes back. No program may run here, so none does.
#![no_main]

use std::path::PathBuf;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use lnk_link_run::limits::Limits;
use lnk_link_run::mcp::{Run, serve_on};
use lnk_link_run::opens::Opens;
use lnk_link_run::place::{Place, Whose};
use lnk_link_run::programs::Programs;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, duplex, split};
use tokio::task::LocalSet;

const SESSION: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":\"first\",\"method\":\"initialize\",\"params\":\
    {\"protocolVersion\":\"2025-11-25\",\"capabilities\":{},\"clientInfo\":{\"name\":\"\",\"version\":\"\"}}}\n";
/// An id that no input has but by reading this.
const LAST: &str = "ca5cade5-fa11-4bed";

fuzz_target!(|bytes: &[u8]| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // Both before there is a session and in one.
    for before in [b"".as_slice(), SESSION] {
        LocalSet::new().block_on(&runtime, session(&[before, bytes].concat()));
    }
});

async fn session(bytes: &[u8]) {
    let (client, server) = duplex(1 << 16);
    let (read, write) = split(server);
    let run = Run {
        place: place(),
        limits: Limits::default(),
        programs: Programs::These { there: vec![], missing: vec![] },
        opens: Opens::default(),
        background: None,
        events: None,
    };
    let talk = async {
        let (answers, mut lines) = split(client);
        let ping = format!("\n{{\"jsonrpc\":\"2.0\",\"id\":\"{LAST}\",\"method\":\"ping\"}}\n");
        let writing = async {
            lines.write_all(bytes).await.unwrap();
            lines.write_all(ping.as_bytes()).await.unwrap();
        };
        let reading = async {
            let mut answers = BufReader::new(answers).lines();
            loop {
                let line = answers.next_line().await.unwrap().expect("the session goes on");
                let answer: serde_json::Value = serde_json::from_str(&line).expect("a message");
                assert_eq!(answer["jsonrpc"], "2.0");
                if answer["id"] == LAST {
                    return;
                }
            }
        };
        tokio::join!(writing, reading);
        lines.shutdown().await.unwrap();
    };
    let both = async { tokio::join!(serve_on(read, write, run), talk) };
    tokio::time::timeout(Duration::from_secs(20), both).await.expect("it ends with its input");
}

fn place() -> Place {
    let files = PathBuf::from("/");
    Place::of_folder(Whose::Folder { folder: files.clone(), spec: None, server: 1 }, files, None)
}
