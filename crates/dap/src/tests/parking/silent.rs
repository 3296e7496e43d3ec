//! Silently lost clients: the relay does not know, until the same user reconnects.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

/// Whether `message` probes if the client is there.
fn asks_whether_there(message: &Value) -> bool {
    message["body"]["category"] == "telemetry" && message["body"]["output"] == "ray-relay"
}

/// A worker that sends more than a client which reads nothing can receive: the rest stays unacknowledged, as on a lost
/// network.
struct Flood {
    enough: Arc<AtomicBool>,
    saying: JoinHandle<()>,
}

impl Flood {
    async fn stuck(mut dap: Conversation<TcpStream>) -> Self {
        let (said, enough) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let saying = tokio::spawn({
            let (said, enough) = (said.clone(), enough.clone());
            async move {
                let text = "x".repeat(1 << 16);
                while !enough.load(Ordering::Relaxed) {
                    dap.send(&output(&text)).await.unwrap();
                    said.fetch_add(1, Ordering::Relaxed);
                }
                std::future::pending().await
            }
        });
        let (mut before, mut still) = (0, 0);
        while still < 5 {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let now = said.load(Ordering::Relaxed);
            still = if now > 0 && now == before {
                still + 1
            } else {
                0
            };
            before = now;
        }
        Self { enough, saying }
    }

    /// Sends nothing more than the current message.
    fn ends(&self) {
        self.enough.store(true, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn reconnect_succeeds_once_the_old_connection_is_lost() {
    let (context, _) = relay(minutes(15));
    let (worker, debugger, dap) = standing(&context).await;
    let flood = Flood::stuck(dap).await;
    let comes = tokio::spawn({
        let context = context.clone();
        let id = worker.breakpoint.id;
        let by_id = json!({"rayRelay": {"breakpoint": id, "token": token_of("ann")}});
        async move { again_with(&context, by_id).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!comes.is_finished(), "it is held until that is known");
    let began = Instant::now();
    flood.ends();
    drop(debugger.dap);
    let (_next, told) = timeout(TEST_TIMEOUT, comes).await.unwrap().unwrap();
    // Less than where only time had shown it.
    assert!(began.elapsed() < Duration::from_secs(4));
    flood.saying.abort();
    assert!(texts(&told)[0].contains("this resumes your session"));
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
    let (worker, mut debugger, mut dap) = standing(&context).await;
    let id = worker.breakpoint.id;
    let by_id = |who| json!({"rayRelay": {"breakpoint": id, "token": token_of(who)}});
    for who in ["ben", "ann"] {
        let began = Instant::now();
        let said = refusal(&context, by_id(who)).await;
        assert!(said.contains("is being debugged by ann"), "{said}");
        // Far less than a lost client is waited for.
        assert!(
            began.elapsed() < Duration::from_secs(2),
            "{:?}",
            began.elapsed()
        );
    }
    let seq = debugger.send("threads", json!({})).await;
    let threads = got(&mut dap, "threads").await;
    dap.send(&threads.success(json!({}))).await.unwrap();
    let asked = std::cell::Cell::new(0);
    let answered = |m: &Value| m["type"] == "response" && m["request_seq"] == seq;
    debugger
        .until(|message| {
            asked.set(asked.get() + usize::from(asks_whether_there(message)));
            answered(message)
        })
        .await;
    assert_eq!(asked.get(), 1, "for its own person alone");
}

#[tokio::test]
async fn new_cluster_session_probes_for_lost_sessions() {
    let (context, _) = relay(minutes(15));
    let (worker, mut debugger, _dap) = standing(&context).await;
    let all = json!({"rayRelay": {"all": true, "token": token_of("ann")}});
    let (mut parent, _) = Debugger::attaching(&context, all).await;
    parent.event("initialized").await;
    parent.send("configurationDone", json!({})).await;
    debugger.until(asks_whether_there).await;
    drop(debugger.dap);
    let child = parent.until(|m| m["command"] == "startDebugging").await;
    let asked = &child["arguments"]["configuration"]["rayRelay"]["breakpoint"];
    assert_eq!(*asked, worker.breakpoint.id.to_string());
}
