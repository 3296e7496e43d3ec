//! Rows as a table that fits the terminal.
//!
//! Pure. Columns are as wide as their content. If that is too wide, the addresses of holders are dropped first. Then
//! the widest columns shrink, and last whole columns are dropped, the least important ones first. In a pipe nothing
//! is cut.

use std::time::Duration;

use super::row::{List, Row};
use super::text::{COLUMN_GAP, KeptEnd, fit, table_line, width};
use ray_relay_base::wire::human_time::span;

/// One column of the table.
struct Column {
    title: &'static str,
    /// Least useful width. `None`: never shrinks.
    least: Option<usize>,
    keep: KeptEnd,
    /// Order in which columns are dropped from narrow tables. `None`: never dropped.
    drop_order: Option<u8>,
    cell: fn(usize, &Row) -> String,
    is_shown: fn(&List, &Extras) -> bool,
}

/// Optional columns.
#[derive(Debug, Clone, Copy, Default)]
pub struct Extras {
    /// The row's number at the front.
    pub index: bool,
    /// Resources, process, job, task and worker at the end.
    pub ids: bool,
    /// The number of the first row, if rows are numbered.
    pub first: usize,
}

/// Base of all columns: always shown, and never cut.
const PLAIN: Column = Column {
    title: "",
    least: None,
    keep: KeptEnd::Start,
    drop_order: None,
    cell: |_, _| String::new(),
    is_shown: |_, _| true,
};

const COLUMNS: [Column; 16] = [
    Column {
        title: "INDEX",
        cell: |index, _| index.to_string(),
        is_shown: |_, extras| extras.index,
        ..PLAIN
    },
    Column {
        title: "ID",
        cell: |_, row| row.id.clone(),
        ..PLAIN
    },
    Column {
        title: "CLUSTER",
        least: Some(5),
        drop_order: Some(3),
        cell: |_, row| row.cluster.clone(),
        is_shown: |list, _| list.clusters.len() > 1,
        ..PLAIN
    },
    Column {
        title: "KIND",
        drop_order: Some(3),
        cell: |_, row| row.kind.clone(),
        // Most users have never seen the other kind.
        is_shown: |list, _| !list.rows.iter().all(Row::speaks_dap),
        ..PLAIN
    },
    Column {
        title: "JOB",
        // The end of an id tells it from others.
        least: Some(8),
        keep: KeptEnd::End,
        drop_order: Some(0),
        cell: |_, row| row.job.clone(),
        is_shown: |list, extras| extras.ids || list.rows.iter().any(|row| row.job != "-"),
    },
    Column {
        title: "TASK",
        least: Some(8),
        cell: |_, row| row.task.clone(),
        ..PLAIN
    },
    Column {
        title: "WHERE",
        least: Some(8),
        keep: KeptEnd::End,
        drop_order: Some(0),
        cell: |_, row| row.location.clone(),
        ..PLAIN
    },
    Column {
        title: "NODE",
        // A partial address identifies no host. IPv6 addresses differ at their end.
        least: Some(15),
        keep: KeptEnd::End,
        drop_order: Some(1),
        cell: |_, row| row.node.clone(),
        ..PLAIN
    },
    Column {
        title: "WAITING",
        drop_order: Some(4),
        cell: |_, row| span(row.waiting),
        ..PLAIN
    },
    Column {
        title: "TIMEOUT",
        drop_order: Some(4),
        cell: |_, row| match row.timeout {
            Some(Duration::ZERO) => "over".to_owned(),
            Some(remaining) => span(remaining),
            None => "-".to_owned(),
        },
        // Without known timeouts the column is useless.
        is_shown: |list, _| list.rows.iter().any(|row| row.timeout.is_some()),
        ..PLAIN
    },
    Column {
        title: "GPUS",
        drop_order: Some(3),
        cell: |_, row| match row.gpus > 0.0 {
            true => row.gpus.to_string(),
            false => "-".to_owned(),
        },
        // GPUs make a waiting task expensive.
        is_shown: |list, _| list.rows.iter().any(|row| row.gpus > 0.0),
        ..PLAIN
    },
    Column {
        title: "HOLDER",
        least: Some(6),
        drop_order: Some(2),
        cell: |_, row| row.holder.clone(),
        ..PLAIN
    },
    id("HOLDS", |_, row| row.holds.clone()),
    id("PID", |_, row| row.pid.clone()),
    id("TASK ID", |_, row| row.task_id.clone()),
    id("WORKER", |_, row| row.worker.clone()),
];

/// A column for one of Ray's ids, which is useless if cut.
const fn id(title: &'static str, cell: fn(usize, &Row) -> String) -> Column {
    Column {
        title,
        cell,
        is_shown: |_, extras| extras.ids,
        ..PLAIN
    }
}

/// Replaces the column of the same title in narrow tables.
static HOLDER_NAME: Column = Column {
    title: "HOLDER",
    least: Some(6),
    drop_order: Some(2),
    cell: |_, row| row.holder_name.clone(),
    ..PLAIN
};

/// Formats the table, each line ended by a line feed. `columns` is the width of the terminal, `None` for a pipe.
pub fn render(list: &List, extras: &Extras, columns: Option<usize>) -> String {
    let rows = &list.rows;
    let mut visible: Vec<&Column> = COLUMNS
        .iter()
        .filter(|column| (column.is_shown)(list, extras))
        .collect();
    let numbered = || (extras.first..).zip(rows);
    let natural = |column: &Column| {
        let cells = numbered();
        let cells = cells.map(|(index, row)| width(&(column.cell)(index, row)));
        cells.chain([width(column.title)]).max().unwrap_or_default()
    };
    let mut widths: Vec<usize> = visible.iter().map(|column| natural(column)).collect();
    if let Some(room) = columns {
        // A holder's address is the least important part.
        if total(&widths) > room
            && let Some(holder) = visible
                .iter()
                .position(|column| column.title == HOLDER_NAME.title)
        {
            visible[holder] = &HOLDER_NAME;
            widths[holder] = natural(&HOLDER_NAME);
        }
        while least_total(&visible, &widths) > room {
            let Some(next) = (0..visible.len())
                .filter(|i| visible[*i].drop_order.is_some())
                .min_by_key(|i| visible[*i].drop_order)
            else {
                break;
            };
            visible.remove(next);
            widths.remove(next);
        }
        shrink(&visible, &mut widths, room);
    }
    let mut text = line(&visible, &widths, columns, |column| column.title.to_owned());
    for (index, row) in numbered() {
        text += &line(&visible, &widths, columns, |column| {
            (column.cell)(index, row)
        });
    }
    text
}

/// Returns the width of the columns with the gaps between them.
fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + gaps(widths.len())
}

fn gaps(columns: usize) -> usize {
    COLUMN_GAP * columns.saturating_sub(1)
}

/// Returns the width with all columns shrunk as far as possible.
fn least_total(visible: &[&Column], widths: &[usize]) -> usize {
    let columns = visible.iter().zip(widths);
    columns
        .map(|(column, width)| column.least.map_or(*width, |least| least.min(*width)))
        .sum::<usize>()
        + gaps(widths.len())
}

fn shrink(visible: &[&Column], widths: &mut [usize], room: usize) {
    while total(widths) > room {
        let widest = (0..widths.len())
            .filter(|i| visible[*i].least.is_some_and(|least| widths[*i] > least))
            .max_by_key(|i| widths[*i]);
        match widest {
            Some(widest) => widths[widest] -= 1,
            None => break,
        }
    }
}

fn line(
    visible: &[&Column],
    widths: &[usize],
    columns: Option<usize>,
    cell: impl Fn(&Column) -> String,
) -> String {
    let cells = visible.iter().zip(widths).map(|(column, room)| {
        let cell = fit(&cell(column), *room, column.keep).into_owned();
        (cell, *room)
    });
    // A cut is only needed on a terminal narrower than an id and a name.
    table_line(cells, columns) + "\n"
}
