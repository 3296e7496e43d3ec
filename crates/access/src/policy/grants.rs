//! Grants of an outside authority, which may grow while they are held.

use std::sync::Arc;

use tokio::sync::watch;

use super::breakpoint_selector::BreakpointSelector;
use super::scope::Scopes;

/// Scopes, and the breakpoints that they apply to.
pub type Granted = Vec<(Scopes, BreakpointSelector)>;

/// Shared by all holders: an update reaches all of them.
#[derive(Debug, Clone, Default)]
pub struct Grants(watch::Sender<Arc<Granted>>);

impl Grants {
    /// Grants `granted`, until replaced.
    pub fn new(granted: Granted) -> Self {
        Self(watch::Sender::new(Arc::new(granted)))
    }

    /// Returns the current grants.
    pub fn now(&self) -> Arc<Granted> {
        Arc::clone(&self.0.borrow())
    }

    /// Replaces the grants for all holders.
    pub fn replace(&self, granted: Granted) {
        self.0.send_replace(Arc::new(granted));
    }

    /// Subscribes to changes.
    pub fn watch(&self) -> watch::Receiver<Arc<Granted>> {
        self.0.subscribe()
    }
}

/// Compares the current grants.
impl PartialEq for Grants {
    fn eq(&self, other: &Self) -> bool {
        self.now() == other.now()
    }
}

impl Eq for Grants {}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{Access, Rule, Scope};
    use super::*;

    #[test]
    fn later_grants_apply_within_the_policy() {
        let grant = |scopes: &str, cluster: &str| {
            let selector = BreakpointSelector::on_clusters(cluster);
            (scopes.parse().unwrap(), selector)
        };
        let grants = Grants::new(vec![grant("list", "ml.train")]);
        let granted_access = Access::granted(grants.clone());
        let rule = Rule {
            scopes: "list".parse().unwrap(),
            ..Rule::default()
        };
        let within = Access::new(vec![Arc::new(rule)]).limited_to(grants.clone());
        let may_on_cluster =
            |access: &Access, scope, cluster| access.may_on_cluster(scope, cluster);
        assert!(
            may_on_cluster(&granted_access, Scope::List, "ml.train")
                && may_on_cluster(&within, Scope::List, "ml.train")
        );
        assert!(
            !may_on_cluster(&granted_access, Scope::List, "ml.new")
                && !may_on_cluster(&within, Scope::List, "ml.new")
        );
        grants.replace(vec![grant("list,debug", "ml.*")]);
        assert!(
            may_on_cluster(&granted_access, Scope::List, "ml.new")
                && may_on_cluster(&within, Scope::List, "ml.new")
        );
        assert!(
            may_on_cluster(&granted_access, Scope::Debug, "ml.new")
                && !may_on_cluster(&within, Scope::Debug, "ml.new")
        );
        assert_eq!(
            granted_access,
            Access::granted(Grants::new(vec![grant("list,debug", "ml.*")]))
        );
    }
}
