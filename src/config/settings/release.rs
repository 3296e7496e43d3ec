//! `[release]`: when tasks are released without a person asking.

use std::time::Duration;

use crate::config::kind::{SHORTEST, ValueKind, duration, quoted, texts};
use crate::config::problem::Wrong;
use crate::config::raw::RawValue;
use crate::config::read::{self, Read};
use crate::config::units::{DAY, MINUTE, format_duration};

/// Longest that anything may be set to wait.
const LONGEST: Duration = DAY.saturating_mul(30);

settings! {
    /// `[release]`: when tasks that wait at a breakpoint are released without a person asking.
    pub struct Release = "release" {
        /// A breakpoint that has waited for so long is released. Absent: `off`.
        after: Option<Duration> = None, ValueKind::new(after, shown);
        /// So long before, it is announced in the event stream and the audit log.
        announce: Duration = 5 * MINUTE, duration(SHORTEST..=LONGEST);
        /// Names of the clusters for which it holds; empty: for all.
        clusters: Vec<String> = Vec::new(), texts(1000, "a list of names of clusters, such as [\"training\"]");
    }
}

impl Release {
    /// How long a breakpoint of `cluster` may wait; `None`: as long as it likes.
    pub fn after_on(&self, cluster: &str) -> Option<Duration> {
        let holds = self.clusters.is_empty() || self.clusters.iter().any(|name| name == cluster);
        self.after.filter(|_| holds)
    }
}

fn after(value: &RawValue) -> Read<Option<Duration>> {
    match value {
        RawValue::Text(text) | RawValue::Word(text) if text == "off" => Ok(None),
        value => match read::duration(value, SHORTEST..=LONGEST) {
            Ok(after) => Ok(Some(after)),
            Err(wrong) => Err(Wrong {
                expected: format!("\"off\" or {}", wrong.expected),
                hint: wrong.hint,
            }),
        },
    }
}

fn shown(after: &Option<Duration>) -> String {
    quoted(&after.map_or("off".to_owned(), format_duration))
}
