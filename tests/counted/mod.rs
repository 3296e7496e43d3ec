//! Memory, tasks and descriptors of a process, counted.

use std::process::Command;

mod allocations;
mod parks;

/// Names the test that has a process of its own.
const OWN_PROCESS: &str = "RAY_RELAY_TEST_IN_OWN_PROCESS";

/// Runs the test `name` of this binary in a process of its own, and fails with it. True in that process.
fn is_own_process(name: &str) -> bool {
    if std::env::var_os(OWN_PROCESS).is_some() {
        return true;
    }
    let binary = std::env::current_exe().unwrap();
    let mut command = Command::new(binary);
    command.args([name, "--exact", "--nocapture"]);
    let output = command.env(OWN_PROCESS, name).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    println!("{text}");
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{name} failed in its own process"
    );
    false
}
