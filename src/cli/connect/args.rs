//! Arguments and errors of `connect`.

use std::io;
use std::net::SocketAddr;

use clap::Args;

use crate::cli::failure::{Exit, Fails};
use crate::cli::kube::KubeArgs;
use crate::cli::relay_tls::RelayTlsArgs;
use crate::cli::relay_token::RelayTokenArgs;
use ray_relay_base::wire::relay_url::RelayUrl;

/// `connect`
#[derive(Debug, Clone, Args)]
pub struct ConnectArgs {
    /// The relay; a path below which an ingress has it may follow
    #[arg(value_name = "URL", env = "RAY_RELAY_URL", hide_env_values = true)]
    #[arg(value_hint = clap::ValueHint::Url)]
    pub url: Option<RelayUrl>,
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:5678")]
    pub listen: SocketAddr,
    /// Listen on an address that other machines can reach, although every client of it acts as you
    #[arg(long)]
    pub insecure_share: bool,
    /// Print JSON, one object a line
    #[arg(long)]
    pub json: bool,
    /// How to speak TLS with it.
    #[command(flatten)]
    pub tls: RelayTlsArgs,
    /// The credential for the relay.
    #[command(flatten)]
    pub token: RelayTokenArgs,
    /// A command to run, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Where it is in Kubernetes.
    #[command(flatten)]
    pub kube: KubeArgs,
}

/// Why there is no port, or no command.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotConnected {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another with --listen")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// Other users could use the port.
    #[error(
        "other machines can reach {0}, and their users would act as you: listen on 127.0.0.1, or give --insecure-share"
    )]
    Shared(SocketAddr),
    /// The relay's address is this command's own.
    #[error(
        "{0} is the port that this command listens on: name the relay, or choose another port with --listen"
    )]
    Itself(RelayUrl),
    /// No relay was named.
    #[error("which relay? Name its URL, or give --kube for one in Kubernetes")]
    Unnamed,
    /// The system refuses a signal handler.
    #[error("cannot wait for signals: {0}")]
    Signal(io::Error),
    /// The command cannot be started.
    #[error("cannot run {command}: {source}")]
    Command {
        /// Its name.
        command: String,
        /// The system's error.
        source: io::Error,
    },
}

impl Fails for NotConnected {
    fn exit(&self) -> Exit {
        match self {
            Self::Unnamed => Exit::Usage,
            _ => Exit::Failed,
        }
    }
}
