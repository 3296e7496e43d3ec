//! Tasks that have failed: who hears of which, by Ray's word and not the worker's, and who sees what is kept.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::inspecting::{asked, told};
use super::*;
use ray_relay_base::wire::tunnel::messages::{FailedTask, Failures, Inspection, PostMortem};
use ray_relay_ray::ray::registry::Registry;

const PEOPLE: &str = r#"
[[rule]]
subjects = ["agent"]
nodes = ["a1"]
scopes = ["node"]

[[rule]]
subjects = ["ann"]
scopes = ["list", "view"]

[[rule]]
subjects = ["ben"]
jobs = ["01000000"]
scopes = ["list", "view"]

[[rule]]
subjects = ["cid"]
jobs = ["02000000"]
scopes = ["list", "view"]

[[rule]]
subjects = ["dan"]
scopes = ["list"]
"#;

/// Lists one task that is in `state`, of the job 1 in the worker `beef` of the node `a1`, and nothing else.
pub(super) async fn head(state: &'static str) -> SocketAddr {
    let task = json!({"task_id": "0a01000000", "name": "train", "func_or_class_name": "train", "state": state,
        "job_id": "01000000", "worker_id": "beef", "node_id": "a1", "worker_pid": 41});
    head_with(vec![task]).await
}

/// Lists these tasks, and nothing else.
pub(super) async fn head_with(tasks: Vec<Value>) -> SocketAddr {
    let tasks = json!({"total": tasks.len(), "num_after_truncation": tasks.len(), "result": tasks});
    let none = json!({"total": 0, "num_after_truncation": 0, "result": []});
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (tasks, none) = (tasks.clone(), none.clone());
            tokio::spawn(async move {
                let mut asked = vec![0; 4096];
                let read = stream.read(&mut asked).await.unwrap();
                let line = String::from_utf8_lossy(&asked[..read]).into_owned();
                let list = match line.contains("/api/v0/tasks") {
                    true => tasks,
                    false => none,
                };
                let body = match line.contains("/api/v0/") {
                    true => json!({"result": true, "msg": "", "data": {"result": list}}),
                    false => json!([]),
                };
                let body = body.to_string();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    address
}

async fn scene() -> Scene {
    let mut config = Config::default();
    config.clusters[0].ray_address = format!("http://{}", head("FAILED").await);
    config.post_mortem.enabled = true;
    let registry = Registry::new(&config.clusters, &config.registry).unwrap();
    let (audit, record) = spied(false);
    let context = Context::watching(registry, config, authenticator(PEOPLE), audit);
    Scene::serving(context, record).await
}

fn task(id: u8, worker_id: &str) -> FailedTask {
    FailedTask {
        id: Hex([id; 5]),
        node_id: "a1".into(),
        worker_id: worker_id.into(),
        task_id: "0a01000000".into(),
        pid: 41,
        ago_ms: 1000,
        exception: "ValueError".into(),
        file: "a.py".into(),
        line: 3,
        function: "train".into(),
    }
}

impl Scene {
    /// The answer of the API to `subject`: its status, and JSON.
    pub(super) async fn asks(&self, subject: &str, request: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let head = format!(
            "{request} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            token_of(subject),
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        timeout(TEST_TIMEOUT, stream.read_to_string(&mut answer))
            .await
            .unwrap()
            .unwrap();
        let status = answer[9..12].parse().unwrap();
        let json = answer.split_once("\r\n\r\n").unwrap().1;
        // In one piece or several.
        let json = json
            .get(json.find('{').unwrap()..=json.rfind('}').unwrap())
            .unwrap();
        (status, serde_json::from_str(json).unwrap())
    }

    async fn failed_for(&self, subject: &str) -> Vec<Value> {
        let (status, mut told) = self
            .asks(subject, "GET /relay/v1/tasks?state=failed", "")
            .await;
        assert_eq!(status, 200, "{told}");
        serde_json::from_value(told["tasks"].take()).unwrap()
    }

    async fn looks(&self, subject: &str, id: &str) -> (u16, Value) {
        let body = json!({ "failed": id }).to_string();
        self.asks(subject, "POST /relay/v1/looks", &body).await
    }
}

/// The stored stack of a task with a password in a variable and in its exception.
fn look() -> String {
    json!({"pid": 41, "source": "hook", "threads": [{"id": 1, "is_main": true, "raised": "ValueError('no good: hunter2')", "structure": "ValueError(‹str, 16 characters›)",
        "frames": [{"file": "/a.py", "line": 3, "function": "train", "locals": [
            {"name": "password", "type": "str", "value": "'hunter2'"},
            {"name": "step", "type": "int", "value": "7", "structure": {"name": "step", "type": "int", "value": "7"}}]}]}]})
    .to_string()
}

#[tokio::test]
async fn failed_task_belongs_to_its_job_and_is_masked() {
    let scene = scene().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let mut failing = scene.context.peers.agents.failing();
    let tasks = vec![task(1, "beef"), task(2, "dead")];
    let trouble = None;
    agent
        .say(&FromAgent::Failed(Failures { tasks, trouble }))
        .await;
    // Of the second one Ray says that it was another worker's.
    let named = timeout(TEST_TIMEOUT, failing.recv())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(named.task.names.name.as_deref(), Some("train"));
    let all = scene.failed_for("ann").await;
    assert_eq!(all.len(), 2, "{all:?}");
    let own = scene.failed_for("ben").await;
    let [own] = &own[..] else { panic!("{own:?}") };
    for (key, value) in [
        ("name", "train"),
        ("state", "failed"),
        ("exception", "ValueError"),
        ("job_id", "01000000"),
        ("node_ip", "10.0.0.1"),
    ] {
        assert_eq!(own[key], value, "{own}");
    }
    assert_eq!(own["location"]["line"], 3, "{own}");
    assert!(scene.failed_for("cid").await.is_empty());
    let id = own["id"].as_str().unwrap();

    // Who may only list it is refused, on record; for whom it does not exist it does not.
    assert_eq!(scene.looks("dan", id).await.0, 403);
    assert_eq!(scene.looks("cid", id).await.0, 404);
    assert_eq!(scene.looks("ann", "00000000").await.0, 404);
    assert_eq!(
        scene
            .asks(
                "ann",
                "POST /relay/v1/looks",
                &format!("{{\"failed\": \"{id}\", \"name\": \"x\"}}")
            )
            .await
            .0,
        400
    );
    let looking = scene.looks("ben", id);
    let telling = async {
        let asked = asked(&mut agent).await;
        assert_eq!(asked.what, Inspection::Failed);
        assert_eq!(asked.failure.unwrap().0, [1; 5]);
        told(&scene, &asked, &look()).await;
    };
    let ((status, seen), ()) = tokio::join!(looking, telling);
    assert_eq!(
        agent.post_mortem,
        Some(PostMortem {
            most: 64,
            bytes: 16 << 20,
            keep_ms: 86_400_000
        })
    );
    assert_eq!(status, 200, "{seen}");
    let seen = &seen["looks"][0];
    assert_eq!(seen["tasks"][0]["id"], id);
    let thread = &seen["look"]["threads"][0];
    assert_eq!(thread["frames"][0]["locals"][1]["value"], "7", "{seen}");
    assert_eq!(
        thread["raised"], "ValueError(‹str, 16 characters›)",
        "{seen}"
    );
    assert!(!seen.to_string().contains("hunter2"), "{seen}");
    let lines = scene.record.lines();
    let looked = lines
        .iter()
        .find(|line| line.details.get("failed") == Some(&id.into()));
    assert_eq!(looked.unwrap().details["command"], "look");

    // What the agent does not keep any more is not listed, nor is what it kept when it is gone.
    let (tasks, trouble) = (vec![task(2, "dead")], None);
    agent
        .say(&FromAgent::Failed(Failures { tasks, trouble }))
        .await;
    let listed = async |count| {
        while scene.failed_for("ann").await.len() != count {
            tokio::task::yield_now().await;
        }
    };
    timeout(TEST_TIMEOUT, listed(1)).await.unwrap();
    drop(agent);
    timeout(TEST_TIMEOUT, listed(0)).await.unwrap();
}

#[tokio::test]
async fn unrecorded_failure_is_not_fetched() {
    let scene = scene().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let (tasks, trouble) = (vec![task(1, "beef")], None);
    agent
        .say(&FromAgent::Failed(Failures { tasks, trouble }))
        .await;
    let id = loop {
        if let [only] = &scene.failed_for("ann").await[..] {
            break only["id"].as_str().unwrap().to_owned();
        }
    };
    scene.record.refuse_all(true);
    let (status, why) = scene.looks("ann", &id).await;
    assert_eq!(status, 503, "{why}");
}
