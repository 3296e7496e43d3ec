//! A cluster that is discovered while the registry runs, as published by discovery.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::ray::head::GivenToken;
use crate::ray::registry::gcs::GivenTls;

/// Name of the list entry for the Kubernetes API server while it returns no clusters. No discovered cluster has this
/// name, since it has no dot.
pub const API_SERVER: &str = "kubernetes";

/// A cluster that is not in the configuration.
#[derive(Debug, Clone)]
pub struct FoundCluster {
    /// Unique among configured and discovered clusters.
    pub name: Arc<str>,
    /// The address of its head; or the reason why there is none yet, as a sentence with the next step.
    pub head: Result<FoundHead, String>,
    /// Whether its head is not ready yet.
    pub is_pending: bool,
    /// The RayJob for which it was created.
    pub ray_job: Option<Arc<str>>,
}

/// The connection data of a discovered cluster's head.
#[derive(Debug, Clone)]
pub struct FoundHead {
    /// Address of its dashboard, a URL.
    pub ray_address: String,
    /// Ray's own token, which may be replaced.
    pub token: GivenToken,
    /// The certificates of its GCS, which may be replaced; `None`: cleartext.
    pub gcs_tls: Option<GivenTls>,
}

impl FoundHead {
    /// Whether both have their certificates from the same source.
    pub(super) fn has_same_tls(&self, other: &Self) -> bool {
        match (&self.gcs_tls, &other.gcs_tls) {
            (Some(one), Some(other)) => one.is_same(other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

/// The discovered clusters, as last published.
#[derive(Default)]
pub(super) struct Published {
    pub(super) found: Mutex<HashMap<Arc<str>, FoundCluster>>,
    pub(super) news: Notify,
}
