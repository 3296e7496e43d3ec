//! Python that runs inside the debugged process for one command, as one `evaluate` request.
//!
//! pdb's answers come from Python itself (`repr`, `pprint`, `linecache`, `inspect`), so they are asked for there, in
//! the selected frame, instead of being guessed from a debugger's display values. Nothing stays in the process.
//! `probe.py` is the whole of it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

const SOURCE: &str = include_str!("probe.py");

/// The expression that answers `ask`, an object with `op`. Its value is a string of base64.
pub(super) fn expression(ask: &Value) -> String {
    // As JSON, ASCII alone, the source is a Python literal too.
    let source = Value::from(SOURCE);
    let ask = STANDARD.encode(ask.to_string());
    format!(
        "(lambda j, b, n: (n.update(ask=j.loads(b.b64decode('{ask}'))), \
         exec({source}, n), b.b64encode(j.dumps(n['answer'], ensure_ascii=False).encode('utf-8', 'replace')).decode())[2])\
         (__import__('json'), __import__('base64'), {{'g': globals(), 'l': locals()}})"
    )
}

/// What the process answered: `result` of the `evaluate` response.
pub(super) fn answer(result: &str) -> Option<Value> {
    // Without a frame the debugger gives the text itself.
    let quoted = result
        .strip_prefix('\'')
        .and_then(|rest| rest.strip_suffix('\''));
    let text = quoted.unwrap_or(result);
    serde_json::from_slice(&STANDARD.decode(text).ok()?).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_source_is_a_literal_for_python() {
        assert!(SOURCE.is_ascii());
        let expression = expression(&serde_json::json!({"op": "p", "text": "ü'\"\\"}));
        assert!(expression.is_ascii() && !expression.contains('\n'));
    }

    #[test]
    fn an_answer_is_read_and_anything_else_is_not() {
        assert_eq!(answer("'eyJhIjogMX0='").unwrap()["a"], 1);
        for bad in ["", "'", "None", "'!'", "'e30'x"] {
            assert_eq!(answer(bad), None, "{bad}");
        }
    }
}
