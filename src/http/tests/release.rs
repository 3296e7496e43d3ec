//! Who may have tasks let go, and what comes of it.

use super::*;
use crate::dap::testing::listening;
use serde_json::{Value, json};
use tokio::net::TcpListener;

async fn ask(relay: &Relay, token: &str, body: &str) -> (u16, Value) {
    let request = relay
        .request("POST", "/relay/v1/release")
        .header("authorization", format!("Bearer {token}"));
    let request = request.body(answer::full(body.to_owned())).unwrap();
    let response = relay.client().await.send(request).await;
    let status = response.status().as_u16();
    (status, json(response).await)
}

/// A worker whose debugger nobody is to hear of.
async fn worker(relay: &Relay) -> (TcpListener, String) {
    let (listener, worker) = listening(breakpoint("ab")).await;
    let id = worker.id.to_string();
    relay.registry.insert(worker);
    (listener, id)
}

fn unheard(listener: TcpListener) {
    let heard = listener.into_std().unwrap().accept();
    assert!(heard.is_err(), "the worker was dialled");
}

#[tokio::test]
async fn only_who_may_debug_it_or_runs_the_relay_has_a_task_let_go() {
    let people = [
        Person::new("ann", "\"list\", \"view\"", ""),
        Person::new("ben", "\"debug\"", "jobs = [\"02000000\"]"),
        Person::new("eve", "\"dashboard:write\"", ""),
    ];
    let relay = Relay::guarded(&[], &people.iter().collect::<Vec<_>>()).await;
    let (listener, id) = worker(&relay).await;
    let body = json!({"ids": [id, "zzzzzzzz"]}).to_string();
    assert_eq!(ask(&relay, "token-of-nobody", &body).await.0, 401);
    for token in ["token-of-ann", "token-of-eve"] {
        assert_eq!(ask(&relay, token, &body).await.0, 403, "{token}");
    }
    let (status, answer) = ask(&relay, "token-of-ben", &body).await;
    let rows = answer["results"].as_array().unwrap();
    assert_eq!((status, rows.len()), (200, 2));
    // What is another's is answered like what does not exist.
    assert_eq!(rows[0]["error"], rows[1]["error"]);
    assert_eq!(rows[0]["released"], false);
    assert!(relay.registry.snapshot().live[0].is_paused());
    unheard(listener);
}

#[tokio::test]
async fn a_release_is_on_record_before_it_is_made_or_it_is_not_made() {
    let kim = Person::new("kim", "\"list\", \"terminal\"", "");
    let relay = Relay::guarded(&[], &[&kim]).await;
    let (listener, id) = worker(&relay).await;
    let body = json!({ "ids": [id] }).to_string();
    relay.ctx.heard.is_deaf.store(true, Ordering::SeqCst);
    let (_, answer) = ask(&relay, "token-of-kim", &body).await;
    let why = answer["results"][0]["error"].as_str().unwrap();
    assert!(why.contains("audit log"), "{why}");
    unheard(listener);
}

#[tokio::test]
async fn a_body_that_is_none_and_other_methods_are_refused() {
    let relay = Relay::start(&[], |_| {}).await;
    for body in [
        "",
        "{}",
        "[]",
        "{\"ids\": \"all\"}",
        "{\"ids\": [], \"all\": true}",
    ] {
        assert_eq!(ask(&relay, "x", body).await.0, 400, "{body}");
    }
    let many = json!({ "ids": vec!["0"; 1001] }).to_string();
    assert_eq!(ask(&relay, "x", &many).await.0, 400);
    let response = relay.get("/relay/v1/release").await;
    assert_eq!(response.status(), 405);
}
