//! The resources of its node that a task or actor holds, as Ray accounts for them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Serialize, Serializer};

use ray_relay_base::wire::text::one_line;

/// Ray's own resolution: it accounts for resources in ten-thousandths.
const PARTS_PER_UNIT: f64 = 10_000.0;

/// Resource kinds stored for one task: a cluster may have any number, with any names.
const MAX_RESOURCES: usize = 16;

const MAX_NAME_CHARS: usize = 60;

/// An amount of one resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(u64);

impl Amount {
    /// `None` for an invalid amount, such as a negative one.
    fn read(amount: f64) -> Option<Self> {
        let units = (amount * PARTS_PER_UNIT).round();
        // Exact in a float up to this limit.
        (0.0..9e15).contains(&units).then_some(Self(units as u64))
    }

    /// In whole units.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / PARTS_PER_UNIT
    }
}

impl std::ops::AddAssign for Amount {
    fn add_assign(&mut self, more: Self) {
        self.0 = self.0.saturating_add(more.0);
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_f64())
    }
}

/// The resources of one task or actor, by Ray's names: `CPU`, `GPU`, `memory` (bytes), `accelerator_type:A100` and
/// custom ones of the cluster. Empty: it holds none, such as an actor that requested nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources(BTreeMap<String, Amount>);

impl Resources {
    /// Reads the column `required_resources` of a task or actor.
    pub(super) fn read(required: &BTreeMap<String, f64>) -> Self {
        let mut read = BTreeMap::new();
        for (name, amount) in required {
            let amount = Amount::read(*amount).filter(|amount| *amount > Amount::default());
            if let (Some(name), Some(amount)) = (of_node(name), amount)
                && read.len() < MAX_RESOURCES
            {
                *read
                    .entry(one_line(name).chars().take(MAX_NAME_CHARS).collect())
                    .or_default() += amount;
            }
        }
        Self(read)
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn of(required: &[(&str, f64)]) -> Self {
        let required = required.iter().map(|(n, a)| ((*n).to_owned(), *a));
        Self::read(&required.collect())
    }

    /// CPUs, as Ray counts them.
    pub fn cpus(&self) -> Amount {
        self.amount("CPU")
    }

    /// GPUs; a part of one where several tasks share it.
    pub fn gpus(&self) -> Amount {
        self.amount("GPU")
    }

    fn amount(&self, name: &str) -> Amount {
        self.0.get(name).copied().unwrap_or_default()
    }
}

/// The resource of the node behind a placement group's name for it: `GPU_group_` and the group's id. The task also has
/// the same amount for the bundle, `GPU_group_0_` and the id, which is skipped.
fn of_node(name: &str) -> Option<&str> {
    let Some((resource, group)) = name.split_once("_group_") else {
        return Some(name);
    };
    let is_id = |id: &str| id.len() >= 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let in_bundle = group.split_once('_').is_some_and(|(bundle, id)| {
        !bundle.is_empty() && bundle.bytes().all(|byte| byte.is_ascii_digit()) && is_id(id)
    });
    match (is_id(group), in_bundle) {
        (_, true) => None,
        // Every group has that one, and no node does.
        (true, _) if resource == "bundle" => None,
        (true, _) => Some(resource),
        // A custom resource.
        (false, false) => Some(name),
    }
}

/// By Ray's names, as numbers.
impl Serialize for Resources {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, amount)| (name, amount.as_f64())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(required: &[(&str, f64)]) -> String {
        serde_json::to_string(&Resources::of(required)).unwrap_or_default()
    }

    #[test]
    fn resources_use_ray_names_and_resolution() {
        let resources = Resources::of(&[
            ("CPU", 1.0),
            ("GPU", 0.25),
            ("accelerator_type:A100", 0.001),
        ]);
        assert_eq!(
            (resources.cpus().as_f64(), resources.gpus().as_f64()),
            (1.0, 0.25)
        );
        assert_eq!(
            json(&[("CPU", 1.0), ("GPU", 0.1 + 0.2)]),
            r#"{"CPU":1.0,"GPU":0.3}"#
        );
        assert_eq!(Resources::of(&[]).gpus(), Amount::default());
        for strange in [f64::NAN, f64::INFINITY, -1.0, 1e300, 0.0] {
            assert_eq!(Resources::of(&[("GPU", strange)]), Resources::default());
        }
    }

    #[test]
    fn placement_group_resources_are_counted_once() {
        let group = "4482dec0faaf5ead891ff165950101000000";
        let names = [
            format!("CPU_group_{group}"),
            format!("CPU_group_0_{group}"),
            format!("GPU_group_{group}"),
            format!("GPU_group_12_{group}"),
            format!("bundle_group_{group}"),
            format!("bundle_group_0_{group}"),
            "my_group_of_nodes".to_owned(),
        ];
        let required: Vec<_> = names.iter().map(|name| (&**name, 1.0)).collect();
        assert_eq!(
            json(&required),
            r#"{"CPU":1.0,"GPU":1.0,"my_group_of_nodes":1.0}"#
        );
    }

    #[test]
    fn resource_names_and_count_are_bounded() {
        let long = format!("{}\n", "x".repeat(500));
        assert_eq!(
            json(&[(&long, 1.0)]),
            format!("{{\"{}\":1.0}}", "x".repeat(MAX_NAME_CHARS))
        );
        let many: Vec<_> = (0..100).map(|n| n.to_string()).collect();
        let many: Vec<_> = many.iter().map(|name| (&**name, 1.0)).collect();
        assert_eq!(Resources::of(&many).0.len(), MAX_RESOURCES);
    }
}
