//! Telemetry: logs, metrics and traces, and the progress of a long preparation.

pub mod labels;
pub mod logging;
pub mod metrics;
pub mod progress;
pub mod request;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod traces;

pub use metrics::Metrics;
