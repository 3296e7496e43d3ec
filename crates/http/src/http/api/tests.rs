use super::*;
use ray_relay_ray::ray::registry::ClusterStatus;
use ray_relay_view::listing::json::list;

fn snapshot_polled(ago: Option<u64>, trouble: Option<&str>) -> Snapshot {
    let polled = ago.and_then(|ago| Instant::now().checked_sub(Duration::from_secs(ago)));
    Snapshot {
        clusters: [ClusterStatus {
            ray_job: None,
            name: "default".into(),
            ray_version: Some("2.60.0".to_owned()),
            polled,
            trouble: trouble.map(str::to_owned),
            pending: false,
            incomplete: None,
        }]
        .into(),
        ..Snapshot::default()
    }
}

/// Returns the status of `/relay/readyz?QUERY` for a principal with all permissions.
fn ready(snapshot: &Snapshot, query: Option<&str>, draining: bool) -> u16 {
    let poll_interval = Duration::from_secs(1);
    let principal = Principal::anonymous();
    readyz(
        snapshot,
        poll_interval,
        query,
        Some(&principal),
        draining,
        None,
    )
    .status()
    .as_u16()
}

#[test]
fn ready_reports_whether_this_process_serves() {
    for snapshot in [
        snapshot_polled(Some(1), None),
        snapshot_polled(Some(99), Some("away")),
        snapshot_polled(None, None),
        Snapshot::default(),
    ] {
        assert_eq!(ready(&snapshot, None, false), 200);
        assert_eq!(ready(&snapshot, None, true), 503);
    }
}

#[test]
fn cluster_is_ready_while_its_list_is_fresh() {
    let ready_of = |snapshot: &Snapshot| ready(snapshot, Some("cluster=default"), false);
    assert_eq!(ready_of(&snapshot_polled(Some(1), None)), 200);
    // One failed poll is not enough.
    assert_eq!(
        ready_of(&snapshot_polled(Some(9), Some("cannot reach"))),
        200
    );
    assert_eq!(ready_of(&snapshot_polled(Some(11), None)), 503);
    assert_eq!(ready_of(&snapshot_polled(None, None)), 503);
    assert_eq!(ready_of(&Snapshot::default()), 404);
    for (query, status) in [
        ("cluster=other", 404),
        ("cluster=", 400),
        ("clustr=default", 400),
        ("cluster=a&cluster=b", 400),
    ] {
        assert_eq!(
            ready(&snapshot_polled(Some(1), None), Some(query), false),
            status,
            "{query}"
        );
    }
}

#[test]
fn snapshot_age_of_every_cluster_is_reported() {
    let list = list(&snapshot_polled(Some(3), Some("it is away")));
    assert!(
        list["snapshot_age_seconds"]
            .as_f64()
            .is_some_and(|age| age >= 3.0)
    );
    let cluster = &list["clusters"][0];
    assert_eq!(cluster["ray_version"], "2.60.0");
    assert_eq!(cluster["trouble"], "it is away");
    assert!(
        cluster["snapshot_age_seconds"]
            .as_f64()
            .is_some_and(|age| age >= 3.0)
    );
}

#[test]
fn truncated_head_list_is_reported_as_trouble() {
    let mut snapshot = snapshot_polled(Some(1), None);
    assert_eq!(list(&snapshot)["clusters"][0]["complete"], true);
    std::sync::Arc::make_mut(&mut snapshot.clusters)[0].incomplete =
        Some("it looks at 10000 only".to_owned());
    let list = list(&snapshot);
    assert_eq!(list["clusters"][0]["trouble"], "it looks at 10000 only");
    assert_eq!(list["clusters"][0]["complete"], false);
}
