//! Any messages of a client and of a worker before the filter of a session that may only look: no panic, nothing goes
//! to the worker but what the list knows, and no answer to one of the relay's own requests goes to the client.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ray_relay_dap::message_filter::Action;
use ray_relay_dap::view_filter::{FIRST_OWN_SEQ, ViewFilter};
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::{Rights, Scope, Scopes, SessionObligations};
use serde_json::Value;

const PASSING: [&str; 18] = [
    "threads",
    "modules",
    "stackTrace",
    "source",
    "exceptionInfo",
    "pause",
    "continue",
    "next",
    "stepIn",
    "stepOut",
    "stepInTargets",
    "completions",
    "setBreakpoints",
    "setFunctionBreakpoints",
    "setExceptionBreakpoints",
    "configurationDone",
    "disconnect",
    "debugpySystemInfo",
];

fuzz_target!(|text: &[u8]| {
    let rights = Rights {
        scopes: Scopes::NONE.with(Scope::View),
        obligations: SessionObligations::default(),
    };
    let mut filter = ViewFilter::new(&rights, &Principal::anonymous());
    // One message a line; those that begin with a space come from the worker.
    for line in text.split(|b| *b == b'\n') {
        let Ok(message @ Value::Object(_)) = serde_json::from_slice::<Value>(line) else {
            continue;
        };
        let of_worker = line.first() == Some(&b' ');
        let actions = match of_worker {
            true => filter.on_worker(message),
            false => filter.on_client(message),
        };
        for action in actions {
            match action {
                Action::ToWorker(message) if message["type"] == "request" => {
                    let command = message["command"].as_str().expect("a command");
                    assert!(
                        PASSING.contains(&command) || command == "pydevdSystemInfo",
                        "{message}"
                    );
                    assert!(of_worker || message["seq"].as_u64() < Some(FIRST_OWN_SEQ));
                }
                Action::ToWorker(message) => assert_eq!(message["type"], "response"),
                Action::Ask(message) => {
                    assert_eq!(message["command"], "evaluate");
                    assert!(message["seq"].as_u64() >= Some(FIRST_OWN_SEQ));
                }
                Action::ToClient(message) => {
                    let own = message["request_seq"]
                        .as_u64()
                        .is_some_and(|s| (FIRST_OWN_SEQ..FIRST_OWN_SEQ + 1000).contains(&s));
                    assert!(!own || message["type"] != "response", "{message}");
                }
                Action::Refuse { answer, .. } => assert_eq!(answer["success"], false),
            }
        }
    }
});
