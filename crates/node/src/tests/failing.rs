//! Tests the path of failed tasks from the hook in a worker to a relay, through the socket in Ray's session folder.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use super::stand_ins::*;
use crate::door;
use crate::hook::tests::Hooked;
use crate::hook::tests::failing::RAY_STAND_IN;
use ray_relay_base::wire::tunnel::messages::{
    FailedTask, Failures, FromAgent, FromRelay, Hex, Inspect, Inspection, PostMortem, Refusal,
};
use ray_relay_ray::ray::look::Look;

const STEP_TIMEOUT: Duration = Duration::from_secs(20);

const SETTINGS: PostMortem = PostMortem {
    most: 4,
    bytes: 1 << 20,
    keep_ms: 600_000,
};

/// An agent on the node of `hooked`, and the link of its relay.
struct Scene {
    agent: AgentWithProc,
    relay: Relay,
    link: Socket,
}

impl Scene {
    async fn new(hooked: &Hooked) -> Self {
        let head = head(Vec::new(), vec![node(NODE, "127.0.0.1")]).await;
        let relay = Relay::start(7).await;
        let agent = agent(head, &[&relay]);
        agent.proc.session(&hooked.folder());
        agent.proc.worker(hooked.pid());
        agent.tasks.spawn(door::keep(std::sync::Arc::clone(&agent)));
        let (link, _) = relay.link().await;
        Self { agent, relay, link }
    }

    async fn configure(&mut self, settings: PostMortem) {
        send(&mut self.link, &FromRelay::PostMortem(settings)).await;
    }

    async fn failures(&mut self) -> Failures {
        match timeout(STEP_TIMEOUT, next_message(&mut self.link))
            .await
            .unwrap()
        {
            FromAgent::Failed(failures) => failures,
            other => panic!("{other:?}"),
        }
    }
}

fn folder(hooked: &Hooked) -> PathBuf {
    hooked.folder().join(format!("ray-relay-node-{NODE}"))
}

/// Waits until the agent's socket is open.
async fn open(hooked: &Hooked) {
    let socket_path = folder(hooked).join("failed");
    let opened = async {
        while !socket_path.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(STEP_TIMEOUT, opened).await.unwrap();
}

const FAILING_PROGRAM: &str = "
ready()
def train(step): return {}[step]
print(fails(lambda: train(7)), flush=True)
ready()
";

#[tokio::test(flavor = "multi_thread")]
async fn failure_of_a_worker_is_reported_and_fetched() {
    let Some(mut hooked) = Hooked::start(&format!("{RAY_STAND_IN}{FAILING_PROGRAM}")) else {
        return;
    };
    let mut scene = Scene::new(&hooked).await;
    scene.configure(SETTINGS).await;
    assert_eq!(scene.failures().await.tasks, []);
    open(&hooked).await;
    assert_eq!(hooked.resume(), "as Ray says");
    let failures = scene.failures().await;
    let [task] = &failures.tasks[..] else {
        panic!("{failures:?}");
    };
    assert_eq!((&*task.exception, &*task.function), ("KeyError", "train"));
    assert_eq!((task.pid, &*task.worker_id), (hooked.pid(), WORKER));
    let inspect = |inspection, failure| Inspect {
        stream: Hex([1; 8]),
        secret: Hex([2; 16]),
        node_id: NODE.into(),
        worker_id: WORKER.into(),
        pid: task.pid,
        what: inspection,
        patience_ms: 10_000,
        failure,
    };
    let request = inspect(Inspection::Failed, Some(task.id));
    send(&mut scene.link, &FromRelay::Inspect(request)).await;
    let (mut stream, _) = scene.relay.stream().await;
    let mut answer = String::new();
    timeout(STEP_TIMEOUT, stream.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    let snapshot = Look::read(answer.as_bytes()).unwrap();
    assert_eq!(snapshot.threads[0].raised.as_deref(), Some("KeyError(7)"));
    assert!(!answer.contains("instance"));
    // A wrong or missing failure id is refused.
    for failure in [Some(Hex([9; 5])), None] {
        let request = inspect(Inspection::Failed, failure);
        send(&mut scene.link, &FromRelay::Inspect(request)).await;
        match next_message(&mut scene.link).await {
            FromAgent::Refused { kind, detail, .. } => {
                assert_eq!(kind, Refusal::Other);
                assert!(detail.contains("is gone"), "{detail}");
            }
            other => panic!("{other:?}"),
        }
    }
    // Once no relay requests failures, they are dropped and the socket is closed.
    scene
        .configure(PostMortem {
            most: 0,
            ..SETTINGS
        })
        .await;
    assert_eq!(scene.failures().await.tasks, []);
    let removed = async {
        while folder(&hooked).exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(STEP_TIMEOUT, removed).await.unwrap();
}

/// The job of a worker comes from Ray's data on its process and task, whatever the worker claims.
#[tokio::test]
async fn job_of_a_failed_worker_comes_from_ray() {
    let row = json!({"worker_id": WORKER, "is_alive": true, "node_id": NODE, "ip": "127.0.0.1", "pid": 41,
        "task_id": "0102", "job_id": "01000000"});
    let head = head(vec![row], vec![node(NODE, "127.0.0.1")]).await;
    let relay = Relay::start(7).await;
    let agent = agent(head, &[&relay]);
    let genuine = FailedTask {
        id: Hex([1; 5]),
        node_id: NODE.into(),
        worker_id: WORKER.into(),
        task_id: "0102".into(),
        pid: 41,
        ago_ms: 0,
        exception: "KeyError".into(),
        file: "a.py".into(),
        line: 3,
        function: "f".into(),
    };
    assert_eq!(
        agent.verifier.job_of(&genuine).await.as_deref(),
        Some("01000000")
    );
    for claimed in [
        FailedTask {
            pid: 42,
            ..genuine.clone()
        },
        FailedTask {
            worker_id: "dead".into(),
            ..genuine.clone()
        },
        FailedTask {
            task_id: "0203".into(),
            ..genuine.clone()
        },
        FailedTask {
            node_id: "bbbb".into(),
            ..genuine.clone()
        },
    ] {
        assert_eq!(agent.verifier.job_of(&claimed).await, None, "{claimed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_from_a_non_worker_is_ignored() {
    let Some(mut hooked) = Hooked::start(&format!("{RAY_STAND_IN}{FAILING_PROGRAM}")) else {
        return;
    };
    let mut scene = Scene::new(&hooked).await;
    let status = scene
        .agent
        .proc
        .path()
        .join(format!("{}/status", hooked.pid()));
    // The pid belongs to another user's process, or to one that no raylet has started.
    for other in [
        "PPid:\t1\nUid:\t4711\t4711\t0\t0\n",
        "PPid:\t77\nUid:\t0\t0\t0\t0\n",
    ] {
        std::fs::write(&status, other).unwrap();
        scene.configure(SETTINGS).await;
        open(&hooked).await;
        let mut stream =
            std::os::unix::net::UnixStream::connect(folder(&hooked).join("failed")).unwrap();
        _ = std::io::Write::write_all(&mut stream, b"{\"worker_id\": \"beef\"}\n");
        drop(stream);
    }
    assert_eq!(hooked.resume(), "as Ray says");
    assert_eq!(scene.failures().await.tasks, []);
    assert!(
        timeout(Duration::from_millis(300), next_message(&mut scene.link))
            .await
            .is_err()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_does_not_use_a_foreign_failure_folder() {
    for kind in ["a link", "open to others", "a file"] {
        let Some(hooked) = Hooked::start("ready()") else {
            return;
        };
        let (folder, target) = (folder(&hooked), hooked.folder().join("target"));
        std::fs::create_dir(&target).unwrap();
        match kind {
            "a link" => std::os::unix::fs::symlink(&target, &folder).unwrap(),
            "a file" => std::fs::write(&folder, "x").unwrap(),
            _ => {
                std::fs::create_dir(&folder).unwrap();
                std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
            }
        }
        let mut scene = Scene::new(&hooked).await;
        scene.configure(SETTINGS).await;
        let problem = async {
            loop {
                if let Some(problem) = scene.failures().await.trouble {
                    return problem;
                }
            }
        };
        let problem = timeout(STEP_TIMEOUT, problem).await.unwrap();
        assert!(problem.contains("folder"), "{kind}: {problem}");
        assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0, "{kind}");
        if kind == "open to others" {
            let mode = std::fs::metadata(&folder).unwrap().mode();
            assert_eq!(mode & 0o777, 0o777, "left as it is");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_socket_is_replaced_and_root_agent_serves_all() {
    let Some(hooked) = Hooked::start("ready()") else {
        return;
    };
    std::fs::create_dir(folder(&hooked)).unwrap();
    drop(std::os::unix::net::UnixListener::bind(folder(&hooked).join("failed")).unwrap());
    let mut scene = Scene::new(&hooked).await;
    scene.configure(SETTINGS).await;
    let connecting = async {
        while std::os::unix::net::UnixStream::connect(folder(&hooked).join("failed")).is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(STEP_TIMEOUT, connecting).await.unwrap();
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().mode() & 0o777;
    let expected = match rustix::process::geteuid().is_root() {
        true => (0o711, 0o666),
        false => (0o700, 0o600),
    };
    let modes = || (mode(folder(&hooked)), mode(folder(&hooked).join("failed")));
    let updated = async {
        while modes() != expected {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(STEP_TIMEOUT, updated).await.unwrap();
}
