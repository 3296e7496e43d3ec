//! Tests the record of positions, the locks that threads wait for, and the children, in `progress_test.py`.

use super::*;

const TEST: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/src/hook/tests/progress_test.py"
);

/// Returns what the part `mode` of the test prints, or `None` without Python. The timeout limits a hanging process to its
/// test.
fn result(mode: &str) -> Option<Value> {
    let python = Command::new("timeout")
        .args(["100", "python3", TEST, HOOK, mode])
        .env_remove("RAY_RELAY_HOOK")
        .output();
    let Ok(python) = python else {
        eprintln!("not tried in a process: there is no python3");
        return None;
    };
    let stderr = String::from_utf8_lossy(&python.stderr);
    let result = serde_json::from_slice(&python.stdout);
    Some(result.unwrap_or_else(|why| panic!("{why}: {stderr}")))
}

fn assert_right(mode: &str, least: u64) {
    let Some(result) = result(mode) else { return };
    assert_eq!(result["failed"], json!([]), "{mode}: {result}");
    assert_eq!(result["called"], json!([]), "{mode}: {result}");
    assert!(result["tried"].as_u64().unwrap() >= least, "{result}");
}

#[test]
fn history_locks_and_children_of_planted_threads_are_right() {
    assert_right("", 300);
}

#[test]
fn hundreds_of_changing_threads_are_bounded() {
    assert_right("many", 10);
}

#[test]
fn record_of_positions_is_small() {
    assert_right("size", 2);
}

#[test]
fn words_in_the_environment_restrict_the_hook() {
    for mode in ["no-ring", "off", "look,no-ring", "look", "no-rings"] {
        assert_right(mode, 1);
    }
}

#[test]
fn forked_child_records_nothing() {
    assert_right("fork", 2);
}

#[test]
fn both_definitions_of_program_code_are_equal() {
    assert_right("same", 1);
}
