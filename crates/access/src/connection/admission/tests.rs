#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;

use proptest::prelude::*;
use tokio::time::advance;

use crate::connection::admission::*;
use crate::identity::testing::somebody;

/// The part of [`admission`]'s memory for unauthenticated connections.
const BUDGET: usize = 32 << 20;

fn admission(max: usize) -> Arc<Admission> {
    Admission::new(max, &Memory::new(1 << 30))
}

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn remote_ip(n: u16) -> IpAddr {
    let [a, b] = n.to_be_bytes();
    Ipv4Addr::new(10, 0, a, b).into()
}

fn is_evicted(guard: &Guard) -> bool {
    let seat = guard.0.0.as_ref().unwrap();
    seat.given_up.is_cancelled()
}

fn open_count(guards: &[Guard]) -> usize {
    guards.iter().filter(|guard| !is_evicted(guard)).count()
}

/// Returns principals with these names.
fn principals<const N: usize>(names: [&str; N]) -> [Principal; N] {
    let revoked = tokio::sync::watch::Sender::default();
    names.map(|name| somebody(name, [], &revoked))
}

#[tokio::test(start_paused = true)]
async fn oldest_anonymous_connections_are_evicted_first() {
    let admission = admission(64);
    let [ann] = principals(["ann"]);
    let first = admission.admit(LOCALHOST);
    first.place().recognised(&ann).unwrap();
    let mut unauthenticated = Vec::new();
    for _ in 0..5000 {
        unauthenticated.push(admission.admit(LOCALHOST));
        advance(Duration::from_millis(1)).await;
    }
    assert!(!is_evicted(&first));
    assert_eq!(open_count(&unauthenticated), 32);
    assert!(
        unauthenticated[..4968].iter().all(is_evicted),
        "the oldest first"
    );
    // The closed connections hold no memory, whether or not they are gone already.
    assert_eq!(admission.counts(), (5001, 32));
    drop(unauthenticated);
    assert_eq!(admission.counts(), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn address_with_many_connections_is_evicted_first() {
    let admission = admission(64);
    let first = admission.admit(remote_ip(1));
    advance(Duration::from_secs(1)).await;
    let flood: Vec<_> = (0..1000).map(|_| admission.admit(remote_ip(2))).collect();
    assert!(!is_evicted(&first), "although it is the oldest");
    drop(flood);
    // Many addresses with one connection each: the oldest is closed, unless a valid credential came from there
    // lately.
    let [ann] = principals(["ann"]);
    let older = admission.admit(remote_ip(3));
    older.place().recognised(&ann).unwrap();
    drop(older);
    let (recognised, unknown) = (admission.admit(remote_ip(3)), admission.admit(remote_ip(4)));
    advance(Duration::from_secs(1)).await;
    let flood: Vec<_> = (10..1010).map(|n| admission.admit(remote_ip(n))).collect();
    assert!(!is_evicted(&recognised) && is_evicted(&unknown));
    drop(flood);
}

#[tokio::test(start_paused = true)]
async fn anonymous_memory_is_bounded() {
    let admission = admission(1024);
    let flood: Vec<_> = (0..400).map(|n| admission.admit(remote_ip(n))).collect();
    advance(Duration::from_secs(1)).await;
    for guard in &flood {
        guard.place().weigh(1 << 20);
    }
    assert!(open_count(&flood) <= 32, "{}", open_count(&flood));
    assert!(!is_evicted(flood.last().unwrap()));
    // A single connection above the budget is closed.
    flood.last().unwrap().place().weigh(BUDGET + 1);
    assert_eq!(open_count(&flood), 0);
    // The memory of an authenticated client is not counted.
    let [ann] = principals(["ann"]);
    let guard = admission.admit(LOCALHOST);
    guard.place().recognised(&ann).unwrap();
    guard.place().weigh(BUDGET + 1);
    let other = admission.admit(LOCALHOST);
    assert!(!is_evicted(&guard) && !is_evicted(&other));
}

#[tokio::test(start_paused = true)]
async fn one_user_gets_a_quarter_and_newcomers_an_eighth() {
    let admission = admission(64);
    let all = principals(["ann", "bob", "cid", "dan"]);
    let mut authenticated = Vec::new();
    for principal in &all {
        for _ in 0..16 {
            let guard = admission.admit(LOCALHOST);
            if guard.place().recognised(principal).is_ok() {
                authenticated.push(guard);
            }
        }
        let guard = admission.admit(LOCALHOST);
        let error = guard.place().recognised(principal).unwrap_err();
        assert!(matches!(error, Crowded::Yours { most: 16 } | Crowded::Full));
    }
    assert_eq!(authenticated.len(), 56);
    let anonymous: Vec<_> = (0..20).map(|_| admission.admit(LOCALHOST)).collect();
    assert_eq!(open_count(&anonymous), 8);
    assert_eq!(
        anonymous[19].place().recognised(&all[0]),
        Err(Crowded::Yours { most: 16 })
    );
    assert_eq!(
        anonymous[0].place().recognised(&all[3]),
        Err(Crowded::GivenUp)
    );
    authenticated.truncate(16);
    anonymous[19].place().recognised(&all[3]).unwrap();
}

#[tokio::test(start_paused = true)]
async fn timeout_is_shorter_when_slots_are_scarce() {
    let admission = admission(64);
    let flood: Vec<_> = (0..20).map(|_| admission.admit(LOCALHOST)).collect();
    advance(Duration::from_secs(9)).await;
    let _later = admission.admit(LOCALHOST);
    assert_eq!(open_count(&flood), 20);
    advance(Duration::from_secs(2)).await;
    let _last = admission.admit(LOCALHOST);
    assert_eq!(open_count(&flood), 0);
    let flood: Vec<_> = (0..10).map(|_| admission.admit(LOCALHOST)).collect();
    advance(Duration::from_secs(50)).await;
    let _last = admission.admit(LOCALHOST);
    assert_eq!(open_count(&flood), 10, "there is room for all");
}

#[tokio::test(start_paused = true)]
async fn served_anonymous_connection_stays_while_active() {
    let admission = admission(64);
    let download = admission.admit(LOCALHOST);
    download.place().served();
    assert!(!download.place().owes_a_credential());
    for _ in 0..1000 {
        let _idle = admission.admit(LOCALHOST);
        advance(Duration::from_millis(10)).await;
        download.place().moved();
    }
    assert!(!is_evicted(&download));
    let flood: Vec<_> = (0..64).map(|_| admission.admit(LOCALHOST)).collect();
    assert!(is_evicted(&download), "it stood still for longest");
    drop(flood);
}

#[tokio::test(start_paused = true)]
async fn agent_connections_use_no_user_slots() {
    let admission = admission(16);
    let [agents, ann] = principals(["agents", "ann"]);
    let mut held = Vec::new();
    for _ in 0..100 {
        let guard = admission.admit(LOCALHOST);
        guard.place().recognised(&agents).unwrap();
        guard.place().set_apart();
        guard.place().set_apart();
        assert!(!guard.place().owes_a_credential());
        held.push(guard);
    }
    assert_eq!(admission.counts(), (0, 0));
    let user_connection = admission.admit(LOCALHOST);
    user_connection.place().recognised(&ann).unwrap();
    assert_eq!(open_count(&held), 100);
    held.clear();
    assert_eq!(admission.counts(), (1, 0));
    assert!(admission.table().holds());
}

#[derive(Debug, Clone)]
enum Step {
    Admit(u16),
    Leave(usize),
    Weigh(usize, usize),
    Recognise(usize, usize),
    Serve(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u16..5).prop_map(Step::Admit),
        2 => any::<usize>().prop_map(Step::Leave),
        2 => (any::<usize>(), 0usize..(BUDGET / 4)).prop_map(|(n, bytes)| Step::Weigh(n, bytes)),
        2 => (any::<usize>(), 0usize..3).prop_map(|(n, principal)| Step::Recognise(n, principal)),
        1 => any::<usize>().prop_map(Step::Serve),
        1 => (0u64..20_000).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn bounds_hold_and_no_connection_leaks(steps in proptest::collection::vec(step(), 1..200)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let admission = admission(16);
            let principals = principals(["ann", "bob", "cid"]);
            let mut guards = Vec::new();
            for step in steps {
                match step {
                    Step::Admit(from) => {
                        let guard = admission.admit(remote_ip(from));
                        prop_assert!(!is_evicted(&guard), "a newcomer always gets in");
                        guards.push(guard);
                    }
                    Step::Leave(n) if !guards.is_empty() => drop(guards.swap_remove(n % guards.len())),
                    Step::Weigh(n, bytes) if !guards.is_empty() => guards[n % guards.len()].place().weigh(bytes),
                    Step::Recognise(n, principal) if !guards.is_empty() => {
                        let guard = &guards[n % guards.len()];
                        let was_evicted = is_evicted(guard);
                        let known = guard.place().recognised(&principals[principal]);
                        prop_assert!(!(was_evicted && known.is_ok()));
                    }
                    Step::Serve(n) if !guards.is_empty() => guards[n % guards.len()].place().served(),
                    Step::Wait(millis) => advance(Duration::from_millis(millis)).await,
                    _ => {}
                }
                let table = admission.table();
                prop_assert_eq!(table.len(), guards.len());
                prop_assert!(table.holds(), "{:?}", &*table);
            }
            guards.clear();
            prop_assert_eq!(admission.counts(), (0, 0));
            prop_assert!(admission.table().holds());
            Ok(())
        })?;
    }
}
