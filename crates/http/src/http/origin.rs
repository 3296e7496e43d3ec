//! Web origins: which pages a browser shows under the host of a request. Pure.
//!
//! The relay's page and API are on the relay's own origin. A head serves code that runs in the browser of any user who opens
//! it. So the dashboard of each cluster has an origin of its own without anything else: its code can reach that head
//! and no more. [`super::guard`] decides on the origin once, and [`super::route`] handles no path without it.

use std::borrow::Cow;

use aws_lc_rs::digest::{SHA256, digest};

use ray_relay_base::config::{Config, is_host_label, is_loopback_host};
use ray_relay_base::wire::text::hex;
use ray_relay_view::advertise::{AdvertisedAddresses, ExternalAddress};

/// Every name below it is this machine (RFC 6761), for browsers without DNS.
const LOCAL: &str = ".localhost";

/// Placeholder of the label in `http.dashboard_hosts`.
const CLUSTER_PLACEHOLDER: &str = "{cluster}";

/// Length of the readable part before the hash, in a label for an unsuitable name.
const MAX_READABLE_CHARS: usize = 24;

/// The pages at a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The relay's own origin: its page and API, and dashboards for clients other than browsers.
    Relay,
    /// The origin of a cluster's dashboard, by its [`label`]. The cluster may not exist.
    Dashboard(String),
}

impl Origin {
    /// Returns the origin at the host of `reached`; `None`: the host is no name of this relay.
    pub fn of(
        reached: &ExternalAddress,
        config: &Config,
        advertised: &AdvertisedAddresses,
    ) -> Option<Self> {
        let host = reached.host.as_str();
        let allowed = &config.http.allowed_hosts;
        if advertised.covers(host) || allowed.iter().any(|own| own.eq_ignore_ascii_case(host)) {
            return Some(Self::Relay);
        }
        let domains = [Some(LOCAL), domain(config)];
        let label = |domain: &str| host.strip_suffix(domain);
        if let Some(label) = domains.into_iter().flatten().find_map(label) {
            return Some(Self::Dashboard(label.to_owned()));
        }
        let is_relay = reached.is_ip()
            || host == "localhost"
            || allowed.iter().any(|domain| is_below(host, domain));
        is_relay.then_some(Self::Relay)
    }
}

/// The hosts of all dashboards, as a list of sources for a `Content-Security-Policy`.
pub fn all(config: &Config) -> String {
    let domains = [Some(LOCAL), domain(config)];
    let sources: Vec<_> = domains
        .into_iter()
        .flatten()
        .map(|domain| format!("*{domain}:*"))
        .collect();
    sources.join(" ")
}

/// Whether a page at `from` can only be the relay's own, seen from a dashboard at `at`. A cluster's name cannot be an
/// IP address: on loopback the port is this relay's, and any other address has to be in `http.allowed_hosts`.
pub(crate) fn is_relays(
    from: &ExternalAddress,
    at: &ExternalAddress,
    config: &Config,
    advertised: &AdvertisedAddresses,
) -> bool {
    let host = from.host.as_str();
    if from.port != at.port {
        return false;
    }
    if at.host.ends_with(LOCAL) {
        return is_loopback_host(host);
    }
    let allowed = &config.http.allowed_hosts;
    let is_named = !from.is_ip() && host != "localhost"
        || allowed.iter().any(|own| own.eq_ignore_ascii_case(host));
    is_named && Origin::of(from, config, advertised) == Some(Origin::Relay)
}

/// The part of `http.dashboard_hosts` after the label, starting with the dot.
fn domain(config: &Config) -> Option<&str> {
    let template = config.http.dashboard_hosts.as_deref()?;
    template.strip_prefix(CLUSTER_PLACEHOLDER)
}

/// Whether `host` is below `domain`, an allowed `.domain`.
fn is_below(host: &str, domain: &str) -> bool {
    let end = host.len().checked_sub(domain.len());
    let end = end.and_then(|end| host.split_at_checked(end));
    end.is_some_and(|(name, end)| {
        domain.starts_with('.') && !name.is_empty() && domain.eq_ignore_ascii_case(end)
    })
}

/// The host of the dashboard of `cluster` for a browser that has `reached` the relay's own origin; `None`: no name
/// leads there.
pub fn host(cluster: &str, reached: &ExternalAddress, config: &Config) -> Option<String> {
    let domain = match is_loopback_host(&reached.host) {
        true => LOCAL,
        false => domain(config)?,
    };
    Some(format!("{}{domain}", label(cluster)))
}

/// Maps `cluster` to one label of a host, without collisions. A plain name is the label itself, and `NAMESPACE.NAME`
/// becomes `NAMESPACE--NAME`. A name that would be ambiguous or no valid host gets its readable part, `---` and its
/// hash.
pub fn label(cluster: &str) -> Cow<'_, str> {
    // No part begins or ends with `-` or contains `--`. So neither form contains `---`, and `--` occurs only at the
    // dots.
    let parts = |part: &str| is_host_label(part) && !part.contains("--");
    let is_plain = cluster.split('.').all(parts);
    let label = cluster.replace('.', "--");
    // Browsers read `xn--` as a name in another alphabet.
    if is_plain && label.len() <= 63 && !label.starts_with("xn--") {
        return match cluster.contains('.') {
            true => Cow::Owned(label),
            false => Cow::Borrowed(cluster),
        };
    }
    let readable: String = cluster
        .chars()
        .filter(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        .take(MAX_READABLE_CHARS)
        .collect();
    let hash = digest(&SHA256, cluster.as_bytes());
    Cow::Owned(format!("c{readable}---{}", hex(&hash.as_ref()[..16])))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use ray_relay_base::config::Advertise;

    #[test]
    fn form_actions_are_limited_to_dashboards() {
        let mut config = crate::http::tests::config();
        assert_eq!(all(&config), "*.localhost:*");
        config.http.dashboard_hosts = Some("{cluster}.ray.example.com".to_owned());
        assert_eq!(all(&config), "*.localhost:* *.ray.example.com:*");
    }

    #[test]
    fn valid_labels_are_kept_and_others_are_encoded() {
        for (cluster, expected) in [
            ("default", "default"),
            ("gpu-2", "gpu-2"),
            ("ml.train", "ml--train"),
        ] {
            assert_eq!(label(cluster), expected);
        }
        let long = format!("{}.{}", "n".repeat(63), "m".repeat(63));
        for cluster in ["ml--train", "xn.abc", "a--b.c", "", "A", "ü", &long] {
            let label = label(cluster);
            assert!(is_host_label(&label), "{cluster}: {label}");
            assert!(label.contains("---"), "{cluster}: {label}");
        }
    }

    proptest! {
        /// A user who may name a cluster cannot claim the origin of another one.
        #[test]
        fn distinct_names_have_distinct_labels(names in prop::collection::hash_set("[ab.-]{0,6}", 1..64)) {
            let labels: HashSet<_> = names.iter().map(|name| label(name)).collect();
            prop_assert_eq!(labels.len(), names.len());
            prop_assert!(labels.iter().all(|label| is_host_label(label)));
        }
    }

    #[test]
    fn host_is_classified_as_relay_or_dashboard() {
        let mut config = crate::http::tests::config();
        config.http.allowed_hosts = vec!["relay.ray.example.com".to_owned(), ".example.com".into()];
        config.http.dashboard_hosts = Some("{cluster}.ray.example.com".to_owned());
        let table = AdvertisedAddresses::new(Advertise::Host("{id}.debug.localhost".to_owned()));
        let origin_of =
            |host: &str| Origin::of(&ExternalAddress::parse(host).unwrap(), &config, &table);
        for host in [
            "127.0.0.1:5678",
            "[::1]:5678",
            "localhost",
            "10.0.0.7",
            "relay.ray.example.com",
            "other.example.com",
            "ray.example.com",
            "0123abcd.debug.localhost",
        ] {
            assert_eq!(origin_of(host), Some(Origin::Relay), "{host}");
        }
        for (host, label) in [
            ("gpu.localhost:5678", "gpu"),
            ("GPU.LOCALHOST.", "gpu"),
            ("ml--train.ray.example.com", "ml--train"),
            ("a.b.ray.example.com", "a.b"),
            ("a.b.localhost", "a.b"),
        ] {
            let expected = Some(Origin::Dashboard(label.to_owned()));
            assert_eq!(origin_of(host), expected, "{host}");
        }
        for host in ["xlocalhost", "example.org", "ray.example.com.evil.org"] {
            assert_eq!(origin_of(host), None, "{host}");
        }
    }

    #[test]
    fn browser_redirect_targets_a_host_of_this_relay() {
        let mut config = crate::http::tests::config();
        let redirect_host =
            |at: &str, config: &Config| host("ml.a", &ExternalAddress::parse(at).unwrap(), config);
        assert_eq!(redirect_host("10.0.0.7:5678", &config), None);
        assert_eq!(redirect_host("relay.example.com", &config), None);
        config.http.dashboard_hosts = Some("{cluster}.ray.example.com".to_owned());
        for local in ["127.0.0.1:5678", "localhost:5678", "[::1]:5678"] {
            assert_eq!(
                redirect_host(local, &config).unwrap(),
                "ml--a.localhost",
                "{local}"
            );
        }
        for at in ["10.0.0.7:5678", "relay.example.com"] {
            assert_eq!(
                redirect_host(at, &config).unwrap(),
                "ml--a.ray.example.com",
                "{at}"
            );
        }
    }
}
