//! What the relay tells about itself: logs.

pub mod logging;
