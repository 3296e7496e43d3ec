//! Armed lines of a running job through the agents of its nodes.

mod editor;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::failing::head_with_jobs;
use super::*;
use ray_relay_base::wire::tunnel::messages::Arm;
use ray_relay_ray::ray::registry::BreakpointId;

const POLICY: &str = r#"
[[rule]]
subjects = ["agent"]
nodes = ["a1"]
scopes = ["node"]

[[rule]]
subjects = ["ann", "cyd", "dan"]
scopes = ["list", "view"]

[[rule]]
subjects = ["ben", "eve"]
scopes = ["list", "view", "debug", "attach"]

[[rule]]
subjects = ["cyd"]
scopes = ["debug"]

[[rule]]
subjects = ["dan"]
tasks = ["train"]
scopes = ["debug", "attach"]

[[rule]]
subjects = ["eve"]
scopes = ["debug"]
record = true

[[rule]]
subjects = ["fay"]
scopes = ["list", "view", "debug", "attach"]
session_limit = "1s"

[[rule]]
subjects = ["gus"]
scopes = ["list", "view", "debug", "attach"]

[[rule]]
subjects = ["gus"]
tasks = ["train"]
scopes = ["debug"]
record = true
"#;

const BODY: &str = r#"{"job": "s1", "file": "train.py", "line": 26, "log": "loss={loss}", "condition": "loss > 1", "ranks": [0, 3]}"#;

/// A relay whose head lists the running job `s1` until the flag is set.
async fn scene() -> (Scene, Arc<AtomicBool>) {
    let ended = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ended);
    let jobs = move || {
        let status = match flag.load(Ordering::Relaxed) {
            true => "SUCCEEDED",
            false => "RUNNING",
        };
        json!([{"job_id": "01000000", "submission_id": "s1", "status": status, "type": "SUBMISSION"}])
    };
    let task = json!({"task_id": "0a01000000", "name": "train", "func_or_class_name": "train", "state": "RUNNING",
        "job_id": "01000000", "worker_id": "beef", "node_id": "a1", "worker_pid": 41});
    let head = head_with_jobs(vec![task], Arc::new(jobs)).await;
    (scene_of(head, POLICY, |_| {}).await, ended)
}

/// The open answer to a request for a trace.
struct Trace {
    stream: TcpStream,
    text: String,
}

impl Trace {
    async fn start(scene: &Scene, subject: &str) -> Self {
        Self::start_with(scene, subject, BODY).await
    }

    async fn start_with(scene: &Scene, subject: &str, body: &str) -> Self {
        let mut stream = TcpStream::connect(scene.address).await.unwrap();
        let token = token_of(subject);
        let request = format!(
            "POST /relay/v1/arm HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            scene.address,
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let text = String::new();
        Self { stream, text }
    }

    /// Reads until the answer contains `expected`.
    async fn until(&mut self, expected: &str) {
        let mut buffer = vec![0; 4096];
        while !self.text.contains(expected) {
            let read = timeout(TEST_TIMEOUT, self.stream.read(&mut buffer)).await;
            let read = read.unwrap_or_else(|_| panic!("no {expected} in {}", self.text));
            let read = read.unwrap();
            assert_ne!(read, 0, "no {expected} in {}", self.text);
            self.text += &String::from_utf8_lossy(&buffer[..read]);
        }
    }
}

async fn next_arm(agent: &mut StandIn) -> Arm {
    match agent.hear().await {
        Ok(FromRelay::Arm(request)) => request,
        other => panic!("{other:?}"),
    }
}

/// Opens the stream that `request` asks for, as the agent.
async fn lease(scene: &Scene, request: &Arm) -> WebSocketStream<TcpStream> {
    let stream = scene.stream_for("agent", &request.stream, &request.secret);
    let mut stream = stream.await.unwrap();
    dialled(&mut stream).await;
    stream
}

async fn report(stream: &mut WebSocketStream<TcpStream>, report: Value) {
    let line = json!({ "pid": 41, "worker_id": "beef", "report": report });
    let line = Bytes::from(format!("{line}\n"));
    stream.send(Message::Binary(line)).await.unwrap();
}

/// The commands on record, with the number of hits, or those of each line.
fn commands(scene: &Scene) -> Vec<(String, Value)> {
    let lines = scene.record.lines();
    let commands = lines.iter().filter_map(|line| {
        let command = line.details.get("command")?.as_str()?.to_owned();
        let of_lines = || -> Option<Value> {
            let lines = line.details.get("lines")?.as_array()?;
            Some(
                lines
                    .iter()
                    .filter_map(|line| line.get("hits").cloned())
                    .collect(),
            )
        };
        let hits = line.details.get("hits").cloned().or_else(of_lines);
        Some((command, hits.unwrap_or_default()))
    });
    commands.collect()
}

#[tokio::test]
async fn messages_reach_the_client_and_its_end_disarms_the_line() {
    let (scene, _) = scene().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let mut trace = Trace::start(&scene, "ben").await;
    let request = next_arm(&mut agent).await;
    assert_eq!((&*request.node_id, &*request.job_id), ("a1", "01000000"));
    let [line] = &*request.lines else {
        panic!("{request:?}");
    };
    let log = line.log.as_deref();
    assert_eq!(
        (&*line.file, line.line, log),
        ("train.py", 26, Some("loss={loss}"))
    );
    assert_eq!(line.condition.as_deref(), Some("loss > 1"));
    assert_eq!(line.ranks, Some(vec![0, 3]));
    let mut stream = lease(&scene, &request).await;
    report(
        &mut stream,
        json!({"type": "status", "lines": [{"id": 0, "state": "armed", "at": [27]}]}),
    )
    .await;
    trace.until(r#""state":"armed""#).await;
    assert!(
        trace.text.starts_with("HTTP/1.1 200 OK\r\n"),
        "{}",
        trace.text
    );
    let hit =
        json!({"type": "hit", "id": 0, "time_ms": 7, "rank": 3, "text": "loss=1.5\nevent: ended"});
    report(&mut stream, hit).await;
    trace.until(r#""text":"loss=1.5\nevent: ended""#).await;
    assert!(trace.text.contains("event: hit\n") && trace.text.contains(r#""node":"10.0.0.1""#));
    drop(trace);
    assert_eq!(bytes(&mut stream).await, None, "the lease is open");
    let recorded = async {
        while commands(&scene).len() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let recorded = timeout(TEST_TIMEOUT, recorded).await;
    assert!(recorded.is_ok(), "{:?}", commands(&scene));
    let expected = [
        ("arm".to_owned(), Value::Null),
        ("disarm".to_owned(), json!(1)),
    ];
    assert_eq!(commands(&scene), expected);
    let text = format!("{:?}", scene.record.lines());
    assert!(text.contains("loss > 1") && !text.contains("1.5"), "{text}");
}

#[tokio::test]
async fn arming_takes_every_permission_on_the_whole_job() {
    let (scene, _) = scene().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    for (subject, reason) in [
        ("ann", "`debug` on some task"),
        ("cyd", "`attach` on the whole job 01000000"),
        ("dan", "`debug` on the whole job 01000000"),
        ("eve", "without `record`"),
        // By a rule for some tasks, which may reach the line as any other.
        ("gus", "without `record`"),
    ] {
        let mut trace = Trace::start(&scene, subject).await;
        trace.until(reason).await;
        assert!(
            trace.text.starts_with("HTTP/1.1 403 "),
            "{subject}: {}",
            trace.text
        );
    }
    assert!(commands(&scene).is_empty());
    // The next request that the agent hears is of one who may.
    let _trace = Trace::start(&scene, "ben").await;
    next_arm(&mut agent).await;
    assert_eq!(commands(&scene).len(), 1);
}

#[tokio::test]
async fn trace_ends_with_its_job() {
    let (scene, ended) = scene().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let mut trace = Trace::start(&scene, "ben").await;
    let request = next_arm(&mut agent).await;
    let mut stream = lease(&scene, &request).await;
    ended.store(true, Ordering::Relaxed);
    trace.until(r#""reason":"job""#).await;
    assert_eq!(bytes(&mut stream).await, None, "the lease is open");
}

/// A head that was restarted counts its jobs anew.
#[tokio::test]
async fn trace_ends_when_its_job_id_is_that_of_another_job() {
    let name = Arc::new(Mutex::new("s1"));
    let listed = Arc::clone(&name);
    let jobs = move || {
        let submission = *listed.lock().unwrap();
        json!([{"job_id": "01000000", "submission_id": submission, "status": "RUNNING", "type": "SUBMISSION"}])
    };
    let head = head_with_jobs(Vec::new(), Arc::new(jobs)).await;
    let scene = scene_of(head, POLICY, |_| {}).await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let mut trace = Trace::start(&scene, "ben").await;
    let request = next_arm(&mut agent).await;
    let mut stream = lease(&scene, &request).await;
    *name.lock().unwrap() = "s2";
    trace.until(r#""reason":"job""#).await;
    assert_eq!(bytes(&mut stream).await, None, "the lease is open");
}

#[tokio::test]
async fn rule_limits_how_long_a_trace_lasts() {
    let (scene, _) = scene().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let mut trace = Trace::start(&scene, "fay").await;
    let request = next_arm(&mut agent).await;
    let mut stream = lease(&scene, &request).await;
    trace.until(r#""reason":"limit""#).await;
    assert_eq!(bytes(&mut stream).await, None, "the lease is open");
}

#[tokio::test]
async fn node_without_an_agent_is_reported_once_and_armed_later() {
    let (scene, _) = scene().await;
    let mut trace = Trace::start(&scene, "ben").await;
    trace.until(r#""node":"10.0.0.1""#).await;
    assert!(trace.text.contains("ray-relay node"), "{}", trace.text);
    let mut agent = scene.linked("agent", "a1", 1).await;
    let request = next_arm(&mut agent).await;
    let mut stream = lease(&scene, &request).await;
    report(&mut stream, json!({"type": "gone"})).await;
    trace.until("event: gone").await;
    let of_node = |text: &str| text.matches(r#""node":"10.0.0.1""#).count();
    assert_eq!(of_node(&trace.text), 2, "{}", trace.text);
}

#[tokio::test]
async fn line_without_a_message_stops_tasks_and_is_ended_like_a_session() {
    let (scene, _) = scene().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let body = r#"{"job": "s1", "file": "src/train.py", "line": 26}"#;
    let mut line = Trace::start_with(&scene, "ben", body).await;
    let request = next_arm(&mut agent).await;
    assert_eq!(request.lines[0].log, None);
    let mut stream = lease(&scene, &request).await;
    report(&mut stream, json!({"type": "stop", "id": 0, "rank": 3})).await;
    let id = BreakpointId::derive("default", "beef");
    line.until(&format!(r#""rank":3,"breakpoint":"{id}""#))
        .await;
    assert!(line.text.contains("event: stop\n"), "{}", line.text);
    let listed = scene.request_api("ben", "GET /relay/v1/sessions", "");
    let (_, answer) = listed.await;
    let row = &answer["sessions"][0];
    assert_eq!(
        (&row["protocol"], &row["subject"]),
        (&json!("lines"), &json!("ben"))
    );
    let armed = json!({"jobs": ["s1"], "lines": ["train.py:26"], "hits": 1});
    assert_eq!(row["armed"], armed);
    let (_, of_eve) = scene.request_api("eve", "GET /relay/v1/sessions", "").await;
    assert_eq!(of_eve["sessions"], json!([]), "a session of another user");
    let end = json!({"id": row["id"]}).to_string();
    let path = "POST /relay/v1/sessions/end";
    assert_eq!(scene.request_api("eve", path, &end).await.0, 404);
    assert_eq!(scene.request_api("ben", path, &end).await.0, 200);
    line.until(r#""reason":"requested""#).await;
    assert_eq!(bytes(&mut stream).await, None, "the lease is open");
}
