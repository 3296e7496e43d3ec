//! `[auth]`: its keys with their kinds and bounds.

use std::path::PathBuf;
use std::time::Duration;

use super::{Resolver, Setting, Shape, quoted};
use crate::config::model::{Auth, Config};
use crate::config::raw::RawValue;
use crate::config::setting::{self, Read};
use crate::config::units::format_duration;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// More keys would be more signatures to try for one token.
const MOST_KEYS: usize = 16;

/// More issuers or a longer name are a mistake.
const MOST_ISSUERS: usize = 16;

impl Resolver {
    pub(super) fn auth(&mut self, auth: &mut Auth) {
        const SECTION: &str = "auth";
        let keys = self.without_default(
            SECTION,
            "keys",
            Shape::Path,
            |paths: &Vec<String>| format!("{paths:?}"),
            |value| setting::texts(value, MOST_KEYS, "an array of at most 16 paths of key files, such as [\"/etc/ray-relay/relay.pub\"]"),
        );
        auth.keys = keys
            .unwrap_or_default()
            .into_iter()
            .map(PathBuf::from)
            .collect();
        self.set(SECTION, "audience", &mut auth.audience, quoted, |value| {
            setting::text(value, "a text, the `aud` of tokens for this relay")
        });
        self.set(
            SECTION,
            "issuer",
            &mut auth.issuer,
            |issuers| format!("{issuers:?}"),
            |value| setting::texts(value, MOST_ISSUERS, "an array of at most 16 issuers (`iss`), such as [\"https://login.example.com\"]"),
        );
        let longest = 5 * 60 * SECOND;
        self.duration_from(SECTION, "leeway", &mut auth.leeway, Duration::ZERO, longest);
        let lifetime = SECOND..=365 * 24 * HOUR;
        auth.max_lifetime = self.without_default(
            SECTION,
            "max_lifetime",
            Shape::Open,
            |lifetime| quoted(&format_duration(*lifetime)),
            |value| setting::duration(value, lifetime.clone()),
        );
        self.size(SECTION, "max_token", &mut auth.max_token, 1 << 10, 64 << 10);
        auth.policy_file = self.path(SECTION, "policy_file", "the path of a policy file");
        let revocations = "the path of the file with revocations, which need not be there yet";
        auth.revocations_file = self.path(SECTION, "revocations_file", revocations);
        let secret = "the path of a file with a secret, as `ray-relay token keygen --algorithm HS256` makes it";
        auth.ticket_key_file = self.path(SECTION, "ticket_key_file", secret);
        self.count(
            SECTION,
            "throttle_after",
            &mut auth.throttle_after,
            1_000_000,
        );
        self.duration(SECTION, "throttle_delay", &mut auth.throttle_delay, HOUR);
        self.duration(SECTION, "throttle_max", &mut auth.throttle_max, HOUR);
    }

    /// What of `[auth]` has to fit together.
    pub(super) fn check_auth(&mut self, config: &Config) {
        let auth = &config.auth;
        if auth.throttle_max < auth.throttle_delay {
            self.problem(
                "auth.throttle_max",
                &format_duration(auth.throttle_max),
                &format!(
                    "at least auth.throttle_delay ({})",
                    format_duration(auth.throttle_delay)
                ),
                "lengthen it, or begin with a shorter one",
            );
        }
        if auth.audience == "ray-relay-ticket" {
            self.problem(
                "auth.audience",
                "\"ray-relay-ticket\", which the relay's own tickets have",
                "another name",
                "the default is \"ray-relay\"",
            );
        }
    }

    /// A path without a default. What stands there by mistake, such as a secret, is in no message.
    pub(super) fn path(
        &mut self,
        section: &'static str,
        key: &'static str,
        expected: &'static str,
    ) -> Option<PathBuf> {
        let read = |value: &RawValue| setting::text(value, expected);
        self.without_default(section, key, Shape::Path, quoted, read)
            .map(PathBuf::from)
    }

    /// A key without a default: where nobody gives it there is nothing to show.
    pub(super) fn without_default<T>(
        &mut self,
        section: &'static str,
        key: &'static str,
        shape: Shape,
        show: impl Fn(&T) -> String,
        read: impl Fn(&RawValue) -> Read<T>,
    ) -> Option<T> {
        let entries = self.entries.get(&(section, key)).cloned();
        let mut found = None;
        for entry in entries.unwrap_or_default() {
            if let Some(value) = self.read(&entry, shape, &read) {
                let origin = match entry.label.contains('.') {
                    true => entry.place,
                    false => entry.label,
                };
                found = Some((value, origin));
            }
        }
        let (value, origin) = found?;
        self.settings.push(Setting {
            section,
            key,
            value: show(&value),
            origin,
        });
        Some(value)
    }
}
