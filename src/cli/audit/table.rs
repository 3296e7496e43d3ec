//! Audit lines as table rows, one at a time: a log has no end to wait for.
//!
//! Pure. On a terminal every line is cut to fit; in a pipe nothing is cut. Texts are sanitized here, once.

use serde_json::{Map, Value};

use ray_relay_base::wire::text::replaced;
use ray_relay_view::listing::text::{KeptEnd, fit, table_line};

/// Title, usual width, and content of a column.
type AuditColumn = (&'static str, usize, fn(&Map<String, Value>) -> String);

const COLUMNS: [AuditColumn; 6] = [
    ("TIME (UTC)", 19, |line| {
        text(line, "time")
            .chars()
            .take(19)
            .collect::<String>()
            .replace('T', " ")
    }),
    ("ACTION", 14, |line| text(line, "action")),
    ("WHO", 16, |line| match text(line, "subject") {
        principal if principal.is_empty() => text(line, "peer"),
        principal => principal,
    }),
    ("ID", 8, |line| text(line, "breakpoint")),
    ("JOB", 10, |line| match text(line, "submission") {
        job if job.is_empty() => text(line, "job"),
        job => job,
    }),
    ("TASK", 18, |line| text(line, "name")),
];

/// The title row.
pub(super) fn title(columns: Option<usize>) -> String {
    row(
        COLUMNS.map(|(title, room, _)| (title.to_owned(), room)),
        "DETAILS".to_owned(),
        columns,
    )
}

/// Formats an audit line as a table row, cut to `columns` if given.
pub(super) fn render(line: &Map<String, Value>, columns: Option<usize>) -> String {
    row(
        COLUMNS.map(|(_, room, cell)| (cell(line), room)),
        details(line),
        columns,
    )
}

fn row(cells: [(String, usize); 6], last: String, columns: Option<usize>) -> String {
    let cells = cells.into_iter().map(|(cell, room)| {
        let cell = match (cell.is_empty(), columns) {
            (true, _) => "-".to_owned(),
            (false, Some(_)) => fit(&cell, room, KeptEnd::Start).into_owned(),
            (false, None) => cell,
        };
        (cell, room)
    });
    let last = (!last.is_empty()).then_some((last, 0));
    table_line(cells.chain(last), columns)
}

fn text(line: &Map<String, Value>, key: &str) -> String {
    let text = line.get(key).and_then(Value::as_str).unwrap_or_default();
    replaced(text).into_owned()
}

/// Formats the members of `details` as words: `outcome=denied scope=debug`.
fn details(line: &Map<String, Value>) -> String {
    let Some(Value::Object(details)) = line.get("details") else {
        return String::new();
    };
    let pairs = details.iter().map(|(key, value)| {
        let value = match value {
            Value::String(text) if text.contains([' ', '\n', '"']) || text.is_empty() => {
                Value::from(text.as_str()).to_string()
            }
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        format!("{}={}", replaced(key), replaced(&value))
    });
    pairs.collect::<Vec<_>>().join(" ")
}
