//! The cluster in namespaces is what it is said to be: Ray's own State API shows the paused
//! workers to the relay's namespace, and the client's namespace reaches none of it.

use std::time::Duration;

use serde_json::json;

use crate::support::dap_client::{DapClient, Editor};
use crate::support::namespaces::Cluster;
use crate::support::ray::NEWEST;

#[tokio::test]
async fn client_cannot_reach_workers_directly() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let mut driver = cluster.start_driver("tasks.py", &[]);
    let paused = cluster.wait_paused(3);
    for node in ["head", "w1", "w2"] {
        let here = paused.iter().filter(|p| p.ip == cluster.address(node));
        assert_eq!(here.count(), 1, "{node}: {paused:?}");
    }
    let url = format!("{}/api/version", cluster.dashboard());
    let max_wait = Duration::from_secs(2);
    assert_eq!(cluster.get("relay", &url, max_wait).unwrap().0, 200);
    assert!(cluster.get("client", &url, max_wait).is_err());

    // Ray alone, without a relay: each task resumes once a client has attached and detached.
    for worker in &paused {
        let address = (worker.ip, worker.port).into();
        let mut client = DapClient::connect_from(Editor::Plain, &cluster, "relay", address).await;
        client
            .start(Editor::Plain.attach("unused", 1, ""), None)
            .await;
        let (thread, reason) = client.stopped().await;
        assert_eq!(reason, "breakpoint");
        let frames = client.frames(thread).await;
        let user = frames.iter().find(|frame| frame.name == "square").unwrap();
        let locals = client.locals(user.id).await;
        assert_eq!(
            locals["y"].parse::<u32>().unwrap(),
            locals["x"].parse::<u32>().unwrap().pow(2)
        );
        client.resume(thread).await;
        client.disconnect().await;
    }
    assert_eq!(driver.result(), json!([["head", 4], ["w1", 9], ["w2", 16]]));
}
