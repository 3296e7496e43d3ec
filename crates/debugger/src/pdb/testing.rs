//! Shared by the tests of the probe.

/// Python with values that have a secret inside, and how to find it.
pub const PLANTED: &str = include_str!("planted_values.py");

/// Runs `program` in a Python process and returns its output; `None`: there is no Python, which is reported.
#[allow(clippy::print_stderr)]
pub fn printed(program: &str) -> Option<Vec<u8>> {
    // One that hangs fails its test, and holds up no other.
    let python = std::process::Command::new("timeout")
        .args(["120", "python3", "-c", program])
        .output();
    let Ok(python) = python else {
        eprintln!("not tried in a process: there is no python3");
        return None;
    };
    Some(python.stdout)
}
