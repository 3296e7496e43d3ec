//! What the relay tells about itself: logs and metrics.

pub mod labels;
pub mod logging;
pub mod metrics;

pub use metrics::Metrics;
