//! Rewrites messages between a worker's debugger and its client.
//!
//! Pure. Source: debugpy 1.8.0 to 1.8.22 on the wire.

use serde_json::{Value, json};

use ray_relay_base::wire::json::put;

/// Whether the flag `key` of a request is set. debugpy expects a boolean and has ended workers over other values, so
/// only absent, null or false counts as not set.
pub(crate) fn is_set(arguments: &Value, key: &str) -> bool {
    !matches!(
        arguments.get(key),
        None | Some(Value::Null | Value::Bool(false))
    )
}

/// Writes the flags of a `disconnect` or `terminate` as booleans, so that nothing is left for debugpy to interpret.
pub(crate) fn write_flags(arguments: &mut Value) {
    if !arguments.is_object() {
        *arguments = json!({});
    }
    for key in ["restart", "terminateDebuggee", "suspendDebuggee"] {
        if arguments.get(key).is_some() {
            let set = is_set(arguments, key);
            put(arguments, key, set);
        }
    }
}

/// Sorts Ray's own threads last in an answer to `threads`: some editors open the first one, which has no line of the
/// program. `false`: they are last already.
pub(crate) fn put_ray_threads_last(answer: &mut Value) -> bool {
    /// Ray collects garbage in it.
    const OWN: &str = "PythonGCThread";
    let own = |thread: &Value| thread.get("name").is_some_and(|name| name == OWN);
    match answer.pointer_mut("/body/threads") {
        Some(Value::Array(threads)) if !threads.is_sorted_by_key(own) => {
            threads.sort_by_key(own);
            true
        }
        _ => false,
    }
}

/// Empties `debugpySockets`: the extension only needs it to know which ports not to forward.
pub(crate) fn hide_sockets(message: &mut Value) {
    put(message, "body", json!({"sockets": []}));
}

/// Adds the filter without which a post-mortem stop is not reported and attaching makes the task fail.
pub(crate) fn break_on_uncaught(arguments: &mut Value) {
    if !arguments.is_object() {
        *arguments = json!({});
    }
    match arguments.get_mut("filters") {
        Some(Value::Array(filters)) if filters.iter().any(|f| f == "uncaught") => {}
        Some(Value::Array(filters)) => filters.push("uncaught".into()),
        _ => put(arguments, "filters", json!(["uncaught"])),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn ray_threads_are_listed_last() {
        let answer = |names: &[&str]| {
            let threads: Vec<_> = (1..)
                .zip(names)
                .map(|(id, name)| json!({"id": id, "name": name}))
                .collect();
            json!({"type": "response", "command": "threads", "body": {"threads": threads}})
        };
        let mut listed = answer(&["PythonGCThread", "MainThread", "Thread-7"]);
        assert!(put_ray_threads_last(&mut listed));
        let names = listed["body"]["threads"].as_array().unwrap().iter();
        let names: Vec<_> = names
            .map(|thread| thread["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["MainThread", "Thread-7", "PythonGCThread"]);
        assert_eq!(listed["body"]["threads"][2]["id"], 1);
        for answer in [
            answer(&["MainThread", "PythonGCThread"]),
            answer(&[]),
            json!({"body": {"threads": null}}),
            json!({}),
        ] {
            assert!(!put_ray_threads_last(&mut answer.clone()), "{answer}");
        }
    }

    #[test]
    fn truthy_flags_are_rewritten_as_booleans() {
        for value in [
            json!(true),
            json!(1),
            json!(1.0),
            json!(0),
            json!("true"),
            json!("false"),
            json!(""),
            json!([true]),
            json!([]),
            json!({"a": 1}),
        ] {
            let mut arguments =
                json!({"terminateDebuggee": value, "restart": value, "other": value});
            assert!(is_set(&arguments, "terminateDebuggee"), "{value}");
            write_flags(&mut arguments);
            assert_eq!(
                arguments,
                json!({"terminateDebuggee": true, "restart": true, "other": value})
            );
        }
        for unset in [
            json!({"terminateDebuggee": null}),
            json!({"terminateDebuggee": false}),
        ] {
            let mut arguments = unset;
            assert!(!is_set(&arguments, "terminateDebuggee"));
            write_flags(&mut arguments);
            assert_eq!(arguments, json!({"terminateDebuggee": false}));
        }
        for none in [
            json!(null),
            json!(["terminateDebuggee"]),
            json!("terminateDebuggee"),
        ] {
            let mut arguments = none;
            assert!(!is_set(&arguments, "terminateDebuggee"));
            write_flags(&mut arguments);
            assert_eq!(arguments, json!({}));
        }
    }

    #[test]
    fn post_mortem_filter_is_added_once() {
        let mut none = Value::Null;
        break_on_uncaught(&mut none);
        assert_eq!(none, json!({"filters": ["uncaught"]}));
        let mut raised = json!({"filters": ["raised"]});
        break_on_uncaught(&mut raised);
        break_on_uncaught(&mut raised);
        assert_eq!(raised, json!({"filters": ["raised", "uncaught"]}));
    }
}
