//! A configuration from its sources: which of them counts, and what is wrong with them.
#![allow(clippy::unwrap_used)]

mod example;
mod precedence;
mod problems;
mod values;

use std::ffi::OsString;

use super::*;

/// With nothing to say about patterns and the files of `[tls]`.
fn resolve(sources: &Sources) -> Result<Resolved, Problems> {
    let checks = Checks {
        pattern: |_| Ok(()),
        tls_files: |_| Vec::new(),
    };
    super::resolve(sources, checks)
}

struct Given {
    _dir: tempfile::TempDir,
    sources: Sources,
}

/// Sources with `file` as the configuration file.
fn given(file: &str, environment: &[(&str, &str)]) -> Given {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("relay.toml");
    std::fs::write(&path, file).unwrap();
    let flags = Flags {
        config: Some(path),
        ..Flags::default()
    };
    let environment = environment
        .iter()
        .map(|(name, value)| (OsString::from(name), OsString::from(value)))
        .collect();
    Given {
        _dir: dir,
        sources: Sources { environment, flags },
    }
}

fn config(file: &str, environment: &[(&str, &str)]) -> Config {
    resolve(&given(file, environment).sources).unwrap().config
}

fn problems(file: &str, environment: &[(&str, &str)]) -> Vec<Problem> {
    resolve(&given(file, environment).sources)
        .unwrap_err()
        .problems
}

/// The only problem.
fn problem(file: &str) -> Problem {
    let mut problems = problems(file, &[]);
    assert_eq!(problems.len(), 1, "{problems:#?}");
    problems.remove(0)
}
