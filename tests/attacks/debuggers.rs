//! Attacks on the default memory limit by workers' debuggers that send far too much, through `view`, prompts and
//! snapshots. No task resumes because of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ray_relay_base::wire::dap::conversation::Conversation;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::head;
use super::relay::*;
use super::shipped::Shipped;

/// Workers, and clients of each.
const WORKERS: usize = 4;

/// More than one user may use of the default limit.
const LONG_MESSAGE_BYTES: usize = 40 << 20;

/// Less than what a prompt reads at most.
const PARTIAL_MESSAGE_BYTES: usize = 7 << 20;

/// The behaviour of a debugger.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    /// As little as it can.
    Well,
    /// An answer that is far too long, when it is asked for the stack.
    Long,
    /// Events that are long, or have many values, when it is asked for the stack.
    Flood,
    /// Millions of threads, when it is asked for a snapshot.
    Threads,
}

/// Debuggers, and what has become of them.
struct Debuggers {
    /// The number of debuggers that have sent everything.
    done: Semaphore,
    /// The number of tasks that were resumed.
    released: AtomicUsize,
}

impl Debuggers {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            done: Semaphore::new(0),
            released: AtomicUsize::new(0),
        })
    }

    async fn until_done(&self) {
        let all = self.done.acquire_many(WORKERS as u32);
        let all = timeout(6 * TEST_TIMEOUT, all).await;
        all.expect("they have said it in time").unwrap().forget();
    }

    fn none_released(&self) {
        assert_eq!(self.released.load(Ordering::Relaxed), 0);
    }
}

/// Starts one; its port.
async fn debugger(manner: Manner, all: &Arc<Debuggers>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let all = Arc::clone(all);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let all = Arc::clone(&all);
            tokio::spawn(async move { serve(stream, manner, &all).await });
        }
    });
    port
}

fn event(name: &str, body: &Value) -> Value {
    json!({"seq": 1, "type": "event", "event": name, "body": body})
}

async fn serve(stream: TcpStream, manner: Manner, all: &Debuggers) -> Option<()> {
    let mut dap = Conversation::new(stream, 1 << 20);
    let telemetry = json!({"category": "telemetry", "output": "ptvsd"});
    dap.send(&event("output", &telemetry)).await.ok()?;
    let mut configured = false;
    loop {
        let request = dap.read().await.ok()?;
        let command = request["command"].as_str().unwrap().to_owned();
        let mut answer = json!({"seq": 1, "type": "response", "request_seq": request["seq"],
            "success": true, "command": command, "body": {}});
        match (&*command, manner) {
            ("stackTrace", Manner::Long) => {
                // The command comes last, so that the whole message has to be buffered.
                let rest = answer.to_string();
                let body = format!(
                    "{{\"a\": \"{}\", {}",
                    "x".repeat(LONG_MESSAGE_BYTES),
                    &rest[1..]
                );
                let sent = dap.send_body(body.as_bytes()).await;
                all.done.add_permits(1);
                sent.ok()?;
                continue;
            }
            ("stackTrace", Manner::Flood) => {
                let text = format!("\"{}\"", "x".repeat(PARTIAL_MESSAGE_BYTES));
                let values = format!("[{}0]", "0,".repeat(PARTIAL_MESSAGE_BYTES / 2));
                for (n, body) in [&text, &values].into_iter().cycle().take(20).enumerate() {
                    let name = ["thread", "process", "stopped"][n % 3];
                    let body =
                        format!("{{\"type\": \"event\", \"event\": \"{name}\", \"body\": {body}}}");
                    if dap.send_body(body.as_bytes()).await.is_err() {
                        break;
                    }
                }
                all.done.add_permits(1);
            }
            ("evaluate", Manner::Threads) => {
                let threads = format!(
                    "{{\"threads\": [{}[]]}}",
                    "[],".repeat(PARTIAL_MESSAGE_BYTES / 3)
                );
                answer["body"] = json!({ "result": threads });
                all.done.add_permits(1);
            }
            ("disconnect", _) if configured => _ = all.released.fetch_add(1, Ordering::Relaxed),
            _ => {}
        }
        dap.send(&answer).await.ok()?;
        match &*command {
            "attach" => {
                let initialized = event("initialized", &Value::Null);
                dap.send(&initialized).await.ok()?;
            }
            "configurationDone" => {
                configured = true;
                let body = json!({"reason": "breakpoint", "threadId": 1});
                dap.send(&event("stopped", &body)).await.ok()?;
            }
            _ => {}
        }
    }
}

/// Starts a relay with workers whose debuggers behave like this, and returns their ids.
async fn paused(manner: Manner, all: &Arc<Debuggers>) -> (Shipped, Vec<String>) {
    let mut ports = Vec::new();
    for _ in 0..WORKERS {
        ports.push(debugger(manner, all).await);
    }
    let shipped = Shipped::start(&[("default", head::start_with(&ports).await)]).await;
    let token = shipped.relay.token("list");
    let listed = async {
        loop {
            let list = shipped.relay.json("/relay/v1/breakpoints", &token).await;
            let rows = list["breakpoints"].as_array().unwrap();
            if rows.len() == WORKERS {
                let id = |row: &Value| row["id"].as_str().unwrap().to_owned();
                return rows.iter().map(id).collect();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let ids = timeout(TEST_TIMEOUT, listed)
        .await
        .expect("they are listed");
    (shipped, ids)
}

/// Reads until a message matches.
async fn until<S>(dap: &mut Conversation<S>, is_expected: impl Fn(&Value) -> bool) -> Value
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let found = async {
        loop {
            let message = dap.read().await.unwrap();
            if is_expected(&message) {
                return message;
            }
        }
    };
    timeout(2 * TEST_TIMEOUT, found).await.expect("in time")
}

/// A viewer attached to the paused task `id`.
async fn looking(relay: &Relay, id: &str, token: &str) -> Conversation<TcpStream> {
    let stream = relay.dial(LOCALHOST).await.unwrap();
    let mut dap = Conversation::new(stream, 1 << 20);
    let selector = json!({"breakpoint": id, "token": token});
    let steps = [
        ("initialize", json!({"clientID": "nvim"}), "response"),
        ("attach", json!({"rayRelay": selector}), "initialized"),
        ("configurationDone", json!({}), "stopped"),
    ];
    for (seq, (command, arguments, comes)) in (1..).zip(steps) {
        let request =
            json!({"seq": seq, "type": "request", "command": command, "arguments": arguments});
        dap.send(&request).await.unwrap();
        until(&mut dap, |m| {
            assert!(m["success"] != false, "{m}");
            m["event"] == comes || m["type"] == comes
        })
        .await;
    }
    dap
}

/// Expects the notice that memory is exhausted and the task stays paused.
async fn expect_refusal_notice<S>(dap: &mut Conversation<S>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let is_notice = |m: &Value| {
        let text = m["body"]["output"].as_str().unwrap_or_default();
        text.contains("memory") && text.contains("the task stays parked")
    };
    until(dap, is_notice).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn huge_viewer_messages_end_no_relay_and_resume_no_task() {
    let all = Debuggers::new();
    let (shipped, ids) = paused(Manner::Well, &all).await;
    let claims = json!({"sub": "viewer", "scope": "list,view"});
    let token = shipped.relay.token_with(&claims);
    let (mut sessions, mut writing) = (Vec::new(), JoinSet::new());
    for id in &ids {
        let (stream, rest) = looking(&shipped.relay, id, &token).await.into_parts();
        let (read, mut write) = stream.into_split();
        sessions.push(Conversation::resume(
            tokio::io::join(read, tokio::io::sink()),
            &rest,
            1 << 20,
        ));
        // 67 MB, of which the last byte never comes.
        writing.spawn(async move {
            let begins = b"Content-Length: 67000000\r\n\r\n{\"a\": \"";
            let mut sent = write.write_all(begins).await;
            let piece = vec![b'x'; 1 << 20];
            for _ in 0..63 {
                if sent.is_err() {
                    break;
                }
                sent = write.write_all(&piece).await;
            }
            write
        });
    }
    shipped.somebody("four messages of 67 MB").await;
    for dap in &mut sessions {
        expect_refusal_notice(dap).await;
    }
    shipped.somebody("afterwards").await;
    all.none_released();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn huge_inspection_answers_end_no_relay_and_resume_no_task() {
    let all = Debuggers::new();
    let (shipped, ids) = paused(Manner::Long, &all).await;
    let claims = json!({"sub": "viewer", "scope": "list,view"});
    let token = shipped.relay.token_with(&claims);
    let mut sessions = Vec::new();
    for id in &ids {
        let mut dap = looking(&shipped.relay, id, &token).await;
        let request = json!({"seq": 9, "type": "request", "command": "stackTrace", "arguments": {"threadId": 1}});
        dap.send(&request).await.unwrap();
        sessions.push(dap);
    }
    shipped.somebody("four answers of 40 MB").await;
    for dap in &mut sessions {
        expect_refusal_notice(dap).await;
    }
    // Also where nobody is any more: what is too much is passed over.
    all.until_done().await;
    shipped.somebody("afterwards").await;
    all.none_released();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn huge_prompt_output_ends_no_relay() {
    // These clients read nothing.
    let all = Debuggers::new();
    let (shipped, ids) = paused(Manner::Flood, &all).await;
    let claims = json!({"sub": "prompter", "scope": "list,terminal"});
    let token = shipped.relay.token_with(&claims);
    let mut prompts = Vec::new();
    for id in &ids {
        let mut stream = shipped.relay.dial(LOCALHOST).await.unwrap();
        let typed = format!("{token}\n{id}\n");
        stream.write_all(typed.as_bytes()).await.unwrap();
        prompts.push(stream);
    }
    shipped.somebody("four prompts").await;
    all.until_done().await;
    shipped.somebody("after what they were sent").await;
    all.none_released();
}

/// The answer to a request for a snapshot.
async fn snapshot(relay: Arc<Relay>, id: String, token: String) -> String {
    let mut stream = relay.dial(LOCALHOST).await.unwrap();
    let body = json!({ "id": id }).to_string();
    let request = format!(
        "POST /relay/v1/snapshot HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    timeout(3 * TEST_TIMEOUT, read).await.unwrap().unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn huge_snapshots_end_no_relay() {
    let all = Debuggers::new();
    let (shipped, ids) = paused(Manner::Threads, &all).await;
    let claims = json!({"sub": "looker", "scope": "list,view"});
    let token = shipped.relay.token_with(&claims);
    let mut requests = JoinSet::new();
    for id in ids {
        requests.spawn(snapshot(Arc::clone(&shipped.relay), id, token.clone()));
    }
    shipped.somebody("four snapshots").await;
    for answer in requests.join_all().await {
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer:.300}");
        // The relay waits 10 s for an answer: on a busy machine the attacker takes longer to write this much.
        let is_late = answer.contains("does not answer within 10 s");
        assert!(
            is_late || answer.contains("memory that one person may have"),
            "{answer:.600}"
        );
    }
    all.until_done().await;
    shipped.somebody("afterwards").await;
    all.none_released();
}
