//! Arguments for reaching the relay.

use std::sync::Arc;

use clap::Args;

use super::kube::{KubeArgs, KubeRelay};
use super::relay_tls::RelayTlsArgs;
use super::relay_token::RelayTokenArgs;
use ray_relay_base::wire::relay_url::RelayUrl;

/// Environment variable with the relay's URL.
pub(super) const RELAY_VARIABLE: &str = "RAY_RELAY_URL";

/// The default relay.
pub(super) const RELAY_BY_DEFAULT: &str = "http://127.0.0.1:5678";

/// Which relay a client command talks to.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Reaching the relay")]
pub struct RelayArgs {
    /// The relay to ask
    #[arg(
        long,
        value_name = "URL",
        env = RELAY_VARIABLE,
        hide_env_values = true
    )]
    #[arg(default_value = RELAY_BY_DEFAULT, value_hint = clap::ValueHint::Url)]
    pub relay: RelayUrl,
    /// How to speak TLS with it.
    #[command(flatten)]
    pub tls: RelayTlsArgs,
    /// The credential for the relay.
    #[command(flatten)]
    pub token: RelayTokenArgs,
    /// Where it is in Kubernetes.
    #[command(flatten)]
    pub kube: KubeArgs,
    /// The way there, once it is found.
    #[arg(skip)]
    pub(super) reached: Option<Arc<KubeRelay>>,
}
