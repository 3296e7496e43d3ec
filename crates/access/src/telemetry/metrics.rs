//! Prometheus families, all prefixed `ray_relay_` except those of the process (`process_`).
//!
//! One [`Metrics`] is built by the composition root and passed to its users; there is no global. Invariant: labels
//! are the closed enums of [`super::labels`] or names of configured clusters, so the number of series does not depend
//! on clients. Only `held` has job ids, and it bounds their number.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};

use self::held::HeldMetrics;
use self::process::ProcessMetrics;
use self::register::register;
pub use super::labels::{
    Asker, Direction, Editor, Handshake, HeadOutcome, LinkEnd, NoticeOutcome, Outcome, Protocol,
    RefusalKind, Reload, Route, SessionProtocol, StreamOutcome, TraceOutcome,
};
use ray_relay_base::config::NoticeEvent;
use ray_relay_base::memory;
use ray_relay_ray::ray::registry::{Breakpoint, Change, Observer, PollOutcome, Snapshot};

/// Creates a family of one Prometheus type from name and help, and for a histogram its buckets in seconds.
macro_rules! family {
    ($kind:ident = $name:expr, $help:expr) => {
        $kind::new($name, $help)
    };
    ($kind:ident[$($label:literal),*] = $name:expr, $help:expr) => {
        $kind::new(Opts::new($name, $help), &[$($label),*])
    };
    ($kind:ident = $name:expr, $help:expr, $buckets:expr) => {
        $kind::with_opts(HistogramOpts::new($name, $help).buckets($buckets.to_vec()))
    };
    ($kind:ident[$($label:literal),*] = $name:expr, $help:expr, $buckets:expr) => {
        $kind::new(HistogramOpts::new($name, $help).buckets($buckets.to_vec()), &[$($label),*])
    };
}

// After the macro that they use.
mod held;
mod process;
mod register;

/// Declares [`Metrics`]: `field: type[labels] = name, help, buckets;`.
macro_rules! families {
    ($($field:ident: $kind:ident $([$($label:literal),*])? = $name:literal, $help:literal $(, $buckets:expr)?;)+) => {
        /// The metrics of the relay, all families.
        #[derive(Debug)]
        pub struct Metrics {
            registry: Registry,
            held: HeldMetrics,
            process: ProcessMetrics,
            $($field: $kind,)+
        }

        impl Metrics {
            fn empty(registry: Registry, started: f64) -> Result<Self, prometheus::Error> {
                Ok(Self {
                    held: HeldMetrics::register(&registry)?,
                    process: ProcessMetrics::register(&registry, started)?,
                    $($field: register(&registry, family!($kind $([$($label),*])? = $name, $help $(, $buckets)?)?)?,)+
                    registry,
                })
            }
        }
    };
}

families! {
    connections: IntCounterVec["protocol"] = "ray_relay_connections_total",
        "Accepted connections by the protocol of their first bytes, inside TLS where they have it.";
    connections_open: IntGauge = "ray_relay_connections_open",
        "Connections open now.";
    accept_errors: IntCounter = "ray_relay_accept_errors_total",
        "Errors of accept(2). Rising: the process is probably out of file descriptors.";
    refusals: IntCounterVec["kind"] = "ray_relay_refusals_total",
        "Connections, sessions and requests refused, by kind.";
    sessions: IntCounterVec["protocol", "client", "outcome"] = "ray_relay_sessions_total",
        "Ended sessions, by protocol, by what the client says it is, and by what ended them.";
    sessions_open: IntGaugeVec["protocol"] = "ray_relay_sessions_open",
        "Sessions open now, by protocol.";
    session_bytes: IntCounterVec["direction"] = "ray_relay_session_bytes_total",
        "Bytes relayed in sessions: up to workers and heads, down to clients.";
    breakpoints: IntGaugeVec["cluster", "state"] = "ray_relay_breakpoints",
        "Breakpoints that are paused or attached now, by cluster.";
    snapshot_age: GaugeVec["cluster"] = "ray_relay_snapshot_age_seconds",
        "Age of the last good answer of a cluster's head. Missing until there was one; rising: the head does not answer.";
    head_requests: IntCounterVec["cluster", "outcome"] = "ray_relay_head_requests_total",
        "Requests to the heads, polls and proxied ones, by outcome.";
    narrowed: IntGauge = "ray_relay_discovery_narrowed",
        "1 while RayClusters of the relay's own namespace alone are found, because it may not list those of all.";
    blind: IntGauge = "ray_relay_discovery_blind",
        "1 while RayClusters cannot be listed. Those that are known stay.";
    left_out: IntGauge = "ray_relay_discovery_left_out",
        "RayClusters that were found and are not watched. Risen: there are more than discovery.max_clusters.";
    // From an idle head (2 ms) to one that lists 10,000 tasks (5 s) or does not answer (30 s).
    head_seconds: HistogramVec["cluster", "asker"] = "ray_relay_head_request_seconds",
        "Time until a Ray head begins to answer, for polls and for requests through the relay.",
        [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
    // Polls are a second apart. A head may be slow, and a worker's first stop takes half a second.
    listed_seconds: HistogramVec["cluster"] = "ray_relay_listed_seconds",
        "Longest time that a task can have stood at its breakpoint when it was listed: since the poll before.",
        [0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0];
    // From a user who sits and waits for it to one who returns the next day.
    attached_seconds: HistogramVec["protocol"] = "ray_relay_attached_seconds",
        "Time from when a breakpoint was listed until a session had reached its worker.",
        [0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0, 86400.0];
    memory: IntGaugeVec["kind"] = "ray_relay_memory_taken_bytes",
        "Memory taken for authenticated clients, by what it is for.";
    http_requests: IntCounterVec["route", "class"] = "ray_relay_http_requests_total",
        "HTTP requests, by what they were for and the class of the answer.";
    agents: IntGauge = "ray_relay_agents_linked",
        "Agents of nodes that are linked now.";
    agent_links: IntCounterVec["end"] = "ray_relay_agent_links_total",
        "Links of agents that ended, by what ended them.";
    streams: IntCounterVec["outcome"] = "ray_relay_agent_streams_total",
        "Connections to debuggers that agents were asked for, by outcome.";
    streams_open: IntGauge = "ray_relay_agent_streams_open",
        "Connections to debuggers through agents, open now.";
    tls_handshakes: IntCounterVec["outcome"] = "ray_relay_tls_handshakes_total",
        "TLS handshakes, by how they ended.";
    tls_reloads: IntCounterVec["outcome"] = "ray_relay_tls_reloads_total",
        "Changes of the TLS files. Refused: they are unusable, and the ones from before stay in use.";
    tls_not_after: GaugeVec[] = "ray_relay_tls_certificate_not_after_seconds",
        "When the relay's certificate expires, in seconds since 1970. Missing without TLS.";
    audit_lines: IntCounter = "ray_relay_audit_lines_total",
        "Lines written to the audit log.";
    audit_failures: IntCounter = "ray_relay_audit_failures_total",
        "Entries that could not be written to the audit log. Rising: with audit.on_failure = \"deny\" no session begins.";
    audit_failing: IntGauge = "ray_relay_audit_failing",
        "1 while the audit log cannot be written, for example because its disk is full.";
    // From a page cache (50 µs) over a disk's flush (5 ms) to a disk that hangs.
    audit_seconds: Histogram = "ray_relay_audit_write_seconds",
        "Time of one write to the audit log, of one or more lines.",
        [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 2.0];
    recording_failures: IntCounter = "ray_relay_recording_failures_total",
        "Sessions that had to be recorded and could not be, or not to their end.";
    notices: IntCounterVec["event", "outcome"] = "ray_relay_notices_total",
        "Notices for the webhook, by event and by outcome.";
    traces: IntCounterVec["outcome"] = "ray_relay_traces_total",
        "Traces of connections for the collector, by outcome.";
}

/// The states for which breakpoints are counted.
const STATES: [&str; 4] = ["paused", "attached", "parked", "unreachable"];

impl Metrics {
    /// Creates families without values, in a registry of their own.
    ///
    /// # Errors
    /// Only if two families have the same name, which the tests rule out.
    pub fn new() -> Result<Arc<Self>, prometheus::Error> {
        let started = since_1970(SystemTime::now());
        let metrics = Self::empty(Registry::new(), started)?;
        let build = family!(
            IntGaugeVec["version"] = "ray_relay_build_info",
            "Always 1; the version is in the label."
        )?;
        register(&metrics.registry, build)?
            .with_label_values(&[env!("CARGO_PKG_VERSION")])
            .set(1);
        let start = family!(
            Gauge = "ray_relay_start_time_seconds",
            "When this process started, in seconds since 1970."
        )?;
        register(&metrics.registry, start)?.set(started);
        Ok(Arc::new(metrics))
    }

    /// Counts a connection whose protocol was detected.
    pub fn connection(&self, protocol: Protocol) {
        count(&self.connections, &[protocol.label()]);
    }

    /// Counts an accepted connection as open until the guard is dropped.
    pub fn connection_open(&self) -> OpenGuard {
        OpenGuard::new(self.connections_open.clone())
    }

    /// Counts a failed `accept`.
    pub fn accept_error(&self) {
        self.accept_errors.inc();
    }

    /// Counts a refusal.
    pub fn refused(&self, kind: RefusalKind) {
        count(&self.refusals, &[kind.label()]);
    }

    /// Records how many bytes are reserved for `kind`.
    pub fn set_memory_bytes(&self, kind: memory::MemoryUse, bytes: usize) {
        let gauge = self.memory.with_label_values(&[kind.as_str()]);
        gauge.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Counts a session as open until the guard is dropped.
    pub fn session_open(&self, protocol: SessionProtocol) -> OpenGuard {
        OpenGuard::new(self.sessions_open.with_label_values(&[protocol.label()]))
    }

    /// Counts an ended session of `client`.
    pub fn session_ended(&self, protocol: SessionProtocol, client: Editor, outcome: Outcome) {
        let labels = [protocol.label(), client.label(), outcome.label()];
        count(&self.sessions, &labels);
    }

    /// Records that a session has reached a worker that had been listed for `waited`.
    pub fn session_attached(&self, protocol: SessionProtocol, waited: Duration) {
        let seconds = self.attached_seconds.with_label_values(&[protocol.label()]);
        seconds.observe(waited.as_secs_f64());
    }

    /// Counts relayed bytes of a session. Mostly only one direction has moved.
    pub fn session_bytes(&self, direction: Direction, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let counter = self.session_bytes.with_label_values(&[direction.label()]);
        counter.inc_by(bytes);
    }

    /// Records a request of `asker` to a head, answered or not after `took`. `cluster` is a configured name.
    pub fn head_request(&self, cluster: &str, asker: Asker, outcome: HeadOutcome, took: Duration) {
        count(&self.head_requests, &[cluster, outcome.label()]);
        let seconds = self
            .head_seconds
            .with_label_values(&[cluster, asker.label()]);
        seconds.observe(took.as_secs_f64());
    }

    /// Counts an HTTP request answered with `status`.
    pub fn http_request(&self, route: Route, status: u16) {
        let class = match status {
            100..=199 => "1xx",
            200..=299 => "2xx",
            300..=399 => "3xx",
            400..=499 => "4xx",
            _ => "5xx",
        };
        count(&self.http_requests, &[route.label(), class]);
    }

    /// Counts an agent as linked until the guard is dropped.
    pub fn agent_linked(&self) -> OpenGuard {
        OpenGuard::new(self.agents.clone())
    }

    /// Counts an ended link.
    pub fn agent_link(&self, end: LinkEnd) {
        count(&self.agent_links, &[end.label()]);
    }

    /// Counts a connection to a debugger that was requested from an agent.
    pub fn stream(&self, outcome: StreamOutcome) {
        count(&self.streams, &[outcome.label()]);
    }

    /// Counts a connection through an agent as open until the guard is dropped.
    pub fn stream_open(&self) -> OpenGuard {
        OpenGuard::new(self.streams_open.clone())
    }

    /// Counts an ended TLS handshake.
    pub fn tls_handshake(&self, outcome: Handshake) {
        count(&self.tls_handshakes, &[outcome.label()]);
    }

    /// Counts a change of the TLS files.
    pub(crate) fn tls_reload(&self, outcome: Reload) {
        count(&self.tls_reloads, &[outcome.label()]);
    }

    /// Records when the certificate in use expires.
    pub(crate) fn tls_certificate(&self, expires: SystemTime) {
        let gauge = self.tls_not_after.with_label_values::<&str>(&[]);
        gauge.set(since_1970(expires));
    }

    /// Records a write of `lines` lines to the audit log.
    pub(crate) fn audit_lines(&self, lines: u64, took: Duration) {
        self.audit_lines.inc_by(lines);
        self.audit_seconds.observe(took.as_secs_f64());
    }

    /// Records whether the last entry could not be written to the audit log.
    pub(crate) fn audit_failing(&self, failing: bool) {
        self.audit_failing.set(failing.into());
    }

    /// Counts an entry that could not be written to the audit log.
    pub(crate) fn audit_failure(&self) {
        self.audit_failures.inc();
    }

    /// Counts a session that has to be recorded and cannot be, or no further.
    pub(crate) fn recording_failure(&self) {
        self.recording_failures.inc();
    }

    /// Counts a notice that was delivered or dropped.
    pub fn notice(&self, event: NoticeEvent, outcome: NoticeOutcome) {
        count(&self.notices, &[event.word(), outcome.label()]);
    }

    /// Counts traces that were sent or dropped.
    pub fn traces(&self, outcome: TraceOutcome, count: usize) {
        let traces = self.traces.with_label_values(&[outcome.label()]);
        traces.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// Renders all families in Prometheus' text format, with registry values from `snapshot`.
    pub fn render(&self, snapshot: &Snapshot) -> String {
        let now = Instant::now();
        for cluster in snapshot.clusters.iter() {
            let name: &str = &cluster.name;
            for state in STATES {
                let count = snapshot
                    .live
                    .iter()
                    .filter(|b| *b.cluster == *name && b.state.word() == state)
                    .count();
                self.breakpoints
                    .with_label_values(&[name, state])
                    .set(i64::try_from(count).unwrap_or(i64::MAX));
            }
            if let Some(polled) = cluster.polled {
                let age = now.saturating_duration_since(polled).as_secs_f64();
                self.snapshot_age.with_label_values(&[name]).set(age);
            }
        }
        if let Some(search) = &snapshot.search {
            self.narrowed.set(search.narrowed.is_some().into());
            self.blind.set(search.is_blind.into());
            let left_out = i64::try_from(search.left_out.len());
            self.left_out.set(left_out.unwrap_or(i64::MAX));
        }
        self.held.refresh();
        self.process.refresh();
        let mut text = String::new();
        // Fails only for a family without a name or a help text.
        _ = TextEncoder::new().encode_utf8(&self.registry.gather(), &mut text);
        text
    }
}

impl Observer for Metrics {
    fn polled(&self, cluster: &str, outcome: PollOutcome, latency: Duration) {
        let outcome = match outcome {
            PollOutcome::Ok => HeadOutcome::Ok,
            PollOutcome::Unreachable => HeadOutcome::Unreachable,
            PollOutcome::TimedOut => HeadOutcome::Timeout,
            PollOutcome::Unauthorized => HeadOutcome::Refused,
            PollOutcome::Refused => HeadOutcome::Error,
            PollOutcome::Malformed => HeadOutcome::Invalid,
        };
        self.head_request(cluster, Asker::Poll, outcome, latency);
    }

    fn listed(&self, cluster: &str, before: Duration) {
        let seconds = self.listed_seconds.with_label_values(&[cluster]);
        seconds.observe(before.as_secs_f64());
    }

    fn changed(&self, change: Change, breakpoint: &Breakpoint) {
        self.held.changed(change, breakpoint);
    }

    fn gone(&self, cluster: &str) {
        // Clusters come and go while the relay runs, and their series must not pile up. Removing a missing series is
        // harmless.
        for outcome in HeadOutcome::ALL {
            let _ = self
                .head_requests
                .remove_label_values(&[cluster, outcome.label()]);
        }
        for state in STATES {
            let _ = self.breakpoints.remove_label_values(&[cluster, state]);
        }
        for asker in Asker::ALL {
            let _ = self
                .head_seconds
                .remove_label_values(&[cluster, asker.label()]);
        }
        let _ = self.listed_seconds.remove_label_values(&[cluster]);
        let _ = self.snapshot_age.remove_label_values(&[cluster]);
        self.held.gone(cluster);
    }
}

/// Returns name, type, labels and help of each family, for `docs/reference.md`.
#[cfg(any(test, feature = "testing"))]
pub fn described() -> Result<Vec<[String; 4]>, prometheus::Error> {
    register::described::take();
    Metrics::new()?;
    let mut rows = register::described::take();
    rows.sort();
    Ok(rows)
}

fn count(family: &IntCounterVec, labels: &[&str]) {
    family.with_label_values(labels).inc();
}

fn since_1970(time: SystemTime) -> f64 {
    let passed = time.duration_since(SystemTime::UNIX_EPOCH);
    passed.unwrap_or_default().as_secs_f64()
}

/// Counts one open object until it is dropped.
#[derive(Debug)]
#[must_use = "the gauge falls when this is dropped"]
pub struct OpenGuard(IntGauge);

impl OpenGuard {
    fn new(gauge: IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ray_relay_ray::ray::registry::ClusterStatus;

    #[test]
    fn families_appear_with_their_values() {
        let metrics = Metrics::new().unwrap();
        metrics.connection(Protocol::Dap);
        metrics.http_request(Route::Dashboard, 204);
        metrics.head_request(
            "default",
            Asker::Poll,
            HeadOutcome::Ok,
            Duration::from_millis(3),
        );
        let open = metrics.session_open(SessionProtocol::Dap);
        let snapshot = Snapshot {
            clusters: [ClusterStatus {
                name: "default".into(),
                ray_job: None,
                ray_version: None,
                polled: Some(Instant::now()),
                trouble: None,
                pending: false,
                incomplete: None,
            }]
            .into(),
            ..Snapshot::default()
        };
        let text = metrics.render(&snapshot);
        for line in [
            r#"ray_relay_connections_total{protocol="dap"} 1"#,
            r#"ray_relay_http_requests_total{class="2xx",route="dashboard"} 1"#,
            r#"ray_relay_head_requests_total{cluster="default",outcome="ok"} 1"#,
            r#"ray_relay_sessions_open{protocol="dap"} 1"#,
            r#"ray_relay_breakpoints{cluster="default",state="paused"} 0"#,
            r#"ray_relay_snapshot_age_seconds{cluster="default"}"#,
            concat!(
                "ray_relay_build_info{version=\"",
                env!("CARGO_PKG_VERSION"),
                "\"} 1"
            ),
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        drop(open);
        let text = metrics.render(&snapshot);
        assert!(text.contains(r#"ray_relay_sessions_open{protocol="dap"} 0"#));
    }
}
