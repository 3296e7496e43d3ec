//! Tests the diagnosis of heads.
#![allow(clippy::unwrap_used)]

use crate::ray::head::HeadError;
use crate::ray::registry::Registry;
use crate::ray::registry::tests::fake_head::{FakeHead, cluster, settings};
use crate::ray::registry::tests::legacy::FakeGcs;
use ray_relay_base::config::Gcs;

async fn examine(head: &str, gcs: Gcs) -> super::super::Examined {
    let mut cluster = cluster(head);
    cluster.gcs_address = gcs;
    let registry = Registry::new(&[cluster], &settings()).unwrap();
    registry.examined().await.pop().unwrap()
}

/// A cluster of Ray without `ray[default]` has no dashboard.
#[tokio::test]
async fn gcs_without_a_dashboard_is_recognised() {
    let (_gcs, address) = FakeGcs::start().await;
    let examination = examine("http://127.0.0.1:1", Gcs::At(address.to_string())).await;
    assert!(matches!(
        examination.version,
        Err(HeadError::Unreachable { .. })
    ));
    assert_eq!(examination.gcs, Some((address.to_string(), true)));
    let examination = examine("http://127.0.0.1:1", Gcs::At("127.0.0.1:1".to_owned())).await;
    assert_eq!(examination.gcs, Some(("127.0.0.1:1".to_owned(), false)));
}

#[tokio::test]
async fn healthy_head_reports_its_version() {
    let head = FakeHead::start().await;
    let examination = examine(&format!("http://{}", head.address), Gcs::Off).await;
    assert_eq!(examination.version.unwrap(), "2.60.0");
    assert!(examination.state_api.is_ok() && examination.gcs.is_none());
    assert!(examination.without_debugpy.is_empty() && examination.modes.is_empty());
}
