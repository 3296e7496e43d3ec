//! Tests the forced end of workers.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use ray_relay_ray::ray::testing::paused;

#[test]
fn job_result_is_the_last_reported_outcome() {
    let result_of = |logs: &str| job_result(logs, "no room").map_err(|reason| reason.to_string());
    assert!(result_of("Running entrypoint …\n\nRAY-RELAY ended\n").is_ok());
    assert!(result_of("RAY-RELAY gone: the process has ended already").is_ok());
    let refused = result_of("RAY-RELAY ended\nRAY-RELAY refused: process 7 is another worker now");
    assert_eq!(
        refused.unwrap_err(),
        "its worker was not ended: refused: process 7 is another worker now"
    );
    assert_eq!(
        result_of("Traceback …").unwrap_err(),
        "its worker was not ended: no room"
    );
    assert_eq!(
        job_result("", "").unwrap_err().to_string(),
        "its worker was not ended: the job said nothing"
    );
}

#[test]
fn invalid_worker_gives_no_kill_command() {
    let valid = paused("square", 1);
    assert!(entrypoint(&valid).is_some());
    let entrypoint_after = |change: fn(&mut Breakpoint)| {
        let mut breakpoint = valid.clone();
        change(&mut breakpoint);
        entrypoint(&breakpoint)
    };
    assert_eq!(entrypoint_after(|b| b.pid = 1), None);
    assert_eq!(entrypoint_after(|b| b.node_id = "ab; reboot".into()), None);
    assert_eq!(entrypoint_after(|b| b.worker_id = "".into()), None);
}

proptest! {
    #[test]
    fn shell_metacharacters_give_no_kill_command(node in ".{0,30}", worker in ".{0,30}") {
        let breakpoint = Breakpoint { node_id: node.into(), worker_id: worker.into(), ..paused("square", 1) };
        if let Some(line) = entrypoint(&breakpoint) {
            let arguments = line.rsplit_once("\" ").unwrap().1;
            prop_assert!(arguments.bytes().all(|b| b.is_ascii_hexdigit() || b == b' '), "{arguments}");
        }
    }
}
