//! `[release]`

use super::{Resolver, SHORTEST};
use crate::config::address::Wrong;
use crate::config::model::{Config, Release};
use crate::config::raw::RawValue;
use crate::config::setting;
use crate::config::units::format_duration;
use std::time::Duration;

/// Longest that anything may be set to wait.
const LONGEST: Duration = Duration::from_secs(30 * 86_400);

impl Resolver {
    pub(super) fn release(&mut self) -> Release {
        let mut release = Release::default();
        self.set(
            "release",
            "after",
            &mut release.after,
            |after| format!("{:?}", after.map_or("off".to_owned(), format_duration)),
            |value| match value {
                RawValue::Text(text) | RawValue::Word(text) if text == "off" => Ok(None),
                value => match setting::duration(value, SHORTEST..=LONGEST) {
                    Ok(after) => Ok(Some(after)),
                    Err(wrong) => Err(Wrong {
                        expected: format!("\"off\" or {}", wrong.expected),
                        hint: wrong.hint,
                    }),
                },
            },
        );
        let slot = &mut release.announce;
        self.duration("release", "announce", slot, LONGEST);
        let expected = "a list of names of clusters, such as [\"training\"]";
        self.set(
            "release",
            "clusters",
            &mut release.clusters,
            |names| format!("{names:?}"),
            |value| setting::texts(value, 1000, expected),
        );
        release
    }

    pub(super) fn check_release(&mut self, config: &Config) {
        let release = &config.release;
        if let Some(after) = release.after
            && after < release.announce
        {
            self.problem(
                "release.announce",
                &format_duration(release.announce),
                &format!("at most release.after ({})", format_duration(after)),
                "nothing could be announced before it happens",
            );
        }
        let known = |name: &String| config.clusters.iter().any(|cluster| cluster.name == *name);
        if let Some(name) = release.clusters.iter().find(|name| !known(name)) {
            self.problem(
                "release.clusters",
                &format!("{name:?}"),
                "names of [[cluster]] sections",
                "a name that is none would leave its tasks waiting",
            );
        }
    }
}
