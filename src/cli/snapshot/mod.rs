//! `ray-relay snapshot`: stacks and variables of paused tasks, which stay paused, and of running ones ([`running`]).

pub(super) mod running;
pub(super) mod saved;

use std::collections::BTreeMap;
use std::pin::pin;

use futures_util::stream::{self, StreamExt as _};
use serde_json::{Map, Value, json};

use self::saved::SavedError;
use crate::cli::relay_client::{RelayClient, RelayError, patiently};
use crate::cli::release::called;
use crate::cli::terminal::print;
use crate::cli::worker_session::WorkerSessionError as SessionError;
use crate::cli::{Failure, SnapshotArgs};
use ray_relay_base::wire::human_time::span;
use ray_relay_base::wire::json::{self, take, typed_at};
use ray_relay_base::wire::text::replaced;
use ray_relay_debugger::pdb::SnapshotLimits;
use ray_relay_view::listing::row::Row;

/// Number of tasks inspected at a time: the relay's limit for one user.
const MAX_CONCURRENT_SNAPSHOTS: usize = 4;

/// How deep attributes of variables are read, and how many of a frame are shown.
const MAX_DEPTH: usize = 16;
const MAX_INNER_VALUES: usize = 60;

pub(in crate::cli) const AFTER_HELP: &str = "\
Examples:
  ray-relay snapshot 3kfz0q8m
  ray-relay snapshot --all --json > paused.json
      {\"snapshots\": [{\"breakpoint\": {...}, \"threads\": [{\"name\", \"frames\": [{\"file\", \"line\", \"function\", \"source\", \"locals\": {NAME: TEXT}}]}]}]}. Attributes are listed by path, such as \"self.loss\". \"error\" in place of \"threads\" where there is none; \"exception\" and \"raised\" besides \"frames\" at a post-mortem
  ray-relay snapshot --running 'train_*' --objects
  ray-relay snapshot --job 01000000 --watch 5s
  ray-relay snapshot --job 01000000 --save hang.json
  ray-relay snapshot hang.json
  ray-relay snapshot 7h2m4q0x --save failed.json
  ray-relay snapshot --job 01000000 --json
      {\"looks\": [{\"tasks\": [{...}], \"look\": {\"threads\": [{\"name\", \"frames\": [...]}]}}], \"places\": [{\"group\", \"places\": [...]}]}; frames innermost first, \"error\" in place of \"look\" where there is none; with --watch one object a line

Paused tasks stay paused exactly as they were: nothing is released, and another debugger can attach right after. For a moment the relay counts this command as the holder.

What it does not allow:
  - a task that is being debugged, as a worker has room for one debugger (it is listed with its holder);
  - values are written by the program's own __repr__, in a thread of the probe's own. It has 0.5 s for each and 5 s for all. `‹no repr within 0.5 s›` stands for one that is late, `‹not asked for its repr: Model›` for one behind those that took the 5 s. While one hangs, the next snapshots of that task run no __repr__. With the permission `view` alone, and with --no-locals, none runs.

--running and --job look at what runs, wherever it is, and it runs on. First come those that are elsewhere than the others, with what each waits in (collectives of torch.distributed, ray.get, queues, sockets, locks, ...). Actors of the same class that run nothing are named, with what ran last. Then come the stacks of all as one tree, with ranks where they part, and with variables where the source has them. Who does not answer is named. It takes the permission `view` on each, and a source of stacks. The agent of its node gives them with variables, by the hook in the worker or py-spy. Otherwise the Ray head's own py-spy gives them without variables, where the head lets it (from Ray 2.56 on RAY_DASHBOARD_ENABLE_PROFILING=1). What gives none says why, and what would.

--objects also says, of those that wait in ray.get or ray.wait, which task makes the object, in which state it is, and who owns the object. Ray's head is asked for up to four objects, and asks all workers of the cluster for each. Which object it is only the hook in the worker tells. Of an `await` in an asyncio actor nothing is told.

Of a failed task (an id of `ray-relay list --failed`) it shows the stack as the exception left it, with the variables of each call. The exceptions of a group, and those that led to it, follow. Their arguments are written by type alone; no code of the program ran for that.

Exit codes: 0 done, 1 not for all of several, 69 the relay or the task's debugger cannot be reached, 77 refused, 66 there is no such task or job. If a filter matches nothing, the exit code is 0.";

pub(in crate::cli) async fn run(args: SnapshotArgs) -> Result<(), Failure> {
    if let Some(saved_file) = args.target.as_deref().and_then(saved::find) {
        return running::show(&saved_file?, &args);
    }
    let client = RelayClient::new(args.relay.clone())?;
    if args.running.is_some() || args.job.is_some() {
        return running::run(&client, &args).await;
    }
    let list = client.breakpoints(false).await?;
    let rows = json::list(&list, "breakpoints").to_vec();
    let chosen: Vec<Value> = match &args.target {
        None => rows,
        Some(name) => {
            let chosen = called(&rows, name)?;
            if chosen.is_empty() {
                return failed(&client, &args, name).await;
            }
            if args.save.is_some() {
                let usage = "--save keeps what runs (with --running or --job), or what is left of a failed task (by its id)";
                return Err(SessionError::Usage(usage).into());
            }
            chosen
        }
    };
    let inspected = async |(at, row): (usize, Value)| {
        let result = threads_of(&client, &args, &row).await;
        (at, row, result)
    };
    let mut snapshots = Vec::new();
    let mut refused = Vec::new();
    // A held or silent task delays no other; results are printed in the list's order.
    let mut early = BTreeMap::new();
    let tasks = stream::iter(chosen.into_iter().enumerate()).map(inspected);
    let mut results = pin!(tasks.buffer_unordered(MAX_CONCURRENT_SNAPSHOTS));
    while let Some((at, row, result)) = results.next().await {
        let snapshot = match result {
            Ok(threads) => json!({"breakpoint": row, "threads": threads}),
            Err(why) => {
                let why = SessionError::of_refusal(why)?;
                let snapshot = json!({"breakpoint": row, "error": why.to_string()});
                refused.push(why);
                snapshot
            }
        };
        early.insert(at, snapshot);
        while let Some(snapshot) = early.remove(&snapshots.len()) {
            if !args.json {
                print(&text(&snapshot))?;
            }
            snapshots.push(snapshot);
        }
    }
    if args.json {
        print(&format!("{:#}\n", json!({ "snapshots": snapshots })))?;
    } else if snapshots.is_empty() {
        print("No task waits at a breakpoint.\n")?;
    }
    match refused.pop() {
        None => Ok(()),
        Some(error) if snapshots.len() == 1 => Err(error.into()),
        Some(_) => Err(SessionError::Failed("some tasks could not be looked at".to_owned()).into()),
    }
}

/// Shows the kept stack of the failed task called `name`, the latest of that name.
async fn failed(client: &RelayClient, args: &SnapshotArgs, name: &str) -> Result<(), Failure> {
    let answer = client.failed_tasks().await?;
    let rows = json::list(&answer, "tasks");
    let Some(row) = called(rows, name)?.into_iter().next() else {
        return Err(match saved::is_file(name) {
            true => SavedError::Another(name.into()).into(),
            false => SessionError::Unknown(replaced(name).into_owned()).into(),
        });
    };
    let answer = client
        .looks(&json!({ "failed": row.get("id"), "locals": !args.no_locals }))
        .await?;
    if let Some(path) = &args.save {
        saved::write(path, &answer)?;
    }
    running::show(&answer, args)
}

/// Returns the threads of the task in `row` of the list.
async fn threads_of(
    client: &RelayClient,
    args: &SnapshotArgs,
    row: &Value,
) -> Result<Value, RelayError> {
    let snapshot = fetched(client, row.get("id"), !args.no_locals, args.limit).await;
    snapshot.map(|mut snapshot| threads(take(&mut snapshot, "threads")))
}

/// Fetches the snapshot of the paused task `id`, with values of at most `limit` characters, or without `locals`.
async fn fetched(
    client: &RelayClient,
    id: Option<&Value>,
    locals: bool,
    limit: u32,
) -> Result<Value, RelayError> {
    let mut payload = json!({ "id": id });
    if !locals {
        payload["locals"] = false.into();
    }
    if limit as usize != SnapshotLimits::default().value {
        payload["limit"] = limit.into();
    }
    patiently(async || client.snapshot(&payload).await).await
}

/// Converts the relay's `threads`: the variables of each frame by name, and without lines of source.
fn threads(mut threads: Value) -> Value {
    for thread in threads.as_array_mut().into_iter().flatten() {
        for key in ["frames", "raised"] {
            let frames = thread.get_mut(key).and_then(Value::as_array_mut);
            for frame in frames.into_iter().flatten() {
                let mut of = |key: &str| take(frame, key);
                let mut brief = json!({
                    "file": of("file"), "line": of("line"), "function": of("function"), "source": of("source"),
                });
                let mut locals = Map::new();
                for variable in json::list(frame, "variables") {
                    put_variable(&mut locals, variable, MAX_DEPTH);
                }
                if !locals.is_empty() {
                    brief["locals"] = locals.into();
                }
                *frame = brief;
            }
        }
    }
    threads
}

/// Adds a variable with its value, and its attributes by path, such as `self.loss`, up to `depth` levels.
fn put_variable(locals: &mut Map<String, Value>, variable: &Value, depth: usize) {
    let Some(name) = variable.get("name").and_then(Value::as_str) else {
        return;
    };
    let inside = json::list(variable, "inside");
    // What has parts with names of their own is not repeated below the top.
    if depth == MAX_DEPTH || inside.is_empty() {
        let value = variable.get("value").cloned().unwrap_or_default();
        locals.insert(name.to_owned(), value);
    }
    for part in inside.iter().filter(|_| depth > 0) {
        put_variable(locals, part, depth - 1);
    }
}

/// Formats the snapshot of one task.
fn text(snapshot: &Value) -> String {
    let row = Row::of(&typed_at(snapshot, "breakpoint"));
    let waiting = span(row.waiting);
    let mut text = format!(
        "{} ({}) on {}, waiting {waiting}\n",
        row.task, row.id, row.node
    );
    if let Some(error) = typed_at::<Option<&str>>(snapshot, "error") {
        return text + &format!("  ! {}\n\n", replaced(error));
    }
    for thread in json::list(snapshot, "threads") {
        text += &format!("  {}\n", word(thread.get("name")));
        frames(&mut text, json::list(thread, "frames"));
        if let Some(exception) = thread.get("exception").filter(|what| what.is_string()) {
            text += &format!("  raised {}\n", word(Some(exception)));
            frames(&mut text, json::list(thread, "raised"));
        }
    }
    text.push('\n');
    text
}

fn frames(text: &mut String, frames: &[Value]) {
    for frame in frames {
        let (file, function) = (word(frame.get("file")), word(frame.get("function")));
        *text += &match typed_at(frame, "line") {
            // Line 0 stands for frames that were left out.
            0 => format!("    {function} {file}\n"),
            line => format!("    {file}({line}){function}()\n"),
        };
        let source: &str = typed_at(frame, "source");
        if !source.is_empty() {
            *text += &format!("    -> {}\n", replaced(source));
        }
        let locals = frame.get("locals").and_then(Value::as_object);
        let mut inside = 0;
        for (name, value) in locals.into_iter().flatten() {
            inside += usize::from(name.contains(['.', '[']));
            if inside <= MAX_INNER_VALUES || !name.contains(['.', '[']) {
                *text += &format!("       {} = {}\n", replaced(name), word(Some(value)));
            }
        }
        if inside > MAX_INNER_VALUES {
            let more = inside - MAX_INNER_VALUES;
            *text += &format!("       … {more} more values inside of these; --json has all\n");
        }
    }
}

fn word(value: Option<&Value>) -> String {
    let text = value.and_then(Value::as_str);
    replaced(text.unwrap_or("?")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_shows_names_with_values() {
        let threads_json = json!([{"name": "MainThread", "frames": [
            {"file": "a.py", "line": 2, "function": "f", "source": "breakpoint()", "first": 1, "lines": ["", ""],
             "variables": [{"name": "x", "type": "int", "value": "1"}, {"name": "self", "value": "<T>", "inside": [
                {"name": "self.loss", "value": "nan"},
                {"name": "self.optim", "value": "O(lr=0.1)", "inside": [{"name": "self.optim.lr", "value": "0.1"}]}]}]},
            {"file": "b.py", "line": 3, "function": "g", "source": "", "variables": []},
        ]}]);
        let shown = threads(threads_json);
        assert_eq!(
            shown[0]["frames"][0],
            json!({"file": "a.py", "line": 2, "function": "f", "source": "breakpoint()",
                "locals": {"x": "1", "self": "<T>", "self.loss": "nan", "self.optim.lr": "0.1"}})
        );
        assert!(shown[0]["frames"][1].get("locals").is_none());
        let snapshot = json!({"breakpoint": {}, "threads": shown});
        let text = text(&snapshot);
        assert!(
            text.contains("    a.py(2)f()\n    -> breakpoint()\n       x = 1\n       self = <T>\n       self.loss = nan\n"),
            "{text}"
        );
    }
}
