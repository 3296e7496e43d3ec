//! A configuration file that lives as long as a test.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::ffi::OsString;

use super::{Flags, Sources};

pub struct Given {
    _dir: tempfile::TempDir,
    pub sources: Sources,
}

/// Sources with `file` as the configuration file.
pub fn given(file: &str, environment: &[(&str, &str)]) -> Given {
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
