//! The job that a command names, and its rows in lists.

use serde::Deserialize;
use serde_json::Value;

use super::received::RowAnswer;
use ray_relay_base::wire::json::typed_list;

/// Identifies a job: Ray counts job ids anew in each cluster.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct JobKey {
    pub cluster: String,
    pub job_id: String,
}

/// A job as a user names it: by its submission id, its job id or a Ray Train run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeantJob {
    name: String,
    /// The jobs of that name; `None` if only the name is known.
    keys: Option<Vec<JobKey>>,
}

impl MeantJob {
    /// The job called `name`, by the names in the rows alone.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            keys: None,
        }
    }

    /// The jobs `keys`, which are called `name`.
    pub fn known(name: impl Into<String>, keys: impl IntoIterator<Item = JobKey>) -> Self {
        Self {
            name: name.into(),
            keys: Some(keys.into_iter().collect()),
        }
    }

    /// The jobs of `answer`, the relay's to `/relay/v1/jobs?job=NAME`. One whose driver does not run yet has no rows.
    pub fn read(name: impl Into<String>, answer: &Value) -> Self {
        let keys = typed_list::<Option<JobKey>>(answer, "jobs").flatten();
        Self::known(name, keys)
    }

    /// The name that the user gave.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether `row` of a list belongs to it.
    pub fn has(&self, row: &RowAnswer<'_>) -> bool {
        self.has_named(row.cluster.unwrap_or_default(), row.job_names())
    }

    /// Whether a task of `cluster` whose job has `names` belongs to it.
    pub(super) fn has_named<'n>(
        &self,
        cluster: &str,
        mut names: impl Iterator<Item = &'n str>,
    ) -> bool {
        names.any(|name| match &self.keys {
            None => name == self.name,
            Some(keys) => {
                let mut keys = keys.iter();
                keys.any(|key| key.cluster == cluster && key.job_id == name)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use ray_relay_base::wire::json::typed;

    #[test]
    fn rows_of_a_job_are_those_of_its_cluster() {
        let row = |cluster: &str, id: &str| json!({"cluster": cluster, "job_id": id, "submission_id": format!("raysubmit_{cluster}")});
        let (one, same_id, other) = (
            row("a", "01000000"),
            row("b", "01000000"),
            row("a", "02000000"),
        );
        let has = |job: &MeantJob| [&one, &same_id, &other].map(|row| job.has(&typed(row)));
        let answer = json!({"jobs": [
            {"cluster": "a", "name": "raysubmit_a", "job_id": "01000000", "submission_id": "raysubmit_a", "ended": false},
            {"cluster": "a", "name": "raysubmit_p", "job_id": null, "submission_id": "raysubmit_p", "ended": false},
        ]});
        assert_eq!(
            has(&MeantJob::read("nightly", &answer)),
            [true, false, false]
        );
        assert_eq!(has(&MeantJob::read("x", &json!({"jobs": []}))), [false; 3]);
        // Of a relay that does not know jobs.
        assert_eq!(has(&MeantJob::named("01000000")), [true, true, false]);
        assert_eq!(has(&MeantJob::named("raysubmit_b")), [false, true, false]);
        assert!(!MeantJob::named("01000000").has(&typed(&json!({"cluster": "a"}))));
    }
}
