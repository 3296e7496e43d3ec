//! Puts the sources together: defaults < file < environment < flags.
//!
//! Every value of every source is checked, also one that another source overrides, and every
//! problem is kept: a configuration is corrected in one go, not mistake by mistake.

use std::collections::HashMap;
use std::path::Path;

use super::file::{RawFile, parse_file};
use super::kind::Kind;
use super::problem::{Problem, Problems, Wrong, shown};
use super::raw::{Entry, RawValue, read_text};
use super::settings::{Config, Notice, Tls};
use super::sources::{FILE_VARIABLE, Flags, Sources, parse_environment};

mod checks;
mod clusters;
#[cfg(test)]
mod tests;

/// A configuration and where each of its values came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// The configuration that the values make up.
    pub config: Config,
    /// Every key in the order of `config/example.toml`, clusters last.
    pub settings: Vec<Setting>,
}

/// One effective value, for `check-config` to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Section of the file; `cluster` for those of a cluster.
    pub section: &'static str,
    /// Key in that section.
    pub key: &'static str,
    /// The value in TOML's notation.
    pub value: String,
    /// `default`, or where it was given.
    pub origin: String,
}

/// What only other parts of the relay can tell about a configuration. They know this one, so it is
/// they who bring this along.
pub struct Checks {
    /// Whether a regular expression can be one of `masking.values`, else a hint why not.
    pub pattern: fn(&str) -> Result<(), &'static str>,
    /// Everything that stands against serving with the files of `[tls]`, which is on and complete.
    pub tls_files: fn(&Tls) -> Vec<Fault>,
    /// Everything that stands against posting with the files of `[notice]`, which has the address of a webhook.
    pub notice_files: fn(&Notice) -> Vec<Fault>,
}

/// What is wrong with a value that names something unusable. `Display` is a sentence for the operator.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {found}; {hint}")]
pub struct Fault {
    /// The key that names it, with its section: `tls.cert_file`.
    pub key: &'static str,
    /// What stands there, or is found there.
    pub found: String,
    /// What would be right.
    pub expected: &'static str,
    /// The next step.
    pub hint: String,
}

/// Resolves `sources`, reading the file that they name.
///
/// # Errors
/// All [`Problems`], of all sources.
pub fn resolve(sources: &Sources, checks: Checks) -> Result<Resolved, Problems> {
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
    let of_file = file.sections.into_iter().flat_map(|(section, entries)| {
        let entries = entries.into_iter();
        entries.map(move |(key, entry)| (section, key, entry))
    });
    let of_flags = flag_entries(&sources.flags);
    for (section, key, entry) in of_file.chain(environment.entries).chain(of_flags) {
        entries.entry((section, key)).or_default().push(entry);
    }
    let mut resolver = Resolver {
        entries,
        checks,
        problems,
        settings: Vec::new(),
    };
    let mut config = Config::read(&mut resolver);
    config.clusters = resolver.clusters(
        file.clusters,
        environment.clusters.as_deref(),
        &sources.flags.ray_address,
        !config.discovery.kubernetes,
    );
    resolver.cross_checks(&config);
    let Resolver {
        problems, settings, ..
    } = resolver;
    match problems.is_empty() {
        true => Ok(Resolved { config, settings }),
        false => Err(Problems { problems }),
    }
}

fn read_file(key: &str, place: &str, path: &Path, problems: &mut Vec<Problem>) -> RawFile {
    let name = shown(&path.display().to_string());
    match read_text(path) {
        Ok(text) => parse_file(&name, &text, problems),
        Err(error) => {
            problems.push(Problem {
                key: key.to_owned(),
                place: place.to_owned(),
                found: format!("{name}: {error}"),
                expected: "a TOML file that can be read".to_owned(),
                hint: Some(
                    "`ray-relay config explain` lists every key with its default".to_owned(),
                ),
            });
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
        ("listen", "takeover", "--takeover", &flags.takeover),
        ("listen", "keeper", "--keeper", &flags.keeper),
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

/// Reads the tables from the sources, and keeps every problem.
pub(super) struct Resolver {
    /// What the sources give for each key, the source that counts most last.
    entries: HashMap<(&'static str, &'static str), Vec<Entry>>,
    checks: Checks,
    problems: Vec<Problem>,
    settings: Vec<Setting>,
}

impl Resolver {
    /// Reads `section.key` from every source that gives it, the last one counts.
    pub(super) fn key<T: 'static>(
        &mut self,
        section: &'static str,
        key: &'static str,
        slot: &mut T,
        kind: &Kind<T>,
    ) {
        let entries = self.entries.get(&(section, key)).cloned();
        let mut origin = None;
        for entry in entries.unwrap_or_default() {
            match kind.read(&entry.value, &self.checks) {
                Ok(value) => {
                    *slot = value;
                    origin = Some(match entry.label.contains('.') {
                        true => entry.place,
                        false => entry.label,
                    });
                }
                Err(Wrong { expected, hint }) => self.problems.push(Problem {
                    key: entry.label,
                    place: entry.place,
                    found: kind.found(&entry.value),
                    expected,
                    hint,
                }),
            }
        }
        if let Some(value) = kind.shown(slot, origin.is_some()) {
            self.settings.push(Setting {
                section,
                key,
                value,
                origin: origin.unwrap_or_else(|| "default".to_owned()),
            });
        }
    }

    /// Whether any source gives the key, rightly or wrongly.
    pub(super) fn is_given(&self, section: &'static str, key: &'static str) -> bool {
        self.entries.contains_key(&(section, key))
    }

    /// What is shown for a key that was read.
    pub(super) fn setting(&mut self, section: &str, key: &str) -> Option<&mut Setting> {
        self.settings
            .iter_mut()
            .find(|setting| setting.section == section && setting.key == key)
    }

    /// A problem of `section.key` beside others, shown where the value was given, or as a default that
    /// does not fit.
    pub(super) fn problem(&mut self, key: &str, found: &str, expected: &str, hint: &str) {
        let (section, name) = key.split_once('.').unwrap_or_default();
        let setting = self.setting(section, name);
        let place = setting.map_or("default", |setting| setting.origin.as_str());
        let place = place.to_owned();
        self.problems.push(Problem {
            key: key.to_owned(),
            place,
            found: found.to_owned(),
            expected: expected.to_owned(),
            hint: Some(hint.to_owned()),
        });
    }
}
