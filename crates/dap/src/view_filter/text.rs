//! Hides text of the program in messages of a worker's debugger.
//!
//! Pure. Rebuilds a body from the fields named here, so a field of a later debugpy is not shown before it is reviewed.
//! Values are not among them: the relay renders those itself ([`super::values`]).

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use ray_relay_access::visibility::{hidden, is_identifier, thread_name, type_name};

/// Kind of program text in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Text {
    /// None: locations, names of functions, numbers.
    Nothing,
    /// Completions.
    Completions,
    /// An exception with its message.
    Exception,
    /// Output of the program.
    Output,
    /// Reason of a stop, with the message of an exception.
    Stopped,
    /// Names of threads.
    Threads,
    /// Anything.
    Unknown,
}

/// Replaces an error of the debugger, which may quote a value.
const REFUSED: &str =
    "the worker's debugger refuses this; its reason is hidden without the permission `debug`";

#[derive(Deserialize)]
struct Threads {
    threads: Vec<Thread>,
}

#[derive(Deserialize)]
struct Thread {
    id: i64,
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Completions {
    targets: Vec<Completion>,
}

#[derive(Deserialize, Serialize)]
struct Completion {
    label: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Exception {
    exception_id: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    break_mode: Option<String>,
}

#[derive(Deserialize)]
struct Output {
    #[serde(default)]
    category: Option<String>,
    output: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stopped {
    reason: String,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    thread_id: Option<i64>,
    #[serde(default)]
    all_threads_stopped: Option<bool>,
    #[serde(default)]
    preserve_focus_hint: Option<bool>,
    #[serde(default)]
    hit_breakpoint_ids: Option<Vec<i64>>,
}

impl Text {
    /// Hides it in `message`; false: nothing worth showing remains.
    pub(super) fn hide(self, message: &mut Value) -> bool {
        let Value::Object(message) = message else {
            return false;
        };
        if self == Self::Nothing {
            return true;
        }
        let failed = message
            .get("success")
            .is_some_and(|success| *success != true);
        if failed || message.contains_key("message") {
            let body = json!({"error": {"id": 1, "format": REFUSED, "showUser": false}});
            message.insert("message".to_owned(), REFUSED.into());
            message.insert("body".to_owned(), body);
            return true;
        }
        let Some(body) = message.get_mut("body") else {
            return true;
        };
        let visible = self.visible(body.take());
        let is_visible = visible.is_some();
        *body = visible.unwrap_or_else(|| json!({}));
        is_visible || self != Self::Output
    }

    /// The visible part of `body`.
    fn visible(self, body: Value) -> Option<Value> {
        match self {
            Self::Nothing => Some(body),
            Self::Unknown => None,
            Self::Threads => {
                let Threads { threads } = serde_json::from_value(body).ok()?;
                let threads = threads.iter();
                let threads: Vec<Value> = threads
                    .map(|thread| json!({"id": thread.id, "name": thread_name(&thread.name)}))
                    .collect();
                Some(json!({ "threads": threads }))
            }
            Self::Completions => {
                let Completions { mut targets } = serde_json::from_value(body).ok()?;
                targets.retain(|target| is_identifier(&target.label));
                Some(json!({ "targets": targets }))
            }
            Self::Exception => {
                let exception: Exception = serde_json::from_value(body).ok()?;
                let kind = type_name(&exception.exception_id).unwrap_or("exception");
                let mode = exception.break_mode.filter(|mode| is_identifier(mode));
                let description = exception.description.as_deref().map(hidden);
                Some(json!({
                    "exceptionId": kind, "description": description, "breakMode": mode.as_deref().unwrap_or("always"),
                    "details": {"typeName": kind, "message": description},
                }))
            }
            Self::Output => {
                let Output { category, output } = serde_json::from_value(body).ok()?;
                let category = category.filter(|category| is_identifier(category));
                let has_text = !output.trim().is_empty();
                has_text.then(|| {
                    json!({"category": category.as_deref().unwrap_or("console"), "output": hidden(&output) + "\n"})
                })
            }
            Self::Stopped => {
                let stopped: Stopped = serde_json::from_value(body).ok()?;
                let is_word = |c: char| c.is_ascii_lowercase() || c == ' ';
                let reason = stopped.reason.as_str();
                let reason = (reason.len() < 40 && reason.chars().all(is_word)).then_some(reason);
                let mut visible = json!({"reason": reason.unwrap_or("pause")});
                let further = [
                    ("threadId", json!(stopped.thread_id)),
                    ("allThreadsStopped", json!(stopped.all_threads_stopped)),
                    ("preserveFocusHint", json!(stopped.preserve_focus_hint)),
                    ("hitBreakpointIds", json!(stopped.hit_breakpoint_ids)),
                    ("text", json!(stopped.text.as_deref().and_then(type_name))),
                ];
                let further = further.into_iter().filter(|(_, value)| !value.is_null());
                if let Value::Object(visible) = &mut visible {
                    visible.extend(further.map(|(key, value)| (key.to_owned(), value)));
                }
                Some(visible)
            }
        }
    }
}
