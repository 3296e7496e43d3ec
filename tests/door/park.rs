//! `ray-relay park` keeps a task paused on purpose, and `ray-relay snapshot` inspects paused tasks without resuming them.

use std::net::SocketAddr;
use std::process::{Output, Stdio};

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::debugger::debugger;
use super::paused::paused;
use super::support::*;
use ray_relay_ray::ray::registry::BreakpointId;
use serde_json::Value;

async fn ray_relay(relay: SocketAddr, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ray-relay"));
    let url = format!("http://{relay}");
    command.env_clear().env("RAY_RELAY_URL", url).args(words);
    let output = tokio::time::timeout(TEST_TIMEOUT, command.output()).await;
    output.expect("in time").unwrap()
}

fn printed(output: &Output) -> (Option<i32>, String) {
    let text = [&*output.stdout, &output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    (output.status.code(), text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_is_parked_overnight_and_release_all_ends_it() {
    let relay = start(|config| config.park.r#for = TEST_TIMEOUT * 45).await;
    let address = relay.local_addr();
    let (listener, breakpoint) = paused().await;
    let id = breakpoint.id.to_string();
    let answering = tokio::spawn(debugger(listener));
    relay.registry().insert(breakpoint);
    let (code, text) = printed(&ray_relay(address, &["park", "nosuch"]).await);
    assert_eq!(code, Some(66), "{text}");
    // A park that is too long is refused before anything is attached.
    let (code, text) = printed(&ray_relay(address, &["park", &id, "--for", "17h"]).await);
    assert_eq!(code, Some(77), "{text}");
    assert!(text.contains("parked here for 16h 00m at most"), "{text}");
    // By the beginning of its id.
    let (code, text) = printed(&ray_relay(address, &["park", &id[..4], "--for", "12h"]).await);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains(" parked until ") && text.contains("for 12h 00m"),
        "{text}"
    );
    let (_, text) = printed(&ray_relay(address, &["list"]).await);
    assert!(
        text.contains("parked by ray-relay park for 12h 00m more"),
        "{text}"
    );
    // A script that resumes the park briefly does not shorten it.
    let exec = ["exec", &*id, "--stay", "--", "help"];
    let (code, text) = printed(&ray_relay(address, &exec).await);
    assert_eq!(code, Some(0), "{text}");
    let (_, text) = printed(&ray_relay(address, &["list"]).await);
    let long = ["for 12h 00m more", "for 11h 59m more"];
    assert!(text.contains("parked by ray-relay exec for"), "{text}");
    assert!(
        long.iter().any(|remaining| text.contains(remaining)),
        "{text}"
    );
    // Without `--for` the park is unchanged; a shorter one replaces it.
    let (_, text) = printed(&ray_relay(address, &["park", &id, "--json"]).await);
    let report: Value = serde_json::from_str(&text).unwrap();
    let remaining = report["parked"][0]["seconds"].as_f64().unwrap();
    assert!(
        remaining > 43_000.0 && report["parked"][0]["id"] == *id,
        "{report}"
    );
    let (code, text) = printed(&ray_relay(address, &["park", &id, "--for", "1h"]).await);
    assert!(code == Some(0) && text.contains("for 1h 00m"), "{text}");
    let (code, text) = printed(&ray_relay(address, &["release", "--all"]).await);
    assert!(code == Some(0) && text.contains("released"), "{text}");
    let commands = tokio::time::timeout(TEST_TIMEOUT, answering).await.unwrap();
    let commands = commands.unwrap();
    let count = |name: &str| commands.iter().filter(|command| *command == name).count();
    assert_eq!(
        (count("attach"), count("disconnect")),
        (1, 1),
        "{commands:?}"
    );
    relay.abort().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn script_waiting_for_the_next_task_is_shown_its_id() {
    let relay = start(|_| {}).await;
    let (listener, breakpoint) = paused().await;
    let met = format!("ray-relay: {} has stopped: ", breakpoint.id);
    let answering = tokio::spawn(debugger(listener));
    let url = format!("http://{}", relay.local_addr());
    let mut exec = Command::new(env!("CARGO_BIN_EXE_ray-relay"))
        .env_clear()
        .env("RAY_RELAY_URL", url)
        .args(["exec", "--continue", "--next", "--", "help"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(exec.stderr.take().unwrap()).lines();
    let waits = tokio::time::timeout(TEST_TIMEOUT, stderr.next_line()).await;
    let waits = waits.expect("in time").unwrap().unwrap();
    assert_eq!(waits, "ray-relay: waiting for the next breakpoint");
    relay.registry().insert(breakpoint);
    let line = tokio::time::timeout(TEST_TIMEOUT, stderr.next_line()).await;
    let line = line.expect("in time").unwrap().unwrap();
    assert!(line.starts_with(&met), "{line}");
    let output = tokio::time::timeout(TEST_TIMEOUT, exec.wait_with_output()).await;
    let output = output.expect("in time").unwrap();
    let (code, text) = printed(&output);
    assert!(code == Some(0) && !text.contains("has stopped"), "{text}");
    tokio::time::timeout(TEST_TIMEOUT, answering)
        .await
        .expect("in time")
        .unwrap();
    relay.abort().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relay_without_parks_touches_no_task() {
    let relay = start(|_| {}).await;
    let (listener, breakpoint) = paused().await;
    let id = breakpoint.id.to_string();
    relay.registry().insert(breakpoint);
    for words in [&["park", &*id][..], &["park", &id, "--for", "1m"]] {
        let (code, text) = printed(&ray_relay(relay.local_addr(), words).await);
        assert_eq!(code, Some(77), "{text}");
        assert!(
            text.contains("neither the policy nor `[park] for`"),
            "{text}"
        );
    }
    let exec = ["exec", &*id, "--", "help"];
    let (code, text) = printed(&ray_relay(relay.local_addr(), &exec).await);
    assert_eq!(code, Some(77), "{text}");
    assert!(
        text.contains("with `--continue` the task resumes"),
        "{text}"
    );
    let accepted = listener.into_std().unwrap().accept();
    assert!(accepted.is_err(), "the worker was dialled");
    relay.abort().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshot_shows_tasks_next_to_an_unreachable_one() {
    let relay = start(|config| config.park.r#for = TEST_TIMEOUT).await;
    let address = relay.local_addr();
    let (listener, breakpoint) = paused().await;
    let id = breakpoint.id.to_string();
    let answering = tokio::spawn(debugger(listener));
    relay.registry().insert(breakpoint);
    let (code, text) = printed(&ray_relay(address, &["snapshot", "nosuch"]).await);
    assert_eq!(code, Some(66), "{text}");
    let (code, text) = printed(&ray_relay(address, &["snapshot", &id]).await);
    assert_eq!(code, Some(0), "{text}");
    let shown = "  MainThread\n    /job.py(9)add()\n    -> breakpoint()\n       x = 1\n";
    assert!(text.contains(shown), "{text}");
    // The list knows from then on.
    let (_, text) = printed(&ray_relay(address, &["list"]).await);
    assert!(text.contains("job.py:9"), "{text}");
    let commands = tokio::time::timeout(TEST_TIMEOUT, answering).await.unwrap();
    let commands = commands.unwrap();
    assert!(
        !commands.contains(&"configurationDone".to_owned()),
        "{commands:?}"
    );

    // Only the worker with the dead debugger is reported.
    let (listener, mut other) = paused().await;
    other.worker_id = "6f".repeat(28).into();
    other.id = BreakpointId::derive("default", &other.worker_id);
    let other_id = other.id.to_string();
    let answering = tokio::spawn(debugger(listener));
    relay.registry().insert(other);
    let all = [
        "snapshot",
        "--all",
        "--json",
        "--no-locals",
        "--limit",
        "50",
    ];
    let output = ray_relay(address, &all).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let shots: Value = serde_json::from_slice(&output.stdout).unwrap();
    let shots = shots["snapshots"].as_array().unwrap();
    assert_eq!(shots.len(), 2);
    for shot in shots {
        let reached = shot["breakpoint"]["id"] == *other_id;
        assert_eq!(shot["threads"].is_array(), reached, "{shot}");
        assert_eq!(shot["error"].is_string(), !reached, "{shot}");
    }
    tokio::time::timeout(TEST_TIMEOUT, answering)
        .await
        .unwrap()
        .unwrap();
    let (code, text) = printed(&ray_relay(address, &["snapshot", &id]).await);
    assert_eq!(code, Some(69), "{text}");
    relay.abort().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ambiguous_task_name_is_refused_with_the_ids() {
    let relay = start(|config| config.park.r#for = TEST_TIMEOUT).await;
    let (listener, first) = paused().await;
    let mut second = first.clone();
    second.worker_id = "6a".repeat(28).into();
    second.id = BreakpointId::derive("default", &second.worker_id);
    let ids = [first.id, second.id];
    for one in [first, second] {
        relay.registry().insert(one);
    }
    for words in [
        &["debug", "square"][..],
        &["debug", "squ*"],
        &["exec", "square", "--", "help"],
        &["exec", "squ*", "--", "help"],
    ] {
        let (code, text) = printed(&ray_relay(relay.local_addr(), words).await);
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("2 tasks are called"), "{text}");
        for id in ids {
            assert!(text.contains(&format!("{id} (square @ -)")), "{text}");
        }
    }
    let accepted = listener.into_std().unwrap().accept();
    assert!(accepted.is_err(), "a worker was dialled");
    relay.abort().await;
}
