//! Failed tasks: Ray's list, not the worker, decides to which job a task belongs and who may see it.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::inspecting::{answer_inspection, next_inspection};
use super::*;
use ray_relay_base::wire::tunnel::messages::{FailedTask, Failures, Inspection, PostMortem};

const POLICY: &str = r#"
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

/// Starts a head with one task in `state`: job 1, worker `beef`, node `a1`.
pub(super) async fn head_with_task(state: &'static str) -> SocketAddr {
    let task = json!({"task_id": "0a01000000", "name": "train", "func_or_class_name": "train", "state": state,
        "job_id": "01000000", "worker_id": "beef", "node_id": "a1", "worker_pid": 41});
    head_with_tasks(vec![task]).await
}

/// Starts a head that lists only these tasks.
pub(super) async fn head_with_tasks(tasks: Vec<Value>) -> SocketAddr {
    head_with_jobs(tasks, Arc::new(|| json!([]))).await
}

/// Starts a head that lists only these tasks, and the jobs that it has at each request.
pub(super) async fn head_with_jobs(
    tasks: Vec<Value>,
    jobs: Arc<dyn Fn() -> Value + Send + Sync>,
) -> SocketAddr {
    let tasks = json!({"total": tasks.len(), "num_after_truncation": tasks.len(), "result": tasks});
    let empty = json!({"total": 0, "num_after_truncation": 0, "result": []});
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (tasks, empty, jobs) = (tasks.clone(), empty.clone(), Arc::clone(&jobs));
            tokio::spawn(async move {
                let mut buffer = vec![0; 4096];
                let read = stream.read(&mut buffer).await.unwrap();
                let line = String::from_utf8_lossy(&buffer[..read]).into_owned();
                let list = match line.contains("/api/v0/tasks") {
                    true => tasks,
                    false => empty,
                };
                let body = match line.contains("/api/v0/") {
                    true => json!({"result": true, "msg": "", "data": {"result": list}}),
                    false => jobs(),
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
    let head = head_with_task("FAILED").await;
    scene_of(head, POLICY, |config| config.post_mortem.enabled = true).await
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
    /// Sends a request as `subject`, and returns the status and the JSON of the answer.
    pub(super) async fn request_api(
        &self,
        subject: &str,
        request: &str,
        body: &str,
    ) -> (u16, Value) {
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
        // The body may be chunked.
        let json = json
            .get(json.find('{').unwrap()..=json.rfind('}').unwrap())
            .unwrap();
        (status, serde_json::from_str(json).unwrap())
    }

    async fn failed_tasks(&self, subject: &str) -> Vec<Value> {
        let (status, mut answer) = self
            .request_api(subject, "GET /relay/v1/tasks?state=failed", "")
            .await;
        assert_eq!(status, 200, "{answer}");
        serde_json::from_value(answer["tasks"].take()).unwrap()
    }

    async fn inspect(&self, subject: &str, id: &str) -> (u16, Value) {
        let body = json!({ "failed": id }).to_string();
        self.request_api(subject, "POST /relay/v1/looks", &body)
            .await
    }
}

/// The stored stack of a task with a password in a variable and in its exception.
fn stored_stack() -> String {
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
    // According to Ray, the second task ran in another worker.
    let failed = timeout(TEST_TIMEOUT, failing.recv())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(failed.task.names.name.as_deref(), Some("train"));
    let tasks = scene.failed_tasks("ann").await;
    assert_eq!(tasks.len(), 2, "{tasks:?}");
    let tasks_of_ben = scene.failed_tasks("ben").await;
    let [tasks_of_ben] = &tasks_of_ben[..] else {
        panic!("{tasks_of_ben:?}")
    };
    for (key, value) in [
        ("name", "train"),
        ("state", "failed"),
        ("exception", "ValueError"),
        ("job_id", "01000000"),
        ("node_ip", "10.0.0.1"),
    ] {
        assert_eq!(tasks_of_ben[key], value, "{tasks_of_ben}");
    }
    assert_eq!(tasks_of_ben["location"]["line"], 3, "{tasks_of_ben}");
    assert!(scene.failed_tasks("cid").await.is_empty());
    let id = tasks_of_ben["id"].as_str().unwrap();

    // A user who may only list it is refused, and this is recorded. For all others it does not exist.
    assert_eq!(scene.inspect("dan", id).await.0, 403);
    assert_eq!(scene.inspect("cid", id).await.0, 404);
    assert_eq!(scene.inspect("ann", "00000000").await.0, 404);
    assert_eq!(
        scene
            .request_api(
                "ann",
                "POST /relay/v1/looks",
                &format!("{{\"failed\": \"{id}\", \"name\": \"x\"}}")
            )
            .await
            .0,
        400
    );
    let inspection = scene.inspect("ben", id);
    let agent_answer = async {
        let request = next_inspection(&mut agent).await;
        assert_eq!(request.what, Inspection::Failed);
        assert_eq!(request.failure.unwrap().0, [1; 5]);
        answer_inspection(&scene, &request, &stored_stack()).await;
    };
    let ((status, answer), ()) = tokio::join!(inspection, agent_answer);
    assert_eq!(
        agent.post_mortem,
        Some(PostMortem {
            most: 64,
            bytes: 16 << 20,
            keep_ms: 86_400_000
        })
    );
    assert_eq!(status, 200, "{answer}");
    let inspection = &answer["looks"][0];
    assert_eq!(inspection["tasks"][0]["id"], id);
    let thread = &inspection["look"]["threads"][0];
    assert_eq!(
        thread["frames"][0]["locals"][1]["value"], "7",
        "{inspection}"
    );
    assert_eq!(
        thread["raised"], "ValueError(‹str, 16 characters›)",
        "{inspection}"
    );
    assert!(!inspection.to_string().contains("hunter2"), "{inspection}");
    let lines = scene.record.lines();
    let entry = lines
        .iter()
        .find(|line| line.details.get("failed") == Some(&id.into()));
    assert_eq!(entry.unwrap().details["command"], "look");

    // A task is listed as long as its agent is linked and keeps it.
    let (tasks, trouble) = (vec![task(2, "dead")], None);
    agent
        .say(&FromAgent::Failed(Failures { tasks, trouble }))
        .await;
    let until_listed = async |count| {
        while scene.failed_tasks("ann").await.len() != count {
            tokio::task::yield_now().await;
        }
    };
    timeout(TEST_TIMEOUT, until_listed(1)).await.unwrap();
    drop(agent);
    timeout(TEST_TIMEOUT, until_listed(0)).await.unwrap();
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
        if let [only] = &scene.failed_tasks("ann").await[..] {
            break only["id"].as_str().unwrap().to_owned();
        }
    };
    scene.record.refuse_all(true);
    let (status, error) = scene.inspect("ann", &id).await;
    assert_eq!(status, 503, "{error}");
}
