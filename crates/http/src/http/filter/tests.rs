use proptest::prelude::*;
use serde_json::Value;

use super::*;

const LIST: &str = r#"{"result": true, "msg": "", "data": {"result": {"total": 5, "num_after_truncation": 3, "num_filtered": 2,
    "result": [{"worker_id": "aa", "worker_launch_time_ms": 18446744073709551615, "debugger_port": 38645}, {"worker_id": "bb", "debugger_port": null}],
    "partial_failure_warning": "node bb is away", "warnings": ["3 of 5"]}}}"#;

/// Filters the list in `text`, fed in chunks of `size` bytes, by `keep`.
fn filtered(
    text: &[u8],
    size: usize,
    keep: impl Fn(&FilteredRow<'_>) -> bool,
) -> Result<String, NotAList> {
    let mut filter = RowFilter::new(|row: &FilteredRow<'_>, text: &[u8], output: &mut Vec<u8>| {
        output.extend_from_slice(text);
        Ok::<_, NotAList>(keep(row))
    });
    for chunk in text.chunks(size) {
        filter.feed(chunk)?;
    }
    let chunks = filter.finish()?;
    Ok(String::from_utf8(chunks.concat()).unwrap())
}

#[test]
fn filtered_rows_leave_no_trace() {
    for size in [1, 7, 4096] {
        let text = filtered(LIST.as_bytes(), size, |row| row.worker_id() == Some("aa")).unwrap();
        assert!(text.contains("18446744073709551615"), "{text}");
        assert!(!text.contains("bb") && !text.contains("away"), "{text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        let list = &answer["data"]["result"];
        assert_eq!(list["result"].as_array().unwrap().len(), 1);
        for key in ["total", "num_after_truncation", "num_filtered"] {
            assert_eq!(list[key], 1, "{key}");
        }
        assert_eq!(list["warnings"], Value::Null);
    }
}

#[test]
fn unexpected_shape_is_refused() {
    for text in [
        "",
        "[]",
        "}",
        r#"{"data": {"result": {"result": {}}}}"#,
        r#"{"data": {"result": {"result": [[]]}}}"#,
        r#"{"data": {"result": {"result": [1]}}}"#,
        r#"{"data": {"result": {"result": [NaN]}}}"#,
        r#"{"data": {"result": {"result": [{"a": NaN}]}}}"#,
        r#"{"data": {"result": {"result": [{"worker_id": "a", "worker_id": "b"}]}}}"#,
        r#"{"data": {"result": {"result": [{"worker_id": "a"]}}}"#,
        r#"{"data": {"result": {"result": [], "other": [{"worker_id": "a"}]}}}"#,
        r#"{"data": {"result": {"result": [1, {"worker_id": "a"}]}}}"#,
        r#"{"data": {"result": {"result": []}}} x"#,
    ] {
        for size in [1, 4096] {
            let result = filtered(text.as_bytes(), size, |_| true);
            assert_eq!(result, Err(NotAList), "{text}");
        }
    }
}

#[test]
fn debugger_is_detected_in_every_shape() {
    let has = |text: &str| {
        serde_json::from_str::<FilteredRow<'_>>(text)
            .unwrap()
            .has_debugger()
    };
    for text in [
        r#"{"debugger_port": 1}"#,
        r#"{"debugger_port": "1"}"#,
        r#"{"debugger_port": [1]}"#,
        r#"{"debugger_port": {"a": 1}}"#,
        r#"{"debugger_port": null, "num_paused_threads": 1}"#,
        r#"{"debugger_port": -1}"#,
        r#"{"debugger_port": 1.5}"#,
        r#"{"debugger_port": "\u0031"}"#,
    ] {
        assert!(has(text), "{text}");
    }
    for text in [
        "{}",
        r#"{"debugger_port": null, "num_paused_threads": 0}"#,
        r#"{"debugger_port": 0}"#,
        r#"{"debugger_port": ""}"#,
    ] {
        assert!(!has(text), "{text}");
    }
}

#[test]
fn filtered_rows_are_not_buffered() {
    let mut filter =
        RowFilter::new(|_: &FilteredRow<'_>, _: &[u8], _: &mut Vec<u8>| Ok::<_, NotAList>(false));
    filter.feed(br#"{"data": {"result": {"result": ["#).unwrap();
    let row = json!({"task_id": "t".repeat(48), "name": "n".repeat(1000)}).to_string() + ",";
    for _ in 0..10_000 {
        filter.feed(row.as_bytes()).unwrap();
    }
    assert!(filter.held() < 64 * 1024, "{}", filter.held());
}

proptest! {
    #[test]
    fn filtered_row_never_reaches_the_answer(
        shown in proptest::collection::vec((any::<bool>(), ".{0,8}"), 0..12),
        size in 1usize..80,
    ) {
        let rows: Vec<_> = shown
            .iter()
            .map(|(s, text)| json!({ "worker_id": if *s { "shown" } else { "hidden" }, "text": { text: [text] } }))
            .collect();
        let text = json!({ "data": { "result": { "total": 99, "result": rows } }, "hidden": 1 }).to_string();
        let text = filtered(text.as_bytes(), size, |row| row.worker_id() == Some("shown")).unwrap();
        let answer: Value = serde_json::from_str(&text).unwrap();
        let expected: Vec<_> = rows.into_iter().filter(|row| row["worker_id"] == "shown").collect();
        prop_assert_eq!(&answer["data"]["result"]["result"], &Value::Array(expected));
        prop_assert!(answer.get("hidden").is_none() && answer["data"]["result"]["total"] != 99);
    }
}
