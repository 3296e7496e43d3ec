//! A worker's debugger that has nothing of its own to say.

use ray_relay_base::wire::dap::conversation::Conversation;
use serde_json::{Value, json};
use tokio::net::TcpListener;

fn event(name: &str, body: &Value) -> Value {
    json!({"seq": 1, "type": "event", "event": name, "body": body})
}

/// Returns the state of a debugger with one thread and one variable.
fn value() -> Value {
    let frame = json!({"file": "/job.py", "line": 9, "function": "add", "source": "breakpoint()",
        "locals": {"x": "1"}, "types": {"x": "int"}});
    let threads = json!({"threads": [{"name": "MainThread", "frames": [frame]}]});
    json!({"result": threads.to_string(), "variablesReference": 0})
}

/// A debugger that answers everything, and stops when it is configured; the commands that it was sent.
pub(crate) async fn debugger(listener: TcpListener) -> Vec<String> {
    let (stream, _) = listener.accept().await.unwrap();
    let mut dap = Conversation::new(stream, 1 << 20);
    let output = json!({"category": "telemetry", "output": "ptvsd"});
    dap.send(&event("output", &output)).await.unwrap();
    let mut commands = Vec::new();
    // Whether the client has requested the source by reference.
    let mut by_reference = false;
    while let Ok(request) = dap.read().await {
        let command = request["command"].as_str().unwrap().to_owned();
        let expression = request["arguments"]["expression"].as_str();
        by_reference |= expression.is_some_and(|text| text.contains("_next_source_reference"));
        let body = match &*command {
            "evaluate" => value(),
            "stackTrace" => json!({"stackFrames": [{"id": 1, "name": "add", "line": 9, "column": 1,
                "source": {"path": "/nowhere/job.py", "sourceReference": u8::from(by_reference)}}]}),
            _ => json!({}),
        };
        let answer = json!({"seq": 1, "type": "response", "request_seq": request["seq"],
            "success": true, "command": command, "body": body});
        dap.send(&answer).await.unwrap();
        match &*command {
            "attach" => {
                let initialized = event("initialized", &Value::Null);
                dap.send(&initialized).await.unwrap();
            }
            "configurationDone" => {
                let body = json!({"reason": "breakpoint", "threadId": 1});
                dap.send(&event("stopped", &body)).await.unwrap();
            }
            _ => {}
        }
        commands.push(command);
    }
    commands
}
