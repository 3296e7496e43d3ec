//! A recorded debug session as a transcript of requests and answers.
//!
//! Pure. Every text is sanitized for a terminal and bounded. An unknown message is shown by its kind alone.

use std::collections::HashMap;

use serde_json::Value;

use ray_relay_access::recording::Direction;
use ray_relay_base::wire::dap::message::arguments_of;
use ray_relay_base::wire::dap::names::{Command, Event};
use ray_relay_base::wire::json::{self, typed_at};
use ray_relay_base::wire::text::replaced;
use ray_relay_view::listing::text::{KeptEnd, fit};

/// Maximum width of a text from a message, in columns.
const MAX_TEXT_COLUMNS: usize = 160;

/// Maximum number of requests that wait for their answer.
const MAX_OPEN_REQUESTS: usize = 1024;

/// Maximum number of members shown of a list in an answer.
const MAX_MEMBERS: usize = 20;

/// Remembers requests, to label their answers.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    /// `command` by direction and `seq`.
    requests: HashMap<(bool, u64), String>,
}

impl Transcript {
    /// Formats one message as one or more lines.
    pub(super) fn lines(&mut self, direction: Direction, bytes: &[u8]) -> Vec<String> {
        let up = direction == Direction::Up;
        let mark = if up { ">" } else { "<" };
        let Ok(message) = serde_json::from_slice::<Value>(bytes) else {
            return vec![format!(
                "{mark} a message of {} bytes that is no JSON",
                bytes.len()
            )];
        };
        let text = |key: &str| typed_at::<Option<&str>>(&message, key).unwrap_or("?");
        let body = message.get("body").unwrap_or(&Value::Null);
        match text("type") {
            "request" => {
                let command = text("command");
                if let Some(seq) = typed_at(&message, "seq")
                    && self.requests.len() < MAX_OPEN_REQUESTS
                {
                    self.requests.insert((up, seq), command.to_owned());
                }
                vec![
                    format!(
                        "{mark} {} {}",
                        short(command),
                        arguments(command, arguments_of(&message))
                    )
                    .trim_end()
                    .to_owned(),
                ]
            }
            "response" => {
                let requested: Option<u64> = typed_at(&message, "request_seq");
                let requested = requested.and_then(|seq| self.requests.remove(&(!up, seq)));
                let command = requested.unwrap_or_else(|| text("command").to_owned());
                if message.get("success") == Some(&Value::Bool(false)) {
                    let why = body.pointer("/error/format").and_then(Value::as_str);
                    let why = why.or(typed_at(&message, "message"));
                    let why = why.unwrap_or("no reason");
                    return vec![format!(
                        "{mark} {}: refused: {}",
                        short(&command),
                        short(why)
                    )];
                }
                let mut lines = vec![format!("{mark} {}: done", short(&command))];
                lines.extend(
                    results(&command, body)
                        .into_iter()
                        .map(|line| format!("{mark}     {line}")),
                );
                lines
            }
            "event" => {
                let details = event(text("event"), body);
                vec![
                    format!("{mark} * {} {details}", short(text("event")))
                        .trim_end()
                        .to_owned(),
                ]
            }
            other => vec![format!("{mark} a message of type {}", short(other))],
        }
    }
}

fn arguments(command: &str, arguments: &Value) -> String {
    let of = |key: &str| show(arguments.get(key));
    match Command::parse(command.as_bytes()) {
        Some(Command::Evaluate) => of("expression"),
        Some(Command::SetVariable) => format!("{} = {}", of("name"), of("value")),
        Some(Command::SetExpression) => format!("{} = {}", of("expression"), of("value")),
        Some(Command::SetBreakpoints) => {
            let path = arguments.pointer("/source/path").and_then(Value::as_str);
            let points = json::list(arguments, "breakpoints").iter().map(|point| {
                let mut text = show(point.get("line"));
                for key in ["condition", "hitCondition", "logMessage"] {
                    if let Some(what) = typed_at(point, key) {
                        text += &format!(" ({key}: {})", short(what));
                    }
                }
                text
            });
            let points: Vec<_> = points.collect();
            format!("{} {}", short(path.unwrap_or("?")), points.join(", "))
        }
        _ => match arguments {
            Value::Object(members) if !members.is_empty() => short(&arguments.to_string()),
            _ => String::new(),
        },
    }
}

fn results(command: &str, body: &Value) -> Vec<String> {
    let of = |key: &str| show(body.get(key));
    let all = |key: &str, show: &dyn Fn(&Value) -> String| listed(json::list(body, key), show);
    let name = |value: &Value| show(value.get("name"));
    match Command::parse(command.as_bytes()) {
        Some(Command::Evaluate | Command::SetExpression) => vec![of("result")],
        Some(Command::SetVariable) => vec![of("value")],
        Some(Command::Variables) => all("variables", &|variable| {
            format!("{} = {}", name(variable), show(variable.get("value")))
        }),
        Some(Command::Scopes) => all("scopes", &name),
        Some(Command::Threads) => all("threads", &name),
        Some(Command::StackTrace) => all("stackFrames", &|frame| {
            let (path, line) = (frame.pointer("/source/path"), frame.get("line"));
            format!("{} {}:{}", name(frame), show(path), show(line))
        }),
        Some(Command::ExceptionInfo) => {
            vec![format!("{}: {}", of("exceptionId"), of("description"))]
        }
        _ => Vec::new(),
    }
}

fn event(name: &str, body: &Value) -> String {
    let of = |key: &str| show(body.get(key));
    match Event::parse(name.as_bytes()) {
        Some(Event::Output) => of("output"),
        Some(Event::Stopped) => format!("{} thread {}", of("reason"), of("threadId")),
        Some(Event::Exited) => of("exitCode"),
        _ => String::new(),
    }
}

fn listed(list: &[Value], show: impl Fn(&Value) -> String) -> Vec<String> {
    let mut lines: Vec<String> = list.iter().take(MAX_MEMBERS).map(show).collect();
    let more = list.len().saturating_sub(MAX_MEMBERS);
    if more > 0 {
        lines.push(format!("… {more} more"));
    }
    lines
}

fn show(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => short(text),
        None | Some(Value::Null) => "-".to_owned(),
        Some(other) => short(&other.to_string()),
    }
}

/// `text` on one line, without control characters, and cut if it is too long.
fn short(text: &str) -> String {
    let text = text.trim_end().replace('\n', "⏎");
    fit(&replaced(&text), MAX_TEXT_COLUMNS, KeptEnd::Start).into_owned()
}
