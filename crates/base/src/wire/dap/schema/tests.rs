#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::walk::SchemaWalk;
use super::*;

const FRAME: Fields = Fields {
    known: &[
        Field::new("id", Schema::Scalar),
        Field::new("line", Schema::Scalar),
        Field::new("path", Schema::Path(|path| !path.contains(':'))),
    ],
    required: 0,
    others: Schema::Overwritten,
};

const STACK: Fields = Fields {
    known: &response_with(Schema::Object(&Fields {
        known: &[
            Field::new("frames", Schema::List(&FRAME)),
            Field::new("total", Schema::Scalar),
            Field::new("text", Schema::Console(&[b"#", b"\\u2063"])),
            Field::new("kind", Schema::OneOf(&["stdout", "stderr"])),
        ],
        required: 0,
        others: Schema::Overwritten,
    })),
    required: 4,
    others: Schema::Overwritten,
};

/// Walks over `text` in pieces that end at these positions; `forwarded`: as if its beginning had been forwarded.
fn walk(
    fields: &'static Fields,
    text: &str,
    cuts: &[usize],
    forwarded: bool,
) -> Result<(String, Option<u64>), Irregular> {
    let mut bytes = text.as_bytes().to_vec();
    let mut walk = SchemaWalk::new(fields);
    if forwarded {
        walk.forward();
    }
    let mut offset = 0;
    for end in cuts.iter().copied().chain([bytes.len()]) {
        let end = end.clamp(offset, bytes.len());
        offset += walk.pass(&mut bytes[offset..end])?;
    }
    if offset < bytes.len() || !walk.is_over() {
        return Err(Irregular);
    }
    Ok((String::from_utf8(bytes).unwrap(), walk.request_seq()))
}

fn response(body: &str) -> String {
    format!(
        r#"{{"seq": 1, "type": "response", "request_seq": 2, "success": true, "command": "x", "body": {body}}}"#
    )
}

fn passes(fields: &'static Fields, text: &str) -> Value {
    let (passed, _) = walk(fields, text, &[], false).unwrap_or_else(|_| panic!("{text}"));
    serde_json::from_str(&passed).unwrap_or_else(|error| panic!("{error}: {passed}"))
}

#[test]
fn debugger_message_passes_in_its_own_bytes() {
    for body in [
        r#"{"variables": [{"name": "type", "value": "{'command': \"x\\\"}", "error": 1}]}"#,
        r#"{"result":"\\","type":"int","event":null,"presentationHint":{"error":"x"}}"#,
        "null",
        r#"[{"source": 1}]"#,
        r#" { } "#,
    ] {
        let text = response(body);
        assert_eq!(
            walk(&PLAIN_RESPONSE, &text, &[], false),
            Ok((text.clone(), Some(2)))
        );
    }
    let late_number = r#"{"type":"event","event":"continued","body":{"threadId":1},"seq":7}  "#;
    assert!(walk(&PLAIN_EVENT, late_number, &[], false).is_ok_and(|(text, _)| text == late_number));
}

#[test]
fn message_with_a_field_for_the_parser_does_not_pass() {
    for text in [
        response(r#"{"x": 1, "source": {}}"#),
        response(r#"{"stackFrames": []}"#),
        response(r#"{"\u0065rror": {}}"#),
        response(r#"{}, "body": {"error": 1}"#),
        response(r#"{}, "type": "request", "command": "runInTerminal""#),
        response(r#"{}, "ev\u0065nt": "debugpyAttach""#),
        response("{}").replace("true", "false"),
        response("{}").replace("true", "1"),
        response("{}").replace(r#""success": true, "#, ""),
        response("{}") + "{}",
        response("{}").replace("\"x\"", "x"),
        response("{}").replace(", \"body\"", "; \"body\""),
        response("{}").replace("\"body\"", "body"),
        response(&"x".repeat(10_000)),
        response(r#"{"x": [}"#),
    ] {
        assert_eq!(
            walk(&PLAIN_RESPONSE, &text, &[], false),
            Err(Irregular),
            "{text}"
        );
    }
}

#[test]
fn endless_token_is_not_awaited() {
    let long = "x".repeat(10_000);
    for text in [
        response("{}").replace("body", &long),
        response("{}").replace("\"body\"", &" ".repeat(10_000)),
        response("{}").replace("\"x\"", &format!("\"{long}\"")),
    ] {
        assert_eq!(walk(&PLAIN_RESPONSE, &text, &[9000], false), Err(Irregular));
        assert_eq!(walk(&PLAIN_RESPONSE, &text, &[9000], true), Err(Irregular));
    }
}

#[test]
fn fields_that_may_not_pass_are_overwritten() {
    for (body, expected) in [
        (r#"{"x": 1, "frames": []}"#, json!({"frames": []})),
        (
            r#"{"frames": [], "x": {"a": [1, "]"]}}"#,
            json!({"frames": []}),
        ),
        (
            r#"{"x": "\"", "y": null, "total": 1, "z": -1.5e3, "kind": "stdout"}"#,
            json!({"total": 1, "kind": "stdout"}),
        ),
        (r#"{"x": 1}"#, json!({})),
        (
            r#"{"frames": [{"id": 1, "path": "/a"}, {"path": "x:y", "id": 2}, {"path": 3}, {"id": 4, "x": [{}]}]}"#,
            json!({"frames": [{"id": 1, "path": "/a"}, {"id": 2}, {}, {"id": 4}]}),
        ),
        (
            r#"{"text": "\ud800\u001b[1m", "data": 1}"#,
            json!({"text": "\u{fffd}\u{1b}[1m"}),
        ),
    ] {
        let text = response(body).replace(r#""seq""#, r#""no": [], "seq""#);
        assert_eq!(passes(&STACK, &text)["body"], expected, "{body}");
    }
}

#[test]
fn value_that_cannot_be_overwritten_is_for_the_parser_until_the_message_is_forwarded() {
    for (body, expected) in [
        (
            r#"{"total": {"a": 1}, "frames": []}"#,
            json!({"frames": []}),
        ),
        (
            r#"{"frames": [{"line": 1, "line": 2}]}"#,
            json!({"frames": [{"line": 1}]}),
        ),
        (
            r#"{"frames": [], "kind": "important"}"#,
            json!({"frames": []}),
        ),
        (r##"{"text": "#x", "total": 1}"##, json!({"total": 1})),
        (r#"{"text": "\u2063"}"#, json!({})),
        (
            r#"{"text": "\u001b]8;;x\u001b[1m"}"#,
            json!({"text": "\u{241b}]8;;x\u{1b}[1m"}),
        ),
        (r#"{"total": 1, "fra\u006des": [{}]}"#, json!({"total": 1})),
        (r#"{"total": "\ud800"}"#, json!({})),
        (r#"{"total": 1234567890123456}"#, json!({})),
        (r#"{"frames": {}}"#, json!({})),
    ] {
        let text = response(body);
        assert_eq!(walk(&STACK, &text, &[], false), Err(Irregular), "{body}");
        let (passed, _) = walk(&STACK, &text, &[], true).unwrap();
        let passed: Value = serde_json::from_str(&passed).unwrap();
        assert_eq!(passed["body"], expected, "{body}");
    }
    // A list has no field to leave out.
    for forwarded in [false, true] {
        for body in [
            r#"{"frames": [1]}"#,
            r#"{"frames": [{},]}"#,
            r#"{"frames": [{} {}]}"#,
        ] {
            assert_eq!(
                walk(&STACK, &response(body), &[], forwarded),
                Err(Irregular)
            );
        }
    }
}

proptest! {
    #[test]
    fn result_is_the_same_at_any_split(
        body in "\\{ ?(\"(frames|total|text|kind|x|body)\": ?(\\[(\\{(\"(id|path|x)\": ?(1|\"/a:?\"|\\[\\{\\}\\]),?){0,2}\\},?){0,2}\\]|\"(\\\\\"|\\\\u001b\\[?|y|#){0,3}\"|-1.5|7|null|true), ?){0,4}\"total\": 1\\}",
        mut cuts in proptest::collection::vec(0usize..250, 0..12),
        forwarded in any::<bool>(),
    ) {
        cuts.sort_unstable();
        let text = response(&body);
        prop_assert_eq!(
            walk(&STACK, &text, &cuts, forwarded),
            walk(&STACK, &text, &[], forwarded)
        );
    }

    #[test]
    fn passed_message_agrees_with_a_json_parser(
        rest in "(, ?\"(body|type|ty\\\\u0070e|event|success|x)\": ?(\\{(\"(error|\\\\u0065rror|a)\": ?1,?){0,2}\\}|\"x\"|true)){0,4}\\}",
        forwarded in any::<bool>(),
    ) {
        let text = format!(r#"{{"type":"response","request_seq":2,"success":true,"command":"variables"{rest}"#);
        if let Ok((passed, _)) = walk(&PLAIN_RESPONSE, &text, &[], forwarded)
            && let Ok(read) = serde_json::from_str::<Value>(&passed)
        {
            prop_assert_eq!(&read["type"], "response");
            prop_assert_eq!(&read["success"], true);
            prop_assert_eq!(&read["command"], "variables");
            prop_assert!(read.get("event").is_none());
            prop_assert!(read["body"].get("error").is_none());
        }
    }
}
