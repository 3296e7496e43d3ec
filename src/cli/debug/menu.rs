//! The list of breakpoints to pick from.

use serde_json::Value;

use crate::cli::list::row::{Row, waited};
use crate::cli::terminal::{Keep, fit, width};

/// Blanks between columns.
const GAP: &str = "  ";
/// What a long column is cut to where there is little room.
const NARROW: usize = 12;

/// What can be picked, in the order of the list.
#[derive(Debug, Default)]
pub(super) struct Menu {
    rows: Vec<(Row, Value)>,
}

impl Menu {
    /// From `/relay/v1/breakpoints`.
    pub(super) fn read(list: &Value) -> Self {
        let rows = list["breakpoints"].as_array().into_iter().flatten();
        Self {
            rows: rows.map(|row| (Row::read(row), row.clone())).collect(),
        }
    }

    /// It is a breakpoint of Ray's legacy debugger.
    pub(super) fn is_legacy(&self, id: &str) -> bool {
        let mut rows = self.rows.iter();
        rows.any(|(row, value)| row.id == id && value["kind"] == "pdb")
    }

    /// The id of the row that `text` names: by index, id or name.
    pub(super) fn pick(&self, text: &str) -> Result<String, String> {
        let text = text.trim();
        if let Some((row, _)) = text
            .parse::<usize>()
            .ok()
            .and_then(|index| self.rows.get(index))
        {
            return Ok(row.id.clone());
        }
        if let Some((row, _)) = self
            .rows
            .iter()
            .find(|(row, _)| row.id.eq_ignore_ascii_case(text))
        {
            return Ok(row.id.clone());
        }
        let named = |value: &Value| {
            ["name", "title", "actor_name", "task_id", "worker_id"]
                .iter()
                .any(|key| {
                    value[*key]
                        .as_str()
                        .is_some_and(|name| name.eq_ignore_ascii_case(text))
                })
        };
        let fitting: Vec<&Row> = self
            .rows
            .iter()
            .filter(|(_, value)| named(value))
            .map(|(row, _)| row)
            .collect();
        match fitting.as_slice() {
            [] => Err(format!(
                "nothing in the list has the number, id or name {text}"
            )),
            [row] => Ok(row.id.clone()),
            several => {
                let ids: Vec<&str> = several.iter().map(|row| row.id.as_str()).take(5).collect();
                Err(format!(
                    "{} tasks are called {text}; pick one by its id: {}",
                    several.len(),
                    ids.join(", ")
                ))
            }
        }
    }

    /// The table, each line ended by a line feed. `columns`: width of the terminal.
    pub(super) fn render(&self, verbose: bool, columns: Option<usize>) -> String {
        if self.rows.is_empty() {
            return "No task waits at a breakpoint; it appears here when one stops.\n".to_owned();
        }
        let mut titles = vec!["INDEX", "ID", "WAITING", "TASK", "WHERE", "NODE", "HOLDER"];
        if verbose {
            titles.extend(["PID", "JOB", "TASK ID", "WORKER"]);
        }
        let cells: Vec<Vec<String>> = self
            .rows
            .iter()
            .enumerate()
            .map(|(index, row)| cells(index, row, verbose))
            .collect();
        let mut widths: Vec<usize> = (0..titles.len())
            .map(|column| {
                let cells = cells.iter().map(|row| width(&row[column]));
                cells
                    .chain([width(titles[column])])
                    .max()
                    .unwrap_or_default()
            })
            .collect();
        // The holder's address, the place and the name are cut, in this order.
        let total =
            |widths: &[usize]| widths.iter().sum::<usize>() + GAP.len() * (widths.len() - 1);
        for column in [6, 4, 3] {
            let excess = columns.map_or(0, |room| total(&widths).saturating_sub(room));
            widths[column] -= excess.min(widths[column].saturating_sub(NARROW));
        }
        let titles: Vec<String> = titles.iter().map(|title| (*title).to_owned()).collect();
        let mut text = String::new();
        for row in std::iter::once(&titles).chain(&cells) {
            let mut line = String::new();
            for (column, (cell, room)) in row.iter().zip(&widths).enumerate() {
                let keep = if column == 4 { Keep::End } else { Keep::Start };
                let cell = fit(cell, *room, keep);
                line += &cell;
                line += &" ".repeat(room - width(&cell));
                line += GAP;
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

fn cells(index: usize, (row, value): &(Row, Value), verbose: bool) -> Vec<String> {
    let mut cells = vec![
        index.to_string(),
        row.id.clone(),
        waited(row.waiting),
        row.task.clone(),
        row.location.clone(),
        row.node.clone(),
        row.holder.clone(),
    ];
    if verbose {
        let text = |key: &str| match &value[key] {
            Value::String(text) => crate::cli::terminal::clean(text).into_owned(),
            Value::Number(number) => number.to_string(),
            _ => "-".to_owned(),
        };
        cells.extend(["pid", "job_id", "task_id", "worker_id"].map(text));
    }
    cells
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn menu() -> Menu {
        Menu::read(&json!({"breakpoints": [
            {"id": "0123abcd", "name": "step", "node_ip": "10.0.0.1", "waiting_seconds": 61.0, "state": "paused",
             "location": {"file": "a/long/path/to/train.py", "line": 26}, "worker_id": "aa"},
            {"id": "1123abcd", "name": "load", "node_ip": "10.0.0.2", "waiting_seconds": 3.0, "state": "paused", "worker_id": "bb"},
            {"id": "2123abcd", "name": "load", "node_ip": "10.0.0.2", "waiting_seconds": 3.0, "state": "paused", "worker_id": "cc"},
        ]}))
    }

    #[test]
    fn a_row_is_picked_by_index_id_or_name() {
        let menu = menu();
        for text in ["0", "0123ABCD", "step", " STEP "] {
            assert_eq!(menu.pick(text).unwrap(), "0123abcd", "{text}");
        }
        assert_eq!(menu.pick("bb").unwrap(), "1123abcd");
        assert!(
            menu.pick("load")
                .unwrap_err()
                .contains("1123abcd, 2123abcd")
        );
        assert!(menu.pick("7").is_err());
    }

    #[test]
    fn the_table_fits_the_terminal() {
        let text = menu().render(false, None);
        assert!(
            text.starts_with("INDEX  ID        WAITING  TASK  WHERE"),
            "{text}"
        );
        assert!(
            text.contains(
                "\n0      0123abcd  1m 01s   step  a/long/path/to/train.py:26  10.0.0.1  -\n"
            ),
            "{text}"
        );
        let text = menu().render(false, Some(70));
        assert!(text.lines().all(|line| width(line) <= 70), "{text}");
        assert!(text.contains("train.py:26"));
    }
}
