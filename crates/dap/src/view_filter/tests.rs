//! Unit tests of the filter. `tests/it/view.rs` checks its list with a real debugpy.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use ray_relay_access::policy::SessionObligations;

fn filter_with(scopes: Scopes) -> ViewFilter {
    let rights = Rights {
        scopes,
        obligations: SessionObligations::default(),
    };
    ViewFilter::new(&rights, &Principal::anonymous())
}

fn filter() -> ViewFilter {
    filter_with(Scopes::NONE.with(Scope::View))
}

fn request(seq: impl Into<Value>, command: &str, arguments: Value) -> Value {
    let mut message = json!({"seq": seq.into(), "type": "request", "command": command});
    message["arguments"] = arguments;
    message
}

fn answer(to: &Value, command: &str, body: Value) -> Value {
    let mut message = json!({"seq": 1, "type": "response", "request_seq": to["seq"], "success": true, "command": command});
    message["body"] = body;
    message
}

/// Expects exactly one action and returns it.
fn single(actions: Vec<Action>) -> Action {
    let [action] = <[_; 1]>::try_from(actions).unwrap();
    action
}

/// Returns the actions for one request of a principal with only `view`.
fn filter_request(command: &str, arguments: Value) -> Vec<Action> {
    filter().on_client(request(1, command, arguments))
}

fn expect_to_worker(actions: Vec<Action>) -> Value {
    match single(actions) {
        Action::ToWorker(message) => message,
        other => panic!("{other:?}"),
    }
}

fn expect_to_client(actions: Vec<Action>) -> Value {
    match single(actions) {
        Action::ToClient(message) => message,
        other => panic!("{other:?}"),
    }
}

fn expect_refusal(actions: Vec<Action>) -> (Option<Scope>, Value) {
    match single(actions) {
        Action::Refuse {
            missing, answer, ..
        } => (missing, answer),
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_are_rebuilt_from_known_keys() {
    // Python and this parser take the last of two equal keys, so the checked value is the one that is sent.
    let request_text = r#"{"seq":3,"type":"request","command":"threads","command":"stackTrace",
        "arguments":{"threadId":1,"threadId":2,"format":{"hex":true,"x":1},"extra":"evaluate"},"command2":"x"}"#;
    let passed = expect_to_worker(filter().on_client(serde_json::from_str(request_text).unwrap()));
    let expected = json!({"threadId": 2});
    assert_eq!(passed, request(3, "stackTrace", expected));
}

#[test]
fn malformed_request_reaches_no_worker() {
    for (seq, case) in [
        (json!(FIRST_OWN_SEQ), "the relay's own range"),
        (json!(0x7fff_5678), "the range of a post-mortem filter"),
        (json!(-1), "negative"),
        (json!(1.5), "no whole number"),
        (json!(1e300), "huge"),
    ] {
        let (missing, _) = expect_refusal(filter().on_client(request(seq, "threads", Value::Null)));
        assert_eq!(missing, None, "{case}");
    }
    for message in [
        json!({"seq": 1, "type": "request", "command": 7}),
        json!({"seq": "1", "type": "request", "command": "threads"}),
        json!({"type": "request", "command": "threads"}),
    ] {
        assert!(
            matches!(&filter().on_client(message)[..], [Action::ToClient(notice)] if notice["type"] == "event")
        );
    }
    for message in [
        json!({"seq": 1, "type": "event", "event": "evaluate"}),
        json!({"seq": 1, "command": "evaluate"}),
        json!({"seq": 1, "type": "Request", "command": "evaluate"}),
        json!({"seq": 1, "type": ["request"], "command": "evaluate"}),
    ] {
        assert_eq!(filter().on_client(message), []);
    }
}

#[test]
fn malformed_arguments_are_refused() {
    for (command, arguments) in [
        ("stackTrace", json!({"threadId": "*"})),
        ("variables", json!({"variablesReference": 1u64 << 60})),
        (
            "variables",
            json!({"variablesReference": 1, "filter": "other"}),
        ),
        ("scopes", json!({"frameId": {"a": 1}})),
        (
            "setBreakpoints",
            json!({"source": {"path": 1}, "breakpoints": []}),
        ),
        (
            "setBreakpoints",
            json!({"source": {"path": "a"}, "breakpoints": {}}),
        ),
        (
            "setBreakpoints",
            json!({"source": {"path": "a"}, "breakpoints": [{"line": "1"}]}),
        ),
        ("setExceptionBreakpoints", json!({"filters": "raised"})),
        ("evaluate", json!({"expression": ["x"], "frameId": 1})),
    ] {
        let (missing, answer) = expect_refusal(filter_request(command, arguments));
        assert_eq!(missing, None, "{command}");
        let error = answer["message"].as_str().unwrap();
        assert!(error.contains("kind"), "{answer}");
    }
}

#[test]
fn response_reaches_the_worker_only_after_its_request() {
    let mut filter = filter();
    let answer = |request_seq: u64| {
        json!({"seq": 9, "type": "response", "request_seq": request_seq, "success": true,
        "command": "startDebugging", "body": {"x": 1}, "arguments": {"expression": "x"}})
    };
    assert_eq!(filter.on_client(answer(4)), []);
    filter.on_worker(json!({"seq": 4, "type": "request", "command": "startDebugging"}));
    assert_eq!(
        expect_to_worker(filter.on_client(answer(4))),
        json!({"seq": 0, "type": "response", "request_seq": 4, "command": "startDebugging", "success": true, "body": {}})
    );
    assert_eq!(filter.on_client(answer(4)), [], "once");
    filter.on_worker(json!({"seq": 5, "type": "request", "command": "startDebugging"}));
    let mut response = answer(5);
    response["command"] = "evaluate".into();
    assert_eq!(filter.on_client(response), []);
}

#[test]
fn breakpoints_with_code_are_dropped_and_answered_in_order() {
    let mut filter = filter();
    let arguments = json!({"source": {"path": "/a.py"}, "lines": [1, 2, 3], "breakpoints": [
        {"line": 1, "condition": "x()"}, {"line": 2, "column": 1, "condition": "", "other": 1}, {"line": 3, "logMessage": "{x}"}]});
    let set_request = request(2, "setBreakpoints", arguments);
    assert_eq!(
        expect_to_worker(filter.on_client(set_request.clone()))["arguments"],
        json!({"source": {"path": "/a.py"}, "breakpoints": [{"line": 2, "column": 1}]})
    );
    let body = json!({"breakpoints": [{"verified": true, "line": 2}]});
    let answer = expect_to_client(filter.on_worker(answer(&set_request, "setBreakpoints", body)));
    let breakpoints = answer["body"]["breakpoints"].as_array().unwrap();
    let verified: Vec<_> = breakpoints
        .iter()
        .map(|breakpoint| breakpoint["verified"] == true)
        .collect();
    assert_eq!(verified, [false, true, false]);
    assert!(
        breakpoints[0]["message"]
            .as_str()
            .unwrap()
            .contains("`debug`")
    );
}

#[test]
fn exception_breakpoints_are_limited_to_plain_filters() {
    let filters = json!({"filters": ["raised", "__import__('os')"], "filterOptions": [{"filterId": "uncaught"}]});
    let passed = expect_to_worker(filter_request("setExceptionBreakpoints", filters));
    let expected = json!({"filters": ["raised", "uncaught"]});
    assert_eq!(passed["arguments"], expected);
    for arguments in [
        json!({"filters": [], "filterOptions": [{"filterId": "raised", "condition": "x()"}]}),
        json!({"filters": [], "exceptionOptions": [{"path": [{"names": ["x()"]}], "breakMode": "always"}]}),
    ] {
        let (missing, _) = expect_refusal(filter_request("setExceptionBreakpoints", arguments));
        assert_eq!(missing, Some(Scope::Debug));
    }
}

#[test]
fn completions_are_reduced_to_a_bare_name() {
    let complete = |text: &str, column: u64| {
        let arguments = json!({"frameId": 3, "text": text, "column": column});
        filter_request("completions", arguments)
    };
    for (text, column, expected) in [
        ("tot", 4, "tot"),
        ("f(x.y, tot", 11, "       tot"),
        ("total + x", 4, "tot"),
        ("größ", 5, "größ"),
    ] {
        let column_after = expected.chars().count() + 1;
        assert_eq!(
            expect_to_worker(complete(text, column))["arguments"],
            json!({"frameId": 3, "text": expected, "column": column_after, "line": 1})
        );
    }
    for (text, column) in [
        ("x.y", 4),
        ("f().", 5),
        ("", 1),
        ("a\nb", 4),
        ("1", 2),
        ("x.y", 900),
    ] {
        expect_to_client(complete(text, column));
    }
}

#[test]
fn ending_the_process_needs_terminate() {
    let (missing, _) = expect_refusal(filter_request("terminate", Value::Null));
    assert_eq!(missing, Some(Scope::Terminate));
    let arguments = json!({"terminateDebuggee": true, "restart": true, "suspendDebuggee": true});
    let actions = filter().on_client(request(2, "disconnect", arguments.clone()));
    assert_eq!(
        actions[0],
        Action::ToWorker(request(
            2,
            "disconnect",
            json!({"terminateDebuggee": false})
        ))
    );
    let mut filter = filter_with(Scopes::NONE.with(Scope::View).with(Scope::Terminate));
    assert_eq!(
        expect_to_worker(filter.on_client(request(3, "disconnect", arguments)))["arguments"],
        json!({"terminateDebuggee": true})
    );
    assert_eq!(
        expect_to_worker(filter.on_client(request(4, "terminate", json!({"restart": true}))))["arguments"],
        json!({})
    );
}

fn expect_query(actions: Vec<Action>) -> Value {
    match single(actions) {
        Action::Ask(message) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn variables_are_read_by_the_probe_through_own_references() {
    let mut filter = filter();
    let scopes = expect_to_client(filter.on_client(request(7, "scopes", json!({"frameId": 3}))));
    let globals = scopes["body"]["scopes"][1]["variablesReference"].clone();
    let list = json!({"variablesReference": globals, "start": 5, "format": {"hex": true}});
    let probe = expect_query(filter.on_client(request(8, "variables", list)));
    assert_eq!(probe["command"], "evaluate");
    let expression = probe["arguments"]["expression"].as_str().unwrap();
    assert!(
        expression.contains(r#"\"scope\":1"#) && expression.contains(r#"\"start\":5"#),
        "{expression}"
    );
    let value = json!({"name": "many", "type": "list", "value": "list, 500 items", "step": "many", "inside": 500, "indexed": true});
    let plain = json!({"name": "x", "type": "int", "value": "1", "step": "x", "inside": 0, "indexed": false});
    let result = json!({"scope": 1, "variables": [value, plain]}).to_string();
    let shown =
        expect_to_client(filter.on_worker(answer(&probe, "evaluate", json!({ "result": result }))));
    assert_eq!(shown["request_seq"], 8);
    assert_eq!(shown["command"], "variables");
    let variables = &shown["body"]["variables"];
    assert_eq!(variables[0]["indexedVariables"], 500);
    assert_eq!(
        variables[1],
        json!({"name": "x", "type": "int", "value": "1", "variablesReference": 0})
    );
    // An unexpected answer is dropped.
    assert_eq!(filter.on_worker(answer(&probe, "evaluate", json!({}))), []);
    let arguments = json!({"variablesReference": variables[0]["variablesReference"]});
    let probe = expect_query(filter.on_client(request(9, "variables", arguments)));
    let expression = probe["arguments"]["expression"].as_str().unwrap();
    assert!(
        expression.contains(r#"\"path\":[\"many\"]"#),
        "{expression}"
    );
    let arguments = json!({"variablesReference": 999});
    assert_eq!(
        expect_to_client(filter.on_client(request(10, "variables", arguments)))["success"],
        false
    );
}

#[test]
fn probe_masks_values_as_the_policy_requires() {
    for (unmasked, visible) in [(false, "structure"), (true, "text")] {
        let rights = Rights {
            scopes: Scopes::NONE.with(Scope::View),
            obligations: SessionObligations {
                unmasked,
                ..SessionObligations::default()
            },
        };
        let mut filter = ViewFilter::new(&rights, &Principal::anonymous());
        let scopes =
            expect_to_client(filter.on_client(request(1, "scopes", json!({"frameId": 3}))));
        let locals = &scopes["body"]["scopes"][0]["variablesReference"];
        let list = json!({ "variablesReference": locals });
        let hover = json!({"expression": "x", "frameId": 3, "context": "hover"});
        for (command, arguments) in [("variables", list), ("evaluate", hover)] {
            let probe = expect_query(filter.on_client(request(2, command, arguments)));
            let expression = probe["arguments"]["expression"].as_str().unwrap();
            let rendered = format!(r#"\"visible\":\"{visible}\""#);
            assert!(expression.contains(&rendered), "{command}: {expression}");
        }
    }
}

#[test]
fn hover_reads_a_bare_name_through_the_probe() {
    let mut filter = filter();
    let hover = json!({"expression": " _x ", "frameId": 3, "context": "hover"});
    let probe = expect_query(filter.on_client(request(7, "evaluate", hover)));
    assert_eq!(probe["arguments"]["frameId"], 3);
    let expression = probe["arguments"]["expression"].as_str().unwrap();
    assert!(expression.contains(r#"\"name\":\"_x\""#), "{expression}");
    let body = json!({"result": "{\"scope\": 0, \"variables\": []}"});
    let shown = expect_to_client(filter.on_worker(answer(&probe, "evaluate", body)));
    assert_eq!(shown["request_seq"], 7);
    assert!(
        shown["message"]
            .as_str()
            .unwrap()
            .contains("no variable `_x`"),
        "{shown}"
    );
}

/// Covers every message that carries program text, with a secret in each known and unknown field.
#[test]
fn worker_text_is_removed_from_every_message() {
    const SECRET: &str = "hunter2-Tr0ub4dor&3";
    let body = json!({
        "threads": [{"id": 1, "name": SECRET, "more": SECRET}], "targets": [{"label": SECRET, "text": SECRET, "start": 1}],
        "exceptionId": SECRET, "description": SECRET, "breakMode": SECRET, "details": {"message": SECRET, "stackTrace": SECRET},
        "category": SECRET, "output": SECRET, "data": {"x": SECRET}, "reason": SECRET, "text": SECRET, "threadId": 3,
        "scopes": [{"name": SECRET}], "variables": [{"name": SECRET, "value": SECRET}], "result": SECRET, "value": SECRET,
        "memoryReference": SECRET, "evaluateName": SECRET, "error": {"format": SECRET},
    });
    let commands = [
        "threads",
        "completions",
        "exceptionInfo",
        "scopes",
        "variables",
        "evaluate",
        "setVariable",
        "setExpression",
        "launch",
        "cancel",
        "notYetInvented",
        "readMemory",
    ];
    let events = ["output", "stopped", "notYetInvented"];
    let mut tried = 0;
    for success in [true, false] {
        for seq in [1, FIRST_OWN_SEQ - 1] {
            for command in commands {
                let message = json!({"seq": 1, "type": "response", "request_seq": seq, "success": success, "command": command,
                    "message": SECRET, "body": body});
                let mut message = message;
                if success && let Some(message) = message.as_object_mut() {
                    message.shift_remove("message");
                }
                let shown = format!("{:?}", filter().on_worker(message));
                assert!(!shown.contains(SECRET), "{command}: {shown}");
                tried += 1;
            }
        }
    }
    for event in events {
        let shown = format!(
            "{:?}",
            filter().on_worker(json!({"seq": 1, "type": "event", "event": event, "body": body}))
        );
        assert!(!shown.contains(SECRET), "{event}: {shown}");
        tried += 1;
    }
    assert_eq!(tried, 4 * commands.len() + events.len());
    let filter_output = |text: &str| {
        filter().on_worker(json!({"type": "event", "event": "output", "body": {"category": "stdout", "output": text}}))
    };
    assert_eq!(
        expect_to_client(filter_output("größe\n"))["body"],
        json!({"category": "stdout", "output": "str, 6 characters\n"})
    );
    assert_eq!(filter_output("\n"), []);
    let stopped = json!({"reason": "exception", "text": "ValueError", "description": SECRET, "threadId": 4, "allThreadsStopped": true});
    let stopped = expect_to_client(
        filter().on_worker(json!({"type": "event", "event": "stopped", "body": stopped})),
    );
    assert_eq!(
        stopped["body"],
        json!({"reason": "exception", "threadId": 4, "allThreadsStopped": true, "text": "ValueError"})
    );
}

#[test]
fn pending_requests_are_bounded() {
    let mut filter = filter();
    let arguments = json!({"expression": "x", "frameId": 3});
    for seq in 0..300u64 {
        filter.on_client(request(seq, "evaluate", arguments.clone()));
        filter.on_client(request(
            seq,
            "setBreakpoints",
            json!({"source": {"path": "a"}}),
        ));
        filter.on_worker(json!({"seq": seq, "type": "request", "command": "startDebugging"}));
    }
    assert_eq!(
        (filter.breakpoints.len(), filter.reverse.len()),
        (MAX_PENDING, MAX_PENDING)
    );
    let full = expect_to_client(filter.on_client(request(900, "evaluate", arguments)));
    assert_eq!(full["success"], false);
}

#[test]
fn attach_arguments_with_code_are_dropped() {
    let arguments = json!({"name": "n", "type": "ray", "connect": {"port": 1}, "justMyCode": true, "rules": [], "subProcessId": 4,
        "debugOptions": ["RedirectOutput", "Django", 7], "guiEventLoop": "a.b", "autoReload": {"enable": true}, "processId": 1,
        "debugpyArgs": ["x"], "listen": {"port": 1}, "program": "/x", "onTerminate": "KeyboardInterrupt", "options": "DJANGO_DEBUG=True", "unknown": 1});
    assert_eq!(
        attach::harmless(arguments),
        json!({"name": "n", "type": "ray", "connect": {"port": 1}, "justMyCode": true, "rules": [], "subProcessId": 4,
            "debugOptions": ["RedirectOutput"]})
    );
    assert_eq!(attach::harmless(json!([1])), json!({}));
}

proptest! {
    #[test]
    fn client_text_reaches_the_worker_only_as_path_or_name(
        command in "(threads|scopes|variables|stackTrace|setBreakpoints|setFunctionBreakpoints|setExceptionBreakpoints|evaluate|completions|continue|disconnect|goto|x)",
        key in "(expression|text|condition|frameId|line|column|filters|breakpoints|source|threadId|format)",
        nested in any::<bool>(),
    ) {
        let marker = "MARK(1)";
        let value = if nested { json!([{"line": 1, "condition": marker, "name": marker, "hex": marker}]) } else { json!(marker) };
        let arguments = json!({"frameId": 1, "threadId": 1, "variablesReference": 1, "expression": marker, "text": marker, "column": 8,
            "source": {"path": "/a.py"}, (&*key): value});
        for action in filter_request(&command, arguments) {
            if let Action::ToWorker(message) = action {
                prop_assert!(!message.to_string().contains(marker), "{}", message);
            }
        }
    }
}

#[test]
fn disconnect_never_ends_the_process_for_a_viewer() {
    for value in [
        json!(true),
        json!(1),
        json!("true"),
        json!([true]),
        json!({"a": 1}),
    ] {
        let mut actions = filter_request("disconnect", json!({"terminateDebuggee": value}));
        assert_eq!(actions.len(), 2, "{value}: the client is told");
        let passed = expect_to_worker(vec![actions.remove(0)]);
        assert_eq!(passed["arguments"], json!({"terminateDebuggee": false}));
    }
}
