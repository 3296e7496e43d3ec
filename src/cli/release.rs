//! `ray-relay release`: resumes paused tasks without attaching to each.

use std::io::{self, IsTerminal};

use serde::Deserialize;
use serde_json::{Value, json};

use super::ReleaseArgs;
use super::failure::{Exit, Failure};
use super::job;
use super::members::{complete, once_named, rows_of};
use super::relay_client::RelayClient;
use super::terminal::print;
use super::worker_session::WorkerSessionError as SessionError;
use ray_relay_access::policy::Pattern;
use ray_relay_base::wire::human_time::span;
use ray_relay_base::wire::json::{typed, typed_at, typed_list};
use ray_relay_base::wire::text::replaced;
use ray_relay_ray::ray::registry::{BreakpointId, BreakpointIdPrefix, names_worker};
use ray_relay_view::group::members::count_unnamed;
use ray_relay_view::listing::job::MeantJob;
use ray_relay_view::listing::received::RowAnswer;
use ray_relay_view::listing::row::Row;

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay release 3kfz0q8m
  ray-relay release --older-than 30m --job 01000000 --yes
  ray-relay release --all --cluster ml.train
  ray-relay release --all --parked --job 01000000
      the whole job, also what others have parked: takes `admin`
  ray-relay release --force 3kfz0q8m

A released task runs on as if it had never stopped; one that waits after an exception fails with it. Tasks that are being debugged are left alone, and so are, with --all or --older-than, those that others have parked, unless --parked is given. Your own parked session with a task ends. With more than one task you are asked first, unless --yes is there.

A task whose debugger is gone (`unreachable` in the list) cannot be released. --force ends its worker process through Ray: the task fails, or Ray runs it again where its max_retries say so; for a driver, this stops the whole job. It takes the permission `terminate`, and some seconds. With --all or --older-than it means the unreachable ones alone.

For a policy that does it by itself see [release] of the configuration.

Exit codes: 0 done, or nothing waits that fits; 1 not for all of them; 66 there is no such breakpoint or job; 69 the relay cannot be reached; 77 it wants a token, or yours releases nothing.";

/// Maximum number of tasks of the same name in a message.
const MAX_CANDIDATES: usize = 8;
/// Maximum number of ids per request.
const MAX_IDS_PER_REQUEST: usize = 500;
/// The same for workers to end, which takes longer.
const MAX_ENDS_PER_REQUEST: usize = 8;
/// Keys of a row by which it can be named.
const NAMES: [&str; 6] = ["id", "name", "title", "actor_name", "task_id", "worker_id"];
/// State of a parked row.
const PARKED: &str = "parked";

pub(super) async fn run(args: ReleaseArgs) -> Result<(), Failure> {
    let client = RelayClient::new(args.relay.clone())?;
    let job = job::only_requested(&client, args.job.as_deref(), args.cluster.as_deref()).await?;
    let job = job.as_ref();
    let is_narrowed = args.job.is_some() || args.cluster.is_some();
    let is_id = |target: &String| target.parse::<BreakpointId>().is_ok();
    let by_name = args.job.is_some() || args.target.as_ref().is_some_and(|one| !is_id(one));
    let choose = |list: &Value| {
        let rows = rows_of(list).to_vec();
        let called = chosen(&args, job, None, rows.clone()).unwrap_or_default();
        let unnamed = match by_name {
            true => count_unnamed(rows.iter(), &called),
            false => 0,
        };
        (rows, unnamed)
    };
    let (rows, unnamed) = once_named(&client, choose).await?;
    // For several, the caller's own parks are included, and other users' only with --parked.
    let is_parked = |row: &Value| is(row, "state", PARKED) && args.target.is_none() && !args.parked;
    let own = match rows.iter().any(is_parked) {
        true => client.subject().await?,
        false => None,
    };
    let chosen = chosen(&args, job, own.as_ref(), rows)?;
    // A worker that is in no list: the relay queries the head for it. Its job and cluster are unknown here.
    let unlisted = args.target.as_deref();
    let unlisted = unlisted.filter(|target| !is_narrowed && names_worker(target));
    if chosen.is_empty() && unlisted.is_none() {
        if let Some(target) = &args.target {
            complete(unnamed, Ok(()))?;
            return Err(SessionError::Unknown(replaced(target).into_owned()).into());
        }
        print("No waiting task matches.\n")?;
        return Ok(());
    }
    if chosen.len() > 1 && !args.yes && !agreed(&chosen, args.force)? {
        return Err(SessionError::Failed("nothing was released".to_owned()).into());
    }
    let listed = chosen.iter().filter_map(|row| typed_at(row, "id"));
    let ids: Vec<&str> = match unlisted.filter(|_| chosen.is_empty()) {
        Some(worker) => vec![worker],
        None => listed.collect(),
    };
    let mut failed = false;
    if args.force {
        print("Ending the worker through Ray takes some seconds …\n")?;
    }
    // A relay that does not know `force` refuses it.
    let payload = |ids: &[&str]| match args.force {
        true => json!({ "ids": ids, "force": true }),
        false => json!({ "ids": ids }),
    };
    let at_once = if args.force {
        MAX_ENDS_PER_REQUEST
    } else {
        MAX_IDS_PER_REQUEST
    };
    for ids in ids.chunks(at_once) {
        let answer = client.release(&payload(ids)).await?;
        for result in typed_list::<ReleaseAnswer<'_>>(&answer, "results") {
            let id = replaced(result.id.unwrap_or_default());
            let text = |why: Option<&str>| replaced(why.unwrap_or("no reason given")).into_owned();
            if result.released {
                print(&format!("{id}  released\n"))?;
            } else if result.ended {
                print(&format!("{id}  worker ended: {}\n", text(result.why)))?;
            } else {
                failed = true;
                let what = if args.force { "ended" } else { "released" };
                print(&format!("{id}  not {what}: {}\n", text(result.error)))?;
            }
        }
    }
    let done = match failed {
        true => Err(Failure::reported(Exit::Failed as u8)),
        false => Ok(()),
    };
    complete(unnamed, done)
}

/// The result for one task.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ReleaseAnswer<'a> {
    id: Option<&'a str>,
    released: bool,
    ended: bool,
    why: Option<&'a str>,
    error: Option<&'a str>,
}

/// Selects the tasks from `rows` of the list, of `job` if that is given; `own`: the caller's name, if any task is
/// parked.
fn chosen(
    args: &ReleaseArgs,
    job: Option<&MeantJob>,
    own: Option<&Value>,
    rows: Vec<Value>,
) -> Result<Vec<Value>, SessionError> {
    let mut chosen = match &args.target {
        Some(target) => called(&rows, target)?,
        None => rows,
    };
    chosen.retain(|row| is_of(row, job, args.cluster.as_deref()) && fits(args, own, row));
    Ok(chosen)
}

fn fits(args: &ReleaseArgs, own: Option<&Value>, row: &Value) -> bool {
    args.older_than.is_none_or(|age| {
        let waiting: Option<f64> = typed_at(row, "waiting_seconds");
        waiting.is_some_and(|waiting| waiting >= age.as_secs_f64())
    })
        // For several, never includes those that a user works on.
        && (args.target.is_some()
            || match args.force {
                true => is(row, "state", "unreachable"),
                false if args.parked && is(row, "state", PARKED) => true,
                false => is(row, "state", "paused") || is_own_park(own, row),
            })
}

/// Whether `row` is parked by `own`; without authentication, all parks belong to everyone.
fn is_own_park(own: Option<&Value>, row: &Value) -> bool {
    own.is_some_and(|own| typed::<RowAnswer<'_>>(row).is_park_of(own))
}

/// Whether `row` of the list belongs to this job and cluster, if given.
pub(super) fn is_of(row: &Value, job: Option<&MeantJob>, cluster: Option<&str>) -> bool {
    job.is_none_or(|job| job.has(&typed(row)))
        && cluster.is_none_or(|cluster| is(row, "cluster", cluster))
}

fn is(row: &Value, key: &str, text: &str) -> bool {
    let known: Option<&str> = typed_at(row, key);
    known.is_some_and(|known| known.eq_ignore_ascii_case(text))
}

/// Returns the `rows` of the list called `name`; if there is none, the one with that id prefix.
///
/// # Errors
/// The prefix is ambiguous; the error lists the ids.
pub(super) fn called(rows: &[Value], name: &str) -> Result<Vec<Value>, SessionError> {
    let called = rows.iter().filter(|row| is_called(row, name));
    let called: Vec<Value> = called.cloned().collect();
    let Some(begun) = name
        .parse::<BreakpointIdPrefix>()
        .ok()
        .filter(|_| called.is_empty())
    else {
        return Ok(called);
    };
    let ids = rows.iter().map(Row::read).map(|row| (row.id, row.task));
    match begun.only(ids) {
        Ok(Some(id)) => Ok(rows
            .iter()
            .filter(|row| is(row, "id", &id))
            .cloned()
            .collect()),
        Ok(None) => Ok(called),
        Err(several) => Err(SessionError::NotFound(several.to_string())),
    }
}

/// Returns the id of the only task of `list` called `name`, or `name` itself if the relay has the better error message.
///
/// # Errors
/// Several tasks have that name, or match it as a pattern.
pub(super) fn only_called(list: &Value, name: String) -> Result<String, SessionError> {
    if name.parse::<BreakpointId>().is_ok() {
        return Ok(name);
    }
    let rows = rows_of(list);
    let mut called = called(rows, &name)?;
    called.extend(rows.iter().filter(|row| is_fitted(row, &name)).cloned());
    match called.as_slice() {
        [] => Ok(name),
        [only] => Ok(Row::read(only).id),
        several => {
            let each = several.iter().map(Row::read);
            let each = each.map(|row| format!("{} ({} @ {})", row.id, row.task, row.location));
            let candidates: Vec<String> = each.take(MAX_CANDIDATES).collect();
            let more = match several.len() > MAX_CANDIDATES {
                true => ", …",
                false => "",
            };
            Err(SessionError::Failed(format!(
                "{} tasks are called {}: {}{more}; name one by its id, or use --all",
                several.len(),
                replaced(&name),
                candidates.join(", "),
            )))
        }
    }
}

/// Whether `row` of the list has `name` as its id or as any of its names.
fn is_called(row: &Value, name: &str) -> bool {
    NAMES.iter().any(|key| is(row, key, name))
}

/// Whether a name of `row` matches `name`, if that is a pattern.
fn is_fitted(row: &Value, name: &str) -> bool {
    let pattern = Pattern::new(name);
    let mut names = NAMES.iter().filter_map(|key| row[*key].as_str());
    name.contains('*') && names.any(|name| pattern.matches(name))
}

fn agreed(chosen: &[Value], force: bool) -> io::Result<bool> {
    for row in chosen.iter().map(Row::read) {
        let waiting = span(row.waiting);
        print(&format!(
            "{}  {waiting}  {}  {}\n",
            row.id, row.task, row.location
        ))?;
    }
    if !io::stdin().is_terminal() {
        print(match force {
            true => "These are several: say --yes to end all of their workers.\n",
            false => "These are several: say --yes to let all of them run on.\n",
        })?;
        return Ok(false);
    }
    print(&match force {
        true => format!("End these {} workers? [y/N] ", chosen.len()),
        false => format!("Let these {} tasks run on? [y/N] ", chosen.len()),
    })?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn args(line: &[&str]) -> ReleaseArgs {
        let arguments = ["ray-relay", "release"].iter().chain(line);
        match Cli::try_parse_from(arguments).unwrap().command {
            Command::Release(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn release_selects_the_requested_tasks() {
        let row = json!({"id": "3kfz0q8m", "name": "step", "job_id": "01000000", "waiting_seconds": 1900.0, "state": "paused"});
        let held = json!({"id": "3kfz0q8m", "name": "step", "waiting_seconds": 1900.0, "state": "attached"});
        let ann = json!("ann");
        let is_selected = |args: &ReleaseArgs, row: &Value| {
            let rows = vec![row.clone()];
            let job = args.job.as_deref();
            let job = job.map(|name| MeantJob::listed(name, &rows));
            let chosen = chosen(args, job.as_ref(), Some(&ann), rows);
            !chosen.unwrap().is_empty()
        };
        assert!(is_selected(&args(&["3kfz"]), &row) && !is_selected(&args(&["3kfa"]), &row));
        assert!(is_selected(&args(&["3KFZ0Q8M"]), &row) && is_selected(&args(&["step"]), &held));
        assert!(!is_selected(&args(&["load"]), &row));
        assert!(is_selected(&args(&["--all"]), &row) && !is_selected(&args(&["--all"]), &held));
        let of_job = args(&["--older-than", "30m", "--job", "01000000"]);
        assert!(is_selected(&of_job, &row));
        assert!(!is_selected(&args(&["--older-than", "40m"]), &row));
        assert!(!is_selected(&args(&["--all", "--job", "02000000"]), &row));
        let mut located = row.clone();
        located["cluster"] = "ml.train".into();
        assert!(is_selected(
            &args(&["--all", "--cluster", "ml.train"]),
            &located
        ));
        assert!(!is_selected(
            &args(&["--all", "--cluster", "ml.serve"]),
            &located
        ));
        assert!(!is_selected(
            &args(&["step", "--cluster", "ml.serve"]),
            &located
        ));
        let unreachable = json!({"id": "3kfz0q8m", "name": "step", "state": "unreachable"});
        let forced = args(&["--all", "--force"]);
        assert!(
            !is_selected(&args(&["--all"]), &unreachable) && is_selected(&forced, &unreachable)
        );
        assert!(
            !is_selected(&forced, &row) && is_selected(&args(&["--force", "step"]), &unreachable)
        );
        let mut parked = json!({"id": "3kfz0q8m", "name": "step", "job_id": "01000000", "waiting_seconds": 1900.0, "state": "parked", "holder": {"subject": "ann"}});
        assert!(is_selected(&args(&["--all"]), &parked) && is_selected(&of_job, &parked));
        assert!(
            !is_selected(&forced, &parked)
                && !is_selected(&args(&["--older-than", "40m"]), &parked)
        );
        parked["holder"]["subject"] = "ben".into();
        assert!(!is_selected(&args(&["--all"]), &parked) && is_selected(&args(&["step"]), &parked));
        let all_parked = args(&["--all", "--parked", "--job", "01000000"]);
        assert!(
            is_selected(&all_parked, &parked)
                && is_selected(&all_parked, &row)
                && !is_selected(&all_parked, &held)
        );
        assert!(!is_selected(
            &args(&["--all", "--parked", "--job", "02000000"]),
            &parked
        ));
        for meaningless in [["--all", "--force"], ["--job", "01000000"]] {
            let line = [&["ray-relay", "release", "--parked"][..], &meaningless].concat();
            assert!(Cli::try_parse_from(line).is_err(), "{meaningless:?}");
        }
        assert!(Cli::try_parse_from(["ray-relay", "release"]).is_err());
        assert!(Cli::try_parse_from(["ray-relay", "release", "x", "--all"]).is_err());
    }
}
