//! Metrics are registered as they are made.

use prometheus::Registry;
use prometheus::core::Collector;

pub(super) fn register<C: Collector + Clone + 'static>(
    registry: &Registry,
    family: C,
) -> Result<C, prometheus::Error> {
    registry.register(Box::new(family.clone()))?;
    Ok(family)
}
