//! Tests the causes of a session's end in any protocol. The clock is paused.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::watch;
use tokio::time::{advance, timeout};

use super::*;
use crate::agents::Agents;
use crate::session::{SessionTable, authorise};
use ray_relay_access::audit::EntryKind;
use ray_relay_access::audit::testing::{AuditSpy, spied};
use ray_relay_access::connection::summary::Summary;
use ray_relay_access::identity::Authenticator;
use ray_relay_access::identity::revocation::{Revocation, RevocationList, Revoked};
use ray_relay_access::identity::testing::somebody;
use ray_relay_access::policy::{Rule, Scope, SessionObligations};
use ray_relay_access::recording::Direction;
use ray_relay_access::telemetry::Metrics;
use ray_relay_base::config::{self, Config};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId, Holder, Registry, Snapshot};
use ray_relay_ray::ray::testing::paused;

const SECOND: Duration = Duration::from_secs(1);
const QUIET: Duration = ray_relay_base::shutdown::QUIET;

/// A relay with one paused task, and a user `ann` whose sessions have these obligations.
struct Scene {
    audit: Arc<Audit>,
    audit_log: AuditSpy,
    agents: Agents,
    recording: Arc<CaptureStore>,
    shutdown: Shutdown,
    registry: Registry,
    session: Session,
    ann: Principal,
    revoked: watch::Sender<Arc<RevocationList>>,
    id: BreakpointId,
    protocol: Protocol,
}

impl Scene {
    fn new(obligations: SessionObligations) -> Self {
        let revoked = watch::Sender::default();
        let rule = Rule {
            scopes: "debug".parse().unwrap(),
            obligations,
            ..Rule::default()
        };
        let (audit, audit_log) = spied(true);
        let registry = Registry::offline(&["default"], &Config::default().registry);
        let breakpoint = paused("step", 1);
        let id = breakpoint.id;
        registry.insert(breakpoint);
        let metrics = Metrics::new().unwrap();
        let table = Arc::new(SessionTable::new(metrics.clone()));
        let closed = tokio_util::sync::CancellationToken::new();
        let agents = Agents::new(
            &Config::default(),
            registry.clone(),
            Authenticator::open(),
            audit.clone(),
            metrics.clone(),
            closed,
        );
        Self {
            agents,
            audit,
            audit_log,
            recording: CaptureStore::new(config::Recording::default(), metrics),
            shutdown: Shutdown::default(),
            registry,
            session: table.open(&Summary::new(([127, 0, 0, 1], 1).into())),
            ann: somebody("ann", [rule], &revoked),
            revoked,
            id,
            protocol: Protocol::Dap,
        }
    }

    /// Begins a session whose worker counts as reached.
    async fn begin(&self) -> Result<Live<'_>, SessionRefusal> {
        Ok(self.begin_unattached().await?.attached())
    }

    async fn begin_unattached(&self) -> Result<Begun<'_>, SessionRefusal> {
        let breakpoint = self.registry.snapshot().find(self.id).unwrap().clone();
        let holder = Holder::here(self.session.id(), None, "test", Some(self.session.peer()));
        let authorised = authorise(&self.ann, &breakpoint, Scope::Debug).unwrap();
        let permit = Permit::acquire(&self.registry, authorised, holder).unwrap();
        let services = Services {
            audit: &self.audit,
            agents: &self.agents,
            recording: &self.recording,
            shutdown: &self.shutdown,
            drain_timeout: 20 * SECOND,
        };
        let (session, protocol) = (&self.session, self.protocol);
        Begun::begin(services, session, permit, protocol, "test", Map::new()).await
    }

    fn revoke(&self) {
        let mut list = RevocationList::default();
        let target = Revoked::Subject {
            subject: "ann".to_owned(),
            at: SystemTime::now(),
        };
        list.add(Revocation {
            what: target,
            until: None,
        })
        .unwrap();
        self.revoked.send_replace(Arc::new(list));
    }

    fn is_paused(&self) -> bool {
        self.registry.snapshot().find(self.id).unwrap().is_paused()
    }

    /// Drains the audit log, and returns each entry's kind and outcome.
    fn audit_entries(&self) -> Vec<(EntryKind, String)> {
        let outcome = |details: &Value| details["outcome"].as_str().unwrap().into();
        let entries = self.audit_log.take().into_iter();
        entries
            .map(|entry| (entry.action, outcome(&entry.details)))
            .collect()
    }
}

/// Returns the next event, without a timeout.
async fn next(live: &mut Live<'_>) -> SessionEvent {
    loop {
        let signal = live.next().await;
        if let Some(event) = live.judge(signal) {
            return event;
        }
    }
}

/// Asserts that no event occurs for `duration`.
async fn assert_silent(live: &mut Live<'_>, duration: Duration) {
    let event = timeout(duration, next(live)).await;
    assert!(event.is_err(), "{event:?}");
}

fn end(event: SessionEvent) -> SessionEnd {
    match event {
        SessionEvent::End(end) => end,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn session_is_recorded_from_begin_to_end() {
    let scene = Scene::new(SessionObligations::default());
    let live = scene.begin().await.unwrap();
    assert!(!scene.is_paused(), "it is held");
    let (worker, closing) = live.part();
    worker.end(SECOND).await;
    assert!(scene.is_paused(), "nothing was let run");
    closing.end(Outcome::Client).await;
    assert_eq!(
        scene.audit_entries(),
        [
            (EntryKind::SessionBegan, "allowed".to_owned()),
            (EntryKind::SessionEnded, "client".to_owned())
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn unrecorded_session_does_not_begin() {
    let scene = Scene::new(SessionObligations::default());
    scene.audit_log.refuse(EntryKind::SessionBegan);
    let refusal = scene.begin().await.err().unwrap();
    assert!(refusal.to_string().contains("audit log"), "{refusal}");
    assert!(scene.is_paused());

    let scene = Scene::new(SessionObligations {
        record: true,
        ..SessionObligations::default()
    });
    let refusal = scene.begin().await.err().unwrap();
    assert!(refusal.to_string().contains("recording.dir"), "{refusal}");
    assert!(scene.is_paused());
    assert_eq!(scene.audit_entries(), []);
}

#[tokio::test(start_paused = true)]
async fn requested_end_is_reported_once() {
    let scene = Scene::new(SessionObligations::default());
    let mut live = scene.begin().await.unwrap();
    assert_silent(&mut live, 60 * SECOND).await;
    scene.session.asked_to_end().cancel();
    let requested = end(next(&mut live).await);
    assert_eq!(requested, SessionEnd::Asked);
    assert_eq!(requested.outcome(), Outcome::Asked);
    live.end_within(SECOND, requested.outcome());
    // The request is not reported a second time.
    assert_eq!(next(&mut live).await, SessionEvent::TimeIsUp);
    assert_eq!(live.outcome(), Outcome::Asked);
}

#[tokio::test(start_paused = true)]
async fn revoked_principal_gets_no_session() {
    let scene = Scene::new(SessionObligations::default());
    scene.revoke();
    let refusal = scene.begin().await.err().unwrap();
    assert_eq!(refusal.to_string(), "your token was revoked");
    assert!(scene.is_paused());
    let ended = (EntryKind::SessionEnded, "revoked".to_owned());
    assert_eq!(scene.audit_entries().pop(), Some(ended));
}

#[tokio::test(start_paused = true)]
async fn revocation_ends_the_session_once_within_its_deadline() {
    let scene = Scene::new(SessionObligations::default());
    let mut live = scene.begin().await.unwrap();
    scene.revoke();
    // A signal that was not judged is reported again.
    _ = live.next().await;
    let revoked = end(next(&mut live).await);
    assert_eq!(revoked.outcome(), Outcome::Revoked);
    assert_eq!(revoked.to_string(), "your token was revoked");
    live.cut_off();
    live.end_within(SECOND, revoked.outcome());
    let started = Instant::now();
    assert_eq!(next(&mut live).await, SessionEvent::TimeIsUp);
    assert_eq!(started.elapsed(), SECOND);
}

#[tokio::test(start_paused = true)]
async fn first_cause_is_the_outcome_and_deadlines_only_shrink() {
    let scene = Scene::new(SessionObligations::default());
    let mut live = scene.begin().await.unwrap();
    assert_eq!(live.outcome(), Outcome::Client);
    let started = Instant::now();
    live.end_within(5 * SECOND, Outcome::Died);
    live.end_within(SECOND, Outcome::Revoked);
    live.end_within(9 * SECOND, Outcome::Limit);
    assert_eq!(next(&mut live).await, SessionEvent::TimeIsUp);
    assert_eq!((started.elapsed(), live.outcome()), (SECOND, Outcome::Died));
}

#[tokio::test(start_paused = true)]
async fn draining_relay_ends_an_idle_session() {
    for (protocol, done) in [(Protocol::Dap, "done in it"), (Protocol::Terminal, "typed")] {
        let mut scene = Scene::new(SessionObligations::default());
        scene.protocol = protocol;
        let mut live = scene.begin().await.unwrap();
        assert_silent(&mut live, 60 * SECOND).await;
        live.active(Instant::now());
        let started = Instant::now();
        scene.shutdown.drain.cancel();
        let warning = format!(
            "the relay is being shut down; this session ends when nothing is {done} for 3 s, and in 20 s at the latest"
        );
        assert_eq!(next(&mut live).await, SessionEvent::Warning(warning));
        assert_silent(&mut live, 2 * SECOND).await;
        live.active(Instant::now());
        let idle_end = end(next(&mut live).await);
        assert_eq!(idle_end, SessionEnd::Quiet);
        assert_eq!(idle_end.outcome(), Outcome::Drained);
        assert_eq!(started.elapsed(), 2 * SECOND + QUIET);
    }
}

#[tokio::test(start_paused = true)]
async fn abort_ends_a_session_that_is_not_already_ending() {
    let scene = Scene::new(SessionObligations::default());
    let mut live = scene.begin().await.unwrap();
    scene.shutdown.drain.cancel();
    next(&mut live).await;
    scene.shutdown.abort.cancel();
    let aborted = end(next(&mut live).await);
    assert_eq!(aborted, SessionEnd::Aborted);
    assert_eq!(aborted.outcome(), Outcome::Drained);
    live.end_within(SECOND, Outcome::Client);
    assert_eq!(next(&mut live).await, SessionEvent::TimeIsUp);
}

#[tokio::test(start_paused = true)]
async fn limits_count_from_the_attach() {
    let scene = Scene::new(SessionObligations {
        idle_limit: Some(100 * SECOND),
        ..SessionObligations::default()
    });
    let unattached = scene.begin_unattached().await.unwrap();
    advance(50 * SECOND).await;
    let mut live = unattached.attached();
    let started = Instant::now();
    let assert_warning = |event| match event {
        SessionEvent::Warning(text) => assert!(text.contains("unless something is done"), "{text}"),
        other => panic!("{other:?}"),
    };
    assert_warning(next(&mut live).await);
    assert_eq!(started.elapsed(), 90 * SECOND);
    live.active(Instant::now());
    assert_warning(next(&mut live).await);
    assert_eq!(started.elapsed(), 180 * SECOND);
    let limit = end(next(&mut live).await);
    assert_eq!(limit.to_string(), "nothing was done in it for 1m 40s");
    assert_eq!(limit.outcome(), Outcome::Limit);
    assert_eq!(started.elapsed(), 190 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn worker_death_is_reported_until_the_client_disconnects() {
    let scene = Scene::new(SessionObligations::default());
    let mut live = scene.begin().await.unwrap();
    scene.registry.end(scene.id, Some("killed"));
    let died = end(next(&mut live).await);
    assert_eq!(
        (died.to_string(), died.outcome()),
        ("killed".to_owned(), Outcome::Died)
    );
    assert!(!live.leave(), "for the first time");
    assert!(live.leave());
    assert_silent(&mut live, 60 * SECOND).await;
    // A query for the reason is still answered.
    live.ask_why(SECOND);
    let explained = SessionEvent::Explained(Some("killed".into()));
    assert_eq!(next(&mut live).await, explained);
    assert_silent(&mut live, 60 * SECOND).await;
}

#[tokio::test]
async fn failed_capture_ends_the_session() {
    let dir = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(SessionObligations {
        record: true,
        ..SessionObligations::default()
    });
    let recording = config::Recording {
        dir: Some(dir.path().to_owned()),
        max_size: 1000,
        ..config::Recording::default()
    };
    scene.recording = CaptureStore::new(recording, Metrics::new().unwrap());
    let mut live = scene.begin().await.unwrap();
    let begin_entry = scene.audit_log.take().pop().unwrap();
    assert_eq!(
        begin_entry.details["recording"],
        live.capture.name().unwrap()
    );
    live.capture.take(Direction::Down, &[b'x'; 1000]).unwrap();
    let failed = end(next(&mut live).await);
    assert!(
        failed.to_string().contains("recording.max_size"),
        "{failed}"
    );
    assert_eq!(failed.outcome(), Outcome::Failed);
    let result = live.capture.take(Direction::Up, b"x");
    assert!(result.is_err(), "nothing more is done");
}

#[tokio::test]
async fn session_begin_is_recorded_with_the_late_name() {
    let scene = Scene::new(SessionObligations::default());
    let current = scene.registry.snapshot().find(scene.id).unwrap().clone();
    let mut unnamed = Breakpoint::clone(&current);
    unnamed.names_mut().name = None;
    unnamed.first_seen = Timestamp::now();
    scene.registry.insert(unnamed);
    let naming = async {
        let mut lists = scene.registry.watch();
        let is_held = |list: &Arc<Snapshot>| list.held().next().is_some();
        let list = lists.wait_for(is_held).await.unwrap().clone();
        let held = list.find(scene.id).unwrap();
        assert_eq!(scene.audit_log.take().len(), 0, "nothing is on record yet");
        let mut named = Breakpoint::clone(held);
        named.names_mut().name = Some("late".to_owned());
        scene.registry.insert(named);
    };
    let (unattached, ()) = tokio::join!(scene.begin_unattached(), naming);
    assert_eq!(unattached.unwrap().permit.breakpoint().name(), "late");
    let names = scene.audit_log.take();
    let names: Vec<_> = names.iter().map(|entry| entry.name.as_deref()).collect();
    assert_eq!(names, [Some("late")]);
}
