//! Legacy sessions that continue in another task.

use crate::lineproto::tests::*;

/// A client that sent `command` at a prompt, whose connection has closed since.
async fn client_after_continue(command: &str) -> (Relay, Pdb, Client) {
    let (relay, pdb, mut client, mut prompt) = at_the_prompt().await;
    client.send(&format!("{command}\n")).await;
    read_until(&mut prompt, &format!("{command}\n")).await;
    drop(prompt);
    client.until("Waiting for the session to go on").await;
    (relay, pdb, client)
}

#[tokio::test]
async fn session_continuing_in_another_task_is_followed() {
    let (relay, _pdb, mut client) = client_after_continue("remote").await;
    // The same breakpoint key at another address.
    let next = Pdb::listen().await;
    relay.context.registry.insert(Breakpoint {
        stop: 2,
        ..next.breakpoint.clone()
    });
    let mut prompt = next.accept().await;
    client.until("(Pdb) ").await;
    client.send("c\n").await;
    read_until(&mut prompt, "c\n").await;
    drop(prompt);
    client.until("No task waits").await;
}

#[tokio::test]
async fn session_returns_to_the_list_when_ray_reports_its_exit() {
    let (relay, pdb, mut client) = client_after_continue("remote").await;
    relay.context.registry.exit(&pdb.breakpoint);
    client.until("*** it goes on in no other task").await;
    client.until("No task waits").await;
    client.send("q\n").await;
    client.read_all().await;
}

#[tokio::test]
async fn session_without_news_returns_to_the_list_after_5_min() {
    let (_relay, _pdb, mut client) = client_after_continue("get").await;
    client.timeout = DAY;
    tokio::time::pause();
    let started = tokio::time::Instant::now();
    client
        .until("*** it did not go on within five minutes")
        .await;
    let elapsed = started.elapsed().as_secs();
    assert!((290..=300).contains(&elapsed), "{elapsed} s");
    client.until("No task waits").await;
}
