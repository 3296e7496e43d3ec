//! Rewriting: what is changed in messages that pass between a worker's debugger and its client.
//!
//! Pure. The events named here carry addresses inside the cluster, which the client cannot and must not dial; child
//! sessions that debugpy asks for are sent back to the relay, with the breakpoint they belong to. Source:
//! debugpy 1.8.0 to 1.8.22 on the wire.

use serde_json::{Value, json};

use super::attach::{Pass, RelayEndpoint, way_back};
use crate::ray::registry::BreakpointId;

/// Whether the flag `key` of a request is set. debugpy expects a boolean there and has ended workers over what is none,
/// so only what is absent, null or false counts as not set.
pub fn is_set(arguments: &Value, key: &str) -> bool {
    !matches!(
        arguments.get(key),
        None | Some(Value::Null | Value::Bool(false))
    )
}

/// Writes the flags of a `disconnect` or `terminate` as booleans, so that nothing is left for debugpy to interpret.
pub fn write_flags(arguments: &mut Value) {
    if !arguments.is_object() {
        *arguments = json!({});
    }
    for key in ["restart", "terminateDebuggee", "suspendDebuggee"] {
        if arguments.get(key).is_some() {
            arguments[key] = is_set(arguments, key).into();
        }
    }
}

/// A child session that debugpy asks for (`startDebugging`, or the event `debugpyAttach`), routed back to the relay,
/// where it presents `pass`.
pub fn route_child(message: &mut Value, dialled: &RelayEndpoint, id: BreakpointId, pass: Pass<'_>) {
    let configuration = match message.pointer("/arguments/configuration").is_some() {
        true => message.pointer_mut("/arguments/configuration"),
        false => message.get_mut("body"),
    };
    let Some(Value::Object(configuration)) = configuration else {
        return;
    };
    let at_top = configuration.contains_key("host") || configuration.contains_key("port");
    dialled.put_into(configuration, at_top);
    configuration.insert("rayRelay".into(), way_back(id, pass));
}

/// Puts the threads that Ray runs for itself behind the program's own in an answer to `threads`: some editors open the
/// first one, where there is no line of the program to show. `false`: they are there already.
pub fn put_ray_threads_last(answer: &mut Value) -> bool {
    /// Ray collects garbage in it.
    const OWN: &str = "PythonGCThread";
    let own = |thread: &Value| thread["name"] == OWN;
    match answer.pointer_mut("/body/threads") {
        Some(Value::Array(threads)) if !threads.is_sorted_by_key(own) => {
            threads.sort_by_key(own);
            true
        }
        _ => false,
    }
}

/// `debugpySockets` without the cluster's sockets: the extension only wants to know which ports not to forward by itself.
pub fn hide_sockets(message: &mut Value) {
    message["body"] = json!({"sockets": []});
}

/// Adds the filter without which a post-mortem stop is not reported and attaching lets the task fail.
pub fn break_on_uncaught(arguments: &mut Value) {
    if !arguments.is_object() {
        *arguments = json!({});
    }
    match arguments.get_mut("filters") {
        Some(Value::Array(filters)) if filters.iter().any(|f| f == "uncaught") => {}
        Some(Value::Array(filters)) => filters.push("uncaught".into()),
        _ => arguments["filters"] = json!(["uncaught"]),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn dialled() -> RelayEndpoint {
        RelayEndpoint {
            host: "LocalHost".into(),
            port: "5678".into(),
            listen: None,
        }
    }

    #[test]
    fn children_of_debugpy_come_back_to_the_relay_in_the_clients_own_words() {
        let id = BreakpointId::derive("default", "ab");
        let mut reverse = json!({"type": "request", "command": "startDebugging", "arguments": {"request": "attach",
            "configuration": {"name": "Subprocess 7", "subProcessId": 7, "connect": {"host": "10.88.0.11", "port": 41000}}}});
        route_child(&mut reverse, &dialled(), id, Pass::default());
        let configuration = &reverse["arguments"]["configuration"];
        assert_eq!(
            configuration["connect"],
            json!({"host": "LocalHost", "port": "5678"})
        );
        assert_eq!(configuration["rayRelay"], json!({"breakpoint": id}));
        assert_eq!(configuration["subProcessId"], 7);

        let mut event = json!({"type": "event", "event": "debugpyAttach",
            "body": {"name": "Subprocess 7", "host": "10.88.0.11", "port": 41000, "subProcessId": 7}});
        route_child(&mut event, &dialled(), id, Pass::default());
        assert_eq!(event["body"]["host"], "LocalHost");
        assert_eq!(event["body"]["port"], "5678");
        assert!(event["body"].get("connect").is_none());
        assert!(!event.to_string().contains("10.88"));
    }

    #[test]
    fn rays_own_thread_is_not_the_first() {
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
        for fine in [
            answer(&["MainThread", "PythonGCThread"]),
            answer(&[]),
            json!({"body": {"threads": null}}),
            json!({}),
        ] {
            assert!(!put_ray_threads_last(&mut fine.clone()), "{fine}");
        }
    }

    #[test]
    fn whatever_is_not_plainly_unset_is_set_and_goes_on_as_a_boolean() {
        for set in [
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
            let mut arguments = json!({"terminateDebuggee": set, "restart": set, "other": set});
            assert!(is_set(&arguments, "terminateDebuggee"), "{set}");
            write_flags(&mut arguments);
            assert_eq!(
                arguments,
                json!({"terminateDebuggee": true, "restart": true, "other": set})
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
    fn the_post_mortem_filter_is_added_once() {
        let mut none = Value::Null;
        break_on_uncaught(&mut none);
        assert_eq!(none, json!({"filters": ["uncaught"]}));
        let mut raised = json!({"filters": ["raised"]});
        break_on_uncaught(&mut raised);
        break_on_uncaught(&mut raised);
        assert_eq!(raised, json!({"filters": ["raised", "uncaught"]}));
    }
}
