//! Sessions that last too long, or are idle. The clock is paused until a task waits for it.

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
    let context = guarded(authenticator(&policy), Audit::off(), |_| {});
    configurable(&context, with_token(token_of("ann"))).await
}

/// The next message, however long that takes by the paused clock.
async fn text(debugger: &mut Debugger) -> String {
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
    let began = Instant::now();
    let told = text(&mut debugger).await;
    assert!(
        told.contains("ends in 5m 00s: sessions may last 1h 00m"),
        "{told}"
    );
    let told = text(&mut debugger).await;
    assert!(told.contains("ends in 1m 00s"), "{told}");
    let told = text(&mut debugger).await;
    assert!(
        told.contains("it has lasted 1h 00m") && told.contains("the task runs on"),
        "{told}"
    );
    let lasted = began.elapsed().as_secs();
    assert!((3599..=3601).contains(&lasted), "{lasted}");
    assert_eq!(text(&mut debugger).await, "terminated");
    let_go(&mut dap).await;
    drop(dap);
    tokio::time::resume();
    debugger.closed().await;
}

#[tokio::test]
async fn idle_limit_warns_and_any_request_postpones_it() {
    let (mut debugger, mut dap) = attached(None, Some(600)).await;
    tokio::time::pause();
    // A clock that goes on by itself where nothing can be done would not wait for what sockets carry.
    let busy = tokio::spawn(async {
        loop {
            tokio::task::yield_now().await;
        }
    });
    let later = |seconds| tokio::time::advance(Duration::from_secs(seconds));
    let began = Instant::now();
    later(541).await;
    let told = text(&mut debugger).await;
    assert!(
        told.contains("ends in 59s unless something is done"),
        "{told}"
    );
    // Passed on unread by the relay, and yet noticed.
    debugger.send("threads", Value::Null).await;
    got(&mut dap, "threads").await;
    later(6).await;
    tokio::task::yield_now().await;
    later(541).await;
    let told = text(&mut debugger).await;
    assert!(told.contains("ends in 59s"), "warned of again: {told}");
    later(60).await;
    let told = text(&mut debugger).await;
    assert!(
        told.contains("nothing was done in it for 10m 00s"),
        "{told}"
    );
    assert_eq!(began.elapsed().as_secs(), 541 + 6 + 541 + 60);
    let_go(&mut dap).await;
    busy.abort();
}
