//! Heads that are asked for a diagnosis.
#![allow(clippy::unwrap_used)]

use crate::ray::head::HeadError;
use crate::ray::registry::Registry;
use crate::ray::registry::tests::fake_head::{FakeHead, cluster, settings};
use crate::ray::registry::tests::legacy::FakeGcs;
use ray_relay_base::config::Gcs;

async fn examined(head: &str, gcs: Gcs) -> super::super::Examined {
    let mut cluster = cluster(head);
    cluster.gcs_address = gcs;
    let registry = Registry::new(&[cluster], &settings()).unwrap();
    registry.examined().await.pop().unwrap()
}

/// As where Ray was installed without `ray[default]`: the cluster runs, and has no dashboard.
#[tokio::test]
async fn gcs_without_a_dashboard_is_recognised() {
    let (_gcs, address) = FakeGcs::start().await;
    let found = examined("http://127.0.0.1:1", Gcs::At(address.to_string())).await;
    assert!(matches!(found.version, Err(HeadError::Unreachable { .. })));
    assert_eq!(found.gcs, Some((address.to_string(), true)));
    let found = examined("http://127.0.0.1:1", Gcs::At("127.0.0.1:1".to_owned())).await;
    assert_eq!(found.gcs, Some(("127.0.0.1:1".to_owned(), false)));
}

#[tokio::test]
async fn healthy_head_reports_its_version() {
    let head = FakeHead::start().await;
    let found = examined(&format!("http://{}", head.address), Gcs::Off).await;
    assert_eq!(found.version.unwrap(), "2.60.0");
    assert!(found.state_api.is_ok() && found.gcs.is_none());
    assert!(found.without_debugpy.is_empty() && found.modes.is_empty());
}
