//! Combines the sources: defaults < file < environment < flags.
//!
//! Every value of every source is checked, also one that another source overrides, and every
//! problem is kept: a configuration is corrected in one go, not mistake by mistake.

use std::collections::HashMap;
use std::path::Path;

use super::file::{RawFile, parse_file};
use super::problem::{Problem, Problems, printable};
use super::raw::{RawEntry, read_text};
use super::resolver::{Resolver, Setting};
use super::settings::{Config, Notice, Tls};
use super::sources::{FILE_VARIABLE, Sources, parse_environment};

mod checks;
mod clusters;
#[cfg(test)]
mod tests;

/// A configuration with the origin of each value.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// The configuration that the values make up.
    pub config: Config,
    /// Every key in the order of `config/example.toml`, clusters last.
    pub settings: Vec<Setting>,
}

/// Checks that belong to other parts of the relay. Those parts depend on this crate, so the caller passes their checks
/// in.
#[derive(Clone, Copy)]
pub struct Checks {
    /// Returns everything that prevents serving with the files of `[tls]`, which is on and complete.
    pub tls_files: fn(&Tls) -> Vec<Fault>,
    /// Returns everything that prevents sending notices with the files of `[notice]`, which has the address of a
    /// webhook.
    pub notice_files: fn(&Notice) -> Vec<Fault>,
}

/// A value that names something unusable. `Display` is a sentence for the operator.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {found}; {hint}")]
pub struct Fault {
    /// The key, with its section: `tls.cert_file`.
    pub key: &'static str,
    /// The value, or what was found there.
    pub found: String,
    /// The value expected.
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

    let mut entries: HashMap<(&str, &str), Vec<RawEntry>> = HashMap::new();
    let of_file = file.sections.into_iter().flat_map(|(section, entries)| {
        let entries = entries.into_iter();
        entries.map(move |(key, entry)| (section, key, entry))
    });
    let of_flags = sources.flags.entries();
    for (section, key, entry) in of_file.chain(environment.entries).chain(of_flags) {
        entries.entry((section, key)).or_default().push(entry);
    }
    let mut resolver = Resolver {
        entries,
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
    resolver.cross_checks(&config, &checks);
    let Resolver {
        problems, settings, ..
    } = resolver;
    match problems.is_empty() {
        true => Ok(Resolved { config, settings }),
        false => Err(Problems { problems }),
    }
}

fn read_file(key: &str, place: &str, path: &Path, problems: &mut Vec<Problem>) -> RawFile {
    let name = printable(&path.display().to_string());
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
