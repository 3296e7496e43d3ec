//! `admin` that is narrowed to a place administers that place, and not the relay.

use serde_json::{Value, json as body};

use super::sessions::session_at;
use super::*;
use crate::http::routes::exists;

/// Conditions of a rule for `admin`: [`here`] matches each, and [`elsewhere`] none.
const PLACES: [(&str, &str); 5] = [
    ("cluster", "clusters = [\"default\"]"),
    ("job", "jobs = [\"01000000\"]"),
    ("namespace", "namespaces = [\"training\"]"),
    ("task", "tasks = [\"square\"]"),
    ("node", "nodes = [\"10.88.0.10\"]"),
];

fn here() -> Breakpoint {
    let mut breakpoint = breakpoint("aa11");
    breakpoint.names_mut().namespace = Some("training".to_owned());
    breakpoint
}

/// Another task on another node, of another job, namespace and cluster.
fn elsewhere() -> Breakpoint {
    let mut breakpoint = breakpoint("bb22");
    breakpoint.cluster = "other".into();
    breakpoint.node_ip = [10, 88, 0, 11].into();
    breakpoint.names_mut().job_id = Some("02000000".to_owned());
    breakpoint.names_mut().namespace = Some("serving".to_owned());
    breakpoint.names_mut().name = Some("cube".to_owned());
    breakpoint
}

/// A relay with `here` and `elsewhere`, a person who debugs, and an administrator of each place, of none and of all.
async fn relay() -> Relay {
    let ann = Person::new("ann", "\"debug\"", "");
    let root = Person::new("root", "\"admin\"", "");
    let places = PLACES.map(|(place, narrowing)| Person::new(place, "\"admin\"", narrowing));
    let every = Person::new("every", "\"admin\"", "clusters = [\"*\"]");
    let people: Vec<_> = places.iter().chain([&ann, &root, &every]).collect();
    let relay = Relay::guarded(&[], &people).await;
    relay.registry.insert(here());
    relay.registry.insert(elsewhere());
    relay
}

async fn ask(relay: &Relay, who: &str, method: &str, path: &str, said: &Value) -> (u16, String) {
    let request = relay
        .request(method, path)
        .header("authorization", bearer(who));
    let body = answer::full(if method == "POST" {
        said.to_string()
    } else {
        String::new()
    });
    let response = relay.client().await.send(request.body(body).unwrap()).await;
    let status = response.status().as_u16();
    // A stream of events has no end.
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
    let nothing = || body!({});
    // What a narrowed administrator is answered, and what the relay's own is.
    let routes = [
        ("GET", "/relay/", nothing(), 200, 200),
        ("GET", "/relay/docs/TOPIC", nothing(), 404, 404),
        ("GET", "/relay/docs/operate", nothing(), 200, 200),
        ("GET", "/relay/v1/breakpoints", nothing(), 403, 403),
        ("GET", "/relay/v1/events", nothing(), 403, 403),
        ("GET", "/relay/v1/jobs", nothing(), 400, 400),
        ("GET", "/relay/v1/tasks", nothing(), 403, 403),
        ("POST", "/relay/v1/looks", nothing(), 403, 403),
        ("GET", "/relay/v1/nodes", nothing(), 403, 403),
        ("GET", "/relay/v1/nodes/link", nothing(), 403, 403),
        ("GET", "/relay/v1/reverse/NAME", nothing(), 403, 403),
        ("GET", "/relay/v1/terminal", nothing(), 403, 403),
        (
            "POST",
            "/relay/v1/snapshot",
            body!({"id": here().id}),
            403,
            403,
        ),
        (
            "POST",
            "/relay/v1/compare",
            body!({"ids": [here().id]}),
            403,
            403,
        ),
        ("GET", "/relay/v1/connect", nothing(), 426, 426),
        ("GET", "/relay/v1/whoami", nothing(), 200, 200),
        ("GET", "/relay/v1/sessions", nothing(), 200, 200),
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
            body!({"ids": [here().id], "client": "x"}),
            403,
            403,
        ),
        ("POST", "/relay/v1/park", body!({"id": here().id}), 403, 403),
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
        ("POST", "/relay/v1/dashboard", nothing(), 403, 403),
        ("GET", "/relay/v1/doctor", nothing(), 403, 200),
        ("GET", "/relay/metrics", nothing(), 403, 200),
        ("GET", "/relay/healthz", nothing(), 200, 200),
        ("GET", "/relay/readyz", nothing(), 200, 200),
        ("GET", "/relay/clusters/NAME/", nothing(), 404, 404),
        ("GET", "/nodes", nothing(), 403, 403),
    ];
    for path in exists()
        .split([' ', ','])
        .filter(|word| word.starts_with('/'))
    {
        let named = routes.iter().any(|route| route.1 == path);
        assert!(named, "{path}: what does a narrowed `admin` open there?");
    }
    for (method, path, said, narrowed, relays) in &routes {
        for (place, _) in PLACES.iter().chain([&("every", "")]) {
            let (status, answer) = ask(&relay, place, method, path, said).await;
            assert_eq!(status, *narrowed, "{method} {path} by {place}: {answer}");
            if *narrowed == 403 && *relays == 200 {
                let needs = "it needs the permission `admin` on the whole relay";
                assert!(answer.contains(needs), "{answer}");
            }
        }
        let (status, answer) = ask(&relay, "root", method, path, said).await;
        assert_eq!(status, *relays, "{method} {path} by root: {answer}");
    }
}

#[tokio::test]
async fn narrowed_admin_sees_and_ends_sessions_in_scope() {
    let relay = relay().await;
    for (place, _) in PLACES {
        let there = session_at(&relay, "ann", here()).await;
        let other = session_at(&relay, "ann", elsewhere()).await;
        let waiting = relay.ctx.sessions.table.open(there.summary());
        let rows = async |who: &str| {
            let (_, told) = ask(&relay, who, "GET", "/relay/v1/sessions", &Value::Null).await;
            let told: Value = serde_json::from_str(&told).unwrap();
            let rows = told["sessions"].as_array().unwrap().clone();
            rows.iter()
                .map(|row| row["id"].as_u64().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(rows(place).await, [there.id()], "{place}");
        assert_eq!(rows("root").await, [there.id(), other.id(), waiting.id()]);
        let end = async |session: u64| {
            let path = "/relay/v1/sessions/end";
            ask(&relay, place, "POST", path, &body!({ "id": session })).await
        };
        let (status, hidden) = end(other.id()).await;
        let (_, unknown) = end(9999).await;
        assert_eq!(status, 404, "{place}");
        let without_id = |answer: &str| super::authorisation::without_id(answer);
        assert_eq!(without_id(&hidden), without_id(&unknown));
        assert!(!other.asked_to_end().is_cancelled());
        assert_eq!(end(there.id()).await.0, 200, "{place}");
        assert!(there.asked_to_end().is_cancelled());
    }
}

#[tokio::test]
async fn session_is_authorised_by_its_current_breakpoint() {
    let relay = relay().await;
    let mut nameless = here();
    *nameless.names_mut() = ray_relay_ray::ray::registry::Names::default();
    let session = session_at(&relay, "ann", nameless).await;
    let holder = session.holder(&principal(&relay.ctx.auth, "ann").await, "test");
    let mut held = here();
    held.state = ray_relay_ray::ray::registry::State::Attached(holder);
    relay.registry.insert(held);
    let (_, told) = ask(&relay, "job", "GET", "/relay/v1/sessions", &Value::Null).await;
    assert!(told.contains(&here().id.to_string()), "{told}");
    let end = body!({"id": session.id()});
    let path = "/relay/v1/sessions/end";
    assert_eq!(ask(&relay, "job", "POST", path, &end).await.0, 200);
}

#[tokio::test]
async fn narrowed_admin_releases_tasks_in_scope_only() {
    let relay = relay().await;
    for (place, _) in PLACES {
        let ids = body!({"ids": [elsewhere().id, "zzzzzzzz"]});
        let (status, told) = ask(&relay, place, "POST", "/relay/v1/release", &ids).await;
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(
            (status, told["results"].as_array().unwrap().len()),
            (200, 2)
        );
        assert_eq!(
            told["results"][0]["error"], told["results"][1]["error"],
            "{place}"
        );
    }
}

#[tokio::test]
async fn narrowed_admin_cannot_revoke_others() {
    let relay = relay().await;
    let revoke = async |who: &str, what: Value| {
        let path = "/relay/v1/revocations";
        ask(&relay, who, "POST", path, &what).await.0
    };
    let others = [
        body!({"sub": "ann"}),
        body!({"jti": "jti-ann"}),
        // What is issued next year as well.
        body!({"sub": "job", "at": 4_000_000_000_u64}),
    ];
    for what in others {
        assert_eq!(revoke("job", what).await, 403);
    }
    assert_eq!(revoke("task", body!({"jti": "jti-task"})).await, 200);
    assert_eq!(revoke("task", body!({"jti": "jti-task"})).await, 401);
    assert_eq!(revoke("node", body!({"sub": "node"})).await, 200);
    assert_eq!(revoke("node", body!({"sub": "node"})).await, 401);
    let entries = relay.heard.take();
    let revoked = entries
        .iter()
        .filter(|entry| entry.details.get("command") == Some(&"revoke".into()));
    let who: Vec<_> = revoked
        .map(|entry| entry.subject.clone().unwrap())
        .collect();
    assert_eq!(who, ["task", "node"]);
}
