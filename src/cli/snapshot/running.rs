//! `ray-relay snapshot --running`: stacks of many running tasks, folded into one tree.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::time::sleep;

use super::saved;
use crate::cli::SnapshotArgs;
use crate::cli::failure::{Exit, Failure};
use crate::cli::job;
use crate::cli::members;
use crate::cli::relay_client::RelayClient;
use crate::cli::terminal::print;
use crate::cli::worker_session::WorkerSessionError as SessionError;
use ray_relay_base::wire::human_time::{span, utc};
use ray_relay_base::wire::json::{self, put, typed, typed_at, typed_list};
use ray_relay_base::wire::text::replaced;
use ray_relay_view::listing::fold::idle;
use ray_relay_view::listing::fold::locations;
use ray_relay_view::listing::fold::member::Member;
use ray_relay_view::listing::fold::text::{self, TreeOptions};
use ray_relay_view::listing::fold::waits;
use ray_relay_view::listing::received::{RowAnswer, troubles};
use ray_relay_view::listing::row::Row;

/// Maximum number of tasks at breakpoints to name.
const MAX_NAMED_TASKS: usize = 8;

pub(super) async fn run(client: &RelayClient, args: &SnapshotArgs) -> Result<(), Failure> {
    let mut payload = json!({ "locals": !args.no_locals });
    for (key, value) in [
        ("name", args.running.as_deref()),
        ("job", args.job.as_deref()),
    ] {
        if let Some(value) = value {
            payload[key] = value.into();
        }
    }
    for (key, is_set) in [("objects", args.objects), ("native", args.native)] {
        if is_set {
            payload[key] = true.into();
        }
    }
    let answer = client.looks(&payload).await.map_err(job::unknown)?;
    if let Some(path) = &args.save {
        saved::write(path, &answer)?;
    }
    let Some(apart) = args.watch else {
        return show(&answer, args);
    };
    let mut before = answer;
    print_answer(&before, args, "\n")?;
    loop {
        sleep(apart).await;
        let now = client.looks(&payload).await?;
        if args.json {
            print_answer(&now, args, "\n")?;
        } else {
            print(&progress(&before, &now))?;
        }
        before = now;
    }
}

/// Shows an `answer` of the relay, or a saved one.
pub(super) fn show(answer: &Value, args: &SnapshotArgs) -> Result<(), Failure> {
    print_answer(answer, args, "")?;
    let looks = looks(answer);
    let silent: Vec<&str> = looks
        .iter()
        .filter_map(|look| typed_at(look, "error"))
        .collect();
    match (&*silent, looks.len()) {
        (_, 0) if is_filter(args) => match args.json {
            true => Ok(()),
            false => Ok(print(
                "Nothing runs that fits; `ray-relay tasks` lists what does.\n",
            )?),
        },
        (_, 0) => {
            let none = "nothing runs that fits; `ray-relay tasks` lists what does";
            Err(SessionError::NotFound(none.to_owned()).into())
        }
        ([], _) => Ok(()),
        // Already printed.
        _ => Err(Failure::reported(Exit::Failed as u8)),
    }
}

/// Whether the arguments select among what exists, and do not name one task or function.
fn is_filter(args: &SnapshotArgs) -> bool {
    match &args.running {
        Some(pattern) => members::is_filter(pattern),
        None => args.job.is_some(),
    }
}

fn print_answer(answer: &Value, args: &SnapshotArgs, behind: &str) -> Result<(), Failure> {
    let members = read_members(answer);
    if args.json {
        let mut answer = answer.clone();
        put(&mut answer, "places", locations::json(&members));
        print(&match args.watch {
            Some(_) => format!("{answer}\n"),
            None => format!("{answer:#}\n"),
        })?;
        return Ok(());
    }
    if members.is_empty() && args.watch.is_none() {
        return Ok(());
    }
    let options = TreeOptions {
        all_threads: args.all_threads,
        locals: !args.no_locals,
    };
    let (summary, tree) = (text::summary(&members), text::tree(&members, options));
    let idle = json::list(answer, "idle");
    let objects = idle::text(&members, idle) + &waits::text(&members, looks(answer));
    print(&format!(
        "{}\n{summary}{objects}\n{tree}{behind}",
        head(answer)
    ))?;
    Ok(())
}

pub(in crate::cli) fn looks(answer: &Value) -> &[Value] {
    json::list(answer, "looks")
}

/// The first task of the process in `look`.
fn first_task(look: &Value) -> &Value {
    json::list(look, "tasks").first().unwrap_or(&Value::Null)
}

fn read_members(answer: &Value) -> Vec<Member> {
    let jobs = looks(answer).iter().map(first_task);
    let jobs: BTreeSet<&str> = jobs.filter_map(|task| typed_at(task, "job_id")).collect();
    let read = |look: &Value| Member::read(look, jobs.len() > 1);
    looks(answer).iter().map(read).collect()
}

/// Heading: number of processes, time, and troubles.
fn head(answer: &Value) -> String {
    let looks = looks(answer);
    let is_seen = |look: &&Value| typed_at::<Option<&str>>(look, "error").is_none();
    let seen = looks.iter().filter(is_seen).count();
    let when = moment(answer)
        .map(|when| format!(" at {when}"))
        .unwrap_or_default();
    let failed = |look: &Value| typed_at::<&str>(first_task(look), "state") == "failed";
    let mut text = match looks {
        [only] if failed(only) => failed_head(&typed(first_task(only)), &when),
        looks => format!("{seen} of {} processes seen{when}\n", looks.len()),
    };
    text += &troubles(answer);
    text += &waiting(looks);
    match typed_at::<u64>(answer, "left_out") {
        0 => text,
        more => text + &format!("! {more} more were not looked at: name fewer\n"),
    }
}

/// Names the tasks that wait at a breakpoint, by the ids for other commands.
fn waiting(looks: &[Value]) -> String {
    let tasks = looks.iter().flat_map(|look| typed_list(look, "tasks"));
    let waiting = tasks.filter_map(|task: RowAnswer<'_>| Some((task.breakpoint?, task)));
    // Several tasks of one process wait at its one breakpoint.
    let waiting: BTreeMap<&str, RowAnswer<'_>> = waiting.collect();
    let named = waiting.iter().take(MAX_NAMED_TASKS).map(|(id, task)| {
        let row = Row::of(task);
        format!("  {} ({})\n", row.task, replaced(id))
    });
    let named: String = named.collect();
    let more = match waiting.len().saturating_sub(MAX_NAMED_TASKS) {
        0 => String::new(),
        more => format!("  and {more} more: `ray-relay list` has their ids\n"),
    };
    match &*named {
        "" => String::new(),
        named => {
            format!("At a breakpoint, and `ray-relay release ID` lets it run on:\n{named}{more}")
        }
    }
}

/// Heading for a failed task: name, time and location.
fn failed_head(task: &RowAnswer<'_>, when: &str) -> String {
    let row = Row::of(task);
    let after = task.running_seconds;
    let after = after.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let after = after.map_or(String::new(), |time| format!(", after {}", span(time)));
    format!(
        "{} ({}) of job {} on {} pid {} failed{when}{after}\n",
        row.task, row.id, row.job, row.node, row.pid
    )
}

fn moment(answer: &Value) -> Option<String> {
    let seconds = Duration::try_from_secs_f64(typed_at::<Option<f64>>(answer, "taken")?).ok()?;
    let when = utc(UNIX_EPOCH.checked_add(seconds)?);
    Some(when.format("%Y-%m-%d %H:%M:%S UTC").to_string())
}

/// Key of the process in `look`.
pub(in crate::cli) fn process(look: &Value) -> (Option<&str>, Option<&str>) {
    let task: RowAnswer<'_> = typed(first_task(look));
    (task.cluster, task.worker_id)
}

/// The processes of `answer`, by their keys.
pub(in crate::cli) fn keyed(answer: &Value) -> BTreeMap<(Option<&str>, Option<&str>), Member> {
    let keys = looks(answer).iter().map(process);
    keys.zip(read_members(answer)).collect()
}

/// Describes the changes from `before` to `now`.
fn progress(before: &Value, now: &Value) -> String {
    let (earlier, later) = (keyed(before), keyed(now));
    let gone = earlier
        .keys()
        .filter(|key| !later.contains_key(*key))
        .count();
    let new = later
        .keys()
        .filter(|key| !earlier.contains_key(*key))
        .count();
    let both = later
        .iter()
        .filter_map(|(key, member)| Some((member, earlier.get(key)?)));
    let moved = both.filter(|(member, before)| !member.is_where(before));
    let moved: Vec<Member> = moved.map(|(member, _)| member.clone()).collect();
    let mut summary = format!("{} of {} moved", moved.len(), later.len());
    for (count, word) in [(new, "new"), (gone, "gone")] {
        if count > 0 {
            summary += &format!(", {count} {word}");
        }
    }
    let when = moment(now).unwrap_or_default();
    let standing = later.len() - moved.len() - new;
    let all: Vec<Member> = later.into_values().collect();
    let still = match standing {
        0 => String::new(),
        count => format!(", {count} where they were"),
    };
    format!("{when}: {summary}{still}\n{}\n", text::summary(&all))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(rank: u64, line: u32) -> Value {
        json!({"tasks": [{"cluster": "default", "worker_id": rank.to_string(), "name": "f", "group": "f", "rank": rank}],
            "look": {"pid": 7, "source": "traceback", "threads": [{"id": 1, "is_main": true, "idle": false,
                "frames": [{"file": "a.py", "line": line, "function": "f"}]}]}})
    }

    #[test]
    fn task_at_a_breakpoint_is_named_by_its_id() {
        assert_eq!(waiting(&[entry(0, 1)]), "");
        let mut all: Vec<Value> = (0..10).map(|rank| entry(rank, 1)).collect();
        all[3]["tasks"][0]["breakpoint"] = "7k2m9qxd".into();
        assert_eq!(
            waiting(&all),
            "At a breakpoint, and `ray-relay release ID` lets it run on:\n  f rank 3 (7k2m9qxd)\n"
        );
        for (at, entry) in all.iter_mut().enumerate() {
            entry["tasks"][0]["breakpoint"] = format!("{at}k2m9qxd").into();
        }
        let text = waiting(&all);
        assert!(
            text.ends_with("  f rank 7 (7k2m9qxd)\n  and 2 more: `ray-relay list` has their ids\n"),
            "{text}"
        );
    }

    #[test]
    fn progress_reports_new_gone_and_moved_tasks() {
        let before = json!({"taken": 60.0, "looks": [entry(0, 1), entry(1, 1), entry(2, 1)]});
        let now = json!({"taken": 65.0, "looks": [entry(0, 1), entry(1, 2), entry(3, 1)]});
        let text = progress(&before, &now);
        assert!(
            text.starts_with(
                "1970-01-01 00:01:05 UTC: 1 of 3 moved, 1 new, 1 gone, 1 where they were\n"
            ),
            "{text}"
        );
        assert!(
            text.contains("f: rank 1 is elsewhere than the other 2 of 3\n"),
            "{text}"
        );
    }
}
