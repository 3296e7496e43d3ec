//! `ray-relay list --failed`: tasks that raised an exception, of which agents keep the stacks.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::relay_client::RelayClient;
use super::super::terminal::{self, say};
use super::super::{Failure, ListArgs};
use crate::listing::row::Row;
use crate::listing::select::ListSelection;
use crate::listing::text;
use crate::wire::human_time::span;
use crate::wire::text::replaced;

pub(super) async fn run(args: ListArgs) -> Result<(), Failure> {
    let client = RelayClient::new(args.relay)?;
    let told = client.failed_tasks().await?;
    let choice = ListSelection {
        order: args.sort,
        filters: args.filter,
    };
    let all = told["tasks"].as_array().cloned().unwrap_or_default();
    let rows: Vec<Row> = all.iter().map(read).collect();
    let places = choice.of(&rows);
    let hidden = rows.len() - places.len();
    let chosen: Vec<&Value> = places.iter().map(|at| &all[*at]).collect();
    if args.json {
        let told = json!({ "tasks": chosen, "hidden": hidden, "kept": told["kept"] });
        say(&format!("{told:#}\n"))?;
        return Ok(());
    }
    let mut text = match (&*chosen, told["kept"] == false) {
        ([], true) => "Nothing is kept of tasks that fail: the relay's configuration has no [post_mortem] with enabled = true.\n".to_owned(),
        ([], false) => "Nothing is kept of any task that failed.\n".to_owned(),
        (chosen, _) => table(chosen, terminal::columns()),
    };
    if hidden > 0 {
        text += &format!("{hidden} more do not fit --filter.\n");
    }
    say(&text)?;
    Ok(())
}

/// As a row of the list of what waits, which orders and filters know.
fn read(row: &Value) -> Row {
    let mut row = row.clone();
    row["waiting_seconds"] = row["failed_seconds"].take();
    Row::read(&row)
}

fn table(tasks: &[&Value], width_of_terminal: Option<usize>) -> String {
    let rows: Vec<Row> = tasks.iter().map(|row| read(row)).collect();
    let clusters: BTreeSet<&str> = rows.iter().map(|row| &*row.cluster).collect();
    let several = clusters.len() > 1;
    let titles = [
        "CLUSTER", "ID", "JOB", "TASK", "NODE", "FAILED", "RAISED", "WHERE",
    ];
    let of_one = |cells: Vec<String>| cells.into_iter().skip(usize::from(!several)).collect();
    let mut lines: Vec<Vec<String>> = vec![of_one(titles.map(str::to_owned).to_vec())];
    for (told, row) in tasks.iter().zip(&rows) {
        let raised = replaced(told["exception"].as_str().unwrap_or("-"));
        lines.push(of_one(vec![
            row.cluster.clone(),
            row.id.clone(),
            row.job.clone(),
            row.task.clone(),
            row.node.clone(),
            format!("{} ago", span(row.waiting)),
            raised.into_owned(),
            row.location.clone(),
        ]));
    }
    text::table(lines, width_of_terminal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_task_is_a_line_with_what_it_raised_where_and_when() {
        let task = json!({"id": "3kfz0q8m", "cluster": "default", "job_id": "01000000", "name": "train", "node_ip": "10.0.0.7",
            "failed_seconds": 61.0, "exception": "KeyError\u{1b}[2J", "location": {"file": "a.py", "line": 3, "function": "f"}});
        assert_eq!(
            table(&[&task], None),
            "ID        JOB       TASK   NODE      FAILED      RAISED        WHERE\n\
             3kfz0q8m  01000000  train  10.0.0.7  1m 01s ago  KeyError\u{fffd}[2J  a.py:3\n"
        );
    }
}
