//! `admin` that is narrowed by conditions does not extend to the whole relay.

use serde_json::{Value, json as body};

use super::sessions::session_at;
use super::*;
use crate::http::routes::exists;

/// Conditions of a rule for `admin`: [`in_scope`] matches each, and [`out_of_scope`] none.
const CONDITIONS: [(&str, &str); 5] = [
    ("cluster", "clusters = [\"default\"]"),
    ("job", "jobs = [\"01000000\"]"),
    ("namespace", "namespaces = [\"training\"]"),
    ("task", "tasks = [\"square\"]"),
    ("node", "nodes = [\"10.88.0.10\"]"),
];

fn in_scope() -> Breakpoint {
    let mut breakpoint = breakpoint("aa11");
    breakpoint.names_mut().namespace = Some("training".to_owned());
    breakpoint
}

/// Another task, on another node, in another job, namespace and cluster.
fn out_of_scope() -> Breakpoint {
    let mut breakpoint = breakpoint("bb22");
    breakpoint.cluster = "other".into();
    breakpoint.node_ip = [10, 88, 0, 11].into();
    breakpoint.names_mut().job_id = Some("02000000".to_owned());
    breakpoint.names_mut().namespace = Some("serving".to_owned());
    breakpoint.names_mut().name = Some("cube".to_owned());
    breakpoint
}

/// Starts a relay with both breakpoints, a user who debugs, and narrowed and unnarrowed administrators.
async fn relay() -> Relay {
    let ann = User::new("ann", "\"debug\"", "");
    let root = User::new("root", "\"admin\"", "");
    let narrowed = CONDITIONS.map(|(place, narrowing)| User::new(place, "\"admin\"", narrowing));
    let every_cluster = User::new("every", "\"admin\"", "clusters = [\"*\"]");
    let users: Vec<_> = narrowed
        .iter()
        .chain([&ann, &root, &every_cluster])
        .collect();
    let relay = Relay::with_users(&[], &users).await;
    relay.registry.insert(in_scope());
    relay.registry.insert(out_of_scope());
    relay
}

async fn ask(relay: &Relay, user: &str, method: &str, path: &str, body: &Value) -> (u16, String) {
    let request = relay
        .request(method, path)
        .header("authorization", bearer(user));
    let body = answer::full(if method == "POST" {
        body.to_string()
    } else {
        String::new()
    });
    let response = relay.client().await.send(request.body(body).unwrap()).await;
    let status = response.status().as_u16();
    // An event stream does not end.
    let is_stream = path == "/relay/v1/events" && status == 200;
    (
        status,
        if is_stream {
            String::new()
        } else {
            text(response).await
        },
    )
}

#[tokio::test]
async fn every_route_has_its_answer_for_a_narrowed_admin() {
    let relay = relay().await;
    let empty = || body!({});
    // The last two columns are the statuses for a narrowed and for an unnarrowed administrator.
    let routes = [
        ("GET", "/relay/", empty(), 200, 200),
        ("GET", "/relay/docs/TOPIC", empty(), 404, 404),
        ("GET", "/relay/docs/operate", empty(), 200, 200),
        ("GET", "/relay/v1/breakpoints", empty(), 403, 403),
        ("GET", "/relay/v1/events", empty(), 403, 403),
        ("GET", "/relay/v1/jobs", empty(), 400, 400),
        ("GET", "/relay/v1/tasks", empty(), 403, 403),
        ("POST", "/relay/v1/looks", empty(), 403, 403),
        ("POST", "/relay/v1/why", empty(), 403, 403),
        ("POST", "/relay/v1/arm", empty(), 403, 403),
        ("GET", "/relay/v1/nodes", empty(), 403, 403),
        ("GET", "/relay/v1/nodes/link", empty(), 403, 403),
        ("GET", "/relay/v1/reverse/NAME", empty(), 403, 403),
        ("GET", "/relay/v1/terminal", empty(), 403, 403),
        (
            "POST",
            "/relay/v1/snapshot",
            body!({"id": in_scope().id}),
            403,
            403,
        ),
        (
            "POST",
            "/relay/v1/compare",
            body!({"ids": [in_scope().id]}),
            403,
            403,
        ),
        ("GET", "/relay/v1/connect", empty(), 426, 426),
        ("GET", "/relay/v1/whoami", empty(), 200, 200),
        ("GET", "/relay/v1/sessions", empty(), 200, 200),
        (
            "POST",
            "/relay/v1/sessions/end",
            body!({"id": 99}),
            404,
            404,
        ),
        ("POST", "/relay/v1/release", body!({"ids": []}), 200, 200),
        (
            "POST",
            "/relay/v1/group",
            body!({"ids": [in_scope().id], "client": "x"}),
            403,
            403,
        ),
        (
            "POST",
            "/relay/v1/park",
            body!({"id": in_scope().id}),
            403,
            403,
        ),
        (
            "POST",
            "/relay/v1/revocations",
            body!({"sub": "ann"}),
            403,
            200,
        ),
        (
            "POST",
            "/relay/v1/revocations",
            body!({"jti": "jti-ben"}),
            403,
            200,
        ),
        ("POST", "/relay/v1/dashboard", empty(), 403, 403),
        ("GET", "/relay/v1/doctor", empty(), 403, 200),
        ("GET", "/relay/metrics", empty(), 403, 200),
        ("GET", "/relay/healthz", empty(), 200, 200),
        ("GET", "/relay/readyz", empty(), 200, 200),
        ("GET", "/relay/clusters/NAME/", empty(), 404, 404),
        ("GET", "/nodes", empty(), 403, 403),
    ];
    for path in exists()
        .split([' ', ','])
        .filter(|word| word.starts_with('/'))
    {
        let is_covered = routes.iter().any(|route| route.1 == path);
        assert!(
            is_covered,
            "{path}: what does a narrowed `admin` open there?"
        );
    }
    for (method, path, body, narrowed, unnarrowed) in &routes {
        for (user, _) in CONDITIONS.iter().chain([&("every", "")]) {
            let (status, answer) = ask(&relay, user, method, path, body).await;
            assert_eq!(status, *narrowed, "{method} {path} by {user}: {answer}");
            if *narrowed == 403 && *unnarrowed == 200 {
                let expected = "it needs the permission `admin` on the whole relay";
                assert!(answer.contains(expected), "{answer}");
            }
        }
        let (status, answer) = ask(&relay, "root", method, path, body).await;
        assert_eq!(status, *unnarrowed, "{method} {path} by root: {answer}");
    }
}

#[tokio::test]
async fn narrowed_admin_sees_and_ends_sessions_in_scope() {
    let relay = relay().await;
    for (user, _) in CONDITIONS {
        let visible = session_at(&relay, "ann", in_scope()).await;
        let hidden_session = session_at(&relay, "ann", out_of_scope()).await;
        let waiting = relay.ctx.sessions.table.open(visible.summary());
        let rows = async |user: &str| {
            let (_, answer) = ask(&relay, user, "GET", "/relay/v1/sessions", &Value::Null).await;
            let list: Value = serde_json::from_str(&answer).unwrap();
            let rows = list["sessions"].as_array().unwrap().clone();
            rows.iter()
                .map(|row| row["id"].as_u64().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(rows(user).await, [visible.id()], "{user}");
        assert_eq!(
            rows("root").await,
            [visible.id(), hidden_session.id(), waiting.id()]
        );
        let end_session = async |session: u64| {
            let path = "/relay/v1/sessions/end";
            ask(&relay, user, "POST", path, &body!({ "id": session })).await
        };
        let (status, hidden) = end_session(hidden_session.id()).await;
        let (_, unknown) = end_session(9999).await;
        assert_eq!(status, 404, "{user}");
        let without_id = |answer: &str| super::authorisation::without_id(answer);
        assert_eq!(without_id(&hidden), without_id(&unknown));
        assert!(!hidden_session.asked_to_end().is_cancelled());
        assert_eq!(end_session(visible.id()).await.0, 200, "{user}");
        assert!(visible.asked_to_end().is_cancelled());
    }
}

#[tokio::test]
async fn session_is_authorised_by_its_current_breakpoint() {
    let relay = relay().await;
    let mut nameless = in_scope();
    *nameless.names_mut() = ray_relay_ray::ray::registry::Names::default();
    let session = session_at(&relay, "ann", nameless).await;
    let holder = session.holder(&principal(&relay.ctx.auth, "ann").await, "test");
    let mut attached = in_scope();
    attached.state = ray_relay_ray::ray::registry::State::Attached(holder);
    relay.registry.insert(attached);
    let (_, list) = ask(&relay, "job", "GET", "/relay/v1/sessions", &Value::Null).await;
    assert!(list.contains(&in_scope().id.to_string()), "{list}");
    let end = body!({"id": session.id()});
    let path = "/relay/v1/sessions/end";
    assert_eq!(ask(&relay, "job", "POST", path, &end).await.0, 200);
}

#[tokio::test]
async fn narrowed_admin_releases_tasks_in_scope_only() {
    let relay = relay().await;
    for (user, _) in CONDITIONS {
        let ids = body!({"ids": [out_of_scope().id, "zzzzzzzz"]});
        let (status, answer) = ask(&relay, user, "POST", "/relay/v1/release", &ids).await;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(
            (status, answer["results"].as_array().unwrap().len()),
            (200, 2)
        );
        assert_eq!(
            answer["results"][0]["error"], answer["results"][1]["error"],
            "{user}"
        );
    }
}

#[tokio::test]
async fn narrowed_admin_cannot_revoke_others() {
    let relay = relay().await;
    let revoke = async |user: &str, what: Value| {
        let path = "/relay/v1/revocations";
        ask(&relay, user, "POST", path, &what).await.0
    };
    let bodies = [
        body!({"sub": "ann"}),
        body!({"jti": "jti-ann"}),
        // This would also cover tokens that are issued later.
        body!({"sub": "job", "at": 4_000_000_000_u64}),
    ];
    for body in bodies {
        assert_eq!(revoke("job", body).await, 403);
    }
    assert_eq!(revoke("task", body!({"jti": "jti-task"})).await, 200);
    assert_eq!(revoke("task", body!({"jti": "jti-task"})).await, 401);
    assert_eq!(revoke("node", body!({"sub": "node"})).await, 200);
    assert_eq!(revoke("node", body!({"sub": "node"})).await, 401);
    let entries = relay.audit.take();
    let revoked = entries
        .iter()
        .filter(|entry| entry.details.get("command") == Some(&"revoke".into()));
    let subjects: Vec<_> = revoked
        .map(|entry| entry.subject.clone().unwrap())
        .collect();
    assert_eq!(subjects, ["task", "node"]);
}
