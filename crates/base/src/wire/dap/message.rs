//! The few messages that the relay writes itself.
//!
//! Sequence numbers towards a client need not be continuous (VS Code and nvim-dap ignore them). So messages inserted
//! between a worker's own carry 0; `request_seq` is always the client's own.

use serde::Deserialize;
use serde_json::{Value, json};

use super::names::{Command, Event};
use crate::wire::json::{into_typed, put, typed_at};
use crate::wire::text::unlinked;

/// The error number by which programs distinguish the relay's refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum RefusalCode {
    /// Any other reason.
    Refused = 5678,
    /// The task's debugger cannot be reached.
    Unreachable = 5679,
    /// The requested object does not exist, or no longer.
    NotFound = 5680,
}

impl RefusalCode {
    /// The code in the response with this body.
    pub fn of(body: &Value) -> Self {
        let id = body.pointer("/error/id").and_then(Value::as_u64);
        let codes = [Self::Unreachable, Self::NotFound].into_iter();
        let mut codes = codes.filter(|code| id == Some(u64::from(*code as u32)));
        codes.next().unwrap_or(Self::Refused)
    }
}

/// A message of a debugger, or of a relay in its place, with the fields that the relay uses.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Incoming {
    #[serde(rename = "type")]
    pub kind: String,
    pub request_seq: Option<i64>,
    command: Option<String>,
    pub success: bool,
    pub message: Option<String>,
    event: Option<String>,
    pub body: Value,
}

/// The body of the answer to an `evaluate`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Evaluated {
    result: String,
}

/// The body of a `stopped` or a `continued` event.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ThreadEvent {
    pub reason: String,
    pub thread_id: Option<i64>,
    pub all_threads_stopped: bool,
    pub all_threads_continued: Option<bool>,
}

impl Incoming {
    /// Parses `message`; one of another shape gets an empty `kind`.
    pub fn read(message: Value) -> Self {
        into_typed(message)
    }

    /// Whether it responds to the request `seq`.
    pub fn answers(&self, seq: i64) -> bool {
        self.kind == "response" && self.request_seq == Some(seq)
    }

    /// The command to which it responds.
    pub fn command(&self) -> Option<Command> {
        Command::parse(self.command.as_deref()?.as_bytes())
    }

    /// The event, if it is a known one.
    pub fn event(&self) -> Option<Event> {
        Event::parse(self.event.as_deref()?.as_bytes())
    }

    /// The result of an `evaluate`.
    pub fn result(self) -> String {
        result_of(self.body)
    }
}

/// The result in the body of a response to `evaluate`.
pub fn result_of(body: Value) -> String {
    into_typed::<Evaluated>(body).result
}

impl ThreadEvent {
    /// Reads the body of `message`.
    pub fn read(message: &Value) -> Self {
        typed_at(message, "body")
    }
}

/// The arguments of the request in `message`; null if it has none.
pub fn arguments_of(message: &Value) -> &Value {
    message.get("arguments").unwrap_or(&Value::Null)
}

/// Whether `message` is a successful response.
pub fn succeeded(message: &Value) -> bool {
    message.get("success") == Some(&Value::Bool(true))
}

/// Whether `message` responds to the request `seq`.
pub fn responds_to<T>(message: &Value, seq: &T) -> bool
where
    Value: PartialEq<T>,
{
    message.get("type").is_some_and(|kind| kind == "response")
        && message.get("request_seq").is_some_and(|to| to == seq)
}

/// A client's request, with the fields that the relay needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// `seq`, echoed as `request_seq`. Any JSON number.
    pub seq: Value,
    /// `command`, the name of the request.
    pub command: String,
    /// `arguments`, or null.
    pub arguments: Value,
}

impl Request {
    /// The request in `message`; `None` if it is a response, an event or not well formed.
    pub fn read(message: &mut Value) -> Option<Self> {
        if message.get("type")?.as_str()? != "request" {
            return None;
        }
        let seq = message.get("seq").filter(|seq| seq.is_number())?.clone();
        let command = message.get("command")?.as_str()?.to_owned();
        let arguments = message
            .get_mut("arguments")
            .map(Value::take)
            .unwrap_or(Value::Null);
        Some(Self {
            seq,
            command,
            arguments,
        })
    }

    /// Whether `message` is a request with that `command`.
    pub fn is(message: &Value, command: Command) -> bool {
        let says = |key: &str, text: &str| message.get(key).is_some_and(|value| value == text);
        says("type", "request") && says("command", command.as_str())
    }

    /// The command, if it is a known one.
    pub fn known(&self) -> Option<Command> {
        Command::parse(self.command.as_bytes())
    }

    /// Whether the sender ends its session with it.
    pub fn leaves(&self) -> bool {
        matches!(self.known(), Some(Command::Disconnect | Command::Terminate))
    }

    /// A successful response; `body` null means none.
    pub fn success(&self, body: Value) -> Value {
        let mut answer = json!({
            "seq": 0, "type": "response", "request_seq": self.seq, "success": true, "command": self.command,
        });
        if !body.is_null() {
            answer["body"] = body;
        }
        answer
    }

    /// A successful response to a request that sets breakpoints, which accepts each. VS Code stops configuring if the
    /// array is missing.
    pub fn breakpoints_accepted(&self) -> Value {
        let requested = ["breakpoints", "filters"]
            .iter()
            .find_map(|key| self.arguments.get(key)?.as_array());
        let accepted = |one: &Value| match one.get("line") {
            Some(line) => json!({"verified": true, "line": line}),
            None => json!({"verified": true}),
        };
        let accepted: Vec<_> = requested.into_iter().flatten().map(accepted).collect();
        self.success(json!({ "breakpoints": accepted }))
    }

    /// A successful response to a request that sets breakpoints without a debugger to accept them: an editor shows
    /// them as not set.
    pub fn breakpoints_pending(&self) -> Value {
        const PENDING_MESSAGE: &str = "this is set in each task that opens as a session; to stop tasks that say no breakpoint(), name their job by `rayRelay.job`, or set \"all\": \"mine\"";
        let mut answer = self.breakpoints_accepted();
        let all = answer["body"]["breakpoints"].as_array_mut();
        for one in all.into_iter().flatten() {
            put(one, "verified", false);
            put(one, "message", PENDING_MESSAGE);
        }
        answer
    }

    /// [`Request::failure`] with this `code`.
    pub fn refusal(&self, code: RefusalCode, sentence: &str) -> Value {
        let mut answer = self.failure(sentence);
        answer["body"]["error"]["id"] = (code as u32).into();
        answer
    }

    /// A failed response, which VS Code shows in a dialog and Neovim as a message.
    pub fn failure(&self, sentence: &str) -> Value {
        // It contains names of tasks and texts of workers.
        let sentence = &*unlinked(sentence);
        let mut answer = json!({
            "seq": 0, "type": "response", "request_seq": self.seq, "success": false, "command": self.command,
            "message": sentence,
            "body": {"error": {"id": RefusalCode::Refused as u32, "format": sentence, "showUser": true}},
        });
        if sentence.contains(['{', '}']) {
            // In `format`, braces are placeholders. Only they become variables: a client that knows no variables shows
            // the rest.
            let braced = |c: char| match c {
                '{' => "{open}".to_owned(),
                '}' => "{close}".to_owned(),
                other => other.to_string(),
            };
            let error = &mut answer["body"]["error"];
            let format = sentence.chars().map(braced).collect::<String>();
            put(error, "format", format);
            put(error, "variables", json!({"open": "{", "close": "}"}));
        }
        answer
    }
}

/// Sets whether an editor shows the failure `answer` in a dialog.
pub fn show_dialog(answer: &mut Value, shows: bool) {
    if let Some(error) = answer.pointer_mut("/body/error") {
        put(error, "showUser", shows);
    }
}

/// Copies the sentence of `message` into its body if it is a failure: for a client that shows nothing else.
pub fn with_bare_failure(message: &Value) -> Option<Value> {
    let is = |key: &str, value: Value| message.get(key) == Some(&value);
    let failed = is("type", "response".into()) && is("success", false.into());
    let sentence = message.get("message").filter(|_| failed)?.clone();
    let mut bare = message.clone();
    put(&mut bare, "body", sentence);
    Some(bare)
}

/// A request of the relay's own; `arguments` null means none.
pub fn request(seq: impl Into<Value>, command: impl AsRef<str>, arguments: Value) -> Value {
    let mut request = json!({"seq": seq.into(), "type": "request", "command": command.as_ref()});
    if !arguments.is_null() {
        request["arguments"] = arguments;
    }
    request
}

/// An event; `body` null means none.
pub fn event(name: impl AsRef<str>, body: Value) -> Value {
    let mut event = json!({"seq": 0, "type": "event", "event": name.as_ref()});
    if !body.is_null() {
        event["body"] = body;
    }
    event
}

/// Marks the event by which an agent announces a subprocess as one whose session the agent holds.
pub const KEPT_SUBPROCESS: &str = "rayRelayKept";

/// The event by which debugpy announces that the subprocess `process` of the worker waits for a client.
pub fn named_subprocess(process: u32) -> Value {
    let body = json!({"request": Command::Attach.as_str(), "subProcessId": process});
    event(Event::DebugpyAttach, body)
}

/// The same event, marked as held by an agent.
pub fn kept_subprocess(process: u32) -> Value {
    let mut named = named_subprocess(process);
    named["body"][KEPT_SUBPROCESS] = true.into();
    named
}

/// A line in the client's debug console, marked as the relay's. `important` makes VS Code show it prominently.
pub fn notice(text: &str, important: bool) -> Value {
    let category = if important { "important" } else { "console" };
    event(
        Event::Output,
        json!({"category": category, "output": format!("ray-relay: {}\n", unlinked(text))}),
    )
}

/// Reports that the task of `title`, which the client resumed, has ended, according to the head. For people it is a
/// [`notice`], for programs it has `data` ([`tells_task_end`]). An actor gets one for each call: with `again`, people
/// see no line.
pub fn task_end(title: &str, again: bool) -> Value {
    let text = format!(
        "{title} has ended; this session stays with its worker, for a later task that stops there, until you disconnect"
    );
    let mut message = notice(&text, false);
    if again {
        message["body"]["category"] = "telemetry".into();
    }
    message["body"]["data"] = json!({"rayRelay": "taskEnded"});
    message
}

/// The same for a task that was to stop and did not: the session is over.
pub fn task_end_before_stop(title: &str) -> Value {
    let mut message = notice(
        &format!("{title} has ended before it stopped, and this session with it"),
        true,
    );
    message["body"]["data"] = json!({"rayRelay": "taskEnded"});
    message
}

/// Whether the `output` event with this body is [`task_end`], or [`task_end_before_stop`].
pub fn tells_task_end(body: &Value) -> bool {
    body.pointer("/data/rayRelay").and_then(Value::as_str) == Some("taskEnded")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Formats an error like VS Code 1.139: each `{name}` is looked up once.
    fn vscode_text(failure: &Value) -> String {
        let error = &failure["body"]["error"];
        let placeholder = regex::Regex::new(r"\{([^}]+)\}").unwrap();
        let filled = placeholder.replace_all(
            error["format"].as_str().unwrap(),
            |found: &regex::Captures<'_>| match error["variables"][&found[1]].as_str() {
                Some(value) => value.to_owned(),
                None => found[0].to_owned(),
            },
        );
        filled.into_owned()
    }

    proptest::proptest! {
        #[test]
        fn dialog_shows_any_sentence_unchanged(sentence in "([a-z ]|\\{|\\}|open|close){0,20}") {
            let request = Request { seq: 1.into(), command: "attach".to_owned(), arguments: Value::Null };
            proptest::prop_assert_eq!(vscode_text(&request.failure(&sentence)), sentence);
        }
    }

    #[test]
    fn task_end_is_shown_once_and_always_sent_to_programs() {
        let (first, subprocess_end) = (task_end("f", false), task_end("f", true));
        assert_eq!(first["body"]["category"], "console");
        assert_eq!(subprocess_end["body"]["category"], "telemetry");
        assert!(tells_task_end(&first["body"]) && tells_task_end(&subprocess_end["body"]));
    }

    #[test]
    fn malformed_message_has_no_request_or_answer() {
        for mut other in [
            Value::Null,
            json!([{"type": "request"}]),
            json!({"type": 1, "command": {}, "request_seq": "7", "success": "true", "arguments": 1, "body": []}),
            json!({"type": "response", "command": "attach", "body": {"error": [], "threadId": "1"}}),
        ] {
            assert!(!Request::is(&other, Command::Attach) && Request::read(&mut other).is_none());
            assert!(!succeeded(&other) && !responds_to(&other, &7));
            assert_eq!(ThreadEvent::read(&other).thread_id, None);
            let before = other.clone();
            show_dialog(&mut other, true);
            assert_eq!(other, before);
        }
        let attach = request(7, Command::Attach, Value::Null);
        assert!(Request::is(&attach, Command::Attach) && arguments_of(&attach).is_null());
    }

    #[test]
    fn requests_are_answered_with_their_seq() {
        let mut message =
            json!({"seq": 7, "type": "request", "command": "attach", "arguments": {"a": 1}});
        let request = Request::read(&mut message).unwrap();
        assert_eq!(request.arguments, json!({"a": 1}));
        assert_eq!(request.success(Value::Null)["request_seq"], 7);
        let failure = request.failure("no {such} thing");
        assert_eq!(failure["message"], "no {such} thing");
        let format = &failure["body"]["error"]["format"];
        assert_eq!(format, "no {open}such{close} thing");
        assert_eq!(vscode_text(&failure), "no {such} thing");
        let plain = request.failure("no such thing");
        assert_eq!(plain["body"]["error"].get("variables"), None);
        assert_eq!(vscode_text(&plain), "no such thing");
        assert_eq!(failure["body"]["error"]["showUser"], true);
        for mut other in [
            json!({"seq": 1, "type": "event", "event": "x"}),
            json!({"seq": "1", "type": "request", "command": "x"}),
        ] {
            assert_eq!(Request::read(&mut other), None);
        }
    }
}
