//! Puts the sources together: defaults < file < environment < flags.
//!
//! Every value of every source is checked, also one that another source overrides, and every
//! problem is kept: a configuration is corrected in one go, not mistake by mistake.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use super::address::{Wrong, redacted};
use super::model::Config;
use super::problem::{Problem, Problems, shown};
use super::raw::{Entry, RawFile, RawValue, parse_file};
use super::setting::{self, Read};
use super::sources::{FILE_VARIABLE, Flags, Sources, parse_environment};
use super::units::{format_duration, format_size};

mod audit;
mod auth;
mod checks;
mod clusters;
mod identity_providers;
mod masking;
mod release;
mod scalars;
#[cfg(test)]
mod tests;
mod tls;

/// Longest configuration file that is read.
const LONGEST_FILE: u64 = 1 << 20;

/// Shortest duration that is accepted anywhere.
const SHORTEST: Duration = Duration::from_millis(1);

/// A configuration and where each of its values came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// The configuration.
    pub config: Config,
    /// Every key in the order of `config/example.toml`, clusters last.
    pub settings: Vec<Setting>,
}

/// One effective value, for `check-config` to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Section of the file; `cluster` for those of a cluster.
    pub section: &'static str,
    /// Key in it.
    pub key: &'static str,
    /// As TOML.
    pub value: String,
    /// `default`, or where it was given.
    pub origin: String,
}

/// Resolves `sources`, reading the file that they name.
///
/// # Errors
/// All [`Problems`], of all sources.
pub fn resolve(sources: &Sources) -> Result<Resolved, Problems> {
    let mut problems = Vec::new();
    let environment = parse_environment(&sources.environment, &mut problems);
    let environment_problems = std::mem::take(&mut problems);
    let named = match (&sources.flags.config, &environment.file) {
        (Some(path), _) => Some(("--config", "the command line", path)),
        (None, Some(path)) => Some((FILE_VARIABLE, "the environment", path)),
        (None, None) => None,
    };
    let file = match named {
        Some((key, place, path)) => read_file(key, place, path, &mut problems),
        None => RawFile::default(),
    };
    problems.extend(environment_problems);

    let mut entries: HashMap<(&str, &str), Vec<Entry>> = HashMap::new();
    for (section, key, entry) in file.entries.into_iter().chain(environment.entries) {
        entries.entry((section, key)).or_default().push(entry);
    }
    for (section, key, entry) in flag_entries(&sources.flags) {
        entries.entry((section, key)).or_default().push(entry);
    }
    let mut resolver = Resolver {
        entries,
        problems,
        settings: Vec::new(),
    };
    let mut config = resolver.scalars();
    config.clusters = resolver.clusters(
        file.clusters,
        environment.clusters.as_deref(),
        &sources.flags.ray_address,
    );
    resolver.cross_checks(&config);
    if resolver.problems.is_empty() {
        Ok(Resolved {
            config,
            settings: resolver.settings,
        })
    } else {
        Err(Problems {
            problems: resolver.problems,
        })
    }
}

fn read_file(key: &str, place: &str, path: &Path, problems: &mut Vec<Problem>) -> RawFile {
    let unreadable = |found: String| Problem {
        key: key.to_owned(),
        place: place.to_owned(),
        found,
        expected: "a TOML file that can be read".to_owned(),
        hint: Some("config/example.toml lists every key with its default".to_owned()),
    };
    let name = shown(&path.display().to_string());
    let read = std::fs::metadata(path).and_then(|metadata| {
        if metadata.len() > LONGEST_FILE {
            return Err(std::io::Error::other("longer than 1 MiB"));
        }
        std::fs::read_to_string(path)
    });
    match read {
        Ok(text) => parse_file(&name, &text, problems),
        Err(error) => {
            problems.push(unreadable(format!("{name}: {error}")));
            RawFile::default()
        }
    }
}

fn flag_entries(flags: &Flags) -> Vec<(&'static str, &'static str, Entry)> {
    let entry = |label: &str, value: RawValue| Entry {
        label: label.to_owned(),
        place: "the command line".to_owned(),
        value,
    };
    let mut entries = Vec::new();
    for (section, key, label, value) in [
        ("listen", "address", "--listen", &flags.listen),
        ("tls", "cert_file", "--tls-cert", &flags.tls_cert),
        ("tls", "key_file", "--tls-key", &flags.tls_key),
        ("advertise", "mode", "--advertise", &flags.advertise),
        ("log", "level", "--log-level", &flags.log_level),
        ("log", "format", "--log-format", &flags.log_format),
    ] {
        if let Some(value) = value {
            entries.push((section, key, entry(label, RawValue::Word(value.clone()))));
        }
    }
    if !flags.auth_key.is_empty() {
        let paths = flags.auth_key.iter().cloned().map(RawValue::Text);
        let value = RawValue::List(paths.collect());
        entries.push(("auth", "keys", entry("--auth-key", value)));
    }
    if flags.insecure_no_auth {
        entries.push((
            "listen",
            "insecure_no_auth",
            entry("--insecure-no-auth", RawValue::Bool(true)),
        ));
    }
    entries
}

/// What of a value may be shown: an address can carry a password.
fn found(value: &RawValue, shape: Shape) -> String {
    match (shape, value) {
        (Shape::Open, value) => value.to_string(),
        (Shape::Address, RawValue::Text(text) | RawValue::Word(text)) => {
            format!("\"{}\"", shown(&redacted(text)))
        }
        (Shape::Address, other) => other.to_string(),
        (Shape::Path, RawValue::Text(_) | RawValue::Word(_)) => "a text (not shown)".to_owned(),
        (Shape::Path, _) => "a value of another type (not shown)".to_owned(),
    }
}

/// How freely a found value may be shown.
#[derive(Clone, Copy)]
enum Shape {
    /// As it is.
    Open,
    /// Without credentials.
    Address,
    /// Not at all: people paste the secret where its file is wanted.
    Path,
}

struct Resolver {
    /// Of each key, the one that counts most last.
    entries: HashMap<(&'static str, &'static str), Vec<Entry>>,
    problems: Vec<Problem>,
    settings: Vec<Setting>,
}

impl Resolver {
    fn problem(&mut self, key: &str, found: &str, expected: &str, hint: &str) {
        // Shown where the value was given, or as a default that does not fit.
        let place = key
            .split_once('.')
            .and_then(|(section, key)| {
                self.settings
                    .iter()
                    .find(|s| s.section == section && s.key == key)
            })
            .map_or("default", |setting| setting.origin.as_str());
        self.problems.push(Problem {
            key: key.to_owned(),
            place: place.to_owned(),
            found: found.to_owned(),
            expected: expected.to_owned(),
            hint: Some(hint.to_owned()),
        });
    }

    fn read<T>(
        &mut self,
        entry: &Entry,
        shape: Shape,
        read: impl Fn(&RawValue) -> Read<T>,
    ) -> Option<T> {
        match read(&entry.value) {
            Ok(value) => Some(value),
            Err(Wrong { expected, hint }) => {
                self.problems.push(Problem {
                    key: entry.label.clone(),
                    place: entry.place.clone(),
                    found: found(&entry.value, shape),
                    expected,
                    hint,
                });
                None
            }
        }
    }

    /// Reads `section.key` from every source that gives it, the last one counts.
    fn set<T>(
        &mut self,
        section: &'static str,
        key: &'static str,
        slot: &mut T,
        show: impl Fn(&T) -> String,
        read: impl Fn(&RawValue) -> Read<T>,
    ) {
        let entries = self
            .entries
            .get(&(section, key))
            .cloned()
            .unwrap_or_default();
        let mut origin = "default".to_owned();
        for entry in &entries {
            if let Some(value) = self.read(entry, Shape::Open, &read) {
                *slot = value;
                origin = match entry.label.contains('.') {
                    true => entry.place.clone(),
                    false => entry.label.clone(),
                };
            }
        }
        self.settings.push(Setting {
            section,
            key,
            value: show(slot),
            origin,
        });
    }

    fn count(&mut self, section: &'static str, key: &'static str, slot: &mut usize, most: usize) {
        self.set(section, key, slot, plain, |value| {
            setting::count(value, 1..=most)
        });
    }

    fn duration(
        &mut self,
        section: &'static str,
        key: &'static str,
        slot: &mut Duration,
        longest: Duration,
    ) {
        self.duration_from(section, key, slot, SHORTEST, longest);
    }

    fn duration_from(
        &mut self,
        section: &'static str,
        key: &'static str,
        slot: &mut Duration,
        shortest: Duration,
        longest: Duration,
    ) {
        self.set(
            section,
            key,
            slot,
            |d| quoted(&format_duration(*d)),
            |value| setting::duration(value, shortest..=longest),
        );
    }

    fn size(
        &mut self,
        section: &'static str,
        key: &'static str,
        slot: &mut usize,
        least: usize,
        most: usize,
    ) {
        self.set(
            section,
            key,
            slot,
            |s| quoted(&format_size(*s)),
            |value| setting::size(value, least..=most),
        );
    }
}

fn quoted(value: &impl std::fmt::Display) -> String {
    format!("{:?}", value.to_string())
}

fn plain(value: &impl std::fmt::Display) -> String {
    value.to_string()
}
