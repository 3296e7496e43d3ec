//! Permissions for parking a task; no other user reaches its debugger.

use super::*;
use ray_relay_ray::ray::testing::{assert_not_dialled, listed};

async fn ask(relay: &Relay, subject: &str, body: &str) -> (u16, String) {
    refused(relay, "/relay/v1/park", subject, body).await
}

#[tokio::test]
async fn unauthorised_park_never_reaches_the_worker() {
    let ann = Person::new("ann", "\"list\", \"terminal\", \"admin\"", "");
    let ben = Person::new("ben", "\"view\"", "jobs = [\"02000000\"]");
    let relay = Relay::guarded(&[], &[&ann, &ben]).await;
    let worker = listed(&relay.registry, breakpoint("ab")).await;
    let body = format!("{{\"id\": \"{}\", \"for\": \"1h\"}}", breakpoint("ab").id);
    let nobody = relay.request("POST", "/relay/v1/park");
    let nobody = nobody.body(answer::full(body.clone())).unwrap();
    assert_eq!(relay.client().await.send(nobody).await.status(), 401);
    let (status, why) = ask(&relay, "ann", &body).await;
    assert_eq!(status, 403);
    assert!(why.contains("`view`"), "{why}");
    // What is another's is answered like what does not exist.
    let hidden = ask(&relay, "ben", &body).await;
    assert_eq!(hidden, ask(&relay, "ben", "{\"id\": \"zzzzzzzz\"}").await);
    assert_eq!(hidden.0, 404);
    let denied = lines(&relay.heard.take());
    let ben = "Decision denied ben /relay/v1/park".to_owned();
    assert_eq!(
        denied.iter().filter(|line| **line == ben).count(),
        2,
        "{denied:?}"
    );
    for body in [
        "",
        "{}",
        "{\"id\": \"x\", \"for\": 3600}",
        "{\"id\": \"x\", \"for\": \"0s\"}",
    ] {
        assert_eq!(ask(&relay, "ben", body).await.0, 400, "{body}");
    }
    let response = relay.get_as(&token_of("ben"), "/relay/v1/park").await;
    assert_eq!(response.status(), 405);
    assert_not_dialled(worker);
}
