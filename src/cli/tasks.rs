//! `ray-relay tasks`: running tasks, and those that seem hung.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};
use tokio::time::sleep;

use super::ListArgs;
use super::failure::{Exit, Failure};
use super::job::{self, JobName};
use super::relay_args::RelayArgs;
use super::relay_client::RelayClient;
use super::snapshot::running::{looks, process};
use super::terminal;
use super::terminal::print;
use ray_relay_base::wire::human_time::span;
use ray_relay_base::wire::json::{self, put, take, typed, typed_at, typed_list};
use ray_relay_base::wire::text::replaced;
use ray_relay_view::listing::fold::idle;
use ray_relay_view::listing::fold::member::Member;
use ray_relay_view::listing::hooks::HookCount;
use ray_relay_view::listing::received::{LookAnswer, RowAnswer, troubles};
use ray_relay_view::listing::row::Row;
use ray_relay_view::listing::select::{Filter, ListSelection, Order};
use ray_relay_view::listing::standing;

/// Characters of a worker id that every command accepts.
const WORKER_CHARS: usize = 12;

/// `tasks`
#[derive(Debug, Args)]
pub struct TasksArgs {
    /// Only those whose name, function, actor's class or actor's name this is: a pattern such as 'train_*'
    #[arg(value_name = "PATTERN")]
    pub name: Option<String>,
    /// Only tasks of this job: its submission id, job id or Ray Train run name
    #[arg(long, value_name = "JOB")]
    pub job: Option<JobName>,
    /// Only those that have run for so long, and were at the same place in two looks
    #[arg(long, value_name = "DURATION", value_parser = ray_relay_base::config::units::parse_duration)]
    pub hung: Option<Duration>,
    /// How long the second look of --hung is after the first
    #[arg(long, value_name = "DURATION", default_value = "5s", requires = "hung", value_parser = ray_relay_base::config::units::parse_duration)]
    pub apart: Duration,
    /// Say which workers have the hook, by asking the agents of their nodes
    #[arg(long, conflicts_with = "hung")]
    pub hooks: bool,
    /// Show whole ids, and what each holds of its node
    #[arg(long, short)]
    pub verbose: bool,
    /// Print JSON: {"tasks": [{...}], "clusters": [{...}], "hidden": N}
    #[arg(long)]
    pub json: bool,
    /// Sort by this column, with ,desc the other way round: name, job, node, ...; waiting is for how long it has run
    #[arg(long, value_name = "KEY[,desc]")]
    pub sort: Option<Order>,
    /// Show only what fits: a part of a name or id, a pattern such as 'train*', or KEY=PATTERN; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub filter: Vec<Filter>,
    /// How the relay is reached.
    #[command(flatten)]
    pub relay: RelayArgs,
}

impl From<ListArgs> for TasksArgs {
    /// Converts the options of `list --running`.
    fn from(args: ListArgs) -> Self {
        Self {
            name: None,
            job: args.job,
            hung: None,
            apart: Duration::ZERO,
            hooks: args.hooks,
            verbose: args.verbose,
            json: args.json,
            sort: args.sort,
            filter: args.filter,
            relay: args.relay,
        }
    }
}

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay tasks
  ray-relay tasks 'train_*' --job 01000000
  ray-relay tasks --hung 10m
  ray-relay tasks --hooks
  ray-relay tasks --filter node=10.0.0.7 --sort waiting,desc
  ray-relay tasks --json | jq -r '.tasks[] | [.job_id, .name, .running_seconds] | @tsv'

Each Ray head is asked what runs at this moment; its answer is about a second old. Listed are tasks, methods of actors, replicas of Ray Serve (of whose requests Ray tells nothing) and drivers, by job and by function or class. What waits at a breakpoint runs too. You see what your permissions let you `list`, by the same rules as of breakpoints.

--hung 10m looks twice, --apart from each other, at the processes of those that Ray started at least 10 minutes ago. It shows those with every thread that has a user's own code at the same line of the same functions both times. Something may have happened in between: a loop may have come round to the same line. The two looks do not show where the task was in the 10 minutes before. Looking takes the permission `view`, and a source of stacks (`ray-relay snapshot --help`). What could not be looked at twice is named, and not shown as hung.

--hooks adds the column HOOK: `yes`, `no`, or `?` where that is not known, with the reason above the table. A worker with the hook (`ray-relay hook --help`) is looked at with its variables, and its debugger can be opened.

Below the table: each job with tasks that stand at a breakpoint while others of it run, and perhaps wait for them in a collective (NCCL, Gloo). Where a time-out of collectives is known, the time that is left is shown: the relay's `[release] collective_timeout`, or RAY_RELAY_COLLECTIVE_TIMEOUT in the job's runtime_env.

Then: `ray-relay snapshot --running 'train_*'` shows where all of them are.

Exit codes: 0 done, 66 there is no such job, 69 the relay cannot be reached, or nothing is listed because a head does not answer, 77 it wants a token or the token does not permit it.";

pub(super) async fn run(args: TasksArgs) -> Result<(), Failure> {
    let client = RelayClient::new(args.relay.clone())?;
    let mut answer = match args.hung {
        None => client.tasks(&query(&args)).await.map_err(job::unknown)?,
        Some(age) => hung_tasks(&client, &args, age).await?,
    };
    arrange(&mut answer, &args);
    match args.json {
        true => print(&format!("{answer:#}\n"))?,
        false => print(&text(&answer, &args, terminal::columns()))?,
    }
    match is_unknown(&answer) {
        true => Err(Failure::reported(Exit::Unreachable as u8)),
        false => Ok(()),
    }
}

/// Whether nothing is listed, and a head has not told what runs.
fn is_unknown(answer: &Value) -> bool {
    json::list(answer, "tasks").is_empty() && !troubles(answer).is_empty()
}

/// The selection, as members of a query or of a body.
fn query(args: &TasksArgs) -> Map<String, Value> {
    let mut query = Map::new();
    let one = [("name", args.name.as_deref()), ("job", args.job.as_deref())];
    for (key, value) in one {
        if let Some(value) = value {
            query.insert(key.to_owned(), value.into());
        }
    }
    if args.hooks {
        query.insert("hook".to_owned(), true.into());
    }
    query
}

/// Fetches two snapshots, and returns the tasks at the same place in both, with that place.
async fn hung_tasks(
    client: &RelayClient,
    args: &TasksArgs,
    age: Duration,
) -> Result<Value, Failure> {
    let mut payload = Value::Object(query(args));
    payload["older_than"] = age.as_secs_f64().into();
    payload["locals"] = false.into();
    let first = client.looks(&payload).await.map_err(job::unknown)?;
    sleep(args.apart).await;
    let second = client.looks(&payload).await?;
    Ok(unmoved(&first, &second, age))
}

/// Compares two snapshot answers, and returns the tasks at the same place in both.
fn unmoved(first: &Value, second: &Value, age: Duration) -> Value {
    let before: BTreeMap<_, &Value> = looks(first).iter().map(|l| (process(l), l)).collect();
    let (mut tasks, mut unknown) = (Vec::new(), Vec::new());
    for look in looks(second) {
        // A process that is new cannot be at the same place.
        let Some(&before) = before.get(&process(look)) else {
            continue;
        };
        let (then, now) = (Member::read(before, false), Member::read(look, false));
        if let Some(why) = [before, look]
            .iter()
            .find_map(|look| typed_at::<Option<&str>>(look, "error"))
        {
            unknown.push(json!({ "tasks": look.get("tasks"), "error": why }));
            continue;
        }
        if !now.is_where(&then) {
            continue;
        }
        let before = json::list(before, "tasks").iter();
        let ids: BTreeSet<&str> = before.filter_map(|row| typed_at(row, "task_id")).collect();
        for row in json::list(look, "tasks") {
            let task: RowAnswer<'_> = typed(row);
            let is_old = task.running_seconds.is_some_and(|s| s >= age.as_secs_f64());
            let is_same = task.task_id.is_none_or(|id| ids.contains(id));
            if is_old && is_same {
                let mut row = row.clone();
                put(&mut row, "place", now.location_in_words());
                tasks.push(row);
            }
        }
    }
    let of = |key: &str| second.get(key);
    json!({ "tasks": tasks, "unknown": unknown, "clusters": of("clusters"), "left_out": of("left_out"), "idle": of("idle") })
}

/// Filters and sorts the tasks; by default by job and group.
fn arrange(answer: &mut Value, args: &TasksArgs) {
    let choice = ListSelection {
        order: args.sort,
        filters: args.filter.clone(),
        job: None,
    };
    let mut all = match take(answer, "tasks") {
        Value::Array(all) => all,
        _ => Vec::new(),
    };
    all.sort_by_cached_key(|row| {
        let row: RowAnswer<'_> = typed(row);
        let job = row.job_names().next();
        let [cluster, job, group, name, id] = [row.cluster, job, row.group, row.name, row.task_id]
            .map(|text| text.map(str::to_owned));
        (cluster, job, group, row.rank.unwrap_or(u32::MAX), name, id)
    });
    let rows: Vec<Row> = all.iter().map(read).collect();
    let places = choice.of(&rows);
    let hidden = rows.len() - places.len();
    let chosen: Vec<Value> = places.into_iter().map(|at| all[at].take()).collect();
    put(answer, "tasks", chosen);
    put(answer, "hidden", hidden);
}

fn read(row: &Value) -> Row {
    read_timed(row, "running_seconds")
}

/// Reads it like a row of the list of waiting tasks, for orders and filters; its time is taken from `key`.
pub(super) fn read_timed(row: &Value, key: &str) -> Row {
    let mut row = row.clone();
    let time = take(&mut row, key);
    put(&mut row, "waiting_seconds", time);
    Row::read(&row)
}

fn text(answer: &Value, args: &TasksArgs, columns: Option<usize>) -> String {
    let mut text = troubles(answer);
    for look in typed_list::<LookAnswer<'_>>(answer, "unknown") {
        let row = Row::of(&look.tasks.into_iter().next().unwrap_or_default());
        let why = replaced(look.error.unwrap_or("?"));
        text += &format!("! {} pid {} on {}: {why}\n", row.task, row.pid, row.node);
    }
    let tasks = json::list(answer, "tasks");
    let hooks = HookCount::of(tasks);
    for sentence in hooks.unknown("process", "processes") {
        text += &format!("! {sentence}\n");
    }
    let more: u64 = typed_at(answer, "left_out");
    if more > 0 {
        text += &format!("! {more} more processes were not looked at: name fewer\n");
    }
    if !text.is_empty() {
        text.push('\n');
    }
    match (tasks, args.hung) {
        ([], _) if is_unknown(answer) => text += "It is not known what runs.\n",
        ([], None) => text += "Nothing runs that fits.\n",
        ([], Some(age)) => {
            text += &format!(
                "Nothing that has run for {} was at the same place in both looks.\n",
                span(age)
            );
        }
        _ => text += &table(tasks, args.verbose, columns),
    }
    let idle = idle::text(&[], json::list(answer, "idle"));
    if !idle.is_empty() {
        text += &format!("\n{idle}");
    }
    let standing = standing::lines(answer);
    if !standing.is_empty() {
        text += &format!("\n{standing}");
    }
    match typed_at::<u64>(answer, "hidden") {
        0 => text,
        hidden => text + &format!("{hidden} more do not match --filter.\n"),
    }
}

/// A column: its title, and the cell for a row.
pub(super) type Column = (&'static str, fn(&Value, &Row) -> String);

const CLUSTER: Column = ("CLUSTER", |_, row| row.cluster.clone());
const USUAL: [Column; 5] = [
    ("JOB", |_, row| row.job.clone()),
    ("TASK", |_, row| row.task.clone()),
    ("NODE", |_, row| row.node.clone()),
    ("PID", |_, row| row.pid.clone()),
    ("RUNNING", |value, row| {
        match typed_at::<Option<f64>>(value, "running_seconds").is_some() {
            true => span(row.waiting),
            false => "-".to_owned(),
        }
    }),
];
const SHORT: [Column; 1] = [("WORKER", |_, row| {
    row.worker.chars().take(WORKER_CHARS).collect()
})];
const VERBOSE: [Column; 3] = [
    ("HOLDS", |_, row| row.holds.clone()),
    ("TASK ID", |_, row| row.task_id.clone()),
    ("WORKER", |_, row| row.worker.clone()),
];
const HOOK: Column = ("HOOK", |value, _| {
    let word = match typed_at(value, "hook") {
        Some(true) => "yes",
        Some(false) => "no",
        None => "?",
    };
    word.to_owned()
});
const PLACE: Column = ("PLACE", |value, _| {
    replaced(typed_at::<Option<&str>>(value, "place").unwrap_or("-")).into_owned()
});

fn table(tasks: &[Value], verbose: bool, width_of_terminal: Option<usize>) -> String {
    let rows: Vec<(&Value, Row)> = tasks.iter().map(|row| (row, read(row))).collect();
    let mut columns = USUAL.to_vec();
    columns.extend(
        tasks
            .iter()
            .any(|row| row.get("hook").is_some())
            .then_some(HOOK),
    );
    match verbose {
        true => columns.extend(VERBOSE),
        false => columns.extend(SHORT),
    }
    columns.extend(
        tasks
            .iter()
            .any(|row| typed_at::<Option<&str>>(row, "place").is_some())
            .then_some(PLACE),
    );
    lined_up(&rows, columns, width_of_terminal)
}

/// Formats a table of `columns`, with a cluster column in front if there are several.
pub(super) fn lined_up(
    rows: &[(&Value, Row)],
    mut columns: Vec<Column>,
    width_of_terminal: Option<usize>,
) -> String {
    let clusters: BTreeSet<&str> = rows.iter().map(|(_, row)| &*row.cluster).collect();
    if clusters.len() > 1 {
        columns.insert(0, CLUSTER);
    }
    let titles = columns.iter().map(|(title, _)| (*title).to_owned());
    let mut lines: Vec<Vec<String>> = vec![titles.collect()];
    lines.extend(rows.iter().map(|(value, row)| {
        let cells = columns.iter().map(|(_, cell)| cell(value, row));
        cells.collect()
    }));
    ray_relay_view::listing::text::table(lines, width_of_terminal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(worker: &str, line: u32, seconds: f64) -> Value {
        json!({"tasks": [{"cluster": "default", "worker_id": worker, "task_id": worker, "name": "f", "group": "f",
            "running_seconds": seconds, "pid": 7}],
            "look": {"pid": 7, "source": "traceback", "threads": [{"id": 1, "is_main": true, "idle": true,
                "frames": [{"file": "a.py", "line": line, "function": "f"}]}]}})
    }

    #[test]
    fn hook_is_a_column() {
        let row = |worker: &str, hook: Value| json!({"cluster": "default", "worker_id": worker, "name": "f", "group": "f", "pid": 7, "hook": hook});
        let rows = [
            row("aaa", true.into()),
            row("bbb", false.into()),
            row("ccc", Value::Null),
            row("ccc", Value::Null),
        ];
        let text = table(&rows, false, None);
        let cells = |line: &str| {
            let columns: Vec<_> = line.split_ascii_whitespace().collect();
            (
                columns[columns.len() - 2].to_owned(),
                columns[columns.len() - 1].to_owned(),
            )
        };
        let all: Vec<_> = text.lines().map(cells).collect();
        let expected = [
            ("HOOK", "WORKER"),
            ("yes", "aaa"),
            ("no", "bbb"),
            ("?", "ccc"),
            ("?", "ccc"),
        ];
        let expected: Vec<_> = expected
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect();
        assert_eq!(all, expected, "{text}");
        let without = json!({"cluster": "default", "worker_id": "a", "name": "f"});
        assert!(!table(&[without], false, None).contains("HOOK"));
    }

    #[test]
    fn old_and_unmoved_task_is_hung() {
        let error = json!({"tasks": [{"cluster": "default", "worker_id": "e", "name": "g"}], "error": "it is gone"});
        let first = json!({"looks": [entry("a", 1, 600.0), entry("b", 1, 600.0), entry("c", 1, 20.0), error]});
        let mut retried = entry("e", 1, 700.0);
        retried["tasks"][0]["name"] = "g".into();
        let second = json!({"looks": [entry("a", 1, 605.0), entry("b", 2, 605.0), entry("c", 1, 25.0),
            entry("d", 1, 900.0), retried], "left_out": 0});
        let answer = unmoved(&first, &second, Duration::from_secs(600));
        let tasks = answer["tasks"].as_array().map(Vec::len);
        assert_eq!(tasks, Some(1), "{answer}");
        assert_eq!(answer["tasks"][0]["worker_id"], "a");
        assert_eq!(
            answer["tasks"][0]["place"],
            "waits outside Python, called by f (a.py:1)"
        );
        assert_eq!(answer["unknown"][0]["error"], "it is gone");
    }
}
