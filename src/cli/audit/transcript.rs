//! A recorded debug session in words: what was asked, and what came of it.
//!
//! Pure. Every text is cleaned for a terminal and bounded; whatever is not understood is shown by its kind alone.

use std::collections::HashMap;

use serde_json::Value;

use ray_relay_access::recording::Direction;
use ray_relay_base::wire::dap::names::{Command, Event};
use ray_relay_base::wire::text::replaced;
use ray_relay_view::listing::text::{KeptEnd, fit};

/// Columns of a text from a message.
const MAX_TEXT_COLUMNS: usize = 160;

/// Requests whose answer has not come, at most.
const OPEN: usize = 1024;

/// Members of an answer's list that are shown.
const MAX_MEMBERS: usize = 20;

/// Remembers what was asked, so that answers can be told.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    /// `command` by direction and `seq`.
    asked: HashMap<(bool, u64), String>,
}

impl Transcript {
    /// One message, in one or more lines.
    pub(super) fn lines(&mut self, direction: Direction, bytes: &[u8]) -> Vec<String> {
        let up = direction == Direction::Up;
        let mark = if up { ">" } else { "<" };
        let Ok(message) = serde_json::from_slice::<Value>(bytes) else {
            return vec![format!(
                "{mark} a message of {} bytes that is no JSON",
                bytes.len()
            )];
        };
        let text = |key: &str| message[key].as_str().unwrap_or("?");
        match text("type") {
            "request" => {
                let command = text("command");
                if let Some(seq) = message["seq"].as_u64()
                    && self.asked.len() < OPEN
                {
                    self.asked.insert((up, seq), command.to_owned());
                }
                vec![
                    format!(
                        "{mark} {} {}",
                        short(command),
                        arguments(command, &message["arguments"])
                    )
                    .trim_end()
                    .to_owned(),
                ]
            }
            "response" => {
                let asked = message["request_seq"]
                    .as_u64()
                    .and_then(|seq| self.asked.remove(&(!up, seq)));
                let command = asked.unwrap_or_else(|| text("command").to_owned());
                if message["success"] == false {
                    let why = message["body"]["error"]["format"]
                        .as_str()
                        .or(message["message"].as_str())
                        .unwrap_or("no reason");
                    return vec![format!(
                        "{mark} {}: refused: {}",
                        short(&command),
                        short(why)
                    )];
                }
                let mut lines = vec![format!("{mark} {}: done", short(&command))];
                lines.extend(
                    results(&command, &message["body"])
                        .into_iter()
                        .map(|line| format!("{mark}     {line}")),
                );
                lines
            }
            "event" => {
                let said = event(text("event"), &message["body"]);
                vec![
                    format!("{mark} * {} {said}", short(text("event")))
                        .trim_end()
                        .to_owned(),
                ]
            }
            other => vec![format!("{mark} a message of type {}", short(other))],
        }
    }
}

fn arguments(command: &str, arguments: &Value) -> String {
    match Command::parse(command.as_bytes()) {
        Some(Command::Evaluate) => show(&arguments["expression"]),
        Some(Command::SetVariable) => format!(
            "{} = {}",
            show(&arguments["name"]),
            show(&arguments["value"])
        ),
        Some(Command::SetExpression) => format!(
            "{} = {}",
            show(&arguments["expression"]),
            show(&arguments["value"])
        ),
        Some(Command::SetBreakpoints) => {
            let path = arguments["source"]["path"].as_str().unwrap_or("?");
            let points = items(&arguments["breakpoints"]).map(|point| {
                let mut text = point["line"].to_string();
                for key in ["condition", "hitCondition", "logMessage"] {
                    if let Some(what) = point[key].as_str() {
                        text += &format!(" ({key}: {})", short(what));
                    }
                }
                text
            });
            format!("{} {}", short(path), points.collect::<Vec<_>>().join(", "))
        }
        _ => match arguments {
            Value::Object(members) if !members.is_empty() => short(&arguments.to_string()),
            _ => String::new(),
        },
    }
}

fn results(command: &str, body: &Value) -> Vec<String> {
    match Command::parse(command.as_bytes()) {
        Some(Command::Evaluate | Command::SetExpression) => vec![show(&body["result"])],
        Some(Command::SetVariable) => vec![show(&body["value"])],
        Some(Command::Variables) => listed(&body["variables"], |v| {
            format!("{} = {}", show(&v["name"]), show(&v["value"]))
        }),
        Some(Command::Scopes) => listed(&body["scopes"], |scope| show(&scope["name"])),
        Some(Command::Threads) => listed(&body["threads"], |thread| show(&thread["name"])),
        Some(Command::StackTrace) => listed(&body["stackFrames"], |frame| {
            format!(
                "{} {}:{}",
                show(&frame["name"]),
                show(&frame["source"]["path"]),
                frame["line"]
            )
        }),
        Some(Command::ExceptionInfo) => vec![format!(
            "{}: {}",
            show(&body["exceptionId"]),
            show(&body["description"])
        )],
        _ => Vec::new(),
    }
}

fn event(name: &str, body: &Value) -> String {
    match Event::parse(name.as_bytes()) {
        Some(Event::Output) => show(&body["output"]),
        Some(Event::Stopped) => format!("{} thread {}", show(&body["reason"]), body["threadId"]),
        Some(Event::Exited) => body["exitCode"].to_string(),
        _ => String::new(),
    }
}

fn listed(list: &Value, show: impl Fn(&Value) -> String) -> Vec<String> {
    let mut lines: Vec<String> = items(list).take(MAX_MEMBERS).map(show).collect();
    let more = items(list).count().saturating_sub(MAX_MEMBERS);
    if more > 0 {
        lines.push(format!("… {more} more"));
    }
    lines
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
}

fn show(value: &Value) -> String {
    match value {
        Value::String(text) => short(text),
        Value::Null => "-".to_owned(),
        other => short(&other.to_string()),
    }
}

/// `text` on one line, without control characters, and cut where it is too long.
fn short(text: &str) -> String {
    let text = text.trim_end().replace('\n', "⏎");
    fit(&replaced(&text), MAX_TEXT_COLUMNS, KeptEnd::Start).into_owned()
}
