//! `ray-relay check-config`: what a configuration comes to, or everything that is wrong with it.

use std::io::{self, Write};

use serde_json::json;

use super::{CheckConfigArgs, Error};
use crate::config::{self, Resolved, Sources};
use crate::identity::Authenticator;

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay check-config --config relay.toml
  ray-relay check-config --config relay.toml --json | jq '.problems[].key'

Reads the same file, RAY_RELAY_* environment and flags as `ray-relay serve`, and the files with keys,
rules and revocations that they name; contacts nobody.
Exit code 0: it is right, and the effective value of every key was printed. 78: it is not.";

pub(super) fn run(args: CheckConfigArgs) -> Result<(), Error> {
    let resolved =
        config::resolve(&Sources::from_process(args.config.into())).and_then(|resolved| {
            Authenticator::check(&resolved.config.auth)?;
            Ok(resolved)
        });
    let mut out = io::stdout().lock();
    match resolved {
        Ok(resolved) if args.json => {
            let settings: Vec<_> = resolved
                .settings
                .iter()
                .map(|s| json!({"section": s.section, "key": s.key, "value": s.value, "origin": s.origin}))
                .collect();
            writeln!(out, "{:#}", json!({ "settings": settings }))?;
        }
        Ok(resolved) => write!(out, "{}", summary(&resolved))?,
        Err(problems) if args.json => {
            writeln!(out, "{:#}", json!(problems))?;
            return Err(Error::ConfigReported);
        }
        Err(problems) => return Err(problems.into()),
    }
    Ok(())
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
    use crate::config::Flags;

    #[test]
    fn the_summary_is_a_configuration_that_means_the_same() {
        let flags = Flags {
            listen: Some("127.0.0.1:7000".to_owned()),
            ray_address: vec!["a=http://one".to_owned(), "b=https://two/x".to_owned()],
            ..Flags::default()
        };
        let resolved = config::resolve(&Sources {
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
        let again = config::resolve(&Sources {
            flags,
            ..Sources::default()
        })
        .unwrap();
        assert_eq!(again.config, resolved.config);
    }
}
