//! Selection of running tasks. Pure.

use std::time::{Duration, SystemTime};

use serde::Deserialize;
use serde_json::Value;

use crate::http::query;
use ray_relay_access::policy::Pattern;
use ray_relay_ray::ray::registry::Running;
use ray_relay_view::listing::row::Row;
use ray_relay_view::listing::running::is_called;
use ray_relay_view::listing::select::Filter;

/// Maximum length of a name or pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 256;

/// A selection of tasks; the default is all.
#[derive(Debug, Default)]
pub(super) struct TaskChoice {
    cluster: Option<Pattern>,
    /// A job, by any of its names.
    pub(super) job: Option<String>,
    name: Option<Pattern>,
    older_than: Option<Duration>,
    /// A task must match all filters.
    filters: Vec<Filter>,
}

/// The selection in the body of a request.
#[derive(Debug, Default, Deserialize)]
pub(super) struct RawSelection {
    cluster: Option<String>,
    job: Option<String>,
    name: Option<String>,
    older_than: Option<f64>,
    #[serde(default)]
    filter: Vec<String>,
}

impl RawSelection {
    /// Parses the selection. An error is a sentence for the client.
    pub(super) fn read(self) -> Result<TaskChoice, String> {
        let mut choice = TaskChoice::default();
        let older_than = self.older_than.map(|seconds| seconds.to_string());
        let one = [
            ("cluster", self.cluster),
            ("job", self.job),
            ("name", self.name),
            ("older_than", older_than),
        ];
        for (key, value) in one {
            if let Some(value) = value {
                choice.take(key, &value)?;
            }
        }
        for filter in &self.filter {
            choice.take("filter", filter)?;
        }
        Ok(choice)
    }
}

impl TaskChoice {
    /// Parses one parameter of a query, and returns whether it is one. An error is a sentence for the client.
    pub(super) fn take(&mut self, name: &str, value: &str) -> Result<bool, String> {
        if value.is_empty() || value.len() > MAX_PATTERN_BYTES {
            let bounds = format!("{name} has 1 to {MAX_PATTERN_BYTES} bytes");
            return Err(bounds);
        }
        match name {
            "cluster" => self.cluster = Some(Pattern::new(value)),
            "job" => self.job = Some(value.to_owned()),
            "name" => self.name = Some(Pattern::new(value)),
            "older_than" => {
                let seconds = value.parse().ok();
                let read = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                self.older_than =
                    Some(read.ok_or_else(|| "older_than is a number of seconds".to_owned())?);
            }
            "filter" => query::take_filter(&mut self.filters, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(super) fn fits_cluster(&self, cluster: &str) -> bool {
        self.cluster.as_ref().is_none_or(|p| p.matches(cluster))
    }

    /// Whether `task` belongs to the selected job.
    pub(super) fn fits_job(&self, task: &Running) -> bool {
        self.job
            .as_ref()
            .is_none_or(|job| task.names.is_of_job(job))
    }

    /// Whether nothing but a job, and maybe its cluster, is selected.
    pub(super) fn is_of_job_alone(&self) -> bool {
        let is_narrow =
            self.name.is_some() || self.older_than.is_some() || !self.filters.is_empty();
        self.job.is_some() && !is_narrow
    }

    /// Whether `running`, with the JSON `row`, is selected at `now`. A task of unknown age never matches `older_than`.
    pub(super) fn fits(&self, running: &Running, row: &Value, now: SystemTime) -> bool {
        self.name
            .as_ref()
            .is_none_or(|pattern| is_called(running, pattern))
            && self
                .older_than
                .is_none_or(|age| running.running_for(now).is_some_and(|runs| runs >= age))
            && (self.filters.is_empty() || {
                let row = Row::read(row);
                self.filters.iter().all(|filter| filter.fits(&row))
            })
    }
}
