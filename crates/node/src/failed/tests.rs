//! Tests the stored failures, and their share for each process.

use proptest::prelude::*;

use super::*;

fn task(id: u8, job: u8) -> FailedTask {
    FailedTask {
        id: ray_relay_base::wire::tunnel::text::Hex([id; 5]),
        node_id: "aaaa".into(),
        worker_id: "beef".into(),
        task_id: format!("00{id:02x}{job:02x}000000").as_str().into(),
        pid: 1,
        ago_ms: 0,
        exception: "KeyError".into(),
        file: "a.py".into(),
        line: 3,
        function: "f".into(),
    }
}

fn settings(max_tasks: u32, bytes: u64) -> PostMortem {
    PostMortem {
        most: max_tasks,
        bytes,
        keep_ms: 60_000,
    }
}

fn ids(boxes: &BlackBoxes) -> Vec<u8> {
    let report = boxes.report().unwrap();
    report.tasks.iter().map(|task| task.id.0[0]).collect()
}

#[test]
fn failures_are_kept_only_while_a_relay_requests_them() {
    let boxes = BlackBoxes::new();
    boxes.put(task(1, 1), vec![0]);
    assert!(boxes.report().is_none() && !boxes.are_enabled());
    boxes.configure(settings(2, 100), &[]);
    boxes.put(task(2, 1), vec![0]);
    assert_eq!(ids(&boxes), [2]);
    let id = task(2, 1).id;
    assert!(boxes.snapshot(id, &"beef".into()).is_some());
    assert!(boxes.snapshot(id, &"dead".into()).is_none());
    boxes.configure(settings(0, 100), &[]);
    assert!(ids(&boxes).is_empty() && !boxes.are_enabled());
}

/// Returns a task of the worker whose process is `pid`.
fn task_of_worker(id: u8, job: u8, pid: u32) -> FailedTask {
    FailedTask {
        pid,
        worker_id: format!("beef{pid}").as_str().into(),
        ..task(id, job)
    }
}

#[test]
fn repeatedly_failing_job_evicts_only_its_own_tasks() {
    let boxes = BlackBoxes::new();
    boxes.configure(settings(3, 1000), &[]);
    boxes.put(task_of_worker(1, 1, 7), vec![0]);
    boxes.attribute(&task_of_worker(1, 1, 7), Some("01000000"));
    for id in 2..20 {
        boxes.put(task_of_worker(id, 2, 8), vec![0]);
        boxes.attribute(&task_of_worker(id, 2, 8), Some("02000000"));
    }
    assert_eq!(ids(&boxes), [1, 18, 19]);
}

#[test]
fn worker_claiming_many_jobs_evicts_its_own_tasks() {
    let boxes = BlackBoxes::new();
    boxes.configure(settings(4, 1000), &[]);
    boxes.put(task_of_worker(1, 1, 7), vec![0]);
    boxes.put(task_of_worker(2, 1, 7), vec![0]);
    boxes.attribute(&task_of_worker(1, 1, 7), Some("01000000"));
    for id in 3..20 {
        boxes.put(task_of_worker(id, id, 8), vec![0]);
    }
    assert_eq!(ids(&boxes), [1, 2, 18, 19]);
    // Ray has listed neither process yet: the one with the most entries loses its oldest.
    boxes.put(task_of_worker(20, 1, 9), vec![0]);
    for id in 21..30 {
        boxes.put(task_of_worker(id, id, 8), vec![0]);
    }
    assert_eq!(ids(&boxes), [1, 2, 20, 29]);
}

#[test]
fn job_of_each_worker_is_requested_until_ray_knows_it() {
    let boxes = BlackBoxes::new();
    boxes.configure(settings(9, 1000), &[]);
    for (id, pid) in [(1, 7), (2, 7), (3, 8)] {
        boxes.put(task_of_worker(id, 1, pid), vec![0]);
    }
    let unattributed = || -> Vec<u8> {
        boxes
            .unattributed()
            .iter()
            .map(|task| task.id.0[0])
            .collect()
    };
    assert_eq!(unattributed(), [3, 2]);
    boxes.attribute(&task_of_worker(2, 1, 7), Some("01000000"));
    boxes.put(task_of_worker(4, 1, 7), vec![0]);
    for _ in 0..MAX_JOB_REQUESTS {
        assert_eq!(unattributed(), [3]);
        boxes.attribute(&task_of_worker(3, 1, 8), None);
    }
    assert!(unattributed().is_empty());
}

#[tokio::test(start_paused = true)]
async fn old_failures_expire() {
    let boxes = BlackBoxes::new();
    boxes.configure(settings(3, 1000), &[]);
    boxes.put(task(1, 1), vec![0]);
    tokio::time::advance(Duration::from_secs(40)).await;
    boxes.put(task(2, 1), vec![0]);
    assert_eq!(boxes.report().unwrap().tasks[0].ago_ms, 40_000);
    tokio::time::advance(Duration::from_secs(40)).await;
    boxes.forget();
    assert_eq!(ids(&boxes), [2]);
}

/// The largest possible number of rows, each of the largest size, fits into one message.
#[test]
fn largest_failure_report_fits_one_message() {
    use ray_relay_base::wire::tunnel::messages::{FromAgent, MAX_MESSAGE_BYTES, written};
    let longest_text = "\"".repeat(300);
    let row = FailedTask {
        node_id: longest_text[..64].into(),
        worker_id: longest_text[..64].into(),
        task_id: longest_text[..64].into(),
        pid: u32::MAX,
        ago_ms: u64::MAX,
        exception: longest_text.as_str().into(),
        file: longest_text.as_str().into(),
        function: longest_text.as_str().into(),
        line: u32::MAX,
        ..task(1, 1)
    };
    let tasks = vec![row; MAX_AGENT_FAILURES];
    let problem = Some(Sentence::new(&"x".repeat(1000)));
    let text = written(&FromAgent::Failed(Failures {
        tasks,
        trouble: problem,
    }));
    assert!(text.len() < MAX_MESSAGE_BYTES, "{}", text.len());
}

proptest! {
    #[test]
    fn kept_failures_stay_within_the_requested_bounds(most in 1u32..6, bytes in 1u64..40, put in proptest::collection::vec((0u8..4, 1usize..20), 0..40)) {
        let boxes = BlackBoxes::new();
        boxes.configure(settings(most, bytes), &[]);
        for (index, (job, size)) in put.iter().enumerate() {
            let before = ids(&boxes);
            boxes.put(task(index as u8, *job), vec![0; *size]);
            let stored = boxes.boxes.lock();
            prop_assert!(stored.entries.len() <= most as usize);
            prop_assert!(stored.entries.iter().map(|one| one.snapshot.len() as u64).sum::<u64>() <= bytes);
            drop(stored);
            // No removed entry comes back, and the order stays.
            let after = ids(&boxes);
            prop_assert!(after.iter().all(|id| before.contains(id) || *id == index as u8));
            prop_assert!(after.windows(2).all(|two| two[0] < two[1]));
        }
    }
}
