//! The breakpoint selector: the breakpoints that a rule applies to.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use ray_relay_ray::ray::registry::{Breakpoint, Names, Running};

/// A name in which `*` matches anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pattern(String);

impl Pattern {
    /// Creates a pattern: `*` matches anything, other characters match themselves.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the pattern matches `text`.
    pub fn matches(&self, text: &str) -> bool {
        let mut parts = self.0.split('*');
        let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else {
            return false;
        };
        let mut last = None;
        for part in parts {
            if let Some(middle) = last.replace(part) {
                match rest.find(middle) {
                    Some(at) => rest = &rest[at + middle.len()..],
                    None => return false,
                }
            }
        }
        match last {
            Some(end) => rest.ends_with(end),
            None => rest.is_empty(),
        }
    }
}

/// Conditions on a breakpoint: one entry of each non-empty list has to match. A property of the breakpoint that is
/// still unknown matches nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakpointSelector {
    /// Names of configured clusters.
    pub clusters: Vec<Pattern>,
    /// Job ids (`01000000`) or submission ids.
    pub jobs: Vec<Pattern>,
    /// Patterns of Ray namespaces.
    pub namespaces: Vec<Pattern>,
    /// Names of tasks, actor methods or actors.
    pub tasks: Vec<Pattern>,
    /// Ids or addresses of Ray nodes. They also name the nodes for which an agent may speak.
    pub nodes: Vec<Pattern>,
}

impl BreakpointSelector {
    /// Selects all clusters that `pattern` matches.
    pub(crate) fn on_clusters(pattern: impl Into<String>) -> Self {
        Self {
            clusters: vec![Pattern::new(pattern)],
            ..Self::default()
        }
    }

    /// Returns its lists, each with its name in tokens and policies.
    pub fn lists(&self) -> [(&'static str, &[Pattern]); 5] {
        [
            ("clusters", &self.clusters),
            ("jobs", &self.jobs),
            ("namespaces", &self.namespaces),
            ("tasks", &self.tasks),
            ("nodes", &self.nodes),
        ]
    }

    /// Whether it selects `breakpoint`.
    pub fn fits(&self, breakpoint: &Breakpoint) -> bool {
        let names = &breakpoint.names;
        // For a worker that paused before, the name may still be that of its previous task.
        let settled = breakpoint.stop <= 1 || !names.provisional;
        let name = if settled { &names.name } else { &None };
        self.fits_cluster(&breakpoint.cluster)
            && self.fits_names(names, name)
            && self.fits_node_of(breakpoint)
    }

    /// Whether it selects `running`, by the same lists.
    pub(crate) fn fits_running(&self, running: &Running) -> bool {
        let id = Some(running.node_id.clone()).filter(|id| !id.is_empty());
        let address = running.node_ip.map(|address| address.to_string());
        self.fits_cluster(&running.cluster)
            && self.fits_names(&running.names, &running.names.name)
            && one_of(&self.nodes, [&id, &address])
    }

    /// Whether it selects the job of `running`, or something in it.
    pub(crate) fn fits_in_job(&self, running: &Running) -> bool {
        self.fits_cluster(&running.cluster) && self.fits_job_of(&running.names)
    }

    fn fits_job_of(&self, names: &Names) -> bool {
        one_of(&self.jobs, [&names.job_id, &names.submission_id])
    }

    fn fits_names(&self, names: &Names, name: &Option<String>) -> bool {
        self.fits_job_of(names)
            && one_of(&self.namespaces, [&names.namespace])
            && one_of(&self.tasks, [name, &names.actor_name])
    }

    /// Whether it selects the Ray node `node_id` of `cluster` at `address` as a whole. A selector with jobs,
    /// namespaces or tasks selects only breakpoints.
    pub(crate) fn fits_node(&self, cluster: &str, node_id: &str, address: IpAddr) -> bool {
        let narrower = [&self.jobs, &self.namespaces, &self.tasks];
        self.fits_cluster(cluster)
            && narrower.iter().all(|list| list.is_empty())
            && self.names_node(node_id, address)
    }

    fn fits_node_of(&self, breakpoint: &Breakpoint) -> bool {
        // A legacy breakpoint of an old Ray reports `localhost`, which may be any node.
        let known = !breakpoint.node_id.is_empty() || !breakpoint.node_ip.is_loopback();
        self.nodes.is_empty() || known && self.names_node(&breakpoint.node_id, breakpoint.node_ip)
    }

    fn names_node(&self, node_id: &str, address: IpAddr) -> bool {
        let id = (!node_id.is_empty()).then(|| node_id.to_owned());
        self.nodes.is_empty() || one_of(&self.nodes, [&id, &Some(address.to_string())])
    }

    /// Whether it selects `cluster`, or something in it.
    pub fn fits_cluster(&self, cluster: &str) -> bool {
        self.clusters.is_empty() || self.clusters.iter().any(|p| p.matches(cluster))
    }

    /// Whether it has no conditions, and so selects every breakpoint.
    pub(crate) fn is_for_all(&self) -> bool {
        self.clusters.is_empty() && self.is_by_cluster_alone()
    }

    /// Whether its only conditions are clusters.
    pub(crate) fn is_by_cluster_alone(&self) -> bool {
        let narrower = [&self.jobs, &self.namespaces, &self.tasks, &self.nodes];
        narrower.iter().all(|list| list.is_empty())
    }
}

fn one_of<const N: usize>(patterns: &[Pattern], known: [&Option<String>; N]) -> bool {
    patterns.is_empty()
        || known
            .into_iter()
            .flatten()
            .any(|name| patterns.iter().any(|p| p.matches(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn pattern_matches_its_own_expansions(parts in proptest::collection::vec("[a-c]{0,3}", 1..5), fill in "[a-c]{0,3}") {
            let pattern = parts.join("*");
            let text = parts.join(&fill);
            proptest::prop_assert!(Pattern::new(&*pattern).matches(&text), "{} {}", pattern, text);
        }
    }

    #[test]
    fn provisional_name_matches_no_pattern() {
        let selector = BreakpointSelector {
            tasks: vec![Pattern::new("square")],
            ..BreakpointSelector::default()
        };
        let mut breakpoint = ray_relay_ray::ray::testing::paused("square", 1);
        assert!(selector.fits(&breakpoint));
        breakpoint.stop = 2;
        breakpoint.names_mut().provisional = true;
        assert!(!selector.fits(&breakpoint));
        breakpoint.names_mut().provisional = false;
        assert!(selector.fits(&breakpoint));
    }

    #[test]
    fn node_pattern_matches_a_known_id_or_address() {
        let on_node = |node: &str| BreakpointSelector {
            nodes: vec![Pattern::new(node)],
            ..BreakpointSelector::default()
        };
        let mut breakpoint = ray_relay_ray::ray::testing::paused("square", 1);
        (breakpoint.node_id, breakpoint.node_ip) = ("ab12".into(), [10, 0, 0, 7].into());
        assert!(on_node("ab12").fits(&breakpoint) && on_node("10.0.0.*").fits(&breakpoint));
        assert!(!on_node("ab13").fits(&breakpoint) && !on_node("10.0.0.8").fits(&breakpoint));
        (breakpoint.node_id, breakpoint.node_ip) = ("".into(), [127, 0, 0, 1].into());
        assert!(
            !on_node("*").fits(&breakpoint),
            "it says `localhost`, which is any node"
        );
    }

    #[test]
    fn pattern_without_a_star_matches_the_whole_name() {
        assert!(Pattern::new("step").matches("step"));
        assert!(!Pattern::new("step").matches("steps"));
        assert!(!Pattern::new("").matches("step"));
    }
}
