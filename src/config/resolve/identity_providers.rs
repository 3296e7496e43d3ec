//! `[jwks]` and `[kubernetes]`: who else than the relay's own keys vouches for tokens.

use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;

use super::{Resolver, Shape, plain, quoted};
use crate::config::address::{Wrong, is_loopback_host};
use crate::config::model::{Config, Jwks, Kubernetes};
use crate::config::raw::RawValue;
use crate::config::setting::{self, Read};
use crate::config::units::format_duration;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

impl Resolver {
    pub(super) fn jwks(&mut self, jwks: &mut Jwks) {
        let path = |value: &RawValue| setting::text(value, "the path of a JSON file with keys");
        jwks.file = self
            .without_default("jwks", "file", Shape::Path, quoted, path)
            .map(PathBuf::from);
        jwks.url = self.without_default("jwks", "url", Shape::Address, quoted, web_address);
        jwks.ca_file = self
            .without_default("jwks", "ca_file", Shape::Path, quoted, pem_path)
            .map(PathBuf::from);
        self.duration_from("jwks", "refresh", &mut jwks.refresh, 10 * SECOND, DAY);
        self.duration_from("jwks", "max_stale", &mut jwks.max_stale, SECOND, 30 * DAY);
        self.duration("jwks", "timeout", &mut jwks.timeout, MINUTE);
    }

    pub(super) fn kubernetes(&mut self, kubernetes: &mut Kubernetes) {
        const SECTION: &str = "kubernetes";
        let enabled = &mut kubernetes.enabled;
        self.set(SECTION, "enabled", enabled, plain, setting::flag);
        self.set(
            SECTION,
            "audiences",
            &mut kubernetes.audiences,
            |names| format!("{names:?}"),
            audiences,
        );
        kubernetes.namespace =
            self.without_default(SECTION, "namespace", Shape::Open, quoted, namespace);
        kubernetes.api_server =
            self.without_default(SECTION, "api_server", Shape::Address, quoted, web_address);
        kubernetes.ca_file = self
            .without_default(SECTION, "ca_file", Shape::Path, quoted, pem_path)
            .map(PathBuf::from);
        let token = |value: &RawValue| {
            setting::text(value, "the path of a file with the relay's own token")
        };
        kubernetes.token_file = self
            .without_default(SECTION, "token_file", Shape::Path, quoted, token)
            .map(PathBuf::from);
        self.duration(SECTION, "timeout", &mut kubernetes.timeout, MINUTE);
        let entries = &mut kubernetes.cache_entries;
        self.count(SECTION, "cache_entries", entries, 65_536);
        let recheck = &mut kubernetes.recheck;
        self.duration_from(SECTION, "recheck", recheck, SECOND, HOUR);
        self.duration(SECTION, "refused_for", &mut kubernetes.refused_for, HOUR);
        self.duration(SECTION, "outage_grace", &mut kubernetes.outage_grace, DAY);
    }

    /// What of `[jwks]` and `[kubernetes]` has to fit together.
    pub(super) fn check_identity_providers(&mut self, config: &Config) {
        let jwks = &config.jwks;
        if jwks.file.is_some() && jwks.url.is_some() {
            self.problem(
                "jwks.file",
                "a file, although jwks.url is given too",
                "one of the two",
                "remove the one that is not meant",
            );
        }
        if jwks.ca_file.is_some() && jwks.url.is_none() {
            self.problem(
                "jwks.ca_file",
                "certificate authorities, and no jwks.url",
                "the address that they are for",
                "give jwks.url, or remove it",
            );
        }
        if jwks.max_stale < jwks.refresh {
            self.problem(
                "jwks.max_stale",
                &format_duration(jwks.max_stale),
                &format!("at least jwks.refresh ({})", format_duration(jwks.refresh)),
                "keys would be given up before they are fetched again",
            );
        }
        let kubernetes = &config.kubernetes;
        let handshake = config.listen.handshake_timeout;
        if kubernetes.enabled && kubernetes.timeout >= handshake {
            self.problem(
                "kubernetes.timeout",
                &format_duration(kubernetes.timeout),
                &format!(
                    "less than listen.handshake_timeout ({})",
                    format_duration(handshake)
                ),
                "a client would be cut off before it hears that Kubernetes does not answer",
            );
        }
        for (key, given) in [
            ("kubernetes.ca_file", &kubernetes.ca_file),
            ("kubernetes.token_file", &kubernetes.token_file),
        ] {
            if given.is_some() && kubernetes.api_server.is_none() {
                self.problem(
                    key,
                    "a file, and no kubernetes.api_server",
                    "the API server that it is for",
                    "without api_server the relay takes all of that from its pod or from the kubeconfig",
                );
            }
        }
        if kubernetes.api_server.is_some() && kubernetes.token_file.is_none() {
            self.problem(
                "kubernetes.api_server",
                "an API server, and no kubernetes.token_file",
                "the file with the relay's own token for it too",
                "a token of a ServiceAccount that is bound to system:auth-delegator",
            );
        }
    }
}

fn pem_path(value: &RawValue) -> Read<String> {
    setting::text(value, "the path of a PEM file with certificate authorities")
}

/// `https://…`, or `http://` to this machine: what is fetched there is trusted.
fn web_address(value: &RawValue) -> Read<String> {
    let wrong = |hint: Option<&str>| Wrong {
        expected: "an https address, such as \"https://login.example.com/keys\"".to_owned(),
        hint: hint.map(str::to_owned),
    };
    let text = setting::text(value, &wrong(None).expected)?;
    let uri: Uri = text.parse().map_err(|_| wrong(None))?;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(wrong(None));
    };
    if authority.as_str().contains('@') {
        return Err(wrong(Some("without a name and password in it")));
    }
    match scheme {
        "https" => Ok(text),
        "http" if is_loopback_host(authority.host()) => Ok(text),
        "http" => Err(wrong(Some(
            "http is for this machine alone: anybody on the way could put other keys or answers in",
        ))),
        _ => Err(wrong(None)),
    }
}

/// At least one: a token without a stated audience is one for the API server itself.
fn audiences(value: &RawValue) -> Read<Vec<String>> {
    let words: Option<Vec<String>> = match value {
        RawValue::List(items) => items
            .iter()
            .map(|item| match item {
                RawValue::Text(text) => Some(text.trim().to_owned()),
                _ => None,
            })
            .collect(),
        RawValue::Word(words) => Some(words.split(',').map(|w| w.trim().to_owned()).collect()),
        _ => None,
    };
    match words {
        Some(words) if !words.is_empty() && words.iter().all(|word| !word.is_empty()) => Ok(words),
        _ => Err(Wrong {
            expected: "an array of at least one audience, such as [\"ray-relay\"]".to_owned(),
            hint: Some(
                "without one, every token for the API server would be accepted here".to_owned(),
            ),
        }),
    }
}

/// RFC 1123 label.
fn namespace(value: &RawValue) -> Read<String> {
    const EXPECTED: &str = "the name of a Kubernetes namespace";
    let name = setting::text(value, EXPECTED)?;
    let fits = name.len() <= 63
        && !name.starts_with('-')
        && !name.ends_with('-')
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    match fits {
        true => Ok(name),
        false => Err(Wrong {
            expected: EXPECTED.to_owned(),
            hint: None,
        }),
    }
}
