//! The armed lines of a session, for the list of sessions.

use serde::Serialize;

use ray_relay_base::wire::text::one_line;
use ray_relay_base::wire::tunnel::messages::ArmedLine;

/// The lines that a session has armed.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ArmedSummary {
    /// The names of their jobs.
    pub jobs: Vec<String>,
    /// The lines, such as `train.py:26`.
    pub lines: Vec<String>,
    /// How often they were hit.
    pub hits: u64,
    #[serde(skip)]
    cluster: Option<String>,
}

impl ArmedSummary {
    /// The armed `lines`, without jobs.
    pub fn of<'l>(lines: impl IntoIterator<Item = &'l ArmedLine>) -> Self {
        let file = |path: &str| one_line(path.rsplit('/').next().unwrap_or(path));
        let lines = lines.into_iter();
        Self {
            lines: lines
                .map(|line| format!("{}:{}", file(&line.file), line.line))
                .collect(),
            ..Self::default()
        }
    }

    /// The cluster of its last job.
    pub(super) fn cluster(&self) -> Option<String> {
        self.cluster.clone()
    }

    /// Adds a job in which they are armed.
    pub fn in_job(mut self, name: &str, cluster: &str) -> Self {
        self.jobs.push(one_line(name));
        self.cluster = Some(cluster.to_owned());
        self
    }
}
