//! Breakpoints that are dialled by a name of their own, and may not be known yet.

use super::*;

/// Advertised under names that say which breakpoint they are for.
fn by_name(config: &mut Config) {
    config.advertise = ray_relay_base::config::Advertise::Host("{id}.debug.example.com".to_owned());
    config.registry.poll_interval = Duration::from_secs(60);
}

fn dialled(id: BreakpointId, token: impl Into<String>) -> Value {
    json!({"connect": {"host": format!("{id}.debug.example.com"), "port": 5678}, "rayRelay": {"token": token.into()}})
}

#[tokio::test]
async fn hidden_address_is_refused_like_a_stale_one() {
    let relay = relay(Audit::off(), |config| {
        by_name(config);
        config.registry.poll_interval = Duration::from_millis(10);
    });
    let worker = worker(&relay).await;
    let gone = BreakpointId::derive("default", "gone");
    let said = refusal(&relay, dialled(gone, token_of("ben"))).await;
    assert!(
        said.contains("belongs to a breakpoint that is gone"),
        "{said}"
    );
    let hidden = dialled(worker.breakpoint.id, token_of("ben"));
    assert_eq!(refusal(&relay, hidden).await, said);
    worker.heard_nothing();
}

#[tokio::test]
async fn revocation_while_waiting_for_a_breakpoint_refuses_it() {
    let relay = relay(Audit::off(), by_name);
    let mut worker = Worker::listen().await;
    worker.breakpoint.names_mut().job_id = Some("01000000".to_owned());
    let (mut debugger, seq) =
        Debugger::attaching(&relay, dialled(worker.breakpoint.id, token_of("ann"))).await;
    // Answered while it waits, so it is recognised by now.
    debugger.ask("threads", Value::Null).await;
    revoke(&relay.auth, "ann").await;
    relay.registry.insert(worker.breakpoint.clone());
    let answer = debugger.answer(seq).await;
    assert_eq!(sentence(&answer), "your token was revoked");
    worker.heard_nothing();
}

#[tokio::test]
async fn unknown_breakpoint_is_awaited_until_the_client_leaves() {
    let relay = relay(Audit::off(), by_name);
    let context = &relay;
    let worker = Worker::listen().await;
    let dialled = dialled(worker.breakpoint.id, token_of("ann"));
    let (mut leaves, _) = Debugger::attaching(context, dialled.clone()).await;
    let began = Instant::now();
    leaves.ask("disconnect", Value::Null).await;
    leaves.closed().await;
    let (mut stays, _) = Debugger::attaching(context, dialled).await;
    // First the stop, then whose job it is.
    context.registry.insert(worker.breakpoint.clone());
    let early = stays.ask("threads", Value::Null).await;
    assert_refused(&early, "not attached yet");
    let mut named = worker.breakpoint.clone();
    named.names_mut().job_id = Some("01000000".to_owned());
    context.registry.insert(named);
    worker.attached().await;
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "not by the deadline"
    );
}
