//! Tests the slots of parks, and who may end one.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::session::authorise;
use ray_relay_access::identity::testing::somebody;
use ray_relay_access::policy::Rule;
use ray_relay_ray::ray::testing::paused;

#[test]
fn ended_park_releases_its_slot() {
    let parks = Arc::<Parks>::default();
    let anonymous = Principal::anonymous();
    let id = |n: usize| ParkId {
        breakpoint: BreakpointId::derive("east", &n.to_string()),
        process: None,
    };
    let park = |n| parks.park(&anonymous, id(n), parks.share(&anonymous, Some("all"))?);
    let mut all: Vec<_> = (0..MAX_PARKS).map(|n| park(n).unwrap()).collect();
    assert!(park(MAX_PARKS).is_err() && parks.has_room().is_err());
    all.pop();
    assert!(!parks.has(id(MAX_PARKS - 1)) && parks.has_room().is_ok());
    assert!(park(MAX_PARKS).is_ok());
}

#[test]
fn ended_park_leaves_a_later_park_of_the_same_debugger() {
    let parks = Arc::<Parks>::default();
    let anonymous = Principal::anonymous();
    let id = ParkId {
        breakpoint: BreakpointId::derive("east", "1"),
        process: None,
    };
    let park = || parks.park(&anonymous, id, parks.share(&anonymous, Some("all"))?);
    let first = park().unwrap();
    let second = park().unwrap();
    drop(first);
    assert!(parks.has(id));
    drop(second);
    assert!(!parks.has(id));
}

#[test]
fn refused_share_uses_no_slot() {
    let revoked = watch::Sender::default();
    let [ann, bob] = ["ann", "bob"].map(|name| somebody(name, [], &revoked));
    let parks = Arc::<Parks>::default();
    let held: Vec<_> = std::iter::from_fn(|| parks.share(&ann, None).ok()).collect();
    for _ in 0..5000 {
        assert_eq!(parks.share(&ann, None).unwrap_err(), NoSlot::Yours);
    }
    let _of_bob = parks.share(&bob, None).unwrap();
    drop(held);
    for _ in 0..5000 {
        drop(parks.share(&ann, None).unwrap());
    }
    // The same if all slots are used.
    let anonymous = Principal::anonymous();
    let all: Vec<_> = std::iter::from_fn(|| parks.share(&anonymous, None).ok()).collect();
    for _ in 0..5000 {
        assert!(matches!(parks.share(&ann, None), Err(NoSlot::All(_))));
    }
    drop(all);
    let _of_ann = parks.share(&ann, None).unwrap();
}

/// Returns a task that `user` has parked.
fn parked_by(user: &Principal) -> Breakpoint {
    let mut breakpoint = paused("step", 1);
    breakpoint.state = State::Attached(Holder {
        parked_until: Some(Timestamp::now().after(Duration::from_secs(60))),
        ..Holder::here(1, user.known_subject(), "nvim", None)
    });
    breakpoint
}

fn with_scopes(name: &str, scopes: &str) -> Principal {
    let rule = Rule {
        scopes: scopes.parse().unwrap(),
        ..Rule::default()
    };
    somebody(name, [rule], &watch::Sender::default())
}

#[tokio::test]
async fn park_goes_to_its_owner_or_to_an_admin_who_takes_it_over() {
    let ann = with_scopes("ann", "debug");
    let (bob, admin) = (
        with_scopes("bob", "debug"),
        with_scopes("admin", "debug,admin"),
    );
    let parks = Arc::<Parks>::default();
    let held = parked_by(&ann);
    let id = ParkId {
        breakpoint: held.id,
        process: None,
    };
    let share = parks.share(&ann, None).unwrap();
    let mut slot = parks.park(&ann, id, share).unwrap();
    for (principal, take_over, is_allowed) in [
        (&ann, false, true),
        (&admin, true, true),
        (&admin, false, false),
        (&bob, false, false),
        (&bob, true, false),
    ] {
        assert_eq!(may_go_on(principal, &held, take_over), is_allowed);
        let hand_over = parks.hand_over(&held, None, principal, take_over, Taker::Editor);
        let immediate = futures_util::FutureExt::now_or_never(hand_over);
        // `None` means that the park received the request.
        assert_eq!(immediate.is_none(), is_allowed, "{}", principal.subject());
        if is_allowed {
            assert!(matches!(
                slot.next_command().await,
                ParkCommand::HandOver(..)
            ));
        }
    }
}

#[tokio::test]
async fn only_the_owner_inspects_a_park_and_an_admin_may_end_it() {
    let ann = with_scopes("ann", "debug");
    let parks = Arc::<Parks>::default();
    let held = Arc::new(parked_by(&ann));
    let id = ParkId {
        breakpoint: held.id,
        process: None,
    };
    let share = parks.share(&ann, None).unwrap();
    let mut slot = parks.park(&ann, id, share).unwrap();
    for (name, scopes, may_inspect, may_end) in [
        ("ann", "debug", true, true),
        ("admin", "debug,admin", false, true),
        ("bob", "debug", false, false),
    ] {
        let principal = with_scopes(name, scopes);
        let authorized = authorise(&principal, &held, Scope::Debug).unwrap();
        let inspection = parks.look(&authorized, "x".to_owned());
        let immediate = futures_util::FutureExt::now_or_never(inspection);
        assert_eq!(immediate.is_none(), may_inspect, "{name}");
        if may_inspect {
            assert!(matches!(slot.next_command().await, ParkCommand::Look(..)));
        }
        let release = parks.let_run(&authorized);
        let immediate = futures_util::FutureExt::now_or_never(release);
        assert_eq!(immediate.is_none(), may_end, "{name}");
        if may_end {
            assert!(matches!(slot.next_command().await, ParkCommand::LetRun(_)));
        }
    }
}

#[tokio::test]
async fn parked_subprocess_needs_the_owner_of_its_task() {
    let [ann, bob] = ["ann", "bob"].map(|name| with_scopes(name, "debug"));
    let parks = Arc::<Parks>::default();
    let id = ParkId {
        breakpoint: paused("step", 1).id,
        process: Some(7),
    };
    let share = parks.share(&ann, None).unwrap();
    let _slot = parks.park(&ann, id, share).unwrap();
    let hand_over = |task_owner: &Principal, principal: &Principal| {
        let held = parked_by(task_owner);
        let (parks, principal) = (Arc::clone(&parks), principal.clone());
        async move {
            let hand_over = parks.hand_over(&held, Some(7), &principal, false, Taker::Editor);
            hand_over.await
        }
    };
    let immediate = |hand_over| futures_util::FutureExt::now_or_never(hand_over).is_some();
    assert!(
        immediate(hand_over(&bob, &ann)),
        "the task is another's now"
    );
    assert!(immediate(hand_over(&bob, &bob)) && immediate(hand_over(&ann, &bob)));
    assert!(!immediate(hand_over(&ann, &ann)));
    let list = ray_relay_ray::ray::testing::snapshot(vec![parked_by(&ann)]);
    assert!(parks.subprocesses(&list, &bob, id.breakpoint).is_empty());
    assert!(parks.subprocesses(&list, &ann, id.breakpoint).contains(&7));
}

#[test]
fn park_at_an_agent_is_released_by_owner_or_admin() {
    let revoked = watch::Sender::default();
    let mut breakpoint = paused("step", 1);
    let ann = Some("ann".to_owned());
    breakpoint.state = State::Attached(Holder {
        parked_until: Some(Timestamp::now().after(Duration::from_secs(60))),
        ..Holder::here(1, ann, "nvim", None)
    });
    let breakpoint = Arc::new(breakpoint);
    let is_allowed = |name: &str, scopes: &str| {
        let rule = Rule {
            scopes: scopes.parse().unwrap(),
            ..Rule::default()
        };
        let user = somebody(name, [rule], &revoked);
        authorise_resume(&authorise(&user, &breakpoint, Scope::Debug).unwrap()).is_ok()
    };
    assert!(is_allowed("ann", "debug") && is_allowed("bob", "debug,admin"));
    assert!(!is_allowed("bob", "debug"));
    // A free breakpoint is not a park.
    let free = Arc::new(paused("step", 1));
    let ann = with_scopes("ann", "debug");
    assert!(authorise_resume(&authorise(&ann, &free, Scope::Debug).unwrap()).is_err());
}
