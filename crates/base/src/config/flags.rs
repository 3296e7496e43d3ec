//! The flags of `serve` and `config check`, and the keys of which they are values.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};

use super::raw::{RawEntry, RawValue};
use super::settings::{AdvertiseMode, LogFormat};

/// The flags by which a command finds its configuration, as typed. Flags override the environment, which overrides the
/// file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct Flags {
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
    #[arg(long, value_name = "MODE", value_parser = words_of::<AdvertiseMode>())]
    pub advertise: Option<String>,
    /// Level or filter, such as debug or ray_relay_dap=debug,info
    /// [env: RAY_RELAY_LOG_LEVEL] [default: info]
    #[arg(long, value_name = "FILTER")]
    pub log_level: Option<String>,
    /// Form of log lines [env: RAY_RELAY_LOG_FORMAT] [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = words_of::<LogFormat>())]
    pub log_format: Option<String>,
}

/// The values of `T` that clap lists for a flag; the flag's value is parsed later, together with all other
/// configuration.
pub fn words_of<T: ValueEnum>() -> PossibleValuesParser {
    let values = T::value_variants().iter();
    values.filter_map(T::to_possible_value).into()
}

impl Flags {
    /// The flags as entries: section, key and value.
    pub(super) fn entries(&self) -> Vec<(&'static str, &'static str, RawEntry)> {
        let entry = |label: &str, value: RawValue| RawEntry {
            label: label.to_owned(),
            place: "the command line".to_owned(),
            value,
        };
        let mut entries = Vec::new();
        for (section, key, label, value) in [
            ("listen", "address", "--listen", &self.listen),
            ("listen", "keeper", "--keeper", &self.keeper),
            ("tls", "cert_file", "--tls-cert", &self.tls_cert),
            ("tls", "key_file", "--tls-key", &self.tls_key),
            ("advertise", "mode", "--advertise", &self.advertise),
            ("log", "level", "--log-level", &self.log_level),
            ("log", "format", "--log-format", &self.log_format),
        ] {
            if let Some(value) = value {
                entries.push((section, key, entry(label, RawValue::Word(value.clone()))));
            }
        }
        if !self.auth_key.is_empty() {
            let paths = self.auth_key.iter().cloned().map(RawValue::Text);
            let value = RawValue::List(paths.collect());
            entries.push(("auth", "keys", entry("--auth-key", value)));
        }
        if self.insecure_no_auth {
            entries.push((
                "listen",
                "insecure_no_auth",
                entry("--insecure-no-auth", RawValue::Bool(true)),
            ));
        }
        entries
    }
}
