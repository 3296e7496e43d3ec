#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;

/// Writes the address that `address` returns for each worker.
fn writing(
    mut address: impl FnMut(Worker<'_>) -> (String, u16),
) -> impl FnMut(Worker<'_>, &mut Vec<u8>) -> u16 {
    move |worker, new| {
        let (host, port) = address(worker);
        new.extend_from_slice(host.as_bytes());
        port
    }
}

fn run(text: &str) -> Result<Option<String>, NotJson> {
    let mut port = 5678;
    let mut address = writing(|worker| {
        port += 1;
        (format!("relay-{}", worker.id.unwrap_or("none")), port)
    });
    rewrite(text.as_bytes(), &mut address)
        .map(|out| out.map(|bytes| String::from_utf8(bytes).unwrap()))
}

/// Rows of Ray 2.60 and, in another order of keys, of Ray 2.9.
const ROWS: &str = r#"{"result": true, "data": {"result": {"total": 3, "result": [
 {"worker_id": "77ab", "is_alive": true, "ip": "10.88.0.10", "pid": 495, "worker_launch_time_ms": 18446744073709551615, "debugger_port": 38645, "num_paused_threads": 1},
 {"debugger_port": "47501", "x": 1.10e+2, "y": NaN, "ip" : "fd88::11", "worker_id": "79e5"},
 {"worker_id": "0500ff", "ip": "10.88.0.11", "debugger_port": null, "num_paused_threads": null}
], "partial_failure_warning": "", "warnings": null}}}"#;

#[test]
fn only_the_address_fields_change() {
    let expected = ROWS
        .replace(r#""ip": "10.88.0.10""#, r#""ip": "relay-77ab""#)
        .replace("38645", "5679")
        .replace("fd88::11", "relay-79e5")
        .replace("47501", "5680");
    assert_eq!(run(ROWS).unwrap().unwrap(), expected);
}

#[test]
fn document_without_a_debugger_is_unchanged() {
    for text in [
        "{}",
        " [ ] ",
        "null",
        r#"{"debugger_port": null, "ip": "10.0.0.1"}"#,
        r#"{"debugger_port": 0, "ip": "10.0.0.1"}"#,
        r#"{"ip": "10.0.0.1", "note": "\"debugger_port\": 1"}"#,
    ] {
        assert_eq!(run(text), Ok(None), "{text}");
    }
}

#[test]
fn escaped_and_repeated_keys_are_rewritten() {
    assert_eq!(
        run(r#"{"debugger\u005fport": 4711, "i\u0070": "10.0.0.1", "ip": null}"#)
            .unwrap()
            .unwrap(),
        r#"{"debugger\u005fport": 5679, "i\u0070": "relay-none", "ip": "relay-none"}"#
    );
    assert_eq!(
        run(r#"{"debugger_port": null, "ip": "a", "debugger_port": 4711}"#)
            .unwrap()
            .unwrap(),
        r#"{"debugger_port": 5679, "ip": "relay-none", "debugger_port": 5679}"#
    );
}

#[test]
fn paused_is_derived_from_the_row() {
    let row = |rest: &str| {
        let mut paused = None;
        let text = format!(r#"{{"worker_id": "w", "debugger_port": 1{rest}}}"#);
        let mut address = writing(|worker| {
            paused = Some(worker.paused);
            (String::new(), 0)
        });
        rewrite(text.as_bytes(), &mut address).unwrap();
        drop(address);
        paused.unwrap()
    };
    for waits in [
        r#", "num_paused_threads": 1, "is_alive": true"#,
        r#", "num_paused_threads": "12""#,
        r#", "is_alive": null, "num_paused_threads": 1"#,
        r#", "num_paused_threads": 0, "num_paused_threads": 1"#,
    ] {
        assert!(row(waits), "{waits}");
    }
    for runs in [
        "",
        r#", "num_paused_threads": 0, "is_alive": true"#,
        r#", "num_paused_threads": null"#,
        r#", "num_paused_threads": "" "#,
        r#", "num_paused_threads": -1"#,
        r#", "num_paused_threads": [1]"#,
        r#", "num_paused_threads": 1, "is_alive": false"#,
        r#", "num_paused_threads": 1, "is_alive": "False""#,
    ] {
        assert!(!row(runs), "{runs}");
    }
}

#[test]
fn nested_rows_are_rewritten() {
    let text = r#"{"ip":"a","in":{"ip":"b","debugger_port":1},"debugger_port":2}"#;
    let expected =
        r#"{"ip":"relay-none","in":{"ip":"relay-none","debugger_port":5679},"debugger_port":5680}"#;
    assert_eq!(run(text).unwrap().unwrap(), expected);
}

#[test]
fn malformed_json_is_refused() {
    for text in [
        "",
        "{",
        "[1,]",
        "[1 2]",
        r#"{"a" 1}"#,
        r#"{"a":"#,
        r#""abc"#,
        r#""abc\"#,
        r#"{"debugger_port":1,"ip":"a"} x"#,
        r#"{"debugger_port":{"port":1},"ip":"a"}"#,
        r#"{"debugger_port":1,"ip":["a"]}"#,
        "<html>",
    ] {
        assert!(run(text).is_err(), "{text}");
    }
    assert!(run(&"[".repeat(100_000)).is_err());
}

fn value() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::Value;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i32>().prop_map(|n| Value::from(f64::from(n) / 8.0)),
        "\\PC{0,12}".prop_map(Value::from),
        "[\"\\\\/{}\\[\\],: \n]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec(("ip|debugger_port|worker_id|\\PC{0,6}", inner), 0..6)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

/// Does the same rewriting on the parsed value.
fn expected(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Array(values) => values.iter_mut().for_each(expected),
        serde_json::Value::Object(row) => {
            let port = row.get("debugger_port").cloned();
            if port.is_some_and(|port| !port.is_null() && port != 0u64 && port != "" && port != "0")
            {
                let string = row["debugger_port"].is_string();
                row["debugger_port"] = if string { "7".into() } else { 7.into() };
                row.entry("ip").and_modify(|ip| *ip = "relay".into());
            }
            row.values_mut().for_each(expected);
        }
        _ => {}
    }
}

/// A recursive reference parser of the whole text, whose result must match byte by byte. `None`: refused.
struct Reference<'t> {
    text: &'t [u8],
    position: usize,
    replacements: Vec<(Range<usize>, String)>,
}

impl Reference<'_> {
    fn rewritten(text: &str) -> Option<String> {
        let mut walk = Reference {
            text: text.as_bytes(),
            position: 0,
            replacements: Vec::new(),
        };
        walk.value(0)?;
        walk.skip_blanks();
        if walk.position < text.len() {
            return None;
        }
        walk.replacements.sort_by_key(|(span, _)| span.start);
        let mut new = text.to_owned();
        for (span, value) in walk.replacements.into_iter().rev() {
            new.replace_range(span, &value);
        }
        Some(new)
    }

    fn skip_blanks(&mut self) -> Option<u8> {
        while matches!(
            self.text.get(self.position),
            Some(b' ' | b'\t' | b'\r' | b'\n')
        ) {
            self.position += 1;
        }
        self.text.get(self.position).copied()
    }

    /// Consumes `byte` if it comes next.
    fn accept(&mut self, byte: u8) -> bool {
        let is_match = self.skip_blanks() == Some(byte);
        self.position += usize::from(is_match);
        is_match
    }

    fn value(&mut self, depth: usize) -> Option<Range<usize>> {
        let byte = self.skip_blanks()?;
        let start = self.position;
        match byte {
            b'"' => return self.string(),
            b'{' | b'[' if depth < MAX_DEPTH => {
                self.position += 1;
                let close = byte + 2;
                let mut row = Vec::new();
                let mut is_closed = self.accept(close);
                while !is_closed {
                    if byte == b'{' {
                        (self.skip_blanks()? == b'"').then_some(())?;
                        let key = plain(&self.text[self.string()?])
                            .unwrap_or_default()
                            .into_owned();
                        self.accept(b':').then_some(())?;
                        row.push((key, self.value(depth + 1)?));
                    } else {
                        self.value(depth + 1)?;
                    }
                    is_closed = self.accept(close);
                    (is_closed || self.accept(b',')).then_some(())?;
                }
                self.row(&row)?;
            }
            _ => {
                let within = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
                while self.text.get(self.position).is_some_and(within) {
                    self.position += 1;
                }
            }
        }
        (self.position > start).then_some(start..self.position)
    }

    fn string(&mut self) -> Option<Range<usize>> {
        let start = self.position;
        self.position += 1;
        while *self.text.get(self.position)? != b'"' {
            self.position += 1 + usize::from(self.text[self.position] == b'\\');
        }
        self.position += 1;
        Some(start..self.position)
    }

    fn row(&mut self, row: &[(String, Range<usize>)]) -> Option<()> {
        let text = self.text;
        let all = |name: &'static str| row.iter().filter(move |(key, _)| key == name);
        let last = |name| all(name).next_back().map(|(_, span)| &text[span.clone()]);
        if all("debugger_port").all(|(_, span)| is_no_port(&text[span.clone()])) {
            return Some(());
        }
        let dead = [&b"false"[..], b"\"false\""];
        let (ip, port) = address(Worker {
            id: last("worker_id").and_then(plain).as_deref(),
            paused: last("num_paused_threads").is_some_and(is_positive)
                && !last("is_alive")
                    .is_some_and(|text| dead.contains(&&*text.to_ascii_lowercase())),
        });
        for (_, span) in all("ip").chain(all("debugger_port")) {
            (!b"{[".contains(&text[span.start])).then_some(())?;
        }
        let quoted = |span: &Range<usize>| text[span.start] == b'"';
        let ips = all("ip").map(|(_, span)| (span.clone(), format!("\"{ip}\"")));
        let ports = all("debugger_port").map(|(_, span)| match quoted(span) {
            true => (span.clone(), format!("\"{port}\"")),
            false => (span.clone(), port.to_string()),
        });
        self.replacements.extend(ips.chain(ports));
        Some(())
    }
}

/// An address that shows all known properties of the worker.
fn address(worker: Worker<'_>) -> (String, u16) {
    let port = if worker.paused { 17 } else { 10_007 };
    (format!("relay-{}", worker.id.unwrap_or("none")), port)
}

/// Generates JSON with relevant keys and values, escaped or not, and sometimes invalid JSON.
fn text() -> impl Strategy<Value = String> {
    let key = "ip|debugger_port|worker_id|is_alive|num_paused_threads|i\\\\u0070|a{0,3}|\\\\\"";
    let leaf = "null|0|1|-1|12|true|False|NaN|1e3|\"\"|\"0\"|\"1\"|\"x{0,40}\"|\"\\\\\"\\\\u0061\"|\"false\"|";
    leaf.prop_recursive(4, 64, 6, move |inner| {
        let members = prop::collection::vec((key, " ?", inner.clone()), 0..7);
        prop_oneof![
            prop::collection::vec(inner, 0..4)
                .prop_map(|values| format!("[{}]", values.join(", "))),
            members.prop_map(|members| {
                let members = members
                    .iter()
                    .map(|(key, blank, value)| format!("\"{key}\"{blank}:{value}{blank}"));
                format!("{{{}}}", members.collect::<Vec<_>>().join(","))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn result_agrees_with_a_json_parser(mut value in value(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        match rewrite(text.as_bytes(), &mut writing(|_| ("relay".into(), 7))) {
            // Only addresses that are lists or objects are refused.
            Err(NotJson { at }) => {
                let start = text.as_bytes()[at];
                prop_assert!(b"[{".contains(&start), "{}", at);
            }
            Ok(new) => {
                let new = new.map_or(text.clone(), |bytes| String::from_utf8(bytes).unwrap());
                expected(&mut value);
                prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&new).unwrap(), value);
            }
        }
    }

    #[test]
    fn chunked_input_gives_the_same_result(value in value(), odd in "[\\[\\]{}\",:\\\\a0 ]{0,24}", cuts in prop::collection::vec(0..400usize, 0..12)) {
        let text = serde_json::to_string(&value).unwrap();
        for text in [text.clone(), format!("{{\"ip\":{text},\"debugger_port\":1}}"), format!("[{text}, {odd}]"), odd] {
            let address = |worker: Worker<'_>| (format!("relay-{:?}", worker.id), 7);
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| (*cut).min(text.len())).collect();
            cuts.sort_unstable();
            cuts.push(text.len());
            let mut rewriter = Rewriter::new(writing(address));
            let mut from = 0;
            let mut new: Result<Vec<u8>, NotJson> = Ok(Vec::new());
            for cut in cuts {
                new = new.and_then(|new| Ok([new, rewriter.feed(&text.as_bytes()[from..cut])?].concat()));
                from = cut;
            }
            let new = new.and_then(|new| Ok([new, rewriter.finish()?].concat()));
            let rewritten = rewrite(text.as_bytes(), &mut writing(address));
            prop_assert_eq!(new, rewritten.map(|new| new.unwrap_or(text.clone().into_bytes())));
        }
    }

    #[test]
    fn result_agrees_with_the_recursive_reference(text in text(), size in 1..40usize) {
        let mut rewriter = Rewriter::new(writing(address));
        let mut new = Vec::new();
        let mut refused = false;
        for chunk in text.as_bytes().chunks(size) {
            match rewriter.feed(chunk) {
                Ok(certain) => new.extend(certain),
                Err(_) => refused = true,
            }
            if refused {
                break;
            }
        }
        let end = if refused { None } else { rewriter.finish().ok() };
        let new = end.map(|end| String::from_utf8([new, end].concat()).unwrap());
        prop_assert_eq!(new, Reference::rewritten(&text));
    }

    #[test]
    fn any_input_is_processed_without_panic(text in "[\\[\\]{}\",:\\\\a0 ]{0,64}") {
        let _ = run(&text);
    }
}
