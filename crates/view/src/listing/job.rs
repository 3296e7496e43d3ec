//! The job that a command names, and its rows in lists.

use serde::Deserialize;
use serde_json::Value;

use super::received::RowAnswer;
use ray_relay_base::wire::json::{typed, typed_list};
use ray_relay_base::wire::text::replaced;

/// Identifies a job: Ray counts job ids anew in each cluster.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct JobKey {
    pub cluster: String,
    pub job_id: String,
}

/// A name stands for several jobs, where a command acts on the tasks of one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} stands for several jobs, and nothing is done: {jobs}; name one by its id{hint}")]
pub struct SeveralJobs {
    name: String,
    jobs: String,
    hint: &'static str,
}

/// Jobs that an error names one by one.
const MAX_NAMED_JOBS: usize = 8;

impl JobKey {
    /// The job of `row` of a list, if it is known.
    fn of(row: &RowAnswer<'_>) -> Option<Self> {
        let job_id = row.job_id.filter(|id| !id.is_empty())?;
        Some(Self {
            cluster: row.cluster.unwrap_or_default().to_owned(),
            job_id: job_id.to_owned(),
        })
    }
}

/// The jobs that a user's name for a job stands for. Rows are compared with their ids alone: users choose the other
/// names, and one may be the id of another user's job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeantJob {
    name: String,
    keys: Vec<JobKey>,
}

impl MeantJob {
    /// The jobs `keys`, which are called `name`.
    pub fn known(name: impl Into<String>, keys: impl IntoIterator<Item = JobKey>) -> Self {
        let mut known = Self {
            name: name.into(),
            keys: Vec::new(),
        };
        for key in keys {
            if !key.job_id.is_empty() && !known.keys.contains(&key) {
                known.keys.push(key);
            }
        }
        known
    }

    /// The jobs of `answer`, the relay's to `/relay/v1/jobs?job=NAME`. One whose driver does not run yet has no rows.
    pub fn read(name: impl Into<String>, answer: &Value) -> Self {
        let keys = typed_list::<Option<JobKey>>(answer, "jobs").flatten();
        Self::known(name, keys)
    }

    /// The jobs called `name` of `rows` of a list, for a relay that does not look up jobs. A job id precedes a
    /// submission id, and that the name of a Ray Train run.
    pub fn listed(name: impl Into<String>, rows: &[Value]) -> Self {
        let name = name.into();
        let called = |is_name: fn(&RowAnswer<'_>, &str) -> bool| {
            let rows = rows.iter().map(typed::<RowAnswer<'_>>);
            let called = rows.filter(|row| is_name(row, &name));
            called
                .filter_map(|row| JobKey::of(&row))
                .collect::<Vec<_>>()
        };
        let ranks: [fn(&RowAnswer<'_>, &str) -> bool; 3] = [
            |row, name| row.job_id == Some(name),
            |row, name| row.submission_id == Some(name),
            |row, name| row.train_run == Some(name),
        ];
        let keys = ranks.into_iter().map(called).find(|keys| !keys.is_empty());
        Self::known(name, keys.unwrap_or_default())
    }

    /// The name that the user gave.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Refuses several jobs, of `cluster` if that is given; `hint` tells how else to name one.
    ///
    /// # Errors
    /// There are several.
    pub fn only(&self, cluster: Option<&str>, hint: &'static str) -> Result<(), SeveralJobs> {
        let is_there =
            |key: &&JobKey| cluster.is_none_or(|name| key.cluster.eq_ignore_ascii_case(name));
        let jobs = self.keys.iter().filter(is_there);
        let named = jobs.map(|key| format!("job {} on {}", key.job_id, key.cluster));
        let mut named: Vec<String> = named.collect();
        if named.len() < 2 {
            return Ok(());
        }
        if named.len() > MAX_NAMED_JOBS {
            named.truncate(MAX_NAMED_JOBS);
            named.push("…".to_owned());
        }
        Err(SeveralJobs {
            name: replaced(&self.name).into_owned(),
            jobs: replaced(&named.join(", ")).into_owned(),
            hint,
        })
    }

    /// Whether `row` of a list belongs to it.
    pub fn has(&self, row: &RowAnswer<'_>) -> bool {
        self.has_id(row.cluster.unwrap_or_default(), row.job_id)
    }

    /// Whether a task of `cluster` whose job has this id belongs to it.
    pub(super) fn has_id(&self, cluster: &str, job_id: Option<&str>) -> bool {
        let mut keys = self.keys.iter();
        keys.any(|key| key.cluster == cluster && Some(&*key.job_id) == job_id)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_of_a_job_are_those_of_its_cluster() {
        let row = |cluster: &str, id: &str| json!({"cluster": cluster, "job_id": id, "submission_id": format!("raysubmit_{cluster}")});
        let rows = [
            row("a", "01000000"),
            row("b", "01000000"),
            row("a", "02000000"),
        ];
        let has = |job: &MeantJob| [0, 1, 2].map(|at| job.has(&typed(&rows[at])));
        let answer = json!({"jobs": [
            {"cluster": "a", "name": "raysubmit_a", "job_id": "01000000", "submission_id": "raysubmit_a", "ended": false},
            {"cluster": "a", "name": "raysubmit_p", "job_id": null, "submission_id": "raysubmit_p", "ended": false},
        ]});
        assert_eq!(
            has(&MeantJob::read("nightly", &answer)),
            [true, false, false]
        );
        assert_eq!(has(&MeantJob::read("x", &json!({"jobs": []}))), [false; 3]);
        let listed = |name: &str| has(&MeantJob::listed(name, &rows));
        assert_eq!(listed("01000000"), [true, true, false]);
        assert_eq!(listed("raysubmit_b"), [false, true, false]);
        let other = json!({"cluster": "a"});
        assert!(!MeantJob::listed("01000000", &rows).has(&typed(&other)));
    }

    #[test]
    fn several_jobs_are_refused_where_a_command_acts() {
        let answer = json!({"jobs": [
            {"cluster": "a", "job_id": "01000000", "submission_id": "x", "ended": true},
            {"cluster": "a", "job_id": "02000000", "submission_id": "y", "ended": false},
            {"cluster": "b", "job_id": "01000000", "submission_id": "z", "ended": false},
        ]});
        let job = MeantJob::read("nightly", &answer);
        let why = job
            .only(None, ", or add --cluster NAME")
            .map_err(|why| why.to_string());
        assert_eq!(
            why.unwrap_err(),
            "nightly stands for several jobs, and nothing is done: job 01000000 on a, job 02000000 on a, job 01000000 on b; name one by its id, or add --cluster NAME"
        );
        assert!(job.only(Some("a"), "").is_err());
        assert_eq!(job.only(Some("b"), ""), Ok(()));
    }

    #[test]
    fn names_that_are_ids_of_another_job_are_not_compared() {
        let rows = [
            json!({"cluster": "a", "job_id": "01000000", "submission_id": "raysubmit_a"}),
            json!({"cluster": "a", "job_id": "02000000", "train_run": "01000000"}),
            json!({"cluster": "a", "job_id": "03000000", "submission_id": "01000000"}),
            json!({"cluster": "a", "job_id": null, "train_run": "01000000"}),
        ];
        let has = |job: &MeantJob| [0, 1, 2, 3].map(|at| job.has(&typed(&rows[at])));
        let answer = json!({"jobs": [{"cluster": "a", "job_id": "01000000"}]});
        let first = [true, false, false, false];
        assert_eq!(has(&MeantJob::read("raysubmit_a", &answer)), first);
        assert_eq!(has(&MeantJob::listed("01000000", &rows)), first);
    }
}
