#![allow(clippy::unwrap_used)]

use std::future::Future;

use serde_json::json;
use tokio::sync::watch;
use tokio::time::timeout;

use super::*;
use crate::identity::testing::somebody;

fn founder() -> Founder {
    Founder {
        principal: Principal::anonymous(),
        peer: [127, 0, 0, 1].into(),
        client: "vscode".to_owned(),
        arguments: json!({"name": "Ray", "workspaceFolder": "/home/ada", "__sessionId": "one"}),
    }
}

fn stop(n: u64) -> Stop {
    (BreakpointId::derive("default", &n.to_string()), n)
}

fn join(families: &Arc<Families>, parent: &Parent, session: u64) -> Option<Member> {
    families.join(
        parent.name(),
        &Principal::anonymous(),
        session,
        stop(session),
    )
}

async fn now(future: impl Future<Output = ()>) -> bool {
    timeout(Duration::from_millis(1), future).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn members_end_with_their_parent_however_that_ends() {
    let families = Arc::new(Families::default());
    let parent = families.lead(founder());
    let mut member = join(&families, &parent, 7).unwrap();
    assert!(!now(member.ended()).await);
    assert_eq!(parent.stops(), [stop(7)]);
    let name = parent.name().to_owned();
    drop(parent);
    assert!(now(member.ended()).await);
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
async fn a_parent_that_restarts_finds_its_members_again() {
    let families = Arc::new(Families::default());
    let mut parent = families.lead(founder());
    let mut member = join(&families, &parent, 7).unwrap();
    parent.restarts();
    let name = parent.name().to_owned();
    drop(parent);
    tokio::time::advance(RESTART_PATIENCE / 2).await;
    assert!(!now(member.ended()).await);
    let mut again = founder();
    again.arguments["__sessionId"] = "two".into();
    let parent = families.lead(again);
    assert_eq!((parent.name(), parent.stops()), (&*name, vec![stop(7)]));
    tokio::time::advance(2 * RESTART_PATIENCE).await;
    assert!(!now(member.ended()).await, "it has a parent");
    drop(parent);
    assert!(now(member.ended()).await);
}

#[tokio::test(start_paused = true)]
async fn members_of_a_parent_that_is_lost_stay_for_as_long_as_is_said() {
    let stay = 10 * RESTART_PATIENCE;
    let families = Arc::new(Families::default());
    let mut parent = families.lead(founder());
    let mut member = join(&families, &parent, 7).unwrap();
    parent.is_lost(stay);
    drop(parent);
    tokio::time::advance(stay - Duration::from_secs(1)).await;
    assert!(!now(member.ended()).await);
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(now(member.ended()).await);
}

#[tokio::test(start_paused = true)]
async fn a_restart_that_does_not_come_ends_them() {
    let families = Arc::new(Families::default());
    let mut parent = families.lead(founder());
    let mut member = join(&families, &parent, 7).unwrap();
    parent.restarts();
    let name = parent.name().to_owned();
    drop(parent);
    timeout(RESTART_PATIENCE + Duration::from_secs(1), member.ended())
        .await
        .unwrap();
    // It is not taken back in while it says goodbye.
    let late = families.lead(founder());
    assert_ne!(late.name(), name);
    assert!(late.stops().is_empty());
    drop(member);
    assert_eq!(families.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn somebody_else_takes_nobody_in() {
    let ada = somebody("ada", [], &watch::Sender::default());
    let strangers = [
        Founder {
            principal: ada.clone(),
            ..founder()
        },
        Founder {
            peer: [10, 0, 0, 1].into(),
            ..founder()
        },
        Founder {
            client: "neovim".to_owned(),
            ..founder()
        },
        Founder {
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
    parent.restarts();
    let name = parent.name().to_owned();
    drop(parent);
    for stranger in strangers {
        assert_ne!(families.lead(stranger).name(), name);
    }
    assert_eq!(families.lead(founder()).name(), name);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_of_families_without_members() {
    let families = Arc::new(Families::default());
    let mut childless = families.lead(founder());
    assert!(now(childless.childless()).await);
    childless.restarts();
    drop(childless);
    assert!(families.lock().is_empty());

    let mut parent = families.lead(founder());
    let member = join(&families, &parent, 7).unwrap();
    assert!(!now(parent.childless()).await);
    parent.restarts();
    drop(parent);
    drop(member);
    assert!(families.lock().is_empty());
}
