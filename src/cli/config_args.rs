//! The flags by which `serve` and `check-config` find their configuration.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::config::Flags;

/// Where the configuration comes from: file < environment < these flags.
#[derive(Debug, Args, Default)]
pub struct ConfigArgs {
    /// TOML file to read; without it the defaults apply [env: RAY_RELAY_CONFIG]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Dashboard of a Ray head, port 8265 unless given; once for each cluster
    /// [env: RAY_RELAY_RAY_ADDRESS] [default: http://127.0.0.1:8265]
    #[arg(long, value_name = "URL|NAME=URL", value_hint = clap::ValueHint::Url)]
    pub ray_address: Vec<String>,
    /// The one port [env: RAY_RELAY_LISTEN_ADDRESS] [default: 127.0.0.1:5678]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<String>,
    /// Unix socket: take the port over from the relay that listens there, which serves its sessions to
    /// their end; then listen there for a successor [env: RAY_RELAY_LISTEN_TAKEOVER]
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::FilePath)]
    pub takeover: Option<String>,
    /// Unix socket of a `ray-relay keeper`: debug sessions outlive a relay that is killed, and go on at
    /// the next one [env: RAY_RELAY_LISTEN_KEEPER]
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::FilePath)]
    pub keeper: Option<String>,
    /// Allow an address that other machines can reach, although no client is authenticated: all
    /// who reach the port can run code in every paused task
    #[arg(long)]
    pub insecure_no_auth: bool,
    /// File with a key that tokens are verified with: a PEM public key, or hs256: and a secret; once
    /// for each key. Every client needs a token then, and any address may be listened on
    /// [env: RAY_RELAY_AUTH_KEYS]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub auth_key: Vec<String>,
    /// Certificate of the relay, PEM, with its intermediate ones: TLS on the one port
    /// [env: RAY_RELAY_TLS_CERT_FILE]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub tls_cert: Option<String>,
    /// Its private key, PEM [env: RAY_RELAY_TLS_KEY_FILE]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub tls_key: Option<String>,
    /// How breakpoints are told apart in the dashboard's answers
    /// [env: RAY_RELAY_ADVERTISE_MODE] [default: single]
    #[arg(long, value_name = "MODE", value_enum)]
    pub advertise: Option<AdvertiseMode>,
    /// Level or filter, such as debug or ray_relay::dap=debug,info
    /// [env: RAY_RELAY_LOG_LEVEL] [default: info]
    #[arg(long, value_name = "FILTER")]
    pub log_level: Option<String>,
    /// Form of log lines [env: RAY_RELAY_LOG_FORMAT] [default: text]
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub log_format: Option<LogFormat>,
}

impl From<ConfigArgs> for Flags {
    fn from(args: ConfigArgs) -> Self {
        let word = |value: &dyn Fn() -> Option<clap::builder::PossibleValue>| {
            value().map(|value| value.get_name().to_owned())
        };
        Self {
            advertise: word(&|| args.advertise.and_then(|mode| mode.to_possible_value())),
            log_format: word(&|| {
                args.log_format
                    .and_then(|format| format.to_possible_value())
            }),
            config: args.config,
            ray_address: args.ray_address,
            listen: args.listen,
            takeover: args.takeover,
            keeper: args.keeper,
            auth_key: args.auth_key,
            insecure_no_auth: args.insecure_no_auth,
            tls_cert: args.tls_cert,
            tls_key: args.tls_key,
            log_level: args.log_level,
        }
    }
}

/// Values of `--advertise`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AdvertiseMode {
    /// One host and port; the host is spelled differently for each breakpoint
    Single,
    /// A port of advertise.ports for each breakpoint
    Ports,
    /// A host name from advertise.host for each breakpoint (needs wildcard DNS)
    Host,
}

/// Values of `--log-format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// `check-config`
#[derive(Debug, Args)]
pub struct CheckConfigArgs {
    /// The same flags as `serve`.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Policy file to check, instead of the one that the configuration names
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub policy: Option<PathBuf>,
    /// Print JSON: {"settings": [...], "policy": {...} or null} or {"problems": [...]}
    #[arg(long)]
    pub json: bool,
}
