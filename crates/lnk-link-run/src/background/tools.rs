//! The tools that background commands are reached by.

use std::rc::Rc;

use serde_json::{Map, Value, json};

use super::Background;
use crate::call::Call;
use crate::command::{self, Answer, Arguments, refuse_unknown};
use crate::limits::{Limits, Size, Time};

/// What a client is told of a tool.
pub struct Described {
    /// Its name.
    pub name: &'static str,
    /// A title for people.
    pub title: &'static str,
    /// What it does.
    pub description: String,
    /// The schema of its arguments, JSON Schema 2020-12.
    pub schema: Map<String, Value>,
    /// Whether it changes nothing.
    pub is_read_only: bool,
}

/// What an agent may count on at a command's end.
#[must_use]
pub fn promise(has_harness: bool) -> &'static str {
    match has_harness {
        true => "You are told in this conversation when it has ended.",
        false => {
            "Call list later to see whether it has ended; the answer of the next call after its \
             end begins with that."
        }
    }
}

/// The tools, always in this order. `has_harness` tells whether a harness is told of
/// ends.
#[must_use]
pub fn described(limits: &Limits, has_harness: bool) -> [Described; 4] {
    let Limits { background, background_timeout, background_output, .. } = limits;
    let Limits { background_per_day, output, .. } = limits;
    [
        Described {
            name: "start",
            title: "Start a program in the background",
            description: format!(
                "Starts a program as command runs it, with the same arguments, and answers at once \
                 with its id. It runs on after this turn. {} {background} run at once, each for {} at most, and {background_per_day} start within 24 hours. What \
                 needs another, such as a server and its tests, is started in one: sh -c \"server & \
                 tests\".",
                promise(has_harness),
                Time(*background_timeout)
            ),
            schema: command::schema(),
            is_read_only: false,
        },
        Described {
            name: "list",
            title: "List background commands",
            description: "Lists the background commands of this conversation, running and ended: \
                          id, state, how long each ran, its output's size."
                .into(),
            schema: schema(json!({}), &[]),
            is_read_only: true,
        },
        Described {
            name: "read",
            title: "Read a background command's output",
            description: format!(
                "Reads the output of a background command, standard output and errors as one, up to \
                 {} from a byte on, and says at which the next read begins. The last {} of it are \
                 kept.",
                Size(*output as u64),
                Size(*background_output)
            ),
            schema: schema(
                json!({
                    "id": id(),
                    "from": {
                        "type": "integer",
                        "minimum": 0,
                        "description": "The byte to read from, counted from 0; the output's end if left out."
                    }
                }),
                &["id"],
            ),
            is_read_only: true,
        },
        Described {
            name: "stop",
            title: "Stop a background command",
            description: "Ends a background command, with everything it started.".into(),
            schema: schema(json!({ "id": id() }), &["id"]),
            is_read_only: false,
        },
    ]
}

fn id() -> Value {
    json!({ "type": "string", "description": "The id that start answered with." })
}

fn schema(properties: Value, required: &[&str]) -> Map<String, Value> {
    let schema = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false
    });
    match schema {
        Value::Object(schema) => schema,
        _ => Map::new(),
    }
}

impl Background {
    /// Calls one of the tools; `None` where there is none of this name.
    pub async fn call(self: &Rc<Self>, tool: &str, arguments: &Arguments) -> Option<Answer> {
        let answer = match tool {
            "start" => match Call::of(arguments, &self.place) {
                Ok(call) => self.start(&call).await,
                Err(why) => Err(why),
            },
            "list" => refuse_unknown(arguments, &[]).and_then(|()| self.list()),
            "read" => refuse_unknown(arguments, &["id", "from"])
                .and_then(|()| self.read(id_of(arguments)?, from_of(arguments)?)),
            "stop" => match refuse_unknown(arguments, &["id"]).and_then(|()| id_of(arguments)) {
                Ok(id) => self.stop(id).await,
                Err(why) => Err(why),
            },
            _ => return None,
        };
        let stopped = (tool == "stop").then(|| id_of(arguments).ok().map(str::to_owned)).flatten();
        Some(match answer {
            Ok(text) => Answer { text, is_error: false, stopped },
            Err(why) => Answer::error(why),
        })
    }
}

fn id_of(arguments: &Arguments) -> Result<&str, String> {
    let id = arguments.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
    id.ok_or_else(|| {
        "id has to be the one that start answered with; list has those there are".into()
    })
}

fn from_of(arguments: &Arguments) -> Result<Option<u64>, String> {
    match arguments.get("from") {
        None | Some(Value::Null) => Ok(None),
        Some(from) => from
            .as_u64()
            .map(Some)
            .ok_or_else(|| "from has to be a whole number, the byte to read from".into()),
    }
}
