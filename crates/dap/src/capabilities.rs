//! The answer to `initialize`, given before a worker is chosen, and its correction afterwards.

use std::sync::{LazyLock, OnceLock};

use serde_json::{Map, Value, json};

use super::client::DisconnectMethod;
use ray_relay_access::policy::{Scope, Scopes};
use ray_relay_session::context::Context;

/// Keys of `initialize` that debugpy accepts only as booleans (1.8.0 to 1.8.22), in the order in which it checks them.
const FLAGS: [&str; 6] = [
    "supportsVariableType",
    "supportsVariablePaging",
    "supportsRunInTerminalRequest",
    "supportsMemoryReferences",
    "supportsArgsCanBeInterpretedByShell",
    "supportsStartDebuggingRequest",
];

/// Capabilities that need a permission, because they end the worker.
pub(super) const ENDS_WORKER: [&str; 2] = ["supportsTerminateDebuggee", "supportsTerminateRequest"];

/// Why a worker's debugger would refuse `initialize` with these arguments, in debugpy's own words. The relay has to
/// check: the client gets its answer long before a worker is asked.
pub fn refusal(arguments: &Value) -> Option<String> {
    let other = |key: &str, fits: fn(&Value) -> bool| arguments.get(key).is_some_and(|v| !fits(v));
    let flag = |key: &str| other(key, Value::is_boolean);
    let wrong = if let Some(key) = FLAGS.into_iter().find(|key| flag(key)) {
        format!("\"{key}\" must be bool")
    } else if other("locale", Value::is_string) {
        "\"locale\" must be str".to_owned()
    } else if let Some(key) = ["linesStartAt1", "columnsStartAt1"]
        .into_iter()
        .find(|key| flag(key))
    {
        format!("\"{key}\" must be bool")
    } else if other("pathFormat", |format| format == "path") {
        "\"pathFormat\" must be one of: ['path']".to_owned()
    } else {
        return None;
    };
    Some(format!("Invalid message: {wrong}"))
}

/// The change from the capabilities `announced` to those that are `true_now`; empty: none. A missing capability counts
/// as false.
pub fn difference(announced: &Value, true_now: &Value) -> Map<String, Value> {
    let mut changed = Map::new();
    let (Value::Object(before), Value::Object(now)) = (announced, true_now) else {
        return changed;
    };
    for (key, value) in now {
        let before = before.get(key).unwrap_or(&Value::Bool(false));
        if before != value {
            changed.insert(key.clone(), value.clone());
        }
    }
    for key in before.keys().filter(|key| !now.contains_key(*key)) {
        if before[key] == true {
            changed.insert(key.clone(), false.into());
        }
    }
    changed
}

/// The answer to the `initialize` of a client that disconnects by `method`. Its user is not known yet, so it announces
/// what a user with `debug` alone may do. Each of the few variants is built once.
pub(super) fn announced(context: &Context, method: DisconnectMethod) -> &'static Value {
    static EACH: [[[OnceLock<Value>; 2]; 2]; 3] =
        [const { [const { [const { OnceLock::new() }; 2] }; 2] }; 3];
    let may_end_worker = context.may_end_worker(Scopes::default().with(Scope::Debug));
    let suspends = !context.config.park.r#for.is_zero();
    let one = &EACH[method as usize][usize::from(may_end_worker)][usize::from(suspends)];
    one.get_or_init(|| {
        let mut capabilities = debugpy(may_end_worker);
        capabilities["supportSuspendDebuggee"] = suspends.into();
        for_method(capabilities, method)
    })
}

/// Adapts `capabilities` to the client: the request by which it disconnects is always announced.
pub(super) fn for_method(mut capabilities: Value, method: DisconnectMethod) -> Value {
    match method {
        DisconnectMethod::Disconnect => {}
        DisconnectMethod::Terminate => capabilities["supportsTerminateRequest"] = true.into(),
        // A user who may not end a worker is told so, and the task resumes.
        DisconnectMethod::DisconnectOrSuspend => {
            capabilities["supportTerminateDebuggee"] =
                capabilities["supportSuspendDebuggee"].clone();
        }
    }
    capabilities
}

/// Filters the capabilities that a worker's debugger `reported`: the requests that it supports, including those of a
/// newer debugpy, whose answers pass the message sanitizer like all others. Its own texts are replaced.
pub(super) fn known(mut reported: Map<String, Value>) -> Value {
    reported.retain(|key, theirs| match DEBUGPY.get(key) {
        Some(Value::Bool(_)) => {
            *theirs = (*theirs == true).into();
            true
        }
        Some(ours) => {
            *theirs = ours.clone();
            true
        }
        None => key.starts_with("support") && key.len() <= 64 && theirs.is_boolean(),
    });
    Value::Object(reported)
}

/// debugpy's own capabilities (1.8.22; 1.8.0 and 1.8.5 lack `supportsTerminateDebuggee`), as its adapter sends them.
/// The relay adds three. `supportsRestartRequest`: a client that lacks the request disconnects instead, and the task
/// resumes. `supportsCancelRequest` interrupts an expression, `supportSuspendDebuggee` leaves the task parked.
/// `uncaught` must be on by default: otherwise clients do not set the filter that a post-mortem stop needs.
static DEBUGPY: LazyLock<Value> = LazyLock::new(|| {
    json!({
        "supportsCompletionsRequest": true,
        "supportsConditionalBreakpoints": true,
        "supportsConfigurationDoneRequest": true,
        "supportsDebuggerProperties": true,
        "supportsDelayedStackTraceLoading": true,
        "supportsEvaluateForHovers": true,
        "supportsExceptionInfoRequest": true,
        "supportsExceptionOptions": true,
        "supportsFunctionBreakpoints": true,
        "supportsHitConditionalBreakpoints": true,
        "supportsLogPoints": true,
        "supportsModulesRequest": true,
        "supportsSetExpression": true,
        "supportsSetVariable": true,
        "supportsValueFormattingOptions": true,
        "supportsTerminateDebuggee": true,
        "supportsTerminateRequest": true,
        "supportsGotoTargetsRequest": true,
        "supportsClipboardContext": true,
        "exceptionBreakpointFilters": [
            {"filter": "raised", "label": "Raised Exceptions", "default": false,
             "description": "Break whenever any exception is raised."},
            {"filter": "uncaught", "label": "Uncaught Exceptions", "default": true,
             "description": "Break when the process is exiting due to unhandled exception."},
            {"filter": "userUnhandled", "label": "User Uncaught Exceptions", "default": false,
             "description": "Break when exception escapes into library code."},
        ],
        "supportsStepInTargetsRequest": true,
        "supportsCancelRequest": true,
        "supportsRestartRequest": true,
        "supportSuspendDebuggee": true,
    })
});

/// The same for a client that may end the worker, or not.
pub fn debugpy(may_end_worker: bool) -> Value {
    let mut capabilities = DEBUGPY.clone();
    for key in ENDS_WORKER {
        capabilities[key] = may_end_worker.into();
    }
    capabilities
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The messages are the responses of debugpy 1.8.22 to these arguments.
    #[test]
    fn invalid_initialize_is_refused_as_debugpy_does() {
        for (arguments, expected) in [
            (
                json!({"pathFormat": "uri"}),
                "Invalid message: \"pathFormat\" must be one of: ['path']",
            ),
            (
                json!({"pathFormat": null}),
                "Invalid message: \"pathFormat\" must be one of: ['path']",
            ),
            (
                json!({"supportsVariableType": 1, "locale": 5}),
                "Invalid message: \"supportsVariableType\" must be bool",
            ),
            (
                json!({"locale": null}),
                "Invalid message: \"locale\" must be str",
            ),
            (
                json!({"linesStartAt1": "x", "pathFormat": "uri"}),
                "Invalid message: \"linesStartAt1\" must be bool",
            ),
        ] {
            assert_eq!(refusal(&arguments).as_deref(), Some(expected));
        }
    }

    #[test]
    fn initialize_of_known_editors_is_accepted() {
        for arguments in [
            Value::Null,
            json!({}),
            json!({"clientID": 5, "pathFormat": "path", "supportsInvalidatedEvent": "yes"}),
            json!({"clientID": "hx", "locale": "en-us", "linesStartAt1": true, "columnsStartAt1": false,
                "supportsVariablePaging": false}),
        ] {
            assert_eq!(refusal(&arguments), None, "{arguments}");
        }
    }

    #[test]
    fn capability_difference_lists_only_changes() {
        let before = json!({"a": true, "b": true, "c": false, "filters": [1]});
        let now = json!({"a": true, "d": true, "e": false, "filters": [1, 2]});
        assert_eq!(
            Value::Object(difference(&before, &now)),
            json!({"d": true, "filters": [1, 2], "b": false})
        );
        assert!(difference(&before, &before).is_empty());
        assert!(difference(&debugpy(false), &debugpy(false)).is_empty());
    }

    #[test]
    fn only_known_capabilities_are_read_from_a_worker() {
        let reported = json!({"supportsLogPoints": true, "supportsSetVariable": "yes", "supportsDataBreakpoints": true,
            "supportsX": {}, "breakpointModes": [{"label": "x"}],
            "exceptionBreakpointFilters": [{"filter": "x", "label": "[x](command:y)"}]});
        let filters = &debugpy(true)["exceptionBreakpointFilters"];
        let expected = json!({"supportsLogPoints": true, "supportsSetVariable": false, "supportsDataBreakpoints": true,
            "exceptionBreakpointFilters": filters});
        let known_of = |reported: Value| known(reported.as_object().unwrap().clone());
        assert_eq!(known_of(reported), expected);
        assert_eq!(known_of(debugpy(true)), debugpy(true));
    }

    proptest::proptest! {
        #[test]
        fn applied_difference_gives_the_current_capabilities(
            before in flags(), now in flags()
        ) {
            let mut known = before.as_object().unwrap().clone();
            known.extend(difference(&before, &now));
            for key in ["a", "b", "c", "d"] {
                let is_true = |value: &Value| value == true;
                proptest::prop_assert_eq!(
                    known.get(key).is_some_and(is_true),
                    now.get(key).is_some_and(is_true)
                );
            }
        }
    }

    fn flags() -> impl proptest::strategy::Strategy<Value = Value> {
        use proptest::strategy::Strategy;
        proptest::collection::hash_map("[a-d]", proptest::bool::ANY, 0..4)
            .prop_map(|flags| json!(flags))
    }
}
