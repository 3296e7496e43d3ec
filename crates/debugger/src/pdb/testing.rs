//! What tests of the probe share.

/// Python with values that have a secret inside, and how to find it.
pub const PLANTED: &str = include_str!("planted_values.py");

/// What `program` prints in a Python of its own; `None` where there is none, which is said.
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
