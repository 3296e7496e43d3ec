//! Ending workers through a head whose part the test plays.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use ray_relay_ray::ray::testing::paused;

#[test]
fn job_result_is_the_last_reported_outcome() {
    let of = |logs: &str| job_result(logs, "no room").map_err(|why| why.to_string());
    assert!(of("Running entrypoint …\n\nRAY-RELAY ended\n").is_ok());
    assert!(of("RAY-RELAY gone: the process has ended already").is_ok());
    let refused = of("RAY-RELAY ended\nRAY-RELAY refused: process 7 is another worker now");
    assert_eq!(
        refused.unwrap_err(),
        "its worker was not ended: refused: process 7 is another worker now"
    );
    assert_eq!(
        of("Traceback …").unwrap_err(),
        "its worker was not ended: no room"
    );
    assert_eq!(
        job_result("", "").unwrap_err().to_string(),
        "its worker was not ended: the job said nothing"
    );
}

#[test]
fn invalid_worker_gives_no_kill_command() {
    let good = paused("square", 1);
    assert!(entrypoint(&good).is_some());
    let bad = |change: fn(&mut Breakpoint)| {
        let mut breakpoint = good.clone();
        change(&mut breakpoint);
        entrypoint(&breakpoint)
    };
    assert_eq!(bad(|b| b.pid = 1), None);
    assert_eq!(bad(|b| b.node_id = "ab; reboot".into()), None);
    assert_eq!(bad(|b| b.worker_id = "".into()), None);
}

proptest! {
    #[test]
    fn shell_metacharacters_give_no_kill_command(node in ".{0,30}", worker in ".{0,30}") {
        let breakpoint = Breakpoint { node_id: node.into(), worker_id: worker.into(), ..paused("square", 1) };
        if let Some(line) = entrypoint(&breakpoint) {
            let words = line.rsplit_once("\" ").unwrap().1;
            prop_assert!(words.bytes().all(|b| b.is_ascii_hexdigit() || b == b' '), "{words}");
        }
    }
}
