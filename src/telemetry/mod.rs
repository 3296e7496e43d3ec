//! What the relay tells about itself: logs and metrics, and the progress of a long preparation.

pub mod labels;
pub mod logging;
pub mod metrics;
pub mod progress;

pub use metrics::Metrics;
