//! Parks that are resumed, thousands in a row: nothing of them stays. In a process of its own, because what it has open, runs
//! and holds is counted.

use std::net::SocketAddr;
use std::time::Duration;

use ray_relay::app::{self, Running};
use ray_relay_base::config::{self, Config};
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_ray::ray::registry::{Names, Registry};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::is_own_process;
use crate::door::debugger::debugger;
use crate::door::paused::worker_at;

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Rounds after which everything that is made once was made.
const WARM_UP_PARKS: usize = 100;

/// The allowed growth of resident memory, which the allocator may retain.
const MAX_GROWTH_BYTES: u64 = 8 << 20;

/// Parks in a row; `RAY_RELAY_LONG` is set in continuous integration.
fn rounds() -> usize {
    match std::env::var_os("RAY_RELAY_LONG") {
        Some(_) => 10_000,
        None => 1_000,
    }
}

type Dap = Conversation<TcpStream>;

/// Counts open descriptors, tasks and resident bytes of this process.
#[derive(Debug)]
struct Count {
    descriptors: usize,
    tasks: usize,
    resident: u64,
}

fn count() -> Count {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find(|line| line.starts_with("VmRSS"));
    let kibibytes = resident.unwrap().split_whitespace().nth(1).unwrap();
    Count {
        descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count(),
        tasks: Handle::current().metrics().num_alive_tasks(),
        resident: kibibytes.parse::<u64>().unwrap() * 1024,
    }
}

async fn start() -> Running {
    let mut config = Config::default();
    config.listen.address = ([127, 0, 0, 1], 0).into();
    config.clusters[0].ray_address = "http://127.0.0.1:1".to_owned();
    config.clusters[0].gcs_address = config::Gcs::Off;
    app::start(config).await.unwrap()
}

async fn read(dap: &mut Dap) -> Value {
    let message = timeout(TEST_TIMEOUT, dap.read()).await;
    message.expect("in time").unwrap()
}

async fn until(dap: &mut Dap, is_expected: impl Fn(&Value) -> bool) {
    while !is_expected(&read(dap).await) {}
}

async fn send(dap: &mut Dap, seq: u64, command: &str, arguments: &Value) {
    let request =
        json!({"seq": seq, "type": "request", "command": command, "arguments": arguments});
    dap.send(&request).await.unwrap();
}

/// A client that has attached and received the stop.
async fn attached(relay: SocketAddr) -> Dap {
    let stream = TcpStream::connect(relay).await.unwrap();
    let mut dap = Conversation::new(stream, 1 << 20);
    send(&mut dap, 1, "initialize", &json!({"clientID": "nvim"})).await;
    send(&mut dap, 2, "attach", &json!({"type": "debugpy"})).await;
    until(&mut dap, |m| m["event"] == "initialized").await;
    send(&mut dap, 3, "configurationDone", &json!({})).await;
    until(&mut dap, |m| m["event"] == "stopped").await;
    send(&mut dap, 4, "threads", &json!({})).await;
    until(&mut dap, |m| m["request_seq"] == 4).await;
    dap
}

async fn until_state(registry: &Registry, word: &str) {
    let mut lists = registry.watch();
    let reached = lists.wait_for(|list| list.live.iter().all(|b| b.state.word() == word));
    let reached = timeout(TEST_TIMEOUT, reached).await;
    reached.expect("in time").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_resumed_parks_leak_nothing() {
    if !is_own_process("counted::parks::thousands_of_resumed_parks_leak_nothing") {
        return;
    }
    let relay = start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let breakpoint = worker_at(
        listener.local_addr().unwrap(),
        &"5f".repeat(28),
        Names::default(),
    );
    let answering = tokio::spawn(debugger(listener));
    let registry = relay.registry().clone();
    registry.insert(breakpoint);
    let mut warm = None;
    for round in 0..rounds() {
        let dap = attached(relay.local_addr()).await;
        let (stream, _) = dap.into_parts();
        if round % 2 == 1 {
            stream.set_zero_linger().unwrap();
        }
        drop(stream);
        until_state(&registry, "parked").await;
        if round == WARM_UP_PARKS {
            warm = Some(count());
        }
    }
    let (warm, now) = (warm.unwrap(), count());
    eprintln!(
        "after {WARM_UP_PARKS}: {warm:?}; after {}: {now:?}",
        rounds()
    );
    // One or two connections may still be closing in the background.
    assert!(now.descriptors <= warm.descriptors + 4, "{now:?} {warm:?}");
    assert!(now.tasks <= warm.tasks + 4, "{now:?} {warm:?}");
    let grown = now.resident.saturating_sub(warm.resident);
    assert!(grown < MAX_GROWTH_BYTES, "{now:?} {warm:?}");
    // The worker can still be attached to and detached.
    let mut dap = attached(relay.local_addr()).await;
    send(&mut dap, 5, "disconnect", &json!({})).await;
    until(&mut dap, |m| m["request_seq"] == 5).await;
    drop(dap);
    let commands = timeout(TEST_TIMEOUT, answering).await.unwrap().unwrap();
    assert_eq!(commands.last().unwrap(), "disconnect");
    let attaches = commands.iter().filter(|command| *command == "attach");
    assert_eq!(
        attaches.count(),
        1,
        "one connection to the worker did all of it"
    );
    timeout(TEST_TIMEOUT, async {
        while count().tasks >= warm.tasks || count().descriptors >= warm.descriptors {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("the park itself is gone as well");
}
