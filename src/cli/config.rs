//! `ray-relay config`: explains the keys of the configuration, and [checks](check) one.

mod check;

use serde_json::json;

use check::ConfigCheckArgs;

use super::cert;
use super::failure::{Exit, Fails, Failure};
use super::terminal::print;
use ray_relay_base::config::explain::{Explained, UnknownKey, explain, explained};
use ray_relay_view::listing::text;

const AFTER_HELP: &str = "\
Examples:
  ray-relay config explain                    every key with its default
  ray-relay config explain listen.keepalive   one key
  ray-relay config explain tls                all of a section, as config/example.toml has them
  ray-relay config explain RAY_RELAY_LOG_LEVEL

`ray-relay config check` says what a configuration comes to.";

/// `config`
#[derive(Debug, clap::Subcommand)]
pub enum ConfigCommand {
    /// Say what a key of the configuration means, its default and its variable
    #[command(after_help = AFTER_HELP)]
    Explain {
        /// A key, a section or a variable; without it, every key with its default
        #[arg(value_name = "KEY")]
        key: Option<String>,
        /// Print JSON: [{"key", "default", "example", "environment", "text"}, ...]
        #[arg(long)]
        json: bool,
    },
    /// Check a configuration, and report every problem at once
    #[command(after_help = check::AFTER_HELP)]
    Check(Box<ConfigCheckArgs>),
    /// Write cert.pem and key.pem for a first try with TLS: a certificate that signs itself
    #[command(after_help = cert::AFTER_HELP)]
    SelfSigned(cert::SelfSignedArgs),
}

impl Fails for UnknownKey {
    fn exit(&self) -> Exit {
        Exit::Usage
    }
}

pub(super) fn run(command: ConfigCommand) -> Result<(), Failure> {
    match command {
        ConfigCommand::Explain { key, json } => explanation(key.as_deref(), json),
        ConfigCommand::Check(args) => check::run(*args),
        ConfigCommand::SelfSigned(args) => cert::run(args),
    }
}

fn explanation(key: Option<&str>, json: bool) -> Result<(), Failure> {
    let found = match key {
        Some(key) => explain(key)?,
        None => explained(),
    };
    let text = match (json, key) {
        (true, _) => format!("{:#}\n", json!(found)),
        (false, Some(_)) => {
            let texts: Vec<String> = found.iter().map(full_text).collect();
            texts.join("\n")
        }
        (false, None) => table(&found),
    };
    Ok(print(&text)?)
}

fn full_text(one: &Explained) -> String {
    let value = match (one.default, one.example) {
        (Some(default), _) => format!("{} = {default}    (the default)", one.key),
        (None, Some(example)) => format!("{}    (no default; such as {example})", one.key),
        (None, None) => one.key.clone(),
    };
    let environment = one.environment.as_deref();
    let environment = environment.map_or_else(
        || "in [[cluster]] of the file alone".to_owned(),
        |variable| format!("in the environment: {variable}"),
    );
    let text: String = one
        .text
        .lines()
        .map(|line| format!("    {line}\n"))
        .collect();
    format!("{value}\n  {environment}\n{text}")
}

fn table(all: &[Explained]) -> String {
    let row = |one: &Explained| [one.key.clone(), one.default.unwrap_or("-").to_owned()];
    text::table(all.iter().map(row).collect(), None)
}
