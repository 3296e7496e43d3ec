//! Permissions for comparing paused tasks, and their details.

use super::*;
use ray_relay_ray::ray::testing::{assert_not_dialled, listed};

const PATH: &str = "/relay/v1/compare";

#[tokio::test]
async fn each_task_is_authorised_and_hidden_is_like_unknown() {
    let ann = Person::new("ann", "\"list\", \"terminal\"", "");
    let ben = Person::new("ben", "\"view\"", "jobs = [\"02000000\"]");
    let lea = Person::new("lea", "\"list\"", "");
    let lea_views = Person::new("lea", "\"view\"", "jobs = [\"02000000\"]");
    let relay = Relay::guarded(&[], &[&ann, &ben, &lea, &lea_views]).await;
    let worker = listed(&relay.registry, breakpoint("ab")).await;
    let id = breakpoint("ab").id.to_string();
    let body = format!("{{\"ids\": [\"{id}\", \"zzzzzzzz\", \"{id}\"]}}");
    let (status, why) = refused(&relay, PATH, "ann", &body).await;
    assert_eq!(status, 403);
    assert!(why.contains("`view`"), "{why}");
    let (status, told) = posted(&relay, PATH, "ben", &body).await;
    assert_eq!(status, 200, "{told}");
    assert_eq!(told["members"], serde_json::json!([]));
    let mut unknown = vec![id.clone(), "zzzzzzzz".to_owned()];
    unknown.sort();
    assert_eq!(told["unknown"], serde_json::json!(unknown));
    // Who may list it, and not look at it.
    let (status, told) = posted(&relay, PATH, "lea", &body).await;
    assert_eq!(status, 200, "{told}");
    let [member] = &told["members"].as_array().unwrap()[..] else {
        panic!("{told}");
    };
    assert_eq!(member["breakpoint"]["id"], *id);
    assert!(
        member["error"].as_str().unwrap().contains("`view`"),
        "{member}"
    );
    assert_eq!(told["stacks"], serde_json::json!([]));
    let denied = lines(&relay.heard.take());
    for (subject, count) in [("ann", 1), ("ben", 2), ("lea", 2)] {
        let line = format!("Decision denied {subject} {PATH}");
        let found = denied.iter().filter(|known| **known == line).count();
        assert_eq!(found, count, "{denied:?}");
    }
    assert_not_dialled(worker);
}

#[tokio::test]
async fn unrecorded_comparison_is_refused() {
    let ann = Person::new("ann", "\"view\"", "");
    let relay = Relay::guarded(&[], &[&ann]).await;
    let worker = listed(&relay.registry, breakpoint("ab")).await;
    let body = format!("{{\"ids\": [\"{}\"]}}", breakpoint("ab").id);
    relay.heard.refuse_all(true);
    let (status, told) = posted(&relay, PATH, "ann", &body).await;
    assert_eq!(status, 200);
    let why = told["members"][0]["error"].as_str().unwrap();
    assert!(why.contains("audit log"), "{why}");
    assert_not_dialled(worker);
    let many = serde_json::json!({ "ids": vec!["x"; 1025] }).to_string();
    for body in [
        "",
        "{}",
        "{\"ids\": []}",
        "{\"ids\": [1]}",
        "{\"ids\": [\"x\"], \"all\": true}",
        "{\"ids\": [\"x\"], \"limit\": 0}",
        &many,
    ] {
        assert_eq!(refused(&relay, PATH, "ann", body).await.0, 400, "{body}");
    }
}
