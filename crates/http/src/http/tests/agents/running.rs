//! Tasks that run, looked at and attached to through the agent of their node.

use serde_json::{Value, json};

use super::failing::{head, head_with};
use super::inspecting::{asked, told};
use super::*;
use ray_relay_access::audit::EntryKind;
use ray_relay_access::connection::summary::Summary;
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_base::wire::tunnel::messages::Inspection;
use ray_relay_ray::ray::registry::Registry;
use ray_relay_ray::ray::testing::paused;

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
scopes = ["list", "view", "debug", "attach"]
"#;

async fn scene() -> Scene {
    scene_of(head("RUNNING").await).await
}

/// The same with this head.
async fn scene_of(head: SocketAddr) -> Scene {
    let mut config = Config::default();
    config.clusters[0].ray_address = format!("http://{head}");
    let registry = Registry::new(&config.clusters, &config.registry).unwrap();
    let (audit, record) = spied(false);
    let context = Context::watching(registry, config, authenticator(PEOPLE), audit);
    Scene::serving(context, record).await
}

#[tokio::test]
async fn viewer_sees_the_hook_status_but_no_text() {
    let scene = scene().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let look = json!({"pid": 41, "source": "hook", "threads": [{"id": 1, "is_main": true,
        "frames": [{"file": "/a.py", "line": 3, "function": "train", "locals": [
            {"name": "password", "type": "str", "value": "'hunter2'"},
            {"name": "step", "type": "int", "value": "7", "structure": {"name": "step", "type": "int", "value": "7"}},
            {"name": "batch", "type": "list", "value": "['hunter2']", "structure": {"name": "batch", "type": "list", "value": "list, 1 items"}}]}]}]});
    let looking = scene.asks("ann", "POST /relay/v1/looks", "{\"name\": \"train\"}");
    let telling = async {
        let asked = asked(&mut agent).await;
        assert_eq!(asked.what, Inspection::Look);
        told(&scene, &asked, &look.to_string()).await;
    };
    let ((status, seen), ()) = tokio::join!(looking, telling);
    assert_eq!(status, 200, "{seen}");
    let frame = &seen["looks"][0]["look"]["threads"][0]["frames"][0];
    // Of an older hook that does not say that it has hidden text, the type is shown.
    assert_eq!(frame["locals"][0]["value"], "str", "{seen}");
    assert_eq!(frame["locals"][1]["value"], "7", "{seen}");
    assert_eq!(frame["locals"][2]["value"], "list, 1 items", "{seen}");
    assert!(!seen.to_string().contains("hunter2"), "{seen}");
    assert!(!seen.to_string().contains("structure"), "{seen}");

    for (pid, hook) in [(41, true), (42, false)] {
        let listing = scene.asks("ann", "GET /relay/v1/tasks?hook=true", "");
        let telling = async {
            let asked = asked(&mut agent).await;
            assert_eq!(asked.what, Inspection::Hooked);
            told(&scene, &asked, &json!({ "pids": [pid] }).to_string()).await;
        };
        let ((_, listed), ()) = tokio::join!(listing, telling);
        assert_eq!(listed["tasks"][0]["hook"], hook, "{listed}");
    }
}

/// The answer to an editor of ben's that requests a stop of the running task.
async fn attaches(scene: &Scene) -> String {
    let wants =
        json!({"task": "train", "running": true, "reason": "it hangs", "token": token_of("ben")});
    let asks = [
        ("initialize", json!({"adapterID": "debugpy"})),
        ("attach", json!({ "rayRelay": wants })),
    ];
    let mut heard = debugs(scene, asks, |message| message["command"] == "attach").await;
    heard.pop().unwrap().to_string()
}

/// The messages that an editor receives for this request, up to and including the `last`.
async fn debugs<const N: usize>(
    scene: &Scene,
    asks: [(&str, Value); N],
    last: impl Fn(&Value) -> bool,
) -> Vec<Value> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await;
    let (accepted, peer) = listener.accept().await.unwrap();
    let session = scene.context.sessions.table.open(&Summary::new(peer));
    let served = Arc::clone(&scene.context);
    let serving = async move {
        ray_relay_dap::serve(served, session, accepted, ConnectionInfo::plain(peer)).await;
    };
    let mut dap = Conversation::new(client.unwrap(), 1 << 20);
    let asking = async {
        for (at, (command, arguments)) in asks.into_iter().enumerate() {
            let request = json!({"type": "request", "seq": at + 1, "command": command, "arguments": arguments});
            dap.send(&request).await.unwrap();
        }
        let mut heard = Vec::new();
        loop {
            heard.push(dap.read().await.unwrap());
            if heard.last().is_some_and(&last) {
                return heard;
            }
        }
    };
    let asking = timeout(TEST_TIMEOUT, asking);
    tokio::select! {
        answer = asking => answer.unwrap(),
        () = serving => panic!("the session is over without an answer"),
    }
}

#[tokio::test]
async fn unrecorded_debugger_is_not_opened() {
    let scene = scene().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    scene.record.refuse(EntryKind::Administration);
    let refusal = attaches(&scene).await;
    assert!(refusal.contains("audit log"), "{refusal}");
    // The agent was asked for nothing before: the next question is that of the next client.
    scene.record.refuse(EntryKind::Audit);
    let heard = async {
        let asked = asked(&mut agent).await;
        let of_ben = |line: &&ray_relay_access::audit::testing::AuditLine| {
            line.details.get("reason") == Some(&"it hangs".into())
        };
        (asked, scene.record.lines().iter().filter(of_ben).count())
    };
    tokio::select! {
        (asked, recorded) = heard => {
            assert_eq!(asked.what, Inspection::Open);
            assert_eq!(recorded, 1, "it is on record by then");
        }
        answer = attaches(&scene) => panic!("{answer}"),
    }
}

/// Of each task there would be a line, and the console of an editor would have nothing else. A cluster session has 32 at most.
#[tokio::test]
async fn tasks_skipped_for_the_same_reason_are_one_line() {
    let rank = |n: u8| {
        json!({"task_id": format!("{n:02x}01000000"), "name": "train", "func_or_class_name": "train", "state": "RUNNING",
            "job_id": "01000000", "worker_id": format!("{n:02x}"), "node_id": "a1", "worker_pid": 100 + u32::from(n)})
    };
    let scene = scene_of(head_with((0..64).map(rank).collect()).await).await;
    let mut stands = paused("train", 99);
    stands.names_mut().job_id = Some("01000000".to_owned());
    scene.context.registry.insert(stands);
    let editor = json!({"adapterID": "debugpy", "clientID": "vscode", "supportsStartDebuggingRequest": true});
    let wants = json!({"group": "job", "token": token_of("ben")});
    let asks = [
        ("initialize", editor),
        ("attach", json!({ "rayRelay": wants })),
        ("configurationDone", json!({})),
    ];
    let told = |message: &Value| {
        let text = message["body"]["output"].as_str()?;
        text.contains(" on (").then(|| text.to_owned())
    };
    let heard = debugs(&scene, asks, |message| told(message).is_some()).await;
    let text = told(heard.last().unwrap()).unwrap();
    let names: Vec<_> = (100..108).map(|pid| format!("train · pid {pid}")).collect();
    let expected = format!(
        "job 01000000: 31 of its tasks run on ({} and 23 more): no debugger can be opened in the task: no agent (`ray-relay node`) is linked for its node; it takes one, as `ray-relay deploy` puts on each node",
        names.join(", ")
    );
    assert!(text.contains(&expected), "{text}");
    let about = |message: &&Value| {
        message["body"]["output"]
            .to_string()
            .contains("train · pid")
    };
    assert_eq!(heard.iter().filter(about).count(), 1, "{heard:#?}");
    let runs_on = |message: &&Value| message["body"]["output"].to_string().contains("run on: ");
    let text = heard.iter().find(runs_on).unwrap().to_string();
    assert!(
        text.contains("33 of its tasks run on: a cluster session has"),
        "{text}"
    );
}
