#![allow(clippy::unwrap_used)]

use crate::advertise::*;
use std::sync::Arc;
use std::time::Duration;

use ray_relay_ray::ray::testing::paused;

fn id(n: u32) -> BreakpointId {
    BreakpointId::derive("default", &format!("{n:056x}"))
}

fn advertise(table: &AdvertisedAddresses, host: &str, n: u32) -> String {
    table.spelling(host, id(n), Confidence::Listed)
}

fn snapshot_of(ids: impl IntoIterator<Item = BreakpointId>) -> Snapshot {
    let live = ids.into_iter().map(|id| {
        let mut breakpoint = paused("square", 1);
        breakpoint.id = id;
        Arc::new(breakpoint)
    });
    Snapshot {
        live: live.collect(),
        ..Snapshot::default()
    }
}

#[test]
fn spelling_resolves_to_its_breakpoint() {
    let table = AdvertisedAddresses::new(Advertise::Single);
    for host in ["127.0.0.1", "localhost", "::1"] {
        let (a, b) = (advertise(&table, host, 1), advertise(&table, host, 2));
        assert_ne!(a, b);
        assert_eq!(advertise(&table, host, 1), a, "stable");
        assert_eq!(table.resolve(&a), Resolved::Breakpoint(id(1)));
        assert_eq!(table.resolve(&b), Resolved::Breakpoint(id(2)));
        assert_eq!(table.resolve(host), Resolved::Plain);
    }
    assert_eq!(table.resolve("LOCALHOST"), Resolved::Unknown);
    assert_eq!(table.resolve("another.host"), Resolved::Plain);
    assert_eq!(table.resolve("0x7f.0.0x0.01"), Resolved::Unknown);
}

#[tokio::test(start_paused = true)]
async fn address_is_reused_after_ten_minutes() {
    // A host of three letters has eight spellings, of which seven can name breakpoints.
    let table = AdvertisedAddresses::new(Advertise::Single);
    let spellings: Vec<String> = (0..7).map(|n| advertise(&table, "abc", n)).collect();
    // Without a free spelling the plain address is used.
    assert_eq!(advertise(&table, "abc", 7), "abc");
    table.observe("abc", &snapshot_of((1..7).map(id)));
    tokio::time::advance(RESERVATION_PERIOD - Duration::from_secs(1)).await;
    assert_eq!(advertise(&table, "abc", 7), "abc");
    assert_eq!(table.resolve(&spellings[0]), Resolved::Breakpoint(id(0)));
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(advertise(&table, "abc", 7), spellings[0]);
    assert_eq!(table.resolve(&spellings[0]), Resolved::Breakpoint(id(7)));
    let snapshot_of: Vec<_> = (1..7).map(|n| advertise(&table, "abc", n)).collect();
    assert_eq!(snapshot_of, spellings[1..], "the living keep theirs");
}

#[tokio::test(start_paused = true)]
async fn returning_breakpoint_keeps_its_address() {
    let table = AdvertisedAddresses::new(Advertise::Single);
    let spellings = advertise(&table, "127.0.0.1", 1);
    table.observe("127.0.0.1", &snapshot_of([]));
    tokio::time::advance(RESERVATION_PERIOD / 2).await;
    table.observe("127.0.0.1", &snapshot_of([id(1)]));
    tokio::time::advance(RESERVATION_PERIOD).await;
    assert_eq!(table.resolve(&spellings), Resolved::Breakpoint(id(1)));
}

#[tokio::test(start_paused = true)]
async fn expected_breakpoint_already_has_its_address() {
    let table = AdvertisedAddresses::new(Advertise::Ports(5700..=5707));
    let external = ExternalAddress::parse("relay:5678").unwrap();
    let (_, port) = table.address_expected(&external, id(1));
    assert_ne!(port, 5678);
    assert_eq!(table.breakpoint_at(port), Some(id(1)));
    table.observe("relay", &snapshot_of([id(1)]));
    tokio::time::advance(2 * RESERVATION_PERIOD).await;
    assert_eq!(
        table.address(&external, Some(id(1))).1,
        port,
        "it turned up"
    );
    // The breakpoint resumes, and pauses again much later but before the next poll.
    table.observe("relay", &snapshot_of([]));
    tokio::time::advance(RESERVATION_PERIOD / 2).await;
    assert_eq!(table.address_expected(&external, id(1)).1, port);

    let single = AdvertisedAddresses::new(Advertise::Single);
    let (host, _) = single.address_expected(&external, id(2));
    assert_eq!(single.resolve(&host), Resolved::Breakpoint(id(2)));
    single.observe("relay", &snapshot_of([id(2)]));
    assert_eq!(single.address(&external, Some(id(2))).0, host);
}

#[tokio::test(start_paused = true)]
async fn unconfirmed_breakpoints_use_limited_addresses() {
    let table = AdvertisedAddresses::new(Advertise::Ports(5700..=5707));
    let external = ExternalAddress::parse("relay:5678").unwrap();
    let expect = |n| table.address_expected(&external, id(n)).1;
    let list = |n| table.address(&external, Some(id(n))).1;
    let (first, second) = (expect(0), expect(1));
    assert!(first != 5678 && second != 5678);
    assert_eq!(expect(2), 5678, "two of eight are enough for them");
    assert_eq!((expect(0), expect(1)), (first, second), "stable");
    for n in 10..16 {
        assert_ne!(list(n), 5678);
    }
    assert_eq!(list(16), 5678, "nothing left");
    let live = || snapshot_of((10..16).map(id));
    tokio::time::advance(slots::EXPECTED_PERIOD / 2).await;
    table.observe("relay", &live());
    assert_eq!(expect(0), first);
    tokio::time::advance(slots::EXPECTED_PERIOD / 2).await;
    table.observe("relay", &live());
    assert_eq!((expect(0), expect(1)), (5678, 5678), "no longer believed");
    assert_eq!(table.breakpoint_at(first), Some(id(0)), "but kept");
    // One address was last used half-way, the others at the start.
    tokio::time::advance(RESERVATION_PERIOD - slots::EXPECTED_PERIOD).await;
    assert_eq!(list(16), second);
    assert_eq!(table.breakpoint_at(first), Some(id(0)));
    tokio::time::advance(slots::EXPECTED_PERIOD).await;
    assert_eq!(list(17), first);
}

#[test]
fn ports_are_stable_and_run_out() {
    let table = AdvertisedAddresses::new(Advertise::Ports(5700..=5702));
    let port = |n| table.port(id(n), Confidence::Listed);
    let ports: Vec<u16> = (0..3).map(|n| port(n).unwrap()).collect();
    for (n, spellings) in (0..).zip(&ports) {
        assert!((5700..=5702).contains(spellings));
        assert_eq!(table.breakpoint_at(*spellings), Some(id(n)));
        assert_eq!(port(n), Some(*spellings));
    }
    assert_eq!(port(3), None);
    let external = ExternalAddress::parse("relay:5678").unwrap();
    for (n, port) in [(3, 5678), (1, ports[1])] {
        let address = table.address(&external, Some(id(n)));
        assert_eq!(address, ("relay".to_owned(), port));
    }
    assert_eq!(table.resolve("127.0.0.1"), Resolved::Plain);
}

#[test]
fn host_template_names_each_breakpoint() {
    let table = AdvertisedAddresses::new(Advertise::Host("{id}.debug.example.com".to_owned()));
    let external = ExternalAddress::parse("relay.example.com").unwrap();
    let (host, port) = table.address(&external, Some(id(1)));
    assert_eq!(host, format!("{}.debug.example.com", id(1)));
    assert_eq!(port, 80);
    let uppercase = table.resolve(&host.to_uppercase());
    assert_eq!(uppercase, Resolved::Breakpoint(id(1)));
    let unknown = table.resolve("uuuuuuuu.debug.example.com");
    assert_eq!(unknown, Resolved::Unknown);
    assert_eq!(table.resolve("127.0.0.1"), Resolved::Plain);
    assert!(table.covers(&host) && table.covers("debug.example.com"));
    assert!(!table.covers("example.com") && !table.covers("evil.debug.example.com"));
}

#[test]
fn hosts_are_bounded() {
    let table = AdvertisedAddresses::new(Advertise::Single);
    for n in 0..200u8 {
        advertise(&table, &format!("10.0.0.{n}"), 1);
    }
    assert_eq!(table.state.lock().hosts.len(), MAX_HOSTS);
    let newest = advertise(&table, "10.0.0.199", 1);
    assert_eq!(table.resolve(&newest), Resolved::Breakpoint(id(1)));
}

#[test]
fn ids_are_bounded() {
    let table = AdvertisedAddresses::new(Advertise::Single);
    let mut texts = HashSet::new();
    for n in 0..slots::MAX_IDS as u32 {
        assert!(texts.insert(advertise(&table, "127.0.0.1", n)));
    }
    assert_eq!(advertise(&table, "127.0.0.1", u32::MAX), "127.0.0.1");
}

#[test]
fn host_is_parsed_as_clients_write_it() {
    for (text, host, port) in [
        ("127.0.0.1:5678", "127.0.0.1", 5678),
        ("localhost", "localhost", 80),
        ("LocalHost.:1", "localhost", 1),
        ("0x7f.1.", "127.0.0.1", 80),
        ("0x7f.0.0x0.01:5678", "127.0.0.1", 5678),
        ("[::1]:5678", "::1", 5678),
        ("[0:0:0:0:0:0:0:01]", "::1", 80),
        ("relay_1.example.com:", "relay_1.example.com", 80),
    ] {
        let host = host.to_owned();
        assert_eq!(
            ExternalAddress::parse(text),
            Some(ExternalAddress { host, port }),
            "{text}"
        );
    }
    for text in [
        "",
        ":1",
        "a b",
        "a:70000",
        "a:+1",
        "::1",
        "[::1",
        "[a]",
        "[::1]x",
        "u@h",
        "a:1:2",
        "a..",
        ".",
        "1..",
        "[127.0.0.1]",
    ] {
        assert_eq!(ExternalAddress::parse(text), None, "{text}");
    }
}

#[test]
fn listed_addresses_are_cached_with_the_list() {
    let table = AdvertisedAddresses::new(Advertise::Single);
    let external = |host: &str| ExternalAddress::parse(host).unwrap();
    let external_address = external("127.0.0.1:5678");
    let list = snapshot_of((0..20).map(id));
    let listed = table.listed(&external_address, &list);
    for n in 0..20 {
        let (host, port) = listed.address(id(n)).unwrap();
        assert_eq!(table.resolve(host), Resolved::Breakpoint(id(n)));
        assert_eq!(*port, 5678);
        assert_eq!(table.address(&external_address, Some(id(n))).0, *host);
    }
    assert!(listed.address(id(20)).is_none());
    let listed_again = |external: &ExternalAddress, list: &Snapshot| table.listed(external, list);
    assert!(Arc::ptr_eq(
        &listed,
        &listed_again(&external_address, &list)
    ));
    let newer = Snapshot {
        live: list.live.clone(),
        ..Snapshot::default()
    };
    assert!(Arc::ptr_eq(
        &listed,
        &listed_again(&external_address, &newer)
    ));
    for (requested, list) in [
        (external("127.0.0.1:5679"), list.clone()),
        (external("127.0.0.2:5678"), list.clone()),
        (external_address.clone(), snapshot_of((0..20).map(id))),
        (external_address.clone(), snapshot_of((0..21).map(id))),
    ] {
        assert!(!Arc::ptr_eq(&listed, &listed_again(&requested, &list)));
    }
    // The host is evicted with its spellings.
    for n in 0..MAX_HOSTS {
        advertise(&table, &format!("host-{n}"), 1);
    }
    assert!(!Arc::ptr_eq(
        &listed,
        &listed_again(&external_address, &list)
    ));
}

#[tokio::test(start_paused = true)]
async fn breakpoint_without_an_address_may_get_one_later() {
    let table = AdvertisedAddresses::new(Advertise::Single);
    let external_address = ExternalAddress::parse("abc:5678").unwrap();
    let before = snapshot_of((100..107).map(id));
    table.listed(&external_address, &before);
    let list = snapshot_of((0..3).map(id));
    assert_eq!(
        table
            .listed(&external_address, &list)
            .address(id(0))
            .unwrap()
            .0,
        "abc"
    );
    tokio::time::advance(RESERVATION_PERIOD + Duration::from_secs(1)).await;
    let later = table.listed(&external_address, &list);
    assert_ne!(later.address(id(0)).unwrap().0, "abc");
}
