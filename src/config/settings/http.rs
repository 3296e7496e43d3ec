//! `[http]`: limits and timeouts of the relay's API and the dashboard.

use std::time::Duration;

use crate::config::address::is_host_name;
use crate::config::kind::{Kind, SHORTEST, count, duration, flag, listed, size};
use crate::config::problem::Wrong;
use crate::config::raw::RawValue;
use crate::config::read::{self, Read};
use crate::config::units::{GIB, KIB, MIB, MINUTE, SECOND};

settings! {
    /// `[http]`: API and dashboard.
    pub struct Http = "http" {
        /// The deadline from the first byte of a request to the end of its headers, and of an idle kept-alive
        /// connection.
        header_timeout: Duration = 30 * SECOND, duration(SHORTEST..=10 * MINUTE);
        /// Largest dashboard answer that is held to rewrite addresses in it, in bytes.
        max_rewrite: usize = 64 * MIB, size(64 * KIB..=GIB);
        /// Open streams of /relay/v1/events at a time.
        max_event_streams: usize = 64, count(1..=100_000);
        /// Names besides IP addresses and localhost under which browsers and clients may reach
        /// this relay; with a dot in front, every name below that domain.
        allowed_hosts: Vec<String> = Vec::new(), Kind::new(host_names, listed);
        /// /relay/metrics is for everybody, also where clients are authenticated.
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
