//! Audit lines as rows for people, one at a time: a log has no end to wait for.
//!
//! Pure. On a terminal every line fits; in a pipe nothing is cut. Texts are cleaned here, once.

use serde_json::{Map, Value};

use crate::listing::text::{Keep, clean, fit, width};

/// Title, usual width, and what stands there.
type Column = (&'static str, usize, fn(&Map<String, Value>) -> String);

const COLUMNS: [Column; 6] = [
    ("TIME (UTC)", 19, |line| {
        text(line, "time")
            .chars()
            .take(19)
            .collect::<String>()
            .replace('T', " ")
    }),
    ("ACTION", 14, |line| text(line, "action")),
    ("WHO", 16, |line| match text(line, "subject") {
        who if who.is_empty() => text(line, "peer"),
        who => who,
    }),
    ("ID", 8, |line| text(line, "breakpoint")),
    ("JOB", 10, |line| match text(line, "submission") {
        job if job.is_empty() => text(line, "job"),
        job => job,
    }),
    ("TASK", 18, |line| text(line, "name")),
];

/// The line above the first row.
pub(super) fn title(columns: Option<usize>) -> String {
    let cells = COLUMNS.map(|(title, room, _)| (title.to_owned(), room));
    row(&cells, "DETAILS", columns)
}

/// One line.
pub(super) fn render(line: &Map<String, Value>, columns: Option<usize>) -> String {
    let cells = COLUMNS.map(|(_, room, cell)| (cell(line), room));
    row(&cells, &details(line), columns)
}

fn row(cells: &[(String, usize)], last: &str, columns: Option<usize>) -> String {
    let mut row = String::new();
    for (cell, room) in cells {
        let cell = match (cell.is_empty(), columns) {
            (true, _) => "-".into(),
            (false, Some(_)) => fit(cell, *room, Keep::Start),
            (false, None) => cell.into(),
        };
        row += &cell;
        row.extend(std::iter::repeat_n(
            ' ',
            room.saturating_sub(width(&cell)) + 2,
        ));
    }
    row += last;
    let row = row.trim_end();
    match columns {
        Some(columns) => fit(row, columns, Keep::Start).into_owned(),
        None => row.to_owned(),
    }
}

fn text(line: &Map<String, Value>, key: &str) -> String {
    let text = line.get(key).and_then(Value::as_str).unwrap_or_default();
    clean(text).into_owned()
}

/// `outcome=denied scope=debug`
fn details(line: &Map<String, Value>) -> String {
    let Some(Value::Object(details)) = line.get("details") else {
        return String::new();
    };
    let shown = details.iter().map(|(key, value)| {
        let value = match value {
            Value::String(text) if text.contains([' ', '\n', '"']) || text.is_empty() => {
                Value::from(text.as_str()).to_string()
            }
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        format!("{}={}", clean(key), clean(&value))
    });
    shown.collect::<Vec<_>>().join(" ")
}
