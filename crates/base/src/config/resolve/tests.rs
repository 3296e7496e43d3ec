//! Tests how a configuration is resolved from its sources, and how problems are reported.
#![allow(clippy::unwrap_used)]

mod example;
mod precedence;
mod problems;
mod values;

use super::*;
use crate::config::testing::test_sources;

/// Resolves `sources` with checks that accept every file.
fn resolve(sources: &Sources) -> Result<Resolved, Problems> {
    let checks = Checks {
        tls_files: |_| Vec::new(),
        notice_files: |_| Vec::new(),
    };
    super::resolve(sources, checks)
}

fn config(file: &str, environment: &[(&str, &str)]) -> Config {
    resolve(&test_sources(file, environment).sources)
        .unwrap()
        .config
}

fn problems(file: &str, environment: &[(&str, &str)]) -> Vec<Problem> {
    resolve(&test_sources(file, environment).sources)
        .unwrap_err()
        .problems
}

/// Returns the only problem.
fn problem(file: &str) -> Problem {
    let mut problems = problems(file, &[]);
    assert_eq!(problems.len(), 1, "{problems:#?}");
    problems.remove(0)
}
