//! Configuration sources for tests.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::ffi::OsString;

use super::{Flags, Sources};

pub struct TestSources {
    _dir: tempfile::TempDir,
    pub sources: Sources,
}

/// Returns sources with `file` as the configuration file.
pub fn test_sources(file: &str, environment: &[(&str, &str)]) -> TestSources {
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
    TestSources {
        _dir: dir,
        sources: Sources { environment, flags },
    }
}
