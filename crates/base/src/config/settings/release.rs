//! `[release]`: when tasks are released without a request.

use std::time::Duration;

use crate::config::kind::{SHORTEST, ValueKind, duration, quoted, texts};
use crate::config::problem::Wrong;
use crate::config::raw::RawValue;
use crate::config::read::{self, Read};
use crate::config::units::{DAY, MINUTE, format_duration, parse_duration};

const MAX_WAIT_PERIOD: Duration = DAY.saturating_mul(30);

settings! {
    /// `[release]`: when tasks that wait at a breakpoint are released without a request.
    pub struct Release = "release" {
        /// How long a breakpoint waits before it is released. Absent: `off`.
        after: Option<Duration> = None, ValueKind::new(off_or_time, display_after);
        /// How long before the release it is announced in the event stream and the audit log.
        announce: Duration = 5 * MINUTE, duration(SHORTEST..=MAX_WAIT_PERIOD);
        /// The timeout of a job's collectives (NCCL, Gloo) that wait for one of its stopped tasks. A job sets its own
        /// with `RAY_RELAY_COLLECTIVE_TIMEOUT` in its runtime environment. Absent: `off`, and only the jobs' own
        /// values count.
        collective_timeout: Option<Duration> = None, ValueKind::new(off_or_time, display_after);
        /// How long before that timeout all waiting tasks of the job are released. Absent: `off`, and nothing is.
        before_collective_timeout: Option<Duration> = None, ValueKind::new(off_or_time, display_after);
        /// Names of the clusters to which this section applies; empty: all.
        clusters: Vec<String> = Vec::new(), texts(1000, "a list of names of clusters, such as [\"training\"]");
    }
}

impl Release {
    /// How long a breakpoint of `cluster` may wait; `None`: without limit.
    pub fn after_on(&self, cluster: &str) -> Option<Duration> {
        self.after.filter(|_| self.holds_on(cluster))
    }

    /// The collective timeout of a job of `cluster` that sets none itself.
    pub fn collective_timeout_on(&self, cluster: &str) -> Option<Duration> {
        self.collective_timeout.filter(|_| self.holds_on(cluster))
    }

    /// How long before that timeout waiting tasks of `cluster` are released; `None`: they are not.
    pub fn before_collective_timeout_on(&self, cluster: &str) -> Option<Duration> {
        self.before_collective_timeout
            .filter(|_| self.holds_on(cluster))
    }

    /// Whether anything is ever released.
    pub fn releases(&self) -> bool {
        self.after.is_some() || self.before_collective_timeout.is_some()
    }

    fn holds_on(&self, cluster: &str) -> bool {
        self.clusters.is_empty() || self.clusters.iter().any(|name| name == cluster)
    }
}

/// Reads a job's `RAY_RELAY_COLLECTIVE_TIMEOUT`; `None` if it is no duration within the bounds of the key.
pub fn collective_timeout_of_job(text: &str) -> Option<Duration> {
    let timeout = parse_duration(text).ok()?;
    (SHORTEST..=MAX_WAIT_PERIOD)
        .contains(&timeout)
        .then_some(timeout)
}

fn off_or_time(value: &RawValue) -> Read<Option<Duration>> {
    match value {
        RawValue::Text(text) | RawValue::Word(text) if text == "off" => Ok(None),
        value => match read::duration(value, SHORTEST..=MAX_WAIT_PERIOD) {
            Ok(after) => Ok(Some(after)),
            Err(wrong) => Err(Wrong {
                expected: format!("\"off\" or {}", wrong.expected),
                hint: wrong.hint,
            }),
        },
    }
}

fn display_after(after: &Option<Duration>) -> String {
    quoted(&after.map_or("off".to_owned(), format_duration))
}
