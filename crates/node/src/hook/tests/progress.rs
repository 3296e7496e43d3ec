//! Tests the record of positions, the locks that threads wait for, and the children, in `progress_test.py`; and the
//! process groups of PyTorch in `collectives_test.py`.

use super::*;

/// The folder of these files.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/hook/tests");

/// Returns what the part `mode` of the test `file` prints, or `None` without Python. The timeout limits a hanging process to its
/// test.
fn result(file: &str, mode: &str) -> Option<Value> {
    let python = Command::new("timeout")
        .args(["100", "python3", &format!("{FOLDER}/{file}"), HOOK, mode])
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
    assert_right_in("progress_test.py", mode, least);
}

fn assert_right_in(file: &str, mode: &str, least: u64) {
    let Some(result) = result(file, mode) else {
        return;
    };
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
fn no_definition_replaces_another() {
    assert_right("same", 3);
}

#[test]
fn process_groups_of_pytorch_are_read_without_its_code() {
    assert_right_in("collectives_test.py", "", 24);
}
