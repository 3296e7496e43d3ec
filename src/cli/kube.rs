//! A relay in Kubernetes: arguments of the client commands, and how to locate it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::{Args, ValueHint};
use rustls::pki_types::ServerName;
use tokio::sync::Mutex;

use super::failure::{Exit, Fails};
use super::relay_client::RelayError;
use super::relay_token::RENEWED_BEFORE;
use super::token_command::Dated;
use ray_relay_access::identity::unverified_expiry;
use ray_relay_base::wire::relay_url::RelayUrl;
use ray_relay_kube::{
    AccountName, Forwarder, KubeCluster, KubeError, KubeconfigChoice, request_token,
};

/// The audience that relays expect by default.
const AUDIENCE: &str = "ray-relay";

/// How a relay in Kubernetes is reached.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Reaching the relay through Kubernetes")]
pub struct KubeArgs {
    /// Reach the relay by your kubeconfig, without URL and token
    ///
    /// Through a port-forward to the relay's Service, as who you are there. Implied by the other options here.
    #[arg(long)]
    pub kube: bool,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME", visible_alias = "kube-context")]
    pub context: Option<String>,
    /// Namespace of the relay [default: that of the context]
    #[arg(long, short, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Kubeconfig [default: those of KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub kubeconfig: Option<PathBuf>,
    /// Service of the relay [default: the one labelled app.kubernetes.io/name=ray-relay]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub kube_service: Option<String>,
    /// Show the relay a token of this ServiceAccount, in place of the kubeconfig's own
    ///
    /// It is asked for, and renewed in time.
    #[arg(long, value_name = "[NAMESPACE/]NAME", conflicts_with = "token_file")]
    #[arg(hide_short_help = true)]
    pub as_service_account: Option<String>,
    /// Audience of that token, as the relay has it in `kubernetes.audiences` [default: ray-relay]
    #[arg(
        long,
        value_name = "TEXT",
        requires = "as_service_account",
        hide_short_help = true
    )]
    pub audience: Option<String>,
    /// A name that the relay's certificate is for, where it speaks TLS [default: localhost]
    #[arg(long, value_name = "NAME", value_parser = server_name, hide_short_help = true)]
    pub tls_server_name: Option<ServerName<'static>>,
}

fn server_name(text: &str) -> Result<ServerName<'static>, &'static str> {
    let name = ServerName::try_from(text.to_owned());
    name.map_err(|_| "write the name of a host, such as ray-relay-agents")
}

impl KubeArgs {
    /// Whether to look for the relay in Kubernetes.
    pub(super) fn is_requested(&self) -> bool {
        self.kube
            || self.context.is_some()
            || self.namespace.is_some()
            || self.kubeconfig.is_some()
            || self.kube_service.is_some()
            || self.as_service_account.is_some()
            || self.tls_server_name.is_some()
    }
}

/// Both a URL and Kubernetes options are given.
#[derive(Debug, thiserror::Error)]
#[error(
    "the relay is named by its URL and looked for in Kubernetes: leave out the one or the other"
)]
pub(super) struct Contradiction;

impl Fails for Contradiction {
    fn exit(&self) -> Exit {
        Exit::Usage
    }
}

/// Access to a relay in Kubernetes, and the token for it.
pub(super) struct KubeRelay {
    cluster: Arc<KubeCluster>,
    forwarder: Arc<Forwarder>,
    name: Option<ServerName<'static>>,
    account: Option<AccountName>,
    audience: String,
    cached: Mutex<AccountToken>,
}

/// The last token of the ServiceAccount.
#[derive(Default)]
struct AccountToken {
    token: Option<Dated>,
    /// Whether to request another one.
    is_stale: bool,
}

impl std::fmt::Debug for KubeRelay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reached")
            .field("forwarder", &self.forwarder)
            .finish_non_exhaustive()
    }
}

impl KubeRelay {
    /// Locates the relay. Returns its URL and the access to it.
    ///
    /// # Errors
    /// [`RelayError::Kube`].
    pub(super) async fn of(args: &KubeArgs) -> Result<(RelayUrl, Self), RelayError> {
        let found = Box::pin(Self::found(args)).await;
        found.map_err(|why| RelayError::Kube(Box::new(why)))
    }

    async fn found(args: &KubeArgs) -> Result<(RelayUrl, Self), KubeError> {
        let cluster = KubeCluster::of(KubeconfigChoice {
            kubeconfig: args.kubeconfig.clone(),
            context: args.context.clone(),
            namespace: args.namespace.clone(),
        });
        let cluster = Arc::new(cluster.await?);
        let service = args.kube_service.clone();
        let forwarder = Forwarder::of(Arc::clone(&cluster), service).await?;
        let place = forwarder.place().await?;
        let (service, namespace) = (forwarder.service(), forwarder.namespace());
        let called = format!(
            "Service {service} in namespace {namespace} (context {})",
            cluster.context()
        );
        let account = args.as_service_account.as_deref();
        let account = account.map(|account| match account.split_once('/') {
            Some((namespace, name)) => AccountName {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            },
            None => AccountName {
                namespace: namespace.to_owned(),
                name: account.to_owned(),
            },
        });
        let audience = args.audience.clone();
        Ok((
            RelayUrl::within(place.https, place.port, called),
            Self {
                forwarder: Arc::new(forwarder),
                name: args.tls_server_name.clone(),
                account,
                audience: audience.unwrap_or_else(|| AUDIENCE.to_owned()),
                cached: Mutex::default(),
                cluster,
            },
        ))
    }

    /// The port-forwarder to the relay.
    pub(super) fn forwarder(&self) -> Arc<Forwarder> {
        Arc::clone(&self.forwarder)
    }

    /// The name in the relay's certificate, if it is not its host's.
    pub(super) fn name(&self) -> Option<ServerName<'static>> {
        self.name.clone()
    }

    /// The cluster with its API server.
    pub(super) fn cluster(&self) -> &KubeCluster {
        &self.cluster
    }

    /// Whether to use the token of a ServiceAccount, regardless of others.
    pub(super) fn is_as_account(&self) -> bool {
        self.account.is_some()
    }

    /// Source of the token, for messages.
    pub(super) fn source(&self) -> String {
        match &self.account {
            Some(account) => format!(
                "ServiceAccount {} in namespace {}",
                account.name, account.namespace
            ),
            None => format!("context {}", self.cluster.context()),
        }
    }

    /// The token for the relay: of the ServiceAccount, or the kubeconfig's own; `None`: that has none.
    ///
    /// # Errors
    /// [`KubeError`].
    pub(super) async fn token(&self) -> Result<Option<Dated>, KubeError> {
        let Some(account) = &self.account else {
            let own = self.cluster.bearer().await?;
            return Ok(own.map(|token| Dated {
                expires: unverified_expiry(&token),
                token,
            }));
        };
        let mut cached = self.cached.lock().await;
        let time_left = |dated: &Dated| {
            let time_left = dated.expires?.duration_since(SystemTime::now());
            Some(time_left.unwrap_or_default())
        };
        let is_good =
            |dated: &&Dated| time_left(dated).is_none_or(|time_left| time_left > RENEWED_BEFORE);
        if let Some(dated) = cached.token.as_ref().filter(is_good)
            && !cached.is_stale
        {
            return Ok(Some(dated.clone()));
        }
        match request_token(&self.cluster, account, &self.audience).await {
            Ok((token, expires)) => {
                let dated = Dated {
                    token,
                    expires: Some(expires),
                };
                cached.is_stale = false;
                cached.token = Some(dated.clone());
                Ok(Some(dated))
            }
            // The last token is still valid for a while.
            Err(error) if error.is_passing() => {
                let last = cached.token.clone();
                let last = last.filter(|dated| {
                    time_left(dated).is_some_and(|time_left| time_left > Duration::ZERO)
                });
                last.map(Some).ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Marks the token as refused or expiring, so that the next call gets another. Returns whether there may be
    /// another.
    pub(super) async fn renew(&self) -> bool {
        match &self.account {
            Some(_) => {
                let mut cached = self.cached.lock().await;
                cached.is_stale = true;
                cached.token.is_some()
            }
            None => self.cluster.renew().await.is_ok(),
        }
    }
}

#[cfg(test)]
mod tests;
