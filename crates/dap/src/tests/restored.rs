//! Sessions of a relay that was killed, at the next one.

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

/// The record of an earlier relay about a session with `breakpoint`, which is parked for so many milliseconds.
fn stored(breakpoint: &Breakpoint, keeps_ms: u64, configured: bool) -> Value {
    let keep = ParkTerms {
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
    let said = ray_relay_base::timestamp::unix_ms(std::time::SystemTime::now());
    json!({
        "tenant": {
            "identity": null,
            "cluster": &*breakpoint.cluster,
            "worker_id": &*breakpoint.worker_id,
            "breakpoint": breakpoint.id.to_string(),
            "session": 41,
            "client": "Visual Studio Code",
            "peer": "192.0.2.1:5000",
            "since_unix_ms": said,
        },
        "keep": [keep, said],
        "progress": {
            "greeted": true, "welcomed": true, "attach": "Initialized", "mapped": false,
            "configured": configured, "stopped": true, "evaluating": 0,
            "disconnect": false, "answered": false,
        },
        "midway": false,
        "stands": {"stops": [], "all": false, "one_runs": false, "step_alone": false},
    })
}

/// A relay with the connection to the debugger of a session that is parked for so long; and the debugger.
async fn given(
    audit: Arc<Audit>,
    keeps_ms: u64,
    configured: bool,
) -> (Arc<Context>, BreakpointId, Conversation<TcpStream>) {
    let context = guarded(Authenticator::open(), audit, |config| {
        config.park.r#for = Duration::from_secs(600);
    });
    let breakpoint = paused("square", 1);
    context.registry.insert(breakpoint.clone());
    let (near, far, _) = connection().await;
    let stored = stored(&breakpoint, keeps_ms, configured);
    take_up(&context, left(near, &stored));
    (context, breakpoint.id, Conversation::new(far, 1 << 20))
}

fn left(connection: TcpStream, stored: &Value) -> UnclaimedConnection {
    testing::left(connection.into_std().unwrap().into(), stored)
}

/// Resumes `left` at `context`.
fn take_up(context: &Arc<Context>, left: UnclaimedConnection) {
    let relay = Arc::clone(context);
    tokio::spawn(async move {
        let restored = Restored::decode(left).unwrap();
        if let Some(claimed) = restored.claim(&relay).await {
            restored::run(&relay, claimed).await;
        }
    });
}

async fn until(context: &Context, id: BreakpointId, word: &str) {
    let mut lists = context.registry.watch();
    let is_it = |list: &Arc<ray_relay_ray::ray::registry::Snapshot>| {
        list.find(id).map(|row| row.state.word()) == Some(word)
    };
    let waited = timeout(TEST_TIMEOUT, lists.wait_for(is_it)).await;
    drop(waited.expect("listed in time").unwrap());
}

#[tokio::test]
async fn restored_session_is_parked_once_recorded() {
    let (audit, spy) = spied(false);
    spy.refuse_all(true);
    let (context, id, mut debugger) = given(audit, 600_000, true).await;
    asked(&mut debugger, "threads").await;
    until(&context, id, "parked").await;
    assert!(spy.lines().iter().all(|line| line.session.is_none()));
    // It passes to no other user meanwhile, and receives no disconnect.
    let tries = 2 * ray_relay_session::session::live::RECORD_RETRY_DELAY;
    assert!(timeout(tries, debugger.read()).await.is_err());
    spy.refuse_all(false);
    let begun = async {
        while !spy
            .lines()
            .iter()
            .any(|line| line.action == EntryKind::SessionParked)
        {
            tokio::task::yield_now().await;
        }
    };
    timeout(TEST_TIMEOUT, begun).await.unwrap();
    let lines = spy.lines();
    let restored = lines.iter().find(|line| line.details["restored"] == true);
    assert_eq!(restored.unwrap().details["resumes"], 41);
    assert_eq!(
        context.sessions.table.rows()[0].client.as_deref(),
        Some("Visual Studio Code")
    );
}

/// As within one process: a policy decides who may resume, and resumes nothing.
#[tokio::test]
async fn restored_park_of_a_user_without_rights_stays_theirs() {
    let rule =
        |who: &str| format!("[[rule]]\nsubjects = [\"{who}\"]\nscopes = [\"list\", \"debug\"]\n");
    let context = guarded(authenticator(&rule("bob")), Audit::off(), |config| {
        config.park.r#for = Duration::from_secs(600);
    });
    let ann = principal(&authenticator(&rule("ann")), "ann").await;
    let breakpoint = paused("square", 1);
    context.registry.insert(breakpoint.clone());
    let mut kept = stored(&breakpoint, 600_000, true);
    kept["tenant"]["identity"] = serde_json::to_value(CarriedIdentity::of(&ann)).unwrap();
    let (near, far, _) = connection().await;
    take_up(&context, left(near, &kept));
    let mut debugger = Conversation::new(far, 1 << 20);
    asked(&mut debugger, "threads").await;
    until(&context, breakpoint.id, "parked").await;
    let attach = |who| json!({"rayRelay": {"token": token_of(who), "breakpoint": breakpoint.id}});
    let said = refusal(&context, attach("bob")).await;
    assert!(said.contains("is parked by ann"), "{said}");
    let said = refusal(&context, attach("ann")).await;
    assert!(said.contains("ann may not attach"), "{said}");
}

#[tokio::test]
async fn expired_or_unconfigured_restored_session_is_detached() {
    for (keeps_ms, configured) in [(0, true), (600_000, false)] {
        let (context, id, mut debugger) = given(Audit::off(), keeps_ms, configured).await;
        let_go(&mut debugger).await;
        drop(debugger);
        let mut lists = context.registry.watch();
        let is_free = |list: &Arc<ray_relay_ray::ray::registry::Snapshot>| {
            list.find(id).is_none_or(|row| row.holder().is_none())
        };
        timeout(TEST_TIMEOUT, lists.wait_for(is_free))
            .await
            .unwrap()
            .unwrap();
    }
}
