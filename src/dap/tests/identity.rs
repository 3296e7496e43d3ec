//! Who gets how far: a worker that must not hear of those who may not reach it.

use std::time::{Instant, SystemTime};

use tokio::sync::watch;

use super::*;
use crate::identity::fixed::somebody;
use crate::identity::revocation::{Revocation, RevocationList, Revoked};
use crate::policy::{Narrowing, Pattern, Rule};
use crate::registry::BreakpointId;

/// A relay that knows some people, and what revokes them.
pub(super) struct Guarded {
    pub(super) context: Arc<Context>,
    pub(super) revoked: watch::Sender<Arc<RevocationList>>,
    pub(super) ann: Principal,
}

pub(super) fn rule(scopes: &str) -> Rule {
    Rule {
        scopes: scopes.parse().unwrap(),
        ..Rule::default()
    }
}

fn of_job(scopes: &str, job: &str) -> Rule {
    Rule {
        narrowing: Narrowing {
            jobs: vec![Pattern::new(job)],
            ..Narrowing::default()
        },
        ..rule(scopes)
    }
}

/// The tokens are `token-of-NAME`: ann may debug job 1, ben job 2, and so on.
pub(super) fn relay(audit: Arc<Audit>, adapt: impl FnOnce(&mut Config)) -> Guarded {
    let revoked = watch::Sender::default();
    let person = |name, rule| somebody(name, &format!("jti-{name}"), [rule], &revoked);
    let lou = somebody(
        "lou",
        "jti-lou",
        [rule("list"), of_job("debug", "03000000")],
        &revoked,
    );
    let ann = person("ann", of_job("list,debug", "01000000"));
    let auth = Authenticator::fixed([
        ("token-of-ann", ann.clone()),
        (
            "token-of-ben",
            person("ben", of_job("list,debug", "02000000")),
        ),
        ("token-of-eve", person("eve", rule("dashboard:write,admin"))),
        ("token-of-lou", lou),
        ("token-of-vic", person("vic", rule("list,view"))),
        ("token-of-all", person("all", rule("list,debug"))),
        ("token-of-kim", person("kim", rule("debug,terminate"))),
        ("token-of-nil", person("nil", Rule::default())),
    ]);
    Guarded {
        context: guarded(auth, audit, adapt),
        revoked,
        ann,
    }
}

/// A worker of job 1.
pub(super) async fn worker(context: &Context) -> Worker {
    let mut worker = Worker::listen().await;
    worker.breakpoint.names.job_id = Some("01000000".to_owned());
    context.registry.insert(worker.breakpoint.clone());
    worker
}

pub(super) fn with_token(token: &str) -> Value {
    json!({"rayRelay": {"token": token}})
}

fn revoke(revoked: &watch::Sender<Arc<RevocationList>>, subject: &str) {
    let mut list = RevocationList::default();
    let what = Revoked::Subject {
        subject: subject.to_owned(),
        at: SystemTime::now(),
    };
    list.add(Revocation { what, until: None }).unwrap();
    revoked.send_replace(Arc::new(list));
}

/// Attaches, and gives the sentence with which that is refused; the connection then closes.
async fn refusal(context: &Arc<Context>, arguments: Value) -> String {
    let mut debugger = Debugger::connect(context).await;
    let seq = debugger.attach(arguments).await;
    let answer = debugger.until(|m| m["request_seq"] == seq).await;
    let said = sentence(&answer).to_owned();
    debugger.closed().await;
    said
}

impl Worker {
    /// Nobody has so much as connected.
    pub(super) fn heard_nothing(self) {
        let listener = self.listener.into_std().unwrap();
        let heard = listener.accept();
        assert!(
            heard.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock),
            "the worker was dialled"
        );
    }
}

#[tokio::test]
async fn a_worker_hears_nothing_of_those_who_may_not_reach_it() {
    let Guarded {
        context, revoked, ..
    } = relay(Audit::off(), |_| {});
    let worker = worker(&context).await;
    let other = paused("other", 7);
    let id = worker.breakpoint.id;
    let auth = &context.auth;
    let ben = crate::identity::Secret::new("token-of-ben");
    let ben = auth.token(&ben, [127, 0, 0, 1].into()).await.unwrap();
    let ticket = |breakpoint| auth.issue_ticket(&ben, breakpoint).unwrap();
    let for_other = ticket(&other);
    let for_this = ticket(&worker.breakpoint);
    for (arguments, expected) in [
        (json!({}), "wants a token"),
        (with_token(""), "wants a token"),
        (with_token("token-of-mallory"), "was refused"),
        (
            json!({"rayRelay": "x", "rayRelayToken": "wrong"}),
            "was refused",
        ),
        (
            json!({"rayRelay": {"breakpoint": id, "ticket": "ticket-99"}}),
            "was refused",
        ),
        (
            json!({"rayRelay": {"breakpoint": id, "ticket": for_other.expose()}}),
            "for one other breakpoint",
        ),
        (
            json!({"rayRelay": {"next": true, "ticket": for_other.expose()}}),
            "for one other breakpoint",
        ),
        // A ticket gives no more than its owner had.
        (
            json!({"rayRelay": {"breakpoint": id, "ticket": for_this.expose()}}),
            "no paused worker",
        ),
        (
            json!({"rayRelay": {"breakpoint": id, "token": "token-of-ben"}}),
            "no paused worker",
        ),
        (
            json!({"rayRelay": {"breakpoint": id, "token": "token-of-eve"}}),
            "needs the permission `view`",
        ),
        (
            json!({"rayRelay": {"breakpoint": id, "token": "token-of-nil"}}),
            "needs the permission `view`",
        ),
        (
            json!({"rayRelay": {"breakpoint": id, "token": "token-of-ann"}, "processId": 1}),
            "`processId`",
        ),
        (
            json!({"rayRelay": {"breakpoint": id, "token": "token-of-ann"}, "listen": {"port": 1}}),
            "`listen`",
        ),
        (
            json!({"rayRelay": {"ticket": for_this.expose(), "token": "token-of-ann"}}),
            "not several",
        ),
        (
            json!({"subProcessId": 7, "rayRelay": {"breakpoint": id, "token": "token-of-ann"}}),
            "has ended",
        ),
    ] {
        let said = refusal(&context, arguments.clone()).await;
        assert!(said.contains(expected), "{arguments}: {said}");
        assert!(!said.contains("square"), "{arguments}: {said}");
    }
    let list = refusal(
        &context,
        json!({"rayRelay": {"breakpoint": id, "token": "token-of-lou"}}),
    )
    .await;
    assert!(
        list.contains("lou may not do that here: it needs the permission `view`"),
        "{list}"
    );
    revoke(&revoked, "ann");
    let said = refusal(&context, with_token("token-of-ann")).await;
    assert!(said.contains("was refused"), "{said}");
    assert!(context.registry.snapshot().live[0].is_paused());
    worker.heard_nothing();
}

#[tokio::test]
async fn what_is_hidden_is_answered_like_what_does_not_exist() {
    let Guarded { context, .. } = relay(Audit::off(), |_| {});
    let worker = worker(&context).await;
    let mut visible = paused("bens", 2);
    visible.names.job_id = Some("02000000".to_owned());
    context.registry.insert(visible);
    let hidden = worker.breakpoint.id;
    let nothing = BreakpointId::derive("default", "nothing");
    let mut said = Vec::new();
    for id in [hidden, nothing] {
        let arguments = json!({"rayRelay": {"breakpoint": id, "token": "token-of-ben"}});
        let text = refusal(&context, arguments).await;
        said.push(text.replace(&id.to_string(), "ID"));
    }
    assert_eq!(said[0], said[1]);
    assert!(
        said[0].contains("bens") && !said[0].contains("square"),
        "{}",
        said[0]
    );
    let by_task = json!({"rayRelay": {"task": "square", "token": "token-of-ben"}});
    assert!(!refusal(&context, by_task).await.contains("pid 101"));
    worker.heard_nothing();
}

#[tokio::test]
async fn a_token_opens_the_session_and_goes_nowhere_else() {
    for (arguments, certificate) in [
        (
            json!({"rayRelay": {"token": "token-of-ann"}, "connect": {"host": "h", "port": 1, "rayRelayToken": "token-of-ann"}}),
            false,
        ),
        (
            json!({"rayRelay": "square", "rayRelayToken": "token-of-ann"}),
            false,
        ),
        (json!({}), true),
    ] {
        let relay = relay(Audit::off(), |_| {});
        let (context, worker) = (&relay.context, worker(&relay.context).await);
        let certificate = certificate.then(|| relay.ann.clone());
        let mut debugger = Debugger::connect_with(context, certificate).await;
        debugger.attach(arguments).await;
        let (mut dap, attach) = worker.attached().await;
        for secret in ["token-of-ann", "rayRelay"] {
            assert!(!attach.to_string().contains(secret), "{attach}");
        }
        let snapshot = context.registry.snapshot();
        let holder = snapshot.live[0].holder().unwrap();
        assert_eq!(holder.subject.as_deref(), Some("ann"));
        let rows = crate::http::SessionList::rows(&*context.sessions);
        assert_eq!(rows[0].subject.as_deref(), Some("ann"));

        // A subprocess: the client comes back with a ticket for this worker.
        let child = json!({"request": "attach", "configuration": {"subProcessId": 7, "connect": {"host": "x", "port": 1}}});
        let child =
            json!({"seq": 5, "type": "request", "command": "startDebugging", "arguments": child});
        dap.send(&child).await.unwrap();
        let child = debugger.until(|m| m["command"] == "startDebugging").await;
        let configuration = &child["arguments"]["configuration"];
        assert_eq!(
            configuration["rayRelay"]["breakpoint"],
            json!(worker.breakpoint.id)
        );
        assert!(!child.to_string().contains("token-of-ann"));
        let mut second = Debugger::connect(context).await;
        second.attach(configuration.clone()).await;
        let (_dap, attach) = worker.attached().await;
        assert_eq!(attach["arguments"]["subProcessId"], 7);
        assert!(!attach.to_string().contains("ticket"), "{attach}");
        // Nobody else does.
        let other = json!({"subProcessId": 7, "rayRelay": {"breakpoint": worker.breakpoint.id, "token": "token-of-all"}});
        let said = refusal(context, other).await;
        assert!(said.contains("somebody else's"), "{said}");
        worker.heard_nothing();
    }
}

#[tokio::test]
async fn a_revoked_token_ends_its_sessions_within_a_second_and_says_so() {
    let relay = relay(Audit::off(), |_| {});
    let context = &relay.context;
    let worker = worker(context).await;
    let mut attached = Debugger::connect(context).await;
    attached.attach(with_token("token-of-ann")).await;
    let (mut dap, _) = worker.attached().await;
    attached.send("configurationDone", Value::Null).await;
    assert_eq!(dap.read().await.unwrap()["command"], "configurationDone");
    let mut cluster = Debugger::connect(context).await;
    cluster
        .attach(json!({"rayRelay": {"all": true, "token": "token-of-ann"}}))
        .await;
    cluster.until(|m| m["event"] == "initialized").await;
    let mut waiting = Debugger::connect(context).await;
    let next = waiting
        .attach(json!({"rayRelay": {"next": true, "token": "token-of-ann"}}))
        .await;
    waiting.until(|m| m["event"] == "output").await;
    let mut others = Debugger::connect(context).await;
    others
        .attach(json!({"rayRelay": {"next": true, "token": "token-of-ben"}}))
        .await;
    others.until(|m| m["event"] == "output").await;

    let revoked_at = Instant::now();
    revoke(&relay.revoked, "ann");
    let forgets = dap.read().await.unwrap();
    assert_eq!(forgets["command"], "setFunctionBreakpoints");
    let goodbye = dap.read().await.unwrap();
    assert_eq!(goodbye["command"], "disconnect");
    assert_eq!(goodbye["arguments"]["terminateDebuggee"], false);
    for debugger in [&mut attached, &mut cluster] {
        let told = debugger.until(|m| m["event"] == "output").await;
        assert_eq!(told["body"]["category"], "important");
        let text = told["body"]["output"].as_str().unwrap();
        assert!(text.contains("your token was revoked"), "{text}");
        debugger.until(|m| m["event"] == "terminated").await;
    }
    let answer = waiting.until(|m| m["request_seq"] == next).await;
    assert!(sentence(&answer).contains("was revoked"), "{answer}");
    // What it says now reaches nobody.
    attached.send("evaluate", json!({"expression": "1"})).await;
    assert!(matches!(
        timeout(PATIENCE, dap.read()).await,
        Ok(Err(Over::Closed))
    ));
    drop(dap);
    for debugger in [attached, cluster, waiting] {
        debugger.closed().await;
    }
    assert!(revoked_at.elapsed() < Duration::from_secs(1));
    assert_eq!(context.sessions.len(), 1, "nobody else's");
    assert!(
        context
            .registry
            .snapshot()
            .find(worker.breakpoint.id)
            .is_none()
    );
}

#[tokio::test]
async fn a_client_that_does_not_read_is_ended_all_the_same() {
    let relay = relay(Audit::off(), |_| {});
    let context = &relay.context;
    let worker = worker(context).await;
    let mut debugger = Debugger::connect(context).await;
    debugger.attach(with_token("token-of-ann")).await;
    let (mut dap, _) = worker.attached().await;
    // More than the sockets hold between the worker and a client that takes nothing.
    let output = message::event("output", json!({"output": "x".repeat(32 << 20)}));
    let flood = tokio::spawn(async move {
        let _ = dap.send(&output).await;
        dap
    });
    while context.sessions.len() == 1
        && crate::http::SessionList::rows(&*context.sessions)[0].bytes_down < 1
    {
        // The counters are brought up to date with each message of the client's that is looked at.
        debugger
            .send("setExceptionBreakpoints", json!({"filters": []}))
            .await;
        tokio::task::yield_now().await;
    }
    let revoked_at = Instant::now();
    revoke(&relay.revoked, "ann");
    timeout(PATIENCE, &mut debugger.ended)
        .await
        .unwrap()
        .unwrap();
    assert!(revoked_at.elapsed() < Duration::from_secs(1));
    let _ = flood.await;
}

#[tokio::test]
async fn the_cluster_session_shows_what_its_principal_may_attach_to() {
    let relay = relay(Audit::off(), |_| {});
    let context = &relay.context;
    let worker = worker(context).await;
    let mut not_known_yet = paused("late", 3);
    context.registry.insert(not_known_yet.clone());
    let mut debugger = Debugger::connect(context).await;
    debugger
        .attach(
            json!({"rayRelay": {"all": true, "token": "token-of-ann"}, "connect": {"port": 5678}}),
        )
        .await;
    debugger.until(|m| m["event"] == "initialized").await;
    debugger.send("configurationDone", Value::Null).await;
    let told = debugger.until(|m| m["event"] == "output").await;
    assert!(
        told["body"]["output"]
            .as_str()
            .unwrap()
            .contains("1 task waits"),
        "{told}"
    );
    let child = debugger.until(|m| m["command"] == "startDebugging").await;
    let configuration = &child["arguments"]["configuration"];
    assert_eq!(
        configuration["rayRelay"]["breakpoint"],
        json!(worker.breakpoint.id)
    );
    assert!(!child.to_string().contains("token-of-ann"), "{child}");
    // The ticket opens what it was issued for and nothing else.
    let ticket = configuration["rayRelay"]["ticket"].clone();
    let elsewhere = json!({"rayRelay": {"breakpoint": not_known_yet.id, "ticket": ticket}});
    assert!(
        refusal(context, elsewhere)
            .await
            .contains("for one other breakpoint")
    );
    let mut session = Debugger::connect(context).await;
    session.attach(configuration.clone()).await;
    worker.attached().await;
    // Its job becomes known.
    not_known_yet.names.job_id = Some("01000000".to_owned());
    context.registry.insert(not_known_yet.clone());
    let late = debugger.until(|m| m["command"] == "startDebugging").await;
    let configuration = &late["arguments"]["configuration"];
    assert_eq!(
        configuration["rayRelay"]["breakpoint"],
        json!(not_known_yet.id)
    );
}

#[tokio::test]
async fn ending_a_process_takes_its_permission_or_that_of_the_relays_owner() {
    for (token, by_config, may) in [
        ("token-of-vic", true, false),
        ("token-of-all", false, false),
        ("token-of-all", true, true),
        ("token-of-kim", false, true),
    ] {
        let relay = relay(Audit::off(), |config| {
            config.dap.allow_terminate = by_config
        });
        let worker = worker(&relay.context).await;
        let mut debugger = Debugger::connect(&relay.context).await;
        debugger.attach(with_token(token)).await;
        let (mut dap, _) = worker.attached().await;
        if may != by_config {
            let told = debugger.until(|m| m["event"] == "capabilities").await;
            let capabilities = &told["body"]["capabilities"];
            assert_eq!(capabilities["supportsTerminateDebuggee"], may);
        }
        let seq = debugger.send("terminate", Value::Null).await;
        if may {
            assert_eq!(dap.read().await.unwrap()["command"], "terminate");
        } else {
            let answer = debugger.until(|m| m["request_seq"] == seq).await;
            assert!(
                sentence(&answer).contains("permission `terminate`"),
                "{answer}"
            );
        }
        debugger
            .send("disconnect", json!({"terminateDebuggee": true}))
            .await;
        let seen = dap.read().await.unwrap();
        assert_eq!(seen["command"], "disconnect");
        assert_eq!(seen["arguments"]["terminateDebuggee"], may, "{token}");
    }
}

#[tokio::test]
async fn nothing_is_said_of_breakpoints_before_it_is_known_who_asks() {
    let relay = relay(Audit::off(), |_| {});
    let _worker = worker(&relay.context).await;
    let mut debugger = Debugger::connect(&relay.context).await;
    let early = debugger.ask("threads", Value::Null).await;
    let initialized = debugger.ask("initialize", json!({"clientID": "x"})).await;
    let attach = debugger
        .ask(
            "attach",
            json!({"rayRelay": {"cluster": "no such", "token": "wrong"}}),
        )
        .await;
    for answer in [early, initialized, attach] {
        for word in ["square", "default", "10.88"] {
            assert!(!answer["message"].to_string().contains(word), "{answer}");
        }
    }
}

/// Advertised under names that say which breakpoint they are for.
fn by_name(config: &mut Config) {
    config.advertise = crate::config::Advertise::Host("{id}.debug.example.com".to_owned());
    config.registry.poll_interval = Duration::from_secs(60);
}

fn dialled(id: BreakpointId, token: &str) -> Value {
    json!({"connect": {"host": format!("{id}.debug.example.com"), "port": 5678}, "rayRelay": {"token": token}})
}

#[tokio::test]
async fn an_address_of_something_hidden_says_what_one_of_something_gone_says() {
    let relay = relay(Audit::off(), |config| {
        by_name(config);
        config.registry.poll_interval = Duration::from_millis(10);
    });
    let worker = worker(&relay.context).await;
    let gone = BreakpointId::derive("default", "gone");
    let said = refusal(&relay.context, dialled(gone, "token-of-ben")).await;
    assert!(
        said.contains("belongs to a breakpoint that is gone"),
        "{said}"
    );
    let hidden = dialled(worker.breakpoint.id, "token-of-ben");
    assert_eq!(refusal(&relay.context, hidden).await, said);
    worker.heard_nothing();
}

#[tokio::test]
async fn who_is_revoked_while_a_breakpoint_is_waited_for_does_not_reach_it() {
    let relay = relay(Audit::off(), by_name);
    let mut worker = Worker::listen().await;
    worker.breakpoint.names.job_id = Some("01000000".to_owned());
    let mut debugger = Debugger::connect(&relay.context).await;
    let seq = debugger
        .attach(dialled(worker.breakpoint.id, "token-of-ann"))
        .await;
    // Answered while it waits, so it is recognised by now.
    debugger.ask("threads", Value::Null).await;
    revoke(&relay.revoked, "ann");
    relay.context.registry.insert(worker.breakpoint.clone());
    let answer = debugger.until(|m| m["request_seq"] == seq).await;
    assert_eq!(sentence(&answer), "your token was revoked");
    worker.heard_nothing();
}

#[tokio::test]
async fn a_breakpoint_that_is_not_known_yet_is_waited_for_while_its_client_stays() {
    let relay = relay(Audit::off(), by_name);
    let context = &relay.context;
    let worker = Worker::listen().await;
    let dialled = dialled(worker.breakpoint.id, "token-of-ann");
    let mut leaves = Debugger::connect(context).await;
    leaves.attach(dialled.clone()).await;
    let began = Instant::now();
    leaves.ask("disconnect", Value::Null).await;
    leaves.closed().await;
    let mut stays = Debugger::connect(context).await;
    stays.attach(dialled).await;
    // First the stop, then whose job it is.
    context.registry.insert(worker.breakpoint.clone());
    let early = stays.ask("threads", Value::Null).await;
    assert!(sentence(&early).contains("not attached yet"));
    let mut named = worker.breakpoint.clone();
    named.names.job_id = Some("01000000".to_owned());
    context.registry.insert(named);
    worker.attached().await;
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "not by the deadline"
    );
}
