//! Requirements and location of the demo's Ray installation.

use std::path::PathBuf;

use ray_relay_cluster::venv;

/// Requirements for pip.
pub(super) fn requirements(version: &str) -> Vec<String> {
    let mut requirements = vec![
        format!("ray[default]=={version}"),
        "debugpy>=1.8.1,<2".to_owned(),
    ];
    if venv::major_minor(version) < (2, 50) {
        // Older versions import what newer releases of these two removed.
        requirements.extend(["click<8.2".to_owned(), "setuptools<70".to_owned()]);
    }
    requirements
}

/// Default directory, if `--dir` is absent; `None` without a home.
pub(super) fn directory() -> Option<PathBuf> {
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    Some(cache?.join("ray-relay/demo"))
}
