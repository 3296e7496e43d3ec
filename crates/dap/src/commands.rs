//! Audits those requests of a client that could run code or change something, as they were sent.
//!
//! Pure. Requests are parsed for this only if the audit log includes commands. Requests known to be harmless leave no
//! line ([`OnRecord`]); all others do, with all their arguments, so that unforeseen ones are audited too. Nothing is
//! truncated here: [`ray_relay_access::audit`] does that, and marks it.

use serde_json::{Map, Value};

use super::messages::{OnRecord, Request};
use super::view_filter::attach::harmless;
use super::view_filter::{FILTERS, is_name};
use ray_relay_base::wire::json::typed_at;

/// Arguments that are omitted: presentation, duplicates, and ids of what a client had expanded.
const NEGLIGIBLE: [&str; 4] = ["format", "lines", "sourceModified", "variablesReference"];

/// Arguments at the top level of a line, next to `command`. Others go below `arguments`, where no client can pass them
/// off as the relay's own fields, such as `outcome`.
const OWN_PLACE: [&str; 18] = [
    "expression",
    "context",
    "frameId",
    "name",
    "value",
    "source",
    "breakpoints",
    "filters",
    "filterOptions",
    "exceptionOptions",
    "threadId",
    "targetId",
    "text",
    "line",
    "column",
    "restart",
    "terminateDebuggee",
    "suspendDebuggee",
];

/// The audit details of the request or event `name`; `None`: it leaves no line.
pub(super) fn recorded(name: &str, arguments: &Value) -> Option<Map<String, Value>> {
    let harmless = match Request::of(name.as_bytes()).record {
        OnRecord::Never => true,
        OnRecord::UnlessFilters => only_filters(arguments),
        // debugpy evaluates what precedes, unless the text is the beginning of a name.
        OnRecord::UnlessName => is_name(typed_at(arguments, "text")),
        OnRecord::Always => false,
    };
    if harmless {
        return None;
    }
    let mut details = Map::new();
    details.insert("command".into(), name.into());
    let Value::Object(keys) = arguments else {
        if !arguments.is_null() {
            details.insert("arguments".into(), arguments.clone());
        }
        return Some(details);
    };
    let mut others = Map::new();
    for (key, value) in keys {
        let value = match (key.as_str(), value) {
            (key, _) if NEGLIGIBLE.contains(&key) => continue,
            // Data of the task, which runs nothing.
            ("value", Value::String(text))
                if name.starts_with("set") && is_plain_literal(text.trim()) =>
            {
                continue;
            }
            (key, _) if names_a_secret(key) => "[not recorded]".into(),
            ("source", Value::Object(source)) => {
                let file = source.get("path").or_else(|| source.get("name"));
                file.unwrap_or(value).clone()
            }
            ("breakpoints", Value::Array(all)) => all.iter().map(breakpoint).collect(),
            (_, value) => value.clone(),
        };
        match OWN_PLACE.contains(&key.as_str()) {
            true => details.insert(key.clone(), value),
            false => others.insert(key.clone(), value),
        };
    }
    if !others.is_empty() {
        details.insert("arguments".into(), Value::Object(others));
    }
    Some(details)
}

/// The attach arguments that could run code, for the audit log.
pub(super) fn of_attach(arguments: &Value) -> Option<Value> {
    let allowed = harmless(arguments.clone());
    let mut others = Map::new();
    for (key, value) in arguments.as_object()? {
        let own = matches!(key.as_str(), "rayRelay" | "rayRelayToken");
        if own || allowed.get(key) == Some(value) {
            continue;
        }
        let value = match names_a_secret(key) {
            true => "[not recorded]".into(),
            false => value.clone(),
        };
        others.insert(key.clone(), value);
    }
    (!others.is_empty()).then_some(Value::Object(others))
}

/// Whether `key` names a credential, as `debugServerAccessToken` does.
fn names_a_secret(key: &str) -> bool {
    let key = key.to_lowercase();
    ["token", "password", "secret"]
        .iter()
        .any(|word| key.contains(word))
}

/// A breakpoint with only a line as a number; with anything else, which may run code, unchanged.
fn breakpoint(one: &Value) -> Value {
    match (one.get("line"), one.as_object().map(Map::len)) {
        (Some(line @ Value::Number(_)), Some(1)) => line.clone(),
        _ => one.clone(),
    }
}

/// Whether the arguments are debugpy's own exception filters, without code.
fn only_filters(arguments: &Value) -> bool {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    let known = |name: &Value| name.as_str().is_some_and(|name| FILTERS.contains(&name));
    let option = |one: &Value| {
        one.as_object().is_some_and(|keys| {
            keys.iter().all(|(key, value)| match key.as_str() {
                "filterId" => known(value),
                _ => empty(value),
            })
        })
    };
    arguments.as_object().is_some_and(|keys| {
        keys.iter().all(|(key, value)| match (key.as_str(), value) {
            ("filters", Value::Array(names)) => names.iter().all(known),
            ("filterOptions", Value::Array(options)) => options.iter().all(option),
            (_, value) => empty(value),
        })
    })
}

/// Whether `text` is a number, a string without escapes, or a constant of Python: evaluating it has no effect.
fn is_plain_literal(text: &str) -> bool {
    let quoted = |quote: char| {
        let inner = text
            .strip_prefix(quote)
            .and_then(|rest| rest.strip_suffix(quote));
        inner.is_some_and(|inner| !inner.contains([quote, '\\', '\n', '\r']))
    };
    let number = text.trim_start_matches(['+', '-']);
    let digits = |c: char| c.is_ascii_digit() || matches!(c, '.' | '_');
    matches!(text, "None" | "True" | "False")
        || quoted('\'')
        || quoted('"')
        || (number.starts_with(|c: char| c.is_ascii_digit()) && number.chars().all(digits))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::messages::captures_for_record;
    use ray_relay_base::wire::dap::peek::MessageType;

    #[test]
    fn names_and_expressions_are_recorded_without_values() {
        let arguments = json!({"variablesReference": 7, "name": "password", "value": "'hunter2'"});
        let recorded_fields = recorded("setVariable", &arguments).unwrap();
        let expected = json!({"name": "password", "command": "setVariable"});
        assert_eq!(json!(recorded_fields), expected);
        let arguments = json!({"expression": "self.key", "value": "'hunter2'", "frameId": 3});
        let fields = json!(recorded("setExpression", &arguments).unwrap());
        assert!(!fields.to_string().contains("hunter2"), "{fields}");
        assert_eq!(fields["expression"], "self.key");
        let arguments = json!({"expression": "a\nb", "context": "repl", "frameId": 3});
        let fields = recorded("evaluate", &arguments).unwrap();
        assert_eq!(fields["expression"], "a\nb");
        assert!(recorded("variables", &json!({})).is_none());
    }

    #[test]
    fn breakpoints_are_recorded_with_their_file_and_conditions() {
        let arguments = json!({"source": {"path": "/w/a.py"}, "lines": [3, 9],
            "breakpoints": [{"line": 3}, {"line": 9, "condition": "x > 1", "logMessage": "{x}"}]});
        let fields = json!(recorded("setBreakpoints", &arguments).unwrap());
        assert_eq!(fields["source"], "/w/a.py");
        assert_eq!(
            fields["breakpoints"],
            json!([3, {"line": 9, "condition": "x > 1", "logMessage": "{x}"}])
        );
        let arguments = json!({"breakpoints": vec![json!({"line": 1, "condition": "x"}); 300]});
        let fields = recorded("setBreakpoints", &arguments).unwrap();
        assert_eq!(fields["breakpoints"].as_array().unwrap().len(), 300);
    }

    #[test]
    fn unknown_requests_are_recorded_with_their_code() {
        let code = "__import__('os').system('id')";
        for (command, arguments) in [
            (
                "setExceptionBreakpoints",
                json!({"filters": [], "exceptionOptions": [{"path": [{"names": [code]}], "breakMode": "always"}]}),
            ),
            ("setExceptionBreakpoints", json!({"filters": [code]})),
            (
                "setExceptionBreakpoints",
                json!({"filters": [], "filterOptions": [{"filterId": "raised", "condition": code}]}),
            ),
            (
                "evaluate",
                json!({"expression": format!("{}{code}", " ".repeat(5000))}),
            ),
            ("evaluate", json!({"expression": [code]})),
            (
                "setBreakpoints",
                json!({"breakpoints": [{"line": 1, "condition": format!("{}{code}", " ".repeat(600))}]}),
            ),
            (
                "setBreakpoints",
                json!({"breakpoints": [{"line": {"a": code}}]}),
            ),
            ("setBreakpoints", json!([code])),
            (
                "setVariable",
                json!({"variablesReference": 1, "name": "x", "value": code}),
            ),
            (
                "setVariable",
                json!({"name": "x", "value": format!("'a' + {code} + 'b'")}),
            ),
            (
                "setExpression",
                json!({"expression": "x", "value": format!("f'{{{code}}}'")}),
            ),
            (
                "completions",
                json!({"text": format!("{code}."), "column": 40}),
            ),
            (
                "setDebuggerProperty",
                json!({"skipSuspendOnBreakpointException": [code]}),
            ),
            (
                "disconnect",
                json!({"terminateDebuggee": true, "because": code}),
            ),
            ("notYetInvented", json!({"of": {"some": [code]}})),
        ] {
            let details = recorded(command, &arguments).unwrap();
            assert_eq!(details["command"], command);
            let text = json!(details).to_string();
            assert!(text.contains(code), "{command} {text}");
            if command != "setExceptionBreakpoints" && command != "disconnect" {
                let name = command.as_bytes();
                assert!(captures_for_record(MessageType::Request, name));
            }
        }
        assert!(captures_for_record(MessageType::Event, b"evaluate"));
    }

    #[test]
    fn arguments_cannot_forge_fields_of_the_record() {
        let arguments = json!({"expression": "x", "command": "threads", "outcome": "refused"});
        let details = recorded("evaluate", &arguments).unwrap();
        assert_eq!(
            json!(details),
            json!({"command": "evaluate", "expression": "x", "arguments": {"command": "threads", "outcome": "refused"}})
        );
    }

    #[test]
    fn read_only_requests_are_not_recorded() {
        for (command, arguments) in [
            ("variables", json!({"variablesReference": 1})),
            ("continue", json!({"threadId": 1})),
            ("completions", json!({"text": "tot", "column": 4})),
            (
                "setExceptionBreakpoints",
                json!({"filters": ["uncaught"], "filterOptions": [{"filterId": "raised"}], "exceptionOptions": []}),
            ),
        ] {
            assert_eq!(recorded(command, &arguments), None, "{command}");
        }
        assert!(!captures_for_record(MessageType::Request, b"variables"));
    }

    #[test]
    fn only_plain_literals_count_as_data() {
        for data in ["1", "-1_000.5", "'a b'", "\"it's\"", "None"] {
            assert!(is_plain_literal(data), "{data}");
        }
        for code in [
            "x",
            "",
            "1+1",
            "'a' 'b'",
            "'\\x41'",
            "f'{x}'",
            "''.join(x)+''",
            "()",
            "1 if x else 2",
            "'",
            "1e5",
            "@x",
        ] {
            assert!(!is_plain_literal(code), "{code}");
        }
    }

    #[test]
    fn code_in_attach_is_recorded_without_credentials() {
        let arguments = json!({"name": "n", "justMyCode": true, "guiEventLoop": "os.system", "debugOptions": ["Django"],
            "rayRelay": {"token": "s3cret"}, "debugServerAccessToken": "s3cret"});
        assert_eq!(
            of_attach(&arguments),
            Some(
                json!({"guiEventLoop": "os.system", "debugOptions": ["Django"], "debugServerAccessToken": "[not recorded]"})
            )
        );
        assert_eq!(of_attach(&json!({"name": "n", "pathMappings": []})), None);
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
