//! The demo's cluster: several nodes on loopback addresses, which end without a trace.

use std::process::Stdio;
use std::time::Duration;

use ray_relay_access::telemetry::progress::PreparationClock;
use ray_relay_cluster::processes::adopt_orphans;
use ray_relay_cluster::{LocalCluster, Plan};
use tokio_util::sync::CancellationToken;

use crate::support::ray::{self, NEWEST};
use crate::support::turn::Turn;

#[tokio::test]
async fn a_loopback_cluster_stops_tasks_on_every_node_and_leaves_nothing() {
    let Some(venv) = ray::environment(NEWEST) else {
        return;
    };
    let _turn = Turn::take();
    adopt_orphans();
    let progress = PreparationClock::new("it: loopback");
    let plan = Plan {
        venv: &venv,
        ray: NEWEST,
        workers: 2,
        env: &[],
    };
    let mut cluster = LocalCluster::start(plan, &progress).await.unwrap();
    let dir = cluster.dir().to_path_buf();
    let mut driver = cluster
        .command(venv.python())
        .arg(ray::job("tasks.py"))
        .env("WORKERS", "2")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    cluster.own(driver.id());
    let end = tokio::time::Instant::now() + Duration::from_secs(180);
    loop {
        let rows = cluster.jobs().rows("workers?detail=1").await.unwrap();
        let paused = rows
            .iter()
            .filter(|row| row["num_paused_threads"] == 1)
            .count();
        if paused == 3 {
            break;
        }
        assert!(tokio::time::Instant::now() < end, "{paused} of 3 paused");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let remaining = cluster.stop(&CancellationToken::new());
    let _ = driver.wait();
    assert_eq!(remaining, Vec::<i32>::new());
    assert!(!dir.exists());
    assert_eq!(mentioning(dir.to_str().unwrap()), Vec::<String>::new());
}

/// Command lines of living processes that name `dir`.
fn mentioning(dir: &str) -> Vec<String> {
    let lines = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    lines
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(dir))
        .collect()
}
