//! `[kubernetes]`: tokens that a Kubernetes API server vouches for.

use std::path::PathBuf;
use std::time::Duration;

/// `[kubernetes]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kubernetes {
    /// `enabled`, default false: tokens that are not the relay's own are shown to Kubernetes.
    pub enabled: bool,
    /// `audiences`, default `["ray-relay"]`: a token has to be meant for one of them. Never empty.
    pub audiences: Vec<String>,
    /// `namespace` in which permissions are looked for. Absent: that of the relay's pod, or of the kubeconfig's context.
    pub namespace: Option<String>,
    /// `api_server`: https, or http to loopback. Absent: that of the pod, else of the kubeconfig.
    pub api_server: Option<String>,
    /// `ca_file`: certificate authorities of `api_server`. Absent: the system's. Only with `api_server`.
    pub ca_file: Option<PathBuf>,
    /// `token_file`: the relay's own token for `api_server`, and given whenever that is.
    pub token_file: Option<PathBuf>,
    /// `timeout`, default 5 s, of everything that is asked about one token.
    pub timeout: Duration,
    /// `cache_entries`, default 1024: tokens that are remembered; as many refused ones again.
    pub cache_entries: usize,
    /// `recheck`, default 1 min: how long an answer holds, and how often the tokens of live sessions are shown again.
    pub recheck: Duration,
    /// `refused_for`, default 10 s: how long a refused token is not shown again.
    pub refused_for: Duration,
    /// `outage_grace`, default 5 min: how long live sessions outlast an API server that does not answer.
    pub outage_grace: Duration,
}

impl Default for Kubernetes {
    fn default() -> Self {
        Self {
            enabled: false,
            audiences: vec!["ray-relay".to_owned()],
            namespace: None,
            api_server: None,
            ca_file: None,
            token_file: None,
            timeout: Duration::from_secs(5),
            cache_entries: 1024,
            recheck: Duration::from_secs(60),
            refused_for: Duration::from_secs(10),
            outage_grace: Duration::from_secs(300),
        }
    }
}
