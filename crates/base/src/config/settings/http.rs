//! `[http]`: limits and timeouts of the relay's API and the dashboard.

use crate::config::address::is_host_name;
use crate::config::kind::{ValueKind, count, flag, listed, quoted};
use crate::config::problem::Wrong;
use crate::config::raw::RawValue;
use crate::config::read::{self, Read};

settings! {
    /// `[http]`: API and dashboard.
    pub struct Http = "http" {
        /// Open streams of /relay/v1/events at a time.
        max_event_streams: usize = 64, count(1..=100_000);
        /// Names under which browsers, commands, agents and `ray` may reach this relay, in addition to IP addresses
        /// and localhost. A leading dot allows every name below that domain. Other names are refused.
        allowed_hosts: Vec<String> = Vec::new(), ValueKind::new(host_names, listed);
        /// The host name of each cluster's dashboard for browsers, such as `{cluster}.ray.example.com`. Absent:
        /// `{cluster}.localhost`, for browsers on this machine or at a forwarded port.
        dashboard_hosts: Option<String> = None, ValueKind::new(dashboard_hosts, quoted).optional();
        /// Whether /relay/metrics is public even if clients are authenticated.
        metrics_open: bool = false, flag();
    }
}

/// Host names, or domains with a dot in front, in lower case.
fn host_names(value: &RawValue) -> Read<Vec<String>> {
    let wrong = Wrong::expected("an array of host names, such as [\"relay.example.com\"]");
    let Some(names) = read::list(value) else {
        return Err(wrong);
    };
    let valid = |name: &String| is_host_name(name.strip_prefix('.').unwrap_or(name));
    if !names.iter().all(valid) {
        return Err(wrong.hint("names alone: no scheme, no port, no path, no * (\".example.com\" stands for every name below it)"));
    }
    Ok(names.iter().map(|name| name.to_ascii_lowercase()).collect())
}

/// Expected form of `dashboard_hosts`, for messages.
const DASHBOARDS: &str =
    "a host name that begins with {cluster}, such as \"{cluster}.ray.example.com\"";

/// Reads `{cluster}` and a domain. The cluster is a label of its own, so that one DNS wildcard and one wildcard
/// certificate cover all.
fn dashboard_hosts(value: &RawValue) -> Read<String> {
    let template = read::text(value, DASHBOARDS)?;
    let domain = template.strip_prefix("{cluster}.");
    match domain.is_some_and(|domain| is_host_name(domain) && domain.contains('.')) {
        true => Ok(template.to_ascii_lowercase()),
        false => Err(Wrong::expected(DASHBOARDS).hint(
            "no scheme and no port; give dashboards a domain of their own, that nothing else is below",
        )),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn dashboard_hosts_need_a_cluster_label() {
        let read = |text: &'static str| dashboard_hosts(&RawValue::Word(text.into()));
        assert_eq!(
            read("{cluster}.Ray.example.com").unwrap(),
            "{cluster}.ray.example.com"
        );
        for text in [
            "ray.example.com",
            "{cluster}",
            "{cluster}.com",
            "ray-{cluster}.example.com",
            "{cluster}.{cluster}.example.com",
            "https://{cluster}.example.com",
            "{cluster}.example.com:443",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
