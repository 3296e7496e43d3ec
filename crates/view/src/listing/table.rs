//! Rows as a table that fits the terminal.
//!
//! Pure. Columns are as wide as what is in them; where that is too much, the addresses of holders
//! go, the widest columns shrink, then whole columns go, the least telling ones first. In a pipe
//! nothing is cut.

use std::time::Duration;

use super::row::{List, Row};
use super::text::{GAP, KeptEnd, beside, fit, width};
use ray_relay_base::wire::human_time::span;

/// One column of the table.
struct Column {
    title: &'static str,
    /// Narrower than this says nothing; `None`: never shrinks.
    least: Option<usize>,
    keep: KeptEnd,
    /// Order in which columns go where the terminal is too narrow; `None`: stays.
    goes: Option<u8>,
    cell: fn(usize, &Row) -> String,
    wanted: fn(&List, &Extras) -> bool,
}

/// Columns that only some tables have.
#[derive(Debug, Clone, Copy, Default)]
pub struct Extras {
    /// A number in front of each row, from zero.
    pub index: bool,
    /// What it holds, process, job, task and worker at the end.
    pub ids: bool,
    /// The number of the first row, where it has one.
    pub first: usize,
}

/// A column that every table has, whole.
const PLAIN: Column = Column {
    title: "",
    least: None,
    keep: KeptEnd::Start,
    goes: None,
    cell: |_, _| String::new(),
    wanted: |_, _| true,
};

const COLUMNS: [Column; 16] = [
    Column {
        title: "INDEX",
        cell: |index, _| index.to_string(),
        wanted: |_, extras| extras.index,
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
        goes: Some(3),
        cell: |_, row| row.cluster.clone(),
        wanted: |list, _| list.clusters.len() > 1,
        ..PLAIN
    },
    Column {
        title: "KIND",
        goes: Some(3),
        cell: |_, row| row.kind.clone(),
        // Most people have never seen the other one.
        wanted: |list, _| !list.rows.iter().all(Row::speaks_dap),
        ..PLAIN
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
        goes: Some(0),
        cell: |_, row| row.location.clone(),
        ..PLAIN
    },
    Column {
        title: "NODE",
        // Half an address names no client; that of IPv6 is told by its end.
        least: Some(15),
        keep: KeptEnd::End,
        goes: Some(1),
        cell: |_, row| row.node.clone(),
        ..PLAIN
    },
    Column {
        title: "WAITING",
        goes: Some(4),
        cell: |_, row| span(row.waiting),
        ..PLAIN
    },
    Column {
        title: "TIMEOUT",
        goes: Some(4),
        cell: |_, row| match row.timeout {
            Some(Duration::ZERO) => "over".to_owned(),
            Some(left) => span(left),
            None => "-".to_owned(),
        },
        // Where nothing is known of collectives, there is nothing to say.
        wanted: |list, _| list.rows.iter().any(|row| row.timeout.is_some()),
        ..PLAIN
    },
    Column {
        title: "GPUS",
        goes: Some(3),
        cell: |_, row| match row.gpus > 0.0 {
            true => row.gpus.to_string(),
            false => "-".to_owned(),
        },
        // Of those that are waited for, the dear ones.
        wanted: |list, _| list.rows.iter().any(|row| row.gpus > 0.0),
        ..PLAIN
    },
    Column {
        title: "HOLDER",
        least: Some(6),
        goes: Some(2),
        cell: |_, row| row.holder.clone(),
        ..PLAIN
    },
    id("HOLDS", |_, row| row.holds.clone()),
    id("PID", |_, row| row.pid.clone()),
    id("JOB", |_, row| row.job.clone()),
    id("TASK ID", |_, row| row.task_id.clone()),
    id("WORKER", |_, row| row.worker.clone()),
];

/// One of Ray's, whole: half of it finds nothing.
const fn id(title: &'static str, cell: fn(usize, &Row) -> String) -> Column {
    Column {
        title,
        cell,
        wanted: |_, extras| extras.ids,
        ..PLAIN
    }
}

/// Stands for the column of that title where there is little room.
static HOLDER_NAME: Column = Column {
    title: "HOLDER",
    least: Some(6),
    goes: Some(2),
    cell: |_, row| row.holder_name.clone(),
    ..PLAIN
};

/// The table, each line ended by a line feed. `columns`: width of the terminal; `None`: a pipe.
pub fn render(list: &List, extras: &Extras, columns: Option<usize>) -> String {
    let rows = &list.rows;
    let mut shown: Vec<&Column> = COLUMNS
        .iter()
        .filter(|column| (column.wanted)(list, extras))
        .collect();
    let numbered = || (extras.first..).zip(rows);
    let natural = |column: &Column| {
        let cells = numbered();
        let cells = cells.map(|(index, row)| width(&(column.cell)(index, row)));
        cells.chain([width(column.title)]).max().unwrap_or_default()
    };
    let mut widths: Vec<usize> = shown.iter().map(|column| natural(column)).collect();
    if let Some(room) = columns {
        // A holder's address is the first that is not missed.
        if total(&widths) > room
            && let Some(holder) = shown
                .iter()
                .position(|column| column.title == HOLDER_NAME.title)
        {
            shown[holder] = &HOLDER_NAME;
            widths[holder] = natural(&HOLDER_NAME);
        }
        while least_total(&shown, &widths) > room {
            let Some(goes) = (0..shown.len())
                .filter(|i| shown[*i].goes.is_some())
                .min_by_key(|i| shown[*i].goes)
            else {
                break;
            };
            shown.remove(goes);
            widths.remove(goes);
        }
        shrink(&shown, &mut widths, room);
    }
    let mut text = line(&shown, &widths, columns, |column| column.title.to_owned());
    for (index, row) in numbered() {
        text += &line(&shown, &widths, columns, |column| (column.cell)(index, row));
    }
    text
}

/// What the columns and the gaps between them take.
fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + gaps(widths.len())
}

fn gaps(columns: usize) -> usize {
    GAP * columns.saturating_sub(1)
}

/// What the columns need when all have shrunk as far as they go.
fn least_total(shown: &[&Column], widths: &[usize]) -> usize {
    let columns = shown.iter().zip(widths);
    columns
        .map(|(column, width)| column.least.map_or(*width, |least| least.min(*width)))
        .sum::<usize>()
        + gaps(widths.len())
}

fn shrink(shown: &[&Column], widths: &mut [usize], room: usize) {
    while total(widths) > room {
        let widest = (0..widths.len())
            .filter(|i| shown[*i].least.is_some_and(|least| widths[*i] > least))
            .max_by_key(|i| widths[*i]);
        match widest {
            Some(widest) => widths[widest] -= 1,
            None => break,
        }
    }
}

fn line(
    shown: &[&Column],
    widths: &[usize],
    columns: Option<usize>,
    cell: impl Fn(&Column) -> String,
) -> String {
    let cells = shown.iter().zip(widths).map(|(column, room)| {
        let cell = fit(&cell(column), *room, column.keep).into_owned();
        (cell, *room)
    });
    // Only a terminal narrower than an id and a name still has something to cut here.
    beside(cells, columns) + "\n"
}
