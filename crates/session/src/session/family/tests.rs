#![allow(clippy::unwrap_used)]

use std::future::Future;

use serde_json::json;
use tokio::sync::watch;
use tokio::time::timeout;

use super::*;
use ray_relay_access::identity::testing::somebody;
use ray_relay_ray::ray::registry::BreakpointId;

fn founder() -> Initiator {
    Initiator {
        principal: Principal::anonymous(),
        peer: [127, 0, 0, 1].into(),
        client: "vscode".to_owned(),
        arguments: json!({"name": "Ray", "workspaceFolder": "/home/ada", "__sessionId": "one"}),
    }
}

fn stop(n: u64) -> Stop {
    (BreakpointId::derive("default", &n.to_string()), n)
}

fn join(families: &Arc<Families>, parent: &GroupRoot, session: u64) -> Option<GroupMember> {
    families.join(
        parent.name(),
        &Principal::anonymous(),
        session,
        stop(session),
    )
}

async fn is_ready<T>(future: impl Future<Output = T>) -> bool {
    timeout(Duration::from_millis(1), future).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn members_end_with_their_parent() {
    let families = Arc::new(Families::default());
    let parent = families.lead(founder());
    let mut member = join(&families, &parent, 7).unwrap();
    assert!(!is_ready(member.next()).await);
    assert_eq!(parent.stops(), [stop(7)]);
    let name = parent.name().to_owned();
    drop(parent);
    assert!(is_ready(member.next()).await);
    assert!(
        families
            .join(&name, &Principal::anonymous(), 8, stop(8))
            .is_none(),
        "nobody joins what has ended"
    );
    drop(member);
    assert!(families.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn restarted_parent_gets_its_members_back() {
    let families = Arc::new(Families::default());
    let mut parent = families.lead(founder());
    let mut member = join(&families, &parent, 7).unwrap();
    parent.restart();
    let name = parent.name().to_owned();
    drop(parent);
    tokio::time::advance(RESTART_TIMEOUT / 2).await;
    assert!(!is_ready(member.next()).await);
    let mut restarted = founder();
    restarted.arguments["__sessionId"] = "two".into();
    let parent = families.lead(restarted);
    assert_eq!((parent.name(), parent.stops()), (&*name, vec![stop(7)]));
    tokio::time::advance(2 * RESTART_TIMEOUT).await;
    assert!(!is_ready(member.next()).await, "it has a parent");
    drop(parent);
    assert!(is_ready(member.next()).await);
}

#[tokio::test(start_paused = true)]
async fn members_of_a_lost_parent_stay_for_the_agreed_time() {
    let park_time = 10 * RESTART_TIMEOUT;
    let families = Arc::new(Families::default());
    let mut parent = families.lead(founder());
    let mut member = join(&families, &parent, 7).unwrap();
    parent.client_lost(park_time);
    drop(parent);
    tokio::time::advance(park_time - Duration::from_secs(1)).await;
    assert!(!is_ready(member.next()).await);
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(is_ready(member.next()).await);
}

#[tokio::test(start_paused = true)]
async fn members_end_when_their_parent_does_not_restart() {
    let families = Arc::new(Families::default());
    let mut parent = families.lead(founder());
    let mut member = join(&families, &parent, 7).unwrap();
    parent.restart();
    let name = parent.name().to_owned();
    drop(parent);
    timeout(RESTART_TIMEOUT + Duration::from_secs(1), member.next())
        .await
        .unwrap();
    // A disconnecting member is not readmitted.
    let newcomer = families.lead(founder());
    assert_ne!(newcomer.name(), name);
    assert!(newcomer.stops().is_empty());
    drop(member);
    assert_eq!(families.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_client_does_not_take_over_a_family() {
    let ada = somebody("ada", [], &watch::Sender::default());
    let others = [
        Initiator {
            principal: ada.clone(),
            ..founder()
        },
        Initiator {
            peer: [10, 0, 0, 1].into(),
            ..founder()
        },
        Initiator {
            client: "neovim".to_owned(),
            ..founder()
        },
        Initiator {
            arguments: json!({"name": "Ray", "workspaceFolder": "/home/bob"}),
            ..founder()
        },
    ];
    let families = Arc::new(Families::default());
    let mut parent = families.lead(founder());
    let _member = join(&families, &parent, 7).unwrap();
    assert!(
        families.join(parent.name(), &ada, 8, stop(8)).is_none(),
        "a name alone does not do"
    );
    parent.restart();
    let name = parent.name().to_owned();
    drop(parent);
    for other in others {
        assert_ne!(families.lead(other).name(), name);
    }
    assert_eq!(families.lead(founder()).name(), name);
}

#[tokio::test(start_paused = true)]
async fn family_without_members_is_removed() {
    let families = Arc::new(Families::default());
    let mut childless = families.lead(founder());
    assert!(is_ready(childless.childless()).await);
    childless.restart();
    drop(childless);
    assert!(families.lock().is_empty());

    let mut parent = families.lead(founder());
    let member = join(&families, &parent, 7).unwrap();
    assert!(!is_ready(parent.childless()).await);
    parent.restart();
    drop(parent);
    drop(member);
    assert!(families.lock().is_empty());
}

/// VS Code at Reload Window, Neovim at `:qa!` and Emacs at its end disconnect all sessions at once.
#[tokio::test(start_paused = true)]
async fn simultaneous_disconnects_are_a_closed_window() {
    for sessions in [1, 3] {
        let families = Arc::new(Families::default());
        let mut parent = families.lead(founder());
        let members: Vec<_> = (0..sessions)
            .map(|n| join(&families, &parent, n).unwrap())
            .collect();
        let mut disconnecting: Vec<_> = Vec::new();
        for member in &members {
            disconnecting.push(tokio::spawn(member.disconnects()));
            // The network may deliver the requests with a delay.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        parent.disconnects();
        assert!(parent.all_disconnect().await);
        for disconnect in disconnecting {
            assert!(disconnect.await.unwrap());
        }
        drop(members);
    }
}

#[tokio::test(start_paused = true)]
async fn single_disconnect_is_a_stop() {
    let families = Arc::new(Families::default());
    let mut parent = families.lead(founder());
    let (first, second) = (join(&families, &parent, 1), join(&families, &parent, 2));
    let (first, second) = (first.unwrap(), second.unwrap());
    let started = Instant::now();
    assert!(!first.disconnects().await);
    assert_eq!(started.elapsed(), Duration::from_millis(200));
    drop(first);
    parent.disconnects();
    assert!(!parent.all_disconnect().await);
    // A much later disconnect is not simultaneous.
    tokio::time::advance(Duration::from_secs(5)).await;
    assert!(!second.disconnects().await);
    drop(second);
    assert!(!parent.all_disconnect().await, "nobody to leave with");
}

#[tokio::test(start_paused = true)]
async fn suspending_parent_has_its_members_parked() {
    let families = Arc::new(Families::default());
    let mut parent = families.lead(founder());
    let mut member = join(&families, &parent, 7).unwrap();
    parent.park_members(Duration::from_secs(60));
    drop(parent);
    let parked = member.next().await;
    assert!(matches!(parked, FromFamily::Ended(ChildEnding::Parked)));
    // A returning client does not park the members again.
    let parent = families.lead(founder());
    assert!(!is_ready(member.next()).await);
    drop(parent);
    assert!(matches!(
        member.next().await,
        FromFamily::Ended(ChildEnding::Over)
    ));
}
