//! Helpers for the tests of the probe.

/// Python values that contain a secret, and a search for it.
pub const PLANTED: &str = include_str!("planted_values.py");

/// Runs `program` in a Python process, and returns its output, or `None` with a message if Python is missing.
#[allow(clippy::print_stderr)]
pub fn printed(program: &str) -> Option<Vec<u8>> {
    // The timeout limits a hanging process to its test.
    let python = std::process::Command::new("timeout")
        .args(["120", "python3", "-c", program])
        .output();
    let Ok(python) = python else {
        eprintln!("not tried in a process: there is no python3");
        return None;
    };
    Some(python.stdout)
}
