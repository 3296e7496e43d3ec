//! Running tasks: inspecting and attaching through the agent of their node.

use serde_json::{Value, json};

use super::failing::{head_with_task, head_with_tasks};
use super::inspecting::{answer_inspection, next_inspection};
use super::*;
use ray_relay_access::audit::EntryKind;
use ray_relay_access::connection::summary::Summary;
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_base::wire::tunnel::messages::Inspection;
use ray_relay_ray::ray::testing::paused;

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
scopes = ["list", "view", "debug", "attach"]
"#;

async fn scene() -> Scene {
    scene_with_head(head_with_task("RUNNING").await).await
}

/// Creates a scene with this head.
async fn scene_with_head(head: SocketAddr) -> Scene {
    scene_of(head, POLICY, |_| {}).await
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
    let inspection = scene.request_api("ann", "POST /relay/v1/looks", "{\"name\": \"train\"}");
    let agent_answer = async {
        let request = next_inspection(&mut agent).await;
        assert_eq!(request.what, Inspection::Look);
        answer_inspection(&scene, &request, &look.to_string()).await;
    };
    let ((status, answer), ()) = tokio::join!(inspection, agent_answer);
    assert_eq!(status, 200, "{answer}");
    let frame = &answer["looks"][0]["look"]["threads"][0]["frames"][0];
    // An older hook does not mark hidden text, so only the type is shown.
    assert_eq!(frame["locals"][0]["value"], "str", "{answer}");
    assert_eq!(frame["locals"][1]["value"], "7", "{answer}");
    assert_eq!(frame["locals"][2]["value"], "list, 1 items", "{answer}");
    assert!(!answer.to_string().contains("hunter2"), "{answer}");
    assert!(!answer.to_string().contains("structure"), "{answer}");

    for (pid, hook) in [(41, true), (42, false)] {
        let listing = scene.request_api("ann", "GET /relay/v1/tasks?hook=true", "");
        let agent_answer = async {
            let request = next_inspection(&mut agent).await;
            assert_eq!(request.what, Inspection::Hooked);
            let answer = json!({ "pids": [pid], "pytorch_debug": [pid] });
            answer_inspection(&scene, &request, &answer.to_string()).await;
        };
        let ((_, listed), ()) = tokio::join!(listing, agent_answer);
        let row = &listed["tasks"][0];
        assert_eq!(row["hook"], hook, "{listed}");
        let port = row["pytorch_debug_port"].as_u64();
        assert_eq!(port, hook.then_some(25999), "{listed}");
    }
}

/// Requests a stop of the running task in an editor of `ben`, and returns the answer.
async fn attach_answer(scene: &Scene) -> String {
    let block =
        json!({"task": "train", "running": true, "reason": "it hangs", "token": token_of("ben")});
    let requests = [
        ("initialize", json!({"adapterID": "debugpy"})),
        ("attach", json!({ "rayRelay": block })),
    ];
    let mut messages =
        messages_until(scene, requests, |message| message["command"] == "attach").await;
    messages.pop().unwrap().to_string()
}

/// Sends `requests` as an editor, and returns the messages up to the first that `is_last` accepts.
async fn messages_until<const N: usize>(
    scene: &Scene,
    requests: [(&str, Value); N],
    is_last: impl Fn(&Value) -> bool,
) -> Vec<Value> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await;
    let (accepted, peer) = listener.accept().await.unwrap();
    let session = scene.context.sessions.table.open(&Summary::new(peer));
    let context = Arc::clone(&scene.context);
    let serving = async move {
        ray_relay_dap::serve(context, session, accepted, ConnectionInfo::plain(peer)).await;
    };
    let mut dap = Conversation::new(client.unwrap(), 1 << 20);
    let exchange = async {
        for (index, (command, arguments)) in requests.into_iter().enumerate() {
            let request = json!({"type": "request", "seq": index + 1, "command": command, "arguments": arguments});
            dap.send(&request).await.unwrap();
        }
        let mut messages = Vec::new();
        loop {
            messages.push(dap.read().await.unwrap());
            if messages.last().is_some_and(&is_last) {
                return messages;
            }
        }
    };
    let exchange = timeout(TEST_TIMEOUT, exchange);
    tokio::select! {
        answer = exchange => answer.unwrap(),
        () = serving => panic!("the session is over without an answer"),
    }
}

#[tokio::test]
async fn unrecorded_debugger_is_not_opened() {
    let scene = scene().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    scene.record.refuse(EntryKind::Administration);
    let refusal = attach_answer(&scene).await;
    assert!(refusal.contains("audit log"), "{refusal}");
    // The refused attach sent nothing to the agent: its next request comes from the next client.
    scene.record.refuse(EntryKind::Audit);
    let opened = async {
        let request = next_inspection(&mut agent).await;
        let of_ben = |line: &&ray_relay_access::audit::testing::AuditLine| {
            line.details.get("reason") == Some(&"it hangs".into())
        };
        (request, scene.record.lines().iter().filter(of_ben).count())
    };
    tokio::select! {
        (request, recorded) = opened => {
            assert_eq!(request.what, Inspection::Open);
            assert_eq!(recorded, 1, "it is on record by then");
        }
        answer = attach_answer(&scene) => panic!("{answer}"),
    }
}

/// One line for each task would flood the editor's console. A cluster session has at most 32 tasks.
#[tokio::test]
async fn tasks_skipped_for_the_same_reason_are_one_line() {
    let rank = |n: u8| {
        json!({"task_id": format!("{n:02x}01000000"), "name": "train", "func_or_class_name": "train", "state": "RUNNING",
            "job_id": "01000000", "worker_id": format!("{n:02x}"), "node_id": "a1", "worker_pid": 100 + u32::from(n)})
    };
    let scene = scene_with_head(head_with_tasks((0..64).map(rank).collect()).await).await;
    let mut paused_task = paused("train", 99);
    paused_task.names_mut().job_id = Some("01000000".to_owned());
    scene.context.registry.insert(paused_task);
    let editor = json!({"adapterID": "debugpy", "clientID": "vscode", "supportsStartDebuggingRequest": true});
    let block = json!({"group": "job", "token": token_of("ben")});
    let requests = [
        ("initialize", editor),
        ("attach", json!({ "rayRelay": block })),
        ("configurationDone", json!({})),
    ];
    let refused_output = |message: &Value| {
        let text = message["body"]["output"].as_str()?;
        text.contains(" on (").then(|| text.to_owned())
    };
    let messages = messages_until(&scene, requests, |message| {
        refused_output(message).is_some()
    })
    .await;
    let text = refused_output(messages.last().unwrap()).unwrap();
    let names: Vec<_> = (100..108).map(|pid| format!("train · pid {pid}")).collect();
    let expected = format!(
        "job 01000000: 31 of its tasks run on ({} and 23 more): no debugger can be opened in the task: no agent (`ray-relay node`) is linked for its node; it takes one, as `ray-relay deploy` puts on each node",
        names.join(", ")
    );
    assert!(text.contains(&expected), "{text}");
    let is_refusal = |message: &&Value| {
        message["body"]["output"]
            .to_string()
            .contains("train · pid")
    };
    assert_eq!(
        messages.iter().filter(is_refusal).count(),
        1,
        "{messages:#?}"
    );
    let is_limit = |message: &&Value| message["body"]["output"].to_string().contains("run on: ");
    let text = messages.iter().find(is_limit).unwrap().to_string();
    assert!(
        text.contains("33 of its tasks run on: a cluster session has"),
        "{text}"
    );
}
