//! Permissions for snapshots of a paused task; no other user reaches its debugger.

use super::*;
use ray_relay_ray::ray::testing::{assert_not_dialled, listed};

async fn ask(relay: &Relay, subject: &str, body: &str) -> (u16, String) {
    post_error(relay, "/relay/v1/snapshot", subject, body).await
}

#[tokio::test]
async fn unauthorised_snapshot_never_reaches_the_worker() {
    let ann = User::new("ann", "\"list\", \"terminal\", \"admin\"", "");
    let ben = User::new("ben", "\"view\"", "jobs = [\"02000000\"]");
    let relay = Relay::with_users(&[], &[&ann, &ben]).await;
    let worker = listed(&relay.registry, breakpoint("ab")).await;
    let id = breakpoint("ab").id;
    let body = format!("{{\"id\": \"{id}\"}}");
    let request = relay.request("POST", "/relay/v1/snapshot");
    let request = request.body(answer::full(body.clone())).unwrap();
    assert_eq!(relay.client().await.send(request).await.status(), 401);
    let (status, error) = ask(&relay, "ann", &body).await;
    assert_eq!(status, 403);
    assert!(error.contains("`view`"), "{error}");
    // A breakpoint of another job gets the same answer as an unknown one.
    let hidden = ask(&relay, "ben", &body).await;
    assert_eq!(hidden, ask(&relay, "ben", "{\"id\": \"zzzzzzzz\"}").await);
    assert_eq!(hidden.0, 404);
    let denied = lines(&relay.audit.take());
    let ben = "Decision denied ben /relay/v1/snapshot".to_owned();
    assert_eq!(
        denied.iter().filter(|line| **line == ben).count(),
        2,
        "{denied:?}"
    );
    assert_not_dialled(worker);
}

#[tokio::test]
async fn unrecorded_snapshot_is_refused() {
    let ann = User::new("ann", "\"view\"", "");
    let relay = Relay::with_users(&[], &[&ann]).await;
    let worker = listed(&relay.registry, breakpoint("ab")).await;
    let body = format!("{{\"id\": \"{}\"}}", breakpoint("ab").id);
    relay.audit.refuse_all(true);
    let (status, error) = ask(&relay, "ann", &body).await;
    assert_eq!(status, 503);
    assert!(error.contains("audit log"), "{error}");
    assert!(relay.registry.snapshot().live[0].is_paused());
    assert_not_dialled(worker);
    for body in [
        "",
        "{}",
        "{\"id\": 1}",
        "{\"id\": \"x\", \"all\": true}",
        "{\"id\": \"x\", \"limit\": 0}",
        "{\"id\": \"x\", \"limit\": 100001}",
    ] {
        assert_eq!(ask(&relay, "ann", body).await.0, 400, "{body}");
    }
    let response = relay.get_as(&token_of("ann"), "/relay/v1/snapshot").await;
    assert_eq!(response.status(), 405);
}
