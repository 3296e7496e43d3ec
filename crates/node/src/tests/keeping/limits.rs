//! For how long an agent keeps a worker.

use std::time::SystemTime;

use super::*;
use ray_relay_base::timestamp::unix_ms;

#[tokio::test]
async fn agent_keeps_a_worker_for_a_day_at_most() {
    let mut scene = Scene::new(Some(keep("ada", minutes(3 * 24 * 60)))).await;
    scene.held().await;
    scene.lose().await;
    let until = scene.held().await.parked.unwrap().until_unix_ms;
    let in_a_day = SystemTime::now() + minutes(24 * 60);
    assert!(until <= unix_ms(in_a_day));
    drop(scene.debugger.stream);
    scene.agent.end().await;
}

#[tokio::test]
async fn credential_limit_does_not_restart_at_the_next_relay() {
    let mut by = keep("ada", minutes(15));
    by.at_most_ms = Some(600_000);
    let mut scene = Scene::new(Some(by)).await;
    scene.held().await;
    scene.lose().await;
    assert!(scene.held().await.parked.is_some());
    let kept = scene.resume().await;
    assert!(kept.at_most_ms.unwrap() < 600_000);
    assert!(kept.lasted_ms > 60_000);
    drop(scene.debugger.stream);
    scene.agent.end().await;
}
