//! Verdicts on running jobs, and kept ones on jobs that have ended: who may see them, and that they are on record.

use serde_json::{Value, json as object};

use super::running::{ray_head, waiting_stack};
use super::*;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_ray::ray::testing::running;
use ray_relay_session::hangs::JudgedJob;

async fn verdict(relay: &Relay, subject: &str, body: &str) -> (u16, Value) {
    post(relay, "/relay/v1/why", subject, body).await
}

#[tokio::test]
async fn verdict_needs_view_and_names_no_hidden_task() {
    let (address, _head) = ray_head(waiting_stack).await;
    let ann = User::new("ann", "\"view\"", "jobs = [\"01000000\"]");
    let ben = User::new("ben", "\"list\"", "");
    let relay = Relay::with_users(&[("default", address)], &[&ann, &ben]).await;
    let (status, answer) = verdict(&relay, "ann", "{}").await;
    assert_eq!(
        (status, &answer["verdict"]),
        (200, &"unknown".into()),
        "{answer}"
    );
    let text = answer.to_string();
    assert!(text.contains("square") && !text.contains("step"), "{text}");
    let entries = relay.audit.take();
    let inspections = entries.iter().map(|line| &line.details);
    let inspections = inspections.filter(|details| details.get("command") == Some(&"look".into()));
    let workers: Vec<_> = inspections.map(|details| &details["worker_id"]).collect();
    // No hook says since when it is there: it is inspected twice.
    assert_eq!(workers, ["w1", "w1"]);
    assert_eq!(verdict(&relay, "ben", "{}").await.0, 403);
    for body in [
        "",
        "[]",
        "{\"jbo\": \"x\"}",
        "{\"name\": \"\"}",
        "{\"locals\": false}",
    ] {
        assert_eq!(verdict(&relay, "ann", body).await.0, 400, "{body}");
    }
    assert_eq!(verdict(&relay, "ann", "{\"job\": \"none\"}").await.0, 404);
}

#[tokio::test]
async fn unrecorded_inspection_gives_no_verdict() {
    let (address, _head) = ray_head(|_| panic!("inspected")).await;
    let ann = User::new("ann", "\"view\"", "");
    let relay = Relay::with_users(&[("default", address)], &[&ann]).await;
    relay.audit.refuse_all(true);
    let (_, answer) = verdict(&relay, "ann", "{\"job\": \"01000000\"}").await;
    let text = answer.to_string();
    assert!(
        text.contains("audit log") && !text.contains("a.py"),
        "{text}"
    );
}

/// A job that was seen to hang, of two tasks.
fn hung(job_id: &str) -> JudgedJob {
    let task = |worker: &str, name: &str| {
        let mut task = running(name, worker);
        task.names.submission_id = Some("raysubmit_a".to_owned());
        task
    };
    let verdict = object!({"verdict": "hangs", "confidence": "likely", "summary": "Rank 2 sleeps (likely).", "culprits": [],
        "evidence": [], "waiting": [], "differences": [], "next": ["ray-relay snapshot"]});
    let verdict = serde_json::from_value(verdict).unwrap();
    let tasks = [task("w8", "train"), task("w9", "secret")];
    JudgedJob::new(job_id.to_owned(), &tasks, verdict, Timestamp::now()).unwrap()
}

#[tokio::test]
async fn verdict_on_an_ended_job_is_kept_for_those_who_may_view_all_of_it() {
    let (address, _head) = ray_head(|_| panic!("inspected")).await;
    let ann = User::new("ann", "\"view\", \"list\"", "");
    let ben = User::new("ben", "\"view\", \"list\"", "tasks = [\"train\"]");
    let relay = Relay::with_users(&[("default", address)], &[&ann, &ben]).await;
    relay.ctx.hangs.judged(hung("07000000"));
    let (status, answer) = verdict(&relay, "ann", "{\"job\": \"07000000\"}").await;
    assert_eq!(
        (status, &answer["verdict"]),
        (200, &"hangs".into()),
        "{answer}"
    );
    assert_eq!(
        (&answer["summary"], &answer["next"]),
        (&"Rank 2 sleeps (likely).".into(), &object!([]))
    );
    let id = (&answer["kept"]["job_id"], &answer["kept"]["submission_id"]);
    assert_eq!(id, (&"07000000".into(), &"raysubmit_a".into()));
    assert_eq!(answer["kept"]["ended"], true);
    let kept = |key: &str| answer["kept"][key].as_f64().unwrap();
    assert!(
        kept("first") > 1e9 && kept("first") <= kept("last"),
        "{answer}"
    );
    let entries = relay.audit.take();
    let recorded = |line: &AuditLine| {
        line.details.get("command") == Some(&"why".into()) && line.details["job_id"] == "07000000"
    };
    assert!(entries.iter().any(recorded), "{entries:?}");
    // Of a part of the job, or on another cluster, nothing is kept.
    for body in [
        "{\"job\": \"07000000\", \"name\": \"train\"}",
        "{\"job\": \"07000000\", \"cluster\": \"west\"}",
    ] {
        let (_, answer) = verdict(&relay, "ann", body).await;
        assert!(answer.get("kept").is_none(), "{answer}");
    }
    // To others it is as if there were no such job.
    let (status, answer) = verdict(&relay, "ben", "{\"job\": \"07000000\"}").await;
    assert_eq!(status, 404, "{answer}");
    assert!(!answer.to_string().contains("Rank 2"), "{answer}");
    // Without a record there is no verdict.
    relay.audit.refuse_all(true);
    let (status, answer) = verdict(&relay, "ann", "{\"job\": \"07000000\"}").await;
    assert_eq!(status, 503, "{answer}");
    assert!(!answer.to_string().contains("Rank 2"), "{answer}");
}

#[tokio::test]
async fn kept_verdict_does_not_say_that_a_job_has_ended_while_the_head_is_away() {
    let (address, _head) = head(|_| async { status(503) }).await;
    let ann = User::new("ann", "\"view\", \"list\"", "");
    let relay = Relay::with_users(&[("default", address)], &[&ann]).await;
    relay.ctx.hangs.judged(hung("07000000"));
    let (status, answer) = verdict(&relay, "ann", "{\"job\": \"07000000\"}").await;
    assert_eq!(
        (status, &answer["kept"]["ended"]),
        (200, &false.into()),
        "{answer}"
    );
    assert!(answer["clusters"][0]["trouble"].is_string(), "{answer}");
    let jobs = relay
        .get_as(&token_of("ann"), "/relay/v1/jobs?job=07000000")
        .await;
    assert_eq!(jobs.status().as_u16(), 502);
}
