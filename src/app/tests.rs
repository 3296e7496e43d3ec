#![allow(clippy::unwrap_used)]

use super::*;
use ray_relay_access::identity::Generated;
use ray_relay_access::identity::keys::Algorithm;
use ray_relay_base::config::Auth;

#[tokio::test]
async fn invalid_key_file_is_reported_before_binding() {
    let occupied = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = Config::default();
    config.listen.address = occupied.local_addr().unwrap();
    let without_keys = start(config.clone()).await;
    assert!(matches!(without_keys, Err(Error::Bind(_))));
    config.auth.keys = vec!["/nowhere/relay.key".into()];
    assert!(matches!(start(config).await, Err(Error::Identity(_))));
}

#[tokio::test]
async fn drain_without_sessions_is_immediate() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("relay.key");
    let secret = Generated::new(Algorithm::Hs256).unwrap().private;
    std::fs::write(&key, &*secret).unwrap();
    let mut config = Config {
        auth: Auth {
            keys: vec![key],
            ..Auth::default()
        },
        ..Config::default()
    };
    config.listen.address.set_port(0);
    // No head listens on this port.
    config.clusters[0].ray_address = "http://127.0.0.1:9".to_owned();
    let relay = start(config).await.unwrap();
    assert!(relay.context.auth.is_on());
    timeout(Duration::from_secs(10), relay.drain())
        .await
        .unwrap();
}
