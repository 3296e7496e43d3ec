//! The list of breakpoints to pick from.

use std::ops::Range;

use serde_json::Value;

use super::NOTHING_KNOWN;
use super::row::{List, Row};
use super::table::{self, Extras};
use ray_relay_base::wire::json;
use ray_relay_ray::ray::registry::BreakpointIdPrefix;

/// The rows to pick from, in the order of the list.
#[derive(Debug, Default)]
pub struct Menu {
    list: List,
    /// The JSON of the same breakpoints.
    values: Vec<Value>,
}

impl Menu {
    /// Reads the answer of `/relay/v1/breakpoints`.
    pub fn read(list: &Value) -> Self {
        Self {
            list: List::read(list),
            values: json::list(list, "breakpoints").to_vec(),
        }
    }

    /// Whether a debugger that speaks DAP waits at `id`. True for an unlisted id, which the relay judges.
    pub fn speaks_dap(&self, id: &str) -> bool {
        let mut rows = self.list.rows.iter();
        rows.all(|row| row.id != id || row.speaks_dap())
    }

    /// Returns the rows as JSON.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.list.rows.len()
    }

    /// Returns how many rows a filter has left out.
    pub fn hidden(&self) -> u64 {
        self.list.hidden
    }

    /// Whether `count` rows from `from` on are the same as in `other`, apart from their waiting times.
    pub(crate) fn offers_as(&self, other: &Self, from: usize, count: usize) -> bool {
        let offers = |menu: &Self| {
            let rows = menu.list.rows.iter().skip(from).take(count);
            let rows = rows.map(|row| (row.id.clone(), row.holder.clone(), row.task.clone()));
            (rows.collect::<Vec<_>>(), menu.list.troubles().is_empty())
        };
        offers(self) == offers(other)
    }

    /// Returns the id of the row that `text` names: by index, id, name or the beginning of an id.
    pub fn pick(&self, text: &str) -> Result<String, String> {
        let text = text.trim();
        let rows = &self.list.rows;
        let by_index = text.parse().ok().and_then(|index: usize| rows.get(index));
        let by_id = || rows.iter().find(|row| row.id.eq_ignore_ascii_case(text));
        if let Some(row) = by_index.or_else(by_id) {
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
        let fitting: Vec<&Row> = rows
            .iter()
            .zip(&self.values)
            .filter(|(_, value)| named(value))
            .map(|(row, _)| row)
            .collect();
        match fitting.as_slice() {
            [] => {
                let begun = text.parse::<BreakpointIdPrefix>().ok();
                let ids = rows.iter().map(|row| (&row.id, row.task.clone()));
                let found = begun.map(|begun| begun.only(ids)).transpose();
                let found = found.map_err(|several| several.to_string())?.flatten();
                found
                    .cloned()
                    .ok_or_else(|| format!("nothing in the list has the number, id or name {text}"))
            }
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

    /// Formats warnings about the list, and the table of `rows`, each line ended by a line feed. `columns` is the
    /// width of the terminal.
    pub fn render(&self, verbose: bool, columns: Option<usize>, rows: Range<usize>) -> String {
        let troubles = self.list.troubles();
        let mut text: String = troubles
            .iter()
            .map(|trouble| format!("! {trouble}\n"))
            .collect();
        if self.list.rows.is_empty() {
            text += match troubles.is_empty() {
                true if self.list.hidden > 0 => "No waiting task matches.\n",
                true => "No task waits at a breakpoint.\n",
                false => NOTHING_KNOWN,
            };
            return text;
        }
        let extras = Extras {
            index: true,
            ids: verbose,
            first: rows.start,
        };
        let page = self.list.part(rows);
        // Ids are for copying: a wrapped line is better than a cut id.
        text += &table::render(&page, &extras, columns.filter(|_| !verbose));
        text
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::listing::text::width;

    fn menu() -> Menu {
        Menu::read(&json!({"breakpoints": [
            {"id": "0123abcd", "name": "step", "node_ip": "10.0.0.1", "waiting_seconds": 61.0, "state": "paused",
             "reason": "post_mortem", "exception": "KeyError",
             "location": {"file": "a/long/path/to/train.py", "line": 26}, "worker_id": "aa"},
            {"id": "1123abcd", "name": "load", "node_ip": "10.0.0.2", "waiting_seconds": 3.0, "state": "paused", "worker_id": "bb"},
            {"id": "2123abcd", "name": "load", "node_ip": "10.0.0.2", "waiting_seconds": 3.0, "state": "paused", "worker_id": "cc"},
        ]}))
    }

    #[test]
    fn row_is_picked_by_index_id_or_name() {
        let menu = menu();
        for text in ["0", "0123ABCD", "step", " STEP "] {
            assert_eq!(menu.pick(text).unwrap(), "0123abcd", "{text}");
        }
        assert_eq!(menu.pick("bb").unwrap(), "1123abcd");
        let several = menu.pick("load").unwrap_err();
        assert!(several.contains("1123abcd, 2123abcd"), "{several}");
        assert!(menu.pick("7").is_err());
        assert_eq!(menu.pick("112").unwrap(), "1123abcd", "no index");
    }

    #[test]
    fn only_selectable_changes_redraw_the_menu() {
        let list = |id: &str, holder: Value, waiting: f64| {
            Menu::read(
                &json!({"breakpoints": [{"id": id, "name": "step", "holder": holder, "waiting_seconds": waiting}]}),
            )
        };
        let before = list("a", Value::Null, 1.0);
        assert!(list("a", Value::Null, 9.0).offers_as(&before, 0, 9));
        assert!(!list("b", Value::Null, 1.0).offers_as(&before, 0, 9));
        assert!(!list("a", json!({"client": "VS Code"}), 1.0).offers_as(&before, 0, 9));
        assert!(!Menu::default().offers_as(&before, 0, 9));
    }

    #[test]
    fn table_fits_the_terminal() {
        let text = menu().render(false, None, 0..3);
        let head = "INDEX  ID        TASK             WHERE";
        assert!(text.starts_with(head), "{text}");
        let row = "\n0      0123abcd  step (KeyError)  a/long/path/to/train.py:26  10.0.0.1  1m 01s   -\n";
        assert!(text.contains(row), "{text}");
        let text = menu().render(false, Some(70), 0..3);
        assert!(text.lines().all(|line| width(line) <= 70), "{text}");
        assert!(text.contains("train.py:26"));
        let text = menu().render(true, Some(70), 0..3);
        let head = text.lines().next().unwrap();
        assert!(head.ends_with("PID  TASK ID  WORKER"), "{text}");
    }

    #[test]
    fn kind_column_appears_for_mixed_kinds() {
        let mut list =
            json!({"breakpoints": [{"id": "0123abcd", "name": "step", "kind": "debugpy"}]});
        assert!(!Menu::read(&list).render(false, None, 0..1).contains("KIND"));
        let legacy = json!({"id": "1123abcd", "name": "load", "kind": "pdb"});
        list["breakpoints"].as_array_mut().unwrap().push(legacy);
        let menu = Menu::read(&list);
        let text = menu.render(false, None, 0..2);
        assert!(text.contains("KIND"), "{text}");
        assert!(text.contains("  pdb      load"), "{text}");
        assert!(!menu.speaks_dap("1123abcd") && menu.speaks_dap("0123abcd"));
    }

    #[test]
    fn unreachable_head_is_reported() {
        let list = json!({"breakpoints": [], "clusters": [{"name": "default", "trouble": "cannot reach the Ray head"}]});
        let text = Menu::read(&list).render(false, None, 0..9);
        let trouble = "! cluster default: cannot reach the Ray head\n";
        assert_eq!(text, format!("{trouble}{NOTHING_KNOWN}"));
    }
}
