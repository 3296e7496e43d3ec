#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn memory_shares_grow_as_the_total_is_used() {
    let memory = Memory::new(128 * MIB);
    assert_eq!(memory.anonymous_limit(), 16 * MIB);
    let one = memory.owner_limit();
    assert_eq!(one, 28 * MIB);
    let take = |who: &Account, bytes| who.take(MemoryUse::Messages, bytes);
    let accounts = ["ann", "bob", "cid", "dan", "eve"].map(|who| memory.account(Some(who)));
    let [ann, bob, cid, dan, eve] = &accounts;
    let of_ann = take(ann, one).unwrap();
    assert_eq!(take(ann, 1).unwrap_err(), OutOfMemory::Yours { most: one });
    // By whatever connection.
    let again = memory.account(Some("ann"));
    assert!(matches!(take(&again, 1), Err(OutOfMemory::Yours { .. })));
    let _others = [bob, cid].map(|who| take(who, one).unwrap());
    assert_eq!(take(dan, one).unwrap_err(), OutOfMemory::All);
    let _of_dan = take(dan, one / 2).unwrap();
    assert_eq!(take(eve, 2 * MIB).unwrap_err(), OutOfMemory::All);
    let _of_eve = take(eve, MIB).unwrap();
    drop(of_ann);
    let _more = take(eve, 2 * MIB).unwrap();
}

#[test]
fn answers_of_one_head_get_at_most_a_quarter() {
    let memory = Memory::new(128 * MIB);
    let most = memory.owner_limit();
    let bad = memory.cluster("bad");
    let polled = bad.take(MemoryUse::Answers, most / 2).unwrap();
    let asks = |who: &str, cluster: &str| {
        let account = memory.account(Some(who));
        account.for_answers_of(&memory.cluster(cluster))
    };
    let of_ann = asks("ann", "bad")
        .take(MemoryUse::Answers, most / 4)
        .unwrap();
    // It is there once.
    assert_eq!(memory.used(MemoryUse::Answers), most / 2 + most / 4);
    let short = OutOfMemory::Cluster { most };
    let half = most / 2;
    assert_eq!(
        asks("bob", "bad")
            .take(MemoryUse::Answers, half)
            .unwrap_err(),
        short
    );
    assert_eq!(bad.take(MemoryUse::Answers, half).unwrap_err(), short);
    // A refusal charges no account, another head has its own limit, and ann keeps her share.
    let good = asks("bob", "good").take(MemoryUse::Answers, most).unwrap();
    let messages = memory.account(Some("ann")).take(MemoryUse::Messages, half);
    assert!(messages.is_ok());
    let same_name = memory.account(Some("bad")).take(MemoryUse::Messages, most);
    assert!(same_name.is_ok());
    drop(of_ann);
    let mut more = bad.take(MemoryUse::Answers, half).unwrap();
    more.resize(0).unwrap();
    drop((polled, good, messages, same_name, more, bad));
    assert_eq!(memory.0.used.load(Ordering::Relaxed), 0);
    assert!(memory.0.owners.lock().is_empty());
}

#[test]
fn accounts_release_all_memory() {
    let memory = Memory::new(64 * MIB);
    let account = memory.account(Some("ann"));
    let mut taken = account.take(MemoryUse::Links, MIB).unwrap();
    taken.resize(3 * MIB).unwrap();
    assert!(taken.resize(64 * MIB).is_err());
    assert_eq!(
        (taken.bytes(), memory.used(MemoryUse::Links)),
        (3 * MIB, 3 * MIB)
    );
    taken.resize(MIB).unwrap();
    taken.insist(64 * MIB);
    assert_eq!(memory.used(MemoryUse::Links), 64 * MIB);
    drop((taken, account));
    assert_eq!(memory.used(MemoryUse::Links), 0);
    assert_eq!(memory.0.used.load(Ordering::Relaxed), 0);
    assert!(memory.0.owners.lock().is_empty());
    // It is not counted.
    assert!(
        Account::default()
            .take(MemoryUse::Messages, usize::MAX)
            .is_ok()
    );
}

#[tokio::test(start_paused = true)]
async fn memory_waiter_is_served_or_times_out() {
    let memory = Memory::new(64 * MIB);
    let account = memory.account(Some("ann"));
    let most = memory.owner_limit();
    let all = account.take(MemoryUse::Answers, most).unwrap();
    let mut more = account.empty(MemoryUse::Answers);
    let patience = Duration::from_secs(10);
    let short = more.resize_within(MIB, patience).await.unwrap_err();
    assert_eq!(short, OutOfMemory::Yours { most });
    let waits = tokio::spawn(async move { more.resize_within(MIB, patience).await.map(|()| more) });
    tokio::task::yield_now().await;
    drop(all);
    let more = waits.await.unwrap().unwrap();
    assert_eq!(more.bytes(), MIB);
}

#[test]
fn reader_without_memory_does_not_charge_the_cluster() {
    let memory = Memory::new(128 * MIB);
    let most = memory.owner_limit();
    let ann = memory.account(Some("ann"));
    let _held = ann.take(MemoryUse::Messages, most).unwrap();
    let east = memory.cluster("east");
    let answers = ann.for_answers_of(&east);
    assert!(answers.take(MemoryUse::Answers, most).is_err());
    assert!(east.take(MemoryUse::Answers, most).is_ok());
}
