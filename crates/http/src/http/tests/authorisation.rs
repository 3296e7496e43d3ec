//! Permissions of authenticated clients.

use super::proxy::workers;
use super::*;
use ray_relay_access::telemetry::request::RequestId;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::tunnel::text::Hex;
use ray_relay_ray::ray::registry::Snapshot;
use ray_relay_session::session::state::SessionState;
use serde_json::Value;

/// A paused worker of another job.
fn foreign(worker_id: &str) -> Breakpoint {
    let mut breakpoint = breakpoint(worker_id);
    breakpoint.names_mut().job_id = Some("02000000".to_owned());
    breakpoint.names_mut().name = Some("secret_step".to_owned());
    breakpoint
}

fn user_of_job_1(scopes: &str) -> User {
    User::new("ann", scopes, "jobs = [\"01000000\"]")
}

fn ids(list: &Value) -> Vec<&str> {
    let rows = list["data"]["result"]["result"].as_array().unwrap();
    rows.iter()
        .map(|row| row["worker_id"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn every_scope_opens_its_own_routes_only() {
    let routes = [
        ("GET", "/relay/v1/breakpoints", "list"),
        ("GET", "/relay/v1/events", "list"),
        ("GET", "/relay/metrics", "admin"),
        ("GET", "/nodes", "dashboard:read"),
        ("GET", "/api/v0/logs/file", "dashboard:read"),
        ("POST", "/api/task_events/query", "dashboard:read"),
        ("POST", "/api/jobs/x/stop", "dashboard:write"),
        ("PUT", "/api/packages/gcs/x.zip", "dashboard:write"),
        ("DELETE", "/api/jobs/x", "dashboard:write"),
        ("GET", "/api/actors/kill?actor_id=1", "dashboard:write"),
        ("HEAD", "/api/actors/kill?actor_id=1", "dashboard:write"),
        ("GET", "/%61pi//actors/./kill", "dashboard:write"),
        ("GET", "/worker/traceback?pid=1", "dashboard:write"),
        ("GET", "/memory_profile", "dashboard:write"),
    ];
    let scopes = [
        "list",
        "debug",
        "terminal",
        "dashboard:read",
        "dashboard:write",
        "admin",
    ];
    let users: Vec<User> = scopes
        .iter()
        .map(|scope| User::new(scope, &format!("{scope:?}"), ""))
        .collect();
    let (address, mut requests, _head) = test_head(|| ok("done")).await;
    let relay = Relay::with_users(&[("default", address)], &users.iter().collect::<Vec<_>>()).await;
    for (method, path, needs) in routes {
        for scope in scopes {
            let is_allowed =
                scope == needs || (scope == "dashboard:write" && needs == "dashboard:read");
            let response = relay.ask_as(&token_of(scope), method, path).await;
            let expected = if is_allowed { 200 } else { 403 };
            assert_eq!(response.status(), expected, "{method} {path} with {scope}");
            let upstream = is_allowed && !path.starts_with("/relay/");
            assert_eq!(
                requests.try_recv().is_ok(),
                upstream,
                "{method} {path} with {scope}"
            );
            if !is_allowed && method != "HEAD" {
                let sentence = text(response).await;
                let expected =
                    format!("{scope} may not do that here: it needs the permission `{needs}`");
                assert!(sentence.contains(&expected), "{sentence}");
            }
        }
    }
}

#[tokio::test]
async fn unrecorded_change_is_not_made() {
    let ann = User::new("ann", "\"dashboard:write\"", "");
    let (address, mut requests, _head) = test_head(|| ok("done")).await;
    let relay = Relay::with_users(&[("default", address)], &[&ann]).await;
    relay
        .ask_as(&token_of("ann"), "POST", "/api/jobs/x/stop?secret=1")
        .await;
    relay.ask_as(&token_of("ann"), "GET", "/nodes").await;
    relay.get_as(&token_of("ann"), "/relay/metrics").await;
    assert_eq!(
        lines(&relay.audit.take()),
        [
            "Decision allowed ann /api/jobs/x/stop",
            "Decision answered ann /api/jobs/x/stop",
            "Decision denied ann /relay/metrics"
        ]
    );
    while requests.try_recv().is_ok() {}
    relay.audit.refuse_all(true);
    let response = relay
        .ask_as(&token_of("ann"), "POST", "/api/jobs/x/stop")
        .await;
    assert_eq!(response.status(), 503);
    assert!(text(response).await.contains("audit log"));
    assert!(requests.try_recv().is_err());
    assert_eq!(
        relay
            .get_as(&token_of("ann"), "/relay/metrics")
            .await
            .status(),
        403
    );
    assert_eq!(relay.get_as("wrong", "/nodes").await.status(), 401);
}

#[tokio::test]
async fn record_has_the_request_and_its_result() {
    let ann = User::new("ann", "\"dashboard:write\"", "");
    let (address, _seen, _head) =
        test_head(|| ok("{\"submission_id\": \"raysubmit_7\", \"job_id\": \"x\"}")).await;
    let relay = Relay::with_users(&[("default", address)], &[&ann]).await;
    let kill = "/api/actors/kill?actor_id=ab%31&force_kill=true&actor_id=cd&secret=s3cret";
    relay.ask_as(&token_of("ann"), "GET", kill).await;
    let job = r#"{"entrypoint": "python a.py", "runtime_env": {"env_vars": {"K": "s3cret"}}}"#;
    let request = relay
        .request("POST", "/api/jobs/")
        .header("authorization", bearer("ann"))
        .body(answer::full(job))
        .unwrap();
    let response = relay.client().await.send(request).await;
    assert!(text(response).await.contains("raysubmit_7"), "as it was");
    let config =
        r#"{"applications": [{"name": "chat", "import_path": "a:b", "args": {"K": "s3cret"}}]}"#;
    let request = relay
        .request("PUT", "/api/serve/applications/")
        .header("authorization", bearer("ann"))
        .body(answer::full(config))
        .unwrap();
    relay.client().await.send(request).await;
    let entries = relay.audit.take();
    let [kill, killed, submit, submitted, serve, served] = &entries[..] else {
        panic!("{entries:?}");
    };
    assert_eq!(kill.details["actor_id"], serde_json::json!(["ab1", "cd"]));
    assert_eq!(kill.details["force_kill"], "true");
    assert_eq!(killed.details["status"], 200);
    assert_eq!(submit.details["entrypoint"], "python a.py");
    assert_eq!(submitted.details["submission_id"], "raysubmit_7");
    assert_eq!(serve.details["applications"], serde_json::json!(["chat"]));
    assert_eq!(served.details["status"], 200);
    assert_eq!(served.details.get("submission_id"), None);
    assert!(!format!("{entries:?}").contains("s3cret"));
}

#[tokio::test]
async fn lists_and_events_hold_only_visible_breakpoints() {
    let ann = user_of_job_1("\"list\"");
    let relay = Relay::with_users(&[], &[&ann]).await;
    relay.registry.insert(breakpoint("aa11"));
    relay.registry.insert(foreign("bb22"));
    let error = text(
        relay
            .get_as(&token_of("ann"), "/relay/v1/breakpoints")
            .await,
    )
    .await;
    assert!(error.contains("aa11"), "{error}");
    assert!(
        !error.contains("bb22") && !error.contains("secret_step"),
        "{error}"
    );
    relay
        .registry
        .end(foreign("bb22").id, Some("secret_step died"));
    let error = text(
        relay
            .get_as(&token_of("ann"), "/relay/v1/breakpoints?ended=1")
            .await,
    )
    .await;
    assert!(
        !error.contains("bb22") && !error.contains("secret_step"),
        "{error}"
    );

    let mut body = relay
        .get_as(&token_of("ann"), "/relay/v1/events")
        .await
        .into_body();
    relay.registry.insert(foreign("cc33"));
    relay.registry.insert(breakpoint("dd44"));
    relay.registry.end(foreign("cc33").id, None);
    relay.registry.end(breakpoint("dd44").id, None);
    let mut error = String::new();
    while !error.contains("event: released") {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        error.push_str(std::str::from_utf8(&frame).unwrap());
    }
    assert!(error.contains("aa11") && error.contains("dd44"), "{error}");
    assert!(
        !error.contains("bb22") && !error.contains("cc33"),
        "{error}"
    );
}

#[tokio::test]
async fn breakpoint_appears_once_its_job_is_known() {
    let ann = user_of_job_1("\"list\"");
    let relay = Relay::with_users(&[], &[&ann]).await;
    let mut nameless = breakpoint("aa11");
    nameless.names_mut().job_id = None;
    relay.registry.insert(nameless);
    let mut body = relay
        .get_as(&token_of("ann"), "/relay/v1/events")
        .await
        .into_body();
    let mut next = async || {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        String::from_utf8(frame.to_vec()).unwrap()
    };
    assert!(!next().await.contains("aa11"));
    relay.registry.insert(breakpoint("aa11"));
    assert!(next().await.contains("event: appeared"));
    // The row is removed once its job turns out to be another one.
    relay.registry.insert(foreign("aa11"));
    let snapshot = next().await;
    assert!(
        snapshot.starts_with("event: snapshot") && !snapshot.contains("aa11"),
        "{snapshot}"
    );
}

#[tokio::test]
async fn workers_are_filtered_by_permission() {
    let (ann, bob) = (
        user_of_job_1("\"list\""),
        User::new("bob", "\"dashboard:read\"", ""),
    );
    let user = User::new("all", "\"dashboard:read\", \"list\"", "");
    let (address, _seen, _head) = test_head(workers).await;
    let relay = Relay::with_users(&[("default", address)], &[&ann, &bob, &user]).await;
    relay.registry.insert(breakpoint("aa11"));
    relay.registry.insert(foreign("bb22"));
    let workers_of = async |user: &str| {
        let path = "/api/v0/workers?detail=1";
        let text = text(relay.get_as(&token_of(user), path).await).await;
        for port in ["38645", "57329"] {
            assert!(!text.contains(port), "{user}: {text}");
        }
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let list = workers_of("ann").await;
    assert_eq!(ids(&list), ["aa11"]);
    assert_eq!(list["data"]["result"]["total"], 1);
    let row = &list["data"]["result"]["result"][0];
    assert_eq!(row["worker_launch_time_ms"], 18_446_744_073_709_551_615_u64);
    let ip = row["ip"].as_str().unwrap();
    let resolved = relay.ctx.shown.advertised.resolve(ip);
    assert_eq!(
        resolved,
        advertise::Resolved::Breakpoint(breakpoint("aa11").id)
    );
    // `dashboard:write` opens the whole dashboard, but no breakpoint.
    let list = workers_of("bob").await;
    assert_eq!(ids(&list), ["cc33"]);
    assert_eq!(list["data"]["result"]["total"], 1);
    let list = workers_of("all").await;
    assert_eq!(ids(&list), ["aa11", "bb22", "cc33"]);
}

#[tokio::test]
async fn rows_without_details_reveal_no_hidden_breakpoint() {
    let bob = User::new("bob", "\"dashboard:read\"", "");
    let (address, _seen, _head) = test_head(|| {
        let rows = r#"{"data": {"result": {"total": 2, "result": [{"worker_id": "aa11"}, {"worker_id": "cc33"}, {}]}}}"#;
        with(ok(rows), &[("content-type", "application/json")])
    })
    .await;
    let relay = Relay::with_users(&[("default", address)], &[&bob]).await;
    relay.registry.insert(breakpoint("aa11"));
    let path =
        "/api/v0/workers?filter_keys=num_paused_threads&filter_predicates=%21%3D&filter_values=0";
    let list = json(relay.get_as(&token_of("bob"), path).await).await;
    assert_eq!(ids(&list), ["cc33"]);
}

#[tokio::test]
async fn narrowed_user_gets_only_lists_of_the_dashboard() {
    let ann = user_of_job_1("\"debug\", \"list\", \"dashboard:write\"");
    let (address, mut requests, _head) = test_head(|| {
        let rows = r#"{"result": true, "data": {"result": {"total": 2, "result": [
            {"task_id": "t1", "job_id": "01000000", "worker_id": "aa11"},
            {"task_id": "t2", "job_id": "02000000", "worker_id": "bb22"}], "warnings": ["t2 is slow"]}}}"#;
        with(ok(rows), &[("content-type", "application/json")])
    })
    .await;
    let relay = Relay::with_users(&[("default", address)], &[&ann]).await;
    let mut visible = breakpoint("aa11");
    visible.names_mut().task_id = Some("t1".to_owned());
    relay.registry.insert(visible);
    relay.registry.insert(foreign("bb22"));
    for path in [
        "/api/v0/tasks?detail=1",
        "/api/v0/jobs",
        "/relay/clusters/default/api/v0/tasks",
    ] {
        let answer = text(relay.get_as(&token_of("ann"), path).await).await;
        assert!(
            answer.contains("t1") && !answer.contains("t2") && !answer.contains("02000000"),
            "{answer}"
        );
        assert!(requests.try_recv().is_ok());
    }
    assert_eq!(
        relay
            .get_as(&token_of("ann"), "/api/version")
            .await
            .status(),
        200
    );
    assert!(requests.try_recv().is_ok());
    for (method, path) in [
        ("GET", "/nodes"),
        ("GET", "/api/jobs/"),
        ("GET", "/api/v0/tasks/summarize"),
        ("GET", "/api/v0/actors"),
        ("GET", "/api/v0/logs/file"),
        ("POST", "/api/jobs/x/stop"),
        ("GET", "/worker/traceback"),
    ] {
        let response = relay.ask_as(&token_of("ann"), method, path).await;
        assert_eq!(response.status(), 403, "{path}");
        let sentence = text(response).await;
        assert!(
            sentence.contains("on the whole of cluster default"),
            "{sentence}"
        );
    }
    assert!(requests.try_recv().is_err());
}

#[tokio::test]
async fn other_head_answers_are_hidden_from_a_narrowed_user() {
    for answered in [
        || with(status(500), &[("content-type", "application/json")]),
        || ok("secret_step"),
        || {
            with(
                ok("[\"secret_step\"]"),
                &[("content-type", "application/json")],
            )
        },
    ] {
        let ann = user_of_job_1("\"list\"");
        let (address, _seen, _head) = test_head(answered).await;
        let relay = Relay::with_users(&[("default", address)], &[&ann]).await;
        let response = relay.get_as(&token_of("ann"), "/api/v0/workers").await;
        assert!(response.status().is_server_error());
        assert!(!text(response).await.contains("secret_step"));
    }
}

#[tokio::test]
async fn forbidden_cluster_is_answered_like_an_unknown_one() {
    let ann = User::new(
        "ann",
        "\"dashboard:read\", \"list\"",
        "clusters = [\"other\"]",
    );
    let (address, mut requests, _head) = test_head(|| ok("page")).await;
    let heads = [("secret", address), ("other", address)];
    let relay = Relay::with_users(&heads, &[&ann]).await;
    let unknown_cluster = async |name: &str| {
        let response = relay
            .get_as(&token_of("ann"), &format!("/relay/clusters/{name}/nodes"))
            .await;
        assert_eq!(response.status(), 404);
        without_id(&text(response).await).replace(name, "NAME")
    };
    assert_eq!(
        unknown_cluster("secret").await,
        unknown_cluster("nosuch").await
    );
    assert_eq!(relay.get_as(&token_of("ann"), "/nodes").await.status(), 403);
    assert!(requests.try_recv().is_err());
    let path = "/relay/clusters/other/nodes";
    assert_eq!(relay.get_as(&token_of("ann"), path).await.status(), 200);
    let answer = text(
        relay
            .get_as(&token_of("ann"), "/relay/v1/breakpoints")
            .await,
    )
    .await;
    assert!(
        answer.contains("other") && !answer.contains("secret"),
        "{answer}"
    );
    let readyz = async |name: &str| {
        let path = format!("/relay/readyz?cluster={name}");
        let response = relay.get_as(&token_of("ann"), &path).await;
        (
            response.status().as_u16(),
            without_id(&text(response).await),
        )
    };
    let (status, answer) = readyz("other").await;
    assert!(
        status == 503 && answer.contains("cluster other"),
        "{answer}"
    );
    assert_eq!(readyz("secret").await, readyz("nosuch").await);
    assert_eq!(readyz("secret").await.0, 404);
}

/// Returns `answer` without the request id, which differs each time.
pub(super) fn without_id(answer: &str) -> String {
    let id = regex::Regex::new(r#" \(request [0-9a-z.]+\)|,"request":"[0-9a-z.]+""#).unwrap();
    id.replace_all(answer, "").into_owned()
}

fn sessions() -> Vec<SessionRow> {
    let row = |id, subject: Option<&str>| SessionRow {
        id,
        protocol: "dap",
        state: SessionState::Attached,
        request: RequestId::random(),
        peer: ([127, 0, 0, 1], 9).into(),
        subject: subject.map(str::to_owned),
        client: None,
        breakpoint: None,
        name: None,
        cluster: None,
        armed: None,
        since: Timestamp::now(),
        bytes_up: 0,
        bytes_down: 0,
        held: None,
    };
    vec![row(1, Some("ann")), row(2, Some("bob")), row(3, None)]
}

#[tokio::test]
async fn user_sees_own_sessions_and_admin_all() {
    let policy = [
        User::new("ann", "\"debug\"", ""),
        User::new("adm", "\"admin\"", ""),
        User::new("eve", "\"debug\"", ""),
    ];
    let auth = authenticator(&policy.map(|user| user.rules).concat());
    let sessions_of = async |subject| {
        let principal = principal(&auth, subject).await;
        let response = super::super::api::sessions(
            &sessions(),
            Hex([7; 8]),
            &[],
            &principal,
            &Snapshot::default(),
        );
        let body = response.into_body().collect().await.unwrap();
        let answer: Value = serde_json::from_slice(&body.to_bytes()).unwrap();
        let rows = answer["sessions"].as_array().unwrap();
        rows.iter()
            .map(|row| row["id"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(sessions_of("ann").await, [1]);
    assert_eq!(sessions_of("adm").await, [1, 2, 3]);
    assert!(sessions_of("eve").await.is_empty());
}
