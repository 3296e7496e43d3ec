//! A cluster that is found while the registry runs, as discovery tells of it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::ray::head::GivenToken;
use crate::ray::registry::gcs::GivenTls;

/// What stands in the list for the Kubernetes API server while it gives none. No cluster that is found is called so, for want
/// of a dot.
pub const API_SERVER: &str = "kubernetes";

/// A cluster that is not in the configuration.
#[derive(Debug, Clone)]
pub struct FoundCluster {
    /// No other's, of the configuration or found.
    pub name: Arc<str>,
    /// Where its head is; or why there is none to be asked yet, as a sentence with the next step.
    pub head: Result<FoundHead, String>,
    /// Its head is not ready to be asked.
    pub is_pending: bool,
    /// The RayJob that it was made for.
    pub ray_job: Option<Arc<str>>,
}

/// How the head of a found cluster is reached.
#[derive(Debug, Clone)]
pub struct FoundHead {
    /// Address of its dashboard, a URL.
    pub ray_address: String,
    /// Ray's own token, which may be given anew.
    pub token: GivenToken,
    /// The certificates of its GCS, which may be given anew; `None`: it speaks cleartext.
    pub gcs_tls: Option<GivenTls>,
}

impl FoundHead {
    /// Whether the certificates of both come from the same source.
    pub(super) fn has_same_tls(&self, other: &Self) -> bool {
        match (&self.gcs_tls, &other.gcs_tls) {
            (Some(one), Some(other)) => one.is_same(other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

/// The clusters that are found, as they were last told.
#[derive(Default)]
pub(super) struct Published {
    pub(super) found: Mutex<HashMap<Arc<str>, FoundCluster>>,
    pub(super) news: Notify,
}
