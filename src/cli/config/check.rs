//! `ray-relay config check`: prints the effective configuration, or every problem in it.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::app::validate;
use crate::cli::failure::{Exit, Failure};
use ray_relay_access::identity::Authenticator;
use ray_relay_access::policy::Policy;
use ray_relay_base::config::{Auth, Flags, Problems, Resolved, Sources, printable};

/// `config check`
#[derive(Debug, Args)]
pub struct ConfigCheckArgs {
    /// The same flags as `serve`.
    #[command(flatten)]
    pub config: Flags,
    /// Policy file to check, instead of the one that the configuration names
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub policy: Option<PathBuf>,
    /// Print JSON: {"settings": [...], "policy": {...} or null} or {"problems": [...]}
    #[arg(long)]
    pub json: bool,
}

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay config check --config relay.toml
  ray-relay config check --config relay.toml --json | jq '.problems[].key'
  ray-relay config check --policy policy.toml

Reads the same file, RAY_RELAY_* environment and flags as `ray-relay serve`, and the files with keys, rules and revocations that they name; contacts no server. Prints what each rule of the policy file permits, one line for each.
Exit code 0: it is right, and the effective value of every key was printed. 78: it is not.";

pub(super) fn run(args: ConfigCheckArgs) -> Result<(), Failure> {
    let resolved = validate::resolve(&Sources::from_process(args.config));
    let (resolved, policy) = match checked(resolved, args.policy) {
        Ok(checked) => checked,
        Err(problems) => return report_problems(problems, args.json),
    };
    let mut out = io::stdout().lock();
    let clusters = resolved.config.clusters.iter();
    let clusters: Vec<&str> = clusters.map(|cluster| cluster.name.as_str()).collect();
    let others = resolved.config.discovery.kubernetes;
    if args.json {
        let settings: Vec<_> = resolved
            .settings
            .iter()
            .map(|s| json!({"section": s.section, "key": s.key, "value": s.value, "origin": s.origin}))
            .collect();
        let policy = policy.map(|(file, policy)| {
            let doubts = policy.doubts(&clusters, others);
            json!({ "file": file, "rules": policy.to_json(), "doubts": doubts })
        });
        let memory = resolved.config.memory().sentence();
        let output = json!({ "settings": settings, "memory": memory, "policy": policy });
        writeln!(out, "{output:#}")?;
        return Ok(());
    }
    write!(out, "{}", summary(&resolved))?;
    writeln!(out, "\n# Memory: {}.", resolved.config.memory().sentence())?;
    if let Some((file, policy)) = policy {
        write!(
            out,
            "{}",
            policy_summary(&file, &policy, &policy.doubts(&clusters, others))
        )?;
    }
    Ok(())
}

/// Checks the configuration with the files that it names. Also returns the name and content of its policy file;
/// `policy` overrides that.
fn checked(
    resolved: Result<Resolved, Problems>,
    policy: Option<PathBuf>,
) -> Result<(Resolved, Option<(String, Policy)>), Problems> {
    let resolved = match resolved {
        Ok(resolved) => resolved,
        Err(mut problems) => {
            let of_policy = policy.and_then(|path| Policy::load(&path).err());
            let of_policy = of_policy.into_iter().flat_map(|problems| problems.problems);
            problems.problems.extend(of_policy);
            return Err(problems);
        }
    };
    let auth = &resolved.config.auth;
    let path = policy.or_else(|| auth.policy_file.clone());
    Authenticator::check(&Auth {
        policy_file: path.clone(),
        ..auth.clone()
    })?;
    let policy = match path {
        Some(path) => Some((printable(&path.display().to_string()), Policy::load(&path)?)),
        None => None,
    };
    Ok((resolved, policy))
}

fn report_problems(problems: Problems, as_json: bool) -> Result<(), Failure> {
    if !as_json {
        return Err(problems.into());
    }
    writeln!(io::stdout().lock(), "{:#}", json!(problems))?;
    Err(Failure::reported(Exit::Misconfigured as u8))
}

/// The rules of the policy, as comments.
fn policy_summary(file: &str, policy: &Policy, doubts: &[String]) -> String {
    let mut text = match policy.len() {
        0 => format!("\n# The policy {file} is right, and has no rule: it permits nothing.\n"),
        1 => format!("\n# The policy {file} is right, and has 1 rule:\n"),
        n => format!("\n# The policy {file} is right, and has {n} rules:\n"),
    };
    for line in policy.explained() {
        text += &format!("#   {line}\n");
    }
    for doubt in doubts {
        text += &format!("# Is that meant? {doubt}\n");
    }
    text
}

/// The configuration as TOML, with a comment at each value that is not the default.
fn summary(resolved: &Resolved) -> String {
    let mut text =
        String::from("# The configuration is right. Values without a comment are defaults.\n");
    let mut section = "";
    for setting in &resolved.settings {
        let opens_cluster = setting.section == "cluster" && setting.key == "name";
        if opens_cluster {
            text += "\n[[cluster]]\n";
        } else if setting.section != section {
            text += &format!("\n[{}]\n", setting.section);
        }
        section = setting.section;
        let line = format!("{} = {}", setting.key, setting.value);
        text += &match setting.origin.as_str() {
            "default" => format!("{line}\n"),
            origin => format!("{line:<44}  # {origin}\n"),
        };
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn summary_is_an_equivalent_configuration() {
        let flags = Flags {
            listen: Some("127.0.0.1:7000".to_owned()),
            ray_address: vec!["a=http://one".to_owned(), "b=https://two/x".to_owned()],
            ..Flags::default()
        };
        let resolved = validate::resolve(&Sources {
            flags,
            ..Sources::default()
        })
        .unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("relay.toml");
        std::fs::write(&path, summary(&resolved)).unwrap();
        let flags = Flags {
            config: Some(path),
            ..Flags::default()
        };
        let reparsed = validate::resolve(&Sources {
            flags,
            ..Sources::default()
        })
        .unwrap();
        assert_eq!(reparsed.config, resolved.config);
    }
}
