//! Sessions of a killed relay, restored by the next relay.

use super::*;
use ray_relay_access::audit::EntryKind;
use ray_relay_access::audit::testing::spied;
use ray_relay_access::identity::CarriedIdentity;
use ray_relay_access::identity::testing::{authenticator, principal, token_of};
use ray_relay_base::wire::tunnel::messages::ParkTerms;
use ray_relay_debugger::keeper::{UnclaimedConnection, testing};
use ray_relay_ray::ray::registry::BreakpointId;
use ray_relay_session::upstream::park::restored;
use ray_relay_session::upstream::restored::Restored;

/// The record of an earlier relay about a session with `breakpoint`, parked for `keeps_ms`.
fn stored(breakpoint: &Breakpoint, keeps_ms: u64, configured: bool) -> Value {
    let terms = ParkTerms {
        owner: "".into(),
        credential: None,
        keeps_ms,
        at_least_ms: None,
        at_most_ms: None,
        lasted_ms: 0,
        capabilities: "{}".into(),
        attach: 7,
        cluster_session: None,
        entered: None,
    };
    let now = ray_relay_base::timestamp::unix_ms(std::time::SystemTime::now());
    json!({
        "tenant": {
            "identity": null,
            "cluster": &*breakpoint.cluster,
            "worker_id": &*breakpoint.worker_id,
            "breakpoint": breakpoint.id.to_string(),
            "session": 41,
            "client": "Visual Studio Code",
            "peer": "192.0.2.1:5000",
            "since_unix_ms": now,
        },
        "keep": [terms, now],
        "progress": {
            "greeted": true, "welcomed": true, "attach": "Initialized", "mapped": false,
            "configured": configured, "stopped": true, "evaluating": 0,
            "disconnect": false, "answered": false,
        },
        "midway": false,
        "stands": {"stops": [], "all": false, "one_runs": false, "step_alone": false},
    })
}

/// Creates a relay that restores a parked session, and returns it with the debugger.
async fn restored_relay(
    audit: Arc<Audit>,
    keeps_ms: u64,
    configured: bool,
) -> (Arc<Context>, BreakpointId, Conversation<TcpStream>) {
    let context = context_with(Authenticator::open(), audit, |config| {
        config.park.r#for = Duration::from_secs(600);
    });
    let breakpoint = paused("square", 1);
    context.registry.insert(breakpoint.clone());
    let (near, far, _) = connection().await;
    let stored = stored(&breakpoint, keeps_ms, configured);
    restore(&context, unclaimed(near, &stored));
    (context, breakpoint.id, Conversation::new(far, 1 << 20))
}

fn unclaimed(connection: TcpStream, stored: &Value) -> UnclaimedConnection {
    testing::left(connection.into_std().unwrap().into(), stored)
}

/// Restores `connection` at `context`.
fn restore(context: &Arc<Context>, connection: UnclaimedConnection) {
    let relay = Arc::clone(context);
    tokio::spawn(async move {
        let restored = Restored::decode(connection).unwrap();
        if let Some(claimed) = restored.claim(&relay).await {
            restored::run(&relay, claimed).await;
        }
    });
}

async fn until_state(context: &Context, id: BreakpointId, word: &str) {
    let mut snapshots = context.registry.watch();
    let is_reached = |list: &Arc<ray_relay_ray::ray::registry::Snapshot>| {
        list.find(id).map(|row| row.state.word()) == Some(word)
    };
    let result = timeout(TEST_TIMEOUT, snapshots.wait_for(is_reached)).await;
    drop(result.expect("listed in time").unwrap());
}

#[tokio::test]
async fn restored_session_is_parked_once_recorded() {
    let (audit, spy) = spied(false);
    spy.refuse_all(true);
    let (context, id, mut debugger) = restored_relay(audit, 600_000, true).await;
    answer_request(&mut debugger, "threads").await;
    until_state(&context, id, "parked").await;
    assert!(spy.lines().iter().all(|line| line.session.is_none()));
    // Meanwhile the session passes to no other user and gets no disconnect.
    let retry_time = 2 * ray_relay_session::session::live::RECORD_RETRY_DELAY;
    assert!(timeout(retry_time, debugger.read()).await.is_err());
    spy.refuse_all(false);
    let recorded = async {
        while !spy
            .lines()
            .iter()
            .any(|line| line.action == EntryKind::SessionParked)
        {
            tokio::task::yield_now().await;
        }
    };
    timeout(TEST_TIMEOUT, recorded).await.unwrap();
    let lines = spy.lines();
    let restored = lines.iter().find(|line| line.details["restored"] == true);
    assert_eq!(restored.unwrap().details["resumes"], 41);
    assert_eq!(
        context.sessions.table.rows()[0].client.as_deref(),
        Some("Visual Studio Code")
    );
}

/// A policy decides who may resume a park. It resumes no task, as within one process.
#[tokio::test]
async fn restored_park_of_a_user_without_rights_stays_theirs() {
    let rule =
        |user: &str| format!("[[rule]]\nsubjects = [\"{user}\"]\nscopes = [\"list\", \"debug\"]\n");
    let context = context_with(authenticator(&rule("bob")), Audit::off(), |config| {
        config.park.r#for = Duration::from_secs(600);
    });
    let ann = principal(&authenticator(&rule("ann")), "ann").await;
    let breakpoint = paused("square", 1);
    context.registry.insert(breakpoint.clone());
    let mut record = stored(&breakpoint, 600_000, true);
    record["tenant"]["identity"] = serde_json::to_value(CarriedIdentity::of(&ann)).unwrap();
    let (near, far, _) = connection().await;
    restore(&context, unclaimed(near, &record));
    let mut debugger = Conversation::new(far, 1 << 20);
    answer_request(&mut debugger, "threads").await;
    until_state(&context, breakpoint.id, "parked").await;
    let attach_as =
        |user| json!({"rayRelay": {"token": token_of(user), "breakpoint": breakpoint.id}});
    let error = refusal(&context, attach_as("bob")).await;
    assert!(error.contains("is parked by ann"), "{error}");
    let error = refusal(&context, attach_as("ann")).await;
    assert!(error.contains("ann may not attach"), "{error}");
}

#[tokio::test]
async fn expired_or_unconfigured_restored_session_is_detached() {
    for (keeps_ms, configured) in [(0, true), (600_000, false)] {
        let (context, id, mut debugger) = restored_relay(Audit::off(), keeps_ms, configured).await;
        expect_detach(&mut debugger).await;
        drop(debugger);
        let mut snapshots = context.registry.watch();
        let is_free = |list: &Arc<ray_relay_ray::ray::registry::Snapshot>| {
            list.find(id).is_none_or(|row| row.holder().is_none())
        };
        timeout(TEST_TIMEOUT, snapshots.wait_for(is_free))
            .await
            .unwrap()
            .unwrap();
    }
}
