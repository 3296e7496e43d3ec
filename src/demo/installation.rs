//! What the demo installs, and where.

use std::path::PathBuf;

use ray_relay_cluster::venv;

/// What pip is to install.
pub(super) fn requirements(version: &str) -> Vec<String> {
    let mut requirements = vec![
        format!("ray[default]=={version}"),
        "debugpy>=1.8.1,<2".to_owned(),
    ];
    if venv::major_minor(version) < (2, 50) {
        // Older ones import what newer releases of these two removed.
        requirements.extend(["click<8.2".to_owned(), "setuptools<70".to_owned()]);
    }
    requirements
}

/// Where all of it goes unless `--dir` says otherwise; `None` without a home.
pub(super) fn directory() -> Option<PathBuf> {
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    Some(cache?.join("ray-relay/demo"))
}
