//! The access of one principal: its rules, and the resulting rights on one breakpoint.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::breakpoint_selector::{BreakpointSelector, Pattern};
use super::grants::Grants;
use super::scope::{RelayScope, Scope, Scopes};
use ray_relay_ray::ray::registry::{Breakpoint, Running};

/// Obligations of sessions under a rule: which text they show, whether they are recorded, how long they last.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionObligations {
    /// Show text without the permission to run code.
    pub unmasked: bool,
    /// Show the text of variables whose names match.
    pub show: Vec<Pattern>,
    /// Record the messages.
    pub record: bool,
    /// Longest duration. `None`: unlimited.
    pub session_limit: Option<Duration>,
    /// Longest silence of the client. `None`: unlimited.
    pub idle_limit: Option<Duration>,
    /// How long it is parked when its client is lost. `None`: as configured.
    pub park: Option<Duration>,
    /// Longest park that a user may request. `None`: as long as `park`, or as configured.
    pub park_max: Option<Duration>,
    /// When a task pauses in a cluster session, pause the other tasks of its job.
    pub together: bool,
}

/// Grants scopes on whatever its selector matches.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    /// The scopes that are granted.
    pub scopes: Scopes,
    /// The breakpoints on which they are granted.
    pub selector: BreakpointSelector,
    /// The obligations of sessions under it.
    pub obligations: SessionObligations,
}

/// The access of a principal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Access {
    /// Each of these grants.
    rules: Vec<Arc<Rule>>,
    /// Each of these grants as well.
    granted: Option<Grants>,
    /// Limits of the credential: each of them has to allow a scope as well.
    limits: Vec<Grants>,
}

/// The rights of a principal on one breakpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rights {
    /// The scopes that are granted.
    pub scopes: Scopes,
    /// The obligations of sessions under them.
    pub obligations: SessionObligations,
}

/// How a principal may speak for a Ray node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeVoice {
    /// Only from that node's address.
    AtItsAddress,
    /// From anywhere: the node is named in the grant.
    ByName,
}

impl Access {
    /// Grants everything that any of `rules` grants. Without rules, nothing.
    pub fn new(rules: Vec<Arc<Rule>>) -> Self {
        Self {
            rules,
            ..Self::default()
        }
    }

    /// Grants everything that `grants` contain, now and later.
    pub fn granted(grants: Grants) -> Self {
        Self {
            granted: Some(grants),
            ..Self::default()
        }
    }

    /// Limits the access to `scopes` on whatever `selector` matches.
    #[must_use]
    pub fn limited(self, scopes: Scopes, selector: BreakpointSelector) -> Self {
        self.limited_to_any(vec![(scopes, selector)])
    }

    /// Limits the access to the union of `grants`. Without grants, to nothing.
    #[must_use]
    pub(crate) fn limited_to_any(self, grants: Vec<(Scopes, BreakpointSelector)>) -> Self {
        self.limited_to(Grants::new(grants))
    }

    /// Limits the access to the union of `grants`, now and later.
    #[must_use]
    pub fn limited_to(mut self, grants: Grants) -> Self {
        self.limits.push(grants);
        self
    }

    /// Returns the rights on `breakpoint`.
    pub fn rights(&self, breakpoint: &Breakpoint) -> Rights {
        self.rights_where(|selector| selector.fits(breakpoint))
    }

    /// Returns the rights on `running`, a task that waits at no breakpoint, by the same rules.
    pub fn rights_on_running(&self, running: &Running) -> Rights {
        self.rights_where(|selector| selector.fits_running(running))
    }

    /// The obligations on the job of `running`, those of rules for some of its tasks or nodes included.
    pub fn obligations_in_job(&self, running: &Running) -> SessionObligations {
        self.rights_where(|selector| selector.fits_in_job(running))
            .obligations
    }

    /// Returns the longest time for which a lost session is parked, among the rules that set one.
    pub fn longest_park(&self) -> Option<Duration> {
        self.rules
            .iter()
            .filter_map(|rule| rule.obligations.park)
            .max()
    }

    /// Whether `scope` is granted on `cluster` as a whole. A rule for some jobs, namespaces or tasks only does not
    /// count.
    pub fn may_on_cluster(&self, scope: Scope, cluster: &str) -> bool {
        self.rights_on_cluster(cluster).scopes.contains(scope)
    }

    /// Returns the rights on `cluster` as a whole. A rule for some jobs, namespaces or tasks only does not count.
    pub fn rights_on_cluster(&self, cluster: &str) -> Rights {
        self.rights_where(|n| n.is_by_cluster_alone() && n.fits_cluster(cluster))
    }

    /// Whether `scope` is granted on every breakpoint, whatever is known of it.
    pub fn may_everywhere(&self, scope: Scope) -> bool {
        self.rights_where(BreakpointSelector::is_for_all)
            .scopes
            .contains(scope)
    }

    /// Whether `scope` is granted on the relay itself: without narrowing, by a rule and by each limit.
    pub fn may_on_relay(&self, scope: RelayScope) -> bool {
        self.may_everywhere(scope.granted())
    }

    /// Whether a session on `breakpoint`, or on none, may be administered: through rights on the breakpoint, or on
    /// the relay.
    pub fn administers(&self, breakpoint: Option<&Breakpoint>) -> bool {
        let on_breakpoint = |b: &Breakpoint| self.rights(b).scopes.contains(Scope::PlaceAdmin);
        self.may_on_relay(RelayScope::Admin) || breakpoint.is_some_and(on_breakpoint)
    }

    /// Whether `scope` is granted on anything at all. The action is checked again at its target.
    pub fn may_anywhere(&self, scope: Scope) -> bool {
        self.rights_where(|_| true).scopes.contains(scope)
    }

    /// Whether `scope` is granted on something in `cluster`.
    pub fn may_somewhere_on(&self, scope: Scope, cluster: &str) -> bool {
        self.rights_where(|n| n.fits_cluster(cluster))
            .scopes
            .contains(scope)
    }

    /// Whether `scope` is granted on the Ray node `node_id` of `cluster` at `address` as a whole.
    pub fn may_on_node(&self, scope: Scope, cluster: &str, node_id: &str, address: IpAddr) -> bool {
        self.rights_where(|selector| selector.fits_node(cluster, node_id, address))
            .scopes
            .contains(scope)
    }

    /// Returns how the principal may speak for the Ray node `node_id` of `cluster` at `address`, `None` if not at
    /// all. A grant or limit of `node` without node names, as anonymous principals have, does not name this one.
    pub fn voice_of(&self, cluster: &str, node_id: &str, address: IpAddr) -> Option<NodeVoice> {
        if !self.may_on_node(Scope::Node, cluster, node_id, address) {
            return None;
        }
        let fits = |selector: &BreakpointSelector| selector.fits_node(cluster, node_id, address);
        let names = |scopes: Scopes, selector: &BreakpointSelector| {
            scopes.contains(Scope::Node) && !selector.nodes.is_empty() && fits(selector)
        };
        let mut rules = self.rules.iter();
        let mut grants = self.granted.iter().chain(&self.limits);
        let is_named = rules.any(|rule| names(rule.scopes, &rule.selector))
            || grants.any(|grants| {
                let grants = grants.now();
                grants
                    .iter()
                    .any(|(scopes, selector)| names(*scopes, selector))
            });
        Some(match is_named {
            true => NodeVoice::ByName,
            false => NodeVoice::AtItsAddress,
        })
    }

    fn rights_where(&self, fits: impl Fn(&BreakpointSelector) -> bool) -> Rights {
        let mut rights = Rights::default();
        for rule in self.rules.iter().filter(|rule| fits(&rule.selector)) {
            rights.scopes = rights.scopes.union(rule.scopes);
            let (all, one) = (&mut rights.obligations, &rule.obligations);
            all.unmasked |= one.unmasked;
            all.show.extend(one.show.iter().cloned());
            all.record |= one.record;
            all.session_limit = shorter(all.session_limit, one.session_limit);
            all.idle_limit = shorter(all.idle_limit, one.idle_limit);
            all.park = shorter(all.park, one.park);
            all.park_max = shorter(all.park_max, one.park_max);
            all.together |= one.together;
        }
        let allowed = |grants: &Grants| {
            let grants = grants.now();
            let fitting = grants.iter().filter(|(_, selector)| fits(selector));
            fitting.fold(Scopes::NONE, |all, (scopes, _)| all.union(*scopes))
        };
        if let Some(grants) = &self.granted {
            rights.scopes = rights.scopes.union(allowed(grants));
        }
        for grants in &self.limits {
            rights.scopes = rights.scopes.intersection(allowed(grants));
        }
        rights
    }
}

fn shorter(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::policy::Pattern;

    fn on_clusters(scopes: &str, clusters: &[&str]) -> (Scopes, BreakpointSelector) {
        let selector = BreakpointSelector {
            clusters: clusters.iter().map(|name| Pattern::new(*name)).collect(),
            ..BreakpointSelector::default()
        };
        (scopes.parse().unwrap(), selector)
    }

    #[test]
    fn agent_speaks_for_nodes_by_name_or_address() {
        let on_nodes = |scopes: &str, nodes: &[&str]| {
            let (scopes, mut selector) = on_clusters(scopes, &["east"]);
            selector.nodes = nodes.iter().map(|node| Pattern::new(*node)).collect();
            (scopes, selector)
        };
        let rule = |(scopes, selector)| {
            let rule = Rule {
                scopes,
                selector,
                ..Rule::default()
            };
            Access::new(vec![Arc::new(rule)])
        };
        let address = [10, 0, 0, 7].into();
        let voice_of_node = |access: &Access| access.voice_of("east", "ab12", address);
        let anywhere = rule(on_nodes("node", &[]));
        assert_eq!(voice_of_node(&anywhere), Some(NodeVoice::AtItsAddress));
        assert_eq!(anywhere.voice_of("west", "ab12", address), None);
        for node in ["ab12", "ab*", "10.0.0.7"] {
            let access = rule(on_nodes("node", &[node]));
            assert_eq!(voice_of_node(&access), Some(NodeVoice::ByName), "{node}");
            let (scopes, selector) = on_nodes("node", &[node]);
            let limited = anywhere.clone().limited(scopes, selector);
            assert_eq!(voice_of_node(&limited), Some(NodeVoice::ByName), "{node}");
        }
        // Another node, another permission, a limit to another node, and a rule for tasks only.
        assert_eq!(voice_of_node(&rule(on_nodes("node", &["cd34"]))), None);
        assert_eq!(
            voice_of_node(&rule(on_nodes("admin,debug", &["ab12"]))),
            None
        );
        let (scopes, selector) = on_nodes("node", &["cd34"]);
        assert_eq!(
            voice_of_node(&anywhere.clone().limited(scopes, selector)),
            None
        );
        let (scopes, selector) = on_nodes("debug", &["ab12"]);
        assert_eq!(voice_of_node(&anywhere.limited(scopes, selector)), None);
        let (scopes, mut selector) = on_nodes("node", &["ab12"]);
        selector.tasks = vec![Pattern::new("*")];
        assert_eq!(voice_of_node(&rule((scopes, selector))), None);
    }

    #[test]
    fn narrowed_admin_does_not_administer_the_relay() {
        let administrator = |clusters: &[&str]| {
            let (scopes, selector) = on_clusters("admin", clusters);
            let rule = Rule {
                scopes,
                selector,
                ..Rule::default()
            };
            Access::new(vec![Arc::new(rule)])
        };
        assert!(administrator(&[]).may_on_relay(RelayScope::Admin));
        let narrowed = administrator(&["east"]);
        assert!(narrowed.may_on_cluster(Scope::PlaceAdmin, "east"));
        assert!(!narrowed.may_on_relay(RelayScope::Admin));
        assert!(!narrowed.administers(None), "a session at no breakpoint");
        // A narrowed token limits an administrator too.
        let (scopes, selector) = on_clusters("admin", &["east"]);
        let limited = administrator(&[]).limited(scopes, selector);
        assert!(!limited.may_on_relay(RelayScope::Admin));
    }

    #[test]
    fn any_grant_suffices_and_every_limit_applies() {
        let unrestricted = Rule {
            scopes: Scopes::USUAL,
            ..Rule::default()
        };
        let access = Access::new(vec![Arc::new(unrestricted)]);
        assert!(access.may_everywhere(Scope::Debug) && !access.may_everywhere(Scope::Terminate));
        let (scopes, selector) = on_clusters("list", &[]);
        let lists = access.clone().limited(scopes, selector);
        assert!(lists.may_everywhere(Scope::List) && !lists.may_everywhere(Scope::Debug));
        let access = access.limited_to_any(vec![
            on_clusters("list,debug", &["east"]),
            on_clusters("list", &["west"]),
        ]);
        assert!(access.may_on_cluster(Scope::Debug, "east"));
        assert!(access.may_on_cluster(Scope::List, "west"));
        assert!(!access.may_on_cluster(Scope::Debug, "west"));
        assert!(!access.may_on_cluster(Scope::List, "north"));
        let (scopes, selector) = on_clusters("list", &[]);
        let limited = access.clone().limited(scopes, selector);
        assert!(!limited.may_on_cluster(Scope::Debug, "east"));
        assert!(limited.may_on_cluster(Scope::List, "east"));
        assert!(!limited.may_everywhere(Scope::List), "not in the north");
        let without_rules = access.limited_to_any(Vec::new());
        assert!(!without_rules.may_on_cluster(Scope::List, "east"));
    }
}
