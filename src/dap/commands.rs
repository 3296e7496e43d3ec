//! What of a client's request goes on record: who looked at or changed what, never the value of a variable.
//!
//! Pure. Only where the audit log wants commands are these requests parsed at all.

use serde_json::{Map, Value, json};

use super::message::clean;
use super::peek::MessageType;
use super::rewrite;

/// Longest text of a client's that is recorded, in characters.
const MAX_TEXT: usize = 4096;

/// The same of one breakpoint among many.
const MAX_CONDITION: usize = 512;

/// Most breakpoints of one request that are recorded.
const MAX_BREAKPOINTS: usize = 200;

/// Messages of a client that are captured where commands are recorded.
pub(super) fn captures_for_record(kind: MessageType, name: &[u8]) -> bool {
    rewrite::captures_from_client(kind, name)
        || kind == MessageType::Request
            && matches!(
                name,
                b"setBreakpoints"
                    | b"setFunctionBreakpoints"
                    | b"setDataBreakpoints"
                    | b"evaluate"
                    | b"setVariable"
                    | b"setExpression"
                    | b"goto"
                    | b"restartFrame"
            )
}

/// What is recorded of `command`; `None`: nothing.
pub(super) fn recorded(command: &str, arguments: &Value) -> Option<Map<String, Value>> {
    let keys: &[&str] = match command {
        "setBreakpoints" | "setFunctionBreakpoints" | "setDataBreakpoints" => &[],
        "evaluate" => &["expression", "context", "frameId"],
        // The value is data of the task.
        "setVariable" => &["name"],
        "setExpression" => &["expression", "frameId"],
        "goto" => &["threadId", "targetId"],
        "restartFrame" => &["frameId"],
        "terminate" => &["restart"],
        "disconnect" => &["terminateDebuggee", "suspendDebuggee"],
        _ => return None,
    };
    let mut details = chosen(arguments, keys, MAX_TEXT);
    details.insert("command".into(), command.into());
    if keys.is_empty() {
        let source = arguments.get("source");
        let file = source.and_then(|s| s.get("path").or_else(|| s.get("name")));
        if let Some(file) = file.and_then(Value::as_str) {
            details.insert("source".into(), clean(file, MAX_TEXT).into());
        }
        let all = arguments.get("breakpoints").and_then(Value::as_array);
        let all = all.map(Vec::as_slice).unwrap_or_default();
        let shown = all.iter().take(MAX_BREAKPOINTS).map(breakpoint).collect();
        details.insert("breakpoints".into(), Value::Array(shown));
        if all.len() > MAX_BREAKPOINTS {
            details.insert("breakpoints_in_all".into(), all.len().into());
        }
    }
    Some(details)
}

/// A line alone as a number; with what makes it run code, as an object.
fn breakpoint(one: &Value) -> Value {
    let keys = [
        "line",
        "name",
        "dataId",
        "condition",
        "hitCondition",
        "logMessage",
    ];
    let chosen = chosen(one, &keys, MAX_CONDITION);
    match (chosen.len(), chosen.get("line")) {
        (1, Some(line)) => line.clone(),
        _ => json!(chosen),
    }
}

/// Scalars of `from`, long texts cut.
fn chosen(from: &Value, keys: &[&str], limit: usize) -> Map<String, Value> {
    let one = |key: &&str| {
        let value = match from.get(*key)? {
            Value::String(text) => cut(text, limit).into(),
            scalar @ (Value::Number(_) | Value::Bool(_)) => scalar.clone(),
            _ => return None,
        };
        Some(((*key).to_owned(), value))
    };
    keys.iter().filter_map(one).collect()
}

/// Code keeps its lines.
fn cut(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_and_expressions_are_recorded_and_values_are_not() {
        let set = json!({"variablesReference": 7, "name": "password", "value": "'hunter2'"});
        let set = recorded("setVariable", &set).unwrap();
        assert_eq!(
            json!(set),
            json!({"name": "password", "command": "setVariable"})
        );
        let set = json!({"expression": "self.key", "value": "'hunter2'", "frameId": 3});
        let set = json!(recorded("setExpression", &set).unwrap());
        assert!(!set.to_string().contains("hunter2"), "{set}");
        assert_eq!(set["expression"], "self.key");
        let evaluated = json!({"expression": "a\nb", "context": "repl", "frameId": 3});
        let evaluated = recorded("evaluate", &evaluated).unwrap();
        assert_eq!(evaluated["expression"], "a\nb");
        assert!(recorded("variables", &json!({})).is_none());
    }

    #[test]
    fn breakpoints_are_recorded_with_their_file_and_conditions_in_bounds() {
        let set = json!({"source": {"path": "/w/a.py"}, "lines": [3, 9],
            "breakpoints": [{"line": 3}, {"line": 9, "condition": "x > 1", "logMessage": "{x}"}]});
        let set = json!(recorded("setBreakpoints", &set).unwrap());
        assert_eq!(set["source"], "/w/a.py");
        assert_eq!(
            set["breakpoints"],
            json!([3, {"line": 9, "condition": "x > 1", "logMessage": "{x}"}])
        );
        let many =
            json!({"breakpoints": vec![json!({"line": 1, "condition": "x".repeat(9000)}); 300]});
        let many = json!(recorded("setBreakpoints", &many).unwrap());
        assert_eq!(
            many["breakpoints"].as_array().unwrap().len(),
            MAX_BREAKPOINTS
        );
        assert_eq!(many["breakpoints_in_all"], 300);
        let condition = many["breakpoints"][0]["condition"].as_str().unwrap();
        assert_eq!(condition.chars().count(), MAX_CONDITION + 1);
    }

    proptest::proptest! {
        #[test]
        fn any_arguments_are_recorded_without_panic(command in "(setBreakpoints|evaluate|disconnect)", key in "(breakpoints|expression|source)", text in ".{0,20}") {
            for value in [json!(text), json!([text]), json!({"path": [text]}), json!([{"line": {"a": text}}])] {
                let _ = recorded(&command, &json!({(&*key): value}));
            }
        }
    }
}
