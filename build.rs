//! What `ray-relay --version` tells beside the version: the target, and in an optimised build the commit and its day.
//!
//! An unoptimised build does not tell the commit, because the crate would be compiled anew after each one. It is git's
//! answer; where the tree stands without git (in the image's builder), SOURCE_COMMIT and SOURCE_DATE say it.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = env::var("TARGET").unwrap_or_default();
    let mut told = vec![target];
    if env::var("OPT_LEVEL").is_ok_and(|level| level != "0") {
        for name in ["SOURCE_COMMIT", "SOURCE_DATE"] {
            println!("cargo::rerun-if-env-changed={name}");
        }
        for path in ["Cargo.toml", "Cargo.lock", "src", "crates"] {
            println!("cargo::rerun-if-changed={path}");
        }
        // Which commit is checked out is written here whenever it changes.
        if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
            println!("cargo::rerun-if-changed={log}");
        }
        let day = said("SOURCE_DATE")
            .or_else(|| git(&["show", "--no-patch", "--date=short-local", "--format=%cd"]));
        let commit = said("SOURCE_COMMIT").or_else(|| {
            git(&[
                "describe",
                "--always",
                "--dirty",
                "--abbrev=12",
                "--exclude=*",
            ])
        });
        told.splice(0..0, commit.into_iter().chain(day));
    }
    // Cargo sets this for what it runs too (`cargo run -- serve`), where RAY_RELAY_ begins a key of the configuration.
    println!("cargo::rustc-env=BUILD_DESCRIPTION={}", told.join(", "));
}

fn said(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// What git prints, in UTC; `None` where there is no git, or the tree is not its own repository's.
fn git(arguments: &[&str]) -> Option<String> {
    // A package that is unpacked inside somebody else's repository has nothing to do with its commits.
    if !std::path::Path::new(".git").exists() {
        return None;
    }
    let output = Command::new("git")
        .args(arguments)
        .env("TZ", "UTC")
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
