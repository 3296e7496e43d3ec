use super::*;
use crate::registry::ClusterStatus;

fn answered(ago: Option<u64>, trouble: Option<&str>) -> Snapshot {
    let polled = ago.and_then(|ago| Instant::now().checked_sub(Duration::from_secs(ago)));
    Snapshot {
        clusters: vec![ClusterStatus {
            name: "default".into(),
            ray_version: Some("2.60.0".to_owned()),
            polled,
            trouble: trouble.map(str::to_owned),
            incomplete: None,
        }],
        ..Snapshot::default()
    }
}

#[test]
fn ready_while_every_list_is_fresh() {
    let after = Duration::from_secs(10);
    assert_eq!(readyz(&answered(Some(1), None), after, None).status(), 200);
    // One poll that failed is no reason yet.
    assert_eq!(
        readyz(&answered(Some(9), Some("cannot reach")), after, None).status(),
        200
    );
    assert_eq!(readyz(&answered(Some(11), None), after, None).status(), 503);
    assert_eq!(readyz(&answered(None, None), after, None).status(), 503);
    assert_eq!(readyz(&Snapshot::default(), after, None).status(), 503);
}

#[test]
fn the_age_of_every_cluster_is_told() {
    let list = list(&answered(Some(3), Some("it is away")), false);
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
