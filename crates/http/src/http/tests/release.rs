//! Permissions for releasing tasks, and the results.

use super::*;
use ray_relay_ray::ray::testing::listening;
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

/// Lists a worker whose debugger must not be dialled.
async fn worker(relay: &Relay) -> (TcpListener, String) {
    let (listener, worker) = listening(breakpoint("ab")).await;
    let id = worker.id.to_string();
    relay.registry.insert(worker);
    (listener, id)
}

fn expect_not_dialled(listener: TcpListener) {
    let accepted = listener.into_std().unwrap().accept();
    assert!(accepted.is_err(), "the worker was dialled");
}

#[tokio::test]
async fn release_needs_debug_on_the_task() {
    let users = [
        User::new("ann", "\"list\", \"view\"", ""),
        User::new("ben", "\"debug\"", "jobs = [\"02000000\"]"),
        User::new("eve", "\"dashboard:write\"", ""),
    ];
    let relay = Relay::with_users(&[], &users.iter().collect::<Vec<_>>()).await;
    let (listener, id) = worker(&relay).await;
    let body = json!({"ids": [id, "zzzzzzzz"]}).to_string();
    assert_eq!(ask(&relay, "wrong", &body).await.0, 401);
    for token in [&token_of("ann"), &token_of("eve")] {
        assert_eq!(ask(&relay, token, &body).await.0, 403, "{token}");
    }
    let (status, answer) = ask(&relay, &token_of("ben"), &body).await;
    let rows = answer["results"].as_array().unwrap();
    assert_eq!((status, rows.len()), (200, 2));
    // A breakpoint of another job gets the same answer as an unknown one.
    assert_eq!(rows[0]["error"], rows[1]["error"]);
    assert_eq!(rows[0]["released"], false);
    assert!(relay.registry.snapshot().live[0].is_paused());
    expect_not_dialled(listener);
}

#[tokio::test]
async fn unrecorded_release_is_refused() {
    let kim = User::new("kim", "\"list\", \"terminal\"", "");
    let relay = Relay::with_users(&[], &[&kim]).await;
    let (listener, id) = worker(&relay).await;
    let body = json!({ "ids": [id] }).to_string();
    relay.audit.refuse_all(true);
    let (_, answer) = ask(&relay, &token_of("kim"), &body).await;
    let error = answer["results"][0]["error"].as_str().unwrap();
    assert!(error.contains("audit log"), "{error}");
    expect_not_dialled(listener);
}

#[tokio::test]
async fn invalid_body_or_method_is_refused() {
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
    let body = json!({ "ids": vec!["0"; 1001] }).to_string();
    assert_eq!(ask(&relay, "x", &body).await.0, 400);
    let response = relay.get("/relay/v1/release").await;
    assert_eq!(response.status(), 405);
}

/// Starts a Ray head that accepts jobs, whose logs end with `log`. Also returns the posted bodies.
async fn jobs(log: &'static str) -> (SocketAddr, Arc<Mutex<Vec<Value>>>, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let posted = Arc::new(Mutex::new(Vec::new()));
    let (received, mut tasks) = (Arc::clone(&posted), JoinSet::new());
    tasks.spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let received = Arc::clone(&received);
            let answer = service_fn(move |request: Request<Incoming>| {
                let received = Arc::clone(&received);
                async move {
                    let path = request.uri().path().to_owned();
                    let is_post = request.method() == Method::POST;
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    if is_post {
                        received.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
                    }
                    let answer = match path.rsplit('/').next().unwrap() {
                        "logs" => json!({"logs": format!("Running entrypoint\n{log}\n")}),
                        // The requested worker is no longer alive.
                        "workers" => json!({"result": true, "msg": "", "data": {"result": {"total": 0, "num_after_truncation": 0, "result": []}}}),
                        _ => json!({"submission_id": "ends", "status": "SUCCEEDED", "message": "Job finished successfully."}),
                    };
                    Ok::<_, Infallible>(Response::new(answer.to_string()))
                }
            });
            tokio::spawn(async move {
                _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), answer)
                    .await;
            });
        }
    });
    (address, posted, tasks)
}

#[tokio::test(start_paused = true)]
async fn forced_release_needs_terminate() {
    let users = [
        User::new("kim", "\"terminate\"", ""),
        User::new("ann", "\"debug\", \"terminal\", \"admin\"", ""),
        User::new("ben", "\"terminate\"", "jobs = [\"02000000\"]"),
    ];
    let (head, posted, _head) = jobs("RAY-RELAY ended").await;
    let relay = Relay::with_users(&[("default", head)], &users.iter().collect::<Vec<_>>()).await;
    let (listener, id) = worker(&relay).await;
    let body = json!({"ids": [id], "force": true}).to_string();
    let (_, answer) = ask(&relay, &token_of("ann"), &body).await;
    let error = answer["results"][0]["error"].as_str().unwrap();
    assert!(error.contains("the permission `terminate`"), "{error}");
    let (_, answer) = ask(&relay, &token_of("ben"), &body).await;
    assert_eq!(answer["results"][0]["error"], "there is no such breakpoint");
    // `terminate` alone does not permit a normal release.
    let (_, answer) = ask(&relay, &token_of("kim"), &json!({"ids": [id]}).to_string()).await;
    assert_eq!(answer["results"][0]["released"], false);
    assert!(posted.lock().unwrap().is_empty());
    // An unrecorded action does not happen.
    relay.audit.refuse_all(true);
    let (_, answer) = ask(&relay, &token_of("kim"), &body).await;
    assert_eq!(answer["results"][0]["ended"], false);
    assert!(posted.lock().unwrap().is_empty());
    relay.audit.refuse_all(false);
    let (_, answer) = ask(&relay, &token_of("kim"), &body).await;
    assert_eq!(answer["results"][0]["ended"], true, "{answer}");
    let jobs = posted.lock().unwrap().clone();
    let row = relay.registry.snapshot().live[0].clone();
    let expected = format!("{} {} {}", row.node_id, row.worker_id, row.pid);
    assert_eq!(jobs.len(), 1);
    assert!(jobs[0]["entrypoint"].as_str().unwrap().ends_with(&expected));
    let entries = relay.audit.take();
    assert!(
        entries
            .iter()
            .any(|entry| entry.details.get("force") == Some(&true.into()))
    );
    expect_not_dialled(listener);
}

#[tokio::test(start_paused = true)]
async fn failed_forced_release_reports_the_reason() {
    let (head, _, _head) = jobs("RAY-RELAY refused: process 495 is another worker now").await;
    let relay = Relay::with_auth(&[("default", head)], Authenticator::open(), |config| {
        config.dap.allow_terminate = true;
    })
    .await;
    let (_listener, id) = worker(&relay).await;
    let body = json!({"ids": [id], "force": true}).to_string();
    let (_, answer) = ask(&relay, "x", &body).await;
    let error = answer["results"][0]["error"].as_str().unwrap();
    assert!(error.contains("another worker now"), "{error}");
    assert!(relay.registry.snapshot().live[0].is_paused());
}

/// There is no token then, and no issuer of one.
#[tokio::test(start_paused = true)]
async fn refusal_names_allow_terminate_where_auth_is_off() {
    let (head, posted, _head) = jobs("RAY-RELAY ended").await;
    let relay = Relay::with_auth(&[("default", head)], Authenticator::open(), |_| {}).await;
    let (_listener, id) = worker(&relay).await;
    let body = json!({"ids": [id], "force": true}).to_string();
    let (_, answer) = ask(&relay, "x", &body).await;
    let error = answer["results"][0]["error"].as_str().unwrap();
    let key = "; this relay authenticates no client: `dap.allow_terminate` in its configuration allows it to all";
    assert!(error.ends_with(key), "{error}");
    assert!(posted.lock().unwrap().is_empty());
}
