//! The objects that running tasks wait for: who may know their tasks and owners, and when Ray is asked.

use serde_json::json as object;

use super::running::{inspect, ray_head, waiting_stack};
use super::*;
use crate::http::running::objects::{self, AwaitedObjects};
use ray_relay_ray::ray::look::Look;
use ray_relay_ray::ray::registry::RunningQuery;

/// A snapshot of a worker whose `ray.get` waits for objects of these digits.
fn look_waiting_for(digits: &str) -> Look {
    let refs: Vec<_> = digits
        .chars()
        .map(|digit| format!("ObjectRef({})", digit.to_string().repeat(56)))
        .collect();
    let refs = object!([{"name": "object_refs", "value": format!("[{}]", refs.join(", "))}]);
    let frame = object!({"file": "/v/ray/_private/worker.py", "line": 1, "function": "get", "locals": refs});
    let look = object!({"pid": 1, "source": "hook", "threads": [{"id": 1, "frames": [frame]}]});
    Look::read(look.to_string().as_bytes()).unwrap()
}

#[tokio::test]
async fn owner_of_an_awaited_object_is_shown_only_if_visible() {
    let (address, _head) = ray_head(waiting_stack).await;
    let ann = User::new("ann", "\"view\"", "");
    let ben = User::new("ben", "\"view\"", "jobs = [\"01000000\"]");
    let relay = Relay::with_users(&[("default", address)], &[&ann, &ben]).await;
    let all_clusters = |_: &str| true;
    let query = RunningQuery {
        on: &all_clusters,
        job: None,
    };
    let running = relay.registry.running(&query).await;
    let (first, second) = (
        AwaitedObjects::of(&look_waiting_for("ab")),
        AwaitedObjects::of(&look_waiting_for("bcde")),
    );
    let awaited = [("default", &first), ("default", &second)];
    let objects_for = async |user: &str| {
        let principal = principal(&relay.ctx.auth, user).await;
        objects::query(&relay.ctx, &principal, &running, &awaited).await
    };
    let objects_of_ann = objects_for("ann").await;
    let [first_object, second_object] = &objects_of_ann[0][..] else {
        panic!("{objects_of_ann:?}");
    };
    assert_eq!(
        (
            &first_object["task"]["name"],
            &first_object["task"]["state"]
        ),
        (&"load".into(), &"PENDING_NODE_ASSIGNMENT".into())
    );
    assert_eq!(
        (
            &first_object["owner"]["name"],
            &first_object["owner"]["pid"]
        ),
        (&"square".into(), &501.into())
    );
    assert_eq!(
        (&second_object["owner"]["name"], &second_object["state"]),
        (&"Trainer.step".into(), &"SUBMITTED_TO_WORKER".into())
    );
    let unknown_reasons: Vec<_> = objects_of_ann[1]
        .iter()
        .map(|object| object["unknown"].as_str().unwrap_or_default())
        .collect();
    assert!(
        unknown_reasons[0].is_empty()
            && unknown_reasons[1].contains("nothing that makes or owns it"),
        "{unknown_reasons:?}"
    );
    // Ray is queried for at most four objects.
    assert!(
        unknown_reasons[3].contains("look at fewer"),
        "{unknown_reasons:?}"
    );

    let objects_of_ben = objects_for("ben").await;
    assert_eq!(objects_of_ben[0][0], *first_object);
    let text = object!(objects_of_ben[0][1]).to_string();
    assert!(text.contains("of what you may see"), "{text}");
    for hidden in ["hidden_load", "Trainer", "SUBMITTED"] {
        assert!(!text.contains(hidden), "{text}");
    }
}

#[tokio::test]
async fn objects_are_queried_only_if_requested_and_known() {
    let stack = |_: &str| {
        ok(
            "Process 501: ray::square\nPython v3.11.7 (/p)\n\nThread 501 (idle): \"MainThread\"\n    get (ray/_private/worker.py:3)\n    square (a.py:3)\n",
        )
    };
    let (address, _head) = ray_head(stack).await;
    let ann = User::new("ann", "\"view\"", "");
    let relay = Relay::with_users(&[("default", address)], &[&ann]).await;
    let (_, answer) = inspect(&relay, "ann", "{\"name\": \"square\"}").await;
    assert!(answer["looks"][0].get("waits_for").is_none(), "{answer}");
    let (_, answer) = inspect(&relay, "ann", "{\"name\": \"square\", \"objects\": true}").await;
    let error = answer["looks"][0]["waits_for"][0]["unknown"]
        .as_str()
        .unwrap();
    assert!(error.contains("only the hook"), "{answer}");
}
