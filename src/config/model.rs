//! The resolved configuration and its defaults.
//!
//! Built by [`super::resolve`] alone in the daemon, by hand in tests. Every value here has been
//! checked against its bounds, so the rest of the relay uses it without looking again.

mod audit;
mod auth;
mod jwks;
mod kubernetes;
mod masking;
mod release;
mod tls;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

pub use audit::{Audit, AuditSink, AuditSync, OnFailure, Recording, SyslogAddress};
pub use auth::Auth;
pub use jwks::Jwks;
pub use kubernetes::Kubernetes;
pub use masking::Masking;
pub use release::Release;
pub use tls::{ClientAuth, Tls, TlsMode, TlsVersion};

/// Everything, resolved. Built by `resolve` from defaults, file, environment and flags.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The one port.
    pub listen: Listen,
    /// Who is recognised.
    pub auth: Auth,
    /// Encryption on it.
    pub tls: Tls,
    /// At least one; the first is the default cluster.
    pub clusters: Vec<Cluster>,
    /// Polling.
    pub registry: Registry,
    /// Debug sessions.
    pub dap: Dap,
    /// API and dashboard.
    pub http: Http,
    /// Keys of another issuer of tokens.
    pub jwks: Jwks,
    /// Kubernetes as an identity provider.
    pub kubernetes: Kubernetes,
    /// How breakpoints are told apart in rewritten dashboard answers.
    pub advertise: Advertise,
    /// The record of what was decided and done.
    pub audit: Audit,
    /// Recorded sessions.
    pub recording: Recording,
    /// What is hidden of values.
    pub masking: Masking,
    /// What was forgotten.
    pub release: Release,
    /// Logs.
    pub log: Log,
}

/// `[listen]`
#[derive(Debug, Clone, PartialEq)]
pub struct Listen {
    /// `address`, default `127.0.0.1:5678`.
    pub address: SocketAddr,
    /// `insecure_no_auth`: allow a non-loopback address although nobody is authenticated.
    pub insecure_no_auth: bool,
    /// `max_connections`, default 1024: more wait in the kernel's queue.
    pub max_connections: usize,
    /// `handshake_timeout`, default 1 min: from accept to the first line of a terminal, `attach`, or an HTTP request.
    pub handshake_timeout: Duration,
    /// `keepalive`, default 15 s: first probe of an idle client; four more at a quarter of it each.
    pub keepalive: Duration,
    /// `drain_timeout`, default 30 s: how long SIGTERM waits for sessions.
    pub drain_timeout: Duration,
}

/// `[[cluster]]`
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    /// `name`, default `default`: lower-case letters, digits and `-`.
    pub name: String,
    /// `ray_address`, default `http://127.0.0.1:8265`: the head's dashboard, `http` or `https`, a path prefix allowed.
    pub ray_address: String,
    /// `token_file`: Ray's own token. Absent: for the first cluster RAY_AUTH_TOKEN,
    /// RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token, as Ray itself looks; none for the others.
    pub token_file: Option<PathBuf>,
    /// `gcs_address`, default `auto`: the GCS, for breakpoints of the legacy debugger.
    pub gcs: Gcs,
}

/// Where a cluster's GCS is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gcs {
    /// Port 6379 of the head's host, where `ray_address` is `http`; its failures are not worth a warning.
    Auto,
    /// It is not asked.
    Off,
    /// `host:port`.
    At(String),
}

impl std::fmt::Display for Gcs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Off => "off",
            Self::At(address) => address,
        })
    }
}

/// Where paused workers are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discovery {
    /// The dashboard, port 8265.
    Http,
    /// The GCS.
    Gcs,
}

/// `[registry]`
#[derive(Debug, Clone, PartialEq)]
pub struct Registry {
    /// `poll_interval`, default 1 s (100 ms to 1 min).
    pub poll_interval: Duration,
    /// `request_timeout`, default 5 s, of one request to the head.
    pub request_timeout: Duration,
    /// `backoff_max`, default 30 s: longest pause between polls of a head that does not answer.
    pub backoff_max: Duration,
    /// `node_interval`, default 3 s: how often the nodes are checked while anything is paused or attached.
    pub node_interval: Duration,
    /// `stale_after`, default 10 s: a snapshot older than this makes /relay/readyz?cluster=NAME fail.
    pub stale_after: Duration,
    /// `locations`, default true: ask /worker/traceback once for each newly paused worker.
    pub locations: bool,
    /// `keep_ended`, default 10 min: how long ended breakpoints are remembered.
    pub keep_ended: Duration,
    /// `discovery`, default `http`: whom to ask for paused workers.
    pub discovery: Discovery,
}

/// `[dap]`
#[derive(Debug, Clone, PartialEq)]
pub struct Dap {
    /// `connect_timeout`, default 5 s: TCP connect and first answer of a worker's debugger.
    pub connect_timeout: Duration,
    /// `max_frame`, default 64 MiB: largest single message in either direction after attach.
    pub max_frame: usize,
    /// `max_handshake_frame`, default 1 MiB: largest message until attach.
    pub max_handshake_frame: usize,
    /// `allow_terminate`, default false: whether everybody who may debug may end the worker process too.
    pub allow_terminate: bool,
}

/// `[http]`
#[derive(Debug, Clone, PartialEq)]
pub struct Http {
    /// `header_timeout`, default 30 s: from the first byte of a request to the end of its headers, and of an idle kept-alive connection.
    pub header_timeout: Duration,
    /// `max_rewrite`, default 64 MiB: largest dashboard answer that is held to rewrite addresses in it.
    pub max_rewrite: usize,
    /// `max_event_streams`, default 64.
    pub max_event_streams: usize,
    /// `allowed_hosts`, default []: names besides IP addresses and localhost under which browsers and clients may reach
    /// this relay; with a dot in front, every name below that domain.
    pub allowed_hosts: Vec<String>,
    /// `metrics_open`, default false: /relay/metrics is for everybody, also where clients are authenticated.
    pub metrics_open: bool,
}

/// `[advertise]`
#[derive(Debug, Clone, PartialEq)]
pub enum Advertise {
    /// `mode = "single"` (default): one host and port, the host spelled differently for each breakpoint.
    Single,
    /// `mode = "ports"`, `ports = "5700-5731"`: a port for each breakpoint, on the listen address.
    Ports(std::ops::RangeInclusive<u16>),
    /// `mode = "host"`, `host = "{id}.debug.example.com"`.
    Host(String),
}

/// `[log]`
#[derive(Debug, Clone, PartialEq)]
pub struct Log {
    /// `level`, default `info`: a tracing filter such as `info` or `ray_relay::dap=debug,info`.
    pub filter: String,
    /// `format`, default `text`.
    pub format: LogFormat,
}

/// Form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people; coloured on a terminal only.
    Text,
    /// One JSON object a line.
    Json,
}

impl Config {
    /// Whether anybody has to be recognised at all.
    pub fn authenticates(&self) -> bool {
        self.auth.is_on() || self.jwks.is_given() || self.kubernetes.enabled
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: Listen::default(),
            auth: Auth::default(),
            tls: Tls::default(),
            clusters: vec![Cluster::default()],
            registry: Registry::default(),
            dap: Dap::default(),
            http: Http::default(),
            jwks: Jwks::default(),
            kubernetes: Kubernetes::default(),
            advertise: Advertise::Single,
            audit: Audit::default(),
            recording: Recording::default(),
            masking: Masking::default(),
            release: Release::default(),
            log: Log::default(),
        }
    }
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 5678),
            insecure_no_auth: false,
            max_connections: 1024,
            handshake_timeout: Duration::from_secs(60),
            keepalive: Duration::from_secs(15),
            drain_timeout: Duration::from_secs(30),
        }
    }
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            ray_address: "http://127.0.0.1:8265".to_owned(),
            token_file: None,
            gcs: Gcs::Auto,
        }
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            poll_interval: Duration::from_secs(1),
            request_timeout: Duration::from_secs(5),
            backoff_max: Duration::from_secs(30),
            node_interval: Duration::from_secs(3),
            stale_after: Duration::from_secs(10),
            locations: true,
            keep_ended: Duration::from_secs(600),
            discovery: Discovery::Http,
        }
    }
}

impl Default for Dap {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            max_frame: 64 << 20,
            max_handshake_frame: 1 << 20,
            allow_terminate: false,
        }
    }
}

impl Default for Http {
    fn default() -> Self {
        Self {
            header_timeout: Duration::from_secs(30),
            max_rewrite: 64 << 20,
            max_event_streams: 64,
            allowed_hosts: Vec::new(),
            metrics_open: false,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self {
            filter: "info".to_owned(),
            format: LogFormat::Text,
        }
    }
}
