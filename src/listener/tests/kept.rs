//! Tests snapshots of a park at an agent through a relay that has not had the session.

use std::sync::Arc;
use std::time::SystemTime;

use futures_util::SinkExt;
use tokio_tungstenite::tungstenite::Message;

use super::*;
use ray_relay_access::identity::testing::{principal, token_of};
use ray_relay_base::config::UpstreamPath;
use ray_relay_base::timestamp::unix_ms;
use ray_relay_base::wire::dap::message::event;
use ray_relay_base::wire::tunnel::ByteStream;
use ray_relay_base::wire::tunnel::messages::{FromAgent, FromRelay, Hex, HoldRow, Kind, Parked};
use ray_relay_http::http::testing::Scene;
use ray_relay_ray::hold::SLOTS_PER_USER;
use ray_relay_ray::ray::registry::Breakpoint;

/// Returns the answer to a snapshot request of `user` for the breakpoint `id`.
async fn request_snapshot(relay: SocketAddr, user: &str, id: &str) -> (String, Value) {
    posted(relay, user, ("snapshot", json!({ "id": id }))).await
}

/// Returns the answer to this request of `user`.
async fn posted(relay: SocketAddr, user: &str, (route, body): (&str, Value)) -> (String, Value) {
    let body = body.to_string();
    let request = format!(
        "POST /relay/v1/{route} HTTP/1.1\r\nhost: {relay}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        token_of(user),
        body.len()
    );
    let mut stream = TcpStream::connect(relay).await.unwrap();
    let answer = exchange(&mut stream, request.as_bytes()).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let body = body
        .find('{')
        .map_or("null", |start| &body[start..=body.rfind('}').unwrap()]);
    (head.to_owned(), serde_json::from_str(body).unwrap())
}

async fn scene() -> Scene {
    let scene = Scene::with(|config| {
        config.upstream.path = UpstreamPath::Agent;
        config.park.r#for = Duration::from_secs(60);
    });
    scene.await
}

/// Returns an agent's report that it keeps `breakpoint`.
fn held_report(breakpoint: &Breakpoint, until_unix_ms: u64, evaluates: bool) -> FromAgent {
    let report = HoldRow {
        worker_id: (&*breakpoint.worker_id).into(),
        kind: Kind::Debugpy,
        port: breakpoint.port,
        name: "person".into(),
        session: "7".into(),
        client: "nvim".into(),
        peer: None,
        replica: Hex([9; 8]),
        since_unix_ms: 0,
        parked: Some(Parked {
            owner: "person".into(),
            credential: None,
            until_unix_ms,
            evaluates,
            entered: None,
        }),
    };
    FromAgent::Held {
        workers: vec![report],
    }
}

#[tokio::test]
async fn release_names_what_delays_the_agent() {
    for (evaluates, expected) in [
        (true, "an expression of a debugger goes on in it"),
        (false, "has not said yet that the task runs on"),
    ] {
        let scene = scene().await;
        let mut agent = scene.linked("agent", "a1", 1).await;
        let mut breakpoint = paused("square", 1);
        breakpoint.node_id = "a1".into();
        let id = breakpoint.id;
        let parked_until = unix_ms(SystemTime::now() + Duration::from_secs(600));
        let report = held_report(&breakpoint, parked_until, evaluates);
        scene.context.registry.insert(breakpoint);
        agent.say(&report).await;
        let mut lists = scene.context.registry.watch();
        let reported = lists.wait_for(|list| {
            let holder = list.find(id).and_then(|row| row.holder());
            holder.is_some_and(|holder| holder.evaluates == evaluates)
        });
        let row = timeout(TEST_TIMEOUT, reported)
            .await
            .expect("in time")
            .unwrap();
        let state = row.find(id).unwrap().state.word();
        assert_eq!(state == "parked", !evaluates, "{state}");
        drop(row);
        let ids = ("release", json!({"ids": [id]}));
        let released = posted(scene.address, "person", ids);
        let request = async {
            let request = agent.hear().await.unwrap();
            assert!(matches!(request, FromRelay::LetRun(_)), "{request:?}");
            tokio::time::pause();
        };
        let ((head, answer), ()) = tokio::join!(released, request);
        tokio::time::resume();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let result = &answer["results"][0];
        assert_eq!(result["released"], false, "{answer}");
        assert_has(&result.to_string(), expected);
    }
}

#[tokio::test]
async fn park_at_an_agent_keeps_its_deadline_after_a_snapshot() {
    let scene = scene().await;
    let links = tokio::spawn(crate::listener::run_links(Arc::clone(&scene.context)));
    let mut agent = scene.linked("agent", "a1", 1).await;
    let mut breakpoint = paused("square", 1);
    breakpoint.node_id = "a1".into();
    let id = breakpoint.id;
    let parked_until = unix_ms(SystemTime::now() + Duration::from_secs(600));
    let report = held_report(&breakpoint, parked_until, false);
    scene.context.registry.insert(breakpoint);
    agent.say(&report).await;
    let mut lists = scene.context.registry.watch();
    let is_parked = lists.wait_for(|list| list.find(id).unwrap().state.word() == "parked");
    drop(
        timeout(TEST_TIMEOUT, is_parked)
            .await
            .expect("in time")
            .unwrap(),
    );

    let id_text = id.to_string();
    let (head, refusal) = request_snapshot(scene.address, "other", &id_text).await;
    assert!(head.starts_with("HTTP/1.1 409"), "{head}");
    assert_has(&refusal.to_string(), "is parked by person");

    // A user without a free slot here cannot take the park over for a snapshot.
    let user = principal(&scene.context.auth, "person").await;
    let share = || scene.context.sessions.parks.share(&user, None).unwrap();
    let slots: Vec<_> = std::iter::repeat_with(share).take(SLOTS_PER_USER).collect();
    let (head, refusal) = request_snapshot(scene.address, "person", &id_text).await;
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    assert_has(&refusal.to_string(), "you have 8 parked sessions");
    drop(slots);

    let debugger = async {
        let open = agent.asked().await;
        assert_eq!(open.resume.as_deref(), Some("person"));
        let mut stream = scene.stream("agent", &open).await.unwrap();
        let first = r#"{"type":"resumed","owner":"person","keeps_ms":60000,"lasted_ms":0,"capabilities":"{}","attach":7}"#;
        stream.send(Message::text(first)).await.unwrap();
        let mut dap = Conversation::new(ByteStream::new(stream).with_texts(), 1 << 20);
        let stop = event("stopped", json!({"reason": "breakpoint", "threadId": 3}));
        dap.send(&stop).await.unwrap();
        let evaluation = read(&mut dap).await;
        assert_eq!(evaluation["command"], "evaluate", "{evaluation}");
        let threads = json!({"threads": [{"name": "MainThread", "frames": []}]}).to_string();
        let answer = json!({"seq": 9, "type": "response", "request_seq": evaluation["seq"], "success": true,
            "command": "evaluate", "body": {"result": threads, "variablesReference": 0}});
        dap.send(&answer).await.unwrap();
        dap
    };
    let ((head, answer), mut dap) = tokio::join!(
        request_snapshot(scene.address, "person", &id_text),
        debugger
    );
    assert!(head.starts_with("HTTP/1.1 200"), "{head} {answer}");
    assert_eq!(answer["threads"][0]["name"], "MainThread");
    // The park is held by this relay now, with its deadline.
    let list = scene.context.registry.snapshot();
    let holder = list.find(id).unwrap().holder().unwrap().clone();
    assert!(holder.is_here() && holder.client == "nvim", "{holder:?}");
    let deadline = unix_ms(holder.parked_until.unwrap().time);
    assert!(
        deadline.abs_diff(parked_until) < 1000,
        "{deadline} {parked_until}"
    );
    // The second snapshot resumes no other stream.
    let second_snapshot = async {
        let evaluation = read(&mut dap).await;
        assert_eq!(evaluation["command"], "evaluate", "{evaluation}");
    };
    tokio::select! {
        () = second_snapshot => {}
        request_snapshot = request_snapshot(scene.address, "person", &id_text) => panic!("{request_snapshot:?}"),
    }
    links.abort();
}
