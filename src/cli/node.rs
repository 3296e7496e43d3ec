//! `ray-relay node`: the agent of a Ray node.

use std::ffi::OsString;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueHint};
use hyper::header::HeaderValue;
use rustls::ClientConfig;

use super::failure::{Exit, Fails, Failure};
use super::relay_client::RelayError;
use super::relay_tls::RelayTlsArgs;
use super::relay_token::RelayTokenArgs;
use crate::app::validate;
use ray_relay_access::telemetry::logging;
use ray_relay_access::tls::Pin;
use ray_relay_base::config::{Flags, Gcs, LogFormat, Sources, words_of};
use ray_relay_base::wire::relay_url::RelayUrl;
use ray_relay_base::wire::relay_url::is_this_machine;
use ray_relay_base::wire::text::replaced;
use ray_relay_node::{RelayAccess, Settings};

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay node --relay https://relay.example.com --ray-address http://10.0.0.2:8265
      beside the workers of a Ray node: relays reach their debuggers through it alone
  ray-relay node --relay https://ray-relay-replicas --ca-file ca.pem --token-file node.token
      all addresses of that name, each with a link of its own, looked up again as they change

The agent has no port: it dials out. The relay knows it by a client certificate, or by a token of `ray-relay token mint --scope node`. It knows the relay by the relay's certificate. It dials a debugger only where Ray's own registry has a live worker of this node behind that port, whatever the relay says. Where it can see the node's processes (same user, same process namespace), it also checks that the worker's debugger listens there.

With --reverse-ports it listens on loopback ports of that range, only while a user runs `ray-relay reverse`, and accepts only live Ray workers of this node.

SIGTERM: it detaches every debugger in order, and ends. It retries while a relay is unreachable.

HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY say which proxy relays are reached by; the head and debuggers never are.

Environment, in place of flags; several values with commas:
  RAY_RELAY_NODE_RELAY, RAY_RELAY_NODE_RAY_ADDRESS, RAY_RELAY_NODE_GCS_ADDRESS,
  RAY_RELAY_NODE_NODE_ID, RAY_RELAY_NODE_NODE_ADDRESS, RAY_RELAY_NODE_TOKEN_FILE, RAY_RELAY_NODE_PIN, RAY_RELAY_NODE_RAY_TOKEN_FILE, RAY_RELAY_NODE_REVERSE_PORTS, RAY_RELAY_NODE_ALLOW_PLAINTEXT

Next: `ray-relay list -v` at the relay names each node's agent.";

/// `node`
#[derive(Debug, Args)]
pub struct NodeArgs {
    /// A relay; once for each. A name with several addresses means all of them
    #[arg(
        long,
        value_name = "URL",
        env = "RAY_RELAY_NODE_RELAY",
        hide_env_values = true
    )]
    #[arg(hide_env = true, required = true, value_delimiter = ',', value_hint = ValueHint::Url)]
    pub relay: Vec<RelayUrl>,
    /// Dashboard of the Ray head, which is asked about every debugger before it is dialled
    #[arg(
        long,
        value_name = "URL",
        env = "RAY_RELAY_NODE_RAY_ADDRESS",
        hide_env = true
    )]
    #[arg(default_value = "http://127.0.0.1:8265", value_hint = ValueHint::Url)]
    pub ray_address: String,
    /// The GCS, asked about legacy debuggers: HOST:PORT, `auto` for port 6379 of the head, or `off`
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "RAY_RELAY_NODE_GCS_ADDRESS",
        hide_env = true
    )]
    #[arg(default_value = "auto")]
    pub gcs_address: Gcs,
    /// PEM file with the authorities of the GCS, where Ray speaks TLS; with the two below
    #[arg(long, value_name = "FILE", requires_all = ["gcs_cert_file", "gcs_key_file"])]
    #[arg(env = "RAY_RELAY_NODE_GCS_CA_FILE", hide_env = true)]
    pub gcs_ca_file: Option<PathBuf>,
    /// PEM file with the client certificate that the GCS wants
    #[arg(long, value_name = "FILE", requires = "gcs_ca_file")]
    #[arg(env = "RAY_RELAY_NODE_GCS_CERT_FILE", hide_env = true)]
    pub gcs_cert_file: Option<PathBuf>,
    /// PEM file with its private key
    #[arg(long, value_name = "FILE", requires = "gcs_ca_file")]
    #[arg(env = "RAY_RELAY_NODE_GCS_KEY_FILE", hide_env = true)]
    pub gcs_key_file: Option<PathBuf>,
    /// Ray's id of this node; without it, every node at this machine's addresses
    #[arg(
        long,
        value_name = "HEX",
        env = "RAY_RELAY_NODE_NODE_ID",
        hide_env = true
    )]
    #[arg(value_parser = node_id)]
    pub node_id: Option<String>,
    /// Address that Ray knows this node by, where it is none of the machine's own; once for each
    #[arg(
        long,
        value_name = "IP",
        env = "RAY_RELAY_NODE_NODE_ADDRESS",
        hide_env = true
    )]
    #[arg(value_delimiter = ',')]
    pub node_address: Vec<IpAddr>,
    /// Ports of loopback, such as 7700-7799, on which workers may dial the debugger of a user who runs
    /// `ray-relay reverse`; without it there are none
    #[arg(
        long,
        value_name = "FIRST-LAST",
        env = "RAY_RELAY_NODE_REVERSE_PORTS",
        hide_env = true
    )]
    #[arg(value_parser = ray_relay_node::reverse_ports)]
    pub reverse_ports: Option<RangeInclusive<u16>>,
    /// File with the agent's token, of the scope `node` [env: RAY_RELAY_TOKEN, the token itself]
    #[arg(
        long,
        value_name = "FILE",
        env = "RAY_RELAY_NODE_TOKEN_FILE",
        hide_env = true
    )]
    #[arg(value_hint = ValueHint::FilePath)]
    pub token_file: Option<PathBuf>,
    /// Trust the relay by its public key instead: sha256: and the SHA-256 of the key
    #[arg(
        long,
        value_name = "sha256:HEX",
        env = "RAY_RELAY_NODE_PIN",
        hide_env = true
    )]
    #[arg(conflicts_with = "ca_file")]
    pub pin: Option<Pin>,
    /// How to speak TLS with the relays.
    #[command(flatten)]
    pub tls: RelayTlsArgs,
    /// File with Ray's own token, where Ray wants one [env: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH]
    #[arg(
        long,
        value_name = "FILE",
        env = "RAY_RELAY_NODE_RAY_TOKEN_FILE",
        hide_env = true
    )]
    #[arg(value_hint = ValueHint::FilePath)]
    pub ray_token_file: Option<PathBuf>,
    /// Link over http to another machine too, where each host on the way can read and change it
    #[arg(long, env = "RAY_RELAY_NODE_ALLOW_PLAINTEXT", hide_env = true)]
    #[arg(value_parser = clap::builder::FalseyValueParser::new())]
    pub allow_plaintext: bool,
    /// Level or filter, such as debug or ray_relay_node=debug,info
    /// [env: RAY_RELAY_LOG_LEVEL] [default: info]
    #[arg(long, value_name = "FILTER")]
    pub log_level: Option<String>,
    /// Form of log lines [env: RAY_RELAY_LOG_FORMAT] [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = words_of::<LogFormat>())]
    pub log_format: Option<String>,
}

/// Ray's ids have 56 digits, but nothing relies on that.
fn node_id(text: &str) -> Result<String, &'static str> {
    let id = text.trim().to_ascii_lowercase();
    match !id.is_empty() && id.len() <= 128 && id.bytes().all(|b| b.is_ascii_hexdigit()) {
        true => Ok(id),
        false => Err("write the node's id in hexadecimal digits, as `ray list nodes` prints it"),
    }
}

impl Fails for ray_relay_node::AgentError {
    fn exit(&self) -> Exit {
        match self {
            Self::Head(_) | Self::Access(_) | Self::Nowhere => Exit::Misconfigured,
            Self::Signal(_) => Exit::Failed,
        }
    }
}

pub(super) async fn run(args: NodeArgs) -> Result<(), Failure> {
    let (relays, settings) = (args.relay.clone(), sources(&args));
    let mut config = validate::resolve(&settings)?.config;
    logging::init(&config.log)?;
    let mut cluster = config.clusters.swap_remove(0);
    cluster.gcs_address = args.gcs_address.clone();
    cluster.gcs_ca_file = args.gcs_ca_file.clone();
    cluster.gcs_cert_file = args.gcs_cert_file.clone();
    cluster.gcs_key_file = args.gcs_key_file.clone();
    cluster.token_file = args.ray_token_file.clone();
    let settings = Settings {
        relays,
        cluster,
        node_id: args.node_id.clone(),
        node_addresses: args.node_address.clone(),
        reverse_ports: args.reverse_ports.clone(),
        access: Arc::new(TrustSettings {
            token: RelayTokenArgs::of_file(args.token_file, args.allow_plaintext),
            tls: args.tls,
            pin: args.pin,
            allow_plaintext: args.allow_plaintext,
        }),
    };
    Ok(Box::pin(ray_relay_node::run(settings)).await?)
}

/// Uses only the logging settings of the environment: all others are for a relay.
fn sources(args: &NodeArgs) -> Sources {
    let about_logs = |(name, _): &(OsString, OsString)| {
        name.to_str()
            .is_some_and(|name| name.starts_with("RAY_RELAY_LOG_"))
    };
    Sources {
        environment: std::env::vars_os().filter(about_logs).collect(),
        flags: Flags {
            ray_address: vec![args.ray_address.clone()],
            log_level: args.log_level.clone(),
            log_format: args.log_format.clone(),
            ..Flags::default()
        },
    }
}

/// Trust settings from the flags.
struct TrustSettings {
    token: RelayTokenArgs,
    tls: RelayTlsArgs,
    pin: Option<Pin>,
    allow_plaintext: bool,
}

impl RelayAccess for TrustSettings {
    fn tls(&self, relay: &RelayUrl) -> Result<ClientConfig, String> {
        let config = match self.pin {
            None => self.tls.config(relay),
            Some(pin) => self.tls.identified(pin.trusting()?),
        };
        config.map_err(|error| with_hint(&error))
    }

    fn authorization(&self, relay: &RelayUrl) -> Result<Option<HeaderValue>, String> {
        if !(relay.is_https() || self.allow_plaintext || is_this_machine(relay.host())) {
            let relay = replaced(&relay.to_string()).into_owned();
            return Err(format!(
                "{relay} is not linked in clear text, which others could read and forge: use https, or, on a private network, give --allow-plaintext"
            ));
        }
        let authorization = self.token.authorization(relay);
        authorization.map_err(|error| error.to_string())
    }
}

fn with_hint(error: &RelayError) -> String {
    match error.hint() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    }
}
