//! The message filter in a session: the messages of a view-only user that reach the worker.

use proptest::prelude::*;

use super::identity::{relay, with_token, worker};
use super::*;
use crate::message_filter::{Action, MessageFilter};
use crate::view_filter::FIRST_OWN_SEQ;
use crate::wall::clean;
use crate::wall::tests::json_of;
use ray_relay_access::identity::testing::token_of;
use ray_relay_access::policy::{Rights, Scope, Scopes, SessionObligations};
use ray_relay_base::wire::dap::peek::MessageType;

#[tokio::test]
async fn viewer_can_run_no_code_and_sees_no_secrets() {
    let relay = relay(Audit::off(), |_| {});
    let worker = worker(&relay).await;
    let mut arguments = with_token(token_of("vic"));
    arguments["guiEventLoop"] = "os.system".into();
    let (mut debugger, _) = Debugger::attaching(&relay, arguments).await;
    let (mut dap, attach) = worker.attached().await;
    assert_eq!(attach["arguments"].get("guiEventLoop"), None, "{attach}");
    let capabilities = debugger.event("capabilities").await;
    assert_eq!(
        capabilities["body"]["capabilities"]["supportsConditionalBreakpoints"],
        false
    );

    let run = json!({"expression": "f()", "frameId": 1});
    let refused = debugger.ask("evaluate", run).await;
    assert_eq!(refused["success"], false);
    let error = refused["message"].as_str().unwrap();
    assert!(error.contains("permission `debug`"), "{refused}");

    let hover = json!({"expression": "total", "frameId": 1, "context": "hover"});
    let seq = debugger.send("evaluate", hover).await;
    // The first request after the attach is the relay's own probe, with only the name from the client.
    let probe = expect_request(&mut dap, "evaluate").await;
    let expression = probe.arguments["expression"].as_str().unwrap();
    assert!(expression.starts_with("(lambda ask="), "{expression}");
    assert_eq!(probe.arguments["frameId"], 1);
    let value = json!({"name": "total", "type": "dict", "value": "{'password': ‹str, 7 characters›}", "step": "total", "inside": 1, "indexed": false});
    let result = json!({"scope": 0, "variables": [value]}).to_string();
    dap.send(&probe.success(json!({"result": result, "variablesReference": 0})))
        .await
        .unwrap();
    let answer = debugger.answer(seq).await;
    assert_eq!(
        answer["body"]["result"],
        "{'password': ‹str, 7 characters›}"
    );
    // Children of the variable are also read by the probe.
    let reference = answer["body"]["variablesReference"].clone();
    let seq = debugger
        .send(
            "variables",
            json!({"variablesReference": reference, "format": {"rawString": true}}),
        )
        .await;
    let probe = expect_request(&mut dap, "evaluate").await;
    let expression = probe.arguments["expression"].as_str().unwrap();
    assert!(
        expression.contains(r#"\"path\":[\"total\"]"#),
        "{expression}"
    );
    assert!(!expression.contains("rawString"));
    dap.send(&probe.success(json!({"result": "hunter2", "variablesReference": 0})))
        .await
        .unwrap();
    let answer = debugger.answer(seq).await;
    assert_eq!(answer["success"], false);
    assert!(!answer.to_string().contains("hunter2"), "{answer}");

    // A message that only Python parses as JSON is filtered all the same.
    let output = br#"{"seq": 9, "type": "event", "event": "output", "body": {"output": "\udc80 password=hunter2"}}"#;
    let mut frame = Vec::new();
    codec::put_frame(&mut frame, output);
    let (mut stream, _) = dap.into_parts();
    stream.write_all(&frame).await.unwrap();
    let is_output = |m: &Value| m["event"] == "output" && m["seq"] == 9;
    let shown = debugger.until(is_output).await;
    assert_eq!(shown["body"]["output"], "str, 18 characters\n");
}

/// Encodes `value` as JSON, with every `nth` letter of a text escaped. With `twice`, each key occurs twice.
fn encode(value: &Value, nth: usize, doubled: bool) -> String {
    let quoted = |text: &str| -> String {
        let letters = text.chars().enumerate().map(|(n, c)| {
            let escaped = |unit: &u16| format!("\\u{unit:04x}");
            match c {
                c if n % nth == 0 => c.encode_utf16(&mut [0; 2]).iter().map(escaped).collect(),
                '"' | '\\' => format!("\\{c}"),
                '\n' => "\\n".to_owned(),
                c => c.to_string(),
            }
        });
        format!("\"{}\"", letters.collect::<String>())
    };
    match value {
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(|v| encode(v, nth, doubled)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| {
                format!("{}:{}", quoted(key), encode(value, nth, doubled))
            };
            let overridden = fields.iter().filter(|(key, _)| {
                doubled && !matches!(key.as_str(), "type" | "command" | "event")
            });
            // JSON readers take the last of two equal keys, so the overridden value comes first.
            let overridden = overridden.map(|(key, _)| (key, &Value::Null));
            let fields: Vec<_> = overridden.chain(fields).map(field).collect();
            format!("{{{}}}", fields.join(","))
        }
        other => other.to_string(),
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    json_of(
        "(a|ü|\n| |\\\\|🦀|user='ada'|password|DB_KEY='x'|to_ken=1|[=:'\"]|SecretStr|x{70}|ghp_abcdefghijklmnopqrst|Bearer){0,3}",
        "(variables|name|value|type|result|output|evaluateName|variablesReference)",
    )
}

proptest! {
    #[test]
    fn message_passed_unchanged_equals_its_filtered_form(
        body in any_value(),
        name in "(variables|evaluate|exceptionInfo|scopes|setBreakpoints|threads|output|stopped|startDebugging|x)",
        kind in "(response|event|request)",
        success in any::<bool>(),
        seq in prop_oneof![Just(1u64), Just(FIRST_OWN_SEQ)],
        (nth, twice) in (1usize..40, any::<bool>()),
        masked in any::<bool>(),
    ) {
        let rights = Rights {
            scopes: Scopes::NONE.with(Scope::View),
            obligations: SessionObligations { unmasked: !masked, ..Default::default() },
        };
        let key = if kind == "event" { "event" } else { "command" };
        let message = json!({"seq": 1, "type": kind, "request_seq": seq, "success": success, (key): name, "body": body,
            "message": "no"});
        let encoded = encode(&message, nth, twice);
        let mut filter = MessageFilter::new(&rights, &Principal::anonymous());
        let request = json!({"seq": 1, "type": "request", "command": "setBreakpoints", "arguments": {"breakpoints": [{"line": 1}]}});
        filter.on_client(request);
        let mut in_bytes = encoded.clone().into_bytes();
        let passes = filter.passes(&mut in_bytes, false);
        let mut cleaned = serde_json::from_str(&encoded).unwrap();
        clean(&mut cleaned);
        let actions = filter.on_worker(cleaned);
        prop_assert!(
            !passes || actions == [Action::ToClient(serde_json::from_slice(&in_bytes).unwrap())],
            "{encoded}\n{actions:?}"
        );
    }
}

fn any_arguments() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0u64..9).prop_map(Value::from),
        Just(json!(1_u64 << 60)),
        Just(json!(1.0)),
        Just(json!(-1)),
        "(a|\"|ü|\n|\\\\|🦀){0,3}|named|line|x{5000}".prop_map(Value::from),
    ];
    let key = "(threadId|frameId|variablesReference|levels|filter|start|format|hex|line|source|path|sourceReference|granularity|x)";
    leaf.prop_recursive(2, 12, 5, move |inner| {
        proptest::collection::btree_map(key, inner, 0..6)
            .prop_map(|fields| Value::Object(fields.into_iter().collect()))
    })
}

proptest! {
    #[test]
    fn streamed_narrowing_equals_the_filter(
        arguments in any_arguments(),
        command in "(threads|stackTrace|scopes|variables|source|modules|stepInTargets|exceptionInfo|evaluate|next|x)",
        seq in prop_oneof![Just(1u64), Just(FIRST_OWN_SEQ)],
        (nth, twice) in (1usize..40, any::<bool>()),
    ) {
        let rights = Rights { scopes: Scopes::NONE.with(Scope::View), obligations: SessionObligations::default() };
        let mut filter = MessageFilter::new(&rights, &Principal::anonymous());
        let arguments = encode(&arguments, nth, twice);
        let body = format!(r#"{{"seq":{seq},"arguments":{arguments},"x":[1],"type":"request","command":"{command}"}}"#);
        if let Some(narrowed) = filter.narrowed(body.as_bytes()) {
            let actions = filter.on_client(serde_json::from_str(&body).unwrap());
            let narrowed = serde_json::from_str(&narrowed).unwrap();
            prop_assert_eq!(actions, [Action::ToWorker(narrowed)], "{}", body);
        }
    }
}

#[test]
fn message_without_values_passes_unchanged() {
    let rights = Rights {
        scopes: Scopes::NONE.with(Scope::View),
        obligations: SessionObligations::default(),
    };
    let filter = MessageFilter::new(&rights, &Principal::anonymous());
    let text = "x".repeat(100_000);
    for (passes, body) in [
        (
            true,
            json!({"seq": 1, "type": "event", "event": "continued", "body": {"threadId": 1}}),
        ),
        (
            true,
            json!({"type": "response", "request_seq": 1, "success": true, "command": "modules", "body": {"modules": []}}),
        ),
        (
            false,
            json!({"type": "response", "request_seq": 1, "success": true, "command": "scopes", "body": {}}),
        ),
        (
            false,
            json!({"seq": 1, "type": "event", "event": "output", "body": {"category": "stdout", "output": "password=x"}}),
        ),
        (
            false,
            json!({"type": "response", "request_seq": 1, "success": true, "command": "variables", "body": {"variables": [{"name": "a", "value": text}]}}),
        ),
        (
            false,
            json!({"type": "response", "request_seq": 1, "success": true, "command": "evaluate", "body": {"result": "1"}}),
        ),
        (
            false,
            json!({"type": "response", "request_seq": FIRST_OWN_SEQ, "success": true, "command": "scopes", "body": {}}),
        ),
        (
            false,
            json!({"type": "response", "request_seq": 1, "success": false, "command": "scopes", "body": {}}),
        ),
        (
            false,
            json!({"type": "event", "event": "stopped", "body": {}}),
        ),
    ] {
        assert_eq!(
            filter.passes(&mut body.to_string().into_bytes(), false),
            passes
        );
    }
}

#[test]
fn reading_requests_are_narrowed_and_others_captured() {
    let rights = Rights {
        scopes: Scopes::NONE.with(Scope::View),
        obligations: SessionObligations::default(),
    };
    let filter = MessageFilter::new(&rights, &Principal::anonymous());
    let request = r#"{"command":"stackTrace","arguments":{"threadId":9,"x":1,"startFrame":null,"format":{"hex":true,"y":2}},
        "type":"request","seq":3,"pad":"x"}"#;
    let expected =
        r#"{"seq":3,"type":"request","command":"stackTrace","arguments":{"threadId":9}}"#;
    assert_eq!(
        filter.narrowed(request.as_bytes()).as_deref(),
        Some(expected)
    );
    for request in [
        r#"{"seq":3,"type":"request","command":"evaluate","command":"threads"}"#,
        r#"{"seq":3,"type":"request","command":"evaluate","comm\u0061nd":"threads"}"#,
        r#"{"seq":3,"type":"request","command":"threads","seq":4}"#,
        r#"{"seq":3,"type":"request","command":"stepInTargets","arguments":{"frameId":1},"arguments":{"frameId":2}}"#,
        r#"{"seq":3,"type":"request","command":"stepInTargets","arguments":{"frameId":1,"fr\u0061meId":2}}"#,
        r#"{"seq":3,"type":"request","command":"threads"} {}"#,
    ] {
        assert_eq!(filter.narrowed(request.as_bytes()), None, "{request}");
    }
    for body in [
        json!({"command": "variables", "arguments": {"variablesReference": 7}}),
        json!({"command": "variables", "arguments": {"variablesReference": "8"}}),
        json!({"command": "scopes", "arguments": {"frameId": 1}}),
        json!({"command": "evaluate", "arguments": {"expression": "a", "frameId": 1}}),
        json!({"command": "setBreakpoints", "arguments": {"source": {"path": "a"}}}),
        json!({"command": "next", "arguments": {"threadId": 1}}),
        json!({"command": "configurationDone"}),
        json!({"command": "disconnect"}),
        json!({"command": "cancel"}),
        json!({"command": "notYetInvented"}),
        json!({"command": "threads", "seq": FIRST_OWN_SEQ}),
        json!({"command": "threads", "type": "response"}),
    ] {
        let mut message = json!({"seq": 1, "type": "request"});
        message
            .as_object_mut()
            .unwrap()
            .extend(body.as_object().unwrap().clone());
        assert_eq!(
            filter.narrowed(message.to_string().as_bytes()),
            None,
            "{message}"
        );
    }
}

#[test]
fn unrestricted_client_has_no_messages_captured() {
    for (scopes, filtered) in [("debug", false), ("view", true)] {
        let rights = Rights {
            scopes: scopes.parse::<Scopes>().unwrap(),
            obligations: SessionObligations::default(),
        };
        let filter = MessageFilter::new(&rights, &Principal::anonymous());
        let from_client = filter.captures_from_client(messages::captures_from_client);
        let from_worker = filter.captures_from_worker();
        for captured in [
            from_client(MessageType::Request, b"setVariable"),
            from_worker(MessageType::Response, b"variables"),
            from_worker(MessageType::Response, b"exceptionInfo"),
        ] {
            assert_eq!(captured, filtered, "{rights:?}");
        }
        // The relay always captures the messages it needs itself.
        assert!(from_client(MessageType::Request, b"disconnect"));
        assert!(from_worker(MessageType::Event, b"debugpySockets"));
    }
}
