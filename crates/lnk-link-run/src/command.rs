//! The `command` tool: a program, run to its end.

use std::pin::pin;
use std::time::Duration;

use lnk_sandbox::nearest::nearest;
use lnk_sandbox::shown::escaped_name;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::call::{Call, End, Running, Streams};
use crate::limits::Limits;
use crate::output::Kept;
use crate::place::Place;
use crate::quoted::cut;

/// The arguments of a tool, by their names.
pub type Arguments = Map<String, Value>;

/// What a program's run takes, for `command` and `start` alike.
const KEYS: [&str; 4] = ["program", "args", "input", "folder"];

/// What a tool answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// All of it.
    pub text: String,
    /// Whether it was refused, couldn't be started or took too long. A program that
    /// fails does what it does.
    pub is_error: bool,
    /// The background command of whose end it tells, having stopped it.
    pub stopped: Option<String>,
}

impl Answer {
    /// What was refused, or couldn't be done.
    #[must_use]
    pub fn error(text: impl Into<String>) -> Answer {
        Answer { text: text.into(), is_error: true, stopped: None }
    }
}

/// The schema of the arguments, JSON Schema 2020-12.
#[must_use]
pub fn schema() -> Map<String, Value> {
    let schema = json!({
        "type": "object",
        "properties": {
            "program": {
                "type": "string",
                "description": "The program to run: a name or a path. A pipeline is program sh, args [\"-c\", \"…\"]."
            },
            "args": {
                "type": "array",
                "items": { "type": "string" },
                "description": "Its arguments, passed on as they are: no shell reads them."
            },
            "input": {
                "type": "string",
                "description": "What it reads on its standard input; nothing if left out."
            },
            "folder": {
                "type": "string",
                "description": "The folder it runs in, inside the files folder; the files folder itself if left out. It can write in work."
            }
        },
        "required": ["program"],
        "additionalProperties": false
    });
    let Value::Object(schema) = schema else { unreachable!("an object") };
    schema
}

impl Call {
    /// Reads a call from a tool's arguments.
    ///
    /// # Errors
    /// A line that says which argument is wrong and what it has to be.
    pub fn of(arguments: &Arguments, place: &Place) -> Result<Call, String> {
        refuse_unknown(arguments, &KEYS)?;
        let Some(program) = text(arguments, "program")? else {
            return Err("program is missing: name the program to run, such as sh".into());
        };
        Ok(Call {
            program: program.to_owned(),
            args: texts(arguments, "args")?,
            input: text(arguments, "input")?.unwrap_or_default().to_owned(),
            folder: place.folder(text(arguments, "folder")?)?,
        })
    }
}

/// Refuses arguments that a tool doesn't have, naming the ones that it has.
///
/// # Errors
/// The line that says so.
pub fn refuse_unknown(arguments: &Arguments, keys: &[&str]) -> Result<(), String> {
    let Some(unknown) = arguments.keys().find(|key| !keys.contains(&key.as_str())) else {
        return Ok(());
    };
    let shown = escaped_name(cut(unknown).as_bytes());
    Err(match nearest(unknown, keys.iter().copied()) {
        Some(meant) => format!("{shown} is no argument of this: did you mean {meant}?"),
        None if keys.is_empty() => format!("{shown} is no argument of this: it takes none"),
        None => format!("{shown} is no argument of this: it takes {}", keys.join(", ")),
    })
}

fn text<'a>(arguments: &'a Arguments, key: &str) -> Result<Option<&'a str>, String> {
    match arguments.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!("{key} has to be a string, and is {}", kind(other))),
    }
}

fn texts(arguments: &Arguments, key: &str) -> Result<Vec<String>, String> {
    let values = match arguments.get(key) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(values)) => values,
        Some(other) => {
            return Err(format!(
                "{key} has to be a list of strings, such as [\"-l\", \"notes\"], and is {}",
                kind(other)
            ));
        }
    };
    let text = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        other => Err(format!("each of {key} has to be a string, and one is {}", kind(other))),
    };
    values.iter().map(text).collect()
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number: put it in quotes",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The most commands of a server that run at once: each has a sandbox of its own. More
/// wait for one of them to end.
pub const MOST_AT_ONCE: usize = 32;

/// The commands that run.
pub struct AtOnce(Semaphore);

impl Default for AtOnce {
    fn default() -> AtOnce {
        AtOnce(Semaphore::new(MOST_AT_ONCE))
    }
}

/// Runs a program to its end, or until it has taken too long or is `cancelled`.
pub async fn command(
    arguments: &Arguments,
    place: &Place,
    limits: &Limits,
    running: &AtOnce,
    cancelled: impl Future<Output = ()>,
) -> Answer {
    let call = match Call::of(arguments, place) {
        Ok(call) => call,
        Err(why) => return Answer::error(why),
    };
    let mut cancelled = pin!(cancelled);
    let _place = tokio::select! {
        place = running.0.acquire() => place,
        () = cancelled.as_mut() => return Answer::error("cancelled: it hadn't begun"),
    };
    match call.start(place, Streams::Apart) {
        Ok(running) => finish(running, limits, cancelled).await,
        Err(why) => Answer::error(why),
    }
}

/// Why a command ended.
enum Why {
    ByItself,
    TimedOut,
    Cancelled,
}

async fn finish(
    mut running: Running,
    limits: &Limits,
    cancelled: impl Future<Output = ()>,
) -> Answer {
    let (mut out, mut err) = (Kept::new(limits.output), Kept::new(limits.output));
    let stderr = running.stderr.as_ref().expect("they come apart");
    let supervisor = &mut running.supervisor;
    let ended = async {
        let why = tokio::select! {
            end = supervisor.ended() => return (Why::ByItself, end),
            () = sleep(limits.timeout) => Why::TimedOut,
            () = cancelled => Why::Cancelled,
        };
        (why, supervisor.end().await)
    };
    let printed = async {
        tokio::join!(out.read(&running.stdout), err.read(stderr));
        // A program that closes its streams goes on.
        std::future::pending().await
    };
    let (why, end) = tokio::select! {
        ended = ended => ended,
        never = printed => never,
    };
    out.drain(&running.stdout);
    err.drain(stderr);
    answer(&why, &end, limits.timeout, &out, &err)
}

fn answer(why: &Why, end: &End, timeout: Duration, out: &Kept, err: &Kept) -> Answer {
    let (first, is_error) = match (why, &end.failed, end.status) {
        (Why::TimedOut, ..) => (
            format!("timed out after {}: it was ended, with everything it started", time(timeout)),
            true,
        ),
        (Why::Cancelled, ..) => {
            ("cancelled: it was ended, with everything it started".into(), true)
        }
        (_, Some(why), _) => (format!("not run: {why}"), true),
        (_, None, Some(status)) => (status_line(status), false),
        (_, None, None) => ("ended: its sandbox was killed from outside".into(), true),
    };
    // First, so that nothing a program prints can pass for it.
    let mut text = first;
    if !end.notices.is_empty() {
        add(&mut text, "the sandbox", &end.notices.join("\n"));
    }
    for (name, kept) in [("stdout", out), ("stderr", err)] {
        if !kept.is_empty() {
            add(&mut text, name, &kept.text());
        }
    }
    Answer { text, is_error, stopped: None }
}

fn add(text: &mut String, name: &str, part: &str) {
    let newline = if text.ends_with('\n') { "" } else { "\n" };
    *text += &format!("{newline}--- {name} ---\n{part}");
}

/// A status in words. A shell's that a signal ended is like one that a program chose.
#[must_use]
pub fn status_line(status: u8) -> String {
    match status {
        129..=192 => format!("exit status {status} (often: ended by signal {})", status - 128),
        _ => format!("exit status {status}"),
    }
}

/// A time in the words of its largest unit.
#[must_use]
pub fn time(time: Duration) -> String {
    let seconds = time.as_secs();
    let (number, unit) = match seconds {
        s if s >= 3_600 && s.is_multiple_of(3_600) => (s / 3_600, "hour"),
        s if s >= 60 && s.is_multiple_of(60) => (s / 60, "minute"),
        s => (s, "second"),
    };
    format!("{number} {unit}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(json: Value) -> Arguments {
        json.as_object().expect("an object").clone()
    }

    #[test]
    fn a_mistyped_argument_is_named_with_the_right_one() {
        let wrong = |json| refuse_unknown(&arguments(json), &KEYS).unwrap_err();
        assert_eq!(
            wrong(json!({"progam": "ls"})),
            "progam is no argument of this: did you mean program?"
        );
        assert_eq!(
            wrong(json!({"env": {}})),
            "env is no argument of this: it takes program, args, input, folder"
        );
    }

    #[test]
    fn an_argument_of_another_kind_is_told() {
        let json = arguments(json!({"program": 3, "args": "-l", "input": ["a"]}));
        assert_eq!(
            text(&json, "program").unwrap_err(),
            "program has to be a string, and is a number: put it in quotes"
        );
        assert!(texts(&json, "args").unwrap_err().contains("list of strings"));
        assert_eq!(text(&json, "input").unwrap_err(), "input has to be a string, and is a list");
        let json = arguments(json!({"args": ["-n", 3]}));
        assert!(texts(&json, "args").unwrap_err().contains("one is a number"));
    }

    #[test]
    fn times_are_said_in_words() {
        let said = |seconds| time(Duration::from_secs(seconds));
        assert_eq!(
            [said(1), said(90), said(120), said(3_600)],
            ["1 second", "90 seconds", "2 minutes", "1 hour"]
        );
    }
}
