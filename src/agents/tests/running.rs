//! Tasks that run, looked at and attached to through the agent of their node.

use serde_json::json;

use super::failing::head;
use super::inspecting::{asked, told};
use super::*;
use crate::audit::EntryKind;
use crate::connection::summary::Summary;
use crate::ray::registry::Registry;
use crate::wire::dap::conversation::Conversation;
use crate::wire::tunnel::messages::Inspection;

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
    let mut config = Config::default();
    config.clusters[0].ray_address = format!("http://{}", head("RUNNING").await);
    let registry = Registry::new(&config.clusters, &config.registry).unwrap();
    let (audit, record) = spied(false);
    let context = Context::watching(registry, config, authenticator(PEOPLE), audit);
    Scene::serving(context, record).await
}

#[tokio::test]
async fn who_may_look_alone_sees_values_masked_and_who_has_the_hook() {
    let scene = scene().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let look = json!({"pid": 41, "source": "hook", "threads": [{"id": 1, "is_main": true,
        "frames": [{"file": "/a.py", "line": 3, "function": "train", "locals": [
            {"name": "password", "type": "str", "value": "'hunter2'"}, {"name": "step", "type": "int", "value": "7"}]}]}]});
    let looking = scene.asks("ann", "POST /relay/v1/looks", "{\"name\": \"train\"}");
    let telling = async {
        let asked = asked(&mut agent).await;
        assert_eq!(asked.what, Inspection::Look);
        told(&scene, &asked, &look.to_string()).await;
    };
    let ((status, seen), ()) = tokio::join!(looking, telling);
    assert_eq!(status, 200, "{seen}");
    let frame = &seen["looks"][0]["look"]["threads"][0]["frames"][0];
    assert_eq!(frame["locals"][1]["value"], "7", "{seen}");
    assert!(!seen.to_string().contains("hunter2"), "{seen}");

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

/// What an editor of ben's is told that wants to stop the task, which runs.
async fn attaches(scene: &Scene) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await;
    let (accepted, peer) = listener.accept().await.unwrap();
    let session = scene.context.sessions.table.open(&Summary::new(peer));
    let served = Arc::clone(&scene.context);
    let serving = async move {
        crate::dap::serve(&served, session, accepted, ConnectionInfo::plain(peer)).await;
    };
    let mut dap = Conversation::new(client.unwrap(), 1 << 20);
    let wants =
        json!({"task": "train", "running": true, "reason": "it hangs", "token": token_of("ben")});
    let asking = async {
        for (seq, command, arguments) in [
            (1, "initialize", json!({"adapterID": "debugpy"})),
            (2, "attach", json!({ "rayRelay": wants })),
        ] {
            let request =
                json!({"type": "request", "seq": seq, "command": command, "arguments": arguments});
            dap.send(&request).await.unwrap();
        }
        loop {
            let message = dap.read().await.unwrap();
            if message["command"] == "attach" {
                return message.to_string();
            }
        }
    };
    let asking = timeout(PATIENCE, asking);
    tokio::select! {
        answer = asking => answer.unwrap(),
        () = serving => panic!("the session is over without an answer"),
    }
}

#[tokio::test]
async fn no_debugger_is_opened_that_is_not_on_record() {
    let scene = scene().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    scene.record.refuse(EntryKind::Administration);
    let refusal = attaches(&scene).await;
    assert!(refusal.contains("audit log"), "{refusal}");
    // The agent was asked for nothing before: the next question is that of the next client.
    scene.record.refuse(EntryKind::Audit);
    let heard = async {
        let asked = asked(&mut agent).await;
        let of_ben = |line: &&crate::audit::testing::AuditLine| {
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
