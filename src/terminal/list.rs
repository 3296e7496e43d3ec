//! The list of what waits, as text. Pure.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::registry::{Breakpoint, Kind, Reason, Snapshot};

/// Widest a column gets, in characters.
const WIDEST: usize = 44;

/// What can be picked, in the order of the list.
#[derive(Debug, Default)]
pub(super) struct List {
    rows: Vec<Arc<Breakpoint>>,
}

impl List {
    /// Of what somebody may see.
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        Self {
            rows: snapshot.live.clone(),
        }
    }

    /// The row that `text` names, by index or id, else by a name that only one has.
    pub(super) fn pick(&self, text: &str) -> Result<&Arc<Breakpoint>, String> {
        let by_index = text
            .parse()
            .ok()
            .and_then(|index: usize| self.rows.get(index));
        let is_named = |b: &&Arc<Breakpoint>| b.id.to_string().eq_ignore_ascii_case(text);
        if let Some(row) = by_index.or_else(|| self.rows.iter().find(is_named)) {
            return Ok(row);
        }
        let mut called = self.rows.iter().filter(|b| b.name() == text);
        match (called.next(), called.next()) {
            (Some(row), None) => Ok(row),
            (Some(_), Some(_)) => {
                Err("several tasks have that name; pick one by its index or id".to_owned())
            }
            (None, _) => Err("nothing in the list has that index, id or name".to_owned()),
        }
    }

    /// Lines of a table.
    pub(super) fn render(&self, now: SystemTime) -> String {
        if self.rows.is_empty() {
            return "No task waits at a breakpoint.\n".to_owned();
        }
        let titles = [
            "INDEX", "ID", "WAITING", "TASK", "WHERE", "NODE", "KIND", "HOLDER",
        ];
        let mut table = vec![titles.map(str::to_owned)];
        for (index, row) in self.rows.iter().enumerate() {
            table.push(cells(index, row, now));
        }
        let width = |column: usize| {
            let widths = table.iter().map(|row| row[column].chars().count());
            widths.max().unwrap_or_default()
        };
        let widths: [usize; 8] = std::array::from_fn(width);
        let mut text = String::new();
        for row in &table {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(widths) {
                line += &format!("{cell:width$}  ");
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

fn cells(index: usize, row: &Breakpoint, now: SystemTime) -> [String; 8] {
    let location = row.location.as_ref().map(ToString::to_string);
    let place = match (location, row.reason, &row.exception) {
        (Some(location), Reason::PostMortem, Some(exception)) => {
            format!("{exception} at {location}")
        }
        (None, Reason::PostMortem, Some(exception)) => exception.clone(),
        (Some(location), Reason::PostMortem, None) => format!("exception at {location}"),
        (None, Reason::PostMortem, None) => "exception".to_owned(),
        (location, Reason::Breakpoint | Reason::Unknown, _) => {
            location.unwrap_or_else(|| "-".to_owned())
        }
    };
    let cells = [
        index.to_string(),
        row.id.to_string(),
        waited(row.waiting(now)),
        row.name(),
        place,
        row.node_ip.to_string(),
        match row.kind {
            Kind::Debugpy => "debugpy".to_owned(),
            Kind::Pdb => "pdb".to_owned(),
        },
        row.holder().map_or("-".to_owned(), ToString::to_string),
    ];
    cells.map(|cell| match cell.char_indices().nth(WIDEST) {
        Some((end, _)) => format!("{}…", &cell[..end]),
        None => cell,
    })
}

/// `14s`, `2m 14s`, `3h 02m`.
fn waited(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m {s:02}s"),
        (h, m, _) => format!("{h}h {m:02}m"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::dap::testing::{paused, snapshot};

    #[test]
    fn a_row_is_picked_by_index_id_or_a_name_of_its_own() {
        let list = List::of(&snapshot(vec![
            paused("load", 1),
            paused("load", 2),
            paused("step", 3),
        ]));
        let id = list.rows[1].id.to_string();
        assert_eq!(list.pick("1").unwrap().id, list.rows[1].id);
        assert_eq!(list.pick(&id.to_uppercase()).unwrap().id, list.rows[1].id);
        assert_eq!(list.pick("step").unwrap().id, list.rows[2].id);
        assert!(list.pick("load").unwrap_err().contains("several"));
        assert!(list.pick("3").is_err());
    }

    #[test]
    fn the_table_says_what_waits_where() {
        let breakpoint = paused("step", 3);
        let now = breakpoint.first_seen + Duration::from_secs(134);
        let text = List::of(&snapshot(vec![breakpoint])).render(now);
        let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            (row[0], &row[2..4], row[4]),
            ("0", &["2m", "14s"][..], "step"),
            "{text}"
        );
        assert!(
            row.contains(&"debugpy") && row.contains(&"10.88.0.3"),
            "{text}"
        );
        assert!(List::default().render(now).contains("No task"));
    }
}
