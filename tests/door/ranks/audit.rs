//! The audit events of group commands.

use std::path::Path;

use ray_relay_base::config::AuditSink;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;

use super::*;

/// Announces a group command, and returns the relay's answer.
async fn announce(relay: SocketAddr, token: &str, body: &Value) -> String {
    let body = body.to_string();
    let mut stream = dial(relay).await;
    let request = format!(
        "POST /relay/v1/group HTTP/1.1\r\nHost: {relay}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    rest(&mut stream).await
}

/// The lines of the record in the file `log`.
pub(super) fn recorded(log: &Path) -> Vec<Value> {
    let lines = std::fs::read_to_string(log).unwrap();
    let lines = lines.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns the events of group commands.
pub(super) fn groups(lines: &[Value]) -> Vec<&Value> {
    let all = lines.iter();
    all.filter(|line| line["details"]["command"] == "group")
        .collect()
}

/// Returns the users whose sessions began, and the group of each.
pub(super) fn began(lines: &[Value]) -> Vec<(&Value, &Value)> {
    let began = lines
        .iter()
        .filter(|line| line["action"] == "session_began");
    began
        .map(|line| (&line["subject"], &line["details"]["group"]))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn group_command_has_one_audit_line_that_its_sessions_name() {
    let _turn = TURN.lock().await;
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("audit.log");
    let keys = Keys::new();
    let relay = start(|config| {
        config.auth.keys = vec![keys.public()];
        config.audit.sink = AuditSink::File;
        config.audit.file = Some(log.clone());
    });
    let relay = relay.await;
    let address = relay.local_addr();
    let mut ids = Vec::new();
    for number in 0..4 {
        ids.push(
            rank(&relay, number, Reaction::Says("0.5"))
                .await
                .id
                .to_string(),
        );
    }
    let three = keys.token(|claims| {
        claims["scope"] = "list,debug".into();
        claims["ray_relay"] = json!({"tasks": ["rank-0", "rank-1", "rank-2"]});
    });
    // One that names another's task, or a group as no relay does, has neither in the log.
    let answer = announce(address, &three, &json!({"ids": [&ids[3]], "client": "x"})).await;
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    let both = json!({"ids": [&ids[3], &ids[0], "\n"], "client": "x\ny"});
    let answer = announce(address, &three, &both).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let forged =
        json!({"breakpoint": ids[0], "token": three, "group": "7k3f9m2qxd outcome=denied"});
    let (_session, refused) = attach(dial(address).await, &forged).await;
    assert_eq!(refused["success"], false, "{refused}");
    let words = ["exec", "--continue", "--all", "--", "p loss"];
    let (output, text) = ray_relay(address, Some(&three), &words).await;
    assert_eq!(output.status.code(), Some(0), "{text}");
    relay.abort().await;

    let lines = recorded(&log);
    let groups = groups(&lines);
    assert_eq!(groups.len(), 2, "{groups:?}");
    let (first, second) = (groups[1], groups[0]);
    assert_eq!(first["details"]["client"], "ray-relay exec");
    assert_eq!(first["details"]["members"], json!(ids[..3]));
    assert_eq!(second["details"]["members"], json!(ids[..1]));
    assert_eq!(second["details"]["client"], "x y");
    let id = second["request"].as_str().unwrap();
    assert!(answer.contains(&format!("\"group\":\"{id}\"")), "{answer}");
    let began = began(&lines);
    assert_eq!(began, [(&first["subject"], &first["request"]); 3]);
}
