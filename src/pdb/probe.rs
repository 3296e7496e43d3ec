//! Python that runs inside the debugged process for one command, as one `evaluate` request.
//!
//! pdb's answers come from Python itself (`repr`, `pprint`, `linecache`, `inspect`), so they are asked for there, in
//! the selected frame, instead of being guessed from a debugger's display values. Nothing stays in the process.
//! `probe.py` is the whole of it. Question and answer travel as plain text, the question first, so that whoever
//! records, judges or masks the session reads what is asked and said.

use serde_json::Value;

const SOURCE: &str = include_str!("probe.py");

/// The expression that answers `ask`, an object with `op`. Its value is a string of ASCII JSON.
pub(super) fn expression(ask: &Value) -> String {
    // A JSON string is a Python literal too.
    let literal = |text: String| Value::from(text).to_string();
    format!(
        "(lambda ask={}, j=__import__('json'), n={{'g': globals(), 'l': locals()}}: (n.update(ask=j.loads(ask)), \
         exec({}, n), j.dumps(j.loads(j.dumps(n['answer'], ensure_ascii=False).encode('utf-8', 'replace'))))[2])()",
        literal(ask.to_string()),
        literal(SOURCE.to_owned()),
    )
}

/// What the process answered: `result` of the `evaluate` response.
pub(super) fn answer(result: &str) -> Option<Value> {
    let quote = result.chars().next().filter(|c| matches!(c, '\'' | '"'));
    // Without a frame the debugger gives the text itself, else as Python writes a string.
    let Some(quote) = quote else {
        return serde_json::from_str(result).ok();
    };
    let quoted = result.strip_prefix(quote)?.strip_suffix(quote)?;
    let mut text = String::with_capacity(quoted.len());
    let mut chars = quoted.chars();
    while let Some(c) = chars.next() {
        match c {
            // In printable ASCII nothing else is escaped.
            '\\' => text.push(chars.next().filter(|c| matches!(c, '\\' | '\'' | '"'))?),
            c => text.push(c),
        }
    }
    serde_json::from_str(&text).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_question_can_be_read_in_the_expression() {
        assert!(SOURCE.is_ascii());
        let expression = expression(&serde_json::json!({"op": "p", "text": "password"}));
        assert!(expression.starts_with(r#"(lambda ask="{\"op\":\"p\",\"text\":\"password\"}""#));
        assert!(!expression.contains('\n'));
    }

    #[test]
    fn an_answer_is_read_and_anything_else_is_not() {
        let wanted = serde_json::json!({"a": "it's \"x\"\\"});
        for good in [
            r#"'{"a": "it\'s \\"x\\"\\\\"}'"#,
            r#"{"a": "it's \"x\"\\"}"#,
        ] {
            assert_eq!(answer(good).as_ref(), Some(&wanted), "{good}");
        }
        for bad in ["", "'", "None", "'!'", r"'\n'", r"'\", "'{}'x"] {
            assert_eq!(answer(bad), None, "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_answer_is_read_or_refused_without_panic(text in ".{0,60}") {
            let _ = answer(&text);
        }
    }
}
