//! Tests the end of a job as a fake head reports it.
#![allow(clippy::unwrap_used)]

use serde_json::json;

use crate::ray::registry::tests::fake_head::*;

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
