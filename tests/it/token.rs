//! Ray's own token (Ray 2.52 and later): only the relay holds it, and no client ever sees it.

use std::time::Duration;

use serde_json::json;

use crate::support::eventually;
use crate::support::namespaces::Cluster;
use crate::support::ray::NEWEST;
use crate::support::scene::Scene;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

#[tokio::test]
async fn ray_token_is_sent_only_to_the_head() {
    let settings = [("RAY_AUTH_MODE", "token"), ("RAY_AUTH_TOKEN", TOKEN)];
    let Some(cluster) = Cluster::up(NEWEST, 0, &settings) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (token, config) = (dir.path().join("token"), dir.path().join("relay.toml"));
    let section = format!(
        "[log]\nlevel = \"trace\"\n[[cluster]]\nname = \"default\"\nray_address = \"{}\"\ntoken_file = \"{}\"\n",
        cluster.dashboard(),
        token.display()
    );
    std::fs::write(&config, section).unwrap();
    let scene = Scene::with(&cluster, &["--config", config.to_str().unwrap()]);
    let trouble = |expected: &str| {
        eventually(expected, Duration::from_secs(120), || {
            let answer = scene.answer();
            let trouble = answer["clusters"][0]["trouble"].as_str().unwrap_or("none");
            trouble.contains(expected).then(|| trouble.to_owned())
        })
    };
    assert!(
        trouble("token").contains("token_file"),
        "without one, the next step is named"
    );
    std::fs::write(&token, "wrong-but-of-a-fitting-length-000").unwrap();
    trouble("refuses");
    // Corrected while it runs.
    std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
    trouble("none");

    let mut driver = cluster.start_driver("actor.py", &settings);
    let row = scene.listed("Counter.add", &driver);
    let (status, _) = cluster
        .get(
            "client",
            &format!("{}/api/version", scene.relay.url()),
            Duration::from_secs(10),
        )
        .unwrap();
    assert_eq!(
        status, 200,
        "the dashboard works without a token of the client's"
    );
    let mut client = scene.attached(&row).await;
    let (thread, _) = client.stopped().await;
    client.resume(thread).await;
    assert_eq!(driver.result(), json!(5));
    assert!(!client.transcript().contains(TOKEN));
    client.disconnect().await;
    scene.assert_none_paused();
    assert!(
        !scene.relay.log().contains(TOKEN),
        "not even at the finest log level"
    );
}
