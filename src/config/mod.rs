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

pub use model::{
    Advertise, Audit, AuditSink, AuditSync, Cluster, Config, Dap, Http, Listen, Log, LogFormat,
    OnFailure, Recording, Registry, SyslogAddress,
};
pub use problem::{Problem, Problems};
pub use resolve::{Resolved, Setting, resolve};
pub use sources::{Flags, Sources};
