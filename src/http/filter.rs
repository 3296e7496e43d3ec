//! Lists of Ray's State API without the rows that are not for the one who asks.
//!
//! Pure, called by [`super::dashboard`] for those who may not see all of a list. What leaves is built from the rows
//! that are kept, and counts nothing else: neither totals nor warnings tell of the others. An answer in another shape is
//! refused, never let through.

use serde_json::{Map, Value, json};

/// The answer is not a list of the State API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the Ray head's answer is not the list that was asked for, so the relay cannot tell which rows of it are for you; ask for it again, and report it with the version of Ray if it stays so"
)]
pub(crate) struct NotAList;

/// One row, as Ray gave it.
pub(crate) type Row = Map<String, Value>;

/// The list in `text` with those rows only of which `keep` is true.
pub(crate) fn keep_rows(
    text: &[u8],
    keep: &mut dyn FnMut(&Row) -> bool,
) -> Result<Vec<u8>, NotAList> {
    let mut answer: Value = serde_json::from_slice(text).map_err(|_| NotAList)?;
    let Some(Value::Array(rows)) = answer.pointer_mut("/data/result/result").map(Value::take)
    else {
        return Err(NotAList);
    };
    let mut kept = Vec::new();
    for row in rows {
        match row {
            Value::Object(row) if keep(&row) => kept.push(Value::Object(row)),
            Value::Object(_) => {}
            _ => return Err(NotAList),
        }
    }
    let count = kept.len();
    let list = json!({
        "result": true,
        "msg": "",
        "data": { "result": {
            "total": count,
            "num_after_truncation": count,
            "num_filtered": count,
            "result": kept,
            "partial_failure_warning": "",
            "warnings": null,
        }},
    });
    serde_json::to_vec(&list).map_err(|_| NotAList)
}

/// The text of `row`'s field `key`.
pub(crate) fn text<'r>(row: &'r Row, key: &str) -> Option<&'r str> {
    row.get(key).and_then(Value::as_str)
}

/// Whether the row of a worker says anything of a debugger.
pub(crate) fn has_debugger(row: &Row) -> bool {
    let says = |key: &str| match row.get(key) {
        None | Some(Value::Null) => false,
        Some(Value::Number(number)) => number.as_u64() != Some(0),
        Some(Value::String(text)) => !matches!(text.as_str(), "" | "0"),
        Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => true,
    };
    says("debugger_port") || says("num_paused_threads")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIST: &str = r#"{"result": true, "msg": "", "data": {"result": {"total": 5, "num_after_truncation": 3, "num_filtered": 2,
        "result": [{"worker_id": "aa", "worker_launch_time_ms": 18446744073709551615, "debugger_port": 38645}, {"worker_id": "bb", "debugger_port": null}],
        "partial_failure_warning": "node bb is away", "warnings": ["3 of 5"]}}}"#;

    #[test]
    fn what_is_left_out_leaves_no_trace() {
        let kept = keep_rows(LIST.as_bytes(), &mut |row| {
            text(row, "worker_id") == Some("aa")
        });
        let kept = String::from_utf8(kept.unwrap()).unwrap();
        assert!(kept.contains("18446744073709551615"), "{kept}");
        assert!(!kept.contains("bb") && !kept.contains("away"), "{kept}");
        let kept: Value = serde_json::from_str(&kept).unwrap();
        let list = &kept["data"]["result"];
        for count in ["total", "num_after_truncation", "num_filtered"] {
            assert_eq!(list[count], 1, "{count}");
        }
        assert_eq!(list["warnings"], Value::Null);
    }

    #[test]
    fn another_shape_is_refused() {
        for text in [
            "",
            "[]",
            r#"{"data": {"result": {"result": {}}}}"#,
            r#"{"data": {"result": {"result": [[]]}}}"#,
            r#"{"data": {"result": {"result": [NaN]}}}"#,
            r#"{"data": {"result": {"result": []}}} x"#,
        ] {
            let kept = keep_rows(text.as_bytes(), &mut |_| true);
            assert_eq!(kept, Err(NotAList), "{text}");
        }
    }

    #[test]
    fn a_debugger_in_every_shape() {
        let row = |text: &str| -> Row { serde_json::from_str(text).unwrap() };
        for text in [
            r#"{"debugger_port": 1}"#,
            r#"{"debugger_port": "1"}"#,
            r#"{"debugger_port": [1]}"#,
            r#"{"debugger_port": null, "num_paused_threads": 1}"#,
            r#"{"debugger_port": -1}"#,
        ] {
            assert!(has_debugger(&row(text)), "{text}");
        }
        for text in [
            "{}",
            r#"{"debugger_port": null, "num_paused_threads": 0}"#,
            r#"{"debugger_port": 0}"#,
            r#"{"debugger_port": ""}"#,
        ] {
            assert!(!has_debugger(&row(text)), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_row_that_is_not_kept_is_never_in_the_answer(shown in proptest::collection::vec(any::<bool>(), 0..12)) {
            let rows: Vec<_> = shown.iter().map(|s| json!({ "worker_id": if *s { "shown" } else { "hidden" } })).collect();
            let text = json!({ "data": { "result": { "total": 99, "result": rows } }, "hidden": 1 }).to_string();
            let kept = keep_rows(text.as_bytes(), &mut |row| super::text(row, "worker_id") == Some("shown")).unwrap();
            let kept = String::from_utf8(kept).unwrap();
            prop_assert!(!kept.contains("hidden") && !kept.contains("99"));
            prop_assert_eq!(kept.matches("shown").count(), shown.iter().filter(|s| **s).count());
        }
    }
}
