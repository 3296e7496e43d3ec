//! `ray-relay park`: keeps paused tasks where they are, for the caller to resume.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::{Value, json};

use super::failure::Fails;
use super::job;
use super::members::{complete, once_named, rows_of};
use super::relay_client::RelayClient;
use super::release::{called, is_of};
use super::terminal::print;
use super::worker_session::WorkerSessionError as SessionError;
use super::{Failure, ParkArgs};
use ray_relay_base::config::units::format_duration;
use ray_relay_base::wire::human_time::{span, utc};
use ray_relay_base::wire::json::{typed, typed_at};
use ray_relay_base::wire::text::replaced;
use ray_relay_ray::ray::registry::BreakpointId;
use ray_relay_view::group::members::count_unnamed;
use ray_relay_view::listing::job::MeantJob;
use ray_relay_view::listing::received::RowAnswer;

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay park 3kfz0q8m --for 16h
  ray-relay park train_step --job 01000000 --for 16h
      all ranks of that job; without --job, a name that tasks of several jobs have is refused
  ray-relay park train_step --for 16h --json
      {\"parked\": [{\"id\", \"parked_until\", \"seconds\"}]}, in seconds since 1970, with
      \"credential_expires\" where that is before, and \"warning\" of Serve's health check; \"error\" in place of these where it is not parked

The task stays at its line, kept for you alone, whatever becomes of your editor and your machine. To resume, attach again with an editor, `ray-relay debug` or `nc`. When the time is over the task runs on; `ray-relay release` lets it run earlier. A task that you have parked already is kept for the new time from now on; without --for its time is never shortened.

The relay limits the time: `[park] max`, or `park_max` of the policy. Without --for it is the time for which a lost session is kept (15m, unless configured otherwise). The park ends earlier when your credential is revoked or expires, which is said, or at a limit of the policy. To park a task that you debug at this moment, leave it in your editor (VS Code: Disconnect and Suspend).

Exit codes: 0 done, 1 not for all of several, or several jobs have such a task, 66 there is no such task or job, 69 the relay or the task's debugger cannot be reached, 77 refused (for so long, by the relay, or because another user has it).";

/// The name belongs to tasks of several jobs, and maybe of several users.
#[derive(Debug, thiserror::Error)]
#[error("tasks called {name} are of several jobs, and none is parked: {jobs}")]
struct SeveralJobs {
    name: String,
    jobs: String,
}

impl Fails for SeveralJobs {
    fn next_step(&self) -> Option<Cow<'static, str>> {
        Some("say which with --job JOB, in one of several clusters also --cluster NAME; or name one task by its id".into())
    }
}

/// Maximum number of jobs in a message.
const MAX_NAMED_JOBS: usize = 8;

/// Selects the tasks from `rows` of the list, of `job` if that is given.
fn chosen(args: &ParkArgs, job: Option<&MeantJob>, rows: &[Value]) -> Result<Vec<Value>, Failure> {
    let mut chosen = called(rows, &args.target)?;
    chosen.retain(|row| is_of(row, job, args.cluster.as_deref()));
    if chosen.is_empty() {
        return Err(SessionError::Unknown(replaced(&args.target).into_owned()).into());
    }
    let mut jobs: BTreeMap<(&str, &str), (Option<&str>, usize)> = BTreeMap::new();
    for row in chosen.iter().map(typed::<RowAnswer<'_>>) {
        let of = (row.cluster.unwrap_or("-"), row.job_id.unwrap_or("-"));
        jobs.entry(of).or_insert((row.submission_id, 0)).1 += 1;
    }
    if jobs.len() > 1 {
        let named = jobs.iter().take(MAX_NAMED_JOBS);
        let named = named.map(|((cluster, id), (submission, count))| match submission {
            Some(name) => format!("{count} of {name} (job {id}) on {cluster}"),
            None => format!("{count} of {id} on {cluster}"),
        });
        let mut jobs: Vec<String> = named
            .chain((jobs.len() > MAX_NAMED_JOBS).then(|| "…".into()))
            .collect();
        jobs.iter_mut()
            .for_each(|job| *job = replaced(job).into_owned());
        return Err(SeveralJobs {
            name: replaced(&args.target).into_owned(),
            jobs: jobs.join(", "),
        }
        .into());
    }
    Ok(chosen)
}

pub(super) async fn run(args: ParkArgs) -> Result<(), Failure> {
    let client = RelayClient::new(args.relay.clone())?;
    let job = job::only_requested(&client, args.job.as_deref(), args.cluster.as_deref()).await?;
    let is_id = args.target.parse::<BreakpointId>().is_ok();
    let choose = |list: &Value| {
        let rows = rows_of(list);
        let selected = chosen(&args, job.as_ref(), rows);
        let called = selected.as_deref().unwrap_or_default();
        let unnamed = match is_id {
            true => 0,
            false => count_unnamed(rows.iter(), called),
        };
        (selected, unnamed)
    };
    let (chosen, unnamed) = once_named(&client, choose).await?;
    let chosen = chosen?;
    let mut parked = Vec::new();
    let mut refused = Vec::new();
    for row in &chosen {
        let id = replaced(typed_at(row, "id")).into_owned();
        let mut payload = json!({ "id": id });
        if let Some(time) = args.time {
            payload["for"] = format_duration(time).into();
        }
        let result = match client.park(&payload).await {
            Ok(result) => result,
            Err(why) => {
                let why = SessionError::of_refusal(why)?;
                let result = json!({"id": id, "error": why.to_string()});
                refused.push(why);
                result
            }
        };
        let answer: ParkAnswer<'_> = typed(&result);
        if !args.json && (answer.error.is_none() || chosen.len() > 1) {
            print(&text(&id, &answer))?;
        }
        parked.push(result);
    }
    if args.json {
        print(&format!("{:#}\n", json!({ "parked": parked })))?;
    }
    let done = match refused.pop() {
        None => Ok(()),
        Some(why) if chosen.len() == 1 => Err(why.into()),
        Some(_) => Err(SessionError::Failed("some tasks are not parked".to_owned()).into()),
    };
    complete(unnamed, done)
}

/// The relay's answer for one task.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ParkAnswer<'a> {
    error: Option<&'a str>,
    parked_until: Option<f64>,
    seconds: f64,
    credential_expires: Option<f64>,
    warning: Option<&'a str>,
}

/// Describes the result for one task.
fn text(id: &str, answer: &ParkAnswer<'_>) -> String {
    if let Some(why) = answer.error {
        return format!("{id}  not parked: {}\n", replaced(why));
    }
    let moment = |seconds: Option<f64>| {
        let after = Duration::try_from_secs_f64(seconds?.max(0.0)).ok()?;
        Some(utc(UNIX_EPOCH.checked_add(after)?).format("%Y-%m-%d %H:%M UTC"))
    };
    let remaining = answer.seconds.max(0.0).round();
    let remaining = Duration::try_from_secs_f64(remaining).unwrap_or_default();
    let mut text = match moment(answer.parked_until) {
        Some(until) => format!("{id}  parked until {until}, for {}\n", span(remaining)),
        None => format!("{id}  parked, and resumed already\n"),
    };
    if let Some(expires) = moment(answer.credential_expires) {
        text += &format!(
            "    your credential expires before that, at {expires}, and the task runs on then\n"
        );
    }
    if let Some(warning) = answer.warning {
        text += &format!("    {}\n", replaced(warning));
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn selected(line: &[&str], rows: &[Value]) -> Result<Vec<Value>, Failure> {
        let arguments = ["ray-relay", "park"].iter().chain(line);
        match Cli::try_parse_from(arguments).unwrap().command {
            Command::Park(args) => {
                let job = args.job.as_deref();
                let job = job.map(|name| MeantJob::listed(name, rows));
                chosen(&args, job.as_ref(), rows)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn ambiguous_job_name_is_refused() {
        let row = |id: &str, cluster: &str, job: &str| json!({"id": id, "name": "step", "cluster": cluster, "job_id": job});
        let job_rows = [
            row("3kfz0q8m", "a", "01000000"),
            row("4kfz0q8m", "a", "01000000"),
        ];
        let ids = |rows: &[Value]| {
            rows.iter()
                .map(|row| row["id"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            ids(&selected(&["step"], &job_rows).unwrap()),
            ["3kfz0q8m", "4kfz0q8m"]
        );
        let mut all = job_rows.to_vec();
        all.push(row("5kfz0q8m", "a", "02000000"));
        all.push(row("6kfz0q8m", "b", "01000000"));
        let error = selected(&["step", "--for", "16h"], &all).unwrap_err();
        assert_eq!(error.code(), 1);
        let message = error.sentence.unwrap();
        assert!(
            message.contains("none is parked")
                && message.contains("2 of 01000000 on a, 1 of 02000000 on a, 1 of 01000000 on b"),
            "{message}"
        );
        // Ray allows the same submission id in two clusters, and Ben may name his job like Ann's id.
        let same = [("7kfz0q8m", "01000000"), ("8kfz0q8m", "02000000")];
        let same = same.map(|(id, job)| {
            let mut row = row(id, "a", job);
            row["submission_id"] = "01000000".into();
            row
        });
        let error = selected(&["step"], &same).unwrap_err();
        let message = error.sentence.unwrap();
        assert!(
            message.contains("1 of 01000000 (job 01000000) on a, 1 of 01000000 (job 02000000)"),
            "{message}"
        );
        // An id selects one task, even if others share its name.
        assert_eq!(ids(&selected(&["5kfz0q8m"], &all).unwrap()), ["5kfz0q8m"]);
        assert!(selected(&["step", "--job", "01000000"], &all).is_err());
        let narrow = ["step", "--job", "01000000", "--cluster", "a"];
        assert_eq!(ids(&selected(&narrow, &all).unwrap()), ids(&job_rows));
        assert_eq!(
            selected(&["step", "--job", "03000000"], &all)
                .unwrap_err()
                .code(),
            66
        );
    }

    #[test]
    fn park_deadline_and_earlier_ends_are_shown() {
        let answer = json!({"parked_until": 43_200.4, "seconds": 43_199.9});
        assert_eq!(
            text("3kfz0q8m", &typed(&answer)),
            "3kfz0q8m  parked until 1970-01-01 12:00 UTC, for 12h 00m\n"
        );
        let answer = json!({"parked_until": 43_200, "seconds": 43_200, "credential_expires": 3600});
        let message = text("3kfz0q8m", &typed(&answer));
        assert!(
            message.contains("expires before that, at 1970-01-01 01:00 UTC"),
            "{message}"
        );
        let answer = json!({"error": "it is \u{1b}[1m gone"});
        let message = text("3kfz0q8m", &typed(&answer));
        assert!(message.starts_with("3kfz0q8m  not parked: it is ") && !message.contains('\u{1b}'));
    }
}
