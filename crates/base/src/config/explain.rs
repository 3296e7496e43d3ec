//! The meaning of each configuration key, read from `config/example.toml`, which a test checks against the tables.

use super::problem::nearest;
use super::resolver::Section;
use super::settings::Cluster;
use super::sources::{keys, variable};

const EXAMPLE: &str = include_str!("../../../../config/example.toml");

/// One key of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Explained {
    /// `listen.keepalive`.
    pub key: String,
    /// Its default as TOML; `None` where it has none.
    pub default: Option<&'static str>,
    /// A valid value, for a key without a default.
    pub example: Option<&'static str>,
    /// The variable that sets it; `None` for keys of `[[cluster]]`.
    pub environment: Option<String>,
    /// Its description, on lines of at most 100 columns.
    pub text: String,
}

/// A name that is neither a key nor a section.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no key or section {name:?}{}", hint(.nearest.as_deref()))]
pub struct UnknownKey {
    name: String,
    nearest: Option<String>,
}

fn hint(nearest: Option<&str>) -> String {
    match nearest {
        Some(nearest) => format!(": did you mean {nearest}?"),
        None => "; `ray-relay config explain` lists all keys".to_owned(),
    }
}

/// Every key, in the order of the example.
pub fn explained() -> Vec<Explained> {
    let mut all: Vec<Explained> = Vec::new();
    let mut section = "";
    let mut text: Vec<&str> = Vec::new();
    for line in EXAMPLE.lines() {
        if line.is_empty() {
            text.clear();
        } else if let Some(header) = line.strip_prefix('[') {
            section = header.trim_matches(['[', ']']);
            text.clear();
        } else if let Some((key, value, is_default)) = assignment(section, line) {
            let text = match (std::mem::take(&mut text), all.last()) {
                // Adjacent keys share one description.
                (none, Some(before)) if none.is_empty() => before.text.clone(),
                (lines, _) => lines.join("\n"),
            };
            all.push(Explained {
                key: format!("{section}.{key}"),
                default: is_default.then_some(value),
                example: (!is_default).then_some(value),
                environment: (section != Cluster::NAME).then(|| variable(section, key)),
                text,
            });
        } else if let Some(comment) = line.strip_prefix('#') {
            text.push(comment.strip_prefix(' ').unwrap_or(comment));
        }
    }
    all
}

/// The key of that name, or every key of that section.
///
/// # Errors
/// [`UnknownKey`], with the nearest known name.
pub fn explain(name: &str) -> Result<Vec<Explained>, UnknownKey> {
    let mut all = explained();
    // A variable means its key, and a key that only one section has needs no section.
    let is_meant = |one: &Explained| {
        let (section, _) = one.key.split_once('.').unwrap_or_default();
        one.key == name || section == name || one.environment.as_deref() == Some(name)
    };
    let of_any_section =
        |one: &Explained| one.key.split_once('.').is_some_and(|(_, key)| key == name);
    match all.iter().any(is_meant) {
        true => all.retain(is_meant),
        false => all.retain(of_any_section),
    }
    if all.is_empty() {
        let known: Vec<String> = explained().into_iter().map(|one| one.key).collect();
        let nearest = nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
        let name = name.to_owned();
        return Err(UnknownKey { name, nearest });
    }
    Ok(all)
}

/// Parses a line into key, value and whether the key has a default; the line of a key without one is commented out.
fn assignment<'a>(section: &str, line: &'a str) -> Option<(&'a str, &'a str, bool)> {
    let (line, is_default) = match line.strip_prefix("# ") {
        Some(comment) => (comment, false),
        None => (line, true),
    };
    let (key, value) = line.split_once(" = ")?;
    let of_section = || keys().any(|known| known == (section, key));
    let of_cluster = || section == Cluster::NAME && Cluster::KEYS.contains(&key);
    (of_section() || of_cluster()).then_some((key, value, is_default))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_explained_once() {
        let all = explained();
        let known = keys().map(|(section, key)| format!("{section}.{key}"));
        let mut known: Vec<_> = known
            .chain(Cluster::KEYS.iter().map(|key| format!("cluster.{key}")))
            .collect();
        let mut found: Vec<_> = all.iter().map(|entry| entry.key.clone()).collect();
        known.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, known);
        for entry in all {
            assert!(!entry.text.is_empty(), "{}", entry.key);
            assert!(entry.default.is_some() != entry.example.is_some());
        }
    }

    #[test]
    fn key_is_explained_by_any_of_its_names() {
        let keys_named = |name| -> Vec<String> {
            let found = explain(name).unwrap();
            found.into_iter().map(|entry| entry.key).collect()
        };
        for name in [
            "listen.keepalive",
            "keepalive",
            "RAY_RELAY_LISTEN_KEEPALIVE",
        ] {
            assert_eq!(keys_named(name), ["listen.keepalive"]);
        }
        assert_eq!(keys_named("cluster.path"), ["cluster.path"]);
        assert_eq!(keys_named("path"), ["cluster.path", "upstream.path"]);
        assert!(keys_named("release").len() >= 3);
        let key_file = explain("tls.key_file").unwrap().remove(0);
        assert!(key_file.text.contains("private key"), "{}", key_file.text);
        assert_eq!(key_file.example, Some("\"/etc/ray-relay/tls/tls.key\""));
        let error = explain("listen.keepalives").unwrap_err().to_string();
        assert!(error.ends_with("did you mean listen.keepalive?"), "{error}");
        let error = explain("xyzzy").unwrap_err().to_string();
        assert!(error.ends_with("lists all keys"), "{error}");
    }
}
