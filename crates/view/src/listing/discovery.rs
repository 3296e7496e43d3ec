//! The relay's cluster discovery, read from its JSON.
//!
//! Read leniently and cleaned for a terminal, as [`super::row`] reads the rest.

use serde::Deserialize;
use serde_json::Value;

use super::received::ClusterAnswer;
use super::text::{first_of, text};
use ray_relay_base::wire::json::{typed_at, typed_list};
use ray_relay_ray::ray::registry::API_SERVER;

/// The state of cluster discovery, if it is configured.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Discovery {
    /// Why the search is limited.
    narrowed: Option<String>,
    scope: String,
    /// Whether new clusters cannot be seen, and the list reports no cause.
    blind: bool,
    /// The first clusters that are found and not watched, each with the reason.
    left_out: Vec<(String, String)>,
    /// Number of all such clusters.
    total: usize,
}

/// The same, as in the list.
#[derive(Default, Deserialize)]
#[serde(default)]
struct DiscoveryAnswer<'a> {
    narrowed: Option<&'a str>,
    scope: Option<&'a str>,
    blind: bool,
    #[serde(borrow)]
    left_out: LeftOutAnswer<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LeftOutAnswer<'a> {
    total: usize,
    #[serde(borrow)]
    first: Vec<UnwatchedAnswer<'a>>,
}

#[derive(Deserialize)]
struct UnwatchedAnswer<'a> {
    name: Option<&'a str>,
    why: Option<&'a str>,
}

impl Discovery {
    /// Reads the discovery state of `list`.
    pub fn read(list: &Value) -> Self {
        let answer: DiscoveryAnswer<'_> = typed_at(list, "discovery");
        let mut clusters = typed_list(list, "clusters");
        let says_why = clusters.any(|cluster: ClusterAnswer<'_>| cluster.name == Some(API_SERVER));
        let one = |one: &UnwatchedAnswer<'_>| Some((text(one.name)?, text(one.why)?));
        Self {
            narrowed: text(answer.narrowed),
            scope: text(answer.scope).unwrap_or_default(),
            blind: answer.blind && !says_why,
            left_out: answer.left_out.first.iter().filter_map(one).collect(),
            total: answer.left_out.total,
        }
    }

    /// Returns sentences about clusters that are not watched.
    pub fn troubles(&self) -> Vec<String> {
        let narrowed = self.narrowed.as_ref();
        let narrowed = narrowed.map(|why| format!("only {} is looked at: {why}", self.scope));
        let names: Vec<&str> = self.left_out.iter().map(|(name, _)| &**name).collect();
        let left_out = match &*self.left_out {
            [] => None,
            [(_, why)] => Some(format!("a RayCluster is not watched: {why}")),
            [(_, why), ..] => Some(format!(
                "{} RayClusters are not watched: {} ({why})",
                self.total,
                first_of(&names, self.total)
            )),
        };
        let blind = self.blind.then(|| "new RayClusters are not seen at the moment: the Kubernetes API server refuses the relay or does not answer; ask the relay's operator to look at its log".to_owned());
        narrowed.into_iter().chain(blind).chain(left_out).collect()
    }
}
