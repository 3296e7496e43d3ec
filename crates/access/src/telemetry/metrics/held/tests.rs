#![allow(clippy::unwrap_used)]

use tokio::time::advance;

use super::*;
use ray_relay_ray::ray::testing::paused;

fn held() -> (Registry, HeldMetrics) {
    let registry = Registry::new();
    let held = HeldMetrics::register(&registry).unwrap();
    (registry, held)
}

/// Returns the exported series: `held_tasks{job="01000000",kind="debugpy"} 1` and so on.
fn exported(registry: &Registry, held: &HeldMetrics) -> String {
    held.refresh();
    let mut text = String::new();
    let encoder = prometheus::TextEncoder::new();
    encoder.encode_utf8(&registry.gather(), &mut text).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let short = |line: &str| {
        line.replace("ray_relay_", "")
            .replace("cluster=\"default\",", "")
    };
    lines.map(|line| short(line) + "\n").collect()
}

fn known(n: u8, job: &str, gpus: f64) -> Breakpoint {
    let mut known = paused("train", n);
    let names = known.names_mut();
    names.job_id = Some(job.to_owned());
    names.resources = Some(Resources::of(&[("CPU", 2.0), ("GPU", gpus)]));
    known
}

#[tokio::test(start_paused = true)]
async fn held_resources_are_charged_for_the_whole_hold() {
    let (registry, held) = held();
    let known = known(1, "01000000", 0.5);
    // At first the resources are unknown.
    let mut new = paused("train", 1);
    *new.names_mut() = ray_relay_ray::ray::registry::Names::default();
    held.changed(Change::Appeared, &new);
    advance(Duration::from_secs(2)).await;
    let text = exported(&registry, &held);
    assert!(
        text.contains("held_tasks{kind=\"debugpy\",ray_job=\"unknown\"} 1\n"),
        "{text}"
    );
    held.changed(Change::Named, &known);
    advance(Duration::from_secs(8)).await;
    let text = exported(&registry, &held);
    for line in [
        "held_tasks{kind=\"debugpy\",ray_job=\"01000000\"} 1\n",
        "held_tasks{kind=\"debugpy\",ray_job=\"unknown\"} 0\n",
        "held_gpus{kind=\"debugpy\",ray_job=\"01000000\"} 0.5\n",
        "held_seconds_total{kind=\"debugpy\",ray_job=\"01000000\"} 10\n",
        "held_gpu_seconds_total{kind=\"debugpy\",ray_job=\"01000000\"} 5\n",
        "held_cpu_seconds_total{kind=\"debugpy\",ray_job=\"01000000\"} 20\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    // A session holds the tasks as much as a pause without a client.
    held.changed(Change::Attached, &known);
    advance(Duration::from_secs(10)).await;
    held.changed(Change::Released, &known);
    advance(Duration::from_secs(100)).await;
    let text = exported(&registry, &held);
    for line in [
        "held_tasks{kind=\"debugpy\",ray_job=\"01000000\"} 0\n",
        "held_gpus{kind=\"debugpy\",ray_job=\"01000000\"} 0\n",
        "held_gpu_seconds_total{kind=\"debugpy\",ray_job=\"01000000\"} 10\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn first_collective_timeout_is_exported_while_unheld() {
    let (registry, held) = held();
    for (n, limit) in [(1, 600), (2, 60)] {
        let mut known = known(n, "01000000", 0.0);
        known.first_seen = ray_relay_base::timestamp::Timestamp::now();
        known.names_mut().collective_timeout = Some(Duration::from_secs(limit));
        held.changed(Change::Named, &known);
    }
    advance(Duration::from_secs(20)).await;
    let series = "collective_seconds_left{kind=\"debugpy\",ray_job=\"01000000\"}";
    let text = exported(&registry, &held);
    assert!(text.contains(&format!("{series} 40\n")), "{text}");
    held.changed(Change::Released, &known(2, "01000000", 0.0));
    let text = exported(&registry, &held);
    assert!(text.contains(&format!("{series} 580\n")), "{text}");
    held.changed(Change::Released, &known(1, "01000000", 0.0));
    assert!(!exported(&registry, &held).contains(series));
}

#[tokio::test(start_paused = true)]
async fn job_series_are_bounded() {
    let (registry, held) = held();
    for n in 0..=MAX_JOBS as u8 + 5 {
        held.changed(Change::Appeared, &known(n, &format!("{n:08}"), 1.0));
    }
    let text = exported(&registry, &held);
    let series = |text: &str| text.lines().filter(|l| l.starts_with("held_gpus{")).count();
    assert_eq!(series(&text), MAX_JOBS + 1);
    assert!(
        text.contains("held_gpus{kind=\"debugpy\",ray_job=\"other\"} 6\n"),
        "{text}"
    );
    // The series of an idle job is removed after a period.
    held.changed(Change::Died, &known(7, "00000007", 1.0));
    exported(&registry, &held);
    held.changed(Change::Appeared, &known(200, "00000200", 1.0));
    assert!(!exported(&registry, &held).contains("00000200"));
    advance(IDLE_SERIES_PERIOD).await;
    held.changed(Change::Appeared, &known(201, "00000201", 1.0));
    let text = exported(&registry, &held);
    assert!(
        text.contains("00000201") && !text.contains("00000007"),
        "{text}"
    );
    assert_eq!(series(&text), MAX_JOBS + 1);
}
