//! Tests snapshots of all workers of a node at once.

use std::time::Instant;

use serde_json::json;
use tokio::io::AsyncReadExt as _;

use super::stand_ins::*;
use crate::hook::tests::Hooked;
use ray_relay_base::wire::tunnel::ByteStream;
use ray_relay_base::wire::tunnel::messages::{FromRelay, Hex, Inspect, Inspection};
use ray_relay_ray::ray::look::{Look, Source};

const WORKERS: u8 = 64;

/// How often both are measured.
const ATTEMPTS: usize = 4;

/// Processes with the hook that hang in C, each with a deep stack. They end with the first process.
const HANGING_PROGRAM: &str = r#"
import socket
ends, keeps = os.pipe()
begun, begins = os.pipe()
def load(shard, depth):
    rows = [{"row": row, "text": "x" * 50} for row in range(20)]
    if depth: return load(shard, depth - 1)
    os.write(begins, b".")
    os.read(ends, 1)
# The code for snapshots is compiled once, and not by each.
hook["_defined"]("_look")
pids = []
for rank in range(64):
    pids.append(os.fork())
    if pids[-1] == 0:
        os.close(keeps)
        for end in (0, 1, 2): os.close(end)
        hook["setup"]()
        load(rank, 5)
        os._exit(0)
for rank in range(64): os.read(begun, 1)
ready()
print(*pids, flush=True)
ready()
"#;

#[tokio::test]
async fn workers_are_inspected_at_the_same_time() {
    let Some(mut hooked) = Hooked::start(HANGING_PROGRAM) else {
        return;
    };
    let pids = hooked.resume();
    let mut pids: Vec<u32> = pids.split(' ').map(|pid| pid.parse().unwrap()).collect();
    pids.sort_unstable();
    let head = head(Vec::new(), vec![node(NODE, "127.0.0.1")]).await;
    let relay = Relay::start(7).await;
    let agent = agent(head, &[&relay]);
    agent.proc.session(&hooked.folder());
    pids.iter().for_each(|pid| agent.proc.worker(*pid));
    let (mut link, _) = relay.link().await;

    // Other tests run meanwhile: the best of several attempts counts, and both are measured in turn.
    let (mut together, mut one) = (f64::MAX, f64::MAX);
    for _ in 0..ATTEMPTS {
        one = one.min(inspect(&relay, &mut link, &pids[..1]).await);
        together = together.min(inspect(&relay, &mut link, &pids).await);
    }
    let each = together / f64::from(WORKERS);
    eprintln!(
        "{}",
        json!({ "seconds of one look": one, "of each of 64": each })
    );
    assert!(each < one / 2.0, "{each} {one}");
}

/// Inspects the workers with these `pids` at the same time, and returns the seconds that it took.
async fn inspect(relay: &Relay, link: &mut Socket, pids: &[u32]) -> f64 {
    let started = Instant::now();
    for (number, pid) in (0..WORKERS).zip(pids) {
        let request = Inspect {
            stream: Hex([number; 8]),
            secret: Hex([2; 16]),
            node_id: NODE.into(),
            worker_id: WORKER.into(),
            pid: *pid,
            what: Inspection::Look,
            patience_ms: 20_000,
            failure: None,
        };
        send(link, &FromRelay::Inspect(request)).await;
    }
    let mut inspected = Vec::new();
    for _ in pids {
        let (mut socket, _) = relay.accept().await;
        let first = next(&mut socket).await.into_text().unwrap();
        assert_eq!(&*first, r#"{"type":"dialled"}"#);
        let mut answer = Vec::new();
        let mut stream = ByteStream::new(socket);
        stream.read_to_end(&mut answer).await.unwrap();
        let snapshot = Look::read(&answer).unwrap();
        assert_eq!(snapshot.source, Source::Hook);
        assert_eq!(snapshot.threads[0].frames.len(), 7, "{snapshot:?}");
        assert!(snapshot.threads[0].frames[0].locals.is_some());
        inspected.push(snapshot.pid);
    }
    let seconds = started.elapsed().as_secs_f64();
    inspected.sort_unstable();
    assert_eq!(inspected, pids);
    seconds
}
