//! How clusters are looked for, as the relay's JSON tells.
//!
//! Read with forgiveness and cleaned for a terminal, as [`super::row`] reads the rest.

use serde_json::Value;

use super::text::{first_of, text};
use ray_relay_ray::ray::registry::API_SERVER;

/// How clusters are looked for, where they are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Discovery {
    /// Why not everywhere.
    narrowed: Option<String>,
    scope: String,
    /// It cannot be told which there are, and the list has no more on that.
    blind: bool,
    /// The first of those that are found and not watched, each with the reason.
    left_out: Vec<(String, String)>,
    /// All of these.
    total: usize,
}

impl Discovery {
    /// What `list` tells of it.
    pub fn read(list: &Value) -> Self {
        let told = &list["discovery"];
        let mut clusters = list["clusters"].as_array().into_iter().flatten();
        let says_why = clusters.any(|cluster| cluster["name"] == API_SERVER);
        let left_out = told["left_out"]["first"].as_array();
        let one = |one: &Value| Some((text(&one["name"])?, text(&one["why"])?));
        let total = told["left_out"]["total"].as_u64().unwrap_or_default();
        Self {
            narrowed: text(&told["narrowed"]),
            scope: text(&told["scope"]).unwrap_or_default(),
            blind: told["blind"] == true && !says_why,
            left_out: left_out.into_iter().flatten().filter_map(one).collect(),
            total: usize::try_from(total).unwrap_or(usize::MAX),
        }
    }

    /// Sentences on what is not looked at.
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
