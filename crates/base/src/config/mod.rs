//! Configuration: what the relay runs with, resolved and checked.
//!
//! Defaults < file < `RAY_RELAY_*` environment < flags. [`resolve()`] looks at all of them, and
//! reports every problem at once. `ray-relay serve` and `ray-relay config check` call it through
//! `app/validate.rs`, which adds the checks of other parts of the relay.
//! Each key is a row of a table in `settings/`; `config/example.toml` describes it, and [`explain`] prints that.

mod address;
pub mod explain;
mod file;
mod flags;
mod kind;
mod memory;
mod problem;
mod raw;
mod read;
mod resolve;
mod resolver;
mod settings;
mod sources;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod units;

pub use address::{is_host_label, is_loopback_host};
pub use flags::Flags;
pub use flags::words_of;
pub use memory::MemoryBudget;
pub use problem::{Problem, Problems};
pub use resolve::{Checks, Fault, Resolved, resolve};
pub use resolver::Setting;
pub use settings::{
    Advertise, Audit, AuditSink, Auth, ClientAuth, Cluster, ClusterDiscovery, Config, Connect, Dap,
    Gcs, HeadAddress, Hook, Http, Jwks, Kubernetes, Listen, Log, LogFormat, Notice, NoticeEvent,
    NoticeForm, OnFailure, Park, Placeholder, PostMortem, Recording, Registry, Release,
    SyslogAddress, Telemetry, Template, Tls, TlsMode, TlsVersion, Upstream, UpstreamPath,
    collective_timeout_of_job,
};
pub use sources::Sources;

// For the policy file, which is parsed with the same rules.
pub use problem::{Wrong, nearest, printable};
pub use raw::{ConfigText, RawValue, raw_value, read_text};
pub use read::{duration, flag, web_address};
