//! Finds a Python interpreter that runs a given Ray: the first on PATH, or one of pyenv's.
//!
//! Called by [`super::prepare`]. Invariant: every interpreter is queried for its version; names and links say little.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::VenvError;

/// Interpreters to try, in this order.
const PYTHONS: &[&str] = &[
    "python3",
    "python3.11",
    "python3.12",
    "python3.13",
    "python3.14",
    "python3.10",
    "python3.9",
];

/// An interpreter of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Python {
    /// The path of the interpreter.
    pub path: PathBuf,
    /// Major and minor version: `(3, 11)`.
    pub version: (u32, u32),
}

/// Python versions that run Ray `ray`, from the classifiers of its wheels. Newer limits are left to pip, which knows
/// them better.
pub fn supported_pythons(ray: &str) -> std::ops::RangeInclusive<(u32, u32)> {
    match major_minor(ray) {
        (2, minor) if minor <= 9 => (3, 8)..=(3, 11),
        (2, minor) if minor <= 43 => (3, 9)..=(3, 12),
        (2, minor) if minor <= 50 => (3, 9)..=(3, 13),
        _ => (3, 10)..=(3, 14),
    }
}

/// Parses `2.60.0` to `(2, 60)`; an invalid version counts as newest.
pub fn major_minor(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(str::parse);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor),
        _ => (u32::MAX, 0),
    }
}

/// The first interpreter that runs Ray `ray` and has at least the version `least`.
///
/// # Errors
/// [`VenvError::NoPython`], [`VenvError::UnsupportedPython`].
pub async fn find_python(ray: &str, least: (u32, u32)) -> Result<Python, VenvError> {
    let supported = supported_pythons(ray);
    let suitable = least.max(*supported.start())..=*supported.end();
    let mut found = Vec::new();
    let on_path = PYTHONS.iter().map(PathBuf::from);
    for program in on_path.chain(of_pyenv()) {
        let Some(python) = probe_python(&program).await else {
            continue;
        };
        if suitable.contains(&python.version) {
            return Ok(python);
        }
        found.push(format!("Python {}.{}", python.version.0, python.version.1));
    }
    let ((_, low), (_, high)) = (suitable.start(), suitable.end());
    let suitable = format!("Python 3.{low} to 3.{high}");
    if found.is_empty() {
        return Err(VenvError::NoPython { suitable });
    }
    found.dedup();
    Err(VenvError::UnsupportedPython {
        ray: ray.to_owned(),
        found: found.join(", "),
        suitable,
    })
}

/// The interpreters that pyenv has installed, of which its global version alone is on PATH.
fn of_pyenv() -> Vec<PathBuf> {
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let versions = root.and_then(|root| std::fs::read_dir(root.join("versions")).ok());
    let versions = versions.into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = versions
        .map(|version| version.path().join("bin/python3"))
        .collect();
    found.sort_unstable();
    found
}

async fn probe_python(program: &Path) -> Option<Python> {
    let probe = "import sys; print(*sys.version_info[:2], sys.executable)";
    let output = Command::new(program)
        .args(["-c", probe])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(20), output)
        .await
        .ok()?
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut words = text.trim().splitn(3, ' ');
    let version = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let path = PathBuf::from(words.next()?);
    Some(Python { path, version })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_order_by_number() {
        assert_eq!(major_minor("2.9.3"), (2, 9));
        assert_eq!(major_minor("2.60.0"), (2, 60));
        assert!(!supported_pythons("2.9.3").contains(&(3, 12)));
        assert!(supported_pythons("2.60.0").contains(&(3, 12)));
        assert!(supported_pythons("nightly").contains(&(3, 12)));
    }
}
