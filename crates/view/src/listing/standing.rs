//! Jobs with some tasks paused while others run, and perhaps wait for them. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::fold::ranks::ranges;
use super::json::seconds;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::human_time::span;
use ray_relay_base::wire::json::typed_list;
use ray_relay_base::wire::text::replaced;
use ray_relay_ray::ray::registry::{Breakpoint, Running, Snapshot, State, WorkKind};

/// Groups of a job that are listed one by one.
const MAX_GROUPS: usize = 32;

/// The running tasks of one group.
#[derive(Default)]
struct RunningGroup {
    tasks: usize,
    ranks: BTreeSet<u32>,
    /// The longest running time in the group.
    longest: Option<Duration>,
}

/// Returns the jobs of `list` with paused tasks, and their other tasks among `running`. The caller has removed from
/// both what the principal may not see.
pub fn jobs<'a>(
    list: &Snapshot,
    running: impl Iterator<Item = &'a Running>,
    now: Timestamp,
) -> Value {
    let stops = |one: &Breakpoint| !matches!(one.state, State::Unlisted);
    let mut jobs: BTreeMap<(&str, &str), Vec<&Breakpoint>> = BTreeMap::new();
    let mut workers: BTreeSet<(&str, &str)> = BTreeSet::new();
    for one in list.live.iter().filter(|one| stops(one)) {
        workers.insert((&one.cluster, &one.worker_id));
        if let Some(job) = &one.names.job_id {
            jobs.entry((&one.cluster, job)).or_default().push(one);
        }
    }
    let mut others: BTreeMap<(&str, &str), BTreeMap<&str, RunningGroup>> = BTreeMap::new();
    for one in running {
        let Some(job) = one.names.job_id.as_deref() else {
            continue;
        };
        let of = (&*one.cluster, job);
        let is_paused = workers.contains(&(&*one.cluster, &*one.worker_id));
        if is_paused || one.what == WorkKind::Driver || !jobs.contains_key(&of) {
            continue;
        }
        let group = others.entry(of).or_default().entry(&one.group).or_default();
        group.tasks += 1;
        group.ranks.extend(one.names.rank);
        group.longest = group.longest.max(one.running_for(now.time));
    }
    let limits = list.collective_timeouts(|_| true);
    let rows = jobs.iter().map(|(of, stops)| {
        let groups = others.get(of);
        let longest = stops.iter().map(|one| one.waiting(now)).max();
        let limit = limits.get(of);
        let running = groups.into_iter().flatten().take(MAX_GROUPS).map(|(name, group)| {
            json!({ "group": name, "tasks": group.tasks, "ranks": group.ranks, "running_seconds": group.longest.map(seconds) })
        });
        json!({
            "cluster": of.0, "job_id": of.1,
            "submission_id": stops.iter().find_map(|one| one.names.submission_id.as_deref()),
            "standing": stops.len(), "standing_seconds": longest.map(seconds),
            "running": running.collect::<Vec<_>>(),
            "collective_timeout_seconds": limit.map(|limit| seconds(limit.limit)),
            "collective_left_seconds": limit.map(|limit| seconds(now.until(limit.ends))),
        })
    });
    rows.collect()
}

/// One of the `jobs` in the relay's answer.
#[derive(Default, Deserialize)]
#[serde(default)]
struct JobAnswer<'a> {
    job_id: Option<&'a str>,
    submission_id: Option<&'a str>,
    standing: usize,
    standing_seconds: Option<f64>,
    #[serde(borrow)]
    running: Vec<GroupAnswer<'a>>,
    collective_left_seconds: Option<f64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GroupAnswer<'a> {
    group: Option<&'a str>,
    tasks: usize,
    ranks: BTreeSet<u32>,
    running_seconds: Option<f64>,
}

/// Formats the `jobs` of the relay's `answer`, one line for each job with other running tasks.
pub fn lines(answer: &Value) -> String {
    let span_of = |seconds: f64| Some(span(Duration::try_from_secs_f64(seconds.max(0.0)).ok()?));
    let mut lines = String::new();
    for job in typed_list::<JobAnswer<'_>>(answer, "jobs") {
        if job.running.is_empty() {
            continue;
        }
        let paused = match job.standing {
            1 => "1 task stands".to_owned(),
            count => format!("{count} tasks stand"),
        };
        let since = job.standing_seconds.and_then(span_of);
        let since = since.unwrap_or_else(|| "?".to_owned());
        let groups: Vec<String> = job.running.iter().map(group).collect();
        lines += &format!(
            "job {}: {paused}, for {since}, while others run: {}",
            replaced(job.submission_id.or(job.job_id).unwrap_or("?")),
            groups.join(", ")
        );
        match job.collective_left_seconds {
            None => {}
            Some(remaining) if remaining <= 0.0 => lines += "; collectives have timed out by now",
            Some(remaining) => {
                let remaining = span_of(remaining).unwrap_or_default();
                lines += &format!("; collectives time out in {remaining}");
            }
        }
        lines.push('\n');
    }
    lines
}

fn group(group: &GroupAnswer<'_>) -> String {
    let name = replaced(group.group.unwrap_or("?")).into_owned();
    let ranks = &group.ranks;
    let who = match (ranks.len(), group.tasks) {
        (1, 1) => format!("{name} rank {}", ranges(ranks)),
        (count, tasks) if count == tasks => format!("{name} ranks {}", ranges(ranks)),
        (_, 1) => name,
        (_, tasks) => format!("{tasks} of {name}"),
    };
    let seconds = Duration::try_from_secs_f64(group.running_seconds.unwrap_or(-1.0));
    match seconds {
        Ok(seconds) => format!("{who} (for {})", span(seconds)),
        Err(_) => who,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ray_relay_base::timestamp::testing::at;
    use ray_relay_ray::ray::registry::Names;
    use ray_relay_ray::ray::testing::{paused, snapshot};

    fn running(n: u8, job: &str, rank: Option<u32>, what: WorkKind) -> Running {
        Running {
            cluster: "default".into(),
            what,
            group: "Trainer".to_owned(),
            names: Names {
                job_id: Some(job.to_owned()),
                rank,
                ..Names::default()
            },
            node_id: String::new(),
            node_ip: None,
            worker_id: format!("{n:056x}"),
            pid: None,
            started: Some(at(1000).time),
        }
    }

    #[test]
    fn waiting_ranks_are_listed_with_their_remaining_time() {
        let mut breakpoint = paused("Trainer.step", 3);
        breakpoint.first_seen = at(2000);
        breakpoint.worker_id = format!("{:056x}", 3).into();
        breakpoint.names_mut().job_id = Some("01000000".to_owned());
        breakpoint.names_mut().collective_timeout = Some(Duration::from_secs(1800));
        let list = snapshot(vec![breakpoint]);
        let all = [
            running(0, "01000000", Some(0), WorkKind::Method),
            running(1, "01000000", Some(1), WorkKind::Method),
            running(2, "01000000", Some(2), WorkKind::Method),
            // A paused task, a driver and a task of another job do not count as running ranks.
            running(3, "01000000", Some(3), WorkKind::Method),
            running(4, "01000000", None, WorkKind::Driver),
            running(5, "02000000", Some(0), WorkKind::Method),
        ];
        let rows = jobs(&list, all.iter(), at(2600));
        assert_eq!(
            rows,
            json!([{"cluster": "default", "job_id": "01000000", "submission_id": null, "standing": 1, "standing_seconds": 600.0,
                "running": [{"group": "Trainer", "tasks": 3, "ranks": [0, 1, 2], "running_seconds": 1600.0}],
                "collective_timeout_seconds": 1800.0, "collective_left_seconds": 1200.0}])
        );
        assert_eq!(
            lines(&json!({ "jobs": rows })),
            "job 01000000: 1 task stands, for 10m 00s, while others run: Trainer ranks 0-2 (for 26m 40s); collectives time out in 20m 00s\n"
        );
        let timed_out = lines(&json!({"jobs": jobs(&list, all.iter(), at(9000))}));
        assert!(
            timed_out.ends_with("; collectives have timed out by now\n"),
            "{timed_out}"
        );
        // No other rank waits for a paused rank without peers.
        let single_rank = jobs(&list, all[3..].iter(), at(2600));
        assert_eq!(lines(&json!({ "jobs": single_rank })), "");
    }

    #[test]
    fn malformed_answer_does_not_panic() {
        for value in [
            json!(null),
            json!([1, {"running": [5, {"ranks": ["x"], "running_seconds": 1e300}]}]),
        ] {
            let _ = lines(&json!({ "jobs": value }));
            let _ = lines(&value);
        }
    }
}
