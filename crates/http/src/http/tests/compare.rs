//! Permissions for comparing paused tasks, and their details.

use super::*;
use ray_relay_ray::ray::testing::{assert_not_dialled, listed};

const PATH: &str = "/relay/v1/compare";

#[tokio::test]
async fn each_task_is_authorised_and_hidden_is_like_unknown() {
    let ann = User::new("ann", "\"list\", \"terminal\"", "");
    let ben = User::new("ben", "\"view\"", "jobs = [\"02000000\"]");
    let lea = User::new("lea", "\"list\"", "");
    let lea_views = User::new("lea", "\"view\"", "jobs = [\"02000000\"]");
    let relay = Relay::with_users(&[], &[&ann, &ben, &lea, &lea_views]).await;
    let worker = listed(&relay.registry, breakpoint("ab")).await;
    let id = breakpoint("ab").id.to_string();
    let body = format!("{{\"ids\": [\"{id}\", \"zzzzzzzz\", \"{id}\"]}}");
    let (status, error) = post_error(&relay, PATH, "ann", &body).await;
    assert_eq!(status, 403);
    assert!(error.contains("`view`"), "{error}");
    let (status, answer) = post(&relay, PATH, "ben", &body).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["members"], serde_json::json!([]));
    let mut ids = vec![id.clone(), "zzzzzzzz".to_owned()];
    ids.sort();
    assert_eq!(answer["unknown"], serde_json::json!(ids));
    // A user who may list the task, but not view it.
    let (status, answer) = post(&relay, PATH, "lea", &body).await;
    assert_eq!(status, 200, "{answer}");
    let [member] = &answer["members"].as_array().unwrap()[..] else {
        panic!("{answer}");
    };
    assert_eq!(member["breakpoint"]["id"], *id);
    assert!(
        member["error"].as_str().unwrap().contains("`view`"),
        "{member}"
    );
    assert_eq!(answer["stacks"], serde_json::json!([]));
    let denied = lines(&relay.audit.take());
    for (subject, count) in [("ann", 1), ("ben", 2), ("lea", 2)] {
        let line = format!("Decision denied {subject} {PATH}");
        let matches = denied.iter().filter(|known| **known == line).count();
        assert_eq!(matches, count, "{denied:?}");
    }
    assert_not_dialled(worker);
}

#[tokio::test]
async fn unrecorded_comparison_is_refused() {
    let ann = User::new("ann", "\"view\"", "");
    let relay = Relay::with_users(&[], &[&ann]).await;
    let worker = listed(&relay.registry, breakpoint("ab")).await;
    let body = format!("{{\"ids\": [\"{}\"]}}", breakpoint("ab").id);
    relay.audit.refuse_all(true);
    let (status, answer) = post(&relay, PATH, "ann", &body).await;
    assert_eq!(status, 200);
    let error = answer["members"][0]["error"].as_str().unwrap();
    assert!(error.contains("audit log"), "{error}");
    assert_not_dialled(worker);
    let body = serde_json::json!({ "ids": vec!["x"; 1025] }).to_string();
    for body in [
        "",
        "{}",
        "{\"ids\": []}",
        "{\"ids\": [1]}",
        "{\"ids\": [\"x\"], \"all\": true}",
        "{\"ids\": [\"x\"], \"limit\": 0}",
        &body,
    ] {
        assert_eq!(post_error(&relay, PATH, "ann", body).await.0, 400, "{body}");
    }
}
