//! Log messages in columns, one for each rank: a row has the next message of each.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use ray_relay_base::wire::text::{one_line, shortened};

/// How long a row waits for the messages of the other ranks.
const ROW_TIMEOUT: Duration = Duration::from_secs(1);

/// Characters of a message in its column.
const MAX_COLUMN_CHARS: usize = 40;

/// The spaces between two columns.
const GAP: &str = "  ";

/// The place of a message. Ranks come first, in their order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Column {
    Rank(u32),
    /// A process without a known rank: its node and pid.
    Process(String, u32),
}

impl Column {
    fn title(&self) -> String {
        match self {
            Self::Rank(rank) => format!("rank {rank}"),
            Self::Process(node, pid) => format!("{node} pid {pid}"),
        }
    }
}

/// The messages of one column that are in no row yet, with the time at which each came.
struct Waiting {
    width: usize,
    messages: VecDeque<(Instant, String)>,
}

/// All columns, which appear with their first message.
#[derive(Default)]
pub(super) struct Columns {
    columns: BTreeMap<Column, Waiting>,
    /// When the newest column appeared: others may follow at once.
    appeared: Option<Instant>,
    /// The heading as it was printed last.
    heading: String,
}

impl Columns {
    /// Takes a message, and returns the rows that are complete with it.
    pub(super) fn add(&mut self, column: Column, text: &str, now: Instant) -> String {
        let text = shortened(&one_line(text), MAX_COLUMN_CHARS);
        let columns = self.columns.len();
        let title = column.title().len();
        let waiting = self.columns.entry(column).or_insert_with(|| Waiting {
            width: title,
            messages: VecDeque::new(),
        });
        waiting.width = waiting.width.max(text.chars().count());
        waiting.messages.push_back((now, text));
        if self.columns.len() > columns {
            self.appeared = Some(now);
        }
        self.rows(now)
    }

    /// When a row is printed without the messages that it lacks.
    pub(super) fn due(&self) -> Option<Instant> {
        let oldest = self.columns.values().filter_map(|waiting| {
            let (at, _) = waiting.messages.front()?;
            Some(*at + ROW_TIMEOUT)
        });
        oldest.min()
    }

    /// Returns the rows that are complete, or have waited for too long.
    pub(super) fn rows(&mut self, now: Instant) -> String {
        let mut text = String::new();
        while self.is_complete(now) || self.due().is_some_and(|due| due <= now) {
            text += &self.row();
        }
        text
    }

    /// Returns all that is left.
    pub(super) fn rest(&mut self) -> String {
        let mut text = String::new();
        while self.due().is_some() {
            text += &self.row();
        }
        text
    }

    fn is_complete(&self, now: Instant) -> bool {
        let is_settled = self.appeared.is_some_and(|at| now >= at + ROW_TIMEOUT);
        is_settled
            && self
                .columns
                .values()
                .all(|waiting| !waiting.messages.is_empty())
    }

    /// Takes the next message of each column, with the heading above it where that has changed.
    fn row(&mut self) -> String {
        let titles = self
            .columns
            .iter()
            .map(|(column, waiting)| (column.title(), waiting.width));
        let heading = padded(titles);
        let cells = self.columns.values_mut().map(|waiting| {
            let message = waiting.messages.pop_front();
            let text = message.map(|(_, text)| text).unwrap_or_default();
            (text, waiting.width)
        });
        let row = padded(cells);
        if heading == self.heading {
            return row;
        }
        self.heading = heading;
        format!("{}{row}", self.heading)
    }
}

/// Returns a line of cells, each with the width of its column.
fn padded(cells: impl Iterator<Item = (String, usize)>) -> String {
    let cells: Vec<String> = cells
        .map(|(text, width)| format!("{text:width$}"))
        .collect();
    format!("{}\n", cells.join(GAP).trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_has_the_next_message_of_each_rank() {
        let (mut columns, start) = (Columns::default(), Instant::now());
        let later = start + ROW_TIMEOUT;
        // Other ranks may follow the first one.
        assert_eq!(columns.add(Column::Rank(1), "b0", start), "");
        assert_eq!(columns.add(Column::Rank(0), "a0", start), "");
        assert_eq!(columns.rows(later), "rank 0  rank 1\na0      b0\n");
        assert_eq!(columns.add(Column::Rank(0), "a1", later), "");
        assert_eq!(columns.add(Column::Rank(0), "a2", later), "");
        assert_eq!(columns.add(Column::Rank(1), "b1", later), "a1      b1\n");
        assert_eq!(columns.rest(), "a2\n");
        assert_eq!(columns.due(), None);
    }

    #[test]
    fn rank_without_a_message_leaves_its_place_empty() {
        let (mut columns, start) = (Columns::default(), Instant::now());
        columns.add(Column::Rank(0), "a0", start);
        columns.add(Column::Rank(1), "b0", start);
        columns.rows(start + ROW_TIMEOUT);
        let next = start + ROW_TIMEOUT * 2;
        assert_eq!(columns.add(Column::Rank(1), "b1", next), "");
        assert_eq!(columns.due(), Some(next + ROW_TIMEOUT));
        assert_eq!(columns.rows(next + ROW_TIMEOUT), "        b1\n");
    }

    #[test]
    fn heading_is_repeated_when_a_column_moves() {
        let (mut columns, start) = (Columns::default(), Instant::now());
        columns.add(Column::Rank(0), "a", start);
        columns.rows(start + ROW_TIMEOUT);
        let wide = columns.add(Column::Rank(0), "longer\ntext", start + ROW_TIMEOUT);
        assert_eq!(wide, "longer text\n");
        let process = Column::Process("10.0.0.7".to_owned(), 41);
        assert_eq!(columns.add(process, "c", start + ROW_TIMEOUT), "");
        assert_eq!(
            columns.rest(),
            "rank 0       10.0.0.7 pid 41\n             c\n"
        );
    }
}
