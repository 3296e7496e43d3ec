//! `ray-relay list --failed`: tasks that raised an exception and whose stacks agents keep.

use serde_json::{Value, json};

use super::super::job;
use super::super::relay_client::RelayClient;
use super::super::tasks::{Column, lined_up, read_timed};
use super::super::terminal::{self, print};
use super::super::{Failure, ListArgs};
use ray_relay_base::wire::human_time::span;
use ray_relay_base::wire::json::{self, typed_at};
use ray_relay_base::wire::text::replaced;
use ray_relay_view::listing::row::Row;
use ray_relay_view::listing::select::ListSelection;

pub(super) async fn run(args: ListArgs) -> Result<(), Failure> {
    let client = RelayClient::new(args.relay)?;
    let job = job::requested(&client, args.job.as_deref()).await?;
    let answer = client.failed_tasks().await?;
    let choice = ListSelection {
        order: args.sort,
        filters: args.filter,
        job,
    };
    let all = json::list(&answer, "tasks");
    let rows: Vec<Row> = all.iter().map(read).collect();
    let places = choice.of(&rows);
    let hidden = rows.len() - places.len();
    let chosen: Vec<&Value> = places.iter().map(|at| &all[*at]).collect();
    if args.json {
        let output = json!({ "tasks": chosen, "hidden": hidden, "kept": answer.get("kept") });
        print(&format!("{output:#}\n"))?;
        return Ok(());
    }
    let mut text = match (&*chosen, answer.get("kept") == Some(&Value::Bool(false))) {
        ([], true) => "Nothing is kept of tasks that fail: the relay's configuration has no [post_mortem] with enabled = true.\n".to_owned(),
        ([], false) => "Nothing is kept of any task that failed.\n".to_owned(),
        (chosen, _) => table(chosen, terminal::columns()),
    };
    if hidden > 0 && choice.job.is_none() {
        text += &format!("{hidden} more do not fit --filter.\n");
    }
    print(&text)?;
    Ok(())
}

fn read(row: &Value) -> Row {
    read_timed(row, "failed_seconds")
}

const COLUMNS: [Column; 7] = [
    ("ID", |_, row| row.id.clone()),
    ("JOB", |_, row| row.job.clone()),
    ("TASK", |_, row| row.task.clone()),
    ("NODE", |_, row| row.node.clone()),
    ("FAILED", |_, row| format!("{} ago", span(row.waiting))),
    ("RAISED", |value, _| {
        replaced(typed_at::<Option<&str>>(value, "exception").unwrap_or("-")).into_owned()
    }),
    ("WHERE", |_, row| row.location.clone()),
];

fn table(tasks: &[&Value], width_of_terminal: Option<usize>) -> String {
    let rows: Vec<(&Value, Row)> = tasks.iter().map(|row| (*row, read(row))).collect();
    lined_up(&rows, COLUMNS.to_vec(), width_of_terminal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_task_is_one_line() {
        let task = json!({"id": "3kfz0q8m", "cluster": "default", "job_id": "01000000", "name": "train", "node_ip": "10.0.0.7",
            "failed_seconds": 61.0, "exception": "KeyError\u{1b}[2J", "location": {"file": "a.py", "line": 3, "function": "f"}});
        assert_eq!(
            table(&[&task], None),
            "ID        JOB       TASK   NODE      FAILED      RAISED        WHERE\n\
             3kfz0q8m  01000000  train  10.0.0.7  1m 01s ago  KeyError\u{fffd}[2J  a.py:3\n"
        );
    }
}
