//! Breakpoints that are dialled by their own host name, and may not be known yet.

use super::*;

/// Advertises each breakpoint under a host name of its own.
fn advertise_names(config: &mut Config) {
    config.advertise = ray_relay_base::config::Advertise::Host("{id}.debug.example.com".to_owned());
    config.registry.poll_interval = Duration::from_secs(60);
}

fn attach_by_host_name(id: BreakpointId, token: impl Into<String>) -> Value {
    json!({"connect": {"host": format!("{id}.debug.example.com"), "port": 5678}, "rayRelay": {"token": token.into()}})
}

#[tokio::test]
async fn hidden_address_is_refused_like_a_stale_one() {
    let relay = relay(Audit::off(), |config| {
        advertise_names(config);
        config.registry.poll_interval = Duration::from_millis(10);
    });
    let worker = worker(&relay).await;
    let unknown = BreakpointId::derive("default", "gone");
    let error = refusal(&relay, attach_by_host_name(unknown, token_of("ben"))).await;
    assert!(
        error.contains("belongs to a breakpoint that is gone"),
        "{error}"
    );
    let arguments = attach_by_host_name(worker.breakpoint.id, token_of("ben"));
    assert_eq!(refusal(&relay, arguments).await, error);
    worker.expect_not_dialled();
}

#[tokio::test]
async fn revocation_while_waiting_for_a_breakpoint_refuses_it() {
    let relay = relay(Audit::off(), advertise_names);
    let mut worker = Worker::listen().await;
    worker.breakpoint.names_mut().job_id = Some("01000000".to_owned());
    let (mut debugger, seq) = Debugger::attaching(
        &relay,
        attach_by_host_name(worker.breakpoint.id, token_of("ann")),
    )
    .await;
    // The answer shows that the client is authenticated by now.
    debugger.ask("threads", Value::Null).await;
    revoke(&relay.auth, "ann").await;
    relay.registry.insert(worker.breakpoint.clone());
    let answer = debugger.answer(seq).await;
    assert_eq!(refusal_message(&answer), "your token was revoked");
    worker.expect_not_dialled();
}

#[tokio::test]
async fn unknown_breakpoint_is_awaited_until_the_client_leaves() {
    let relay = relay(Audit::off(), advertise_names);
    let context = &relay;
    let worker = Worker::listen().await;
    let arguments = attach_by_host_name(worker.breakpoint.id, token_of("ann"));
    let (mut first, _) = Debugger::attaching(context, arguments.clone()).await;
    let started = Instant::now();
    first.ask("disconnect", Value::Null).await;
    first.closed().await;
    let (mut second, _) = Debugger::attaching(context, arguments).await;
    // The stop becomes known before its job.
    context.registry.insert(worker.breakpoint.clone());
    let answer = second.ask("threads", Value::Null).await;
    assert_refused(&answer, "not attached yet");
    let mut breakpoint = worker.breakpoint.clone();
    breakpoint.names_mut().job_id = Some("01000000".to_owned());
    context.registry.insert(breakpoint);
    worker.attached().await;
    assert!(
        started.elapsed() < Duration::from_secs(4),
        "not by the deadline"
    );
}
