//! Failed tasks on their way from the hook in a worker to a relay, through the socket in Ray's session folder.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use super::stand_ins::*;
use crate::door;
use crate::hook::tests::Hooked;
use crate::hook::tests::failing::RAISES;
use ray_relay_base::wire::tunnel::messages::{
    FailedTask, Failures, FromAgent, FromRelay, Hex, Inspect, Inspection, PostMortem, Refusal,
};
use ray_relay_ray::ray::look::Look;

const SOON: Duration = Duration::from_secs(20);

const WANTED: PostMortem = PostMortem {
    most: 4,
    bytes: 1 << 20,
    keep_ms: 600_000,
};

/// An agent on the node of `hooked`, and the link of its relay.
struct Scene {
    agent: Seeing,
    relay: Relay,
    link: Socket,
}

impl Scene {
    async fn of(hooked: &Hooked) -> Self {
        let head = head(Vec::new(), vec![node(NODE, "127.0.0.1")]).await;
        let relay = Relay::start(7).await;
        let agent = agent(head, &[&relay]);
        let socket = hooked.folder().join("raylet");
        agent.proc.parent(&format!(
            "/x/raylet\0--raylet_socket_name={}",
            socket.display()
        ));
        agent.proc.worker(hooked.pid());
        agent.tasks.spawn(door::keep(std::sync::Arc::clone(&agent)));
        let (link, _) = relay.link().await;
        Self { agent, relay, link }
    }

    async fn configure(&mut self, settings: PostMortem) {
        send(&mut self.link, &FromRelay::PostMortem(settings)).await;
    }

    async fn failures(&mut self) -> Failures {
        match timeout(SOON, next_message(&mut self.link)).await.unwrap() {
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
    let there = folder(hooked).join("failed");
    let waits = async {
        while !there.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, waits).await.unwrap();
}

const FAILS: &str = "
ready()
def train(step): return {}[step]
print(fails(lambda: train(7)), flush=True)
ready()
";

#[tokio::test(flavor = "multi_thread")]
async fn failure_of_a_worker_is_reported_and_fetched() {
    let Some(mut hooked) = Hooked::runs(&format!("{RAISES}{FAILS}")) else {
        return;
    };
    let mut scene = Scene::of(&hooked).await;
    scene.configure(WANTED).await;
    assert_eq!(scene.failures().await.tasks, []);
    open(&hooked).await;
    assert_eq!(hooked.goes_on(), "as Ray says");
    let failures = scene.failures().await;
    let [task] = &failures.tasks[..] else {
        panic!("{failures:?}");
    };
    assert_eq!((&*task.exception, &*task.function), ("KeyError", "train"));
    assert_eq!((task.pid, &*task.worker_id), (hooked.pid(), WORKER));
    let inspect = |what, failure| Inspect {
        stream: Hex([1; 8]),
        secret: Hex([2; 16]),
        node_id: NODE.into(),
        worker_id: WORKER.into(),
        pid: task.pid,
        what,
        patience_ms: 10_000,
        failure,
    };
    let request = inspect(Inspection::Failed, Some(task.id));
    send(&mut scene.link, &FromRelay::Inspect(request)).await;
    let (mut stream, _) = scene.relay.stream().await;
    let mut answer = String::new();
    timeout(SOON, stream.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    let look = Look::read(answer.as_bytes()).unwrap();
    assert_eq!(look.threads[0].raised.as_deref(), Some("KeyError(7)"));
    assert!(!answer.contains("instance"));
    // Another failure, or no failure.
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
    // No relay wants failures any more: they are dropped, and the socket is closed.
    scene.configure(PostMortem { most: 0, ..WANTED }).await;
    assert_eq!(scene.failures().await.tasks, []);
    let gone = async {
        while folder(&hooked).exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, gone).await.unwrap();
}

/// The job of a worker comes from Ray's data on its process and task, whatever the worker claims.
#[tokio::test]
async fn job_of_a_failed_worker_comes_from_ray() {
    let row = json!({"worker_id": WORKER, "is_alive": true, "node_id": NODE, "ip": "127.0.0.1", "pid": 41,
        "task_id": "0102", "job_id": "01000000"});
    let head = head(vec![row], vec![node(NODE, "127.0.0.1")]).await;
    let relay = Relay::start(7).await;
    let agent = agent(head, &[&relay]);
    let own = FailedTask {
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
        agent.verifier.job_of(&own).await.as_deref(),
        Some("01000000")
    );
    for claims in [
        FailedTask {
            pid: 42,
            ..own.clone()
        },
        FailedTask {
            worker_id: "dead".into(),
            ..own.clone()
        },
        FailedTask {
            task_id: "0203".into(),
            ..own.clone()
        },
        FailedTask {
            node_id: "bbbb".into(),
            ..own.clone()
        },
    ] {
        assert_eq!(agent.verifier.job_of(&claims).await, None, "{claims:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_from_a_non_worker_is_ignored() {
    let Some(mut hooked) = Hooked::runs(&format!("{RAISES}{FAILS}")) else {
        return;
    };
    let mut scene = Scene::of(&hooked).await;
    let status = scene
        .agent
        .proc
        .path()
        .join(format!("{}/status", hooked.pid()));
    // A process of another user with that number, and one that no raylet has started.
    for other in [
        "PPid:\t1\nUid:\t4711\t4711\t0\t0\n",
        "PPid:\t77\nUid:\t0\t0\t0\t0\n",
    ] {
        std::fs::write(&status, other).unwrap();
        scene.configure(WANTED).await;
        open(&hooked).await;
        let mut stream =
            std::os::unix::net::UnixStream::connect(folder(&hooked).join("failed")).unwrap();
        _ = std::io::Write::write_all(&mut stream, b"{\"worker_id\": \"beef\"}\n");
        drop(stream);
    }
    assert_eq!(hooked.goes_on(), "as Ray says");
    assert_eq!(scene.failures().await.tasks, []);
    assert!(
        timeout(Duration::from_millis(300), next_message(&mut scene.link))
            .await
            .is_err()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_does_not_use_a_foreign_failure_folder() {
    for is in ["a link", "open to others", "a file"] {
        let Some(hooked) = Hooked::runs("ready()") else {
            return;
        };
        let (folder, target) = (folder(&hooked), hooked.folder().join("target"));
        std::fs::create_dir(&target).unwrap();
        match is {
            "a link" => std::os::unix::fs::symlink(&target, &folder).unwrap(),
            "a file" => std::fs::write(&folder, "x").unwrap(),
            _ => {
                std::fs::create_dir(&folder).unwrap();
                std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
            }
        }
        let mut scene = Scene::of(&hooked).await;
        scene.configure(WANTED).await;
        let trouble = async {
            loop {
                if let Some(trouble) = scene.failures().await.trouble {
                    return trouble;
                }
            }
        };
        let trouble = timeout(SOON, trouble).await.unwrap();
        assert!(trouble.contains("folder"), "{is}: {trouble}");
        assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0, "{is}");
        if is == "open to others" {
            let mode = std::fs::metadata(&folder).unwrap().mode();
            assert_eq!(mode & 0o777, 0o777, "left as it is");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_socket_is_replaced_and_root_agent_serves_all() {
    let Some(hooked) = Hooked::runs("ready()") else {
        return;
    };
    std::fs::create_dir(folder(&hooked)).unwrap();
    drop(std::os::unix::net::UnixListener::bind(folder(&hooked).join("failed")).unwrap());
    let mut scene = Scene::of(&hooked).await;
    scene.configure(WANTED).await;
    let connects = async {
        while std::os::unix::net::UnixStream::connect(folder(&hooked).join("failed")).is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, connects).await.unwrap();
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().mode() & 0o777;
    let expected = match rustix::process::geteuid().is_root() {
        true => (0o711, 0o666),
        false => (0o700, 0o600),
    };
    let modes = || (mode(folder(&hooked)), mode(folder(&hooked).join("failed")));
    let settled = async {
        while modes() != expected {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, settled).await.unwrap();
}
