//! Runs the tests of the engine of armed lines, which are Python, in a Python that has `sys.monitoring`.

use std::path::PathBuf;
use std::process::Command;

use crate::hook::tests::monitored_python;

/// The time for one script, which takes 20 s on a busy machine.
const TEST_TIMEOUT_SECONDS: &str = "180";

/// Runs the test `name` of `arm/engine/tests`.
fn run(name: &str) {
    let Some(python) = monitored_python() else {
        eprintln!("not tried: there is no Python 3.12 or newer");
        return;
    };
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/arm/engine/tests");
    let mut command = Command::new("timeout");
    command.arg(TEST_TIMEOUT_SECONDS).arg(python);
    let output = command.arg(folder.join(name)).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
}

#[test]
fn lines_of_code_objects_are_found() {
    run("code_test.py");
}

#[test]
fn engine_arms_and_disarms_lines() {
    run("engine_test.py");
}

#[test]
fn engine_survives_the_process() {
    run("process_test.py");
}

#[test]
fn engine_serves_connections() {
    run("serve_test.py");
}

#[test]
fn hook_arms_lines_on_request() {
    run("hook_test.py");
}
