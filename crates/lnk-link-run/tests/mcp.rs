//! The protocol: both eras, and every line that can come.

mod session;

use serde_json::{Value, json};
use session::{Client, each};

const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// What a request of 2026-07-28 carries.
fn meta(version: &str) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
    })
}

fn code(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn a_version_is_echoed_where_it_is_known_else_the_newest_of_sessions() {
    each(|env| {
        for version in LEGACY {
            let answer = Client::start(env, ["--folder", "."]).initialize(version);
            assert_eq!(answer["result"]["protocolVersion"], version, "{answer}");
        }
        for other in ["2099-01-01", "2026-07-28", "2023-01-01", "1.0", ""] {
            let mut client = Client::start(env, ["--folder", "."]);
            let answer = client.initialize(other);
            assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
            client.sh("true").ok();
        }
    });
}

#[test]
fn the_server_says_what_it_is() {
    each(|env| {
        let answer = Client::start(env, ["--folder", "."]).initialize("2025-11-25");
        let result = &answer["result"];
        assert_eq!(result["serverInfo"]["name"], "run");
        assert_eq!(result["capabilities"]["tools"], json!({}));
        let instructions = result["instructions"].as_str().unwrap();
        assert_eq!(instructions.matches(". ").count() + 1, 2, "{instructions}");
        assert!(instructions.contains("sandbox of its own"), "{instructions}");
    });
}

#[test]
fn requests_of_the_newest_version_need_no_session() {
    each(|env| {
        let mut client = Client::start(env, ["--folder", "."]);
        let found = client.request("server/discover", json!({ "_meta": meta("2026-07-28") }));
        let versions = found["result"]["supportedVersions"].as_array().unwrap();
        assert!(versions.contains(&json!("2026-07-28")), "{found}");
        assert_eq!(found["result"]["resultType"], "complete", "{found}");

        let tools = client.request("tools/list", json!({ "_meta": meta("2026-07-28") }));
        assert_eq!(tools["result"]["tools"][0]["name"], "command", "{tools}");
        let ran = client.request(
            "tools/call",
            json!({
                "_meta": meta("2026-07-28"),
                "name": "command",
                "arguments": { "program": "echo", "args": ["hi"] },
            }),
        );
        assert_eq!(ran["result"]["resultType"], "complete", "{ran}");
        assert_eq!(
            ran["result"]["content"][0]["text"], "exit status 0\n--- stdout ---\nhi\n",
            "{ran}"
        );
    });
}

#[test]
fn a_version_that_isnt_served_is_named_with_those_that_are() {
    each(|env| {
        let mut client = Client::start(env, ["--folder", "."]);
        for method in ["server/discover", "tools/list"] {
            let answer = client.request(method, json!({ "_meta": meta("2099-01-01") }));
            assert_eq!(code(&answer), -32022, "{answer}");
            let supported = answer["error"]["data"]["supported"].as_array().unwrap();
            assert!(supported.contains(&json!("2026-07-28")), "{answer}");
        }
        // Who probes so goes on as it can.
        let answer = client.request("server/discover", json!({}));
        assert_eq!(code(&answer), -32602);
        let told = answer["error"]["message"].as_str().unwrap();
        assert!(told.contains("_meta[\"io.modelcontextprotocol/protocolVersion\"]"), "{told}");
        client.send(&json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 }
        }));
        assert_eq!(client.initialize("2025-06-18")["result"]["protocolVersion"], "2025-06-18");
        client.sh("true").ok();
    });
}

#[test]
fn the_tools_are_the_same_each_time() {
    each(|env| {
        let first = Client::of_project(env).tools();
        let mut client = Client::of_project(env);
        assert_eq!(client.tools(), first);
        assert_eq!(client.tools(), first);
        let schema = &first[0]["inputSchema"];
        assert_eq!(schema["required"], json!(["program"]));
        assert_eq!(schema["additionalProperties"], false);
        assert!(first[0].get("outputSchema").is_none(), "all of an answer is text");
    });
}

#[test]
fn every_request_is_answered_with_its_id() {
    each(|env| {
        let mut client = Client::of_project(env);
        for (method, params, expected) in [
            ("nothing/such", json!({}), -32601),
            ("resources/list", json!({}), -32601),
            ("prompts/list", json!({}), -32601),
            ("tasks/list", json!({}), -32601),
            ("logging/setLevel", json!({ "level": "loud" }), -32602),
            ("tools/call", json!({}), -32602),
            ("tools/call", json!([]), -32602),
            ("tools/call", json!({ "name": "command", "arguments": [1] }), -32602),
            ("tools/call", json!({ "name": "nothing" }), -32602),
        ] {
            let answer = client.request(method, params);
            assert_eq!(code(&answer), expected, "{method}: {answer}");
        }
        let answer = client.request("tools/call", json!({ "name": "comand" }));
        assert!(answer["error"]["message"].as_str().unwrap().contains("did you mean command?"));
        for id in [json!("a"), json!(0), json!(-1), json!(1.5), json!(u64::MAX)] {
            client.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "ping" }));
            let answer = client.message(|message| message["id"] == id);
            assert!(answer.get("result").is_some() || code(&answer) == -32602, "{answer}");
        }
        client.sh("true").ok();
    });
}

#[test]
fn a_tools_name_may_have_the_servers_before_it() {
    each(|env| {
        let arguments = json!({ "program": "true" });
        let params = json!({ "name": "run__command", "arguments": arguments });
        let answer = Client::of_project(env).request("tools/call", params);
        assert_eq!(answer["result"]["content"][0]["text"], "exit status 0");
    });
}

#[test]
fn no_line_ends_the_session() {
    each(|env| {
        for is_open in [false, true] {
            let mut client = Client::start(env, ["--folder", "."]);
            if is_open {
                client.initialize("2025-11-25");
            }
            for (line, expected) in [
                (b"garbage".to_vec(), -32700),
                (b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec(), -32700),
                (b"\xff\xfe\x00".to_vec(), -32700),
                (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xc3\"}".to_vec(), -32700),
                (vec![b'['; 100_000], -32700),
                (vec![b'x'; 17 << 20], -32600),
                (b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]".to_vec(), -32600),
                (b"[]".to_vec(), -32600),
                (b"null".to_vec(), -32600),
                (b"{}".to_vec(), -32600),
                (b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}".to_vec(), -32600),
                (b"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":3}".to_vec(), -32600),
            ] {
                client.write(&[&line, b"\n".as_slice()].concat());
                let answer = client.message(|message| message["id"].is_null());
                assert_eq!(code(&answer), expected, "{answer}");
            }
            // None of these has an answer.
            client.write(
                b"\n\r\n \n{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{}}\n\
                  {\"jsonrpc\":\"2.0\",\"id\":5,\"error\":{\"code\":1,\"message\":\"\"}}\n\
                  {\"jsonrpc\":\"2.0\",\"method\":\"notifications/nothing\"}\n\
                  {\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\"}\n\
                  {\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":[]}}\n\
                  {\"jsonrpc\":\"2.0\",\"method\":\"$/cancelRequest\",\"params\":3}\n\
                  \xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":\"last\",\"method\":\"ping\"}\r\n",
            );
            client.message(|message| message["id"] == "last");
            assert!(!client.has(|message| message["id"] == 5));
            if !is_open {
                client.initialize("2025-11-25");
            }
            client.sh("true").ok();
        }
    });
}

#[test]
fn a_line_that_is_too_long_is_answered_with_its_id() {
    each(|env| {
        let mut client = Client::of_project(env);
        let long = "x".repeat(17 << 20);
        let text = format!(
            "{{\"params\":{{\"id\":1,\"t\":\"\\\"\\\\\"}},\"id\":\"own\",\"t\":\"{long}\"}}\n"
        );
        client.write(text.as_bytes());
        assert_eq!(code(&client.message(|message| message["id"] == "own")), -32600);
        client.write(format!("{{\"id\" : 77, \"t\":\"{long}\"}}\n").as_bytes());
        assert_eq!(code(&client.message(|message| message["id"] == 77)), -32600);
        // What stands behind so much isn't looked for.
        client.write(format!("{{\"t\":\"{long}\",\"id\":78}}\n").as_bytes());
        assert_eq!(code(&client.message(|message| message["id"].is_null())), -32600);
        client.sh("true").ok();
    });
}

#[test]
fn the_end_of_input_ends_the_server() {
    each(|env| {
        let mut untouched = Client::start(env, ["--folder", "."]);
        assert!(untouched.close().success());
        let mut client = Client::of_project(env);
        client.sh("true").ok();
        assert!(client.close().success());
    });
}
