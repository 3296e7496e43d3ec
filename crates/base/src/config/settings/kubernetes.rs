//! `[kubernetes]`: tokens verified by a Kubernetes API server.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::kind::{SHORTEST, ValueKind, duration, flag, listed, path, quoted, web_address};
use crate::config::problem::Wrong;
use crate::config::raw::RawValue;
use crate::config::read::{self, Read};
use crate::config::units::{DAY, HOUR, MINUTE, SECOND};

settings! {
    /// `[kubernetes]`: tokens verified by a Kubernetes API server.
    pub struct Kubernetes = "kubernetes" {
        /// Whether tokens that are not the relay's own are reviewed by Kubernetes.
        enabled: bool = false, flag();
        /// Accepted audiences; a token needs one of them. Never empty.
        audiences: Vec<String> = vec!["ray-relay".to_owned()], ValueKind::new(audiences, listed);
        /// The namespace of permission checks, and the relay's own. Absent: that of the relay's pod, or of the
        /// kubeconfig's context.
        namespace: Option<String> = None, ValueKind::new(namespace, quoted).optional();
        /// https, or http to loopback. Absent: that of the pod, else of the kubeconfig.
        api_server: Option<String> = None, web_address();
        /// Certificate authorities of `api_server`. Absent: the system's. Only with `api_server`.
        ca_file: Option<PathBuf> = None, path("the path of a PEM file with certificate authorities");
        /// The relay's own token for `api_server`, required with it.
        token_file: Option<PathBuf> = None, path("the path of a file with the relay's own token");
        /// The deadline of each review of a token, and of a client that waits for the answers.
        timeout: Duration = 5 * SECOND, duration(SHORTEST..=MINUTE);
        /// How long an answer is valid, and the interval of new reviews for live sessions.
        recheck: Duration = MINUTE, duration(SECOND..=HOUR);
        /// How long live sessions and accepted tokens survive an API server that does not answer.
        outage_grace: Duration = 5 * MINUTE, duration(SHORTEST..=DAY);
    } constants {
        /// How long a refused token is refused without a new review.
        refused_for: Duration = 10 * SECOND;
    }
}

/// Reads the audiences, at least one: a token without a stated audience is one for the API server itself.
fn audiences(value: &RawValue) -> Read<Vec<String>> {
    let expected = "an array of at least one audience, such as [\"ray-relay\"]";
    match read::texts(value, usize::MAX, expected) {
        Ok(audiences) if !audiences.is_empty() => Ok(audiences),
        _ => Err(Wrong::expected(expected)
            .hint("without one, every token for the API server would be accepted here")),
    }
}

fn namespace(value: &RawValue) -> Read<String> {
    read::label(value, "the name of a Kubernetes namespace")
}
