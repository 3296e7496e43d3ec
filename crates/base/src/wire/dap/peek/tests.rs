use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn whole(text: &str, depth: Depth) -> Peek<'_> {
    peek(text.as_bytes(), text.len(), depth)
}

fn peek(body: &[u8], length: usize, depth: Depth) -> Peek<'_> {
    Walk::new(depth).peek(body, length)
}

#[test]
fn messages_of_real_clients_are_identified_early() {
    let debugpy = r#"{"seq": 12, "type": "event", "event": "stopped", "body": {"reason": "br"#;
    assert_eq!(
        peek(debugpy.as_bytes(), 400, Depth::Deciding),
        Peek::Known(MessageType::Event, b"stopped")
    );
    let reply =
        r#"{"seq": 8, "type": "response", "request_seq": 2, "success": true, "command": "attach"}"#;
    assert_eq!(
        whole(reply, Depth::Deciding),
        Peek::Known(MessageType::Response, b"attach")
    );
    let vscode = r#"{"command":"disconnect","arguments":{"restart":false,"x":["}",{}]},"type":"request","seq":9}"#;
    assert_eq!(
        whole(vscode, Depth::Whole),
        Peek::Known(MessageType::Request, b"disconnect")
    );
    let neovim =
        r#"{"arguments": {"a\"}": "\\"}, "seq": -1.5e3, "type": "request", "command": "next"}"#;
    assert_eq!(
        whole(neovim, Depth::Whole),
        Peek::Known(MessageType::Request, b"next")
    );
}

#[test]
fn hidden_second_command_is_never_missed() {
    for text in [
        r#"{"type":"request","command":"threads","seq":1,"command":"terminate"}"#,
        r#"{"type":"request","command":"threads","seq":1,"comm\u0061nd":"terminate"}"#,
        r#"{"type":"request","command":"thr\u0065ads","seq":1}"#,
        r#"{"type":"event","type":"request","command":"terminate"}"#,
        r#"[{"type":"request"}]"#,
        "",
        "{}",
    ] {
        assert_eq!(whole(text, Depth::Whole), Peek::Unclear, "{text}");
    }
}

#[test]
fn number_is_found_behind_the_deciding_keys() {
    for (text, seq) in [
        (
            r#"{"seq": 7, "type": "request", "command": "evaluate"}"#,
            Some(7),
        ),
        (
            r#"{"command":"evaluate","arguments":{"seq":1,"expression":"a\nb"},"type":"request","seq":9 }"#,
            Some(9),
        ),
        (
            r#"{"command":"evaluate","type":"request","arguments":{"expression":"cut"#,
            None,
        ),
        (r#"{"command":"evaluate","type":"request","seq":"9"}"#, None),
        (r#"{"command":"evaluate","type":"request","seq":1.5}"#, None),
        (
            r#"{"command":"evaluate","type":"request","seq":18446744073709551616}"#,
            None,
        ),
        (
            r#"{"seq":1,"command":"evaluate","type":"request","seq":2}"#,
            None,
        ),
    ] {
        let mut walk = Walk::new(Depth::Deciding);
        walk.peek(text.as_bytes(), text.len());
        assert_eq!(walk.seq(text.as_bytes()), seq, "{text}");
    }
    let doubled = r#"{"seq":1,"command":"threads","type":"request","seq":2}"#;
    assert_eq!(whole(doubled, Depth::Whole), Peek::Unclear);
}

#[test]
fn walk_resumes_without_rescanning() {
    let body = format!(
        r#"{{"a": {{"x": ["{}", "\\\""]}}, "type": "#,
        "y".repeat(100_000)
    );
    let mut walk = Walk::new(Depth::Whole);
    for end in (0..body.len()).step_by(100) {
        let seen = &body.as_bytes()[..end];
        assert_eq!(walk.peek(seen, 200_000), Peek::More);
        assert!(walk.at + 1 >= end, "all but a backslash is behind it");
    }
}

proptest! {
    #[test]
    fn chunked_walk_equals_a_whole_walk(
        text in "\\{(\"(type|command|event|a|b)\" ?:(\"(request|event|x|(\\\\\"|y){0,3})\"|1|\\{\"z\": ?\\[\"\\\\\\\\\"\\]\\}),? ?){0,6}\\}?",
        cuts in proptest::collection::vec(0usize..150, 0..12),
        deciding in any::<bool>(),
    ) {
        let depth = if deciding { Depth::Deciding } else { Depth::Whole };
        let body = text.as_bytes();
        let mut ends: Vec<_> = cuts.into_iter().map(|cut| cut.min(body.len())).collect();
        ends.sort_unstable();
        ends.push(body.len());
        let mut walk = Walk::new(depth);
        for end in ends {
            let seen = walk.peek(&body[..end], body.len());
            prop_assert_eq!(seen, peek(&body[..end], body.len(), depth));
            if seen != Peek::More {
                prop_assert_eq!(seen, whole(&text, depth));
            }
        }
    }

    #[test]
    fn identified_messages_agree_with_a_json_parser(text in "[{}\\[\\]\",:\\\\a ]{0,40}", name in "[a-z]{1,8}", event in any::<bool>()) {
        let (kind, key) = if event { ("event", "event") } else { ("request", "command") };
        let message = json!({"seq": 1, "x": text, "type": kind, (text): {"y": [1, null]}, (key): name, "z": 1.5}).to_string();
        if let Peek::Known(_, found) = whole(&message, Depth::Whole) {
            prop_assert_eq!(found, name.as_bytes());
        }
        for cut in 0..message.len() {
            if let Peek::Known(_, found) = peek(&message.as_bytes()[..cut], message.len(), Depth::Deciding) {
                prop_assert_eq!(found, name.as_bytes());
            }
        }
    }

    #[test]
    fn fully_identified_text_agrees_with_a_json_parser(text in "\\{(\"(type|command|event|a)\":(\"(request|event|x)\"|1|\\{\\}),?){0,5}\\}") {
        if let (Peek::Known(kind, found), Ok(Value::Object(map))) = (whole(&text, Depth::Whole), serde_json::from_str(&text)) {
            let key = if kind == MessageType::Event { "event" } else { "command" };
            prop_assert_eq!(map[key].as_str().map(str::as_bytes), Some(found));
        }
    }
}
