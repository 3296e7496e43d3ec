//! Sessions that end at the wrong moment, on real debugpy: the task can be attached to afterwards.
//!
//! Each departure sends a random part of a debugger's messages, and then ends in one of the possible ways. debugpy's adapter
//! does not survive several of them, so the relay detaches every connection in order.
//!
//! `RAY_RELAY_LONG=1` (continuous integration) has three versions of debugpy stop 75 times each, over 300 departures in all;
//! otherwise it is a tenth of that. `RAY_RELAY_DRILL_SEED=N` repeats a run's choices, which it prints.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ray_relay_access::telemetry::progress::PreparationClock;
use ray_relay_cluster::processes::adopt_orphans;
use ray_relay_cluster::{LocalCluster, Plan};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::leaver::{Departure, KINDS, Leaver};
use self::scene::Scene;
use crate::support::ray::{self, NEWEST, OLDEST};
use crate::support::turn::Turn;
use crate::support::{eventually, say};

mod leaver;
mod scene;

/// Versions of debugpy that replace the installed one.
const OTHER_DEBUGPYS: [&str; 2] = ["1.8.0", "1.8.14"];

/// How long a detached breakpoint may take to be listed again, or to be removed.
const RETURN_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the driver may take to start and to end, and pip to install a debugpy.
const DRIVER_TIMEOUT: Duration = Duration::from_secs(240);

/// Progress is reported after this many departures.
const REPORT_EVERY: usize = 50;

#[tokio::test]
async fn every_departure_leaves_the_task_attachable() {
    let long = std::env::var_os("RAY_RELAY_LONG").is_some();
    let (stops, departures) = if long { (75, 300) } else { (6, 30) };
    drill(NEWEST, &OTHER_DEBUGPYS, stops, departures).await;
}

#[tokio::test]
async fn nor_does_one_on_the_oldest_ray() {
    let long = std::env::var_os("RAY_RELAY_LONG").is_some();
    let (stops, departures) = if long { (20, 30) } else { (4, 6) };
    drill(OLDEST, &[], stops, departures).await;
}

/// Has each actor stop `stops` times, and at least `departures` sessions end before all are resumed.
async fn drill(version: &str, others: &[&str], stops: u64, departures: usize) {
    let Some(venv) = ray::environment(version) else {
        return;
    };
    let _turn = Turn::take();
    adopt_orphans();
    let seed = std::env::var("RAY_RELAY_DRILL_SEED").ok();
    let seed: u64 = seed.map_or_else(rand::random, |seed| seed.parse().unwrap());
    say(format_args!(
        "departures: Ray {version}, RAY_RELAY_DRILL_SEED={seed}"
    ));
    let mut runners = BTreeMap::from([("venv", None)]);
    for other in others {
        runners.insert(other, Some(debugpy(&venv.python(), other)));
    }
    let progress = PreparationClock::new("it: departures");
    let plan = Plan {
        venv: &venv,
        ray: version,
        workers: 0,
        env: &[],
    };
    let mut cluster = LocalCluster::start(plan, &progress).await.unwrap();
    let log = cluster.dir().join("drill.log");
    let file = std::fs::File::create(&log).unwrap();
    let mut driver = cluster
        .command(venv.python())
        .arg("-u")
        .arg(ray::job("drill.py"))
        .env("DRILL", json!(runners).to_string())
        .env("STOPS", stops.to_string())
        .env("RAY_DEBUG", "1")
        .stdin(Stdio::null())
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .spawn()
        .unwrap();
    cluster.own(driver.id());
    let scene = Scene::new(&cluster, log.clone());
    let pids = line(&log, "PIDS ");
    let drill = Drill {
        stops,
        departures,
        began: Instant::now(),
        completed: AtomicUsize::new(0),
        failed: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        for (index, (name, pid)) in pids.as_object().unwrap().iter().enumerate() {
            let pid = pid.as_u64().unwrap();
            let (scene, drill) = (&scene, &drill);
            scope.spawn(move || {
                let leaver = Leaver::new(scene, name, pid, seed.wrapping_add(index as u64));
                drill.leave_until(&leaver, name);
            });
        }
    });
    let result = line(&log, "RESULT ");
    for name in runners.keys() {
        assert_eq!(result[name], stops * (stops - 1) / 2, "{name}: {result}");
    }
    say(format_args!(
        "departures: {} of them, and every task came to its end",
        drill.completed.load(Ordering::Relaxed)
    ));
    ended("the driver's end", &mut driver);
    assert_eq!(cluster.stop(&CancellationToken::new()), Vec::<i32>::new());
}

/// The shared state of all departures.
struct Drill {
    /// Breakpoints of each runner.
    stops: u64,
    departures: usize,
    began: Instant,
    /// The number of departures so far.
    completed: AtomicUsize,
    /// Set by the first failure, which ends the drill.
    failed: AtomicBool,
}

impl Drill {
    /// Leaves one runner again and again, then lets it run to its end.
    fn leave_until(&self, leaver: &Leaver<'_>, name: &str) {
        struct Watch<'a>(&'a AtomicBool);
        impl Drop for Watch<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.store(true, Ordering::Relaxed);
                }
            }
        }
        let _watch = Watch(&self.failed);
        let mut log: Vec<String> = Vec::new();
        let mut kinds = KINDS.iter().cycle().skip(leaver.chance(KINDS.len()));
        let (mut released, mut refused_since) = (0, None);
        while let Some(id) = waiting(leaver, name, &log) {
            let failed = self.failed.load(Ordering::Relaxed);
            assert!(!failed, "{name}: another has failed");
            let completed = self.completed.fetch_add(1, Ordering::Relaxed);
            if completed >= self.departures {
                let answer = leaver.release(&id);
                // A relay that is replaced at that moment lets nothing run, or has forgotten that it did.
                match answer["results"][0]["released"] == true {
                    true => (released, refused_since) = (released + 1, None),
                    false => {
                        let since: &mut Instant = refused_since.get_or_insert_with(Instant::now);
                        let max_wait = 2 * RETURN_TIMEOUT;
                        assert!(
                            since.elapsed() < max_wait,
                            "{name} is not let run: {answer}, after {:#?}",
                            latest(&log)
                        );
                    }
                }
                assert!(
                    released <= 2 * self.stops,
                    "{name} is let run, and does not end"
                );
                continue;
            }
            if completed.is_multiple_of(REPORT_EVERY) {
                let after = self.began.elapsed().as_secs();
                say(format_args!(
                    "departures: {completed} of {} after {after} s",
                    self.departures
                ));
            }
            let departure = Departure::by_chance(*kinds.next().unwrap(), leaver);
            log.push(format!("{departure:?}"));
            leaver.leave(&id, &departure);
        }
    }
}

/// The breakpoint at which the runner waits; `None` when it has ended.
fn waiting(leaver: &Leaver<'_>, name: &str, log: &[String]) -> Option<String> {
    let until = Instant::now() + RETURN_TIMEOUT;
    let last = latest(log);
    loop {
        match leaver.look() {
            leaver::Look::Waits(id) => return Some(id),
            leaver::Look::Ended => return None,
            leaver::Look::Gone(row) => {
                panic!("{name}: its debugger is gone ({row}), after {last:#?}")
            }
            leaver::Look::Busy(state) => {
                assert!(
                    Instant::now() < until,
                    "{name} neither waits nor ends ({state}), after {last:#?}; Ray says {}",
                    leaver.state_in_ray()
                );
            }
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The last lines of the log.
fn latest(log: &[String]) -> &[String] {
    &log[log.len().saturating_sub(3)..]
}

/// The value behind `start`, as soon as the driver has printed it.
fn line(log: &std::path::Path, start: &str) -> Value {
    eventually(start, DRIVER_TIMEOUT, || {
        let log = std::fs::read_to_string(log).unwrap_or_default();
        let whole = &log[..log.rfind('\n')?];
        let line = whole.lines().find_map(|line| line.strip_prefix(start));
        line.map(|value| serde_json::from_str(value).unwrap())
    })
}

/// Returns how `child` ended.
fn ended(what: &str, child: &mut Child) -> ExitStatus {
    eventually(what, DRIVER_TIMEOUT, || child.try_wait().unwrap())
}

/// A folder with that version of debugpy alone, made once.
fn debugpy(python: &std::path::Path, version: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../debugpy");
    let folder = root.join(version);
    if !folder.join("debugpy").exists() {
        let half = root.join(format!("{version}.{}", std::process::id()));
        let mut pip = Command::new(python)
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--disable-pip-version-check",
            ])
            .arg("--target")
            .arg(&half)
            .arg(format!("debugpy=={version}"))
            .spawn()
            .unwrap();
        let made = ended("the end of pip", &mut pip);
        assert!(made.success(), "debugpy {version} is not to be had");
        // Another run may have been quicker.
        let _ = std::fs::rename(&half, &folder);
        let _ = std::fs::remove_dir_all(&half);
    }
    folder.canonicalize().unwrap()
}
