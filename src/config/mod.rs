//! Configuration: what the relay runs with, resolved and checked.
//!
//! Defaults < file < `RAY_RELAY_*` environment < flags. [`resolve()`] looks at all of them, and
//! reports every problem at once; it is called by `ray-relay serve` and `ray-relay check-config`.
//! `config/example.toml` lists every key with its default.

mod address;
mod model;
mod problem;
mod raw;
mod resolve;
mod setting;
mod sources;
pub mod units;

pub(crate) use address::is_loopback_host;
pub use model::{
    Advertise, Audit, AuditSink, AuditSync, Auth, ClientAuth, Cluster, Config, Dap, Discovery, Gcs,
    Http, Jwks, Kubernetes, Listen, Log, LogFormat, Masking, OnFailure, Recording, Registry,
    Release, SyslogAddress, Tls, TlsMode, TlsVersion,
};
pub use problem::{Problem, Problems};
pub use resolve::{Resolved, Setting, resolve};
pub use sources::{Flags, Sources};

// For the policy file, which is read with the same care.
pub(crate) use address::Wrong;
pub(crate) use problem::{nearest, shown};
pub(crate) use raw::{Lines, RawValue, raw_value};
pub(crate) use setting::{duration, flag};
