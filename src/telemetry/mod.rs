//! What the relay tells about itself: metrics (and logs).

pub mod metrics;

pub use metrics::Metrics;
