//! What an outside authority grants, which may come to be more while it is held.

use std::sync::Arc;

use tokio::sync::watch;

use super::breakpoint_selector::BreakpointSelector;
use super::scope::Scopes;

/// Scopes, and what they are for.
pub type Granted = Vec<(Scopes, BreakpointSelector)>;

/// Shared by all who hold it: a better answer is told to all of them.
#[derive(Debug, Clone, Default)]
pub struct Grants(watch::Sender<Arc<Granted>>);

impl Grants {
    /// These, until something else is said.
    pub fn new(granted: Granted) -> Self {
        Self(watch::Sender::new(Arc::new(granted)))
    }

    /// As they are now.
    pub fn now(&self) -> Arc<Granted> {
        Arc::clone(&self.0.borrow())
    }

    /// These from now on, for all who hold it.
    pub fn replace(&self, granted: Granted) {
        self.0.send_replace(Arc::new(granted));
    }

    /// Wakes whenever something else is granted.
    pub fn watch(&self) -> watch::Receiver<Arc<Granted>> {
        self.0.subscribe()
    }
}

/// By what is granted now.
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
    fn what_is_granted_later_is_allowed_then_and_no_more_than_a_policy_allows() {
        let on = |scopes: &str, cluster: &str| {
            let selector = BreakpointSelector::on_clusters(cluster);
            (scopes.parse().unwrap(), selector)
        };
        let grants = Grants::new(vec![on("list", "ml.train")]);
        let alone = Access::granted(grants.clone());
        let rule = Rule {
            scopes: "list".parse().unwrap(),
            ..Rule::default()
        };
        let within = Access::new(vec![Arc::new(rule)]).limited_to(grants.clone());
        let may = |access: &Access, scope, cluster| access.may_on_cluster(scope, cluster);
        assert!(may(&alone, Scope::List, "ml.train") && may(&within, Scope::List, "ml.train"));
        assert!(!may(&alone, Scope::List, "ml.new") && !may(&within, Scope::List, "ml.new"));
        grants.replace(vec![on("list,debug", "ml.*")]);
        assert!(may(&alone, Scope::List, "ml.new") && may(&within, Scope::List, "ml.new"));
        assert!(may(&alone, Scope::Debug, "ml.new") && !may(&within, Scope::Debug, "ml.new"));
        assert_eq!(
            alone,
            Access::granted(Grants::new(vec![on("list,debug", "ml.*")]))
        );
    }
}
