//! Tests which jobs a name stands for, and how a job ended, as a fake head reports it.
#![allow(clippy::unwrap_used)]

use serde_json::json;

use crate::ray::registry::tests::fake_head::*;
use crate::ray::registry::{JobsCalled, Names};

#[tokio::test(start_paused = true)]
async fn job_end_is_awaited_and_reported() {
    let head = FakeHead::start().await;
    head.with(|w| {
        w.jobs = vec![
            json!({"job_id": "01000000", "submission_id": "raysubmit_a", "status": "FAILED"}),
            json!({"job_id": "02000000", "submission_id": null, "status": "SUCCEEDED"}),
            json!({"job_id": "03000000", "submission_id": "raysubmit_c", "status": "RUNNING"}),
            json!({"job_id": null, "submission_id": "raysubmit_d", "status": "PENDING"}),
        ];
    });
    let (registry, _guard) = watch(&head, &settings());
    for (job, expected) in [
        (
            "01000000",
            Some("raysubmit_a (job 01000000) has ended: FAILED"),
        ),
        ("02000000", Some("job 02000000 has ended")),
        ("03000000", None),
        ("04000000", None),
    ] {
        let end = registry.job_end("default", job).await;
        assert_eq!(end.as_deref(), expected, "{job}");
    }
    assert_eq!(registry.job_end("other", "01000000").await, None);
    let (job_end, job_ends) = tokio::join!(registry.job_end("default", "03000000"), async {
        tokio::time::sleep(3 * SECOND).await;
        head.with(|w| w.jobs[2]["status"] = "SUCCEEDED".into());
    });
    let () = job_ends;
    assert_eq!(
        job_end.as_deref(),
        Some("raysubmit_c (job 03000000) has ended: SUCCEEDED")
    );
}

fn jobs_of(found: &JobsCalled) -> Vec<(String, bool)> {
    let jobs = found.jobs.iter().map(|one| &one.job);
    jobs.map(|job| (job.name().to_owned(), job.ended)).collect()
}

#[tokio::test]
async fn name_of_a_job_is_any_of_its_ids_or_its_train_run() {
    let head = FakeHead::start().await;
    head.with(|w| {
        w.jobs = vec![
            json!({"job_id": "01000000", "submission_id": "raysubmit_a", "status": "FAILED"}),
            json!({"job_id": "02000000", "submission_id": null, "status": "RUNNING"}),
            json!({"job_id": null, "submission_id": "raysubmit_d", "status": "PENDING"}),
        ];
    });
    let (registry, _guard) = watch(&head, &settings());
    let called = async |name: &str| {
        let found = registry.jobs_with_id(name, |_| true).await;
        assert_eq!(found.trouble, None);
        jobs_of(&found)
    };
    let run = async |name: &str| {
        let found = registry.jobs_of_run(name, |_| true).await;
        assert_eq!(found.trouble, None);
        jobs_of(&found)
    };
    let job = |name: &str, ended| vec![(name.to_owned(), ended)];
    for name in ["01000000", "raysubmit_a"] {
        assert_eq!(called(name).await, job("raysubmit_a", true));
    }
    assert_eq!(called("02000000").await, job("02000000", false));
    assert_eq!(called("raysubmit_d").await, job("raysubmit_d", false));
    assert!(head.requests("/api/train").is_empty());
    // The head has no runs.
    assert_eq!(run("nightly").await, []);
    head.with(|w| {
        let run = |name: &str, job: &str| json!({"name": name, "job_id": job, "attempts": []});
        // A run of a driver that has no job yet is of no pending job.
        w.train_runs = vec![
            run("nightly", "02000000"),
            run("other", "01000000"),
            run("nightly", ""),
        ];
    });
    assert_eq!(run("nightly").await, job("02000000", false));
    assert_eq!(called("nightly").await, []);
    assert_eq!(run("night").await, []);
    assert_eq!(run("02000000").await, []);
    let elsewhere = registry
        .jobs_with_id("02000000", |cluster| cluster == "other")
        .await;
    assert!(elsewhere.jobs.is_empty());
    head.with(|w| w.broken = Some((500, "the GCS is away")));
    for unclear in [
        registry.jobs_with_id("02000000", |_| true).await,
        registry.jobs_of_run("nightly", |_| true).await,
    ] {
        assert!(unclear.jobs.is_empty());
        assert!(unclear.trouble.unwrap().contains("the GCS is away"));
    }
}

/// The head forgets jobs, and may be away.
#[tokio::test(start_paused = true)]
async fn job_of_a_listed_task_is_known_without_the_head() {
    let head = FakeHead::start().await;
    head.with(|w| {
        w.workers.push(worker("w1", 1));
        let mut square = task("w1", "square");
        square["job_id"] = "05000000".into();
        w.tasks.push(square);
        w.jobs = vec![
            json!({"job_id": "05000000", "submission_id": "raysubmit_1", "status": "RUNNING"}),
        ];
    });
    let (registry, _guard) = watch(&head, &settings());
    wait_for_list(&registry, |s| {
        s.live.iter().any(|b| b.names.submission_id.is_some())
    })
    .await;
    head.with(|w| w.broken = Some((500, "the GCS is away")));
    for name in ["05000000", "raysubmit_1"] {
        let found = registry.jobs_with_id(name, |_| true).await;
        let ids = found.jobs.iter().map(|one| one.job.job_id.as_deref());
        assert_eq!(ids.collect::<Vec<_>>(), [Some("05000000")], "{name}");
    }
}

#[test]
fn run_named_like_another_jobs_id_is_not_taken_for_it() {
    let names = |job_id: &str, submission_id: &str, train_run: &str| Names {
        job_id: Some(job_id.to_owned()),
        submission_id: Some(submission_id.to_owned()),
        train_run: Some(train_run.to_owned()),
        ..Names::default()
    };
    let own = names("01000000", "raysubmit_own", "nightly");
    for name in ["01000000", "raysubmit_own", "nightly"] {
        assert!(own.is_of_job(name), "{name}");
    }
    let by_submission = names("02000000", "01000000", "01000000");
    assert!(!by_submission.is_of_job("01000000"));
    assert!(!names("03000000", "mine", "raysubmit_own").is_of_job("raysubmit_own"));
    assert!(names("03000000", "mine", "nightly").is_of_job("mine"));
}
