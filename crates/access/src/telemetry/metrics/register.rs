//! Registers metrics as they are created.

use prometheus::Registry;
use prometheus::core::Collector;

pub(super) fn register<C: Collector + Clone + 'static>(
    registry: &Registry,
    family: C,
) -> Result<C, prometheus::Error> {
    #[cfg(any(test, feature = "testing"))]
    described::note(&family);
    registry.register(Box::new(family.clone()))?;
    Ok(family)
}

/// Registered families, for `docs/reference.md`: Prometheus' own registry does not list a family without values.
#[cfg(any(test, feature = "testing"))]
pub(super) mod described {
    use std::cell::RefCell;

    use prometheus::core::Collector;

    thread_local! {
        static ROWS: RefCell<Vec<[String; 4]>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn note(family: &impl Collector) {
        let kind = family
            .collect()
            .first()
            .map(|family| family.get_field_type());
        let kind = format!("{:?}", kind.unwrap_or_default()).to_lowercase();
        for desc in family.desc() {
            let labels: Vec<_> = desc
                .variable_labels
                .iter()
                .map(|l| format!("`{l}`"))
                .collect();
            let row = [
                format!("`{}`", desc.fq_name),
                kind.clone(),
                labels.join(", "),
                desc.help.clone(),
            ];
            ROWS.with_borrow_mut(|rows| rows.push(row));
        }
    }

    /// Returns name, type, labels and help of each, once.
    pub(in crate::telemetry::metrics) fn take() -> Vec<[String; 4]> {
        ROWS.take()
    }
}
