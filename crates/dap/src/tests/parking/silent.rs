//! Silently lost clients: the relay notices the loss only when the same user reconnects.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

/// Whether `message` is a liveness probe.
fn is_probe(message: &Value) -> bool {
    message["body"]["category"] == "telemetry" && message["body"]["output"] == "ray-relay"
}

/// A worker that sends more than a client which reads nothing can receive: the rest stays unacknowledged, as on a lost
/// network.
struct Flood {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<()>,
}

impl Flood {
    async fn until_blocked(mut dap: Conversation<TcpStream>) -> Self {
        let (sent, stop) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let sender = tokio::spawn({
            let (sent, stop) = (sent.clone(), stop.clone());
            async move {
                let text = "x".repeat(1 << 16);
                while !stop.load(Ordering::Relaxed) {
                    dap.send(&output(&text)).await.unwrap();
                    sent.fetch_add(1, Ordering::Relaxed);
                }
                std::future::pending().await
            }
        });
        let (mut last_count, mut unchanged) = (0, 0);
        while unchanged < 5 {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let count = sent.load(Ordering::Relaxed);
            unchanged = if count > 0 && count == last_count {
                unchanged + 1
            } else {
                0
            };
            last_count = count;
        }
        Self { stop, sender }
    }

    /// Sends nothing more than the current message.
    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn reconnect_succeeds_once_the_old_connection_is_lost() {
    let (context, _) = relay(minutes(15));
    let (worker, debugger, dap) = stopped_session(&context).await;
    let flood = Flood::until_blocked(dap).await;
    let reattaching = tokio::spawn({
        let context = context.clone();
        let id = worker.breakpoint.id;
        let by_id = json!({"rayRelay": {"breakpoint": id, "token": token_of("ann")}});
        async move { reattach_with(&context, by_id).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!reattaching.is_finished(), "it is held until that is known");
    let started = Instant::now();
    flood.stop();
    drop(debugger.dap);
    let (_next, messages) = timeout(TEST_TIMEOUT, reattaching).await.unwrap().unwrap();
    // This is faster than the timeout for a lost client.
    assert!(started.elapsed() < Duration::from_secs(4));
    flood.sender.abort();
    assert!(output_texts(&messages)[0].contains("this resumes your session"));
    assert_eq!(
        context
            .registry
            .snapshot()
            .find(worker.breakpoint.id)
            .unwrap()
            .state
            .word(),
        "attached"
    );
}

/// Two windows of one user.
#[tokio::test]
async fn live_session_is_kept_and_probed_only_for_its_owner() {
    let (context, _) = relay(minutes(15));
    let (worker, mut debugger, mut dap) = stopped_session(&context).await;
    let id = worker.breakpoint.id;
    let attach_as = |user| json!({"rayRelay": {"breakpoint": id, "token": token_of(user)}});
    for user in ["ben", "ann"] {
        let started = Instant::now();
        let error = refusal(&context, attach_as(user)).await;
        assert!(error.contains("is being debugged by ann"), "{error}");
        // This is far below the timeout for a lost client.
        assert!(
            started.elapsed() < Duration::from_secs(2),
            "{:?}",
            started.elapsed()
        );
    }
    let seq = debugger.send("threads", json!({})).await;
    let threads = expect_request(&mut dap, "threads").await;
    dap.send(&threads.success(json!({}))).await.unwrap();
    let probes = std::cell::Cell::new(0);
    let is_answer = |m: &Value| m["type"] == "response" && m["request_seq"] == seq;
    debugger
        .until(|message| {
            probes.set(probes.get() + usize::from(is_probe(message)));
            is_answer(message)
        })
        .await;
    assert_eq!(probes.get(), 1, "for its own person alone");
}

#[tokio::test]
async fn new_cluster_session_probes_for_lost_sessions() {
    let (context, _) = relay(minutes(15));
    let (worker, mut debugger, _dap) = stopped_session(&context).await;
    let arguments = json!({"rayRelay": {"all": true, "token": token_of("ann")}});
    let (mut parent, _) = Debugger::attaching(&context, arguments).await;
    parent.event("initialized").await;
    parent.send("configurationDone", json!({})).await;
    debugger.until(is_probe).await;
    drop(debugger.dap);
    let child = parent.until(|m| m["command"] == "startDebugging").await;
    let breakpoint = &child["arguments"]["configuration"]["rayRelay"]["breakpoint"];
    assert_eq!(*breakpoint, worker.breakpoint.id.to_string());
}
