//! Session limits and idle limits, on a paused clock.

use super::identity::with_token;
use super::*;
use ray_relay_access::identity::testing::{authenticator, token_of};

/// An attached session of a user with these limits in seconds.
async fn attached(session: Option<u64>, idle: Option<u64>) -> (Debugger, Conversation<TcpStream>) {
    let mut policy = "[[rule]]\nsubjects = [\"ann\"]\nscopes = [\"debug\"]\n".to_owned();
    for (key, limit) in [("session_limit", session), ("idle_limit", idle)] {
        if let Some(limit) = limit {
            policy += &format!("{key} = \"{limit}s\"\n");
        }
    }
    let context = context_with(authenticator(&policy), Audit::off(), |_| {});
    configurable(&context, with_token(token_of("ann"))).await
}

/// Returns the next message, however long it takes on the paused clock.
async fn next_text(debugger: &mut Debugger) -> String {
    let message = debugger.dap.read().await.unwrap();
    match message["body"]["output"].as_str() {
        Some(text) => text.to_owned(),
        None => message["event"].as_str().unwrap().to_owned(),
    }
}

#[tokio::test]
async fn session_limit_warns_and_ends_the_session() {
    let (mut debugger, mut dap) = attached(Some(3600), None).await;
    tokio::time::pause();
    let started = Instant::now();
    let output = next_text(&mut debugger).await;
    assert!(
        output.contains("ends in 5m 00s: sessions may last 1h 00m"),
        "{output}"
    );
    let output = next_text(&mut debugger).await;
    assert!(output.contains("ends in 1m 00s"), "{output}");
    let output = next_text(&mut debugger).await;
    assert!(
        output.contains("it has lasted 1h 00m") && output.contains("the task runs on"),
        "{output}"
    );
    let elapsed = started.elapsed().as_secs();
    assert!((3599..=3601).contains(&elapsed), "{elapsed}");
    assert_eq!(next_text(&mut debugger).await, "terminated");
    expect_detach(&mut dap).await;
    drop(dap);
    tokio::time::resume();
    debugger.closed().await;
}

#[tokio::test]
async fn idle_limit_warns_and_any_request_postpones_it() {
    let (mut debugger, mut dap) = attached(None, Some(600)).await;
    tokio::time::pause();
    // The paused clock would advance while bytes are in flight. A busy task prevents that.
    let spinner = tokio::spawn(async {
        loop {
            tokio::task::yield_now().await;
        }
    });
    let advance = |seconds| tokio::time::advance(Duration::from_secs(seconds));
    let started = Instant::now();
    advance(541).await;
    let output = next_text(&mut debugger).await;
    assert!(
        output.contains("ends in 59s unless something is done"),
        "{output}"
    );
    // The relay passes this request through unread, and still counts it as activity.
    debugger.send("threads", Value::Null).await;
    expect_request(&mut dap, "threads").await;
    advance(6).await;
    tokio::task::yield_now().await;
    advance(541).await;
    let output = next_text(&mut debugger).await;
    assert!(output.contains("ends in 59s"), "warned of again: {output}");
    advance(60).await;
    let output = next_text(&mut debugger).await;
    assert!(
        output.contains("nothing was done in it for 10m 00s"),
        "{output}"
    );
    assert_eq!(started.elapsed().as_secs(), 541 + 6 + 541 + 60);
    expect_detach(&mut dap).await;
    spinner.abort();
}
