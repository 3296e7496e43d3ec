#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;

use proptest::prelude::*;
use tokio::time::advance;

use crate::connection::admission::*;
use crate::identity::testing::somebody;

/// The part of [`admission`]'s memory for unauthenticated connections.
const BUDGET: usize = 32 << 20;

fn admission(most: usize) -> Arc<Admission> {
    Admission::new(most, &Memory::new(1 << 30))
}

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn there(n: u16) -> IpAddr {
    let [a, b] = n.to_be_bytes();
    Ipv4Addr::new(10, 0, a, b).into()
}

fn is_given_up(guard: &Guard) -> bool {
    let seat = guard.0.0.as_ref().unwrap();
    seat.given_up.is_cancelled()
}

fn stay(guards: &[Guard]) -> usize {
    guards.iter().filter(|guard| !is_given_up(guard)).count()
}

/// Returns principals with these names.
fn people<const N: usize>(names: [&str; N]) -> [Principal; N] {
    let revoked = tokio::sync::watch::Sender::default();
    names.map(|name| somebody(name, [], &revoked))
}

#[tokio::test(start_paused = true)]
async fn oldest_anonymous_connections_are_evicted_first() {
    let admission = admission(64);
    let [ann] = people(["ann"]);
    let first = admission.admit(HERE);
    first.place().recognised(&ann).unwrap();
    let mut silent = Vec::new();
    for _ in 0..5000 {
        silent.push(admission.admit(HERE));
        advance(Duration::from_millis(1)).await;
    }
    assert!(!is_given_up(&first));
    assert_eq!(stay(&silent), 32);
    assert!(silent[..4968].iter().all(is_given_up), "the oldest first");
    // The closed connections hold no memory, whether or not they are gone already.
    assert_eq!(admission.counts(), (5001, 32));
    drop(silent);
    assert_eq!(admission.counts(), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn address_with_many_connections_is_evicted_first() {
    let admission = admission(64);
    let person = admission.admit(there(1));
    advance(Duration::from_secs(1)).await;
    let crowd: Vec<_> = (0..1000).map(|_| admission.admit(there(2))).collect();
    assert!(!is_given_up(&person), "although it is the oldest");
    drop(crowd);
    // Many addresses with one connection each: the oldest is closed, unless a valid credential came from there
    // lately.
    let [ann] = people(["ann"]);
    let earlier = admission.admit(there(3));
    earlier.place().recognised(&ann).unwrap();
    drop(earlier);
    let (known, unknown) = (admission.admit(there(3)), admission.admit(there(4)));
    advance(Duration::from_secs(1)).await;
    let crowd: Vec<_> = (10..1010).map(|n| admission.admit(there(n))).collect();
    assert!(!is_given_up(&known) && is_given_up(&unknown));
    drop(crowd);
}

#[tokio::test(start_paused = true)]
async fn anonymous_memory_is_bounded() {
    let admission = admission(1024);
    let crowd: Vec<_> = (0..400).map(|n| admission.admit(there(n))).collect();
    advance(Duration::from_secs(1)).await;
    for guard in &crowd {
        guard.place().weigh(1 << 20);
    }
    assert!(stay(&crowd) <= 32, "{}", stay(&crowd));
    assert!(!is_given_up(crowd.last().unwrap()));
    // A single connection above the budget is closed.
    crowd.last().unwrap().place().weigh(BUDGET + 1);
    assert_eq!(stay(&crowd), 0);
    // The memory of an authenticated client is not counted.
    let [ann] = people(["ann"]);
    let guard = admission.admit(HERE);
    guard.place().recognised(&ann).unwrap();
    guard.place().weigh(BUDGET + 1);
    let other = admission.admit(HERE);
    assert!(!is_given_up(&guard) && !is_given_up(&other));
}

#[tokio::test(start_paused = true)]
async fn one_user_gets_a_quarter_and_newcomers_an_eighth() {
    let admission = admission(64);
    let all = people(["ann", "bob", "cid", "dan"]);
    let mut known = Vec::new();
    for who in &all {
        for _ in 0..16 {
            let guard = admission.admit(HERE);
            if guard.place().recognised(who).is_ok() {
                known.push(guard);
            }
        }
        let guard = admission.admit(HERE);
        let crowded = guard.place().recognised(who).unwrap_err();
        assert!(matches!(
            crowded,
            Crowded::Yours { most: 16 } | Crowded::Full
        ));
    }
    assert_eq!(known.len(), 56);
    let newcomers: Vec<_> = (0..20).map(|_| admission.admit(HERE)).collect();
    assert_eq!(stay(&newcomers), 8);
    assert_eq!(
        newcomers[19].place().recognised(&all[0]),
        Err(Crowded::Yours { most: 16 })
    );
    assert_eq!(
        newcomers[0].place().recognised(&all[3]),
        Err(Crowded::GivenUp)
    );
    known.truncate(16);
    newcomers[19].place().recognised(&all[3]).unwrap();
}

#[tokio::test(start_paused = true)]
async fn timeout_is_shorter_when_slots_are_scarce() {
    let admission = admission(64);
    let crowd: Vec<_> = (0..20).map(|_| admission.admit(HERE)).collect();
    advance(Duration::from_secs(9)).await;
    let _later = admission.admit(HERE);
    assert_eq!(stay(&crowd), 20);
    advance(Duration::from_secs(2)).await;
    let _last = admission.admit(HERE);
    assert_eq!(stay(&crowd), 0);
    let few: Vec<_> = (0..10).map(|_| admission.admit(HERE)).collect();
    advance(Duration::from_secs(50)).await;
    let _last = admission.admit(HERE);
    assert_eq!(stay(&few), 10, "there is room for all");
}

#[tokio::test(start_paused = true)]
async fn served_anonymous_connection_stays_while_active() {
    let admission = admission(64);
    let download = admission.admit(HERE);
    download.place().served();
    assert!(!download.place().owes_a_credential());
    for _ in 0..1000 {
        let _idle = admission.admit(HERE);
        advance(Duration::from_millis(10)).await;
        download.place().moved();
    }
    assert!(!is_given_up(&download));
    let crowd: Vec<_> = (0..64).map(|_| admission.admit(HERE)).collect();
    assert!(is_given_up(&download), "it stood still for longest");
    drop(crowd);
}

#[tokio::test(start_paused = true)]
async fn agent_connections_use_no_user_slots() {
    let admission = admission(16);
    let [agents, ann] = people(["agents", "ann"]);
    let mut held = Vec::new();
    for _ in 0..100 {
        let guard = admission.admit(HERE);
        guard.place().recognised(&agents).unwrap();
        guard.place().set_apart();
        guard.place().set_apart();
        assert!(!guard.place().owes_a_credential());
        held.push(guard);
    }
    assert_eq!(admission.counts(), (0, 0));
    let person = admission.admit(HERE);
    person.place().recognised(&ann).unwrap();
    assert_eq!(stay(&held), 100);
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
        2 => (any::<usize>(), 0usize..3).prop_map(|(n, who)| Step::Recognise(n, who)),
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
            let people = people(["ann", "bob", "cid"]);
            let mut guards = Vec::new();
            for step in steps {
                match step {
                    Step::Admit(from) => {
                        let guard = admission.admit(there(from));
                        prop_assert!(!is_given_up(&guard), "a newcomer always gets in");
                        guards.push(guard);
                    }
                    Step::Leave(n) if !guards.is_empty() => drop(guards.swap_remove(n % guards.len())),
                    Step::Weigh(n, bytes) if !guards.is_empty() => guards[n % guards.len()].place().weigh(bytes),
                    Step::Recognise(n, who) if !guards.is_empty() => {
                        let guard = &guards[n % guards.len()];
                        let was_given_up = is_given_up(guard);
                        let known = guard.place().recognised(&people[who]);
                        prop_assert!(!(was_given_up && known.is_ok()));
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
