#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn memory_shares_grow_as_the_total_is_used() {
    let memory = Memory::new(128 * MIB);
    assert_eq!(memory.anonymous_limit(), 16 * MIB);
    let one = memory.owner_limit();
    assert_eq!(one, 28 * MIB);
    let take = |account: &Account, bytes| account.take(MemoryUse::Messages, bytes);
    let accounts = ["ann", "bob", "cid", "dan", "eve"].map(|account| memory.account(Some(account)));
    let [ann, bob, cid, dan, eve] = &accounts;
    let of_ann = take(ann, one).unwrap();
    assert_eq!(take(ann, 1).unwrap_err(), OutOfMemory::Yours { most: one });
    // The limit holds for all connections of a user.
    let second_account = memory.account(Some("ann"));
    assert!(matches!(
        take(&second_account, 1),
        Err(OutOfMemory::Yours { .. })
    ));
    let _others = [bob, cid].map(|account| take(account, one).unwrap());
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
    let limit = memory.owner_limit();
    let slow_cluster = memory.cluster("bad");
    let polled = slow_cluster.take(MemoryUse::Answers, limit / 2).unwrap();
    let account_at = |user: &str, cluster: &str| {
        let account = memory.account(Some(user));
        account.for_answers_of(&memory.cluster(cluster))
    };
    let of_ann = account_at("ann", "bad")
        .take(MemoryUse::Answers, limit / 4)
        .unwrap();
    // The bytes are counted once.
    assert_eq!(memory.used(MemoryUse::Answers), limit / 2 + limit / 4);
    let short = OutOfMemory::Cluster { most: limit };
    let half = limit / 2;
    assert_eq!(
        account_at("bob", "bad")
            .take(MemoryUse::Answers, half)
            .unwrap_err(),
        short
    );
    assert_eq!(
        slow_cluster.take(MemoryUse::Answers, half).unwrap_err(),
        short
    );
    // A refusal charges no account, and other clusters and users keep their own limits.
    let fast_cluster_answers = account_at("bob", "good")
        .take(MemoryUse::Answers, limit)
        .unwrap();
    let messages = memory.account(Some("ann")).take(MemoryUse::Messages, half);
    assert!(messages.is_ok());
    let user_named_bad = memory.account(Some("bad")).take(MemoryUse::Messages, limit);
    assert!(user_named_bad.is_ok());
    drop(of_ann);
    let mut rest = slow_cluster.take(MemoryUse::Answers, half).unwrap();
    rest.resize(0).unwrap();
    drop((
        polled,
        fast_cluster_answers,
        messages,
        user_named_bad,
        rest,
        slow_cluster,
    ));
    assert_eq!(memory.0.used.load(Ordering::Relaxed), 0);
    assert!(memory.0.owners.lock().is_empty());
}

#[test]
fn accounts_release_all_memory() {
    let memory = Memory::new(64 * MIB);
    let account = memory.account(Some("ann"));
    let mut reserved = account.take(MemoryUse::Links, MIB).unwrap();
    reserved.resize(3 * MIB).unwrap();
    assert!(reserved.resize(64 * MIB).is_err());
    assert_eq!(
        (reserved.bytes(), memory.used(MemoryUse::Links)),
        (3 * MIB, 3 * MIB)
    );
    reserved.resize(MIB).unwrap();
    reserved.insist(64 * MIB);
    assert_eq!(memory.used(MemoryUse::Links), 64 * MIB);
    drop((reserved, account));
    assert_eq!(memory.used(MemoryUse::Links), 0);
    assert_eq!(memory.0.used.load(Ordering::Relaxed), 0);
    assert!(memory.0.owners.lock().is_empty());
    // The default account is not counted.
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
    let limit = memory.owner_limit();
    let all = account.take(MemoryUse::Answers, limit).unwrap();
    let mut reserved = account.empty(MemoryUse::Answers);
    let wait_timeout = Duration::from_secs(10);
    let short = reserved.resize_within(MIB, wait_timeout).await.unwrap_err();
    assert_eq!(short, OutOfMemory::Yours { most: limit });
    let waiter = tokio::spawn(async move {
        reserved
            .resize_within(MIB, wait_timeout)
            .await
            .map(|()| reserved)
    });
    tokio::task::yield_now().await;
    drop(all);
    let reserved = waiter.await.unwrap().unwrap();
    assert_eq!(reserved.bytes(), MIB);
}

#[test]
fn reader_without_memory_does_not_charge_the_cluster() {
    let memory = Memory::new(128 * MIB);
    let limit = memory.owner_limit();
    let ann = memory.account(Some("ann"));
    let _held = ann.take(MemoryUse::Messages, limit).unwrap();
    let east = memory.cluster("east");
    let answers = ann.for_answers_of(&east);
    assert!(answers.take(MemoryUse::Answers, limit).is_err());
    assert!(east.take(MemoryUse::Answers, limit).is_ok());
}
